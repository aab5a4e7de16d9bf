"""The pairs of points of two persistence diagrams that are worth matching."""

from __future__ import annotations

import numpy as np

from adaptive_ot._jit import kernel
from adaptive_ot.exact.listed import Pairs


def paying_pairs(x: np.ndarray, z: np.ndarray, order: float, internal: float) -> Pairs:
    """The pairs that cost less than to send both points to the diagonal; what they save is their negated cost."""
    start = np.zeros(len(x) + 1, np.int64)
    alone = [side_costs(side, order, internal) for side in (x, z)]
    none = np.empty(0, np.int32), np.empty(0)
    _list(x, z, *alone, order, internal, start, *none, False)
    pairs = Pairs(np.cumsum(start), np.empty(start.sum(), np.int32), np.empty(start.sum()))
    _list(x, z, *alone, order, internal, *pairs, True)
    return pairs


def side_costs(points: np.ndarray, order: float, internal: float) -> np.ndarray:
    """What it costs to send each point to the diagonal."""
    return ((points[:, 1] - points[:, 0]) / 2 * 2 ** (1 / internal)) ** order


@kernel
def _list(x, z, of_x, of_z, order, internal, start, column, cost, fill):
    """Count the pairs of every row, one place further on, or write them to their places."""
    for i in range(len(x)):
        place = start[i] if fill else 0
        for j in range(len(z)):
            a, b = abs(x[i, 0] - z[j, 0]), abs(x[i, 1] - z[j, 1])
            both = of_x[i] + of_z[j]
            if order == 2.0:  # powers are slow
                if max(a, b) ** 2 >= both:
                    continue
            elif order == 1.0 and max(a, b) >= both:
                continue
            if internal == np.inf:
                apart = max(a, b)
            elif internal == 2.0:
                apart = np.sqrt(a * a + b * b)
            else:
                apart = (a**internal + b**internal) ** (1 / internal)
            saved = (apart * apart if order == 2.0 else apart if order == 1.0 else apart**order) - both
            if saved < 0.0:
                if fill:
                    column[place], cost[place] = j, saved
                place += 1
        if not fill:
            start[i + 1] = place
