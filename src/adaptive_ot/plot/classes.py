"""Plans as tables: one number for every pair of classes, and what every class has and moves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from adaptive_ot import _validation as check
from adaptive_ot.plot.canvas import GREY, VERMILLION, axes, colours, from_zero, heat, ink_on, mass_of, paint, settle
from adaptive_ot.plot.names import name_axis, ranks, written
from adaptive_ot.solution import Solution, marginal

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# More numbers would not fit.
CLASSES_WITH_NUMBERS = 12

# The outlines of more bars would hide them.
CLASSES_WITH_BARS = 40

# Less than this share of the largest number is not worth printing.
WORTH_PRINTING = 0.01


def label_plan(solution: Solution, source_labels: Any, target_labels: Any, ax: Axes | None = None) -> Axes:
    r"""Draw the mass between classes, and what every class has and sends or receives.

    Parameters
    ----------
    solution
        What to draw.
    source_labels, target_labels
        A label for every sample.
    ax
        Where to draw; by default on a new figure, which is ``ax.figure``.

    Returns
    -------
    The axes of the table. Its ``child_axes`` are histograms of the targets, above, and of the sources, at the right:
    outlines are the weight of a class in the problem, bars what is transported, and a dashed line is the mean of the
    bars over the classes that the side has. Classes that it does not have are hatched.

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
    table = _table(solution, source_labels, target_labels)
    is_new, ax = ax is None, axes(ax)
    end = max(1, table.labels.size) - 0.5
    extent = (-0.5, end, end, -0.5)
    norm = from_zero(table.mass.max(initial=0.0), 1.0)
    ax.imshow(table.mass, heat(), norm=norm, extent=extent, aspect="auto")
    if table.labels.size <= CLASSES_WITH_NUMBERS:
        _print_numbers(ax, table.mass, norm)
    _draw_histograms(ax, table, mass_of(solution))
    ax.set(xlabel="target class", ylabel="source class")
    if is_new:
        settle(ax)  # the histograms are as large as the table leaves them, and the other way round
    return ax


class _Table(NamedTuple):
    """Mass between all classes of both sides; of targets, then of sources: what they weigh, and which are missing."""

    labels: np.ndarray
    mass: np.ndarray
    weights: list[np.ndarray]
    missing: list[np.ndarray]


def _table(solution: Solution, source_labels: Any, target_labels: Any) -> _Table:
    problem, (n, m) = solution.problem, solution.problem.cost.shape
    sources, source_members = check.labels("source_labels", source_labels, n)
    targets, target_members = check.labels("target_labels", target_labels, m)
    found = np.unique(np.concatenate([sources, targets]))  # numbers beside words become words
    rank = ranks(found)
    labels = found[np.argsort(rank)]
    rows, columns = (rank[np.searchsorted(found, own.astype(found.dtype))] for own in (sources, targets))
    mass = np.zeros((labels.size, labels.size))
    mass[np.ix_(rows, columns)] = solution.by_label(source_labels, target_labels).mass
    sides = (columns, target_members, problem.target_weights), (rows, source_members, problem.source_weights)
    weights = [marginal(own[members], weight, labels.size) for own, members, weight in sides]
    missing = [~np.isin(np.arange(labels.size), own) for own, _, _ in sides]
    return _Table(labels, mass, weights, missing)


def _draw_histograms(ax: Axes, table: _Table, title: str) -> None:
    """What the classes of the targets, above, and of the sources, at the right, may move and do; the missing ones."""
    above = ax.inset_axes((0.0, 1.03, 1.0, 0.2), sharex=ax)
    right = ax.inset_axes((1.03, 0.0, 0.2, 1.0), sharey=ax)
    moved = table.mass.sum(axis=0), table.mass.sum(axis=1)
    ticks = np.arange(table.labels.size)
    sides = (
        (above, above.axhline, ax.xaxis, ax.axvspan),
        (right, right.axvline, ax.yaxis, ax.axhspan),
    )
    for side, (inset, line, axis, span) in enumerate(sides):
        missing = table.missing[side]
        _draw_bars(inset, moved[side], table.weights[side], upright=inset is above)
        if not missing.all():
            line(moved[side][~missing].mean(), color=colours().text, linestyle="--", linewidth=1)
        for at in ticks[missing]:
            span(at - 0.5, at + 0.5, facecolor="none", edgecolor=GREY, hatch="///", linewidth=0)
        name_axis(axis, ticks, _marked(table.labels, missing))
        inset.spines[["top", "right"]].set_visible(False)
        paint(inset)
    largest = 1.05 * max((*moved[0], *moved[1], *table.weights[0], *table.weights[1]), default=0.0) or 1.0
    above.set_title(f"{title}\noutlines: what may move, bars: what does, dashed: their mean", fontsize="medium")
    above.set(ylim=(0, largest))
    right.set(xlim=(0, largest))
    above.tick_params(bottom=False, labelbottom=False)
    right.tick_params(left=False, labelleft=False)


def _draw_bars(ax: Axes, moved: np.ndarray, weights: np.ndarray, *, upright: bool) -> None:
    """What moves, and the outline of what may: bars, or one flight of steps over many classes."""
    if moved.size > CLASSES_WITH_BARS:
        edges, direction = np.arange(moved.size + 1) - 0.5, "vertical" if upright else "horizontal"
        ax.stairs(moved, edges, orientation=direction, fill=True, color=colours().curve)
        ax.stairs(weights, edges, orientation=direction, color=VERMILLION, linewidth=0.8)
    else:
        bars = ax.bar if upright else ax.barh
        bars(np.arange(moved.size), moved, color=colours().curve)
        bars(np.arange(moved.size), weights, facecolor="none", edgecolor=VERMILLION)


def _marked(labels: np.ndarray, missing: np.ndarray) -> list[str]:
    mark = "\nmissing" if len(labels) <= CLASSES_WITH_NUMBERS else " missing"
    return [written(label) + mark * bool(gone) for label, gone in zip(labels, missing, strict=True)]


def _print_numbers(ax: Axes, mass: np.ndarray, norm: Any) -> None:
    colour_of = heat()
    for (row, column), value in np.ndenumerate(mass):
        if value > WORTH_PRINTING * mass.max():
            ink = ink_on(colour_of(norm(value)))
            ax.text(column, row, f"{value:.2g}", ha="center", va="center", fontsize="small", color=ink)
