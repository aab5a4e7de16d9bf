"""Places for points without coordinates: sources in a left column, targets in a right one, with few crossing lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from adaptive_ot._arrays import to_numpy
from adaptive_ot.plot.canvas import colours
from adaptive_ot.solution import Cluster, Solution

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# There is no room for the names of more points on a side.
LONGEST_COLUMN = 60

# The distance between two clusters, where neighbouring points have distance 1.
GAP = 0.7

# How often each column is sorted by the positions of the other ends of its lines.
SWEEPS = 4


class Columns(NamedTuple):
    """Positions of the sources and targets, and the top and bottom of every cluster, heaviest first."""

    source: np.ndarray
    target: np.ndarray
    spans: list[tuple[float, float]]


def in_columns(solution: Solution) -> Columns:
    """Clusters from top to bottom, heaviest first, then active points outside of clusters, then inactive points.

    Examples
    --------
    >>> import adaptive_ot as aot
    >>> columns = in_columns(aot.solve([[9.0, 9.0], [9.0, -2.0]]))  # only the second source is tied to a target
    >>> (-columns.source[:, 1]).tolist(), columns.spans
    ([2.2, 0.5], [(0.0, -1.0)])
    """
    clusters = solution.clusters()
    blocks = _blocks(solution, clusters)
    orders = _few_crossings(solution, blocks)
    counts = np.stack([np.bincount(block, minlength=len(clusters) + 2) for block in blocks])
    heights = counts.max(axis=0)
    tops = np.cumsum(heights) - heights + GAP * (np.cumsum(heights > 0) - (heights > 0))
    sides = []
    for across, (block, order, count) in enumerate(zip(blocks, orders, counts, strict=True)):
        centred = tops + (heights - count) / 2
        first = np.cumsum(count) - count
        places = np.empty((len(block), 2))
        places[order, 0] = across
        places[order, 1] = -(centred[block[order]] + np.arange(len(order)) - first[block[order]] + 0.5)
        sides.append(places)
    ends = [(float(0 - top), float(0 - top - height)) for top, height in zip(tops, heights, strict=True)]
    return Columns(sides[0], sides[1], ends[: len(clusters)])


def _blocks(solution: Solution, clusters: list[Cluster]) -> tuple[np.ndarray, np.ndarray]:
    """The cluster of every source and target; two more numbers stand for other active points and inactive ones."""
    active = to_numpy(solution.active_source), to_numpy(solution.active_target)
    source, target = (np.where(side, len(clusters), len(clusters) + 1) for side in active)
    for number, cluster in enumerate(clusters):
        source[cluster.sources] = target[cluster.targets] = number
    return source, target


def _few_crossings(solution: Solution, blocks: tuple[np.ndarray, np.ndarray]) -> list[np.ndarray]:
    """The order of both sides by block; inside a block, the order with the fewest crossings that a search finds."""
    rows, columns, mass = solution.main_pairs()
    ends, sizes = (rows, columns), solution.problem.cost.shape
    lines = np.zeros(sizes, dtype=int)
    lines[ends] = 1
    best = [np.argsort(block, kind="stable") for block in blocks]
    fewest = _crossings(lines[np.ix_(*best)])
    if fewest == 0:
        return best
    orders = [np.lexsort((place, block)) for place, block in zip(_along(lines, blocks), blocks, strict=True)]
    for turn in range(2 * SWEEPS):
        here, there = (1, 0) if turn % 2 == 0 else (0, 1)
        place = np.argsort(orders[there]).astype(float)
        total = np.bincount(ends[here], mass, sizes[here])
        mean = np.bincount(ends[here], mass * place[ends[there]], sizes[here]) / np.where(total > 0, total, 1.0)
        orders[here] = np.lexsort((mean.round(9), blocks[here]))
        crossings = _crossings(lines[np.ix_(*orders)])
        if crossings < fewest:
            best, fewest = list(orders), crossings
    return best


def _along(lines: np.ndarray, blocks: tuple[np.ndarray, np.ndarray]) -> list[np.ndarray]:
    """Positions of sources and targets along the lines, from the end of a cluster with the lower numbers."""
    from scipy import sparse
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    n, m = lines.shape
    both = sparse.csr_array(sparse.block_array([[None, lines], [lines.T, None]]))
    place = np.argsort(reverse_cuthill_mckee(both, symmetric_mode=True))
    block, number = np.concatenate(blocks), np.concatenate([np.arange(n), np.arange(m)])
    middle = np.bincount(block, place) / np.maximum(1, np.bincount(block))
    place = place - middle[block]
    upwards = np.bincount(block, place * number) >= 0
    return np.split(np.where(upwards[block], place, -place), [n])


def _crossings(lines: np.ndarray) -> int:
    """The number of crossing pairs of lines between two columns in this order."""
    below = lines[::-1].cumsum(axis=0)[::-1]
    below_and_above = below.cumsum(axis=1)  # lines that start below a source and end above a target
    return int((lines[:-1, 1:] * below_and_above[1:, :-1]).sum())


def label_columns(ax: Axes, columns: Columns, cluster_colours: list[str]) -> None:
    """Names beside the points and below the columns, and a coloured band behind every cluster."""
    lowest = np.concatenate([columns.source[:, 1], columns.target[:, 1]]).min(initial=-1.0)
    ax.set(xlim=(-0.35, 1.35), ylim=(lowest - 1.0, 0.3))
    ax.set_xticks([0, 1], ["sources", "targets"])
    ax.tick_params(length=0)
    ax.set_yticks([])
    ax.spines[:].set_visible(False)
    for (top, bottom), colour in zip(columns.spans, cluster_colours, strict=False):
        ax.axhspan(bottom, top, facecolor=colour, alpha=0.14, linewidth=0, zorder=0)
    for letter, places, step, align in (("x", columns.source, -9, "right"), ("z", columns.target, 9, "left")):
        style: Any = {"ha": align, "va": "center", "fontsize": "small", "color": colours().text}
        for number, place in enumerate(places.tolist(), start=1):
            ax.annotate(f"{letter}{number}", place, (step, 0), textcoords="offset points", **style)
