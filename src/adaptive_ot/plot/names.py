"""Names given by users: their order, a form that can be drawn, and their places on an axis."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

# Per inch of an axis: more names are left out, more letters in a row are slanted. Longer names lose their middle.
NAMES = {"x": 4.5, "y": 6.0}
LETTERS = 12.0
LONGEST = 28

# Invisible characters that change the direction of the text around them, including our own beside a name.
TURNING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def natural(text: str) -> list[tuple[int, int, str]]:
    """A key that sorts numbers within words by size.

    Examples
    --------
    >>> sorted(["class 10", "class 9", "Bike", "car"], key=natural)
    ['Bike', 'car', 'class 9', 'class 10']
    """
    pieces = re.findall(r"([0-9]+)|([^0-9]+)", text)
    key = [(0, len(digits.lstrip("0")), digits.lstrip("0")) if digits else (1, 0, word) for digits, word in pieces]
    return [(kind, size, piece.casefold()) for kind, size, piece in key] + [(2, 0, text)]


def natural_order(labels: np.ndarray) -> np.ndarray:
    """The permutation that sorts different labels: numbers by size, words in natural order.

    Examples
    --------
    >>> natural_order(np.array(["class 10", "class 9"])), natural_order(np.array([-1.5, -20.0]))
    (array([1, 0]), array([1, 0]))
    """
    words = labels.tolist()
    if all(isinstance(word, str) for word in words):
        return np.array(sorted(range(len(words)), key=lambda k: natural(words[k])), dtype=int)
    return np.argsort(labels)


def written(name: Any) -> str:
    r"""A name on one line, shortened if it is long, without mathematics.

    Characters that no font has, and those that change the direction of text, are written as their codes.

    Matplotlib's own fonts lack Chinese, Japanese and others. To draw these, name an installed font, as in
    ``matplotlib.rcParams["font.family"] = ["DejaVu Sans", "Noto Sans CJK JP"]``.

    Examples
    --------
    >>> print(written("one $ and\ttwo"), written("猫 and dog"), written("x" * 99))
    one \$ and two \u732b and dog xxxxxxxxxxxxxxxxxx...xxxxxxx
    """
    text = " ".join(str(name).split())
    pieces = list(text)
    if not (text.isascii() and text.isprintable()):
        known = _in_fonts(frozenset(text) - TURNING)
        pieces = [each if each in known else each.encode("unicode_escape").decode() for each in text]
    if sum(map(len, pieces)) > LONGEST:
        pieces = [*_first(pieces, LONGEST * 2 // 3), "...", *reversed(_first(pieces[::-1], LONGEST // 3 - 2))]
    return "".join(pieces).replace("$", r"\$")


def _first(pieces: list[str], letters: int) -> list[str]:
    """As many pieces from the left as have at most this many letters."""
    ends = np.cumsum([len(piece) for piece in pieces])
    return pieces[: int(np.searchsorted(ends, letters, side="right"))]


def _in_fonts(wanted: frozenset[str]) -> frozenset[str]:
    """Those characters that one of Matplotlib's chosen fonts has."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    fonts = []
    for family in FontProperties().get_family():
        try:
            fonts.append(get_font(findfont(FontProperties(family=[family]), fallback_to_default=False)))
        except ValueError:  # not installed
            continue
    return frozenset(each for each in wanted if any(font.get_char_index(ord(each)) for font in fonts))


def name_axis(axis: Any, positions: np.ndarray, names: Sequence[str]) -> None:
    """Names at their positions; long names below a picture are slanted, and some of very many are left out."""
    figure, place = axis.figure.canvas.figure, axis.axes.get_position()
    inches = figure.get_figwidth() * place.width if axis.axis_name == "x" else figure.get_figheight() * place.height
    some = slice(None, None, 1 + int(max(0, len(names) - 1) / (NAMES[axis.axis_name] * inches)))
    names = list(names[some])
    longest = max((len(line) for name in names for line in name.split("\n")), default=0)
    crowded = axis.axis_name == "x" and (longest + 0.5) * len(names) > LETTERS * inches
    slanted: Any = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if crowded else {}
    names = [name.replace("\n", " ") for name in names] if crowded else names
    axis.set_ticks(positions[some], names, fontsize="small", **slanted)
    axis.set_tick_params(length=0)
