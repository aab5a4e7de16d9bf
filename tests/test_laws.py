"""Laws that the optimal value obeys, whatever the problem: 300 examples each in the long form (see conftest.py)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.optimize import linprog

import adaptive_ot as aot
from check import ADAPTIVE, solve_checked
from problems import PRECISE, Instance, most_mass, weight_scale

SIZES = st.integers(1, 6)
# Small integers make ties and degenerate trees; real numbers make everything else.
COSTS = st.one_of(st.integers(-4, 4).map(float), st.floats(-10, 10, width=32))
WEIGHTS = st.one_of(st.integers(0, 4).map(float), st.floats(0, 10, width=32).filter(lambda w: w == 0 or w > 1e-6))
FACTORS = st.sampled_from([2.0**-20, 0.1, 0.5, 1.0, 3.0, 7.3, 2.0**20])
SHARES = st.one_of(st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.floats(0, 1))

SOME = settings(max_examples=80)


@st.composite
def instances(draw):
    n, m = draw(SIZES), draw(SIZES)
    cost = draw(hnp.arrays(float, (n, m), elements=COSTS))
    return Instance(cost, *(draw(hnp.arrays(float, size, elements=WEIGHTS)) for size in (n, m)))


@st.composite
def partial_problems(draw):
    instance = draw(instances())
    return instance, draw(SHARES) * most_mass(instance)


@st.composite
def balanced_problems(draw):
    """Weights are sums of shipments, so that both sides are equally heavy to the last bit."""
    shape = draw(SIZES), draw(SIZES)
    shipped = draw(hnp.arrays(float, shape, elements=st.integers(0, 3).map(float)))
    return Instance(draw(hnp.arrays(float, shape, elements=COSTS)), shipped.sum(axis=1), shipped.sum(axis=0))


every_model = pytest.mark.parametrize(
    "problems",
    [instances().map(lambda instance: (instance, ADAPTIVE)), partial_problems()],
    ids=["adaptive", "partial"],
)


def value(instance, mass=ADAPTIVE):
    """The optimal value, from a solution that proves itself."""
    return solve_checked(instance, mass).value


def rounding(*instances, mass=ADAPTIVE):
    """What rounding may do to values of these problems."""
    return 1e-13 * max(weight_scale(instance, None if mass == ADAPTIVE else mass) for instance in instances)


def assert_same(first, second, tolerance):
    assert abs(first - second) <= tolerance + 1e-300, f"{first} and {second} differ by more than {tolerance}"


# Adaptive and partial transport


@every_model
@given(data=st.data())
def test_transpose(problems, data):
    instance, mass = data.draw(problems)
    turned = Instance(instance.cost.T.copy(), instance.target_weights, instance.source_weights)
    assert_same(value(turned, mass), value(instance, mass), rounding(instance, mass=mass))


@every_model
@given(data=st.data(), random=st.randoms(use_true_random=False))
def test_permutation(problems, data, random):
    instance, mass = data.draw(problems)
    rows, columns = (list(range(size)) for size in instance.cost.shape)
    random.shuffle(rows)
    random.shuffle(columns)
    cost, mu, nu = instance
    shuffled = Instance(cost[np.ix_(rows, columns)], mu[rows], nu[columns])
    assert_same(value(shuffled, mass), value(instance, mass), rounding(instance, mass=mass))


@every_model
@given(data=st.data(), cost_factor=FACTORS, weight_factor=FACTORS)
def test_scaling(problems, data, cost_factor, weight_factor):
    instance, mass = data.draw(problems)
    scaled = Instance(cost_factor * instance.cost, *(weight_factor * side for side in instance[1:]))
    scaled_mass = mass if mass == ADAPTIVE else min(weight_factor * mass, most_mass(scaled))
    expected = value(instance, mass) * cost_factor * weight_factor
    assert_same(value(scaled, scaled_mass), expected, rounding(scaled, mass=scaled_mass))


# Adaptive transport


@given(instances())
def test_no_negative_cost_moves_nothing(instance):
    solution = solve_checked(instance._replace(cost=np.abs(instance.cost)))
    assert (solution.value, solution.mass) == (0.0, 0.0)
    assert not solution.plan.any()


@given(instances())
def test_pairs_that_do_not_pay_can_be_forbidden_or_free(instance):
    for instead in (np.inf, 0.0):
        assert value(instance._replace(cost=np.where(instance.cost >= 0, instead, instance.cost))) == value(instance)


@given(instances(), st.data())
def test_splitting_an_atom_changes_nothing(instance, data):
    cost, mu, nu = instance
    row = data.draw(st.integers(0, mu.size - 1))
    share = data.draw(st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0]))
    pieces = np.append(mu, (1 - share) * mu[row])
    pieces[row] = share * mu[row]
    assert_same(value(Instance(np.vstack([cost, cost[row]]), pieces, nu)), value(instance), rounding(instance))


@given(instances(), st.data())
def test_more_capacity_never_costs(instance, data):
    more = data.draw(hnp.arrays(float, instance.source_weights.size, elements=WEIGHTS))
    larger = instance._replace(source_weights=instance.source_weights + more)
    assert value(larger) <= value(instance) + rounding(instance, larger)


@given(instances(), st.data())
def test_a_higher_cost_never_pays(instance, data):
    more = data.draw(hnp.arrays(float, instance.cost.shape, elements=WEIGHTS))
    dearer = instance._replace(cost=instance.cost + more)
    assert value(dearer) >= value(instance) - rounding(instance, dearer)


@given(instances(), st.data())
def test_value_is_convex_in_the_weights(instance, data):
    cost, mu, nu = instance
    other = Instance(cost, *(data.draw(hnp.arrays(float, side.size, elements=WEIGHTS)) for side in (mu, nu)))
    between = Instance(cost, (mu + other.source_weights) / 2, (nu + other.target_weights) / 2)
    assert value(between) <= (value(instance) + value(other)) / 2 + rounding(instance, other, between)


@given(instances(), st.data())
def test_value_is_concave_in_the_cost(instance, data):
    other = instance._replace(cost=data.draw(hnp.arrays(float, instance.cost.shape, elements=COSTS)))
    between = instance._replace(cost=(instance.cost + other.cost) / 2)
    assert value(between) >= (value(instance) + value(other)) / 2 - rounding(instance, other)


@given(instances(), instances())
def test_problems_side_by_side_add_up(first, second):
    n, m = first.cost.shape
    cost = np.full((n + second.cost.shape[0], m + second.cost.shape[1]), np.inf)
    cost[:n, :m], cost[n:, m:] = first.cost, second.cost
    both = Instance(cost, *(np.concatenate(pair) for pair in zip(first[1:], second[1:], strict=True)))
    assert_same(value(both), value(first) + value(second), rounding(both))


@given(instances())
def test_balanced_transport_with_dummies_has_the_same_value(instance):
    cost, mu, nu = instance
    n, m = cost.shape
    augmented = np.zeros((n + 1, m + 1))
    augmented[:n, :m] = cost
    # Divided by the total, so that the tolerances of HiGHS mean something.
    total = max(mu.sum() + nu.sum(), 1e-9)
    marginals = np.concatenate([mu, [nu.sum()], nu, [mu.sum()]]) / total
    cells = np.arange(augmented.size).reshape(augmented.shape)
    rows = np.array([np.isin(cells.ravel(), line) for line in [*cells, *cells.T]], float)
    balanced = linprog(augmented.ravel(), A_eq=rows, b_eq=marginals, method="highs", options=PRECISE)
    assert balanced.status == 0
    assert math.isclose(value(instance), balanced.fun * total, rel_tol=1e-9, abs_tol=1e-9 * total)


@given(instances(), st.floats(0, 5), st.floats(0, 5))
def test_a_uniform_discount_pays_for_the_mass_it_moves(instance, small, large):
    """With C - t the value falls in t at a rate between the masses at both ends, which therefore grow with t."""
    small, large = sorted([small, large])
    cheaper = [instance._replace(cost=instance.cost - discount) for discount in (small, large)]
    little, much = (aot.solve(*discounted) for discounted in cheaper)
    saved, slack = little.value - much.value, rounding(*cheaper)
    assert (large - small) * little.mass - slack <= saved <= (large - small) * much.mass + slack


# Partial and balanced transport


@SOME
@given(partial_problems(), st.sampled_from([-7.0, -0.3, 1.0, 100.0]))
def test_adding_a_constant_costs_it_for_every_unit(problem, constant):
    instance, mass = problem
    dearer = instance._replace(cost=instance.cost + constant)
    expected = value(instance, mass) + constant * mass
    assert_same(value(dearer, mass), expected, rounding(dearer, mass=mass) + 1e-12 * mass)


@SOME
@given(balanced_problems(), st.data())
def test_balanced_transport_does_not_see_what_every_plan_pays(instance, data):
    """C_ij + a_i + b_j adds the same to every plan."""
    cost, mu, nu = instance
    a, b = (data.draw(hnp.arrays(float, side.size, elements=COSTS)) for side in (mu, nu))
    other = Instance(cost + a[:, None] + b[None, :], mu, nu)
    scale = weight_scale(other) + weight_scale(instance) + 40 * mu.sum()
    assert_same(value(other, None), value(instance, None) + mu @ a + nu @ b, 1e-13 * scale)


@SOME
@given(balanced_problems())
def test_balanced_transport_is_partial_transport_of_everything(instance):
    everything = float(instance.source_weights.sum())
    assert_same(value(instance, None), value(instance, everything), rounding(instance))


@SOME
@given(balanced_problems())
def test_balanced_transport_of_rewards_is_adaptive(instance):
    """If every pair pays, adaptive transport moves everything."""
    paying = instance._replace(cost=instance.cost - 11.0)
    assert_same(value(paying, None), value(paying), rounding(paying))


@SOME
@given(balanced_problems())
def test_adaptive_transport_is_balanced_transport_of_clipped_costs(instance):
    clipped = instance._replace(cost=np.minimum(instance.cost, 0.0))
    assert_same(value(clipped, None), value(instance), rounding(instance))


@SOME
@given(partial_problems(), SHARES)
def test_the_price_is_a_slope(problem, share):
    """The value is convex in the mass, its slope is the price, and there is the adaptive problem with that price."""
    instance, mass = problem
    solution, other = solve_checked(instance, mass), share * most_mass(instance)
    scale = weight_scale(instance) + abs(solution.price) * most_mass(instance)
    assert value(instance, other) >= solution.value + solution.price * (other - mass) - 1e-13 * scale
    chord = (solution.value + value(instance, other)) / 2
    assert value(instance, (mass + other) / 2) <= chord + rounding(instance)
    adaptive = aot.solve(instance.cost - solution.price, *instance[1:])
    assert_same(solution.value - solution.price * mass, adaptive.value, 1e-13 * scale)


@SOME
@given(partial_problems())
def test_positive_costs_grow_with_the_mass(problem):
    instance, mass = problem
    dear = instance._replace(cost=np.abs(instance.cost))
    assert value(dear, mass / 2) <= value(dear, mass) + rounding(instance)


@SOME
@given(partial_problems())
def test_the_adaptive_mass_is_the_cheapest(problem):
    instance, mass = problem
    adaptive = aot.solve(*instance)
    assert value(instance, min(adaptive.mass, most_mass(instance))) <= adaptive.value + rounding(instance)
    assert value(instance, mass) >= adaptive.value - rounding(instance)
