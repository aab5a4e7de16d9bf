"""Sums over all pairs of points on a GPU agree with NumPy, and so do the solutions that come from them.

Runs on a GPU where there is one, otherwise under Triton's interpreter on the CPU, which is slow: sizes are small there.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import adaptive_ot as aot
from adaptive_ot._arrays import ArrayKind, rounded_down
from adaptive_ot.entropic import solver as solver_module
from adaptive_ot.entropic.solver import solve_entropic
from budget import mostly_slow
from shards import point_cost, sharded, silent, weights

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("triton", reason="Triton is not installed")

from adaptive_ot.entropic import skipping, streaming, sweeps  # noqa: E402
from adaptive_ot.entropic.sweeps import DOUBLE, HALF, SINGLE  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

# For exponents of about ten: the rounding of float16 and float32 is relative to their size.
WITHIN = {HALF: 5e-2, SINGLE: 2e-5, DOUBLE: 1e-12}

SIZES = [(1, 1, 1), (50, 70, 3), (129, 64, 20), (60, 200, 70), (140, 260, 2)]


@pytest.fixture(autouse=True, scope="module")
def whole_numbers():
    """Triton 3.6's interpreter leaves the conversion of arrays of one number to NumPy, which no longer does it."""
    with pytest.MonkeyPatch.context() as patch:
        if DEVICE == "cpu":
            from triton.runtime import interpreter

            before = interpreter._patch_lang_tensor

            def patched(tensor, scope):
                before(tensor, scope)
                scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

            patch.setattr(interpreter, "_patch_lang_tensor", patched)
        yield


class Example:
    """Two clouds, and exponents t_ij = scale <u_i, w_j> + shift_j, in NumPy and for the kernels."""

    def __init__(self, n, m, d, seed=0):
        rng = np.random.default_rng(seed)
        self.u, self.w = rng.normal(size=(n, d)), rng.normal(size=(m, d))
        self.shift, self.values = rng.normal(size=m), rng.normal(size=m)
        self.scale = 4 / math.sqrt(d)
        self.t = self.scale * self.u @ self.w.T + self.shift
        self.logs = np.logaddexp2.reduce(self.t, axis=1)
        self.plan = np.exp2(self.t - self.logs[:, None])
        self.rows, self.columns = (sweeps.cloud_of(on_device(points)) for points in (self.u, self.w))
        self.given = self.rows, self.columns, self.scale, on_device(-self.logs), on_device(self.shift)


def on_device(array):
    return torch.from_numpy(array).to(DEVICE)


def close(found, expected, within):
    np.testing.assert_allclose(found.cpu().numpy(), expected, rtol=0, atol=within)


@pytest.mark.parametrize("precision", [HALF, SINGLE, DOUBLE])
@pytest.mark.parametrize("size", SIZES)
def test_sweeps(size, precision):
    example, within = Example(*size), WITHIN[precision]
    given = example.rows, example.columns, example.scale, on_device(example.shift)
    close(sweeps.log_sums(*given, precision), math.log(2) * example.logs, within)
    found = sweeps.plan_times(*example.given, on_device(example.values), precision)
    close(found, example.plan @ example.values, within)


@pytest.mark.parametrize("size", SIZES[1:3])
def test_sweeps_for_a_solution(size):
    example, rng = Example(*size), np.random.default_rng(1)
    matrix = rng.normal(size=(size[1], 40))
    close(sweeps.plan_times_matrix(*example.given, on_device(matrix)), example.plan @ matrix, 1e-12)
    terms, floors = rng.normal(size=size[1]), rng.normal(size=size[1])
    costs = terms - example.u @ example.w.T
    sums, values, lowest = sweeps.judge_plan(*example.given, on_device(terms), on_device(floors))
    close(sums, example.plan.sum(axis=1), 1e-12)
    close(values, (example.plan * costs).sum(axis=1), 1e-11)
    close(lowest, (costs - floors).min(axis=1), 1e-12)


def test_entries_rounded_down():
    """The entries of a float32 plan are no larger than those it was computed with."""
    example = Example(50, 70, 3)
    ones = torch.ones(70, dtype=torch.float64, device=DEVICE)
    found = sweeps.plan_times(*example.given, ones, DOUBLE, rounded=True)
    close(found, rounded_down(example.plan, np.dtype(np.float32)).sum(axis=1, dtype=np.float64), 1e-12)


@pytest.mark.parametrize("precision", [SINGLE, DOUBLE])
def test_columns_without_weight_and_large_exponents(precision):
    example = Example(20, 30, 3)
    shift = np.where(np.arange(30) % 3 == 0, -1e30, example.shift + 1000.0)
    expected = np.logaddexp2.reduce((example.t - example.shift + shift)[:, shift > 0], axis=1)
    found = sweeps.log_sums(example.rows, example.columns, example.scale, on_device(shift), precision)
    close(found, math.log(2) * expected, 1e-3 if precision == SINGLE else 1e-11)


def test_two_numbers_of_float16_are_as_exact_as_float32():
    points = torch.from_numpy(np.random.default_rng(0).normal(size=(40, 5)) * [1e-9, 1e-3, 1.0, 1e3, 1e12])
    cloud = sweeps.cloud_of(points)
    found = (cloud.high.double() + cloud.low.double())[:40, :5] / 2.0**cloud.power
    assert float((found - points).abs().max() / points.abs().max()) < 2.0**-23


def streamed(monkeypatch, cost, everything=False, **options):
    """Solve on the streaming oracle; with `everything`, in all precisions, and with lists of tiles."""
    if everything:
        monkeypatch.setattr(streaming, "PAIRS_FOR_HALF", 0)
        monkeypatch.setattr(streaming, "PAIRS_FOR_ORDER", 0)
    with monkeypatch.context() as patch:
        patch.setattr(solver_module, "softmin_for", lambda cost: streaming.StreamedSoftmin(cost, DEVICE))
        return aot.solve(cost, **options)


def clouds(n, m, d, classes=4, seed=0):
    rng = np.random.default_rng(seed)
    p, q = rng.dirichlet(np.ones(classes), n), rng.dirichlet(np.ones(classes), m)
    return rng.normal(size=(n, d)), rng.normal(size=(m, d)) + 0.3, p, q


MODELS = [
    (aot.AtMost(), "augmented"),
    (aot.AtMost(), "product"),
    (aot.AtMost(), "counting"),
    (aot.Equal(), "product"),
    (aot.FixedMass(0.4), "augmented"),
    (aot.FixedMass(0.4), "product"),
    (aot.SoftKL(1.0), "product"),
    ((aot.AtMost(), aot.Equal()), "product"),
]


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize(("marginals", "entropy"), MODELS)
def test_same_solution(monkeypatch, marginals, entropy, joint):
    n, m = 40, 30
    x, z, p, q = clouds(n, m, 3)
    cost = aot.JointCost(x, z, p, q) if joint else aot.DistanceCost(x, z, 1.5)
    mu, nu = np.arange(1.0, n + 1), np.ones(m)
    mu[3], nu[5] = 0.0, 0.0
    mu, nu = mu / mu.sum(), nu / nu.sum()
    solver = aot.Entropic(0.3, entropy, tolerance=1e-11)
    options = {"source_weights": mu, "target_weights": nu, "marginals": marginals, "solver": solver}
    found = streamed(monkeypatch, cost, everything=True, **options)
    expected = aot.solve(cost.block(0, n), **options)
    assert found.converged
    for name in ("value", "mass", "regularised_value", "price"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), abs=1e-9), name
    assert found.problem.violation(found.plan) <= found.violation + 1e-12 <= 1e-10
    assert found.value - found.problem.dual_value(found.source_potential) == pytest.approx(found.gap, abs=1e-9)
    np.testing.assert_allclose(found.plan.toarray(), expected.plan, rtol=0, atol=1e-10)
    np.testing.assert_allclose(found.source_marginal, expected.source_marginal, rtol=0, atol=1e-10)
    mapped = [one.barycentric_map(z, x) for one in (found, expected)]
    np.testing.assert_allclose(*mapped, rtol=0, atol=1e-6)


@pytest.mark.parametrize("epsilon", mostly_slow([0.3, 0.05], 1))
def test_tiles_that_cannot_matter_are_skipped(monkeypatch, epsilon):
    rng = np.random.default_rng(0)
    centres = 10 * rng.normal(size=(3, 2))
    (x, z) = (np.concatenate([centre + 0.3 * rng.normal(size=(sweeps.TILE, 2)) for centre in centres]) for _ in "xz")
    x, z, kept = rng.permutation(x), rng.permutation(z), []
    lists_of = skipping.lists_of

    def counted(matters, sizes):
        kept.append(float(matters.float().mean()))
        return lists_of(matters, sizes)

    monkeypatch.setattr(skipping, "lists_of", counted)
    cost, solver = aot.DistanceCost(x, z, 1.5), aot.Entropic(epsilon, tolerance=1e-10)
    found = streamed(monkeypatch, cost, everything=True, solver=solver)
    expected = aot.solve(cost.block(0, len(x)), solver=solver)
    assert max(kept) < 0.5
    assert found.value == pytest.approx(expected.value, abs=1e-9)
    assert found.gap == pytest.approx(expected.gap, abs=1e-9)
    np.testing.assert_allclose(found.plan.toarray(), expected.plan, rtol=0, atol=1e-11)


@pytest.mark.parametrize(("n", "d"), [(1, 1), (128, 3), (129, 2), (700, 5), (1000, 1)])
def test_order_and_distances_of_tiles(n, d):
    rng = np.random.default_rng(n)
    points, others = torch.from_numpy(rng.normal(size=(n, d))), torch.from_numpy(rng.normal(size=(300, d)))
    order = skipping.compact_order(points)
    assert order.sort().values.tolist() == list(range(n))
    leaves = [skipping.leaves_of(side) for side in (points[order], others)]
    bounds = skipping.distances(*leaves)
    halves = torch.cdist(points[order], others).square() / 2
    for i, rows in enumerate(halves.split(skipping.leaf_size(n))):
        for j, tile in enumerate(rows.split(skipping.leaf_size(300), dim=1)):
            assert float(bounds.least[i, j]) <= float(tile.min())
            assert float(bounds.most[i, j]) >= float(tile.max())


def test_float32_points(monkeypatch):
    x, z, *_ = (side.astype(np.float32) for side in clouds(40, 30, 3))
    cost, solver = aot.DistanceCost(x, z, 1.5), aot.Entropic(0.3, tolerance=1e-10)
    found, expected = streamed(monkeypatch, cost, solver=solver), aot.solve(cost, solver=solver)
    assert found.plan.dtype == np.float32
    assert found.violation == expected.violation == 0.0
    sums = [one.transport.marginals(np.dtype(np.float32)) for one in (found, expected)]
    np.testing.assert_allclose(*(np.concatenate(side) for side in sums), rtol=0, atol=1e-11)


def test_stops_when_out_of_passes(monkeypatch):
    x, z, *_ = clouds(20, 15, 2)
    solver = aot.Entropic(0.01, max_iterations=3)
    found = streamed(monkeypatch, aot.DistanceCost(x, z, 1.5), solver=solver, raise_if_not_converged=False)
    assert found.status is aot.Status.ITERATION_LIMIT
    assert found.violation <= 1e-12
    assert found.value - found.problem.dual_value(found.source_potential) == pytest.approx(found.gap, abs=1e-9)


@pytest.fixture
def as_on_gpu(monkeypatch):
    """Have costs treat every tensor as one on a GPU."""
    monkeypatch.setattr(ArrayKind, "on_gpu", property(lambda kind: kind.library == "torch"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_points_stay_on_the_gpu(monkeypatch, as_on_gpu, dtype):
    arrays = clouds(20, 15, 2)
    tensors = [on_device(array).to(dtype) for array in arrays]
    cost, solver = aot.JointCost(*tensors), aot.Entropic(0.3, tolerance=1e-9)
    assert all(torch.is_tensor(array) for array in cost.arrays)
    found, expected = aot.solve(cost, solver=solver), aot.solve(aot.JointCost(*arrays), solver=solver)
    assert isinstance(vars(found.transport)["softmin"], streaming.StreamedSoftmin)
    assert found.source_potential.dtype == dtype
    assert found.source_potential.device == tensors[0].device
    assert found.value == pytest.approx(expected.value, abs=1e-6)
    assert repr(cost) == repr(aot.JointCost(*arrays))
    transposed = cost.transposed()
    np.testing.assert_allclose(transposed.block(0, 15), cost.block(0, 20).T)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, 1e200])
def test_wrong_points_on_the_gpu(as_on_gpu, wrong):
    x, z, p, _ = (on_device(array) for array in clouds(20, 15, 2))
    z[3, 1] = wrong
    with pytest.raises(aot.InvalidInput, match=r"z must hold finite numbers.* at \(3, 1\)"):
        aot.DistanceCost(x, z, 1.0)
    with pytest.raises(aot.InvalidInput, match="z must have two dimensions"):
        aot.DistanceCost(x, z[0], 1.0)
    with pytest.raises(aot.InvalidInput, match="q must have as many columns"):
        aot.JointCost(x, x, p[:, :3], p)
    with pytest.raises(aot.InvalidInput, match="real numbers"):
        aot.DistanceCost(x, z.to(torch.complex128), 1.0)


@pytest.mark.parametrize("n", [1, 0])
def test_smallest_clouds(monkeypatch, n):
    found = streamed(monkeypatch, aot.DistanceCost(np.zeros((n, 0)), np.zeros((1, 0)), 1.0), solver=aot.Entropic(0.1))
    assert found.mass == pytest.approx(n, abs=0.01)


def test_shards_on_gpus_ascend_as_one(monkeypatch):
    monkeypatch.setattr("adaptive_ot.entropic.shard.softmin_for", lambda cost: streaming.StreamedSoftmin(cost, DEVICE))
    cost, (mu, nu) = point_cost(40, 30, 3), weights(40, 30)
    alone = aot.solve(cost, mu, nu, solver=aot.Entropic(0.5))
    problem, table = sharded(cost, mu, nu, aot.AtMost(), [13, 0, 27])
    found = solve_entropic(problem, aot.Entropic(0.5), silent, lambda *_: math.nan)
    assert found.value == pytest.approx(alone.value, abs=1e-9)
    assert found.gap == pytest.approx(alone.gap, abs=1e-8)
    moved = np.concatenate([shard.transport.times(np.eye(30)) for shard in table.shards])
    np.testing.assert_allclose(moved, alone.plan.toarray(), rtol=0, atol=1e-9)


@pytest.mark.parametrize("tolerance", [1e-3, 1e-9])
@pytest.mark.parametrize("epsilon", [20.0, 2.0, 0.3])
def test_balanced_transport_at_any_epsilon(monkeypatch, epsilon, tolerance):
    """Sinkhorn's iterations are enough where epsilon is large, a start where it is not, and given up below."""
    x, z, *_ = clouds(50, 40, 3)
    nu = np.arange(40.0)
    options = {"target_weights": nu / nu.sum(), "marginals": aot.Equal()}
    options["solver"] = aot.Entropic(epsilon, tolerance=tolerance)
    found = streamed(monkeypatch, aot.DistanceCost(x, z, 0.0), **options)
    expected = aot.solve(aot.DistanceCost(x, z, 0.0).block(0, 50), **options)
    assert found.value == pytest.approx(expected.value, abs=10 * tolerance)
    assert np.abs(found.target_marginal - nu / nu.sum()).sum() <= tolerance
    assert found.value - found.problem.dual_value(found.source_potential) == pytest.approx(found.gap, abs=1e-9)


def test_distances_are_nearly_exact_in_many_dimensions():
    """A ball around a few points is wide in every direction; their extent in a given one is not."""
    rng = np.random.default_rng(0)
    sides = [torch.from_numpy(rng.normal(size=(256, 100)) + 2 * centre) for centre in (0, 1)]
    leaves = [skipping.leaves_of(side) for side in sides]
    least = skipping.distances(*leaves).least[0, 0]
    true = torch.cdist(*(side[: skipping.leaf_size(256)] for side in sides)).square().min() / 2
    balls = torch.dist(leaves[0].centres[0], leaves[1].centres[0]) - leaves[0].radii[0] - leaves[1].radii[0]
    assert 0.5 * true < least <= true
    assert balls.clamp_min(0.0).square() / 2 < 0.1 * true


def test_only_points_with_near_neighbours_are_put_in_order():
    rng = np.random.default_rng(0)
    scattered, centres = rng.normal(size=(500, 64)), rng.normal(size=(10, 64))
    assert not skipping.has_near_neighbours(torch.from_numpy(scattered))
    assert skipping.has_near_neighbours(torch.from_numpy(rng.normal(size=(500, 2))))
    assert skipping.has_near_neighbours(torch.from_numpy(scattered + 5 * (rng.random((500, 1)) < 0.5)))
    assert skipping.has_near_neighbours(torch.from_numpy(centres[rng.integers(10, size=500)] + 0.2 * scattered))
