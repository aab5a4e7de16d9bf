"""Judges any Solution from its plan, its potentials and the dense cost, never from the library's own arithmetic."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import sparse

from adaptive_ot import Solution, Status

TINY = 1e-300
EPSILON = float(np.finfo(np.float64).eps)

# What exact answers promise: violation relative to the mass, gap relative to the terms of value and bound, and what
# rounding of the potentials, relative to the largest, may add for every unit of mass.
VIOLATION = 1e-12
GAP = 1e-9
ROUNDING = 1e-13

# A weight counts as used up, and a reduced cost as zero, within this part of the mass or of the largest reward.
FULL = 1e-12
TIGHT = 1e-12


def check_solution(
    solution: Solution,
    cost: np.ndarray,
    source_weights: np.ndarray,
    target_weights: np.ndarray,
    *,
    dtype: Any = np.float64,
    library: str = "numpy",
    sparse_plan: bool = False,
    cost_scale: float = 0.0,
) -> None:
    """Fail unless `solution` is a certified optimum of the problem with this dense cost.

    Parameters
    ----------
    dtype, library, sparse_plan
        What the answer must be made of: float32 or float64, "numpy" or "torch", a sparse plan or a dense one.
    cost_scale
        Costs computed from points are known up to rounding relative to this size; 0 if they were given as numbers.
    """
    cost = np.asarray(cost, np.float64)
    mu, nu = np.asarray(source_weights, np.float64), np.asarray(target_weights, np.float64)
    check_fields(solution, cost.shape, np.dtype(dtype), library, sparse_plan)

    plan = solution.sparse_plan.toarray()
    rounding = 4 * float(np.finfo(dtype).eps)
    np.testing.assert_allclose(as_numpy(solution.plan), plan, rtol=rounding, atol=TINY, err_msg="plan in its own type")
    check_primal(solution, plan, cost, mu, nu, rounding, cost_scale)
    check_dual(solution, plan, cost, mu, nu, rounding, cost_scale)


def as_numpy(array: Any) -> np.ndarray:
    """A dense NumPy array from whatever a Solution holds."""
    if sparse.issparse(array):
        return array.toarray()
    if isinstance(array, np.ndarray):
        return array
    return (array.to_dense() if array.is_sparse else array).detach().cpu().numpy()


def check_fields(solution: Solution, shape: tuple[int, int], dtype: np.dtype, library: str, sparse_plan: bool) -> None:
    """Every field is there, with the right type, shape and precision."""
    n, m = shape
    for name in ("value", "mass", "gap", "violation"):
        number = getattr(solution, name)
        assert type(number) is float, f"{name} is a {type(number).__name__}"
        assert math.isfinite(number), f"{name} is {number}"
    assert type(solution.iterations) is int
    assert solution.iterations >= 0
    assert solution.status is Status.OPTIMAL
    expected = {
        "source_marginal": (n, dtype),
        "target_marginal": (m, dtype),
        "source_potential": (n, dtype),
        "target_potential": (m, dtype),
        "active_source": (n, np.dtype(bool)),
        "active_target": (m, np.dtype(bool)),
    }
    for name, (size, kind) in expected.items():
        array = getattr(solution, name)
        assert type(array).__module__.startswith(library), f"{name} is a {type(array)}"
        assert as_numpy(array).shape == (size,), f"{name} has shape {as_numpy(array).shape}"
        assert as_numpy(array).dtype == kind, f"{name} has dtype {as_numpy(array).dtype}"
    plan = solution.plan
    if library == "torch":
        assert plan.is_sparse == sparse_plan
    else:
        assert isinstance(plan, sparse.csr_array if sparse_plan else np.ndarray)
    assert as_numpy(plan).shape == shape
    assert as_numpy(plan).dtype == dtype
    assert solution.sparse_plan.dtype == np.float64


def check_primal(
    solution: Solution,
    plan: np.ndarray,
    cost: np.ndarray,
    mu: np.ndarray,
    nu: np.ndarray,
    rounding: float,
    cost_scale: float,
) -> None:
    """The plan is feasible, every number about it is true, and facts 1 and 2 hold."""
    row, column = plan.sum(axis=1), plan.sum(axis=0)
    mass = math.fsum(plan.ravel())
    carried = plan > 0
    assert most_broken(plan, mu, nu) <= VIOLATION * max(mass, TINY)
    handed_out = as_numpy(solution.plan).astype(np.float64)
    assert (handed_out <= plan).all(), "rounding made mass"
    violation = most_broken(handed_out, mu, nu)
    assert abs(solution.violation - violation) <= 8 * EPSILON * max(mu.max(initial=0.0), nu.max(initial=0.0))

    costs = cost[carried] * plan[carried]
    assert abs(solution.value - math.fsum(costs)) <= 8 * EPSILON * (abs(costs).sum() + cost_scale * mass)
    assert abs(solution.mass - mass) <= 8 * EPSILON * mass
    summation = rounding + max(plan.shape) * EPSILON
    np.testing.assert_allclose(as_numpy(solution.source_marginal), row, rtol=summation, err_msg="source_marginal")
    np.testing.assert_allclose(as_numpy(solution.target_marginal), column, rtol=summation, err_msg="target_marginal")

    assert not carried[cost > 64 * EPSILON * cost_scale].any(), "a pair of positive cost carries mass"
    full_row, full_column = row >= mu - FULL * mass, column >= nu - FULL * mass
    reward = largest_reward(cost)
    attractive = cost < -TIGHT * reward - 64 * EPSILON * cost_scale
    idle = attractive & ~full_row[:, None] & ~full_column[None, :]
    assert not idle.any(), f"pairs of negative cost with room on both sides: {np.argwhere(idle)[:3].tolist()}"

    active_source, active_target = as_numpy(solution.active_source), as_numpy(solution.active_target)
    np.testing.assert_array_equal(active_source, carried.any(axis=1), err_msg="active_source")
    np.testing.assert_array_equal(active_target, carried.any(axis=0), err_msg="active_target")
    # A basis is a forest: at most n + m - 1 pairs carry mass.
    assert np.count_nonzero(carried) <= max(0, sum(plan.shape) - 1)


def most_broken(
    plan: np.ndarray, mu: np.ndarray, nu: np.ndarray, mass: float | None = None, *, equal: bool = False
) -> float:
    """By how much a plan breaks its constraints at worst: at most the weights or equal to them, and the mass."""
    row, column = plan.sum(axis=1), plan.sum(axis=0)
    broken = [-plan.ravel(), row - mu, column - nu]
    if equal:
        broken += [mu - row, nu - column]
    elif mass is not None:
        broken.append(np.array([abs(math.fsum(plan.ravel()) - mass)]))
    return max(0.0, *(float(part.max(initial=0.0)) for part in broken))


def check_dual(
    solution: Solution,
    plan: np.ndarray,
    cost: np.ndarray,
    mu: np.ndarray,
    nu: np.ndarray,
    rounding: float,
    cost_scale: float,
) -> None:
    """The potentials are feasible, prove the gap that is claimed, and are complementary to the plan (fact 3)."""
    f, g = (as_numpy(side).astype(np.float64) for side in (solution.source_potential, solution.target_potential))
    reward = largest_reward(cost)
    assert f.max(initial=-np.inf) <= 0
    assert g.max(initial=-np.inf) <= 0
    assert max((-f).max(initial=0.0), (-g).max(initial=0.0)) <= (1 + 1e-9) * (reward + 64 * EPSILON * cost_scale)
    finite = np.isfinite(cost)
    reduced = np.where(finite, cost, 0.0) - f[:, None] - g[None, :]
    size = np.abs(f)[:, None] + np.abs(g)[None, :] + np.where(finite, np.abs(cost), 0.0)
    allowed = 4 * rounding * size + 64 * EPSILON * cost_scale
    broken = finite & (reduced < -allowed)
    assert not broken.any(), f"potentials exceed the cost at {np.argwhere(broken)[:3].tolist()}"

    terms = np.concatenate([mu * f, nu * g])
    dual_value = math.fsum(terms)
    arithmetic = 4 * rounding * float(np.abs(terms).sum()) + 64 * EPSILON * cost_scale * solution.mass
    assert solution.gap >= 0
    assert abs(solution.gap - max(0.0, solution.value - dual_value)) <= arithmetic
    assert solution.gap <= allowed_gap(plan, cost, terms, f, g, solution.price)

    slack = TIGHT * reward + 4 * rounding * reward + 64 * EPSILON * cost_scale
    mass = solution.mass
    loose = (plan > 0) & (reduced > slack)
    assert not loose.any(), f"mass on pairs that are not tight: {np.argwhere(loose)[:3].tolist()}"
    assert (plan.sum(axis=1) >= mu - FULL * mass)[f < -slack].all(), "a source with a price has weight left"
    assert (plan.sum(axis=0) >= nu - FULL * mass)[g < -slack].all(), "a target with a price has weight left"


def allowed_gap(
    plan: np.ndarray, cost: np.ndarray, terms: np.ndarray, f: np.ndarray, g: np.ndarray, price: float
) -> float:
    """How large the gap of an exact answer may be, given the terms of its bound."""
    carried = plan > 0
    size = float(np.abs(cost[carried]) @ plan[carried]) + float(np.abs(terms).sum())
    largest = float(np.abs(f).max(initial=0.0) + np.abs(g).max(initial=0.0)) + abs(price)
    return GAP * size + ROUNDING * largest * float(plan.sum())


def largest_reward(cost: np.ndarray) -> float:
    """The size of the most negative cost."""
    return -float(cost.min(initial=0.0))


def check_family_solution(
    solution: Solution,
    cost: np.ndarray,
    source_weights: np.ndarray,
    target_weights: np.ndarray,
    mass: float | None,
    *,
    dtype: Any = np.float64,
    library: str = "numpy",
    sparse_plan: bool = False,
    cost_scale: float = 0.0,
    precision: float = 1.0,
) -> None:
    """Fail unless `solution` is a certified optimum of partial transport of `mass`, or, if None, of balanced transport.

    Parameters
    ----------
    dtype, library, sparse_plan, cost_scale
        As for `check_solution`.
    precision
        How many times more than usual rounding may do, where costs or weights differ a lot in size.
    """
    cost = np.asarray(cost, np.float64)
    mu, nu = np.asarray(source_weights, np.float64), np.asarray(target_weights, np.float64)
    check_fields(solution, cost.shape, np.dtype(dtype), library, sparse_plan)
    assert type(solution.price) is float
    assert math.isfinite(solution.price)
    plan = solution.sparse_plan.toarray()
    rounding = 4 * float(np.finfo(dtype).eps)
    np.testing.assert_allclose(as_numpy(solution.plan), plan, rtol=rounding, atol=TINY, err_msg="plan in its own type")
    check_family_primal(solution, plan, cost, mu, nu, mass, rounding, cost_scale)
    check_family_dual(solution, plan, cost, mu, nu, mass, rounding, cost_scale, precision)


def check_family_primal(
    solution: Solution,
    plan: np.ndarray,
    cost: np.ndarray,
    mu: np.ndarray,
    nu: np.ndarray,
    mass: float | None,
    rounding: float,
    cost_scale: float,
) -> None:
    """The plan moves what it must, no point gives or takes too much, and every number about it is true."""
    row, column = plan.sum(axis=1), plan.sum(axis=0)
    moved = math.fsum(plan.ravel())
    carried = plan > 0
    assert (plan >= 0).all(), "negative mass"
    assert not carried[np.isinf(cost)].any(), "a forbidden pair carries mass"
    assert not carried[mu == 0].any()
    assert not carried[:, nu == 0].any()
    violation = most_broken(plan, mu, nu, mass, equal=mass is None)
    assert violation <= VIOLATION * max(moved, TINY), f"the plan breaks its constraints by {violation}"
    handed_out = as_numpy(solution.plan).astype(np.float64)
    assert (handed_out <= plan).all(), "rounding made mass"
    violation = most_broken(handed_out, mu, nu, mass, equal=mass is None)
    largest = max(mu.max(initial=0.0), nu.max(initial=0.0), moved)
    assert abs(solution.violation - violation) <= sum(plan.shape) * EPSILON * largest + TINY

    costs = cost[carried] * plan[carried]
    assert abs(solution.value - math.fsum(costs)) <= 8 * EPSILON * (np.abs(costs).sum() + cost_scale * moved) + TINY
    assert abs(solution.mass - moved) <= 8 * EPSILON * moved
    summation = rounding + max(plan.shape) * EPSILON
    np.testing.assert_allclose(as_numpy(solution.source_marginal), row, rtol=summation, err_msg="source_marginal")
    np.testing.assert_allclose(as_numpy(solution.target_marginal), column, rtol=summation, err_msg="target_marginal")
    np.testing.assert_array_equal(as_numpy(solution.active_source), carried.any(axis=1), err_msg="active_source")
    np.testing.assert_array_equal(as_numpy(solution.active_target), carried.any(axis=0), err_msg="active_target")
    assert np.count_nonzero(carried) <= max(0, sum(plan.shape) - 1), "the plan is no forest"


def check_family_dual(
    solution: Solution,
    plan: np.ndarray,
    cost: np.ndarray,
    mu: np.ndarray,
    nu: np.ndarray,
    mass: float | None,
    rounding: float,
    cost_scale: float,
    precision: float,
) -> None:
    """Potentials and price are feasible, prove the gap that is claimed, and are complementary to the plan."""
    f, g = (as_numpy(side).astype(np.float64) for side in (solution.source_potential, solution.target_potential))
    price = solution.price
    if mass is None:
        assert price == 0.0, "balanced transport has its price in the potentials"
    else:
        assert f.max(initial=-np.inf) <= 0
        assert g.max(initial=-np.inf) <= 0
    finite = np.isfinite(cost)
    finite_cost = np.where(finite, cost, 0.0)
    reduced = finite_cost - f[:, None] - g[None, :] - price
    size = np.abs(f)[:, None] + np.abs(g)[None, :] + np.abs(finite_cost) + abs(price)
    broken = finite & (reduced < -(4 * rounding * size + 64 * EPSILON * cost_scale))
    if mass is None:  # points without weight need no partner
        broken &= (mu > 0)[:, None] & (nu > 0)[None, :]
    assert not broken.any(), f"potentials exceed the cost at {np.argwhere(broken)[:3].tolist()}"

    terms = np.concatenate([mu * f, nu * g, [price * (mass or 0.0)]])
    dual_value = math.fsum(terms)
    arithmetic = 4 * rounding * float(np.abs(terms).sum()) + 64 * EPSILON * cost_scale * solution.mass + TINY
    assert solution.gap >= 0
    assert abs(solution.gap - max(0.0, solution.value - dual_value)) <= arithmetic
    assert solution.gap <= allowed_gap(plan, cost, terms, f, g, solution.price)

    largest = float(np.abs(finite_cost).max(initial=0.0))
    slack = precision * (TIGHT + 4 * rounding) * largest + 64 * EPSILON * cost_scale + 16 * rounding * size
    loose = (plan > 0) & (reduced > slack)
    assert not loose.any(), f"mass on pairs that are not tight: {np.argwhere(loose)[:3].tolist()}"
    if mass is not None:
        light = precision * FULL * mass
        room_left = plan.sum(axis=1) < mu - light, plan.sum(axis=0) < nu - light
        assert not room_left[0][f < -slack.max(axis=1, initial=0.0)].any(), "a source with a price has weight left"
        assert not room_left[1][g < -slack.max(axis=0, initial=0.0)].any(), "a target with a price has weight left"
