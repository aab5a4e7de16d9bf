"""All pairs of low reduced cost, whatever the cost is made of; nothing of size n x m is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numba
import numpy as np

from adaptive_ot._jit import kernel, lower
from adaptive_ot._points import HALF_ULP, inner_product_bound, point_costs
from adaptive_ot._threads import run_together
from adaptive_ot.costs import ArrayCost, Cost, PointCost, SparseCost
from adaptive_ot.exact.limits import LIMITS, Limits


class Pairs(NamedTuple):
    """Sources, targets and costs of some pairs."""

    rows: np.ndarray
    columns: np.ndarray
    costs: np.ndarray


@kernel
def row_counts(costs, top, f, g, limit, counts):
    """How many pairs of every row have a reduced cost below the limit."""
    for k in range(costs.shape[0]):
        row, most = costs[k], f[top + k] + limit
        found = 0
        for j in range(g.size):
            found += row[j] - g[j] < most
        counts[k] = found


@kernel
def list_row_pairs(costs, top, f, g, limit, counts, rows, columns):
    """List them, row by row."""
    at = 0
    for k in range(costs.shape[0]):
        if counts[k] == 0:
            continue
        row, most = costs[k], f[top + k] + limit
        for j in range(g.size):
            if row[j] - g[j] < most:
                rows[at], columns[at] = top + k, j
                at += 1


@kernel
def lowest_of_block(costs, f, g):
    """The lowest reduced cost of the rows where f and the columns where g is finite."""
    lowest = np.inf
    for k in range(costs.shape[0]):
        if f[k] > -np.inf:
            row, in_row = costs[k], np.inf
            for j in range(g.size):
                in_row = lower(in_row, row[j] - g[j])
            lowest = min(lowest, in_row - f[k])
    return lowest


@kernel
def largest_of_block(costs):
    """The largest finite cost."""
    largest = -np.inf
    for k in range(costs.shape[0]):
        for j in range(costs.shape[1]):
            if costs[k, j] < np.inf:
                largest = max(largest, costs[k, j])
    return largest


@kernel
def lower_minima(costs, f, of_rows, of_columns):
    """Take in the smallest C_ij of every row and the smallest C_ij - f_i of every column."""
    for k in range(costs.shape[0]):
        row, f_k, lowest = costs[k], f[k], np.inf
        for j in range(of_columns.size):
            lowest = lower(lowest, np.float64(row[j]))
            of_columns[j] = lower(of_columns[j], row[j] - f_k)
        of_rows[k] = lowest


class NearPairs:
    """Looks for pairs by their reduced cost C_ij - f_i - g_j."""

    def __init__(self, cost: Cost, limits: Limits = LIMITS) -> None:
        self.cost, self.shape, self.limits = cost, cost.shape, limits
        self.rows_per_block = max(1, limits.pairs_per_block // max(1, cost.shape[1]))
        # A lower bound of every cost, within rounding of it: no pair is missed.
        self.points = inner_product_bound(cost, HALF_ULP) if isinstance(cost, PointCost) else ()
        # No distance is negative, even where the bound, by rounding, is.
        self.least = -cost.offset if isinstance(cost, PointCost) and cost.p.shape[1] == 0 else -np.inf
        self.listed = Pairs(*cost.pairs_below(np.inf)) if isinstance(cost, SparseCost) else None

    def below(self, f: np.ndarray, g: np.ndarray, limit: float, most: int) -> Pairs | None:
        """The pairs of a reduced cost below the limit, or None if there are more than `most`."""
        if self.listed:
            rows, columns, costs = self.listed
            near = costs - f[rows] - g[columns] < limit
            return Pairs(rows[near], columns[near], costs[near]) if np.count_nonzero(near) <= most else None
        parts: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        found: list[int] = []  # in each block; appending is safe between threads

        def look(top: int, costs: np.ndarray) -> None:
            if sum(found) > most:
                return
            counts = np.empty(len(costs), np.int64)
            row_counts(costs, top, f, g, limit, counts)
            total = int(counts.sum())
            found.append(total)
            if 0 < total <= most:
                rows, columns = parts[top] = np.empty(total, np.int64), np.empty(total, np.int64)
                list_row_pairs(costs, top, f, g, limit, counts, rows, columns)

        self._in_threads(look)
        if sum(found) > most:
            return None
        nothing = np.zeros(0, np.int64)
        rows, columns = (np.concatenate([nothing, *(parts[top][side] for top in sorted(parts))]) for side in (0, 1))
        return Pairs(rows, columns, self.cost.entries(rows, columns))

    def lowest(self, f: np.ndarray, g: np.ndarray) -> float:
        """The lowest reduced cost, or a little less; a potential of -inf leaves a point out."""
        if self.listed:
            rows, columns, costs = self.listed
            return float((costs - f[rows] - g[columns]).min(initial=np.inf))
        found = [np.inf]

        def look(top: int, costs: np.ndarray) -> None:
            found.append(lowest_of_block(costs, f[top : top + len(costs)], g))

        self._in_threads(look)
        return float(min(found))

    def quantile(self, f: np.ndarray, g: np.ndarray, count: float) -> float:
        """About which reduced cost so many pairs are below, from a sample of rows."""
        if self.listed:
            rows, columns, costs = self.listed
            sample, share = costs - f[rows] - g[columns], count / max(1, costs.size)
        else:
            n, m = self.shape
            rows = range(0, n, 1 + n // self.limits.rows_sampled)
            sample = np.concatenate([self.cost.block(i, i + 1)[0] - f[i] - g for i in rows])
            share = count / (n * m)
        sample = sample[(sample > 0) & np.isfinite(sample)]
        return float(np.quantile(sample, min(1.0, share))) if sample.size else 1.0

    def largest(self) -> float:
        """The largest cost of a pair that is allowed, or a little less; 0 if there is none."""
        found = [-np.inf]
        if self.listed:
            found.append(self.listed.costs.max(initial=-np.inf))
        else:
            self._in_threads(lambda _, costs: found.append(largest_of_block(costs)))
        largest = float(max(found))
        return largest if largest > -np.inf else 0.0

    def minima(self, f: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The smallest C_ij of every source and the smallest C_ij - f_i of every target, or a little less."""
        n, m = self.shape
        of_rows, of_columns = np.full(n, np.inf), np.full(m, np.inf)
        if self.listed:
            rows, columns, costs = self.listed
            np.minimum.at(of_rows, rows, costs)
            np.minimum.at(of_columns, columns, costs - f[rows])
            return of_rows, of_columns
        by_block = [of_columns]

        def look(top: int, costs: np.ndarray) -> None:
            own = np.full(m, np.inf)
            rows = slice(top, top + len(costs))
            lower_minima(costs, f[rows], of_rows[rows], own)
            by_block.append(own)

        self._in_threads(look)
        least = self.least - f.max(initial=0.0)
        return np.maximum(of_rows, self.least), np.maximum(np.min(by_block, axis=0), least)

    def _in_threads(self, look: Callable[[int, np.ndarray], None]) -> None:
        """Have every block of rows looked at."""
        n, m = self.shape
        threads = min(numba.get_num_threads(), n * m // self.limits.pairs_per_thread + 1)
        cuts = [n * k // threads for k in range(threads + 1)]

        def share(start: int, stop: int) -> None:
            for top, costs in self._blocks(start, stop):
                look(top, costs)

        run_together([partial(share, cuts[k], cuts[k + 1]) for k in range(threads)])

    def _blocks(self, start: int, stop: int) -> Iterator[tuple[int, np.ndarray]]:
        for top in range(start, stop, self.rows_per_block):
            bottom = min(top + self.rows_per_block, stop)
            if isinstance(self.cost, ArrayCost):
                yield top, self.cost.block(top, bottom)
            else:
                tile = np.empty((bottom - top, self.shape[1]))
                point_costs(*self.points, top, tile)
                yield top, tile
