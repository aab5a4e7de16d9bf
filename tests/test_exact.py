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
from check import check_solution, solve_checked
from problems import Instance, normal_problem, reference_value, relative_difference, stored

BATCHES = 10
INTEGER_PROBLEMS = 2_000
REAL_PROBLEMS = 1_000


@pytest.fixture
def column_generation(monkeypatch):
    """Send even the smallest problem through column generation."""
    limits = Limits(few_pairs=0, few_pairs_per_node=0, searched_entries=0)
    monkeypatch.setattr(sys.modules["adaptive_ot.solve"], "solve_exact", partial(solve_exact, limits=limits))


@pytest.fixture(params=["listed", "column generation"])
def either_route(request):
    if request.param == "column generation":
        request.getfixturevalue("column_generation")


def solve_listed(instance):
    """Solve with every negative pair as an arc from the start: no column generation."""
    limits = Limits(few_pairs=instance.cost.size, searched_entries=instance.cost.size)
    return solve_exact(aot.Problem.build(*instance), aot.Exact(), lambda _: None, limits)


def best_assignment(cost):
    """The value of adaptive transport with unit weights: an assignment in which every point may stay alone."""
    clipped = np.minimum(cost, 0.0)
    return clipped[linear_sum_assignment(clipped)].sum()


# Known answers


def test_toy_problem():
    toy = problems.toy()
    solution = solve_checked(toy.problem)
    assert solution.value == pytest.approx(-11 / 15, rel=1e-15)
    assert solution.mass == pytest.approx(11 / 15, rel=1e-15)
    found = [(cluster.sources.tolist(), cluster.targets.tolist()) for cluster in solution.clusters()]
    assert found == toy.clusters
    assert np.flatnonzero(~solution.active_source).tolist() == [5]
    assert np.flatnonzero(~solution.active_target).tolist() == [4]
    assert aot.solve(toy.problem.cost).value == solution.value  # the default weights


@pytest.mark.parametrize(
    ("make", "sizes"),
    [
        *[(problems.permutation, (n,)) for n in (1, 2, 7, 60, 300)],  # the last one by column generation
        *[(problems.disjoint_stars, (stars,)) for stars in (1, 3, 20)],
        *[(problems.transportation, sizes) for sizes in ((1, 1), (3, 5), (30, 20), (300, 300))],
    ],
)
def test_known_answers(make, sizes):
    known = make(np.random.default_rng(sum(sizes)), *sizes)
    solution = solve_checked(known.problem)
    assert (solution.value, solution.mass) == (known.value, known.mass)
    if known.plan is not None:
        np.testing.assert_array_equal(solution.plan, known.plan)
        found = sorted((cluster.sources.tolist(), cluster.targets.tolist()) for cluster in solution.clusters())
        assert found == known.clusters


@pytest.mark.parametrize(
    ("cost", "source_weight", "target_weight"),
    [
        *[(-2.0, 3.0, 5.0), (-2.0, 5.0, 3.0), (-1.0, 1.0, 1.0), (0.0, 1.0, 1.0), (4.0, 1.0, 1.0)],
        *[(-3.0, 0.0, 1.0), (-3.0, 1.0, 0.0), (-3.0, 0.0, 0.0), (np.inf, 1.0, 2.0), (-1e-12, 1e12, 1e-12)],
    ],
)
def test_one_pair(cost, source_weight, target_weight):
    mass = min(source_weight, target_weight) if cost < 0 else 0.0
    solution = solve_checked(Instance(np.array([[cost]]), np.array([source_weight]), np.array([target_weight])))
    assert (solution.value, solution.mass) == (cost * mass if mass else 0.0, mass)


# Random problems against HiGHS


def check_integer_problems(rng, count, given=lambda cost: None, **how):
    for _ in range(count):
        instance = problems.integer_problem(rng)
        solution = solve_checked(instance, given=given(instance.cost), **how)
        assert solution.value == round(reference_value(*instance)), instance


@pytest.mark.parametrize("batch", mostly_slow(range(BATCHES), 2))
def test_integer_problems_to_the_last_bit(batch):
    check_integer_problems(np.random.default_rng(batch), INTEGER_PROBLEMS // BATCHES)


@pytest.mark.usefixtures("column_generation")
def test_integer_problems_by_column_generation():
    check_integer_problems(np.random.default_rng(7), 200)
    check_integer_problems(np.random.default_rng(8), 200, partial(stored, below=0.0), sparse_plan=True)


@pytest.mark.parametrize("batch", mostly_slow(range(BATCHES), 2))
def test_real_problems(batch):
    rng = np.random.default_rng(1000 + batch)
    for _ in range(REAL_PROBLEMS // BATCHES):
        instance = problems.real_problem(rng)
        solution = solve_checked(instance)
        assert relative_difference(solution.value, reference_value(*instance)) <= 1e-12, instance


# Large enough for column generation as it is: more than 2**16 negative pairs


@pytest.mark.parametrize(
    ("low", "high", "shape"),
    [(-1, 1, (420, 420)), (-3, 3, (420, 420)), (-100, 100, (420, 420)), (-50, 19, (200, 700)), (-50, 19, (700, 200))],
)
def test_integer_assignments(low, high, shape):
    """Full of ties."""
    cost = np.random.default_rng(high).integers(low, high + 1, shape).astype(float)
    cost[cost == 0] = -1.0  # enough pairs that pay
    assert solve_checked(Instance(cost, *map(np.ones, shape))).value == best_assignment(cost)


def test_real_assignment():
    cost = np.random.default_rng(1).standard_normal((400, 400)) - 1.0
    solution = solve_checked(Instance(cost, np.ones(400), np.ones(400)))
    assert solution.value == pytest.approx(best_assignment(cost), rel=1e-13)


@pytest.mark.parametrize("container", [None, sparse.csr_array, sparse.csc_array, sparse.coo_array, sparse.csr_matrix])
def test_weights(container):
    """Half of the pairs pay."""
    instance = normal_problem(2, 380, 420)
    assert np.count_nonzero(instance.cost < 0) > LIMITS.few_pairs
    given = container(stored(instance.cost, 0.0)) if container else None
    solution = solve_checked(instance, given=given, sparse_plan=container is not None)
    assert solution.value == pytest.approx(solve_listed(instance).value, rel=1e-13)


def test_dense_integer_problem_with_weights_against_highs():
    rng = np.random.default_rng(3)
    cost = rng.integers(-30, 2, (270, 270)).astype(float)
    weights = [rng.integers(0, 40, 270).astype(float) for _ in range(2)]
    solution = solve_checked(Instance(cost, *weights))
    assert solution.value == round(reference_value(np.where(cost < 0, cost, np.inf), *weights))


def test_dense_float32():
    instance = normal_problem(4, 380, 420)
    single = instance.cost.astype(np.float32)
    instance = instance._replace(cost=single.astype(np.float64))
    solution = solve_checked(instance, given=single, dtype=np.float32)
    assert solution.value == pytest.approx(solve_listed(instance).value, rel=1e-13)


def clouds(seed, n, m, dimension):
    rng = np.random.default_rng(seed)
    x, z = rng.standard_normal((n, dimension)), rng.standard_normal((m, dimension)) + 0.3
    return x, z, rng.random(n) + 0.1, rng.random(m) + 0.1


def check_points(cost, instance, scale):
    """Points have the value of the pairs that pay, as a sparse cost; these are too many to be listed."""
    assert np.count_nonzero(instance.cost < 0) > LIMITS.few_pairs
    solution = solve_checked(instance, given=cost, sparse_plan=True, cost_scale=scale)
    assert solution.value == pytest.approx(aot.solve(stored(instance.cost, 0.0), *instance[1:]).value, rel=1e-12)


@pytest.mark.parametrize(("n", "m", "dimension"), [(400, 430, 2), (1100, 90, 3), (333, 411, 50)])
def test_distance_cost(n, m, dimension):
    x, z, mu, nu = clouds(6, n, m, dimension)
    reach = 2.5 * np.sqrt(dimension)
    instance = Instance(problems.distance_matrix(x, z, reach), mu, nu)
    check_points(aot.DistanceCost(x, z, reach), instance, reach**2)


def test_distance_cost_as_assignment():
    x, z, _, _ = clouds(7, 400, 400, 3)
    instance = Instance(problems.distance_matrix(x, z, reach=3.0), np.full(400, 1 / 400), np.full(400, 1 / 400))
    solution = solve_checked(instance, given=aot.DistanceCost(x, z, reach=3.0), sparse_plan=True, cost_scale=9.0)
    assert solution.value == pytest.approx(best_assignment(instance.cost) / 400, rel=1e-12)


def test_distance_cost_in_dimension_zero():
    solution = aot.solve(aot.DistanceCost(np.zeros((300, 0)), np.zeros((400, 0)), reach=2.0))
    assert solution.value == pytest.approx(-4.0, rel=1e-14)


def test_joint_cost():
    x, z, mu, nu = clouds(8, 400, 420, 5)
    rng = np.random.default_rng(9)
    p, q = np.eye(3)[rng.integers(0, 3, 400)], rng.dirichlet(np.ones(3), 420)
    instance = Instance(problems.joint_matrix(x, z, p, q, kappa=0.1, beta=3.0), mu, nu)
    check_points(aot.JointCost(x, z, p, q, kappa=0.1, beta=3.0), instance, 3.0)


def test_joint_cost_in_its_published_form():
    x, z, mu, nu = clouds(10, 50, 40, 5)
    rng = np.random.default_rng(11)
    p, q = np.eye(4)[rng.integers(0, 4, 50)], rng.dirichlet(np.ones(4), 40)
    instance = Instance(0.01 * problems.distance_matrix(x, z, 0.0) - 1.8 * p @ q.T, mu, nu)
    given = aot.JointCost(x, z, p, q, alpha=0.01, beta=1.8)
    solution = solve_checked(instance, given=given, sparse_plan=True, cost_scale=1.8)
    assert solution.value == pytest.approx(reference_value(*instance), rel=1e-12)


# Degenerate problems


@pytest.mark.parametrize("value", [-1.0, -0.1, -7e5])
def test_all_costs_equal(value):
    solution = solve_checked(Instance(np.full((300, 400), value), np.full(300, 1 / 300), np.full(400, 1 / 400)))
    assert solution.value == pytest.approx(value, rel=1e-13)


def test_duplicated_points():
    rng = np.random.default_rng(12)
    x, z = np.repeat(rng.integers(0, 3, (60, 2)), 7, axis=0), np.repeat(rng.integers(0, 3, (50, 2)), 8, axis=0)
    instance = Instance(problems.distance_matrix(x, z, reach=2.0), np.full(420, 2.0), np.full(400, 3.0))
    solution = solve_checked(instance, given=aot.DistanceCost(x, z, reach=2.0), sparse_plan=True, cost_scale=4.0)
    assert solution.value == aot.solve(stored(instance.cost, 0.0), *instance[1:]).value


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
    expected = aot.solve(stored(problems.distance_matrix(x, z[2:], 1.0), 0.0), weights[0], weights[1][2:])
    z[0], z[1] = far, -far
    assert aot.solve(aot.DistanceCost(x, z, reach=1.0), *weights).value == pytest.approx(expected.value, rel=1e-12)


@pytest.mark.usefixtures("either_route")
@pytest.mark.parametrize("cost_factor", [1e8, 1e-8, 1e-90, 1e90])
@pytest.mark.parametrize("weight_factor", [1.0, 1e6, 1e-6, 1e-30, 1e30])
def test_scale(cost_factor, weight_factor):
    plain = normal_problem(14, 60, 80)
    scaled = Instance(cost_factor * plain.cost, *(weight_factor * side for side in plain[1:]))
    reference = reference_value(*plain) * cost_factor * weight_factor
    assert relative_difference(solve_checked(scaled).value, reference) <= 1e-12


@pytest.mark.parametrize("seed", range(5))
def test_weights_over_twelve_orders_of_magnitude(seed):
    rng = np.random.default_rng(seed)
    cost = rng.integers(-9, 4, (40, 50)).astype(float)
    instance = Instance(cost, *(10.0 ** rng.uniform(-12, 0, size) for size in cost.shape))
    assert relative_difference(solve_checked(instance).value, reference_value(*instance)) <= 1e-9
    # A light source by itself is served as precisely as a heavy one.
    light = [int(np.argmin(instance.source_weights))]
    if (cost[light] < 0).any():
        weight, nu = instance.source_weights[light], instance.target_weights
        best = reference_value(cost[light], np.ones(1), nu / weight) * weight[0]
        assert relative_difference(aot.solve(cost[light], weight, nu).value, best) <= 1e-12


def test_costs_over_many_orders_of_magnitude():
    cost = -(10.0 ** np.random.default_rng(15).uniform(-6, 6, (30, 30)))
    solution = aot.solve(cost, np.ones(30), np.ones(30))
    assert solution.value == pytest.approx(best_assignment(cost), rel=1e-12)


@pytest.mark.parametrize("batch", range(3))
def test_near_ties_of_very_different_sizes(batch):
    """Many paths differ by less than rounding: the simplex must come to an end, and soon."""
    for seed in range(100 * batch, 100 * (batch + 1)):
        rng = np.random.default_rng(seed)
        n, m = rng.integers(5, 60, 2)
        by_row, by_column = 10.0 ** rng.uniform(-3, 3, n), 10.0 ** rng.uniform(-3, 3, m)
        cost = -by_row[:, None] - by_column[None, :] + 1e-3 * rng.integers(0, 2, (n, m))
        solution = solve_checked(Instance(cost, rng.integers(0, 3, n).astype(float), rng.integers(1, 4, m) * 0.1))
        assert solution.iterations < 50 * (n + m), f"seed {seed}"


def test_differences_far_below_the_costs():
    cost = 1e-11 * np.random.default_rng(21).standard_normal((80, 80)) - 1
    solution = aot.solve(cost, np.ones(80), np.ones(80))
    best = cost[linear_sum_assignment(cost)] + 1  # exact: both are close to 1
    assert (cost * solution.plan + solution.plan).sum() == pytest.approx(best.sum(), abs=80 * 3e-13)


@pytest.mark.parametrize(("rewards", "weights"), [((1e10, 1e-5), (1.0, 1.0)), ((1.0, 1.0), (1.0, 1e-30))])
def test_the_smallest_rewards_and_weights_count(rewards, weights):
    solution = aot.solve(np.diag(-np.array(rewards)) + np.array([[0, np.inf], [np.inf, 0]]), weights, weights)
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
    solution = solve_checked(Instance(cost, np.append(np.zeros(zeros), 1.0), np.array([1.0, 1.0])))
    assert (solution.value, solution.mass) == (-3.0, 1.0)
    assert np.flatnonzero(solution.active_source).tolist() == [zeros]
    assert solution.active_target.tolist() == [True, False]


@pytest.mark.parametrize("factor", [1.0, 1e6, 1e12, 1e18, 1e25])
def test_one_total_far_above_the_other(factor):
    rng = np.random.default_rng(16)
    cost = rng.integers(-9, 3, (20, 30)).astype(float)
    weights = rng.integers(1, 9, 20).astype(float), factor * rng.integers(200, 900, 30)
    solution = solve_checked(Instance(cost, *weights))
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
    solve_checked(Instance(np.array(cost), np.array(source_weights), np.array(target_weights)))


@pytest.mark.parametrize("heavy", [1e3, 1e6, 1e9, 1e12, 1e20])
def test_heavy_points_with_light_partners(heavy):
    """What moves is small beside both totals, and no less precise for that."""
    cost = np.array([[-1.0, np.inf], [np.inf, -2.0]])
    solution = solve_checked(Instance(cost, np.array([heavy, 1 / 3]), np.array([1 / 3, heavy])))
    assert solution.value == pytest.approx(-1.0, rel=1e-12)
    assert solution.mass == pytest.approx(2 / 3, rel=1e-12)


@pytest.mark.parametrize(
    "weights",
    [([1e-20, 1], [1, 1]), ([1e-11, 1e8], [3e10, 1e8]), ([3e-19, 1], [5, 1]), ([1e-300, 1], [1, 1e-300])],
)
def test_minute_weights_beside_others(weights):
    mu, nu = map(np.array, weights)
    solution = aot.solve(np.array([[-1.0, 5.0], [5.0, -1.0]]), mu, nu)
    np.testing.assert_allclose(np.diag(solution.plan), np.minimum(mu, nu), rtol=1e-12)
    assert (solution.source_marginal <= mu).all()
    assert (solution.target_marginal <= nu).all()


@pytest.mark.parametrize("shape", [(0, 0), (0, 4), (4, 0)])
def test_empty(shape):
    n, m = shape
    points = aot.DistanceCost(np.zeros((n, 2)), np.zeros((m, 2)), reach=1.0)
    for cost in (np.zeros(shape), sparse.csr_array(shape), points):
        solution = aot.solve(cost)
        weights = (np.full(k, 1 / max(k, 1)) for k in shape)
        check_solution(solution, np.zeros(shape), *weights, sparse_plan=not isinstance(cost, np.ndarray))
        assert (solution.value, solution.mass, solution.gap) == (0.0, 0.0, 0.0)


@pytest.mark.usefixtures("either_route")
def test_forbidden_pairs():
    rng = np.random.default_rng(17)
    cost = rng.integers(-9, 3, (40, 50)).astype(float)
    cost[rng.random(cost.shape) < 0.5] = np.inf
    cost[[3, 17]] = np.inf
    cost[:, 20:30] = np.inf
    instance = Instance(cost, rng.integers(1, 9, 40).astype(float), rng.integers(1, 9, 50).astype(float))
    solution = solve_checked(instance)
    assert solution.value == round(reference_value(*instance))
    assert not solution.active_source[[3, 17]].any()
    assert not solution.active_target[20:30].any()


@pytest.mark.parametrize("cost", [np.inf, -1.0])
def test_nothing_can_move(cost):
    """Everything is forbidden, or nothing has any weight."""
    weight = float(cost > 0)
    solution = solve_checked(Instance(np.full((5, 4), cost), np.full(5, weight), np.full(4, weight)))
    assert (solution.value, solution.mass) == (0.0, 0.0)


# Limits and determinism


def test_pivot_limit():
    instance = normal_problem(18, 60, 60)
    with pytest.raises(aot.NotConverged) as caught:
        aot.solve(*instance, solver=aot.Exact(max_pivots=10))
    early = caught.value.solution
    optimum = reference_value(*instance)
    assert early.status is aot.Status.PIVOT_LIMIT
    assert early.iterations <= 10
    assert optimum < early.value <= 0
    assert early.value - early.gap <= optimum + 1e-12 * abs(optimum)  # the bound is true all the same
    early = aot.solve(*instance, solver=aot.Exact(max_pivots=0), raise_if_not_converged=False)
    assert early.status is aot.Status.PIVOT_LIMIT
    assert (early.value, early.mass, early.iterations) == (0.0, 0.0, 0)
    assert -early.gap <= optimum


def test_same_answers_in_several_threads_at_once():
    instances = [normal_problem(seed, 300, 500) for seed in range(6)]
    one_by_one = [aot.solve(*instance) for instance in instances]
    with ThreadPoolExecutor(3) as pool:
        at_once = list(pool.map(lambda instance: aot.solve(*instance), instances))
    for alone, together in zip(one_by_one, at_once, strict=True):
        np.testing.assert_array_equal(alone.plan, together.plan)
        np.testing.assert_array_equal(alone.source_potential, together.source_potential)
        assert alone.iterations == together.iterations
