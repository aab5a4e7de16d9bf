"""What holds for every model of the family, whichever solver answers."""

import json

import numpy as np
import pytest
from scipy import sparse

import adaptive_ot as aot
from adaptive_ot.workbench.cli import main

COST = np.random.default_rng(0).random((5, 5))
EXACT = [aot.AtMost(), aot.Equal(), aot.FixedMass(0.7), aot.ChiSquareBall(0.1)]
ENTROPIC = [aot.AtMost(), aot.Equal(), aot.FixedMass(0.7), aot.SoftKL(0.5)]


@pytest.mark.parametrize("marginals", EXACT[1:], ids=str)
@pytest.mark.parametrize("limit", [0, 1, 3])
def test_a_pivot_limit_is_no_optimum(marginals, limit):
    """Whatever part of the work it stops."""
    solution = aot.solve(COST, marginals=marginals, solver=aot.Exact(max_pivots=limit), raise_if_not_converged=False)
    assert solution.status is aot.Status.PIVOT_LIMIT
    assert solution.violation > 0.01
    with pytest.raises(aot.NotConverged, match="pivot limit"):
        aot.solve(COST, marginals=marginals, solver=aot.Exact(max_pivots=limit))


def test_the_limit_also_holds_while_the_price_rises():
    cost = np.random.default_rng(1).normal(size=(60, 50))
    steps = aot.solve(cost, marginals=aot.FixedMass(0.95)).iterations
    for limit in (steps // 2, steps - 1):
        limited = aot.Exact(max_pivots=limit)
        solution = aot.solve(cost, marginals=aot.FixedMass(0.95), solver=limited, raise_if_not_converged=False)
        assert solution.status is aot.Status.PIVOT_LIMIT
        assert solution.iterations <= limit
        assert solution.mass < 0.95
    assert aot.solve(cost, marginals=aot.FixedMass(0.95), solver=aot.Exact(max_pivots=steps)).iterations == steps


@pytest.mark.parametrize("marginals", ENTROPIC[1:], ids=str)
def test_a_plan_off_its_marginals_says_so(marginals):
    solver = aot.Entropic(0.01, max_iterations=1)
    solution = aot.solve(COST - 1, marginals=marginals, solver=solver, raise_if_not_converged=False)
    assert not solution.status.succeeded
    assert ("marginals off by" in str(solution)) == (solution.violation > 1e-9)
    assert solution.violation == pytest.approx(solution.problem.violation(solution.plan), abs=1e-12)


@pytest.mark.parametrize("weight", [1e-100, 1e-305, 5e-324])
@pytest.mark.parametrize("marginals", EXACT, ids=str)
def test_a_weight_of_next_to_nothing_is_nothing(marginals, weight):
    mu, nu = (np.append(np.full(4, 0.5), side) for side in (0.0, weight))
    expected = aot.solve(COST - 0.5, mu, mu, marginals=marginals).value
    for weights in ((mu, nu), (nu, mu), (nu, nu)):
        assert aot.solve(COST - 0.5, *weights, marginals=marginals).value == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("marginals", EXACT[1:], ids=str)
def test_costs_too_large_to_add_up(marginals):
    for large in (1e101, 1e300, np.finfo(float).max):
        dear = np.where(np.eye(5, dtype=bool), large, COST)
        for cost in (dear, sparse.csr_array(dear)):
            with pytest.raises(aot.InvalidInput, match=r"cost must be at most 1e\+100, or \+inf.* at index"):
                aot.solve(cost, marginals=marginals)
        forbidden = np.where(np.eye(5, dtype=bool), np.inf, COST)
        assert aot.solve(dear).value == aot.solve(forbidden).value == 0.0


@pytest.mark.parametrize("marginals", EXACT[1:], ids=str)
@pytest.mark.parametrize("size", [1e-100, 1e-60, 1e60, 1e100])
def test_costs_of_any_size(marginals, size):
    value = aot.solve(size * COST, marginals=marginals).value
    assert value == pytest.approx(size * aot.solve(COST, marginals=marginals).value, rel=1e-9)


@pytest.mark.parametrize("marginals", EXACT[1:], ids=str)
def test_points_as_far_apart_as_they_may_be(marginals):
    x, z = np.random.default_rng(1).random((2, 5, 2))
    plain, far = (aot.DistanceCost(scale * x, scale * z, reach=0.0) for scale in (1.0, 1e100))
    expected = 1e200 * aot.solve(plain, marginals=marginals).value
    assert aot.solve(far, marginals=marginals).value == pytest.approx(expected, rel=1e-8)


def test_a_mass_of_next_to_nothing():
    for mass in (1e-100, 1e-305, 5e-324):
        solution = aot.solve(COST, marginals=aot.FixedMass(mass))
        assert (solution.mass, solution.price) == (mass, COST.min())


@pytest.mark.parametrize("rho", [0.0, 1e-30, 1e-18, 1e-6])
def test_a_ball_of_no_size_is_its_centre(rho):
    robust, balanced = (aot.solve(COST, marginals=each) for each in (aot.ChiSquareBall(rho), aot.Equal()))
    assert robust.value == pytest.approx(balanced.value, abs=2 * rho**0.5)
    assert robust.gap <= 1e-9


def test_unbalanced_transport_has_no_largest_mass(tmp_path, capsys):
    """Pairs that pay make mass."""
    settings = {"marginals": aot.SoftKL(0.5), "solver": aot.Entropic(0.1)}
    solution = aot.solve(COST - 1, **settings)
    assert solution.mass > 1
    assert solution.problem.most_mass == np.inf
    assert "at most" not in str(solution)
    np.save(tmp_path / "cost.npy", COST - 1)
    command = ["solve", str(tmp_path / "cost.npy"), "--tau", "0.5", "--epsilon", "0.1"]
    assert main(command) == 0
    assert "at most" not in capsys.readouterr().out
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["most_mass"] is None


@pytest.mark.parametrize("solver", [aot.Exact(), aot.Entropic(0.1)], ids=str)
def test_an_infeasible_problem_of_a_batch_is_named(solver):
    costs = np.stack([COST, COST, np.where(np.eye(5) > 0, np.inf, COST), np.where(COST < 2, np.inf, 0.0)])
    with pytest.raises(aot.Infeasible, match="Problem 3 of the batch: No plan moves a mass of 1: only 0 can") as caught:
        aot.solve(costs, marginals=aot.Equal(), solver=solver)
    assert caught.value.problem == 3


def test_only_given_files_are_blamed(tmp_path, capsys):
    np.save(tmp_path / "cost.npy", COST)
    np.save(tmp_path / "weights.npy", np.ones(5))
    arguments = ["solve", str(tmp_path / "cost.npy"), "--equal", "--source-weights", str(tmp_path / "weights.npy")]
    assert main(arguments) == 2
    complaint = capsys.readouterr().err
    assert "target_weights must have the same total" in complaint
    assert "None" not in complaint


def test_unreachable_points_pay_for_their_weight_alone():
    torch = pytest.importorskip("torch")
    from adaptive_ot.autodiff import transport_value

    cost = torch.full((3, 3), float("inf"), dtype=torch.float64)
    weights = torch.tensor([0.0, 0.5, 0.5], dtype=torch.float64, requires_grad=True)
    transport_value(cost, weights, marginals=aot.SoftKL(0.5), solver=aot.Entropic(0.1)).backward()
    assert torch.isfinite(weights.grad).all()
    torch.testing.assert_close(weights.grad[1:], weights.grad[:1].expand(2))


def test_a_path_is_of_one_problem():
    with pytest.raises(aot.InvalidInput, match="single problem"):
        aot.mass_path(np.zeros((2, 3, 3)))


def random_problem(shape):
    rng = np.random.default_rng(2)
    *batch, n, m = shape
    mu, nu = rng.random((*batch, n)) + 0.1, rng.random((*batch, m)) + 0.1
    return rng.standard_normal(shape), mu, nu * (mu.sum(axis=-1, keepdims=True) / nu.sum(axis=-1, keepdims=True))


def single(problem, library):
    """The same numbers in float32."""
    arrays = [side.astype(np.float32) for side in problem]
    return arrays if library == "numpy" else [pytest.importorskip("torch").from_numpy(side) for side in arrays]


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("shape", [(7, 9), (3, 7, 9)])
@pytest.mark.parametrize(
    ("marginals", "solver"),
    [(each, aot.Exact()) for each in EXACT] + [(each, aot.Entropic(0.5)) for each in ENTROPIC],
    ids=str,
)
def test_the_violation_is_that_of_the_plan_handed_out(marginals, solver, shape, library):
    """In float32 too, where no rounding may lift a marginal above its weight."""
    check_violation(shape, library, marginals, solver)


def test_the_violation_of_larger_batches():
    check_violation((2, 300, 260), "numpy", aot.AtMost(), aot.Exact())


def check_violation(shape, library, marginals, solver):
    cost, mu, nu = single(random_problem(shape), library)
    found = aot.solve(cost, mu, nu, marginals=marginals, solver=solver)
    solutions = [found] if len(shape) == 2 else list(found)
    for index, solution in enumerate(solutions):
        assert str(solution.plan.dtype).endswith("float32")
        if len(shape) == 3:
            assert np.array_equal(found.plan[index], solution.plan)
            assert float(found.violation[index]) == pytest.approx(solution.violation, rel=1e-6)
        expected = solution.problem.violation(solution.plan)
        assert solution.violation == pytest.approx(expected, rel=1e-6, abs=1e-14)
        if isinstance(marginals, aot.AtMost):
            assert solution.violation <= 1e-15
