"""The cells of a table: how a value is written, and by what it is sorted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from adaptive_ot.workbench.report.contents import Table

# Digits of a number that people read.
DIGITS = 4
WIDEST = 9


class Cell(NamedTuple):
    """What is written, the number it stands for if it is one, and whether there is nothing."""

    text: str
    number: str | None = None
    missing: bool = False
    bold: bool = False


def written(table: Table) -> list[list[Cell]]:
    """The rows of a table; the numbers of a column have equally many decimals.

    Examples
    --------
    >>> rows = written(Table("Accuracy", ["method", "percent"], [("AOT", 84.625), ("none", 53.0), ("failed", None)]))
    >>> [row[1].text for row in rows], rows[0][1].number
    (['84.62', '53.00', '–'], '84.625')
    """
    decimals = [_decimals([row[k] for row in table.rows]) for k in range(len(table.columns))]
    return [
        [
            _cell(value, places)._replace(bold=(k, column) in table.bold)
            for column, (value, places) in enumerate(zip(row, decimals, strict=True))
        ]
        for k, row in enumerate(table.rows)
    ]


def _cell(value: Any, decimals: int | None) -> Cell:
    if _is_whole(value):
        return Cell(_signed(str(int(value))), str(int(value)))
    if not _is_float(value):
        return Cell("–", missing=True) if value is None else Cell(str(value))
    if math.isnan(value):
        return Cell("–", missing=True)
    if math.isinf(value):
        return Cell(_signed("∞" if value > 0 else "-∞"), "Infinity" if value > 0 else "-Infinity")
    text = f"{float(value):.{DIGITS}g}" if decimals is None else f"{float(value):.{decimals}f}"
    return Cell(_signed(text), repr(float(value)))


def _decimals(column: Sequence[Any]) -> int | None:
    """As many as its numbers need, unless that would be too many to read."""
    floats = [float(value) for value in column if _is_float(value) and math.isfinite(value)]
    texts = [f"{value:.{DIGITS}g}" for value in floats]
    decimals = max((len(text.partition(".")[2]) for text in texts), default=0)
    widest = max((len(f"{abs(value):.{decimals}f}") for value in floats), default=0)
    return decimals if widest <= WIDEST and not any("e" in text for text in texts) else None


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _is_float(value: Any) -> bool:
    return isinstance(value, float | np.floating)


def _signed(text: str) -> str:
    """With a minus sign instead of a hyphen."""
    return text.replace("-", "−")
