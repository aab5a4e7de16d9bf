"""The price of mass at which rows move a fixed amount; as in `ascent`, potentials are in units of epsilon."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numba.extending import register_jitable

from adaptive_ot.entropic.constants import HIGHEST, ROUNDING
from adaptive_ot.entropic.oracle import NOTHING

if TYPE_CHECKING:
    from adaptive_ot.entropic.ascent import Dual

# More than enough for a price in float64.
MOST_BISECTIONS = 200


@register_jitable
def chosen(mask: np.ndarray, values: np.ndarray, other: float) -> np.ndarray:
    """`values` where the mask is set, elsewhere `other`; np.where would take Numba long to compile."""
    return values * mask + other * ~mask


@register_jitable
def price_of_mass(dual: Dual, log_sums: np.ndarray) -> float:
    """The price at which rows of these log-sum-exps, cut off at their weights, move the amount.

    Mass is concave and piecewise linear in e^price. So Newton's method, from below, finds one full row after another
    until all are found.
    """
    mu = dual.source_weights
    able = (mu > 0) & (log_sums > NOTHING / 2)
    full_from, log_rows = dual.rule.total - log_sums, dual.rule.reference + log_sums
    full = able & ~able
    while True:
        rest, slack = dual.amount - np.sum(mu * full), able & ~full
        if rest <= 0 or not np.any(slack):  # up to rounding, all rows that can be are full
            return np.max(chosen(full, full_from, NOTHING))
        logs = chosen(slack, log_rows, NOTHING)
        highest = np.max(logs)
        price = math.log(rest) - highest - math.log(np.sum(np.exp(logs - highest)))
        more = slack & (full_from <= price)
        if not np.any(more):
            return price
        full = full | more


@register_jitable
def price_with_dummies(dual: Dual, log_sums: np.ndarray) -> float:
    """The price at which rows of these log-sum-exps, shared with the dummy target, move the amount.

    Newton's method for the logarithm of what moves over what does not, which is linear for a single row, between bounds
    that bisection narrows where it fails.
    """
    able = (dual.source_weights > 0) & (log_sums > NOTHING / 2)
    mu, logs = dual.source_weights * able, chosen(able, log_sums - dual.rule.dummy, 0.0)
    odds = math.log(dual.amount / (np.sum(mu) - dual.amount))
    low, high = odds - np.max(chosen(able, logs, NOTHING)), odds - np.min(chosen(able, logs, -NOTHING))
    price = 0.5 * (low + high)
    for _ in range(MOST_BISECTIONS):
        growth = np.exp(np.minimum(np.maximum(logs + price, -HIGHEST), HIGHEST))
        moves, rests = mu * growth / (1 + growth), mu / (1 + growth)
        mass, rest = np.sum(moves), np.sum(rests)
        off = math.log(mass / rest) - odds
        if abs(off) <= ROUNDING * abs(odds):
            break
        low, high = (price, high) if off < 0 else (low, price)
        slope = np.sum(moves / (1 + growth)) * (1 / mass + 1 / rest)
        ahead = price - off / max(slope, ROUNDING)
        if not low < ahead < high:
            ahead = 0.5 * (low + high)
        if ahead == price:
            break
        price = ahead
    return price
