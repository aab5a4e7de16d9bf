"""Integer weights for the simplex, so that flows are not rounded and ties are exact."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from adaptive_ot._jit import kernel


class NetworkWeights(NamedTuple):
    """Integers that stand for the weights of the sources and targets.

    An integer 1 stands for a mass of `grain`. If all weights are multiples of the grain, `unit` equals the grain, and a
    flow times the unit is a mass. Otherwise the unit is 0, and mass comes from `real`: source, then target weights.
    """

    source: np.ndarray
    target: np.ndarray
    unit: float
    real: np.ndarray
    grain: float


def network_weights(
    mu: np.ndarray, nu: np.ndarray, rows: np.ndarray, columns: np.ndarray, complete: bool
) -> NetworkWeights:
    """Integers for the weights of a problem.

    The pairs must include at least one for every point that has a pair of negative cost (other points do not matter),
    and all such pairs if `complete`.
    """
    source, target, real = np.empty(mu.size, np.int64), np.empty(nu.size, np.int64), np.concatenate((mu, nu))
    unit = float(common_unit(mu, nu))
    if unit > 0:
        source[:], target[:] = np.rint(mu[0] / unit), np.rint(nu[0] / unit)
    grain = unit or fill_rounded(mu, nu, rows, columns, complete, source, target, real)
    return NetworkWeights(source, target, unit, real, grain)


def common_unit(mu: np.ndarray, nu: np.ndarray) -> np.ndarray:
    """The largest mass that divides all weights if they are uniform, the usual case; otherwise 0. Also for a batch."""
    n, m = mu.shape[-1], nu.shape[-1]
    if n == 0 or m == 0:
        return np.zeros(mu.shape[:-1])
    of_source, of_target = mu[..., 0], nu[..., 0]
    uniform = (mu == mu[..., :1]).all(axis=-1) & (nu == nu[..., :1]).all(axis=-1) & (of_source > 0) & (of_target > 0)
    same_total = abs(n * of_source - m * of_target) <= 1e-15 * n * of_source
    same, parts = of_source == of_target, m // math.gcd(n, m)
    return of_source * (uniform & same) + of_source / parts * (uniform & same_total & ~same)


@kernel
def fill_rounded(mu, nu, rows, columns, complete, source, target, real):
    """Round weights up to multiples of a power of two, 2**-60 of the usable total; returns this grain."""
    n, m = mu.size, nu.size
    most_source, most_target, integers = np.empty(n), np.empty(m), np.empty(n + m)
    usable_weight(rows, nu, columns, complete, most_source)
    usable_weight(columns, mu, rows, complete, most_target)
    source_total, target_total = 0.0, 0.0
    for i in range(n):
        real[i] = min(mu[i], most_source[i])
        source_total += real[i]
    for j in range(m):
        real[n + j] = min(nu[j], most_target[j])
        target_total += real[n + j]
    exponent = 60 - math.frexp(max(source_total, target_total))[1]
    for k in range(n + m):
        integers[k] = math.ceil(math.ldexp(real[k], exponent))
    # A weight that was lowered must exceed the weight of its partners, also as an integer.
    most_integer = np.empty(max(n, m))
    usable_weight(rows, integers[n:], columns, complete, most_integer[:n])
    for i in range(n):
        integers[i] = most_integer[i] if mu[i] > most_source[i] else integers[i]
        source[i] = integers[i]
    usable_weight(columns, integers[:n], rows, complete, most_integer[:m])
    for j in range(m):
        target[j] = most_integer[j] if nu[j] > most_target[j] else integers[n + j]
    return math.ldexp(1.0, -exponent)


def whole_weights(mu: np.ndarray, nu: np.ndarray) -> NetworkWeights:
    """`network_weights` for pairs between all points."""
    n, m = mu.size, nu.size
    rows, columns = np.append(np.arange(n), np.zeros(m, np.int64)), np.append(np.zeros(n, np.int64), np.arange(m))
    some = slice(None) if n and m else slice(0)
    return network_weights(mu, nu, rows[some], columns[some], False)


@kernel
def usable_weight(points, other_weights, partners, complete, usable):
    """Twice the weight of all partners of each point: more cannot be used, and the slack keeps its potential at zero.

    Heavy points are cut to this weight, so that no bits of the integers are spent on weight that cannot move.
    A point whose partners have no weight needs as much slack as any other; a point without partners needs none.
    """
    has_partner, matters = np.zeros(usable.size, np.bool_), np.zeros(other_weights.size, np.bool_)
    total, most = 0.0, 0.0
    for i in range(usable.size):
        usable[i] = 0.0
    for k in range(points.size):
        i, j = points[k], partners[k]
        usable[i] += 2 * other_weights[j]
        total += 0.0 if matters[j] else 2 * other_weights[j]
        has_partner[i], matters[j] = True, True
    for i in range(usable.size):
        if not complete:
            usable[i] = total
        most = max(most, usable[i])
    for i in range(usable.size):
        if not has_partner[i]:
            usable[i] = 0.0
        elif usable[i] == 0:
            usable[i] = most if most > 0 else np.inf


@kernel
def fit(mass, rows, columns, source_weights, target_weights):
    """Scale mass down where it exceeds a weight, by rounding or because the weight is minute beside the others."""
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
