"""The mass path against independent solves of every mass, maximum flows, and known elbows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

import adaptive_ot as aot
import problems
from check import check_solution
from problems import KINDS, Instance, expected_form, family_reference, medium_costs, most_mass, stored, weight_scale
from test_fixed import small_windows

__all__ = ["small_windows"]  # a fixture


def random_cost(rng, kind):
    """A problem, the cost as it is given, and the size its rounding is relative to."""
    if kind in ("points", "classes"):
        n, m = rng.integers(1, 12, 2)
        cost, dense, scale = medium_costs(kind, rng, n, m)
        return Instance(dense, rng.random(n), rng.random(m)), cost, scale
    instance = problems.real_problem(rng) if kind == "reals" else problems.integer_problem(rng)
    return instance, stored(instance.cost) if kind == "sparse" else instance.cost, 0.0


every_kind = pytest.mark.parametrize("kind", ["integers", "reals", "sparse", "points", "classes"])


def check_path(path, instance, scale):
    """What every path satisfies: corners in order, slopes that are prices, convexity."""
    assert path.mass[0] == 0.0
    assert path.value[0] == 0.0
    assert path.mass.shape == path.value.shape == (path.price.size + 1,)
    assert (np.diff(path.mass) > 0).all()
    assert (np.diff(path.price) > 0).all()
    size = weight_scale(instance) + scale * most_mass(instance)
    np.testing.assert_allclose(np.diff(path.value), path.price * np.diff(path.mass), atol=1e-13 * size, rtol=1e-9)
    assert path.most_mass <= most_mass(instance) * (1 + 1e-12)


@every_kind
def test_every_mass(kind):
    rng = np.random.default_rng(0)
    for _ in range(20):
        instance, cost, scale = random_cost(rng, kind)
        path = aot.mass_path(cost, *instance[1:])
        check_path(path, instance, scale)
        size = weight_scale(instance) + scale * most_mass(instance)
        for share in np.linspace(0.0, 1.0, 50):
            mass = min(float(share * path.most_mass), most_mass(instance))
            alone = aot.solve(cost, *instance[1:], marginals=aot.FixedMass(mass))
            assert abs(path.value_at(mass) - alone.value) <= 1e-11 * size, (instance, mass)
        for share in (0.0, rng.random(), 1.0):
            mass = min(float(share * path.most_mass), most_mass(instance))
            solution = path.solution_at(mass)
            check_solution(solution, *instance, mass, **expected_form(kind, scale))
            assert abs(solution.value - path.value_at(mass)) <= 1e-11 * size


@pytest.mark.usefixtures("small_windows")
@every_kind
def test_every_mass_through_small_windows(kind):
    rng = np.random.default_rng(1)
    for _ in range(12):
        instance, cost, scale = random_cost(rng, kind)
        path = aot.mass_path(cost, *instance[1:])
        check_path(path, instance, scale)
        for share in (0.3, 0.8, 1.0):
            mass = min(float(share * path.most_mass), most_mass(instance))
            reference = family_reference(*instance, mass)
            assert reference is not None
            size = weight_scale(instance, mass) + scale * mass
            assert abs(path.value_at(mass) - reference) <= 1e-9 * size, (instance, mass)


@pytest.mark.parametrize("kind", KINDS)
def test_medium_problems(kind):
    rng = np.random.default_rng(2)
    n, m = 180, 220
    cost, dense, scale = medium_costs(kind, rng, n, m)
    instance = Instance(dense, rng.random(n) + 0.1, rng.random(m) + 0.1)
    path = aot.mass_path(cost, *instance[1:])
    check_path(path, instance, scale)
    size = weight_scale(instance)
    for share in (0.1, 0.6, 1.0):
        mass = share * path.most_mass
        solution = path.solution_at(mass)
        check_solution(solution, *instance, mass, precision=10, **expected_form(kind, scale))
        alone = aot.solve(cost, *instance[1:], marginals=aot.FixedMass(mass))
        assert abs(path.value_at(mass) - alone.value) <= 1e-11 * size
        assert abs(solution.value - alone.value) <= 1e-11 * size


def test_mass_and_price_are_inverse():
    rng = np.random.default_rng(3)
    for _ in range(40):
        instance = problems.real_problem(rng)
        path = aot.mass_path(*instance)
        prices = np.sort(rng.uniform(-3, 3, 20))
        masses = [path.mass_at(price) for price in prices]
        assert masses == sorted(masses)
        for price, mass in zip(prices[::5], masses[::5], strict=True):
            adaptive = aot.solve(instance.cost - price, *instance[1:])
            assert adaptive.mass == pytest.approx(mass, rel=1e-11, abs=1e-13 * most_mass(instance))
        for k, price in enumerate(path.price):
            middle = (path.mass[k] + path.mass[k + 1]) / 2
            assert path.price_at(middle) == price
            assert path.mass_at(price) == path.mass[k]  # everything that costs less
            assert path.mass_at(np.nextafter(price, np.inf)) >= path.mass[k + 1]
        assert path.mass_at(-1e9) == 0.0
        assert path.mass_at(1e9) == path.most_mass


def test_the_price_of_a_solution_is_that_of_the_path():
    rng = np.random.default_rng(4)
    instance = Instance(rng.standard_normal((12, 15)), rng.random(12), rng.random(15))
    path = aot.mass_path(*instance)
    for k, price in enumerate(path.price):
        mass = float((path.mass[k] + path.mass[k + 1]) / 2)
        for solution in (path.solution_at(mass), aot.solve(*instance, marginals=aot.FixedMass(mass))):
            assert solution.price == pytest.approx(price, abs=1e-13)


def test_values_at_the_corners_are_exact():
    rng = np.random.default_rng(5)
    for _ in range(60):
        instance = problems.integer_problem(rng)
        path = aot.mass_path(*instance)
        for mass, value in zip(path.mass, path.value, strict=True):
            assert mass == round(mass)  # corners of integer problems are integers
            assert value == family_reference(*instance, float(mass), integer=True)
            assert path.value_at(float(mass)) == value


def test_all_that_can_move_is_the_maximum_flow():
    rng = np.random.default_rng(6)
    for _ in range(60):
        n, m = rng.integers(1, 15, 2)
        cost = np.where(rng.random((n, m)) < rng.random(), np.inf, rng.integers(-5, 6, (n, m)))
        instance = Instance(cost, rng.integers(0, 9, n).astype(float), rng.integers(0, 9, m).astype(float))
        most = problems.most_that_can_move(*instance)
        for given in (cost, stored(cost)):
            path = aot.mass_path(given, *instance[1:])
            assert path.most_mass == most
            if most < most_mass(instance):
                with pytest.raises(aot.Infeasible) as caught:
                    path.plan_at(most + 0.5)
                assert caught.value.most_mass == most


@pytest.mark.parametrize("seed", range(8))
def test_adaptive_transport_at_every_price_is_partial_transport(seed):
    """Adaptive transport of C - p moves what the mass path says, and costs what partial transport of it costs."""
    rng = np.random.default_rng(seed)
    dense, mu, nu = instance = Instance(rng.standard_normal((30, 25)), rng.random(30), rng.random(25))
    path = aot.mass_path(*instance)
    for price in rng.uniform(dense.min(), dense.max(), 10):
        adaptive = aot.solve(dense - price, mu, nu)
        assert adaptive.mass == pytest.approx(path.mass_at(price), rel=1e-11, abs=1e-13)
        cost = float((dense * adaptive.plan).sum())
        assert cost == pytest.approx(path.value_at(min(adaptive.mass, path.most_mass)), abs=1e-11)
    adaptive, suggested = aot.solve(*instance), path.suggest().adaptive
    assert (suggested, path.value_at(suggested)) == pytest.approx((adaptive.mass, adaptive.value), rel=1e-12)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("outliers", [10, 20, 40])
def test_the_elbow_is_where_the_outliers_start(seed, outliers):
    """Two clouds of 100 points, some of them far away from all others."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((100, 2))
    z = x + 0.05 * rng.standard_normal((100, 2))
    x[:outliers] += [30.0, 0.0]
    z[:outliers] -= [30.0, 0.0]
    path = aot.mass_path(aot.DistanceCost(x, z, reach=1.0))
    adaptive, elbow = path.suggest()
    assert elbow == pytest.approx(1 - outliers / 100, abs=0.021)
    assert adaptive == pytest.approx(1 - outliers / 100, abs=0.021)


def test_plans_at_corners_and_around():
    instance = Instance(np.array([[1.0, 2.0], [3.0, 5.0]]), np.full(2, 0.5), np.full(2, 0.5))
    path = aot.mass_path(*instance)
    np.testing.assert_array_equal(path.mass, [0.0, 0.5, 1.0])
    np.testing.assert_array_equal(path.price, [1.0, 4.0])
    for mass in (0.0, 1e-15, 0.25, 0.5 - 1e-15, 0.5, 0.5 + 1e-15, 0.75, 1 - 1e-15, 1.0):
        check_solution(path.solution_at(mass), *instance, mass)
        np.testing.assert_array_equal(path.plan_at(mass), path.solution_at(mass).plan)
    np.testing.assert_array_equal(path.plan_at(0.5), [[0.5, 0.0], [0.0, 0.0]])
    np.testing.assert_array_equal(path.plan_at(1.0), [[0.0, 0.5], [0.5, 0.0]])


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0)])
def test_empty(shape):
    path = aot.mass_path(np.zeros(shape))
    assert path.most_mass == 0.0
    assert path.suggest() == (0.0, None)
    assert path.plan_at(0.0).shape == shape
    assert (path.price_at(0.0), path.value_at(0.0), path.mass_at(3.0)) == (0.0, 0.0, 0.0)
    assert str(path)
    assert repr(path) == f"<MassPath of {shape[0]} x {shape[1]}: mass 0 to 0 in 0 pieces>"


@pytest.mark.parametrize("cost", [-2.0, 0.0, 5.0])
def test_one_pair(cost):
    path = aot.mass_path([[cost]], [2.0], [3.0])
    np.testing.assert_array_equal(path.mass, [0.0, 2.0])
    np.testing.assert_array_equal(path.value, [0.0, 2 * cost])
    np.testing.assert_array_equal(path.price, [cost])
    np.testing.assert_array_equal(path.plan_at(1.5), [[1.5]])
    assert path.suggest().adaptive == (2.0 if cost < 0 else 0.0)
    assert path.suggest().elbow is None


@pytest.mark.parametrize(
    "given", [(np.full((3, 2), np.inf),), (sparse.csr_array((3, 2)),), (np.ones((3, 2)), np.zeros(3), np.zeros(2))]
)
def test_nothing_can_move(given):
    seen = []
    path = aot.mass_path(*given, progress=seen.append)
    assert all(0 <= now.fraction <= 1 for now in seen)
    assert (path.most_mass, path.price.size) == (0.0, 0)
    assert path.mass_at(1e9) == 0.0
    with pytest.raises((aot.Infeasible, aot.InvalidInput)):
        path.plan_at(0.1)
    assert path.plan_at(0.0).sum() == 0.0


def test_points_without_weight_leave_no_trace():
    rng = np.random.default_rng(8)
    cost = rng.standard_normal((10, 12))
    mu, nu = rng.random(10), rng.random(12)
    mu[::3], nu[::4] = 0.0, 0.0
    path = aot.mass_path(cost, mu, nu)
    without = aot.mass_path(cost[np.ix_(mu > 0, nu > 0)], mu[mu > 0], nu[nu > 0])
    np.testing.assert_allclose(path.price, without.price, rtol=1e-12)
    np.testing.assert_allclose(path.value, without.value, rtol=1e-11, atol=1e-12)


def test_bad_input():
    path: Any = aot.mass_path(np.ones((2, 2)))
    for mass in (-0.1, 1.1, np.nan, np.inf, "half", None):
        for method in (path.value_at, path.price_at, path.plan_at, path.solution_at):
            with pytest.raises(aot.InvalidInput, match="mass"):
                method(mass)
    for price in (np.nan, "high", None):
        with pytest.raises(aot.InvalidInput, match="price"):
            path.mass_at(price)
    for arguments in ((np.array([[np.nan]]),), (np.ones((2, 2)), [-1.0, 1.0])):
        with pytest.raises(aot.InvalidInput):
            aot.mass_path(*arguments)
    with pytest.raises(aot.InvalidInput, match="progress"):
        aot.mass_path(np.ones((2, 2)), progress=3)  # pyright: ignore[reportArgumentType]


def test_progress():
    seen = []
    aot.mass_path(np.random.default_rng(9).random((100, 120)), progress=seen.append)
    assert {now.stage for now in seen} == {"walking"}
    fractions = [now.fraction for now in seen]
    assert fractions == sorted(fractions)
    assert fractions[-1] == pytest.approx(1.0, rel=1e-9)

    def stop(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        aot.mass_path(np.ones((3, 3)), progress=stop)


def test_torch():
    torch = pytest.importorskip("torch")
    cost = np.random.default_rng(10).standard_normal((6, 7))
    path = aot.mass_path(torch.as_tensor(cost))
    np.testing.assert_allclose(path.value, aot.mass_path(cost).value, rtol=1e-15)
    plan = path.plan_at(0.5)
    assert isinstance(plan, torch.Tensor)
    assert float(plan.sum()) == pytest.approx(0.5)


def test_what_is_printed():
    path = aot.mass_path([[-3.0, 1.0], [2.0, 4.0]])
    assert repr(path) == "<MassPath of 2 x 2: mass 0 to 1 in 2 pieces>"
    assert "price     -3 to 4 a unit" in str(path)
    assert "adaptive  mass 0.5, value -1.5" in str(path)


def test_a_path_of_the_largest_weights_can_be_printed():
    cost = np.random.default_rng(0).normal(size=(8, 7)) * 1e99
    assert "adaptive" in str(aot.mass_path(cost, np.full(8, 1e100), np.full(7, 1e100)))


def test_arrays_of_masses_and_prices():
    """Every entry as if it came alone; scalars, also those of NumPy, give plain numbers."""
    path = aot.mass_path(np.random.default_rng(0).normal(size=(6, 8)))
    masses = np.append(np.linspace(0.0, path.most_mass, 19), path.mass).reshape(-1)
    prices = np.concatenate([path.price, path.price - 1e-9, [-9.0, 9.0]])
    for method, given in ((path.value_at, masses), (path.price_at, masses), (path.mass_at, prices)):
        alone = [method(each) for each in given]
        assert all(type(each) is float for each in alone)
        np.testing.assert_array_equal(method(given), alone)
        np.testing.assert_array_equal(method(given[:18].reshape(2, 3, 3)), np.reshape(alone[:18], (2, 3, 3)))
        np.testing.assert_array_equal(method(given[:2].tolist()), alone[:2])
        assert method(np.empty((0, 4))).shape == (0, 4)
        assert type(method(np.array(given[3]))) is float
    over = path.most_mass * (1 + 1e-12)  # rounding
    np.testing.assert_array_equal(path.value_at([over, 0.0]), [path.value_at(path.most_mass), 0.0])


def test_arrays_where_nothing_can_move():
    path = aot.mass_path(np.full((2, 2), np.inf))
    assert path.value_at([[0.0]]).tolist() == path.price_at([[0.0]]).tolist() == [[0.0]]
    assert path.mass_at([-1.0, 1.0]).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("method", "given", "message"),
    [
        ("value_at", [0.5, np.nan], "mass must be a number from 0 to 1e\\+100; got nan"),
        ("value_at", [0.5, -1.0], "mass must be a number from 0 to 1e\\+100; got -1.0"),
        ("price_at", [0.5, 2.0], "mass must be at most the smaller of the total weights"),
        ("mass_at", [0.5, np.inf], "price must be a number"),
        ("mass_at", ["a"], "price must hold real numbers"),
        ("mass_at", [[1.0], [1.0, 2.0]], "price must be an array of numbers"),
    ],
)
def test_arrays_that_hold_no_mass_or_price(method, given, message):
    path = aot.mass_path([[-1.0, 2.0], [3.0, 4.0]])
    with pytest.raises(aot.InvalidInput, match=message):
        getattr(path, method)(given)
