"""Costs of points as inner products: C_ij = a_i + b_j - <u_i, v_j>, which both engines compute tile by tile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from adaptive_ot._arrays import to_numpy
from adaptive_ot._jit import kernel
from adaptive_ot.costs import PointCost

# Points are centred at the median of about this many of them.
POINTS_FOR_CENTRE = 300

HALF_ULP = 2.0**-53  # rounding error of one float64 operation

# OpenBLAS runs matrix products of at most this many multiplications on the calling thread. Ours should stay there: we
# have our own threads. For points of many dimensions, larger tiles matter more than that.
PRODUCT_ON_ONE_THREAD = 2**18


def inner_products(cost: PointCost, xp: Any = np, put: Callable[[Any], Any] = to_numpy) -> tuple[Any, ...]:
    """u, v, a, b with C_ij = a_i + b_j - <u_i, v_j>, up to rounding.

    They are computed with the array library `xp`, which `put` passes the points to.
    """
    # Distances do not change if all points move; centred at the (sampled) median, the points lose few digits.
    x, z, p, q = cost.arrays
    sample = [put(side[:: 1 + len(side) // POINTS_FOR_CENTRE]) for side in (x, z)]
    median = xp.median(xp.vstack(sample), 0)
    centre = getattr(median, "values", median)  # torch also says where they are
    distance_scale, class_scale = float(np.sqrt(2 * cost.distance_weight)), float(np.sqrt(cost.class_weight))
    vectors, terms = [], []
    for points, classes, offset in ((x, p, cost.offset), (z, q, 0.0)):
        moved = distance_scale * (put(points) - centre)
        vectors.append(xp.hstack([moved, class_scale * put(classes)]) if cost.classes else moved)
        terms.append(xp.einsum("ij,ij->i", moved, moved) / 2 - offset)
    return *vectors, *terms


def inner_product_bound(cost: PointCost, half_ulp: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """u, v, a, b with C_ij >= a_i + b_j - fl(<u_i, v_j>), where fl rounds by half_ulp and sums in any order.

    |fl(<u, v>) - <u, v>| <= (d + 8) half_ulp |u| |v| <= (d + 8) half_ulp / 2 (|u|^2 + |v|^2): one term for the row, one
    for the column. The rest and C_ij itself are computed in float64, in whichever way: each loses at most (d + 8) half
    an ulp times |u|^2 + |v|^2, and a few half ulps of the offset.
    """
    u, v, a, b = inner_products(cost)
    size = u.shape[1] + 8
    for vectors, terms, offset in ((u, a, cost.offset), (v, b, 0.0)):
        square = np.einsum("ij,ij->i", vectors, vectors)
        terms -= size * (half_ulp / 2 + 2 * HALF_ULP) * square + 8 * HALF_ULP * offset
    return u, v, a, b


@kernel
def point_costs(u, w, a, b, top, tile):
    """Fill `tile` with the rows of a_i + b_j - <u_i, w_j> from `top` on.

    Matrix products are small enough to stay on this thread.
    """
    step = max(1, PRODUCT_ON_ONE_THREAD // max(1, tile.shape[0] * u.shape[1]))
    rows = u[top : top + tile.shape[0]]
    for start in range(0, b.size, step):
        terms = b[start : start + step]
        product = np.dot(rows, w[start : start + terms.size].T)
        for i in range(tile.shape[0]):
            # Slices whose indices all start at 0 become vector instructions.
            term, of_row, out = a[top + i], product[i], tile[i, start : start + terms.size]
            for j in range(terms.size):
                out[j] = term + terms[j] - of_row[j]
