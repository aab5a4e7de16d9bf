"""Pictures of results: mass paths, overlaps, training runs, benchmarks, parameters, convergence."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import adaptive_ot as aot
from adaptive_ot import plot
from adaptive_ot.workbench.cli.samples import moons_with_outliers
from pictures import hexes, texts

NAN = math.nan


def curve(ax, label) -> Any:
    """The line whose label begins with this."""
    (line,) = (line for line in ax.lines if str(line.get_label()).startswith(label))
    return line


def explained(owner) -> list[str]:
    """The texts of the legend of axes or of a figure."""
    legends = owner.legends if hasattr(owner, "legends") else [owner.get_legend()]
    return [text for legend in legends for text in texts(legend.get_texts())]


def test_mass_path():
    """The stairs are the prices over the masses, and the lines stand where the suggestions are."""
    path = aot.mass_path([[-3.0, 1.0], [2.0, 4.0]])
    ax: Any = plot.mass_path(path)
    outline, filled = ax.patches
    np.testing.assert_array_equal(outline.get_data().values, path.price)
    np.testing.assert_array_equal(outline.get_data().edges, path.mass)
    np.testing.assert_array_equal(filled.get_data().edges, [0.0, 0.5])  # prices below zero
    labelled = {line.get_label(): line.get_xdata()[0] for line in ax.lines if ":" in str(line.get_label())}
    assert labelled == {"adaptive: mass 0.5": 0.5}  # and no elbow: there are too few points to see one


def test_mass_path_of_nothing():
    ax = plot.mass_path(aot.mass_path([[np.inf]]))
    assert (len(ax.patches), ax.get_legend()) == (0, None)


def test_mass_against_overlap():
    """Moons with more and more outliers: the overlap is what is left, and adaptive transport moves nearly that."""
    overlap = np.array([1.0, 0.8, 0.6])
    masses = []
    for share in 1 - overlap:
        clouds = moons_with_outliers(size=100, share=float(share))
        masses.append(aot.solve(aot.DistanceCost(clouds.x, clouds.z, reach=0.4)).mass)
    ax = plot.mass_against_overlap(overlap, {"adaptive": masses, "partial": [0.5, 0.5, 0.5]})
    np.testing.assert_array_equal(curve(ax, "adaptive").get_xydata(), np.column_stack([overlap, masses]))
    diagonal = curve(ax, "mass = overlap").get_xydata()
    np.testing.assert_array_equal(diagonal[:, 0], diagonal[:, 1])
    assert explained(ax) == ["mass = overlap", "adaptive", "partial"]
    trends: list[Any] = [line for line in ax.lines if str(line.get_label()).startswith("_")]
    slope = [float(np.diff(line.get_ydata())[0] / np.diff(line.get_xdata())[0]) for line in trends]
    assert slope == pytest.approx([np.cov(overlap, masses)[0, 1] / overlap.var(ddof=1), 0], abs=1e-9)
    assert abs(np.array(masses) - overlap).max() < 0.1
    assert (ax.get_xlim(), ax.get_aspect()) == (ax.get_ylim(), 1.0)


# Training runs


@pytest.fixture(scope="module")
def metrics(tmp_path_factory, one_thread):
    """The lines of a real, short run."""
    deep = pytest.importorskip("adaptive_ot.deep")
    import patterns

    folder = tmp_path_factory.mktemp("run")
    root = patterns.save_patterns(folder / "patterns.npz", 40)
    deep.train(patterns.small_run(root, folder / "run", iterations=40, evaluate_every=10))
    return patterns.metrics(folder / "run")


def test_training_of_a_real_run(metrics):
    figure = plot.training(metrics[::-1], baseline=("source only", 0.25))  # in any order
    above, below = figure.axes
    evaluated = [line for line in metrics if "accuracy" in line]
    assert len(evaluated) > 2
    accuracy = curve(above, "accuracy on the target")
    np.testing.assert_array_equal(accuracy.get_xdata(), [line["step"] + 1 for line in evaluated])
    np.testing.assert_array_equal(accuracy.get_ydata(), [line["accuracy"] for line in evaluated])
    for name, label in (("mass", "transported mass"), ("plan_purity", "purity of the plan (oracle)")):
        np.testing.assert_array_equal(curve(above, label).get_ydata(), [line[name] for line in metrics])
    best = curve(above, "the best")
    top = max(evaluated, key=lambda line: line["accuracy"])
    assert (best.get_xdata()[0], best.get_ydata()[0]) == (top["step"] + 1, top["accuracy"])
    assert (best.get_markerfacecolor(), "(oracle)" in str(best.get_label())) == ("none", True)
    assert curve(above, "source only").get_ydata()[0] == 0.25
    assert {line.get_label() for line in below.lines} == {"cross entropy", "transport"}
    np.testing.assert_array_equal(curve(below, "transport").get_ydata(), [line["transport"] for line in metrics])
    assert (below.get_xlabel(), below.get_ylabel()) == ("step", "losses")
    assert explained(above)[-1] == "source only, 25.0%"


@pytest.mark.parametrize(
    ("lines", "labels"),
    [
        ([{"step": 1, "accuracy": 0.5}], ["accuracy"]),
        ([{"step": 1, "loss": 0.5}], ["losses"]),
        ([{"step": 1, "mass": 0.5}, {"step": 2, "loss": -1.0}], ["mass", "losses"]),
        (
            [{"step": 1, "loss": 1}, {"loss": 2}, {"step": None, "loss": 2}, {"step": 2, "note": "x", "on": True}],
            ["losses"],
        ),
        ([{"step": 1, "loss": NAN, "mass": math.inf, "accuracy": 10**400, "plan_purity": 0.2}], ["accuracy"]),
    ],
)
def test_training_leaves_out_what_is_not_there(lines, labels):
    figure: Any = plot.training(lines)
    assert [ax.get_ylabel() for ax in figure.axes] == labels
    assert all(len(line.get_xdata()) == 1 for ax in figure.axes for line in ax.lines)
    figure.canvas.draw()


def test_masses_above_one_are_not_cut():
    figure = plot.training([{"step": 0, "mass": 1.7}, {"step": 9, "mass": 1.6}])
    assert figure.axes[0].get_ylim()[1] > 1.7


def test_many_losses_have_different_styles():
    figure = plot.training([{"step": 1} | {f"loss_{k}": float(k) for k in range(20)}])
    assert len({(*hexes([line.get_color()]), line.get_linestyle()) for line in figure.axes[0].lines}) == 20


@pytest.mark.parametrize("steps", [[0], [9], [0, 1], [9, 19, 29], list(range(0, 1000, 50))])
def test_steps_are_whole(steps):
    figure: Any = plot.training([{"step": step, "accuracy": 0.5, "loss": 1.0} for step in steps])
    figure.canvas.draw()
    low, high = figure.axes[-1].get_xlim()
    shown = [tick for tick in figure.axes[-1].get_xticks() if low <= tick <= high]
    assert shown
    assert all(tick == int(tick) for tick in shown)
    if len(steps) == 1:
        assert all(line.get_marker() == "o" for ax in figure.axes for line in ax.lines)  # a line would not be seen
        assert (low, high) == (steps[0], steps[0] + 2)
        assert shown == [steps[0], steps[0] + 1, steps[0] + 2]


# Convergence


@pytest.fixture(scope="module")
def traces():
    x, z = np.random.default_rng(0).normal(size=(2, 300, 8))
    cost = aot.DistanceCost(x, z, reach=3.0)
    exact, entropic = [], []
    solution = aot.solve(cost, progress=exact.append)
    exact.append(exact[-1]._replace(iterations=solution.iterations, gap=0.0))
    aot.solve(cost, solver=aot.Entropic(0.3), progress=entropic.append)
    return {"exact": exact, "epsilon 0.3": entropic}


def test_convergence(traces):
    """Before the first proof nothing is known, and zero has a line of its own."""
    ax: Any = plot.convergence(traces)
    known = [[each.iterations, each.error] for each in traces["epsilon 0.3"] if math.isfinite(each.error)]
    assert len(known) > 3
    np.testing.assert_array_equal(curve(ax, "epsilon 0.3: error of the marginals").get_xydata(), known)
    proved = [each.gap for each in traces["exact"] if math.isfinite(each.gap)]
    exact = curve(ax, "exact: gap").get_xydata()
    assert len(exact) == len(proved) < len(traces["exact"])
    last, floor = exact[-1]
    assert last == traces["exact"][-1].iterations
    assert 0 < floor < min(height for height in (*proved, *(error for _, error in known)) if height > 0)
    assert [(note.get_text(), note.xy[1]) for note in ax.texts] == [("0 (exactly)", floor)]
    assert ax.get_ylim()[0] < floor
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert not plot.convergence({"entropic": traces["epsilon 0.3"]}).texts


@pytest.mark.parametrize("gaps", [[], [math.inf], [0.0], [0.0, math.inf, NAN], [1e-300]])
def test_convergence_of_next_to_nothing(gaps):
    trace = [aot.Progress("pricing", 1, None, 0, 0, gap) for gap in gaps]
    ax: Any = plot.convergence({"a": trace})
    known = [gap for gap in gaps if math.isfinite(gap)]
    assert len(ax.lines[0].get_xdata()) == len(known)
    assert explained(ax) == ["a: gap" if known else "a: nothing known on the way"]
    ax.figure.canvas.draw()


# Benchmarks


def dots(ax) -> list[tuple[float, int]]:
    """The results and their rows; all but the means."""
    found: list[Any] = [line for line in ax.lines if line.get_markersize() < 6 and line.get_linestyle() == "None"]
    points = [point for line in found if line.get_marker() not in ("|", "_") for point in line.get_xydata()]
    return sorted((float(x), round(y)) for x, y in points if not math.isnan(x))


def means(ax) -> list[tuple[float, int, bool]]:
    marks = [line for line in ax.lines if line.get_markersize() == 8]
    return [(float(x), int(y), line.get_markerfacecolor() == "none") for line in marks for x, y in line.get_xydata()]


def widths(ax) -> list[float]:
    """Of the bars of deviations."""
    drawn = [bars for bars in ax.collections if bars.get_transform() == ax.transData]  # not the lines between rows
    segments = [segment for bars in drawn for segment in bars.get_segments()]
    return sorted(float(np.ptp(segment[:, 0])) for segment in segments if segment.ndim == 2)


def test_comparison():
    accuracies = np.array([[10.0, 20.0], [70.0, 90.0], [40.0, 50.0]])
    figure = plot.comparison(["worst", "best", "_middle"], ["a", "b"], accuracies)
    (ax,) = figure.axes
    assert texts(ax.get_yticklabels()) == ["best", "_middle", "worst"]
    assert dots(ax) == [(10, 2), (20, 2), (40, 1), (50, 1), (70, 0), (90, 0)]
    assert means(ax) == [(80.0, 0, False), (45.0, 1, False), (15.0, 2, False)]
    assert texts(ax.texts) == ["80.0", "45.0", "15.0"]
    assert explained(figure) == ["a", "b", "mean"]
    assert ax.yaxis_inverted()  # the best above


def test_results_that_are_missing():
    figure = plot.comparison(["none", "all", "some"], ["a", "b"], [[NAN, NAN], [0.7, 0.9], [NAN, 0.95]])
    (ax,) = figure.axes
    assert texts(ax.get_yticklabels()) == ["some", "all", "none"]
    assert means(ax) == [(0.8, 1, False), (0.95, 0, True)]
    assert texts(ax.texts) == ["0.950 (1 of 2)", "0.800", "no result"]
    assert explained(figure)[-2:] == ["mean", "mean of some"]
    figure.canvas.draw()


@pytest.mark.parametrize("methods", [["a"], ["a", "b"]])
def test_no_result_at_all(methods):
    figure = plot.comparison(methods, ["s"], [[NAN]] * len(methods))
    (ax,) = figure.axes
    assert texts(ax.texts)[-1] == "There are no results."
    assert list(ax.get_xticks()) == []
    figure.canvas.draw()


def test_many_tasks_share_a_colour():
    accuracies = np.random.default_rng(0).uniform(40, 90, (10, 12))
    figure = plot.comparison([f"method {k}" for k in range(10)], [f"task {k}" for k in range(12)], accuracies)
    (ax,) = figure.axes
    assert set(hexes(line.get_color() for line in ax.lines if line.get_markersize() < 6)) == {plot.GREY.lower()}
    assert explained(figure) == ["one of 12 tasks", "mean"]
    assert len(dots(ax)) == 120
    few = plot.comparison(["a"], [f"task {k}" for k in range(6)], accuracies[:1, :6]).axes[0]
    marks = {(*hexes([line.get_color()]), line.get_marker()) for line in few.lines if line.get_markersize() < 6}
    assert len(marks) == len({colour for colour, _ in marks}) == 6


@pytest.mark.parametrize(("deviations", "expected"), [([[1.0, 2.0], [3.0, NAN]], [2, 4, 6]), ([5.0, 7.0], [10, 14])])
def test_deviations_of_results_or_of_means(deviations, expected):
    (ax,) = plot.comparison(["a", "b"], ["s", "t"], [[60.0, 70.0], [50.0, 40.0]], deviations).axes
    assert widths(ax) == expected


@pytest.mark.parametrize(
    ("accuracies", "most", "label"),
    [([[99.5, 100.0], [70, 80]], 100, "accuracy (%)"), ([[0.995, 1.0]], 1, "accuracy (share)")],
)
def test_nothing_is_better_than_all(accuracies, most, label):
    deviations = np.full(np.shape(accuracies), 0.05 * most)
    figure = plot.comparison(["a", "b"][: len(accuracies)], ["s", "t"], accuracies, deviations)
    figure.canvas.draw()
    (ax,) = figure.axes
    assert ax.get_xlabel() == label
    assert most < ax.get_xlim()[1] < 1.02 * most  # the mark at the end is whole
    assert max(tick for tick in ax.get_xticks() if tick <= ax.get_xlim()[1]) <= most


# Parameters


@pytest.mark.parametrize(
    "values",
    [[0, 0.1, 10], [0, 0.001, 0.01, 1, 100], [-10, 0, 10], [0.1, 1, 10], np.linspace(1, 1.5, 12), [5, 5, 1], [3]],
)
def test_values_of_a_parameter_do_not_overlap(values):
    figure = plot.sensitivity([plot.Curve("beta", values, [1.0] * len(values))] * 2)
    figure.canvas.draw()
    for ax in figure.axes:
        shown = [label for label in ax.get_xticklabels() if label.get_text()]
        boxes = sorted((label.get_window_extent() for label in shown), key=lambda box: box.x0)
        assert len(boxes) >= min(3, len(set(values)))
        assert all(a.x1 < b.x0 for a, b in pairwise(boxes))
        assert {float(text) for text in texts(shown)} <= {float(f"{value:g}") for value in values}


@pytest.mark.parametrize(
    ("results", "default", "height", "expected"),
    [
        ([1, 2], 1, 1.5, ["default", "line"]),
        ([1, 2], 7, 1.5, ["line"]),  # not among the values
        ([NAN, 2], 1, 1.5, ["line"]),  # no result
        ([1, 2], 1, NAN, ["default"]),
        ([1, 2], None, NAN, []),
    ],
)
def test_only_what_is_drawn_is_explained(results, default, height, expected):
    figure = plot.sensitivity([plot.Curve("beta", [1, 2], results, default=default)], ("line", height))
    assert explained(figure) == expected
