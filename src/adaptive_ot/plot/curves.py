"""A training run: how good it was, how much moved, and what it cost, over the steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from adaptive_ot import _validation as check
from adaptive_ot._validation import LARGEST
from adaptive_ot.errors import InvalidInput
from adaptive_ot.plot.canvas import ABOVE, CURVE_COLOURS, GREEN, GREY, ORANGE, colours, legend, new_figure, panels
from adaptive_ot.plot.given import pair
from adaptive_ot.plot.names import written

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Neither curves beside the accuracy nor losses.
NOT_DRAWN = ("step", "accuracy", "mean_class_accuracy", "per_class", "unsolved")

# What is drawn beside the accuracy.
SHARES = {"mass": ("transported mass", GREEN, "-"), "plan_purity": ("purity of the plan (oracle)", ORANGE, ":")}

Series = tuple[np.ndarray, np.ndarray]


def training(lines: Sequence[Mapping[str, Any]], *, baseline: tuple[str, float] | None = None) -> Figure:
    """Draw a training run: accuracy on the target, transported mass and purity of the plan, and below them the losses.

    Parameters
    ----------
    lines
        The lines of its ``metrics.jsonl``, in any order. Each has a "step", from 0, and any of "accuracy", "mass",
        "plan_purity" and losses; what is missing or no finite number is left out.
    baseline
        The name and the accuracy, from 0 to 1, of something to compare with: a dashed line.

    Returns
    -------
    The figure. A hollow mark is the best of all evaluations, an oracle: only labels of the target can tell.

    Examples
    --------
    >>> from adaptive_ot import plot
    >>> lines = [{"step": 9, "cross_entropy": 2.0, "mass": 0.6}, {"step": 19, "cross_entropy": 1.0, "accuracy": 0.9}]
    >>> figure = plot.training(lines, baseline=("source only", 0.7))
    >>> [ax.get_ylabel() for ax in figure.axes]
    ['accuracy and mass', 'losses']
    """
    found = _curves(lines)
    line = None if baseline is None else pair("baseline", baseline)
    losses = {name: curve for name, curve in found.items() if name not in (*NOT_DRAWN, *SHARES)}
    shares = {name: curve for name, curve in found.items() if name in ("accuracy", *SHARES)}
    heights = [height for height, drawn in ((3.2, shares or line), (2.2, losses)) if drawn]
    figure = new_figure((8, 0.8 + sum(heights)))
    grid = panels(figure, len(heights), 1, sharex=True, gridspec_kw={"height_ratios": heights})[:, 0]
    if shares or line:
        _draw_shares(grid[0], shares, line)
    if losses:
        _draw_losses(grid[-1], losses)
    for ax in grid:
        ax.grid(axis="y", color=GREY, alpha=0.25, linewidth=0.8)
    _number_steps(grid[-1], found["step"][0])
    return figure


def _curves(lines: Any) -> dict[str, Series]:
    """Steps and numbers under every name that has any, in the order in which they first appear."""
    if not isinstance(lines, Sequence) or isinstance(lines, str | bytes):
        raise InvalidInput("lines", "must be a list", check.describe(lines), "Give the lines of a metrics.jsonl.")
    points: dict[str, dict[float, float]] = {}
    for number, line in enumerate(lines):
        check.instance(f"lines[{number}]", line, Mapping)
        if _is_number(line.get("step")):
            for name, value in line.items():
                if _is_number(value):
                    points.setdefault(str(name), {})[line["step"] + 1] = value  # steps done by then
    if not set(points) - set(NOT_DRAWN) | points.keys() & {"accuracy"}:
        given = f"{len(lines)} lines without any" if len(lines) else "no lines"
        raise InvalidInput("lines", "must hold a step and numbers", given, "Give the lines of a metrics.jsonl.")
    return {name: _sorted(of) for name, of in points.items()}


def _is_number(value: Any) -> bool:
    is_one = isinstance(value, int | float | np.floating) and not isinstance(value, bool)
    return is_one and bool(-LARGEST <= value <= LARGEST)


def _sorted(values: dict[float, float]) -> Series:
    steps = np.array(sorted(values), dtype=float)
    return steps, np.array([values[step] for step in steps], dtype=float)


def _number_steps(ax: Axes, steps: np.ndarray) -> None:
    """Steps are whole; one alone has a neighbour at either side."""
    from matplotlib.ticker import MaxNLocator

    ax.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], integer=True, min_n_ticks=1))
    if steps.size == 1:
        ax.set_xlim(steps[0] - 1, steps[0] + 1)
    ax.set_xlabel("step")


def _mark(curve: Series) -> str:
    """One point alone makes no line."""
    return "o" if len(curve[0]) == 1 else ""


def _draw_shares(ax: Axes, shares: dict[str, Series], baseline: tuple[str, float] | None) -> None:
    handles: list[Any] = []
    if "accuracy" in shares:
        steps, accuracy = shares["accuracy"]
        label = f"accuracy on the target, {accuracy[-1]:.1%} at the end"
        handles += ax.plot(
            steps, accuracy, "-o", color=colours().curve, linewidth=2, markersize=5, label=label, zorder=3
        )
        best = int(np.argmax(accuracy))
        style: Any = {"markerfacecolor": "none", "markeredgecolor": colours().text, "markersize": 12, "zorder": 4}
        label = f"the best, {accuracy[best]:.1%} (oracle)"
        handles += ax.plot(steps[best], accuracy[best], "o", label=label, **style)
    for name, (label, colour, dashes) in SHARES.items():
        if name in shares:
            handles += ax.plot(*shares[name], dashes, color=colour, marker=_mark(shares[name]), label=label, zorder=2)
    if baseline:
        name, height = written(baseline[0]), baseline[1]
        handles.append(ax.axhline(height, color=GREY, linestyle="--", linewidth=1.5, label=f"{name}, {height:.1%}"))
    ax.set_ylim(0, max(1.02, ax.get_ylim()[1]))
    ax.set_ylabel(" and ".join(name for name in ("accuracy", "mass") if name in shares) or "accuracy")
    legend(ax, handles, **ABOVE)


def _draw_losses(ax: Axes, losses: dict[str, Series]) -> None:
    handles: list[Any] = []
    for number, (name, curve) in enumerate(losses.items()):
        dashes = ("-", "--", ":", "-.")[number // len(CURVE_COLOURS) % 4]
        colour = CURVE_COLOURS[number % len(CURVE_COLOURS)]
        label = written(name.replace("_", " "))
        handles += ax.plot(*curve, dashes, color=colour, marker=_mark(curve), label=label)
    ax.set_ylabel("losses")
    legend(ax, handles, **ABOVE)
