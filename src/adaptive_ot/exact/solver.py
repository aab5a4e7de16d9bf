"""The exact solver: a network simplex over a few arcs, with column generation over all pairs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from adaptive_ot import _validation as check
from adaptive_ot._progress import Progress
from adaptive_ot.costs import ArrayCost, Cost, SparseCost
from adaptive_ot.exact.limits import LIMITS, Limits
from adaptive_ot.marginals import AtMost, Bound, ChiSquareBall, Equal, FixedMass
from adaptive_ot.problem import Problem
from adaptive_ot.solution import ListedTransport, Solution, Status, Support, marginal, violation_of

if TYPE_CHECKING:
    from adaptive_ot.exact.pricing import Violated
    from adaptive_ot.exact.simplex import NetworkSimplex
    from adaptive_ot.exact.weights import NetworkWeights

# How many pairs of lowest reduced cost are kept for every node in the first and in later rounds.
FIRST_KEEP = 16
LATER_KEEP = 8

# No plan that breaks its constraints by more than this part of the total weight counts as optimal.
LARGEST_VIOLATION = 1e-9

# The potentials are known up to this part of the largest of them.
ROUNDING = 1e-13


@dataclass(frozen=True)
class Exact:
    """Solve to optimality, with proof.

    Parameters
    ----------
    tolerance
        How large the certified gap may be, relative to the terms whose difference it is, without signs:
        <|C|, G> + <mu, |f|> + <nu, |g|> + |price| mass. For adaptive transport this is twice the value. What rounding
        can do comes on top: 1e-13 of the largest potentials for every unit of mass.
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


class Optimum(NamedTuple):
    """An optimal tree of adaptive transport with `base` taken off every cost, and feasible potentials to prove it."""

    simplex: NetworkSimplex
    weights: NetworkWeights
    source_potential: np.ndarray
    target_potential: np.ndarray
    within_limit: bool


def solve_exact(
    problem: Problem, solver: Exact, report: Callable[[Progress], None], limits: Limits = LIMITS
) -> Solution:
    """Solve by the method that suits what the marginals must satisfy."""
    if not isinstance(problem.marginals, AtMost):
        _check_cost(problem.cost)
    if isinstance(problem.marginals, Equal | FixedMass):
        from adaptive_ot.exact.partial import solve_fixed

        return solve_fixed(problem, solver, report, limits)
    if isinstance(problem.marginals, ChiSquareBall):
        from adaptive_ot.exact.robust import solve_robust

        return solve_robust(problem, solver, problem.marginals.rho, report)
    optimum = find_optimum(problem, solver, 0.0, report, limits)
    f, g = optimum.source_potential, optimum.target_potential
    bound = Bound(float(problem.source_weights @ f + problem.target_weights @ g), g)
    rows, columns, mass, costs = carried(problem, optimum)
    pivots = optimum.simplex.pivots
    return certified(problem, solver, (rows, columns, mass), costs, f, bound, optimum.within_limit, pivots)


def _check_cost(cost: Cost) -> None:
    """Points need no check: their distances are bounded as their coordinates are."""
    if isinstance(cost, ArrayCost):
        check.highest_cost(cost.array)
    elif isinstance(cost, SparseCost):
        check.highest_cost(cost.matrix.data)


def find_optimum(
    problem: Problem, solver: Exact, base: float, report: Callable[[Progress], None], limits: Limits
) -> Optimum:
    """Price all pairs, add the violated ones as arcs, pivot to optimality, and again until none is violated.

    The first round prices against zero potentials, the duals of the all-slack basis: it finds the cheapest pairs.
    """
    # Numba takes half a second to import; only those who solve pay for it.
    from adaptive_ot.exact.pricing import pricing_for
    from adaptive_ot.exact.simplex import NetworkSimplex, is_negative
    from adaptive_ot.exact.weights import network_weights, whole_weights

    n, m = problem.cost.shape
    mu, nu = problem.source_weights, problem.target_weights
    max_pivots = solver.pivot_limit(n + m)
    round_number, gap = 0, math.inf
    simplex: NetworkSimplex | None = None

    def tell(stage: str, fraction: float | None) -> None:
        pivots, arcs = (simplex.pivots, simplex.arcs.cost.size - n - m) if simplex else (0, 0)
        report(Progress(stage, round_number, fraction, pivots, arcs, gap))

    pricing = pricing_for(problem.cost, base, limits)
    found = pricing.cheapest(base, FIRST_KEEP, lambda done: tell("pricing", done))
    if isinstance(problem.marginals, AtMost):
        weights = network_weights(mu, nu, found.rows, found.columns, pricing.complete)
    else:  # which points matter changes with the base
        weights = whole_weights(mu, nu)
    simplex = NetworkSimplex(weights.source, weights.target)
    found = only(found, weights.target[found.columns] > 0)  # targets that take nothing get no arcs
    while True:
        round_number += 1
        pivots_before = simplex.pivots
        simplex.add_arcs(found.rows, found.columns, found.costs - base)
        within_limit = simplex.optimise(max_pivots, lambda: tell("pivoting", None))
        f, g = (np.minimum(potential, 0.0) for potential in simplex.potentials())
        violated = pricing.violated(f + base, g, LATER_KEEP, lambda done: tell("pricing", done))
        optimum = Optimum(simplex, weights, f, g + violated.target_minimum, within_limit)
        gap = max(0.0, simplex.value() * weights.grain - float(mu @ f + nu @ optimum.target_potential))
        rows, columns, costs, _ = found = only(violated, weights.target[violated.columns] > 0)
        costs = costs - base
        found = only(found, is_negative(costs - f[rows] - g[columns], costs, f[rows], g[columns]))
        if found.rows.size == 0 or simplex.pivots == pivots_before or not within_limit:
            return optimum


def only(violated: Violated, use: np.ndarray) -> Violated:
    """Some of the violated pairs."""
    rows, columns, costs, _ = violated
    return violated if use.all() else violated._replace(rows=rows[use], columns=columns[use], costs=costs[use])


def carried(problem: Problem, optimum: Optimum) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rows, columns, masses and costs of the pairs that carry mass."""
    from adaptive_ot.exact.weights import fit

    weights = optimum.weights
    rows, columns, flow, costs = optimum.simplex.transport(None if weights.unit else weights.real)
    mass = flow * (weights.unit or 1.0)
    if not weights.unit:
        fit(mass, rows, columns, problem.source_weights, problem.target_weights)
    return rows, columns, mass, costs


def allowed_gap(
    problem: Problem, solver: Exact, costs: np.ndarray, mass: np.ndarray, source_potential: np.ndarray, bound: Bound
) -> float:
    """The largest gap of an optimal plan, see `Exact.tolerance`: it scales with the costs and with the weights."""
    moved, terms, largest = float(mass.sum()), float(np.abs(costs) @ mass), 0.0
    sides = (problem.source_weights, source_potential), (problem.target_weights, bound.target_potential)
    for weights, potential in sides:
        size = np.abs(potential)
        terms += float(weights @ size)
        largest += float(size.max(initial=0.0))
    price = abs(bound.price)
    return solver.tolerance * (terms + price * moved) + ROUNDING * (largest + price) * moved


def certified(
    problem: Problem,
    solver: Exact,
    support: Support,
    costs: np.ndarray,
    source_potential: np.ndarray,
    bound: Bound,
    within_limit: bool,
    pivots: int,
) -> Solution:
    """The solution with these pairs, and its gap to what its potentials prove."""
    mu, nu = problem.source_weights, problem.target_weights
    rows, columns, mass = support
    value = float(costs @ mass)
    gap = max(0.0, value - bound.value)
    # The terms sum to no less than the value, so that most gaps need no closer look.
    within_tolerance = gap <= solver.tolerance * abs(value) or gap <= allowed_gap(
        problem, solver, costs, mass, source_potential, bound
    )
    source_marginal, target_marginal = marginal(rows, mass, mu.size), marginal(columns, mass, nu.size)
    violation = problem.marginals.violation(mu, nu, source_marginal, target_marginal)
    if not within_limit:
        status = Status.PIVOT_LIMIT
    elif not within_tolerance or violation > LARGEST_VIOLATION * max(mu.sum(), nu.sum()):
        status = Status.IMPRECISE
    else:
        status = Status.OPTIMAL
    transport, present = ListedTransport(problem.cost.shape, support), problem.cost.kind.present
    return Solution(
        problem=problem,
        transport=transport,
        value=value,
        regularised_value=value,
        mass=float(mass.sum()),
        source_marginal=present(source_marginal),
        target_marginal=present(target_marginal),
        source_potential=present(source_potential),
        target_potential=present(bound.target_potential),
        active_source=present(source_marginal > 0),
        active_target=present(target_marginal > 0),
        price=bound.price,
        gap=gap,
        violation=violation_of(problem, transport, (source_marginal, target_marginal)),
        status=status,
        iterations=pivots,
    )
