"""What a page can hold. Readers of runs make these, `html/page.py` turns them into HTML; neither knows the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np


@dataclass(frozen=True, kw_only=True, eq=False)
class Samples:
    """One side of a match.

    Attributes
    ----------
    names
        What to call each: the name of a file, the number of a row.
    weights
        How much mass each may send or receive.
    labels
        Their classes, if known. Those of a target are only shown, never used to match.
    predicted
        What a classifier says of them, if there is one.
    images
        A small PNG or JPEG of each, if they are images.
    values, columns
        Otherwise some numbers of each, one row a sample, and what the columns are called.
    """

    names: Sequence[str]
    weights: np.ndarray
    labels: Sequence[str] | None = None
    predicted: Sequence[str] | None = None
    images: Sequence[bytes] | None = None
    values: np.ndarray | None = None
    columns: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Match:
    """Two sides, and the mass of the pairs that carry any: source `rows[k]` sends `mass[k]` to target `columns[k]`."""

    source: Samples
    target: Samples
    rows: np.ndarray
    columns: np.ndarray
    mass: np.ndarray


class Facts(NamedTuple):
    """Names and what they are, as in a summary or a configuration; folded away at first if `folded`."""

    heading: str
    rows: Sequence[tuple[str, str]]
    folded: bool = False


class Table(NamedTuple):
    """Rows that can be sorted by any column; None is a dash, and cells (row, column) in `bold` stand out."""

    heading: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str | float | None]]
    note: str = ""
    bold: frozenset[tuple[int, int]] = frozenset()


class Picture(NamedTuple):
    """A PNG for light screens and paper, and one for dark screens; `text` says what is to be seen, for who cannot."""

    heading: str
    light: bytes
    dark: bytes
    text: str
    caption: str = ""


class Explorer(NamedTuple):
    """The match, to be looked at pair by pair."""

    heading: str
    match: Match
    caption: str = ""


class Note(NamedTuple):
    """A sentence that must not be overlooked."""

    text: str
    kind: Literal["information", "warning"] = "information"


Part = Facts | Table | Picture | Explorer | Note


class Page(NamedTuple):
    """A title, a line below it, and what there is to see, in order."""

    title: str
    subtitle: str
    parts: Sequence[Part]
