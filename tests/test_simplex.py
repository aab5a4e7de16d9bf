"""The network simplex by itself: what must hold of its tree, and the warm start."""

from __future__ import annotations

import numpy as np
import pytest

from adaptive_ot.exact.simplex import NetworkSimplex
from problems import reference_value

MANY = 1_000_000


def random_problem(seed, n, m, arcs, *, largest_weight=9, largest_cost=9):
    """Integer weights, and arcs without repetition, of either sign."""
    rng = np.random.default_rng(seed)
    mu, nu = rng.integers(1, largest_weight + 1, n), rng.integers(1, largest_weight + 1, m)
    pairs = rng.choice(n * m, min(arcs, n * m), replace=False)
    costs = rng.integers(-largest_cost, largest_cost // 3 + 1, pairs.size).astype(float)
    return mu, nu, pairs // m, pairs % m, costs


def cost_matrix(mu, nu, rows, columns, costs):
    cost = np.full((mu.size, nu.size), np.inf)
    cost[rows, columns] = costs
    return cost


def optimal_value(mu, nu, *arcs):
    """By HiGHS; an integer."""
    return round(reference_value(cost_matrix(mu, nu, *arcs), mu, nu))


def simplex_of(mu, nu, *arcs):
    simplex = NetworkSimplex(mu, nu)
    simplex.add_arcs(*arcs)
    return simplex


def value_of(simplex):
    _, _, flow, cost = simplex.transport()
    return float(flow @ cost)


def preorder(tree):
    """The nodes in the order of the thread, from the root."""
    root = tree.parent.size - 1
    order = [root]
    while tree.following[order[-1]] != root:
        order.append(int(tree.following[order[-1]]))
        assert len(order) <= tree.parent.size, "the thread does not close"
    return order


def check_tree(simplex, mu, nu):
    """Parents, depths, thread, flows and potentials tell the same story."""
    tree, n, m = simplex.tree, mu.size, nu.size
    root = n + m
    order = preorder(tree)
    assert sorted(order) == list(range(root + 1))
    for node in range(root + 1):
        assert tree.preceding[tree.following[node]] == node
    assert tree.depth[root] == 0

    ancestors = []
    for node in order:  # in preorder, the parent is the last node on the current path that is less deep
        del ancestors[tree.depth[node] :]
        if node != root:
            assert len(ancestors) == tree.depth[node]
            assert tree.parent[node] == ancestors[-1]
        ancestors.append(node)

    balance = np.zeros(root + 1, np.int64)
    for node in range(root):
        parent = int(tree.parent[node])
        assert parent == root or (node < n) != (parent < n), "sources and targets alternate"
        tail, head = (node, parent) if node < n else (parent, node)
        balance[tail] += tree.flow[node]
        balance[head] -= tree.flow[node]
        assert tree.flow[node] >= 0
        if node >= n:
            assert tree.flow[node] > 0, "strongly feasible: what flows into a target is never zero"
        if parent == root:
            assert tree.cost[node] == 0, "slack is free"
    np.testing.assert_array_equal(balance[:n], mu)
    np.testing.assert_array_equal(balance[n:root], -nu)

    for node in range(root):
        tight = tree.potential[node] + tree.potential[tree.parent[node]]
        assert tight == pytest.approx(tree.cost[node], abs=1e-9)
    assert tree.potential[root] == 0


def check_optimal(simplex, rows, columns, costs):
    """No arc, slack included, has a negative reduced cost."""
    f, g = simplex.potentials()
    assert max(f.max(initial=0.0), g.max(initial=0.0)) <= 1e-9
    assert (costs - f[rows] - g[columns]).min(initial=0.0) >= -1e-9


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (9, 1), (6, 7), (15, 12), (25, 25)])
@pytest.mark.parametrize("ties", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_optimum_and_tree(shape, ties, seed):
    largest = 1 if ties else 50
    n, m = shape
    mu, nu, *arcs = random_problem(seed, n, m, 400, largest_weight=largest, largest_cost=largest)
    simplex = simplex_of(mu, nu, *arcs)
    check_tree(simplex, mu, nu)
    assert simplex.optimise(MANY)
    check_tree(simplex, mu, nu)
    check_optimal(simplex, *arcs)
    assert value_of(simplex) == optimal_value(mu, nu, *arcs)


@pytest.mark.parametrize("seed", range(5))
def test_tree_after_every_pivot(seed):
    mu, nu, *arcs = random_problem(seed, 12, 10, 100, largest_weight=3, largest_cost=3)
    simplex = simplex_of(mu, nu, *arcs)
    values = [0.0]
    finished = False
    while not finished:
        finished = simplex.optimise(simplex.pivots + 1)
        check_tree(simplex, mu, nu)
        values.append(value_of(simplex))
    assert (np.diff(values) <= 0).all()
    assert values[-1] == optimal_value(mu, nu, *arcs)


@pytest.mark.parametrize("parts", [2, 5])
@pytest.mark.parametrize("seed", range(5))
def test_warm_start(seed, parts):
    mu, nu, *arcs = random_problem(seed, 20, 30, 500)
    simplex = NetworkSimplex(mu, nu)
    for part in range(parts):
        simplex.add_arcs(*(side[part::parts] for side in arcs))
        assert simplex.optimise(MANY)
        check_tree(simplex, mu, nu)
    assert value_of(simplex) == optimal_value(mu, nu, *arcs)
    check_optimal(simplex, *arcs)


def test_nothing_to_add():
    mu, nu, *arcs = random_problem(0, 8, 8, 40)
    simplex = simplex_of(mu, nu, *(side[:0] for side in arcs))
    assert simplex.optimise(MANY)
    assert (simplex.pivots, value_of(simplex)) == (0, 0.0)
    simplex.add_arcs(*arcs)
    assert simplex.optimise(MANY)
    before = simplex.pivots
    assert simplex.optimise(MANY)
    assert simplex.pivots == before, "an optimal tree stays as it is"


@pytest.mark.parametrize("limit", [0, 1, 7])
def test_pivot_limit_counts_all_calls(limit):
    mu, nu, *arcs = random_problem(1, 20, 20, 300)
    simplex = simplex_of(mu, nu, *arcs)
    assert not simplex.optimise(limit)
    assert simplex.pivots == limit
    assert not simplex.optimise(limit)
    assert simplex.pivots == limit
    check_tree(simplex, mu, nu)


def test_flows_beyond_float64():
    """Weights that float64 cannot tell apart are kept apart."""
    mu, nu = np.array([2**60, 1]), np.array([2**60 + 1])
    simplex = simplex_of(mu, nu, np.array([0, 1]), np.array([0, 0]), np.array([-1.0, -2.0]))
    assert simplex.optimise(MANY)
    assert simplex.transport()[2].tolist() == [2**60, 1]


def test_transport_is_sorted_by_row_then_column():
    mu, nu, *arcs = random_problem(2, 30, 20, 500)
    simplex = simplex_of(mu, nu, *arcs)
    simplex.optimise(MANY)
    i, j, _, cost = simplex.transport()
    assert (np.diff(i * nu.size + j) > 0).all()
    np.testing.assert_array_equal(cost, cost_matrix(mu, nu, *arcs)[i, j])
