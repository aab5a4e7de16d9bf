"""How the trainings of a deep benchmark went, all of them in one picture."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from adaptive_ot.benchmark.deep import directory_name
from adaptive_ot.benchmark.plan import Plan
from adaptive_ot.deep.metrics import Metrics
from adaptive_ot.deep.run_directory import METRICS
from adaptive_ot.plot.canvas import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILLION, YELLOW, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = (VERMILLION, BLUE, GREEN, ORANGE, SKY, PURPLE, GREY, YELLOW)
DASHES = ("-", "--", ":", "-.")

# Panels beside each other.
WIDTH = 3


class Run(NamedTuple):
    """The accuracy in percent at some steps of one training."""

    method: str
    steps: list[int]
    accuracies: list[float]


def read_curves(directory: Path, plan: Plan) -> dict[str, list[Run]]:
    """The runs of every task whose directories are there, finished or not."""
    runs: dict[str, list[Run]] = {}
    for cell in plan.cells:
        path = directory / "runs" / directory_name(cell) / METRICS
        if not path.is_file():
            continue
        lines = Metrics(path, before=math.inf, writes=False).lines
        known = [line for line in lines if type(line.get("accuracy")) in (int, float) and type(line["step"]) is int]
        if known:
            run = Run(cell.method, [line["step"] + 1 for line in known], [100 * line["accuracy"] for line in known])
            runs.setdefault(cell.task, []).append(run)
    return runs


def accuracy_curves(runs: Mapping[str, list[Run]]) -> Figure:
    """One panel a task, on one scale; every method has its colour, and every seed its line."""
    methods = list(dict.fromkeys(run.method for of_task in runs.values() for run in of_task))
    styles = {
        method: {"color": COLOURS[k % len(COLOURS)], "linestyle": DASHES[k // len(COLOURS) % len(DASHES)]}
        for k, method in enumerate(methods)
    }
    across = min(WIDTH, len(runs))
    down = -(-len(runs) // across)
    figure = new_figure((1 + 3.4 * across, 1 + 2.6 * down))
    panels = figure.subplots(down, across, sharey=True, squeeze=False)
    for ax in panels.flat[len(runs) :]:
        ax.remove()
    for ax, (task, of_task) in zip(panels.flat, runs.items(), strict=False):
        for run in of_task:
            ax.plot(run.steps, run.accuracies, **styles[run.method], linewidth=1.4, alpha=0.8)
            if len(run.steps) == 1:
                ax.plot(run.steps, run.accuracies, "o", color=styles[run.method]["color"], markersize=4)
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(axis="y", color=GREY, alpha=0.25, linewidth=0.8)
        ax.set_title(_plain(task), fontsize="medium")
    figure.supxlabel("step", fontsize="medium")
    figure.supylabel("accuracy on the target (%)", fontsize="medium")
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], **styles[method], linewidth=1.8, label=_plain(method)) for method in methods]
    figure.legend(handles=handles, loc="outside upper center", ncols=min(4, len(methods)), frameon=False)
    return figure


def _plain(text: str) -> str:
    return text.replace("$", r"\$")  # no mathematics
