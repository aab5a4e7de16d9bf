"""Pricing: which pairs would improve a solution with potentials f and g, that is, have C_ij - f_i - g_j < 0?

Each pricing goes over *all* pairs and keeps, for every source and every target, the few pairs of lowest reduced cost.
Nothing of size n x m is stored. It also returns the lowest reduced cost of every target, and this is the certificate:
lowering g by it makes the potentials feasible.

Point clouds are screened in float32, where a tile of the cost matrix is one matrix product. The screen has a rigorous
margin: a pair that it passes over cannot have a reduced cost below the limit. What it flags is evaluated in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Protocol

import numba
import numpy as np

from adaptive_ot.costs import ArrayCost, Cost, PointCost, SparseCost
from adaptive_ot.solvers._jit import inlined, kernel

Tick = Callable[[float], None]

# Pairs looked at together: if none of them is below its limit, which is the rule, this takes a few vector instructions.
CHUNK = 128

# The threads meet after blocks of this many rows (points) or entries (dense), where the kept pairs are merged and
# Ctrl-C is heard.
ROWS_PER_BLOCK = 512
ENTRIES_PER_BLOCK = 4_000_000

# Up to this size, or this many negative pairs a node, there is nothing to generate: all negative pairs are arcs.
SMALL = 256 * 256
FEW_PAIRS_PER_NODE = 32

HALF_ULP = 2.0**-24  # rounding error of one float32 operation

# Matrix products of at most this many multiplications stay on the calling thread in OpenBLAS, as ours should: we have
# threads of our own. Where points have many dimensions, larger tiles are worth more than that.
PRODUCT_ON_ONE_THREAD = 2**18


class Violated(NamedTuple):
    """Pairs of negative reduced cost, with their costs, and the lowest reduced cost (at most 0) of every target."""

    rows: np.ndarray
    columns: np.ndarray
    costs: np.ndarray
    target_minimum: np.ndarray


class Pricing(Protocol):
    """Finds violated pairs; `keep` is how many to keep for each source and each target."""

    def violated(self, f: np.ndarray, g: np.ndarray, keep: int, tolerance: float, tick: Tick) -> Violated: ...


def pricing_for(cost: Cost) -> Pricing:
    """The pricing that suits a cost."""
    if isinstance(cost, SparseCost):
        matrix = cost.matrix
        rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
        negative = matrix.data < 0
        return ListedPricing(rows[negative], matrix.indices[negative].astype(np.int64), matrix.data[negative], cost.shape)
    if cost.shape[0] * cost.shape[1] <= SMALL:
        costs = cost.block(0, cost.shape[0]).ravel()
        negative = np.flatnonzero(costs < 0)
        rows, columns = np.divmod(negative, max(1, cost.shape[1]))
        return ListedPricing(rows, columns, costs[negative].astype(np.float64), cost.shape)
    if cost.kind.on_gpu:
        from adaptive_ot.solvers._pricing_torch import TorchPricing

        return TorchPricing(cost)
    return PointPricing(cost) if isinstance(cost, PointCost) else DensePricing(cost)


class Best:
    """For each of `size` nodes the `keep` partners of lowest reduced cost below zero, in ascending order."""

    def __init__(self, size: int, keep: int) -> None:
        self.value = np.zeros((size, keep))
        self.partner = np.full((size, keep), -1, np.int32)

    def below(self, limit: float) -> tuple[np.ndarray, np.ndarray]:
        """Nodes and partners of all kept pairs with a reduced cost below `limit` (at most 0)."""
        node, place = np.nonzero(self.value < limit)
        return node, self.partner[node, place].astype(np.int64)


@inlined
def _insert(value, partner, node, reduced, other):
    """Put a pair that beats the last one kept into its place."""
    place = value.shape[1] - 1
    while place > 0 and value[node, place - 1] > reduced:
        value[node, place] = value[node, place - 1]
        partner[node, place] = partner[node, place - 1]
        place -= 1
    value[node, place] = reduced
    partner[node, place] = other


@kernel
def _merge(value, partner, other_value, other_partner):
    """Merge what another thread kept for the same nodes."""
    last = value.shape[1] - 1
    for node in range(value.shape[0]):
        for place in range(last + 1):
            if other_value[node, place] < value[node, last]:
                _insert(value, partner, node, other_value[node, place], other_partner[node, place])


@kernel
def _below(rows, columns, costs, f, g, limit, target_minimum):
    """Which listed pairs have a reduced cost below `limit`; fills in the minimum of every target."""
    found = np.empty(rows.size, np.bool_)
    for k in range(rows.size):
        reduced = costs[k] - f[rows[k]] - g[columns[k]]
        found[k] = reduced < limit
        target_minimum[columns[k]] = min(target_minimum[columns[k]], reduced)
    return found


@kernel
def _scan_list(rows, columns, costs, f, g, row_value, row_partner, column_value, column_partner):
    last = row_value.shape[1] - 1
    for k in range(rows.size):
        i, j = rows[k], columns[k]
        reduced = costs[k] - f[i] - g[j]
        if reduced < row_value[i, last]:
            _insert(row_value, row_partner, i, reduced, j)
        if reduced < column_value[j, last]:
            _insert(column_value, column_partner, j, reduced, i)


@kernel
def _scan_dense(costs, top, bottom, start, stop, f, g, row_value, row_partner, column_value, column_partner):
    """Price the rows top:bottom and columns start:stop of a dense matrix."""
    last = row_value.shape[1] - 1
    limits = column_value[start:stop, last].copy()
    for i in range(top, bottom):
        row = i - top
        f_i = f[i]
        for left in range(start, stop, CHUNK):
            chunk = costs[i, left : min(left + CHUNK, stop)]
            potentials = g[left : left + chunk.size]
            chunk_limits = limits[left - start : left - start + chunk.size]
            row_limit = row_value[row, last]
            hits = 0
            for k in range(chunk.size):
                limit = chunk_limits[k] if chunk_limits[k] > row_limit else row_limit
                hits += 1 if chunk[k] - f_i - potentials[k] < limit else 0
            if hits == 0:
                continue
            for k in range(chunk.size):
                reduced = chunk[k] - f_i - potentials[k]
                if reduced < row_value[row, last]:
                    _insert(row_value, row_partner, row, reduced, left + k)
                if reduced < chunk_limits[k]:
                    _insert(column_value, column_partner, left + k, reduced, i)
                    chunk_limits[k] = column_value[left + k, last]


class Points(NamedTuple):
    """A point cost as kernels take it."""

    x: np.ndarray
    z: np.ndarray
    p: np.ndarray
    q: np.ndarray
    distance_weight: float
    class_weight: float
    offset: float


@inlined
def _pair_cost(points, i, j):
    square, agreement = 0.0, 0.0
    for k in range(points.x.shape[1]):
        difference = points.x[i, k] - points.z[j, k]
        square += difference * difference
    for k in range(points.p.shape[1]):
        agreement += points.p[i, k] * points.q[j, k]
    return points.distance_weight * square - points.class_weight * agreement - points.offset


@inlined
def _round_down(value):
    """A float32 below `value` by more than the rounding of one float32 addition can undo."""
    return np.float32(value - 4 * HALF_ULP * abs(value))


@inlined
def _scan_products(
    products, i, row, first, a, b, plain, limited, unit, points, f, g, row_value, row_partner, column_value, column_partner
):
    """Price the pairs of row i with the columns from `first` on, given their inner products.

    In units of the screen the reduced cost of (i, j) is at least a_i + b_j - t_ij, so a pair matters only if t_ij
    exceeds a_i + b_j - limit for the limit of its row or of its column. NaN (from overflow) counts as exceeding.
    """
    last = row_value.shape[1] - 1
    a_plain = _round_down(a[i])
    for left in range(0, products.size, CHUNK):
        chunk = products[left : min(left + CHUNK, products.size)]
        chunk_plain = plain[left : left + chunk.size]
        chunk_limited = limited[left : left + chunk.size]
        a_limited = _round_down(a[i] - row_value[row, last] / unit)
        hits = 0
        for k in range(chunk.size):
            by_row, by_column = a_limited + chunk_plain[k], a_plain + chunk_limited[k]
            bound = by_column if by_column < by_row else by_row
            hits += 0 if chunk[k] <= bound else 1
        if hits == 0:
            continue
        for k in range(chunk.size):
            if chunk[k] <= a_limited + chunk_plain[k] and chunk[k] <= a_plain + chunk_limited[k]:
                continue
            j = first + left + k
            reduced = _pair_cost(points, i, j) - f[i] - g[j]
            if reduced < row_value[row, last]:
                _insert(row_value, row_partner, row, reduced, j)
                a_limited = _round_down(a[i] - row_value[row, last] / unit)
            if reduced < column_value[j, last]:
                _insert(column_value, column_partner, j, reduced, i)
                chunk_limited[k] = _round_down(b[j] - column_value[j, last] / unit)


@kernel
def _scan_points(
    top, bottom, start, stop, tile, u, v, a, b, unit, points, f, g, row_value, row_partner, column_value, column_partner
):
    """Price the rows top:bottom and columns start:stop of a point cost, one tile of inner products after the other."""
    last = row_value.shape[1] - 1
    products = np.empty(tile[0] * tile[1], np.float32)
    plain, limited = np.empty(tile[1], np.float32), np.empty(tile[1], np.float32)
    for left in range(start, stop, tile[1]):
        columns = v[left : min(left + tile[1], stop)]
        width = columns.shape[0]
        for k in range(width):
            j = left + k
            plain[k] = _round_down(b[j])
            limited[k] = _round_down(b[j] - column_value[j, last] / unit)
        for first in range(top, bottom, tile[0]):
            rows = u[first : min(first + tile[0], bottom)]
            out = products[: rows.shape[0] * width].reshape(rows.shape[0], width)
            np.dot(rows, columns.T, out)
            for k in range(rows.shape[0]):
                _scan_products(
                    out[k], first + k, first + k - top, left, a, b, plain, limited, unit, points, f, g,
                    row_value, row_partner, column_value, column_partner,
                )  # fmt: skip


class ListedPricing:
    """Pricing where the negative pairs are few enough, or sparse by nature, to be listed."""

    def __init__(self, rows: np.ndarray, columns: np.ndarray, costs: np.ndarray, shape: tuple[int, int]) -> None:
        self.rows, self.columns, self.costs, self.shape = rows, columns, costs, shape

    def violated(self, f: np.ndarray, g: np.ndarray, keep: int, tolerance: float, tick: Tick) -> Violated:
        n, m = self.shape
        rows, columns, costs = self.rows, self.columns, self.costs
        if rows.size > FEW_PAIRS_PER_NODE * (n + m) and n * m > SMALL:
            by_row, by_column = Best(n, keep), Best(m, keep)
            _scan_list(rows, columns, costs, f, g, by_row.value, by_row.partner, by_column.value, by_column.partner)
            (i, to_column), (j, to_row) = by_row.below(-tolerance), by_column.below(-tolerance)
            i, j = unique_pairs(np.append(i, to_row), np.append(to_column, j), m)
            tick(1.0)
            return Violated(i, j, self._costs(i, j), by_column.value[:, 0])
        target_minimum = np.zeros(m)
        found = _below(rows, columns, costs, f, g, -tolerance, target_minimum)
        tick(1.0)
        return Violated(rows[found], columns[found], costs[found], target_minimum)

    def _costs(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        # Pairs are listed row by row, columns ascending, so that one key orders them.
        m = self.shape[1]
        return self.costs[np.searchsorted(self.rows * m + self.columns, rows * m + columns)]


class ThreadedPricing:
    """Goes over all pairs in blocks of rows, the columns split between threads."""

    cost: Cost
    rows_per_block: int
    f: np.ndarray
    g: np.ndarray

    def prepare(self, f: np.ndarray, g: np.ndarray) -> None:
        """Take in new potentials."""
        self.f, self.g = f, g

    def scan(self, top: int, bottom: int, start: int, stop: int, by_row: Best, by_column: Best) -> None:
        """Price the rows top:bottom and columns start:stop."""
        raise NotImplementedError

    def violated(self, f: np.ndarray, g: np.ndarray, keep: int, tolerance: float, tick: Tick) -> Violated:
        n, m = self.cost.shape
        self.prepare(f, g)
        threads = numba.get_num_threads()
        cuts = [m * k // threads for k in range(threads + 1)]
        by_column = Best(m, keep)
        rows, columns = [], []
        with ThreadPoolExecutor(threads) as pool:
            for top in range(0, n, self.rows_per_block):
                bottom = min(top + self.rows_per_block, n)
                by_row = [Best(bottom - top, keep) for _ in range(threads)]
                jobs = [
                    pool.submit(self.scan, top, bottom, cuts[k], cuts[k + 1], by_row[k], by_column)
                    for k in range(threads)
                ]
                for job in jobs:
                    job.result()
                for best in by_row[1:]:
                    _merge(by_row[0].value, by_row[0].partner, best.value, best.partner)
                i, j = by_row[0].below(-tolerance)
                rows.append(i + top)
                columns.append(j)
                tick(bottom / n)
        j, i = by_column.below(-tolerance)
        i, j = unique_pairs(np.concatenate([*rows, i]), np.concatenate([*columns, j]), m)
        return Violated(i, j, self.cost.entries(i, j), by_column.value[:, 0])


class DensePricing(ThreadedPricing):
    """Pricing of a dense cost matrix in memory."""

    def __init__(self, cost: ArrayCost) -> None:
        self.cost = cost
        self.array = cost.array
        self.rows_per_block = max(1, ENTRIES_PER_BLOCK // cost.shape[1])

    def scan(self, top: int, bottom: int, start: int, stop: int, by_row: Best, by_column: Best) -> None:
        _scan_dense(
            self.array, top, bottom, start, stop, self.f, self.g,
            by_row.value, by_row.partner, by_column.value, by_column.partner,
        )  # fmt: skip


class PointPricing(ThreadedPricing):
    """Pricing of a point cost, whose matrix is s_i + t_j - <u_i, v_j> - offset.

    For the screen the vectors are scaled to norms of at most 1, which keeps float32 from overflowing.
    """

    rows_per_block = ROWS_PER_BLOCK

    def __init__(self, cost: PointCost) -> None:
        self.cost = cost
        self.points = Points(cost.x, cost.z, cost.p, cost.q, cost.distance_weight, cost.class_weight, cost.offset)
        u, v, s, t = inner_product_form(cost)
        u_square, v_square = np.einsum("ij,ij->i", u, u), np.einsum("ij,ij->i", v, v)
        self.unit = max(u_square.max(), v_square.max()) or 1.0
        scale = np.sqrt(self.unit)
        self.u, self.v = (u / scale).astype(np.float32), (v / scale).astype(np.float32)
        # In any order of summation |fl(<u, v>) - <u, v>| <= (d + 8) eps |u| |v|, at most half of that times |u|^2 + |v|^2.
        dimension = u.shape[1]
        error = (dimension + 8) * HALF_ULP / 2
        self.a = (s - cost.offset - error * u_square) / self.unit
        self.b = (t - error * v_square) / self.unit
        self.tile = (64, min(256, PRODUCT_ON_ONE_THREAD // (64 * max(1, dimension)))) if dimension <= 32 else (256, 1024)

    def prepare(self, f: np.ndarray, g: np.ndarray) -> None:
        super().prepare(f, g)
        self.a_now = self.a - f / self.unit
        self.b_now = self.b - g / self.unit

    def scan(self, top: int, bottom: int, start: int, stop: int, by_row: Best, by_column: Best) -> None:
        _scan_points(
            top, bottom, start, stop, self.tile, self.u, self.v, self.a_now, self.b_now, self.unit, self.points,
            self.f, self.g, by_row.value, by_row.partner, by_column.value, by_column.partner,
        )  # fmt: skip


def inner_product_form(cost: PointCost) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """u, v, s, t with C_ij = s_i + t_j - <u_i, v_j> - offset, in float64 and centred."""
    n, m = cost.shape
    centre = (cost.x.sum(axis=0) + cost.z.sum(axis=0)) / max(1, n + m)
    far, near = np.sqrt(2 * cost.distance_weight), np.sqrt(cost.class_weight)
    u_distance, v_distance = far * (cost.x - centre), far * (cost.z - centre)
    u = np.hstack([u_distance, near * cost.p])
    v = np.hstack([v_distance, near * cost.q])
    return u, v, np.einsum("ij,ij->i", u_distance, u_distance) / 2, np.einsum("ij,ij->i", v_distance, v_distance) / 2


def unique_pairs(rows: np.ndarray, columns: np.ndarray, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Each pair once, row by row."""
    key = np.unique(rows * m + columns)
    return key // max(1, m), key % max(1, m)
