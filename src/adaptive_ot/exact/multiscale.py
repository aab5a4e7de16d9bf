"""Coarse versions of a transport problem: their potentials tell which pairs matter in the fine one.

A coarser problem has one of the points of every cell (see `cells.py`), with the weight of all of them. Cells hold about
four points, so all coarser problems together have a third of the points of the finest. In many dimensions, points have
the same distances as in the finest problem, which means of cells would not have. Where only a matrix of costs is known,
rows and columns stay in their order, and a cell is a few of them in a row.

The potentials of a coarse optimum extend to all points by the c-transform, for example f_i = min_B C_iB - g_B over the
coarse targets B. The pairs with the lowest reduced costs under these potentials contain most of an optimal plan even if
mass moves far, where the cheapest pairs contain little of it.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypeGuard

import numpy as np

from adaptive_ot._points import inner_products
from adaptive_ot.costs import ArrayCost, PointCost
from adaptive_ot.exact.cells import sort_into_cells
from adaptive_ot.problem import Problem

# A cell of a coarser problem holds about 2**HALVINGS points.
HALVINGS = 2


def has_scales(cost: Any) -> TypeGuard[PointCost | ArrayCost]:
    """Whether problems with this cost have coarse versions: sparse ones would lose most of their pairs."""
    return isinstance(cost, PointCost) or (isinstance(cost, ArrayCost) and not cost.kind.on_gpu)


class Order(NamedTuple):
    """The points of both sides in the order of their cells: place k of the order holds the point `source[k]`."""

    source: np.ndarray
    target: np.ndarray


class Scale(NamedTuple):
    """A problem, or one between some of its points that stand for their cells. All cells are slices.

    `rows` and `columns` are the places of its points in the next finer scale.
    """

    cost: PointCost | ArrayCost
    source_weights: np.ndarray
    target_weights: np.ndarray
    rows: np.ndarray
    columns: np.ndarray

    @property
    def weights(self) -> tuple[np.ndarray, np.ndarray]:
        """The weights of both sides."""
        return self.source_weights, self.target_weights

    @classmethod
    def finest(cls, problem: Problem, cost: PointCost | ArrayCost) -> tuple[Scale, Order]:
        """A problem with its points sorted into cells of all sizes, and the order of the points."""
        mu, nu, order = problem.source_weights, problem.target_weights, Order(*map(np.arange, cost.shape))
        if isinstance(cost, ArrayCost):
            return cls(cost, mu, nu, *order), order
        for vectors, index in zip(inner_products(cost)[:2], order, strict=True):
            sort_into_cells(vectors, index.size.bit_length(), index)
        rows, columns = order
        return cls(part_of(cost, rows, columns), mu[rows], nu[columns], *map(np.arange, cost.shape)), order

    def coarser(self, enough: int) -> Scale:
        """The problem of the cells. A side of at most `enough` points stays as it is."""
        rows, columns = (_starts(n, enough) for n in self.cost.shape)
        mu, nu = np.add.reduceat(self.source_weights, rows), np.add.reduceat(self.target_weights, columns)
        return Scale(part_of(self.cost, rows, columns), mu, nu, rows, columns)


def all_scales(finest: Scale, enough: int) -> list[Scale]:
    """Ever finer scales of a problem, until it is the problem itself; the first has at most `enough` points a side."""
    scales = [finest]
    while max(scales[0].cost.shape) > enough:
        scales.insert(0, scales[0].coarser(enough))
    return scales


def _starts(n: int, enough: int) -> np.ndarray:
    """The first point of every cell."""
    cells = n if n <= enough else 1 << max(0, round(math.log2(n)) - HALVINGS)
    return np.arange(cells) * n // cells


def part_of(cost: Any, rows: np.ndarray, columns: np.ndarray) -> Any:
    """The cost between some of the points, in this order."""
    if isinstance(cost, PointCost):
        return cost.between(cost.x[rows], cost.z[columns], cost.p[rows], cost.q[columns])
    return ArrayCost.checked(cost.array[np.ix_(rows, columns)], cost.kind)
