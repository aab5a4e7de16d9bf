"""Pricing finds, for every row and column, the lowest reduced costs of all: the float32 screen loses nothing."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import numba
import numpy as np
import pytest
from scipy import sparse

import adaptive_ot as aot
from adaptive_ot.costs import ArrayCost, SparseCost
from adaptive_ot.exact.cells import CellPricing
from adaptive_ot.exact.columns import pricing_for
from adaptive_ot.exact.limits import Limits
from adaptive_ot.exact.pricing import DensePricing, ListedPricing, Pairs, PointPricing
from problems import stored

EPSILON = float(np.finfo(np.float64).eps)


def point_matrix(cost):
    """The cost matrix of points, by differences in extended precision, and what float64 arithmetic may do to it."""
    x, z, p, q = (array.astype(np.longdouble) for array in (cost.x, cost.z, cost.p, cost.q))
    squares = np.zeros(cost.shape, np.longdouble)
    for k in range(x.shape[1]):
        squares += (x[:, k, None] - z[None, :, k]) ** 2
    agreement, size = p @ q.T, np.abs(p) @ np.abs(q).T
    matrix = cost.distance_weight * squares - cost.class_weight * agreement - cost.offset
    operations = x.shape[1] + p.shape[1] + 8
    error = operations * EPSILON * (cost.distance_weight * squares + cost.class_weight * size + cost.offset)
    return matrix.astype(np.float64), error.astype(np.float64)


def check_violated(found, cost, error, f, g, keep):
    """Compare what a pricing found with all reduced costs, `error` being the rounding of each cost."""
    reduced = cost - f[:, None] - g[None, :]
    error = error + 4 * EPSILON * (
        np.abs(f)[:, None] + np.abs(g)[None, :] + np.where(np.isfinite(cost), np.abs(cost), 0)
    )
    pairs = list(zip(found.rows.tolist(), found.columns.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs), "a pair is listed twice"
    assert (np.abs(found.costs - cost[found.rows, found.columns]) <= error[found.rows, found.columns]).all()
    assert (reduced[found.rows, found.columns] < error[found.rows, found.columns]).all()

    lowest = reduced.min(axis=0, initial=0.0)
    assert found.target_minimum.shape == g.shape
    allowed = np.where(reduced < error, error, 0.0).max(axis=0, initial=0.0)
    wrong = np.flatnonzero(np.abs(found.target_minimum - lowest) > allowed)
    assert wrong.size == 0, f"target_minimum {found.target_minimum[wrong[0]]} where it is {lowest[wrong[0]]}"
    listed = np.zeros(cost.shape, bool)
    listed[found.rows, found.columns] = True
    wanted = np.zeros(cost.shape, bool)
    for line, line_error, line_listed, line_wanted in [
        *zip(reduced, error, listed, wanted, strict=True),
        *zip(reduced.T, error.T, listed.T, wanted.T, strict=True),
    ]:
        # Pairs that are surely negative, and those that may be, given rounding.
        sure, maybe = line < -line_error, line < line_error
        margin = 2 * line_error[maybe].max(initial=0.0)
        best = np.sort(line[sure])[:keep]
        mine = np.sort(line[line_listed])[: best.size]
        assert mine.size == best.size, f"{mine.size} pairs of a row or column where there are {best.size}"
        assert (mine <= best + margin).all(), "not the lowest of a row or column"
        last = np.sort(line[maybe])[:keep].max(initial=-np.inf)
        line_wanted |= maybe & (line <= last + margin)
    assert wanted[listed].all(), "a pair is listed that is among the lowest neither of its row nor of its column"


def potentials(kind, matrix, rng):
    """Potentials such as arise in a solve: at the start, anywhere, and close to the optimum."""
    n, m = matrix.shape
    reward = max(-matrix.min(initial=0.0), 0.0)
    if kind == "zero":
        return np.zeros(n), np.zeros(m)
    if kind == "random":
        return -reward * rng.random(n), -reward * rng.random(m)
    f = -reward * rng.random(n) ** 3
    g = np.minimum(0.0, (matrix - f[:, None]).min(axis=0))
    # Tight potentials, lifted a little here and there: few pairs are violated, by little.
    return f, np.minimum(0.0, g + 1e-6 * reward * (rng.random(m) < 0.1))


every_kind = pytest.mark.parametrize("kind", ["zero", "random", "close"])


def outliers(x, z, far):
    z = z.copy()
    z[7 : 7 + len(far)] = np.array(far)[:, None]
    return aot.DistanceCost(x, z, 1.0)


def mostly_equal(rng, x, z, scale):
    x, z = (np.where(rng.random((len(side), 1)) < 0.8, 0.0, side) for side in (x, z))
    return aot.DistanceCost(scale * x, scale * z, scale)


def diagonal(rng, x, z, dimension):
    """Equal coordinates: every step of a float32 sum loses the same digits, so that the errors add up."""
    along = (np.where(np.arange(k) % 2, 1.0, -1.0) * (1 + 1e-5 * rng.random(k)) for k in (len(x), len(z)))
    x, z = (np.repeat(side[:, None], dimension, axis=1) for side in along)
    return aot.DistanceCost(x, z, 1e-5 * dimension**0.5)


def joint(rng, x, z, **how):
    return aot.JointCost(x, z, np.eye(4)[rng.integers(0, 4, len(x))], rng.dirichlet(np.ones(4), len(z)), **how)


def mixed(rng, side):
    return side * 10.0 ** rng.uniform(-6, 6, (len(side), 1))


def odd(side):
    return (np.arange(len(side)) % 2)[:, None]


# Point costs that are hard on a float32 screen, from normal points x and z in three dimensions.
CLOUDS: dict[str, Any] = {
    "plain": lambda rng, x, z: aot.DistanceCost(x, z, 1.0),
    "offset": lambda rng, x, z: aot.DistanceCost(x + 1e6, z + 1e6, 1.0),
    "huge offset, tiny spread": lambda rng, x, z: aot.DistanceCost(1e-3 * x + 1e6, 1e-3 * z + 1e6, 1e-3),
    "two far groups": lambda rng, x, z: aot.DistanceCost(x + 1e5 * odd(x), z + 1e5 * odd(z), 1.0),
    "mixed scales": lambda rng, x, z: aot.DistanceCost(mixed(rng, x), mixed(rng, z), 1.0),
    "mixed axes": lambda rng, x, z: aot.DistanceCost(x * [1e-6, 1.0, 1e6], z * [1e-6, 1.0, 1e6], 1e5),
    "duplicates": lambda rng, x, z: aot.DistanceCost(rng.integers(0, 3, x.shape), rng.integers(0, 3, z.shape), 1.5),
    "tiny reach": lambda rng, x, z: aot.DistanceCost(x, np.concatenate([x + 1e-9, x[:20]]), 3e-9),
    "huge reach": lambda rng, x, z: aot.DistanceCost(x, z, 1e30),
    "high dimension": lambda rng, x, z: aot.DistanceCost(
        rng.standard_normal((len(x), 300)), rng.standard_normal((len(z), 300)), np.sqrt(580.0)
    ),
    "line": lambda rng, x, z: aot.DistanceCost(x[:, :1], z[:, :1], 0.5),
    "no dimension": lambda rng, x, z: aot.DistanceCost(x[:, :0], z[:, :0], 0.5),
    "joint": joint,
    "joint, classes only": partial(joint, kappa=0.0),
    "joint, distances only": partial(joint, beta=0.0, alpha=1.0),
    "joint, offset": lambda rng, x, z: joint(rng, x + 1e6, z + 1e6),
    "joint, large scores": lambda rng, x, z: aot.JointCost(
        x, z, 1e4 * rng.standard_normal((len(x), 4)), 1e4 * rng.standard_normal((len(z), 4))
    ),
    "joint, small distances": lambda rng, x, z: joint(rng, 1e-8 * x, 1e-8 * z, alpha=1e10, beta=1e-6),
}
for where, reach in product((0.5, 0.1), (1.0, 1e-25, 1e-100)):  # the centre of the points, exact or not
    CLOUDS[f"all equal to {where}, reach {reach:g}"] = lambda rng, x, z, where=where, reach=reach: aot.DistanceCost(
        np.full_like(x, where), np.full_like(z, where), reach
    )
for far in (1e3, 1e10, 1e20, 1e30, 1e90):
    CLOUDS[f"outlier at {far:g}"] = lambda rng, x, z, far=far: outliers(x, z, [far])
    CLOUDS[f"opposite outliers at {far:g}"] = lambda rng, x, z, far=far: outliers(x, z, [far, -far])
for size, reach in ((1e-140, 1.5e-140), (1e-30, 1.5e-30), (1e30, 1.5e30), (1e90, 1.5e90), (1e-160, 1.0), (1e-20, 1.0)):
    CLOUDS[f"spread {size:g}, reach {reach:g}"] = lambda rng, x, z, size=size, reach=reach: aot.DistanceCost(
        size * x, size * z, reach
    )
for size in (1.0, 1e-30, 1e30):
    CLOUDS[f"most equal, others at {size:g}"] = partial(mostly_equal, scale=size)
for dimension in (20, 300, 2000):
    CLOUDS[f"diagonal of dimension {dimension}"] = partial(diagonal, dimension=dimension)


def cloud(name, rng):
    return CLOUDS[name](rng, rng.standard_normal((150, 3)), rng.standard_normal((170, 3)))


of_points = pytest.mark.parametrize("pricing", [PointPricing, CellPricing])

FEW_DIMENSIONS = 20  # more than pricing by cells is for


def skip_many_dimensions(cost, pricing):
    if pricing is CellPricing and cost.x.shape[1] > FEW_DIMENSIONS:
        pytest.skip("cells are for few dimensions")


@of_points
@every_kind
@pytest.mark.parametrize("name", CLOUDS)
def test_points(name, kind, pricing):
    rng = np.random.default_rng(sum(map(ord, name)))
    cost = cloud(name, rng)
    skip_many_dimensions(cost, pricing)
    matrix, error = point_matrix(cost)
    f, g = potentials(kind, matrix, rng)
    for keep in (1, 8, 16):
        found = pricing(cost).violated(f, g, keep, lambda _: None)
        check_violated(found, matrix, error, f, g, keep)


@pytest.mark.parametrize("name", CLOUDS)
def test_the_lowest_costs_are_below_every_pair(name):
    """In whichever way a pair is evaluated."""
    cost = cloud(name, np.random.default_rng(sum(map(ord, name))))
    n, m = cost.shape
    rows, columns = np.indices(cost.shape).reshape(2, -1)
    for costs in (cost.block(0, n), cost.entries(rows, columns).reshape(n, m)):
        of_rows, of_columns = PointPricing(cost).minima(np.zeros(n))
        assert (of_rows <= costs.min(axis=1)).all()
        assert (of_columns <= costs.min(axis=0)).all()


@of_points
@pytest.mark.parametrize("dimension", [2, 20, 40])
@pytest.mark.parametrize(
    ("n", "m"),
    [
        *[(1, 1), (1, 700), (700, 1), (3, 2050), (2050, 3), (63, 127), (64, 128), (65, 129)],
        *[(511, 257), (513, 255), (257, 1025), (130, 1024)],
    ],
)
def test_edges_of_tiles(n, m, dimension, pricing):
    rng = np.random.default_rng(n * m + dimension)
    cost = aot.DistanceCost(rng.standard_normal((n, dimension)), rng.standard_normal((m, dimension)), dimension**0.5)
    skip_many_dimensions(cost, pricing)
    matrix, error = point_matrix(cost)
    for kind in ("zero", "close"):
        f, g = potentials(kind, matrix, rng)
        found = pricing(cost).violated(f, g, 4, lambda _: None)
        check_violated(found, matrix, error, f, g, 4)


def dense_matrix(name, rng):
    shapes = {"row": (1, 400), "column": (400, 1), "wide": (7, 1500), "tall": (1500, 7)}
    shape = shapes.get(name, (150, 170))
    matrix = rng.standard_normal(shape)
    if name == "ties":
        matrix = rng.integers(-2, 2, shape).astype(float)
    if name == "forbidden":
        matrix[rng.random(shape) < 0.5] = np.inf
        matrix[3], matrix[:, 5] = np.inf, np.inf
    if name == "positive":
        matrix = np.abs(matrix)
    if name == "mixed scales":
        matrix *= 10.0 ** rng.uniform(-9, 9, shape)
    return matrix


DENSE = ["plain", "ties", "forbidden", "positive", "mixed scales", "row", "column", "wide", "tall"]


@every_kind
@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize("form", ["float64", "float32", "listed"])
def test_dense(name, kind, form):
    rng = np.random.default_rng(1)
    matrix = dense_matrix(name, rng)
    if form == "listed":
        matrix[matrix >= 0] = np.inf
        rows, columns = np.nonzero(matrix < 0)
        pricing = ListedPricing(ArrayCost(matrix), Pairs(rows, columns, matrix[rows, columns]), Limits(0, 0))
    else:
        matrix = matrix.astype(form)
        pricing = DensePricing(ArrayCost(matrix))
    matrix = matrix.astype(float)
    f, g = potentials(kind, matrix, rng)
    for keep in (1, 8):
        found = pricing.violated(f, g, keep, lambda _: None)
        check_violated(found, matrix, np.zeros(matrix.shape), f, g, keep)


@every_kind
def test_listed_keeps_everything_when_there_is_little(kind):
    rng = np.random.default_rng(3)
    matrix = dense_matrix("plain", rng)
    f, g = potentials(kind, matrix, rng)
    pricing = pricing_for(ArrayCost(matrix), 0.0)
    assert isinstance(pricing, ListedPricing)
    found = pricing.violated(f, g, 1, lambda _: None)
    reduced = np.where(matrix < 0, matrix - f[:, None] - g[None, :], 0.0)
    np.testing.assert_array_equal(np.stack([found.rows, found.columns]), np.nonzero(reduced < 0))
    np.testing.assert_array_equal(found.costs, matrix[reduced < 0])
    np.testing.assert_array_equal(found.target_minimum, reduced.min(axis=0))


def test_sparse_cost_lists_its_negative_pairs():
    matrix = sparse.coo_array(([-1.0, 2.0, -3.0, -4.0, 0.0], ([2, 0, 0, 2, 1], [1, 1, 0, 0, 1])), shape=(3, 2))
    pricing = pricing_for(SparseCost(matrix), 0.0)
    found = pricing.violated(np.zeros(3), np.zeros(2), 8, lambda _: None)
    assert found.rows.tolist() == [0, 2, 2]
    assert found.columns.tolist() == [0, 0, 1]
    assert found.costs.tolist() == [-3.0, -4.0, -1.0]
    assert found.target_minimum.tolist() == [-4.0, -1.0]


@every_kind
@pytest.mark.parametrize("form", ["points", "float64", "float32", "sparse"])
@pytest.mark.parametrize("limits", [Limits(), Limits(pairs_per_block=100, pairs_per_thread=500, rows_sampled=3)])
def test_other_questions(form, kind, limits):
    """Pairs below a limit, minima and the largest cost, against the whole matrix."""
    rng = np.random.default_rng(6)
    matrix = dense_matrix("forbidden", rng)[:40, :50]
    if form == "points":
        cost = aot.DistanceCost(rng.standard_normal((40, 3)), rng.standard_normal((50, 3)), 1.0)
    else:
        cost = SparseCost(stored(matrix)) if form == "sparse" else ArrayCost(matrix.astype(form))
    matrix = cost.block(0, 40).astype(float)
    f, g = potentials(kind, matrix, rng)
    reduced, pricing = matrix - f[:, None] - g, pricing_for(cost, limits=limits)
    for limit in (-np.inf, -1e-9, 0.3, np.inf):
        expected = np.nonzero(reduced < limit)
        found = pricing.below(f, g, limit, expected[0].size)
        assert found is not None
        np.testing.assert_array_equal(np.stack([found.rows, found.columns]), expected)
        np.testing.assert_allclose(found.costs, matrix[expected], rtol=1e-12)
        assert expected[0].size == 0 or pricing.below(f, g, limit, expected[0].size - 1) is None
    of_rows, of_columns = pricing.minima(f)
    np.testing.assert_allclose(of_rows, matrix.min(axis=1), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(of_columns, (matrix - f[:, None]).min(axis=0), rtol=1e-12, atol=1e-12)
    assert pricing.largest() == pytest.approx(matrix[np.isfinite(matrix)].max(), rel=1e-12)
    f[::3], g[::4] = -np.inf, -np.inf
    left = np.delete(np.delete(reduced, np.s_[::3], axis=0), np.s_[::4], axis=1)
    assert pricing.lowest(f, g) == pytest.approx(left.min(), rel=1e-12, abs=1e-12)


ALL_THREADS = Limits(pairs_per_thread=1)


@pytest.fixture
def restore_threads():
    """Put the number of threads back afterwards."""
    before = numba.get_num_threads()
    yield
    numba.set_num_threads(before)


@pytest.mark.usefixtures("restore_threads")
@every_kind
@pytest.mark.parametrize("make", ["points", "duplicates", "cells", "dense", "ties"])
def test_number_of_threads_does_not_matter(make, kind):
    most = min(4, numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
    if most < 2:
        pytest.skip("this machine offers one thread only")
    rng = np.random.default_rng(4)
    if make in ("points", "duplicates", "cells"):
        points = [rng.standard_normal((size, 3)) for size in (700, 900)]
        cost = aot.DistanceCost(*(np.rint(side) if make == "duplicates" else side for side in points), reach=1.5)
        matrix, of_points = point_matrix(cost)[0], CellPricing if make == "cells" else PointPricing
        pricing = of_points(cost, ALL_THREADS)
    else:
        matrix = rng.standard_normal((700, 900)) if make == "dense" else rng.integers(-2, 2, (700, 900)).astype(float)
        pricing = DensePricing(ArrayCost(matrix), ALL_THREADS)
    f, g = potentials(kind, matrix, rng)
    answers = []
    for threads in range(1, most + 1):
        numba.set_num_threads(threads)
        answers.append(pricing.violated(f, g, 5, lambda _: None))
    for answer in answers[1:]:
        for one, several in zip(answers[0], answer, strict=True):
            np.testing.assert_array_equal(one, several)


def test_more_threads_than_columns():
    cost = aot.DistanceCost(np.arange(50.0)[:, None], np.zeros((1, 1)), reach=10.5)
    found = PointPricing(cost, ALL_THREADS).violated(np.zeros(50), np.zeros(1), 20, lambda _: None)
    assert found.rows.tolist() == list(range(11))
    assert found.target_minimum.tolist() == [-(10.5**2)]


@pytest.mark.parametrize("make", [PointPricing, CellPricing, lambda cost: DensePricing(ArrayCost(cost.block(0, 2000)))])
def test_progress_rises_to_one(make):
    rng = np.random.default_rng(5)
    cost = aot.DistanceCost(rng.standard_normal((2000, 2)), rng.standard_normal((2500, 2)), reach=0.1)
    ticks = []
    make(cost).violated(np.zeros(2000), np.zeros(2500), 4, ticks.append)
    assert ticks == sorted(ticks)
    assert 0 < ticks[0] < 1
    assert ticks[-1] == 1.0
