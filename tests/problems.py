"""Problems to test with: some with known answers, some random, and an independent reference value."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.optimize import linprog
from scipy.sparse.csgraph import maximum_flow

import adaptive_ot as aot


class Instance(NamedTuple):
    """A dense cost (+inf where a pair is forbidden) and two weightings."""

    cost: np.ndarray
    source_weights: np.ndarray
    target_weights: np.ndarray


class Known(NamedTuple):
    """A problem with its optimal value and mass, and its plan and clusters where they are unique."""

    problem: Instance
    value: float
    mass: float
    plan: np.ndarray | None = None
    clusters: list[tuple[list[int], list[int]]] | None = None


def toy() -> Known:
    """The example every new user meets."""
    cost = np.array(
        [
            [-1, -1, 1, 1, 3],
            [-1, -1, 2, 1, 1],
            [-1, -1, 1, 1, 2],
            [2, 3, -1, -1, 1],
            [1, 1, -1, -1, 3],
            [1, 3, 2, 1, 2],
        ],
        float,
    )
    return Known(
        Instance(cost, np.full(6, 1 / 6), np.full(5, 1 / 5)),
        value=-11 / 15,
        mass=11 / 15,
        clusters=[([0, 1, 2], [0, 1]), ([3, 4], [2, 3])],
    )


def permutation(rng: np.random.Generator, n: int) -> Known:
    """Unit weights; potentials are tight on a hidden permutation and loose elsewhere, so the permutation is optimal."""
    order = rng.permutation(n)
    f, g = -rng.integers(1, 50, n), -rng.integers(1, 50, n)
    slack = rng.integers(1, 60, (n, n))
    slack[np.arange(n), order] = 0
    plan = np.zeros((n, n))
    plan[np.arange(n), order] = 1
    cost = (f[:, None] + g[None, :] + slack).astype(float)
    clusters = [([i], [int(order[i])]) for i in range(n)]
    return Known(Instance(cost, np.ones(n), np.ones(n)), float(f.sum() + g.sum()), float(n), plan, clusters)


def disjoint_stars(rng: np.random.Generator, stars: int) -> Known:
    """Heavy sources, each with light targets of its own, all other pairs repel: every target is served in full."""
    sizes = rng.integers(1, 6, stars)
    owner = np.repeat(np.arange(stars), sizes)
    own = np.arange(stars)[:, None] == owner[None, :]
    shape = (stars, owner.size)
    cost = np.where(own, -rng.integers(1, 9, shape), rng.integers(1, 9, shape)).astype(float)
    target_weights = rng.integers(1, 5, owner.size).astype(float)
    source_weights = np.bincount(owner, target_weights) + rng.integers(1, 4, stars)
    plan = np.where(own, target_weights[None, :], 0.0)
    clusters = [([s], np.flatnonzero(owner == s).tolist()) for s in range(stars)]
    value, mass = float((cost * plan).sum()), float(plan.sum())
    return Known(Instance(cost, source_weights, target_weights), value, mass, plan, clusters)


def transportation(rng: np.random.Generator, n: int, m: int) -> Known:
    """A problem made from its own proof: a plan that fills every row, and potentials that are tight on it.

    Every source potential is negative, so every optimal plan fills every row: the mass is the total of the sources.
    """
    plan = rng.integers(1, 9, (n, m)) * (rng.random((n, m)) < 0.3)
    plan[np.arange(n), rng.integers(0, m, n)] += 1
    f = -rng.integers(1, 30, n)
    g = -rng.integers(0, 30, m) * (rng.random(m) < 0.7)
    slack = rng.integers(0, 40, (n, m)) * (plan == 0)
    source_weights = plan.sum(axis=1)
    target_weights = plan.sum(axis=0) + rng.integers(0, 5, m) * (g == 0)
    problem = Instance(
        (f[:, None] + g[None, :] + slack).astype(float), source_weights.astype(float), target_weights.astype(float)
    )
    return Known(problem, float(source_weights @ f + target_weights @ g), float(source_weights.sum()))


def integer_problem(rng: np.random.Generator) -> Instance:
    """Small integers, with all that makes a problem degenerate."""
    n, m = rng.integers(1, 9, 2)
    shape = [(n, m), (0, m), (n, 0), (0, 0), (1, 1), (1, m), (n, 1)][
        rng.choice(7, p=[0.82, 0.02, 0.02, 0.01, 0.03, 0.05, 0.05])
    ]
    low, high = [(-1, 1), (-3, 3), (-20, 20), (-1000, 500), (-9, -1), (0, 9), (-1, -1)][rng.integers(7)]
    cost = rng.integers(low, high + 1, shape).astype(float)
    if rng.random() < 0.2:
        cost[rng.random(shape[0]) < 0.3] = 0.0
    if rng.random() < 0.3:
        cost[rng.random(shape) < rng.random()] = np.inf
    if rng.random() < 0.1:
        cost[rng.random(shape[0]) < 0.3] = np.inf
    return Instance(cost, _integer_weights(rng, shape[0]), _integer_weights(rng, shape[1]))


def _integer_weights(rng: np.random.Generator, size: int) -> np.ndarray:
    highest = [1, 3, 100, 10**6][rng.integers(4)]
    weights = rng.integers(0 if rng.random() < 0.4 else 1, highest + 1, size)
    return (np.full(size, highest) if rng.random() < 0.2 else weights).astype(float)


def real_problem(rng: np.random.Generator) -> Instance:
    """Real-valued costs and weights of several kinds."""
    n, m = rng.integers(1, 13, 2)
    kind = rng.integers(4)
    if kind == 0:
        cost = rng.standard_normal((n, m))
    elif kind == 1:  # squared distances minus a reach
        x, z = rng.standard_normal((n, 2)), rng.standard_normal((m, 2)) + 0.5
        cost = ((x[:, None] - z[None, :]) ** 2).sum(axis=2) - 2.0
    elif kind == 2:  # several orders of magnitude
        cost = rng.choice([-1.0, 1.0], (n, m)) * 10.0 ** rng.uniform(-3, 3, (n, m))
    else:
        cost = -rng.random((n, m))
    if rng.random() < 0.2:
        cost[rng.random((n, m)) < 0.3] = np.inf
    return Instance(cost, _real_weights(rng, n), _real_weights(rng, m))


def _real_weights(rng: np.random.Generator, size: int) -> np.ndarray:
    kind = rng.integers(4)
    if kind == 0:
        return np.full(size, 1 / size)
    if kind == 1:
        return rng.random(size)
    if kind == 2:
        return rng.dirichlet(np.ones(size))
    return 10.0 ** rng.uniform(-4, 2, size) * (rng.random(size) < 0.9)


def normal_problem(seed: int | np.random.Generator, n: int = 5, m: int = 7) -> Instance:
    """Normal costs, and weights that are all of a size."""
    rng = np.random.default_rng(seed)
    return Instance(rng.standard_normal((n, m)), rng.random(n) + 0.1, rng.random(m) + 0.1)


def distance_matrix(x: np.ndarray, z: np.ndarray, reach: float) -> np.ndarray:
    """|x_i - z_j|^2 - reach^2 by differences, one row at a time."""
    rows = [((row - z) ** 2).sum(axis=1) for row in x]
    return np.array(rows).reshape(len(x), len(z)) - reach**2


def joint_matrix(
    x: np.ndarray, z: np.ndarray, p: np.ndarray, q: np.ndarray, kappa: float = 0.5, beta: float = 1.0
) -> np.ndarray:
    """The scale-free domain-adaptation cost over all pairs."""
    squares = distance_matrix(x, z, 0.0)
    return beta * (kappa * squares / np.median(squares) - p @ q.T)


PRECISE = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


def allowed_pairs(cost: np.ndarray) -> tuple[np.ndarray, np.ndarray, sparse.csr_array]:
    """Rows and columns of the pairs that are not forbidden, and the matrix that sums their mass for every point."""
    n, m = cost.shape
    rows, columns = np.nonzero(np.isfinite(cost))
    points, pairs = np.concatenate([rows, n + columns]), np.tile(np.arange(rows.size), 2)
    return rows, columns, sparse.csr_array((np.ones(2 * rows.size), (points, pairs)), shape=(n + m, rows.size))


def reference_value(cost: np.ndarray, source_weights: np.ndarray, target_weights: np.ndarray) -> float:
    """The optimal value of adaptive transport by HiGHS."""
    rows, columns, sums = allowed_pairs(cost)
    if rows.size == 0:
        return 0.0
    costs, weights = cost[rows, columns], np.concatenate([source_weights, target_weights])
    result = linprog(costs, A_ub=sums, b_ub=weights, method="highs", options=PRECISE)
    assert result.status == 0, result.message
    return float(costs @ result.x)


def relative_difference(value: float, reference: float) -> float:
    """|value - reference| / |reference|; 0 if both are 0."""
    return 0.0 if value == reference else abs(value - reference) / max(abs(reference), math.ulp(0.0))


def family_reference(
    cost: np.ndarray,
    source_weights: np.ndarray,
    target_weights: np.ndarray,
    mass: float | None = None,
    *,
    integer: bool = False,
) -> float | None:
    """The least cost of moving exactly `mass`, or everything if None, by HiGHS; None if that is not possible.

    With `integer`, weights and mass are integers, so are the vertices, and the value is free of rounding.
    """
    rows, columns, sums = allowed_pairs(cost)
    wanted = max(float(source_weights.sum()), float(target_weights.sum())) if mass is None else mass
    if wanted == 0:
        return 0.0
    if rows.size == 0:
        return None
    # Scaled, so that the tolerances of HiGHS mean something.
    costs, total = cost[rows, columns], 1.0 if integer else wanted
    size, weights = float(np.abs(costs).max()) or 1.0, np.concatenate([source_weights, target_weights]) / total
    if mass is None:
        constraints = {"A_eq": sums, "b_eq": weights}
    else:
        everything = sparse.csr_array(np.ones((1, rows.size)))
        constraints = {"A_ub": sums, "b_ub": weights, "A_eq": everything, "b_eq": [mass / total]}
    result = linprog(costs / size, **constraints, method="highs", options=PRECISE)
    if result.status == 2:
        return None
    assert result.status == 0, result.message
    flows = np.rint(result.x) if integer else result.x * total
    return math.fsum(costs * flows)


def most_that_can_move(cost: np.ndarray, source_weights: np.ndarray, target_weights: np.ndarray) -> int:
    """The largest mass over allowed pairs, for integer weights: a maximum flow."""
    n, m = cost.shape
    rows, columns = np.nonzero(np.isfinite(cost))
    source, sink = n + m, n + m + 1
    tails = np.concatenate([np.full(n, source), rows, n + np.arange(m)])
    heads = np.concatenate([np.arange(n), n + columns, np.full(m, sink)])
    room = np.minimum(source_weights[rows], target_weights[columns])
    capacity = np.concatenate([source_weights, room, target_weights]).astype(np.int32)
    ends = tails.astype(np.int32), heads.astype(np.int32)  # all that older versions of SciPy take
    graph = sparse.csr_array((capacity, ends), shape=(n + m + 2, n + m + 2))
    graph.eliminate_zeros()
    return int(maximum_flow(graph, source, sink).flow_value) if graph.nnz else 0


def most_mass(instance: Instance) -> float:
    """The smaller of the total weights."""
    return float(min(instance.source_weights.sum(), instance.target_weights.sum()))


def stored(cost: np.ndarray, below: float = np.inf) -> sparse.csr_array:
    """The pairs of a lower cost as a sparse matrix; zeros are stored."""
    rows, columns = np.nonzero(cost < below)
    return sparse.csr_array((cost[rows, columns], (rows, columns)), shape=cost.shape)


def weight_scale(instance: Instance, mass: float | None = None) -> float:
    """What rounding of a value is relative to: the largest cost times the mass that moves."""
    finite = instance.cost[np.isfinite(instance.cost)]
    moved = most_mass(instance) if mass is None else mass
    return float(np.abs(finite).max(initial=0.0) * moved)


def balanced(rng: np.random.Generator, instance: Instance) -> Instance:
    """The same problem with targets as heavy as the sources: integer weights stay integers."""
    cost, mu, nu = instance
    difference = float(mu.sum() - nu.sum())
    mu, nu = mu.copy(), nu.copy()
    if difference > 0:
        nu[rng.integers(nu.size)] += difference
    elif difference < 0:
        mu[rng.integers(mu.size)] -= difference
    return Instance(cost, mu, nu)


def least_by_clarabel(cost: Any, rules: list[Any]) -> float:
    """The least value of a cone programme, to nine digits."""
    import cvxpy  # which few tests need

    programme = cvxpy.Problem(cvxpy.Minimize(cost), rules)
    programme.solve(solver="CLARABEL", tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
    assert programme.status == cvxpy.OPTIMAL
    return float(programme.value)  # pyright: ignore[reportArgumentType]


KINDS = ["normal", "ties", "positive", "sparse", "single", "points", "classes"]


def medium_costs(kind: str, rng: np.random.Generator, n: int, m: int) -> tuple[Any, np.ndarray, float]:
    """A cost as it is given, as a dense matrix, and the size that its rounding is relative to."""
    x, z = rng.standard_normal((n, 3)), rng.standard_normal((m, 3)) + 0.3
    if kind == "points":
        return aot.DistanceCost(x, z, reach=1.5), distance_matrix(x, z, 1.5), 100.0
    if kind == "classes":
        p, q = np.eye(4)[rng.integers(0, 4, n)], rng.dirichlet(np.ones(4), m)
        return aot.JointCost(x, z, p, q), joint_matrix(x, z, p, q), 100.0
    dense = rng.standard_normal((n, m))
    if kind == "ties":
        dense = rng.integers(0, 2, (n, m)).astype(float)
    if kind == "positive":
        dense = rng.random((n, m))
    if kind == "sparse":
        dense[rng.random((n, m)) < 0.7] = np.inf
        return stored(dense), dense, 0.0
    if kind == "single":
        single = dense.astype(np.float32)
        return single, single.astype(float), 0.0
    return dense, dense, 0.0


def expected_form(kind: str, scale: float) -> dict[str, Any]:
    """What `check_solution` must be told of answers for a cost of `medium_costs`."""
    dtype = np.float32 if kind == "single" else np.float64
    return {"sparse_plan": kind in ("sparse", "points", "classes"), "cost_scale": scale, "dtype": dtype}
