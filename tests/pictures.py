"""Reading pictures: texts, lines, marks and colours."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_hex, to_rgb


def texts(artists: Iterable[Any]) -> list[str]:
    return [artist.get_text() for artist in artists]


def hexes(colours: Iterable[Any]) -> list[str]:
    return [to_hex(colour) for colour in colours]


def plan_lines(ax: Any) -> Any:
    """The lines between sources and targets."""
    (lines,) = (each for each in ax.collections if isinstance(each, LineCollection))
    return lines


def plan_marks(ax: Any) -> list[Any]:
    """Filled and hollow marks of the sources, then those of the targets."""
    return [each for each in ax.collections if isinstance(each, PathCollection)]


def contrast(a: Any, b: Any) -> float:
    """WCAG's ratio of luminances."""
    levels = []
    for colour in (a, b):
        rgb = np.array(to_rgb(colour))
        levels.append(np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722])
    return (max(levels) + 0.05) / (min(levels) + 0.05)
