"""Pricing: compare all pairs of a cost with potentials f and g, by their reduced costs C_ij - f_i - g_j.

A `Pricing` goes over *all* pairs, in blocks of rows; nothing of size n x m is stored. It finds the pairs that would
improve a solution, those of negative reduced cost, and keeps the few lowest of every source and every target. It also
finds all pairs below a limit, and the minima of rows and columns. The column minima are the certificate: lowering g to
them makes the potentials feasible.

Point clouds are screened in float32, where a tile of the cost matrix is one matrix product. The screen has a rigorous
margin: a pair that it skips cannot have a reduced cost below the limit. The pairs that it flags are evaluated in
float64. The other questions use lower bounds in float64, exact up to rounding, so that no pair is missed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, NamedTuple

import numba
import numpy as np

from adaptive_ot._points import HALF_ULP, PRODUCT_ON_ONE_THREAD, inner_product_bound, point_costs
from adaptive_ot._threads import run_together
from adaptive_ot.costs import ArrayCost, Cost, PointCost
from adaptive_ot.exact import scan as _scan
from adaptive_ot.exact.limits import LIMITS, Limits
from adaptive_ot.exact.scan import Best, Points, Screen

Tick = Callable[[float], None]

# The threads meet after rounds of rows with about this many entries (dense) or multiplications (points). There, their
# answers are merged and Ctrl-C is handled, many times a second.
ENTRIES_PER_ROUND = 2**22
MULTIPLICATIONS_PER_ROUND = 2**31
MOST_ROWS_PER_ROUND = 1024
BLOCKS_PER_ROUND = 8

# A point whose squared norm exceeds the median by this factor is not screened.
FAR = 2.0**60

SMALLEST_NORMAL = 2.0**-126  # what one float32 product can lose to underflow
SMALLEST_UNIT = 1e-200


class Pairs(NamedTuple):
    """Sources, targets and costs of some pairs."""

    rows: np.ndarray
    columns: np.ndarray
    costs: np.ndarray


class Violated(NamedTuple):
    """Pairs of negative reduced cost, with their costs, and the lowest reduced cost (at most 0) of every target."""

    rows: np.ndarray
    columns: np.ndarray
    costs: np.ndarray
    target_minimum: np.ndarray


class Pricing(ABC):
    """Answers questions about the reduced costs of all pairs.

    If `complete`, `cheapest` returns all pairs that matter.
    """

    complete = False

    def __init__(self, cost: Any, limits: Limits = LIMITS) -> None:
        self.cost, self.shape, self.limits = cost, cost.shape, limits

    def cheapest(self, base: float, keep: int, tick: Tick) -> Violated:
        """Pairs that cost less than `base`, including at least one for every point that has any."""
        n, m = self.shape
        return self.violated(np.full(n, base), np.zeros(m), keep, tick)

    @abstractmethod
    def violated(self, f: np.ndarray, g: np.ndarray, keep: int, tick: Tick) -> Violated:
        """The pairs that f and g violate: the `keep` worst of every source and every target."""

    def lowest_of_targets(self, f: np.ndarray, g: np.ndarray, tick: Tick) -> np.ndarray:
        """The lowest reduced cost of every target, at most 0."""
        return self.violated(f, g, 1, tick).target_minimum

    @abstractmethod
    def below(self, f: np.ndarray, g: np.ndarray, limit: float, most: int) -> Pairs | None:
        """The pairs with a reduced cost below the limit, by row, then column; None if there are more than `most`."""

    @abstractmethod
    def minima(self, f: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The smallest C_ij of every source and the smallest C_ij - f_i of every target, or a little less.

        A potential of -inf excludes a source.
        """

    @abstractmethod
    def largest(self) -> float:
        """The largest finite cost, or a little less; 0 if there is none."""

    @abstractmethod
    def sample(self, f: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, int]:
        """The reduced costs of some pairs, and the number of all pairs."""

    def lowest(self, f: np.ndarray, g: np.ndarray) -> float:
        """The lowest reduced cost, or a little less; a potential of -inf excludes a point."""
        return float((self.minima(f)[1] - g).min(initial=np.inf))

    def quantile(self, f: np.ndarray, g: np.ndarray, count: float) -> float:
        """An estimate of the reduced cost below which there are `count` pairs; only positive reduced costs count."""
        reduced, pairs = self.sample(f, g)
        reduced = reduced[(reduced > 0) & np.isfinite(reduced)]
        return float(np.quantile(reduced, min(1.0, count / max(1, pairs)))) if reduced.size else 1.0


class ListedPricing(Pricing):
    """Pricing where the pairs that matter are few enough, or sparse by nature, to be listed: by row, then column."""

    def __init__(self, cost: Cost, pairs: Pairs, limits: Limits = LIMITS) -> None:
        super().__init__(cost, limits)
        self.pairs = pairs
        self.complete = pairs.rows.size <= max(limits.few_pairs, limits.few_pairs_per_node * sum(cost.shape))

    def cheapest(self, base: float, keep: int, tick: Tick) -> Violated:
        if self.complete:
            tick(1.0)
            return Violated(*self.pairs, np.zeros(self.shape[1]))
        return super().cheapest(base, keep, tick)

    def violated(self, f: np.ndarray, g: np.ndarray, keep: int, tick: Tick) -> Violated:
        n, m = self.shape
        rows, columns, costs = self.pairs
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

    def below(self, f: np.ndarray, g: np.ndarray, limit: float, most: int) -> Pairs | None:
        found = self.sample(f, g)[0] < limit
        return Pairs(*(side[found] for side in self.pairs)) if np.count_nonzero(found) <= most else None

    def minima(self, f: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows, columns, costs = self.pairs
        of_rows, of_columns = np.full(self.shape[0], np.inf), np.full(self.shape[1], np.inf)
        np.minimum.at(of_rows, rows, costs)
        np.minimum.at(of_columns, columns, costs - f[rows])
        return of_rows, of_columns

    def largest(self) -> float:
        return float(self.pairs.costs.max()) if self.pairs.costs.size else 0.0

    def sample(self, f: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, int]:
        rows, columns, costs = self.pairs
        return costs - f[rows] - g[columns], costs.size


class BlockPricing(Pricing):
    """Goes over all pairs in rounds of rows; threads share each round."""

    @cached_property
    def bound(self) -> tuple[np.ndarray, ...]:
        """u, v, a and b of lower bounds a_i + b_j - <u_i, v_j> for the costs of points."""
        return inner_product_bound(self.cost, HALF_ULP)

    def below(self, f: np.ndarray, g: np.ndarray, limit: float, most: int) -> Pairs | None:
        total, parts = 0, [np.zeros((2, 0), np.int64)]

        def find(top: int, costs: np.ndarray) -> np.ndarray | None:
            counts = np.empty(len(costs), np.int64)
            found = _scan.count_below(costs, top, f, g, limit, counts)
            if found > most - total:
                return None
            pairs = np.empty((2, found), np.int64)
            if found:
                _scan.list_below(costs, top, f, g, limit, counts, *pairs)
            return pairs

        for pairs in self._blocks(find):
            if pairs is None or (total := total + pairs.shape[1]) > most:
                return None
            parts.append(pairs)
        rows, columns = np.concatenate(parts, axis=1)
        return Pairs(rows, columns, self.cost.entries(rows, columns))

    def minima(self, f: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        m = self.shape[1]

        def lower(top: int, costs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            of_rows, of_columns = np.empty(len(costs)), np.full(m, np.inf)
            _scan.lower_minima(costs, f[top : top + len(costs)], of_rows, of_columns)
            return of_rows, of_columns

        rows, lowest = [np.zeros(0)], np.full(m, np.inf)
        for of_rows, of_columns in self._blocks(lower):
            rows.append(of_rows)
            np.minimum(lowest, of_columns, out=lowest)
        # No distance is negative, even if rounding makes its bound negative.
        least = self.cost.least
        return np.maximum(np.concatenate(rows), least), np.maximum(lowest, least - f.max(initial=0.0))

    def largest(self) -> float:
        def of_block(_: int, costs: np.ndarray) -> float:
            return float(costs.max(where=costs < np.inf, initial=-np.inf))

        largest = max(self._blocks(of_block), default=-np.inf)
        return largest if largest > -np.inf else 0.0

    def sample(self, f: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, int]:
        n, m = self.shape
        rows = range(0, n, 1 + n // self.limits.rows_sampled)
        return np.concatenate([self.cost.block(i, i + 1)[0] - f[i] - g for i in rows]), n * m

    def _blocks(self, look: Callable[[int, np.ndarray], Any]) -> Iterator[Any]:
        """The results of `look`, called with the first row and the costs of every block of rows, in order."""
        (n, m), cost = self.shape, self.cost
        step = max(1, self.limits.pairs_per_block // max(1, m))
        rows_per_round = BLOCKS_PER_ROUND * self.threads * step

        def costs_of(top: int, bottom: int) -> np.ndarray:
            if cost.layout != "points":
                return cost.block(top, bottom)
            tile = np.empty((bottom - top, m))
            point_costs(*self.bound, top, tile)
            return tile

        def look_at(start: int, stop: int) -> list[Any]:
            return [look(top, costs_of(top, min(top + step, stop))) for top in range(start, stop, step)]

        for top in range(0, n, rows_per_round):
            for answers in self._share(look_at, top, min(top + rows_per_round, n)):
                yield from answers

    @property
    def threads(self) -> int:
        worth = self.shape[0] * self.shape[1] // self.limits.pairs_per_thread + 1
        return min(numba.get_num_threads(), worth) if worth > 1 else 1

    def _share(self, work: Callable[[int, int], Any], first: int, last: int) -> list[Any]:
        """Split a range of rows or columns among threads; returns their answers in order."""
        threads = self.threads
        if threads == 1:
            return [work(first, last)]
        cuts = [first + (last - first) * k // threads for k in range(threads + 1)]
        return run_together([partial(work, *part) for part in pairwise(cuts)])


class KernelPricing(BlockPricing):
    """Finds violated pairs on the CPU; threads share the columns."""

    rows_per_round: int

    @abstractmethod
    def scanner(self, f: np.ndarray, g: np.ndarray) -> Callable[..., None]:
        """A kernel that prices the pairs of the rows top:bottom and columns start:stop."""

    def violated(self, f: np.ndarray, g: np.ndarray, keep: int, tick: Tick) -> Violated:
        n, m = self.shape
        scan, by_column = self.scanner(f, g), Best.none(m, keep)
        rows, columns = [], []

        def price(top: int, bottom: int, start: int, stop: int) -> Best:
            by_row = Best.none(bottom - top, keep)
            scan(top, bottom, start, stop, by_row, by_column)
            return by_row

        for top in range(0, n, self.rows_per_round):
            bottom = min(top + self.rows_per_round, n)
            by_row, *of_others = self._share(partial(price, top, bottom), 0, m)
            for others in of_others:
                _scan.merge(by_row, others)
            i, j = by_row.pairs()
            rows.append(i + top)
            columns.append(j)
            tick(bottom / n)
        j, i = by_column.pairs()
        i, j = unique_pairs(np.concatenate([*rows, i]), np.concatenate([*columns, j]), m)
        return Violated(i, j, self.cost.entries(i, j), by_column.value[:, 0])


class DensePricing(KernelPricing):
    """Pricing of a dense cost matrix in memory."""

    def __init__(self, cost: ArrayCost, limits: Limits = LIMITS) -> None:
        super().__init__(cost, limits)
        self.array = np.ascontiguousarray(cost.array)
        self.rows_per_round = max(1, ENTRIES_PER_ROUND // max(1, cost.shape[1]))

    def scanner(self, f: np.ndarray, g: np.ndarray) -> Callable[..., None]:
        return partial(_scan.scan_dense, self.array, f, g)


class PointPricing(KernelPricing):
    """Pricing of a point cost, screened in float32.

    The vectors of the screen are scaled to norms around 1. A point too far from the others for float32 gets a bound of
    NaN, and all its pairs are evaluated in float64.
    """

    def __init__(self, cost: PointCost, limits: Limits = LIMITS) -> None:
        super().__init__(cost, limits)
        self.points = Points(cost.x, cost.z, cost.p, cost.q, cost.distance_weight, cost.class_weight, cost.offset)
        dimension = cost.x.shape[1] + cost.p.shape[1]
        rows = MULTIPLICATIONS_PER_ROUND // (max(1, cost.shape[1]) * max(16, dimension))
        self.rows_per_round = min(max(64, rows), MOST_ROWS_PER_ROUND)
        one_thread = (64, min(256, PRODUCT_ON_ONE_THREAD // (64 * max(1, dimension))))
        self.tile = one_thread if dimension <= 32 else (256, 1024)

    @cached_property
    def screen(self) -> Screen:
        """The screen for potentials of zero."""
        u, v, a, b = inner_product_bound(self.cost, _scan.HALF_ULP_FLOAT32)
        u_square, v_square = np.einsum("ij,ij->i", u, u), np.einsum("ij,ij->i", v, v)
        rewards = self.cost.offset + self.cost.class_weight  # potentials are of this size
        unit = max(float(np.median(np.append(u_square, v_square))), rewards / FAR, SMALLEST_UNIT)
        for vectors, square, bound in ((u, u_square, a), (v, v_square, b)):
            vectors /= np.sqrt(unit)
            bound /= unit
            bound -= (u.shape[1] + 8) * SMALLEST_NORMAL
            far = square > FAR * unit
            vectors[far], bound[far] = 0.0, np.nan
        return Screen(u.astype(np.float32), v.astype(np.float32), a, b, unit)

    def scanner(self, f: np.ndarray, g: np.ndarray) -> Callable[..., None]:
        a, b, unit = self.screen.a, self.screen.b, self.screen.unit
        screen = self.screen._replace(a=a - f / unit, b=b - g / unit)
        return partial(_scan.scan_points, self.tile, screen, self.points, f, g)


def unique_pairs(rows: np.ndarray, columns: np.ndarray, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Each pair once, row by row."""
    rows, columns = np.divmod(np.unique(rows * m + columns), max(1, m))
    return rows, columns
