"""Pricing: which pairs would improve a solution with potentials f and g, that is, have C_ij - f_i - g_j < 0?

Each pricing goes over *all* pairs and keeps, for every source and every target, the few pairs of lowest reduced cost.
Nothing of size n x m is stored. It also returns the lowest reduced cost of every target, and this is the certificate:
lowering g by it makes the potentials feasible.

Point clouds are screened in float32, where a tile of the cost matrix is one matrix product. The screen has a rigorous
margin: a pair that it passes over cannot have a reduced cost below the limit. What it flags is evaluated in float64.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numba
import numpy as np

from adaptive_ot._points import PRODUCT_ON_ONE_THREAD, inner_product_bound
from adaptive_ot._threads import run_together
from adaptive_ot.costs import ArrayCost, Cost, PointCost, SparseCost
from adaptive_ot.exact import scan as _scan
from adaptive_ot.exact.limits import LIMITS, Limits
from adaptive_ot.exact.scan import Best, Points, Screen

Tick = Callable[[float], None]

# A thread is worth its while from this many pairs on.
PAIRS_PER_THREAD = 2**21

# The threads meet after blocks of rows with about this many entries (dense) or multiplications (points), where the kept
# pairs are merged and Ctrl-C is heard: many times a second.
ENTRIES_PER_BLOCK = 2**22
MULTIPLICATIONS_PER_BLOCK = 2**31
MOST_ROWS_PER_BLOCK = 1024


# A point whose squared norm exceeds the median by this factor is not screened.
FAR = 2.0**60

SMALLEST_NORMAL = 2.0**-126  # what one float32 product can lose to underflow
SMALLEST_UNIT = 1e-200


class Violated(NamedTuple):
    """Pairs of negative reduced cost, with their costs, and the lowest reduced cost (at most 0) of every target."""

    rows: np.ndarray
    columns: np.ndarray
    costs: np.ndarray
    target_minimum: np.ndarray


class Pricing(ABC):
    """Finds pairs of negative reduced cost; `keep` is how many to keep for each source and each target.

    `complete` says that `cheapest` returns all pairs that matter.
    """

    complete = False
    shape: tuple[int, int]

    def cheapest(self, base: float, keep: int, tick: Tick) -> Violated:
        """Pairs of a cost below `base`, among them one of every point that has any."""
        n, m = self.shape
        return self.violated(np.full(n, base), np.zeros(m), keep, tick)

    @abstractmethod
    def violated(self, f: np.ndarray, g: np.ndarray, keep: int, tick: Tick) -> Violated:
        """Pairs that f and g violate, among them the worst of every point."""


def pricing_for(cost: Cost, base: float, limits: Limits = LIMITS) -> Pricing:
    """The pricing that suits a cost, where only pairs of a cost below `base` matter."""
    if isinstance(cost, SparseCost):
        return ListedPricing(*cost.pairs_below(base), cost.shape, limits)
    if cost.shape[0] * cost.shape[1] <= limits.searched_entries:
        rows, columns, costs = _scan.pairs_below(cost.block(0, cost.shape[0]), base, limits.few_pairs)
        if rows.size <= limits.few_pairs:
            return ListedPricing(rows, columns, costs, cost.shape, limits)
    if cost.kind.on_gpu:
        from adaptive_ot.exact.pricing_gpu import TorchPricing

        return TorchPricing(cost)
    if isinstance(cost, PointCost):
        return PointPricing(cost)
    assert isinstance(cost, ArrayCost)
    return DensePricing(cost)


class ListedPricing(Pricing):
    """Pricing where the pairs that matter are few enough, or sparse by nature, to be listed: by row, then column."""

    def __init__(
        self,
        rows: np.ndarray,
        columns: np.ndarray,
        costs: np.ndarray,
        shape: tuple[int, int],
        limits: Limits = LIMITS,
    ) -> None:
        self.rows, self.columns, self.costs, self.shape = rows, columns, costs, shape
        self.complete = rows.size <= max(limits.few_pairs, limits.few_pairs_per_node * sum(shape))

    def cheapest(self, base: float, keep: int, tick: Tick) -> Violated:
        if self.complete:
            return Violated(self.rows, self.columns, self.costs, np.zeros(self.shape[1]))
        return super().cheapest(base, keep, tick)

    def violated(self, f: np.ndarray, g: np.ndarray, keep: int, tick: Tick) -> Violated:
        n, m = self.shape
        rows, columns, costs = self.rows, self.columns, self.costs
        if self.complete:
            found, target_minimum = np.empty(rows.size, np.bool_), np.zeros(m)
            _scan.find_negative(rows, columns, costs, f, g, found, target_minimum)
            tick(1.0)
            return Violated(rows[found], columns[found], costs[found], target_minimum)
        by_row, by_column = Best.none(n, keep), Best.none(m, keep)
        _scan.scan_list(rows, columns, costs, f, g, by_row, by_column)
        tick(1.0)
        (i, to_column), (j, to_row) = by_row.pairs(), by_column.pairs()
        i, j = unique_pairs(np.append(i, to_row), np.append(to_column, j), m)
        place = np.searchsorted(rows * m + columns, i * m + j)
        return Violated(i, j, costs[place], by_column.value[:, 0])


class ThreadedPricing(Pricing):
    """Goes over all pairs in blocks of rows, the columns split between threads."""

    rows_per_block: int
    f: np.ndarray
    g: np.ndarray

    def __init__(self, cost: Cost) -> None:
        self.cost, self.shape = cost, cost.shape

    def prepare(self, f: np.ndarray, g: np.ndarray) -> None:
        """Take in new potentials."""
        self.f, self.g = f, g

    @abstractmethod
    def scan(self, top: int, bottom: int, start: int, stop: int, by_row: Best, by_column: Best) -> None:
        """Price the rows top:bottom and columns start:stop."""

    def violated(self, f: np.ndarray, g: np.ndarray, keep: int, tick: Tick) -> Violated:
        n, m = self.shape
        self.prepare(f, g)
        threads = min(numba.get_num_threads(), n * m // PAIRS_PER_THREAD + 1)
        cuts = [m * k // threads for k in range(threads + 1)]
        by_column = Best.none(m, keep)
        rows, columns = [], []
        for top in range(0, n, self.rows_per_block):
            bottom = min(top + self.rows_per_block, n)
            by_row = [Best.none(bottom - top, keep) for _ in range(threads)]
            run_together(
                [partial(self.scan, top, bottom, cuts[k], cuts[k + 1], by_row[k], by_column) for k in range(threads)]
            )
            for others in by_row[1:]:
                _scan.merge(by_row[0], others)
            i, j = by_row[0].pairs()
            rows.append(i + top)
            columns.append(j)
            tick(bottom / n)
        j, i = by_column.pairs()
        i, j = unique_pairs(np.concatenate([*rows, i]), np.concatenate([*columns, j]), m)
        return Violated(i, j, self.cost.entries(i, j), by_column.value[:, 0])


class DensePricing(ThreadedPricing):
    """Pricing of a dense cost matrix in memory."""

    def __init__(self, cost: ArrayCost) -> None:
        super().__init__(cost)
        self.array = cost.array
        self.rows_per_block = max(1, ENTRIES_PER_BLOCK // cost.shape[1])

    def scan(self, top: int, bottom: int, start: int, stop: int, by_row: Best, by_column: Best) -> None:
        _scan.scan_dense(self.array, top, bottom, start, stop, self.f, self.g, by_row, by_column)


class PointPricing(ThreadedPricing):
    """Pricing of a point cost, screened in float32.

    The vectors of the screen are scaled to norms around 1. A point too far from the others to be treated in float32
    with them gets a bound of NaN, and all its pairs are evaluated in float64.
    """

    def __init__(self, cost: PointCost) -> None:
        super().__init__(cost)
        self.points = Points(cost.x, cost.z, cost.p, cost.q, cost.distance_weight, cost.class_weight, cost.offset)
        u, v, a, b = inner_product_bound(cost, _scan.HALF_ULP)
        u_square, v_square = np.einsum("ij,ij->i", u, u), np.einsum("ij,ij->i", v, v)
        rewards = cost.offset + cost.class_weight  # potentials are of this size
        unit = max(float(np.median(np.append(u_square, v_square))), rewards / FAR, SMALLEST_UNIT)
        dimension = u.shape[1]
        for vectors, square, bound in ((u, u_square, a), (v, v_square, b)):
            vectors /= np.sqrt(unit)
            bound /= unit
            bound -= (dimension + 8) * SMALLEST_NORMAL
            far = square > FAR * unit
            vectors[far], bound[far] = 0.0, np.nan
        self.screen_at_zero = Screen(u.astype(np.float32), v.astype(np.float32), a, b, unit)
        rows = MULTIPLICATIONS_PER_BLOCK // (len(v) * max(16, dimension))
        self.rows_per_block = min(max(64, rows), MOST_ROWS_PER_BLOCK)
        one_thread = (64, min(256, PRODUCT_ON_ONE_THREAD // (64 * max(1, dimension))))
        self.tile = one_thread if dimension <= 32 else (256, 1024)

    def prepare(self, f: np.ndarray, g: np.ndarray) -> None:
        super().prepare(f, g)
        zero = self.screen_at_zero
        self.screen = zero._replace(a=zero.a - f / zero.unit, b=zero.b - g / zero.unit)

    def scan(self, top: int, bottom: int, start: int, stop: int, by_row: Best, by_column: Best) -> None:
        _scan.scan_points(
            top, bottom, start, stop, self.tile, self.screen, self.points, self.f, self.g, by_row, by_column
        )


def unique_pairs(rows: np.ndarray, columns: np.ndarray, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Each pair once, row by row."""
    rows, columns = np.divmod(np.unique(rows * m + columns), max(1, m))
    return rows, columns
