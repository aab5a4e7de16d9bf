"""``adaptive-ot demo``: the toy problem on paper, two moons with outliers, and handwritten digits seen twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from adaptive_ot import DistanceCost, mass_path, plot, solve
from adaptive_ot.workbench.cli import show
from adaptive_ot.workbench.cli.options import Output
from adaptive_ot.workbench.cli.progress import steps_bar
from adaptive_ot.workbench.cli.samples import TOY_COST, moons_with_outliers
from adaptive_ot.workbench.files import make_directory, write_atomically

REACH = 0.3

Draw = Callable[[Any, str], None]


def demo(*, output: Output = Path("demo")) -> int:
    """A toy problem, two moons with outliers, and handwritten digits adapted to another scan of them, to look at.

    Parameters
    ----------
    output
        The directory for the pictures, and for a report of the digits.
    """
    from adaptive_ot.workbench.cli import digits_demo

    make_directory("--output", output)

    def draw(figure: Any, name: str) -> None:
        picture = output / name
        write_atomically("--output", picture, lambda file: figure.savefig(file, format="png"))
        show.line("picture", str(picture))

    _toy()
    print()
    _moons(draw)
    print()
    digits_demo.run(draw, output / "digits")
    return 0


def _toy() -> None:
    with steps_bar():
        solution = solve(TOY_COST)
    show.title("A toy problem: six sources of weight 1/6, five targets of weight 1/5, and this cost")
    for row in TOY_COST:
        print("    " + " ".join(f"{cost:3.0f}" for cost in row))
    show.line("value", f"{solution.value:.6f} (-11/15, certified gap {solution.gap:.2g})")
    show.line("mass", f"{solution.mass:.6f} of 1: nobody said how much should move")
    for number, cluster in enumerate(solution.clusters(), start=1):
        sources, targets = _names("x", cluster.sources), _names("z", cluster.targets)
        show.line(f"cluster {number}", f"{sources} with {targets}, mass {cluster.mass:.6f}")
    left = _names("x", np.flatnonzero(~solution.active_source)), _names("z", np.flatnonzero(~solution.active_target))
    show.line("inactive", " and ".join(left))


def _moons(draw: Draw) -> None:
    clouds = moons_with_outliers()
    with steps_bar():
        solution = solve(DistanceCost(clouds.x, clouds.z, reach=REACH))
        path = mass_path(solution.problem.cost)
    outlier = np.concatenate([clouds.source_outlier, clouds.target_outlier])
    active = np.concatenate([solution.active_source, solution.active_target])
    show.title(f"Two moons seen twice, {len(clouds.x)} points a side, 20 % of them outliers, reach {REACH}")
    show.line("outliers", f"{_share(~active[outlier])} left alone")
    show.line("inliers", f"{_share(active[~outlier])} matched")
    show.line("mass", f"{solution.mass:.6f} (certified gap {solution.gap:.2g}); the inliers weigh 0.8")
    draw(plot.transport(solution).figure, "moons.png")
    adaptive, elbow = path.suggest()
    bend = "no elbow" if elbow is None else f"elbow {elbow:.3f}"
    show.line("mass path", f"of all masses up to {path.most_mass:g}, {adaptive:.3f} pays; {bend}")
    draw(plot.mass_path(path).figure, "moons_path.png")


def _names(letter: str, indices: np.ndarray) -> str:
    return " ".join(f"{letter}{index + 1}" for index in indices)


def _share(hits: np.ndarray) -> str:
    return f"{np.count_nonzero(hits)} of {hits.size} ({hits.mean():.0%})"
