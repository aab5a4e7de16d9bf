"""Problems solved scale by scale: the coarse problems change the way to the answer, never the answer."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import adaptive_ot as aot
import problems
from adaptive_ot.costs import PointCost
from adaptive_ot.exact.cells import Cells
from adaptive_ot.exact.limits import Limits
from adaptive_ot.exact.multiscale import Scale, all_scales
from adaptive_ot.exact.solver import solve_exact
from check import solve_checked
from problems import Instance, reference_value

REACH = 1.5


def on_a_line(rng, n):
    return np.outer(rng.standard_normal(n), [1.0, -2.0, 0.5])


def far_cluster(rng, n):
    points = rng.standard_normal((n, 3))
    points[: n // 4] += 1e4
    return points


# Clouds of n points in R^3, most of them degenerate in some way.
CLOUDS: dict[str, Any] = {
    "normal": lambda rng, n: rng.standard_normal((n, 3)),
    "plane": lambda rng, n: rng.standard_normal((n, 2)),
    "duplicates": lambda rng, n: np.repeat(rng.standard_normal((1 + n // 5, 3)), 5, axis=0)[:n],
    "lattice": lambda rng, n: rng.integers(0, 4, (n, 3)).astype(float),
    "line": on_a_line,
    "all equal": lambda rng, n: np.ones((n, 3)),
    "far cluster": far_cluster,
    "float32": lambda rng, n: rng.standard_normal((n, 3)).astype(np.float32),
}


@pytest.fixture(params=[0, 2**62], ids=["by cells", "by tiles"])
def many_scales(monkeypatch, request):
    """Solve even the smallest clouds scale by scale, with either kind of pricing."""
    limits = Limits(0, 0, 0, coarsest_points=3, points_in_cells=request.param)
    monkeypatch.setattr(sys.modules["adaptive_ot.solve"], "solve_exact", partial(solve_exact, limits=limits))


def weights_of(kind, rng, n):
    if kind == "random":
        return rng.random(n) + 0.1
    return rng.integers(0, 3, n).astype(float) if kind == "with zeros" else np.full(n, 1 / n)


def check_cloud(cost, instance, scale):
    solution = solve_checked(instance, given=cost, sparse_plan=True, cost_scale=scale)
    assert solution.value == pytest.approx(reference_value(*instance), rel=1e-12, abs=1e-12 * scale)
    assert solution.gap <= 1e-9 * max(1.0, abs(solution.value))


@pytest.mark.usefixtures("many_scales")
@pytest.mark.parametrize("weights", ["equal", "random", "with zeros"])
@pytest.mark.parametrize("shift", [0.0, 5.0])
@pytest.mark.parametrize("name", CLOUDS)
def test_clouds(name, shift, weights):
    rng = np.random.default_rng(sum(map(ord, name + weights)))
    n, m = 60, 50
    x, z = CLOUDS[name](rng, n), CLOUDS[name](rng, m)
    z = z + z.dtype.type(shift)
    reach = REACH + 2 * shift  # where the clouds are far apart, nearly everything pays
    matrix = problems.distance_matrix(x.astype(np.float64), z.astype(np.float64), reach)
    instance = Instance(matrix, weights_of(weights, rng, n), weights_of(weights, rng, m))
    if name == "float32":
        value = aot.solve(aot.DistanceCost(x, z, reach), *instance[1:]).value
        assert value == pytest.approx(reference_value(*instance), rel=1e-6)
    else:
        check_cloud(aot.DistanceCost(x, z, reach), instance, reach**2)


@pytest.mark.usefixtures("many_scales")
@pytest.mark.parametrize(("n", "m"), [(1, 40), (40, 1), (3, 4), (4, 200), (200, 4)])
def test_sides_of_different_sizes(n, m):
    rng = np.random.default_rng(n + m)
    x, z = rng.standard_normal((n, 2)), rng.standard_normal((m, 2))
    matrix = problems.distance_matrix(x, z, 2.0)
    check_cloud(aot.DistanceCost(x, z, 2.0), Instance(matrix, np.full(n, 1 / n), np.full(m, 1 / m)), 4.0)


@pytest.mark.usefixtures("many_scales")
def test_classes_count_as_coordinates():
    rng = np.random.default_rng(3)
    x, z = rng.standard_normal((70, 3)), rng.standard_normal((80, 3))
    p, q = np.eye(3)[rng.integers(0, 3, 70)], rng.dirichlet(np.ones(3), 80)
    instance = Instance(problems.joint_matrix(x, z, p, q, kappa=0.1, beta=3.0), rng.random(70), rng.random(80))
    check_cloud(aot.JointCost(x, z, p, q, kappa=0.1, beta=3.0), instance, 3.0)


@pytest.mark.usefixtures("many_scales")
@pytest.mark.parametrize("weights", ["equal", "random", "with zeros"])
@pytest.mark.parametrize("kind", ["shifted", "random", "forbidden pairs", "all equal", "float32", "one column"])
def test_matrices(kind, weights):
    rng = np.random.default_rng(sum(map(ord, kind + weights)))
    n, m = 60, 1 if kind == "one column" else 50
    matrix = rng.standard_normal((n, m))
    if kind in ("shifted", "forbidden pairs"):
        matrix = problems.distance_matrix(rng.standard_normal((n, 3)), rng.standard_normal((m, 3)) + 5, 11.5)
    if kind == "forbidden pairs":
        matrix[rng.random((n, m)) < 0.8] = np.inf
    if kind == "all equal":
        matrix[:] = -1.0
    instance = Instance(matrix, weights_of(weights, rng, n), weights_of(weights, rng, m))
    if kind == "float32":
        single = matrix.astype(np.float32)
        exact = reference_value(*instance._replace(cost=single.astype(np.float64)))
        assert aot.solve(single, *instance[1:]).value == pytest.approx(exact, rel=1e-6)
    else:
        solve_checked(instance, cost_scale=max(1.0, abs(matrix[np.isfinite(matrix)]).max()))


@pytest.mark.usefixtures("many_scales")
@pytest.mark.parametrize("mass", [0.4, 1.0])
def test_prescribed_mass(mass):
    rng = np.random.default_rng(4)
    x, z = rng.standard_normal((60, 2)), rng.standard_normal((60, 2)) + 1
    instance = Instance(problems.distance_matrix(x, z, 0.0), np.full(60, 1 / 60), np.full(60, 1 / 60))
    solve_checked(instance, mass, aot.DistanceCost(x, z, 0.0), sparse_plan=True, cost_scale=10.0)


@pytest.mark.usefixtures("many_scales")
def test_one_heavy_point_out_of_reach_takes_no_digits():
    rng = np.random.default_rng(5)
    x, z = rng.standard_normal((50, 2)), rng.standard_normal((50, 2))
    mu, nu = rng.random(50), rng.random(50)
    expected = aot.solve(aot.DistanceCost(x[1:], z, REACH), mu[1:], nu).value
    x[0], mu[0] = 1e6, 1e25
    assert aot.solve(aot.DistanceCost(x, z, REACH), mu, nu).value == pytest.approx(expected, rel=1e-12)


@pytest.mark.usefixtures("many_scales")
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), shift=st.floats(0, 100), reach=st.floats(0.01, 200))
def test_order_and_scales_do_not_matter(seed, shift, reach):
    rng = np.random.default_rng(seed)
    x, z = rng.standard_normal((30, 2)), rng.standard_normal((35, 2)) + shift
    order = rng.permutation(30)
    values = [aot.solve(aot.DistanceCost(side, z, reach)).value for side in (x, x[order])]
    dense = aot.solve(problems.distance_matrix(x, z, reach)).value
    assert values == pytest.approx([dense, dense], rel=1e-12, abs=1e-12 * reach**2)


def test_coarser_problems_keep_the_weight_of_every_cell():
    rng = np.random.default_rng(6)
    cost = aot.DistanceCost(rng.standard_normal((1000, 2)), rng.standard_normal((300, 2)), 1.0)
    problem = aot.Problem.build(cost, rng.random(1000), rng.random(300))
    finest, order = Scale.finest(problem, cost)
    assert isinstance(finest.cost, PointCost)
    np.testing.assert_array_equal(np.sort(order.source), np.arange(1000))
    np.testing.assert_array_equal(finest.cost.x, cost.x[order.source])
    scales = all_scales(finest, 20)
    assert [scale.cost.shape for scale in scales] == [(16, 16), (64, 16), (256, 64), (1000, 300)]
    for scale in scales:
        assert isinstance(scale.cost, PointCost)
        assert scale.source_weights.sum() == pytest.approx(problem.source_weights.sum(), rel=1e-12)
        assert scale.target_weights.sum() == pytest.approx(problem.target_weights.sum(), rel=1e-12)
    starts, coarse = 1000 * np.arange(256) // 256, scales[2].cost
    assert isinstance(coarse, PointCost)
    np.testing.assert_array_equal(coarse.x, finest.cost.x[starts])
    np.testing.assert_allclose(scales[2].source_weights, np.add.reduceat(finest.source_weights, starts), rtol=1e-12)


def test_scales_spare_pivots_where_mass_moves_far():
    rng = np.random.default_rng(8)
    n, reach = 1500, 20.0  # everything pays
    x, z = rng.standard_normal((n, 4)), rng.standard_normal((n, 4)) + 1
    points = aot.solve(aot.DistanceCost(x, z, reach))
    matrix = problems.distance_matrix(x, z, reach)
    dense, uniform = aot.solve(matrix), np.full(n, 1 / n)
    cheapest_first = solve_exact(
        aot.Problem.build(matrix, uniform, uniform), aot.Exact(), lambda _: None, Limits(coarsest_points=n)
    )
    assert [points.value, dense.value] == pytest.approx([cheapest_first.value] * 2, rel=1e-12)
    assert max(points.iterations, dense.iterations) < 25 * n < cheapest_first.iterations


@pytest.mark.parametrize("shift", [0.0, 2.0])
def test_mass_that_stays_near_and_mass_that_does_not(shift):
    rng = np.random.default_rng(7)
    x, z = rng.standard_normal((2300, 3)), rng.standard_normal((2300, 3)) + shift
    reach = 0.6 + 4 * shift
    solution = aot.solve(aot.DistanceCost(x, z, reach))
    dense = aot.solve(problems.distance_matrix(x, z, reach))
    assert solution.value == pytest.approx(dense.value, rel=1e-12)
    assert solution.gap <= 1e-9 * abs(solution.value)


@pytest.mark.parametrize("n", [1, 2, 5, 6, 7, 100, 1000])
@pytest.mark.parametrize("name", CLOUDS)
def test_cells_halve_the_cloud(name, n):
    points = np.asarray(CLOUDS[name](np.random.default_rng(n), n), np.float64)
    cells = Cells.of(points)
    np.testing.assert_array_equal(cells.points, points[cells.order])
    np.testing.assert_array_equal(np.sort(cells.order), np.arange(n))
    for depth in range(cells.depth + 1):
        for cell in range(1 << depth):
            node, inside = (1 << depth) + cell, cells.points[n * cell >> depth : n * (cell + 1) >> depth]
            assert (abs(inside - cells.centre[node]) <= cells.half[node]).all()
