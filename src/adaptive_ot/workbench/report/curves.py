"""The accuracy of all trainings of a deep benchmark over their steps, in one picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from adaptive_ot.deep.run_directory import read_metrics
from adaptive_ot.plot.canvas import grid_lines, legend, line_style, new_figure, panels
from adaptive_ot.plot.names import written
from adaptive_ot.workbench.benchmark.deep import directory_name
from adaptive_ot.workbench.benchmark.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Panels beside each other.
WIDTH = 3


class AccuracyCurve(NamedTuple):
    """The accuracy in percent at some steps of one training."""

    method: str
    steps: list[int]
    accuracies: list[float]


def read_curves(directory: Path, study: Study) -> dict[str, list[AccuracyCurve]]:
    """The curves of every task whose runs are there, finished or not."""
    curves: dict[str, list[AccuracyCurve]] = {}
    for cell in study.cells:
        lines = read_metrics(directory / "runs" / directory_name(cell))
        known = {line["step"] + 1: 100 * line["accuracy"] for line in lines if "accuracy" in line}
        if known:
            curve = AccuracyCurve(cell.method, list(known), list(known.values()))
            curves.setdefault(cell.task, []).append(curve)
    return curves


def accuracy_curves(curves: Mapping[str, list[AccuracyCurve]]) -> Figure:
    """One panel a task, on one scale; a colour and dash for every method, a line for every seed."""
    methods = list(dict.fromkeys(curve.method for of_task in curves.values() for curve in of_task))
    across = min(WIDTH, len(curves))
    down = -(-len(curves) // across)
    figure = new_figure((1 + 3.4 * across, 1 + 2.6 * down))
    grid = panels(figure, down, across, sharey=True)
    for ax in grid.flat[len(curves) :]:
        ax.remove()
    lines = {}
    for ax, (task, of_task) in zip(grid.flat, curves.items(), strict=False):
        for method, steps, accuracies in of_task:
            style: Any = line_style(methods.index(method))
            style |= {"marker": "o" if len(steps) == 1 else None, "markersize": 4, "linewidth": 1.4, "alpha": 0.85}
            (lines[method],) = ax.plot(steps, accuracies, label=written(method), **style)
        grid_lines(ax)
        ax.set_title(written(task), fontsize="medium")
    for ax in grid[:, 0]:
        ax.set_ylabel("accuracy (%)")
    for ax in grid.flat[max(0, len(curves) - across) : len(curves)]:
        ax.set_xlabel("step")
    legend(figure, [lines[method] for method in methods], loc="outside upper center", ncols=min(4, len(methods)))
    return figure
