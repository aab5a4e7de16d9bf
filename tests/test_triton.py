"""The Triton kernel gives the same answers as the compiled solver, problem by problem and in batches.

Runs on a GPU where there is one, otherwise under Triton's interpreter on the CPU, which is slow: sizes are small there.
"""

from __future__ import annotations

import itertools
import warnings
from dataclasses import replace

import numpy as np
import pytest

import adaptive_ot as aot
from adaptive_ot._arrays import ArrayKind, to_numpy
from adaptive_ot.batch import ProblemBatch
from adaptive_ot.entropic.batch import solve_on_gpu
from budget import mostly_slow
from problems import Instance

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("triton", reason="Triton is not installed")

from adaptive_ot.entropic.triton import NUMBERS, solve_batch  # noqa: E402

ENTROPIES = ["augmented", "product", "counting"]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
on_gpu = pytest.mark.skipif(DEVICE == "cpu", reason="too slow for the interpreter; needs a GPU")


def random_problem(
    n, m, seed, forbidden=0.0, target_total=0.8, without_weight=([], []), without_pairs=([], []), towards_nothing=()
):
    """Cost and weights; some rows and columns may have no weight, no allowed pair, or only partners without weight."""
    rng = np.random.default_rng(seed)
    cost, mu, nu = rng.normal(size=(n, m)), rng.random(n) + 0.1, rng.random(m) + 0.1
    cost[rng.random((n, m)) < forbidden] = np.inf
    mu, nu = mu / mu.sum(), target_total * nu / nu.sum()
    mu[without_weight[0]], nu[without_weight[1]] = 0, 0
    cost[without_pairs[0]], cost[:, without_pairs[1]] = np.inf, np.inf
    for i in towards_nothing:
        cost[i, nu > 0] = np.inf
    return Instance(cost, mu, nu)


def only_positive(problem):
    return problem._replace(cost=np.abs(problem.cost) + 0.1)


EMPTY = [0, -1], [1, 2]
PROBLEMS = {
    "1 x 1": random_problem(1, 1, 0),
    "1 x 7": random_problem(1, 7, 1),
    "9 x 1": random_problem(9, 1, 2),
    "16 x 16": random_problem(16, 16, 3),
    "20 x 13": random_problem(20, 13, 4),
    "11 x 33": random_problem(11, 33, 5),
    "some forbidden": random_problem(14, 18, 6, forbidden=0.3),
    "nothing allowed": random_problem(12, 10, 7, forbidden=0.4, without_pairs=([1, 2], [1])),
    "without weight": random_problem(13, 9, 8, without_weight=EMPTY),
    "only towards nothing": random_problem(10, 12, 9, without_weight=EMPTY, towards_nothing=[2]),
    "only positive": only_positive(random_problem(12, 17, 10)),
}
LARGE = {f"{n} x {m}": random_problem(n, m, n + m) for n, m in [(72, 72), (128, 128), (100, 60), (33, 128)]}


def solve_by_triton(cost, mu, nu, solver):
    """A batch of one dense problem on DEVICE."""
    problems = ProblemBatch.build(cost[None], mu, nu)
    return solve_on_gpu(replace(problems, cost=torch.as_tensor(cost, device=DEVICE)[None]), solver)


def assert_same(cost, mu, nu, entropy, epsilon, within=1e-12):
    """Every answer agrees."""
    solver = aot.Entropic(epsilon, entropy, tolerance=1e-12, compiled=True)  # the same steps, so the same digits
    expected, found = aot.solve(cost[None], mu, nu, solver=solver), solve_by_triton(cost, mu, nu, solver)
    assert found.status == expected.status == (aot.Status.CONVERGED,)
    for name, answer in ((name, to_numpy(answer)) for name, answer in found.answers._asdict().items()):
        assert np.isfinite(answer).all(), name
        if name != "iterations":
            np.testing.assert_allclose(answer, getattr(expected.answers, name), rtol=0, atol=within, err_msg=name)
    rounding = within if cost.dtype == np.float64 else 2e-6
    np.testing.assert_allclose(found.plan.cpu().numpy(), expected.plan, rtol=0, atol=rounding)


@pytest.mark.parametrize(("name", "entropy"), list(zip(PROBLEMS, itertools.cycle(ENTROPIES), strict=False)))
def test_same_as_compiled(name, entropy):
    assert_same(*PROBLEMS[name], entropy, 0.3)


@pytest.mark.parametrize("epsilon", mostly_slow([0.1, 0.5, 0.02], 1))
@pytest.mark.parametrize("entropy", ENTROPIES)
def test_same_at_other_epsilons(entropy, epsilon):
    assert_same(*random_problem(12, 9, 11), entropy, epsilon)


def test_same_where_all_mass_moves():
    """Between equal totals the potentials are unique up to a constant only."""
    cost, mu, nu = random_problem(20, 13, 4, target_total=1.0)
    solver = aot.Entropic(0.5, "counting", tolerance=1e-12)
    expected, found = aot.solve(cost, mu, nu, solver=solver), solve_by_triton(cost, mu, nu, solver)
    np.testing.assert_allclose(found.plan[0].cpu().numpy(), expected.plan, rtol=0, atol=1e-12)


@pytest.mark.parametrize("entropy", ["augmented", "product"])
def test_batch_is_problem_by_problem(entropy):
    problems = [random_problem(9, 6, seed) for seed in range(3)]
    costs, mu, nu = (torch.as_tensor(np.stack(arrays), device=DEVICE) for arrays in zip(*problems, strict=True))
    weights = torch.cat([mu, nu], dim=1)
    plans, found = solve_batch(costs, weights, entropy, 0.3, 1e-9, 10_000)
    for k in range(3):
        plan, alone = solve_batch(costs[k : k + 1], weights[k : k + 1], entropy, 0.3, 1e-9, 10_000)
        assert torch.equal(plan[0], plans[k])
        assert torch.equal(alone[0], found[k])


def test_float32_costs_are_exact():
    """Costs in float32 are converted as they are, and nothing is computed in float32."""
    cost, mu, nu = random_problem(12, 15, 0)
    assert_same(cost.astype(np.float32), mu, nu, "augmented", 0.1)


@pytest.mark.parametrize("entropy", ENTROPIES)
def test_stops_when_out_of_passes(entropy):
    cost, mu, nu = PROBLEMS["20 x 13"]
    solver = aot.Entropic(0.3, entropy, tolerance=1e-12, max_iterations=6)
    found = solve_by_triton(cost, mu, nu, solver)
    assert found.status == (aot.Status.ITERATION_LIMIT,)
    assert found.violation[0] <= 1e-15  # the plan is feasible all the same, and its gap true
    assert found.value[0] - aot.solve(cost, mu, nu).value <= found.gap[0]


def test_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match="at most 128"):
        solve_batch(torch.zeros(1, 129, 2), torch.ones(1, 131), "augmented", 0.1, 1e-6, 100)


@on_gpu
@pytest.mark.parametrize("epsilon", [0.5, 0.1, 0.02])
@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("entropy", ENTROPIES)
def test_large_ones_are_the_same_on_a_gpu(name, entropy, epsilon):
    """The two end at different points within the tolerance.

    Potentials are off by about epsilon times the tolerance over the lightest weight, 1e-10 here at 0.1; at a smaller
    epsilon conditioning magnifies that.
    """
    assert_same(*LARGE[name], entropy, epsilon, within={0.5: 1e-12, 0.1: 1e-10, 0.02: 1e-8}[epsilon])


@on_gpu
def test_one_launch_without_synchronisation():
    cost, mu, nu = LARGE["72 x 72"]
    costs = torch.as_tensor(cost, device=DEVICE).expand(50, *cost.shape)
    weights = torch.as_tensor(np.concatenate([mu, nu]), device=DEVICE).expand(50, -1)
    solve_batch(costs, weights, "augmented", 0.1, 1e-9, 10_000)  # compiles
    warnings.filterwarnings("ignore", message="Synchronization debug mode")
    try:
        torch.cuda.set_sync_debug_mode("error")
        plans, _ = solve_batch(costs, weights, "augmented", 0.1, 1e-9, 10_000)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.equal(plans[0], plans[-1])


@on_gpu
@pytest.mark.parametrize("entropy", ENTROPIES)
def test_larger_ones_in_torch(entropy):
    """Beyond one program, dense and point costs on the device give the answers of the CPU."""
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=(300, 3)), rng.normal(size=(200, 3)) + 0.3
    solver = aot.Entropic(0.3, entropy, tolerance=1e-12)
    expected = aot.solve(aot.DistanceCost(x, z, 1.0), solver=solver)
    x, z = torch.from_numpy(x).to(DEVICE), torch.from_numpy(z).to(DEVICE)
    for cost in (aot.DistanceCost(x, z, 1.0), torch.cdist(x, z).square() - 1.0):
        found = aot.solve(cost, solver=solver)
        assert found.value == pytest.approx(expected.value, abs=1e-12)
        # The tolerance bounds the marginals; potentials may differ by more, and do with "counting".
        np.testing.assert_allclose(found.source_potential.cpu(), expected.source_potential, rtol=0, atol=1e-10)


@pytest.fixture
def as_on_gpu(monkeypatch):
    """Have `solve` treat every tensor as one on a GPU: Triton's interpreter takes it from there."""
    monkeypatch.setattr(ArrayKind, "on_gpu", property(lambda kind: kind.library == "torch"))


@pytest.mark.parametrize("entropy", ENTROPIES)
def test_who_does_not_wait_gets_the_same_solution(as_on_gpu, entropy):
    cost, solver = random_problem(7, 5, seed=3)[0], aot.Entropic(0.1, entropy, tolerance=1e-9)
    weights = np.arange(1, 8) / 28
    given = torch.from_numpy(cost).to(DEVICE), torch.from_numpy(weights).to(DEVICE)
    found, expected = (aot.solve(*given, solver=replace(solver, wait=wait)) for wait in (False, True))
    assert bool(found.converged)
    assert bool(expected.converged)
    assert str(found) == str(expected)
    for name in ("plan", "value", "gap", "status", "iterations", "target_potential", "active_source", "active_target"):
        assert np.array_equal(to_numpy(getattr(found, name)), to_numpy(getattr(expected, name))), name
    assert found.active_source.dtype == torch.bool
    assert len(found.clusters()) == len(expected.clusters())
    assert found.problem.violation(found.plan) <= 1e-15
    assert to_numpy(found.plan) == pytest.approx(aot.solve(cost, weights, solver=solver).plan, abs=1e-8)
    batch = aot.solve(given[0][None], given[1], solver=replace(solver, wait=False))
    assert str(batch) == str(aot.solve(given[0][None], given[1], solver=solver))
    assert torch.equal(batch.plan[0], found.plan)
    assert batch.converged.tolist() == [True]
    listed = aot.solve(given[0], weights.tolist(), solver=replace(solver, wait=False))
    assert torch.equal(listed.plan, found.plan)


def test_nothing_is_read_where_solve_does_not_wait(as_on_gpu, monkeypatch):
    """Tensors on the meta device have no values: whatever reads one raises."""
    from adaptive_ot.deep.methods.transport import batch_plan

    def on_meta(costs, weights, *settings):
        return torch.empty_like(costs), costs.new_empty(len(costs), len(NUMBERS) + 2 * weights.shape[1])

    monkeypatch.setattr("adaptive_ot.entropic.triton.solve_batch", on_meta)
    cost, solver = torch.empty(7, 5, device="meta"), aot.Entropic(0.1, wait=False)
    plan, unsolved = batch_plan(cost, torch.empty(7, device="meta", dtype=torch.float64), aot.AtMost(), solver)
    assert (plan.dtype, plan.shape, unsolved.shape) == (torch.float32, cost.shape, ())
    assert aot.solve(cost.expand(3, 7, 5), solver=solver).plan.shape == (3, 7, 5)
    with pytest.raises((NotImplementedError, RuntimeError), match="meta"):
        aot.solve(cost, solver=replace(solver, wait=True))
    with pytest.raises(aot.InvalidInput, match=r"target_weights must have shape \(5,\) or \(1, 5\)"):
        aot.solve(cost, None, torch.empty(4, device="meta"), solver=solver)


def test_a_solve_without_waiting_that_went_wrong_ends(as_on_gpu):
    cost = torch.full((3, 4), torch.nan, dtype=torch.float64, device=DEVICE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the interpreter
        solution = aot.solve(cost, solver=aot.Entropic(0.1, max_iterations=5, wait=False))
    assert solution.plan.shape == (3, 4)
    assert not solution.converged


def test_a_solve_without_waiting_that_misses_its_tolerance_says_so(as_on_gpu):
    cost = torch.from_numpy(random_problem(7, 5, seed=3)[0]).to(DEVICE)
    solution = aot.solve(cost, solver=aot.Entropic(1e-3, max_iterations=2, wait=False))
    assert not solution.converged
    assert solution.status is aot.Status.ITERATION_LIMIT
