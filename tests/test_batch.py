"""Batches of problems: each answer is that of its problem alone."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import adaptive_ot as aot
import problems
from adaptive_ot.exact import batch as _batch
from budget import mostly_slow
from check import as_numpy, check_solution
from interruption import interrupt

UNIFORM = None, None


def check_batch(batch: Any, costs: np.ndarray, mu: Any = None, nu: Any = None, **kind: Any) -> None:
    """Judge every solution, and the stacked fields by the single ones."""
    count, n, m = costs.shape
    mu = np.broadcast_to(np.full(n, 1 / max(1, n)) if mu is None else mu, (count, n))
    nu = np.broadcast_to(np.full(m, 1 / max(1, m)) if nu is None else nu, (count, m))
    assert len(batch) == len(batch.status) == count
    for b in range(count):
        check_solution(batch[b], costs[b], mu[b], nu[b], **kind)
    dtype, library = np.dtype(kind.get("dtype", np.float64)), kind.get("library", "numpy")
    shapes = {"plan": (n, m), "value": (), "mass": (), "gap": (), "violation": (), "iterations": ()}
    shapes |= {f"source_{name}": (n,) for name in ("marginal", "potential")} | {"active_source": (n,)}
    shapes |= {f"target_{name}": (m,) for name in ("marginal", "potential")} | {"active_target": (m,)}
    for name, shape in shapes.items():
        stacked = getattr(batch, name)
        assert type(stacked).__module__.startswith(library)
        stacked = as_numpy(stacked)
        assert stacked.shape == (count, *shape), name
        assert stacked.dtype == {"a": np.dtype(bool), "i": np.dtype(np.int64)}.get(name[0], dtype), name
        for b in range(count):
            np.testing.assert_array_equal(
                stacked[b], np.asarray(as_numpy(np.asarray(getattr(batch[b], name))), stacked.dtype), name
            )


def random_weights(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return 10.0 ** rng.uniform(-3, 1, shape) * (rng.random(shape) < 0.9)


@pytest.mark.parametrize("seed", mostly_slow(range(40), 10))
def test_integer_problems_have_the_value_of_the_loop(seed):
    """400 problems with ties, zeros, forbidden pairs, equal and unequal integer weights, empty sides."""
    rng = np.random.default_rng(seed)
    first = problems.integer_problem(rng)
    instances = [first]
    while len(instances) < 10:
        cost = rng.permuted(first.cost, axis=int(rng.integers(2)))
        weights = [rng.permutation(side) for side in (first.source_weights, first.target_weights)]
        if rng.random() < 0.3:
            weights = [np.ones(side.size) for side in weights]
        instances.append(problems.Instance(cost, *weights))
    costs, mu, nu = (np.array(part) for part in zip(*instances, strict=True))
    batch = aot.solve(costs, mu, nu)
    check_batch(batch, costs, mu, nu)
    assert batch.value.tolist() == [aot.solve(*instance).value for instance in instances]


@pytest.mark.parametrize("shape", [(30, 30), (20, 33), (33, 20), (1, 40), (40, 1), (1, 1)])
@pytest.mark.parametrize("weights", ["uniform", "equal", "shared", "each"])
def test_real_problems(shape, weights):
    rng = np.random.default_rng([*shape, len(weights)])
    n, m = shape
    costs = rng.standard_normal((8, n, m))
    costs[4:][rng.random((4, n, m)) < 0.2] = np.inf
    costs[2] -= 3.0  # all or most of the pairs attract
    costs[3] += 9.0  # none does
    mu, nu = {
        "uniform": UNIFORM,
        "equal": (np.full(n, 0.3), np.full((8, m), 0.3)),
        "shared": (rng.random(n), rng.random(m)),
        "each": (random_weights(rng, (8, n)), random_weights(rng, (8, m))),
    }[weights]
    batch = aot.solve(costs, mu, nu)
    check_batch(batch, costs, mu, nu)
    for b, solution in enumerate(batch):
        each = (side if side is None or side.ndim == 1 else side[b] for side in (mu, nu))
        assert solution.value == pytest.approx(aot.solve(costs[b], *each).value, rel=1e-13, abs=1e-15)


def test_values_of_scipy():
    from scipy.optimize import linear_sum_assignment

    rng = np.random.default_rng(0)
    costs = rng.uniform(-1, 1, (50, 64, 64))
    costs[25:] = np.round(8 * costs[25:])
    expected = [min_cost[linear_sum_assignment(min_cost)].sum() / 64 for min_cost in np.minimum(costs, 0.0)]
    np.testing.assert_allclose(aot.solve(costs).value, expected, rtol=1e-14)


def test_unique_answers_are_those_of_the_loop():
    """Where the plan is unique, so is everything but the potentials, and these prove the same value."""
    rng = np.random.default_rng(1)
    known = [problems.permutation(rng, 12) for _ in range(20)]
    batch = aot.solve(np.array([k.problem.cost for k in known]), np.ones(12), np.ones(12))
    np.testing.assert_array_equal(batch.plan, [k.plan for k in known])
    assert batch.value.tolist() == [k.value for k in known]
    assert not batch.gap.any()


@pytest.mark.parametrize("scale", [1e-90, 1e-9, 1e9, 1e90])
def test_any_scale(scale):
    rng = np.random.default_rng(2)
    costs, mu = rng.standard_normal((3, 9, 7)), rng.random(9)
    plain, scaled = aot.solve(costs, mu), aot.solve(scale * costs, mu)
    np.testing.assert_allclose(scaled.value, scale * plain.value, rtol=1e-13)
    np.testing.assert_allclose(scaled.plan, plain.plan, rtol=1e-13)


@pytest.mark.parametrize("mu", [[1e90, 1.0, 1e-90], [0.0, 0.0, 0.0], [0.0, 1.0, 1e-300]])
def test_weights_of_very_different_sizes(mu):
    rng = np.random.default_rng(3)
    costs = rng.integers(-5, 3, (10, 3, 4)).astype(float)
    batch = aot.solve(costs, mu, np.ones(4))
    for b, solution in enumerate(batch):
        assert solution.value == pytest.approx(aot.solve(costs[b], mu, np.ones(4)).value, rel=1e-13)
        assert solution.violation <= 1e-12 * max(solution.mass, 1e-300)


@pytest.mark.parametrize("weights", [UNIFORM, (np.arange(1.0, 13.0), np.ones(10))], ids=["equal", "unequal"])
def test_float32(weights):
    costs = np.random.default_rng(4).standard_normal((6, 12, 10)).astype(np.float32)
    check_batch(aot.solve(costs, *weights), costs, *weights, dtype=np.float32)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int64"])
def test_torch(dtype):
    torch = pytest.importorskip("torch")
    costs = torch.randint(-9, 9, (4, 6, 5), generator=torch.Generator().manual_seed(0)).to(getattr(torch, dtype))
    nu = torch.arange(1.0, 6.0)
    batch = aot.solve(costs, None, nu)
    expected = np.float32 if dtype in ("float32", "bfloat16") else np.float64
    check_batch(batch, costs.double().numpy(), None, nu.numpy(), dtype=expected, library="torch")
    assert type(batch[0].problem.cost.entries(np.array([0]), np.array([0]))) is np.ndarray


@pytest.mark.parametrize("shape", [(0, 3, 4), (3, 0, 4), (3, 4, 0), (3, 0, 0), (0, 0, 0)])
def test_empty(shape):
    batch = aot.solve(np.ones(shape))
    check_batch(batch, np.ones(shape))
    assert batch.status == (aot.Status.OPTIMAL,) * shape[0]
    assert f"{shape[0]} problems of {shape[1]} x {shape[2]}" in str(batch)
    assert f"{shape[0]} problems" in repr(batch)


def test_problems_beyond_the_kernel(monkeypatch):
    rng = np.random.default_rng(5)
    costs, mu = rng.standard_normal((3, 20, 15)), rng.random((3, 20))
    small = aot.solve(costs, mu)
    monkeypatch.setattr(_batch, "SMALL", 0)
    large = aot.solve(costs, mu)
    check_batch(large, costs, mu)
    np.testing.assert_allclose(small.value, large.value, rtol=1e-13)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_many_threads_and_calls_change_nothing(monkeypatch, dtype):
    rng = np.random.default_rng(6)
    costs, mu = rng.standard_normal((37, 9, 8)).astype(dtype), np.ones((37, 9))
    mu[::2] = rng.random((19, 9))
    expected = aot.solve(costs, mu, np.ones(8))
    monkeypatch.setattr(_batch, "PAIRS_PER_THREAD", 1)
    monkeypatch.setattr(_batch, "PAIRS_PER_CALL", 200)
    cut = aot.solve(costs, mu, np.ones(8))
    for name in ("plan", "value", "gap", "source_potential", "target_potential", "iterations"):
        np.testing.assert_array_equal(getattr(cut, name), getattr(expected, name), name)


def test_a_batch_is_a_sequence():
    costs = np.random.default_rng(7).standard_normal((5, 3, 4))
    problem_batch, batch = aot.ProblemBatch.build(costs), aot.solve(costs)
    assert [s.value for s in batch[1:3]] == [batch[1].value, batch[2].value]
    assert batch[-1].value == batch[4].value == list(batch)[4].value
    assert [p.cost.shape for p in problem_batch[:2]] == [(3, 4)] * 2
    for sequence in (problem_batch, batch):
        assert len(sequence) == 5
        with pytest.raises(IndexError):
            sequence[5]
    for problem, solution in zip(problem_batch, batch, strict=True):
        assert problem.gap(solution.plan, solution.source_potential) <= 1e-15
    assert batch[2].clusters()
    assert batch.plan is batch.plan


def test_lists_and_foreign_layouts():
    costs = np.random.default_rng(8).integers(-9, 9, (4, 3, 5))
    expected = aot.solve(costs.astype(float)).value.tolist()
    read_only = costs.astype(float)
    read_only.flags.writeable = False
    for given in (costs, costs.tolist(), list(costs), costs.astype(">f8"), np.asfortranarray(costs), read_only):
        assert aot.solve(given).value.tolist() == expected


def test_inputs_stay_as_they_are():
    rng = np.random.default_rng(9)
    given = rng.standard_normal((6, 7, 8)), rng.random((6, 7)), rng.random(8)
    before = [array.copy() for array in given]
    aot.solve(*given)
    for array, copy in zip(given, before, strict=True):
        np.testing.assert_array_equal(array, copy)


def with_entry(shape: tuple[int, ...], at: tuple[int, ...], value: float) -> np.ndarray:
    array = np.ones(shape)
    array[at] = value
    return array


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((with_entry((2, 3, 4), (1, 2, 3), np.nan),), r"cost must not contain NaN; got NaN at (1, 2, 3)"),
        ((with_entry((2, 3, 4), (1, 0, 2), -np.inf),), r"-inf at (1, 0, 2)"),
        ((np.ones((2, 3, 4), complex),), "cost must hold real numbers"),
        (([[[1.0], [2.0]], [[1.0]]],), "cost must have one size for all problems of a batch; got 2 x 1 and 1 x 1"),
        ((np.ones((2, 3, 4)), np.ones(4)), "source_weights must have shape (3,) or (2, 3) to match the cost; got (4,)"),
        ((np.ones((2, 3, 4)), None, np.ones((3, 4))), "target_weights must have shape (4,) or (2, 4)"),
        ((np.ones((2, 3, 4)), with_entry((2, 3), (1, 2), -1.0)), "source_weights must be non-negative; got -1.0 at"),
        ((np.ones((2, 3, 4)), with_entry((2, 3), (1, 2), np.inf)), "inf at index (1, 2)"),
        ((np.ones((2, 3, 4)), with_entry((3,), (2,), np.nan)), "nan at index 2"),
        ((np.ones((2, 3, 4, 5)),), "cost must have two dimensions"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(aot.InvalidInput) as caught:
        aot.solve(*arguments)
    assert message in str(caught.value)


def test_problem_batch_refuses_a_matrix():
    with pytest.raises(aot.InvalidInput, match="three dimensions"):
        aot.ProblemBatch.build(np.ones((2, 3)))


def test_problems_that_do_not_converge():
    costs = np.ones((5, 4, 4))
    costs[[1, 3]] = -np.arange(1.0, 17.0).reshape(4, 4)
    with pytest.raises(aot.NotConverged, match=r"2 of 5 problems \(1, 3\)") as caught:
        aot.solve(costs, solver=aot.Exact(max_pivots=0))
    batch = caught.value.solution
    assert [status.name for status in batch.status] == ["OPTIMAL", "PIVOT_LIMIT"] * 2 + ["OPTIMAL"]
    assert "3 optimal, 2 pivot_limit" in repr(batch)
    quiet = aot.solve(costs, solver=aot.Exact(max_pivots=0), raise_if_not_converged=False)
    assert quiet.status == batch.status
    assert quiet[1].status is aot.Status.PIVOT_LIMIT


def test_progress(monkeypatch):
    monkeypatch.setattr(_batch, "PAIRS_PER_CALL", 1000)
    reports: list[aot.Progress] = []
    batch = aot.solve(np.random.default_rng(10).standard_normal((100, 10, 10)), progress=reports.append)
    fractions = [report.fraction for report in reports]
    assert len(fractions) > 3
    assert fractions == sorted(fractions)  # pyright: ignore[reportArgumentType]
    assert fractions[-1] == 1.0
    assert {report.stage for report in reports} == {"batch"}
    assert reports[-1].iterations == batch.iterations.sum()
    assert reports[-1].gap == batch.gap.max()


LONG_SOLVE = """
import numpy as np, adaptive_ot as aot

rng = np.random.default_rng(0)
aot.solve(rng.standard_normal((2, 64, 64)), rng.random((2, 64)))
cost = np.broadcast_to(rng.standard_normal((64, 64)), (5_000, 64, 64)).astype(np.float64)
try:
    aot.solve(cost, rng.random((5_000, 64)), progress=lambda report: print("at", report.stage, flush=True))
    print("finished", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
def test_ctrl_c():
    interrupt(LONG_SOLVE, "batch")
