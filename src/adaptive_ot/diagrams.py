"""Distances between persistence diagrams: points are matched with each other, or left alone on the diagonal."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_torch_array

from adaptive_ot import _validation as check
from adaptive_ot.batch import is_batch
from adaptive_ot.errors import InvalidInput

DIAGONAL = -1


def distance(a: Any, b: Any, order: float = 2.0, *, internal: float = math.inf, matching: bool = False) -> Any:
    """The Wasserstein distance between two persistence diagrams, exact.

    Every point is matched with one of the other diagram or with the diagonal, so that the sum of the distances to the
    power `order` is smallest. This is adaptive transport of unit weights: a pair is worth making if it costs less than
    to send both of its points to the diagonal.

    Parameters
    ----------
    a, b
        Diagrams: a row of birth and death for each point; arrays, torch tensors or nested lists. Points that never die
        (a death of inf), or were always there (a birth of -inf), are matched with their like, in the order of their
        finite coordinates. Lists of diagrams, or arrays of three dimensions, are pairs of diagrams.
    order
        The order of the distance, at least 1.
    internal
        The norm between points, at least 1: inf is the maximum norm, as in GUDHI.
    matching
        Also return the pairs, a row for each: places in `a` and `b`, -1 for the diagonal.

    Returns
    -------
    float or array or tensor, and with `matching` the pairs
        The distance; inf if the diagrams have different numbers of points that never die. Of tensors, a tensor through
        which gradients flow. For many pairs of diagrams, an array of distances and a list of pairs.

    Examples
    --------
    >>> import adaptive_ot as aot
    >>> aot.diagrams.distance([[0.0, 1.0], [0.0, 4.0]], [[0.0, 5.0]], order=1)
    1.5
    >>> value, pairs = aot.diagrams.distance([[0.0, 1.0], [0.0, 4.0]], [[0.0, 5.0]], order=1, matching=True)
    >>> pairs.tolist()
    [[0, -1], [1, 0]]
    """
    order = check.number("order", order, minimum=1.0, maximum=100.0)
    internal = math.inf if internal == math.inf else check.number("internal", internal, minimum=1.0)
    if is_batch(a) or is_batch(b):
        if len(a) != len(b):
            raise InvalidInput("b", f"must hold as many diagrams as a ({len(a)})", len(b), "Give pairs of diagrams.")
        found = [
            _distance(f"a[{k}]", x, f"b[{k}]", z, order, internal) for k, (x, z) in enumerate(zip(a, b, strict=True))
        ]
        values = [value for value, _ in found]
        if any(is_torch_array(value) for value in values):
            import torch

            stacked: Any = torch.stack(values)
        else:
            stacked = np.array(values, float)
        return (stacked, [pairs for _, pairs in found]) if matching else stacked
    value, pairs = _distance("a", a, "b", b, order, internal)
    return (value, pairs) if matching else value


def _distance(first: str, a: Any, second: str, b: Any, order: float, internal: float) -> tuple[Any, np.ndarray]:
    x, z = _diagram(first, a), _diagram(second, b)
    pairs = _optimal_pairs(x, z, order, internal)
    if pairs is None:
        infinite = a.new_tensor(math.inf) if is_torch_array(a) else math.inf
        return infinite, np.empty((0, 2), np.int64)
    if is_torch_array(a) or is_torch_array(b):
        import torch

        dtype = torch.promote_types(*(side.dtype if is_torch_array(side) else torch.float32 for side in (a, b)))
        x, z = (torch.as_tensor(side, dtype=dtype) for side in (a, b))
        x, z = x.reshape(-1, 2), z.reshape(-1, 2).to(x.device)
        terms = _terms(x, z, pairs, order, internal)
        total = terms.sum()
        return (total if float(total.detach()) == 0 else total ** (1 / order)), pairs
    return math.fsum(_terms(x, z, pairs, order, internal)) ** (1 / order), pairs


def _diagram(name: str, given: Any) -> np.ndarray:
    """Births and deaths in float64."""
    array = check.real_array(name, given)
    if array.size == 0:
        return np.empty((0, 2))
    if array.ndim != 2 or array.shape[1] != 2:
        raise InvalidInput(
            name, "must have a row of birth and death for each point", f"shape {array.shape}", "Reshape it."
        )
    points = np.ascontiguousarray(array, np.float64)
    birth, death = points.T
    in_order = (birth <= death) & (birth < math.inf) & (death > -math.inf)
    too_large = (np.abs(points) > check.LARGEST_SCORE).any(axis=1) & np.isfinite(points).all(axis=1)
    for wrong, rule, remedy in (
        (~in_order, "must hold births that are not after their deaths", "Correct it."),
        (too_large, f"must hold finite numbers up to {check.LARGEST_SCORE:g}", "Use smaller units."),
    ):
        if wrong.any():
            at = int(np.argmax(wrong))
            raise InvalidInput(name, rule, f"birth {birth[at]:g} and death {death[at]:g} at index {at}", remedy)
    return points


def _optimal_pairs(x: np.ndarray, z: np.ndarray, order: float, internal: float) -> np.ndarray | None:
    """Places of the points of each pair, DIAGONAL for none; None if the diagrams are infinitely far apart."""
    # Numba takes half a second to import; only a search should pay for it.
    from adaptive_ot.exact.diagonal import paying_pairs
    from adaptive_ot.exact.matching import match_pairs_up_to

    kinds = [np.isinf(side) @ np.array([1, 2]) for side in (x, z)]  # 0: finite, 1: always there, 2: never dies, 3: both
    endless = _endless_pairs(x, z, *kinds) if kinds[0].any() or kinds[1].any() else np.empty((0, 2), np.int64)
    if endless is None:
        return None
    of_x, of_z = (np.flatnonzero(of == 0) for of in kinds)
    ones = np.ones(of_x.size, np.int64), np.ones(of_z.size, np.int64)
    matched = match_pairs_up_to(paying_pairs(x[of_x], z[of_z], order, internal), *ones)
    # A point that meets the diagonal keeps that partner unless it is matched below.
    pairs = np.full((len(x) + len(z), 2), DIAGONAL)
    pairs[: len(x), 0], pairs[len(x) :, 1] = np.arange(len(x)), np.arange(len(z))
    rows, columns = np.append(of_x[matched.rows], endless[:, 0]), np.append(of_z[matched.columns], endless[:, 1])
    pairs[rows, 1] = columns
    return np.delete(pairs, len(x) + columns, axis=0)


def _endless_pairs(x: np.ndarray, z: np.ndarray, of_x: np.ndarray, of_z: np.ndarray) -> np.ndarray | None:
    """Points that never die or were always there, matched in the order of their finite coordinates, if they can be."""
    pairs = []
    for kind in (1, 2, 3):
        rows, columns = np.flatnonzero(of_x == kind), np.flatnonzero(of_z == kind)
        if rows.size != columns.size:
            return None
        coordinate = 1 if kind == 1 else 0
        in_x, in_z = (np.argsort(side[of, coordinate], kind="stable") for side, of in ((x, rows), (z, columns)))
        pairs.append(np.stack((rows[in_x], columns[in_z]), axis=1))
    return np.concatenate(pairs)


def _terms(x: Any, z: Any, pairs: np.ndarray, order: float, internal: float) -> Any:
    """The distance of each pair to the power `order`; only operations that torch can differentiate."""
    xp = array_namespace(x, z)
    both = (pairs != DIAGONAL).all(axis=1)
    rows, columns = pairs[both].T
    start, end = x[rows], z[columns]
    finite = xp.isfinite(start) & xp.isfinite(end)
    zero = xp.zeros_like(start)
    apart = xp.abs(xp.where(finite, start, zero) - xp.where(finite, end, zero))
    if internal == math.inf:
        between = xp.max(apart, axis=1) if len(rows) else apart[:, 0]
    else:
        # The root has no derivative at 0, where points coincide.
        powers = xp.sum(apart**internal, axis=1)
        same = powers == 0
        between = xp.where(same, powers, xp.where(same, powers + 1, powers) ** (1 / internal))
    alone = [side[pairs[~both, k][pairs[~both, k] != DIAGONAL]] for k, side in enumerate((x, z))]
    lives = [(side[:, 1] - side[:, 0]) / 2 * 2 ** (1 / internal) for side in alone]
    return xp.concat([between, *lives]) ** order
