"""Weights for the simplex, which computes with integers, so that flows have no rounding and ties are exact."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from adaptive_ot.solvers._jit import kernel


class NetworkWeights(NamedTuple):
    """Integers that stand for the weights of the sources and targets.

    Where all weights are multiples of a `unit`, a flow times the unit is a mass. Otherwise the unit is 0, and mass is
    computed from the `real` weights (of sources, then targets).
    """

    source: np.ndarray
    target: np.ndarray
    unit: float
    real: np.ndarray


@kernel
def network_weights(mu, nu, rows, columns, complete):
    """Integers for the weights of a problem.

    Uniform weights (the usual case) are multiples of a common unit. Others are given as multiples of a power of two,
    2**-60 of the total that can be used, which is exact for integers.

    The pairs must hold one of every point that has a negative cost, since the other points do not matter, and all such
    pairs if `complete`.
    """
    n, m = mu.size, nu.size
    if n > 0 and m > 0 and (mu == mu[0]).all() and (nu == nu[0]).all() and mu[0] > 0 and nu[0] > 0:
        real = np.concatenate((mu, nu))
        if mu[0] == nu[0]:
            return NetworkWeights(np.ones(n, np.int64), np.ones(m, np.int64), mu[0], real)
        if abs(n * mu[0] - m * nu[0]) <= 1e-15 * n * mu[0]:
            common = math.gcd(n, m)
            source, target = np.full(n, m // common), np.full(m, n // common)
            return NetworkWeights(source, target, mu[0] / (m // common), real)
    most_source = usable_weight(n, rows, nu, columns, complete)
    most_target = usable_weight(m, columns, mu, rows, complete)
    real_source, real_target = np.minimum(mu, most_source), np.minimum(nu, most_target)
    exponent = 60 - math.frexp(max(real_source.sum(), real_target.sum()))[1]
    source, target = as_integers(real_source, exponent), as_integers(real_target, exponent)
    # Where a weight was lowered it must stay above what its partners have, as integers too.
    most_integer = usable_weight(n, rows, target.astype(np.float64), columns, complete)
    source = np.where(mu > most_source, most_integer.astype(np.int64), source)
    most_integer = usable_weight(m, columns, source.astype(np.float64), rows, complete)
    target = np.where(nu > most_target, most_integer.astype(np.int64), target)
    return NetworkWeights(source, target, 0.0, np.concatenate((real_source, real_target)))


@kernel
def as_integers(weights, exponent):
    """Weights times 2**exponent, rounded up."""
    result = np.empty(weights.size, np.int64)
    for k in range(weights.size):
        result[k] = math.ceil(math.ldexp(weights[k], exponent))
    return result


@kernel
def usable_weight(size, points, other_weights, partners, complete):
    """Twice what all partners of each point weigh: it can never use more, and has slack, so its potential stays zero.

    A point whose partners weigh nothing needs slack too, as much as any other; one without partners needs nothing.
    """
    has_partner, matters = np.zeros(size, np.bool_), np.zeros(other_weights.size, np.bool_)
    usable = np.zeros(size)
    for k in range(points.size):
        has_partner[points[k]], matters[partners[k]] = True, True
        usable[points[k]] += 2 * other_weights[partners[k]]
    if not complete:
        usable[:] = 2 * other_weights[matters].sum()
    most = usable.max() if size > 0 and usable.max() > 0 else np.inf
    return np.where(has_partner, np.where(usable > 0, usable, most), 0.0)


@kernel
def fit(mass, rows, columns, source_weights, target_weights):
    """Mass scaled down to weights it exceeds: by rounding, or where these are minute beside the others."""
    for index, weights in ((rows, source_weights), (columns, target_weights)):
        total = np.bincount(index, mass, weights.size)
        mass = mass * np.where(total > weights, weights / total, 1.0)[index]
    return mass
