"""Coarse versions of a transport problem between points: their potentials tell which pairs matter in the fine one.

A coarser problem has one of the points of every cell (see `cells.py`), with the weight of all of them. Cells hold about
four points, so all coarser problems together have a third of the points of the finest. In many dimensions, points have
the same distances as in the finest problem, which means of cells would not have.

The potentials of a coarse optimum extend to all points by the c-transform, for example f_i = min_B C_iB - g_B over the
coarse targets B. The pairs with the lowest reduced costs under these potentials contain most of an optimal plan even if
mass moves far, where the cheapest pairs contain little of it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from adaptive_ot._points import inner_products
from adaptive_ot.costs import PointCost
from adaptive_ot.exact.cells import sort_into_cells
from adaptive_ot.problem import Problem

# A cell of a coarser problem holds about 2**HALVINGS points.
HALVINGS = 2


class Order(NamedTuple):
    """The points of both sides in the order of their cells: place k of the order holds the point `source[k]`."""

    source: np.ndarray
    target: np.ndarray


class Scale(NamedTuple):
    """A problem between points, or between some of them that stand for their cells. All cells are slices."""

    cost: PointCost
    source_weights: np.ndarray
    target_weights: np.ndarray

    @classmethod
    def finest(cls, problem: Problem, cost: PointCost) -> tuple[Scale, Order]:
        """A problem with its points sorted into cells of all sizes, and the order of the points."""
        order = Order(*map(np.arange, cost.shape))
        for vectors, index in zip(inner_products(cost)[:2], order, strict=True):
            sort_into_cells(vectors, index.size.bit_length(), index)
        rows, columns = order
        return cls(part_of(cost, rows, columns), problem.source_weights[rows], problem.target_weights[columns]), order

    def coarser(self, enough: int) -> Scale:
        """The problem of the cells. A side of at most `enough` points stays as it is."""
        cost = self.cost
        mu, x, p = _merged(enough, self.source_weights, cost.x, cost.p)
        nu, z, q = _merged(enough, self.target_weights, cost.z, cost.q)
        return Scale(cost.between(x, z, p, q), mu, nu)


def all_scales(finest: Scale, enough: int) -> list[Scale]:
    """Ever finer scales of a problem, until it is the problem itself; the first has at most `enough` points a side."""
    scales = [finest]
    while max(scales[0].cost.shape) > enough:
        scales.insert(0, scales[0].coarser(enough))
    return scales


def _merged(enough: int, weights: np.ndarray, *points: np.ndarray) -> tuple[np.ndarray, ...]:
    """The total weight of every cell, and its first point."""
    n = weights.size
    if n <= enough:
        return weights, *points
    cells = 1 << max(0, round(math.log2(n)) - HALVINGS)
    start = np.arange(cells) * n // cells
    return np.add.reduceat(weights, start), *(side[start] for side in points)


def part_of(cost: PointCost, rows: np.ndarray, columns: np.ndarray) -> PointCost:
    """The cost between some of the points, in this order."""
    return cost.between(cost.x[rows], cost.z[columns], cost.p[rows], cost.q[columns])


def between(sources: PointCost, targets: PointCost) -> PointCost:
    """The cost between the sources of one scale and the targets of another."""
    return sources.between(sources.x, targets.z, sources.p, targets.q)
