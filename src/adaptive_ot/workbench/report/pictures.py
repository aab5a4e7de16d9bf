"""Figures as bytes of PNG files, for light screens and for dark ones."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from io import BytesIO
from typing import Any, Literal, NamedTuple

from adaptive_ot import plot


class Drawn(NamedTuple):
    """One picture, twice."""

    light: bytes
    dark: bytes


def drawn(draw: Callable[[], Any]) -> Drawn:
    """What `draw` returns, axes or a figure, in both themes.

    Examples
    --------
    >>> import adaptive_ot as aot
    >>> light, dark = drawn(lambda: plot.plan(aot.solve([[-1.0]])))
    >>> light[1:4], dark[1:4], light == dark
    (b'PNG', b'PNG', False)
    """
    return Drawn(*(saved(draw, theme, "png") for theme in ("light", "dark")))


def saved(draw: Callable[[], Any], theme: Literal["light", "dark"], kind: str) -> bytes:
    """The bytes of a file of this kind."""
    file = BytesIO()
    with plot.theme(theme), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        made = draw()
        figure = made if hasattr(made, "savefig") else made.figure
        figure.savefig(file, format=kind)
    return file.getvalue()
