"""Small problems: an ascent whose steps are compiled around arrays, without the interpreter and the GIL."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import overload_method, register_jitable

from adaptive_ot._jit import has_machine_code, kernel
from adaptive_ot.entropic import ascent as _ascent
from adaptive_ot.entropic import kernels
from adaptive_ot.entropic.cpu import SPARSE_SHARE
from adaptive_ot.entropic.oracle import (
    DENSE_REACH,
    RIDGES,
    SPARSE_REACH,
    RowStochastic,
    RowUpdate,
    Softmin,
    row_factors,
)

# The forms of P, and how far the column scalings may move in each before P is recomputed.
EMPTY, DENSE, SPARSE = 0.0, 1.0, 2.0
REACH = -1.0, DENSE_REACH, SPARSE_REACH

# A pass over up to this many pairs takes about 0.1 milliseconds longer in the interpreter, and proportionally longer
# over more. After this many passes, that adds up to the time that compiling takes.
PAIRS_PER_PASS = 2**14
PASSES_WORTH_COMPILING = 300_000

RIDGE = RIDGES[0]

interpreted_passes = 0


def worth_compiling() -> bool:
    """Whether the compiled ascent is on disk, or the interpreted one has taken as long as compiling would."""
    return interpreted_passes >= PASSES_WORTH_COMPILING or has_machine_code(_climb)


def count_interpreted(passes: int, pairs: int) -> None:
    """Count the passes of an interpreted ascent over this many pairs."""
    global interpreted_passes
    interpreted_passes += passes * max(1, pairs // PAIRS_PER_PASS)


class Resident(NamedTuple):
    """A `Softmin` of a dense cost for compiled code: its P as arrays, and in `state` epsilon and the form of P."""

    costs: np.ndarray
    h: np.ndarray
    log_sums: np.ndarray
    matrix: np.ndarray
    ends: np.ndarray
    indices: np.ndarray
    values: np.ndarray
    state: np.ndarray

    conditions, refine = Softmin.conditions, Softmin.refine

    def scale(self, epsilon: float) -> None:
        if epsilon != self.state[0]:
            self.log_sums[:] *= self.state[0] / epsilon
            self.state[:] = epsilon, EMPTY

    # Numba compares these signatures with those of `overload_method` below, which have no annotations.
    def update_rows(self, h, rule):
        n, m = self.costs.shape
        log_sums, potential, columns = self.log_sums.copy(), np.empty(n), np.zeros(m)
        if np.max(np.abs(h - self.h)) <= REACH[int(self.state[1])]:
            growth = np.exp(h - self.h)
            kernels.sweep(kept(self), 0, n, growth, rule, np.empty(0), log_sums, potential, columns)
            return RowUpdate(h, log_sums, potential, growth * columns)
        cut, size, inverse = kernels.smallest_entry(rule), np.empty(n, np.int64), 1 / self.state[0]
        kernels.update_rows(self.costs, 0, inverse, h, rule, log_sums, potential, columns, self.matrix, size, cut)
        self.h[:], self.log_sums[:], self.state[1] = h, log_sums, DENSE
        if np.sum(size) <= self.values.size:
            self.ends[1:] = np.cumsum(size)
            kernels.compress(self.matrix, cut, self.indices, self.values)
            self.state[1] = SPARSE
        return RowUpdate(h, log_sums, potential, columns)

    def curvature(self, at, rule, weights, x):
        growth, factors = np.exp(at.h - self.h), row_factors(at.potential, rule.reference, self.log_sums, weights)
        out = np.zeros(x.size)
        kernels.sweep(kept(self), 0, weights.size, growth * x, rule, factors, at.log_sums, at.potential, out)
        return growth * out

    def weighted_columns(self, at, rule, weights):
        return self.curvature(at, rule, weights, np.ones(self.costs.shape[1]))

    def solve_directly(self, at, rule, equations):
        weights, diagonal, spill, free, right = equations
        growth, factors = np.exp(at.h - self.h), row_factors(at.potential, rule.reference, self.log_sums, weights)
        scale = 1 / np.sqrt(diagonal)  # to a diagonal of ones
        gram = np.zeros((scale.size, scale.size))
        if self.state[1] == SPARSE:
            kernels.add_gram(self.ends, self.indices, self.values, factors, growth * scale, gram)
        else:
            plan = self.matrix.copy()
            for i in range(factors.size):
                for j in range(free.size):
                    plan[i, j] *= growth[j] * scale[j] * math.sqrt(factors[i])
            np.dot(plan.T, plan, gram)
        matrix = -gram
        for j in range(free.size):
            for sent in spill:
                matrix[j] -= sent[j] * scale[j] * sent * scale
            matrix[j] *= free
            matrix[j, j] += 1 + RIDGE
            if not free[j]:
                matrix[j] = 0.0
                matrix[j, j] = 1.0
        if not math.isfinite(np.sum(matrix) + np.sum(right)):  # costs too far above epsilon
            return False, right
        return True, scale * np.linalg.solve(matrix, scale * right)


@register_jitable
def kept(softmin: Resident) -> RowStochastic:
    """P in the form that `sweep` takes."""
    matrix = softmin.matrix[:0] if softmin.state[1] == SPARSE else softmin.matrix
    return RowStochastic(softmin.h, softmin.log_sums, matrix, softmin.ends, softmin.indices, softmin.values)


register_jitable(row_factors)
overload_method(types.NamedTuple, "update_rows")(lambda self, h, rule: Resident.update_rows)
overload_method(types.NamedTuple, "curvature")(lambda self, at, rule, weights, x: Resident.curvature)
overload_method(types.NamedTuple, "weighted_columns")(lambda self, at, rule, weights: Resident.weighted_columns)
overload_method(types.NamedTuple, "solve_directly")(lambda self, at, rule, equations: Resident.solve_directly)


@kernel
def _climb(gamma, at, softmin, dual, goal, goal_factor, conditions, budget, tell, level, passes_before, direct):
    limits = goal, goal_factor, conditions, budget
    reached = _ascent.climb(softmin, dual, gamma, *limits, tell, level, passes_before, direct)
    gamma[:] = reached.gamma
    at.h[:], at.log_sums[:], at.potential[:], at.columns[:] = reached.at
    return reached[2:]


def climb(softmin: Resident, dual: _ascent.Dual, gamma: np.ndarray, *others: Any) -> _ascent.Ascent:
    """`ascent.climb`, compiled: the kernel fills the arrays, and returns the numbers."""
    n, m = softmin.costs.shape
    at, gamma = RowUpdate(np.empty(m), np.empty(n), np.empty(n), np.empty(m)), gamma.copy()
    return _ascent.Ascent(gamma, at, *_climb(gamma, at, softmin, dual, *others))


def ascend(costs: np.ndarray, dual: _ascent.Dual, *limits: Any) -> _ascent.Ascent:
    """`ascent.ascend` for a dense cost."""
    n, m = costs.shape
    most = int(SPARSE_SHARE * n * m)
    entries = np.empty((n, m)), np.zeros(n + 1, np.int64), np.empty(most, np.int32), np.empty(most)
    softmin = Resident(costs, np.zeros(m), np.full(n, -np.inf), *entries, state=np.array([1.0, EMPTY]))
    return _ascent.ascend(climb, softmin, dual, *limits, tell=None)
