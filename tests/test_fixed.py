"""Balanced and partial transport against HiGHS, SciPy's assignment solver, POT, laws, and themselves by detours."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse
from scipy.optimize import linear_sum_assignment

import adaptive_ot as aot
import problems
from adaptive_ot.exact import parametric as _parametric
from adaptive_ot.exact import pricing as _pricing
from adaptive_ot.exact.limits import Limits
from adaptive_ot.exact.solver import solve_exact
from budget import mostly_slow
from check import check_family_solution
from problems import Instance, family_reference, weight_scale

BATCHES = 6
INTEGER_PROBLEMS = 180
REAL_PROBLEMS = 180


@pytest.fixture
def small_windows(monkeypatch):
    """Have the smallest problem go through listing windows, blocks, calls and column generation of many kinds."""
    limits = Limits(0, 0, 0, 0, 2, 3, 5000, 1, 5, 16, 2)
    monkeypatch.setattr(sys.modules["adaptive_ot.solve"], "solve_exact", partial(solve_exact, limits=limits))
    pricing_for = _pricing.pricing_for
    monkeypatch.setattr(_pricing, "pricing_for", lambda cost, base=np.inf, _=None: pricing_for(cost, base, limits))


def stored(cost):
    """All allowed pairs, as a sparse matrix; zeros are stored."""
    rows, columns = np.nonzero(np.isfinite(cost))
    return sparse.csr_array((cost[rows, columns], (rows, columns)), shape=cost.shape)


def most_mass(instance: Instance) -> float:
    return float(min(instance.source_weights.sum(), instance.target_weights.sum()))


def solve_fixed(instance: Instance, mass: float, **how: Any) -> aot.Solution:
    """Solve, and have the solution judged."""
    solution = aot.solve(*instance, marginals=aot.FixedMass(mass))
    check_family_solution(solution, *instance, mass, **how)
    return solution


def solve_equal(instance: Instance, **how: Any) -> aot.Solution:
    solution = aot.solve(*instance, marginals=aot.Equal())
    check_family_solution(solution, *instance, None, **how)
    return solution


def check_integer_problem(instance: Instance, rng: np.random.Generator, cost: Any = None) -> None:
    """Every mass of a grid to the last bit, and an error beyond what can move."""
    possible = problems.most_that_can_move(*instance)
    most = int(most_mass(instance))
    cost = instance.cost if cost is None else cost
    is_sparse = sparse.issparse(cost)
    for mass in sorted({0, 1, most // 3, possible - 1, possible, most, int(rng.integers(0, most + 1))} - {-1}):
        if mass > most:
            continue
        if mass > possible:
            with pytest.raises(aot.Infeasible) as caught:
                aot.solve(cost, *instance[1:], marginals=aot.FixedMass(mass))
            assert caught.value.most_mass == pytest.approx(possible, rel=1e-12)
            assert family_reference(*instance, mass, integer=True) is None
            continue
        solution = aot.solve(cost, *instance[1:], marginals=aot.FixedMass(mass))
        check_family_solution(solution, *instance, mass, sparse_plan=is_sparse)
        assert solution.value == family_reference(*instance, mass, integer=True), (instance, mass)
        assert solution.mass == mass
    with pytest.raises(aot.InvalidInput):
        aot.solve(cost, *instance[1:], marginals=aot.FixedMass(most * (1 + 1e-5) + 1e-5))


# Known answers


def test_a_small_balanced_problem():
    solution = solve_equal(Instance(np.array([[-1.0, 2.0], [3.0, 4.0]]), np.full(2, 0.5), np.full(2, 0.5)))
    assert (solution.value, solution.mass, solution.price) == (1.5, 1.0, 0.0)


@pytest.mark.parametrize(
    ("mass", "value", "price"), [(0.25, 0.25, 1.0), (0.5, 0.5, 1.0), (0.75, 1.5, 4.0), (1.0, 2.5, 4.0)]
)
def test_a_small_partial_problem(mass, value, price):
    instance = Instance(np.array([[1.0, 2.0], [3.0, 5.0]]), np.full(2, 0.5), np.full(2, 0.5))
    solution = solve_fixed(instance, mass)
    assert (solution.value, solution.price) == (value, price)


@pytest.mark.parametrize("cost", [-2.0, 0.0, 3.0, 1e-12, 1e12])
@pytest.mark.parametrize(("source_weight", "target_weight"), [(3.0, 5.0), (5.0, 3.0), (1.0, 1.0), (1e-9, 1e9)])
def test_one_pair(cost, source_weight, target_weight):
    instance = Instance(np.array([[cost]]), np.array([source_weight]), np.array([target_weight]))
    for share in (0.0, 0.3, 1.0):
        mass = share * min(source_weight, target_weight)
        solution = solve_fixed(instance, mass)
        assert solution.value == cost * mass
        assert solution.mass == mass


@pytest.mark.parametrize("targets", [1, 2, 9])
def test_one_source_fills_the_cheapest_targets_first(targets):
    rng = np.random.default_rng(targets)
    instance = Instance(rng.standard_normal((1, targets)), np.array([2.0]), rng.random(targets))
    order = np.argsort(instance.cost[0])
    most = most_mass(instance)
    for mass in np.linspace(0.0, most, 7):
        taken = np.diff(np.minimum(np.append(0.0, np.cumsum(instance.target_weights[order])), mass))
        solution = solve_fixed(instance, float(mass))
        assert solution.value == pytest.approx(instance.cost[0, order] @ taken, abs=1e-14)


def test_hidden_permutation():
    known = problems.permutation(np.random.default_rng(3), 60)
    solution = solve_equal(known.problem)
    assert solution.value == known.value
    np.testing.assert_array_equal(solution.plan, known.plan)


def test_known_transportation():
    """Every source must be emptied, so partial transport of all of their mass has the adaptive value."""
    known = problems.transportation(np.random.default_rng(4), 30, 20)
    assert solve_fixed(known.problem, known.mass).value == known.value


def test_sorted_points_on_a_line_are_matched_in_order():
    rng = np.random.default_rng(5)
    x, z = rng.standard_normal(150), rng.standard_normal(150) + 1
    best = ((np.sort(x) - np.sort(z)) ** 2).mean()
    for cost in (aot.DistanceCost(x[:, None], z[:, None], reach=0.0), (x[:, None] - z[None, :]) ** 2):
        assert aot.solve(cost, marginals=aot.Equal()).value == pytest.approx(best, rel=1e-12)


# Random problems against HiGHS


@pytest.mark.parametrize("batch", mostly_slow(range(BATCHES), 2))
def test_integer_partial_problems_to_the_last_bit(batch):
    rng = np.random.default_rng(batch)
    for _ in range(INTEGER_PROBLEMS // BATCHES):
        check_integer_problem(problems.integer_problem(rng), rng)


@pytest.mark.parametrize("batch", mostly_slow(range(BATCHES), 2))
def test_integer_balanced_problems_to_the_last_bit(batch):
    rng = np.random.default_rng(100 + batch)
    solved = 0
    for _ in range(INTEGER_PROBLEMS // BATCHES):
        instance = problems.integer_problem(rng)
        if 0 in instance.cost.shape:
            continue
        instance = problems.balanced(rng, instance)
        reference = family_reference(*instance, integer=True)
        if reference is None:
            with pytest.raises(aot.Infeasible) as caught:
                aot.solve(*instance, marginals=aot.Equal())
            assert caught.value.most_mass == pytest.approx(problems.most_that_can_move(*instance), rel=1e-12)
            continue
        assert solve_equal(instance).value == reference, instance
        solved += 1
    assert solved > INTEGER_PROBLEMS // BATCHES // 3


@pytest.mark.parametrize("batch", mostly_slow(range(BATCHES), 2))
def test_real_partial_problems(batch):
    rng = np.random.default_rng(200 + batch)
    for _ in range(REAL_PROBLEMS // BATCHES):
        instance = problems.real_problem(rng)
        most = most_mass(instance)
        for share in (0.0, 1e-3, rng.random(), 1 - 1e-3, 1.0):
            mass = float(share * most)
            reference = family_reference(*instance, mass)
            if reference is None:
                with pytest.raises(aot.Infeasible):
                    aot.solve(*instance, marginals=aot.FixedMass(mass))
                continue
            solution = solve_fixed(instance, mass)
            assert abs(solution.value - reference) <= 1e-9 * weight_scale(instance, mass), (instance, mass)


@pytest.mark.parametrize("batch", mostly_slow(range(BATCHES), 2))
def test_real_balanced_problems(batch):
    rng = np.random.default_rng(300 + batch)
    for _ in range(REAL_PROBLEMS // BATCHES):
        cost, mu, nu = problems.real_problem(rng)
        if mu.sum() == 0 or nu.sum() == 0:
            continue
        instance = Instance(cost, mu, nu * (mu.sum() / nu.sum()))
        reference = family_reference(*instance)
        if reference is None:
            with pytest.raises(aot.Infeasible):
                aot.solve(*instance, marginals=aot.Equal())
            continue
        solution = solve_equal(instance)
        assert abs(solution.value - reference) <= 1e-9 * weight_scale(instance), instance


@pytest.mark.usefixtures("small_windows")
@pytest.mark.parametrize("batch", range(4))
def test_integer_problems_through_small_windows(batch):
    rng = np.random.default_rng(400 + batch)
    for _ in range(20):
        instance = problems.integer_problem(rng)
        check_integer_problem(instance, rng)
        check_integer_problem(instance, rng, stored(instance.cost))


@pytest.mark.usefixtures("small_windows")
def test_real_problems_through_small_windows():
    rng = np.random.default_rng(500)
    for _ in range(40):
        instance = problems.real_problem(rng)
        for share in (rng.random(), 1.0):
            mass = float(share * most_mass(instance))
            reference = family_reference(*instance, mass)
            if reference is not None:
                value = solve_fixed(instance, mass).value
                assert abs(value - reference) <= 1e-9 * weight_scale(instance, mass), (instance, mass)


@pytest.mark.usefixtures("small_windows")
def test_points_through_small_windows():
    rng = np.random.default_rng(501)
    for n, m, dimension in [(1, 1, 1), (5, 7, 2), (12, 9, 3), (30, 40, 2), (25, 25, 5)]:
        x, z = rng.standard_normal((n, dimension)), rng.standard_normal((m, dimension))
        instance = Instance(problems.distance_matrix(x, z, 1.0), rng.random(n) + 0.1, rng.random(m) + 0.1)
        for share in (0.2, 0.9, 1.0):
            mass = float(share * most_mass(instance))
            solution = aot.solve(aot.DistanceCost(x, z, reach=1.0), *instance[1:], marginals=aot.FixedMass(mass))
            check_family_solution(solution, *instance, mass, sparse_plan=True, cost_scale=50.0)
            assert solution.value == pytest.approx(family_reference(*instance, mass), abs=1e-9 * mass * 50)


def scattered(rng: np.random.Generator, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """A few points on both sides, whose distances have few digits in common with their coordinates or the reach."""
    n, m = rng.integers(1, 9, 2)
    dimension = 1 if kind == "line" else int(rng.integers(2, 12))
    x, z = rng.standard_normal((n, dimension)), rng.standard_normal((m, dimension))
    if kind == "scales":
        scales = 10.0 ** rng.uniform(-8, 8, dimension)
        return x * scales, z * scales
    if kind == "far from zero":
        return x + 1e6, z + 1e6
    if kind == "outliers":
        x[0], z[-1] = 1e8 * x[0], 1e-8 * z[-1]
    return x, z


@pytest.mark.parametrize("kind", ["line", "scales", "far from zero", "outliers"])
def test_points_at_any_scale(kind):
    """The first price must not exceed what any pair costs, in whichever order that cost is summed up."""
    rng = np.random.default_rng(6)
    for _ in range(400):
        x, z = scattered(rng, kind)
        reach = float(rng.choice([0.0, 0.3, 1.0, 100.0, 1e6]))
        mu, nu = np.full(len(x), 1 / len(x)), np.full(len(z), 1 / len(z))
        mass = float(rng.choice([1e-3, 0.25, rng.random(), 0.999]))
        solution = aot.solve(aot.DistanceCost(x, z, reach), marginals=aot.FixedMass(mass))
        cost = problems.distance_matrix(x, z, reach)
        size = float(np.abs(cost).max()) + reach**2
        check_family_solution(solution, cost, mu, nu, mass, sparse_plan=True, cost_scale=size)
        assert abs(solution.value - family_reference(cost, mu, nu, mass)) <= 1e-9 * size * mass, (x, z, reach, mass)


def test_a_price_that_rounding_could_raise():
    solution = aot.solve(aot.DistanceCost([[0.05], [0.52]], [[-0.11], [-0.09]], 1.0), marginals=aot.FixedMass(0.25))
    assert solution.mass == 0.25
    assert solution.value == pytest.approx(0.25 * (0.14**2 - 1), rel=1e-14)


# Large enough for windows and column generation as they are


def medium_costs(kind, rng, n, m):
    """A cost as it is given, as a dense matrix, and the size that its rounding is relative to."""
    x, z = rng.standard_normal((n, 3)), rng.standard_normal((m, 3)) + 0.3
    if kind == "points":
        return aot.DistanceCost(x, z, reach=1.5), problems.distance_matrix(x, z, 1.5), 100.0
    if kind == "classes":
        p, q = np.eye(4)[rng.integers(0, 4, n)], rng.dirichlet(np.ones(4), m)
        return aot.JointCost(x, z, p, q), problems.joint_matrix(x, z, p, q), 100.0
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


KINDS = ["normal", "ties", "positive", "sparse", "single", "points", "classes"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "m"), [(200, 230), (240, 130)])
def test_medium_partial_problems(kind, n, m):
    rng = np.random.default_rng(n)
    cost, dense, scale = medium_costs(kind, rng, n, m)
    instance = Instance(dense, rng.random(n) + 0.1, rng.random(m) + 0.1)
    how = {"sparse_plan": kind in ("sparse", "points", "classes"), "cost_scale": scale}
    for share in (0.35, 1.0):
        mass = float(share * most_mass(instance))
        solution = aot.solve(cost, *instance[1:], marginals=aot.FixedMass(mass))
        check_family_solution(solution, *instance, mass, dtype=np.float32 if kind == "single" else np.float64, **how)
    assert solution.value == pytest.approx(family_reference(*instance, mass), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_medium_balanced_problems_of_uniform_weights(kind):
    n = 300
    rng = np.random.default_rng(7)
    cost, dense, scale = medium_costs(kind, rng, n, n)
    weights = np.ones(n), np.ones(n)
    solution = aot.solve(cost, *weights, marginals=aot.Equal())
    how = {"sparse_plan": kind in ("sparse", "points", "classes"), "cost_scale": scale}
    check_family_solution(
        solution, dense, *weights, None, dtype=np.float32 if kind == "single" else np.float64, precision=10, **how
    )
    assert solution.value == pytest.approx(dense[linear_sum_assignment(dense)].sum(), rel=1e-12, abs=1e-11)


@pytest.mark.parametrize("largest", [0, 1, 3])
@pytest.mark.parametrize("n", [50, 120])
def test_assignments_full_of_ties(largest, n):
    cost = np.random.default_rng(n).integers(0, largest + 1, (n, n)).astype(float)
    solution = solve_equal(Instance(cost, np.ones(n), np.ones(n)))
    assert solution.value == cost[linear_sum_assignment(cost)].sum()


def test_rectangular_assignment():
    """Partial transport of all of the smaller side."""
    cost = np.random.default_rng(8).integers(-20, 50, (120, 400)).astype(float)
    for instance in (Instance(cost, np.ones(120), np.ones(400)), Instance(cost.T.copy(), np.ones(400), np.ones(120))):
        assert solve_fixed(instance, 120.0).value == cost[linear_sum_assignment(cost)].sum()


@pytest.mark.parametrize("seed", range(3))
def test_cardinality_assignment(seed):
    """The best k pairs: unit weights and an integer mass give a matching."""
    rng = np.random.default_rng(seed)
    cost = rng.integers(-9, 10, (40, 30)).astype(float)
    instance = Instance(cost, np.ones(40), np.ones(30))
    for count in (1, 7, 20, 29):
        solution = solve_fixed(instance, float(count))
        assert np.isin(solution.plan, [0.0, 1.0]).all()
        assert solution.value == family_reference(*instance, count, integer=True)


@pytest.mark.parametrize(("n", "m"), [(1, 3000), (3000, 2), (2000, 5)])
def test_one_side_much_larger(n, m):
    rng = np.random.default_rng(9)
    instance = Instance(rng.standard_normal((n, m)), rng.random(n), rng.random(m) * n / m)
    mass = 0.8 * most_mass(instance)
    assert solve_fixed(instance, mass).value == pytest.approx(family_reference(*instance, mass), rel=1e-9)


def test_ties_take_few_steps():
    """Where all pairs cost the same, any plan that moves enough is optimal."""
    n = 60
    for marginals in (aot.Equal(), aot.FixedMass(0.9)):
        assert aot.solve(np.zeros((n, n)), marginals=marginals).iterations <= 10 * n


def test_costs_that_tie_up_to_rounding():
    """Of a_i + b_j, the cheapest sources go to the cheapest targets, in any way; all reduced costs are rounding."""
    n = 150
    a, b = np.random.default_rng(0).normal(size=(2, n))
    for count in (n // 2, n - 1, n):
        expected = (np.sort(a)[:count].sum() + np.sort(b)[:count].sum()) / n
        solution = aot.solve(a[:, None] + b, marginals=aot.FixedMass(count / n))
        assert solution.value == pytest.approx(expected, abs=1e-12)
        assert solution.iterations <= 40 * n


@pytest.fixture
def listings(monkeypatch):
    """Count how often the pairs of a walk are listed, and how often its kernel is called."""
    counts = {"below": 0, "raise_price": 0}

    def counted(owner: Any, name: str) -> None:
        function = getattr(owner, name)

        def call(*arguments: Any) -> Any:
            counts[name] += 1
            return function(*arguments)

        monkeypatch.setattr(owner, name, call)

    counted(_pricing.BlockPricing, "below")
    counted(_parametric, "raise_price")
    return counts


def test_tied_pairs_are_not_looked_at_for_every_price(listings):
    """The work of a call is bounded, so calls count the work: it grew with the cube of the number of points."""
    a, b = np.random.default_rng(0).normal(size=(2, 1000))
    path = aot.mass_path(a[:, None] + b)
    assert path.value_at(0.9) == pytest.approx((np.sort(a)[:900].sum() + np.sort(b)[:900].sum()) / 1000, abs=1e-12)
    assert listings["raise_price"] <= 30


@pytest.mark.parametrize("seed", range(4))
def test_ties_fill_no_windows(listings, seed):
    """Windows of a walk stay as wide as those of other costs: ties are in all of them, however narrow."""
    n = 500
    a, b = np.random.default_rng(seed).normal(size=(2, n))
    solution = aot.solve(a[:, None] + b, marginals=aot.FixedMass(0.9))
    assert solution.value == pytest.approx((np.sort(a)[:450].sum() + np.sort(b)[:450].sum()) / n, abs=1e-12)
    assert solution.iterations <= 6 * n
    assert max(listings.values()) <= 60


@pytest.mark.parametrize("seed", range(2))
def test_a_walk_ends_when_nothing_is_left(listings, seed):
    n = 500
    a, b = np.random.default_rng(seed).normal(size=(2, n))
    path = aot.mass_path(a[:, None] + b)
    prices = np.repeat(path.price, np.rint(np.diff(path.mass) * n).astype(int))
    np.testing.assert_allclose(prices, np.sort(a) + np.sort(b), rtol=0, atol=1e-12)
    assert max(listings.values()) <= 50


# Against POT


@pytest.mark.parametrize("seed", range(3))
def test_against_pot(seed):
    ot = pytest.importorskip("ot")
    rng = np.random.default_rng(seed)
    cost, mu, nu = rng.random((40, 50)), rng.dirichlet(np.ones(40)), rng.dirichlet(np.ones(50))
    assert aot.solve(cost, mu, nu, marginals=aot.Equal()).value == pytest.approx(ot.emd2(mu, nu, cost), rel=1e-10)
    for mass in (0.2, 0.7):
        expected = ot.partial.partial_wasserstein2(mu, nu, cost, m=mass)
        assert aot.solve(cost, mu, nu, marginals=aot.FixedMass(mass)).value == pytest.approx(expected, rel=1e-9)


# Laws

SIZES = st.integers(1, 6)
COSTS = st.one_of(st.integers(-4, 4).map(float), st.floats(-10, 10, width=32))
WEIGHTS = st.one_of(st.integers(0, 4).map(float), st.floats(0, 10, width=32).filter(lambda w: w == 0 or w > 1e-6))
SHARES = st.one_of(st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.floats(0, 1))

LAW = settings(max_examples=80)


@st.composite
def partial_problems(draw):
    n, m = draw(SIZES), draw(SIZES)
    cost = draw(hnp.arrays(float, (n, m), elements=COSTS))
    weights = [draw(hnp.arrays(float, size, elements=WEIGHTS)) for size in (n, m)]
    instance = Instance(cost, *weights)
    return instance, draw(SHARES) * most_mass(instance)


@st.composite
def balanced_problems(draw):
    """Weights are sums of shipments, so that both sides are equally heavy to the last bit."""
    n, m = draw(SIZES), draw(SIZES)
    shipped = draw(hnp.arrays(float, (n, m), elements=st.integers(0, 3).map(float)))
    return Instance(draw(hnp.arrays(float, (n, m), elements=COSTS)), shipped.sum(axis=1), shipped.sum(axis=0))


def assert_same(first, second, scale, precision=1e-13):
    assert abs(first - second) <= precision * scale + 1e-300, f"{first} and {second}"


@LAW
@given(partial_problems())
def test_transpose(problem):
    instance, mass = problem
    turned = Instance(instance.cost.T.copy(), instance.target_weights, instance.source_weights)
    there, back = solve_fixed(turned, mass), solve_fixed(instance, mass)
    assert_same(there.value, back.value, weight_scale(instance, mass))


@LAW
@given(partial_problems(), st.randoms(use_true_random=False))
def test_permutation(problem, random):
    (cost, mu, nu), mass = problem
    rows, columns = list(range(mu.size)), list(range(nu.size))
    random.shuffle(rows)
    random.shuffle(columns)
    shuffled = Instance(cost[np.ix_(rows, columns)], mu[rows], nu[columns])
    assert_same(solve_fixed(shuffled, mass).value, solve_fixed(problem[0], mass).value, weight_scale(problem[0], mass))


@LAW
@given(partial_problems(), st.sampled_from([-7.0, -0.3, 1.0, 100.0]))
def test_adding_a_constant_costs_it_for_every_unit(problem, constant):
    instance, mass = problem
    dearer = instance._replace(cost=instance.cost + constant)
    expected = solve_fixed(instance, mass).value + constant * mass
    assert_same(solve_fixed(dearer, mass).value, expected, weight_scale(dearer, mass) + 10 * mass)


@LAW
@given(
    partial_problems(),
    st.sampled_from([2.0**-20, 0.1, 3.0, 2.0**20]),
    st.sampled_from([2.0**-20, 0.1, 3.0, 2.0**20]),
)
def test_scaling(problem, cost_factor, weight_factor):
    instance, mass = problem
    scaled = Instance(cost_factor * instance.cost, *(weight_factor * side for side in instance[1:]))
    scaled_mass = min(weight_factor * mass, most_mass(scaled))
    value = solve_fixed(instance, mass).value * cost_factor * weight_factor
    assert_same(solve_fixed(scaled, scaled_mass).value, value, weight_scale(scaled, scaled_mass))


@LAW
@given(balanced_problems(), st.data())
def test_balanced_transport_does_not_see_what_every_plan_pays(instance, data):
    """C_ij + a_i + b_j adds the same to every plan."""
    cost, mu, nu = instance
    a, b = (data.draw(hnp.arrays(float, side.size, elements=COSTS)) for side in (mu, nu))
    other = Instance(cost + a[:, None] + b[None, :], mu, nu)
    expected = solve_equal(instance).value + mu @ a + nu @ b
    assert_same(solve_equal(other).value, expected, weight_scale(other) + weight_scale(instance) + 40 * mu.sum())


@LAW
@given(balanced_problems())
def test_balanced_transport_is_partial_transport_of_everything(instance):
    everything = float(instance.source_weights.sum())
    assert_same(solve_equal(instance).value, solve_fixed(instance, everything).value, weight_scale(instance))


@LAW
@given(balanced_problems())
def test_balanced_transport_of_rewards_is_adaptive(instance):
    """If every pair pays, adaptive transport moves everything."""
    paying = instance._replace(cost=instance.cost - 11.0)
    assert_same(solve_equal(paying).value, aot.solve(*paying).value, weight_scale(paying))


@LAW
@given(partial_problems())
def test_partial_transport_is_adaptive_transport_less_the_price(problem):
    instance, mass = problem
    solution = solve_fixed(instance, mass)
    adaptive = aot.solve(instance.cost - solution.price, *instance[1:])
    scale = weight_scale(instance, most_mass(instance)) + abs(solution.price) * most_mass(instance)
    assert_same(solution.value - solution.price * mass, adaptive.value, scale)


@LAW
@given(partial_problems(), SHARES)
def test_value_is_convex_in_the_mass(problem, share):
    instance, mass = problem
    other = share * most_mass(instance)
    middle = (mass + other) / 2
    chord = (solve_fixed(instance, mass).value + solve_fixed(instance, other).value) / 2
    assert solve_fixed(instance, middle).value <= chord + 1e-13 * weight_scale(instance)


@LAW
@given(partial_problems(), SHARES)
def test_the_price_is_a_slope(problem, share):
    """value(other) >= value(mass) + price * (other - mass), for every other mass."""
    instance, mass = problem
    other = share * most_mass(instance)
    solution = solve_fixed(instance, mass)
    line = solution.value + solution.price * (other - mass)
    scale = weight_scale(instance) + abs(solution.price) * most_mass(instance)
    assert solve_fixed(instance, other).value >= line - 1e-13 * scale


@LAW
@given(partial_problems())
def test_positive_costs_grow_with_the_mass(problem):
    instance, mass = problem
    dear = instance._replace(cost=np.abs(instance.cost))
    assert solve_fixed(dear, mass / 2).value <= solve_fixed(dear, mass).value + 1e-13 * weight_scale(instance)


@LAW
@given(partial_problems())
def test_the_adaptive_mass_is_the_cheapest(problem):
    instance, mass = problem
    adaptive = aot.solve(*instance)
    scale = weight_scale(instance)
    assert solve_fixed(instance, min(adaptive.mass, most_mass(instance))).value <= adaptive.value + 1e-13 * scale
    assert solve_fixed(instance, mass).value >= adaptive.value - 1e-13 * scale


# Scales


@pytest.mark.parametrize("cost_factor", [1e8, 1e-8, 1e-60, 1e60])
@pytest.mark.parametrize("weight_factor", [1.0, 1e12, 1e-12, 1e-30])
def test_scale(cost_factor, weight_factor):
    rng = np.random.default_rng(14)
    plain = Instance(rng.standard_normal((20, 30)), rng.random(20) + 0.1, rng.random(30) + 0.1)
    mass = 0.6 * most_mass(plain)
    expected = family_reference(*plain, mass)
    scaled = Instance(cost_factor * plain.cost, *(weight_factor * side for side in plain[1:]))
    solution = solve_fixed(scaled, weight_factor * mass)
    assert solution.value == pytest.approx(expected * cost_factor * weight_factor, rel=1e-11)


@pytest.mark.parametrize("seed", range(8))
def test_weights_over_many_orders_of_magnitude(seed):
    rng = np.random.default_rng(seed)
    cost = rng.integers(-9, 10, (15, 20)).astype(float)
    instance = Instance(cost, 10.0 ** rng.uniform(-12, 12, 15), 10.0 ** rng.uniform(-12, 12, 20))
    for share in (1e-12, 1e-6, 0.5, 1.0):
        mass = share * most_mass(instance)
        solution = solve_fixed(instance, mass)
        reference = family_reference(*instance, mass)
        assert reference is not None
        assert abs(solution.value - reference) <= 1e-7 * weight_scale(instance, mass)


def test_costs_over_many_orders_of_magnitude():
    rng = np.random.default_rng(15)
    cost = rng.choice([-1.0, 1.0], (30, 30)) * 10.0 ** rng.uniform(-6, 6, (30, 30))
    solution = aot.solve(cost, np.ones(30), np.ones(30), marginals=aot.Equal())
    assert solution.value == pytest.approx(cost[linear_sum_assignment(cost)].sum(), rel=1e-12)


@pytest.mark.parametrize("seed", range(30))
def test_near_ties_of_very_different_sizes(seed):
    """Many paths differ by less than rounding: the walk must come to an end, and soon."""
    rng = np.random.default_rng(seed)
    n, m = rng.integers(5, 40, 2)
    by_row, by_column = 10.0 ** rng.uniform(-3, 3, n), 10.0 ** rng.uniform(-3, 3, m)
    cost = by_row[:, None] + by_column[None, :] + 1e-3 * rng.integers(0, 2, (n, m))
    instance = Instance(cost, rng.integers(0, 3, n).astype(float), rng.integers(1, 4, m) * 0.1)
    for share in (0.5, 1.0):
        mass = share * most_mass(instance)
        solution = solve_fixed(instance, mass, precision=10)
        assert solution.iterations < 50 * (n + m)
        reference = family_reference(*instance, mass)
        assert reference is not None
        assert abs(solution.value - reference) <= 1e-9 * weight_scale(instance, mass)


@pytest.mark.parametrize("distance", [0.0, 1e-15, 1e-13, 1e-9, 1e-3])
def test_masses_around_a_corner(distance):
    """The path of this problem has a corner at 0.5."""
    instance = Instance(np.array([[1.0, 2.0], [3.0, 5.0]]), np.full(2, 0.5), np.full(2, 0.5))
    for mass in (0.5 - distance, 0.5 + distance, 1.0 - distance, distance):
        expected = mass if mass <= 0.5 else 0.5 + 4 * (mass - 0.5)
        assert solve_fixed(instance, mass).value == pytest.approx(expected, rel=1e-12, abs=1e-300)


@pytest.mark.parametrize("share", [1 - 1e-7, 1 + 1e-7, 1 + 1e-12])
def test_masses_about_everything(share):
    """Rounding may ask for a little more than there is."""
    instance = Instance(np.ones((3, 4)), np.full(3, 0.1), np.full(4, 0.1))
    solution = aot.solve(*instance, marginals=aot.FixedMass(share * 0.3))
    assert solution.mass == pytest.approx(min(share, 1.0) * 0.3, rel=1e-12)


# What is forbidden


def test_forbidden_pairs_in_the_way():
    cost = np.array([[1.0, np.inf], [1.0, np.inf]])
    with pytest.raises(aot.Infeasible, match=r"a mass of 1: only 0\.5 can move"):
        aot.solve(cost, marginals=aot.Equal())
    with pytest.raises(aot.Infeasible) as caught:
        aot.solve(cost, marginals=aot.FixedMass(0.75))
    assert (caught.value.mass, caught.value.most_mass) == (0.75, 0.5)
    assert aot.solve(cost, marginals=aot.FixedMass(0.5)).value == 0.5


def test_pairs_that_are_not_stored_are_forbidden():
    cost = sparse.csr_array(([1.0, 2.0], ([0, 1], [0, 0])), shape=(2, 2))
    with pytest.raises(aot.Infeasible):
        aot.solve(cost, marginals=aot.Equal())
    solution = aot.solve(cost, marginals=aot.FixedMass(0.5))
    check_family_solution(
        solution, np.array([[1, np.inf], [2, np.inf]]), np.full(2, 0.5), np.full(2, 0.5), 0.5, sparse_plan=True
    )
    assert solution.value == 0.5


def test_everything_forbidden():
    cost = np.full((3, 4), np.inf)
    with pytest.raises(aot.Infeasible):
        aot.solve(cost, marginals=aot.Equal())
    with pytest.raises(aot.Infeasible):
        aot.solve(cost, marginals=aot.FixedMass(1e-3))
    solution = aot.solve(cost, marginals=aot.FixedMass(0.0))
    assert (solution.value, solution.mass, solution.gap) == (0.0, 0.0, 0.0)


def test_forbidden_points_without_weight_are_no_obstacle():
    cost = np.array([[1.0, np.inf], [np.inf, np.inf]])
    instance = Instance(cost, np.array([1.0, 0.0]), np.array([1.0, 0.0]))
    assert solve_equal(instance).value == 1.0


@pytest.mark.parametrize("n", [60, 250])
def test_only_one_plan_is_allowed(n):
    """Forbidden pairs leave a single permutation, however much it costs."""
    rng = np.random.default_rng(n)
    order = rng.permutation(n)
    cost = np.where(np.arange(n)[:, None] > np.arange(n)[None, :], np.inf, rng.standard_normal((n, n)))
    cost[np.arange(n), np.arange(n)] = 1e6
    cost = cost[:, order]
    solution = solve_equal(Instance(cost, np.ones(n), np.ones(n)))
    assert solution.value == 1e6 * n


# Containers


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_answers_come_back_in_kind(dtype, library):
    rng = np.random.default_rng(20)
    dense = rng.standard_normal((9, 9)).astype(dtype)
    instance = Instance(dense.astype(float), np.full(9, 1.0), np.full(9, 1.0))
    cost, weights = dense, instance[1:]
    if library == "torch":
        torch = pytest.importorskip("torch")
        cost, weights = torch.as_tensor(dense), tuple(torch.as_tensor(side) for side in weights)
    how = {"dtype": dtype, "library": library}
    equal = aot.solve(cost, *weights, marginals=aot.Equal())
    check_family_solution(equal, *instance, None, **how)
    assert equal.value == pytest.approx(instance.cost[linear_sum_assignment(dense)].sum(), rel=1e-13)
    partial = aot.solve(cost, *weights, marginals=aot.FixedMass(4.5))
    check_family_solution(partial, *instance, 4.5, **how)


def test_nested_lists_and_integers():
    assert aot.solve([[1, 2], [3, 5]], marginals=aot.FixedMass(1)).value == 2.5
    assert aot.solve([[1, 2], [3, 5]], [1, 1], [1, 1], marginals=aot.Equal()).value == 5.0


@pytest.mark.parametrize("layout", [sparse.csr_array, sparse.csc_array, sparse.coo_array, sparse.csr_matrix])
def test_sparse_layouts(layout):
    rng = np.random.default_rng(21)
    cost = rng.integers(-5, 6, (12, 15)).astype(float)
    cost[rng.random(cost.shape) < 0.3] = np.inf
    instance = Instance(cost, rng.integers(1, 9, 12).astype(float), rng.integers(1, 9, 15).astype(float))
    mass = problems.most_that_can_move(*instance)
    solution = aot.solve(layout(stored(cost)), *instance[1:], marginals=aot.FixedMass(mass))
    check_family_solution(solution, *instance, mass, sparse_plan=True)
    assert solution.value == family_reference(*instance, mass, integer=True)


@pytest.mark.parametrize("shape", [(0, 0), (0, 4), (4, 0)])
def test_empty(shape):
    solution = aot.solve(np.zeros(shape), marginals=aot.FixedMass(0.0))
    assert (solution.value, solution.mass, solution.plan.shape) == (0.0, 0.0, shape)
    with pytest.raises(aot.InvalidInput):
        aot.solve(np.zeros(shape), marginals=aot.FixedMass(0.5))


def test_empty_balanced():
    assert aot.solve(np.zeros((0, 0)), marginals=aot.Equal()).value == 0.0
    with pytest.raises(aot.InvalidInput):
        aot.solve(np.zeros((0, 3)), marginals=aot.Equal())


def test_all_weights_zero():
    for marginals in (aot.Equal(), aot.FixedMass(0.0)):
        solution = aot.solve(np.ones((3, 2)), np.zeros(3), np.zeros(2), marginals=marginals)
        assert (solution.value, solution.mass, solution.violation) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("marginals", [aot.Equal(), aot.FixedMass(0.4)])
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_a_batch_is_a_loop(marginals, library):
    costs = np.random.default_rng(22).standard_normal((5, 6, 7))
    given = costs if library == "numpy" else pytest.importorskip("torch").as_tensor(costs)
    batch = aot.solve(given, marginals=marginals)
    for cost, together, price in zip(costs, batch, batch.price, strict=True):
        alone = aot.solve(cost, marginals=marginals)
        assert together.value == pytest.approx(alone.value, rel=1e-13)
        assert together.mass == pytest.approx(alone.mass, rel=1e-13)
        assert float(price) == pytest.approx(alone.price, rel=1e-13)
        mass = marginals.mass if isinstance(marginals, aot.FixedMass) else None
        check_family_solution(together, cost, np.full(6, 1 / 6), np.full(7, 1 / 7), mass, library=library)


def test_a_batch_of_larger_problems_is_a_loop():
    costs = np.random.default_rng(23).standard_normal((2, 260, 260))
    batch = aot.solve(costs, marginals=aot.Equal())
    for cost, together in zip(costs, batch, strict=True):
        assert together.value == pytest.approx(cost[linear_sum_assignment(cost)].mean(), rel=1e-12)


def test_a_batch_with_an_infeasible_problem():
    costs = np.ones((3, 2, 2))
    costs[1] = np.inf
    with pytest.raises(aot.Infeasible):
        aot.solve(costs, marginals=aot.Equal())


# Bad input


@pytest.mark.parametrize("mass", [-1.0, -1e-300, np.nan, np.inf, -np.inf, "half", None, [0.5], 1e101])
def test_masses_that_are_none(mass):
    with pytest.raises(aot.InvalidInput, match="mass"):
        aot.FixedMass(mass)


def test_more_mass_than_there_is():
    with pytest.raises(aot.InvalidInput, match="at most the smaller of the total weights, 2"):
        aot.solve(np.ones((2, 3)), [1.0, 1.0], [1.0, 1.0, 1.0], marginals=aot.FixedMass(2.001))


def test_totals_must_be_equal():
    with pytest.raises(aot.InvalidInput, match="same total"):
        aot.solve(np.ones((2, 2)), [1.0, 1.0], [1.0, 1.1], marginals=aot.Equal())
    with pytest.raises(aot.InvalidInput, match="same total"):
        aot.solve(np.ones((2, 2)), [1.0, 1.0], [0.0, 0.0], marginals=aot.Equal())


def test_totals_may_differ_by_rounding():
    weights = np.array([0.1, 0.2, 0.7], np.float32), np.array([0.3, 0.3, 0.4], np.float32)
    solution = aot.solve(np.ones((3, 3)), *weights, marginals=aot.Equal())
    assert solution.value == pytest.approx(1.0, rel=1e-7)
    assert solution.violation <= 1e-15
    np.testing.assert_allclose(solution.target_marginal, weights[1], rtol=1e-6)


@pytest.mark.parametrize("marginals", ["equal", aot.Equal, 3.0])
def test_marginals_must_be_a_model(marginals):
    with pytest.raises(aot.InvalidInput, match="marginals"):
        aot.solve(np.ones((2, 2)), marginals=marginals)


# Progress, limits, determinism


def test_progress_is_reported():
    seen = []
    rng = np.random.default_rng(24)
    cost = rng.random((150, 170))
    aot.solve(cost, marginals=aot.FixedMass(0.5), progress=seen.append)
    assert "walking" in {now.stage for now in seen}
    fractions = [now.fraction for now in seen if now.stage == "walking"]
    assert all(0 <= fraction <= 1 for fraction in fractions)
    assert fractions == sorted(fractions)


def test_exceptions_of_progress_pass_through():
    def stop(now):
        if now.stage == "walking":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        aot.solve(np.random.default_rng(25).random((50, 60)), marginals=aot.FixedMass(0.5), progress=stop)


def test_pivot_limit():
    cost = np.random.default_rng(26).random((60, 60))
    with pytest.raises(aot.NotConverged) as caught:
        aot.solve(cost, marginals=aot.Equal(), solver=aot.Exact(max_pivots=5))
    assert caught.value.solution.status is aot.Status.PIVOT_LIMIT
    assert caught.value.solution.violation > 0.01


def test_inputs_stay_as_they_are():
    rng = np.random.default_rng(27)
    cost, mu, nu = rng.standard_normal((20, 30)), rng.random(20), rng.random(30)
    nu *= mu.sum() / nu.sum() * (1 + 1e-9)
    matrix = stored(cost)
    before = [array.copy() for array in (cost, mu, nu, matrix.data)]
    for form in (cost, matrix):
        for marginals in (aot.Equal(), aot.FixedMass(0.5 * mu.sum())):
            aot.solve(form, mu, nu, marginals=marginals)
    for array, copy in zip((cost, mu, nu, matrix.data), before, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_read_only_and_strided_input():
    cost = np.random.default_rng(28).standard_normal((40, 60))
    expected = aot.solve(cost[::2, ::3].copy(), marginals=aot.FixedMass(0.5)).value
    strided = cost[::2, ::3]
    strided.flags.writeable = False
    assert aot.solve(strided, marginals=aot.FixedMass(0.5)).value == expected


def test_same_answer_twice():
    cost = np.random.default_rng(29).standard_normal((150, 150))
    first, second = (aot.solve(cost, marginals=aot.FixedMass(0.7)) for _ in range(2))
    np.testing.assert_array_equal(first.plan, second.plan)
    np.testing.assert_array_equal(first.source_potential, second.source_potential)
    assert first.price == second.price
