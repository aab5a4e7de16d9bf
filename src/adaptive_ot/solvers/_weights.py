"""Weights for the simplex, which computes with integers, so that flows have no rounding and ties are exact.

Plain loops: they compile in a fraction of the time that array expressions take.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba.extending import register_jitable

from adaptive_ot.solvers._jit import kernel


class NetworkWeights(NamedTuple):
    """Integers that stand for the weights of the sources and targets.

    One integer stands for a mass of `grain`. Where all weights are multiples of it, it is the `unit`, and a flow times
    the unit is a mass. Otherwise the unit is 0, and mass comes from the `real` weights (of sources, then targets).
    """

    source: np.ndarray
    target: np.ndarray
    unit: float
    real: np.ndarray
    grain: float


@register_jitable
def network_weights(mu, nu, rows, columns, complete):
    """Integers for the weights of a problem.

    The pairs must hold one of every point that has a negative cost, since the other points do not matter, and all such
    pairs if `complete`.
    """
    source, target, real = np.ones(mu.size, np.int64), np.ones(nu.size, np.int64), np.concatenate((mu, nu))
    unit, grain = _fill_weights(mu, nu, rows, columns, complete, source, target, real)
    return NetworkWeights(source, target, unit, real, grain)


@kernel
def _fill_weights(mu, nu, rows, columns, complete, source, target, real):
    """Uniform weights (the usual case) are multiples of a common unit, which is returned, as is the grain.

    Others become multiples of a power of two, 2**-60 of the total that can be used, which is exact for integers.
    """
    n, m = mu.size, nu.size
    if are_equal(mu) and are_equal(nu):
        if mu[0] == nu[0]:
            return mu[0], mu[0]
        if abs(n * mu[0] - m * nu[0]) <= 1e-15 * n * mu[0]:
            common = math.gcd(n, m)
            source[:], target[:] = m // common, n // common
            unit = mu[0] / (m // common)
            return unit, unit
    most_source = usable_weight(n, rows, nu, columns, complete)
    most_target = usable_weight(m, columns, mu, rows, complete)
    source_total, target_total = 0.0, 0.0
    for i in range(n):
        real[i] = min(mu[i], most_source[i])
        source_total += real[i]
    for j in range(m):
        real[n + j] = min(nu[j], most_target[j])
        target_total += real[n + j]
    exponent = 60 - math.frexp(max(source_total, target_total))[1]
    for i in range(n):
        source[i] = math.ceil(math.ldexp(real[i], exponent))
    for j in range(m):
        target[j] = math.ceil(math.ldexp(real[n + j], exponent))
    # Where a weight was lowered it must stay above what its partners have, as integers too.
    most_integer = usable_weight(n, rows, target.astype(np.float64), columns, complete)
    for i in range(n):
        source[i] = most_integer[i] if mu[i] > most_source[i] else source[i]
    most_integer = usable_weight(m, columns, source.astype(np.float64), rows, complete)
    for j in range(m):
        target[j] = most_integer[j] if nu[j] > most_target[j] else target[j]
    return 0.0, math.ldexp(1.0, -exponent)


def whole_weights(mu: np.ndarray, nu: np.ndarray) -> NetworkWeights:
    """`network_weights` for pairs between all points."""
    n, m = mu.size, nu.size
    rows, columns = np.append(np.arange(n), np.zeros(m, np.int64)), np.append(np.zeros(n, np.int64), np.arange(m))
    some = slice(None) if n and m else slice(0)
    return network_weights(mu, nu, rows[some], columns[some], False)


@kernel
def are_equal(weights):
    """Whether there are weights, all the same and positive."""
    for k in range(weights.size):
        if weights[k] != weights[0]:
            return False
    return weights.size > 0 and weights[0] > 0


@register_jitable
def usable_weight(size, points, other_weights, partners, complete):
    """Twice what all partners of each point weigh: it can never use more, and has slack, so its potential stays zero.

    A point whose partners weigh nothing needs slack too, as much as any other; one without partners needs nothing.
    """
    has_partner, matters = np.zeros(size, np.bool_), np.zeros(other_weights.size, np.bool_)
    usable = np.zeros(size)
    total = 0.0
    for k in range(points.size):
        i, j = points[k], partners[k]
        usable[i] += 2 * other_weights[j]
        total += 0.0 if matters[j] else 2 * other_weights[j]
        has_partner[i], matters[j] = True, True
    most = 0.0
    for i in range(size):
        if not complete:
            usable[i] = total
        most = max(most, usable[i])
    for i in range(size):
        if not has_partner[i]:
            usable[i] = 0.0
        elif usable[i] == 0:
            usable[i] = most if most > 0 else np.inf
    return usable


@kernel
def fit(mass, rows, columns, source_weights, target_weights):
    """Scale mass down to weights it exceeds: by rounding, or where these are minute beside the others."""
    _fit_side(mass, rows, source_weights)
    _fit_side(mass, columns, target_weights)


@kernel
def _fit_side(mass, index, weights):
    total = np.zeros(weights.size)
    for k in range(mass.size):
        total[index[k]] += mass[k]
    for k in range(mass.size):
        at = index[k]
        if total[at] > weights[at]:
            mass[k] *= weights[at] / total[at]
