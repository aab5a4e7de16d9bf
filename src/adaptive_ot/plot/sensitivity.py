"""How much a result depends on the parameters of a method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from adaptive_ot import _validation as check
from adaptive_ot.errors import InvalidInput
from adaptive_ot.plot.canvas import GREY, VERMILLION, colours, legend, new_figure, panels
from adaptive_ot.plot.given import numbers, pair
from adaptive_ot.plot.names import written

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# From here on values are shown by their ratios.
WIDE = 10

# Pixels of a letter of a number below an axis, and of the gap to the next number.
LETTER, GAP = 13.5, 8


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
        What was found; the default value is drawn larger, if it is one of those that have a result.
    baseline
        The name and the result of something to compare with: a dashed line, unless it is NaN.
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
    for number, curve in enumerate(curves):
        _check(f"curves[{number}]", curve)
    line = None if baseline is None else pair("baseline", baseline, gaps=True)
    figure = new_figure((0.8 + 3.2 * len(curves), 3.6))
    grid = panels(figure, 1, len(curves), sharey=True)[0]
    explained: dict[str, Any] = {}
    for ax, curve in zip(grid, curves, strict=True):
        explained |= _draw(ax, curve, line)
    grid[0].set_ylabel(result)
    if explained:
        legend(figure, list(explained.values()), loc="outside upper center", ncols=len(explained))
    return figure


def _check(name: str, curve: Curve) -> None:
    check.instance(name, curve, Curve)
    values = numbers(f"{name}.values", curve.values)
    if not values.size:
        raise InvalidInput(f"{name}.values", "must be at least one", "none", "Leave out parameters without results.")
    numbers(f"{name}.results", curve.results, values.shape, gaps=True)
    if curve.deviations is not None:
        numbers(f"{name}.deviations", curve.deviations, values.shape, gaps=True)


def _draw(ax: Axes, curve: Curve, baseline: tuple[str, float] | None) -> dict[str, Any]:
    """One panel, and what a legend should explain."""
    values, results = np.asarray(curve.values, float), np.asarray(curve.results, float)
    explained: dict[str, Any] = {}
    ax.grid(axis="y", color=GREY, alpha=0.25, linewidth=0.8)
    style: Any = {"color": colours().curve, "marker": "o", "markersize": 5, "linewidth": 1.8, "capsize": 3}
    ax.errorbar(values, results, yerr=curve.deviations, zorder=2, **style)
    at = (values == curve.default) & np.isfinite(results)
    if at.any():
        (mark,) = ax.plot(values[at], results[at], "o", color=VERMILLION, markersize=9, zorder=3, label="default")
        explained["default"] = mark
    if baseline and np.isfinite(baseline[1]):
        name, height = written(baseline[0]), baseline[1]
        explained["baseline"] = ax.axhline(height, color=GREY, linestyle="--", linewidth=1.5, label=name)
    _number_values(ax, values)
    ax.set_xlabel(written(curve.parameter))
    return explained


def _number_values(ax: Axes, values: np.ndarray) -> None:
    """A scale on which small and large values are told apart, and as many of their numbers as there is room for."""
    sizes = np.abs(values[values != 0])
    if sizes.size and sizes.max() > WIDE * sizes.min():
        if values.min() > 0:
            ax.set_xscale("log")
        else:
            ax.set_xscale("symlog", linthresh=sizes.min())
    values = np.unique(values)
    names, end = [f"{value:g}" for value in values], -np.inf
    for k, place in enumerate(ax.transData.transform(np.column_stack([values, values]))[:, 0]):
        half = LETTER * len(names[k]) / 2
        if place - half < end + GAP:
            names[k] = ""
        else:
            end = place + half
    ax.set_xticks(values, names)
    ax.set_xticks([], minor=True)
