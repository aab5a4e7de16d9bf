"""How the command line shows things: lines for people, a summary for programs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.text import Text

from adaptive_ot import Progress, Solution

CLUSTERS_SHOWN = 5


def summary(solution: Solution, seconds: float, output: Path | None = None) -> dict[str, Any]:
    """What there is to say about a solution, as plain numbers and strings."""
    problem, clusters = solution.problem, solution.clusters()
    n, m = problem.cost.shape
    active = int(np.count_nonzero(solution.active_source)), int(np.count_nonzero(solution.active_target))
    return {
        "status": solution.status.name.lower(),
        "message": solution.status.value,
        "sources": n,
        "targets": m,
        "value": solution.value,
        "regularised_value": solution.regularised_value,
        "gap": solution.gap,
        "mass": solution.mass,
        "most_mass": problem.most_mass,
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
    }


def solution(console: Console, of: dict[str, Any]) -> None:
    """Print a summary."""
    sizes = ", ".join(f"{each['sources']} x {each['targets']}" for each in of["largest_clusters"])
    share = of["mass"] / of["most_mass"] if of["most_mass"] else 0.0
    title(console, f"Adaptive transport of {count(of['sources'], 'source')} to {count(of['targets'], 'target')}")
    line(console, "status", of["message"])
    line(console, "value", f"{of['value']:.12g} (certified gap {of['gap']:.2g})")
    line(console, "mass", f"{of['mass']:.12g} of at most {of['most_mass']:.12g} ({share:.1%})")
    line(
        console,
        "active",
        f"{of['active_sources']} of {of['sources']} sources, {of['active_targets']} of {of['targets']} targets",
    )
    line(
        console,
        "outliers",
        f"{count(of['outlier_sources'], 'source')} and {count(of['outlier_targets'], 'target')} left alone",
    )
    line(console, "clusters", f"{of['clusters']}; the largest: {sizes} points" if sizes else "none")
    line(console, "effort", f"{count(of['steps'], 'step')} in {of['seconds']:.2f} s")
    written = "" if of["output"] is None else f", written to {of['output']}"
    line(console, "plan", f"{count(of['pairs'], 'pair')}{written}")


def title(console: Console, text: str) -> None:
    console.print(Text(text, style="bold"), soft_wrap=True)


def line(console: Console, label: str, text: str) -> None:
    console.print(Text.assemble((f"  {label:<12}", "cyan"), text), soft_wrap=True)


def count(number: int, noun: str) -> str:
    """
    Examples
    --------
    >>> count(1, "pair"), count(1200, "pair")
    ('1 pair', '1,200 pairs')
    """
    return f"{number:,} {noun}{'' if number == 1 else 'es' if noun.endswith('s') else 's'}"


def state(now: Progress) -> str:
    """Where a solve is, for the right end of the progress bar."""
    if now.epsilon is not None:
        return f"epsilon {now.epsilon:.3g}, {count(now.iterations, 'pass')}, marginals off by {now.error:.1e}"
    gap = f"gap {now.gap:.1e}" if math.isfinite(now.gap) else "no bound yet"
    return f"round {now.round}, {count(now.iterations, 'pivot')}, {count(now.arcs, 'arc')}, {gap}"
