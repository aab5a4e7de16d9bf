"""The oracle behind the entropic solver: sums of exponentials over all pairs, by row and by column.

The solver asks mainly two questions of a cost at a given epsilon. With P(h) the row-stochastic matrix
exp(h_j - C_ij / epsilon) / (row sum):

- `balance(h, rule)`: what does every row sum to, and, after each is scaled by a rule of its own, every column?
- `curvature(balanced, rule, weights, x)`: the product  G^T diag(weights) G x  with the plan G found by `balance`.

Whoever answers them (Numba on the CPU, torch on a GPU) is a `Softmin`; the solver does not know which.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

# The logarithm of nothing: finite, so that differences are.
NOTHING = -1e30

# Exponentials below e^-LOST are zero: far below any precision, and far above denormal numbers, which are slow.
LOST = 450.0

# No exponent is larger, or the exponential would be infinite.
LARGEST_EXPONENT = 700.0

# How far, in units of epsilon, column scalings may move from where a dense P was made, which leaves no pair out.
DENSE_REACH = 150.0


class RowRule(NamedTuple):
    """How a row of the dual is maximised once the columns are fixed, in units of epsilon.

    With L the log-sum-exp of the row, its potential is  min(cap, (total - log(e^L + e^dummy)) / (1 + softness)),  and
    the row of the plan is  e^(potential + reference + h_j - C_ij / epsilon). A dummy column (augmented form) has a
    `dummy` above -inf, the inequality forms a `cap` of 0; where sums are penalised, `softness` is epsilon over the
    price of their divergence. A row without weight has a potential too, but a reference of NOTHING: it is empty.
    `smallest_share` is the part of a row, at least, that can matter to some column.
    """

    total: np.ndarray
    reference: np.ndarray
    cap: float
    dummy: float
    smallest_share: float
    softness: float = 0.0

    @property
    def log_weights(self) -> np.ndarray:
        """The logarithms of the source weights: what a row sums to at its maximum, if nothing caps or penalises it."""
        return self.total + self.reference

    def potential(self, log_sum: np.ndarray, rows: slice) -> np.ndarray:
        """The maximising potential of some rows."""
        with np.errstate(invalid="ignore"):  # of nothing and nothing
            both = np.logaddexp(log_sum, self.dummy)
        return np.minimum(self.cap, (self.total[rows] - both) / (1 + self.softness))


class Balanced(NamedTuple):
    """The plan whose rows are optimal for the column scalings `h`.

    `row_sums` is the log-sum-exp of every row, `potential` what the rule makes of it, `columns` the sums of the plan.
    """

    h: np.ndarray
    row_sums: np.ndarray
    potential: np.ndarray
    columns: np.ndarray

    def rows(self, rule: RowRule) -> np.ndarray:
        """The row sums of the plan."""
        return np.exp(self.potential + rule.reference + self.row_sums)


class Softmin(ABC):
    """Sums over all pairs of one cost; `scale` sets the epsilon they are taken at."""

    shape: tuple[int, int]

    @abstractmethod
    def scale(self, epsilon: float) -> None:
        """Take all further sums at this epsilon."""

    @abstractmethod
    def balance(self, h: np.ndarray, rule: RowRule) -> Balanced:
        """The plan with optimal rows for the column scalings h (which may be NOTHING: no mass for that column)."""

    @abstractmethod
    def curvature(self, at: Balanced, rule: RowRule, weights: np.ndarray, x: np.ndarray) -> np.ndarray:
        """G^T (weights * (G x)) with the plan G of `at`."""

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
        """Solve (diag(diagonal) - G^T diag(weights) G - spill^T spill) x = right over the free columns.

        False if that would take too long, or if the matrix is not positive definite.
        """
        return False, right

    @abstractmethod
    def finish(
        self, at: Balanced, rule: RowRule, most: np.ndarray, factors: np.ndarray, clipped: np.ndarray, keep: bool
    ) -> Finished:
        """Everything the solution needs to know about the plan of `at`, and the plan itself if `keep`.

        Rows are scaled down to `most`, where rounding takes them above it, and columns are multiplied by `factors`;
        `clipped` are source potentials that are feasible for the dual.
        """

    @abstractmethod
    def plan_rows(self, at: Balanced, rule: RowRule) -> Iterator[tuple[int, np.ndarray]]:
        """The plan of `at` in blocks of rows, with the first row of each."""


# What `_ascent` calls: methods here, compiled functions of the same names for small problems.
def balance(softmin: Softmin, h: np.ndarray, rule: RowRule) -> Balanced:
    return softmin.balance(h, rule)


def curvature(softmin: Softmin, at: Balanced, rule: RowRule, weights: np.ndarray, x: np.ndarray) -> np.ndarray:
    return softmin.curvature(at, rule, weights, x)


def solve_directly(
    softmin: Softmin,
    at: Balanced,
    rule: RowRule,
    weights: np.ndarray,
    diagonal: np.ndarray,
    spill: np.ndarray,
    free: np.ndarray,
    right: np.ndarray,
) -> tuple[bool, np.ndarray]:
    return softmin.solve_directly(at, rule, weights, diagonal, spill, free, right)


class Finished(NamedTuple):
    """What one last pass over all pairs tells about a plan.

    `lowest` is min_i C_ij - clipped_i, the c-transform of the source potentials; `factors` are what the rows were
    multiplied by.
    """

    factors: np.ndarray
    rows: np.ndarray
    columns: np.ndarray
    value: float
    lowest: np.ndarray
    plan: Any
