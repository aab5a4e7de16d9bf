"""What the gap of an exact answer is relative to: statuses do not depend on the units of costs and weights."""

from __future__ import annotations

import numpy as np
import pytest

import adaptive_ot as aot
import problems
from adaptive_ot import Exact, Status
from adaptive_ot.exact.certificate import certified
from adaptive_ot.marginals import AtMost, ChiSquareBall, Equal, FixedMass
from problems import normal_problem

# Powers of two change no digit.
FACTORS = [(2.0**-20, 1.0), (1.0, 2.0**-20), (2.0**-40, 2.0**-40), (2.0**30, 2.0**-10)]


def plan_of_share(share: float, cost_factor: float, weight_factor: float) -> aot.Solution:
    """A solution of two pairs, which would pay one unit each, that moves only a share of what it should."""
    cost, weights = cost_factor * np.array([[-1.0, 2.0], [2.0, -1.0]]), weight_factor * np.array([0.5, 0.5])
    problem = aot.Problem.build(cost, weights, weights)
    f = np.full(2, -cost_factor)
    pairs = np.arange(2), np.arange(2), share * weights
    return certified(problem, Exact(), pairs, np.diag(cost), f, problem.bound(f), True, 0)


@pytest.mark.parametrize("weight_factor", [1e12, 1.0, 1e-6, 1e-30])
@pytest.mark.parametrize("cost_factor", [1e12, 1.0, 1e-6, 1e-30])
def test_the_gap_is_relative(cost_factor, weight_factor):
    factors = cost_factor, weight_factor
    assert plan_of_share(1.0, *factors).status is Status.OPTIMAL
    assert plan_of_share(1 - 1e-9, *factors).status is Status.OPTIMAL
    assert plan_of_share(1 - 1e-8, *factors).status is Status.IMPRECISE
    assert plan_of_share(0.5, *factors).status is Status.IMPRECISE


def wide_problem(rng: np.random.Generator) -> problems.Instance:
    """Costs and weights over many orders of magnitude: the tolerance is out of reach for some."""
    n, m = rng.integers(2, 9, 2)
    size = 10.0 ** rng.uniform(-14, 14, (n, m if rng.random() < 0.5 else 1))
    mu, nu = 10.0 ** rng.uniform(-12, 0, n), 10.0 ** rng.uniform(-12, 0, m)
    return problems.Instance(rng.standard_normal((n, m)) * size, mu, nu * (mu.sum() / nu.sum()))


def assert_scaled(scaled: aot.Solution, plain: aot.Solution, cost_factor: float, weight_factor: float) -> None:
    factor = cost_factor * weight_factor
    rounding = 1e-14 * factor * float(np.abs(plain.problem.cost.block(0, plain.plan.shape[0])).max()) * plain.mass
    assert scaled.status is plain.status
    assert scaled.iterations == plain.iterations
    assert scaled.gap == pytest.approx(factor * plain.gap, rel=0, abs=rounding)
    assert scaled.value == pytest.approx(factor * plain.value, rel=0, abs=rounding)
    np.testing.assert_allclose(scaled.plan, weight_factor * plain.plan, rtol=1e-12)


@pytest.mark.parametrize(("cost_factor", "weight_factor"), FACTORS)
@pytest.mark.parametrize("model", ["AtMost", "Equal", "part", "all", "ChiSquareBall"])
def test_a_scaled_problem_behaves_like_the_problem(model, cost_factor, weight_factor):
    rng = np.random.default_rng(0)
    for _ in range(10 if model == "ChiSquareBall" else 100):
        cost, mu, nu = wide_problem(rng) if model != "ChiSquareBall" else problems.balanced(rng, normal_problem(rng))
        most = float(min(mu.sum(), nu.sum()))
        marginals = {
            "AtMost": (AtMost(), AtMost()),
            "Equal": (Equal(), Equal()),
            "part": (FixedMass(0.3 * most), FixedMass(0.3 * most * weight_factor)),
            "all": (FixedMass(most), FixedMass(most * weight_factor)),
            "ChiSquareBall": (ChiSquareBall(0.2), ChiSquareBall(0.2)),
        }[model]
        plain = aot.solve(cost, mu, nu, marginals=marginals[0], raise_if_not_converged=False)
        scaled = aot.solve(
            cost_factor * cost,
            weight_factor * mu,
            weight_factor * nu,
            marginals=marginals[1],
            raise_if_not_converged=False,
        )
        assert_scaled(scaled, plain, cost_factor, weight_factor)


@pytest.mark.parametrize(("cost_factor", "weight_factor"), FACTORS)
def test_a_scaled_batch_behaves_like_the_batch(cost_factor, weight_factor):
    rng = np.random.default_rng(1)
    cost, mu = rng.standard_normal((30, 6, 8)) * 10.0 ** rng.uniform(-12, 12, (30, 6, 1)), rng.random((30, 6))
    nu = rng.random((30, 8))
    plain = aot.solve(cost, mu, nu)
    scaled = aot.solve(cost_factor * cost, weight_factor * mu, weight_factor * nu)
    for one, other in zip(scaled, plain, strict=True):
        assert_scaled(one, other, cost_factor, weight_factor)


# Where all mass must move, costs that no plan needs must not cost the others their digits


@pytest.mark.parametrize("marginals", [Equal(), FixedMass(1.0), FixedMass(0.7)], ids=["equal", "all", "part"])
@pytest.mark.parametrize("large", [1e3, 1e6, 1e9, 1e12, 1e16, 1e100])
@pytest.mark.parametrize("n", [6, 60])
def test_a_large_cost_forbids_a_pair(n, large, marginals):
    rng = np.random.default_rng(n)
    cost, forbidden = rng.random((n, n)), rng.random((n, n)) < 0.5
    np.fill_diagonal(forbidden, False)
    weights, mass = np.full(n, 1 / n), getattr(marginals, "mass", None)
    expected = problems.family_reference(np.where(forbidden, np.inf, cost), weights, weights, mass)
    solution = aot.solve(np.where(forbidden, large, cost), marginals=marginals)
    assert solution.value == pytest.approx(expected, rel=1e-9)
    assert solution.gap <= 1e-9 * solution.value


@pytest.mark.parametrize("marginals", [Equal(), FixedMass(1.0), FixedMass(0.7)], ids=["equal", "all", "part"])
@pytest.mark.parametrize("noise", [0.0, 1e-15, 1e-12, 1e-8, 1e-5, 1e-3])
def test_clouds_that_nearly_coincide(noise, marginals):
    """Every point has its own partner, far nearer than any other."""
    rng = np.random.default_rng(2)
    x = rng.standard_normal((100, 2)).round(3)
    x = np.unique(x, axis=0)
    z = x + noise * rng.uniform(-0.1, 0.1, x.shape)
    squares = np.sort(((x - z) ** 2).sum(axis=1))
    share = getattr(marginals, "mass", 1.0)
    taken = np.diff(np.minimum(np.append(0.0, np.cumsum(np.full(len(x), 1 / len(x)))), share))
    for cost in (aot.DistanceCost(x, z, reach=0.0), problems.distance_matrix(x, z, 0.0)):
        solution = aot.solve(cost, marginals=marginals)
        assert solution.value == pytest.approx(float(squares @ taken), rel=1e-9)
        assert solution.gap <= 1e-9 * solution.value


@pytest.mark.parametrize("large", [1e9, 1e12, 1e16, 1e20, 1e40, 1e90])
@pytest.mark.parametrize("marginals", [Equal(), ChiSquareBall(0.5)], ids=str)
def test_costs_that_stand_for_forbidden_pairs(marginals, large):
    """Potentials as large as these costs must not hide a gap: an optimal solution is the one without these pairs."""
    rng = np.random.default_rng(5)
    for _ in range(12):
        n = int(rng.integers(3, 7))
        cost, hit = rng.normal(size=(n, n)), rng.random((n, n)) < 0.4
        np.fill_diagonal(hit, False)  # some plan is left
        expected = aot.solve(np.where(hit, np.inf, cost), marginals=marginals).value
        costs = np.where(hit, large * (1 + rng.random((n, n))), cost)
        solution = aot.solve(costs, marginals=marginals, raise_if_not_converged=False)
        assert solution.value - solution.gap <= expected + 1e-9
        if solution.status is Status.OPTIMAL:
            assert solution.value == pytest.approx(expected, rel=2e-3, abs=1e-9)
        if marginals == Equal():
            assert solution.status is Status.OPTIMAL


def test_near_copies_are_optimal():
    """What the plan costs is rounding here, beside ordinary costs: no reason to call the solution imprecise."""
    x = np.random.default_rng(6).random((30, 3))
    distances = ((x[:, None] - x * (1 + 1e-9)) ** 2).sum(-1)
    for marginals in (Equal(), FixedMass(0.7), ChiSquareBall(0.2)):
        assert aot.solve(distances, marginals=marginals).value <= 1e-15
