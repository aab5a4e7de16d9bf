"""The exact solver: a network simplex over a few arcs, with column generation over all pairs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from adaptive_ot import _validation as check
from adaptive_ot.problem import Problem
from adaptive_ot.solution import ListedTransport, Solution, Status, marginal

if TYPE_CHECKING:
    from adaptive_ot.solvers._pricing import Violated
    from adaptive_ot.solvers._simplex import NetworkSimplex
    from adaptive_ot.solvers._weights import NetworkWeights

# How many pairs of lowest reduced cost are kept for every node in the first and in later rounds.
FIRST_KEEP = 16
LATER_KEEP = 8


@dataclass(frozen=True)
class Exact:
    """Solve to optimality, with proof.

    Parameters
    ----------
    tolerance
        The certified gap may be this large relative to max(1, |value|).
    max_pivots
        Give up after this many simplex pivots; by default 1000 for every point, which no real problem comes near.
    """

    tolerance: float = 1e-9
    max_pivots: int | None = None

    def __post_init__(self) -> None:
        check.number("tolerance", self.tolerance, minimum=0.0)
        if self.max_pivots is not None:
            check.whole_number("max_pivots", self.max_pivots, minimum=0)

    def pivot_limit(self, points: int) -> int:
        """After how many pivots to give up on a problem of so many points."""
        return 1000 * points if self.max_pivots is None else self.max_pivots


class Progress(NamedTuple):
    """What a long solve reports several times a second.

    `fraction` is how much of the current stage is done, where that is known; `gap` the certified gap after the last
    round of pricing. For a batch, these are the part of the problems solved and the largest of their gaps. An entropic
    solve tells which epsilon it is at, on its way to a small one, and how far the marginals are off there (`error`).
    """

    stage: str
    round: int
    fraction: float | None
    iterations: int
    arcs: int
    gap: float
    epsilon: float | None = None
    error: float = math.inf


def solve_exact(problem: Problem, solver: Exact, report: Callable[[Progress], None]) -> Solution:
    """Price all pairs, add the violated ones as arcs, pivot to optimality, and again until none is violated.

    The first round prices against zero potentials, the duals of the all-slack basis: it finds the cheapest pairs.
    """
    # Numba takes half a second to import; only those who solve pay for it.
    from adaptive_ot.solvers._pricing import pricing_for
    from adaptive_ot.solvers._simplex import NetworkSimplex, is_negative
    from adaptive_ot.solvers._weights import network_weights

    n, m = problem.cost.shape
    max_pivots = solver.pivot_limit(n + m)
    round_number, gap = 0, math.inf
    simplex: NetworkSimplex | None = None

    def tell(stage: str, fraction: float | None) -> None:
        pivots, arcs = (simplex.pivots, simplex.arcs.cost.size - n - m) if simplex else (0, 0)
        report(Progress(stage, round_number, fraction, pivots, arcs, gap))

    pricing = pricing_for(problem.cost)
    cheapest = pricing.cheapest(FIRST_KEEP, lambda done: tell("pricing", done))
    weights = network_weights(
        problem.source_weights, problem.target_weights, cheapest.rows, cheapest.columns, pricing.complete
    )
    # Targets that take nothing get no arcs.
    found = only(cheapest, weights.target[cheapest.columns] > 0)
    simplex = NetworkSimplex(weights.source, weights.target)
    while True:
        round_number += 1
        pivots_before = simplex.pivots
        simplex.add_arcs(found.rows, found.columns, found.costs)
        within_limit = simplex.optimise(max_pivots, lambda: tell("pivoting", None))
        f, g = (np.minimum(potential, 0.0) for potential in simplex.potentials())
        violated = pricing.violated(f, g, LATER_KEEP, lambda done: tell("pricing", done))
        solution = certify(problem, solver, simplex, weights, f, g + violated.target_minimum, within_limit)
        gap = solution.gap
        rows, columns, costs, _ = found = only(violated, weights.target[violated.columns] > 0)
        found = only(found, is_negative(costs - f[rows] - g[columns], costs, f[rows], g[columns]))
        if found.rows.size == 0 or simplex.pivots == pivots_before or not within_limit:
            return solution


def only(violated: Violated, use: np.ndarray) -> Violated:
    """Some of the violated pairs."""
    rows, columns, costs, _ = violated
    return violated if use.all() else violated._replace(rows=rows[use], columns=columns[use], costs=costs[use])


def certify(
    problem: Problem,
    solver: Exact,
    simplex: NetworkSimplex,
    weights: NetworkWeights,
    source_potential: np.ndarray,
    target_potential: np.ndarray,
    within_limit: bool,
) -> Solution:
    """The solution at a basis, with its gap to the dual value of feasible potentials."""
    from adaptive_ot.solvers._weights import fit

    mu, nu = problem.source_weights, problem.target_weights
    rows, columns, flow, cost = simplex.transport(None if weights.unit else weights.real)
    mass = flow * (weights.unit or 1.0)
    if not weights.unit:
        fit(mass, rows, columns, mu, nu)
    value = float(cost @ mass)
    dual_value = float(mu @ source_potential + nu @ target_potential)
    gap = max(0.0, value - dual_value)
    source_marginal, target_marginal = marginal(rows, mass, mu.size), marginal(columns, mass, nu.size)
    over_source, over_target = source_marginal - mu, target_marginal - nu
    if not within_limit:
        status = Status.PIVOT_LIMIT
    elif gap > solver.tolerance * max(1.0, abs(value)):
        status = Status.IMPRECISE
    else:
        status = Status.OPTIMAL
    present = problem.cost.kind.present
    return Solution(
        problem=problem,
        transport=ListedTransport(problem.cost.shape, (rows, columns, mass)),
        value=value,
        regularised_value=value,
        mass=float(mass.sum()),
        source_marginal=present(source_marginal),
        target_marginal=present(target_marginal),
        source_potential=present(source_potential),
        target_potential=present(target_potential),
        active_source=present(source_marginal > 0),
        active_target=present(target_marginal > 0),
        gap=gap,
        violation=float(max(over_source.max(initial=0.0), over_target.max(initial=0.0))),
        status=status,
        iterations=simplex.pivots,
    )
