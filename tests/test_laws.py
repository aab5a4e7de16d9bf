"""Laws that the optimal value obeys, whatever the problem: 300 examples each (see conftest.py)."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.optimize import linprog

import adaptive_ot as aot
from check import check_solution
from problems import Instance

SIZES = st.integers(1, 6)
# Small integers make ties and degenerate trees; real numbers make everything else.
COSTS = st.one_of(st.integers(-4, 4).map(float), st.floats(-10, 10, width=32))
WEIGHTS = st.one_of(st.integers(0, 4).map(float), st.floats(0, 10, width=32).filter(lambda w: w == 0 or w > 1e-6))
FACTORS = st.sampled_from([2.0**-20, 0.1, 0.5, 1.0, 3.0, 7.3, 2.0**20])


@st.composite
def instances(draw, sizes=SIZES, costs=COSTS, weights=WEIGHTS):
    n, m = draw(sizes), draw(sizes)
    cost = draw(hnp.arrays(float, (n, m), elements=costs))
    return Instance(cost, draw(hnp.arrays(float, n, elements=weights)), draw(hnp.arrays(float, m, elements=weights)))


def value(cost, source_weights, target_weights):
    """The optimal value, from a solution that proves itself."""
    solution = aot.solve(cost, source_weights, target_weights)
    check_solution(solution, cost, source_weights, target_weights)
    return solution.value


def precision(*instances):
    """What rounding may do to values of these problems."""
    scales = [abs(np.where(np.isfinite(cost), cost, 0.0)).max() * min(mu.sum(), nu.sum()) for cost, mu, nu in instances]
    return 1e-13 * max(scales)


def assert_same(first, second, tolerance):
    assert abs(first - second) <= tolerance, f"{first} and {second} differ by more than {tolerance}"


@given(instances())
def test_transpose(instance):
    cost, mu, nu = instance
    assert_same(value(cost.T, nu, mu), value(*instance), precision(instance))


@given(instances(), st.randoms(use_true_random=False))
def test_permutation(instance, random):
    cost, mu, nu = instance
    rows, columns = list(range(mu.size)), list(range(nu.size))
    random.shuffle(rows)
    random.shuffle(columns)
    shuffled = value(cost[np.ix_(rows, columns)], mu[rows], nu[columns])
    assert_same(shuffled, value(*instance), precision(instance))


@given(instances(), FACTORS)
def test_scaling_the_cost_scales_the_value(instance, factor):
    cost, mu, nu = instance
    assert_same(value(factor * cost, mu, nu), factor * value(*instance), factor * precision(instance))


@given(instances(), FACTORS)
def test_scaling_the_weights_scales_the_value(instance, factor):
    cost, mu, nu = instance
    assert_same(value(cost, factor * mu, factor * nu), factor * value(*instance), factor * precision(instance))


@given(instances())
def test_no_negative_cost_moves_nothing(instance):
    cost, mu, nu = instance
    solution = aot.solve(np.abs(cost), mu, nu)
    check_solution(solution, np.abs(cost), mu, nu)
    assert (solution.value, solution.mass) == (0.0, 0.0)
    assert not solution.plan.any()


@given(instances())
def test_pairs_that_do_not_pay_can_be_forbidden(instance):
    cost, mu, nu = instance
    assert value(np.where(cost >= 0, np.inf, cost), mu, nu) == value(*instance)


@given(instances())
def test_clipping_positive_costs_at_zero_changes_nothing(instance):
    cost, mu, nu = instance
    assert value(np.minimum(cost, 0.0), mu, nu) == value(*instance)


@given(instances(), st.data())
def test_splitting_an_atom_changes_nothing(instance, data):
    cost, mu, nu = instance
    row = data.draw(st.integers(0, mu.size - 1))
    share = data.draw(st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0]))
    pieces = np.append(mu, (1 - share) * mu[row])
    pieces[row] = share * mu[row]
    split = value(np.vstack([cost, cost[row]]), pieces, nu)
    assert_same(split, value(*instance), precision(instance))


@given(instances(), st.data())
def test_more_capacity_never_costs(instance, data):
    cost, mu, nu = instance
    more = data.draw(hnp.arrays(float, mu.size, elements=WEIGHTS))
    assert value(cost, mu + more, nu) <= value(*instance) + precision(instance, Instance(cost, mu + more, nu))


@given(instances(), st.data())
def test_a_higher_cost_never_pays(instance, data):
    cost, mu, nu = instance
    dearer = cost + data.draw(hnp.arrays(float, cost.shape, elements=WEIGHTS))
    assert value(dearer, mu, nu) >= value(*instance) - precision(instance, Instance(dearer, mu, nu))


@given(instances(), st.data())
def test_value_is_convex_in_the_weights(instance, data):
    cost, mu, nu = instance
    other_mu, other_nu = (data.draw(hnp.arrays(float, side.size, elements=WEIGHTS)) for side in (mu, nu))
    between = Instance(cost, (mu + other_mu) / 2, (nu + other_nu) / 2)
    other = Instance(cost, other_mu, other_nu)
    chord = (value(*instance) + value(*other)) / 2
    assert value(*between) <= chord + precision(instance, other, between)


@given(instances(), st.data())
def test_value_is_concave_in_the_cost(instance, data):
    cost, mu, nu = instance
    other = Instance(data.draw(hnp.arrays(float, cost.shape, elements=COSTS)), mu, nu)
    between = Instance((cost + other.cost) / 2, mu, nu)
    chord = (value(*instance) + value(*other)) / 2
    assert value(*between) >= chord - precision(instance, other)


@given(instances(), instances())
def test_problems_side_by_side_add_up(first, second):
    n, m = first.cost.shape
    cost = np.full((n + second.cost.shape[0], m + second.cost.shape[1]), np.inf)
    cost[:n, :m], cost[n:, m:] = first.cost, second.cost
    weights = (np.concatenate(pair) for pair in zip(first[1:], second[1:], strict=True))
    both = Instance(cost, *weights)
    assert_same(value(*both), value(*first) + value(*second), precision(both))


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
    rows = [np.isin(cells.ravel(), line) for line in [*cells, *cells.T]]
    options = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    balanced = linprog(augmented.ravel(), A_eq=np.array(rows, float), b_eq=marginals, method="highs", options=options)
    assert balanced.status == 0
    assert math.isclose(value(*instance), balanced.fun * total, rel_tol=1e-9, abs_tol=1e-9 * total)


@given(instances(), st.floats(0, 5), st.floats(0, 5))
def test_a_uniform_discount_pays_for_the_mass_it_moves(instance, small, large):
    """With C - t the value falls in t at a rate between the masses at both ends, which therefore grow with t."""
    cost, mu, nu = instance
    small, large = sorted([small, large])
    little, much = (aot.solve(cost - discount, mu, nu) for discount in (small, large))
    saved = little.value - much.value
    slack = precision(Instance(cost - small, mu, nu), Instance(cost - large, mu, nu))
    assert (large - small) * little.mass - slack <= saved <= (large - small) * much.mass + slack
