"""The oracle behind the entropic solver: sums of exponentials over all pairs, by row and by column.

The solver asks two main questions about a cost at a given epsilon. With P(h) the row-stochastic matrix
exp(h_j - C_ij / epsilon) / (row sum):

- `update_rows(h, rule)`: the sum of every row and, once a rule has scaled each row, the sum of every column.
- `curvature(at, rule, weights, x)`: the product  G^T diag(weights) G x  with the plan G that `update_rows` found.

An `Oracle` answers both, and the solver need not know how. A `Softmin` is an oracle of one process, with Numba or NumPy
on the CPU and with torch on a GPU; `sharded` has the one of several processes.

Exponentials are the expensive part, so they are kept as a matrix P that is row-stochastic at the column scalings h0 for
which it was computed ("stabilised scaling"). For h near h0, P times exp(h - h0) gives the sums without any further
exponential of a pair.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from adaptive_ot._arrays import rounded_down
from adaptive_ot.entropic import constants

if TYPE_CHECKING:
    from adaptive_ot.entropic.ascent import Dual

# The logarithm of zero: finite, so that differences are finite, too.
NOTHING = -1e30

# Exponentials below e^-LOST count as zero: far below any precision, but far above denormal numbers, which are slow.
LOST = 450.0

# No exponent may be larger, or the exponential would be infinite.
LARGEST_EXPONENT = 700.0

# How far, in units of epsilon, the column scalings may move before P is recomputed. A dense P omits no pair. For a
# sparse P, row sums move no farther than the scalings, so entries below e^-(2 * REACH + NEGLIGIBLE) of a row stay below
# e^-NEGLIGIBLE, less than rounding.
DENSE_REACH, SPARSE_REACH = 150.0, 10.0
NEGLIGIBLE = 40.0

# Tried in turn on the diagonal of Newton's equations: rounding can make the matrix slightly indefinite.
RIDGES = (1e-14, 1e-12, 1e-10, 1e-8)


# Of the rows and of the columns of a plan.
Factors = tuple[np.ndarray, np.ndarray]


class RowRule(NamedTuple):
    """How a row of the dual is maximised once the columns are fixed, in units of epsilon.

    With L the log-sum-exp of the row, its potential is  min(cap, (total - log(e^L + e^dummy)) / (1 + softness)),  and
    the row of the plan is  e^(potential + reference + h_j - C_ij / epsilon). The augmented form has a dummy column
    (`dummy` above -inf), the inequality forms have a `cap` of 0. Where sums are penalised, `softness` is epsilon over
    the price of their divergence. A row without weight has a potential too, but a reference of NOTHING: it is empty.
    `smallest_share` is the smallest part of a row that can matter to some column.
    """

    total: np.ndarray
    reference: np.ndarray
    cap: float
    dummy: float
    smallest_share: float
    softness: float = 0.0

    @property
    def log_weights(self) -> np.ndarray:
        """The logarithms of the source weights: the row sums at the maximum, unless capped or penalised."""
        return self.total + self.reference

    def potential(self, log_sum: np.ndarray, rows: slice) -> np.ndarray:
        """The maximising potential of some rows."""
        both = np.logaddexp(log_sum, self.dummy) if self.dummy > -math.inf else log_sum
        return np.minimum(self.cap, (self.total[rows] - both) / (1 + self.softness))


class Conditions(NamedTuple):
    """What an ascent has to know about the arithmetic and the cost of the sums.

    `rounding` is the relative rounding error of the dual value, and `least_error` the smallest error that can be told
    from rounding. Where sums are dear, conjugate gradients may leave the part `leave` of the error that is the goal.
    After `few_sweeps` of them, it is worth to try a direct solution.
    """

    rounding: float = constants.ROUNDING
    least_error: float = 0.0
    leave: float = 0.0
    few_sweeps: int = constants.FEW_SWEEPS


class Approach(NamedTuple):
    """Target potentials near the solution, in units of epsilon, and the passes that they took."""

    gamma: np.ndarray
    passes: int


class RowUpdate(NamedTuple):
    """The plan after a row update: its rows are optimal for the column scalings `h`.

    `log_sums` is the log-sum-exp of every row, `potential` the potential that the rule derives from it, and `columns`
    the column sums of the plan.
    """

    h: np.ndarray
    log_sums: np.ndarray
    potential: np.ndarray
    columns: np.ndarray


class Equations(NamedTuple):
    """Newton's equations (diag(diagonal) - G^T diag(weights) G - spill^T spill) x = right over the free columns."""

    weights: np.ndarray
    diagonal: np.ndarray
    spill: np.ndarray
    free: np.ndarray
    right: np.ndarray


class Finished(NamedTuple):
    """The results of one last pass over all pairs.

    `lowest` is min_i C_ij - clipped_i, the c-transform of the source potentials; rows were multiplied by `factors`.
    """

    factors: np.ndarray
    rows: np.ndarray
    columns: np.ndarray
    value: float
    lowest: np.ndarray
    plan: Any


class RowStochastic(NamedTuple):
    """P, computed for the column scalings `h`, where the rows had the log-sum-exp `log_sums`.

    `matrix` is a NumPy or torch matrix; if it has no rows, P is in CSR form; if it is None, the entries are not kept.
    """

    h: np.ndarray
    log_sums: np.ndarray
    matrix: Any
    ends: np.ndarray = np.zeros(1, np.int64)
    indices: np.ndarray = np.zeros(0, np.int32)
    values: np.ndarray = np.zeros(0)

    def reaches(self, h: np.ndarray) -> bool:
        """Whether P can be used for these scalings."""
        return np.abs(h - self.h).max(initial=0.0) <= (DENSE_REACH if len(self.matrix) else SPARSE_REACH)


def row_factors(potential: Any, reference: Any, log_sums: Any, weights: Any) -> Any:
    """The factors of the rows of P^T P in the curvature. Plain arrays: Numba counts references to parts of tuples."""
    return (np.sqrt(weights) * np.exp(potential + reference + log_sums)) ** 2


class Oracle(ABC):
    """Sums over all pairs of one cost; `scale` sets the epsilon."""

    shape: tuple[int, int]
    conditions = Conditions()

    @abstractmethod
    def scale(self, epsilon: float) -> None:
        """Compute all further sums at this epsilon."""

    def refine(self) -> bool:
        """Compute further sums at this epsilon more precisely; False if they are as precise as they can be."""
        return False

    def approach(self, dual: Dual, epsilon: float, tolerance: float, max_passes: int) -> Approach | None:
        """A start at this epsilon if one near the solution is found without an ascent."""
        return None

    @abstractmethod
    def update_rows(self, h: np.ndarray, rule: RowRule) -> RowUpdate:
        """The plan with optimal rows for the column scalings h (which may be NOTHING: no mass for that column)."""

    @abstractmethod
    def curvature(self, at: RowUpdate, rule: RowRule, weights: np.ndarray, x: np.ndarray) -> np.ndarray:
        """G^T (weights * (G x)) with the plan G of `at`."""

    def weighted_columns(self, at: RowUpdate, rule: RowRule, weights: np.ndarray) -> np.ndarray:
        """G^T (weights * (G 1)), as precisely as `update_rows`."""
        return self.curvature(at, rule, weights, np.ones(self.shape[1]))

    @abstractmethod
    def solve_directly(self, at: RowUpdate, rule: RowRule, equations: Equations) -> tuple[bool, np.ndarray]:
        """Solve Newton's equations; False if that would take too long, or if the matrix is not positive definite."""

    @abstractmethod
    def finish(
        self, at: RowUpdate, rule: RowRule, most: np.ndarray, factors: np.ndarray, clipped: np.ndarray, keep: bool
    ) -> Finished:
        """Everything the solution needs to know about the plan of `at`, and the plan itself if `keep`.

        Rows are scaled down to `most`, where rounding takes them above it, and columns are multiplied by `factors`;
        `clipped` are source potentials that are feasible for the dual.
        """

    def fitted(
        self,
        at: RowUpdate,
        rule: RowRule,
        most: np.ndarray,
        fit: Callable[[np.ndarray], np.ndarray],
        clipped: np.ndarray,
        keep: bool,
    ) -> tuple[Finished, np.ndarray]:
        """`finish` with the factors that `fit` finds for the column sums, and these factors."""
        factors = np.ones(self.shape[1])
        finished = self.finish(at, rule, most, factors, clipped, keep)
        factors = fit(finished.columns)
        if (factors < 1).any():
            finished = self.finish(at, rule, most, factors, clipped, keep)
        return finished, factors

    @abstractmethod
    def plan_rows(self, at: RowUpdate, rule: RowRule) -> Iterator[tuple[int, np.ndarray]]:
        """The plan of `at` in blocks of rows, with the first row of each."""

    # The plan of `at` as a solution has it: with its rows and columns multiplied by factors.

    def scaled_rows(self, at: RowUpdate, rule: RowRule, factors: Factors) -> Iterator[tuple[int, np.ndarray]]:
        """The plan in blocks of rows, with the first row of each."""
        rows, columns = factors
        for top, block in self.plan_rows(at, rule):
            yield top, block * rows[top : top + len(block), None] * columns

    def times(self, at: RowUpdate, rule: RowRule, factors: Factors, matrix: np.ndarray) -> np.ndarray:
        """The plan times a matrix."""
        return np.concatenate([block @ matrix for _, block in self.scaled_rows(at, rule, factors)])

    def marginals(
        self, at: RowUpdate, rule: RowRule, factors: Factors, dtype: np.dtype
    ) -> tuple[np.ndarray, np.ndarray]:
        """Row and column sums of the plan with its entries rounded down to this precision."""
        rows, columns = [], np.zeros(self.shape[1])
        for _, block in self.scaled_rows(at, rule, factors):
            rounded = rounded_down(block, dtype)
            rows.append(rounded.sum(axis=1, dtype=np.float64))
            columns += rounded.sum(axis=0, dtype=np.float64)
        return np.concatenate(rows), columns


class Softmin(Oracle):
    """Sums over all pairs of one cost in one process, from a P that is kept where it fits."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self.shape, self.epsilon = shape, 1.0
        self.kept: RowStochastic | None = None
        self.log_sums = np.full(shape[0], -np.inf)  # the last known ones, a guess for the next

    def scale(self, epsilon: float) -> None:
        if epsilon != self.epsilon:
            self.log_sums = self.log_sums * (self.epsilon / epsilon)
            self.epsilon, self.kept = epsilon, None

    def update_rows(self, h: np.ndarray, rule: RowRule) -> RowUpdate:
        if self.kept and self.kept.reaches(h):
            growth = np.exp(h - self.kept.h)
            log_sums, potential, columns = self._update_from_kept(self.kept, growth, rule)
            update = RowUpdate(h, log_sums, potential, growth * columns)
        else:
            update = self._update_from_costs(h, rule)
        self.log_sums = update.log_sums
        return update

    def curvature(self, at: RowUpdate, rule: RowRule, weights: np.ndarray, x: np.ndarray) -> np.ndarray:
        p = self._p_at(at)
        growth = np.exp(at.h - p.h)
        factors = row_factors(at.potential, rule.reference, p.log_sums, weights)
        return growth * self._curvature(p, factors, growth * x)

    def solve_directly(self, at: RowUpdate, rule: RowRule, equations: Equations) -> tuple[bool, np.ndarray]:
        weights, diagonal, spill, free, right = equations
        p = self._p_at(at)
        growth = np.exp(at.h - p.h)
        factors = row_factors(at.potential, rule.reference, p.log_sums, weights)
        scale = free / np.sqrt(diagonal)  # scales the diagonal to ones and removes the columns that are not free
        solved, x = self._solve(p, factors, growth * scale, spill * scale, scale * right)
        return solved, scale * x

    def gram(self, at: RowUpdate, rule: RowRule, weights: np.ndarray, scale: np.ndarray) -> Any:
        """G^T diag(weights) G for the plan G of `at` with its columns scaled: dense, sparse, or None if too large."""
        p = self._p_at(at)
        return self._gram(p, row_factors(at.potential, rule.reference, p.log_sums, weights), np.exp(at.h - p.h) * scale)

    def _p_at(self, at: RowUpdate) -> RowStochastic:
        """The kept P if it serves the scalings of `at`, otherwise one whose entries are computed on use."""
        return self.kept if self.kept and self.kept.reaches(at.h) else RowStochastic(at.h, at.log_sums, None)

    @abstractmethod
    def _update_from_kept(self, p: RowStochastic, growth: np.ndarray, rule: RowRule) -> tuple[np.ndarray, ...]:
        """Log-sum-exps and potentials of the rows of P diag(growth), and the column sums of the plan over growth."""

    @abstractmethod
    def _update_from_costs(self, h: np.ndarray, rule: RowRule) -> RowUpdate:
        """Update the rows from the costs, and keep P if it is small enough."""

    @abstractmethod
    def _curvature(self, p: RowStochastic, factors: np.ndarray, x: np.ndarray) -> np.ndarray:
        """P^T (factors * (P x))."""

    @abstractmethod
    def _solve(
        self, p: RowStochastic, factors: np.ndarray, growth: np.ndarray, side: np.ndarray, right: np.ndarray
    ) -> tuple[bool, np.ndarray]:
        """Solve (1 - G^T diag(factors) G - side^T side) x = right for G = P diag(growth)."""

    @abstractmethod
    def _gram(self, p: RowStochastic, factors: np.ndarray, growth: np.ndarray) -> Any:
        """G^T diag(factors) G for the plan G = P diag(growth); None if that would take too long."""
