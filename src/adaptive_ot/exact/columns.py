"""Column generation for adaptive transport: a network simplex over few pairs, priced against all pairs."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from adaptive_ot._progress import Progress
from adaptive_ot._validation import LARGEST
from adaptive_ot.costs import ArrayCost, PointCost
from adaptive_ot.exact.cells import CellPricing
from adaptive_ot.exact.certificate import Exact, certified
from adaptive_ot.exact.limits import LIMITS, Limits
from adaptive_ot.exact.multiscale import Order, Scale, all_scales, has_scales, part_of
from adaptive_ot.exact.pricing import DensePricing, ListedPricing, Pairs, PointPricing, Pricing, Violated
from adaptive_ot.exact.scan import pairs_below
from adaptive_ot.exact.sharded import SharedPoints, SharedPricing, is_worth_sharing
from adaptive_ot.exact.simplex import NetworkSimplex, Tree, carrying_pairs, is_negative, real_flows, relabelled
from adaptive_ot.exact.weights import NetworkWeights, common_unit, fit, network_weights, whole_weights
from adaptive_ot.marginals import Bound
from adaptive_ot.problem import Problem
from adaptive_ot.solution import Solution

# How many pairs of lowest reduced cost are kept per node in the first round (without and with potentials of a coarser
# problem) and in later rounds.
FIRST_KEEP = 16
NEAR_KEEP = 12
LATER_KEEP = 8

# The problem this many scales coarser tells whether mass stays near: whether this share of the pairs in its plan
# (of points, or of a matrix) is among the few cheapest of a point. Among more than this many points times 4^d, mass
# does not.
COARSER = 2
MOST, MOST_LISTED, CHEAPEST = 0.85, 0.6, 4
NEAR_POINTS = 128

# Clouds of this many times the coarsest problem are solved sooner without it.
FEW = 8

# Where a potential is larger than what is left of it by more than this factor, digits are lost: this share at most.
NEAR, LOST = 16.0, 2.0**-48


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
    if isinstance(cost, SharedPoints) and is_worth_sharing(cost, limits):
        return SharedPricing(cost, limits)
    if cost.kind.on_gpu:
        from adaptive_ot.exact.pricing_gpu import TorchPricing

        return TorchPricing(cost, limits)
    if not isinstance(cost, PointCost):
        return DensePricing(cost, limits)
    dimension = cost.x.shape[1] + cost.p.shape[1]
    in_cells = max(cost.shape) >= limits.points_in_cells << 2 * dimension
    return CellPricing(cost, limits) if in_cells else PointPricing(cost, limits)


def column_minima(cost: PointCost, f: np.ndarray) -> np.ndarray:
    """The smallest C_ij - f_i of every target, as `cost.column_minima` finds it, but in far less time."""
    if not f.size or not (np.abs(f) <= LARGEST).all():
        return cost.column_minima(f)
    pricing, highest = pricing_for(cost), int(f.argmax())
    g = cost.block(highest, highest + 1)[0] - f[highest]
    lowest = g + pricing.lowest_of_targets(f, g, lambda _: None)
    if (np.abs(g) > NEAR * (np.abs(lowest) + np.abs(f).max())).any():  # then the sum has lost digits
        g = lowest + LOST * np.abs(g)
        lowest = g + pricing.lowest_of_targets(f, g, lambda _: None)
    return lowest


class Optimum(NamedTuple):
    """An optimal tree of adaptive transport with `base` subtracted from all costs, and feasible potentials as proof."""

    tree: Tree
    weights: NetworkWeights
    source_potential: np.ndarray
    target_potential: np.ndarray
    pivots: int
    within_limit: bool

    def unordered(self, order: Order) -> Optimum:
        """The optimum of the problem whose points were put in this order."""
        node = np.concatenate((order.source, order.target + order.source.size, [self.tree.parent.size - 1]))
        source, target = np.argsort(order.source), np.argsort(order.target)
        place = np.argsort(node)
        tree, weights = relabelled(self.tree, node, place), self.weights
        weights = weights._replace(
            source=weights.source[source], target=weights.target[target], real=weights.real[place[:-1]]
        )
        f, g = self.source_potential[source], self.target_potential[target]
        return self._replace(tree=tree, weights=weights, source_potential=f, target_potential=g)


def solve_adaptive(problem: Problem, solver: Exact, report: Callable[[Progress], None], limits: Limits) -> Solution:
    """Solve a model that does not prescribe the mass."""
    optimum = find_optimum(problem, solver, 0.0, report, limits)
    f, g = optimum.source_potential, optimum.target_potential
    bound = Bound(float(problem.source_weights @ f + problem.target_weights @ g), g)
    rows, columns, mass, costs = carried(problem, optimum)
    return certified(problem, solver, (rows, columns, mass), costs, f, bound, optimum.within_limit, optimum.pivots)


def find_optimum(
    problem: Problem, solver: Exact, base: float, report: Callable[[Progress], None], limits: Limits
) -> Optimum:
    """The optimum with `base` subtracted from all costs; coarser problems are solved first."""
    generation = ColumnGeneration(problem, solver, base, report, limits)
    cost, whole = problem.cost, pricing_for(problem.cost, base, limits)
    weights = problem.source_weights, problem.target_weights
    if not has_scales(cost) or whole.complete or max(cost.shape) <= FEW * limits.coarsest_points:
        return generation.optimum(whole, *weights)
    finest, order = Scale.finest(problem, cost)
    scales = all_scales(finest, limits.coarsest_points)
    pricing = pricing_for(scales[0].cost, base, limits)
    optimum = generation.optimum(pricing, *scales[0].weights)
    for finer, (coarse, fine) in zip(range(len(scales) - 1, 0, -1), pairwise(scales), strict=True):
        if finer == COARSER and generation.stays_near(pricing, optimum):
            # In the order of cells, ever nearer partners come one after the other, and all of them are inserted.
            return generation.optimum(whole, *weights)
        start, pricing = generation.extended(optimum, coarse, fine), pricing_for(fine.cost, base, limits)
        optimum = generation.optimum(pricing, *fine.weights, start)
    return optimum.unordered(order)


class ColumnGeneration:
    """Price all pairs, add the violated ones as arcs, pivot to optimality; repeat until no pair is violated.

    Rounds, pivots and arcs of all scales of a problem are counted together.
    """

    def __init__(
        self, problem: Problem, solver: Exact, base: float, report: Callable[[Progress], None], limits: Limits
    ) -> None:
        self.base, self.report, self.limits = base, report, limits
        self.base_decides = problem.marginals.exact_method != "adaptive"  # which points matter
        self.shape = problem.cost.shape
        self.max_pivots = solver.pivot_limit(sum(self.shape))
        self.round, self.pivots, self.arcs, self.gap = 0, 0, 0, math.inf

    def optimum(
        self, pricing: Pricing, mu: np.ndarray, nu: np.ndarray, start: tuple[np.ndarray, np.ndarray] | None = None
    ) -> Optimum:
        """The optimum of one scale, which takes fewer rounds from potentials close to optimal.

        Without any, the first round prices against zero potentials, the duals of the all-slack basis: it finds the
        cheapest pairs.
        """
        if start is None:
            found = pricing.cheapest(self.base, FIRST_KEEP, self.priced)
        else:
            found = self.near(pricing, *start, every_point=not self.base_decides and not common_unit(mu, nu))
        if self.base_decides:
            weights = whole_weights(mu, nu)
        else:
            weights = network_weights(mu, nu, found.rows, found.columns, pricing.complete)
        simplex = NetworkSimplex(weights.source, weights.target, self.pivots)
        found = only(found, weights.target[found.columns] > 0)  # targets without weight get no arcs
        while True:
            self.round += 1
            self.arcs += found.rows.size
            simplex.add_arcs(found.rows, found.columns, found.costs - self.base)
            if start is not None:
                (f, g), start = start, None
                reduced = found.costs - self.base - f[found.rows] - g[found.columns]
                step = float(np.median(np.abs(reduced))) if reduced.size else 0.0
                simplex.approach(np.append(f, g), step, self.max_pivots, lambda: self.pivoted(simplex))
            within_limit = simplex.optimise(self.max_pivots, lambda: self.pivoted(simplex))
            idle, self.pivots = found.rows.size > 0 and simplex.pivots == self.pivots, simplex.pivots
            f, g = (np.minimum(potential, 0.0) for potential in simplex.potentials())
            violated = pricing.violated(f + self.base, g, LATER_KEEP, self.priced)
            optimum = Optimum(simplex.tree, weights, f, g + violated.target_minimum, simplex.pivots, within_limit)
            if pricing.shape == self.shape:  # a coarse problem proves nothing
                self.gap = max(0.0, simplex.value() * weights.grain - float(mu @ f + nu @ optimum.target_potential))
            rows, columns, costs, _ = found = only(violated, weights.target[violated.columns] > 0)
            costs = costs - self.base
            found = only(found, is_negative(costs - f[rows] - g[columns], costs, f[rows], g[columns]))
            if found.rows.size == 0 or idle or not within_limit:
                return optimum

    def near(self, pricing: Pricing, f: np.ndarray, g: np.ndarray, every_point: bool) -> Violated:
        """The pairs of lowest reduced cost among those that cost less than the base.

        They include at least one for `every_point` that has any.
        """
        lift = self.base - f.min(initial=0.0) - g.min(initial=0.0)  # enough to make every pair below the base negative
        found = pricing.violated(f + lift, g, NEAR_KEEP, self.priced)
        found = only(found, found.costs < self.base)
        if not every_point:
            return found
        n, m = pricing.shape
        lonely_rows, lonely_columns = np.setdiff1d(range(n), found.rows), np.setdiff1d(range(m), found.columns)
        parts = [found]
        for rows, columns in (lonely_rows, np.arange(m)), (np.arange(n), lonely_columns):
            of_part = pricing_for(part_of(pricing.cost, rows, columns), self.base, self.limits)
            pairs = of_part.cheapest(self.base, 1, lambda _: None)
            parts.append(pairs._replace(rows=rows[pairs.rows], columns=columns[pairs.columns]))
        rows, columns, costs, _ = zip(*parts, strict=True)
        return Violated(np.concatenate(rows), np.concatenate(columns), np.concatenate(costs), found.target_minimum)

    def stays_near(self, pricing: Pricing, optimum: Optimum) -> bool:
        """Whether few of the cheapest pairs of every point carry the plan of a coarse problem, and so of the finest.

        Among many points in few dimensions this does not follow: mass moves ever farther, compared with the distances
        of the points.
        """
        (n, m), cost = pricing.shape, pricing.cost
        in_space = isinstance(cost, PointCost)
        if in_space and max(self.shape) > NEAR_POINTS << 2 * (cost.x.shape[1] + cost.p.shape[1]):
            return False
        unlisted = pricing_for(cost, self.base, self.limits._replace(searched_entries=0))  # a list would have all pairs
        cheapest = unlisted.cheapest(self.base, CHEAPEST, self.priced)
        self.round += 1
        rows, columns, _, _ = carrying_pairs(optimum.tree, n, *real_flows(optimum.tree, optimum.weights))
        cheap = np.isin(rows * m + columns, cheapest.rows * m + cheapest.columns)
        return int(np.count_nonzero(cheap)) >= (MOST if in_space else MOST_LISTED) * rows.size

    def extended(self, optimum: Optimum, coarse: Scale, fine: Scale) -> tuple[np.ndarray, np.ndarray]:
        """The potentials of a coarse optimum at the points of a finer scale: their c-transforms."""
        rows, columns = map(np.arange, fine.cost.shape)
        of_sources = part_of(fine.cost, rows, coarse.columns).transposed()
        f = self.transform(of_sources, optimum.target_potential)
        of_targets = part_of(fine.cost, coarse.rows, columns)
        return f, self.transform(of_targets, optimum.source_potential)

    def transform(self, cost: PointCost | ArrayCost, f: np.ndarray) -> np.ndarray:
        """The c-transform: the lowest C_ij - f_i of every target, at most 0."""
        pricing = pricing_for(cost, self.base, self.limits)
        lowest = pricing.lowest_of_targets(f + self.base, np.zeros(cost.shape[1]), self.priced)
        self.round += 1
        return lowest

    def priced(self, fraction: float) -> None:
        """Report that a fraction of all pairs is priced."""
        self.report(Progress("pricing", self.round, fraction, self.pivots, self.arcs, self.gap))

    def pivoted(self, simplex: NetworkSimplex) -> None:
        """Report pivots."""
        self.report(Progress("pivoting", self.round, None, simplex.pivots, self.arcs, self.gap))


def only(violated: Violated, use: np.ndarray) -> Violated:
    """Some of the violated pairs."""
    rows, columns, costs, _ = violated
    return violated if use.all() else violated._replace(rows=rows[use], columns=columns[use], costs=costs[use])


def carried(problem: Problem, optimum: Optimum) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rows, columns, masses and costs of the pairs that carry mass."""
    tree, weights = optimum.tree, optimum.weights
    flows = real_flows(tree, weights)
    rows, columns, mass, costs = carrying_pairs(tree, problem.cost.shape[0], *flows)
    if not weights.unit:
        fit(mass, rows, columns, problem.source_weights, problem.target_weights)
    return rows, columns, mass, costs
