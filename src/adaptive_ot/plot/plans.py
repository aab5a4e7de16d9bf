"""Several plans between the same samples, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from adaptive_ot import _validation as check
from adaptive_ot.errors import InvalidInput
from adaptive_ot.plot.canvas import from_zero, mass_of, new_figure, panels
from adaptive_ot.plot.names import written
from adaptive_ot.plot.plan import draw_colour_bar, draw_pixels, pixels, sort_by_class
from adaptive_ot.solution import Solution

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The pixels of a side, at most, and the plans in a row.
PIXELS = 150
COLUMNS = 4


def plans(solutions: Mapping[str, Solution], source_labels: Any = None, target_labels: Any = None) -> Figure:
    """Draw several plans between the same samples on one scale, for example exact and entropic ones.

    Parameters
    ----------
    solutions
        The solutions to draw, by name.
    source_labels, target_labels
        A label for every sample; without labels, samples stay in their order.

    Returns
    -------
    The figure. Each plan is drawn as by `plan`, under its name and mass.

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
    sides = sort_by_class(_common_shape(solutions), source_labels, target_labels)
    images = [pixels(solution, sides, PIXELS) for solution in solutions.values()]
    columns = min(COLUMNS, len(images))
    rows = -(-len(images) // columns)
    figure = new_figure((1.4 + 3.0 * columns, 3.6 * rows))
    norm = from_zero(0.5, *images)
    grid = panels(figure, rows, columns)
    used, unused = grid.flat[: len(images)].tolist(), grid.flat[len(images) :]
    drawn = None
    for number, (ax, image, (name, solution)) in enumerate(zip(used, images, solutions.items(), strict=True)):
        drawn = draw_pixels(ax, image, sides, norm)
        ax.set_title(f"{written(name)}\n{mass_of(solution)}", fontsize="medium")
        if number % columns:
            ax.set_ylabel("")
            ax.tick_params(labelleft=False)
        if number + columns < len(images):  # the plan below has the same classes
            ax.set_xlabel("")
            ax.tick_params(labelbottom=False)
    for ax in unused:
        ax.remove()
    draw_colour_bar(figure, drawn, used)
    return figure


def _common_shape(solutions: Any) -> tuple[int, int]:
    check.mapping("solutions", solutions)
    for name, solution in solutions.items():
        check.instance(f"solutions[{name!r}]", solution, Solution)
    shapes = {solution.problem.cost.shape for solution in solutions.values()}
    if len(shapes) > 1:
        remedy = "Draw plans between the same samples."
        raise InvalidInput("solutions", "must have one shape", f"shapes {sorted(shapes)}", remedy)
    return shapes.pop()
