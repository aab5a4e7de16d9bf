"""Pictures of plans: two columns for points without places, plans side by side, and what classes move on average."""

from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_hex
from scipy import sparse

import adaptive_ot as aot
from adaptive_ot import plot
from adaptive_ot.workbench.cli.samples import TOY_COST
from budget import mostly_slow


def places(ax) -> dict[str, tuple[float, float]]:
    """Where the names of all points stand."""
    return {text.get_text(): text.xy for text in ax.texts}


def segments(ax) -> list[np.ndarray]:
    (lines,) = (each for each in ax.collections if isinstance(each, LineCollection))
    return lines.get_segments()


def crossings(ends) -> int:
    """Pairs of lines from one column to the other that change sides on their way."""
    return sum((a[0] - b[0]) * (a[1] - b[1]) < 0 for a, b in combinations(ends, 2))


def in_clusters(size=24, others=20, classes=4, seed=0):
    """Random costs with several clusters and some points that stay alone."""
    rng = np.random.default_rng(seed)
    own, theirs = rng.integers(0, classes, size), rng.integers(0, classes + 1, others)
    return aot.solve(np.where(own[:, None] == theirs, -1.0, 2.0) + 0.7 * rng.normal(size=(size, others)))


def test_toy_without_points():
    """Two columns: a cluster, the next, and the outliers below."""
    solution = aot.solve(TOY_COST)
    ax: Any = plot.transport(solution)
    place = places(ax)
    assert set(place) == {f"x{k}" for k in range(1, 7)} | {f"z{k}" for k in range(1, 6)}
    assert all(across == (name[0] == "z") for name, (across, _) in place.items())
    height = {name: down for name, (_, down) in place.items()}
    groups = [("x1", "x2", "x3", "z1", "z2"), ("x4", "x5", "z3", "z4"), ("x6", "z5")]
    for upper, lower in pairwise(groups):
        assert min(height[name] for name in upper) > max(height[name] for name in lower)
    rows, columns, _ = solution.support
    for (a, b), row, column in zip(segments(ax), rows, columns, strict=True):
        np.testing.assert_array_equal([a, b], [place[f"x{row + 1}"], place[f"z{column + 1}"]])
    marks = [each.get_offsets() for each in ax.collections if isinstance(each, PathCollection)]
    np.testing.assert_array_equal(marks[1], [place["x6"]])  # hollow
    np.testing.assert_array_equal(marks[3], [place["z5"]])
    assert crossings([(a[1], b[1]) for a, b in segments(ax)]) == 0
    assert [label.get_text() for label in ax.get_xticklabels()] == ["sources", "targets"]
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
        assert to_hex(band.get_facecolor()) == colour.lower()
    left = [f"x{k + 1}" for k in np.flatnonzero(~solution.active_source)]
    assert left
    lowest = min(band.get_y() for band in ax.patches)
    assert all(place[name][1] < lowest for name in left)


@pytest.mark.parametrize("seed", range(10))
def test_lines_cross_less_than_in_the_order_of_names(seed):
    solution = in_clusters(seed=seed)
    ax: Any = plot.transport(solution)
    in_order = []
    for cluster in solution.clusters():
        rows, columns, _ = solution.support
        inside = np.isin(rows, cluster.sources)
        in_order.append(crossings(list(zip(rows[inside], columns[inside], strict=True))))
    assert crossings([(a[1], b[1]) for a, b in segments(ax)]) <= sum(in_order)


def test_a_chain_has_no_crossings():
    """x1 z1 x2 z2 ... one after the other, names shuffled."""
    order = np.random.default_rng(0).permutation(20)
    chain = np.eye(20) + np.eye(20, k=1)
    cost = np.where(chain > 0, -1.0, 1.0)[np.ix_(order, order[::-1])]
    weights = np.linspace(1, 2, 20)
    ax: Any = plot.transport(aot.solve(cost, weights[order], weights[order[::-1]] * 0.9))
    assert len(segments(ax)) > 20
    assert crossings([(a[1], b[1]) for a, b in segments(ax)]) == 0


@pytest.mark.parametrize("solver", [aot.Exact(), aot.Entropic(0.3)])
@pytest.mark.parametrize(("n", "m"), [(0, 0), (1, 1), (0, 3), (3, 0), (60, 1), (5, 60)])
def test_columns_of_any_length(n, m, solver):
    cost = np.random.default_rng(n + m).normal(size=(n, m))
    ax: Any = plot.transport(aot.solve(cost, solver=solver))
    heights = [[height for across, height in places(ax).values() if across == side] for side in (0, 1)]
    assert [len(set(side)) for side in heights] == [n, m]
    ax.figure.canvas.draw()


def test_long_columns_need_points():
    for shape in ((61, 2), (2, 61)):
        with pytest.raises(aot.InvalidInput, match="source_points is needed because the cost has no points"):
            plot.transport(aot.solve(np.ones(shape)))


def test_sparse_costs_and_sides():
    solution = aot.solve(sparse.csr_array(np.diag([-1.0, -2.0, -3.0])))
    ax: Any = plot.transport(solution, by_cluster=False)
    assert len(segments(ax)) == 3
    assert not ax.patches  # bands have the colours of clusters


def entropic_and_exact(n=12, m=9, seed=0):
    cost = np.random.default_rng(seed).normal(size=(n, m))
    solvers = {"exact": aot.Exact(), "epsilon 0.1": aot.Entropic(0.1), "epsilon 1": aot.Entropic(1.0)}
    return {name: aot.solve(cost, solver=solver) for name, solver in solvers.items()}


def test_plans_side_by_side():
    solutions = entropic_and_exact()
    labels, others = np.arange(12) % 3, np.array(list("cab" * 3))
    figure: Any = plot.plans(solutions, labels, others)
    *panels, bar = figure.axes
    rows, columns = np.argsort(labels, kind="stable"), np.argsort(others, kind="stable")
    largest = max(solution.plan.max() for solution in solutions.values())
    for ax, (name, solution) in zip(panels, solutions.items(), strict=True):
        np.testing.assert_allclose(ax.images[0].get_array(), solution.plan[np.ix_(rows, columns)])
        assert ax.images[0].get_clim() == (0, largest)  # one scale
        assert ax.get_title() == f"{name}\nmass {solution.mass:.4g} of at most 1"
        assert [line.get_ydata()[0] for line in ax.lines[:2]] == [4, 8]
    assert len({id(ax.images[0].norm) for ax in panels}) == 1
    assert bar.get_ylabel() == "mass of a pair"
    assert [label.get_text() for label in panels[0].get_xticklabels()] == ["a", "b", "c"]


def test_plans_are_drawn_as_plan_does():
    solution = in_clusters()
    alone: Any = plot.plan(solution, np.arange(24) % 5, np.arange(20) % 4)
    beside: Any = plot.plans({"": solution}, np.arange(24) % 5, np.arange(20) % 4).axes[0]
    np.testing.assert_array_equal(alone.images[0].get_array(), beside.images[0].get_array())
    assert [line.get_xydata().tolist() for line in alone.lines] == [line.get_xydata().tolist() for line in beside.lines]


def test_many_plans_fill_rows():
    """Axes are named at the left, and below the lowest plan of every column."""
    solution = aot.solve(TOY_COST)
    figure = plot.plans({str(k): solution for k in range(6)})
    assert [bool(ax.get_xlabel()) for ax in figure.axes[:6]] == [False, False, True, True, True, True]
    assert [bool(ax.get_ylabel()) for ax in figure.axes[:6]] == [True, False, False, False, True, False]
    assert len(figure.axes) == 7
    figure.canvas.draw()


def test_plans_of_5000_points():
    """Pixels are means: times the pairs in them, they are all of the mass."""
    cost = sparse.diags_array(-np.ones(5000), format="csr")
    solution = aot.solve(cost)
    labels = np.arange(5000) % 10
    figure = plot.plans({"a": solution, "b": solution}, labels, labels)
    image: Any = figure.axes[0].images[0].get_array()
    assert max(image.shape) < 5000
    assert image.sum() * 5000**2 / image.size == pytest.approx(1, rel=0.02)
    figure.canvas.draw()


@pytest.mark.parametrize(("n", "m"), [(0, 0), (1, 1), (0, 3), (3, 3)])
def test_plans_of_nothing(n, m):
    solution = aot.solve(np.ones((n, m)))
    figure: Any = plot.plans({"one": solution, "two": solution}, ["a"] * n, ["b"] * m)
    figure.canvas.draw()
    assert all(ax.images[0].get_array().sum() == 0 for ax in figure.axes[:2])


@pytest.mark.parametrize(
    ("solutions", "message"),
    [
        ({}, "solutions must hold at least one"),
        ([1], "solutions must be an instance of Mapping"),
        ({"a": TOY_COST}, r"solutions\['a'\] must be an instance of Solution"),
    ],
)
def test_bad_solutions(solutions, message):
    with pytest.raises(aot.InvalidInput, match=message):
        plot.plans(solutions)


def test_plans_of_different_shapes():
    solutions = {"a": aot.solve(TOY_COST), "b": aot.solve(TOY_COST.T)}
    with pytest.raises(aot.InvalidInput, match=r"solutions must have one shape; got shapes \[\(5, 6\), \(6, 5\)\]"):
        plot.plans(solutions)
    with pytest.raises(aot.InvalidInput, match=r"source_labels must have shape \(6,\)"):
        plot.plans({"a": solutions["a"]}, [1, 2])


def histograms(ax) -> Any:
    return ax.child_axes


def test_means_over_the_classes_that_a_side_has():
    """No owl among the targets, no emu among the sources: neither counts there."""
    labels, others = ["cat", "cat", "dog", "owl"], ["dog", "cat", "emu", "cat", "dog"]
    cost = np.where(np.array(labels)[:, None] == np.array(others), -1.0, 1.0)
    solution = aot.solve(cost)
    above, right = histograms(plot.label_plan(solution, labels, others))
    received, sent = np.asarray(solution.target_marginal), np.asarray(solution.source_marginal)
    assert above.lines[0].get_ydata()[0] == pytest.approx(received.sum() / 3)
    assert right.lines[0].get_xdata()[0] == pytest.approx(sent.sum() / 3)
    assert (len(above.lines), len(right.lines)) == (1, 1)
    assert "dashed: their mean" in above.get_title()


def test_no_classes_no_mean():
    above, right = histograms(plot.label_plan(aot.solve(np.ones((0, 2))), [], ["a", "b"]))
    assert (len(above.lines), len(right.lines)) == (1, 0)
    assert above.lines[0].get_ydata()[0] == 0


def test_classes_are_in_natural_order():
    """As on the page of a report; numbers stay numbers."""
    labels = [f"class {k}" for k in (10, 9, 100)]
    solution = aot.solve(np.diag([-1.0, -2.0, -3.0]) + 1)
    expected = ["class 9", "class 10", "class 100"]
    ax: Any = plot.plan(solution, labels, labels)
    assert [label.get_text() for label in ax.get_yticklabels()] == expected
    np.testing.assert_allclose(ax.images[0].get_array(), solution.plan[np.ix_([1, 0, 2], [1, 0, 2])])
    table: Any = plot.label_plan(solution, labels, labels)
    assert [label.get_text() for label in table.get_xticklabels()] == expected
    np.testing.assert_allclose(table.images[0].get_array(), solution.plan[np.ix_([1, 0, 2], [1, 0, 2])])
    numbers: Any = plot.plan(solution, [10, -9, 100], [1.5, 10.0, -20.0])
    assert [label.get_text() for label in numbers.get_yticklabels()] == ["-9", "10", "100"]
    assert [label.get_text() for label in numbers.get_xticklabels()] == ["-20.0", "1.5", "10.0"]


def test_names_do_not_turn_our_words():
    """Matplotlib lays text out from right to left where a name asks for it."""
    turning = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
    for sign in turning:
        ax: Any = plot.label_plan(aot.solve([[-1.0]]), [f"a{sign}b"], ["c"])
        (name, _) = (label.get_text() for label in ax.get_xticklabels())
        assert name == f"a\\u{ord(sign):04x}b\nmissing"


def overlaps(ax) -> int:
    """Names below a drawn picture that touch the next one; slanted ones by how far their lines are apart."""
    labels = [label for label in ax.get_xticklabels() if label.get_text()]
    boxes = [label.get_window_extent() for label in labels]
    if labels and labels[0].get_rotation():
        height = labels[0].get_fontsize() / 72 * ax.figure.dpi
        places = ax.transData.transform([(label.get_position()[0], 0) for label in labels])[:, 0]
        return int(sum(places[1:] - places[:-1] < 1.2 * height))
    return sum(a.x1 > b.x0 for a, b in pairwise(boxes))


@pytest.mark.parametrize("count", mostly_slow([30, 150, 8, 26], 2))
@pytest.mark.parametrize("name", [str, "{:03d}".format, "category {}".format])
def test_names_do_not_overlap(count, name):
    solution = aot.solve(-np.eye(count))
    labels = [name(k) for k in range(count)]
    figures: list[Any] = [draw(solution, labels, labels).figure for draw in (plot.plan, plot.label_plan)]
    figures.append(plot.plans({str(k): solution for k in range(3)}, labels, labels))
    for figure in figures:
        figure.canvas.draw()
        assert [overlaps(ax) for ax in figure.axes if ax.images] == [0] * sum(bool(ax.images) for ax in figure.axes)


def test_histograms_of_many_classes_are_steps():
    """Outlines of 150 bars would hide the bars."""
    labels = np.arange(300) % 150
    solution = aot.solve(-np.eye(300))
    above, right = histograms(plot.label_plan(solution, labels, labels))
    for inset in (above, right):
        filled, outline = inset.patches
        for steps in (filled, outline):
            np.testing.assert_allclose(steps.get_data().values, np.full(150, 2 / 300))
            np.testing.assert_array_equal(steps.get_data().edges, np.arange(151) - 0.5)
        assert outline.get_linewidth() < 1
