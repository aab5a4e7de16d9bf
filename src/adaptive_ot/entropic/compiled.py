"""`Softmin` on the CPU, for every kind of cost.

Going from costs to exponentials is the dear part, so the exponentials are kept: as a matrix P that is row-stochastic at
the column scalings h it was made for ("stabilised scaling"). Near these scalings, P times exp(h - h then) gives the
same sums without a single exponential. Entries that stay negligible all around are left out: at a small epsilon P is
sparse, and a sweep over all pairs costs next to nothing. Where P would be too large, it is made anew every time.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numba
import numpy as np

from adaptive_ot._points import inner_products, point_costs
from adaptive_ot._threads import run_together
from adaptive_ot.costs import ArrayCost, PointCost, SparseCost
from adaptive_ot.entropic import kernels as _kernels
from adaptive_ot.entropic.dense import RIDGES, solve_dense
from adaptive_ot.entropic.oracle import DENSE_REACH, NOTHING, Balanced, Finished, RowRule, Softmin
from adaptive_ot.solution import marginal

# How far, in units of epsilon, the column scalings may move before P is made anew. Row sums move no farther, so entries
# below e^-(2 * REACH + NEGLIGIBLE) of a row stay below e^-NEGLIGIBLE, less than rounding.
SPARSE_REACH = 10.0
NEGLIGIBLE = 40.0

# A sparse P is worth its while below this share of all pairs.
SPARSE_SHARE = 0.15

# P is kept if it has at most this many entries, or as many as a cost matrix that is there anyway.
MOST_ENTRIES = 2**25

# Pairs in a block of rows, and pairs from which on a second thread pays.
PAIRS_PER_BLOCK = 2**18
PAIRS_PER_THREAD = 2**17

# Newton's equations are solved directly up to this many, or if a column shares rows with no more than these on average,
# entries of P that do not matter to a step aside.
MOST_EQUATIONS = 3000
FEW_PER_COLUMN = 40
NO_MATTER = 1e-12

# Weights of a lower logarithm are light; the unit of each is a power of two.
LIGHT = -200.0
LN2 = math.log(2.0)

NO_FACTORS = np.zeros(0)


class Kernel(NamedTuple):
    """P, made for the column scalings `h`, where the rows had the log-sum-exp `row_sums`.

    Either a matrix, or, if that has no rows, in CSR form.
    """

    h: np.ndarray
    row_sums: np.ndarray
    matrix: np.ndarray
    ends: np.ndarray
    indices: np.ndarray
    values: np.ndarray

    @classmethod
    def dense(cls, h: np.ndarray, row_sums: np.ndarray, matrix: np.ndarray) -> Kernel:
        return cls(h, row_sums, matrix, np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0))

    @classmethod
    def sparse(
        cls, h: np.ndarray, row_sums: np.ndarray, ends: np.ndarray, indices: np.ndarray, values: np.ndarray
    ) -> Kernel:
        return cls(h, row_sums, np.zeros((0, h.size)), ends, indices, values)

    @property
    def size(self) -> int:
        return self.matrix.size or self.values.size

    @property
    def reach(self) -> float:
        return DENSE_REACH if len(self.matrix) else SPARSE_REACH


class CompiledSoftmin(Softmin):
    """What all costs share: keeping P, and sweeping over it."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self.shape = shape
        self.epsilon = 1.0
        self.kernel: Kernel | None = None
        self.row_sums = np.full(shape[0], -np.inf)  # the last ones known, a guess for the next

    def scale(self, epsilon: float) -> None:
        if epsilon != self.epsilon:
            self.row_sums = self.row_sums * (self.epsilon / epsilon)
            self.epsilon, self.kernel = epsilon, None

    def balance(self, h: np.ndarray, rule: RowRule) -> Balanced:
        kernel = self._kernel_near(h)
        if kernel is None:
            balanced = self._balance_costs(h, rule)
        else:
            n = self.shape[0]
            row_sums, potential = np.empty(n), np.empty(n)
            growth = np.exp(h - kernel.h)
            columns = self._sweep(kernel, growth, rule, NO_FACTORS, row_sums, potential)
            balanced = Balanced(h, row_sums, potential, growth * columns)
        self.row_sums = balanced.row_sums
        return balanced

    def curvature(self, at: Balanced, rule: RowRule, weights: np.ndarray, x: np.ndarray) -> np.ndarray:
        kernel = self._kernel_near(at.h)
        if kernel is None:
            return self._curvature_costs(at, (np.sqrt(weights) * at.rows(rule)) ** 2, x)
        growth = np.exp(at.h - kernel.h)
        factors = (np.sqrt(weights) * np.exp(at.potential + rule.reference + kernel.row_sums)) ** 2
        return growth * self._sweep(kernel, growth * x, rule, factors, at.row_sums, at.potential)

    def solve_directly(
        self,
        at: Balanced,
        rule: RowRule,
        weights: np.ndarray,
        diagonal: np.ndarray,
        spill: np.ndarray,
        free: np.ndarray,
        right: np.ndarray,
    ) -> tuple[bool, np.ndarray]:
        kernel = self._kernel_near(at.h)
        if kernel is None:
            return False, right
        growth = np.exp(at.h - kernel.h)
        factors = (np.sqrt(weights) * np.exp(at.potential + rule.reference + kernel.row_sums)) ** 2
        scale = free / np.sqrt(diagonal)  # to a diagonal of ones, and without the columns that are not free
        side = spill * scale
        solved, x = False, right
        if not len(kernel.matrix):
            solved, x = solve_sparse(kernel, factors, growth * scale, side, scale * right)
        if not solved and right.size <= MOST_EQUATIONS:
            solved, x = solve_dense(gram_of(kernel, factors, growth * scale), side, scale * right)
        return solved, scale * x

    def _kernel_near(self, h: np.ndarray) -> Kernel | None:
        """P, if it is kept and serves these scalings."""
        kernel = self.kernel
        return kernel if kernel and np.abs(h - kernel.h).max(initial=0.0) <= kernel.reach else None

    def _sweep(
        self,
        kernel: Kernel,
        a: np.ndarray,
        rule: RowRule,
        factors: np.ndarray,
        row_sums: np.ndarray,
        potential: np.ndarray,
    ) -> np.ndarray:
        def rows(top: int, bottom: int, out: np.ndarray) -> None:
            _kernels.sweep(kernel, top, bottom, a, rule, factors, row_sums, potential, out)

        return self._in_threads(rows, kernel.size)

    def _in_threads(self, rows: Callable[[int, int, np.ndarray], None], work: int) -> np.ndarray:
        """Sum what `rows(top, bottom, out)` adds to `out`, the rows shared between threads."""
        n, m = self.shape
        threads = max(1, min(numba.get_num_threads(), work // PAIRS_PER_THREAD))
        out = np.zeros((threads, m))
        cuts = [n * k // threads for k in range(threads + 1)]
        run_together([partial(rows, cuts[k], cuts[k + 1], out[k]) for k in range(threads)])
        return out[0] if threads == 1 else out.sum(axis=0)

    @abstractmethod
    def _balance_costs(self, h: np.ndarray, rule: RowRule) -> Balanced:
        """Balance from the costs, and keep P if it is small enough."""

    @abstractmethod
    def _curvature_costs(self, at: Balanced, factors: np.ndarray, x: np.ndarray) -> np.ndarray:
        """P^T (factors * (P x)) from the costs, where P is not kept."""


def gram_of(kernel: Kernel, factors: np.ndarray, growth: np.ndarray) -> np.ndarray:
    """G^T diag(factors) G for the plan G_ij = P_ij growth_j."""
    if len(kernel.matrix):
        plan = np.sqrt(factors)[:, None] * kernel.matrix * growth
        return plan.T @ plan
    gram = np.zeros((growth.size, growth.size))
    _kernels.add_gram(kernel.ends, kernel.indices, kernel.values, factors, growth, gram)
    return gram


def solve_sparse(
    kernel: Kernel, factors: np.ndarray, growth: np.ndarray, side: np.ndarray, right: np.ndarray
) -> tuple[bool, np.ndarray]:
    """`solve_dense` where few columns share a row: a sparse factorisation, with Woodbury's formula."""
    from scipy import sparse
    from scipy.sparse.linalg import splu

    if not np.isfinite(growth.sum() + factors.sum() + right.sum()):
        return False, right
    matters = kernel.values > NO_MATTER
    rows = np.repeat(np.arange(factors.size), np.diff(kernel.ends))[matters]
    columns = kernel.indices[matters]
    values = kernel.values[matters] * growth[columns] * np.sqrt(factors[rows])
    plan = sparse.csr_array((values, (rows, columns)), shape=(factors.size, right.size))
    matrix = sparse.csc_array(sparse.eye_array(right.size) * (1 + RIDGES[0]) - plan.T @ plan)
    if matrix.nnz > FEW_PER_COLUMN * right.size:
        return False, right
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


class ListedSoftmin(CompiledSoftmin):
    """The stored pairs of a sparse cost: P has the same pairs."""

    def __init__(self, cost: SparseCost) -> None:
        super().__init__(cost.shape)
        self.matrix = cost.matrix
        self.ends, self.indices = cost.matrix.indptr.astype(np.int64), cost.matrix.indices.astype(np.int32)

    def _balance_costs(self, h: np.ndarray, rule: RowRule) -> Balanced:
        ends, indices, costs = self.ends, self.indices, self.matrix.data
        row_sums, potential = np.empty(self.shape[0]), np.empty(self.shape[0])
        values = np.empty(costs.size)

        def rows(top: int, bottom: int, out: np.ndarray) -> None:
            _kernels.balance_listed(
                ends, indices, costs, top, bottom, 1 / self.epsilon, h, rule, row_sums, potential, out, values
            )

        columns = self._in_threads(rows, costs.size)
        self.kernel = Kernel.sparse(h, row_sums, ends, indices, values)
        return Balanced(h, row_sums, potential, columns)

    def _curvature_costs(self, at: Balanced, factors: np.ndarray, x: np.ndarray) -> np.ndarray:
        raise AssertionError("the stored pairs are always kept")

    def finish(
        self, at: Balanced, rule: RowRule, most: np.ndarray, factors: np.ndarray, clipped: np.ndarray, keep: bool
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

    def plan_rows(self, at: Balanced, rule: RowRule) -> Iterator[tuple[int, np.ndarray]]:
        raise AssertionError("the plan of stored pairs is handed over by `finish`")


class TiledSoftmin(CompiledSoftmin):
    """Costs that come in blocks of rows: a matrix in memory, or points."""

    def __init__(self, cost: ArrayCost | PointCost) -> None:
        super().__init__(cost.shape)
        n, m = cost.shape
        self.most_entries = n * m if isinstance(cost, ArrayCost) else MOST_ENTRIES
        self.rows_per_block = max(1, PAIRS_PER_BLOCK // max(1, m))
        self.sparse = False  # whether P was found to be sparse when it was last made
        self.array = cost.array if isinstance(cost, ArrayCost) else None
        self.points = () if isinstance(cost, ArrayCost) else inner_products(cost)

    def block(self, top: int, bottom: int) -> np.ndarray:
        """The costs of some rows."""
        if self.array is not None:
            return self.array[top:bottom]
        tile = np.empty((bottom - top, self.shape[1]))
        point_costs(*self.points, top, tile)
        return tile

    def _blocks(self, top: int, bottom: int) -> Iterator[tuple[int, int, np.ndarray]]:
        for start in range(top, bottom, self.rows_per_block):
            stop = min(start + self.rows_per_block, bottom)
            yield start, stop, self.block(start, stop)

    def _balance_costs(self, h: np.ndarray, rule: RowRule) -> Balanced:
        n, m = self.shape
        dense = not self.sparse and n * m <= self.most_entries
        matrix = np.empty((n, m) if dense else (0, m))
        row_sums, potential, kept = self.row_sums.copy(), np.empty(n), np.zeros(n, np.int64)
        cut = math.exp(-2 * SPARSE_REACH - NEGLIGIBLE) * rule.smallest_share
        lists: dict[int, tuple[np.ndarray, np.ndarray]] = {}

        def rows(top: int, bottom: int, out: np.ndarray) -> None:
            scratch = np.empty((self.rows_per_block if self.sparse else 0, m))
            for start, stop, costs in self._blocks(top, bottom):
                kernel_rows = matrix[start:stop] if dense else scratch[: stop - start]
                _kernels.balance_rows(
                    costs, start, 1 / self.epsilon, h, rule, row_sums, potential, out, kernel_rows, kept, cut
                )
                if self.sparse:
                    size = kept[start:stop].sum()
                    indices, values = lists[start] = np.empty(size, np.int32), np.empty(size)
                    _kernels.compress(kernel_rows, cut, indices, values)

        columns = self._in_threads(rows, n * m)
        few = int(kept.sum()) < SPARSE_SHARE * min(n * m, self.most_entries / SPARSE_SHARE)
        if dense and few:
            indices, values = np.empty(kept.sum(), np.int32), np.empty(kept.sum())
            _kernels.compress(matrix, cut, indices, values)
            self.kernel = Kernel.sparse(h, row_sums, np.concatenate([[0], np.cumsum(kept)]), indices, values)
        elif dense:
            self.kernel = Kernel.dense(h, row_sums, matrix)
        elif self.sparse:
            parts = [lists[start] for start in sorted(lists)]
            ends = np.concatenate([[0], np.cumsum(kept)])
            indices, values = (np.concatenate(part) for part in zip(*parts, strict=True))
            self.kernel = Kernel.sparse(h, row_sums, ends, indices, values)
        self.sparse = few
        return Balanced(h, row_sums, potential, columns)

    def _curvature_costs(self, at: Balanced, factors: np.ndarray, x: np.ndarray) -> np.ndarray:
        def rows(top: int, bottom: int, out: np.ndarray) -> None:
            for start, _, costs in self._blocks(top, bottom):
                _kernels.sweep_costs(costs, start, 1 / self.epsilon, at.h, x, factors, at.row_sums, out)

        return self._in_threads(rows, self.shape[0] * self.shape[1])

    def finish(
        self, at: Balanced, rule: RowRule, most: np.ndarray, factors: np.ndarray, clipped: np.ndarray, keep: bool
    ) -> Finished:
        self.kernel = None  # of no more use
        n, m = self.shape
        plan = np.empty((n if keep else 0, m))
        row_factors, row_sums, scaling = np.empty(n), np.empty(n), at.potential + rule.reference
        # Kernels lose small exponentials, so rows of light points are made in a unit of their own.
        powers = np.where(rule.log_weights < LIGHT, np.floor(rule.log_weights / LN2), 0.0)
        powers = np.where(rule.log_weights > NOTHING / 2, powers, 0.0)
        scaling, units = scaling - powers * LN2, np.exp2(powers)
        values: list[float] = []
        lowest: list[np.ndarray] = []

        def rows(top: int, bottom: int, out: np.ndarray) -> None:
            low = np.full(m, np.inf)
            for start, stop, costs in self._blocks(top, bottom):
                arguments = (
                    at.h,
                    scaling,
                    units,
                    clipped,
                    most,
                    factors,
                    plan[start:stop],
                    row_factors,
                    row_sums,
                    out,
                    low,
                )
                values.append(_kernels.finish_rows(costs, start, 1 / self.epsilon, *arguments))
            lowest.append(low)

        columns = self._in_threads(rows, n * m)
        return Finished(
            row_factors, row_sums, columns, math.fsum(values), np.min(lowest, axis=0), plan if keep else None
        )

    def plan_rows(self, at: Balanced, rule: RowRule) -> Iterator[tuple[int, np.ndarray]]:
        for top, _, costs in self._blocks(0, self.shape[0]):
            scaling = (at.potential + rule.reference)[top : top + len(costs), None]
            yield top, np.exp(scaling + at.h - costs / self.epsilon)
