"""Numbers that are to be drawn, checked first: Matplotlib would leave out what is no number, or fail late."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from adaptive_ot import _validation as check
from adaptive_ot.errors import InvalidInput


def numbers(name: str, given: Any, *shapes: tuple[int, ...], gaps: bool = False) -> np.ndarray:
    """Finite numbers, of one of these shapes, or in one row; NaN stands for what is missing, if there may be gaps.

    Examples
    --------
    >>> numbers("mass", [1, 2], (2,), (2, 3))
    array([1., 2.])
    """
    try:
        array = np.asarray(given)
        array = array.astype(float) if array.dtype.kind in "biufO" else np.array(None)
    except (ValueError, TypeError, RuntimeError):
        array = np.array(None)
    if array.dtype != float:
        raise InvalidInput(name, "must hold numbers", check.describe(given), "Give numbers.")
    if array.shape not in shapes if shapes else array.ndim != 1:
        rule = f"must have shape {' or '.join(map(str, shapes))}" if shapes else "must be a sequence of numbers"
        raise InvalidInput(name, rule, f"shape {array.shape}", "Give one number for each.")
    if not (np.isfinite(array) | (gaps & np.isnan(array))).all():
        remedy = "Use NaN for what is missing." if gaps else "Leave it out."
        raise InvalidInput(name, "must be finite", f"{array[~np.isfinite(array)][0]}", remedy)
    return array


def named(name: str, given: Any) -> None:
    """Something under at least one name."""
    check.instance(name, given, Mapping)
    if not given:
        raise InvalidInput(name, "must hold at least one", "none", "Give something to draw, under its name.")


def pair(name: str, given: Any, *, gaps: bool = False) -> tuple[str, float]:
    """A name and a number, which may be NaN if there may be gaps."""
    if not (isinstance(given, tuple) and len(given) == 2):
        raise InvalidInput(name, "must be a name and a number", check.describe(given), 'As in ("source only", 0.5).')
    return str(given[0]), float(numbers(f"{name}[1]", [given[1]], (1,), gaps=gaps)[0])
