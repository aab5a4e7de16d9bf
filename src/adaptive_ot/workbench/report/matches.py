"""Whether a match fits together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from adaptive_ot import _validation as check
from adaptive_ot.errors import InvalidInput
from adaptive_ot.workbench.report.contents import Match, Samples
from adaptive_ot.workbench.report.images import check_images


def check_match(match: Match) -> None:
    """Refuse fields that differ in length, pairs of samples that do not exist, and mass that cannot be."""
    check.instance("match", match, Match)
    _check_side("match.source", match.source)
    _check_side("match.target", match.target)
    pairs = np.size(match.mass)
    _check_amounts("match.mass", match.mass, pairs)
    _check_index("match.rows", match.rows, pairs, len(match.source.names))
    _check_index("match.columns", match.columns, pairs, len(match.target.names))


def _check_side(name: str, side: Samples) -> None:
    check.instance(name, side, Samples)
    size = len(side.names)
    _check_words(f"{name}.names", side.names, size)
    _check_amounts(f"{name}.weights", side.weights, size)
    for field, labels in (("labels", side.labels), ("predicted", side.predicted)):
        if labels is not None:
            _check_words(f"{name}.{field}", labels, size)
    if side.images is not None:
        _check_length(f"{name}.images", len(side.images), size)
        check_images(f"{name}.images", side.images)
    if side.values is not None:
        values = _numbers(f"{name}.values", side.values)
        if values.ndim != 2 or len(values) != size:
            rule = f"must have {size} rows, one a sample"
            raise InvalidInput(f"{name}.values", rule, f"shape {values.shape}", "Leave it out if there is none.")
        _check_words(f"{name}.columns", side.columns, values.shape[1])


def _check_length(name: str, given: int, expected: int) -> None:
    if given != expected:
        raise InvalidInput(name, f"must have length {expected}", given, "Leave none out, and add none.")


def _check_words(name: str, words: Sequence[str], size: int) -> None:
    _check_length(name, len(words), size)
    for k, word in enumerate(words):
        check.instance(f"{name}[{k}]", word, str)


def _check_amounts(name: str, given: Any, size: int) -> None:
    amounts = _numbers(name, given)
    if amounts.shape != (size,):
        raise InvalidInput(name, f"must have shape ({size},)", amounts.shape, "Leave none out, and add none.")
    wrong = ~((amounts >= 0) & (amounts <= check.LARGEST))
    if wrong.any():
        at = int(np.argmax(wrong))
        rule = f"must be from 0 to {check.LARGEST:g}"
        raise InvalidInput(name, rule, f"{amounts[at]} at {at}", "Mass is finite and non-negative.")


def _check_index(name: str, given: Any, pairs: int, size: int) -> None:
    index = _numbers(name, given)
    if index.shape != (pairs,):
        raise InvalidInput(name, f"must have shape ({pairs},) as the mass", index.shape, "Give one a pair.")
    if index.size and index.dtype.kind not in "iu":
        raise InvalidInput(name, "must hold whole numbers", f"dtype {index.dtype}", "Convert it to int64.")
    wrong = (index < 0) | (index >= size)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise InvalidInput(name, f"must be below {size}, and not negative", f"{index[at]} at {at}", "Count from 0.")


def _numbers(name: str, given: Any) -> np.ndarray:
    array = np.asarray(given)
    if array.dtype.kind not in check.REAL:
        raise InvalidInput(name, "must hold real numbers", f"dtype {array.dtype}", "Convert it to float64.")
    return array
