"""A training run: accuracy, transported mass and losses over the steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from adaptive_ot import _validation as check
from adaptive_ot.errors import InvalidInput
from adaptive_ot.plot.canvas import (
    ABOVE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    colours,
    grid_lines,
    legend,
    line_style,
    new_figure,
    panels,
)
from adaptive_ot.plot.names import written

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# These are no losses.
NO_LOSSES = ("step", "accuracy", "mean_class_accuracy", "per_class", "unsolved")

# These curves are drawn beside the accuracy.
SHARES = {
    "mass": ("transported mass", GREEN, "-"),
    "plan_purity": ("purity of the plan (oracle)", ORANGE, ":"),
    "overlap": ("overlap (estimated)", PURPLE, "-."),
}

Series = tuple[np.ndarray, np.ndarray]


def training(lines: Sequence[Mapping[str, Any]], *, baseline: tuple[str, float] | None = None) -> Figure:
    """Draw a training run: accuracy on the target, mass and purity of the plan, overlap, and the losses below.

    Parameters
    ----------
    lines
        The lines of its ``metrics.jsonl``, in any order. Each has a "step", counted from 0, and any of "accuracy",
        "mass", "plan_purity", "overlap" and losses; values that are missing or not finite are left out.
    baseline
        The name and the accuracy, from 0 to 1, of something to compare with, drawn as a dashed line.

    Returns
    -------
    The figure. A hollow mark shows the best evaluation, which only an oracle with target labels could choose.

    Examples
    --------
    >>> from adaptive_ot import plot
    >>> lines = [{"step": 9, "cross_entropy": 2.0, "mass": 0.6}, {"step": 19, "cross_entropy": 1.0, "accuracy": 0.9}]
    >>> figure = plot.training(lines, baseline=("source only", 0.7))
    >>> [ax.get_ylabel() for ax in figure.axes]
    ['accuracy and mass', 'losses']
    """
    curves = _curves(lines)
    line = None if baseline is None else check.named_number("baseline", baseline)
    losses = {name: curve for name, curve in curves.items() if name not in (*NO_LOSSES, *SHARES)}
    shares = {name: curve for name, curve in curves.items() if name in ("accuracy", *SHARES)}
    heights = [height for height, drawn in ((3.2, shares or line), (2.2, losses)) if drawn]
    figure = new_figure((8, 0.8 + sum(heights)))
    grid = panels(figure, len(heights), 1, sharex=True, gridspec_kw={"height_ratios": heights})[:, 0]
    if shares or line:
        _draw_shares(grid[0], shares, line)
    if losses:
        _draw_losses(grid[-1], losses)
    for ax in grid:
        grid_lines(ax)
    _number_steps(grid[-1], curves["step"][0])
    return figure


def _curves(lines: Any) -> dict[str, Series]:
    """Sorted steps and values of every name with any, in the order of appearance; of equal steps the last counts."""
    remedy = "Give the lines of a metrics.jsonl."
    check.sequence("lines", lines, remedy)
    points: dict[str, dict[float, float]] = {}
    for number, line in enumerate(lines):
        check.instance(f"lines[{number}]", line, Mapping)
        if _is_number(line.get("step")):
            for name, value in line.items():
                if _is_number(value):
                    points.setdefault(str(name), {})[line["step"] + 1] = value  # the number of steps done
    if not set(points) - set(NO_LOSSES) | points.keys() & {"accuracy"}:
        given = f"{len(lines)} lines without any" if len(lines) else "no lines"
        raise InvalidInput("lines", "must hold a step and numbers", given, remedy)
    series = {name: np.array(sorted(values.items()), dtype=float) for name, values in points.items()}
    return {name: (curve[:, 0], curve[:, 1]) for name, curve in series.items()}


def _is_number(value: Any) -> bool:
    is_real = isinstance(value, int | float | np.floating) and not isinstance(value, bool)
    return is_real and bool(-check.LARGEST <= value <= check.LARGEST)


def _number_steps(ax: Axes, steps: np.ndarray) -> None:
    """Whole numbers; around a single step, one more on either side."""
    from matplotlib.ticker import MaxNLocator

    ax.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], integer=True, min_n_ticks=1))
    if steps.size == 1:
        ax.set_xlim(steps[0] - 1, steps[0] + 1)
    ax.set_xlabel("step")


def _draw_curve(ax: Axes, curve: Series, label: str, style: Any) -> list[Any]:
    """A line, or a mark for a single point."""
    return ax.plot(*curve, marker="o" if len(curve[0]) == 1 else "", label=label, **style)


def _draw_shares(ax: Axes, shares: dict[str, Series], baseline: tuple[str, float] | None) -> None:
    handles: list[Any] = []
    if "accuracy" in shares:
        steps, accuracy = shares["accuracy"]
        style: Any = {"color": colours().curve, "linewidth": 2, "markersize": 5, "zorder": 3}
        handles += ax.plot(
            steps, accuracy, "-o", label=f"accuracy on the target, {accuracy[-1]:.1%} at the end", **style
        )
        best = int(np.argmax(accuracy))
        style = {"markerfacecolor": "none", "markeredgecolor": colours().text, "markersize": 12, "zorder": 4}
        label = f"the best, {accuracy[best]:.1%} (oracle)"
        handles += ax.plot(steps[best], accuracy[best], "o", label=label, **style)
    for name, (label, colour, dashes) in SHARES.items():
        if name in shares:
            handles += _draw_curve(ax, shares[name], label, {"color": colour, "linestyle": dashes})
    if baseline:
        name, height = written(baseline[0]), baseline[1]
        handles.append(ax.axhline(height, color=GREY, linestyle="--", linewidth=1.5, label=f"{name}, {height:.1%}"))
    ax.set_ylim(0, max(1.02, ax.get_ylim()[1]))
    ax.set_ylabel(" and ".join(name for name in ("accuracy", "mass") if name in shares) or "accuracy")
    legend(ax, handles, **ABOVE)


def _draw_losses(ax: Axes, losses: dict[str, Series]) -> None:
    handles: list[Any] = []
    for number, (name, curve) in enumerate(losses.items()):
        handles += _draw_curve(ax, curve, written(name.replace("_", " ")), line_style(number))
    ax.set_ylabel("losses")
    legend(ax, handles, **ABOVE)
