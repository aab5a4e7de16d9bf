"""Cells of points: pricing in few dimensions, where whole cells of partners can be skipped.

A cloud is halved at the median of its widest coordinate, each half is halved again, and so on. Cell c of the 2**k cells
of depth k is node 2**k + c of a binary tree, and a slice of the points in the order of the tree.

With C_ij = a_i + b_j - <u_i, v_j>, every cell of targets has a centre c and an affine function below h_j = b_j - g_j,

    h_j >= floor + <slope, v_j - c>     for all j in the cell.

The reduced cost of a source i is therefore, for all targets in a box of half widths r around c, at least

    a_i - f_i - <u_i, c> + floor - sum_k |slope_k - u_ik| r_k.

The slope matters: near the partners of i, it cancels u_i, and the bound is off only by the curvature of h. The same
holds with the sides exchanged.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from adaptive_ot._jit import inlined, kernel
from adaptive_ot._points import HALF_ULP
from adaptive_ot.exact.pricing import PointPricing, Tick, Violated, unique_pairs
from adaptive_ot.exact.scan import Best, Points, insert, pair_cost

# Cells of the lowest depth hold at most about this many points.
POINTS_PER_CELL = 6

# Share of the variance that is added to it in every direction, so that a slope exists for points on a line.
RIDGE = 1e-6


class Cells(NamedTuple):
    """A tree of cells: the points in its order, and centre and half widths of the box of every node."""

    order: np.ndarray
    points: np.ndarray
    depth: int
    centre: np.ndarray
    half: np.ndarray

    @classmethod
    def of(cls, points: np.ndarray) -> Cells:
        """Sort points into cells."""
        n, d = points.shape
        depth = (n // POINTS_PER_CELL).bit_length()
        order = np.arange(n)
        sort_into_cells(points, depth, order)
        cells = cls(order, points[order], depth, np.zeros((2 << depth, d)), np.zeros((2 << depth, d)))
        fill_boxes(cells.points, depth, cells.centre, cells.half)
        return cells


class Side(NamedTuple):
    """The points of one side in the order of their cells, with their potentials.

    `value` of a point is its own term of the cost minus its potential. The affine function of a cell is below them.
    """

    cells: Cells
    value: np.ndarray
    potential: np.ndarray
    floor: np.ndarray
    slope: np.ndarray

    @classmethod
    def of(cls, cells: Cells, terms: np.ndarray, potential: np.ndarray) -> Side:
        """The side with these cells, terms of the cost and potentials."""
        value, nodes = (terms - potential)[cells.order], len(cells.centre)
        side = cls(cells, value, potential[cells.order], np.full(nodes, np.inf), np.zeros(cells.centre.shape))
        fit(cells, value, side.floor, side.slope)
        return side


@kernel
def sort_into_cells(points, depth, order):
    """Reorder `order` so that cell c of the 2**k cells of every depth k is the slice n c >> k : n (c + 1) >> k."""
    n = order.size
    for k in range(depth):
        for cell in range(1 << k):
            start, middle, stop = n * cell >> k, n * (2 * cell + 1) >> (k + 1), n * (cell + 1) >> k
            if start < middle < stop:
                _split(points, _widest(points, order, start, stop), order, start, middle, stop - 1)


@kernel
def _widest(points, order, start, stop):
    """The coordinate in which some points extend farthest."""
    best, widest = -1.0, 0
    for c in range(points.shape[1]):
        low, high = np.inf, -np.inf
        for k in range(start, stop):
            low, high = min(low, points[order[k], c]), max(high, points[order[k], c])
        if high - low > best:
            best, widest = high - low, c
    return widest


@kernel
def _split(points, c, order, first, middle, last):
    """Reorder first..last so that no coordinate before `middle` exceeds the one there, and none behind is below it."""
    while first < last:
        pivot = points[order[(first + last) // 2], c]
        a, b = first, last
        while a <= b:
            while points[order[a], c] < pivot:
                a += 1
            while points[order[b], c] > pivot:
                b -= 1
            if a <= b:
                order[a], order[b] = order[b], order[a]
                a += 1
                b -= 1
        if middle <= b:
            last = b
        elif middle >= a:
            first = a
        else:
            return


@kernel
def fill_boxes(points, depth, centre, half):
    """Fill in the boxes of all nodes."""
    n, d = points.shape
    for k in range(depth + 1):
        for cell in range(1 << k):
            node, start, stop = (1 << k) + cell, n * cell >> k, n * (cell + 1) >> k
            for c in range(d if start < stop else 0):
                low, high = np.inf, -np.inf
                for j in range(start, stop):
                    low, high = min(low, points[j, c]), max(high, points[j, c])
                middle = low + (high - low) / 2
                centre[node, c] = middle
                half[node, c] = max(high - middle, middle - low)


@kernel
def fit(cells, values, floor, slope):
    """Fill in the functions below the values of the points, in the order of the cells: slopes by least squares."""
    points, (n, d) = cells.points, cells.points.shape
    square, product, mean = np.empty((d, d)), np.empty(d), np.empty(d)
    for k in range(cells.depth + 1):
        for cell in range(1 << k):
            node, start, stop = (1 << k) + cell, n * cell >> k, n * (cell + 1) >> k
            _moments(points, values, start, stop, mean, square, product)
            _solve(square, product)
            slope[node] = product
            for j in range(start, stop):
                value, size = values[j], abs(values[j])
                for c in range(d):
                    rise = slope[node, c] * (points[j, c] - cells.centre[node, c])
                    value -= rise
                    size += abs(rise)
                floor[node] = min(floor[node], value - 2 * (d + 2) * HALF_ULP * size)


@kernel
def _moments(points, values, start, stop, mean, square, product):
    """The covariances of the coordinates of some points with each other (lower half) and with the values."""
    d = mean.size
    mean[:], square[:], product[:] = 0.0, 0.0, 0.0
    middle = 0.0
    for j in range(start, stop):
        middle += values[j] / (stop - start)
        for c in range(d):
            mean[c] += points[j, c] / (stop - start)
    for j in range(start, stop):
        for c in range(d):
            offset = points[j, c] - mean[c]
            product[c] += offset * (values[j] - middle)
            for e in range(c + 1):
                square[c, e] += offset * (points[j, e] - mean[e])


@kernel
def _solve(square, product):
    """Replace `product` by the solution of square y = product, given the lower half of `square`; 0 where it fails."""
    d = product.size
    ridge = 0.0
    for c in range(d):
        ridge += RIDGE * square[c, c]
    for c in range(d):
        square[c, c] += ridge
    for c in range(d):
        for e in range(c + 1, d):
            factor = square[e, c] / square[c, c]
            for k in range(e, d):
                square[k, e] -= factor * square[k, c]
            product[e] -= factor * product[c]
    for c in range(d - 1, -1, -1):
        for e in range(c + 1, d):
            product[c] -= square[e, c] * product[e]
        product[c] /= square[c, c]
        if not abs(product[c]) < np.inf:
            product[:] = 0.0
            return


@inlined
def _bound(node, vector, value, side):
    """A lower bound on the reduced costs of a point on the other side with all points of a node."""
    bound, size = value + side.floor[node], abs(value) + abs(side.floor[node])
    for c in range(vector.size):
        along = vector[c] * side.cells.centre[node, c]
        across = abs(side.slope[node, c] - vector[c]) * side.cells.half[node, c]
        bound -= along + across
        size += abs(along) + across + 2 * abs(vector[c]) * side.cells.half[node, c]
    return bound - 4 * (vector.size + 4) * HALF_ULP * size


@kernel
def search(points, own, other, first, last, best):
    """Find the partners of lowest reduced cost of the points from `first` to `last`.

    `points` are in the order of both sides.
    """
    n, depth, place = other.value.size, other.cells.depth, best.value.shape[1] - 1
    stack, bounds = np.empty(64, np.int64), np.empty(64)
    for i in range(first, last):
        vector, value = own.cells.points[i], own.value[i]
        stack[0], bounds[0], size = 1, -np.inf, 1
        while size > 0:
            size -= 1
            node, bound = stack[size], bounds[size]
            # Bounds may be NaN, which stems from overflow; only cells that are surely too expensive are skipped.
            while not bound >= best.value[i, place] and node < 1 << depth:
                node, far = 2 * node, 2 * node + 1
                bound, of_far = _bound(node, vector, value, other), _bound(far, vector, value, other)
                if of_far < bound:
                    node, far, bound, of_far = far, node, of_far, bound
                stack[size], bounds[size] = far, of_far
                size += 1
            if bound >= best.value[i, place]:
                continue
            cell = node - (1 << depth)
            for j in range(n * cell >> depth, n * (cell + 1) >> depth):
                reduced = pair_cost(points, i, j) - own.potential[i] - other.potential[j]
                if reduced < best.value[i, place]:
                    insert(best, i, reduced, j)


class CellPricing(PointPricing):
    """Finds violated pairs by searching the cells of the other side for every point."""

    @cached_property
    def cells(self) -> tuple[Cells, Cells]:
        """The cells of the sources and of the targets."""
        u, v, _, _ = self.bound
        return Cells.of(u), Cells.of(v)

    def violated(self, f: np.ndarray, g: np.ndarray, keep: int, tick: Tick) -> Violated:
        source, target, points = self._sides(f, g)
        by_row = self._lowest(points, source, target, keep)
        tick(0.5)
        by_column = self._lowest(points.transposed(), target, source, keep)
        tick(1.0)
        (i, to_column), (j, to_row) = by_row.pairs(), by_column.pairs()
        rows = source.cells.order[np.append(i, to_row)]
        columns = target.cells.order[np.append(to_column, j)]
        rows, columns = unique_pairs(rows, columns, self.shape[1])
        target_minimum = _unordered(by_column.value[:, 0], target)
        return Violated(rows, columns, self.cost.entries(rows, columns), target_minimum)

    def lowest_of_targets(self, f: np.ndarray, g: np.ndarray, tick: Tick) -> np.ndarray:
        source, target, points = self._sides(f, g)
        lowest = self._lowest(points.transposed(), target, source, 1).value[:, 0]
        tick(1.0)
        return _unordered(lowest, target)

    def _sides(self, f: np.ndarray, g: np.ndarray) -> tuple[Side, Side, Points]:
        """Sources and targets with these potentials, and the points in the order of both."""
        _, _, a, b = self.bound
        of_sources, of_targets = self.cells
        points = self.points.part(of_sources.order, of_targets.order)
        return Side.of(of_sources, a, f), Side.of(of_targets, b, g), points

    def _lowest(self, points: Points, own: Side, other: Side, keep: int) -> Best:
        best = Best.none(own.value.size, keep)
        self._share(lambda first, last: search(points, own, other, first, last, best), 0, own.value.size)
        return best


def _unordered(values: np.ndarray, side: Side) -> np.ndarray:
    """Values in the order of the cells of a side, put in the order of its points."""
    result = np.empty(values.size)
    result[side.cells.order] = values
    return result
