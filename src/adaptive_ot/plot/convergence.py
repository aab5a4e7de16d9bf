"""Convergence of solvers: the error bound after a number of steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from adaptive_ot import _validation as check
from adaptive_ot._progress import Progress
from adaptive_ot.plot.canvas import ABOVE, GREY, axes, colours, curve_style, grid_lines, legend
from adaptive_ot.plot.names import written

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The height at which zero is drawn if there is no positive number.
LOWEST = 1e-16


def convergence(traces: Mapping[str, Sequence[Progress]], ax: Axes | None = None) -> Axes:
    """Draw the certified gap of exact solves and the marginal error of entropic ones over the steps.

    Parameters
    ----------
    traces
        Lists of what a `progress` callback of `adaptive_ot.solve` received, by name. Steps without a known gap or error
        are left out. A solve does not report its last step: append it, as in the example.
    ax
        The axes to draw on; by default those of a new figure, ``ax.figure``.

    Returns
    -------
    The axes, both logarithmic. Zeros lie on a labelled line below all other values. An entropic solve goes from large
    epsilons to the requested one: whenever epsilon falls, the error rises.

    Examples
    --------
    >>> import adaptive_ot as aot
    >>> from adaptive_ot import plot
    >>> x, z = [[0.0], [1.0], [2.0]], [[0.5], [1.5]]
    >>> exact, entropic = [], []
    >>> cost = aot.DistanceCost(x, z, reach=2.0)
    >>> solution = aot.solve(cost, progress=exact.append)
    >>> exact.append(exact[-1]._replace(iterations=solution.iterations, gap=solution.gap))
    >>> solution = aot.solve(cost, solver=aot.Entropic(0.1), progress=entropic.append)
    >>> ax = plot.convergence({"exact": exact, "epsilon 0.1": entropic})
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['exact: gap', 'epsilon 0.1: error of the marginals']
    """
    check.mapping("traces", traces)
    curves = {name: _curve(f"traces[{name!r}]", trace) for name, trace in traces.items()}
    heights = np.concatenate([values for _, _, values in curves.values()])
    floor = heights[heights > 0].min(initial=1.0) / 10 if (heights > 0).any() else LOWEST
    ax = axes(ax)
    handles: list[Any] = []
    for number, (name, (quantity, steps, values)) in enumerate(curves.items()):
        # A gap holds until a smaller one is proved.
        drawstyle = "steps-post" if quantity == "gap" else "default"
        style: Any = curve_style(number) | {"linewidth": 1.6, "markersize": 4, "drawstyle": drawstyle}
        label = f"{written(name)}: {quantity if values.size else 'nothing known on the way'}"
        handles += ax.plot(np.maximum(1, steps), np.maximum(floor, values), label=label, **style)
    if heights.size:
        ax.set(xscale="log", yscale="log")
    ax.set_xlabel("steps: pivots (exact), passes over all pairs (entropic)")
    ax.set_ylabel("certified gap, error of the marginals")
    if (heights <= 0).any():
        ax.axhline(floor, color=GREY, linestyle=":", linewidth=1)
        place: Any = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
        ax.annotate("0 (exactly)", (0.0, floor), (4, 3), color=colours().text, fontsize="small", **place)
    grid_lines(ax)
    legend(ax, handles, **ABOVE)
    return ax


def _curve(name: str, trace: Any) -> tuple[str, np.ndarray, np.ndarray]:
    """The quantity that a trace reports, and its steps and values where it is known."""
    check.sequence(name, trace, "Collect it with progress=trace.append.")
    for place, each in enumerate(trace):
        check.instance(f"{name}[{place}]", each, Progress)
    entropic = any(each.epsilon is not None for each in trace)
    values = np.array([each.error if entropic else each.gap for each in trace], dtype=float)
    steps = np.array([each.iterations for each in trace], dtype=float)
    known = np.isfinite(values)
    return "error of the marginals" if entropic else "gap", steps[known], values[known]
