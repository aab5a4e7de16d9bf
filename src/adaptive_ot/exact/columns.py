"""Column generation for adaptive transport: a network simplex over few pairs, priced against all pairs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from adaptive_ot._progress import Progress
from adaptive_ot.exact.certificate import Exact, certified
from adaptive_ot.exact.limits import LIMITS, Limits
from adaptive_ot.exact.pricing import DensePricing, ListedPricing, Pairs, PointPricing, Pricing, Violated
from adaptive_ot.exact.scan import pairs_below
from adaptive_ot.exact.simplex import NetworkSimplex, carrying_pairs, is_negative, real_flows
from adaptive_ot.exact.weights import NetworkWeights, fit, network_weights, whole_weights
from adaptive_ot.marginals import Bound
from adaptive_ot.problem import Problem
from adaptive_ot.solution import Solution

# How many pairs of lowest reduced cost are kept per node in the first round and in later rounds.
FIRST_KEEP = 16
LATER_KEEP = 8


def pricing_for(cost: Any, base: float = np.inf, limits: Limits = LIMITS) -> Pricing:
    """The pricing that suits a cost; only pairs that cost less than `base` matter.

    Potentials relative to the base are at most 0, so more expensive pairs cannot be violated.
    """
    if cost.layout == "sparse":
        return ListedPricing(cost, Pairs(*cost.pairs_below(base)), limits)
    if base < np.inf and cost.shape[0] * cost.shape[1] <= limits.searched_entries:
        pairs = Pairs(*pairs_below(cost.block(0, cost.shape[0]), base, limits.few_pairs))
        if pairs.rows.size <= limits.few_pairs:
            return ListedPricing(cost, pairs, limits)
    if cost.kind.on_gpu:
        from adaptive_ot.exact.pricing_gpu import TorchPricing

        return TorchPricing(cost, limits)
    return PointPricing(cost, limits) if cost.layout == "points" else DensePricing(cost, limits)


class Optimum(NamedTuple):
    """An optimal tree of adaptive transport with `base` subtracted from all costs, and feasible potentials as proof."""

    simplex: NetworkSimplex
    weights: NetworkWeights
    source_potential: np.ndarray
    target_potential: np.ndarray
    within_limit: bool


def solve_adaptive(problem: Problem, solver: Exact, report: Callable[[Progress], None], limits: Limits) -> Solution:
    """Solve a model that does not prescribe the mass."""
    optimum = find_optimum(problem, solver, 0.0, report, limits)
    f, g = optimum.source_potential, optimum.target_potential
    bound = Bound(float(problem.source_weights @ f + problem.target_weights @ g), g)
    rows, columns, mass, costs = carried(problem, optimum)
    pivots = optimum.simplex.pivots
    return certified(problem, solver, (rows, columns, mass), costs, f, bound, optimum.within_limit, pivots)


def find_optimum(
    problem: Problem, solver: Exact, base: float, report: Callable[[Progress], None], limits: Limits
) -> Optimum:
    """Price all pairs, add the violated ones as arcs, pivot to optimality; repeat until no pair is violated.

    The first round prices against zero potentials, the duals of the all-slack basis: it finds the cheapest pairs.
    """
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
    if problem.marginals.exact_method == "adaptive":
        weights = network_weights(mu, nu, found.rows, found.columns, pricing.complete)
    else:  # the base decides which points matter
        weights = whole_weights(mu, nu)
    simplex = NetworkSimplex(weights.source, weights.target)
    found = only(found, weights.target[found.columns] > 0)  # targets without weight get no arcs
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
    simplex, weights = optimum.simplex, optimum.weights
    flows = real_flows(simplex.tree, weights)
    rows, columns, mass, costs = carrying_pairs(simplex.tree, simplex.sources, *flows)
    if not weights.unit:
        fit(mass, rows, columns, problem.source_weights, problem.target_weights)
    return rows, columns, mass, costs
