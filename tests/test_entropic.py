"""The entropic solver against plain alternations, Clarabel, the exact solver, finite differences, laws, and itself."""

from __future__ import annotations

import math
import pickle
import tracemalloc

import cvxpy
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse
from scipy.special import logsumexp

import adaptive_ot as aot
import problems
from adaptive_ot.entropic import cpu, kernels, small
from adaptive_ot.entropic import solver as entropic
from budget import mostly_slow
from check import as_numpy
from problems import Instance, least_by_clarabel, normal_problem, stored

FORMS = ["augmented", "product", "counting"]
NUMBERS = ("value", "regularised_value", "mass", "gap", "violation")
SIDES = ("marginal", "potential")
ARRAYS = tuple(f"{side}_{name}" for side in ("source", "target") for name in SIDES)
every_form = pytest.mark.parametrize("form", FORMS)


# Judges that share nothing with the library


def entropy(form, plan, mu, nu):
    """What epsilon multiplies in the regularised value, from the definitions."""
    if mu.sum() * nu.sum() == 0:
        return 0.0
    if form == "counting":
        return relative_entropy(plan, np.ones(plan.shape), 0.0)
    if form == "product":
        return relative_entropy(plan, np.outer(mu, nu))
    rows, columns = np.append(mu, nu.sum()), np.append(nu, mu.sum())
    return relative_entropy(with_dummies(plan, mu, nu), np.outer(rows, columns) / (mu.sum() + nu.sum()))


def relative_entropy(plan, reference, constant=1.0):
    """KL in its form for measures of any mass; the mass of the reference counts `constant` times."""
    ratio = np.divide(plan, reference, out=np.ones(plan.shape), where=(plan > 0) & (reference > 0))
    ratio = np.maximum(ratio, np.finfo(float).tiny)  # of a denormal entry: it underflows, and counts for nothing
    return (plan * np.log(ratio) - plan + constant * reference).sum()


def with_dummies(plan, mu, nu):
    """The balanced plan: what does not move goes to the dummies, and these exchange as much as moves."""
    return np.block([[plan, (mu - plan.sum(1))[:, None]], [nu - plan.sum(0), plan.sum()]])


def alternate(kernel, a, b, cap=math.inf, power=1.0):
    """Row and column updates in the log domain until nothing changes: the potentials, at most `cap`."""
    f, g = np.zeros(a.size), np.zeros(b.size)
    for _ in range(200_000):
        before = g
        f = np.minimum(cap, power * (a - logsumexp(kernel + g, axis=1)))
        g = np.minimum(cap, power * (b - logsumexp(kernel + f[:, None], axis=0)))
        if np.abs(g - before).max() < 1e-15:
            break
    return f, g


def adaptive_by_alternation(instance, epsilon, form):
    """Plan and potentials."""
    cost, mu, nu = instance
    a, b = (np.log(np.maximum(side, 1e-300)) for side in (mu, nu))
    if form == "augmented":
        n, m = cost.shape
        total = math.log(mu.sum() + nu.sum())
        cost = np.block([[cost, np.zeros((n, 1))], [np.zeros((1, m)), 0.0]])
        a, b = np.append(a, math.log(nu.sum())), np.append(b, math.log(mu.sum()))
        kernel, cap = -cost / epsilon + a[:, None] + b - total, np.inf
    elif form == "product":
        kernel, cap = -cost / epsilon + a[:, None] + b, 0.0
    else:
        kernel, cap = -cost / epsilon, 0.0
    f, g = alternate(kernel, a, b, cap)
    plan = np.exp(f[:, None] + g + kernel)
    if form == "augmented":  # one more unit of a weight is also one more of a dummy
        return plan[:-1, :-1], epsilon * (f[:-1] + g[-1]), epsilon * (g[:-1] + f[-1])
    return plan, epsilon * f, epsilon * g


def minimise_primal(instance, epsilon, form):
    """The regularised value and plan of the cone programme that the definitions are."""
    cost, mu, nu = instance
    plan = cvxpy.Variable(cost.shape, nonneg=True)
    rows, columns = cvxpy.sum(plan, axis=1), cvxpy.sum(plan, axis=0)
    if form == "counting":
        entropies = -cvxpy.entr(plan) - plan
    elif form == "product":
        entropies = cvxpy.kl_div(plan, np.outer(mu, nu))
    else:
        left = cvxpy.reshape(mu - rows, (mu.size, 1), order="C"), cvxpy.reshape(nu - columns, (1, nu.size), order="C")
        whole = cvxpy.bmat([[plan, left[0]], [left[1], cvxpy.reshape(cvxpy.sum(plan), (1, 1), order="C")]])
        total = mu.sum() + nu.sum()
        entropies = cvxpy.kl_div(whole, np.outer(np.append(mu, nu.sum()), np.append(nu, mu.sum())) / total)
    objective = cvxpy.sum(cvxpy.multiply(cost, plan)) + epsilon * cvxpy.sum(entropies)
    value = least_by_clarabel(objective, [rows <= mu, columns <= nu])
    return value, np.asarray(plan.value)


@pytest.fixture(
    autouse=True, scope="module", params=[False, pytest.param(True, marks=pytest.mark.slow)], ids=["", "compiled"]
)
def small_problems(request):
    """How small problems are solved where a test does not say."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(small, "worth_compiling", lambda: request.param)
        yield


def solve(instance, epsilon, form, *, check=True, **options):
    return aot.solve(*instance, solver=aot.Entropic(epsilon, form, **options), raise_if_not_converged=check)


def check_entropic(solution, instance, epsilon, form, optimum=None):
    """Everything that must hold for any entropic solution, converged or not; `optimum` is the exact value."""
    cost, mu, nu = (np.asarray(part, np.float64) for part in instance)
    n, m = cost.shape
    plan = solution.sparse_plan.toarray()
    for name in NUMBERS:
        assert type(getattr(solution, name)) is float, name
        assert math.isfinite(getattr(solution, name)), name
    for name in ARRAYS:
        assert as_numpy(getattr(solution, name)).shape == (n if name.startswith("source") else m,)
        assert np.isfinite(as_numpy(getattr(solution, name))).all(), name
    assert np.isfinite(plan).all()
    rounding = 1e-6 if as_numpy(solution.source_marginal).dtype == np.float32 else 1e-12
    size = np.abs(cost[np.isfinite(cost)]).max(initial=0.0)
    scale = size * min(mu.sum(), nu.sum())
    # feasible, and every number is that of the plan
    rows, columns = plan.sum(1), plan.sum(0)
    violation = max(0.0, (rows - mu).max(initial=0.0), (columns - nu).max(initial=0.0))
    assert plan.min(initial=0.0) >= 0
    assert max(violation, solution.violation) <= 1e-12 * plan.sum()
    np.testing.assert_allclose(as_numpy(solution.plan), plan, rtol=rounding, atol=1e-37)
    np.testing.assert_allclose(as_numpy(solution.source_marginal), rows, rtol=rounding, atol=rounding * plan.sum())
    np.testing.assert_allclose(as_numpy(solution.target_marginal), columns, rtol=rounding, atol=rounding * plan.sum())
    assert solution.mass == pytest.approx(plan.sum(), rel=1e-12)
    carried = plan > 0
    assert abs(solution.value - (plan[carried] * cost[carried]).sum()) <= 1e-12 * size * plan.sum()
    # certified
    f = np.minimum(as_numpy(solution.source_potential).astype(np.float64), 0.0)
    best = np.minimum(0.0, (cost - f[:, None]).min(axis=0, initial=0.0))
    size_of_dual = np.abs(mu * f).sum() + np.abs(nu * best).sum()
    assert abs(solution.gap - max(0.0, solution.value - mu @ f - nu @ best)) <= rounding * (scale + size_of_dual)
    if optimum is not None:
        assert -1e-12 * scale <= solution.value - optimum <= solution.gap + 1e-12 * (scale + size_of_dual)
    # what was minimised, up to how far the plan is from converged
    if solution.status.succeeded:
        regularised = solution.value + epsilon * entropy(form, np.minimum(plan, mu[:, None]), mu, nu)
        span = scale + size_of_dual + epsilon * (mu.sum() + nu.sum() + mu.sum() * nu.sum()) * 50
        assert solution.regularised_value == pytest.approx(regularised, abs=1e-7 * span)


def assert_same(first, second, tolerance=1e-9, potentials=True):
    """Two solutions of one problem, relative to the sizes of their fields."""
    scale = max(1e-300, first.mass, second.mass)
    difference = abs(first.sparse_plan - second.sparse_plan)
    assert difference.max() <= tolerance * scale if difference.nnz else True
    names = ("value", "regularised_value", "mass") + (ARRAYS if potentials else ())
    for name in names:
        one, other = (as_numpy(np.asarray(getattr(side, name))) for side in (first, second))
        size = max(np.abs(one).max(initial=0.0), abs(first.value), scale)
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance * size, err_msg=name)


# 1. Against other methods


@every_form
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("seed", range(6))
def test_alternation(seed, epsilon, form):
    instance = normal_problem(seed)
    if seed % 3 == 1:
        instance.cost[np.random.default_rng(seed).random(instance.cost.shape) < 0.3] = np.inf
        instance.cost[1] = np.inf
    if seed % 3 == 2:
        instance.source_weights[1] = instance.target_weights[2] = 0.0
    solution = solve(instance, epsilon, form, tolerance=1e-13)
    check_entropic(solution, instance, epsilon, form)
    plan, f, g = adaptive_by_alternation(instance, epsilon, form)
    _, mu, nu = instance
    np.testing.assert_allclose(solution.plan, plan, rtol=1e-8, atol=1e-11)
    np.testing.assert_allclose(solution.source_marginal, plan.sum(1), atol=1e-10)
    np.testing.assert_allclose(solution.target_marginal, plan.sum(0), atol=1e-10)
    np.testing.assert_allclose(solution.source_potential[mu > 0], f[mu > 0], rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(solution.target_potential[nu > 0], g[nu > 0], rtol=1e-8, atol=1e-8)
    costs = np.where(plan > 0, instance.cost, 0.0)
    regularised = (costs * plan).sum() + epsilon * entropy(form, np.minimum(plan, mu[:, None]), mu, nu)
    assert solution.regularised_value == pytest.approx(regularised, rel=1e-8, abs=1e-9)


@every_form
@pytest.mark.parametrize("epsilon", [0.05, 0.2, 1.0, 5.0])
def test_primal_by_a_conic_solver(form, epsilon):
    instance = normal_problem(9, 3, 4)
    value, plan = minimise_primal(instance, epsilon, form)
    solution = solve(instance, epsilon, form)
    assert solution.regularised_value == pytest.approx(value, rel=1e-8, abs=1e-8)
    np.testing.assert_allclose(solution.plan, plan, atol=1e-4)


# 2. Certificates


@every_form
@pytest.mark.parametrize("batch", mostly_slow(range(10), 2))
def test_certificate(batch, form):
    """500 problems with everything that makes one degenerate: the exact optimum is within the gap."""
    rng = np.random.default_rng(batch)
    for k in range(50):
        instance = (problems.integer_problem, problems.real_problem)[k % 2](rng)
        optimum = aot.solve(*instance).value
        size = np.abs(instance.cost[np.isfinite(instance.cost)]).max(initial=0.0) or 1.0
        for ratio in (1e-3, 1e-2, 1.0, 1e3)[k % 2 :: 2]:
            solution = solve(instance, ratio * size, form)
            check_entropic(solution, instance, ratio * size, form, optimum)
            judged = solution.problem.gap(solution.plan, solution.source_potential)
            assert judged == pytest.approx(solution.gap, rel=1e-9, abs=1e-11 * size * solution.problem.most_mass)


@every_form
@pytest.mark.parametrize("seed", range(3))
def test_small_epsilon_comes_to_the_exact_solution(seed, form):
    known = problems.permutation(np.random.default_rng(seed), 8)
    errors = []
    for epsilon in (3.0, 1.0, 0.3, 0.1, 0.03, 0.01):
        solution = solve(known.problem, epsilon, form)
        errors.append((solution.value - known.value, known.mass - solution.mass, abs(solution.plan - known.plan).max()))
        assert solution.value - known.value <= solution.gap * (1 + 1e-12) + 1e-9
    assert (np.diff(errors, axis=0) <= 1e-8).all()
    np.testing.assert_allclose(errors[-1], 0.0, atol=1e-6)


# 3. Stability


INSTANCE = normal_problem(0, 6, 7)


def awkward():
    cost, mu, nu = INSTANCE
    rng = np.random.default_rng(1)
    forbidden = cost.copy()
    forbidden[2], forbidden[:, 3] = np.inf, np.inf
    spread = [10.0 ** rng.uniform(-12, 6, side.size) for side in (mu, nu)]
    without = [np.where(np.arange(side.size) % 3 == 0, 0.0, side) for side in (mu, nu)]
    dear = np.where(rng.random(cost.shape) < 0.3, 1e15, cost)
    return {
        "plain": INSTANCE,
        "tiny costs": Instance(1e-8 * cost, mu, nu),
        "huge costs": Instance(1e8 * cost, mu, nu),
        "weights of all sizes": Instance(cost, *spread),
        "one light side": Instance(cost, mu, 1e-12 * nu),
        "one heavy side": Instance(cost, mu, 1e12 * nu),
        "light": Instance(cost, 1e-12 * mu, 1e-12 * nu),
        "heavy": Instance(cost, 1e6 * mu, 1e6 * nu),
        "a denormal weight": Instance(cost, np.append(mu[:-1], 1e-310), nu),
        "zero weights": Instance(cost, *without),
        "no source weight": Instance(cost, 0 * mu, nu),
        "forbidden row and column": Instance(forbidden, mu, nu),
        "half forbidden": Instance(np.where(rng.random(cost.shape) < 0.5, np.inf, cost), mu, nu),
        "all forbidden": Instance(np.full((3, 2), np.inf), np.ones(3), np.ones(2)),
        "positive": Instance(np.abs(cost), mu, nu),
        "negative": Instance(-np.abs(cost) - 1, mu, nu),
        "negative and balanced": Instance(-np.abs(cost[:, :6]) - 1, np.ones(6), np.ones(6)),
        "some prohibitive": Instance(dear, mu, nu),
        "costs of all sizes": Instance(cost * 10.0 ** rng.uniform(-8, 8, cost.shape), mu, nu),
        "constant": Instance(np.full((4, 5), -2.0), np.ones(4), np.ones(5)),
        "zero": Instance(np.zeros((3, 4)), np.ones(3), np.ones(4)),
        "1 x 1": Instance(np.array([[-1.0]]), np.array([2.0]), np.array([3.0])),
        "1 x m": Instance(cost[:1], mu[:1], nu),
        "n x 1": Instance(cost[:, :1], mu, nu[:1]),
        "no sources": Instance(np.zeros((0, 3)), np.zeros(0), np.ones(3)),
        "no targets": Instance(np.zeros((3, 0)), np.ones(3), np.zeros(0)),
        "nothing": Instance(np.zeros((0, 0)), np.zeros(0), np.zeros(0)),
        "float32": Instance(*(part.astype(np.float32) for part in INSTANCE)),
        "Fortran order": Instance(np.asfortranarray(cost), mu, nu),
        "strided": Instance(np.repeat(cost, 2, axis=1)[:, ::2], mu, nu),
    }


@every_form
@pytest.mark.parametrize("name", awkward())
def test_awkward_problems(name, form):
    """No warnings (they are errors), nothing infinite, at every epsilon; convergence, and soon."""
    instance = awkward()[name]
    optimum = aot.solve(*instance).value
    finite = instance.cost[np.isfinite(instance.cost)]
    size = float(np.abs(finite).max(initial=0.0)) or 1.0
    for ratio in (1e-6, 1e-4, 1e-2, 1.0, 1e3, 1e6):
        solution = solve(instance, ratio * size, form)
        assert solution.status is aot.Status.CONVERGED
        assert solution.iterations < 20_000
        check_entropic(solution, instance, ratio * size, form, optimum if name != "float32" else None)
        assert str(solution)


@every_form
@pytest.mark.parametrize("batch", range(4))
def test_small_epsilons_converge(batch, form):
    """100 random problems at a millionth of the largest cost."""
    for seed in range(25 * batch, 25 * batch + 25):
        instance = (problems.integer_problem, problems.real_problem)[seed % 2](np.random.default_rng(seed))
        size = np.abs(instance.cost[np.isfinite(instance.cost)]).max(initial=0.0) or 1.0
        solution = solve(instance, 1e-6 * size, form)
        check_entropic(solution, instance, 1e-6 * size, form, aot.solve(*instance).value)


def test_a_plan_is_the_same_wherever_it_lies_in_memory():
    """Columns are scaled down to their weights by sums of an earlier pass, so a second pass must round alike."""
    rng = np.random.default_rng(0)
    for m in range(2, 14):
        costs, h, plans = 1e6 * rng.random((2, m)), 1e6 * rng.random(m), set()
        scaling, ones = -(h - costs).max(axis=1), np.ones(m)  # every row has an entry of one
        for gap in range(64):
            room = np.empty(3 * m + gap)
            room[:m], plan = h, room[m + gap :].reshape(2, m)
            given = room[:m], scaling, np.ones(2), np.zeros(2), np.full(2, np.inf), ones
            kernels.finish_rows(costs, 0, 1.0, *given, plan, np.empty(2), np.empty(2), np.zeros(m), np.empty(m))
            plans.add(plan.tobytes())
        assert len(plans) == 1


# 4. Laws

PRECISE = 1e-12
SIZES = st.integers(1, 6)
COSTS = st.one_of(st.integers(-4, 4).map(float), st.floats(-10, 10, width=32))
WEIGHTS = st.one_of(st.integers(0, 4).map(float), st.floats(2.0**-10, 10, width=32))
RATIOS = st.sampled_from([0.3, 1.0, 10.0])  # not so small that potentials, and 1e-12, are out of reach


@st.composite
def cases(draw, weights=WEIGHTS, forms=FORMS):
    """An instance, an epsilon and a form."""
    n, m = draw(SIZES), draw(SIZES)
    cost = draw(hnp.arrays(float, (n, m), elements=COSTS))
    mu, nu = (draw(hnp.arrays(float, size, elements=weights)) for size in (n, m))
    epsilon = draw(RATIOS) * max(1.0, float(np.abs(cost).max()))
    return Instance(cost, mu, nu), epsilon, draw(st.sampled_from(forms))


def both(first, second, epsilon, form, second_epsilon=None):
    epsilons = epsilon, second_epsilon or epsilon
    return [solve(one, e, form, tolerance=PRECISE) for one, e in zip((first, second), epsilons, strict=True)]


def unit(instance, epsilon):
    """The size of a regularised value."""
    _, mu, nu = instance
    return (np.abs(instance.cost).max() + 10 * epsilon) * (mu.sum() + nu.sum() + mu.sum() * nu.sum()) + 1e-300


def plan_unit(instance):
    """What may differ between plans at a tolerance that is relative to the weights."""
    _, mu, nu = instance
    return 1e-9 * (mu.sum() + nu.sum()) + 1e-300


def assert_alike(case, one, other, plan, factor=1.0):
    """The same regularised value, up to a factor, and the same plan."""
    value = other.regularised_value / factor
    assert one.regularised_value == pytest.approx(value, abs=1e-11 * unit(case[0], case[1]))
    np.testing.assert_allclose(one.plan, plan, atol=plan_unit(case[0]))


@given(cases())
def test_transpose(case):
    (cost, mu, nu), epsilon, form = case
    one, other = both(Instance(cost, mu, nu), Instance(cost.T, nu, mu), epsilon, form)
    assert_alike(case, one, other, other.plan.T)


@given(cases(), st.randoms(use_true_random=False))
def test_permutation(case, random):
    (cost, mu, nu), epsilon, form = case
    rows, columns = list(range(mu.size)), list(range(nu.size))
    random.shuffle(rows)
    random.shuffle(columns)
    shuffled = Instance(cost[np.ix_(rows, columns)], mu[rows], nu[columns])
    one, other = both(case[0], shuffled, epsilon, form)
    assert_alike(case, one, other, other.plan[np.ix_(np.argsort(rows), np.argsort(columns))])


@given(cases(), st.sampled_from([2.0**-30, 1e-3, 3.0, 1e5]))
def test_scaling_cost_and_epsilon(case, factor):
    instance, epsilon, form = case
    one, other = both(instance, instance._replace(cost=factor * instance.cost), epsilon, form, factor * epsilon)
    assert_alike(case, one, other, other.plan, factor)
    np.testing.assert_allclose(one.source_potential, other.source_potential / factor, atol=1e-7 * epsilon, rtol=1e-7)


@given(cases(), st.sampled_from([2.0**-30, 1e-3, 3.0, 1e5]))
def test_scaling_the_weights(case, factor):
    """In the augmented form everything scales; in the others if the cost makes up for the reference measure."""
    (cost, mu, nu), epsilon, form = case
    drift = {"augmented": 0.0, "product": epsilon * math.log(factor), "counting": -epsilon * math.log(factor)}[form]
    one, other = both(case[0], Instance(cost + drift, factor * mu, factor * nu), epsilon, form)
    np.testing.assert_allclose(factor * one.plan, other.plan, atol=factor * plan_unit(case[0]))
    constant = epsilon * mu.sum() * nu.sum() if form == "product" else 0.0
    expected = factor * (one.regularised_value - constant) + factor**2 * constant
    slack = 1e-10 * (1 + factor) * factor * unit(case[0], epsilon)
    assert other.regularised_value == pytest.approx(expected, abs=slack)


@given(cases(forms=["augmented", "product"]), st.data())
def test_splitting_an_atom(case, data):
    (cost, mu, nu), epsilon, form = case
    row = data.draw(st.integers(0, mu.size - 1))
    share = data.draw(st.sampled_from([0.25, 0.5, 0.9]))
    pieces = np.append(mu, (1 - share) * mu[row])
    pieces[row] *= share
    one, other = both(case[0], Instance(np.vstack([cost, cost[row]]), pieces, nu), epsilon, form)
    merged = other.plan[:-1].copy()
    merged[row] += other.plan[-1]
    assert_alike(case, one, other, merged)
    if mu.sum() * nu.sum() > 0:
        again = np.append(one.source_potential, one.source_potential[row])
        np.testing.assert_allclose(again, other.source_potential, rtol=1e-7, atol=1e-7 * epsilon)


@given(cases())
def test_points_without_weight_change_nothing(case):
    (cost, mu, nu), epsilon, form = case
    assume(mu.sum() * nu.sum() > 0)
    more = np.block([[cost, -3 * np.ones((mu.size, 1))], [2 * np.ones((1, nu.size)), -5.0]])
    one, other = both(case[0], Instance(more, np.append(mu, 0.0), np.append(nu, 0.0)), epsilon, form)
    assert_alike(case, one, other, other.plan[:-1, :-1])
    assert not other.plan[-1].any()
    assert not other.plan[:, -1].any()
    some = mu > 0
    if form == "augmented" or mu.sum() != nu.sum():  # if all weights move, a constant may move between the sides
        np.testing.assert_allclose(
            one.source_potential[some], other.source_potential[:-1][some], rtol=1e-7, atol=1e-7 * epsilon
        )


@given(cases())
def test_solutions_judge_themselves(case):
    instance, epsilon, form = case
    solution = solve(instance, epsilon, form)
    check_entropic(solution, instance, epsilon, form, aot.solve(*instance).value)
    if form != "augmented":
        assert max(solution.source_potential.max(), solution.target_potential.max()) <= 0


@given(cases(forms=["augmented"]))
def test_much_entropy_moves_the_product_of_the_weights(case):
    (cost, mu, nu), _, _ = case
    assume(mu.sum() * nu.sum() > 0)
    solution = solve(case[0], 1e9 * max(1.0, np.abs(cost).max()), "augmented")
    assert solution.mass == pytest.approx(mu.sum() * nu.sum() / (mu.sum() + nu.sum()), rel=1e-7)


@every_form
@pytest.mark.parametrize("epsilon", [0.003, 0.03, 0.1, 1.0, 100.0])
@pytest.mark.parametrize("forbidden", [0.0, 0.4, 0.8])
def test_every_way_to_solve_a_dense_problem(form, epsilon, forbidden, monkeypatch):
    """Compiled, interpreted, with equations too many to solve directly, as a large problem, from stored pairs."""
    instance = normal_problem(5, 40, 30)
    cost, *weights = instance
    cost[np.random.default_rng(5).random((40, 30)) < forbidden] = np.inf
    whole = solve(instance, epsilon, form, tolerance=PRECISE, compiled=True)
    check_entropic(whole, instance, epsilon, form)

    def same(given, **options):
        assert_same(whole, solve((given, *weights), epsilon, form, tolerance=PRECISE, **options), 1e-9)

    same(cost, compiled=False)
    same(stored(cost))
    monkeypatch.setattr(entropic, "FEW_TARGETS", 0)
    same(cost, compiled=False)
    monkeypatch.setattr(entropic, "SMALL", 0)
    same(cost)


@every_form
def test_joint_cost(form):
    rng = np.random.default_rng(3)
    x, z, mu, nu = rng.standard_normal((23, 3)), rng.standard_normal((31, 3)), rng.random(23), rng.random(31)
    p, q = rng.dirichlet(np.ones(4), 23), rng.dirichlet(np.ones(4), 31)
    joint = solve((aot.JointCost(x, z, p, q), mu, nu), 0.05, form, tolerance=PRECISE)
    dense = solve((problems.joint_matrix(x, z, p, q), mu, nu), 0.05, form, tolerance=PRECISE)
    assert_same(joint, dense, 1e-10)


@every_form
def test_around_the_limit_of_small(form):
    """A cloud of 512 x 512 points is small, 513 x 512 is not; the extra one may go nowhere."""
    rng = np.random.default_rng(6)
    x, z = rng.standard_normal((513, 2)), rng.standard_normal((512, 2)) + 0.5
    cost, mu = problems.distance_matrix(x, z, 1.5), np.append(np.ones(512), 0.0)
    cost[-1] = np.inf
    assert cost[:-1].size <= entropic.SMALL < cost.size
    small = solve((cost[:-1], mu[:-1], np.ones(512)), 0.05, form, tolerance=PRECISE)
    large = solve((cost, mu, np.ones(512)), 0.05, form, tolerance=PRECISE)
    np.testing.assert_allclose(small.plan, large.plan[:-1], atol=1e-9)
    assert small.regularised_value == pytest.approx(large.regularised_value, rel=1e-12)
    assert small.gap == pytest.approx(large.gap, rel=1e-6)


@every_form
@pytest.mark.parametrize("rows", [20, 3])
def test_torch_softmin(form, rows, monkeypatch):
    """The code for GPUs, run on the CPU, in one block and in blocks of 3 rows."""
    pytest.importorskip("torch")
    from adaptive_ot.entropic import gpu

    rng = np.random.default_rng(8)
    x, z = rng.standard_normal((20, 2)), rng.standard_normal((17, 2))
    matrix = problems.distance_matrix(x, z, 1.5)
    matrix[3], matrix[:, 4], matrix[rng.random(matrix.shape) < 0.2] = np.inf, np.inf, np.inf
    weights = rng.random(20), rng.random(17) * (np.arange(17) != 5)
    costs = aot.DistanceCost(x, z, 1.5), matrix
    expected = [solve((cost, *weights), 0.1, form, tolerance=PRECISE) for cost in costs]
    monkeypatch.setattr(entropic, "softmin_for", lambda cost: gpu.TorchSoftmin(cost, "cpu"))
    monkeypatch.setattr(gpu, "ENTRIES_PER_BLOCK", rows * 17)
    for cost, solution in zip(costs, expected, strict=True):
        assert_same(solution, solve((cost, *weights), 0.1, form, tolerance=PRECISE), 1e-9)


# 5. Derivatives


@every_form
@pytest.mark.parametrize("epsilon", [0.1, 2.0])
def test_derivatives(form, epsilon):
    """Of the regularised value: by the cost the plan, by the weights the potentials (in the product form, nearly)."""
    _, mu, nu = instance = normal_problem(11, 3, 4)
    at = solve(instance, epsilon, form, tolerance=1e-13)
    by_source, by_target = at.source_potential, at.target_potential
    if form == "product":
        by_source = by_source + epsilon * (nu.sum() - at.source_marginal / mu)
        by_target = by_target + epsilon * (mu.sum() - at.target_marginal / nu)
    for part, (array, slope) in enumerate(zip(instance, (at.plan, by_source, by_target), strict=True)):
        for index in np.ndindex(array.shape):
            h = 1e-5
            ends = []
            for sign in (1, -1):
                moved = [side.copy() for side in instance]
                moved[part][index] += sign * h
                ends.append(solve(moved, epsilon, form, tolerance=1e-13).regularised_value)
            assert (ends[0] - ends[1]) / (2 * h) == pytest.approx(slope[index], abs=1e-7), (part, index)


# 6. Batches


def as_library(array, library):
    return pytest.importorskip("torch").from_numpy(array) if library == "torch" else array


@every_form
@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("weights", ["uniform", "shared", "each"])
def test_batch_is_the_loop(form, library, dtype, weights):
    rng = np.random.default_rng(12)
    costs = rng.standard_normal((5, 6, 7)).astype(dtype)
    costs[2][rng.random((6, 7)) < 0.3] = np.inf
    costs[3] = np.abs(costs[3])
    mu, nu = rng.random((5, 6)).astype(dtype), rng.random((5, 7)).astype(dtype)
    mu[4], nu[1, :3] = 0.0, 0.0
    given = {"uniform": (None, None), "shared": (mu[0], nu[0]), "each": (mu, nu)}[weights]
    solver = aot.Entropic(0.1, form)
    batch = aot.solve(
        as_library(costs, library),
        *(side if side is None else as_library(side, library) for side in given),
        solver=solver,
    )
    assert len(batch) == 5
    assert type(batch.plan).__module__.startswith(library)
    assert as_numpy(batch.plan).dtype == as_numpy(batch.regularised_value).dtype == dtype
    for b in range(5):
        alone = [side if side is None or side.ndim == 1 else side[b] for side in given]
        single = aot.solve(costs[b], *alone, solver=solver)
        assert batch.status[b] is batch[b].status is aot.Status.CONVERGED
        for name in (*NUMBERS, *ARRAYS, "plan", "active_source", "active_target", "iterations"):
            expected = np.asarray(as_numpy(np.asarray(getattr(single, name))))
            stacked = as_numpy(getattr(batch, name))[b]
            np.testing.assert_allclose(stacked, expected.astype(stacked.dtype), rtol=1e-14, atol=1e-300, err_msg=name)
            np.testing.assert_array_equal(as_numpy(np.asarray(getattr(batch[b], name))).astype(stacked.dtype), stacked)
        check_entropic(
            batch[b], Instance(costs[b], single.problem.source_weights, single.problem.target_weights), 0.1, form
        )
        assert [c.mass for c in batch[b].clusters()] == pytest.approx([c.mass for c in single.clusters()], rel=1e-6)


@pytest.mark.parametrize("shape", [(0, 3, 4), (2, 0, 4), (2, 3, 0), (0, 0, 0)])
def test_empty_batch(shape):
    batch = aot.solve(np.zeros(shape), solver=aot.Entropic(0.1))
    assert len(batch) == shape[0]
    assert batch.plan.shape == shape
    assert batch.mass.tolist() == [0.0] * shape[0]
    assert str(batch)
    assert repr(batch)


def test_batch_of_many():
    """More than one round on every thread."""
    costs = np.random.default_rng(13).standard_normal((60, 200, 210))
    reports = []
    batch = aot.solve(costs, solver=aot.Entropic(0.1), progress=reports.append)
    assert [report.fraction for report in reports] == sorted(report.fraction for report in reports)
    assert reports[-1].fraction == 1
    for b in (0, 31, 59):
        assert batch.value[b] == aot.solve(costs[b], solver=aot.Entropic(0.1)).value


def test_batch_that_does_not_converge():
    costs = np.random.default_rng(14).standard_normal((4, 8, 8))
    costs[1] = 5.0 + np.abs(costs[1])
    with pytest.raises(aot.NotConverged, match="of 4 problems") as caught:
        aot.solve(costs, solver=aot.Entropic(0.01, max_iterations=3))
    batch = caught.value.solution
    assert batch.status[0] is aot.Status.ITERATION_LIMIT
    for b in range(4):
        uniform = Instance(costs[b], np.full(8, 1 / 8), np.full(8, 1 / 8))
        check_entropic(batch[b], uniform, 0.01, "augmented", aot.solve(*uniform).value)


# 7. Bad input


@pytest.mark.parametrize(
    ("options", "name"),
    [
        *(({"epsilon": bad}, "epsilon") for bad in (0, 0.0, -1.0, math.nan, math.inf, -math.inf, "small", [0.1], 1j)),
        *(({"entropy": bad}, "entropy") for bad in ("", "Augmented", "shannon", None, 3, ["product"])),
        *(({"tolerance": bad}, "tolerance") for bad in (0.0, -1e-9, math.nan, math.inf, "1e-9", None)),
        *(({"max_iterations": bad}, "max_iterations") for bad in (0, -1, 1.5, math.nan, "many", None)),
        *(({"compiled": bad}, "compiled") for bad in ("yes", 1, np.True_)),
    ],
    ids=str,
)
def test_bad_options(options, name):
    with pytest.raises(aot.InvalidInput, match=name) as caught:
        aot.Entropic(**({"epsilon": 0.1} | options))
    assert caught.value.argument == name


@every_form
@pytest.mark.parametrize("kind", ["small", "steps", "sparse", "points"])
@pytest.mark.parametrize("most", [1, 3])
def test_not_converged(form, kind, most, monkeypatch):
    """What was reached in three passes is feasible, and its gap is true."""
    rng = np.random.default_rng(15)
    x, z = rng.standard_normal((12, 2)), rng.standard_normal((15, 2))
    mu, nu = rng.random(12), rng.random(15)
    cost = problems.distance_matrix(x, z, 2.0)
    given = {"sparse": sparse.csr_array(cost), "points": aot.DistanceCost(x, z, 2.0)}.get(kind, cost)
    monkeypatch.setattr(entropic, "SMALL", 0 if kind == "steps" else entropic.SMALL)
    with pytest.raises(aot.NotConverged, match="iteration limit") as caught:
        solve((given, mu, nu), 0.01, form, max_iterations=most)
    solution = caught.value.solution
    assert solution.status is aot.Status.ITERATION_LIMIT
    check_entropic(solution, Instance(cost, mu, nu), 0.01, form, aot.solve(cost, mu, nu).value)
    quiet = solve((given, mu, nu), 0.01, form, max_iterations=most, check=False)
    assert quiet.value == pytest.approx(solution.value, rel=1e-12)


# 8. Large problems


def test_point_clouds_take_linear_memory(monkeypatch):
    monkeypatch.setattr(cpu, "MOST_ENTRIES", 1000)
    monkeypatch.setattr("numba.get_num_threads", lambda: 2)  # each has blocks of its own
    rng = np.random.default_rng(16)
    n, m = 3000, 2500
    cost = aot.DistanceCost(rng.random((n, 3)), rng.random((m, 3)), reach=0.5)
    solver = aot.Entropic(0.05)
    aot.solve(aot.DistanceCost(cost.x[:99], cost.z[:99], 0.5), solver=solver)  # compile first, for float32 too
    tracemalloc.start()
    try:
        solution = aot.solve(cost, solver=solver)
        mapped = solution.barycentric_map(cost.z)
        solution.by_label(np.arange(n) % 3, np.arange(m) % 2)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 0.35 * n * m * 8  # a few blocks of rows
    dense = aot.solve(problems.distance_matrix(cost.x, cost.z, 0.5), solver=solver)
    assert solution.value == pytest.approx(dense.value, rel=1e-8)
    assert solution.gap == pytest.approx(dense.gap, rel=1e-6)
    np.testing.assert_allclose(mapped, dense.barycentric_map(cost.z, cost.x), atol=1e-7)


def test_progress():
    rng = np.random.default_rng(17)
    cost = aot.DistanceCost(rng.random((700, 2)), rng.random((600, 2)), reach=1.0)
    reports: list[aot.Progress] = []
    solution = aot.solve(cost, solver=aot.Entropic(0.01), progress=reports.append)
    assert {report.stage for report in reports} == {"epsilon"}
    passes = [report.iterations for report in reports]
    assert passes == sorted(passes)
    assert 0 < passes[0] <= passes[-1] <= solution.iterations
    epsilons = [report.epsilon or 0.0 for report in reports]
    assert epsilons == sorted(epsilons, reverse=True)
    assert epsilons[-1] == 0.01
    assert all(report.error > 0 and math.isfinite(report.error) for report in reports)
    assert solution.value == aot.solve(cost, solver=aot.Entropic(0.01)).value


# 9. What a solution can do


@every_form
def test_methods_of_solutions(form):
    """Those of the toy problem, against dense formulas."""
    toy = problems.toy()
    cost, mu, nu = toy.problem
    rng = np.random.default_rng(18)
    x, z = rng.standard_normal((6, 2)), rng.standard_normal((5, 2))
    for costs in (cost, sparse.csr_array(cost)):
        solution = aot.solve(costs, mu, nu, solver=aot.Entropic(0.05, form))
        plan = solution.sparse_plan.toarray()
        np.testing.assert_array_equal(solution.active_source, plan.sum(1) > 0.01 * mu)
        np.testing.assert_array_equal(solution.active_target, plan.sum(0) > 0.01 * nu)
        found = [(cluster.sources.tolist(), cluster.targets.tolist()) for cluster in solution.clusters()]
        assert found == toy.clusters
        table = solution.by_label([0, 0, 1, 1, 0, 1], list("ababa"))
        expected = [[plan[np.ix_(a, b)].sum() for b in ([0, 2, 4], [1, 3])] for a in ([0, 1, 4], [2, 3, 5])]
        np.testing.assert_allclose(table.mass, expected, atol=1e-14)
        assert table.mass.sum() == pytest.approx(solution.mass, rel=1e-12)
        mapped = np.where(solution.active_source[:, None], plan @ z / plan.sum(1)[:, None], x)
        np.testing.assert_allclose(solution.barycentric_map(z, x), mapped, atol=1e-12)
        with pytest.raises(aot.InvalidInput, match="source_points"):
            solution.barycentric_map(z)
        assert "converged" in str(solution)
        assert "CONVERGED" in repr(solution)


def test_methods_on_points():
    rng = np.random.default_rng(19)
    x, z = rng.random((30, 2)), rng.random((40, 2)) + 0.5
    solution = aot.solve(aot.DistanceCost(x, z, 0.5), solver=aot.Entropic(0.01))
    dense = aot.solve(problems.distance_matrix(x, z, 0.5), solver=aot.Entropic(0.01))
    np.testing.assert_allclose(solution.barycentric_map(z), dense.barycentric_map(z, x), atol=1e-8)
    labels = np.arange(30) % 3, np.arange(40) % 4
    np.testing.assert_allclose(solution.by_label(*labels).mass, dense.by_label(*labels).mass, atol=1e-10)
    one, other = ([(c.sources.tolist(), c.targets.tolist()) for c in s.clusters()] for s in (solution, dense))
    assert one == other
    assert sparse.issparse(solution.plan)
    np.testing.assert_allclose(solution.plan.toarray(), dense.plan, atol=1e-10)


@pytest.mark.parametrize("points", [False, True])
def test_solutions_can_be_sent_to_other_processes(points):
    x, z = np.random.default_rng(21).random((2, 6, 2))
    cost = aot.DistanceCost(x, z, 0.5) if points else problems.distance_matrix(x, z, 0.5)
    solution = aot.solve(cost, solver=aot.Entropic(0.1))
    again = pickle.loads(pickle.dumps(solution))
    assert_same(solution, again, 0.0)


@pytest.mark.parametrize("number", [np.float64, np.float32, np.array, int])
def test_epsilon_is_any_number(number):
    expected = aot.solve(INSTANCE.cost, solver=aot.Entropic(float(number(1.5))))
    solution = aot.solve(INSTANCE.cost, solver=aot.Entropic(number(1.5)))
    assert_same(solution, expected, 0.0)
    assert type(solution.regularised_value) is float


def test_plot():
    """Entropy leaves hardly a pair without mass; the pairs that carry most get a line, as many as in an exact plan."""
    from matplotlib import pyplot
    from matplotlib.collections import LineCollection

    from adaptive_ot import plot

    rng = np.random.default_rng(20)
    x, z = rng.random((30, 2)), rng.random((40, 2)) + 0.5
    solution = aot.solve(aot.DistanceCost(x, z, 0.5), solver=aot.Entropic(0.01))
    ax = plot.transport(solution, x, z)
    (lines,) = (each for each in ax.collections if isinstance(each, LineCollection))
    assert len(lines.get_segments()) == 30 + 40 - 1 < solution.sparse_plan.nnz
    pyplot.close("all")
