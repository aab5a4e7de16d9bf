"""`Softmin` with whole rows of P in NumPy, where a first solve has nothing to compile, or in torch (see `gpu`)."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np

from adaptive_ot.costs import ArrayCost
from adaptive_ot.entropic.oracle import (
    LARGEST_EXPONENT,
    LOST,
    RIDGES,
    Finished,
    RowRule,
    RowStochastic,
    RowUpdate,
    Softmin,
)

SMALLEST = math.exp(-LOST)


class ArraySoftmin(Softmin):
    """Sums by products with P in an array library `xp`; vectors come and go as NumPy arrays, matrices stay there."""

    xp: Any = np

    @abstractmethod
    def _blocks(self) -> Iterator[tuple[slice, Any]]:
        """The costs in blocks of rows, in float64."""

    def _put(self, array: np.ndarray) -> Any:
        """A vector, on its way to the matrices."""
        return array

    def _get(self, array: Any) -> np.ndarray:
        """A vector, on its way back."""
        return array

    def _update_from_kept(self, p: RowStochastic, growth: np.ndarray, rule: RowRule) -> tuple[np.ndarray, ...]:
        with np.errstate(divide="ignore"):  # the logarithm of an empty row
            log_sums = p.log_sums + np.log(self._get(p.matrix @ self._put(growth)))
        potential = rule.potential(log_sums, slice(None))
        moved = np.exp(potential + rule.reference + p.log_sums)
        return log_sums, potential, self._get(self._put(moved) @ p.matrix)

    def _update_from_costs(self, h: np.ndarray, rule: RowRule) -> RowUpdate:
        log_sums, potential = np.empty(self.shape[0]), np.empty(self.shape[0])
        columns, scaling, self.kept = np.zeros(h.size), self._put(h), None
        for rows, costs in self._blocks():
            matrix, block_sums = self._row_stochastic(scaling - costs / self.epsilon)
            log_sums[rows] = self._get(block_sums)
            potential[rows] = rule.potential(log_sums[rows], rows)
            moved = np.exp(potential[rows] + rule.reference[rows] + log_sums[rows])
            columns += self._get(self._put(moved) @ matrix)
            if len(matrix) == log_sums.size:
                self.kept = RowStochastic(h, log_sums, matrix)
        return RowUpdate(h, log_sums, potential, columns)

    def _row_stochastic(self, exponents: Any) -> tuple[Any, Any]:
        """The exponentials with rows that sum to one, and the log-sum-exp of every row; zeros and -inf if empty."""
        xp = self.xp
        highest = xp.amax(exponents, 1)
        some = highest > -math.inf
        exponents -= xp.where(some, highest, 0.0)[:, None]
        matrix = xp.exp(exponents, out=exponents)
        matrix *= matrix > SMALLEST
        sums = xp.where(some, matrix.sum(1), 1.0)
        matrix /= sums[:, None]
        return matrix, highest + xp.log(sums)

    def _p_blocks(self, p: RowStochastic) -> Iterator[tuple[slice, Any]]:
        """P in blocks of rows: as it is kept, or made anew."""
        if p.matrix is not None:
            yield slice(None), p.matrix
            return
        h, log_sums = self._put(p.h), np.where(np.isfinite(p.log_sums), p.log_sums, 0.0)
        for rows, costs in self._blocks():
            yield rows, self.xp.exp(h - costs / self.epsilon - self._put(log_sums[rows])[:, None])

    def _curvature(self, p: RowStochastic, factors: np.ndarray, x: np.ndarray) -> np.ndarray:
        factors, x = self._put(factors), self._put(x)
        parts = [(factors[rows] * (matrix @ x)) @ matrix for rows, matrix in self._p_blocks(p)]
        return self._get(parts[0] if len(parts) == 1 else sum(parts))

    def _gram(self, p: RowStochastic, factors: np.ndarray, growth: np.ndarray) -> Any:
        """G^T diag(factors) G for the plan G = P diag(growth)."""
        gram, roots, growth = None, self._put(np.sqrt(factors)), self._put(growth)
        for rows, matrix in self._p_blocks(p):
            plan = roots[rows, None] * matrix * growth
            gram = plan.T @ plan if gram is None else gram + plan.T @ plan
        return gram

    def _solve(
        self, p: RowStochastic, factors: np.ndarray, growth: np.ndarray, side: np.ndarray, right: np.ndarray
    ) -> tuple[bool, np.ndarray]:
        return solve_dense(self._gram(p, factors, growth), side, right)

    def finish(
        self, at: RowUpdate, rule: RowRule, most: np.ndarray, factors: np.ndarray, clipped: np.ndarray, keep: bool
    ) -> Finished:
        n, m = self.shape
        row_factors, row_sums, value, plans = np.empty(n), np.empty(n), 0.0, []
        columns, lowest = np.zeros(m), np.full(m, np.inf)
        for rows, costs in self._blocks():
            plan = self._plan(at, rule, rows, costs)
            sums = self._get(plan.sum(1))
            row_factors[rows] = np.divide(most[rows], sums, out=np.ones(sums.size), where=sums > most[rows])
            plan *= self._put(row_factors[rows])[:, None] * self._put(factors)
            row_sums[rows] = self._get(plan.sum(1))
            columns += self._get(plan.sum(0))
            value += self._cost(plan, costs)
            lowest = np.minimum(lowest, self._get(self.xp.amin(costs - self._put(clipped[rows])[:, None], 0)))
            if keep:
                plans.append(plan)
        plan = plans[0] if len(plans) == 1 else self.xp.concatenate(plans) if plans else None
        return Finished(row_factors, row_sums, columns, value, lowest, plan)

    def _cost(self, plan: Any, costs: Any) -> float:
        """The cost of a plan; a forbidden pair costs inf and carries nothing."""
        return float(np.multiply(plan, costs, out=np.zeros(plan.shape), where=plan > 0).sum())

    def plan_rows(self, at: RowUpdate, rule: RowRule) -> Iterator[tuple[int, np.ndarray]]:
        for rows, costs in self._blocks():
            yield rows.start, self._get(self._plan(at, rule, rows, costs))

    def _plan(self, at: RowUpdate, rule: RowRule, rows: slice, costs: Any) -> Any:
        # What is lost of a row depends on the row as a whole, which may be light.
        matrix, log_sums = self._row_stochastic(self._put(at.h) - costs / self.epsilon)
        exponents = at.potential[rows] + rule.reference[rows] + self._get(log_sums)
        matrix *= self._put(np.exp(np.minimum(exponents, LARGEST_EXPONENT)))[:, None]
        return matrix


class DenseSoftmin(ArraySoftmin):
    """A small cost matrix in memory."""

    def __init__(self, cost: ArrayCost) -> None:
        super().__init__(cost.shape)
        self.costs = np.ascontiguousarray(cost.array, dtype=np.float64)

    def _blocks(self) -> Iterator[tuple[slice, np.ndarray]]:
        yield slice(0, self.shape[0]), self.costs


def solve_dense(gram: np.ndarray, side: np.ndarray, right: np.ndarray) -> tuple[bool, np.ndarray]:
    """Solve (1 - gram - side^T side) x = right by Cholesky's method; False if rounding prevents it."""
    from scipy.linalg import LinAlgError, cho_factor, cho_solve

    matrix = np.eye(right.size) - gram - side.T @ side
    if not np.isfinite(matrix.sum() + right.sum()):  # costs too far above epsilon
        return False, right
    for ridge in RIDGES:
        matrix[np.diag_indices_from(matrix)] += ridge
        try:
            return True, cho_solve(cho_factor(matrix, check_finite=False), right, check_finite=False)
        except LinAlgError:
            continue
    return False, right
