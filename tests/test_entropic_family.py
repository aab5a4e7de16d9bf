"""The entropic solver beyond `AtMost`: plain scaling loops, bisection, HiGHS, POT, laws, and what must not break."""

from __future__ import annotations

import math
import warnings
from itertools import pairwise
from typing import Any

import cvxpy
import numpy as np
import pytest
from scipy import sparse
from scipy.special import logsumexp

import adaptive_ot as aot
import problems
from adaptive_ot.entropic import cpu
from adaptive_ot.entropic import solver as entropic
from problems import Instance, family_reference, least_by_clarabel, normal_problem, stored
from test_entropic import alternate, assert_same, awkward, check_entropic, entropy, every_form, small_problems  # noqa: F401

MODELS = ["equal", "fixed", "soft"]
every_model = pytest.mark.parametrize("model", MODELS)


# Judges that share nothing with the library


def scaling(instance, epsilon, form, tau=math.inf):
    """Alternating row and column updates in the log domain: balanced, or penalised by tau."""
    cost, mu, nu = instance
    a, b = np.log(mu), np.log(nu)
    kernel = -cost / epsilon + (0.0 if form == "counting" else a[:, None] + b)
    f, g = alternate(kernel, a, b, power=1.0 if math.isinf(tau) else tau / (tau + epsilon))
    return np.exp(f[:, None] + g + kernel), epsilon * f, epsilon * g


def at_mass(instance, epsilon, form, mass):
    """The same with a price that keeps the mass, and potentials at most zero, or with dummies: the plan."""
    cost, mu, nu = instance
    a, b, cap = np.log(mu), np.log(nu), 0.0
    kernel = -cost / epsilon + (a[:, None] + b if form == "product" else 0.0)
    if form == "augmented":  # these leave the mass to the others, and exchange nothing
        kernel = np.block([[kernel, np.zeros((mu.size, 1))], [np.zeros((1, nu.size)), -np.inf]])
        a, b, cap = np.append(a, np.log(nu.sum() - mass)), np.append(b, np.log(mu.sum() - mass)), np.inf
    f, g, price = np.zeros(a.size), np.zeros(b.size), 0.0
    for _ in range(200_000):
        before = f, g, price
        f = np.minimum(cap, a - logsumexp(kernel + g + price, axis=1))
        g = np.minimum(cap, b - logsumexp(kernel + f[:, None] + price, axis=0))
        if form != "augmented":
            price += math.log(mass) - float(np.asarray(logsumexp(kernel + f[:, None] + g + price)))
        if max(np.abs(now - then).max() for now, then in zip((f, g, price), before, strict=True)) < 1e-15:
            break
    return np.exp(f[:, None] + g + kernel + price)[: mu.size, : nu.size]


def objective(instance, model, epsilon, form, plan):
    """What an entropic solver minimises, from the definitions."""
    cost, mu, nu = instance
    if form == "augmented" and not isinstance(model, aot.FixedMass):
        form = "product"
    value = np.where(plan > 0, np.where(np.isinf(cost), 0.0, cost) * plan, 0.0).sum()
    if isinstance(model, aot.SoftKL):
        for weights, sums in ((mu, plan.sum(1)), (nu, plan.sum(0))):
            value += model.tau * (sums * np.log(sums / weights) - sums + weights).sum()
    return value + epsilon * entropy(form, plan, mu, nu)


def by_highs(instance, model):
    """The exact optimum of balanced or partial transport."""
    return family_reference(*instance, mass=getattr(model, "mass", None))


def random_instance(seed, model, n=5, m=7):
    cost, mu, nu = normal_problem(seed, n, m)
    return Instance(cost, mu, nu * (mu.sum() / nu.sum()) if model == "equal" else nu)


def as_model(name, instance, share=0.6, tau=1.5):
    most = min(instance.source_weights.sum(), instance.target_weights.sum())
    models = {"at most": aot.AtMost(), "equal": aot.Equal(), "soft": aot.SoftKL(tau)}
    return models[name] if name in models else aot.FixedMass(share * float(most))


def solve(instance, model, epsilon, form: Any = "augmented", *, check=True, **options):
    solver = aot.Entropic(epsilon, form, **options)
    return aot.solve(*instance, marginals=model, solver=solver, raise_if_not_converged=check)


# 1. Against other methods


@every_form
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("tau", [math.inf, 0.7, 20.0])
def test_scaling_loops(form, epsilon, tau):
    for seed in range(3):
        instance = random_instance(seed, "equal" if math.isinf(tau) else "soft")
        model = aot.Equal() if math.isinf(tau) else aot.SoftKL(tau)
        solution = solve(instance, model, epsilon, form, tolerance=1e-13)
        plan, f, g = scaling(instance, epsilon, "counting" if form == "counting" else "product", tau)
        np.testing.assert_allclose(solution.plan, plan, rtol=1e-8, atol=1e-11)
        if math.isinf(tau):
            f, g = f + (solution.source_potential - f).mean(), g - (solution.source_potential - f).mean()
        np.testing.assert_allclose(solution.source_potential, f, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(solution.target_potential, g, rtol=1e-8, atol=1e-8)
        assert solution.regularised_value == pytest.approx(objective(instance, model, epsilon, form, plan), rel=1e-9)
        value = (instance.cost * plan).sum() + model.penalty(*instance[1:], plan.sum(1), plan.sum(0))
        assert solution.value == pytest.approx(value, rel=1e-9)
        assert solution.price == 0


@every_form
@pytest.mark.parametrize("epsilon", [0.3, 2.0])
@pytest.mark.parametrize("share", [0.01, 0.4, 0.9])
def test_fixed_mass_is_adaptive_transport_at_a_price(form, epsilon, share):
    instance = random_instance(3, "fixed", 3, 4)
    model = as_model("fixed", instance, share)
    solution = solve(instance, model, epsilon, form, tolerance=1e-13)
    plan = at_mass(instance, epsilon, form, model.mass)
    np.testing.assert_allclose(solution.plan, plan, rtol=1e-7, atol=1e-10)
    assert solution.mass == pytest.approx(model.mass, rel=1e-12)
    assert solution.regularised_value == pytest.approx(objective(instance, model, epsilon, form, plan), rel=1e-8)
    at_price = aot.solve(instance.cost - solution.price, *instance[1:], solver=aot.Entropic(epsilon, form))
    np.testing.assert_allclose(solution.plan, at_price.plan, atol=1e-8)
    np.testing.assert_allclose(solution.source_potential, at_price.source_potential, atol=1e-7 * epsilon)
    np.testing.assert_allclose(solution.target_potential, at_price.target_potential, atol=1e-7 * epsilon)


@pytest.mark.parametrize("seed", range(3))
def test_against_pot(seed):
    ot = pytest.importorskip("ot")
    cost, mu, nu = instance = random_instance(seed, "soft")
    options = {"numItermax": 100_000, "stopThr": 1e-14}
    balanced = nu * (mu.sum() / nu.sum())
    plan = ot.sinkhorn(mu, balanced, cost, 0.3, method="sinkhorn_log", **options)
    np.testing.assert_allclose(solve((cost, mu, balanced), aot.Equal(), 0.3).plan, plan, atol=1e-7)
    for form, kind in (("product", "kl"), ("counting", "entropy")):
        with warnings.catch_warnings():  # "entropy" overrides a reference that was not given
            warnings.simplefilter("ignore")
            plan = ot.unbalanced.sinkhorn_unbalanced(mu, nu, cost, 0.3, 2.0, reg_type=kind, **options)
        np.testing.assert_allclose(solve(instance, aot.SoftKL(2.0), 0.3, form).plan, plan, atol=1e-7)
    positive = np.abs(cost)
    model = as_model("fixed", instance)
    plan = ot.partial.entropic_partial_wasserstein(mu, nu, positive, 0.3, model.mass, **options)
    np.testing.assert_allclose(solve((positive, mu, nu), model, 0.3, "counting").plan, plan, atol=1e-6)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("model", ["equal", "soft"])
def test_finite_where_pot_is_not(model):
    """Thousands of epsilons overflow there, or leave nothing; here, the certificate bounds the error."""
    ot = pytest.importorskip("ot")
    cost, mu, nu = random_instance(0, model)
    if model == "equal":
        cost, marginals, plan = 1e3 * cost, aot.Equal(), ot.sinkhorn(mu, nu, 1e3 * cost, 1e-3)
    else:
        cost, marginals = np.random.default_rng(0).random(cost.shape) - 5, aot.SoftKL(0.5)
        plan = ot.unbalanced.sinkhorn_unbalanced(mu, nu, cost, 1e-3, 0.5, reg_type="kl")
    assert not (np.isfinite(plan).all() and plan.any())
    solution = solve((cost, mu, nu), marginals, 1e-3)
    assert np.isfinite(solution.plan).all()
    assert solution.gap <= 0.01 * abs(solution.value)


@every_form
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("tau", [0.5, 1.0])
@pytest.mark.parametrize(
    "cost",
    [
        *[[[60.0, 0.0, 1300.0]], [[60.0, 0.0, 1e5]], [[60.0], [0.0], [1300.0]], [[0.0, 500.0], [5500.0, 9000.0]]],
        *[[[0.0, 488.6], [5510.4, 9152.1]], [[0.0, 5510.4], [488.6, 9152.1]]],  # underflows at the first epsilons
    ],
)
def test_soft_kl_where_far_points_are_due_less_than_numbers_can_say(cost, tau, compiled, form):
    """The plan is one number then, and its optimum has a closed form."""
    cost = np.array(cost)
    mu, nu = (np.full(size, 1 / size) for size in cost.shape)
    for epsilon in (1.0, 0.1):
        share = (tau + epsilon * (form != "counting")) / (2 * tau + epsilon)
        plan = solve((cost, mu, nu), aot.SoftKL(tau), epsilon, form, compiled=compiled).plan
        np.testing.assert_allclose(plan, np.where(cost == 0, np.outer(mu, nu) ** share, 0.0), atol=1e-8)


def test_soft_kl_where_all_mass_is_less_than_numbers_can_say():
    """Whether that is close enough is not for certain, but it is no other error."""
    cost = np.array([[56743.0], [176992.0], [99999.0]])
    solution = aot.solve(cost, marginals=aot.SoftKL(2.5), solver=aot.Entropic(3.7), raise_if_not_converged=False)
    assert solution.mass == 0
    assert solution.gap <= 1e-9


def test_soft_kl_with_an_epsilon_that_is_lost_in_rounding():
    """No answer, but no other error either."""
    cost = np.random.default_rng(0).random((30, 30))
    for epsilon in (1e-20, 1e-100):
        solution = aot.solve(
            cost, marginals=aot.SoftKL(0.5), solver=aot.Entropic(epsilon), raise_if_not_converged=False
        )
        assert not solution.status.succeeded
        assert not solution.gap <= 0.1


@every_form
@pytest.mark.parametrize("tau", [1e10, 1e12, 1e14])
def test_a_very_large_tau_is_balanced(form, tau):
    """Value and gap, too: what the marginals lack is invisible even if multiplied by tau."""
    instance = random_instance(12, "equal")
    soft, balanced = solve(instance, aot.SoftKL(tau), 0.05, form), solve(instance, aot.Equal(), 0.05, form)
    assert soft.status is aot.Status.CONVERGED
    assert soft.value == pytest.approx(balanced.value, rel=1e-8)
    assert soft.regularised_value == pytest.approx(balanced.regularised_value, rel=1e-8)
    assert soft.gap == pytest.approx(balanced.gap, rel=1e-6)
    np.testing.assert_allclose(soft.plan, balanced.plan, atol=1e-8)


@pytest.mark.parametrize("tau", [1e20, 1e30, 1e60])
def test_a_tau_beyond_all_digits_is_told(tau):
    """The gap bounds what the value is off by, whatever the plan has come to."""
    instance = random_instance(12, "equal")
    solver, best = aot.Entropic(0.05), by_highs(instance, aot.Equal())
    solution = aot.solve(*instance, marginals=aot.SoftKL(tau), solver=solver, raise_if_not_converged=False)
    assert solution.gap >= solution.value - best - 1e-9
    assert solution.status is not aot.Status.CONVERGED or solution.gap < 1


def test_soft_kl_by_a_conic_solver():
    """Without entropy: the certified gap contains the optimum of the penalised problem itself."""
    cost, mu, nu = instance = random_instance(5, "soft", 3, 3)
    plan = cvxpy.Variable(cost.shape, nonneg=True)
    distances = [cvxpy.sum(cvxpy.kl_div(cvxpy.sum(plan, axis=axis), side)) for axis, side in ((1, mu), (0, nu))]
    least = least_by_clarabel(cvxpy.sum(cvxpy.multiply(cost, plan)) + 0.8 * sum(distances), [])
    for epsilon in (1.0, 0.1, 1e-3):
        solution = solve(instance, aot.SoftKL(0.8), epsilon)
        assert solution.value - solution.gap <= least + 1e-9
        assert solution.value >= least - 1e-6
    assert solution.value == pytest.approx(least, abs=5e-3)


# 2. Certificates


@every_form
@pytest.mark.parametrize("model", ["equal", "fixed"])
def test_certificate_against_highs(model, form):
    """100 problems of each model: the exact optimum is within the gap, and the plan is what it claims to be."""
    for seed in range(100):
        rng = np.random.default_rng(seed)
        n, m = rng.integers(1, 7, 2)
        instance = random_instance(seed, model, n, m)
        chosen = as_model(model, instance, rng.choice([0.1, 0.5, 0.9, 1.0]))
        optimum = by_highs(instance, chosen)
        epsilon = rng.choice([1e-4, 1e-2, 1.0, 100.0])
        solution = solve(instance, chosen, epsilon, form)
        weight = float(instance.source_weights.sum() + instance.target_weights.sum())
        assert solution.violation <= 1e-9 * weight
        # marginals that are off by the tolerance may be cheaper by as much
        assert solution.value - optimum >= -1e-7 * weight
        assert solution.value - optimum <= solution.gap + 1e-7 * weight
        assert solution.gap == pytest.approx(solution.problem.gap(solution.plan, solution.source_potential), abs=1e-7)
        plan = solution.plan
        np.testing.assert_allclose(solution.source_marginal, plan.sum(1), atol=1e-12)
        np.testing.assert_allclose(solution.target_marginal, plan.sum(0), atol=1e-12)
        if model == "fixed":
            assert plan.sum() == pytest.approx(chosen.mass, rel=2e-9)
            assert solution.problem.violation(plan) <= 2e-9 * chosen.mass
            assert max(solution.source_potential.max(), solution.target_potential.max()) <= 1e-9 or form == "augmented"
        else:
            np.testing.assert_allclose(plan.sum(1), instance.source_weights, atol=1e-13)
            np.testing.assert_allclose(plan.sum(0), instance.target_weights, atol=1e-8)


@every_form
def test_soft_kl_certificate(form):
    """The bound is below the objective of every plan: random ones, and those of the loop at a small epsilon."""
    for seed in range(100):
        rng = np.random.default_rng(seed)
        instance = random_instance(seed, "soft", *rng.integers(1, 6, 2))
        tau = float(rng.choice([0.1, 1.0, 50.0]))
        problem = aot.Problem.build(*instance, aot.SoftKL(tau))
        solution = solve(instance, aot.SoftKL(tau), float(rng.choice([1e-3, 0.1, 1.0, 50.0])), form)
        lower = solution.value - solution.gap
        best = solve(instance, aot.SoftKL(tau), 1e-4).plan
        rivals = [best, best * rng.random(best.shape), np.outer(*instance[1:]), np.zeros(best.shape)]
        size = 1e-9 * (abs(solution.value) + abs(solution.gap) + tau)
        assert lower <= min(map(problem.objective, rivals)) + size
        assert solution.value == pytest.approx(problem.objective(solution.plan), rel=1e-9, abs=1e-9)
        assert solution.gap == pytest.approx(problem.gap(solution.plan, solution.source_potential), abs=size)


@every_form
@every_model
def test_small_epsilon_comes_to_the_exact_value(model, form):
    instance = random_instance(7, model)
    chosen = as_model(model, instance)
    gaps = [solve(instance, chosen, epsilon, form).gap for epsilon in (1.0, 0.1, 0.01, 1e-3, 1e-4)]
    assert all(after < before for before, after in pairwise(gaps))
    assert gaps[-1] < 1e-2
    if model != "soft":
        assert solve(instance, chosen, 1e-4, form).value == pytest.approx(by_highs(instance, chosen), abs=1e-3)


# 3. Stability


@every_form
@every_model
@pytest.mark.parametrize("name", [name for name in awkward() if name not in ("all forbidden", "half forbidden")])
def test_awkward_problems(name, model, form):
    """No warnings (they are errors), nothing infinite, at every epsilon; convergence, and soon."""
    cost, mu, nu = awkward()[name]
    if model == "equal" and mu.sum() * nu.sum() > 0:
        nu = nu.astype(float) * (mu.astype(float).sum() / nu.astype(float).sum())
    if model == "equal" and (mu.sum() * nu.sum() == 0 < mu.sum() + nu.sum() or name.startswith("forbidden")):
        return  # refused, as other tests say
    instance = Instance(cost, mu, nu)
    size = float(np.abs(cost[np.isfinite(cost)]).max(initial=0.0)) or 1.0
    models = [as_model(model, instance, share, tau) for share, tau in ((1.0, 1e6 * size), (0.3, 0.1 * size))]
    for chosen in models[: 1 if model == "equal" else 2]:
        for ratio in (1e-6, 1e-2, 1e6):
            if name.startswith("forbidden") and (chosen, ratio) != (models[1], 1e-2):
                continue  # a mass that cannot move, or potentials of the size of tau
            if name == "negative and balanced" and isinstance(chosen, aot.SoftKL) and chosen.tau > 1e9 * ratio * size:
                continue  # tau / epsilon has too many digits
            solution = solve(instance, chosen, ratio * size, form)
            assert solution.iterations < 20_000
            numbers = (solution.value, solution.regularised_value, solution.mass, solution.price, solution.gap)
            assert all(map(math.isfinite, numbers))
            assert np.isfinite(solution.plan).all()
            assert np.isfinite(solution.source_potential).all()
            assert np.isfinite(solution.target_potential).all()
            precision = max(3e-9, float(np.finfo(solution.plan.dtype).eps))  # a float32 plan is rounded
            assert solution.violation <= precision * max(mu.sum(), nu.sum(), solution.mass)
            assert str(solution)


@every_form
@pytest.mark.parametrize("model", ["at most", "equal", "fixed", "soft"])
@pytest.mark.parametrize("power", [-700, -960])
def test_light_weights(model, form, power):
    """Plans scale with the weights; where the entropy does not, its logarithm is a constant added to all costs."""
    instance, epsilon, unit = random_instance(13, "equal"), 0.2, 2.0**power
    cost, mu, nu = instance
    with_dummies = form == "augmented" and model in ("at most", "fixed")
    change = 0.0 if with_dummies else epsilon * math.log(unit) * (-1 if form == "counting" else 1)
    models = {"at most": [aot.AtMost()] * 2, "equal": [aot.Equal()] * 2, "soft": [aot.SoftKL(1.0)] * 2}
    models["fixed"] = [aot.FixedMass(0.4 * mu.sum()), aot.FixedMass(0.4 * mu.sum() * unit)]
    one, light = models[model]
    expected = solve((cost, mu, nu), one, epsilon, form)
    found = solve((cost + change, unit * mu, unit * nu), light, epsilon, form)
    np.testing.assert_allclose(found.plan / unit, expected.plan, rtol=0, atol=1e-8)
    assert found.mass / unit == pytest.approx(expected.mass, rel=1e-8)


def test_light_points():
    x, z = np.random.default_rng(14).random((2, 40, 2))
    weights, unit = np.full(40, 1 / 40), 2.0**-700
    cost, solver = aot.DistanceCost(x, z, reach=0.3), aot.Entropic(0.01)
    expected, found = aot.solve(cost, solver=solver), aot.solve(cost, unit * weights, unit * weights, solver=solver)
    assert found.mass / unit == pytest.approx(expected.mass, rel=1e-8)
    assert found.value / unit == pytest.approx(expected.value, rel=1e-8)
    np.testing.assert_allclose(found.plan.toarray() / unit, expected.plan.toarray(), rtol=0, atol=1e-9)


@pytest.mark.parametrize("offset", [-1e8, 1e8])
@every_model
def test_costs_far_from_zero(model, offset):
    """An offset of all costs changes nothing where the mass is given."""
    instance = random_instance(8, model)
    far = instance._replace(cost=instance.cost + offset)
    chosen = as_model(model, instance, tau=1e9)
    solution = solve(far, chosen, 100.0)
    if model != "soft":
        near = solve(instance, chosen, 100.0)
        np.testing.assert_allclose(solution.plan, near.plan, rtol=1e-6, atol=1e-9)
        assert solution.price == pytest.approx(near.price + (offset if model == "fixed" else 0), rel=1e-9)


@every_form
def test_everything_moves(form):
    """The whole of the lighter side; with equal totals, partial transport is balanced."""
    instance = random_instance(9, "equal")
    whole = solve(instance, as_model("fixed", instance, 1.0), 0.1, form)
    balanced = solve(instance, aot.Equal(), 0.1, form)
    np.testing.assert_allclose(whole.plan, balanced.plan, atol=1e-8)
    sums = [np.add.outer(side.source_potential, side.target_potential) + side.price for side in (whole, balanced)]
    np.testing.assert_allclose(*sums, atol=1e-7)
    assert whole.regularised_value == pytest.approx(
        objective(instance, as_model("fixed", instance, 1.0), 0.1, form, balanced.plan), rel=1e-7
    )
    unequal = random_instance(9, "fixed")
    solution = solve(unequal, as_model("fixed", unequal, 1.0), 0.1, form)
    assert solution.mass == pytest.approx(min(unequal.source_weights.sum(), unequal.target_weights.sum()), rel=2e-9)
    nothing = solve(unequal, aot.FixedMass(0.0), 0.1, form)
    assert (nothing.mass, nothing.value, nothing.gap) == (0, 0, 0)
    assert not nothing.plan.any()


@every_form
@pytest.mark.parametrize("container", [np.asarray, stored])
def test_infeasible(form, container):
    """Two sources that reach one target only; a target that nobody reaches."""
    cost = container(np.array([[-1.0, np.inf, np.inf], [2.0, np.inf, np.inf], [1.0, 1.0, 3.0]]))
    mu, nu = np.array([0.3, 0.4, 0.3]), np.array([0.4, 0.35, 0.25])
    with pytest.raises(aot.Infeasible) as caught:
        solve((cost, mu, nu), aot.Equal(), 0.1, form)
    assert caught.value.most_mass == pytest.approx(0.7)
    with pytest.raises(aot.Infeasible):
        solve((cost, mu, nu), aot.FixedMass(0.75), 0.1, form)
    for mass in (0.5, 0.7):
        assert solve((cost, mu, nu), aot.FixedMass(mass), 0.1, form).mass == pytest.approx(mass, rel=1e-8)
    assert 0 < solve((cost, mu, nu), aot.SoftKL(1.0), 0.1, form).mass < 1


@pytest.mark.parametrize("form", ["product", "counting"])
def test_points_out_of_reach_pay_their_price(form):
    cost, mu, nu = random_instance(10, "soft")
    more = np.block([[cost, np.full((5, 1), np.inf)], [np.full((1, 8), np.inf)]])
    one = solve((cost, mu, nu), aot.SoftKL(2.0), 0.3, form)
    other = solve((more, np.append(mu, 0.7), np.append(nu, 0.4)), aot.SoftKL(2.0), 0.3, form)
    np.testing.assert_allclose(other.plan[:-1, :-1], one.plan, atol=1e-9)
    assert other.value == pytest.approx(one.value + 2.0 * (0.7 + 0.4), rel=1e-9)
    assert other.gap == pytest.approx(one.gap, abs=1e-8)
    none = solve((np.full((2, 3), np.inf), np.ones(2), np.ones(3)), aot.SoftKL(2.0), 0.3, form)
    assert (none.mass, none.value) == (0, 10)
    assert 0 <= none.gap <= 1e-13


# 4. Laws


@every_form
@every_model
def test_laws(model, form):
    """Transposed, shuffled, scaled: the same plan in another guise."""
    rng = np.random.default_rng(11)
    for seed in range(5):
        cost, mu, nu = instance = random_instance(seed, model)
        chosen = as_model(model, instance)
        plan, value = (getattr(solve(instance, chosen, 0.3, form), name) for name in ("plan", "regularised_value"))
        transposed = solve((cost.T, nu, mu), chosen, 0.3, form)
        np.testing.assert_allclose(transposed.plan.T, plan, atol=1e-7)
        assert transposed.regularised_value == pytest.approx(value, rel=1e-9)
        rows, columns = rng.permutation(5), rng.permutation(7)
        shuffled = solve((cost[np.ix_(rows, columns)], mu[rows], nu[columns]), chosen, 0.3, form)
        np.testing.assert_allclose(shuffled.plan, plan[np.ix_(rows, columns)], atol=1e-7)
        dear = aot.SoftKL(1e3 * chosen.tau) if isinstance(chosen, aot.SoftKL) else chosen
        scaled = solve((1e3 * cost, mu, nu), dear, 1e3 * 0.3, form)
        np.testing.assert_allclose(scaled.plan, plan, atol=1e-7)
        assert scaled.regularised_value == pytest.approx(1e3 * value, rel=1e-9)
        if model == "soft":  # the reference measure does not scale with the weights
            continue
        heavy = aot.FixedMass(8 * chosen.mass) if isinstance(chosen, aot.FixedMass) else chosen
        np.testing.assert_allclose(solve((cost, 8 * mu, 8 * nu), heavy, 0.3, form).plan, 8 * plan, atol=1e-6)
        np.testing.assert_allclose(solve((cost + 5.0, mu, nu), chosen, 0.3, form).plan, plan, atol=1e-7)


@every_form
@pytest.mark.parametrize("model", ["at most", *MODELS])
@pytest.mark.parametrize("epsilon", [0.01, 0.05, 1.0])
def test_every_kind_of_cost_gives_the_same(model, form, epsilon, monkeypatch):
    """Compiled in one piece, step by step, from stored pairs, from points, in tiles, and in torch."""
    rng = np.random.default_rng(12)
    x, z = rng.standard_normal((23, 3)), rng.standard_normal((31, 3))
    instance = Instance(problems.distance_matrix(x, z, 2.0), rng.random(23), rng.random(31))
    if model == "equal":
        mu, nu = instance[1:]
        instance = instance._replace(target_weights=nu * (mu.sum() / nu.sum()))
    chosen, (matrix, *weights), points = as_model(model, instance), instance, aot.DistanceCost(x, z, 2.0)
    first = solve(instance, chosen, epsilon, form, tolerance=1e-12)

    def same(cost, within=1e-9, **options):
        other = solve((cost, *weights), chosen, epsilon, form, tolerance=1e-12, **options)
        np.testing.assert_allclose(other.sparse_plan.toarray(), first.plan, atol=1e-9)
        assert other.regularised_value == pytest.approx(first.regularised_value, rel=1e-9)
        assert other.gap == pytest.approx(first.gap, rel=1e-5, abs=1e-8)
        if model == "at most":
            assert_same(first, other, within)
            check_entropic(other, instance, epsilon, form)

    same(matrix, compiled=True)
    same(matrix, compiled=False)
    same(sparse.csr_array(matrix), 1e-10)
    same(sparse.coo_matrix(matrix), 1e-10)
    same(points, 1e-10)
    monkeypatch.setattr(entropic, "SMALL", 0)
    same(matrix)
    sizes = {"MOST_ENTRIES": 16, "PAIRS_PER_BLOCK": 128, "ROWS_PER_PRODUCT": 1, "PAIRS_PER_THREAD": 256}
    for name, number in sizes.items():
        monkeypatch.setattr(cpu, name, number)
    same(points)
    pytest.importorskip("torch")
    from adaptive_ot.entropic import gpu

    monkeypatch.setattr(entropic, "softmin_for", lambda cost: gpu.TorchSoftmin(cost, "cpu"))
    same(matrix)


@every_form
@every_model
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_batch_is_the_loop(model, form, dtype):
    instances = [random_instance(seed, model) for seed in range(4)]
    costs, mu, nu = (np.stack(part).astype(dtype) for part in zip(*instances, strict=True))
    chosen = as_model(model, min(instances, key=lambda one: min(one[1].sum(), one[2].sum())))
    solver = aot.Entropic(0.1, form, tolerance=1e-8)
    batch = aot.solve(costs, mu, nu, marginals=chosen, solver=solver)
    assert batch.plan.dtype == dtype
    for b in range(4):
        alone = aot.solve(costs[b], mu[b], nu[b], marginals=chosen, solver=solver)
        for name in ("value", "regularised_value", "mass", "price", "gap", "violation", "plan", "target_potential"):
            expected = np.asarray(getattr(alone, name)).astype(dtype)
            np.testing.assert_allclose(getattr(batch, name)[b], expected, rtol=1e-6, atol=1e-6, err_msg=name)


# 5. Bad input


@pytest.mark.parametrize(
    ("marginals", "solver"), [(aot.ChiSquareBall(0.1), aot.Entropic(0.1)), (aot.SoftKL(0.1), aot.Exact())], ids=str
)
def test_combinations_that_are_refused(marginals, solver):
    with pytest.raises(aot.InvalidInput, match=type(marginals).__name__) as caught:
        aot.solve(np.zeros((2, 2)), marginals=marginals, solver=solver)
    assert caught.value.argument == "solver"


def test_a_mass_beyond_a_batch_is_refused():
    with pytest.raises(aot.InvalidInput, match="at most"):
        aot.solve(np.zeros((3, 2, 2)), marginals=aot.FixedMass(1.5), solver=aot.Entropic(0.1))


@every_form
@every_model
def test_not_converged(model, form):
    """What was reached in three passes has a true gap."""
    instance = random_instance(13, model)
    chosen = as_model(model, instance)
    with pytest.raises(aot.NotConverged) as caught:
        solve(instance, chosen, 1e-3, form, max_iterations=3)
    solution = caught.value.solution
    assert solution.gap == pytest.approx(solution.problem.gap(solution.plan, solution.source_potential), abs=1e-9)
    if model == "fixed":
        assert solution.value - by_highs(instance, chosen) <= solution.gap + abs(solution.price) * solution.violation


@every_model
def test_nothing_at_all(model):
    for shape in ((0, 0), (0, 3), (3, 0), (2, 2)):
        weights = np.zeros(shape[0]), np.zeros(shape[1])
        instance = Instance(np.zeros(shape), *weights)
        solution = solve(instance, as_model(model, instance), 0.1)
        assert (solution.mass, solution.value, solution.gap) == (0, 0, 0)
        assert solution.plan.shape == shape
