"""Small problems: the whole ascent compiled around arrays, without the interpreter and the GIL."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import types
from numba.extending import overload

from adaptive_ot.solvers import _ascent
from adaptive_ot.solvers._jit import kernel
from adaptive_ot.solvers.softmin import DENSE_REACH, Balanced, _kernels, balance, curvature, set_epsilon


class Resident(NamedTuple):
    """A dense cost with room for its kernel P; see `DenseKernel`. `state` is epsilon, and 1 where P is valid."""

    costs: np.ndarray
    matrix: np.ndarray
    h: np.ndarray
    row_sums: np.ndarray
    state: np.ndarray


def _is_resident(softmin):
    return isinstance(softmin, types.NamedTuple) and softmin.instance_class is Resident


@overload(set_epsilon)
def _set_epsilon(softmin, epsilon):
    if _is_resident(softmin):

        def implementation(softmin, epsilon):
            if epsilon != softmin.state[0]:
                softmin.row_sums[:] *= softmin.state[0] / epsilon
                softmin.state[0], softmin.state[1] = epsilon, 0.0

        return implementation
    return None


@overload(balance)
def _balance(softmin, h, rule):
    if _is_resident(softmin):

        def implementation(softmin, h, rule):
            n, m = softmin.costs.shape
            row_sums, potential, columns = softmin.row_sums.copy(), np.empty(n), np.zeros(m)
            if softmin.state[1] and np.max(np.abs(h - softmin.h)) <= DENSE_REACH:
                growth = np.exp(h - softmin.h)
                _kernels.sweep_dense(
                    softmin.matrix,
                    0,
                    n,
                    growth,
                    softmin.row_sums,
                    rule,
                    np.empty(0),
                    row_sums,
                    potential,
                    columns,
                )
                return Balanced(h, row_sums, potential, growth * columns)
            kept = np.empty(n, np.int64)
            _kernels.balance_rows(
                softmin.costs,
                0,
                1 / softmin.state[0],
                h,
                rule,
                row_sums,
                potential,
                columns,
                softmin.matrix,
                kept,
                1.0,
            )
            softmin.h[:], softmin.row_sums[:], softmin.state[1] = h, row_sums, 1.0
            return Balanced(h, row_sums, potential, columns)

        return implementation
    return None


@overload(curvature)
def _curvature(softmin, at, rule, weights, x):
    if _is_resident(softmin):

        def implementation(softmin, at, rule, weights, x):
            growth = np.exp(at.h - softmin.h)
            factors = weights * np.exp(2 * (at.potential + rule.reference + softmin.row_sums))
            out = np.zeros(x.size)
            _kernels.sweep_dense(
                softmin.matrix,
                0,
                weights.size,
                growth * x,
                softmin.row_sums,
                rule,
                factors,
                at.row_sums,
                at.potential,
                out,
            )
            return growth * out

        return implementation
    return None


@kernel
def ascend(costs, dual, epsilon, first_epsilon, tolerance, max_passes):
    n, m = costs.shape
    state = np.array([1.0, 0.0])
    softmin = Resident(costs, np.empty((n, m)), np.empty(m), np.full(n, -np.inf), state)
    return _ascent.ascend(softmin, dual, epsilon, first_epsilon, tolerance, max_passes, None)
