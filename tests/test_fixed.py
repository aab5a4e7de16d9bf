"""Balanced and partial transport against HiGHS, SciPy's assignment solver, POT, and themselves by detours."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linear_sum_assignment

import adaptive_ot as aot
import problems
from adaptive_ot.exact import columns, robust  # noqa: F401  robust is imported before `pricing_for` is patched
from adaptive_ot.exact import parametric as _parametric
from adaptive_ot.exact.limits import Limits
from adaptive_ot.exact.pricing import BlockPricing
from adaptive_ot.exact.solver import solve_exact
from budget import mostly_slow
from check import check_solution, marginals_of, solve_checked
from problems import KINDS, Instance, expected_form, family_reference, medium_costs, most_mass, stored, weight_scale

BATCHES = 6
INTEGER_PROBLEMS = 180
REAL_PROBLEMS = 180


@pytest.fixture
def small_windows(monkeypatch):
    """Have the smallest problem go through listing windows, blocks, calls and column generation of many kinds."""
    limits = Limits(0, 0, 0, 0, 2, 3, 5000, 1, 5, 16, 2)
    monkeypatch.setattr(sys.modules["adaptive_ot.solve"], "solve_exact", partial(solve_exact, limits=limits))
    small = partial(columns.pricing_for, limits=limits)
    monkeypatch.setattr(columns, "pricing_for", lambda cost, base=np.inf, *_: small(cost, base))


def check_integer_problem(instance: Instance, mass: float | None, given: Any = None) -> bool:
    """To the last bit, or an error that says how much can move; returns whether the problem can be solved."""
    reference = family_reference(*instance, mass, integer=True)
    if reference is None:
        with pytest.raises(aot.Infeasible) as caught:
            aot.solve(instance.cost if given is None else given, *instance[1:], marginals=marginals_of(mass))
        assert caught.value.most_mass == pytest.approx(problems.most_that_can_move(*instance), rel=1e-12)
        return False
    solution = solve_checked(instance, mass, given, sparse_plan=given is not None)
    assert solution.value == reference, (instance, mass)
    assert solution.mass == (instance.source_weights.sum() if mass is None else mass)
    return True


def check_integer_masses(instance: Instance, rng: np.random.Generator, given: Any = None) -> None:
    """A grid of masses, and an error beyond what there is."""
    possible, most = problems.most_that_can_move(*instance), int(most_mass(instance))
    for mass in {0, 1, most // 3, possible - 1, possible, most, int(rng.integers(0, most + 1))}:
        if 0 <= mass <= most:
            assert check_integer_problem(instance, float(mass), given) == (mass <= possible)
    with pytest.raises(aot.InvalidInput):
        aot.solve(instance.cost, *instance[1:], marginals=aot.FixedMass(most * (1 + 1e-5) + 1e-5))


def check_real_problem(instance: Instance, mass: float | None, given: Any = None, **how: Any) -> None:
    reference = family_reference(*instance, mass)
    if reference is None:
        with pytest.raises(aot.Infeasible):
            aot.solve(*instance, marginals=marginals_of(mass))
        return
    assert_least(solve_checked(instance, mass, given, **how), instance, mass, weight_scale(instance, mass))


def assert_least(solution: aot.Solution, instance: Instance, mass: float | None, size: float) -> None:
    reference = family_reference(*instance, mass)
    assert reference is not None
    assert abs(solution.value - reference) <= 1e-9 * size, (instance, mass)


# Known answers


@pytest.mark.parametrize(
    ("mass", "value", "price"),
    [(0.25, 0.25, 1.0), (0.5, 0.5, 1.0), (0.75, 1.5, 4.0), (1.0, 2.5, 4.0), (None, 2.5, 0.0)],
)
def test_a_small_problem(mass, value, price):
    solution = solve_checked(Instance(np.array([[1.0, 2.0], [3.0, 5.0]]), np.full(2, 0.5), np.full(2, 0.5)), mass)
    assert (solution.value, solution.price) == (value, price)


@pytest.mark.parametrize("cost", [-2.0, 0.0, 3.0, 1e-12, 1e12])
@pytest.mark.parametrize(("source_weight", "target_weight"), [(3.0, 5.0), (5.0, 3.0), (1.0, 1.0), (1e-9, 1e9)])
def test_one_pair(cost, source_weight, target_weight):
    instance = Instance(np.array([[cost]]), np.array([source_weight]), np.array([target_weight]))
    for share in (0.0, 0.3, 1.0):
        mass = share * most_mass(instance)
        solution = solve_checked(instance, mass)
        assert (solution.value, solution.mass) == (cost * mass, mass)


@pytest.mark.parametrize("targets", [1, 2, 9])
def test_one_source_fills_the_cheapest_targets_first(targets):
    rng = np.random.default_rng(targets)
    instance = Instance(rng.standard_normal((1, targets)), np.array([2.0]), rng.random(targets))
    order = np.argsort(instance.cost[0])
    for mass in np.linspace(0.0, most_mass(instance), 7).tolist():
        taken = np.diff(np.minimum(np.append(0.0, np.cumsum(instance.target_weights[order])), mass))
        assert solve_checked(instance, mass).value == pytest.approx(instance.cost[0, order] @ taken, abs=1e-14)


def test_known_plans():
    known = problems.permutation(np.random.default_rng(3), 60)
    solution = solve_checked(known.problem, None)
    assert solution.value == known.value
    np.testing.assert_array_equal(solution.plan, known.plan)
    # Every source must be emptied, so partial transport of all of their mass has the adaptive value.
    known = problems.transportation(np.random.default_rng(4), 30, 20)
    assert solve_checked(known.problem, known.mass).value == known.value


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
        check_integer_masses(problems.integer_problem(rng), rng)


@pytest.mark.parametrize("batch", mostly_slow(range(BATCHES), 2))
def test_integer_balanced_problems_to_the_last_bit(batch):
    rng = np.random.default_rng(100 + batch)
    drawn = [problems.integer_problem(rng) for _ in range(INTEGER_PROBLEMS // BATCHES)]
    solved = [check_integer_problem(problems.balanced(rng, each), None) for each in drawn if each.cost.size]
    assert sum(solved) > INTEGER_PROBLEMS // BATCHES // 3


@pytest.mark.parametrize("batch", mostly_slow(range(BATCHES), 2))
def test_real_problems(batch):
    rng = np.random.default_rng(200 + batch)
    for _ in range(REAL_PROBLEMS // BATCHES):
        cost, mu, nu = instance = problems.real_problem(rng)
        for share in (0.0, 1e-3, rng.random(), 1 - 1e-3, 1.0):
            check_real_problem(instance, float(share * most_mass(instance)))
        if most_mass(instance) > 0:
            check_real_problem(Instance(cost, mu, nu * (mu.sum() / nu.sum())), None)


@pytest.mark.usefixtures("small_windows")
@pytest.mark.parametrize("batch", range(4))
def test_integer_problems_through_small_windows(batch):
    rng = np.random.default_rng(400 + batch)
    for _ in range(20):
        instance = problems.integer_problem(rng)
        check_integer_masses(instance, rng)
        check_integer_masses(instance, rng, stored(instance.cost))


@pytest.mark.usefixtures("small_windows")
def test_real_problems_through_small_windows():
    rng = np.random.default_rng(500)
    for _ in range(40):
        instance = problems.real_problem(rng)
        for share in (rng.random(), 1.0):
            check_real_problem(instance, float(share * most_mass(instance)))


@pytest.mark.usefixtures("small_windows")
def test_points_through_small_windows():
    rng = np.random.default_rng(501)
    for n, m, dimension in [(1, 1, 1), (5, 7, 2), (12, 9, 3), (30, 40, 2), (25, 25, 5)]:
        x, z = rng.standard_normal((n, dimension)), rng.standard_normal((m, dimension))
        instance = Instance(problems.distance_matrix(x, z, 1.0), rng.random(n) + 0.1, rng.random(m) + 0.1)
        given = aot.DistanceCost(x, z, reach=1.0)
        for share in (0.2, 0.9, 1.0):
            check_real_problem(instance, share * most_mass(instance), given, sparse_plan=True, cost_scale=50.0)


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
        cost = problems.distance_matrix(x, z, reach)
        instance = Instance(cost, np.full(len(x), 1 / len(x)), np.full(len(z), 1 / len(z)))
        mass, size = float(rng.choice([1e-3, 0.25, rng.random(), 0.999])), float(np.abs(cost).max()) + reach**2
        solution = solve_checked(instance, mass, aot.DistanceCost(x, z, reach), sparse_plan=True, cost_scale=size)
        assert_least(solution, instance, mass, size * mass)


def test_a_price_that_rounding_could_raise():
    solution = aot.solve(aot.DistanceCost([[0.05], [0.52]], [[-0.11], [-0.09]], 1.0), marginals=aot.FixedMass(0.25))
    assert solution.mass == 0.25
    assert solution.value == pytest.approx(0.25 * (0.14**2 - 1), rel=1e-14)


# Large enough for windows and column generation as they are


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "m"), [(200, 230), (240, 130)])
def test_medium_partial_problems(kind, n, m):
    rng = np.random.default_rng(n)
    cost, dense, scale = medium_costs(kind, rng, n, m)
    instance = Instance(dense, rng.random(n) + 0.1, rng.random(m) + 0.1)
    for mass in (0.35 * most_mass(instance), most_mass(instance)):
        solution = solve_checked(instance, mass, cost, **expected_form(kind, scale))
    assert solution.value == pytest.approx(family_reference(*instance, mass), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_medium_balanced_problems_of_uniform_weights(kind):
    cost, dense, scale = medium_costs(kind, np.random.default_rng(7), 300, 300)
    instance = Instance(dense, np.ones(300), np.ones(300))
    solution = solve_checked(instance, None, cost, precision=10, **expected_form(kind, scale))
    assert solution.value == pytest.approx(dense[linear_sum_assignment(dense)].sum(), rel=1e-12, abs=1e-11)


@pytest.mark.parametrize("largest", [0, 1, 3])
@pytest.mark.parametrize("n", [50, 120])
def test_assignments_full_of_ties(largest, n):
    cost = np.random.default_rng(n).integers(0, largest + 1, (n, n)).astype(float)
    solution = solve_checked(Instance(cost, np.ones(n), np.ones(n)), None)
    assert solution.value == cost[linear_sum_assignment(cost)].sum()


def test_rectangular_assignment():
    """Partial transport of all of the smaller side."""
    cost = np.random.default_rng(8).integers(-20, 50, (120, 400)).astype(float)
    for instance in (Instance(cost, np.ones(120), np.ones(400)), Instance(cost.T.copy(), np.ones(400), np.ones(120))):
        assert solve_checked(instance, 120.0).value == cost[linear_sum_assignment(cost)].sum()


@pytest.mark.parametrize("seed", range(3))
def test_cardinality_assignment(seed):
    """The best k pairs: unit weights and an integer mass give a matching."""
    cost = np.random.default_rng(seed).integers(-9, 10, (40, 30)).astype(float)
    instance = Instance(cost, np.ones(40), np.ones(30))
    for count in (1, 7, 20, 29):
        solution = solve_checked(instance, float(count))
        assert np.isin(solution.plan, [0.0, 1.0]).all()
        assert solution.value == family_reference(*instance, count, integer=True)


@pytest.mark.parametrize(("n", "m"), [(1, 3000), (3000, 2), (2000, 5)])
def test_one_side_much_larger(n, m):
    rng = np.random.default_rng(9)
    instance = Instance(rng.standard_normal((n, m)), rng.random(n), rng.random(m) * n / m)
    mass = 0.8 * most_mass(instance)
    assert solve_checked(instance, mass).value == pytest.approx(family_reference(*instance, mass), rel=1e-9)


# Ties: of a_i + b_j, the cheapest sources go to the cheapest targets, in any way; all reduced costs are rounding


def tied_costs(seed: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """A cost, and what moving the k cheapest sources and targets costs, for k from 0 on."""
    a, b = np.random.default_rng(seed).normal(size=(2, n))
    return a[:, None] + b, np.append(0.0, np.cumsum(np.sort(a) + np.sort(b))) / n


@pytest.fixture
def calls(monkeypatch):
    """Count how often the pairs of a window are listed, and how often the kernel is called."""
    counts = {"below": 0, "raise_price": 0}

    def counted(owner: Any, name: str) -> None:
        function = getattr(owner, name)

        def call(*arguments: Any) -> Any:
            counts[name] += 1
            return function(*arguments)

        monkeypatch.setattr(owner, name, call)

    counted(BlockPricing, "below")
    counted(_parametric, "raise_price")
    return counts


def test_ties_take_few_steps():
    """Where all pairs cost the same, any plan that moves enough is optimal."""
    for marginals in (aot.Equal(), aot.FixedMass(0.9)):
        assert aot.solve(np.zeros((60, 60)), marginals=marginals).iterations <= 600
    cost, values = tied_costs(0, 150)
    for count in (75, 149, 150):
        solution = aot.solve(cost, marginals=aot.FixedMass(count / 150))
        assert solution.value == pytest.approx(values[count], abs=1e-12)
        assert solution.iterations <= 40 * 150


def test_tied_pairs_are_not_looked_at_for_every_price(calls):
    """The work of a call is bounded, so calls count the work: it grew with the cube of the number of points."""
    cost, values = tied_costs(0, 1000)
    assert aot.mass_path(cost).value_at(0.9) == pytest.approx(values[900], abs=1e-12)
    assert calls["raise_price"] <= 30


@pytest.mark.parametrize("seed", range(4))
def test_ties_fill_no_windows(calls, seed):
    """Windows stay as wide as those of other costs: ties are in all of them, however narrow."""
    cost, values = tied_costs(seed, 500)
    solution = aot.solve(cost, marginals=aot.FixedMass(0.9))
    assert solution.value == pytest.approx(values[450], abs=1e-12)
    assert solution.iterations <= 6 * 500
    assert max(calls.values()) <= 60


@pytest.mark.parametrize("seed", range(2))
def test_a_path_ends_when_nothing_is_left(calls, seed):
    cost, values = tied_costs(seed, 500)
    path = aot.mass_path(cost)
    prices = np.repeat(path.price, np.rint(np.diff(path.mass) * 500).astype(int))
    np.testing.assert_allclose(prices, np.diff(values) * 500, rtol=0, atol=1e-12)
    assert max(calls.values()) <= 50


@pytest.mark.parametrize("seed", range(3))
def test_against_pot(seed):
    ot = pytest.importorskip("ot")
    rng = np.random.default_rng(seed)
    cost, mu, nu = rng.random((40, 50)), rng.dirichlet(np.ones(40)), rng.dirichlet(np.ones(50))
    assert aot.solve(cost, mu, nu, marginals=aot.Equal()).value == pytest.approx(ot.emd2(mu, nu, cost), rel=1e-10)
    for mass in (0.2, 0.7):
        expected = ot.partial.partial_wasserstein2(mu, nu, cost, m=mass)
        assert aot.solve(cost, mu, nu, marginals=aot.FixedMass(mass)).value == pytest.approx(expected, rel=1e-9)


# Scales


@pytest.mark.parametrize("cost_factor", [1e8, 1e-8, 1e-60, 1e60])
@pytest.mark.parametrize("weight_factor", [1.0, 1e12, 1e-12, 1e-30])
def test_scale(cost_factor, weight_factor):
    plain = problems.normal_problem(14, 20, 30)
    mass = 0.6 * most_mass(plain)
    scaled = Instance(cost_factor * plain.cost, *(weight_factor * side for side in plain[1:]))
    expected = family_reference(*plain, mass) * cost_factor * weight_factor
    assert solve_checked(scaled, weight_factor * mass).value == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("seed", range(8))
def test_weights_over_many_orders_of_magnitude(seed):
    rng = np.random.default_rng(seed)
    cost = rng.integers(-9, 10, (15, 20)).astype(float)
    instance = Instance(cost, 10.0 ** rng.uniform(-12, 12, 15), 10.0 ** rng.uniform(-12, 12, 20))
    for share in (1e-12, 1e-6, 0.5, 1.0):
        mass = share * most_mass(instance)
        assert_least(solve_checked(instance, mass), instance, mass, 100 * weight_scale(instance, mass))


def test_costs_over_many_orders_of_magnitude():
    rng = np.random.default_rng(15)
    cost = rng.choice([-1.0, 1.0], (30, 30)) * 10.0 ** rng.uniform(-6, 6, (30, 30))
    solution = aot.solve(cost, np.ones(30), np.ones(30), marginals=aot.Equal())
    assert solution.value == pytest.approx(cost[linear_sum_assignment(cost)].sum(), rel=1e-12)


@pytest.mark.parametrize("seed", range(30))
def test_near_ties_of_very_different_sizes(seed):
    """Many paths differ by less than rounding: the price must stop rising, and soon."""
    rng = np.random.default_rng(seed)
    n, m = rng.integers(5, 40, 2)
    by_row, by_column = 10.0 ** rng.uniform(-3, 3, n), 10.0 ** rng.uniform(-3, 3, m)
    cost = by_row[:, None] + by_column[None, :] + 1e-3 * rng.integers(0, 2, (n, m))
    instance = Instance(cost, rng.integers(0, 3, n).astype(float), rng.integers(1, 4, m) * 0.1)
    for share in (0.5, 1.0):
        mass = share * most_mass(instance)
        solution = solve_checked(instance, mass, precision=10)
        assert solution.iterations < 50 * (n + m)
        assert_least(solution, instance, mass, weight_scale(instance, mass))


@pytest.mark.parametrize("distance", [0.0, 1e-15, 1e-13, 1e-9, 1e-3])
def test_masses_around_a_corner(distance):
    """The path of this problem has a corner at 0.5."""
    instance = Instance(np.array([[1.0, 2.0], [3.0, 5.0]]), np.full(2, 0.5), np.full(2, 0.5))
    for mass in (0.5 - distance, 0.5 + distance, 1.0 - distance, distance):
        expected = mass if mass <= 0.5 else 0.5 + 4 * (mass - 0.5)
        assert solve_checked(instance, mass).value == pytest.approx(expected, rel=1e-12, abs=1e-300)


@pytest.mark.parametrize("share", [1 - 1e-7, 1 + 1e-7, 1 + 1e-12])
def test_masses_about_everything(share):
    """Rounding may ask for a little more than there is."""
    solution = aot.solve(np.ones((3, 4)), np.full(3, 0.1), np.full(4, 0.1), marginals=aot.FixedMass(share * 0.3))
    assert solution.mass == pytest.approx(min(share, 1.0) * 0.3, rel=1e-12)


# Forbidden pairs


def test_no_price_is_high_enough():
    """Where no pair can enter any more, although some rise with the price, the price must not run away."""
    inf = np.inf
    cost = np.array([[inf, -13.0, -12.0], [inf, 8.0, -9.0], [inf, inf, -17.0]])
    mu, nu = np.array([3.0, 3.0, 1819768.0]), np.array([869358.0, 906073.0, 44343.0])
    with pytest.raises(aot.Infeasible) as caught:
        aot.solve(cost, mu, nu, marginals=aot.Equal())
    assert caught.value.most_mass == pytest.approx(problems.most_that_can_move(cost, mu, nu), rel=1e-12)


def test_forbidden_pairs_in_the_way():
    cost, stored_only = np.array([[1.0, np.inf], [2.0, np.inf]]), sparse.csr_array([[1.0, 0.0], [2.0, 0.0]])
    for given in (cost, stored_only):
        with pytest.raises(aot.Infeasible, match=r"a mass of 1: only 0\.5 can move"):
            aot.solve(given, marginals=aot.Equal())
        with pytest.raises(aot.Infeasible) as caught:
            aot.solve(given, marginals=aot.FixedMass(0.75))
        assert (caught.value.mass, caught.value.most_mass) == (0.75, 0.5)
        instance = Instance(cost, np.full(2, 0.5), np.full(2, 0.5))
        assert solve_checked(instance, 0.5, given, sparse_plan=given is stored_only).value == 0.5


def test_everything_forbidden():
    cost = np.full((3, 4), np.inf)
    for mass in (None, 1e-3):
        with pytest.raises(aot.Infeasible):
            aot.solve(cost, marginals=marginals_of(mass))
    solution = aot.solve(cost, marginals=aot.FixedMass(0.0))
    assert (solution.value, solution.mass, solution.gap) == (0.0, 0.0, 0.0)


def test_forbidden_points_without_weight_are_no_obstacle():
    cost = np.array([[1.0, np.inf], [np.inf, np.inf]])
    assert solve_checked(Instance(cost, np.array([1.0, 0.0]), np.array([1.0, 0.0])), None).value == 1.0


@pytest.mark.parametrize("n", [60, 250])
def test_only_one_plan_is_allowed(n):
    """Forbidden pairs leave a single permutation, however much it costs."""
    rng = np.random.default_rng(n)
    cost = np.where(np.arange(n)[:, None] > np.arange(n)[None, :], np.inf, rng.standard_normal((n, n)))
    cost[np.arange(n), np.arange(n)] = 1e6
    cost = cost[:, rng.permutation(n)]
    assert solve_checked(Instance(cost, np.ones(n), np.ones(n)), None).value == 1e6 * n


# Containers


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_answers_come_back_in_kind(dtype, library):
    dense = np.random.default_rng(20).standard_normal((9, 9)).astype(dtype)
    instance = Instance(dense.astype(float), np.full(9, 1.0), np.full(9, 1.0))
    given = [dense, *instance[1:]]
    if library == "torch":
        given = [pytest.importorskip("torch").as_tensor(array) for array in given]
    for mass in (None, 4.5):
        solution = aot.solve(*given, marginals=marginals_of(mass))
        check_solution(solution, *instance, mass, dtype=dtype, library=library)
    equal = aot.solve(*given, marginals=aot.Equal())
    assert equal.value == pytest.approx(instance.cost[linear_sum_assignment(dense)].sum(), rel=1e-13)


def test_nested_lists_and_integers():
    assert aot.solve([[1, 2], [3, 5]], marginals=aot.FixedMass(1)).value == 2.5
    assert aot.solve([[1, 2], [3, 5]], [1, 1], [1, 1], marginals=aot.Equal()).value == 5.0


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0)])
def test_empty(shape):
    solution = aot.solve(np.zeros(shape), marginals=aot.FixedMass(0.0))
    assert (solution.value, solution.mass, solution.plan.shape) == (0.0, 0.0, shape)
    with pytest.raises(aot.InvalidInput):
        aot.solve(np.zeros(shape), marginals=aot.FixedMass(0.5))
    if shape == (0, 0):
        assert aot.solve(np.zeros(shape), marginals=aot.Equal()).value == 0.0
    else:
        with pytest.raises(aot.InvalidInput):
            aot.solve(np.zeros(shape), marginals=aot.Equal())


def test_all_weights_zero():
    for mass in (None, 0.0):
        solution = aot.solve(np.ones((3, 2)), np.zeros(3), np.zeros(2), marginals=marginals_of(mass))
        assert (solution.value, solution.mass, solution.violation) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("mass", [None, 0.4])
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_a_batch_is_a_loop(mass, library):
    costs = np.random.default_rng(22).standard_normal((5, 6, 7))
    batch = aot.solve(
        costs if library == "numpy" else pytest.importorskip("torch").as_tensor(costs), marginals=marginals_of(mass)
    )
    for cost, together, price in zip(costs, batch, batch.price, strict=True):
        alone = aot.solve(cost, marginals=marginals_of(mass))
        numbers = together.value, together.mass, float(price)
        assert numbers == pytest.approx((alone.value, alone.mass, alone.price), rel=1e-13)
        check_solution(together, cost, np.full(6, 1 / 6), np.full(7, 1 / 7), mass, library=library)


def test_a_batch_of_larger_problems_is_a_loop():
    costs = np.random.default_rng(23).standard_normal((2, 260, 260))
    batch = aot.solve(costs, marginals=aot.Equal())
    for cost, together in zip(costs, batch, strict=True):
        assert together.value == pytest.approx(cost[linear_sum_assignment(cost)].mean(), rel=1e-12)


# Bad input


@pytest.mark.parametrize("mass", [-1e-300, -np.inf, [0.5], 1e101])
def test_masses_that_are_refused(mass):
    with pytest.raises(aot.InvalidInput, match="mass"):
        aot.FixedMass(mass)


@pytest.mark.parametrize(
    ("weights", "marginals", "message"),
    [
        (([1.0, 1.0], [1.0, 1.0, 1.0]), aot.FixedMass(2.001), "at most the smaller of the total weights, 2"),
        (([1.0, 1.0], [0.0, 0.0, 0.0]), aot.Equal(), "same total"),
    ],
)
def test_bad_input(weights, marginals, message):
    with pytest.raises(aot.InvalidInput, match=message):
        aot.solve(np.ones((2, 3)), *weights, marginals=marginals)


def test_totals_may_differ_by_rounding():
    weights = np.array([0.1, 0.2, 0.7], np.float32), np.array([0.3, 0.3, 0.4], np.float32)
    solution = aot.solve(np.ones((3, 3)), *weights, marginals=aot.Equal())
    assert solution.value == pytest.approx(1.0, rel=1e-7)
    assert solution.violation <= 1e-15
    np.testing.assert_allclose(solution.target_marginal, weights[1], rtol=1e-6)


# Progress, determinism


def test_progress_is_reported():
    seen = []
    cost = np.random.default_rng(24).random((150, 170))
    aot.solve(cost, marginals=aot.FixedMass(0.5), progress=seen.append)
    fractions = [now.fraction for now in seen if now.stage == "walking"]
    assert fractions
    assert all(0 <= fraction <= 1 for fraction in fractions)
    assert fractions == sorted(fractions)


def test_inputs_stay_as_they_are():
    rng = np.random.default_rng(27)
    cost, mu, nu = rng.standard_normal((20, 30)), rng.random(20), rng.random(30)
    nu *= mu.sum() / nu.sum() * (1 + 1e-9)
    matrix = stored(cost)
    before = [array.copy() for array in (cost, mu, nu, matrix.data)]
    for given in (cost, matrix):
        for mass in (None, 0.5 * mu.sum()):
            aot.solve(given, mu, nu, marginals=marginals_of(mass))
        aot.mass_path(given, mu, nu).plan_at(0.3)
    for array, copy in zip((cost, mu, nu, matrix.data), before, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_same_answer_twice():
    """Also from read-only and strided input."""
    strided = np.random.default_rng(28).standard_normal((300, 450))[::2, ::3]
    strided.flags.writeable = False
    first, second = (aot.solve(cost, marginals=aot.FixedMass(0.7)) for cost in (strided, strided.copy()))
    np.testing.assert_array_equal(first.plan, second.plan)
    np.testing.assert_array_equal(first.source_potential, second.source_potential)
    assert first.price == second.price
