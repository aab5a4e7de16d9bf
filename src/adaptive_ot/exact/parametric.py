"""Follow an optimal tree while the price of mass rises: partial transport of every mass.

Subtract a price p from every cost: the higher p is, the more mass adaptive transport moves. A simplex tree that is
optimal at one price stays optimal until some pair reaches a reduced cost of zero. That pair enters, another arc leaves,
and the walk continues. The walk is cheap because potentials depend on the price in a simple way. A part of the tree
that hangs on the root by a source has *surplus*: the potentials of its sources are constant, and the potentials of its
targets fall as fast as p rises. A part that hangs on the root by a target lacks mass, and the roles are swapped. So
reduced costs

* fall, at rate 1, on pairs from a source with surplus to a target without;
* stay constant within parts of the same kind, and rise on pairs from a source without surplus to a target with surplus.

Only pairs of the first kind can enter, and each entry joins two parts of different kinds: a pivot through the root,
which moves mass. Since no reduced cost falls faster than the price rises, only pairs whose reduced cost is now below w
can enter before the price has risen by w. They form a short list, which is renewed now and then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Self

import numpy as np

from adaptive_ot._jit import inlined, kernel
from adaptive_ot.exact.pricing import Pairs, Pricing
from adaptive_ot.exact.simplex import Tree, exchange, find_cycle, refresh_potentials, slack_tree
from adaptive_ot.exact.weights import NetworkWeights

# The share of the listed pairs that is watched at first.
WATCHED_SHARE = 0.02

FINEST = 1e-11  # the narrowest window, relative to potentials: a dozen halvings away from rounding

SHORTEST = 2  # the depths of two points at the root

TIE = 1e-14  # prices this close to each other, relative to potentials, count as equal
TINY = 1e-300  # a width to double

# Why `raise_price` returned: the flow has moved, no more pairs enter in the window, or there is more to do.
REACHED, WINDOW_DONE, INTERRUPTED = 0, 1, 2


class Steps(NamedTuple):
    """The pairs that entered, in order: their nodes and costs, the price at which each entered, the flow it moved."""

    tail: np.ndarray
    head: np.ndarray
    cost: np.ndarray
    price: np.ndarray
    amount: np.ndarray

    @classmethod
    def empty(cls, size: int) -> Steps:
        """Arrays for this many steps."""
        tail, head = np.empty(size, np.uint32), np.empty(size, np.uint32)
        return cls(tail, head, np.empty(size), np.empty(size), np.empty(size, np.int64))


@kernel
def find_tops(tree, top):
    """For each node, find the node by which its part of the tree hangs on the root."""
    root = tree.parent.size - 1
    node = tree.following[root]
    while node != root:
        top[node] = node if tree.depth[node] == 1 else top[tree.parent[node]]
        node = tree.following[node]


@kernel
def _potential_if_ready(node, sources, top, potential):
    """The potential of a node if its pairs can enter, seen from its side; otherwise -inf."""
    return potential if (top < sources) == (node < sources) else -np.inf


@kernel
def _watch(tail, head, cost, sources, potential, top, price, tie, width, watched_tail, watched_head, watched_cost):
    """Copy the pairs with a reduced cost below `width`.

    Returns their number, how many are at most `tie`, and whether the reduced cost of any listed pair falls.
    """
    count, ties, any_falls = 0, 0, False
    for k in range(tail.size):
        i, j = tail[k], head[k]
        reduced = cost[k] - potential[i] - potential[j]
        surplus = top[i] < sources
        if surplus != (top[j] < sources):
            reduced += -price if surplus else price
            any_falls = any_falls or surplus
        if reduced < width:
            watched_tail[count], watched_head[count], watched_cost[count] = i, j, cost[k]
            count += 1
            ties += reduced <= tie
    return count, ties, any_falls


@inlined
def _earliest(tree, top, ready, tail, head, cost, first, last, price, tie, found):
    """Search the pairs from `first` to `last` for one that enters before `found`, given as (place, price, rank).

    Pairs within `tie` of the price enter at once.
    """
    depth, flow = tree.depth, tree.flow
    entering, lowest, lowest_rank = found
    for k in range(first, last):
        key = cost[k] - ready[tail[k]] - ready[head[k]]
        if key <= price + tie:
            key = price
        if key > lowest or (key == lowest and entering < 0):
            continue
        # Among pairs at the same price, prefer one that moves mass, along a short path.
        i, j = tail[k], head[k]
        rank = depth[i] + depth[j] + (0 if flow[top[i]] > 0 else ready.size)
        if key < lowest or rank < lowest_rank:
            entering, lowest, lowest_rank = k, key, rank
            if rank == SHORTEST and key <= price:
                break
    return entering, lowest, lowest_rank


@kernel
def _next_of_crowd(tree, sources, top, ready, by_source, by_target, start, cursor, price, tie, until):
    """Search node by node: a pair enters only if both of its ends are ready, so searching one side is enough.

    Among pairs that enter at once, take one from the first node that has any. Returns whether a pair enters before
    `until`, the pair itself, the node to continue from, and how many pairs were examined.
    """
    root, sources = ready.size - 1, np.int64(sources)
    of_sources, of_targets = 0, 0
    for node in range(root):
        if ready[node] > -np.inf:
            pairs = start[node + 1] - start[node]
            of_sources += pairs if node < sources else 0
            of_targets += 0 if node < sources else pairs
    first, last, offset = (0, sources, 0) if of_sources < of_targets else (sources, root, start[sources])
    tail, head, cost = by_source if of_sources < of_targets else by_target
    found, looked_at = (-1, until, 0), root
    node = cursor if first <= cursor < last else first
    for _ in range(first, last):
        if ready[node] > -np.inf:
            begin, end = start[node] - offset, start[node + 1] - offset
            found = _earliest(tree, top, ready, tail, head, cost, begin, end, price, tie, found)
            looked_at += end - begin
            if found[0] >= 0 and found[1] <= price:
                break
        node = node + 1 if node + 1 < last else first
    k = max(found[0], 0)
    return found[0] >= 0, tail[k], head[k], cost[k], node, looked_at


@kernel
def _sort_by_target(tail, head, cost, sources, start, sorted_tail, sorted_head, sorted_cost):
    """Sort by target the pairs listed by source; `start` gets the place of the first pair of every node in its list.

    The places of targets are numbered after the places of sources.
    """
    start[:] = 0
    for k in range(tail.size):
        start[tail[k] + 1] += 1
        start[head[k] + 1] += 1
    for node in range(start.size - 1):
        start[node + 1] += start[node]
    place = start.copy()
    for k in range(tail.size):
        at = place[head[k]] - start[sources]
        place[head[k]] += 1
        sorted_tail[at], sorted_head[at], sorted_cost[at] = tail[k], head[k], cost[k]


@kernel
def raise_price(tree, sources, top, tail, head, cost, price, end, width, goal, moved, steps, work_limit, crowd):
    """Raise the price to `end`, or until the flow `goal` has moved, pivoting on listed pairs.

    If more than `crowd` pairs per node are watched, they are searched node by node: with costs a_i + b_j, most pairs
    are tied and few can enter. Returns why it stopped, the price, the width of the last list watched, the flow moved,
    the number of steps, and, if the goal was reached, the pair whose entry would take the flow to the goal or beyond.
    """
    size = tail.size
    watched_tail, watched_head, watched_cost = np.empty(size, np.uint32), np.empty(size, np.uint32), np.empty(size)
    ready, start = np.empty(tree.parent.size), np.empty(tree.parent.size, np.int64)
    step, work = 0, 0
    while True:
        refresh_potentials(tree)
        largest = abs(price)
        for node in range(ready.size):
            ready[node] = _potential_if_ready(node, sources, top[node], tree.potential[node])
            largest = max(largest, abs(tree.potential[node]))
        watched = watched_tail, watched_head, watched_cost
        tie = 2 * TIE * largest
        count, ties, any_falls = _watch(tail, head, cost, sources, tree.potential, top, price, tie, width, *watched)
        listing = size + 4 * ready.size
        work += listing
        until = min(end, price + width) if count < size and any_falls else end
        watching, cursor = 0, np.int64(0)
        crowded = count > crowd * ready.size
        by_source = watched_tail[:count], watched_head[:count], watched_cost[:count]
        by_target = by_source
        if crowded:
            by_target = np.empty(count, np.uint32), np.empty(count, np.uint32), np.empty(count)
            _sort_by_target(*by_source, sources, start, *by_target)
        while True:
            if crowded:
                found, i, j, pair_cost, cursor, looked_at = _next_of_crowd(
                    tree, sources, top, ready, by_source, by_target, start, cursor, price, tie, until
                )
            else:
                first, _, _ = _earliest(
                    tree, top, ready, watched_tail, watched_head, watched_cost, 0, count, price, tie, (-1, until, 0)
                )
                found, k, looked_at = first >= 0, max(first, 0), count
                i, j, pair_cost = watched_tail[k], watched_head[k], watched_cost[k]
            watching += looked_at
            work += looked_at + 100
            if not found:
                break
            lowest = pair_cost - ready[i] - ready[j]
            price = max(price, lowest)
            cycle = find_cycle(tree, sources, i, j)
            amount = cycle[1]
            if moved + amount >= goal:
                return REACHED, price, width, moved, step, i, j
            if step == steps.tail.size or (work > work_limit and step > 0):
                return INTERRUPTED, price, width, moved, step, i, j
            steps.tail[step], steps.head[step], steps.cost[step] = i, j, pair_cost
            steps.price[step], steps.amount[step] = price, amount
            step += 1
            moved += amount
            changed, nodes = exchange(tree, sources, i, j, cycle, pair_cost, lowest)
            work += 4 * nodes
            _flip(tree, sources, top, ready, changed)
        price = until if until < np.inf else price
        # Listing and watching should take equal time. However, every list contains the ties, however short it is.
        width *= 2.0 if watching < listing or 2 * ties > count else 0.5
        if until >= end or work > work_limit:
            return WINDOW_DONE if until >= end else INTERRUPTED, price, width, moved, step, sources, sources


@kernel
def _flip(tree, sources, top, ready, moved):
    """Update the subtree of the node `moved`, which changed from one kind to the other."""
    node, new_top = moved, top[tree.parent[moved]]
    while True:
        top[node] = new_top
        ready[node] = _potential_if_ready(node, sources, new_top, tree.potential[node])
        node = tree.following[node]
        if tree.depth[node] <= tree.depth[moved]:
            return


@kernel
def repeat(tree, sources, steps, goal):
    """Repeat steps from the slack tree until a flow of `goal` has moved; returns the first step not taken."""
    moved, k = 0, 0
    while k < steps.tail.size and moved + steps.amount[k] < goal:
        i, j = steps.tail[k], steps.head[k]
        exchange(tree, sources, i, j, find_cycle(tree, sources, i, j), steps.cost[k], steps.price[k])
        moved += steps.amount[k]
        k += 1
    refresh_potentials(tree)
    return k


class ParametricSimplex:
    """An optimal tree, the price at which it is optimal, and the flow that has moved so far.

    Parameters
    ----------
    pricing
        Finds pairs of low reduced cost among all pairs.
    tree
        Optimal for the costs minus `base`, without arcs to targets of zero weight.
    weights
        The integer weights that the simplex uses.
    base
        The amount subtracted from every cost; prices here are relative to `base`.
    report
        Called several times a second.
    """

    def __init__(
        self,
        pricing: Pricing,
        tree: Tree,
        weights: NetworkWeights,
        base: float,
        report: Callable[[], None] = lambda: None,
    ) -> None:
        self.pricing, self.tree, self.weights, self.base, self.report = pricing, tree, weights, base, report
        self.sources, self.has_weight = np.uint32(weights.source.size), weights.target > 0
        self.top = np.zeros(tree.parent.size, np.uint32)
        find_tops(tree, self.top)
        (n, m), limits = pricing.shape, pricing.limits
        self.moved = int(weights.source.sum() - tree.flow[:n][tree.parent[:n] == n + m].sum())
        self.price, self.pivots, self.within_limit = 0.0, 0, True
        self.last: tuple[int, int] | None = None  # the nodes of the pair whose entry takes the flow to the goal
        self.record: list[Steps] = []
        self.most_listed = limits.listed_per_node * (n + m) if n * m > limits.all_listed else n * m
        self.listed_width = np.inf if n * m <= limits.all_listed else 0.0
        self.watched_width = np.inf
        self.ties = 0  # the number of pairs that even the narrowest window holds

    @classmethod
    def repeated(cls, pricing: Pricing, weights: NetworkWeights, base: float, steps: Steps, goal: int) -> Self:
        """Repeat steps taken from the slack tree until a flow of `goal` has moved."""
        tree = slack_tree(weights.source, weights.target)
        at = int(repeat(tree, np.uint32(weights.source.size), steps, goal))
        simplex = cls(pricing, tree, weights, base)
        if at < steps.tail.size:
            simplex.price, simplex.last = float(steps.price[at]), (int(steps.tail[at]), int(steps.head[at]))
        elif at:
            simplex.price = float(steps.price[-1])
        return simplex

    @property
    def mass(self) -> float:
        """The mass that has moved."""
        return self.moved * self.weights.grain

    def potentials(self) -> tuple[np.ndarray, np.ndarray]:
        """Feasible potentials at the current price (relative to the base)."""
        n, potential, surplus = int(self.sources), self.tree.potential[:-1], self._surplus()
        return potential[:n] - self.price * ~surplus[:n], potential[n:] - self.price * surplus[n:]

    def _surplus(self) -> np.ndarray:
        """Which nodes are in parts that hang on the root by a source."""
        return self.top[:-1] < self.sources

    def steps(self) -> Steps:
        """All steps taken."""
        return Steps(*(np.concatenate(sides) for sides in zip(Steps.empty(0), *self.record, strict=True)))

    def to(self, goal: int, most_pivots: int = 2**62) -> bool:
        """Raise the price until a flow of `goal` has moved; False if no price suffices or pivots exceed the limit."""
        idle = False
        while self.moved < goal:
            window = self._window(idle)
            if window is None:
                return False
            before = self.pivots
            if self._raise_price(*window, goal, most_pivots):
                return True
            if not self.within_limit:
                return False
            idle = self.pivots == before
        return True

    def _raise_price(self, pairs: Pairs, end: float, goal: int, most_pivots: int) -> bool:
        """Pivot on listed pairs up to a price, to the goal, or to the limit; returns whether the goal was reached."""
        tail, head = pairs.rows.astype(np.uint32), (pairs.columns + int(self.sources)).astype(np.uint32)
        arcs, limits = (tail, head, pairs.costs - self.base), self.pricing.limits
        spread = min(end - self.price, float(np.ptp(arcs[2])) if tail.size else 0.0)
        self.watched_width = min(self.watched_width, max(WATCHED_SHARE * spread, TINY))
        reason, most_work = INTERRUPTED, (limits.work_per_call, limits.crowd_per_node)
        while reason == INTERRUPTED and self.within_limit:
            steps = Steps.empty(min(limits.steps_per_call, most_pivots - self.pivots))
            window = *arcs, self.price, end, self.watched_width
            reason, self.price, self.watched_width, self.moved, count, *pair = raise_price(
                self.tree, self.sources, self.top, *window, goal, self.moved, steps, *most_work
            )
            self.pivots += count
            self.record.append(Steps(*(side[:count] for side in steps)))
            self.report()
            if reason == REACHED:
                self.last = int(pair[0]), int(pair[1])
            self.within_limit = reason != INTERRUPTED or self.pivots < most_pivots
        return reason == REACHED

    def _window(self, idle: bool) -> tuple[Pairs, float] | None:
        """A list with all pairs that can enter before the price reaches an end, and this end; None if no pair can."""
        n = int(self.sources)
        if idle or self.listed_width == 0:
            # Nothing happens until the first pair from a source with surplus to a target without can enter.
            f, g = self._potentials_of_costs()
            surplus = self._surplus()
            f[~surplus[:n]], g[surplus[n:] | ~self.has_weight] = -np.inf, -np.inf
            lowest = self.pricing.lowest(f, g)
            if lowest == np.inf:
                return None
            self.price += max(0.0, lowest)
        f, g = self._potentials_of_costs()
        if self.listed_width == 0:
            self.listed_width = self.pricing.quantile(f, g, self.most_listed / 2)
        # A window that rounding closes would stay the same forever.
        finest = FINEST * max(np.abs(f).max(initial=0.0), np.abs(g).max(initial=0.0))
        self.listed_width = max(self.listed_width, finest)
        everything = self.pricing.shape[0] * self.pricing.shape[1]

        def tied(pairs: Pairs) -> int:
            """How many of the pairs are in the finest window."""
            return int(np.count_nonzero(pairs.costs - f[pairs.rows] - g[pairs.columns] < finest))

        while (pairs := self.pricing.below(f, g, self.listed_width, self.most_listed + 2 * self.ties)) is None:
            narrowest = self.pricing.below(f, g, finest, everything)
            known, self.ties = self.ties, tied(narrowest) if narrowest else 0
            if self.ties > known:
                continue
            self.listed_width, self.most_listed = self.listed_width / 2, self.most_listed * 2
            if self.most_listed >= everything:
                self.listed_width = np.inf  # list all pairs
        end = self.price + self.listed_width
        if pairs.rows.size - tied(pairs) < self.most_listed // 4:
            self.listed_width *= 2
        useful = self.has_weight[pairs.columns]
        return Pairs(*(side[useful] for side in pairs)), end

    def _potentials_of_costs(self) -> tuple[np.ndarray, np.ndarray]:
        """Potentials at the current price for the original costs, with nothing subtracted."""
        f, g = self.potentials()
        return f + (self.base + self.price), g
