"""Pictures of results: training runs, benchmarks, mass against overlap, certificates."""

import json
import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex

import adaptive_ot as aot
from adaptive_ot import plot
from adaptive_ot.workbench.cli.samples import moons_with_outliers

NAN = math.nan


def curve(ax, label) -> Any:
    """The line whose label begins so."""
    (line,) = (line for line in ax.lines if str(line.get_label()).startswith(label))
    return line


def texts(legend) -> list[str]:
    return [text.get_text() for text in legend.get_texts()]


@pytest.fixture(scope="module")
def metrics(tmp_path_factory, one_thread):
    """The lines of a real, short run."""
    deep = pytest.importorskip("adaptive_ot.deep")
    rng = np.random.default_rng(0)
    images = np.zeros((40, 28, 28), dtype=np.uint8)
    labels = np.arange(40) % 4
    for image, label in zip(images, labels, strict=True):
        image[5 * label : 5 * label + 8, 6:22] = rng.integers(150, 255, (8, 16))
    folder = tmp_path_factory.mktemp("run")
    noise = rng.integers(0, 90, images.shape).astype(np.uint8)
    arrays = {"a_train_x": images, "a_train_y": labels, "b_train_x": np.maximum(images, noise), "b_train_y": labels}
    np.savez(folder / "two.npz", **arrays)
    task = {"dataset": "digits", "root": folder / "two.npz", "source": "a", "target": "b", "device": "cpu"}
    deep.train(deep.configure(**task, output=folder / "run", iterations=40, batch=8, evaluate_every=10))
    return [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]


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
    losses = {str(line.get_label()): line for line in below.lines}
    assert set(losses) == {"cross entropy", "transport"}
    np.testing.assert_array_equal(losses["transport"].get_ydata(), [line["transport"] for line in metrics])
    assert (below.get_xlabel(), below.get_ylabel()) == ("step", "losses")
    assert texts(above.get_legend())[-1] == "source only, 25.0%"


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


def test_many_losses_are_told_apart():
    figure = plot.training([{"step": 1} | {f"loss_{k}": float(k) for k in range(20)}])
    styles = {(to_hex(line.get_color()), line.get_linestyle()) for line in figure.axes[0].lines}
    assert len(styles) == 20


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([],), "lines must hold a step and numbers; got no lines"),
        (([{"step": 3}, {"accuracy": 0.3}],), "lines must hold a step and numbers; got 2 lines without any"),
        (([{"step": 3, "mean_class_accuracy": 0.3}],), "lines must hold a step and numbers"),
        (("text",), "lines must be a list"),
        (({"step": 1},), "lines must be a list"),
        (([["step", 1]],), r"lines\[0\] must be an instance of Mapping"),
    ],
)
def test_bad_lines(arguments, message):
    with pytest.raises(aot.InvalidInput, match=message):
        plot.training(*arguments)


@pytest.mark.parametrize("baseline", ["source only", ("a", "b"), ("a", NAN), ("a", 1, 2), 0.5])
def test_bad_baselines(baseline):
    with pytest.raises(aot.InvalidInput, match="baseline"):
        plot.training([{"step": 1, "mass": 1.0}], baseline=baseline)
    if baseline != ("a", NAN):
        with pytest.raises(aot.InvalidInput, match="baseline"):
            plot.sensitivity([plot.Curve("a", [1], [2])], baseline)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (plot.Curve("a", [1, 2], [1]), r"curves\[0\]\.results must have shape \(2,\)"),
        (plot.Curve("a", [1, 2], [1, 2], [1]), r"curves\[0\]\.deviations must have shape \(2,\)"),
        (plot.Curve("a", [], []), r"curves\[0\]\.values must hold at least one"),
        (plot.Curve("a", [1, NAN], [1, 2]), r"curves\[0\]\.values must be finite"),
        (("a", [1], [2]), r"curves\[0\] must be an instance of Curve"),
    ],
)
def test_bad_curves(made, message):
    with pytest.raises(aot.InvalidInput, match=message):
        plot.sensitivity([made])


def test_mass_against_overlap():
    """Moons with more and more outliers: the overlap is what is left, and adaptive transport moves nearly that."""
    overlap = np.array([1.0, 0.8, 0.6])
    masses = []
    for share in 1 - overlap:
        clouds = moons_with_outliers(size=100, share=float(share))
        masses.append(aot.solve(aot.DistanceCost(clouds.x, clouds.z, reach=0.4)).mass)
    ax = plot.mass_against_overlap(overlap, {"adaptive": masses, "partial": [0.5, 0.5, 0.5]})
    marks = curve(ax, "adaptive")
    np.testing.assert_array_equal(marks.get_xydata(), np.column_stack([overlap, masses]))
    diagonal = curve(ax, "mass = overlap").get_xydata()
    np.testing.assert_array_equal(diagonal[:, 0], diagonal[:, 1])
    assert texts(ax.get_legend()) == ["mass = overlap", "adaptive", "partial"]
    trends = [line for line in ax.lines if str(line.get_label()).startswith("_")]
    slope = [float(np.diff(line.get_ydata())[0] / np.diff(line.get_xdata())[0]) for line in trends]
    assert slope == pytest.approx([np.cov(overlap, masses)[0, 1] / overlap.var(ddof=1), 0], abs=1e-9)
    assert abs(np.array(masses) - overlap).max() < 0.1
    assert (ax.get_xlim(), ax.get_aspect()) == (ax.get_ylim(), 1.0)
    assert plot.mass_against_overlap(overlap, {"again": masses}, ax=ax) is ax


@pytest.mark.parametrize(
    ("overlap", "mass", "message"),
    [
        ([0.5], {}, "mass must hold at least one"),
        ([0.5], [0.5], "mass must be an instance of Mapping"),
        ([0.5], {"a": [0.5, 0.6]}, r"mass\['a'\] must have shape \(1,\)"),
        ([[0.5]], {"a": [0.5]}, "overlap must be a sequence of numbers"),
        ([NAN], {"a": [0.5]}, "overlap must be finite"),
        ([0.5], {"a": [NAN]}, r"mass\['a'\] must be finite"),
        ([0.5], {"a": ["x"]}, r"mass\['a'\] must hold numbers"),
        ([0.5], {"a": [-0.5]}, "must be numbers from 0"),
        ([], {"a": []}, "must be numbers from 0; got no numbers"),
    ],
)
def test_bad_masses(overlap, mass, message):
    with pytest.raises(aot.InvalidInput, match=message):
        plot.mass_against_overlap(overlap, mass)


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
    ax = plot.convergence(traces)
    entropic = curve(ax, "epsilon 0.3: error of the marginals")
    known = [each for each in traces["epsilon 0.3"] if math.isfinite(each.error)]
    assert len(known) > 3
    np.testing.assert_array_equal(entropic.get_xydata(), [[each.iterations, each.error] for each in known])
    exact = curve(ax, "exact: gap")
    finite = [each for each in traces["exact"] if math.isfinite(each.gap)]
    assert len(exact.get_xdata()) == len(finite) < len(traces["exact"])  # before the first proof nothing is known
    assert exact.get_xdata()[-1] == traces["exact"][-1].iterations
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")


def test_zero_has_a_line_of_its_own(traces):
    ax: Any = plot.convergence(traces)
    smallest = min(
        height
        for trace in traces.values()
        for each in trace
        for height in (each.error, each.gap)
        if 0 < height < math.inf
    )
    floor = curve(ax, "exact").get_ydata()[-1]
    assert 0 < floor < smallest
    (note,) = ax.texts
    assert (note.get_text(), note.xy[1]) == ("0 (exactly)", floor)
    assert ax.get_ylim()[0] < floor
    without = plot.convergence({"entropic": traces["epsilon 0.3"]})
    assert not without.texts


@pytest.mark.parametrize("gaps", [[], [math.inf], [0.0], [0.0, math.inf, NAN], [1e-300]])
def test_convergence_of_next_to_nothing(gaps):
    trace = [aot.Progress("pricing", 1, None, 0, 0, gap) for gap in gaps]
    ax: Any = plot.convergence({"a": trace})
    known = [gap for gap in gaps if math.isfinite(gap)]
    assert len(ax.lines[0].get_xdata()) == len(known)
    assert texts(ax.get_legend()) == ["a: gap" if known else "a: nothing known on the way"]
    ax.figure.canvas.draw()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "traces must hold at least one"),
        ([], "traces must be an instance of Mapping"),
        ({"a": 3}, r"traces\['a'\] must be a list"),
        ({"a": [1.0]}, r"traces\['a'\]\[0\] must be an instance of Progress"),
    ],
)
def test_bad_traces(given, message):
    with pytest.raises(aot.InvalidInput, match=message):
        plot.convergence(given)


def dots(ax) -> dict[tuple[float, int], int]:
    """How often a result stands in a row; all but the means, which are drawn last."""
    count: dict[tuple[float, int], int] = {}
    for line in ax.lines:
        if line.get_markersize() < 6 and line.get_linestyle() == "None" and line.get_marker() not in ("|", "_"):
            for x, y in line.get_xydata():
                if not math.isnan(x):
                    count[float(x), round(y)] = count.get((float(x), round(y)), 0) + 1
    return count


def means(ax) -> list[tuple[float, int, bool]]:
    marks = [line for line in ax.lines if line.get_markersize() == 8]
    return [(float(x), int(y), line.get_markerfacecolor() == "none") for line in marks for x, y in line.get_xydata()]


def widths(ax) -> list[float]:
    """Of the bars of deviations."""
    drawn = [bars for bars in ax.collections if bars.get_transform() == ax.transData]  # not the lines between rows
    segments = [segment for bars in drawn for segment in bars.get_segments()]
    return sorted(float(np.ptp(segment[:, 0])) for segment in segments if segment.ndim == 2)


def test_comparison():
    methods, tasks = ["worst", "best", "_middle"], ["a", "b"]
    accuracies = np.array([[10.0, 20.0], [70.0, 90.0], [40.0, 50.0]])
    figure = plot.comparison(methods, tasks, accuracies)
    (ax,) = figure.axes
    assert [label.get_text() for label in ax.get_yticklabels()] == ["best", "_middle", "worst"]
    rows = {1: 0, 2: 1, 0: 2}
    expected = {(float(accuracies[m, t]), row): 1 for m, row in rows.items() for t in range(2)}
    assert dots(ax) == expected
    assert means(ax) == [(80.0, 0, False), (45.0, 1, False), (15.0, 2, False)]
    assert [text.get_text() for text in ax.texts] == ["80.0", "45.0", "15.0"]
    assert texts(figure.legends[0]) == ["a", "b", "mean"]
    assert ax.yaxis_inverted()  # the best above


def test_results_that_are_missing():
    accuracies = [[NAN, NAN], [0.7, 0.9], [NAN, 0.95]]
    figure = plot.comparison(["none", "all", "some"], ["a", "b"], accuracies)
    (ax,) = figure.axes
    assert [label.get_text() for label in ax.get_yticklabels()] == ["some", "all", "none"]
    assert means(ax) == [(0.8, 1, False), (0.95, 0, True)]
    assert [text.get_text() for text in ax.texts] == ["0.950 (1 of 2)", "0.800", "no result"]
    assert texts(figure.legends[0])[-2:] == ["mean", "mean of some"]
    figure.canvas.draw()
    plot.comparison(["none"], ["a"], [[NAN]]).canvas.draw()


def test_many_tasks_share_a_colour():
    accuracies = np.random.default_rng(0).uniform(40, 90, (10, 12))
    figure = plot.comparison([f"method {k}" for k in range(10)], [f"task {k}" for k in range(12)], accuracies)
    (ax,) = figure.axes
    assert {to_hex(line.get_color()) for line in ax.lines if line.get_markersize() < 6} == {plot.GREY.lower()}
    assert texts(figure.legends[0]) == ["one of 12 tasks", "mean"]
    assert sum(dots(ax).values()) == 120
    few = plot.comparison(["a"], [f"task {k}" for k in range(6)], accuracies[:1, :6]).axes[0]
    marks = {(to_hex(line.get_color()), line.get_marker()) for line in few.lines if line.get_markersize() < 6}
    assert len(marks) == len({colour for colour, _ in marks}) == 6


def test_deviations_of_results_or_of_means():
    accuracies = np.array([[60.0, 70.0], [50.0, 40.0]])
    off = np.array([[1.0, 2.0], [3.0, NAN]])
    (ax,) = plot.comparison(["a", "b"], ["s", "t"], accuracies, off).axes
    assert widths(ax) == [2, 4, 6]
    (ax,) = plot.comparison(["a", "b"], ["s", "t"], accuracies, [5.0, 7.0]).axes
    assert widths(ax) == [10, 14]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], ["a"], []), "methods must hold at least one"),
        ((["m"], [], [[]]), "tasks must hold at least one"),
        (("m", ["a"], [[1]]), "methods must be a list"),
        ((["m"], ["a"], [1]), r"accuracies must have shape \(1, 1\)"),
        ((["m"], ["a"], [["x"]]), "accuracies must hold numbers"),
        ((["m"], ["a"], [[math.inf]]), "accuracies must be finite"),
        ((["m"], ["a"], [[1]], [1, 2]), r"deviations must have shape \(1, 1\) or \(1,\)"),
        ((["m"], ["a"], [[1]], [[1], [2, 3]]), "deviations must hold numbers"),
        ((["m"], ["a"], [[1]], [[1, 2]]), r"deviations must have shape \(1, 1\)"),
        ((["m"], ["a"], [[1]], [[-1]]), "deviations must not be negative"),
        ((["m", "n"], ["a"], [[1], [2, 3]]), "accuracies must hold numbers"),
    ],
)
def test_bad_comparisons(arguments, message):
    with pytest.raises(aot.InvalidInput, match=message):
        plot.comparison(*arguments)


@pytest.mark.parametrize("steps", [[0], [9], [0, 1], [9, 19, 29], list(range(0, 1000, 50))])
def test_steps_are_whole(steps):
    figure: Any = plot.training([{"step": step, "accuracy": 0.5, "loss": 1.0} for step in steps])
    figure.canvas.draw()
    (low, high), ticks = figure.axes[-1].get_xlim(), figure.axes[-1].get_xticks()
    shown = [tick for tick in ticks if low <= tick <= high]
    assert shown
    assert all(tick == int(tick) for tick in shown)
    if len(steps) == 1:
        assert all(line.get_marker() == "o" for ax in figure.axes for line in ax.lines)  # a line would not be seen
        assert (low, high) == (steps[0], steps[0] + 2)
        assert shown == [steps[0], steps[0] + 1, steps[0] + 2]


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
        assert {float(label.get_text()) for label in shown} <= {float(f"{value:g}") for value in values}


@pytest.mark.parametrize(
    ("results", "default", "height", "explained"),
    [
        ([1, 2], 1, 1.5, ["default", "line"]),
        ([1, 2], 7, 1.5, ["line"]),  # not among the values
        ([NAN, 2], 1, 1.5, ["line"]),  # no result
        ([1, 2], 1, NAN, ["default"]),
        ([1, 2], None, NAN, []),
    ],
)
def test_only_what_is_drawn_is_explained(results, default, height, explained):
    figure = plot.sensitivity([plot.Curve("beta", [1, 2], results, default=default)], ("line", height))
    assert [text for legend in figure.legends for text in texts(legend)] == explained


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


def test_no_result_at_all():
    (ax,) = plot.comparison(["a", "b"], ["s"], [[NAN], [NAN]]).axes
    assert [text.get_text() for text in ax.texts][-1] == "There are no results."
    assert list(ax.get_xticks()) == []
