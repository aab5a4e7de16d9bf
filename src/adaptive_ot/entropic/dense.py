"""`Softmin` for a small dense cost, with NumPy and BLAS alone: a first solve has nothing to compile.

As in `compiled`, the exponentials are kept as a matrix P that is row-stochastic at the column scalings it was made for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from adaptive_ot.costs import ArrayCost
from adaptive_ot.entropic.oracle import DENSE_REACH, LARGEST_EXPONENT, LOST, Balanced, Finished, RowRule, Softmin

SMALLEST = math.exp(-LOST)

# Added to the diagonal of Newton's equations one after the other: rounding can make the matrix slightly indefinite.
RIDGES = (1e-14, 1e-12, 1e-10, 1e-8)


class DenseSoftmin(Softmin):
    """Sums over all pairs of a cost matrix, by products with P."""

    def __init__(self, cost: ArrayCost) -> None:
        self.shape = cost.shape
        self.costs = np.ascontiguousarray(cost.array, dtype=np.float64)
        self.epsilon = 1.0
        self.matrix: np.ndarray | None = None
        self.h = self.row_sums = np.zeros(0)  # where P was made, and the log-sum-exp of its rows there

    def scale(self, epsilon: float) -> None:
        if epsilon != self.epsilon:
            self.epsilon, self.matrix = epsilon, None

    def balance(self, h: np.ndarray, rule: RowRule) -> Balanced:
        matrix, growth = self.matrix, None
        if matrix is not None and np.abs(h - self.h).max() <= DENSE_REACH:
            growth = np.exp(h - self.h)
            with np.errstate(divide="ignore"):  # the logarithm of an empty row
                row_sums = self.row_sums + np.log(matrix @ growth)
        else:
            self.matrix, self.row_sums = matrix, row_sums = row_stochastic(h - self.costs / self.epsilon)
            self.h = h
        potential = rule.potential(row_sums, slice(None))
        columns = self.moved(potential, rule) @ matrix
        return Balanced(h, row_sums, potential, columns if growth is None else growth * columns)

    def moved(self, potential: np.ndarray, rule: RowRule) -> np.ndarray:
        """What the rows of P are multiplied by in the plan."""
        return np.exp(potential + rule.reference + self.row_sums)

    def curvature(self, at: Balanced, rule: RowRule, weights: np.ndarray, x: np.ndarray) -> np.ndarray:
        assert self.matrix is not None  # `balance` made it
        growth, factors = self.plan_factors(at, rule, weights)
        return growth * ((factors * (self.matrix @ (growth * x))) @ self.matrix)

    def plan_factors(self, at: Balanced, rule: RowRule, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What the columns of P are multiplied by in the plan of `at`, and the rows of P^T P in its curvature."""
        return np.exp(at.h - self.h), (np.sqrt(weights) * self.moved(at.potential, rule)) ** 2

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
        assert self.matrix is not None
        growth, factors = self.plan_factors(at, rule, weights)
        scale = free / np.sqrt(diagonal)  # to a diagonal of ones, and without the columns that are not free
        plan = np.sqrt(factors)[:, None] * self.matrix * (growth * scale)
        solved, x = solve_dense(plan.T @ plan, spill * scale, scale * right)
        return solved, scale * x

    def finish(
        self, at: Balanced, rule: RowRule, most: np.ndarray, factors: np.ndarray, clipped: np.ndarray, keep: bool
    ) -> Finished:
        ((_, plan),) = self.plan_rows(at, rule)
        row_sums = plan.sum(axis=1)
        row_factors = np.divide(most, row_sums, out=np.ones(most.size), where=row_sums > most)
        plan *= row_factors[:, None] * factors
        value = float(np.multiply(plan, self.costs, out=np.zeros(self.shape), where=plan > 0).sum())
        lowest = (self.costs - clipped[:, None]).min(axis=0)
        return Finished(row_factors, plan.sum(axis=1), plan.sum(axis=0), value, lowest, plan)

    def plan_rows(self, at: Balanced, rule: RowRule) -> Iterator[tuple[int, np.ndarray]]:
        # What is lost of a row depends on the row as a whole, which may be light.
        matrix, row_sums = row_stochastic(at.h - self.costs / self.epsilon)
        matrix *= np.exp(np.minimum(at.potential + rule.reference + row_sums, LARGEST_EXPONENT))[:, None]
        yield 0, matrix


def row_stochastic(exponents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The exponentials with rows that sum to one, and the log-sum-exp of every row; zeros and -inf for an empty row."""
    highest = exponents.max(axis=1)
    some = highest > -np.inf
    exponents -= np.where(some, highest, 0.0)[:, None]
    matrix = np.exp(exponents, out=exponents)
    matrix *= matrix > SMALLEST
    row_sums = matrix.sum(axis=1)
    matrix /= np.where(some, row_sums, 1.0)[:, None]
    return matrix, highest + np.log(np.where(some, row_sums, 1.0))


def solve_dense(gram: np.ndarray, side: np.ndarray, right: np.ndarray) -> tuple[bool, np.ndarray]:
    """Solve (1 - gram - side^T side) x = right by Cholesky's method; False if rounding is in its way."""
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
