"""The exact solver against HiGHS, SciPy's assignment solver, known answers, and itself by other routes."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linear_sum_assignment

import adaptive_ot as aot
import problems
from adaptive_ot.exact.limits import LIMITS, Limits
from adaptive_ot.exact.solver import solve_exact
from budget import mostly_slow
from check import check_solution

BATCHES = 10
INTEGER_PROBLEMS = 2_000
REAL_PROBLEMS = 1_000


@pytest.fixture
def column_generation(monkeypatch):
    """Send even the smallest problem through column generation."""
    limits = Limits(few_pairs=0, few_pairs_per_node=0, searched_entries=0)
    monkeypatch.setattr(sys.modules["adaptive_ot.solve"], "solve_exact", partial(solve_exact, limits=limits))


def solve_listed(instance):
    """Solve with every negative pair as an arc from the start: no column generation."""
    limits = Limits(few_pairs=instance.cost.size, searched_entries=instance.cost.size)
    return solve_exact(aot.Problem.build(*instance), aot.Exact(), lambda _: None, limits)


def only_negative(cost):
    """The pairs that pay, as a sparse matrix."""
    rows, columns = np.nonzero(cost < 0)
    return sparse.csr_array((cost[rows, columns], (rows, columns)), shape=cost.shape)


# Known answers


def test_toy_problem():
    toy = problems.toy()
    solution = aot.solve(*toy.problem)
    check_solution(solution, *toy.problem)
    assert solution.value == pytest.approx(-11 / 15, rel=1e-15)
    assert solution.mass == pytest.approx(11 / 15, rel=1e-15)
    found = [(cluster.sources.tolist(), cluster.targets.tolist()) for cluster in solution.clusters()]
    assert found == toy.clusters
    assert np.flatnonzero(~solution.active_source).tolist() == [5]
    assert np.flatnonzero(~solution.active_target).tolist() == [4]


def test_toy_problem_with_default_weights():
    toy = problems.toy()
    assert aot.solve(toy.problem.cost).value == aot.solve(*toy.problem).value


@pytest.mark.parametrize(
    ("cost", "source_weight", "target_weight"),
    [
        *[(-2.0, 3.0, 5.0), (-2.0, 5.0, 3.0), (-1.0, 1.0, 1.0), (0.0, 1.0, 1.0), (4.0, 1.0, 1.0)],
        *[(-3.0, 0.0, 1.0), (-3.0, 1.0, 0.0), (-3.0, 0.0, 0.0), (np.inf, 1.0, 2.0), (-1e-12, 1e12, 1e-12)],
    ],
)
def test_dirac(cost, source_weight, target_weight):
    known = problems.dirac(cost, source_weight, target_weight)
    solution = aot.solve(*known.problem)
    check_solution(solution, *known.problem)
    assert (solution.value, solution.mass) == (known.value, known.mass)


@pytest.mark.parametrize("n", [1, 2, 7, 60])
def test_hidden_permutation(n):
    known = problems.permutation(np.random.default_rng(n), n)
    solution = aot.solve(*known.problem)
    check_solution(solution, *known.problem)
    assert (solution.value, solution.mass) == (known.value, known.mass)
    np.testing.assert_array_equal(solution.plan, known.plan)


def test_hidden_permutation_by_column_generation():
    known = problems.permutation(np.random.default_rng(0), 300)
    solution = aot.solve(*known.problem)
    check_solution(solution, *known.problem)
    assert (solution.value, solution.mass) == (known.value, known.mass)
    np.testing.assert_array_equal(solution.plan, known.plan)


@pytest.mark.parametrize("stars", [1, 3, 20])
def test_disjoint_stars(stars):
    known = problems.disjoint_stars(np.random.default_rng(stars), stars)
    solution = aot.solve(*known.problem)
    check_solution(solution, *known.problem)
    assert (solution.value, solution.mass) == (known.value, known.mass)
    np.testing.assert_array_equal(solution.plan, known.plan)
    found = sorted((cluster.sources.tolist(), cluster.targets.tolist()) for cluster in solution.clusters())
    assert found == known.clusters


@pytest.mark.parametrize(("n", "m"), [(1, 1), (3, 5), (30, 20), (300, 300)])
def test_transportation_of_known_mass(n, m):
    known = problems.transportation(np.random.default_rng(n + m), n, m)
    solution = aot.solve(*known.problem)
    check_solution(solution, *known.problem)
    assert (solution.value, solution.mass) == (known.value, known.mass)


# Random problems against HiGHS


@pytest.mark.parametrize("batch", mostly_slow(range(BATCHES), 2))
def test_integer_problems_to_the_last_bit(batch):
    rng = np.random.default_rng(batch)
    for _ in range(INTEGER_PROBLEMS // BATCHES):
        instance = problems.integer_problem(rng)
        solution = aot.solve(*instance)
        assert solution.value == round(problems.reference_value(*instance)), instance
        check_solution(solution, *instance)


@pytest.mark.parametrize("batch", mostly_slow(range(BATCHES), 2))
def test_real_problems(batch):
    rng = np.random.default_rng(1000 + batch)
    for _ in range(REAL_PROBLEMS // BATCHES):
        instance = problems.real_problem(rng)
        solution = aot.solve(*instance)
        reference = problems.reference_value(*instance)
        assert problems.relative_difference(solution.value, reference) <= 1e-12, instance
        check_solution(solution, *instance)


@pytest.mark.usefixtures("column_generation")
def test_integer_problems_by_column_generation():
    rng = np.random.default_rng(7)
    for _ in range(200):
        instance = problems.integer_problem(rng)
        solution = aot.solve(*instance)
        assert solution.value == round(problems.reference_value(*instance)), instance
        check_solution(solution, *instance)


@pytest.mark.usefixtures("column_generation")
def test_sparse_integer_problems_by_column_generation():
    rng = np.random.default_rng(8)
    for _ in range(200):
        instance = problems.integer_problem(rng)
        solution = aot.solve(only_negative(instance.cost), *instance[1:])
        assert solution.value == round(problems.reference_value(*instance)), instance
        check_solution(solution, *instance, sparse_plan=True)


# Large enough for column generation as it is: more than 2**16 negative pairs


def random_weights(rng, n, m):
    return rng.random(n) + 0.1, rng.random(m) + 0.1


def medium_problem(seed, n=380, m=420):
    """Half of the pairs pay."""
    rng = np.random.default_rng(seed)
    return problems.Instance(rng.standard_normal((n, m)), *random_weights(rng, n, m))


def test_medium_problem_needs_column_generation():
    assert np.count_nonzero(medium_problem(0).cost < 0) > LIMITS.few_pairs


def test_dense_assignment():
    rng = np.random.default_rng(1)
    cost = rng.standard_normal((400, 400)) - 1.0
    weights = np.ones(400)
    solution = aot.solve(cost, weights, weights)
    check_solution(solution, cost, weights, weights)
    clipped = np.minimum(cost, 0.0)
    assert solution.value == pytest.approx(clipped[linear_sum_assignment(clipped)].sum(), rel=1e-13)


@pytest.mark.parametrize("largest", [1, 3, 100])
def test_integer_assignment_full_of_ties(largest):
    cost = np.random.default_rng(largest).integers(-largest, largest + 1, (420, 420)).astype(float)
    cost[cost == 0] = -1.0  # enough pairs that pay
    weights = np.ones(420)
    solution = aot.solve(cost, weights, weights)
    check_solution(solution, cost, weights, weights)
    clipped = np.minimum(cost, 0.0)
    assert solution.value == clipped[linear_sum_assignment(clipped)].sum()


@pytest.mark.parametrize(("n", "m"), [(200, 700), (700, 200)])
def test_rectangular_assignment(n, m):
    cost = np.random.default_rng(n).integers(-50, 20, (n, m)).astype(float)
    solution = aot.solve(cost, np.ones(n), np.ones(m))
    check_solution(solution, cost, np.ones(n), np.ones(m))
    clipped = np.minimum(cost, 0.0)
    assert solution.value == clipped[linear_sum_assignment(clipped)].sum()


def test_dense_with_weights():
    instance = medium_problem(2)
    solution = aot.solve(*instance)
    check_solution(solution, *instance)
    assert solution.value == pytest.approx(solve_listed(instance).value, rel=1e-13)


def test_dense_integer_problem_with_weights_against_highs():
    rng = np.random.default_rng(3)
    cost = rng.integers(-30, 2, (270, 270)).astype(float)
    weights = [rng.integers(0, 40, 270).astype(float) for _ in range(2)]
    solution = aot.solve(cost, *weights)
    check_solution(solution, cost, *weights)
    assert solution.value == round(problems.reference_value(np.where(cost < 0, cost, np.inf), *weights))


def test_dense_float32():
    instance = medium_problem(4)
    single = instance.cost.astype(np.float32)
    solution = aot.solve(single, *instance[1:])
    check_solution(solution, single, *instance[1:], dtype=np.float32)
    double = instance._replace(cost=single.astype(np.float64))
    assert solution.value == pytest.approx(solve_listed(double).value, rel=1e-13)


@pytest.mark.parametrize("container", [sparse.csr_array, sparse.csc_array, sparse.coo_array, sparse.csr_matrix])
def test_sparse(container):
    instance = medium_problem(5)
    solution = aot.solve(container(only_negative(instance.cost)), *instance[1:])
    check_solution(solution, *instance, sparse_plan=True)
    assert solution.value == pytest.approx(solve_listed(instance).value, rel=1e-13)


def clouds(seed, n, m, dimension):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, dimension)), rng.standard_normal((m, dimension)) + 0.3, *random_weights(rng, n, m)


@pytest.mark.parametrize(("n", "m", "dimension"), [(400, 430, 2), (1100, 90, 3), (333, 411, 50)])
def test_distance_cost(n, m, dimension):
    x, z, mu, nu = clouds(6, n, m, dimension)
    reach = 2.5 * np.sqrt(dimension)
    cost = problems.distance_matrix(x, z, reach)
    assert np.count_nonzero(cost < 0) > LIMITS.few_pairs
    solution = aot.solve(aot.DistanceCost(x, z, reach), mu, nu)
    check_solution(solution, cost, mu, nu, sparse_plan=True, cost_scale=reach**2)
    assert solution.value == pytest.approx(aot.solve(only_negative(cost), mu, nu).value, rel=1e-12)


def test_distance_cost_as_assignment():
    x, z, _, _ = clouds(7, 400, 400, 3)
    cost = problems.distance_matrix(x, z, reach=3.0)
    solution = aot.solve(aot.DistanceCost(x, z, reach=3.0))
    weights = np.full(400, 1 / 400)
    check_solution(solution, cost, weights, weights, sparse_plan=True, cost_scale=9.0)
    clipped = np.minimum(cost, 0.0)
    assert solution.value == pytest.approx(clipped[linear_sum_assignment(clipped)].sum() / 400, rel=1e-12)


def test_distance_cost_in_dimension_zero():
    solution = aot.solve(aot.DistanceCost(np.zeros((300, 0)), np.zeros((400, 0)), reach=2.0))
    assert solution.value == pytest.approx(-4.0, rel=1e-14)


def test_joint_cost():
    x, z, mu, nu = clouds(8, 400, 420, 5)
    rng = np.random.default_rng(9)
    p, q = np.eye(3)[rng.integers(0, 3, 400)], rng.dirichlet(np.ones(3), 420)
    cost = problems.joint_matrix(x, z, p, q, kappa=0.1, beta=3.0)
    assert np.count_nonzero(cost < 0) > LIMITS.few_pairs
    solution = aot.solve(aot.JointCost(x, z, p, q, kappa=0.1, beta=3.0), mu, nu)
    check_solution(solution, cost, mu, nu, sparse_plan=True, cost_scale=3.0)
    assert solution.value == pytest.approx(aot.solve(only_negative(cost), mu, nu).value, rel=1e-12)


def test_joint_cost_in_its_published_form():
    x, z, mu, nu = clouds(10, 50, 40, 5)
    rng = np.random.default_rng(11)
    p, q = np.eye(4)[rng.integers(0, 4, 50)], rng.dirichlet(np.ones(4), 40)
    cost = 0.01 * problems.distance_matrix(x, z, 0.0) - 1.8 * p @ q.T
    solution = aot.solve(aot.JointCost(x, z, p, q, alpha=0.01, beta=1.8), mu, nu)
    check_solution(solution, cost, mu, nu, sparse_plan=True, cost_scale=1.8)
    assert solution.value == pytest.approx(problems.reference_value(cost, mu, nu), rel=1e-12)


# Degenerate problems


@pytest.mark.parametrize("value", [-1.0, -0.1, -7e5])
def test_all_costs_equal(value):
    cost = np.full((300, 400), value)
    solution = aot.solve(cost)
    check_solution(solution, cost, np.full(300, 1 / 300), np.full(400, 1 / 400))
    assert solution.value == pytest.approx(value, rel=1e-13)


def test_duplicated_points():
    rng = np.random.default_rng(12)
    x, z = np.repeat(rng.integers(0, 3, (60, 2)), 7, axis=0), np.repeat(rng.integers(0, 3, (50, 2)), 8, axis=0)
    cost = problems.distance_matrix(x, z, reach=2.0)
    weights = np.full(420, 2.0), np.full(400, 3.0)
    solution = aot.solve(aot.DistanceCost(x, z, reach=2.0), *weights)
    check_solution(solution, cost, *weights, sparse_plan=True, cost_scale=4.0)
    assert solution.value == aot.solve(only_negative(cost), *weights).value


@pytest.mark.parametrize("points", ["same", "all equal"])
def test_a_cloud_against_itself(points):
    x = np.random.default_rng(13).standard_normal((400, 2)) if points == "same" else np.ones((400, 2))
    solution = aot.solve(aot.DistanceCost(x, x, reach=2.0))
    assert solution.value == pytest.approx(-4.0, rel=1e-13)
    assert solution.mass == pytest.approx(1.0, rel=1e-13)


@pytest.mark.parametrize("far", [1e3, 1e10, 1e20, 1e22, 1e30, 1e99])
def test_far_outliers_hide_nothing(far):
    """However far away two targets are, the rest is matched as it is without them."""
    rng = np.random.default_rng(20)
    x, z = rng.standard_normal((1100, 3)), rng.standard_normal((1100, 3))
    weights = np.ones(1100), np.ones(1100)
    expected = aot.solve(only_negative(problems.distance_matrix(x, z[2:], 1.0)), weights[0], weights[1][2:])
    z[0], z[1] = far, -far
    assert aot.solve(aot.DistanceCost(x, z, reach=1.0), *weights).value == pytest.approx(expected.value, rel=1e-12)


@pytest.mark.parametrize("cost_factor", [1e8, 1e-8, 1e-90, 1e90])
@pytest.mark.parametrize("weight_factor", [1.0, 1e6, 1e-6, 1e-30, 1e30])
@pytest.mark.parametrize("route", ["listed", "column generation"])
def test_scale(cost_factor, weight_factor, route, request):
    if route == "column generation":
        request.getfixturevalue("column_generation")
    rng = np.random.default_rng(14)
    plain = problems.Instance(rng.standard_normal((60, 80)), *random_weights(rng, 60, 80))
    scaled = problems.Instance(cost_factor * plain.cost, *(weight_factor * side for side in plain[1:]))
    solution = aot.solve(*scaled)
    check_solution(solution, *scaled)
    reference = problems.reference_value(*plain) * cost_factor * weight_factor
    assert problems.relative_difference(solution.value, reference) <= 1e-12


@pytest.mark.parametrize("seed", range(5))
def test_weights_over_twelve_orders_of_magnitude(seed):
    rng = np.random.default_rng(seed)
    cost = rng.integers(-9, 4, (40, 50)).astype(float)
    weights = [10.0 ** rng.uniform(-12, 0, size) for size in cost.shape]
    solution = aot.solve(cost, *weights)
    check_solution(solution, cost, *weights)
    assert problems.relative_difference(solution.value, problems.reference_value(cost, *weights)) <= 1e-9
    # A light source by itself is served as precisely as a heavy one.
    light = int(np.argmin(weights[0]))
    if (cost[light] < 0).any():
        alone = aot.solve(cost[[light]], weights[0][[light]], weights[1])
        best = problems.reference_value(cost[[light]], np.ones(1), weights[1] / weights[0][light])
        assert problems.relative_difference(alone.value, best * weights[0][light]) <= 1e-12


def test_costs_over_many_orders_of_magnitude():
    rng = np.random.default_rng(15)
    cost = -(10.0 ** rng.uniform(-6, 6, (30, 30)))
    solution = aot.solve(cost, np.ones(30), np.ones(30))
    assert solution.value == pytest.approx(cost[linear_sum_assignment(cost)].sum(), rel=1e-12)


@pytest.mark.parametrize("batch", range(3))
def test_near_ties_of_very_different_sizes(batch):
    """Many paths differ by less than rounding: the simplex must come to an end, and soon."""
    for seed in range(100 * batch, 100 * (batch + 1)):
        rng = np.random.default_rng(seed)
        n, m = rng.integers(5, 60, 2)
        by_row, by_column = 10.0 ** rng.uniform(-3, 3, n), 10.0 ** rng.uniform(-3, 3, m)
        cost = -by_row[:, None] - by_column[None, :] + 1e-3 * rng.integers(0, 2, (n, m))
        weights = rng.integers(0, 3, n).astype(float), rng.integers(1, 4, m) * 0.1
        solution = aot.solve(cost, *weights)
        check_solution(solution, cost, *weights)
        assert solution.iterations < 50 * (n + m), f"seed {seed}"


def test_differences_far_below_the_costs():
    cost = 1e-11 * np.random.default_rng(21).standard_normal((80, 80)) - 1
    solution = aot.solve(cost, np.ones(80), np.ones(80))
    best = cost[linear_sum_assignment(cost)] + 1  # exact: both are close to 1
    assert (cost * solution.plan + solution.plan).sum() == pytest.approx(best.sum(), abs=80 * 3e-13)


def test_a_small_reward_beside_a_huge_one_is_collected():
    cost = np.array([[-1e10, np.inf], [np.inf, -1e-5]])
    solution = aot.solve(cost, [1.0, 1.0], [1.0, 1.0])
    np.testing.assert_array_equal(solution.plan, np.eye(2))


def test_the_lightest_points_are_served_too():
    weights = np.array([1.0, 1e-30])
    solution = aot.solve([[-1.0, np.inf], [np.inf, -1.0]], weights, weights)
    np.testing.assert_array_equal(solution.plan, np.diag(weights))


def test_rounding_of_weights_makes_no_point_active():
    """0.1 + 0.2 exceeds 0.3 by rounding only: nothing is left for the second target."""
    solution = aot.solve([[-2.0, -1.0], [-2.0, -1.0]], [0.1, 0.2], [0.3, 1.0])
    assert solution.active_target.tolist() == [True, False]


@pytest.mark.parametrize("zeros", [100, 200, 1000])
def test_many_points_of_zero_weight(zeros):
    """Best partners without weight must leave no trace, not even in the last bit."""
    cost = np.full((zeros + 1, 2), np.inf)
    cost[:-1, 0] = -10.0
    cost[-1] = [-3.0, -1.0]
    weights = np.append(np.zeros(zeros), 1.0), np.array([1.0, 1.0])
    solution = aot.solve(cost, *weights)
    check_solution(solution, cost, *weights)
    assert solution.value == -3.0
    assert solution.mass == 1.0
    assert np.flatnonzero(solution.active_source).tolist() == [zeros]
    assert solution.active_target.tolist() == [True, False]


def test_all_weights_zero():
    cost = -np.ones((5, 4))
    solution = aot.solve(cost, np.zeros(5), np.zeros(4))
    check_solution(solution, cost, np.zeros(5), np.zeros(4))
    assert (solution.value, solution.mass) == (0.0, 0.0)


def test_one_total_far_above_the_other():
    cost = np.array([[-1.0, -3.0]])
    weights = np.array([3.0]), np.array([35.0, 88.0])
    solution = aot.solve(cost, *weights)
    check_solution(solution, cost, *weights)
    assert (solution.value, solution.mass) == (-9.0, 3.0)


@pytest.mark.parametrize("factor", [1e6, 1e12, 1e18, 1e25])
def test_one_total_absurdly_far_above_the_other(factor):
    rng = np.random.default_rng(16)
    cost = rng.integers(-9, 3, (20, 30)).astype(float)
    weights = rng.integers(1, 9, 20).astype(float), factor * rng.integers(1, 9, 30)
    solution = aot.solve(cost, *weights)
    check_solution(solution, cost, *weights)
    assert solution.value == weights[0] @ np.minimum(cost.min(axis=1), 0.0)  # no target is ever full


@pytest.mark.parametrize(
    ("cost", "source_weights", "target_weights"),
    [
        ([[np.inf, -3.0], [-0.07417339, -0.00337552]], [7.28749073e-3, 4.39986833019e-10], [1.0, 0.0]),
        ([[0.05, -0.04], [-0.01, 0.0]], [1.0, 0.0], [43.92593, 4.65392245574e-10]),
        ([[-1.0, 1.0], [1.0, -1.0]], [1e9, 1 / 3e9], [0.0, 1.0]),
    ],
)
def test_weights_hold_where_little_of_much_moves(cost, source_weights, target_weights):
    """The violation is small beside the mass that moves, however much weight stays."""
    weights = np.array(source_weights), np.array(target_weights)
    solution = aot.solve(cost, *weights)
    check_solution(solution, np.array(cost), *weights)


@pytest.mark.parametrize("heavy", [1e3, 1e6, 1e9, 1e12, 1e20])
def test_heavy_points_with_light_partners(heavy):
    """What moves is small beside both totals, and no less precise for that."""
    cost = np.array([[-1.0, np.inf], [np.inf, -2.0]])
    weights = np.array([heavy, 1 / 3]), np.array([1 / 3, heavy])
    solution = aot.solve(cost, *weights)
    check_solution(solution, cost, *weights)
    assert solution.value == pytest.approx(-1.0, rel=1e-12)
    assert solution.mass == pytest.approx(2 / 3, rel=1e-12)


@pytest.mark.parametrize("shape", [(0, 0), (0, 4), (4, 0)])
@pytest.mark.parametrize("container", [np.array, sparse.csr_array])
def test_empty(shape, container):
    cost = np.zeros(shape)
    solution = aot.solve(container(cost))
    check_solution(solution, cost, *(np.full(k, 1 / max(k, 1)) for k in shape), sparse_plan=container is not np.array)
    assert (solution.value, solution.mass, solution.gap) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(("n", "m"), [(0, 4), (4, 0), (0, 0)])
def test_empty_clouds(n, m):
    solution = aot.solve(aot.DistanceCost(np.zeros((n, 2)), np.zeros((m, 2)), reach=1.0))
    assert (solution.value, solution.mass, solution.plan.shape) == (0.0, 0.0, (n, m))


@pytest.mark.parametrize("route", ["listed", "column generation"])
def test_forbidden_pairs(route, request):
    if route == "column generation":
        request.getfixturevalue("column_generation")
    rng = np.random.default_rng(17)
    cost = rng.integers(-9, 3, (40, 50)).astype(float)
    cost[rng.random(cost.shape) < 0.5] = np.inf
    cost[[3, 17]] = np.inf
    cost[:, 20:30] = np.inf
    weights = rng.integers(1, 9, 40).astype(float), rng.integers(1, 9, 50).astype(float)
    solution = aot.solve(cost, *weights)
    check_solution(solution, cost, *weights)
    assert solution.value == round(problems.reference_value(cost, *weights))
    assert not solution.active_source[[3, 17]].any()
    assert not solution.active_target[20:30].any()


def test_everything_forbidden():
    cost = np.full((3, 4), np.inf)
    solution = aot.solve(cost)
    check_solution(solution, cost, np.full(3, 1 / 3), np.full(4, 1 / 4))
    assert solution.mass == 0.0


# Limits and determinism


def test_pivot_limit_raises_and_carries_the_solution():
    instance = medium_problem(18, 60, 60)
    with pytest.raises(aot.NotConverged) as caught:
        aot.solve(*instance, solver=aot.Exact(max_pivots=10))
    early = caught.value.solution
    optimum = problems.reference_value(*instance)
    assert early.status is aot.Status.PIVOT_LIMIT
    assert early.iterations <= 10
    assert optimum < early.value <= 0
    assert early.value - early.gap <= optimum + 1e-12 * abs(optimum)  # the bound is true all the same


def test_pivot_limit_returns_when_asked_to():
    instance = medium_problem(18, 60, 60)
    early = aot.solve(*instance, solver=aot.Exact(max_pivots=0), raise_if_not_converged=False)
    assert early.status is aot.Status.PIVOT_LIMIT
    assert (early.value, early.mass, early.iterations) == (0.0, 0.0, 0)
    assert -early.gap <= problems.reference_value(*instance)


def test_several_threads_at_once():
    instances = [medium_problem(seed, 300, 500) for seed in range(6)]
    one_by_one = [aot.solve(*instance) for instance in instances]
    with ThreadPoolExecutor(3) as pool:
        at_once = list(pool.map(lambda instance: aot.solve(*instance), instances))
    for alone, together in zip(one_by_one, at_once, strict=True):
        np.testing.assert_array_equal(alone.plan, together.plan)


def test_same_answer_twice():
    instance = medium_problem(19)
    first, second = aot.solve(*instance), aot.solve(*instance)
    np.testing.assert_array_equal(first.plan, second.plan)
    np.testing.assert_array_equal(first.source_potential, second.source_potential)
    assert first.iterations == second.iterations


@pytest.mark.parametrize(
    ("source_weights", "target_weights"),
    [
        ([1e-20, 1.0], [1.0, 1.0]),
        ([1e-11, 1e8], [3e10, 1e8]),
        ([3e-19, 1.0], [5.0, 1.0]),
        ([1e-300, 1.0], [1.0, 1e-300]),
    ],
)
def test_minute_weights_beside_others(source_weights, target_weights):
    cost = np.array([[-1.0, 5.0], [5.0, -1.0]])
    weights = np.array(source_weights), np.array(target_weights)
    solution = aot.solve(cost, *weights)
    np.testing.assert_allclose(np.diag(solution.plan), np.minimum(*weights), rtol=1e-12)
    assert (solution.source_marginal <= weights[0]).all()
    assert (solution.target_marginal <= weights[1]).all()
