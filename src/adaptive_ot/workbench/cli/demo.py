"""``adaptive-ot demo``: the toy problem on paper, two moons with outliers, and handwritten digits seen twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from adaptive_ot import DistanceCost, mass_path, plot, solve
from adaptive_ot.workbench.cli import digits_demo, show
from adaptive_ot.workbench.cli.progress import steps_bar
from adaptive_ot.workbench.cli.samples import TOY_COST, moons_with_outliers
from adaptive_ot.workbench.files import make_directory, write_atomically

REACH = 0.3

Draw = Callable[[Any, str], None]


def run(output: Path) -> int:
    """Print all three, draw the second and the third into the directory `output`, and write a report of the third."""
    make_directory("--output", output)
    console = Console()

    def draw(figure: Any, name: str) -> None:
        picture = output / name
        write_atomically("--output", picture, lambda file: figure.savefig(file, format="png"))
        show.line(console, "picture", str(picture))

    _toy(console)
    console.print()
    _moons(console, draw)
    console.print()
    digits_demo.run(console, draw, output / "digits")
    return 0


def _toy(console: Console) -> None:
    with steps_bar():
        solution = solve(TOY_COST)
    show.title(console, "A toy problem: six sources of weight 1/6, five targets of weight 1/5, and this cost")
    for row in TOY_COST:
        console.print("    " + " ".join(f"{cost:3.0f}" for cost in row))
    show.line(console, "value", f"{solution.value:.6f} (-11/15, certified gap {solution.gap:.2g})")
    show.line(console, "mass", f"{solution.mass:.6f} of 1: nobody said how much should move")
    for number, cluster in enumerate(solution.clusters(), start=1):
        sources, targets = _names("x", cluster.sources), _names("z", cluster.targets)
        show.line(console, f"cluster {number}", f"{sources} with {targets}, mass {cluster.mass:.6f}")
    left = _names("x", np.flatnonzero(~solution.active_source)), _names("z", np.flatnonzero(~solution.active_target))
    show.line(console, "inactive", " and ".join(left))


def _moons(console: Console, draw: Draw) -> None:
    clouds = moons_with_outliers()
    with steps_bar():
        solution = solve(DistanceCost(clouds.x, clouds.z, reach=REACH))
        path = mass_path(solution.problem.cost)
    outlier = np.concatenate([clouds.source_outlier, clouds.target_outlier])
    active = np.concatenate([solution.active_source, solution.active_target])
    show.title(console, f"Two moons seen twice, {len(clouds.x)} points a side, 20 % of them outliers, reach {REACH}")
    show.line(console, "outliers", f"{_share(~active[outlier])} left alone")
    show.line(console, "inliers", f"{_share(active[~outlier])} matched")
    show.line(console, "mass", f"{solution.mass:.6f} (certified gap {solution.gap:.2g}); the inliers weigh 0.8")
    draw(plot.transport(solution).figure, "moons.png")
    adaptive, elbow = path.suggest()
    show.line(console, "mass path", f"of all masses up to {path.most_mass:g}, {adaptive:.3f} pays; elbow {elbow:.3f}")
    draw(plot.mass_path(path).figure, "moons_path.png")


def _names(letter: str, indices: np.ndarray) -> str:
    return " ".join(f"{letter}{index + 1}" for index in indices)


def _share(hits: np.ndarray) -> str:
    return f"{np.count_nonzero(hits)} of {hits.size} ({hits.mean():.0%})"
