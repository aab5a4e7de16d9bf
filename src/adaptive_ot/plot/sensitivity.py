"""Results of a method over the values of its parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from adaptive_ot import _validation as check
from adaptive_ot.plot.canvas import GREY, VERMILLION, colours, grid_lines, legend, new_figure, panels
from adaptive_ot.plot.names import written

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Values whose sizes differ by more than this factor are drawn on a logarithmic scale.
WIDE = 10

# The width, in pixels, of a digit below an axis, and of the gap between two numbers.
DIGIT, GAP = 13.5, 8


class Curve(NamedTuple):
    """Results over the values of one parameter; all other parameters have their defaults."""

    parameter: str
    values: Sequence[float]
    results: Sequence[float]
    deviations: Sequence[float] | None = None
    default: float | None = None


def sensitivity(
    curves: Sequence[Curve], baseline: tuple[str, float] | None = None, result: str = "accuracy (%)"
) -> Figure:
    """Draw one panel for every parameter, with a common scale of results.

    Parameters
    ----------
    curves
        The results, a curve for each parameter. The default value has a larger mark if it has a result.
    baseline
        The name and the result of something to compare with, drawn as a dashed line unless the result is NaN.
    result
        The name of the results.

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
    check.not_empty("curves", curves, "Vary a parameter.")
    for number, curve in enumerate(curves):
        _check(f"curves[{number}]", curve)
    line = None if baseline is None else check.named_number("baseline", baseline, missing=True)
    figure = new_figure((0.8 + 3.2 * len(curves), 3.6))
    grid = panels(figure, 1, len(curves), sharey=True)[0]
    handles: dict[str, Any] = {}
    for ax, curve in zip(grid, curves, strict=True):
        handles |= _draw(ax, curve, line)
    grid[0].set_ylabel(result)
    if handles:
        legend(figure, list(handles.values()), loc="outside upper center", ncols=len(handles))
    return figure


def _check(name: str, curve: Curve) -> None:
    check.instance(name, curve, Curve)
    values = check.numbers(f"{name}.values", curve.values)
    check.not_empty(f"{name}.values", values, "Leave out parameters without results.")
    check.numbers(f"{name}.results", curve.results, values.shape, missing=True)
    if curve.deviations is not None:
        check.numbers(f"{name}.deviations", curve.deviations, values.shape, missing=True)


def _draw(ax: Axes, curve: Curve, baseline: tuple[str, float] | None) -> dict[str, Any]:
    """One panel; returns the artists for the legend."""
    values, results = np.asarray(curve.values, float), np.asarray(curve.results, float)
    handles: dict[str, Any] = {}
    grid_lines(ax)
    style: Any = {"color": colours().curve, "marker": "o", "markersize": 5, "linewidth": 1.8, "capsize": 3}
    ax.errorbar(values, results, yerr=curve.deviations, zorder=2, **style)
    at = (values == curve.default) & np.isfinite(results)
    if at.any():
        (mark,) = ax.plot(values[at], results[at], "o", color=VERMILLION, markersize=9, zorder=3, label="default")
        handles["default"] = mark
    if baseline and np.isfinite(baseline[1]):
        name, height = written(baseline[0]), baseline[1]
        handles["baseline"] = ax.axhline(height, color=GREY, linestyle="--", linewidth=1.5, label=name)
    _number_values(ax, values)
    ax.set_xlabel(written(curve.parameter))
    return handles


def _number_values(ax: Axes, values: np.ndarray) -> None:
    """A scale that separates small and large values, with as many of their numbers as fit."""
    sizes = np.abs(values[values != 0])
    if sizes.size and sizes.max() > WIDE * sizes.min():
        if values.min() > 0:
            ax.set_xscale("log")
        else:
            ax.set_xscale("symlog", linthresh=sizes.min())
    values = np.unique(values)
    names, end = [f"{value:g}" for value in values], -np.inf
    for k, place in enumerate(ax.transData.transform(np.column_stack([values, values]))[:, 0]):
        half = DIGIT * len(names[k]) / 2
        if place - half < end + GAP:
            names[k] = ""
        else:
            end = place + half
    ax.set_xticks(values, names)
    ax.set_xticks([], minor=True)
