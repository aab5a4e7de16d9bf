"""The cells of a table: their text, and the number by which they are sorted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from adaptive_ot.workbench.report.contents import Table

# Digits of a number, and letters beyond which a column of equally many decimals is too wide to read.
DIGITS = 4
WIDEST = 9


class TableCell(NamedTuple):
    """A text, the number it stands for if it is one, and whether the value is missing."""

    text: str
    number: str | None = None
    missing: bool = False
    bold: bool = False


def cells_of(table: Table) -> list[list[TableCell]]:
    """The rows of a table; the numbers of a column have equally many decimals.

    Examples
    --------
    >>> rows = cells_of(Table("Accuracy", ["method", "percent"], [("AOT", 84.625), ("none", 53.0), ("failed", None)]))
    >>> [row[1].text for row in rows], rows[0][1].number
    (['84.62', '53.00', '–'], '84.625')
    """
    forms = [_form([row[k] for row in table.rows]) for k in range(len(table.columns))]
    return [
        [_cell(row[at], form)._replace(bold=(k, at) in table.bold) for at, form in enumerate(forms)]
        for k, row in enumerate(table.rows)
    ]


def _cell(value: Any, form: str) -> TableCell:
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        text = number = str(int(value))
    elif value is None or (_is_float(value) and math.isnan(value)):
        return TableCell("–", missing=True)
    elif not _is_float(value):
        return TableCell(str(value))
    elif math.isinf(value):
        text, number = ("∞", "Infinity") if value > 0 else ("-∞", "-Infinity")
    else:
        text, number = format(float(value), form), repr(float(value))
    return TableCell(text.replace("-", "\N{MINUS SIGN}"), number)


def _form(column: Sequence[Any]) -> str:
    """As many decimals as the numbers of a column need, unless these are too many to read."""
    floats = [float(value) for value in column if _is_float(value) and math.isfinite(value)]
    texts = [f"{value:.{DIGITS}g}" for value in floats]
    decimals = max((len(text.partition(".")[2]) for text in texts), default=0)
    widest = max((len(f"{abs(value):.{decimals}f}") for value in floats), default=0)
    return f".{decimals}f" if widest <= WIDEST and not any("e" in text for text in texts) else f".{DIGITS}g"


def _is_float(value: Any) -> bool:
    return isinstance(value, float | np.floating)
