"""Transported mass over the true overlap of two datasets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from adaptive_ot import _validation as check
from adaptive_ot.errors import InvalidInput
from adaptive_ot.plot.canvas import axes, colours, curve_style, legend
from adaptive_ot.plot.names import written

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def mass_against_overlap(overlap: Any, mass: Mapping[str, Sequence[float]], ax: Axes | None = None) -> Axes:
    """Draw the mass that methods transport over the overlap of two datasets.

    Parameters
    ----------
    overlap
        The true overlap of several pairs of datasets, for example the largest mass that equal classes can exchange.
    mass
        The transported masses of each method, by name, in the same order.
    ax
        The axes to draw on; by default those of a new figure, ``ax.figure``.

    Returns
    -------
    The axes. On the dotted diagonal, mass equals overlap; a thin line is the least-squares trend of a method.

    Examples
    --------
    >>> from adaptive_ot import plot
    >>> ax = plot.mass_against_overlap([0.5, 0.75, 1.0], {"adaptive": [0.45, 0.7, 0.9], "partial": [0.6, 0.6, 0.6]})
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['mass = overlap', 'adaptive', 'partial']
    """
    common = check.numbers("overlap", overlap)
    check.mapping("mass", mass)
    moved = {name: check.numbers(f"mass[{name!r}]", values, common.shape) for name, values in mass.items()}
    everything = np.concatenate([common, *moved.values()])
    if not common.size or everything.min() < 0:
        given = f"{everything.min():g}" if common.size else "no numbers"
        raise InvalidInput("overlap and mass", "must be numbers from 0", given, "Give shares of the whole mass.")
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
