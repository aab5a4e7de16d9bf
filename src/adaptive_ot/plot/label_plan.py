"""A plan as a table of classes, with histograms of what each class holds and moves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from adaptive_ot import _validation as check
from adaptive_ot.plot.canvas import GREY, VERMILLION, axes, colours, from_zero, heat, ink_on, mass_of, paint, settle
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
    problem = solution.problem
    labels, source, target = _classes(problem.cost.shape, source_labels, target_labels)
    mass = np.zeros((labels.size, labels.size))
    mass[np.ix_(np.unique(source), np.unique(target))] = solution.by_label(source, target).mass
    is_new, ax = ax is None, axes(ax)
    end = max(1, labels.size) - 0.5
    norm = from_zero(mass.max(initial=0.0), 1.0)
    ax.imshow(mass, heat(), norm=norm, extent=(-0.5, end, end, -0.5), aspect="auto")
    if labels.size <= CLASSES_WITH_NUMBERS:
        _print_numbers(ax, mass, norm)
    above = _histogram(target, problem.target_weights, mass.sum(axis=0))
    right = _histogram(source, problem.source_weights, mass.sum(axis=1))
    _draw_histograms(ax, labels, above, right, mass_of(solution))
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


class _Histogram(NamedTuple):
    """The weight and the transported mass of every class of one side, and which classes the side lacks."""

    weight: np.ndarray
    moved: np.ndarray
    missing: np.ndarray


def _histogram(members: np.ndarray, weights: np.ndarray, moved: np.ndarray) -> _Histogram:
    missing = np.bincount(members, minlength=moved.size) == 0
    return _Histogram(marginal(members, weights, moved.size), moved, missing)


def _draw_histograms(ax: Axes, labels: np.ndarray, target: _Histogram, source: _Histogram, title: str) -> None:
    """Histograms of the targets above the table and of the sources at its right; names and hatches of the classes."""
    above = ax.inset_axes((0.0, 1.03, 1.0, 0.2), sharex=ax)
    right = ax.inset_axes((1.03, 0.0, 0.2, 1.0), sharey=ax)
    ticks = np.arange(labels.size)
    for side, inset, mean_line, axis, span in (
        (target, above, above.axhline, ax.xaxis, ax.axvspan),
        (source, right, right.axvline, ax.yaxis, ax.axhspan),
    ):
        _draw_bars(inset, side, upright=inset is above)
        if not side.missing.all():
            mean_line(side.moved[~side.missing].mean(), color=colours().text, linestyle="--", linewidth=1)
        for at in ticks[side.missing]:
            span(at - 0.5, at + 0.5, facecolor="none", edgecolor=GREY, hatch="///", linewidth=0)
        mark = "\nmissing" if labels.size <= CLASSES_WITH_NUMBERS else " missing"
        names = [written(label) + mark * bool(gone) for label, gone in zip(labels, side.missing, strict=True)]
        name_axis(axis, ticks, names)
        paint(inset).spines[["top", "right"]].set_visible(False)
    largest = 1.05 * max((*target.moved, *source.moved, *target.weight, *source.weight), default=0.0) or 1.0
    above.set_title(f"{title}\noutlines: what may move, bars: what does, dashed: their mean", fontsize="medium")
    above.set(ylim=(0, largest))
    right.set(xlim=(0, largest))
    above.tick_params(bottom=False, labelbottom=False)
    right.tick_params(left=False, labelleft=False)


def _draw_bars(ax: Axes, side: _Histogram, *, upright: bool) -> None:
    """Transported mass, and outlines of the weights: bars, or one staircase over many classes."""
    if side.moved.size > CLASSES_WITH_BARS:
        edges, direction = np.arange(side.moved.size + 1) - 0.5, "vertical" if upright else "horizontal"
        ax.stairs(side.moved, edges, orientation=direction, fill=True, color=colours().curve)
        ax.stairs(side.weight, edges, orientation=direction, color=VERMILLION, linewidth=0.8)
    else:
        bars = ax.bar if upright else ax.barh
        bars(np.arange(side.moved.size), side.moved, color=colours().curve)
        bars(np.arange(side.moved.size), side.weight, facecolor="none", edgecolor=VERMILLION)


def _print_numbers(ax: Axes, mass: np.ndarray, norm: Any) -> None:
    colour_of = heat()
    for (row, column), value in np.ndenumerate(mass):
        if value > WORTH_PRINTING * mass.max():
            ink = ink_on(colour_of(norm(value)))
            ax.text(column, row, f"{value:.2g}", ha="center", va="center", fontsize="small", color=ink)
