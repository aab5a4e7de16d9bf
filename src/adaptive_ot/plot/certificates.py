"""How a solver comes to its answer: what is proved after how much work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from adaptive_ot import _validation as check
from adaptive_ot._progress import Progress
from adaptive_ot.errors import InvalidInput
from adaptive_ot.plot.canvas import ABOVE, GREY, axes, colours, curve_style, legend
from adaptive_ot.plot.given import named
from adaptive_ot.plot.names import written

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Where nothing is above zero, zero is drawn at this height.
LOWEST = 1e-16


def convergence(traces: Mapping[str, Sequence[Progress]], ax: Axes | None = None) -> Axes:
    """Draw what is proved after how many steps: the gap of exact solves, the error of the marginals of entropic ones.

    Parameters
    ----------
    traces
        What a `progress` callback of `adaptive_ot.solve` collected, under a name. Steps of which nothing is known yet
        are left out. A solve does not report its last step: add it, as below.
    ax
        Where to draw; by default on a new figure, which is ``ax.figure``.

    Returns
    -------
    The axes. Both are logarithmic; what is zero lies on a line below everything else, which says so. An entropic solve
    goes from large epsilons to the small one it was asked for: whenever epsilon falls, the error rises.

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
    named("traces", traces)
    found = {name: _numbers(f"traces[{name!r}]", trace) for name, trace in traces.items()}
    heights = np.concatenate([values for _, _, values in found.values()])
    floor = heights[heights > 0].min(initial=1.0) / 10 if (heights > 0).any() else LOWEST
    ax = axes(ax)
    handles: list[Any] = []
    for number, (name, (what, steps, values)) in enumerate(found.items()):
        style: Any = curve_style(number) | {"linewidth": 1.6, "markersize": 4, "drawstyle": _drawstyle(what)}
        label = f"{written(name)}: {what if values.size else 'nothing known on the way'}"
        handles += ax.plot(np.maximum(1, steps), np.maximum(floor, values), label=label, **style)
    if heights.size:
        ax.set(xscale="log", yscale="log")
    ax.set_xlabel("steps: pivots (exact), passes over all pairs (entropic)")
    ax.set_ylabel("certified gap, error of the marginals")
    if (heights <= 0).any():
        _draw_zero(ax, floor)
    ax.grid(axis="y", color=GREY, alpha=0.25, linewidth=0.8)
    legend(ax, handles, **ABOVE)
    return ax


def _numbers(name: str, trace: Any) -> tuple[str, np.ndarray, np.ndarray]:
    """What a trace tells, after how many steps, where known: the error, if the solve has an epsilon, or the gap."""
    if not isinstance(trace, Sequence) or isinstance(trace, str):
        raise InvalidInput(name, "must be a list", check.describe(trace), "Collect it with progress=trace.append.")
    for place, each in enumerate(trace):
        check.instance(f"{name}[{place}]", each, Progress)
    entropic = any(each.epsilon is not None for each in trace)
    values = np.array([each.error if entropic else each.gap for each in trace], dtype=float)
    steps = np.array([each.iterations for each in trace], dtype=float)
    known = np.isfinite(values)
    return "error of the marginals" if entropic else "gap", steps[known], values[known]


def _drawstyle(what: str) -> str:
    """A gap holds until the next is proved."""
    return "steps-post" if what == "gap" else "default"


def _draw_zero(ax: Axes, floor: float) -> None:
    ax.axhline(floor, color=GREY, linestyle=":", linewidth=1)
    place: Any = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
    ax.annotate("0 (exactly)", (0.0, floor), (4, 3), color=colours().text, fontsize="small", **place)
