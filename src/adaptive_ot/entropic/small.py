"""Small problems: an ascent whose steps are compiled around arrays, without the interpreter and the GIL."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload, register_jitable

from adaptive_ot._jit import has_machine_code, kernel
from adaptive_ot.entropic import ascent as _ascent
from adaptive_ot.entropic import kernels as _kernels
from adaptive_ot.entropic.compiled import NEGLIGIBLE, SPARSE_REACH, SPARSE_SHARE, Kernel
from adaptive_ot.entropic.oracle import DENSE_REACH, Balanced, balance, curvature, solve_directly

# Added to the diagonal of Newton's equations, so that they are never quite singular.
RIDGE = 1e-14

EMPTY, DENSE, SPARSE = 0.0, 1.0, 2.0

# A pass over up to so many pairs takes about 0.1 milliseconds longer in the interpreter, and proportionally longer over
# more. After this many passes, that adds up to what compiling takes.
PAIRS_PER_PASS = 2**14
PASSES_WORTH_COMPILING = 300_000

interpreted_passes = 0


def worth_compiling() -> bool:
    """Whether the compiled ascent is on disk, or the interpreted one has taken as long as compiling would."""
    return interpreted_passes >= PASSES_WORTH_COMPILING or has_machine_code(_climb)


def count_interpreted(passes: int, pairs: int) -> None:
    """Remember that an interpreted ascent took so many passes over so many pairs."""
    global interpreted_passes
    interpreted_passes += passes * max(1, pairs // PAIRS_PER_PASS)


class Resident(NamedTuple):
    """A dense cost with room for its kernel, as in `Kernel`; `state` is epsilon and which form the kernel is in."""

    costs: np.ndarray
    h: np.ndarray
    row_sums: np.ndarray
    matrix: np.ndarray
    ends: np.ndarray
    indices: np.ndarray
    values: np.ndarray
    state: np.ndarray

    def scale(self, epsilon: float) -> None:
        """As in `Softmin`."""
        if epsilon != self.state[0]:
            self.row_sums[:] *= self.state[0] / epsilon
            self.state[:] = epsilon, EMPTY


@register_jitable
def kept_kernel(softmin):
    """The kernel in the form that `sweep` takes."""
    matrix = softmin.matrix[:0] if softmin.state[1] == SPARSE else softmin.matrix
    return Kernel(softmin.h, softmin.row_sums, matrix, softmin.ends, softmin.indices, softmin.values)


def _balance(softmin, h, rule):
    n, m = softmin.costs.shape
    row_sums, potential, columns = softmin.row_sums.copy(), np.empty(n), np.zeros(m)
    reach = (-1.0, DENSE_REACH, SPARSE_REACH)[int(softmin.state[1])]
    if np.max(np.abs(h - softmin.h)) <= reach:
        growth = np.exp(h - softmin.h)
        _kernels.sweep(kept_kernel(softmin), 0, n, growth, rule, np.empty(0), row_sums, potential, columns)
        return Balanced(h, row_sums, potential, growth * columns)
    cut = math.exp(-2 * SPARSE_REACH - NEGLIGIBLE) * rule.smallest_share
    kept = np.empty(n, np.int64)
    _kernels.balance_rows(
        softmin.costs, 0, 1 / softmin.state[0], h, rule, row_sums, potential, columns, softmin.matrix, kept, cut
    )
    softmin.h[:], softmin.row_sums[:], softmin.state[1] = h, row_sums, DENSE
    if np.sum(kept) <= softmin.values.size:
        softmin.ends[1:] = np.cumsum(kept)
        _kernels.compress(softmin.matrix, cut, softmin.indices, softmin.values)
        softmin.state[1] = SPARSE
    return Balanced(h, row_sums, potential, columns)


def _curvature(softmin, at, rule, weights, x):
    growth = np.exp(at.h - softmin.h)
    factors = (np.sqrt(weights) * np.exp(at.potential + rule.reference + softmin.row_sums)) ** 2
    out = np.zeros(x.size)
    _kernels.sweep(kept_kernel(softmin), 0, weights.size, growth * x, rule, factors, at.row_sums, at.potential, out)
    return growth * out


def _solve_directly(softmin, at, rule, weights, diagonal, spill, free, right):
    growth = np.exp(at.h - softmin.h)
    factors = (np.sqrt(weights) * np.exp(at.potential + rule.reference + softmin.row_sums)) ** 2
    scale = 1 / np.sqrt(diagonal)  # to a diagonal of ones
    gram = np.zeros((scale.size, scale.size))
    if softmin.state[1] == SPARSE:
        _kernels.add_gram(softmin.ends, softmin.indices, softmin.values, factors, growth * scale, gram)
    else:
        plan = softmin.matrix.copy()
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


# What `_ascent` calls in compiled form.
overload(balance)(lambda softmin, h, rule: _balance)
overload(curvature)(lambda softmin, at, rule, weights, x: _curvature)
overload(solve_directly)(lambda softmin, at, rule, weights, diagonal, spill, free, right: _solve_directly)


@kernel
def _climb(gamma, at, softmin, dual, goal, goal_factor, budget, tell, level, passes_before, direct):
    reached = _ascent.climb(softmin, dual, gamma, goal, goal_factor, budget, tell, level, passes_before, direct)
    gamma[:] = reached.gamma
    at.h[:], at.row_sums[:], at.potential[:], at.columns[:] = reached.at
    return reached[2:]


def climb(softmin: Resident, dual: _ascent.Dual, gamma: np.ndarray, *others: Any) -> _ascent.Ascent:
    """`_ascent.climb`, compiled: the kernel fills the arrays, and returns the numbers."""
    n, m = softmin.costs.shape
    at, gamma = Balanced(np.empty(m), np.empty(n), np.empty(n), np.empty(m)), gamma.copy()
    return _ascent.Ascent(gamma, at, *_climb(gamma, at, softmin, dual, *others))


def ascend(
    costs: np.ndarray,
    dual: _ascent.Dual,
    epsilon: float,
    size: float,
    tolerance: float,
    max_passes: int,
) -> _ascent.Ascent:
    """`_ascent.ascend` for a dense cost."""
    n, m = costs.shape
    room = int(SPARSE_SHARE * n * m)
    softmin = Resident(
        costs,
        np.zeros(m),
        np.full(n, -np.inf),
        np.empty((n, m)),
        np.zeros(n + 1, np.int64),
        np.empty(room, np.int32),
        np.empty(room),
        np.array([1.0, EMPTY]),
    )
    return _ascent.ascend(climb, softmin, dual, epsilon, size, tolerance, max_passes, None)
