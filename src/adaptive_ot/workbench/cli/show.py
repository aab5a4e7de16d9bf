"""How the command line shows things: lines for people, a summary for programs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.text import Text

from adaptive_ot import MassPath, Progress, Solution
from adaptive_ot.workbench.wording import counted

if TYPE_CHECKING:
    from adaptive_ot import deep

CLUSTERS_SHOWN = 5


def summary(solution: Solution, seconds: float, output: Path | None = None) -> dict[str, Any]:
    """What there is to say about a solution, as plain numbers and strings."""
    problem, clusters = solution.problem, solution.clusters()
    n, m = problem.cost.shape
    active = int(np.count_nonzero(solution.active_source)), int(np.count_nonzero(solution.active_target))
    return {
        "model": problem.marginals.title,
        "status": solution.status.name.lower(),
        "message": solution.status.value,
        "sources": n,
        "targets": m,
        "value": solution.value,
        "regularised_value": solution.regularised_value,
        "gap": solution.gap,
        "mass": solution.mass,
        "most_mass": finite(problem.most_mass),
        "price": solution.price,
        "violation": solution.violation,
        "active_sources": active[0],
        "active_targets": active[1],
        "outlier_sources": n - active[0],
        "outlier_targets": m - active[1],
        "pairs": len(solution.support[0]),
        "clusters": len(clusters),
        "largest_clusters": [
            {"sources": len(cluster.sources), "targets": len(cluster.targets), "mass": cluster.mass}
            for cluster in sorted(clusters, key=lambda cluster: -len(cluster.sources) - len(cluster.targets))[
                :CLUSTERS_SHOWN
            ]
        ],
        "steps": solution.iterations,
        "seconds": seconds,
        "output": None if output is None else str(output),
        "report": None,
    }


def solution(console: Console, of: dict[str, Any]) -> None:
    """Print a summary."""
    sizes = ", ".join(f"{each['sources']} x {each['targets']}" for each in of["largest_clusters"])
    most = of["most_mass"]
    limit = "" if most is None else f" of at most {most:.12g} ({of['mass'] / (most or 1.0):.1%})"
    off = f", marginals off by {of['violation']:.2g}" if of["violation"] > 1e-9 * max(1.0, of["mass"]) else ""
    title(console, f"{of['model']} of {counted(of['sources'], 'source')} to {counted(of['targets'], 'target')}")
    line(console, "status", of["message"])
    line(console, "value", f"{of['value']:.12g} (certified gap {of['gap']:.2g}{off})")
    line(console, "mass", f"{of['mass']:.12g}{limit}")
    if of["price"]:
        line(console, "price", f"{of['price']:.12g} for the last unit of mass")
    line(
        console,
        "active",
        f"{of['active_sources']} of {of['sources']} sources, {of['active_targets']} of {of['targets']} targets",
    )
    line(
        console,
        "outliers",
        f"{counted(of['outlier_sources'], 'source')} and {counted(of['outlier_targets'], 'target')} left alone",
    )
    line(console, "clusters", f"{of['clusters']}; the largest: {sizes} points" if sizes else "none")
    line(console, "effort", f"{counted(of['steps'], 'step')} in {of['seconds']:.2f} s")
    written = "" if of["output"] is None else f", written to {of['output']}"
    line(console, "plan", f"{counted(of['pairs'], 'pair')}{written}")
    report(console, of["report"])


def report(console: Console, files: list[str] | None) -> None:
    """Say where the page of a report is, which comes last among its files."""
    if files:
        line(console, "report", f"{files[-1]}, with {counted(len(files) - 1, 'file')} beside it")


def finite(number: float) -> float | None:
    """JSON has no infinity."""
    return number if math.isfinite(number) else None


def path(console: Console, of: dict[str, Any]) -> None:
    """Print the summary of a mass path."""
    title(console, f"Mass path of {counted(of['sources'], 'source')} to {counted(of['targets'], 'target')}")
    line(console, "mass", f"0 to {of['most_mass']:.12g} in {counted(of['pieces'], 'piece')}")
    if of["pieces"]:
        line(console, "price", f"{of['first_price']:.6g} to {of['last_price']:.6g} a unit")
    for name, meaning in (("adaptive", "all that pays"), ("elbow", "where the price turns upwards")):
        if of[name] is None:
            continue
        line(console, name, f"mass {of[name]['mass']:.12g}, value {of[name]['value']:.12g} ({meaning})")
    line(console, "effort", f"{of['seconds']:.2f} s")
    for name in ("output", "plot"):
        if of[name] is not None:
            line(console, name, of[name])


def path_summary(path: MassPath, seconds: float, output: Path | None, plot: Path | None) -> dict[str, Any]:
    """What there is to say about a mass path, as plain numbers and strings."""
    n, m = path.problem.cost.shape
    pieces = int(path.price.size)
    return {
        "sources": n,
        "targets": m,
        "most_mass": path.most_mass,
        "pieces": pieces,
        "first_price": float(path.price[0]) if pieces else None,
        "last_price": float(path.price[-1]) if pieces else None,
        **{name: {"mass": mass, "value": path.value_at(mass)} for name, mass in path.suggest()._asdict().items()},
        "seconds": seconds,
        "output": None if output is None else str(output),
        "plot": None if plot is None else str(plot),
    }


def title(console: Console, text: str) -> None:
    console.print(Text(printable(text), style="bold"), soft_wrap=True)


def line(console: Console, label: str, text: str) -> None:
    console.print(Text.assemble((f"  {label:<12}", "cyan"), printable(text)), soft_wrap=True)


def printable(text: str) -> str:
    r"""Names of files and folders can hold anything, also what a terminal would obey.

    Examples
    --------
    >>> printable("café \x1b[2J")
    'café ?[2J'
    """
    return "".join(each if each.isprintable() else "?" for each in text)


def training(now: deep.Progress) -> str:
    """Where a training is, the most important numbers first."""
    target = [] if now.accuracy is None else [f"target {now.accuracy:.1%}"]
    losses = sorted(now.losses.items(), key=lambda loss: loss[0] != "mass")
    names = [name.removeprefix("plan_").replace("_", " ") for name, _ in losses]
    return ", ".join([*target, *(f"{name} {value:.3g}" for name, (_, value) in zip(names, losses, strict=True))])


def state(now: Progress) -> str:
    """Where a solve is, for the right end of the progress bar."""
    if now.epsilon is not None:
        return f"epsilon {now.epsilon:.3g}, {counted(now.iterations, 'pass')}, marginals off by {now.error:.1e}"
    if now.stage == "walking":
        return f"{now.fraction or 0.0:.0%} of the mass, {counted(now.iterations, 'pivot')}"
    if now.stage == "interior":
        return f"{counted(now.iterations, 'step')} inside the cones, gap {now.gap:.1e}"
    gap = f"gap {now.gap:.1e}" if math.isfinite(now.gap) else "no bound yet"
    return f"round {now.round}, {counted(now.iterations, 'pivot')}, {counted(now.arcs, 'arc')}, {gap}"
