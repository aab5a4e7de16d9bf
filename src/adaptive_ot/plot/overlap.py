"""Does as much move as there is in common?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from adaptive_ot.errors import InvalidInput
from adaptive_ot.plot.canvas import axes, colours, curve_style, legend
from adaptive_ot.plot.given import named, numbers
from adaptive_ot.plot.names import written

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def mass_against_overlap(overlap: Any, mass: Mapping[str, Sequence[float]], ax: Axes | None = None) -> Axes:
    """Draw how much mass methods move, over how much two datasets have in common.

    Parameters
    ----------
    overlap
        The true overlap of several pairs of datasets: the most mass that equal classes, say, can exchange.
    mass
        What each method moved, in the same order, under its name.
    ax
        Where to draw; by default on a new figure, which is ``ax.figure``.

    Returns
    -------
    The axes. On the dotted diagonal mass and overlap are equal; a thin line is the trend of a method (least squares).

    Examples
    --------
    >>> from adaptive_ot import plot
    >>> ax = plot.mass_against_overlap([0.5, 0.75, 1.0], {"adaptive": [0.45, 0.7, 0.9], "partial": [0.6, 0.6, 0.6]})
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['mass = overlap', 'adaptive', 'partial']
    """
    common = numbers("overlap", overlap)
    named("mass", mass)
    moved = {name: numbers(f"mass[{name!r}]", values, common.shape) for name, values in mass.items()}
    everything = np.concatenate([common, *moved.values()])
    if not common.size or everything.min() < 0:
        given = f"{everything.min():g}" if common.size else "no numbers"
        raise InvalidInput("overlap and mass", "must be at least 0, and some", given, "Give shares of the whole mass.")
    ax = axes(ax, (6.4, 6))
    end = 1.03 * max(1.0, everything.max())
    handles: list[Any] = ax.plot([0, end], [0, end], ":", color=colours().text, linewidth=1.2, label="mass = overlap")
    for number, (name, values) in enumerate(moved.items()):
        style: Any = curve_style(number)
        label = written(name)
        handles += ax.plot(common, values, linestyle="none", markersize=6, alpha=0.8, label=label, **style)
        if np.ptp(common) > 0:
            ends = np.array([common.min(), common.max()])
            ax.plot(ends, np.polyval(np.polyfit(common, values, 1), ends), color=style["color"], linewidth=1)
    ax.set(xlim=(0, end), ylim=(0, end), xlabel="true overlap", ylabel="transported mass")
    ax.set_aspect("equal")
    legend(ax, handles, loc="upper left")
    return ax
