"""Plans as pictures: the mass of every pair of samples, sorted by class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from adaptive_ot import _validation as check
from adaptive_ot.errors import InvalidInput
from adaptive_ot.plot.canvas import GREY, axes, from_zero, heat, mass_of, new_figure, paint, panels
from adaptive_ot.plot.names import name_axis, ranks, written
from adaptive_ot.solution import Solution, marginal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# More samples share pixels: so many there are in one picture, and in one of several. Smaller ones would not be seen.
PIXELS = 300
PIXELS_OF_SEVERAL = 150

# So many plans side by side, and then a new row.
COLUMNS = 4


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
    sides = _sides(solution.problem.cost.shape, source_labels, target_labels)
    ax = axes(ax)
    image = _pixels(solution, sides, PIXELS)
    drawn = _draw(ax, image, sides, from_zero(image.max(initial=0.0), 0.5))
    _bar(ax.figure, drawn, ax)
    ax.set_title(mass_of(solution))
    return ax


def plans(solutions: Mapping[str, Solution], source_labels: Any = None, target_labels: Any = None) -> Figure:
    """Draw several plans between the same samples side by side, on one scale: exact and entropic ones, for example.

    Parameters
    ----------
    solutions
        What to draw, under their names.
    source_labels, target_labels
        A label for every sample; samples without labels stay in their order.

    Returns
    -------
    The figure. Each plan is drawn as `plan` does it, with its name and its mass on top.

    Examples
    --------
    >>> import adaptive_ot as aot
    >>> from adaptive_ot import plot
    >>> cost = [[-1.0, 9.0], [9.0, -2.0]]
    >>> solutions = {"exact": aot.solve(cost), "epsilon 1": aot.solve(cost, solver=aot.Entropic(1.0))}
    >>> figure = plot.plans(solutions, ["cat", "dog"], ["cat", "dog"])
    >>> print(figure.axes[0].get_title())
    exact
    mass 1 of at most 1
    """
    shape = _common_shape(solutions)
    sides = _sides(shape, source_labels, target_labels)
    images = [_pixels(solution, sides, PIXELS_OF_SEVERAL) for solution in solutions.values()]
    columns = min(COLUMNS, len(images))
    rows = -(-len(images) // columns)
    figure = new_figure((1.4 + 3.0 * columns, 3.6 * rows))
    norm = from_zero(max(image.max(initial=0.0) for image in images), 0.5)
    grid = panels(figure, rows, columns)
    used, unused = grid.flat[: len(images)].tolist(), grid.flat[len(images) :]
    drawn = None
    for number, (ax, image, (name, solution)) in enumerate(zip(used, images, solutions.items(), strict=True)):
        drawn = _draw(ax, image, sides, norm)
        ax.set_title(f"{written(name)}\n{mass_of(solution)}", fontsize="medium")
        if number % columns:
            ax.set_ylabel("")
            ax.tick_params(labelleft=False)
        if number + columns < len(images):  # the plan below has the same classes
            ax.set_xlabel("")
            ax.tick_params(labelbottom=False)
    for ax in unused:
        ax.remove()
    _bar(figure, drawn, used)
    return figure


def _common_shape(solutions: Any) -> tuple[int, int]:
    """The shape that all of these solutions have."""
    check.instance("solutions", solutions, Mapping)
    if not solutions:
        raise InvalidInput("solutions", "must be at least one", "none", "Give a solution under a name.")
    for name, solution in solutions.items():
        check.instance(f"solutions[{name!r}]", solution, Solution)
    shapes = {solution.problem.cost.shape for solution in solutions.values()}
    if len(shapes) > 1:
        remedy = "Draw plans between the same samples."
        raise InvalidInput("solutions", "must be of one shape", f"shapes {sorted(shapes)}", remedy)
    return shapes.pop()


class _Side(NamedTuple):
    """Where every sample goes when they are sorted, where classes begin and end, and what they are."""

    position: np.ndarray
    borders: np.ndarray
    labels: np.ndarray | None


def _sides(shape: tuple[int, int], source_labels: Any, target_labels: Any) -> tuple[_Side, _Side]:
    source = _sorted_by_label("source_labels", source_labels, shape[0])
    return source, _sorted_by_label("target_labels", target_labels, shape[1])


def _sorted_by_label(name: str, given: Any, size: int) -> _Side:
    if given is None:
        return _Side(np.arange(size), np.array([0, size]), None)
    found, of_sample = check.labels(name, given, size)
    rank = ranks(found)
    labels, members = found[np.argsort(rank)], rank[of_sample]
    position = np.empty(size, dtype=int)
    position[np.argsort(members, kind="stable")] = np.arange(size)
    return _Side(position, np.concatenate([[0], np.cumsum(np.bincount(members))]), labels)


def _pixels(solution: Solution, sides: tuple[_Side, _Side], most: int) -> np.ndarray:
    """The mean mass of the pairs that share a pixel; sums would show stripes where one more row falls into a pixel."""
    rows, columns, mass = solution.support
    shape = solution.problem.cost.shape
    n, m = (max(1, min(most, size)) for size in shape)
    row_of, column_of = (np.arange(size) * pixels // max(1, size) for size, pixels in zip(shape, (n, m), strict=True))
    pixel = row_of[sides[0].position[rows]] * m + column_of[sides[1].position[columns]]
    total = marginal(pixel, mass, n * m).reshape(n, m)
    pairs = np.outer(np.bincount(row_of, minlength=n), np.bincount(column_of, minlength=m))
    return total / np.maximum(1, pairs)


def _draw(ax: Axes, image: np.ndarray, sides: tuple[_Side, _Side], norm: Any) -> Any:
    """The picture of a plan, with its classes."""
    source, target = sides
    extent = (0, max(1, target.borders[-1]), max(1, source.borders[-1]), 0)
    drawn = ax.imshow(image, heat(), norm=norm, extent=extent, aspect="auto", interpolation="nearest")
    for side, axis, line in ((source, ax.yaxis, ax.axhline), (target, ax.xaxis, ax.axvline)):
        for border in side.borders[1:-1]:
            line(border, color=GREY, linewidth=min(0.6, 12 / len(side.borders)))
        if side.labels is not None:
            name_axis(axis, (side.borders[:-1] + side.borders[1:]) / 2, [written(label) for label in side.labels])
    ax.set_xlabel(f"targets{'' if target.labels is None else ' by class'}")
    ax.set_ylabel(f"sources{'' if source.labels is None else ' by class'}")
    return drawn


def _bar(figure: Any, drawn: Any, ax: Any) -> None:
    bar: Any = figure.colorbar(drawn, ax=ax, label="mass of a pair", shrink=0.8)
    bar.formatter.set_powerlimits((-2, 3))
    paint(bar.ax)
