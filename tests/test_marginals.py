"""What the models say about plans and potentials: bounds hold for every plan, and are tight at the optimum."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import cvxpy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import linprog

import adaptive_ot as aot
from adaptive_ot.marginals import _sum
from problems import Instance, family_reference, least_by_clarabel

MODELS = [
    *[aot.AtMost(), aot.Equal(), aot.FixedMass(0.0), aot.FixedMass(0.3), aot.FixedMass(1.0)],
    *[aot.SoftKL(0.1), aot.SoftKL(1.0), aot.SoftKL(50.0)],
    *[aot.ChiSquareBall(0.0), aot.ChiSquareBall(0.2), aot.ChiSquareBall(1.0), aot.ChiSquareBall(9.0)],
]


def random_instance(rng, sizes=(1, 6)):
    n, m = rng.integers(*sizes, 2)
    kind = rng.integers(3)
    cost = rng.standard_normal((n, m)) if kind else rng.integers(-3, 4, (n, m)).astype(float)
    weights = [rng.dirichlet(np.ones(size)) if kind < 2 else np.full(size, 1 / size) for size in (n, m)]
    return Instance(cost, *weights)


def coupling(rng, rows, columns):
    """A random plan of these marginals: mass is moved around cycles of the independent one."""
    plan = np.outer(rows, columns) / max(rows.sum(), 1e-300)
    n, m = plan.shape
    for _ in range(20):
        (a, b), (c, d) = rng.integers(0, n, 2), rng.integers(0, m, 2)
        if a != b and c != d:
            moved = rng.random() * min(plan[a, c], plan[b, d])
            plan[a, c] -= moved
            plan[b, d] -= moved
            plan[a, d] += moved
            plan[b, c] += moved
    return plan


def inside_ball(rng, weights, rho):
    """A random marginal of the same total in the chi-square ball."""
    direction = rng.dirichlet(np.full(weights.size, 0.5)) * weights.sum() - weights
    distance = (direction**2 / weights).sum() / weights.sum()
    longest = min(1.0, math.sqrt(rho / distance)) if distance > 0 else 0.0
    return weights + rng.choice([rng.random(), 1.0]) * longest * direction


def feasible_plan(rng, model, mu, nu):
    if isinstance(model, aot.Equal):
        return coupling(rng, mu, nu)
    if isinstance(model, aot.ChiSquareBall):
        return coupling(rng, inside_ball(rng, mu, model.rho), inside_ball(rng, nu, model.rho))
    if isinstance(model, aot.SoftKL):
        return rng.random((mu.size, nu.size)) * rng.choice([0.0, 0.1, 1.0], (mu.size, nu.size))
    share = model.mass if isinstance(model, aot.FixedMass) else rng.random()
    return share * coupling(rng, mu, nu)


def potentials(rng, instance):
    """From hopeless to nearly optimal."""
    n = instance.source_weights.size
    return [
        np.zeros(n),
        rng.standard_normal(n),
        -10 * rng.random(n),
        rng.uniform(-50, 50, n),
        instance.cost.min(axis=1) / 2,
        np.full(n, rng.standard_normal()),
    ]


# Weak duality


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_no_plan_is_below_any_bound(model):
    rng = np.random.default_rng(0)
    for _ in range(40):
        instance = random_instance(rng)
        problem = aot.Problem.build(*instance, marginals=model)
        plans = [feasible_plan(rng, model, *instance[1:]) for _ in range(4)]
        for plan in plans:
            assert problem.violation(plan) <= 1e-14
        objectives = [problem.objective(plan) for plan in plans]
        for f in potentials(rng, instance):
            assert problem.dual_value(f) <= min(objectives) + 1e-12 * (1 + abs(min(objectives)))
            assert problem.gap(plans[0], f) == max(0.0, problem.objective(plans[0]) - problem.dual_value(f))


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_what_a_bound_is_made_of(model):
    """The potentials behind a bound are feasible, and the bound is the dual objective of these very potentials."""
    rng = np.random.default_rng(1)
    for _ in range(40):
        instance = random_instance(rng)
        cost, mu, nu = instance
        problem = aot.Problem.build(*instance, marginals=model)
        for given_potential in potentials(rng, instance):
            f = model.clipped(given_potential)
            value, g, price = problem.bound(given_potential)
            np.testing.assert_array_equal(problem.c_transform(given_potential), g)
            assert problem.dual_value(given_potential) == value
            size = np.abs(f).max() + np.abs(g).max() + np.abs(cost).max() + abs(price)
            assert (cost - f[:, None] - g[None, :] - price >= -1e-14 * size).all()
            if isinstance(model, aot.AtMost | aot.FixedMass):
                assert f.max() <= 0
                assert g.max() <= 0
            if not isinstance(model, aot.FixedMass):
                assert price == 0.0
            expected = dual_objective(model, mu, nu, f, g, price)
            if isinstance(model, aot.ChiSquareBall | aot.SoftKL):  # cut, or moved by a constant, they prove more
                assert value >= expected - 1e-11 * (size + abs(expected))
            else:
                assert value == pytest.approx(expected, rel=1e-11, abs=1e-11 * size)


def dual_objective(model, mu, nu, f, g, price):
    """The concave conjugates, written down independently."""
    if isinstance(model, aot.SoftKL):
        tau = model.tau
        with np.errstate(over="ignore"):
            return tau * (mu @ (1 - np.exp(-f / tau)) + nu @ (1 - np.exp(-g / tau)))
    if isinstance(model, aot.ChiSquareBall):
        spread = (math.sqrt(w @ (u - w @ u) ** 2) for w, u in ((mu, f), (nu, g)))
        return mu @ f + nu @ g - math.sqrt(model.rho) * sum(spread)
    return mu @ f + nu @ g + price * (model.mass if isinstance(model, aot.FixedMass) else 0.0)


def test_the_best_price_for_a_potential():
    """With FixedMass, no other price proves more."""
    rng = np.random.default_rng(2)
    for _ in range(100):
        cost, mu, nu = random_instance(rng)
        model = aot.FixedMass(rng.choice([0.0, rng.random(), 1.0]))
        problem = aot.Problem.build(cost, mu, nu, model)
        f = -rng.random(mu.size)
        best = problem.bound(f)
        lowest = (cost - f[:, None]).min(axis=0)
        for price in [*lowest, *rng.standard_normal(5)]:
            proved = mu @ f + nu @ np.minimum(lowest - price, 0.0) + price * model.mass
            assert proved <= best.value + 1e-12


def test_the_best_target_potential_in_a_ball():
    """With ChiSquareBall, no other potential below the limit proves more."""
    rng = np.random.default_rng(3)
    for _ in range(100):
        cost, mu, nu = random_instance(rng)
        model = aot.ChiSquareBall(float(rng.choice([0.0, 0.1, 0.5, 2.0])))
        problem = aot.Problem.build(cost, mu, nu, model)
        f = rng.standard_normal(mu.size)
        best = problem.bound(f)
        lowest = (cost - f[:, None]).min(axis=0)
        others = [np.minimum(lowest, cap) for cap in [*lowest, *rng.standard_normal(5)]]
        others += [lowest - rng.random(nu.size) * rng.choice([0.01, 1.0]) for _ in range(10)]
        others += [np.minimum(best.target_potential - 0.1 * rng.random(nu.size), lowest)]
        for g in others:
            assert dual_objective(model, mu, nu, f, g, 0.0) <= best.value + 1e-10


# Tightness


@pytest.mark.parametrize("mass", [None, 0.25, 0.8, 1.0])
def test_linear_models_are_tight(mass):
    """The source potentials of HiGHS prove the optimum."""
    rng = np.random.default_rng(4)
    for _ in range(25):
        instance = random_instance(rng)
        cost, mu, nu = instance
        n, m = cost.shape
        model = aot.Equal() if mass is None else aot.FixedMass(mass)
        # max <mu, f> + <nu, g> + mass * price subject to f_i + g_j + price <= C_ij
        pairs = np.indices((n, m)).reshape(2, -1)
        rows = np.zeros((n * m, n + m + 1))
        rows[np.arange(n * m), pairs[0]], rows[np.arange(n * m), n + pairs[1]] = 1.0, 1.0
        rows[:, -1] = 0.0 if mass is None else 1.0
        signs = [(None, None if mass is None else 0.0)] * (n + m) + [(None, None)]
        dual = linprog(-np.concatenate([mu, nu, [mass or 0.0]]), A_ub=rows, b_ub=cost.ravel(), bounds=signs)
        assert dual.status == 0
        problem = aot.Problem.build(*instance, marginals=model)
        reference = family_reference(*instance, mass)
        assert problem.dual_value(dual.x[:n]) == pytest.approx(reference, abs=1e-9)


def best_potential(problem):
    """The bound of the best source potential, which a conic solver finds."""
    cost, weights = problem.cost.block(0, problem.cost.shape[0]), (problem.source_weights, problem.target_weights)
    model, potentials, worth = problem.marginals, [cvxpy.Variable(side.size) for side in weights], []
    for side, potential in zip(weights, potentials, strict=True):
        if isinstance(model, aot.SoftKL):
            worth.append(model.tau * cvxpy.sum(cvxpy.multiply(side, 1 - cvxpy.exp(-potential / model.tau))))
        else:
            around = potential - side @ potential
            worth.append(side @ potential - math.sqrt(model.rho) * cvxpy.norm(cvxpy.multiply(np.sqrt(side), around)))
    below = [potentials[0][row] + potentials[1] <= costs for row, costs in enumerate(cost)]
    least_by_clarabel(-sum(worth), below)
    return problem.dual_value(potentials[0].value)


def least_objective(problem):
    """The least objective that a conic solver finds."""
    cost, model = problem.cost.block(0, problem.cost.shape[0]), problem.marginals
    plan, penalty, rules = cvxpy.Variable(cost.shape, nonneg=True), 0.0, []
    for axis, side in ((1, problem.source_weights), (0, problem.target_weights)):
        marginal = cvxpy.sum(plan, axis=axis)
        if isinstance(model, aot.SoftKL):
            penalty += model.tau * cvxpy.sum(cvxpy.kl_div(marginal, side))
        else:
            rules += [cvxpy.norm((marginal - side) / np.sqrt(side)) <= math.sqrt(model.rho), cvxpy.sum(plan) == 1]
    return least_by_clarabel(cvxpy.sum(cvxpy.multiply(cost, plan)) + penalty, rules)


@pytest.mark.parametrize("tau", [0.5, 3.0])
def test_unbalanced_transport_is_tight(tau):
    rng = np.random.default_rng(5)
    for _ in range(5):
        n, m = rng.integers(1, 4, 2)
        instance = Instance(rng.random((n, m)), rng.dirichlet(np.ones(n)), rng.dirichlet(np.ones(m)))
        problem = aot.Problem.build(*instance, marginals=aot.SoftKL(tau))
        assert best_potential(problem) == pytest.approx(least_objective(problem), abs=1e-7)


@pytest.mark.parametrize("rho", [0.0, 0.15, 0.6])
def test_robust_transport_is_tight(rho):
    rng = np.random.default_rng(6)
    for _ in range(5):
        n, m = rng.integers(1, 4, 2)
        instance = Instance(rng.random((n, m)), rng.dirichlet(np.ones(n)) + 0.2, rng.dirichlet(np.ones(m)) + 0.2)
        mu, nu = (side / side.sum() for side in instance[1:])
        problem = aot.Problem.build(instance.cost, mu, nu, aot.ChiSquareBall(rho))
        primal = family_reference(instance.cost, mu, nu) if rho == 0 else least_objective(problem)
        assert best_potential(problem) == pytest.approx(primal, abs=1e-7)


def test_the_robust_example_has_a_closed_form():
    """Mass leaves the point that costs 4 until the ball ends: at 3/4 and 1/4 on both sides, for a value of 1."""
    problem = aot.Problem.build([[0.0, 4.0], [4.0, 4.0]], marginals=aot.ChiSquareBall(0.25))
    plan = np.array([[0.75, 0.0], [0.0, 0.25]])
    assert problem.violation(plan) <= 1e-15
    assert problem.objective(plan) == 1.0
    assert problem.violation([[0.8, 0.0], [0.0, 0.2]]) > 0.01
    assert best_potential(problem) == pytest.approx(1.0, abs=1e-6)


def test_unbalanced_transport_of_one_pair_has_a_closed_form():
    """min c x + 2 tau (x log x - x + 1) is at x = exp(-c / (2 tau))."""
    for cost, tau in [(1.0, 1.0), (-0.5, 0.3), (3.0, 10.0)]:
        problem = aot.Problem.build([[cost]], marginals=aot.SoftKL(tau))
        best = math.exp(-cost / (2 * tau))
        assert problem.objective([[best]]) == pytest.approx(2 * tau * (1 - best), rel=1e-13)
        assert problem.dual_value([cost / 2]) == pytest.approx(2 * tau * (1 - best), rel=1e-13)
        assert problem.gap([[best]], [cost / 2]) <= 1e-14


@pytest.mark.parametrize("model", [aot.SoftKL(1.0), aot.ChiSquareBall(0.0), aot.Equal()], ids=str)
def test_balanced_potentials_prove_balanced_plans(model):
    """A ball of no size is balanced transport, and large taus come close to it."""
    rng = np.random.default_rng(7)
    instance = random_instance(rng, (4, 6))
    solution = aot.solve(*instance, marginals=aot.Equal())
    problem = aot.Problem.build(*instance, marginals=model)
    if not isinstance(model, aot.SoftKL):
        assert problem.gap(solution.plan, solution.source_potential) <= 1e-14
    else:
        assert problem.objective(solution.plan) == pytest.approx(solution.value, rel=1e-13)


# Violations and penalties


@given(st.sampled_from(MODELS), st.data())
@settings(max_examples=200)
def test_violation_sees_what_is_wrong(model, data):
    n, m = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    mu, nu = rng.dirichlet(np.ones(n)), rng.dirichlet(np.ones(m))
    problem = aot.Problem.build(np.zeros((n, m)), mu, nu, model)
    plan = feasible_plan(rng, model, mu, nu)
    assert problem.violation(plan) <= 1e-14
    excess = data.draw(st.sampled_from([1e-9, 1e-3, 1.0]))
    if isinstance(model, aot.SoftKL):
        return
    plan[0, 0] += 5.0 * (excess == 1.0) + excess
    if isinstance(model, aot.AtMost) and excess < 1.0:
        return
    if isinstance(model, aot.ChiSquareBall | aot.FixedMass) or excess == 1.0:
        assert problem.violation(plan) >= 0.9 * excess
    plan[0, 0] = -excess
    assert problem.violation(plan) >= excess


def test_negative_mass_breaks_every_rule():
    for model in MODELS:
        problem = aot.Problem.build(np.zeros((2, 2)), marginals=model)
        assert problem.violation([[0.5, -0.25], [0.0, 0.5]]) >= 0.25


def test_violations_by_hand():
    mu, nu = np.array([0.5, 0.5]), np.array([0.5, 0.5])
    plan = np.array([[0.6, 0.0], [0.0, 0.3]])
    expected = {aot.AtMost(): 0.1, aot.Equal(): 0.2, aot.FixedMass(0.7): 0.2, aot.SoftKL(1.0): 0.0}
    for model, violation in expected.items():
        assert aot.Problem.build(np.zeros((2, 2)), mu, nu, model).violation(plan) == pytest.approx(violation, rel=1e-14)


def test_mass_where_there_is_no_weight():
    mu, nu = np.array([1.0, 0.0]), np.array([1.0])
    plan = np.array([[0.75], [0.25]])
    for model in (aot.AtMost(), aot.Equal(), aot.FixedMass(1.0), aot.SoftKL(1.0), aot.ChiSquareBall(100.0)):
        assert aot.Problem.build(np.zeros((2, 1)), mu, nu, model).violation(plan) >= 0.25


def test_penalty_is_the_divergence():
    rng = np.random.default_rng(8)
    for _ in range(50):
        cost, mu, nu = random_instance(rng)
        plan = rng.random(cost.shape)
        r, c = plan.sum(axis=1), plan.sum(axis=0)
        divergence = sum((a * np.log(a / b) - a + b).sum() for a, b in ((r, mu), (c, nu)))
        problem = aot.Problem.build(cost, mu, nu, aot.SoftKL(2.5))
        assert problem.objective(plan) == pytest.approx((cost * plan).sum() + 2.5 * divergence, rel=1e-12)
        assert divergence >= 0
        assert aot.Problem.build(cost, mu, nu).objective(plan) == pytest.approx((cost * plan).sum(), rel=1e-12)


def test_penalty_of_nothing_and_of_the_weights():
    problem = aot.Problem.build(np.ones((2, 3)), marginals=aot.SoftKL(2.0))
    assert problem.objective(np.zeros((2, 3))) == pytest.approx(4.0, rel=1e-15)
    assert problem.objective(np.full((2, 3), 1 / 6)) == pytest.approx(1.0, rel=1e-14)


def divergence_in_many_digits(marginal, weights):
    with localcontext(prec=80):
        pairs = [(Decimal(float(a)), Decimal(float(b))) for a, b in zip(marginal, weights, strict=True)]
        return sum((a * (a / b).ln() - a + b for a, b in pairs), Decimal(0))


@pytest.mark.parametrize("off", [1e-14, 1e-9, 1e-4, 0.9e-3, 1.1e-3, 0.1, 10.0])
def test_the_divergence_does_not_cancel(off):
    """However close marginals are to the weights, a large price multiplies what is left."""
    rng = np.random.default_rng(9)
    mu, nu = rng.random(20), rng.random(30)
    r, c = (side * (1 + off * rng.random(side.size)) for side in (mu, nu))
    expected = float(divergence_in_many_digits(r, mu) + divergence_in_many_digits(c, nu))
    assert aot.SoftKL(1e14).penalty(mu, nu, r, c) == pytest.approx(1e14 * expected, rel=1e-11)


@pytest.mark.parametrize("tau", [0.1, 1.0, 1e8, 1e14, 1e20])
@pytest.mark.parametrize("totals", [(1.0, 1.0), (1.0, 3.0)])
def test_a_soft_bound_stays_below_what_potentials_prove(tau, totals):
    """In 80 digits, with target potentials that are feasible there; and never much below."""
    rng = np.random.default_rng(10)
    for _ in range(10):
        cost, mu, nu = random_instance(rng)
        mu, nu = totals[0] * mu / mu.sum(), totals[1] * nu / nu.sum()
        f = rng.standard_normal(mu.size) + tau * 0.5 * math.log(totals[0] / totals[1])
        bound = aot.Problem.build(cost, mu, nu, aot.SoftKL(tau)).bound(f).value
        with localcontext(prec=80):
            tall, exact = [Decimal(float(each)) for each in f], [[Decimal(float(c)) for c in row] for row in cost]
            g = [min(row[j] - tall[i] for i, row in enumerate(exact)) for j in range(nu.size)]
            sides = [
                sum(Decimal(float(a)) * (-b / Decimal(tau)).exp() for a, b in zip(*side, strict=True))
                for side in ((mu, tall), (nu, g))
            ]
            whole = sum(Decimal(float(weight)) for weight in (*mu, *nu))
            proved = Decimal(tau) * (whole - 2 * Decimal(sides[0] * sides[1]).sqrt())
            slack = float(proved - Decimal(bound))
        size = float(np.abs(f).max() + np.abs(cost).max()) * sum(totals) + abs(float(proved))
        assert 0 <= slack <= 1e-13 * size


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_forbidden_pairs(model):
    """Mass on them costs infinitely much, and they never limit a potential."""
    cost = np.array([[1.0, np.inf], [2.0, 3.0]])
    problem = aot.Problem.build(cost, marginals=model)
    assert problem.objective([[0.0, 0.1], [0.0, 0.0]]) == math.inf
    value, g, price = problem.bound([-1.0, 0.5])
    assert value < math.inf
    f = model.clipped(np.array([-1.0, 0.5]))
    assert (cost - f[:, None] - g[None, :] - price >= -1e-14).all()
    plan = sparse.csr_array([[0.25, 0.0], [0.25, 0.5]])
    assert problem.dual_value([-1.0, 0.5]) <= problem.objective(plan) + max(0.0, 10 * problem.violation(plan)) + 1e-14


@pytest.mark.parametrize("model", [aot.Equal(), aot.FixedMass(0.9)], ids=str)
def test_a_bound_without_limit_proves_that_nothing_is_feasible(model):
    """The second target cannot be reached, but must be."""
    cost = np.array([[1.0, np.inf], [2.0, np.inf]])
    assert aot.Problem.build(cost, marginals=model).dual_value([0.0, 0.0]) == math.inf


def test_a_ball_that_reaches_far_enough_needs_no_target():
    """Dropping one of two targets takes a chi-square divergence of 1."""
    cost = np.array([[1.0, np.inf], [2.0, np.inf]])
    problem = aot.Problem.build(cost, marginals=aot.ChiSquareBall(1.0))
    plan = np.array([[1.0, 0.0], [0.0, 0.0]])
    assert problem.violation(plan) <= 1e-15
    for f in ([0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [-3.0, 2.0]):
        assert problem.dual_value(f) <= problem.objective(plan) + 1e-12


def test_points_without_weight_prove_nothing_wrong():
    """Bounds stay below the optimum where some points weigh nothing, whatever their potentials."""
    rng = np.random.default_rng(9)
    for _ in range(30):
        cost, mu, nu = random_instance(rng, (2, 6))
        mu[0], nu[0] = 0.0, 0.0
        if mu.sum() == 0 or nu.sum() == 0:
            continue
        mu, nu = mu / mu.sum(), nu / nu.sum()
        for model in MODELS:
            problem = aot.Problem.build(cost, mu, nu, model)
            plan = np.zeros(cost.shape)
            plan[1:, 1:] = feasible_plan(rng, model, mu[1:], nu[1:])
            for f in potentials(rng, Instance(cost, mu, nu)):
                assert problem.dual_value(f) <= problem.objective(plan) + 1e-11 * (1 + abs(problem.objective(plan)))


def test_potentials_may_be_infinite_upwards():
    """What a potential of +inf is worth depends on the model; it never proves too much."""
    cost = np.array([[1.0, 2.0], [3.0, -1.0]])
    plan = np.full((2, 2), 0.25)
    for model in MODELS:
        problem = aot.Problem.build(cost, marginals=model)
        share = model.mass if isinstance(model, aot.FixedMass) else 1.0
        assert problem.dual_value([np.inf, 0.0]) <= problem.objective(share * plan) + 1e-12


@pytest.mark.parametrize("number", [-1.0, np.nan, np.inf, "one", None])
def test_numbers_of_the_models(number):
    for model, name in ((aot.FixedMass, "mass"), (aot.SoftKL, "tau"), (aot.ChiSquareBall, "rho")):
        with pytest.raises(aot.InvalidInput, match=name):
            model(number)


def test_tau_must_be_positive():
    with pytest.raises(aot.InvalidInput, match="tau"):
        aot.SoftKL(0.0)


@pytest.mark.parametrize("model", [aot.Equal(), aot.ChiSquareBall(0.5)], ids=str)
def test_totals_must_be_equal_where_everything_moves(model):
    with pytest.raises(aot.InvalidInput, match="target_weights must have the same total"):
        aot.Problem.build(np.ones((1, 1)), [1.0], [1.1], model)
    problem = aot.Problem.build(np.ones((1, 2)), [1.0], [0.5, 0.5 + 1e-9], model)
    assert problem.target_weights.sum() == pytest.approx(1.0, rel=1e-15)


def test_models_are_values():
    assert aot.FixedMass(0.5) == aot.FixedMass(0.5) != aot.FixedMass(0.6)
    assert {aot.Equal(), aot.Equal(), aot.AtMost()} == {aot.AtMost(), aot.Equal()}
    assert repr(aot.SoftKL(2)) == "SoftKL(tau=2.0)"


@pytest.mark.parametrize("size", [1, 7, 1000, 100_000])
def test_sums_of_bounds_are_rounded_once(size):
    rng = np.random.default_rng(size)
    terms = rng.normal(size=size) * 10.0 ** rng.uniform(-6, 6, size)
    terms = np.concatenate([terms, -terms[: size // 2], rng.normal(size=size)])
    exact = math.fsum(terms)
    assert _sum(rng.permutation(terms)) == pytest.approx(exact, rel=1e-15, abs=1e-15)
    assert _sum(np.array([])) == 0.0
    assert _sum(np.array([math.inf, 1.0])) == math.inf
