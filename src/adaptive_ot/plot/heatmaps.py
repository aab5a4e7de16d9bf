"""Plans as tables: every pair of samples sorted by class, or one number for every pair of classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from adaptive_ot import _validation as check
from adaptive_ot.plot.canvas import BLUE, GREY, VERMILLION, mass_of, new_axes
from adaptive_ot.solution import Solution, marginal

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# One hue that gets darker: it reads the same with any colour vision, and in print.
COLOURS = "Blues"

# More samples share pixels, more classes leave out names, more letters are slanted, and more numbers would not fit.
PIXELS = 600
NAMES = 30
LETTERS = 90
CLASSES_WITH_NUMBERS = 12

# Less than this share of the largest number is not worth printing.
WORTH_PRINTING = 0.01


def plan(solution: Solution, source_labels: Any = None, target_labels: Any = None, ax: Axes | None = None) -> Axes:
    """Draw the mass of every pair, samples sorted by class: a plan that keeps classes together is dark in blocks.

    Parameters
    ----------
    solution
        What to draw.
    source_labels, target_labels
        A label for every sample; samples without labels stay in their order.
    ax
        Where to draw; by default on a new figure, which is ``ax.figure``.

    Returns
    -------
    The axes. Lines separate the classes. Where there are many samples, a pixel is the mean of its pairs.

    Examples
    --------
    >>> import adaptive_ot as aot
    >>> from adaptive_ot import plot
    >>> solution = aot.solve([[-1.0, 9.0], [9.0, -2.0]])
    >>> ax = plot.plan(solution, ["dog", "cat"], ["dog", "cat"])
    >>> [name.get_text() for name in ax.get_yticklabels()], ax.get_title()
    (['cat', 'dog'], 'mass 1 of at most 1')
    """
    check.instance("solution", solution, Solution)
    n, m = solution.problem.cost.shape
    source = _sorted_by_label("source_labels", source_labels, n)
    target = _sorted_by_label("target_labels", target_labels, m)
    ax = new_axes() if ax is None else ax
    rows, columns, mass = solution.support
    image = _pixels(source.position[rows], target.position[columns], mass, (n, m))
    drawn = ax.imshow(
        image,
        COLOURS,
        norm=_from_zero(image, 0.5),
        extent=(0, max(1, m), max(1, n), 0),
        aspect="auto",
        interpolation="nearest",
    )
    _bar(ax, drawn, "mass of a pair")
    for side, axis, line in ((source, ax.yaxis, ax.axhline), (target, ax.xaxis, ax.axvline)):
        for border in side.borders[1:-1]:
            line(border, color=GREY, linewidth=min(0.6, 12 / len(side.borders)))
        if side.labels is not None:
            _name(axis, (side.borders[:-1] + side.borders[1:]) / 2, side.labels)
    ax.set_xlabel(f"targets{'' if target.labels is None else ' by class'}")
    ax.set_ylabel(f"sources{'' if source.labels is None else ' by class'}")
    ax.set_title(mass_of(solution))
    return ax


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
    outlines are the weight of a class in the problem, bars what is transported. Classes that a side does not have are
    hatched.

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
    ax = new_axes() if ax is None else ax
    end = max(1, table.labels.size) - 0.5
    extent = (-0.5, end, end, -0.5)
    drawn: Any = ax.imshow(table.mass, COLOURS, norm=_from_zero(table.mass, 1.0), extent=extent, aspect="auto")
    if table.labels.size <= CLASSES_WITH_NUMBERS:
        _print_numbers(ax, table.mass, drawn.norm)
    ticks = np.arange(table.labels.size)
    above = ax.inset_axes((0.0, 1.03, 1.0, 0.2), sharex=ax)
    right = ax.inset_axes((1.03, 0.0, 0.2, 1.0), sharey=ax)
    bars = above.bar, right.barh
    moved = table.mass.sum(axis=0), table.mass.sum(axis=1)
    for side, axis, span in ((0, ax.xaxis, ax.axvspan), (1, ax.yaxis, ax.axhspan)):
        bars[side](ticks, moved[side], color=BLUE)
        bars[side](ticks, table.weights[side], facecolor="none", edgecolor=VERMILLION)
        missing = table.missing[side]
        for at in ticks[missing]:
            span(at - 0.5, at + 0.5, facecolor="none", edgecolor=GREY, hatch="///", linewidth=0)
        _name(axis, ticks, _marked(table.labels, missing))
    largest = 1.05 * max((*moved[0], *moved[1], *table.weights[0], *table.weights[1]), default=0.0) or 1.0
    above.set(ylim=(0, largest))
    right.set(xlim=(0, largest))
    above.tick_params(bottom=False, labelbottom=False)
    right.tick_params(left=False, labelleft=False)
    for inset in (above, right):
        inset.spines[["top", "right"]].set_visible(False)
    above.set_title(f"{mass_of(solution)}; outlines: what may move, bars: what does", fontsize="medium")
    ax.set(xlabel="target class", ylabel="source class")
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
    labels = np.unique(np.concatenate([sources, targets]))  # numbers beside words become words
    rows, columns = (np.searchsorted(labels, own.astype(labels.dtype)) for own in (sources, targets))
    mass = np.zeros((labels.size, labels.size))
    mass[np.ix_(rows, columns)] = solution.by_label(source_labels, target_labels).mass
    sides = (columns, target_members, problem.target_weights), (rows, source_members, problem.source_weights)
    weights = [marginal(own[members], weight, labels.size) for own, members, weight in sides]
    return _Table(labels, mass, weights, [~np.isin(np.arange(labels.size), own) for own, _, _ in sides])


class _Side(NamedTuple):
    """Where every sample goes when they are sorted, where classes begin and end, and their names."""

    position: np.ndarray
    borders: np.ndarray
    labels: np.ndarray | None


def _sorted_by_label(name: str, given: Any, size: int) -> _Side:
    if given is None:
        return _Side(np.arange(size), np.array([0, size]), None)
    labels, members = check.labels(name, given, size)
    position = np.empty(size, dtype=int)
    position[np.argsort(members, kind="stable")] = np.arange(size)
    return _Side(position, np.concatenate([[0], np.cumsum(np.bincount(members))]), labels)


def _pixels(rows: np.ndarray, columns: np.ndarray, mass: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """The mean mass of the pairs that share a pixel; sums would show stripes where one more row falls into a pixel."""
    n, m = (max(1, min(PIXELS, size)) for size in shape)
    row_of, column_of = (np.arange(size) * pixels // max(1, size) for size, pixels in zip(shape, (n, m), strict=True))
    total = marginal(row_of[rows] * m + column_of[columns], mass, n * m).reshape(n, m)
    pairs = np.outer(np.bincount(row_of, minlength=n), np.bincount(column_of, minlength=m))
    return total / np.maximum(1, pairs)


def _from_zero(values: np.ndarray, power: float) -> Any:
    """Colours for 0 to the largest value; a power below 1 lets small ones show."""
    from matplotlib.colors import PowerNorm

    return PowerNorm(power, vmin=0.0, vmax=float(values.max(initial=0.0)) or 1.0)


def _bar(ax: Axes, drawn: Any, text: str) -> None:
    bar = ax.figure.colorbar(drawn, ax=ax, label=text, shrink=0.8)
    bar.formatter.set_powerlimits((-2, 3))  # pyright: ignore[reportAttributeAccessIssue]


def _marked(labels: np.ndarray, missing: np.ndarray) -> list[str]:
    gap = "\n" if len(labels) <= CLASSES_WITH_NUMBERS else " "
    return [f"{label}{gap}missing" if gone else str(label) for label, gone in zip(labels, missing, strict=True)]


def _name(axis: Any, positions: np.ndarray, labels: Any) -> None:
    """Names at their places: slanted below the picture if they are long, and not all of very many."""
    some = slice(None, None, 1 + max(0, len(labels) - 1) // NAMES)
    names = [str(label).replace("$", r"\$") for label in labels[some]]  # no mathematics
    longest = max((len(line) for name in names for line in name.split("\n")), default=0)
    crowded = axis.axis_name == "x" and longest * len(names) > LETTERS
    slanted: Any = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if crowded else {}
    axis.set_ticks(positions[some], names, fontsize="small", **slanted)
    axis.set_tick_params(length=0)


def _print_numbers(ax: Axes, mass: np.ndarray, norm: Any) -> None:
    for (row, column), value in np.ndenumerate(mass):
        if value > WORTH_PRINTING * mass.max():
            colour = "white" if norm(value) > 0.6 else "black"
            ax.text(column, row, f"{value:.2g}", ha="center", va="center", fontsize="small", color=colour)
