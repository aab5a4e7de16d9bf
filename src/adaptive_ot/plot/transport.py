"""A plan between points: lines and marks."""

from __future__ import annotations

from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from adaptive_ot import _validation as check
from adaptive_ot._arrays import to_numpy
from adaptive_ot.errors import InvalidInput
from adaptive_ot.plot.canvas import (
    CLUSTER_COLOURS,
    GREY,
    SIDE_COLOURS,
    axes,
    axes_of,
    in_space,
    legend,
    mass_of,
    settle,
    space,
)
from adaptive_ot.plot.columns import LONGEST_COLUMN, in_columns, label_columns
from adaptive_ot.solution import Solution, Support

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIDES = (("source", "o"), ("target", "^"))

# The principal axes of more points are computed from an even selection of this size or twice as many.
POINTS_FOR_AXES = 2000


def transport(
    solution: Solution,
    source_points: Any = None,
    target_points: Any = None,
    ax: Axes | None = None,
    *,
    by_cluster: bool | None = None,
) -> Axes:
    """Draw a plan between two point sets: a line for every pair that carries mass, hollow marks for inactive points.

    Sources are discs, targets triangles.

    Parameters
    ----------
    solution
        The solution to draw.
    source_points, target_points
        The points; by default those of a `DistanceCost` or `JointCost`. One-dimensional sources lie on a line above the
        targets, points in three dimensions are drawn in space, and points in more than three dimensions are projected
        on their first two principal components. Up to 60 sources x1, x2, ... and targets z1, z2, ... need no points:
        they are drawn in two columns, cluster by cluster.
    ax
        The axes to draw on; by default those of a new figure, ``ax.figure``. Points in more dimensions than the axes
        have are projected on as many principal components.
    by_cluster
        Whether colours show clusters or sides; by default clusters, if there are at most eight.

    Returns
    -------
    The axes. Nothing is shown or saved; to save, call ``ax.figure.savefig("plan.png")``.

    Examples
    --------
    >>> import adaptive_ot as aot
    >>> from adaptive_ot import plot
    >>> x, z = [[0.0, 0.0], [9.0, 9.0]], [[1.0, 0.0], [5.0, 5.0]]
    >>> ax = plot.transport(aot.solve(aot.DistanceCost(x, z, reach=2.0)))
    >>> ax.get_title()
    'mass 0.5 of at most 1, value -1.5'
    >>> ax = plot.transport(aot.solve([[-1.0, 9.0], [9.0, 9.0]]))  # no points
    >>> [text.get_text() for text in ax.texts]
    ['x1', 'x2', 'z1', 'z2']
    """
    check.instance("solution", solution, Solution)
    points = _points(solution, source_points, target_points)
    source_colours, target_colours, cluster_colours = _colours(solution, by_cluster)
    is_new, pairs = ax is None, solution.main_pairs()
    if points is None:
        columns = in_columns(solution)
        ax = axes(ax, (7, 3 + 0.15 * max(solution.problem.cost.shape)))
        label_columns(ax, columns, cluster_colours or [])
        source, target = columns.source, columns.target
    else:
        dimension = points[0].shape[1]
        ax = space(ax) if (dimension == 3 and ax is None) or (dimension > 2 and in_space(ax)) else axes(ax)
        source, target = _placed(ax, *points)
    active = to_numpy(solution.active_source), to_numpy(solution.active_target)
    size = float(np.clip(10_000 / max(1, len(source) + len(target)), 8, 70))
    line_colours = np.full(len(pairs[0]), GREY) if cluster_colours is None else source_colours[pairs[0]]
    _draw_lines(ax, pairs, source, target, line_colours, 0.25 * np.sqrt(size))
    marks = zip(SIDES, (source, target), (source_colours, target_colours), active, strict=True)
    for (_, marker), where, colour, carries in marks:
        style: Any = {"marker": marker, "s": size, "linewidths": 1.0, "zorder": 2}
        ax.scatter(*where[carries].T, c=colour[carries].tolist(), edgecolors="none", **style)
        ax.scatter(*where[~carries].T, facecolors="none", edgecolors=colour[~carries].tolist(), **style)
    if points is not None and points[0].shape[1] > 1:
        ax.set_aspect("equal", adjustable="datalim")
    _draw_legend(ax, active, SIDE_COLOURS if cluster_colours is None else (GREY, GREY))
    ax.set_title(f"{mass_of(solution)}, value {solution.value:.4g}")
    if is_new:
        settle(ax)  # equal units change the limits, and with them the width of the tick labels
    return ax


def _points(solution: Solution, *given: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """The points of both sides; None if there are none and two short columns can be drawn."""
    cost = solution.problem.cost
    if all(each is None for each in given) and cost.layout != "points" and max(cost.shape) <= LONGEST_COLUMN:
        return None
    defaults = cost.positions or (None, None)
    names = ("source_points", "target_points")
    points = []
    for name, own, default, count in zip(names, given, defaults, cost.shape, strict=True):
        if own is None and default is None:
            raise InvalidInput(name, "is needed because the cost has no points", None, "Pass one point per row.")
        points.append(check.points(name, default if own is None else own, rows=count))
    check.same_columns(names[0], points[0], names[1], points[1])
    return points[0], points[1]


def _placed(ax: Axes, source: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """As many coordinates for every point as the axes have, and names for the axes."""
    dimension, shown = source.shape[1], len(axes_of(ax))
    if dimension < 2:
        ax.set_yticks([0, 1], ["target", "source"])
        ax.set_ylim(-0.5, 1.5)
        x, z = (side.sum(axis=1) for side in (source, target))
        return np.column_stack([x, np.ones(len(x))]), np.column_stack([z, np.zeros(len(z))])
    if dimension > shown:
        both = np.concatenate([source, target])
        centre = both.mean(axis=0) if len(both) else np.zeros(dimension)
        basis = _principal_axes(both - centre, shown)
        for axis, which in zip(axes_of(ax), ("first", "second", "third"), strict=False):
            axis.set_label_text(f"{which} principal component")
        source, target = (source - centre) @ basis, (target - centre) @ basis
    return source, target


def _principal_axes(centred: np.ndarray, count: int) -> np.ndarray:
    """The directions of largest variance, as columns; the largest coordinate of each is positive."""
    chosen = centred[:: 1 + len(centred) // POINTS_FOR_AXES]
    axes = np.linalg.svd(chosen, full_matrices=False)[2][:count]
    axes = np.pad(axes, ((0, count - len(axes)), (0, 0)))  # fewer points than axes
    largest = axes[np.arange(count), np.abs(axes).argmax(axis=1)]
    return (axes * np.where(largest < 0, -1.0, 1.0)[:, None]).T


def _colours(solution: Solution, by_cluster: bool | None) -> tuple[np.ndarray, np.ndarray, list[str] | None]:
    """Colours of the sources, the targets and the clusters; None for the clusters if colours show the sides."""
    clusters = [] if by_cluster is False else solution.clusters()
    n, m = solution.problem.cost.shape
    if by_cluster is False or (by_cluster is None and len(clusters) > len(CLUSTER_COLOURS)):
        return np.full(n, SIDE_COLOURS[0]), np.full(m, SIDE_COLOURS[1]), None
    source, target = np.full(n, GREY), np.full(m, GREY)
    colours = list(islice(cycle(CLUSTER_COLOURS), len(clusters)))
    for cluster, colour in zip(clusters, colours, strict=True):
        source[cluster.sources] = target[cluster.targets] = colour
    return source, target, colours


def _draw_lines(
    ax: Axes, pairs: Support, source: np.ndarray, target: np.ndarray, colours: np.ndarray, width: float
) -> None:
    """A line for every pair, at most `width` wide; pairs with more mass have wider and more opaque lines."""
    from matplotlib.collections import LineCollection
    from matplotlib.colors import to_rgba_array
    from mpl_toolkits.mplot3d.art3d import Line3DCollection

    rows, columns, mass = pairs
    share = mass / mass.max(initial=0.0) if mass.size else mass
    rgba = to_rgba_array(colours.tolist())
    rgba[:, 3] = 0.25 + 0.55 * share
    ends = np.stack([source[rows], target[columns]], axis=1)
    widths: Any = width * (0.3 + 0.7 * share)
    kind: Any = Line3DCollection if in_space(ax) else LineCollection
    ax.add_collection(kind(list(ends), colors=list(rgba), linewidths=widths, zorder=1))


def _draw_legend(ax: Axes, active: tuple[np.ndarray, np.ndarray], colours: tuple[str, str]) -> None:
    """One row below the axes: the numbers of active and inactive points of both sides."""
    from matplotlib.lines import Line2D
    from matplotlib.transforms import ScaledTranslation

    handles = []
    for (side, marker), colour, carries in zip(SIDES, colours, active, strict=True):
        style: Any = {"marker": marker, "linestyle": "none", "markeredgecolor": colour}
        count = int(np.count_nonzero(carries))
        for word, number, fill in (("active", count, colour), ("inactive", len(carries) - count, "none")):
            handles.append(Line2D([], [], markerfacecolor=fill, label=f"{side}, {word} ({number})", **style))
    below: Any = ax.transAxes + ScaledTranslation(0, -0.4, ax.figure.dpi_scale_trans)  # in inches: axes may be tall
    place: Any = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "bbox_transform": below}
    legend(ax, handles, ncols=4, fontsize="small", **place)
