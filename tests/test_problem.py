"""Problem judges plans and potentials: every number against a loop over all pairs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

import adaptive_ot as aot
import problems


def random_problem(seed, kind):
    """A problem of one kind, with its dense cost."""
    rng = np.random.default_rng(seed)
    n, m = 7, 9
    mu, nu = rng.random(n), rng.random(m)
    if kind == "points":
        x, z = rng.standard_normal((n, 2)), rng.standard_normal((m, 2))
        return aot.Problem.build(aot.DistanceCost(x, z, 1.5), mu, nu), problems.distance_matrix(x, z, 1.5)
    if kind == "joint":
        x, z, p, q = rng.random((n, 2)), rng.random((m, 2)), rng.random((n, 3)), rng.random((m, 3))
        return aot.Problem.build(aot.JointCost(x, z, p, q), mu, nu), problems.joint_matrix(x, z, p, q)
    cost = rng.standard_normal((n, m))
    if kind == "float32":
        cost = cost.astype(np.float32)
        return aot.Problem.build(cost, mu, nu), cost.astype(float)
    if kind in ("forbidden", "sparse"):
        cost[rng.random((n, m)) < 0.4] = np.inf
    if kind == "sparse":
        rows, columns = np.nonzero(np.isfinite(cost))
        stored = sparse.coo_array((cost[rows, columns], (rows, columns)), shape=(n, m))
        return aot.Problem.build(stored, mu, nu), cost
    return aot.Problem.build(cost, mu, nu), cost


KINDS = ["dense", "float32", "forbidden", "sparse", "points", "joint"]
PLANS = [np.asarray, sparse.csr_array, sparse.coo_array, sparse.csc_matrix]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("container", PLANS)
@pytest.mark.parametrize("seed", range(3))
def test_objective(kind, container, seed):
    problem, cost = random_problem(seed, kind)
    rng = np.random.default_rng(seed)
    plan = rng.random(cost.shape) * (rng.random(cost.shape) < 0.5) * np.isfinite(cost)
    terms = [cost[i, j] * plan[i, j] for i, j in np.argwhere(plan)]
    assert problem.objective(container(plan)) == pytest.approx(math.fsum(terms), rel=1e-12)


@pytest.mark.parametrize("kind", ["forbidden", "sparse"])
def test_objective_of_a_forbidden_pair_is_infinite(kind):
    problem, cost = random_problem(0, kind)
    plan = np.zeros(cost.shape)
    plan[tuple(np.argwhere(np.isinf(cost))[0])] = 1e-9
    assert problem.objective(plan) == math.inf


def test_objective_of_a_large_sparse_plan():
    size = 70_000  # the number of pairs exceeds 32 bits, the type of the indices
    diagonal = np.arange(size, dtype=np.int32)
    matrix = sparse.csr_array((np.full(size, -2.0), (diagonal, diagonal)), shape=(size, size))
    assert aot.Problem.build(matrix).objective(-matrix) == 4.0 * -size


def test_objective_beyond_the_largest_cost_is_infinite():
    assert aot.Problem.build([[1e300, -1.0]]).objective([[1e90, 0.5]]) == math.inf
    assert aot.Problem.build([[1e300, -1.0]]).objective([[0.0, 0.5]]) == -0.5


@pytest.mark.parametrize("model", [aot.AtMost(), aot.Equal(), aot.FixedMass(0.5), aot.ChiSquareBall(0.1)])
@pytest.mark.parametrize("size", [1e150, 1e308])
def test_dual_value_of_huge_potentials(model, size):
    given = [[1.0, np.inf], [2.0, 3.0]], [10.0, 20.0], [20.0, 10.0]
    problem = aot.Problem.build(*given, model)
    assert -math.inf < problem.dual_value([-size, 0.0]) <= aot.solve(*given, marginals=model).value
    assert problem.dual_value([size, 0.0]) < math.inf


@pytest.mark.parametrize("container", PLANS)
@pytest.mark.parametrize("seed", range(5))
def test_violation(container, seed):
    problem, cost = random_problem(seed, "dense")
    plan = np.random.default_rng(seed).standard_normal(cost.shape) * 0.5
    n, m = cost.shape
    excess = [-plan[i, j] for i in range(n) for j in range(m)]
    excess += [sum(plan[i]) - problem.source_weights[i] for i in range(n)]
    excess += [sum(plan[:, j]) - problem.target_weights[j] for j in range(m)]
    assert problem.violation(container(plan)) == pytest.approx(max(excess), rel=1e-12)


def test_violations_of_each_rule():
    plan = [[0.75, -0.25], [0.125, 0.0]]
    expected = {
        aot.AtMost(): (0.0, 0.375, 0.0),
        aot.Equal(): (0.375, 0.75, 0.0),
        aot.FixedMass(0.5): (0.0, 0.375, 0.125),
        aot.SoftKL(1.0): (0.0, 0.0, 0.0),
    }
    for model, (source, target, mass) in expected.items():
        judgement = aot.Problem.build(np.ones((2, 2)), marginals=model).judge(plan)
        assert judgement.violations == (source, target, mass, 0.25)
        assert judgement.mass == 0.625
    source, target, mass, _ = (
        aot.Problem.build(np.ones((2, 2)), marginals=aot.ChiSquareBall(0.0)).judge(plan).violations
    )
    assert 0 < source < target
    assert mass == 0.375


@pytest.mark.parametrize("container", PLANS)
def test_violation_of_a_feasible_plan_is_zero(container):
    problem, cost = random_problem(0, "dense")
    plan = np.outer(problem.source_weights, problem.target_weights) / problem.target_weights.sum() / 10
    assert problem.violation(container(plan)) == 0.0
    assert problem.violation(container(np.zeros(cost.shape))) == 0.0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_c_transform_and_dual_value(kind, seed):
    problem, cost = random_problem(seed, kind)
    f = np.random.default_rng(seed).standard_normal(cost.shape[0])  # of either sign: clipped at zero
    clipped = [min(0.0, value) for value in f]
    g = [min(0.0, min(cost[i, j] - clipped[i] for i in range(cost.shape[0]))) for j in range(cost.shape[1])]
    np.testing.assert_allclose(problem.c_transform(f), g, rtol=1e-12, atol=1e-14)
    dual = math.fsum(problem.source_weights * clipped) + math.fsum(problem.target_weights * g)
    assert problem.dual_value(f) == pytest.approx(dual, rel=1e-12)


@pytest.mark.parametrize("rows_at_once", [1, 3, 100])
def test_c_transform_in_blocks(rows_at_once, monkeypatch):
    problem, cost = random_problem(0, "dense")
    monkeypatch.setattr("adaptive_ot.costs.NUMBERS_AT_ONCE", rows_at_once * cost.shape[1])
    f = -np.random.default_rng(0).random(cost.shape[0])
    np.testing.assert_array_equal(problem.c_transform(f), np.minimum(0.0, (cost - f[:, None]).min(axis=0)))


@pytest.mark.parametrize("kind", KINDS)
def test_transposed(kind):
    problem, cost = random_problem(4, kind)
    g = np.random.default_rng(4).standard_normal(cost.shape[1])
    expected = aot.Problem.build(cost.T, problem.target_weights, problem.source_weights).bound(g)
    bound = problem.transposed().bound(g)
    assert bound.value == pytest.approx(expected.value, rel=1e-12)
    np.testing.assert_allclose(bound.target_potential, expected.target_potential, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("kind", KINDS)
def test_gap(kind):
    problem, cost = random_problem(1, kind)
    plan, f = np.zeros(cost.shape), np.zeros(cost.shape[0])
    g = np.minimum(0.0, cost.min(axis=0))
    assert problem.gap(plan, f) == pytest.approx(-(problem.target_weights @ g), rel=1e-12)
    solution = aot.solve(problem.cost if kind in ("points", "joint") else cost, *problem_weights(problem))
    assert problem.gap(solution.plan, solution.source_potential) <= (1e-6 if kind == "float32" else 1e-13)
    assert problem.gap(solution.sparse_plan, solution.source_potential) <= (1e-6 if kind == "float32" else 1e-13)


def problem_weights(problem):
    return problem.source_weights, problem.target_weights


@given(
    hnp.arrays(float, (4, 3), elements=st.floats(-10, 10, width=32) | st.just(np.inf)),
    hnp.arrays(float, 4, elements=st.floats(0, 10, width=32)),
    hnp.arrays(float, 3, elements=st.floats(0, 10, width=32)),
    hnp.arrays(float, 4, elements=st.floats(-1e6, 1e6)),
)
def test_any_potential_gives_a_lower_bound(cost, mu, nu, potential):
    problem = aot.Problem.build(cost, mu, nu)
    optimum = problems.reference_value(cost, mu, nu)
    bound = problem.dual_value(potential)
    assert bound <= optimum + 1e-7 * (1 + abs(optimum))
    assert bound <= aot.solve(cost, mu, nu).value + 1e-12 * (1 + abs(bound))


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0)])
def test_empty(shape):
    problem = aot.Problem.build(np.zeros(shape))
    plan, f = np.zeros(shape), np.zeros(shape[0])
    assert problem.objective(plan) == problem.violation(plan) == problem.dual_value(f) == problem.gap(plan, f) == 0.0
    np.testing.assert_array_equal(problem.c_transform(f), np.zeros(shape[1]))


def test_default_weights_are_uniform():
    problem = aot.Problem.build(np.zeros((4, 5)))
    np.testing.assert_array_equal(problem.source_weights, np.full(4, 0.25))
    np.testing.assert_array_equal(problem.target_weights, np.full(5, 0.2))
    assert problem.marginals == aot.AtMost()


def test_most_mass():
    assert aot.Problem.build(np.zeros((2, 2)), [1.0, 2.0], [0.5, 1.0]).most_mass == 1.5


def test_inputs_are_untouched():
    problem, cost = random_problem(2, "dense")
    plan, f = np.full(cost.shape, 0.01), np.ones(cost.shape[0])
    plan.flags.writeable = f.flags.writeable = False
    problem.gap(plan, f)
    problem.violation(plan)
    np.testing.assert_array_equal(f, np.ones(cost.shape[0]))


def test_weights_are_copied():
    mu = np.array([1.0, 2.0])
    problem = aot.Problem.build(np.zeros((2, 2)), mu, [1.0, 1.0])
    mu[0] = 99.0
    assert problem.source_weights[0] == 1.0
