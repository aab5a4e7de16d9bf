"""Models of the marginals from outside: a model of the tests' own, and pairs of models, one for each side."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import cvxpy
import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linprog

import adaptive_ot as aot
from adaptive_ot.marginals import AT_MOST, EQUAL, Side
from problems import least_by_clarabel


@dataclass(frozen=True)
class ServeAllTargets(aot.Marginals):
    """At most the source weights, exactly the target weights: all that a new model has to say."""

    title = "Serving all targets"
    sides = (AT_MOST, EQUAL)


PAIRS = {
    "at most, equal": (aot.AtMost(), aot.Equal()),
    "equal, at most": (aot.Equal(), aot.AtMost()),
    "own model": ServeAllTargets(),
}
SOFT = [aot.AtMost(), aot.Equal(), aot.SoftKL(0.3), aot.SoftKL(2.0)]


def sides_of(marginals) -> tuple[Side, Side]:
    return marginals.sides if isinstance(marginals, aot.Marginals) else (marginals[0].sides[0], marginals[1].sides[1])


def random_problem(rng, marginals):
    """Weights whose totals suit the sides, and costs of any sign."""
    n, m = rng.integers(1, 9, 2)
    cost, mu, nu = rng.normal(size=(n, m)), rng.random(n) + 0.01, rng.random(m) + 0.01
    source, target = sides_of(marginals)
    share = 1.0 if source == target else rng.uniform(0.3, 1.0)
    if source == EQUAL and not target.soft:
        mu *= share * nu.sum() / mu.sum()
    elif target == EQUAL and not source.soft:
        nu *= share * mu.sum() / nu.sum()
    return cost, mu, nu


def highs(cost, mu, nu, sides) -> float:
    n, m = cost.shape
    sums = np.kron(np.eye(n), np.ones(m)), np.kron(np.ones(n), np.eye(m))
    rules: dict[bool, list] = {True: [], False: []}
    for side, matrix, weights in zip(sides, sums, (mu, nu), strict=True):
        rules[side.bounded].append((matrix, weights))
    (bounds, limits), (equations, totals) = (
        (np.vstack([a for a, _ in rules[kind]]), np.concatenate([b for _, b in rules[kind]])) for kind in (True, False)
    )
    return float(linprog(cost.ravel(), bounds, limits, equations, totals).fun)


def clarabel(cost, mu, nu, sides, epsilon, entropy) -> tuple[Any, float]:
    """The plan of least cost, divergence and entropy, and the value."""
    plan = cvxpy.Variable(cost.shape, nonneg=True)
    value, rules = cvxpy.sum(cvxpy.multiply(cost, plan)), []
    for axis, side, weights in ((1, sides[0], mu), (0, sides[1], nu)):
        sums = cvxpy.sum(plan, axis=axis)
        if side.soft:
            value += side.tau * cvxpy.sum(cvxpy.kl_div(sums, weights))
        else:
            rules.append(sums <= weights if side.bounded else sums == weights)
    product = np.outer(mu, nu) if entropy == "product" else np.ones(cost.shape)
    value += epsilon * cvxpy.sum(cvxpy.kl_div(plan, product)) - (epsilon * cost.size if entropy == "counting" else 0.0)
    least = least_by_clarabel(value, rules)
    return plan.value, least


@pytest.mark.parametrize("name", PAIRS)
def test_exact_against_highs(name):
    rng, marginals = np.random.default_rng(0), PAIRS[name]
    for _ in range(60):
        cost, mu, nu = random_problem(rng, marginals)
        solution = aot.solve(cost, mu, nu, marginals=marginals)
        assert solution.value == pytest.approx(highs(cost, mu, nu, sides_of(marginals)), rel=1e-9, abs=1e-9)
        assert solution.gap <= 1e-9
        assert solution.violation <= 1e-12
        assert solution.price == 0.0


@pytest.mark.parametrize("entropy", ["product", "counting"])
@pytest.mark.parametrize("models", [*itertools.permutations(SOFT, 2), ServeAllTargets()], ids=str)
def test_entropic_against_clarabel(models, entropy):
    rng = np.random.default_rng(1)
    cost, mu, nu = random_problem(rng, models)
    plan, value = clarabel(cost, mu, nu, sides_of(models), 0.2, entropy)
    solution = aot.solve(cost, mu, nu, marginals=models, solver=aot.Entropic(0.2, entropy))
    assert solution.regularised_value == pytest.approx(value, abs=1e-5)
    np.testing.assert_allclose(solution.plan, plan, atol=1e-3)
    assert solution.gap >= 0


@pytest.mark.parametrize("models", [*itertools.permutations(SOFT[:3], 2)], ids=str)
def test_little_entropy_is_nearly_exact(models):
    """The certified gap is a gap to the problem without entropy, whichever engine found the plan."""
    cost, mu, nu = random_problem(np.random.default_rng(2), models)
    solution = aot.solve(cost, mu, nu, marginals=models, solver=aot.Entropic(1e-5))
    assert solution.gap <= 1e-3
    if not any(side.soft for side in sides_of(models)):
        assert solution.value == pytest.approx(aot.solve(cost, mu, nu, marginals=models).value, abs=1e-3)


def test_pairs_by_every_kind_of_cost():
    rng, pair = np.random.default_rng(3), (aot.AtMost(), aot.Equal())
    x, z = rng.random((9, 2)), rng.random((7, 2))
    points, nu = aot.DistanceCost(x, z, 0.5), np.full(7, 0.1)
    dense = points.block(0, 9)
    for solver in (aot.Exact(), aot.Entropic(0.05)):
        expected = aot.solve(dense, None, nu, marginals=pair, solver=solver)
        for cost in (points, sparse.csr_array(dense), np.stack([dense, dense])):
            solution = aot.solve(cost, None, nu, marginals=pair, solver=solver)
            np.testing.assert_allclose(solution.value, expected.value, rtol=1e-9)
            np.testing.assert_allclose(solution.target_marginal - nu, 0.0, atol=1e-8)


def test_a_pair_of_the_same_model_is_that_model():
    cost = np.random.default_rng(4).normal(size=(4, 4))
    assert aot.solve(cost, marginals=(aot.Equal(), aot.Equal())).problem.marginals == aot.Equal()
    assert aot.solve(cost, marginals=(aot.AtMost(), aot.AtMost())).problem.marginals == aot.AtMost()


@pytest.mark.parametrize("marginals", PAIRS.values(), ids=PAIRS)
def test_transposed(marginals):
    cost, mu, nu = random_problem(np.random.default_rng(5), marginals)
    problem = aot.solve(cost, mu, nu, marginals=marginals).problem
    transposed = problem.transposed()
    assert transposed.marginals.sides == problem.marginals.sides[::-1] != problem.marginals.sides
    assert transposed.marginals.transposed().sides == problem.marginals.sides


def test_forbidden_pairs_that_leave_no_plan():
    cost = [[1.0, np.inf], [1.0, np.inf]]
    for solver in (aot.Exact(), aot.Entropic(0.1)):
        with pytest.raises(aot.Infeasible):
            aot.solve(cost, [1.0, 1.0], marginals=(aot.AtMost(), aot.Equal()), solver=solver)


@pytest.mark.parametrize(
    ("marginals", "weights", "words"),
    [
        ((aot.AtMost(), aot.FixedMass(0.5)), (None, None), "must be AtMost, Equal or SoftKL on each side of a pair"),
        ((aot.AtMost(), aot.Equal()), ([0.1, 0.1], [1.0, 1.0]), "target_weights must have a total of at most"),
        (ServeAllTargets(), ([0.1, 0.1], [1.0, 1.0]), "target_weights must have a total of at most"),
        ((aot.Equal(), aot.AtMost()), ([1.0, 1.0], [0.1, 0.1]), "source_weights must have a total of at most"),
        ((aot.Equal(), aot.SoftKL(1.0)), (None, None), "must be Entropic with SoftKL"),
        ((aot.Equal(),), (None, None), "marginals must be"),
    ],
)
def test_pairs_that_make_no_sense(marginals, weights, words):
    with pytest.raises(aot.InvalidInput, match=words):
        aot.solve(np.ones((2, 2)), *weights, marginals=marginals)
