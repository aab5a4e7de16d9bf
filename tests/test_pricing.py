"""Pricing finds, for every row and column, the lowest reduced costs of all: the float32 screen loses nothing."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from scipy import sparse

import adaptive_ot as aot
from adaptive_ot.costs import ArrayCost, SparseCost
from adaptive_ot.exact import pricing as _pricing
from adaptive_ot.exact.limits import Limits
from adaptive_ot.exact.pricing import DensePricing, ListedPricing, Pairs, PointPricing

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


def cloud(name, rng):
    """Point costs that are hard on a float32 screen."""
    n, m, d = 150, 170, 3
    x, z = rng.standard_normal((n, d)), rng.standard_normal((m, d))
    if name == "plain":
        return aot.DistanceCost(x, z, 1.0)
    if name == "offset":
        return aot.DistanceCost(x + 1e6, z + 1e6, 1.0)
    if name == "huge offset, tiny spread":
        return aot.DistanceCost(1e-3 * x + 1e6, 1e-3 * z + 1e6, 1e-3)
    if name == "two far groups":
        return aot.DistanceCost(x + 1e5 * (np.arange(n) % 2)[:, None], z + 1e5 * (np.arange(m) % 2)[:, None], 1.0)
    if name == "mixed scales":
        return aot.DistanceCost(x * 10.0 ** rng.uniform(-6, 6, (n, 1)), z * 10.0 ** rng.uniform(-6, 6, (m, 1)), 1.0)
    if name == "mixed axes":
        return aot.DistanceCost(x * [1e-6, 1.0, 1e6], z * [1e-6, 1.0, 1e6], 1e5)
    if name == "duplicates":
        return aot.DistanceCost(rng.integers(0, 3, (n, d)), rng.integers(0, 3, (m, d)), 1.5)
    if name.startswith("all equal"):
        where = 0.5 if name.startswith("all equal, exact centre") else 0.1
        return aot.DistanceCost(np.full((n, d), where), np.full((m, d), where), float(name.split()[-1]))
    if name.startswith("outlier at "):
        z[7] = float(name.split()[-1])
        return aot.DistanceCost(x, z, 1.0)
    if name.startswith("opposite outliers at "):
        z[7] = float(name.split()[-1])
        z[8] = -z[7]
        return aot.DistanceCost(x, z, 1.0)
    if name.startswith("scale "):
        scale = float(name.split()[-1])
        return aot.DistanceCost(scale * x, scale * z, 1.5 * scale)
    if name.startswith("spread "):
        spread = float(name.split()[-1])
        return aot.DistanceCost(spread * x, spread * z, 1.0)
    if name.startswith("most equal, others at "):
        scale = float(name.split()[-1])
        x[rng.random(n) < 0.8], z[rng.random(m) < 0.8] = 0.0, 0.0
        return aot.DistanceCost(scale * x, scale * z, scale)
    if name == "tiny reach":
        return aot.DistanceCost(x, np.concatenate([x + 1e-9, x[:20]]), 3e-9)
    if name == "huge reach":
        return aot.DistanceCost(x, z, 1e30)
    if name == "high dimension":
        return aot.DistanceCost(rng.standard_normal((n, 300)), rng.standard_normal((m, 300)), np.sqrt(580.0))
    if name.startswith("diagonal of dimension "):
        # Equal coordinates: every step of a float32 sum loses the same digits, so that the errors add up.
        d = int(name.split()[-1])
        x, z = (
            np.repeat(np.where(np.arange(k) % 2, 1.0, -1.0) * (1 + 1e-5 * rng.random(k)), d).reshape(k, d)
            for k in (n, m)
        )
        return aot.DistanceCost(x, z, 1e-5 * d**0.5)
    if name == "line":
        return aot.DistanceCost(x[:, :1], z[:, :1], 0.5)
    if name == "no dimension":
        return aot.DistanceCost(x[:, :0], z[:, :0], 0.5)
    p, q = np.eye(4)[rng.integers(0, 4, n)], rng.dirichlet(np.ones(4), m)
    if name == "joint":
        return aot.JointCost(x, z, p, q)
    if name == "joint, classes only":
        return aot.JointCost(x, z, p, q, kappa=0.0)
    if name == "joint, distances only":
        return aot.JointCost(x, z, p, q, beta=0.0, alpha=1.0)
    if name == "joint, offset":
        return aot.JointCost(x + 1e6, z + 1e6, p, q)
    if name == "joint, large scores":
        return aot.JointCost(x, z, 1e4 * rng.standard_normal((n, 4)), 1e4 * rng.standard_normal((m, 4)))
    assert name == "joint, small distances"
    return aot.JointCost(1e-8 * x, 1e-8 * z, p, q, alpha=1e10, beta=1e-6)


CLOUDS = [
    "plain", "offset", "huge offset, tiny spread", "two far groups", "mixed scales", "mixed axes",
    "duplicates", "all equal, reach 1", "all equal, reach 1e-25", "all equal, reach 1e-100",
    "all equal, exact centre, reach 1", "all equal, exact centre, reach 1e-25", "all equal, exact centre, reach 1e-100",
    "outlier at 1e3", "outlier at 1e10", "outlier at 1e20", "outlier at 1e30", "outlier at 1e90",
    "opposite outliers at 1e3", "opposite outliers at 1e10", "opposite outliers at 1e20", "opposite outliers at 1e30",
    "opposite outliers at 1e90", "scale 1e-140", "scale 1e-30", "scale 1e30", "scale 1e90",
    "spread 1e-160", "spread 1e-20", "most equal, others at 1", "most equal, others at 1e-30",
    "most equal, others at 1e30", "tiny reach", "huge reach",
    "high dimension", "diagonal of dimension 20", "diagonal of dimension 300", "diagonal of dimension 2000",
    "line", "no dimension",
    "joint", "joint, classes only", "joint, distances only", "joint, offset", "joint, large scores",
    "joint, small distances",
]  # fmt: skip


@pytest.mark.parametrize("kind", ["zero", "random", "close"])
@pytest.mark.parametrize("name", CLOUDS)
def test_points(name, kind):
    rng = np.random.default_rng(sum(map(ord, name)))
    cost = cloud(name, rng)
    matrix, error = point_matrix(cost)
    f, g = potentials(kind, matrix, rng)
    for keep in (1, 8, 16):
        found = PointPricing(cost).violated(f, g, keep, lambda _: None)
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


@pytest.mark.parametrize("dimension", [2, 20, 40])
@pytest.mark.parametrize(
    ("n", "m"),
    [
        *[(1, 1), (1, 700), (700, 1), (3, 2050), (2050, 3), (63, 127), (64, 128), (65, 129)],
        *[(511, 257), (513, 255), (257, 1025), (130, 1024)],
    ],
)
def test_edges_of_tiles(n, m, dimension):
    rng = np.random.default_rng(n * m + dimension)
    cost = aot.DistanceCost(rng.standard_normal((n, dimension)), rng.standard_normal((m, dimension)), dimension**0.5)
    matrix, error = point_matrix(cost)
    for kind in ("zero", "close"):
        f, g = potentials(kind, matrix, rng)
        found = PointPricing(cost).violated(f, g, 4, lambda _: None)
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


@pytest.mark.parametrize("kind", ["zero", "random", "close"])
@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_dense(name, kind, dtype):
    rng = np.random.default_rng(1)
    matrix = dense_matrix(name, rng).astype(dtype)
    f, g = potentials(kind, matrix.astype(float), rng)
    pricing = DensePricing(ArrayCost(matrix))
    for keep in (1, 8):
        found = pricing.violated(f, g, keep, lambda _: None)
        check_violated(found, matrix.astype(float), np.zeros(matrix.shape), f, g, keep)


@pytest.mark.parametrize("kind", ["zero", "random", "close"])
@pytest.mark.parametrize("name", DENSE)
def test_listed_with_a_limit(name, kind):
    rng = np.random.default_rng(2)
    matrix = dense_matrix(name, rng)
    matrix[matrix >= 0] = np.inf
    f, g = potentials(kind, matrix, rng)
    rows, columns = np.nonzero(matrix < 0)
    pricing = ListedPricing(ArrayCost(matrix), Pairs(rows, columns, matrix[rows, columns]), Limits(0, 0))
    for keep in (1, 8):
        found = pricing.violated(f, g, keep, lambda _: None)
        check_violated(found, matrix, np.zeros(matrix.shape), f, g, keep)


@pytest.mark.parametrize("kind", ["zero", "random", "close"])
def test_listed_keeps_everything_when_there_is_little(kind):
    rng = np.random.default_rng(3)
    matrix = dense_matrix("plain", rng)
    f, g = potentials(kind, matrix, rng)
    pricing = _pricing.pricing_for(ArrayCost(matrix), 0.0)
    assert isinstance(pricing, ListedPricing)
    found = pricing.violated(f, g, 1, lambda _: None)
    reduced = np.where(matrix < 0, matrix - f[:, None] - g[None, :], 0.0)
    np.testing.assert_array_equal(np.stack([found.rows, found.columns]), np.nonzero(reduced < 0))
    np.testing.assert_array_equal(found.costs, matrix[reduced < 0])
    np.testing.assert_array_equal(found.target_minimum, reduced.min(axis=0))


def test_sparse_cost_lists_its_negative_pairs():
    matrix = sparse.coo_array(([-1.0, 2.0, -3.0, -4.0, 0.0], ([2, 0, 0, 2, 1], [1, 1, 0, 0, 1])), shape=(3, 2))
    pricing = _pricing.pricing_for(SparseCost(matrix), 0.0)
    found = pricing.violated(np.zeros(3), np.zeros(2), 8, lambda _: None)
    assert found.rows.tolist() == [0, 2, 2]
    assert found.columns.tolist() == [0, 0, 1]
    assert found.costs.tolist() == [-3.0, -4.0, -1.0]
    assert found.target_minimum.tolist() == [-4.0, -1.0]


ALL_THREADS = Limits(pairs_per_thread=1)


@pytest.fixture
def restore_threads():
    """Put the number of threads back afterwards."""
    before = numba.get_num_threads()
    yield
    numba.set_num_threads(before)


@pytest.mark.usefixtures("restore_threads")
@pytest.mark.parametrize("kind", ["zero", "random", "close"])
@pytest.mark.parametrize("make", ["points", "duplicates", "dense", "ties"])
def test_number_of_threads_does_not_matter(make, kind):
    most = min(4, numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
    if most < 2:
        pytest.skip("this machine offers one thread only")
    rng = np.random.default_rng(4)
    if make in ("points", "duplicates"):
        points = [rng.standard_normal((size, 3)) for size in (700, 900)]
        cost = aot.DistanceCost(*(np.rint(side) if make == "duplicates" else side for side in points), reach=1.5)
        matrix, pricing = point_matrix(cost)[0], PointPricing(cost, ALL_THREADS)
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


@pytest.mark.parametrize("make", [PointPricing, lambda cost: DensePricing(ArrayCost(cost.block(0, 2000)))])
def test_progress_rises_to_one(make):
    rng = np.random.default_rng(5)
    cost = aot.DistanceCost(rng.standard_normal((2000, 2)), rng.standard_normal((2500, 2)), reach=0.1)
    ticks = []
    make(cost).violated(np.zeros(2000), np.zeros(2500), 4, ticks.append)
    assert ticks == sorted(ticks)
    assert 0 < ticks[0] < 1
    assert ticks[-1] == 1.0
