"""Robust transport with chi-square balls: closed forms, laws, other solvers, and the proof that comes with answers."""

from __future__ import annotations

import math

import cvxpy
import numpy as np
import pytest

import adaptive_ot as aot
from adaptive_ot._ball import Ball
from adaptive_ot.exact.conic import robust_transport
from problems import family_reference, least_by_clarabel


def solve(cost, mu, nu, rho, listed=None, report=lambda iteration, gap: None):
    rows, columns = np.nonzero(np.ones(cost.shape, bool) if listed is None else listed)
    return rows, columns, robust_transport(rows, columns, cost[rows, columns], mu, nu, rho, report)


def deviation(weights, potential):
    mean = weights @ potential / weights.sum()
    return math.sqrt(weights @ (potential - mean) ** 2 / weights.sum())


def proven_value(cost, mu, nu, rho, listed=None):
    """The value, after everything that proves it was checked: here, with formulas that the solver does not share."""
    rows, columns, solved = solve(cost, mu, nu, rho, listed)
    assert not solved.infeasible
    assert (solved.mass >= 0).all()
    plan, total = np.zeros(cost.shape), mu.sum()
    plan[rows, columns] = solved.mass
    assert plan.sum() == pytest.approx(total, rel=1e-12)
    for weights, marginal in ((mu, plan.sum(axis=1)), (nu, plan.sum(axis=0))):
        heavy = weights > 0
        assert (marginal[~heavy] == 0).all()
        assert ((marginal - weights)[heavy] ** 2 / weights[heavy]).sum() <= rho * total * (1 + 1e-12)
    f, g, costs = solved.source_potential, solved.target_potential, cost[rows, columns]
    size = np.abs(costs).max()
    assert (costs - f[rows] - g[columns]).min() >= -1e-14 * size
    value = float(costs @ solved.mass)
    dual_value = mu @ f + nu @ g - total * math.sqrt(rho) * (deviation(mu, f) + deviation(nu, g))
    assert -1e-12 * size * total <= value - dual_value <= 1e-9 * size * total
    return value


def random_problem(seed):
    """Real or tied costs of either sign; equal, random or very unequal weights, some of them zero; any radius."""
    rng = np.random.default_rng(seed)
    n, m = rng.integers(1, 16, 2)
    cost = rng.integers(-3, 4, (n, m)).astype(float) if rng.random() < 0.5 else rng.normal(size=(n, m))
    cost[0, 0] += 0.5

    def weights(size):
        drawn = (np.ones(size), rng.random(size), rng.exponential(size=size) ** 3)[rng.integers(3)]
        drawn[1:][rng.random(size - 1) < 0.1] = 0
        return drawn / drawn.sum()

    return cost, weights(n), weights(m), 10 ** rng.uniform(-6, 3)


@pytest.mark.parametrize(("cost_scale", "weight_scale"), [(1e6, 1e-6), (1e-6, 1e6), (1e6, 1e6), (1e-6, 1e-6)])
def test_scales(cost_scale, weight_scale):
    for seed in range(100, 110):
        cost, mu, nu, rho = random_problem(seed)
        value = proven_value(cost, mu, nu, rho)
        scaled = proven_value(cost_scale * cost, weight_scale * mu, weight_scale * nu, rho)
        assert scaled / (cost_scale * weight_scale) == pytest.approx(value, abs=1e-9 * np.abs(cost).max())


@pytest.mark.parametrize("seed", range(60))
def test_order_sides_and_constants(seed):
    cost, mu, nu, rho = random_problem(seed)
    value, size = proven_value(cost, mu, nu, rho), np.abs(cost).max()
    assert proven_value(cost.T, nu, mu, rho) == pytest.approx(value, abs=1e-9 * size)
    assert proven_value(cost + 2.5, mu, nu, rho) == pytest.approx(value + 2.5, abs=1e-8)
    order = np.random.default_rng(seed).permutation(mu.size)
    assert proven_value(cost[order], mu[order], nu, rho) == pytest.approx(value, abs=1e-9 * size)


@pytest.mark.parametrize("rho", [1e-6, 0.1, 1e3])
@pytest.mark.parametrize("cost", [-3.0, 1e-12, 1e12])
def test_one_point_each(rho, cost):
    value = proven_value(np.array([[cost]]), np.array([2.0]), np.array([2.0]), rho)
    assert value == pytest.approx(2 * cost, rel=1e-12)


@pytest.mark.parametrize("rho", [1e-6, 0.01, 0.3, 2.9, 3.1, 1e3])
@pytest.mark.parametrize("light", [0.25, 0.5])
def test_two_points_and_one(rho, light):
    """The cheap source gets sqrt(rho * light * heavy) more than its weight, until the other has nothing left."""
    mu = np.array([light, 1 - light])
    cheap = min(1.0, light + math.sqrt(rho * light * (1 - light)))
    value = proven_value(np.array([[-1.0], [4.0]]), mu, np.array([1.0]), rho)
    assert value == pytest.approx(-cheap + 4 * (1 - cheap), abs=1e-9)


def test_a_huge_radius_leaves_the_cheapest_pair():
    rng = np.random.default_rng(1)
    cost, mu, nu = rng.normal(size=(9, 7)), rng.random(9), rng.random(7)
    mu, nu = mu / mu.sum(), nu / nu.sum()
    for rho in (1e4, 1e8):
        assert proven_value(cost, mu, nu, rho) == pytest.approx(cost.min(), abs=1e-9)
    mu[cost.min(axis=1).argmin()] = 0
    mu /= mu.sum()
    assert proven_value(cost, mu, nu, 1e4) == pytest.approx(cost[mu > 0].min(), abs=1e-9)


@pytest.mark.parametrize("tiny", [1e-10, 1e-16, 1e-40, 1e-300])
def test_tiny_weights(tiny):
    """They are no more than a rounding error, and must do no more harm than that."""
    rng = np.random.default_rng(2)
    cost, mu, nu = rng.normal(size=(12, 9)), rng.random(12), rng.random(9)
    mu[0], nu[1] = tiny, tiny
    mu, nu = mu / mu.sum(), nu / nu.sum()
    without, heavy_mu, heavy_nu = np.ix_(mu > tiny, nu > tiny), mu[mu > tiny], nu[nu > tiny]
    for rho in (1e-6, 0.1, 10.0):
        value = proven_value(cost, mu, nu, rho)
        simpler = proven_value(cost[without], heavy_mu / heavy_mu.sum(), heavy_nu / heavy_nu.sum(), rho)
        assert value == pytest.approx(simpler, abs=5 * math.sqrt(tiny * rho) * np.ptp(cost) + 1e-8)


def test_more_radius_costs_less():
    cost, mu, nu, _ = random_problem(7)
    values = [proven_value(cost, mu, nu, rho) for rho in np.logspace(-6, 3, 19)]
    assert all(np.diff(values) <= 1e-9)
    assert values[-1] < values[0]


@pytest.mark.parametrize("seed", range(300, 305))
def test_a_small_radius_is_balanced_transport(seed):
    cost, mu, nu, _ = random_problem(seed)
    balanced = family_reference(cost, mu, nu)
    assert balanced is not None
    for rho in (1e-4, 1e-6, 1e-8):
        value = proven_value(cost, mu, nu, rho)
        # Marginals move by sqrt(rho) at most, and values with them.
        assert balanced - 2 * math.sqrt(rho) * np.ptp(cost) <= value <= balanced + 1e-9


def test_a_conic_solver_agrees():
    for seed in range(400, 500):
        cost, mu, nu, rho = random_problem(seed)
        cost, mu, nu = cost[mu > 0][:, nu > 0], mu[mu > 0], nu[nu > 0]
        plan = cvxpy.Variable(cost.shape, nonneg=True)
        near = [
            cvxpy.norm((cvxpy.sum(plan, axis=axis) - weights) / np.sqrt(weights)) <= math.sqrt(rho)
            for axis, weights in ((1, mu), (0, nu))
        ]
        least = least_by_clarabel(cvxpy.sum(cvxpy.multiply(cost, plan)), [*near, cvxpy.sum(plan) == 1])
        assert proven_value(cost, mu, nu, rho) == pytest.approx(least, rel=1e-7, abs=1e-7)


def test_forbidden_pairs():
    """On the diagonal, the mass may only move between pairs: both balls are one."""
    weights, cost = np.array([0.25, 0.75]), np.array([[-1.0, -9.0], [-9.0, 4.0]])
    cheap = 0.25 + math.sqrt(0.1 * 0.25 * 0.75)
    value = proven_value(cost, weights, weights, 0.1, listed=np.eye(2, dtype=bool))
    assert value == pytest.approx(-cheap + 4 * (1 - cheap), abs=1e-9)


def check_feasible_if(feasible, cost, mu, nu, rho, listed):
    """A value that is proven, or the proof that no plan is in the balls."""
    if feasible:
        proven_value(cost, mu, nu, rho, listed)
    else:
        _, _, solved = solve(cost, mu, nu, rho, listed)
        assert solved.infeasible
        assert not solved.mass.any()


@pytest.mark.parametrize("rho", [1e-4, 0.3, 0.99, 1.01, 2.0])
def test_no_plan_in_the_balls(rho):
    """Two sources of weight 1/2, but pairs with one target of 1/2 each, or with none."""
    half = np.array([0.5, 0.5])
    check_feasible_if(rho > 1, np.ones((2, 2)), half, half, rho, np.array([[True, True], [False, False]]))


@pytest.mark.parametrize("rho", [1e-4, 0.05, 0.1, 0.12, 1.0])
def test_no_plan_though_every_point_has_pairs(rho):
    """Source i reaches target i only, of other weight: the best both can do is to meet in between."""
    mu, nu = np.array([0.25, 0.75]), np.array([0.5, 0.5])
    shift = np.linspace(0.25, 0.5, 100_001)
    chi = [(shift - w) ** 2 / (w * (1 - w)) for w in (0.25, 0.5)]
    smallest = np.maximum(*chi).min()
    check_feasible_if(rho > smallest, np.eye(2), mu, nu, rho, np.eye(2, dtype=bool))


@pytest.mark.parametrize("seed", range(500, 520))
def test_few_pairs(seed):
    """A cycle through all points, which carries the weights, and some more pairs."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 30))
    cost, weights = rng.normal(size=(n, n)), rng.random(n) + 0.01
    weights /= weights.sum()
    listed = np.eye(n, dtype=bool) | np.roll(np.eye(n, dtype=bool), 1, axis=1) | (rng.random((n, n)) < 0.1)
    proven_value(cost, weights, weights, 10 ** rng.uniform(-5, 2), listed)


def test_many_points_with_few_pairs():
    """Where the matrix is sparse."""
    rng = np.random.default_rng(3)
    n, m = 900, 300
    x, y = np.sort(rng.random(n)), np.sort(rng.random(m))
    cost = np.abs(x[:, None] - y)
    proven_value(cost, np.full(n, 1 / n), np.full(m, 1 / m), 0.1, listed=cost < 0.04)


def test_ties_on_a_grid():
    x, y = np.arange(60), np.arange(40)
    proven_value(np.abs(x[:, None] - y).astype(float) % 7, np.full(60, 1 / 60), np.full(40, 1 / 40), 0.05)


@pytest.mark.parametrize("shape", [(0, 0), (2, 3)])
def test_nothing_to_transport(shape):
    solution = aot.solve(np.ones(shape), *map(np.zeros, shape), marginals=aot.ChiSquareBall(0.1))
    assert (solution.value, solution.mass, solution.gap) == (0.0, 0.0, 0.0)


def test_no_pairs_at_all():
    check_feasible_if(False, np.ones((1, 1)), np.ones(1), np.ones(1), 0.1, np.zeros((1, 1), bool))


def test_the_reported_gap_falls():
    reported = []
    cost, mu, nu, rho = random_problem(5)
    _, _, solved = solve(cost, mu, nu, rho, report=lambda iteration, gap: reported.append((iteration, gap)))
    iterations, gaps = zip(*reported, strict=True)
    assert iterations == tuple(range(1, solved.iterations + 1))
    assert all(np.diff(gaps) <= 0)
    assert gaps[-1] <= 1e-9


@pytest.mark.parametrize("seed", range(20))
def test_the_lowest_mean_in_a_ball(seed):
    """Against the marginals themselves: none in the ball has a lower mean, and the best of them attains it."""
    rng = np.random.default_rng(seed)
    weights, potential = rng.random(6) + 0.05, rng.integers(0, 4, 6) + rng.normal(size=6) * (seed % 2)
    weights /= weights.sum()
    ball = Ball(weights, 10 ** rng.uniform(-2, 1))
    cut = ball.cut(potential)
    assert (cut <= potential).all()
    slope = np.maximum(0, cut.max() - potential) * weights if np.ptp(cut) > 0 else weights * (potential == cut)
    best = slope / slope.sum()
    # A level above all of the potential only touches the edge when it is raised.
    deviation_of = (potential - weights @ potential) * weights
    spread = deviation_of / np.linalg.norm(deviation_of / ball.spread)
    if ((weights - spread) >= 0).all():
        best = weights - spread
    assert ball.reach(best) <= 1 + 1e-9
    assert ball.lowest_mean(cut) == pytest.approx(best @ potential, abs=1e-9)
    assert ball.lowest_mean(cut) >= ball.lowest_mean(potential) - 1e-12
