"""A network simplex for adaptive transport.

The problem is a minimum-cost flow. Source i supplies mu_i, target j demands nu_j, and a *root* balances what is not
transported: every source has a free slack arc to the root and every target a free slack arc from it. A basis is a
spanning tree, so at most n + m pairs carry mass.

Three properties make the code short:

* Below the root the tree alternates between sources and targets. The arc between a node and its parent therefore
  points up when the node is a source and down when it is a target; no direction needs to be stored.
* Arcs have no capacity, so an arc outside the tree carries nothing and has no state. A basis is only the tree, and
  arcs may be added between two calls: this is the warm start that column generation needs.
* The all-slack tree is feasible. There is no big-M and no first phase.

Flows are integers, so ties are exact. The tree stays *strongly feasible* (Cunningham 1976): an arc of zero flow always
points to the root, which in this graph means that the arc of a target never carries zero. With exact flows this rules
out cycling. Potentials satisfy u_i + u_j = c_ij on the tree and u_root = 0; the reduced cost is c_ij - u_i - u_j.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from adaptive_ot._jit import inlined, kernel
from adaptive_ot.exact.weights import NetworkWeights

UNBOUNDED = np.iinfo(np.int64).max

# Negative reduced costs smaller than this, relative to the cost and both potentials, count as zero.
PRECISION = 1e-13

# After this many pivots per node (most problems take five to ten in total), the simplex checks that it makes progress.
PIVOTS_PER_NODE = 20

# From one step to the next of an approach to an optimum, the cost of leaving a point out rises by this factor.
RISE = 4.0

# About this many elementary steps (arcs priced, nodes moved) pass between two checks of the clock and of Ctrl-C.
WORK_PER_CALL = 20_000_000


class Tree(NamedTuple):
    """A rooted spanning tree over sources, targets and the root (in this order), threaded in preorder.

    ``flow`` and ``cost`` of a node belong to the arc between it and its parent.
    """

    parent: np.ndarray
    following: np.ndarray
    preceding: np.ndarray
    depth: np.ndarray
    flow: np.ndarray
    cost: np.ndarray
    potential: np.ndarray


class Arcs(NamedTuple):
    """Arcs from `tail` to `head` that may enter the tree; the slack arcs come first."""

    tail: np.ndarray
    head: np.ndarray
    cost: np.ndarray


def slack_tree(source_weights: np.ndarray, target_weights: np.ndarray) -> Tree:
    """The tree in which everything goes to, or comes from, the root."""
    sources, root = source_weights.size, source_weights.size + target_weights.size
    parent, depth = np.full(root + 1, root, np.uint32), np.ones(root + 1, np.int32)
    following, preceding = np.arange(1, root + 2, dtype=np.uint32), np.arange(-1, root).astype(np.uint32)
    flow = np.empty(root + 1, np.int64)
    flow[:sources], flow[sources:root] = source_weights, target_weights
    depth[root], flow[root], following[root], preceding[0] = 0, 0, 0, root
    return Tree(parent, following, preceding, depth, flow, np.zeros(root + 1), np.zeros(root + 1))


def slack_arcs(sources: int, targets: int) -> Arcs:
    """The slack arcs of all points; they must be priced like any other arc, or the answer would be wrong."""
    root = sources + targets
    tail, head = np.arange(root, dtype=np.uint32), np.arange(root, dtype=np.uint32)
    tail[sources:], head[:sources] = root, root
    return Arcs(tail, head, np.zeros(root))


def is_negative(reduced_cost: Any, cost: Any, u: Any, v: Any) -> Any:
    """Whether a reduced cost, cost - u - v, is below zero by more than rounding."""
    return reduced_cost < -PRECISION * (abs(cost) + abs(u) + abs(v))


_is_negative = inlined(is_negative)


@inlined
def refresh_potentials(tree):
    """Recompute every potential from the tree, which removes the rounding drift of many shifts."""
    root = tree.parent.size - 1
    tree.potential[root] = 0.0
    node = tree.following[root]
    while node != root:
        tree.potential[node] = tree.cost[node] - tree.potential[tree.parent[node]]
        node = tree.following[node]


@inlined
def find_cycle(tree, sources, i, j):
    """The cycle closed by an entering arc i -> j: its top, how much flow it can take, and the blocking arc.

    Flow falls on the arcs of sources above i and of targets above j. If several arcs block, the leaving arc is the last
    one on a walk around the cycle, from its top along the entering arc; this keeps the tree strongly feasible.
    """
    parent, depth, flow = tree.parent, tree.depth, tree.flow
    room_i, room_j = UNBOUNDED, UNBOUNDED
    block_i, block_j = i, j
    a, b = i, j
    while a != b:
        if depth[a] >= depth[b]:
            if a < sources and flow[a] < room_i:
                room_i, block_i = flow[a], a
            a = parent[a]
        else:
            if b >= sources and flow[b] <= room_j:
                room_j, block_j = flow[b], b
            b = parent[b]
    if room_j <= room_i:
        return a, room_j, block_j, True
    return a, room_i, block_i, False


@inlined
def push(tree, sources, i, j, top, amount):
    """Send `amount` around the cycle of the entering arc i -> j."""
    parent, flow = tree.parent, tree.flow
    while i != top:
        flow[i] += -amount if i < sources else amount
        i = parent[i]
    while j != top:
        flow[j] += amount if j < sources else -amount
        j = parent[j]


@inlined
def _shift(tree, sources, node, stop, above, depth_change, change, last):
    """Shift the nodes from `node` on, up to `stop` or to the first node that is not deeper than `above`."""
    following, depth, potential = tree.following, tree.depth, tree.potential
    moved = 0
    while node != stop and depth[node] > above:
        depth[node] += depth_change
        potential[node] += change if node < sources else -change
        last = node
        node = following[node]
        moved += 1
    return node, last, moved


@inlined
def rehang(tree, sources, node, new_parent, leaving, cost, flow, change):
    """Cut the subtree of `leaving`, make `node` its top and hang it below `new_parent`.

    The new preorder of the subtree is: the subtree of `node`, then each former ancestor of `node`, up to `leaving`,
    with the rest of its own subtree. One walk relinks the thread and updates depths and potentials.
    Returns the number of nodes moved.
    """
    parent, following, preceding, depth = tree.parent, tree.following, tree.preceding, tree.depth
    nowhere = np.uint32(parent.size)
    before = preceding[leaving]
    top, child, behind = node, nowhere, node
    parent_now, flow_now, cost_now = new_parent, flow, cost
    moved = 0
    while True:
        old_parent, old_flow, old_cost, old_depth = parent[node], tree.flow[node], tree.cost[node], depth[node]
        depth_change = depth[parent_now] + 1 - old_depth
        parent[node], tree.flow[node], tree.cost[node] = parent_now, flow_now, cost_now
        depth[node] += depth_change
        tree.potential[node] += change if node < sources else -change
        at, last = following[node], node
        moved += 1
        if child != nowhere:  # the part of its subtree in front of the child handled before ...
            at, last, count = _shift(tree, sources, at, child, -1, depth_change, change, last)
            moved += count
            at = behind
            if depth[at] > old_depth:
                following[last] = at
                preceding[at] = last
        # ... and the part behind it
        behind, last, count = _shift(tree, sources, at, nowhere, old_depth, depth_change, change, last)
        moved += count
        if node == leaving:
            break
        following[last] = old_parent
        preceding[old_parent] = last
        child, parent_now, flow_now, cost_now, node = node, node, old_flow, old_cost, old_parent
    following[before] = behind
    preceding[behind] = before
    after = following[new_parent]
    following[new_parent] = top
    preceding[top] = new_parent
    following[last] = after
    preceding[after] = last
    return moved


@inlined
def exchange(tree, sources, i, j, cycle, cost, change):
    """Bring the arc i -> j into the tree, in place of the arc that blocks its `cycle` (from `find_cycle`).

    The potentials of the side that is cut off shift by `change`, the reduced cost of the arc, which becomes zero.
    Returns the top of that side and the number of its nodes.
    """
    top, amount, leaving, target_side = cycle
    if amount > 0:
        push(tree, sources, i, j, top, amount)
    if target_side:
        i, j, change = j, i, -change
    return i, rehang(tree, sources, i, j, leaving, cost, amount, change)


@kernel
def optimise(tree, sources, arcs, tolerance, cursor, pivot_limit, work_limit):
    """Pivot until no arc has a reduced cost below zero by more than rounding, or until a limit is reached.

    Arcs are priced in blocks, cyclically from `cursor`, and the best arc of a block enters. Blocks hold about the
    square root of the number of arcs, up to six times that where pivots move many nodes and a good choice pays off.
    Returns (pivots, cursor, finished).
    """
    potential = tree.potential
    tail, head, cost = arcs.tail, arcs.head, arcs.cost
    size = tail.size
    smallest = max(int(np.sqrt(size)), 16)
    moved_on_average = 0.0
    pivots = 0
    work = 0
    refresh_potentials(tree)
    fresh = True
    while work < work_limit:
        block = min(max(smallest, int(8 * moved_on_average)), 6 * smallest)
        best, entering = -tolerance, -1
        priced = 0
        while priced < size and entering < 0:
            end = min(cursor + block, size)
            for arc in range(cursor, end):
                u, v = potential[tail[arc]], potential[head[arc]]
                reduced_cost = cost[arc] - u - v
                if reduced_cost < best and _is_negative(reduced_cost, cost[arc], u, v):
                    best, entering = reduced_cost, arc
            priced += end - cursor
            cursor = end if end < size else 0
        work += priced
        if entering >= 0 and pivots == pivot_limit:
            break
        if entering >= 0:
            i, j = tail[entering], head[entering]
            _, moved = exchange(tree, sources, i, j, find_cycle(tree, sources, i, j), cost[entering], best)
            moved_on_average += 0.01 * (moved - moved_on_average)
            work += 4 * moved + 100
            pivots += 1
            fresh = False
        elif fresh:
            return pivots, cursor, True
        else:
            refresh_potentials(tree)
            fresh = True
    return pivots, cursor, False


def real_flows(tree: Tree, weights: NetworkWeights) -> tuple[np.ndarray, np.ndarray]:
    """The flows of a tree as mass, and their rounding errors: multiples of the unit, or those of the real weights."""
    flow, rounding = tree.flow * weights.unit, np.zeros(tree.flow.size)
    if not weights.unit:
        settle(tree, weights.real, flow, rounding)
    return flow, rounding


@kernel
def settle(tree, weights, flow, rounding):
    """Compute flows from the leaves up: a flow is the signed sum of the weights of a node and all nodes below it."""
    root = tree.parent.size - 1
    for node in range(root):
        flow[node], rounding[node] = weights[node], 2.0**-52 * weights[node]
    node = tree.preceding[root]
    while node != root:
        flow[tree.parent[node]] -= flow[node]
        rounding[tree.parent[node]] += rounding[node]
        node = tree.preceding[node]


def carrying_pairs(
    tree: Tree, sources: int, flow: np.ndarray, least: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rows, columns, flows and costs of the pairs in the tree that carry more than `least`, by row, then column."""
    root = tree.parent.size - 1
    nodes = np.flatnonzero((tree.parent[:root] != root) & (flow[:root] > least[:root]))
    parents, of_source = tree.parent[nodes].astype(np.int64), nodes < sources
    rows, columns = np.where(of_source, nodes, parents), np.where(of_source, parents, nodes) - sources
    order = np.lexsort((columns, rows))
    return rows[order], columns[order], flow[nodes[order]], tree.cost[nodes[order]]


def relabelled(tree: Tree, node: np.ndarray, place: np.ndarray) -> Tree:
    """The same tree with node k named `node[k]`; `place` is the inverse of `node`."""
    renamed = (node.astype(np.uint32)[side][place] for side in tree[:3])
    return Tree(*renamed, *(side[place] for side in tree[3:]))


class NetworkSimplex:
    """The state of the simplex: a tree, and the arcs that may enter it.

    Parameters
    ----------
    source_weights, target_weights
        Integers (int64) whose sums stay below 2**62. Targets of weight zero must get no arcs: they would break strong
        feasibility, and there is nothing to transport to them.
    pivots
        The number of pivots to count from.

    Examples
    --------
    >>> import numpy as np
    >>> simplex = NetworkSimplex(np.array([2, 1]), np.array([2]))
    >>> simplex.add_arcs(np.array([0, 1]), np.array([0, 0]), np.array([-1.0, -3.0]))
    >>> simplex.optimise(max_pivots=100)
    True
    >>> [array.tolist() for array in simplex.transport()]
    [[0, 1], [0, 0], [1, 1], [-1.0, -3.0]]
    """

    def __init__(self, source_weights: np.ndarray, target_weights: np.ndarray, pivots: int = 0) -> None:
        self.sources, self.targets = source_weights.size, target_weights.size
        self.tree = slack_tree(source_weights, target_weights)
        self.arcs = slack_arcs(self.sources, self.targets)
        self.pivots = pivots
        self._cursor = 0
        self._tolerance = 0.0

    def add_arcs(self, rows: np.ndarray, columns: np.ndarray, costs: np.ndarray) -> None:
        """Allow transport on further pairs; the next search for an entering arc starts with them."""
        self._cursor = self.arcs.tail.size if rows.size else 0
        new = zip(self.arcs, (rows, columns + self.sources, costs), strict=True)
        self.arcs = Arcs(*(np.append(side, more.astype(side.dtype)) for side, more in new))

    def approach(
        self, potential: np.ndarray, step: float, max_pivots: int, report: Callable[[], None] = lambda: None
    ) -> None:
        """Pivot towards an optimum that is expected near these potentials (at most 0; sources, then targets).

        The slack tree has potentials of 0, under which the first pivots join points that should not meet. Therefore,
        slack arcs cost the given potentials at first, plus a step, which grows until those in the tree cost nothing.
        """
        root = self.tree.parent.size - 1
        while step > 0:
            slack = np.minimum(potential + step, 0.0)
            self._charge(slack)
            if not self.optimise(max_pivots, report) or not slack[self.tree.parent[:root] == root].any():
                break
            step *= RISE
        self._charge(np.zeros(root))

    def _charge(self, slack: np.ndarray) -> None:
        """Let the slack arcs have these costs."""
        self.arcs.cost[: slack.size] = slack
        at_root = np.flatnonzero(self.tree.parent[:-1] == slack.size)
        self.tree.cost[at_root] = slack[at_root]

    def optimise(self, max_pivots: int, report: Callable[[], None] = lambda: None) -> bool:
        """Pivot to optimality over the current arcs; False if `max_pivots` in total came first.

        Returns to Python several times a second, so that Ctrl-C works, and calls `report` then and at the end.
        """
        # Many pivots without any gain mean that rounding, in costs of very different sizes, leads in circles. An
        # absolute tolerance, which grows if necessary, then ends the search.
        patience = PIVOTS_PER_NODE * self.tree.parent.size
        impatient_at, value = self.pivots + patience, self.value()
        while True:
            limit = min(max_pivots, impatient_at) - self.pivots
            pivots, self._cursor, finished = optimise(
                self.tree, np.uint32(self.sources), self.arcs, self._tolerance, self._cursor, limit, WORK_PER_CALL
            )
            self.pivots += pivots
            report()
            if finished or self.pivots == max_pivots:
                return finished
            if self.pivots == impatient_at:
                value_before, value = value, self.value()
                if value >= value_before - 1e-12 * abs(value_before):
                    self._tolerance = max(4 * self._tolerance, 1e-15 * np.abs(self.arcs.cost).max())
                impatient_at += patience

    def value(self) -> float:
        """The cost of the current flows."""
        return float(self.tree.flow @ self.tree.cost)

    def potentials(self) -> tuple[np.ndarray, np.ndarray]:
        """Duals of the current tree (views): sources, targets."""
        root = self.sources + self.targets
        return self.tree.potential[: self.sources], self.tree.potential[self.sources : root]

    def transport(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Rows, columns, integer flows and costs of the pairs in the tree that carry flow, by row, then column."""
        return carrying_pairs(self.tree, self.sources, self.tree.flow, np.zeros(self.tree.flow.size))
