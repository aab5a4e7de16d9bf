"""Exact robust transport: marginals in chi-square balls.

The interior-point method finds the best marginals; balanced transport between them, by the simplex, gives a plan of few
pairs. In small problems, the interior-point method gets all pairs. In large ones, it gets the few that could matter
according to the potentials of balanced transport, and then more, until the potentials prove that none is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from adaptive_ot._arrays import to_numpy
from adaptive_ot._progress import Progress
from adaptive_ot.costs import Cost
from adaptive_ot.errors import Infeasible
from adaptive_ot.exact.certificate import Exact, allowed_gap, certified
from adaptive_ot.exact.columns import pricing_for
from adaptive_ot.exact.conic import RobustTransport, robust_transport
from adaptive_ot.exact.limits import Limits
from adaptive_ot.exact.prescribed import solve_prescribed
from adaptive_ot.exact.pricing import ListedPricing, Pairs, Pricing, unique_pairs
from adaptive_ot.marginals import ChiSquareBall, Equal
from adaptive_ot.problem import Problem
from adaptive_ot.solution import Solution, Status, Support, marginal

# Up to this many pairs, all are listed; otherwise, about this many per point.
ALL_LISTED = 2**17
LISTED_PER_POINT = 12

# Pairs are added until the gap is below this fraction of the allowed gap.
PART = 0.1

# A smaller ball cannot be distinguished from its centre within the tolerance.
SMALLEST_BALL = 1e-18

# A point that keeps less than this share of its weight counts as dropped: interior-point methods only approach zero.
ACTIVE_SHARE = 1e-6


def solve_robust(problem: Problem, solver: Exact, report: Callable[[Progress], None], limits: Limits) -> Solution:
    """Find the best marginals, transport between them, and certify the plan."""
    assert isinstance(problem.marginals, ChiSquareBall)  # the model that this method is made for
    problem.cost.check_highest()
    rho = problem.marginals.rho
    mu, nu = problem.source_weights, problem.target_weights
    pricing, balanced = pricing_for(problem.cost, limits=limits), replace(problem, marginals=Equal())
    if rho <= SMALLEST_BALL or not mu.sum() > 0:
        return replace(solve_prescribed(balanced, solver, report, limits), problem=problem)
    pairs = first_pairs(pricing, balanced, solver, report)
    cheapest, _ = pricing.minima(np.zeros(mu.size))
    steps = 0

    def tell(step: int, gap: float) -> None:
        report(Progress("interior", 0, None, steps + step, 0, gap))

    while True:
        found = robust_transport(*pairs, mu, nu, rho, tell)
        steps += found.iterations
        # Sources without weight must not weaken the bound.
        harmless = cheapest - found.target_potential.max()
        f = np.where(mu > 0, found.source_potential, np.where(np.isfinite(harmless), harmless, 0.0))
        bound = problem.marginals.bound(mu, nu, f, pricing.minima(f)[1])
        allowed, _ = allowed_gap(problem, solver, pairs.costs, found.mass, f, bound)
        done = float(pairs.costs @ found.mass) - bound.value <= PART * allowed
        missing = None if done and not found.infeasible else with_violated(pricing, pairs, found)
        if missing is None:
            break
        pairs = missing
    if found.infeasible:
        raise Infeasible(float(mu.sum()), None)
    r, c = marginal(pairs.rows, found.mass, mu.size), marginal(pairs.columns, found.mass, nu.size)
    if not found.mass.any():  # the method gave up without a plan; the centres of the balls are feasible
        r, c = mu, nu
    between = replace(balanced, source_weights=r, target_weights=c * (r.sum() / c.sum()))
    plan = solve_prescribed(between, solver, report, limits)
    costs = problem.cost.entries(*plan.support[:2])
    within_limit = plan.status is not Status.PIVOT_LIMIT
    pivots = steps + plan.iterations
    return certified(problem, solver, plan.support, costs, f, bound, within_limit, pivots, ACTIVE_SHARE)


def first_pairs(pricing: Pricing, balanced: Problem, solver: Exact, report: Callable[[Progress], None]) -> Pairs:
    """All pairs, or the pairs of lowest reduced cost in balanced transport, including the pairs of its plan."""
    n, m = pricing.shape
    everything = np.zeros(n), np.zeros(m), np.inf, n * m
    listed = pricing.below(*everything) if isinstance(pricing, ListedPricing) or n * m <= ALL_LISTED else None
    if listed and listed.rows.size <= ALL_LISTED:
        return listed
    try:
        plan = solve_prescribed(balanced, solver, report, pricing.limits)
    except Infeasible:  # no plan at the centres of the balls, but perhaps one elsewhere
        return pricing.below(*everything) or Pairs(*np.zeros((3, 0), np.int64))
    f, g = to_numpy(plan.source_potential), to_numpy(plan.target_potential)
    most = LISTED_PER_POINT * (n + m)
    width = pricing.quantile(f, g, most)
    while (listed := pricing.below(f, g, width, 4 * most)) is None:
        width /= 2
    return joined(pricing.cost, listed, plan.support)


def with_violated(pricing: Pricing, pairs: Pairs, found: RobustTransport) -> Pairs | None:
    """The given pairs and those that violate the new potentials; None if there are no new pairs."""
    n, m = pricing.shape
    if pairs.rows.size == n * m:
        return None
    most = LISTED_PER_POINT * (n + m)
    while (more := pricing.below(found.source_potential, found.target_potential, 0.0, most)) is None:
        most *= 2
    together = joined(pricing.cost, pairs, more)
    return together if together.rows.size > pairs.rows.size else None


def joined(cost: Cost, pairs: Pairs, more: Pairs | Support) -> Pairs:
    """Both lists, each pair once."""
    rows, columns = np.append(pairs[0], more[0]), np.append(pairs[1], more[1])
    rows, columns = unique_pairs(rows, columns, cost.shape[1])
    return Pairs(rows, columns, cost.entries(rows, columns))
