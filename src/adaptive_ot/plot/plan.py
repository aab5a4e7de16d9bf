"""A plan as a heat map: the mass of every pair of samples, sorted by class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from adaptive_ot import _validation as check
from adaptive_ot.plot.canvas import GREY, axes, from_zero, heat_map, mass_of, paint
from adaptive_ot.plot.names import name_axis, natural_order, written
from adaptive_ot.solution import Solution, marginal

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# A side has at most this many pixels, smaller ones would not be seen; more samples share pixels.
PIXELS = 300


def plan(solution: Solution, source_labels: Any = None, target_labels: Any = None, ax: Axes | None = None) -> Axes:
    """Draw the mass of every pair of samples, sorted by class: a plan that keeps classes together has dark blocks.

    Parameters
    ----------
    solution
        The solution to draw.
    source_labels, target_labels
        A label for every sample; without labels, samples stay in their order.
    ax
        The axes to draw on; by default those of a new figure, ``ax.figure``.

    Returns
    -------
    The axes. Lines separate the classes. If there are many samples, a pixel is the mean over several pairs.

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
    sides = sort_by_class(solution.problem.cost.shape, source_labels, target_labels)
    ax = axes(ax)
    image = pixels(solution, sides, PIXELS)
    drawn = draw_pixels(ax, image, sides, from_zero(0.5, image))
    draw_colour_bar(ax.figure, drawn, ax)
    ax.set_title(mass_of(solution))
    return ax


class Side(NamedTuple):
    """The position of every sample after sorting, the borders between classes, and their labels."""

    position: np.ndarray
    borders: np.ndarray
    labels: np.ndarray | None


def sort_by_class(shape: tuple[int, int], source_labels: Any, target_labels: Any) -> tuple[Side, Side]:
    """Both sides, sorted; samples without labels stay in their order."""
    return _sorted("source_labels", source_labels, shape[0]), _sorted("target_labels", target_labels, shape[1])


def _sorted(name: str, given: Any, size: int) -> Side:
    if given is None:
        return Side(np.arange(size), np.array([0, size]), None)
    classes, class_of_sample = check.labels(name, given, size)
    order = natural_order(classes)
    members = np.argsort(order)[class_of_sample]
    position = np.argsort(np.argsort(members, kind="stable"))
    return Side(position, np.concatenate([[0], np.cumsum(np.bincount(members))]), classes[order])


def pixels(solution: Solution, sides: tuple[Side, Side], most: int) -> np.ndarray:
    """The mean mass of the pairs that share a pixel; sums would show stripes where pixels hold one more row."""
    rows, columns, mass = solution.support
    shape = solution.problem.cost.shape
    n, m = (max(1, min(most, size)) for size in shape)
    row_of, column_of = (np.arange(size) * count // max(1, size) for size, count in zip(shape, (n, m), strict=True))
    pixel = row_of[sides[0].position[rows]] * m + column_of[sides[1].position[columns]]
    total = marginal(pixel, mass, n * m).reshape(n, m)
    pairs = np.outer(np.bincount(row_of, minlength=n), np.bincount(column_of, minlength=m))
    return total / np.maximum(1, pairs)


def draw_pixels(ax: Axes, image: np.ndarray, sides: tuple[Side, Side], norm: Any) -> Any:
    """The heat map of a plan, with lines between classes and their names."""
    source, target = sides
    extent = (0, max(1, target.borders[-1]), max(1, source.borders[-1]), 0)
    drawn = heat_map(ax, image, norm, extent=extent, interpolation="nearest")
    for side, axis, line in ((source, ax.yaxis, ax.axhline), (target, ax.xaxis, ax.axvline)):
        for border in side.borders[1:-1]:
            line(border, color=GREY, linewidth=min(0.6, 12 / len(side.borders)))
        if side.labels is not None:
            name_axis(axis, (side.borders[:-1] + side.borders[1:]) / 2, [written(label) for label in side.labels])
    ax.set_xlabel(f"targets{'' if target.labels is None else ' by class'}")
    ax.set_ylabel(f"sources{'' if source.labels is None else ' by class'}")
    return drawn


def draw_colour_bar(figure: Any, drawn: Any, ax: Any) -> None:
    """The scale of a heat map, beside these axes."""
    bar: Any = figure.colorbar(drawn, ax=ax, label="mass of a pair", shrink=0.8)
    bar.formatter.set_powerlimits((-2, 3))
    paint(bar.ax)
