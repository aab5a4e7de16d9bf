"""Exact transport of a prescribed mass: partial transport, and, where all of it must move, Kantorovich's.

It is adaptive transport with a price taken off every cost (fact 6). From a price at which no more moves than it should,
`Walk` raises it until exactly enough does. There is no penalty to choose and no dummy point that could fail.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from adaptive_ot.errors import Infeasible
from adaptive_ot.marginals import FixedMass
from adaptive_ot.problem import Problem
from adaptive_ot.solution import Solution, Support
from adaptive_ot.solvers._jit import kernel
from adaptive_ot.solvers._near import NearPairs
from adaptive_ot.solvers._simplex import _push, carrying_pairs, settled
from adaptive_ot.solvers._walk import Walk
from adaptive_ot.solvers._weights import NetworkWeights, fit
from adaptive_ot.solvers.exact import Exact, Progress, certified, find_optimum

# A mass within this part of the largest possible one is all of it.
ALL = 1e-12

# Forbidden pairs are in the way if less than this part of the mass can move.
MOVABLE = 1 - 1e-9


def solve_fixed(problem: Problem, solver: Exact, report: Callable[[Progress], None]) -> Solution:
    """Solve at a price that is not too high, then walk."""
    mu, nu = problem.source_weights, problem.target_weights
    marginals = problem.marginals
    amount = marginals.amount(mu, nu) if isinstance(marginals, FixedMass) else float(mu.sum())
    near = NearPairs(problem.cost)
    base = first_price(near, mu, nu, amount)
    optimum = find_optimum(problem, solver, base, report)
    simplex, weights = optimum.simplex, optimum.weights

    def tell() -> None:
        fraction = min(1.0, walk.moved * weights.grain / amount)
        report(Progress("walking", 0, fraction, simplex.pivots + walk.pivots, 0, np.inf))

    walk = Walk(near, simplex, weights.source, weights.target, base, tell)
    goal = flow_of(amount, weights)
    if optimum.within_limit and not walk.to(goal) and walk.moved * weights.grain < MOVABLE * amount:
        raise Infeasible(amount, walk.moved * weights.grain)
    simplex.pivots += walk.pivots
    support = transport(walk, weights, amount, mu, nu)
    f, _ = walk.potentials()
    price = base + walk.price
    f = marginals.clipped(f if isinstance(marginals, FixedMass) else f + price)
    bound = marginals.bound(mu, nu, f, near.minima(f)[1])
    return certified(problem, solver, support, problem.cost.entries(*support[:2]), f, bound, optimum)


def flow_of(amount: float, weights: NetworkWeights) -> int:
    """The integer flow for a mass, rounded up, and no more than there is."""
    flow = int(np.ceil(amount / weights.grain * (1 - ALL)))
    slack = 0 if weights.unit else weights.source.size + weights.target.size  # each was rounded up
    return max(0, min(flow, int(weights.source.sum()) - slack, int(weights.target.sum()) - slack))


def first_price(near: NearPairs, mu: np.ndarray, nu: np.ndarray, amount: float) -> float:
    """A price at which no more than `amount` moves, but not much less.

    Only points with a pair cheaper than the price can move anything. If everything must move, no price is too high.
    """
    if amount >= min(mu.sum(), nu.sum()) * (1 - ALL):
        return near.largest()
    prices = []
    for weights, cheapest in zip((mu, nu), near.minima(np.zeros(mu.size)), strict=True):
        order = np.argsort(cheapest)
        within = np.searchsorted(np.cumsum(weights[order]), amount * (1 - ALL))
        prices.append(cheapest[order[min(within, order.size - 1)]])
    price = float(max(prices))
    return price if np.isfinite(price) else near.largest()


@kernel
def push(tree, sources, i, j, amount):
    """Send real flow around the cycle of a pair; returns nothing but the changed tree."""
    a, b = i, j
    while a != b:
        if tree.depth[a] >= tree.depth[b]:
            a = tree.parent[a]
        else:
            b = tree.parent[b]
    _push(tree, sources, i, j, a, amount)


def transport(walk: Walk, weights: NetworkWeights, amount: float, mu: np.ndarray, nu: np.ndarray) -> Support:
    """The pairs that carry mass where a walk ended, with the last one taking what is left to move."""
    tree, sources = walk.tree, int(walk.sources)
    if weights.unit:
        flow, least = tree.flow * weights.unit, np.zeros(tree.flow.size)
    else:
        flow, least = settled(tree, weights.real)
    if walk.last:
        rows, columns, mass, _ = carrying_pairs(tree, sources, flow, least)
        i, j, _ = walk.last
        left = max(0.0, amount - float(mass.sum()))
        push(tree._replace(flow=flow), walk.sources, i, j, left)
        rows, columns, mass, _ = carrying_pairs(tree, sources, flow, least)
        if left > 0:
            at = np.searchsorted(rows * nu.size + columns, i * nu.size + j - sources)
            rows, columns, mass = (np.insert(*part) for part in ((rows, at, i), (columns, at, j - sources), (mass, at, left)))
    else:
        rows, columns, mass, _ = carrying_pairs(tree, sources, flow, least)
    if not weights.unit:
        fit(mass, rows, columns, mu, nu)
    return rows, columns, mass
