"""Judges any exact Solution from its plan, its potentials and the dense cost, not by the library's arithmetic."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import sparse

import adaptive_ot as aot
from adaptive_ot import Solution, Status
from problems import Instance

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

ADAPTIVE: Any = "adaptive"


def marginals_of(mass: Any) -> aot.Marginals:
    """The model for what `check_solution` calls `mass`."""
    return aot.AtMost() if mass == ADAPTIVE else aot.Equal() if mass is None else aot.FixedMass(mass)


def solve_checked(instance: Instance, mass: Any = ADAPTIVE, given: Any = None, **how: Any) -> Solution:
    """Solve, and have the solution judged; `given` is the cost as the user gives it, by default the dense matrix."""
    solution = aot.solve(instance.cost if given is None else given, *instance[1:], marginals=marginals_of(mass))
    check_solution(solution, *instance, mass, **how)
    return solution


def check_solution(
    solution: Solution,
    cost: np.ndarray,
    source_weights: np.ndarray,
    target_weights: np.ndarray,
    mass: Any = ADAPTIVE,
    *,
    dtype: Any = np.float64,
    library: str = "numpy",
    sparse_plan: bool = False,
    cost_scale: float = 0.0,
    precision: float = 1.0,
) -> None:
    """Fail unless `solution` is a certified optimum of the problem with this dense cost.

    Parameters
    ----------
    mass
        The mass of partial transport, or None for balanced transport; by default, transport is adaptive.
    dtype, library, sparse_plan
        What the answer must be made of: float32 or float64, "numpy" or "torch", a sparse plan or a dense one.
    cost_scale
        Costs computed from points are known up to rounding relative to this size; 0 if they were given as numbers.
    precision
        How many times more than usual rounding may do, where costs or weights differ a lot in size.
    """
    problem = Instance(*(np.asarray(array, np.float64) for array in (cost, source_weights, target_weights)))
    check_fields(solution, problem.cost.shape, np.dtype(dtype), library, sparse_plan)
    plan = solution.sparse_plan.toarray()
    rounding = 4 * float(np.finfo(dtype).eps)
    np.testing.assert_allclose(as_numpy(solution.plan), plan, rtol=rounding, atol=TINY, err_msg="plan in its own type")
    check_primal(solution, plan, problem, mass, rounding, cost_scale)
    check_dual(solution, plan, problem, mass, rounding, cost_scale, precision)


def as_numpy(array: Any) -> np.ndarray:
    """A dense NumPy array from whatever a Solution holds."""
    if sparse.issparse(array):
        return array.toarray()
    if isinstance(array, np.ndarray):
        return array
    return (array.to_dense() if array.is_sparse else array).detach().cpu().numpy()


def check_fields(solution: Solution, shape: tuple[int, ...], dtype: np.dtype, library: str, sparse_plan: bool) -> None:
    """Every field is there, with the right type, shape and precision."""
    for name in ("value", "mass", "gap", "violation", "price"):
        number = getattr(solution, name)
        assert type(number) is float, f"{name} is a {type(number).__name__}"
        assert math.isfinite(number), f"{name} is {number}"
    assert type(solution.iterations) is int
    assert solution.iterations >= 0
    assert solution.status is Status.OPTIMAL
    for size, side in zip(shape, ("source", "target"), strict=True):
        for name, kind in ((f"{side}_marginal", dtype), (f"{side}_potential", dtype), (f"active_{side}", bool)):
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
    solution: Solution, plan: np.ndarray, problem: Instance, mass: Any, rounding: float, cost_scale: float
) -> None:
    """The plan moves what it must, no point gives or takes too much, and every number about it is true."""
    cost, mu, nu = problem
    row, column, carried = plan.sum(axis=1), plan.sum(axis=0), plan > 0
    moved, heaviest = math.fsum(plan.ravel()), max(mu.max(initial=0.0), nu.max(initial=0.0))
    assert (plan >= 0).all(), "negative mass"
    assert not carried[np.isinf(cost)].any(), "a forbidden pair carries mass"
    assert not carried[mu == 0].any()
    assert not carried[:, nu == 0].any()
    broken = most_broken(plan, mu, nu, mass)
    assert broken <= VIOLATION * max(moved, TINY), f"the plan breaks its constraints by {broken}"
    handed_out = as_numpy(solution.plan).astype(np.float64)
    assert (handed_out <= plan).all(), "rounding made mass"
    summation = 8 * heaviest if mass == ADAPTIVE else sum(plan.shape) * max(heaviest, moved)
    assert abs(solution.violation - most_broken(handed_out, mu, nu, mass)) <= EPSILON * summation + TINY

    costs = cost[carried] * plan[carried]
    assert abs(solution.value - math.fsum(costs)) <= 8 * EPSILON * (np.abs(costs).sum() + cost_scale * moved) + TINY
    assert abs(solution.mass - moved) <= 8 * EPSILON * moved
    for side, sums, axis in (("source", row, 1), ("target", column, 0)):
        marginal, active = getattr(solution, f"{side}_marginal"), getattr(solution, f"active_{side}")
        np.testing.assert_allclose(as_numpy(marginal), sums, rtol=rounding + max(plan.shape) * EPSILON, err_msg=side)
        np.testing.assert_array_equal(as_numpy(active), carried.any(axis=axis), err_msg=side)
    # A basis is a forest: at most n + m - 1 pairs carry mass.
    assert np.count_nonzero(carried) <= max(0, sum(plan.shape) - 1), "the plan is no forest"
    if mass == ADAPTIVE:  # fact 1
        assert not carried[cost > 64 * EPSILON * cost_scale].any(), "a pair of positive cost carries mass"
        full_row, full_column = row >= mu - FULL * moved, column >= nu - FULL * moved
        attractive = cost < -TIGHT * largest_reward(cost) - 64 * EPSILON * cost_scale
        idle = attractive & ~full_row[:, None] & ~full_column[None, :]
        assert not idle.any(), f"pairs of negative cost with room on both sides: {np.argwhere(idle)[:3].tolist()}"


def most_broken(plan: np.ndarray, mu: np.ndarray, nu: np.ndarray, mass: Any) -> float:
    """By how much a plan breaks its constraints at worst: at most the weights or equal to them, and the mass."""
    row, column = plan.sum(axis=1), plan.sum(axis=0)
    broken = [-plan.ravel(), row - mu, column - nu]
    if mass is None:
        broken += [mu - row, nu - column]
    elif mass != ADAPTIVE:
        broken.append(np.array([abs(math.fsum(plan.ravel()) - mass)]))
    return max(0.0, *(float(part.max(initial=0.0)) for part in broken))


def check_dual(
    solution: Solution,
    plan: np.ndarray,
    problem: Instance,
    mass: Any,
    rounding: float,
    cost_scale: float,
    precision: float,
) -> None:
    """Potentials and price are feasible, prove the gap that is claimed, and are complementary to the plan (fact 3)."""
    cost, mu, nu = problem
    f, g = (as_numpy(side).astype(np.float64) for side in (solution.source_potential, solution.target_potential))
    price, reward, point_rounding = solution.price, largest_reward(cost), 64 * EPSILON * cost_scale
    if mass is None or mass == ADAPTIVE:
        assert price == 0.0, "balanced transport has its price in the potentials, adaptive transport has none"
    if mass is not None:
        assert max(f.max(initial=-np.inf), g.max(initial=-np.inf)) <= 0
    if mass == ADAPTIVE:
        assert max((-f).max(initial=0.0), (-g).max(initial=0.0)) <= (1 + 1e-9) * (reward + point_rounding)
    finite = np.isfinite(cost)
    finite_cost = np.where(finite, cost, 0.0)
    reduced = finite_cost - f[:, None] - g[None, :] - price
    size = np.abs(f)[:, None] + np.abs(g)[None, :] + np.abs(finite_cost) + abs(price)
    broken = finite & (reduced < -(4 * rounding * size + point_rounding))
    if mass is None:  # points without weight need no partner
        broken &= (mu > 0)[:, None] & (nu > 0)[None, :]
    assert not broken.any(), f"potentials exceed the cost at {np.argwhere(broken)[:3].tolist()}"

    terms = np.concatenate([mu * f, nu * g, [0.0 if mass is None or mass == ADAPTIVE else price * mass]])
    arithmetic = 4 * rounding * float(np.abs(terms).sum()) + point_rounding * solution.mass + TINY
    assert solution.gap >= 0
    assert abs(solution.gap - max(0.0, solution.value - math.fsum(terms))) <= arithmetic
    carried = plan > 0
    sum_of_terms = float(np.abs(cost[carried]) @ plan[carried]) + float(np.abs(terms).sum())
    largest = float(np.abs(f).max(initial=0.0) + np.abs(g).max(initial=0.0)) + abs(price)
    assert solution.gap <= GAP * sum_of_terms + ROUNDING * largest * float(plan.sum())

    if mass == ADAPTIVE:
        slack = np.full(cost.shape, (TIGHT + 4 * rounding) * reward + point_rounding)
    else:
        largest_cost = float(np.abs(finite_cost).max(initial=0.0))
        slack = precision * (TIGHT + 4 * rounding) * largest_cost + point_rounding + 16 * rounding * size
    loose = carried & (reduced > slack)
    assert not loose.any(), f"mass on pairs that are not tight: {np.argwhere(loose)[:3].tolist()}"
    if mass is not None:
        light = precision * FULL * (solution.mass if mass == ADAPTIVE else mass)
        for potential, weights, axis in ((f, mu, 1), (g, nu, 0)):
            room_left = plan.sum(axis=axis) < weights - light
            assert not room_left[potential < -slack.max(axis=axis, initial=0.0)].any(), (
                "a point with a price has weight left"
            )


def largest_reward(cost: np.ndarray) -> float:
    """The size of the most negative cost."""
    return -float(cost.min(initial=0.0))
