"""How the trainings of a deep benchmark went, all of them in one picture."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from adaptive_ot.deep.run_directory import METRICS, read_metrics
from adaptive_ot.plot.canvas import CURVE_COLOURS, GREY, legend, new_figure, panels
from adaptive_ot.plot.names import written
from adaptive_ot.workbench.benchmark.deep import directory_name
from adaptive_ot.workbench.benchmark.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DASHES = ("-", "--", ":", "-.")

# Panels beside each other.
WIDTH = 3


class Run(NamedTuple):
    """The accuracy in percent at some steps of one training."""

    method: str
    steps: list[int]
    accuracies: list[float]


def read_curves(directory: Path, study: Study) -> dict[str, list[Run]]:
    """The runs of every task whose directories are there, finished or not."""
    runs: dict[str, list[Run]] = {}
    for cell in study.cells:
        path = directory / "runs" / directory_name(cell)
        if not (path / METRICS).is_file():
            continue
        known = [line for line in read_metrics(path) if "accuracy" in line]
        if known:
            run = Run(cell.method, [line["step"] + 1 for line in known], [100 * line["accuracy"] for line in known])
            runs.setdefault(cell.task, []).append(run)
    return runs


def accuracy_curves(runs: Mapping[str, list[Run]]) -> Figure:
    """One panel a task, on one scale; every method has its colour, and every seed its line."""
    methods = list(dict.fromkeys(run.method for of_task in runs.values() for run in of_task))
    looks = cycle(product(DASHES, CURVE_COLOURS))  # all colours before another dash
    styles: dict[str, Any] = {
        method: {"color": colour, "linestyle": dash} for method, (dash, colour) in zip(methods, looks, strict=False)
    }
    across = min(WIDTH, len(runs))
    down = -(-len(runs) // across)
    figure = new_figure((1 + 3.4 * across, 1 + 2.6 * down))
    grid = panels(figure, down, across, sharey=True)
    for ax in grid.flat[len(runs) :]:
        ax.remove()
    lines = {}
    for ax, (task, of_task) in zip(grid.flat, runs.items(), strict=False):
        for method, steps, accuracies in of_task:
            mark = "o" if len(steps) == 1 else None
            style = {**styles[method], "marker": mark, "markersize": 4, "linewidth": 1.4, "alpha": 0.85}
            (lines[method],) = ax.plot(steps, accuracies, label=written(method), **style)
        ax.grid(axis="y", color=GREY, alpha=0.25, linewidth=0.8)
        ax.set_title(written(task), fontsize="medium")
    for ax in grid[:, 0]:
        ax.set_ylabel("accuracy (%)")
    for ax in grid.flat[max(0, len(runs) - across) : len(runs)]:
        ax.set_xlabel("step")
    legend(figure, [lines[method] for method in methods], loc="outside upper center", ncols=min(4, len(methods)))
    return figure
