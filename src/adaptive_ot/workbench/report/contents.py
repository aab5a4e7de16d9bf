"""The parts of a page. Readers of runs make these, `html/page.py` renders them; neither knows the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np


@dataclass(frozen=True, kw_only=True, eq=False)
class Samples:
    """One side of a match, one entry for each sample.

    Attributes
    ----------
    names
        File names or row numbers.
    weights
        The mass that each may send or receive.
    labels
        Classes, if known. Those of a target are only shown, never used to match.
    predicted
        Predictions of a classifier, if there is one.
    images
        Small PNG or JPEG files, if the samples are images.
    values, columns
        Otherwise some numbers, one row a sample, and the names of the columns.
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
    """Two sides and the pairs that carry mass: source `rows[k]` sends `mass[k]` to target `columns[k]`."""

    source: Samples
    target: Samples
    rows: np.ndarray
    columns: np.ndarray
    mass: np.ndarray


class Facts(NamedTuple):
    """Names and values, as of a summary or a configuration; collapsed at first if `folded`."""

    heading: str
    rows: Sequence[tuple[str, str]]
    folded: bool = False


class Table(NamedTuple):
    """Rows that can be sorted by any column. None is shown as a dash, cells (row, column) in `bold` stand out."""

    heading: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str | float | None]]
    note: str = ""
    bold: frozenset[tuple[int, int]] = frozenset()


class Picture(NamedTuple):
    """A PNG for light screens and paper, and one for dark screens; `text` describes it for those who cannot see it."""

    heading: str
    light: bytes
    dark: bytes
    text: str
    caption: str = ""


class Explorer(NamedTuple):
    """A match that can be browsed pair by pair."""

    heading: str
    match: Match
    caption: str = ""


class Note(NamedTuple):
    """A sentence that must not be overlooked."""

    text: str
    kind: Literal["information", "warning"] = "information"


Part = Facts | Table | Picture | Explorer | Note


class Page(NamedTuple):
    title: str
    subtitle: str
    parts: Sequence[Part]
