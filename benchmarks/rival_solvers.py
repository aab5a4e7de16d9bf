"""Every way to solve adaptive transport with other people's exact solvers.

Each function takes a dense cost (any sign) and two weightings and returns the optimal value of

    minimise <C, G>   over G >= 0,  row sums <= mu,  column sums <= nu.

Whatever a solver needs to be given the problem (clipping, padding, rounding to integers) is part of the function, and
so of the time measured: a user has to do it too. Packages are imported where they are used; they need not be installed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

Solver = Callable[[np.ndarray, np.ndarray, np.ndarray], float]

# Pivots that POT may take; its default stops before problems of this size are solved.
POT_PIVOTS = 10**8

# OR-tools takes integers: costs are rounded to 2**-COST_BITS of the largest, unequal weights to 2**-WEIGHT_BITS of the
# total, and the value is computed with the true costs. Its assignment solver refuses 44 cost bits at n = 600, as they
# might overflow, and fewer for larger n; the time hardly depends on the number of bits.
COST_BITS = 33
WEIGHT_BITS = 44


def adaptive_ot(C: np.ndarray, mu: np.ndarray, nu: np.ndarray) -> float:
    import adaptive_ot as aot

    return aot.solve(C, mu, nu).value


def pot_augmented(C: np.ndarray, mu: np.ndarray, nu: np.ndarray) -> float:
    """One dummy on each side, large enough to take or give everything, at zero cost."""
    n, m = C.shape
    augmented = np.zeros((n + 1, m + 1))
    augmented[:n, :m] = C
    return _emd(np.append(mu, nu.sum()), np.append(nu, mu.sum()), augmented)


def pot_clipped(C: np.ndarray, mu: np.ndarray, nu: np.ndarray) -> float:
    """Balanced transport with cost min(C, 0); a zero-cost dummy takes the difference of the totals, if there is one."""
    clipped = np.minimum(C, 0.0)
    surplus = mu.sum() - nu.sum()
    if surplus > 1e-12:
        return _emd(mu, np.append(nu, surplus), np.pad(clipped, ((0, 0), (0, 1))))
    if surplus < -1e-12:
        return _emd(np.append(mu, -surplus), nu, np.pad(clipped, ((0, 1), (0, 0))))
    return _emd(mu, nu, clipped)


def pot_sparse(C: np.ndarray, mu: np.ndarray, nu: np.ndarray) -> float:
    """The augmented problem with only the negative pairs and the dummies' pairs stored (explicit zeros are arcs)."""
    n, m = C.shape
    rows, columns = np.nonzero(C < 0)
    sources, targets = np.arange(n + 1), np.arange(m)
    arcs = sparse.coo_array(
        (
            np.concatenate([C[rows, columns], np.zeros(n + 1 + m)]),
            (np.concatenate([rows, sources, np.full(m, n)]), np.concatenate([columns, np.full(n + 1, m), targets])),
        ),
        shape=(n + 1, m + 1),
    )
    return _emd(np.append(mu, nu.sum()), np.append(nu, mu.sum()), arcs)


def pot_lagrange(C: np.ndarray, mu: np.ndarray, nu: np.ndarray) -> float:
    import ot

    _, log = ot.partial.partial_wasserstein_lagrange(mu, nu, C, reg_m=0, log=True, numItermax=POT_PIVOTS)
    return float(log["cost"])


def scipy_assignment(C: np.ndarray, mu: np.ndarray, nu: np.ndarray) -> float:
    from scipy.optimize import linear_sum_assignment

    return _assigned(C, mu, *linear_sum_assignment(np.minimum(C, 0.0)))


def scipy_sparse_matching(C: np.ndarray, mu: np.ndarray, nu: np.ndarray) -> float:
    """Negative pairs, and a slack column of its own for every row.

    Zeros are dropped by the solver, so every weight is lowered by one; a full matching uses exactly one a row.
    """
    from scipy.sparse.csgraph import min_weight_full_bipartite_matching

    n, m = C.shape
    rows, columns = np.nonzero(C < 0)
    weights = np.concatenate([C[rows, columns] - 1.0, np.full(n, -1.0)])
    graph = sparse.csr_array(
        (weights, (np.concatenate([rows, np.arange(n)]), np.concatenate([columns, m + np.arange(n)]))),
        shape=(n, m + n),
    )
    matched_rows, matched_columns = min_weight_full_bipartite_matching(graph)
    real = matched_columns < m
    return _assigned(C, mu, matched_rows[real], matched_columns[real])


def lapx(function: str, **options: Any) -> Solver:
    """A dense Jonker-Volgenant solver of lapx on min(C, 0)."""

    def solve(C: np.ndarray, mu: np.ndarray, nu: np.ndarray) -> float:
        import lap

        rows, columns = getattr(lap, function)(np.minimum(C, 0.0), return_cost=False, **options)
        return _assigned(C, mu, rows, columns)

    return solve


def lapcpp(clipped: bool) -> Solver:
    """The dense solver of lapcpp, on min(C, 0) or with its own limit on the cost of a pair."""

    def solve(C: np.ndarray, mu: np.ndarray, nu: np.ndarray) -> float:
        from lapcpp import lapjv

        limits: dict[str, Any] = {} if clipped else {"cost_limit": 0.0}
        return float(lapjv(np.minimum(C, 0.0) if clipped else C, **limits)[0]) * float(mu[0])

    return solve


def ortools_flow(C: np.ndarray, mu: np.ndarray, nu: np.ndarray) -> float:
    """Min-cost flow over the negative pairs, with a hub that every source may give to and every target take from."""
    from ortools.graph.python.min_cost_flow import SimpleMinCostFlow

    n, m = C.shape
    rows, columns = np.nonzero(C < 0)
    costs = C[rows, columns]
    supply, demand, unit = _integer_weights(mu, nu)
    hub = np.full(n + m, n + m)
    tails = np.concatenate([rows, np.arange(n), hub[:m]]).astype(np.int32)
    heads = np.concatenate([n + columns, hub[:n], n + np.arange(m)]).astype(np.int32)
    capacities = np.concatenate([np.minimum(supply[rows], demand[columns]), supply, demand])
    flow: Any = SimpleMinCostFlow()  # its type stubs do not fit NumPy's
    arcs = flow.add_arcs_with_capacity_and_unit_cost(
        tails, heads, capacities, np.concatenate([_integer_costs(costs), np.zeros(n + m, np.int64)])
    )
    flow.set_nodes_supplies(
        np.arange(n + m + 1, dtype=np.int32), np.concatenate([supply, -demand, [demand.sum() - supply.sum()]])
    )
    status = flow.solve()
    if status != flow.OPTIMAL:
        raise RuntimeError(f"status {status.name}")
    return float(costs @ flow.flows(arcs[: rows.size])) * unit


def ortools_assignment(C: np.ndarray, mu: np.ndarray, nu: np.ndarray) -> float:
    """OR-tools' assignment solver, given every pair with min(C, 0)."""
    from ortools.graph.python.linear_sum_assignment import SimpleLinearSumAssignment

    n, m = C.shape
    rows, columns = np.repeat(np.arange(n, dtype=np.int32), m), np.tile(np.arange(m, dtype=np.int32), n)
    assignment: Any = SimpleLinearSumAssignment()  # its type stubs do not fit NumPy's
    assignment.add_arcs_with_cost(rows, columns, _integer_costs(np.minimum(C, 0.0).ravel()))
    status = assignment.solve()
    if status != assignment.OPTIMAL:
        raise RuntimeError(f"status {status.name}")
    return _assigned(C, mu, np.arange(n), np.array([assignment.right_mate(i) for i in range(n)]))


def highs(C: np.ndarray, mu: np.ndarray, nu: np.ndarray) -> float:
    """The linear programme over the negative pairs."""
    from scipy.optimize import linprog

    n, m = C.shape
    rows, columns = np.nonzero(C < 0)
    pairs = np.arange(rows.size)
    incidence = sparse.csc_array(
        (np.ones(2 * rows.size), (np.concatenate([rows, n + columns]), np.concatenate([pairs, pairs]))),
        shape=(n + m, rows.size),
    )
    result = linprog(C[rows, columns], A_ub=incidence, b_ub=np.concatenate([mu, nu]), method="highs")
    if result.status != 0:
        raise RuntimeError(result.message)
    return float(result.fun)


def _emd(a: np.ndarray, b: np.ndarray, cost: Any) -> float:
    import ot

    _, log = ot.emd(a, b, cost, numItermax=POT_PIVOTS, log=True)
    if log["warning"] is not None:
        raise RuntimeError(log["warning"])
    return float(log["cost"])


def _assigned(C: np.ndarray, mu: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> float:
    """The value of an assignment under uniform weights; pairs of positive cost carry nothing."""
    return float(np.minimum(C[rows, columns], 0.0).sum() * mu[0])


def _integer_costs(costs: np.ndarray) -> np.ndarray:
    scale = 2.0**COST_BITS / max(float(np.abs(costs).max(initial=0.0)), 1e-300)
    return np.rint(costs * scale).astype(np.int64)


def _integer_weights(mu: np.ndarray, nu: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Weights as integers, and the weight of 1: units for equal weights, rounded fractions of the total otherwise."""
    if (mu == mu[0]).all() and (nu == mu[0]).all():
        return np.ones(mu.size, np.int64), np.ones(nu.size, np.int64), float(mu[0])
    unit = max(mu.sum(), nu.sum()) / 2.0**WEIGHT_BITS
    return np.rint(mu / unit).astype(np.int64), np.rint(nu / unit).astype(np.int64), float(unit)


class Rival(NamedTuple):
    """A solver, the package it comes from, and where it can be used."""

    solve: Solver
    package: str
    uniform_only: bool = False
    largest: int | None = None
    all_cores: bool = False

    def applies(self, n: int, weights: str) -> bool:
        return (weights == "uniform" or not self.uniform_only) and (self.largest is None or n <= self.largest)


OURS = "adaptive-ot"
POT_DENSE = "POT emd, augmented"

RIVALS = {
    OURS: Rival(adaptive_ot, "adaptive-ot", all_cores=True),
    "adaptive-ot, 1 thread": Rival(adaptive_ot, "adaptive-ot"),
    POT_DENSE: Rival(pot_augmented, "pot"),
    "POT emd, min(C, 0)": Rival(pot_clipped, "pot"),
    "POT emd, sparse": Rival(pot_sparse, "pot"),
    "POT partial_wasserstein_lagrange": Rival(pot_lagrange, "pot"),
    "SciPy linear_sum_assignment": Rival(scipy_assignment, "scipy", uniform_only=True),
    "SciPy min_weight_full_bipartite_matching": Rival(scipy_sparse_matching, "scipy", uniform_only=True),
    "lapx lapjvs": Rival(lapx("lapjvs", prefer_float32=False), "lapx", uniform_only=True),
    "lapx lapjvs, float32 (its default)": Rival(lapx("lapjvs"), "lapx", uniform_only=True),
    "lapx lapjvr": Rival(lapx("lapjvr"), "lapx", uniform_only=True),
    "lapx lapjvh": Rival(lapx("lapjvh"), "lapx", uniform_only=True),
    "lapx lapjvx": Rival(lapx("lapjvx"), "lapx", uniform_only=True),
    "lapcpp, cost_limit=0": Rival(lapcpp(clipped=False), "lapcpp", uniform_only=True),
    "lapcpp, min(C, 0)": Rival(lapcpp(clipped=True), "lapcpp", uniform_only=True),
    "OR-tools SimpleMinCostFlow": Rival(ortools_flow, "ortools"),
    "OR-tools SimpleLinearSumAssignment": Rival(ortools_assignment, "ortools", uniform_only=True),
    "HiGHS (SciPy linprog)": Rival(highs, "scipy", largest=1000),
}
