"""Exact transport of a prescribed mass: partial transport, and Kantorovich's transport if all mass must move.

The problem is adaptive transport with a price subtracted from every cost. `ParametricSimplex` raises the price, from
one at which not too much moves, until exactly enough does. No penalty has to be chosen, and no dummy point can fail.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from adaptive_ot._jit import kernel
from adaptive_ot._progress import Progress
from adaptive_ot.errors import Infeasible
from adaptive_ot.exact.certificate import Exact, certified
from adaptive_ot.exact.columns import find_optimum, pricing_for
from adaptive_ot.exact.limits import Limits
from adaptive_ot.exact.parametric import ParametricSimplex
from adaptive_ot.exact.pricing import Pricing
from adaptive_ot.exact.simplex import carrying_pairs, find_cycle, push, real_flows
from adaptive_ot.exact.weights import NetworkWeights, fit
from adaptive_ot.marginals import EQUAL
from adaptive_ot.problem import Problem
from adaptive_ot.solution import Solution, Status, Support

# A mass within this fraction of the largest possible mass counts as all of it.
ALL = 1e-12

# Forbidden pairs make a problem infeasible if less than this fraction of the mass can move.
MOVABLE = 1 - 1e-9

# A price this many times as high as the costs of the plan is high enough.
HIGH = 16.0


def solve_prescribed(problem: Problem, solver: Exact, report: Callable[[Progress], None], limits: Limits) -> Solution:
    """Solve at a low price, then raise it until enough mass moves; start again lower if a high price cost digits."""
    problem.cost.check_highest()
    mu, nu = problem.source_weights, problem.target_weights
    pricing = pricing_for(problem.cost, limits=limits)
    base, pivots = first_price(pricing, mu, nu, problem.prescribed_mass), 0
    most_pivots = solver.pivot_limit(mu.size + nu.size)
    while True:
        solution = solve_from(base, pricing, problem, replace(solver, max_pivots=most_pivots - pivots), report)
        pivots += solution.iterations
        costs = problem.cost.entries(*solution.support[:2])
        lower = HIGH * float(np.abs(costs).max(initial=0.0))
        precise = solution.gap <= solver.tolerance * abs(solution.value)
        if precise or solution.status is Status.PIVOT_LIMIT or not lower < base / 2:
            return replace(solution, answers=solution.answers._replace(iterations=pivots))
        base = lower


def solve_from(
    base: float, pricing: Pricing, problem: Problem, solver: Exact, report: Callable[[Progress], None]
) -> Solution:
    """Solve at a price, then raise the price until enough mass moves."""
    amount = problem.prescribed_mass
    optimum = find_optimum(problem, solver, base, report, pricing.limits)
    weights = optimum.weights

    def tell() -> None:
        report(Progress("walking", 0, min(1.0, rising.mass / amount), optimum.pivots + rising.pivots, 0, math.inf))

    rising = ParametricSimplex(pricing, optimum.tree, weights, base, tell)
    within_limit = optimum.within_limit
    most_pivots = solver.pivot_limit(sum(problem.cost.shape)) - optimum.pivots
    if within_limit and not rising.to(flow_of(amount, weights), most_pivots):
        within_limit = rising.within_limit
        if within_limit and rising.mass < MOVABLE * amount:
            raise Infeasible(amount, rising.mass)
    return solution_of(problem, solver, rising, within_limit, optimum.pivots + rising.pivots)


def solution_of(
    problem: Problem, solver: Exact, rising: ParametricSimplex, within_limit: bool, pivots: int
) -> Solution:
    """The solution at the price where the rise stopped."""
    mu, nu, marginals = problem.source_weights, problem.target_weights, problem.marginals
    support = transport(rising, problem.prescribed_mass, mu, nu)
    f, g = (np.minimum(potential, 0.0) for potential in rising.potentials())
    price = rising.base + rising.price
    # Potentials of the original costs: add the price to a side that must be met; `FixedMass.bound` finds it again.
    source, target = marginals.sides
    if source == target == EQUAL:  # the price is part of the potentials; target potentials have a mean of zero
        mean = float(nu @ g) / (float(nu.sum()) or 1.0)
        f, g = f + (price + mean), g - mean
    elif source == EQUAL:
        f = f + price
    else:
        g = g + price
    if problem.cost.layout == "points":  # by differences: the bounds of blocks would lose digits
        cheaper = pricing_for(problem.cost, price, rising.pricing.limits)
        lowest = g + cheaper.violated(f, g, 1, lambda done: None).target_minimum
    else:
        lowest = rising.pricing.minima(f)[1]
    bound = marginals.bound(mu, nu, f, lowest)
    costs = problem.cost.entries(*support[:2])
    return certified(problem, solver, support, costs, f, bound, within_limit, pivots)


def flow_of(amount: float, weights: NetworkWeights) -> int:
    """The integer flow for a mass, rounded up, but at most the total weight."""
    flow = int(np.ceil(amount / weights.grain * (1 - ALL)))
    slack = 0 if weights.unit else weights.source.size + weights.target.size  # each weight was rounded up
    return max(0, min(flow, int(weights.source.sum()) - slack, int(weights.target.sum()) - slack))


def first_price(pricing: Pricing, mu: np.ndarray, nu: np.ndarray, amount: float) -> float:
    """A price at which no more than `amount` moves, but not much less.

    Only points with a pair cheaper than the price can move mass. If everything must move, no price is too high.
    """
    if amount >= min(mu.sum(), nu.sum()) * (1 - ALL):
        return pricing.largest()
    prices = []
    for weights, cheapest in zip((mu, nu), pricing.minima(np.zeros(mu.size)), strict=True):
        order = np.argsort(cheapest)
        within = np.searchsorted(np.cumsum(weights[order]), amount * (1 - ALL))
        prices.append(cheapest[order[min(within, order.size - 1)]])
    price = float(max(prices))
    return price if np.isfinite(price) else pricing.largest()


@kernel
def push_around(tree, sources, i, j, amount):
    """Send flow around the cycle that a pair closes."""
    apex, _, _, _ = find_cycle(tree, sources, i, j)
    push(tree, sources, i, j, apex, amount)


def transport(rising: ParametricSimplex, amount: float, mu: np.ndarray, nu: np.ndarray) -> Support:
    """The pairs that carry mass at the final price; the last pair takes the mass that is left to move."""
    tree, weights, sources = rising.tree, rising.weights, int(rising.sources)
    flow, least = real_flows(tree, weights)
    rows, columns, mass, _ = carrying_pairs(tree, sources, flow, least)
    left = amount - float(mass.sum())
    if rising.last and left > 0:
        i, j = rising.last
        push_around(tree._replace(flow=flow), rising.sources, np.uint32(i), np.uint32(j), left)
        rows, columns, mass, _ = carrying_pairs(tree, sources, flow, least)
        place = np.searchsorted(rows * nu.size + columns, i * nu.size + j - sources)
        new = zip((rows, columns, mass), (i, j - sources, left), strict=True)
        rows, columns, mass = (np.insert(side, place, value) for side, value in new)
    if not weights.unit:
        fit(mass, rows, columns, mu, nu)
    return rows, columns, mass
