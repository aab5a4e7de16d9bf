"""Pictures are judged by what they hold: lines, marks, colours, texts."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure

import adaptive_ot as aot
from adaptive_ot import plot
from adaptive_ot.workbench.cli.samples import TOY_COST, moons_with_outliers

TOY_SOURCES = np.array([[0.0, -i] for i in range(6)])
TOY_TARGETS = np.array([[1.0, -j] for j in range(5)])


def parts(ax) -> tuple[Any, list[Any]]:
    """The lines, then filled and hollow marks of the sources, then those of the targets."""
    (lines,) = (each for each in ax.collections if isinstance(each, LineCollection))
    return lines, [each for each in ax.collections if isinstance(each, PathCollection)]


def cloud(size=60, dimension=2, reach=0.5, seed=0):
    x, z = np.random.default_rng(seed).normal(size=(2, size, dimension))
    return aot.solve(aot.DistanceCost(x, z, reach))


@pytest.fixture
def toy():
    return aot.solve(TOY_COST)


def test_toy(toy):
    ax = plot.transport(toy, TOY_SOURCES, TOY_TARGETS)
    lines, (sources, hollow_sources, targets, hollow_targets) = parts(ax)
    rows, columns, _ = toy.support
    assert len(lines.get_segments()) == np.count_nonzero(toy.plan)
    np.testing.assert_array_equal([s[0] for s in lines.get_segments()], TOY_SOURCES[rows])
    np.testing.assert_array_equal([s[1] for s in lines.get_segments()], TOY_TARGETS[columns])
    np.testing.assert_array_equal(sources.get_offsets(), TOY_SOURCES[:5])
    np.testing.assert_array_equal(hollow_sources.get_offsets(), TOY_SOURCES[5:])
    np.testing.assert_array_equal(targets.get_offsets(), TOY_TARGETS[:4])
    np.testing.assert_array_equal(hollow_targets.get_offsets(), TOY_TARGETS[4:])
    assert ax.get_title() == "mass 0.7333 of at most 1, value -0.7333"


def test_few_clusters_have_a_colour_each(toy):
    lines, (sources, hollow, targets, _) = parts(plot.transport(toy, TOY_SOURCES, TOY_TARGETS))
    colours = [to_hex(colour) for colour in sources.get_facecolors()]
    assert len(set(colours[:3])) == len(set(colours[3:])) == 1
    assert colours[0] != colours[3]
    assert [to_hex(colour) for colour in targets.get_facecolors()] == [colours[0]] * 2 + [colours[3]] * 2
    of_source = dict(enumerate(colours))
    assert [to_hex(c) for c in lines.get_colors()] == [of_source[i] for i in toy.support[0]]
    assert len(hollow.get_facecolors()) == 0
    assert to_hex(hollow.get_edgecolors()[0]) == plot.GREY.lower()


def test_many_clusters_are_coloured_by_side():
    solution = cloud()
    assert len(solution.clusters()) > len(plot.CLUSTER_COLOURS)
    lines, (sources, hollow_sources, targets, hollow_targets) = parts(plot.transport(solution))
    for marks, colour in ((sources, plot.SIDE_COLOURS[0]), (targets, plot.SIDE_COLOURS[1])):
        assert {to_hex(c) for c in marks.get_facecolors()} == {colour.lower()}
    assert {to_hex(c) for c in lines.get_colors()} == {plot.GREY.lower()}
    assert len(hollow_sources.get_offsets()) == np.count_nonzero(~solution.active_source) > 0
    assert len(hollow_targets.get_offsets()) == np.count_nonzero(~solution.active_target) > 0
    assert len(hollow_sources.get_facecolors()) == len(hollow_targets.get_facecolors()) == 0


def test_eight_clusters_have_eight_colours():
    x = np.arange(8.0)[:, None] * [10, 0]
    _, (sources, *_) = parts(plot.transport(aot.solve(aot.DistanceCost(x, x + 0.1, reach=1))))
    assert len({to_hex(colour) for colour in sources.get_facecolors()}) == 8


def test_heavier_lines_are_wider_and_stronger(toy):
    lines, _ = parts(plot.transport(toy, TOY_SOURCES, TOY_TARGETS))
    order = np.argsort(toy.support[2], kind="stable")
    step = np.diff(toy.support[2][order]) > 1e-9
    assert step.any()
    assert (np.diff(np.array(lines.get_linewidths())[order])[step] > 0).all()
    assert (np.diff(lines.get_colors()[order, 3])[step] > 0).all()


def test_legend_counts(toy):
    legend = plot.transport(toy, TOY_SOURCES, TOY_TARGETS).get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [
        "source, active (5)",
        "source, inactive (1)",
        "target, active (4)",
        "target, inactive (1)",
    ]


def test_sides_or_clusters_on_request():
    """Ten pairs: ten clusters, more than there are colours."""
    solution = aot.solve(np.where(np.eye(10) > 0, -1.0, 1.0))
    points = np.arange(20.0).reshape(10, 2)
    by_side = plot.transport(solution, points, points + 0.5)
    by_cluster = plot.transport(solution, points, points + 0.5, by_cluster=True)
    colours = [len({tuple(colour) for colour in parts(ax)[0].get_colors()}) for ax in (by_side, by_cluster)]
    assert colours == [1, 8]


def test_mass_path():
    """The stairs are the prices over the masses, and the lines stand where the suggestions are."""
    path = aot.mass_path([[-3.0, 1.0], [2.0, 4.0]])
    ax: Any = plot.mass_path(path)
    outline, filled = ax.patches
    np.testing.assert_array_equal(outline.get_data().values, path.price)
    np.testing.assert_array_equal(outline.get_data().edges, path.mass)
    np.testing.assert_array_equal(filled.get_data().edges, [0.0, 0.5])  # what pays
    labelled = {line.get_label(): line.get_xdata()[0] for line in ax.lines if ":" in str(line.get_label())}
    assert labelled == {"adaptive: mass 0.5": 0.5, "elbow: mass 0.5": 0.5}
    assert plot.mass_path(path, ax=ax) is ax


def test_mass_path_of_nothing():
    ax = plot.mass_path(aot.mass_path([[np.inf]]))
    assert (len(ax.patches), ax.get_legend()) == (0, None)
    with pytest.raises(aot.InvalidInput, match="path must be"):
        plot.mass_path([0.0, 1.0])  # pyright: ignore[reportArgumentType]


def between(labels, others):
    """An exact solution where only equal labels attract each other."""
    cost = np.where(np.asarray(labels)[:, None] == np.asarray(others), -1.0, 1.0)
    return aot.solve(cost + 0.01 * np.random.default_rng(0).normal(size=cost.shape))


def test_plan_is_sorted_by_class():
    labels, others = [2, 0, 1, 0], ["a", "c", "b", "a", "a"]
    solution = aot.solve(np.random.default_rng(0).normal(size=(4, 5)))
    ax: Any = plot.plan(solution, labels, others)
    expected = solution.plan[np.ix_([1, 3, 2, 0], [0, 3, 4, 2, 1])]
    np.testing.assert_allclose(ax.images[0].get_array(), expected)
    horizontal = [line.get_ydata()[0] for line in ax.lines if list(line.get_xdata()) == [0, 1]]
    vertical = [line.get_xdata()[0] for line in ax.lines if list(line.get_ydata()) == [0, 1]]
    assert (horizontal, vertical) == ([2, 3], [3, 4])  # three blocks a side
    assert [name.get_text() for name in ax.get_yticklabels()] == ["0", "1", "2"]
    assert [name.get_text() for name in ax.get_xticklabels()] == ["a", "b", "c"]
    np.testing.assert_array_equal(ax.get_xticks(), [1.5, 3.5, 4.5])
    assert ax.get_title() == f"mass {solution.mass:.4g} of at most 1"


def test_plan_without_labels_stays_in_order(toy):
    ax: Any = plot.plan(toy)
    np.testing.assert_array_equal(ax.images[0].get_array(), toy.plan)
    assert (len(ax.lines), ax.get_xlabel(), ax.get_ylabel()) == (0, "targets", "sources")


def test_a_large_plan_shares_pixels(monkeypatch):
    """Pixels are means: times the pairs in them, they are all of the mass."""
    monkeypatch.setattr(sys.modules["adaptive_ot.plot.plan"], "PIXELS", 4)
    solution = aot.solve(np.random.default_rng(1).normal(size=(10, 7)))
    ax: Any = plot.plan(solution)
    image = ax.images[0].get_array()
    assert image.shape == (4, 4)
    pairs = np.outer([3, 2, 3, 2], [2, 2, 2, 1])
    assert (image * pairs).sum() == pytest.approx(solution.mass)
    assert image[0, 0] == pytest.approx(solution.plan[:3, :2].mean())


def test_many_classes_leave_out_names():
    labels = np.arange(100)
    ax = plot.plan(between(labels, labels), labels, labels)
    assert [name.get_text() for name in ax.get_xticklabels()][:3] == ["0", "4", "8"]
    assert len(ax.lines) == 2 * 99


def test_label_plan():
    labels, others = ["cat", "cat", "dog", "owl"], ["dog", "cat", "emu", "cat", "dog"]
    solution = between(labels, others)
    ax: Any = plot.label_plan(solution, labels, others)
    table = np.zeros((4, 4))  # cat, dog, emu, owl
    table[np.ix_([0, 1, 3], [0, 1, 2])] = solution.by_label(labels, others).mass
    np.testing.assert_allclose(ax.images[0].get_array(), table)
    assert {text.get_text() for text in ax.texts} == {"0.4", "0.25"}
    above, right = ax.child_axes
    heights, widths = [bar.get_height() for bar in above.patches], [bar.get_width() for bar in right.patches]
    np.testing.assert_allclose(heights, [*table.sum(axis=0), 0.4, 0.4, 0.2, 0])
    np.testing.assert_allclose(widths, [*table.sum(axis=1), 0.5, 0.25, 0, 0.25])
    hatched = [patch.get_xy() for patch in ax.patches if patch.get_hatch()]
    assert hatched == [(2.5, 0), (0, 1.5)]  # no owl among the targets, no emu among the sources
    assert [name.get_text() for name in ax.get_xticklabels()] == ["cat", "dog", "emu", "owl\nmissing"]
    assert [name.get_text() for name in ax.get_yticklabels()] == ["cat", "dog", "emu\nmissing", "owl"]
    assert above.get_title().startswith(f"mass {solution.mass:.4g} of at most 1")


def test_label_plan_tells_sources_from_targets():
    """A table that is not symmetric: above are the sums of columns, at the right those of rows."""
    ax: Any = plot.label_plan(aot.solve([[1.0, -1.0], [1.0, 1.0]]), [0, 1], [0, 1])
    above, right = ax.child_axes
    assert [bar.get_height() for bar in above.patches] == [0, 0.5, 0.5, 0.5]
    assert [bar.get_width() for bar in right.patches] == [0.5, 0, 0.5, 0.5]


def test_label_plan_of_numbers_beside_words():
    ax: Any = plot.label_plan(between([0, 10, 2], [0, 1, 2]), [0, 10, 2], ["2", "ten", "0"])
    assert [name.get_text() for name in ax.get_xticklabels()] == ["0", "2", "10\nmissing", "ten"]


def test_label_plan_shows_mass_beyond_the_weights():
    """Unbalanced transport may move more than there is; the bars must not be cut."""
    solution = aot.solve(-np.ones((2, 2)), marginals=aot.SoftKL(1.0), solver=aot.Entropic(0.1))
    ax: Any = plot.label_plan(solution, [0, 1], [0, 1])
    moved = float(solution.source_marginal.max())
    assert moved > 0.5
    assert ax.child_axes[1].get_xlim()[1] >= moved


@pytest.mark.parametrize(("n", "m"), [(0, 0), (0, 3), (3, 0), (3, 3)])
def test_heatmaps_of_nothing(n, m):
    solution = aot.solve(np.ones((n, m)))
    for draw in (plot.plan, plot.label_plan):
        ax: Any = draw(solution, ["a"] * n, ["b"] * m)
        assert ax.images[0].get_array().sum() == 0
        ax.figure.canvas.draw()


@pytest.mark.parametrize("draw", [plot.plan, plot.label_plan])
@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (([0] * 5, [0] * 5), r"source_labels must have shape \(6,\); got \(5,\)"),
        (([0] * 6, [[0] * 5]), r"target_labels must have shape \(5,\)"),
        (([0, "a", None, 1, 2, 3], [0] * 5), "source_labels must be labels that can be sorted"),
    ],
)
def test_bad_labels(toy, draw, labels, message):
    if None in labels[0]:
        labels = np.array(labels[0], dtype=object), labels[1]
    with pytest.raises(aot.InvalidInput, match=message):
        draw(toy, *labels)
    with pytest.raises(aot.InvalidInput, match="solution must be"):
        draw(TOY_COST, [0] * 6, [0] * 5)


def test_heatmaps_are_drawn_where_they_are_told(toy):
    figure = Figure()
    left, right = figure.subplots(1, 2)
    assert plot.plan(toy, ax=left) is left
    assert plot.label_plan(toy, [0] * 6, [0] * 5, ax=right) is right


def test_given_points_win_over_those_of_the_cost():
    solution = cloud(size=10)
    cost: Any = solution.problem.cost
    elsewhere = cost.x + 100
    _, (sources, *_) = parts(plot.transport(solution, source_points=elsewhere))
    np.testing.assert_array_equal(sources.get_offsets(), elsewhere[solution.active_source])


def test_one_dimension_puts_sources_above_targets():
    lines, marks = parts(plot.transport(aot.solve(aot.DistanceCost([[0.0], [9.0]], [[1.0], [5.0]], reach=2))))
    np.testing.assert_array_equal(lines.get_segments(), [[[0, 1], [1, 0]]])
    np.testing.assert_array_equal(marks[1].get_offsets(), [[9, 1]])


@pytest.mark.parametrize("size", [1, 40])
def test_higher_dimensions_keep_the_plane_of_largest_spread(size):
    """Points in a tilted plane of R^5: the picture keeps every distance."""
    rng = np.random.default_rng(3)
    frame = np.linalg.qr(rng.normal(size=(5, 2)))[0]
    x, z = (rng.normal(size=(size, 2)) @ frame.T + 7 for _ in range(2))
    ax = plot.transport(aot.solve(aot.DistanceCost(x, z, reach=100.0)))
    lines, _ = parts(ax)
    rows, columns, _ = aot.solve(aot.DistanceCost(x, z, reach=100.0)).support
    lengths = [np.linalg.norm(a - b) for a, b in lines.get_segments()]
    np.testing.assert_allclose(lengths, np.linalg.norm(x[rows] - z[columns], axis=1), atol=1e-9)
    assert ax.get_xlabel() == "first principal component"


def test_joint_cost_and_torch():
    torch = pytest.importorskip("torch")
    x = torch.arange(12, dtype=torch.float32).reshape(6, 2)
    p = torch.eye(2)[[0, 0, 0, 1, 1, 1]]
    solution = aot.solve(aot.JointCost(x, x + 0.1, p, p))
    lines, (sources, *_) = parts(plot.transport(solution))
    assert len(lines.get_segments()) == len(solution.support[0]) > 0
    assert len(sources.get_offsets()) == int(solution.active_source.sum())


@pytest.mark.parametrize(("n", "m"), [(0, 0), (0, 3), (3, 0), (3, 3)])
def test_nothing_moves(n, m):
    ax = plot.transport(aot.solve(np.ones((n, m))), np.zeros((n, 2)), np.zeros((m, 2)))
    lines, (_, hollow_sources, _, hollow_targets) = parts(ax)
    assert len(lines.get_segments()) == 0
    assert (len(hollow_sources.get_offsets()), len(hollow_targets.get_offsets())) == (n, m)
    ax.figure.canvas.draw()


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ((None, TOY_TARGETS), "source_points is needed because the cost has no points"),
        ((TOY_SOURCES, None), "target_points is needed because the cost has no points"),
        ((TOY_SOURCES[:5], TOY_TARGETS), "source_points must have 6 rows; got 5"),
        ((TOY_SOURCES, np.zeros((5, 3))), "target_points must have as many columns"),
        ((TOY_SOURCES * np.nan, TOY_TARGETS), "source_points must hold finite numbers"),
        (("moon", TOY_TARGETS), "source_points must hold real numbers"),
    ],
)
def test_bad_points(toy, points, message):
    with pytest.raises(aot.InvalidInput, match=message):
        plot.transport(toy, *points)


def test_bad_solution():
    with pytest.raises(aot.InvalidInput, match="solution must be"):
        plot.transport(TOY_COST)  # pyright: ignore[reportArgumentType]


def test_draws_where_it_is_told(toy):
    figure = Figure()
    left, right = figure.subplots(1, 2)
    assert plot.transport(toy, TOY_SOURCES, TOY_TARGETS, ax=right) is right
    assert len(left.collections) == 0


@pytest.mark.parametrize("background", ["white", "black"])
def test_marks_stand_out_from_any_background(background):
    """The palette keeps a contrast of 1.3 (yellow on white) to 2 and more, WCAG's ratio of luminances."""

    def luminance(colour):
        rgb = np.array(to_rgb(colour))
        return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]

    def contrast(colour):
        dark, light = sorted([luminance(colour), luminance(background)])
        return (light + 0.05) / (dark + 0.05)

    assert min(contrast(colour) for colour in plot.CLUSTER_COLOURS) > 1.25
    assert min(contrast(colour) for colour in (*plot.SIDE_COLOURS, plot.GREY, *plot.CLUSTER_COLOURS[:6])) > 2


def test_global_state_is_left_alone(tmp_path):
    code = (
        "import sys, matplotlib as mpl, adaptive_ot as aot; from adaptive_ot import plot;"
        "assert 'matplotlib.figure' not in sys.modules;"
        "before = dict(mpl.rcParams);"
        "ax = plot.transport(aot.solve(aot.DistanceCost([[0, 0]], [[0, 1]], reach=2)));"
        "ax.figure.savefig('a.png'); assert dict(mpl.rcParams) == before;"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    environment = {"PATH": "", "MPLBACKEND": "tkagg", "MPLCONFIGDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, cwd=tmp_path, env=environment)
    assert (tmp_path / "a.png").read_bytes()[1:4] == b"PNG"


def test_without_matplotlib(toy, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(aot.MissingDependency, match=r'pip install "adaptive-ot\[plot\]"'):
        plot.transport(toy, TOY_SOURCES, TOY_TARGETS)


def test_inputs_are_left_alone():
    clouds = moons_with_outliers(size=50)
    before = clouds.x.copy()
    plot.transport(aot.solve(aot.DistanceCost(clouds.x, clouds.z, 0.3)), clouds.x, clouds.z)
    np.testing.assert_array_equal(clouds.x, before)
