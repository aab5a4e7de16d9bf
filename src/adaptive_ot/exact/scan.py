"""The kernels of pricing: go over pairs and look for low reduced costs C_ij - f_i - g_j."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba.extending import register_jitable

from adaptive_ot._jit import inlined, kernel, lower

# Pairs examined together: usually none of them is below its limit, and the check takes a few vector instructions.
CHUNK = 128

HALF_ULP_FLOAT32 = 2.0**-24  # rounding error of one float32 operation


class Best(NamedTuple):
    """For each node, the partners of lowest (negative) reduced cost, in ascending order; -1 marks an empty place."""

    value: np.ndarray
    partner: np.ndarray

    @classmethod
    def none(cls, nodes: int, keep: int) -> Best:
        """Empty places for `keep` partners of each node."""
        return cls(np.zeros((nodes, keep)), np.full((nodes, keep), -1, np.int32))

    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Nodes and partners of all kept pairs."""
        node, place = np.nonzero(self.value < 0)
        return node, self.partner[node, place].astype(np.int64)


class Points(NamedTuple):
    """A point cost as kernels take it."""

    x: np.ndarray
    z: np.ndarray
    p: np.ndarray
    q: np.ndarray
    distance_weight: float
    class_weight: float
    offset: float

    def part(self, rows: np.ndarray, columns: np.ndarray) -> Points:
        """Some of the points, in this order."""
        return self._replace(x=self.x[rows], z=self.z[columns], p=self.p[rows], q=self.q[columns])

    def transposed(self) -> Points:
        """Sources and targets exchanged."""
        return self._replace(x=self.z, z=self.x, p=self.q, q=self.p)


class Screen(NamedTuple):
    """A lower bound on reduced costs, cheap in float32: unit * (a_i + b_j - <u_i, v_j>) for the pair (i, j)."""

    u: np.ndarray
    v: np.ndarray
    a: np.ndarray
    b: np.ndarray
    unit: float


@inlined
def insert(best, node, reduced, other):
    """Insert a pair that is better than the last one kept, in order."""
    place = best.value.shape[1] - 1
    while place > 0 and best.value[node, place - 1] > reduced:
        best.value[node, place] = best.value[node, place - 1]
        best.partner[node, place] = best.partner[node, place - 1]
        place -= 1
    best.value[node, place] = reduced
    best.partner[node, place] = other


@kernel
def merge(best, others):
    """Merge the pairs that another thread kept for the same nodes."""
    last = best.value.shape[1] - 1
    for node in range(best.value.shape[0]):
        for place in range(last + 1):
            if others.value[node, place] < best.value[node, last]:
                insert(best, node, others.value[node, place], others.partner[node, place])


@register_jitable
def pairs_below(costs, limit, most):
    """Rows, columns and costs of the entries of a dense matrix below the limit; stops after more than `most`."""
    size = min(costs.size, most + 1)
    rows, columns, values = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size)
    found = _list_below(costs, limit, rows, columns, values)
    return rows[:found], columns[:found], values[:found]


@kernel
def _list_below(costs, limit, rows, columns, values):
    """List the entries below the limit until the arrays are full; returns how many are listed."""
    found = 0
    for i in range(costs.shape[0]):
        for j in range(costs.shape[1]):
            if costs[i, j] < limit and found < rows.size:
                rows[found], columns[found], values[found] = i, j, costs[i, j]
                found += 1
    return found


@kernel
def count_below(costs, top, f, g, limit, counts):
    """Count the pairs of every row of a block whose reduced cost is below the limit; returns the total."""
    total = 0
    for k in range(costs.shape[0]):
        row, most = costs[k], f[top + k] + limit
        found = 0
        for j in range(g.size):
            found += row[j] - g[j] < most
        counts[k] = found
        total += found
    return total


@kernel
def list_below(costs, top, f, g, limit, counts, rows, columns):
    """List the counted pairs, row by row."""
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
def lower_minima(costs, f, of_rows, of_columns):
    """Find the smallest C_ij of every row and lower `of_columns` to the smallest C_ij - f_i; f_i = -inf skips a row."""
    for k in range(costs.shape[0]):
        row, f_k, lowest = costs[k], f[k], np.inf
        if f_k > -np.inf:
            for j in range(of_columns.size):
                lowest = lower(lowest, np.float64(row[j]))
                of_columns[j] = lower(of_columns[j], row[j] - f_k)
        of_rows[k] = lowest


@kernel
def find_negative(rows, columns, costs, f, g, negative, target_minimum):
    """Find which listed pairs have a negative reduced cost, and the minimum of every target."""
    for k in range(rows.size):
        reduced = costs[k] - f[rows[k]] - g[columns[k]]
        negative[k] = reduced < 0
        target_minimum[columns[k]] = min(target_minimum[columns[k]], reduced)


@kernel
def scan_list(rows, columns, costs, f, g, by_row, by_column):
    """Price listed pairs."""
    last = by_row.value.shape[1] - 1
    for k in range(rows.size):
        i, j = rows[k], columns[k]
        reduced = costs[k] - f[i] - g[j]
        if reduced < by_row.value[i, last]:
            insert(by_row, i, reduced, j)
        if reduced < by_column.value[j, last]:
            insert(by_column, j, reduced, i)


@kernel
def scan_dense(costs, f, g, top, bottom, start, stop, by_row, by_column):
    """Price the rows top:bottom and columns start:stop of a dense matrix."""
    last = by_row.value.shape[1] - 1
    limits = by_column.value[start:stop, last].copy()
    for i in range(top, bottom):
        row = i - top
        f_i = f[i]
        for left in range(start, stop, CHUNK):
            chunk = costs[i, left : min(left + CHUNK, stop)]
            potentials = g[left : left + chunk.size]
            column_limits = limits[left - start : left - start + chunk.size]
            row_limit = by_row.value[row, last]
            hits = 0
            for k in range(chunk.size):
                limit = column_limits[k] if column_limits[k] > row_limit else row_limit
                hits += 1 if chunk[k] - f_i - potentials[k] < limit else 0
            if hits == 0:
                continue
            for k in range(chunk.size):
                reduced = chunk[k] - f_i - potentials[k]
                if reduced < by_row.value[row, last]:
                    insert(by_row, row, reduced, left + k)
                if reduced < column_limits[k]:
                    insert(by_column, left + k, reduced, i)
                    column_limits[k] = by_column.value[left + k, last]


@inlined
def pair_cost(points, i, j):
    square, agreement = 0.0, 0.0
    for k in range(points.x.shape[1]):
        difference = points.x[i, k] - points.z[j, k]
        square += difference * difference
    for k in range(points.p.shape[1]):
        agreement += points.p[i, k] * points.q[j, k]
    return points.distance_weight * square - points.class_weight * agreement - points.offset


@inlined
def _round_down(value):
    """A float32 so far below `value` that the rounding of one float32 addition cannot undo it."""
    return np.float32(value - 4 * HALF_ULP_FLOAT32 * abs(value))


@inlined
def _scan_products(products, i, row, first, plain, limited, screen, points, f, g, by_row, by_column):
    """Price the pairs of row i with the columns from `first` on, given their inner products t.

    A pair matters only if t_ij exceeds a_i + b_j - limit for the limit of its row or of its column. NaN, which stems
    from overflow, counts as exceeding.
    """
    last = by_row.value.shape[1] - 1
    a_plain = _round_down(screen.a[i])
    for left in range(0, products.size, CHUNK):
        chunk = products[left : min(left + CHUNK, products.size)]
        b_plain = plain[left : left + chunk.size]
        b_limited = limited[left : left + chunk.size]
        a_limited = _round_down(screen.a[i] - by_row.value[row, last] / screen.unit)
        hits = 0
        for k in range(chunk.size):
            passed = (chunk[k] <= a_limited + b_plain[k]) & (chunk[k] <= a_plain + b_limited[k])
            hits += 0 if passed else 1
        if hits == 0:
            continue
        for k in range(chunk.size):
            if chunk[k] <= a_limited + b_plain[k] and chunk[k] <= a_plain + b_limited[k]:
                continue
            j = first + left + k
            reduced = pair_cost(points, i, j) - f[i] - g[j]
            if reduced < by_row.value[row, last]:
                insert(by_row, row, reduced, j)
                a_limited = _round_down(screen.a[i] - by_row.value[row, last] / screen.unit)
            if reduced < by_column.value[j, last]:
                insert(by_column, j, reduced, i)
                b_limited[k] = _round_down(screen.b[j] - by_column.value[j, last] / screen.unit)


@kernel
def scan_points(tile, screen, points, f, g, top, bottom, start, stop, by_row, by_column):
    """Price the rows top:bottom and columns start:stop of a point cost, one tile of inner products after the other."""
    last = by_row.value.shape[1] - 1
    products = np.empty(tile[0] * tile[1], np.float32)
    plain, limited = np.empty(tile[1], np.float32), np.empty(tile[1], np.float32)
    for left in range(start, stop, tile[1]):
        columns = screen.v[left : min(left + tile[1], stop)]
        width = columns.shape[0]
        for k in range(width):
            plain[k] = _round_down(screen.b[left + k])
            limited[k] = _round_down(screen.b[left + k] - by_column.value[left + k, last] / screen.unit)
        for first in range(top, bottom, tile[0]):
            rows = screen.u[first : min(first + tile[0], bottom)]
            out = products[: rows.shape[0] * width].reshape(rows.shape[0], width)
            np.dot(rows, columns.T, out)
            for k in range(rows.shape[0]):
                i = first + k
                _scan_products(out[k], i, i - top, left, plain, limited, screen, points, f, g, by_row, by_column)
