"""A plan as a table of classes, with histograms of what each class holds and moves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from adaptive_ot import _validation as check
from adaptive_ot.plot.canvas import GREY, VERMILLION, axes, colours, from_zero, heat_map, ink_on, mass_of, paint, settle
from adaptive_ot.plot.names import name_axis, natural_order, written
from adaptive_ot.solution import Solution, marginal

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The numbers of more classes would not fit.
CLASSES_WITH_NUMBERS = 12

# The outlines of more bars would hide the bars.
CLASSES_WITH_BARS = 40

# Numbers below this share of the largest one are not printed.
WORTH_PRINTING = 0.01


def label_plan(solution: Solution, source_labels: Any, target_labels: Any, ax: Axes | None = None) -> Axes:
    r"""Draw the mass between classes, and how much each class holds and sends or receives.

    Parameters
    ----------
    solution
        The solution to draw.
    source_labels, target_labels
        A label for every sample.
    ax
        The axes to draw on; by default those of a new figure, ``ax.figure``.

    Returns
    -------
    The axes of the table. Its ``child_axes`` are histograms of the target classes (above) and the source classes (at
    the right): outlines show the weight of a class, bars the transported part of it, and a dashed line the mean of the
    bars over the classes present on that side. Classes missing on a side are hatched.

    Examples
    --------
    >>> import adaptive_ot as aot
    >>> from adaptive_ot import plot
    >>> solution = aot.solve([[-1.0, 9.0], [9.0, -2.0]])
    >>> ax = plot.label_plan(solution, ["cat", "dog"], ["cat", "owl"])
    >>> [name.get_text() for name in ax.get_xticklabels()]
    ['cat', 'dog\nmissing', 'owl']
    """
    check.instance("solution", solution, Solution)
    labels, source, target = _classes(solution.problem.cost.shape, source_labels, target_labels)
    mass = np.zeros((labels.size, labels.size))
    mass[np.ix_(np.unique(source), np.unique(target))] = solution.by_label(source, target).mass
    is_new, ax = ax is None, axes(ax)
    end = max(1, labels.size) - 0.5
    drawn = heat_map(ax, mass, from_zero(1.0, mass), extent=(-0.5, end, end, -0.5))
    if labels.size <= CLASSES_WITH_NUMBERS:
        for (row, column), value in np.ndenumerate(mass):
            if value > WORTH_PRINTING * mass.max():
                style: Any = {"ha": "center", "va": "center", "fontsize": "small"}
                ax.text(column, row, f"{value:.2g}", color=ink_on(drawn.cmap(drawn.norm(value))), **style)
    above = ax.inset_axes((0.0, 1.03, 1.0, 0.2), sharex=ax)
    right = ax.inset_axes((1.03, 0.0, 0.2, 1.0), sharey=ax)
    ends = (
        _draw_side(ax.xaxis, above, labels, target, solution.problem.target_weights, mass.sum(axis=0)),
        _draw_side(ax.yaxis, right, labels, source, solution.problem.source_weights, mass.sum(axis=1)),
    )
    legend = "outlines: what may move, bars: what does, dashed: their mean"
    above.set_title(f"{mass_of(solution)}\n{legend}", fontsize="medium")
    above.set(ylim=(0, 1.05 * max(ends) or 1.0))
    right.set(xlim=(0, 1.05 * max(ends) or 1.0))
    above.tick_params(bottom=False, labelbottom=False)
    right.tick_params(left=False, labelleft=False)
    ax.set(xlabel="target class", ylabel="source class")
    if is_new:
        settle(ax)  # the sizes of the table and of the histograms depend on each other
    return ax


def _classes(shape: tuple[int, int], *given: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The classes of both sides in natural order, and the number of the class of every source and target."""
    names = ("source_labels", "target_labels")
    found = [check.labels(*side) for side in zip(names, given, shape, strict=True)]
    both = np.unique(np.concatenate([classes for classes, _ in found]))  # numbers beside words become words
    order = natural_order(both)
    rank = np.argsort(order)
    source, target = (rank[np.searchsorted(both, classes.astype(both.dtype))][members] for classes, members in found)
    return both[order], source, target


def _draw_side(
    axis: Any, inset: Axes, labels: np.ndarray, members: np.ndarray, weights: np.ndarray, moved: np.ndarray
) -> float:
    """The class names of a side, hatches over missing ones, and a histogram; returns its largest number."""
    table, upright, places = axis.axes, axis.axis_name == "x", np.arange(labels.size)
    weight = marginal(members, weights, labels.size)
    missing = np.bincount(members, minlength=labels.size) == 0
    mark = "\nmissing" if labels.size <= CLASSES_WITH_NUMBERS else " missing"
    name_axis(axis, places, [written(name) + mark * bool(gone) for name, gone in zip(labels, missing, strict=True)])
    for at in places[missing]:
        span = table.axvspan if upright else table.axhspan
        span(at - 0.5, at + 0.5, facecolor="none", edgecolor=GREY, hatch="///", linewidth=0)
    paint(inset).spines[["top", "right"]].set_visible(False)
    if labels.size > CLASSES_WITH_BARS:
        edges, direction = np.arange(labels.size + 1) - 0.5, "vertical" if upright else "horizontal"
        inset.stairs(moved, edges, orientation=direction, fill=True, color=colours().curve)
        inset.stairs(weight, edges, orientation=direction, color=VERMILLION, linewidth=0.8)
    else:
        bars = inset.bar if upright else inset.barh
        bars(places, moved, color=colours().curve)
        bars(places, weight, facecolor="none", edgecolor=VERMILLION)
    if not missing.all():
        mean_line = inset.axhline if upright else inset.axvline
        mean_line(moved[~missing].mean(), color=colours().text, linestyle="--", linewidth=1)
    return max((*moved, *weight), default=0.0)
