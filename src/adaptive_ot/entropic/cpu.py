"""`Softmin` in Numba kernels on threads, for costs of any size and kind on the CPU.

Entries of P that stay negligible all around the scalings it was made for are left out: at a small epsilon P is sparse,
and a sweep over all pairs costs next to nothing. Where P would be too large, it is made anew every time. The costs of
points then come from products in float32 at first, as if the points were elsewhere by a little, and from float64 later.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numba
import numpy as np

from adaptive_ot._points import inner_products, point_costs
from adaptive_ot._threads import run_together
from adaptive_ot.costs import SparseCost
from adaptive_ot.entropic import constants, kernels
from adaptive_ot.entropic.dense import solve_dense
from adaptive_ot.entropic.oracle import (
    NOTHING,
    RIDGES,
    Conditions,
    Finished,
    RowRule,
    RowStochastic,
    RowUpdate,
    Softmin,
)
from adaptive_ot.solution import marginal

# A sparse P pays off below this share of all pairs.
SPARSE_SHARE = 0.15

# P is kept if it has at most this many entries, or as many as a cost matrix that is in memory anyway.
MOST_ENTRIES = 2**25

# Pairs in a block of rows, and pairs from which on a second thread pays off.
PAIRS_PER_BLOCK = 2**18
PAIRS_PER_THREAD = 2**17

# Products of fewer rows of points are slow, so a block of costs of points has as many, up to this number of pairs.
ROWS_PER_PRODUCT = 32
MOST_PAIRS_PER_BLOCK = 2**22

HALF_ULP_FLOAT32 = 2.0**-24

# The part of the error that is the goal that may be left to conjugate gradients before costs are exact.
LEAVE = 0.2

# Newton's equations are solved directly up to this many, or if a column shares rows with no more than these on average,
# entries of P that do not matter to a step aside.
MOST_EQUATIONS = 3000
FEW_PER_COLUMN = 40
NO_MATTER = 1e-12

# Weights of a lower logarithm are light; the unit of each is a power of two.
LIGHT = -200.0
LN2 = math.log(2.0)

# For arguments of kernels that are not used.
UNUSED = np.zeros(0)
NO_RULE = RowRule(UNUSED, UNUSED, 0.0, 0.0, 0.0)


class CompiledSoftmin(Softmin):
    """Sweeps over P, the rows shared between threads."""

    def _update_from_kept(self, p: RowStochastic, growth: np.ndarray, rule: RowRule) -> tuple[np.ndarray, ...]:
        log_sums, potential = np.empty(self.shape[0]), np.empty(self.shape[0])
        return log_sums, potential, self._sweep(p, growth, rule, UNUSED, log_sums, potential)

    def _curvature(self, p: RowStochastic, factors: np.ndarray, x: np.ndarray) -> np.ndarray:
        return self._sweep(p, x, NO_RULE, factors, UNUSED, UNUSED)

    def _sweep(self, p: RowStochastic, x: np.ndarray, rule: RowRule, *others: np.ndarray) -> np.ndarray:
        def rows(top: int, bottom: int, out: np.ndarray) -> None:
            kernels.sweep(p, top, bottom, x, rule, *others, out)

        return self._in_threads(rows, p.matrix.size or p.values.size)

    def _solve(
        self, p: RowStochastic, factors: np.ndarray, growth: np.ndarray, side: np.ndarray, right: np.ndarray
    ) -> tuple[bool, np.ndarray]:
        if p.matrix is None:
            return False, right
        gram = sparse_gram(p, factors, growth)
        if gram is not None:
            solved, x = solve_sparse(gram, side, right)
            if solved:
                return True, x
        if right.size > MOST_EQUATIONS:
            return False, right
        return solve_dense(dense_gram(p, factors, growth), side, right)

    def _gram(self, p: RowStochastic, factors: np.ndarray, growth: np.ndarray) -> Any:
        if p.matrix is None:
            return None
        gram = sparse_gram(p, factors, growth)
        return dense_gram(p, factors, growth) if gram is None and growth.size <= MOST_EQUATIONS else gram

    def _in_threads(self, rows: Callable[[int, int, np.ndarray], None], work: int) -> np.ndarray:
        """Sum what `rows(top, bottom, out)` adds to `out`, with the rows shared between threads."""
        n, m = self.shape
        threads = max(1, min(numba.get_num_threads(), work // PAIRS_PER_THREAD))
        out = np.zeros((threads, m))
        cuts = [n * k // threads for k in range(threads + 1)]
        run_together([partial(rows, cuts[k], cuts[k + 1], out[k]) for k in range(threads)])
        return out[0] if threads == 1 else out.sum(axis=0)


class ListedSoftmin(CompiledSoftmin):
    """The stored pairs of a sparse cost: P has the same pairs, and is always kept."""

    def __init__(self, cost: SparseCost) -> None:
        super().__init__(cost.shape)
        self.matrix = cost.matrix
        self.ends, self.indices = cost.matrix.indptr.astype(np.int64), cost.matrix.indices.astype(np.int32)

    def _update_from_costs(self, h: np.ndarray, rule: RowRule) -> RowUpdate:
        ends, indices, costs = self.ends, self.indices, self.matrix.data
        log_sums, potential, values = np.empty(self.shape[0]), np.empty(self.shape[0]), np.empty(costs.size)

        def rows(top: int, bottom: int, out: np.ndarray) -> None:
            inverse = 1 / self.epsilon
            kernels.update_listed_rows(
                ends, indices, costs, top, bottom, inverse, h, rule, log_sums, potential, out, values
            )

        columns = self._in_threads(rows, costs.size)
        self.kept = RowStochastic(h, log_sums, np.zeros((0, h.size)), ends, indices, values)
        return RowUpdate(h, log_sums, potential, columns)

    def finish(
        self, at: RowUpdate, rule: RowRule, most: np.ndarray, factors: np.ndarray, clipped: np.ndarray, keep: bool
    ) -> Finished:
        n, m = self.shape
        pairs: Any = self.matrix.tocoo()
        i, j = pairs.coords
        mass = np.exp((at.potential + rule.reference)[i] + at.h[j] - pairs.data / self.epsilon)
        rows = marginal(i, mass, n)
        row_factors = np.divide(most, rows, out=np.ones(n), where=rows > most)
        mass = mass * row_factors[i] * factors[j]
        lowest = np.full(m, np.inf)
        np.minimum.at(lowest, j, pairs.data - clipped[i])
        carried = mass > 0
        value = float(pairs.data[carried] @ mass[carried])
        plan = (i.astype(np.int64)[carried], j.astype(np.int64)[carried], mass[carried])
        return Finished(row_factors, marginal(i, mass, n), marginal(j, mass, m), value, lowest, plan)

    def plan_rows(self, at: RowUpdate, rule: RowRule) -> Iterator[tuple[int, np.ndarray]]:
        raise AssertionError("`finish` returns the plan of stored pairs")


class TiledSoftmin(CompiledSoftmin):
    """Costs that come in blocks of rows: a matrix in memory, or points."""

    def __init__(self, cost: Any) -> None:
        super().__init__(cost.shape)
        n, m = cost.shape
        dense = cost.layout == "dense"
        self.most_entries = n * m if dense else MOST_ENTRIES
        self.rows_per_block = max(1, PAIRS_PER_BLOCK // max(1, m))
        self.sparse = False  # whether P was found to be sparse when it was last made
        self.array = cost.array if dense else None
        self.points: tuple[np.ndarray, ...] = ()
        self.single_points: tuple[np.ndarray, ...] = ()
        self.moved, self.refined = math.inf, False  # by how much float32 moves costs, and whether it is done with
        if not dense:
            self.points = u, w, a, b = inner_products(cost)
            if n * m > MOST_ENTRIES:
                self.moved = HALF_ULP_FLOAT32 * math.sqrt(greatest_square(u)) * math.sqrt(greatest_square(w))
                self.rows_per_block = max(self.rows_per_block, min(ROWS_PER_PRODUCT, MOST_PAIRS_PER_BLOCK // m))
                with np.errstate(over="ignore"):  # such points are only used in float64
                    self.single_points = u.astype(np.float32), w.astype(np.float32), a, b

    @property
    def in_single(self) -> bool:
        """Whether costs come from products in float32, which move exponents by little."""
        return not self.refined and self.moved < constants.LEVEL_ERROR * self.epsilon

    @property
    def conditions(self) -> Conditions:  # pyright: ignore[reportIncompatibleVariableOverride]
        return Conditions(least_error=self.moved / self.epsilon, leave=LEAVE) if self.in_single else Conditions()

    def scale(self, epsilon: float) -> None:
        self.refined &= epsilon == self.epsilon
        super().scale(epsilon)

    def refine(self) -> bool:
        if not self.in_single:
            return False
        self.refined, self.kept = True, None
        return True

    def _blocks(self, top: int, bottom: int, single: bool) -> Iterator[tuple[int, int, np.ndarray]]:
        """The costs of some rows, in blocks of them."""
        points = self.single_points if single else self.points
        for start in range(top, bottom, self.rows_per_block):
            stop = min(start + self.rows_per_block, bottom)
            if self.array is not None:
                yield start, stop, self.array[start:stop]
            else:
                tile = np.empty((stop - start, self.shape[1]))
                point_costs(*points, start, tile)
                yield start, stop, tile

    def _update_from_costs(self, h: np.ndarray, rule: RowRule) -> RowUpdate:
        # Whether P is sparse is known once it was made, so it is kept in the form that suited the last one. A dense P
        # that turns out to be sparse is compressed; one that is too large, and not known to be sparse, is not kept.
        n, m = self.shape
        dense = not self.sparse and n * m <= self.most_entries
        matrix = np.empty((n, m) if dense else (0, m))
        log_sums, potential, counts = self.log_sums.copy(), np.empty(n), np.zeros(n, np.int64)
        cut, inverse = kernels.smallest_entry(rule), 1 / self.epsilon
        lists: dict[int, tuple[np.ndarray, np.ndarray]] = {}

        def compress(start: int, entries: np.ndarray) -> None:
            size = counts[start : start + len(entries)].sum()
            lists[start] = np.empty(size, np.int32), np.empty(size)
            kernels.compress(entries, cut, *lists[start])

        def rows(top: int, bottom: int, out: np.ndarray) -> None:
            scratch = np.empty((self.rows_per_block if self.sparse else 0, m))
            for start, stop, costs in self._blocks(top, bottom, self.in_single):
                entries = matrix[start:stop] if dense else scratch[: stop - start]
                kernels.update_rows(costs, start, inverse, h, rule, log_sums, potential, out, entries, counts, cut)
                if self.sparse:
                    compress(start, entries)

        columns = self._in_threads(rows, n * m)
        few = int(counts.sum()) < SPARSE_SHARE * min(n * m, self.most_entries / SPARSE_SHARE)
        if dense and few:
            compress(0, matrix)
        if lists:
            ends = np.concatenate([[0], np.cumsum(counts)])
            indices, values = map(np.concatenate, zip(*(lists[start] for start in sorted(lists)), strict=True))
            self.kept = RowStochastic(h, log_sums, np.zeros((0, m)), ends, indices, values)
        elif dense:
            self.kept = RowStochastic(h, log_sums, matrix)
        self.sparse = few
        return RowUpdate(h, log_sums, potential, columns)

    def _curvature(self, p: RowStochastic, factors: np.ndarray, x: np.ndarray) -> np.ndarray:
        if p.matrix is not None:
            return super()._curvature(p, factors, x)

        def rows(top: int, bottom: int, out: np.ndarray) -> None:
            for start, _, costs in self._blocks(top, bottom, self.in_single):
                kernels.sweep_costs(costs, start, 1 / self.epsilon, p.h, x, factors, p.log_sums, out)

        return self._in_threads(rows, self.shape[0] * self.shape[1])

    def finish(
        self, at: RowUpdate, rule: RowRule, most: np.ndarray, factors: np.ndarray, clipped: np.ndarray, keep: bool
    ) -> Finished:
        self.kept = None  # no longer needed
        n, m = self.shape
        plan = np.empty((n if keep else 0, m))
        row_factors, row_sums, h, inverse = np.empty(n), np.empty(n), at.h, 1 / self.epsilon
        # Kernels lose small exponentials, so rows of light points are made in a unit of their own.
        light = (rule.log_weights < LIGHT) & (rule.log_weights > NOTHING / 2)
        powers = np.where(light, np.floor(rule.log_weights / LN2), 0.0)
        scaling, units = at.potential + rule.reference - powers * LN2, np.exp2(powers)
        given, results = (scaling, units, clipped, most, factors), (row_factors, row_sums)
        values: list[float] = []
        lowest: list[np.ndarray] = []

        def rows(top: int, bottom: int, out: np.ndarray) -> None:
            low = np.full(m, np.inf)
            for start, stop, costs in self._blocks(top, bottom, single=False):
                part = plan[start:stop]
                values.append(kernels.finish_rows(costs, start, inverse, h, *given, part, *results, out, low))
            lowest.append(low)

        columns, cost = self._in_threads(rows, n * m), math.fsum(values)
        return Finished(row_factors, row_sums, columns, cost, np.min(lowest, axis=0), plan if keep else None)

    def plan_rows(self, at: RowUpdate, rule: RowRule) -> Iterator[tuple[int, np.ndarray]]:
        for top, bottom, costs in self._blocks(0, self.shape[0], single=False):
            scaling = (at.potential + rule.reference)[top:bottom, None]
            yield top, np.exp(scaling + at.h - costs / self.epsilon)


def greatest_square(vectors: np.ndarray) -> float:
    """The greatest squared norm."""
    return float(np.einsum("ij,ij->i", vectors, vectors).max(initial=0.0))


def dense_gram(p: RowStochastic, factors: np.ndarray, growth: np.ndarray) -> np.ndarray:
    """G^T diag(factors) G for the plan G_ij = P_ij growth_j."""
    if len(p.matrix):
        plan = np.sqrt(factors)[:, None] * p.matrix * growth
        return plan.T @ plan
    gram = np.zeros((growth.size, growth.size))
    kernels.add_gram(p.ends, p.indices, p.values, factors, growth, gram)
    return gram


def sparse_gram(p: RowStochastic, factors: np.ndarray, growth: np.ndarray) -> Any:
    """`dense_gram` as a sparse matrix, if P is sparse and few columns share a row; otherwise None."""
    from scipy import sparse

    if len(p.matrix) or not np.isfinite(growth.sum() + factors.sum()):
        return None
    matters = p.values > NO_MATTER
    rows = np.repeat(np.arange(factors.size), np.diff(p.ends))[matters]
    columns = p.indices[matters]
    values = p.values[matters] * growth[columns] * np.sqrt(factors[rows])
    plan = sparse.csr_array((values, (rows, columns)), shape=(factors.size, growth.size))
    gram = plan.T @ plan
    return gram if is_few(gram) else None


def is_few(gram: Any) -> bool:
    """Whether a factorisation of one minus this matrix pays off."""
    return gram.nnz <= FEW_PER_COLUMN * gram.shape[0]


def solve_sparse(gram: Any, side: np.ndarray, right: np.ndarray) -> tuple[bool, np.ndarray]:
    """`solve_dense` where few columns share a row: a sparse factorisation, with Woodbury's formula."""
    from scipy import sparse
    from scipy.sparse.linalg import splu

    if not np.isfinite(gram.data.sum() + right.sum()):
        return False, right
    matrix = sparse.csc_array(sparse.eye_array(right.size) * (1 + RIDGES[0]) - gram)
    try:
        factor = splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
    except RuntimeError:  # singular
        return False, right
    x, *y = factor.solve(np.vstack([right, side]).T).T
    if not y:
        return bool(np.isfinite(x).all()), x
    bend = np.eye(len(side)) - side @ np.transpose(y)
    if not (np.isfinite(x).all() and np.isfinite(bend).all() and np.linalg.eigvalsh(bend).min() > 0):
        return False, right
    return True, x + np.linalg.solve(bend, side @ x) @ y
