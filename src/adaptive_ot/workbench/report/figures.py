"""The figures of the paper, drawn from two domains as a classifier or a network sees them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

import numpy as np

from adaptive_ot import plot
from adaptive_ot._progress import Progress
from adaptive_ot.costs import JointCost
from adaptive_ot.entropic.solver import Entropic
from adaptive_ot.errors import InvalidInput
from adaptive_ot.exact.solver import Exact
from adaptive_ot.path import mass_path
from adaptive_ot.solution import Solution
from adaptive_ot.solve import solve
from adaptive_ot.workbench.benchmark.sampling import DomainPair

# In units of the scale-free cost, where certain agreement of classes counts as 1.
EPSILONS = (0.02, 0.1, 0.5)
EPSILON, SMALL = 0.1, 0.02

# The most numbers of classes that are dropped from the target, and how often the exact solver is stopped early.
MISSING = 10
STOPS = 16


class Domains(NamedTuple):
    """Features of sources and targets, one sample a row, and class probabilities of targets.

    Labels are places in `classes`. Those of targets sort pictures and tell the true overlap; no plan uses them.
    """

    x: np.ndarray
    z: np.ndarray
    q: np.ndarray
    source_labels: np.ndarray
    target_labels: np.ndarray
    classes: tuple[str, ...]

    def without(self, missing: Collection[int]) -> Domains:
        """The same domains, with some classes missing in the target."""
        kept = ~np.isin(self.target_labels, list(missing))
        return self._replace(z=self.z[kept], q=self.q[kept], target_labels=self.target_labels[kept])

    def cost(self) -> JointCost:
        """The scale-free cost of the paper."""
        return JointCost(self.x, self.z, np.eye(len(self.classes))[self.source_labels], self.q)

    def names(self) -> tuple[np.ndarray, np.ndarray]:
        """The names of the true classes."""
        return np.array(self.classes)[self.source_labels], np.array(self.classes)[self.target_labels]

    def overlap(self) -> float:
        """The most mass that can move between equal classes, where both domains weigh 1."""
        no_outlier = np.zeros(len(self.z), np.bool_)
        return DomainPair(self.x, self.source_labels, self.z, self.target_labels, no_outlier).overlap


def class_to_drop(domains: Domains, name: str | None) -> int:
    """The place of the class of this name; by default of the most frequent class of the target."""
    counts = np.bincount(domains.target_labels, minlength=len(domains.classes))
    if np.count_nonzero(counts) < 2:
        rule, given = "must leave another class in the target", "a target of one class"
        raise InvalidInput("drop", rule, given, "Give a target with more classes.")
    if name is None:
        return int(np.argmax(counts))
    held = [each for each, count in zip(domains.classes, counts, strict=True) if count]
    if name not in held:
        shown = ", ".join(held[:20]) + (f" and {len(held) - 20} more" if len(held) > 20 else "")
        raise InvalidInput("drop", "must be a class of the target", repr(name), f"Choose from: {shown}.")
    return domains.classes.index(name)


def figures_of(domains: Domains, drop: int) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The name of each figure, and the function that computes and draws it.

    The class `drop` is missing in the target of ``labels_missing``, and is the first to be missing in ``overlap``.
    """
    yield "plans", lambda: plot.plans(_plans(domains.cost()), *domains.names())
    yield "labels", lambda: _by_label(domains)
    yield "labels_missing", lambda: _by_label(domains.without([drop]))
    yield "mass_path", lambda: plot.mass_path(mass_path(domains.cost()))
    yield "overlap", lambda: plot.mass_against_overlap(*_masses(domains, drop))
    yield "convergence", lambda: plot.convergence(_traces(domains.cost()))


def _plans(cost: JointCost) -> dict[str, Solution]:
    entropic = {f"epsilon {epsilon:g}": solve(cost, solver=Entropic(epsilon)) for epsilon in EPSILONS}
    return {"exact": solve(cost)} | entropic


def _by_label(domains: Domains) -> Any:
    return plot.label_plan(solve(domains.cost(), solver=Entropic(EPSILON)), *domains.names())


def _masses(domains: Domains, first: int) -> tuple[list[float], dict[str, list[float]]]:
    """The true overlap and the mass of adaptive transport, with 0, 1, 2, ... classes missing in the target."""
    held = np.unique(domains.target_labels)
    order = [first, *(label for label in held.tolist() if label != first)]
    overlaps: list[float] = []
    masses: dict[str, list[float]] = {"adaptive, exact": [], f"adaptive, epsilon {EPSILON:g}": []}
    for missing in np.unique(np.linspace(0, len(held) - 1, min(MISSING, len(held))).round().astype(int)):
        rest = domains.without(order[:missing])
        overlaps.append(rest.overlap())
        for name, solver in zip(masses, (Exact(), Entropic(EPSILON)), strict=True):
            masses[name].append(solve(rest.cost(), solver=solver).mass)
    return overlaps, masses


def _traces(cost: JointCost) -> dict[str, list[Progress]]:
    """The bounds proved after some steps: by exact solves that were stopped early, and by an entropic solve."""
    traces: dict[str, list[Progress]] = {"exact": []}
    pivots = solve(cost).iterations
    for limit in np.unique(np.geomspace(1, max(1, pivots), STOPS).round().astype(int)):
        found = solve(cost, solver=Exact(max_pivots=int(limit)), raise_if_not_converged=False)
        traces["exact"].append(Progress("pivoting", 1, None, found.iterations, 0, found.gap))
    trace = traces[f"epsilon {SMALL:g}"] = []
    solve(cost, solver=Entropic(SMALL), progress=trace.append)
    return traces
