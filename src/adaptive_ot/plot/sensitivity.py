"""How much a result depends on the parameters of a method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from adaptive_ot.errors import InvalidInput
from adaptive_ot.plot.canvas import BLUE, GREY, VERMILLION, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# From here on values are shown by their ratios, if all are above zero.
WIDE = 10


class Curve(NamedTuple):
    """Results over the values of one parameter, all others at their defaults."""

    parameter: str
    values: Sequence[float]
    results: Sequence[float]
    deviations: Sequence[float] | None = None
    default: float | None = None


def sensitivity(
    curves: Sequence[Curve], baseline: tuple[str, float] | None = None, result: str = "accuracy (%)"
) -> Figure:
    """Draw one panel for every parameter, on one scale of results.

    Parameters
    ----------
    curves
        What was found; the default value is drawn larger.
    baseline
        The name and the result of something to compare with: a dashed line.
    result
        What the results are.

    Returns
    -------
    The figure.

    Examples
    --------
    >>> from adaptive_ot import plot
    >>> beta = plot.Curve("beta", [0.1, 1, 10], [60.0, 80.0, 70.0], [1.0, 2.0, 1.0], default=1)
    >>> figure = plot.sensitivity([beta], baseline=("source only", 50.0))
    >>> [text.get_text() for text in figure.legends[0].get_texts()]
    ['default', 'source only']
    """
    if not curves:
        raise InvalidInput("curves", "must be at least one", "none", "Vary a parameter.")
    figure = new_figure((0.8 + 3.2 * len(curves), 3.6))
    panels = figure.subplots(1, len(curves), sharey=True, squeeze=False)[0]
    for ax, curve in zip(panels, curves, strict=True):
        _draw(ax, curve, baseline)
    panels[0].set_ylabel(result)
    handles, labels = panels[0].get_legend_handles_labels()
    if labels:
        figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
    return figure


def _draw(ax: Axes, curve: Curve, baseline: tuple[str, float] | None) -> None:
    values, results = np.asarray(curve.values, float), np.asarray(curve.results, float)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", color=GREY, alpha=0.25, linewidth=0.8)
    ax.errorbar(
        values, results, yerr=curve.deviations, color=BLUE, marker="o", markersize=5, linewidth=1.8, capsize=3, zorder=2
    )
    if curve.default is not None:
        at = values == curve.default
        ax.plot(values[at], results[at], "o", color=VERMILLION, markersize=9, zorder=3, label="default")
    if baseline:
        ax.axhline(baseline[1], color=GREY, linestyle="--", linewidth=1.5, label=baseline[0])
    if values.min() > 0 and values.max() > WIDE * values.min():
        ax.set_xscale("log")
    ax.set_xticks(values, [f"{value:g}" for value in values])
    ax.set_xticks([], minor=True)
    ax.set_xlabel(curve.parameter)
