"""Plans between points: lines, marks and colours, in the plane or in two columns."""

from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from mpl_toolkits.mplot3d.art3d import Line3DCollection
from scipy import sparse

import adaptive_ot as aot
from adaptive_ot import plot
from adaptive_ot.workbench.cli.samples import TOY_COST
from pictures import hexes, plan_lines, plan_marks, texts

TOY_SOURCES = np.array([[0.0, -i] for i in range(6)])
TOY_TARGETS = np.array([[1.0, -j] for j in range(5)])


@pytest.fixture(scope="module")
def toy():
    return aot.solve(TOY_COST)


def test_toy(toy):
    ax: Any = plot.transport(toy, TOY_SOURCES, TOY_TARGETS)
    lines, marks = plan_lines(ax), plan_marks(ax)
    rows, columns, _ = toy.support
    assert len(lines.get_segments()) == np.count_nonzero(toy.plan)
    np.testing.assert_array_equal([s[0] for s in lines.get_segments()], TOY_SOURCES[rows])
    np.testing.assert_array_equal([s[1] for s in lines.get_segments()], TOY_TARGETS[columns])
    expected = (TOY_SOURCES[:5], TOY_SOURCES[5:], TOY_TARGETS[:4], TOY_TARGETS[4:])
    for drawn, points in zip(marks, expected, strict=True):
        np.testing.assert_array_equal(drawn.get_offsets(), points)
    assert ax.get_title() == "mass 0.7333 of at most 1, value -0.7333"
    counts = ["source, active (5)", "source, inactive (1)", "target, active (4)", "target, inactive (1)"]
    assert texts(ax.get_legend().get_texts()) == counts


def test_few_clusters_have_a_colour_each(toy):
    ax = plot.transport(toy, TOY_SOURCES, TOY_TARGETS)
    sources, hollow, targets, _ = plan_marks(ax)
    colours = hexes(sources.get_facecolors())
    assert len(set(colours[:3])) == len(set(colours[3:])) == 1
    assert colours[0] != colours[3]
    assert hexes(targets.get_facecolors()) == [colours[0]] * 2 + [colours[3]] * 2
    assert hexes(plan_lines(ax).get_colors()) == [colours[i] for i in toy.support[0]]
    assert len(hollow.get_facecolors()) == 0
    assert hexes(hollow.get_edgecolors()) == [plot.GREY.lower()]


def test_many_clusters_are_coloured_by_side():
    x, z = np.random.default_rng(0).normal(size=(2, 60, 2))
    solution = aot.solve(aot.DistanceCost(x, z, reach=0.5))
    assert len(solution.clusters()) > len(plot.CLUSTER_COLOURS)
    ax = plot.transport(solution)
    sources, hollow_sources, targets, hollow_targets = plan_marks(ax)
    for marks, colour in ((sources, plot.SIDE_COLOURS[0]), (targets, plot.SIDE_COLOURS[1])):
        assert set(hexes(marks.get_facecolors())) == {colour.lower()}
    assert set(hexes(plan_lines(ax).get_colors())) == {plot.GREY.lower()}
    for hollow, active in ((hollow_sources, solution.active_source), (hollow_targets, solution.active_target)):
        assert len(hollow.get_offsets()) == np.count_nonzero(~active) > 0
        assert len(hollow.get_facecolors()) == 0


@pytest.mark.parametrize(
    ("pairs", "by_cluster", "colours"), [(8, None, 8), (10, None, 1), (10, True, 8), (3, True, 3), (3, False, 1)]
)
def test_sides_or_clusters(pairs, by_cluster, colours):
    """Every pair is a cluster."""
    points = 10 * np.arange(2.0 * pairs).reshape(pairs, 2)
    solution = aot.solve(np.where(np.eye(pairs) > 0, -1.0, 1.0))
    ax = plot.transport(solution, points, points + 0.5, by_cluster=by_cluster)
    assert len(set(hexes(plan_lines(ax).get_colors()))) == colours
    assert len(set(hexes(plan_marks(ax)[0].get_facecolors()))) == colours


def test_heavier_lines_are_wider_and_stronger(toy):
    lines = plan_lines(plot.transport(toy, TOY_SOURCES, TOY_TARGETS))
    order = np.argsort(toy.support[2], kind="stable")
    step = np.diff(toy.support[2][order]) > 1e-9
    assert step.any()
    assert (np.diff(np.array(lines.get_linewidths())[order])[step] > 0).all()
    assert (np.diff(lines.get_colors()[order, 3])[step] > 0).all()


def test_given_points_win_over_those_of_the_cost():
    x, z = np.random.default_rng(0).normal(size=(2, 10, 2))
    solution = aot.solve(aot.DistanceCost(x, z, reach=0.5))
    elsewhere = x + 100
    before = elsewhere.copy()
    sources = plan_marks(plot.transport(solution, source_points=elsewhere))[0]
    np.testing.assert_array_equal(sources.get_offsets(), before[solution.active_source])
    np.testing.assert_array_equal(elsewhere, before)


def test_one_dimension_puts_sources_above_targets():
    ax = plot.transport(aot.solve(aot.DistanceCost([[0.0], [9.0]], [[1.0], [5.0]], reach=2)))
    np.testing.assert_array_equal(plan_lines(ax).get_segments(), [[[0, 1], [1, 0]]])
    np.testing.assert_array_equal(plan_marks(ax)[1].get_offsets(), [[9, 1]])


@pytest.mark.parametrize("size", [1, 40])
def test_higher_dimensions_keep_the_plane_of_largest_spread(size):
    """Points in a tilted plane of R^5: the picture keeps every distance."""
    rng = np.random.default_rng(3)
    plane = np.linalg.qr(rng.normal(size=(5, 2)))[0]
    x, z = (rng.normal(size=(size, 2)) @ plane.T + 7 for _ in range(2))
    solution = aot.solve(aot.DistanceCost(x, z, reach=100.0))
    ax = plot.transport(solution)
    rows, columns, _ = solution.support
    lengths = [np.linalg.norm(a - b) for a, b in plan_lines(ax).get_segments()]
    np.testing.assert_allclose(lengths, np.linalg.norm(x[rows] - z[columns], axis=1), atol=1e-9)
    assert ax.get_xlabel() == "first principal component"


def in_three_dimensions(size=12):
    x, z = np.random.default_rng(1).normal(size=(2, size, 3)) * [1.0, 2.0, 0.5] + 7
    return x, z, aot.solve(aot.DistanceCost(x, z, reach=1.0))


def corners(marks) -> np.ndarray:
    """The points of marks in space, in their order."""
    marks.axes.figure.canvas.draw()
    return np.transpose(marks._offsets3d)


def test_three_dimensions_are_drawn_in_space():
    x, z, solution = in_three_dimensions()
    assert 0 < len(solution.outliers.sources) < 12
    ax: Any = plot.transport(solution)
    assert ax.name == "3d"
    lines: Any = next(each for each in ax.collections if isinstance(each, Line3DCollection))
    rows, columns, _ = solution.support
    np.testing.assert_allclose(lines._segments3d, np.stack([x[rows], z[columns]], axis=1))
    active, theirs = solution.active_source, solution.active_target
    for marks, points in zip(plan_marks(ax), (x[active], x[~active], z[theirs], z[~theirs]), strict=True):
        np.testing.assert_allclose(np.sort(corners(marks), axis=0), np.sort(points, axis=0))
    assert texts(ax.get_legend().get_texts())[1] == f"source, inactive ({len(solution.outliers.sources)})"
    for limits, coordinates in zip((ax.get_xlim(), ax.get_ylim(), ax.get_zlim()), np.r_[x, z].T, strict=True):
        assert limits[0] < coordinates.min() < coordinates.max() < limits[1]
    sides = np.ptp([ax.get_xlim(), ax.get_ylim(), ax.get_zlim()], axis=1)
    np.testing.assert_allclose(sides / sides[2], [4 / 3, 4 / 3, 1], rtol=1e-6)  # equal units in Matplotlib's box


def test_axes_decide_how_many_dimensions_are_drawn():
    x, z, solution = in_three_dimensions()
    flat: Any = plot.transport(solution, ax=Figure().add_subplot())
    assert flat.get_ylabel() == "second principal component"
    assert len(plan_lines(flat).get_segments()) == len(solution.support[0])
    more = [np.column_stack([side, side @ [1.0, 1.0, 1.0]]) for side in (x, z)]
    tall: Any = plot.transport(solution, *more, ax=Figure().add_subplot(projection="3d"))
    assert tall.get_zlabel() == "third principal component"
    for points in ([[0.0]] * 12, [[0.0, 1.0]] * 12):
        with pytest.raises(aot.InvalidInput, match="ax must be axes in the plane for this picture; got axes in space"):
            plot.transport(solution, points, points, ax=Figure().add_subplot(projection="3d"))
    with pytest.raises(aot.InvalidInput, match="ax must be axes in the plane"):
        plot.plan(solution, ax=Figure().add_subplot(projection="3d"))


@pytest.mark.parametrize(("n", "m"), [(0, 0), (0, 3), (1, 1), (3, 3)])
def test_few_or_equal_points_in_space(n, m):
    ax = plot.transport(aot.solve(np.ones((n, m))), np.zeros((n, 3)), np.zeros((m, 3)))
    ax.figure.canvas.draw()
    assert ax.name == "3d"


def test_joint_cost_and_torch():
    torch = pytest.importorskip("torch")
    x = torch.arange(12, dtype=torch.float32).reshape(6, 2)
    p = torch.eye(2)[[0, 0, 0, 1, 1, 1]]
    solution = aot.solve(aot.JointCost(x, x + 0.1, p, p))
    ax = plot.transport(solution)
    assert len(plan_lines(ax).get_segments()) == len(solution.support[0]) > 0
    assert len(plan_marks(ax)[0].get_offsets()) == int(solution.active_source.sum())


@pytest.mark.parametrize(("n", "m"), [(0, 0), (0, 3), (3, 0), (3, 3)])
def test_nothing_moves(n, m):
    ax = plot.transport(aot.solve(np.ones((n, m))), np.zeros((n, 2)), np.zeros((m, 2)))
    _, hollow_sources, _, hollow_targets = plan_marks(ax)
    assert len(plan_lines(ax).get_segments()) == 0
    assert (len(hollow_sources.get_offsets()), len(hollow_targets.get_offsets())) == (n, m)
    ax.figure.canvas.draw()


# Two columns


def places(ax) -> dict[str, tuple[float, float]]:
    """The positions of all points, by name."""
    return {text.get_text(): text.xy for text in ax.texts}


def crossings(ends) -> int:
    """Pairs of lines from one column to the other that change sides on their way."""
    return sum((a[0] - b[0]) * (a[1] - b[1]) < 0 for a, b in combinations(ends, 2))


def drawn_crossings(ax) -> int:
    return crossings([(a[1], b[1]) for a, b in plan_lines(ax).get_segments()])


def in_clusters(size=24, others=20, classes=4, seed=0):
    """Random costs with several clusters and some points that stay alone."""
    rng = np.random.default_rng(seed)
    own, theirs = rng.integers(0, classes, size), rng.integers(0, classes + 1, others)
    return aot.solve(np.where(own[:, None] == theirs, -1.0, 2.0) + 0.7 * rng.normal(size=(size, others)))


def test_toy_without_points(toy):
    """Two columns: a cluster, the next, and the outliers below."""
    ax: Any = plot.transport(toy)
    place = places(ax)
    assert set(place) == {f"x{k}" for k in range(1, 7)} | {f"z{k}" for k in range(1, 6)}
    assert all(across == (name[0] == "z") for name, (across, _) in place.items())
    groups = [("x1", "x2", "x3", "z1", "z2"), ("x4", "x5", "z3", "z4"), ("x6", "z5")]
    for upper, lower in pairwise(groups):
        assert min(place[name][1] for name in upper) > max(place[name][1] for name in lower)
    rows, columns, _ = toy.support
    for (a, b), row, column in zip(plan_lines(ax).get_segments(), rows, columns, strict=True):
        np.testing.assert_array_equal([a, b], [place[f"x{row + 1}"], place[f"z{column + 1}"]])
    _, hollow_sources, _, hollow_targets = plan_marks(ax)
    np.testing.assert_array_equal(hollow_sources.get_offsets(), [place["x6"]])
    np.testing.assert_array_equal(hollow_targets.get_offsets(), [place["z5"]])
    assert drawn_crossings(ax) == 0
    assert texts(ax.get_xticklabels()) == ["sources", "targets"]
    assert ax.get_title() == "mass 0.7333 of at most 1, value -0.7333"


def test_bands_lie_behind_clusters():
    solution = in_clusters(size=12, others=10, classes=3)
    clusters = solution.clusters()
    assert 1 < len(clusters) <= len(plot.CLUSTER_COLOURS)
    ax: Any = plot.transport(solution)
    place = places(ax)
    assert len(ax.patches) == len(clusters)
    for band, cluster, colour in zip(ax.patches, clusters, plot.CLUSTER_COLOURS, strict=False):
        names = [f"x{k + 1}" for k in cluster.sources] + [f"z{k + 1}" for k in cluster.targets]
        low, high = band.get_y(), band.get_y() + band.get_height()
        assert {name for name, (_, down) in place.items() if low < down < high} == set(names)
        assert hexes([band.get_facecolor()]) == [colour.lower()]
    left = [f"x{k + 1}" for k in np.flatnonzero(~solution.active_source)]
    assert left
    lowest = min(band.get_y() for band in ax.patches)
    assert all(place[name][1] < lowest for name in left)


@pytest.mark.parametrize("seed", range(10))
def test_lines_cross_less_than_in_the_order_of_names(seed):
    solution = in_clusters(seed=seed)
    rows, columns, _ = solution.support
    in_order = 0
    for cluster in solution.clusters():
        inside = np.isin(rows, cluster.sources)
        in_order += crossings(list(zip(rows[inside], columns[inside], strict=True)))
    assert drawn_crossings(plot.transport(solution)) <= in_order


def test_a_chain_has_no_crossings():
    """x1 z1 x2 z2 ... one after the other, names shuffled."""
    order = np.random.default_rng(0).permutation(20)
    chain = np.eye(20) + np.eye(20, k=1)
    cost = np.where(chain > 0, -1.0, 1.0)[np.ix_(order, order[::-1])]
    weights = np.linspace(1, 2, 20)
    ax = plot.transport(aot.solve(cost, weights[order], weights[order[::-1]] * 0.9))
    assert len(plan_lines(ax).get_segments()) > 20
    assert drawn_crossings(ax) == 0


@pytest.mark.parametrize("solver", [aot.Exact(), aot.Entropic(0.3)])
@pytest.mark.parametrize(("n", "m"), [(0, 0), (1, 1), (0, 3), (3, 0), (60, 1), (5, 60)])
def test_columns_of_any_length(n, m, solver):
    cost = np.random.default_rng(n + m).normal(size=(n, m))
    ax = plot.transport(aot.solve(cost, solver=solver))
    heights = [{height for across, height in places(ax).values() if across == side} for side in (0, 1)]
    assert [len(side) for side in heights] == [n, m]
    ax.figure.canvas.draw()


def test_long_columns_need_points():
    for shape in ((61, 2), (2, 61)):
        with pytest.raises(aot.InvalidInput, match="source_points is needed because the cost has no points"):
            plot.transport(aot.solve(np.ones(shape)))


def test_sparse_costs_and_sides():
    ax = plot.transport(aot.solve(sparse.csr_array(np.diag([-1.0, -2.0, -3.0]))), by_cluster=False)
    assert len(plan_lines(ax).get_segments()) == 3
    assert not ax.patches  # bands have the colours of clusters
