"""Plans by class: heat maps of one or several plans, and tables of classes."""

import sys
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import adaptive_ot as aot
from adaptive_ot import plot
from adaptive_ot.workbench.cli.samples import TOY_COST
from budget import mostly_slow
from pictures import texts


def between(labels, others):
    """An exact solution where only equal labels attract each other."""
    cost = np.where(np.asarray(labels)[:, None] == np.asarray(others), -1.0, 1.0)
    return aot.solve(cost + 0.01 * np.random.default_rng(0).normal(size=cost.shape))


def borders(ax) -> tuple[list[float], list[float]]:
    """Where the lines across and down are."""
    across = [line.get_ydata()[0] for line in ax.lines if list(line.get_xdata()) == [0, 1]]
    return across, [line.get_xdata()[0] for line in ax.lines if list(line.get_ydata()) == [0, 1]]


def test_plan_is_sorted_by_class():
    labels, others = [2, 0, 1, 0], ["a", "c", "b", "a", "a"]
    solution = aot.solve(np.random.default_rng(0).normal(size=(4, 5)))
    ax: Any = plot.plan(solution, labels, others)
    np.testing.assert_allclose(ax.images[0].get_array(), solution.plan[np.ix_([1, 3, 2, 0], [0, 3, 4, 2, 1])])
    assert borders(ax) == ([2, 3], [3, 4])  # three blocks a side
    assert (texts(ax.get_yticklabels()), texts(ax.get_xticklabels())) == (["0", "1", "2"], ["a", "b", "c"])
    np.testing.assert_array_equal(ax.get_xticks(), [1.5, 3.5, 4.5])
    assert ax.get_title() == f"mass {solution.mass:.4g} of at most 1"


def test_plan_without_labels_stays_in_order():
    toy = aot.solve(TOY_COST)
    ax: Any = plot.plan(toy)
    np.testing.assert_array_equal(ax.images[0].get_array(), toy.plan)
    assert (len(ax.lines), ax.get_xlabel(), ax.get_ylabel()) == (0, "targets", "sources")


def test_a_large_plan_shares_pixels(monkeypatch):
    """Pixels are means: times the pairs in them, they are all of the mass."""
    monkeypatch.setattr(sys.modules["adaptive_ot.plot.plan"], "PIXELS", 4)
    solution = aot.solve(sparse.csr_array(np.random.default_rng(1).normal(size=(10, 7))))
    ax: Any = plot.plan(solution)
    image = ax.images[0].get_array()
    assert image.shape == (4, 4)
    pairs = np.outer([3, 2, 3, 2], [2, 2, 2, 1])
    assert (image * pairs).sum() == pytest.approx(solution.mass)
    assert image[0, 0] == pytest.approx(solution.plan[:3, :2].mean())


def test_many_classes_leave_out_names():
    labels = np.arange(100)
    ax = plot.plan(between(labels, labels), labels, labels)
    assert texts(ax.get_xticklabels())[:3] == ["0", "4", "8"]
    assert len(ax.lines) == 2 * 99


def test_plans_side_by_side():
    """Every plan as `plan` draws it, on one scale."""
    cost = np.random.default_rng(0).normal(size=(12, 9))
    solvers = {"exact": aot.Exact(), "epsilon 0.1": aot.Entropic(0.1), "epsilon 1": aot.Entropic(1.0)}
    solutions = {name: aot.solve(cost, solver=solver) for name, solver in solvers.items()}
    labels, others = np.arange(12) % 3, np.array(list("cab" * 3))
    *panels, bar = plot.plans(solutions, labels, others).axes
    largest = max(solution.plan.max() for solution in solutions.values())
    for ax, (name, solution) in zip(panels, solutions.items(), strict=True):
        alone: Any = plot.plan(solution, labels, others)
        np.testing.assert_array_equal(ax.images[0].get_array(), alone.images[0].get_array())
        assert borders(ax) == borders(alone) == ([4, 8], [3, 6])
        assert ax.images[0].get_clim() == (0, largest)
        assert ax.get_title() == f"{name}\n{alone.get_title()}" == f"{name}\nmass {solution.mass:.4g} of at most 1"
    assert len({id(ax.images[0].norm) for ax in panels}) == 1
    assert bar.get_ylabel() == "mass of a pair"
    assert texts(panels[0].get_xticklabels()) == ["a", "b", "c"]


def test_many_plans_fill_rows():
    """Axes are named at the left, and below the lowest plan of every column."""
    solution = aot.solve(TOY_COST)
    figure = plot.plans({str(k): solution for k in range(6)})
    assert [bool(ax.get_xlabel()) for ax in figure.axes[:6]] == [False, False, True, True, True, True]
    assert [bool(ax.get_ylabel()) for ax in figure.axes[:6]] == [True, False, False, False, True, False]
    assert len(figure.axes) == 7
    figure.canvas.draw()


def test_plans_of_different_shapes():
    solutions = {"a": aot.solve(TOY_COST), "b": aot.solve(TOY_COST.T)}
    with pytest.raises(aot.InvalidInput, match=r"solutions must have one shape; got shapes \[\(5, 6\), \(6, 5\)\]"):
        plot.plans(solutions)
    with pytest.raises(aot.InvalidInput, match=r"source_labels must have shape \(6,\)"):
        plot.plans({"a": solutions["a"]}, [1, 2])


def test_label_plan():
    """No owl among the targets and no emu among the sources: these are hatched, and do not count in the means."""
    labels, others = ["cat", "cat", "dog", "owl"], ["dog", "cat", "emu", "cat", "dog"]
    solution = between(labels, others)
    ax: Any = plot.label_plan(solution, labels, others)
    table = np.zeros((4, 4))  # cat, dog, emu, owl
    table[np.ix_([0, 1, 3], [0, 1, 2])] = solution.by_label(labels, others).mass
    np.testing.assert_allclose(ax.images[0].get_array(), table)
    assert set(texts(ax.texts)) == {"0.4", "0.25"}
    above, right = ax.child_axes
    heights, widths = [bar.get_height() for bar in above.patches], [bar.get_width() for bar in right.patches]
    np.testing.assert_allclose(heights, [*table.sum(axis=0), 0.4, 0.4, 0.2, 0])
    np.testing.assert_allclose(widths, [*table.sum(axis=1), 0.5, 0.25, 0, 0.25])
    (received,), (sent,) = above.lines, right.lines
    assert received.get_ydata()[0] == sent.get_xdata()[0] == pytest.approx(solution.mass / 3)
    assert [patch.get_xy() for patch in ax.patches if patch.get_hatch()] == [(2.5, 0), (0, 1.5)]
    assert texts(ax.get_xticklabels()) == ["cat", "dog", "emu", "owl\nmissing"]
    assert texts(ax.get_yticklabels()) == ["cat", "dog", "emu\nmissing", "owl"]
    assert above.get_title().startswith(f"mass {solution.mass:.4g} of at most 1")
    assert "dashed: their mean" in above.get_title()


def test_label_plan_tells_sources_from_targets():
    """A table that is not symmetric: above are the sums of columns, at the right those of rows."""
    ax: Any = plot.label_plan(aot.solve([[1.0, -1.0], [1.0, 1.0]]), [0, 1], [0, 1])
    above, right = ax.child_axes
    assert [bar.get_height() for bar in above.patches] == [0, 0.5, 0.5, 0.5]
    assert [bar.get_width() for bar in right.patches] == [0.5, 0, 0.5, 0.5]


def test_label_plan_shows_mass_beyond_the_weights():
    """Unbalanced transport may move more than there is; the bars must not be cut."""
    solution = aot.solve(-np.ones((2, 2)), marginals=aot.SoftKL(1.0), solver=aot.Entropic(0.1))
    ax: Any = plot.label_plan(solution, [0, 1], [0, 1])
    moved = float(solution.source_marginal.max())
    assert moved > 0.5
    assert ax.child_axes[1].get_xlim()[1] >= moved


def test_no_classes_no_mean():
    ax: Any = plot.label_plan(aot.solve(np.ones((0, 2))), [], ["a", "b"])
    above, right = ax.child_axes
    assert (len(above.lines), len(right.lines)) == (1, 0)
    assert above.lines[0].get_ydata()[0] == 0


def test_histograms_of_many_classes_are_steps():
    """Outlines of 150 bars would hide the bars."""
    labels = np.arange(300) % 150
    ax: Any = plot.label_plan(aot.solve(-np.eye(300)), labels, labels)
    for inset in ax.child_axes:
        filled, outline = inset.patches
        for steps in (filled, outline):
            np.testing.assert_allclose(steps.get_data().values, np.full(150, 2 / 300))
            np.testing.assert_array_equal(steps.get_data().edges, np.arange(151) - 0.5)
        assert outline.get_linewidth() < 1


@pytest.mark.parametrize(("n", "m"), [(0, 0), (0, 3), (3, 0), (1, 1), (3, 3)])
def test_heat_maps_of_nothing(n, m):
    solution, labels = aot.solve(np.ones((n, m))), (["a"] * n, ["b"] * m)
    axes: list[Any] = [plot.plan(solution, *labels), plot.label_plan(solution, *labels)]
    axes += plot.plans({"one": solution, "two": solution}, *labels).axes[:2]
    for ax in axes:
        assert ax.images[0].get_array().sum() == 0
        ax.figure.canvas.draw()


# Names


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["class 10", "class 9", "class 100"], ["class 9", "class 10", "class 100"]),
        ([10, -9, 100], ["-9", "10", "100"]),
        ([1.5, -20.0, 10.0], ["-20.0", "1.5", "10.0"]),
    ],
)
def test_classes_are_in_natural_order(labels, expected):
    """As on the page of a report; numbers stay numbers."""
    solution = aot.solve(np.diag([-1.0, -2.0, -3.0]) + 1)
    for draw in (plot.plan, plot.label_plan):
        ax: Any = draw(solution, labels, labels)
        assert texts(ax.get_xticklabels()) == texts(ax.get_yticklabels()) == expected
        np.testing.assert_allclose(ax.images[0].get_array(), solution.plan[np.ix_([1, 0, 2], [1, 0, 2])])


def test_numbers_beside_words():
    ax = plot.label_plan(between([0, 10, 2], [0, 1, 2]), [0, 10, 2], ["2", "ten", "0"])
    assert texts(ax.get_xticklabels()) == ["0", "2", "10\nmissing", "ten"]


def test_names_do_not_turn_our_words():
    """Matplotlib lays text out from right to left where a name asks for it."""
    for sign in "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069":
        ax = plot.label_plan(aot.solve([[-1.0]]), [f"a{sign}b"], ["c"])
        assert texts(ax.get_xticklabels())[0] == f"a\\u{ord(sign):04x}b\nmissing"


def overlaps(ax) -> int:
    """Names below a drawn picture that touch the next one; slanted ones by how far their lines are apart."""
    labels = [label for label in ax.get_xticklabels() if label.get_text()]
    if labels and labels[0].get_rotation():
        height = labels[0].get_fontsize() / 72 * ax.figure.dpi
        places = ax.transData.transform([(label.get_position()[0], 0) for label in labels])[:, 0]
        return int(sum(places[1:] - places[:-1] < 1.2 * height))
    return sum(a.x1 > b.x0 for a, b in pairwise(label.get_window_extent() for label in labels))


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
