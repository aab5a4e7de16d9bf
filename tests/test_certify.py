"""certify judges any answer: against HiGHS, POT, the library's own solutions and a loop over all pairs."""

from __future__ import annotations

import itertools
import math
import tracemalloc
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse
from scipy.optimize import linprog

import adaptive_ot as aot
import problems
from adaptive_ot.exact import columns
from adaptive_ot.exact.limits import Limits

EXACT = [aot.AtMost(), aot.Equal(), aot.FixedMass(0.6), aot.ChiSquareBall(0.2), (aot.AtMost(), aot.Equal())]
ENTROPIC = [aot.AtMost(), aot.Equal(), aot.FixedMass(0.6), aot.SoftKL(0.7), (aot.Equal(), aot.SoftKL(0.5))]
SOLVED = [(each, aot.Exact()) for each in EXACT] + [(each, aot.Entropic(0.1)) for each in ENTROPIC]


def potentials_of(solution) -> dict[str, Any]:
    return {"source_potential": solution.source_potential, "target_potential": solution.target_potential}


@pytest.mark.parametrize(("marginals", "solver"), SOLVED, ids=str)
@pytest.mark.parametrize("kind", ["normal", "sparse", "points", "classes", "single"])
def test_agrees_with_our_own_solutions(marginals, solver, kind):
    rng = np.random.default_rng(3)
    cost, dense, _ = problems.medium_costs(kind, rng, 20, 30)
    if kind == "sparse":
        dense = np.where(rng.random(dense.shape) < 0.3, np.inf, rng.standard_normal(dense.shape))
        cost = problems.stored(dense)
    mu, nu = rng.dirichlet(np.ones(20)), rng.dirichlet(np.ones(30))
    solution = aot.solve(cost, mu, nu, marginals=marginals, solver=solver)
    rounding = 1e-5 if kind == "single" else 1e-12
    for names in (["source_potential"], ["target_potential"], ["source_potential", "target_potential"]):
        potentials = {name: potentials_of(solution)[name] for name in names}
        certificate = aot.certify(cost, mu, nu, plan=solution.plan, marginals=marginals, **potentials)
        assert certificate.feasible
        assert certificate.violation == pytest.approx(solution.violation, abs=1e-14)
        assert certificate.value == pytest.approx(solution.value, rel=rounding, abs=rounding)
        assert certificate.mass == pytest.approx(solution.mass, rel=rounding)
        if names != ["target_potential"]:
            assert certificate.gap <= solution.gap + rounding
        if isinstance(solver, aot.Exact):
            assert certificate.gap == pytest.approx(solution.gap, abs=rounding * 10)


@pytest.mark.parametrize("seed", range(20))
def test_duals_of_highs_certify_the_plan_of_highs(seed):
    cost, mu, nu = problems.normal_problem(seed)
    n, m = cost.shape
    sums = np.vstack([np.kron(np.eye(n), np.ones(m)), np.kron(np.ones(n), np.eye(m))])
    found = linprog(cost.ravel(), A_ub=sums, b_ub=np.concatenate([mu, nu]), method="highs")
    plan, (f, g) = found.x.reshape(n, m), np.split(found.ineqlin.marginals, [n])
    sides: list[dict[str, Any]] = [{"source_potential": f}, {"target_potential": g}]
    for potentials in sides:
        certificate = aot.certify(cost, mu, nu, plan=plan, **potentials)
        assert certificate.value == pytest.approx(found.fun, rel=1e-12)
        assert certificate.lower_bound == pytest.approx(found.fun, rel=1e-12)
        assert certificate.feasible
        assert certificate.gap <= 1e-12
    worse = 0.9 * plan
    certificate = aot.certify(cost, mu, nu, plan=worse, source_potential=f)
    assert certificate.gap == pytest.approx(-0.1 * found.fun, rel=1e-9)
    assert aot.certify(cost, mu, nu, plan=plan, source_potential=f + 0.3).gap > 1e-3


def test_judges_pot():
    ot = pytest.importorskip("ot")
    rng = np.random.default_rng(0)
    cost, mu, nu = rng.standard_normal((30, 40)), rng.dirichlet(np.ones(30)), rng.dirichlet(np.ones(40))
    plan, log = ot.emd(mu, nu, cost, log=True)
    potentials = {"source_potential": log["u"], "target_potential": log["v"]}
    certificate = aot.certify(cost, mu, nu, plan=plan, marginals=aot.Equal(), **potentials)
    assert certificate.feasible
    assert certificate.gap <= 1e-12
    assert str(certificate).splitlines()[1].startswith("  verdict      feasible, and optimal to within")
    other = np.outer(mu, nu)
    certificate = aot.certify(cost, mu, nu, plan=other, marginals=aot.Equal(), **potentials)
    assert certificate.feasible
    assert certificate.gap == pytest.approx((cost * (other - plan)).sum(), rel=1e-9)
    assert not aot.certify(cost, mu, nu, plan=1.01 * plan, marginals=aot.Equal(), **potentials).feasible


def test_judges_partial_transport_of_pot():
    ot = pytest.importorskip("ot")
    rng = np.random.default_rng(1)
    cost, mu, nu = rng.random((12, 15)), rng.dirichlet(np.ones(12)), rng.dirichlet(np.ones(15))
    plan = ot.partial.partial_wasserstein(mu, nu, cost, m=0.6)
    ours = aot.solve(cost, mu, nu, marginals=aot.FixedMass(0.6))
    certificate = aot.certify(cost, mu, nu, plan=plan, marginals=aot.FixedMass(0.6), **potentials_of(ours))
    assert certificate.feasible
    assert certificate.gap <= 1e-9
    certificate = aot.certify(cost, mu, nu, plan=plan, marginals=aot.FixedMass(0.5), **potentials_of(ours))
    assert repr(certificate) == "<Certificate of 12 x 15: infeasible: the mass is off by 0.1>"


finite = st.floats(-10, 10, width=32)
any_number = finite | st.floats(-1e18, 1e300)


@given(st.data(), st.sampled_from(["at most", "equal", "fixed"]), st.integers(1, 4), st.integers(1, 4))
def test_bounds_enclose_the_optimum(data, model, n, m):
    cost = data.draw(hnp.arrays(float, (n, m), elements=finite))
    mu = data.draw(hnp.arrays(float, n, elements=st.integers(0, 4)))
    nu = data.draw(hnp.arrays(float, m, elements=st.integers(0, 4)))
    if model == "equal":
        mu, nu = mu * nu.sum(), nu * mu.sum()
    mass = 0.5 * min(mu.sum(), nu.sum())
    marginals = {"at most": aot.AtMost(), "equal": aot.Equal(), "fixed": aot.FixedMass(mass)}[model]
    plan = data.draw(hnp.arrays(float, (n, m), elements=st.floats(-1, 4, width=16) | st.just(0.0)))
    if data.draw(st.booleans()):  # a plan that satisfies the constraints
        plan = np.outer(mu, nu) / max(1.0, mu.sum(), nu.sum()) * {"at most": 0.5, "equal": 1.0, "fixed": 1.0}[model]
        plan *= mass / plan.sum() if model == "fixed" and mass else 1.0
    f = data.draw(st.none() | hnp.arrays(float, n, elements=any_number))
    g = data.draw(st.none() | hnp.arrays(float, m, elements=any_number))
    certificate = aot.certify(cost, mu, nu, plan=plan, source_potential=f, target_potential=g, marginals=marginals)
    if model == "at most":
        optimum = problems.reference_value(cost, mu, nu)
    else:
        optimum = problems.family_reference(cost, mu, nu, None if model == "equal" else mass)
    assert optimum is not None
    rounding = 1e-7 * (1 + abs(optimum) + 10 * mu.sum())
    assert certificate.lower_bound <= optimum + rounding
    if certificate.feasible:
        assert optimum <= certificate.value + rounding
        assert certificate.gap >= certificate.value - optimum - rounding


@pytest.mark.parametrize("marginals", EXACT + ENTROPIC, ids=str)
def test_no_potential_proves_more_than_the_optimum(marginals):
    rng = np.random.default_rng(8)
    cost, mu, nu = rng.standard_normal((6, 7)), rng.dirichlet(np.ones(6)), rng.dirichlet(np.ones(7))
    soft = any(side.soft for side in aot.certify(cost, mu, nu, plan=cost, marginals=marginals).problem.marginals.sides)
    best = aot.solve(cost, mu, nu, marginals=marginals, solver=aot.Entropic(1e-4) if soft else aot.Exact())
    for size in (0.1, 1.0, 10.0, 1e15):
        f, g = size * rng.standard_normal(6), size * rng.standard_normal(7)
        for potentials in ({"source_potential": f}, {"target_potential": g}):
            certificate = aot.certify(cost, mu, nu, marginals=marginals, **potentials)
            assert certificate.lower_bound <= best.value + 1e-12
    # Either side, close to optimal, proves nearly as much as the solution itself.
    for one in potentials_of(best).items():
        certificate = aot.certify(cost, mu, nu, marginals=marginals, **dict([one]))
        assert certificate.lower_bound >= best.value - best.gap - (1e-2 if soft else 1e-12)


@pytest.mark.parametrize("kind", ["points", "classes", "sparse"])
@pytest.mark.parametrize("marginals", EXACT, ids=str)
def test_agrees_with_the_dense_matrix(kind, marginals):
    rng = np.random.default_rng(5)
    cost, dense, _ = problems.medium_costs(kind, rng, 40, 25)
    allowed = np.isfinite(dense)
    plan = rng.random(dense.shape) * allowed * (rng.random(dense.shape) < 0.1) / dense.size
    f, g = rng.standard_normal(40), rng.standard_normal(25)
    for potentials in ({"source_potential": f}, {"target_potential": g}, {}):
        expected = aot.certify(dense, plan=plan, marginals=marginals, **potentials)
        for form in (plan, sparse.csr_array(plan), sparse.coo_matrix(plan)):
            certificate = aot.certify(cost, plan=form, marginals=marginals, **potentials)
            assert certificate.value == pytest.approx(expected.value, rel=1e-12)
            assert certificate.lower_bound == pytest.approx(expected.lower_bound, rel=1e-12)
            np.testing.assert_allclose(certificate.violations, expected.violations, rtol=1e-12, atol=1e-15)


def test_large_point_clouds_in_little_memory(monkeypatch):
    size = 3000
    monkeypatch.setattr("adaptive_ot.costs.NUMBERS_AT_ONCE", 2**17)
    rng = np.random.default_rng(0)
    cost = aot.DistanceCost(rng.random((size, 3)), rng.random((size, 3)), reach=0.3)
    order = rng.permutation(size)
    plan = sparse.csr_array((np.full(size, 1 / size), (np.arange(size), order)), shape=(size, size))
    aot.certify(aot.DistanceCost([[0.0]], [[0.0]], 1.0), plan=[[1.0]], source_potential=[0.0])  # imports what it needs
    tracemalloc.start()
    certificate = aot.certify(cost, plan=plan, source_potential=np.zeros(size), target_potential=np.zeros(size))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 8 * size**2 / 6
    matched = ((cost.x - cost.z[order]) ** 2).sum(axis=1) - 0.09
    assert certificate.value == pytest.approx(matched.mean(), rel=1e-12)
    assert certificate.feasible
    nearest = np.array([((x - cost.z) ** 2).sum(axis=1).min() for x in cost.x]) - 0.09
    assert certificate.lower_bound >= np.minimum(nearest, 0.0).mean() - 1e-12


def test_large_sparse_costs_take_their_stored_pairs_only():
    size = 200_000  # 4e10 pairs
    diagonal = np.arange(size, dtype=np.int32)
    cost = sparse.csr_array((np.full(size, -1.0), (diagonal, diagonal)), shape=(size, size))
    certificate = aot.certify(cost, plan=-cost / size, source_potential=np.full(size, -0.5))
    assert certificate.value == pytest.approx(-1.0, rel=1e-12)
    assert certificate.gap <= 1e-12


def test_without_potentials_nothing_is_proved():
    certificate = aot.certify([[-1.0]], plan=[[1.0]])
    assert (certificate.value, certificate.mass, certificate.violation) == (-1.0, 1.0, 0.0)
    assert (certificate.lower_bound, certificate.gap) == (-math.inf, math.inf)
    assert certificate.feasible
    assert repr(certificate) == "<Certificate of 1 x 1: feasible, but no potentials prove how close to optimal it is>"
    assert "lower bound" not in str(certificate)


def test_without_a_plan_only_the_bound_is_known():
    certificate = aot.certify([[-1.0]], target_potential=[-0.25])
    assert certificate.lower_bound == pytest.approx(-1.0, rel=1e-12)
    assert all(map(math.isnan, (certificate.value, certificate.mass, certificate.violation)))
    assert certificate.gap == math.inf
    assert not certificate.feasible
    assert repr(certificate) == "<Certificate of 1 x 1: a lower bound, but no plan was given>"
    assert "value" not in str(certificate)


VERDICTS = [
    ([[0.75, 0.0], [0.0, 0.5]], aot.AtMost(), "row sums exceed the source weights by up to 0.25"),
    ([[0.25, 0.0], [0.5, 0.0]], aot.AtMost(), "column sums exceed the target weights by up to 0.25"),
    ([[0.5, 0.0], [0.0, 0.25]], aot.Equal(), "row sums are off by up to 0.25"),
    ([[0.5, 0.0], [0.5, 0.0]], (aot.AtMost(), aot.Equal()), "column sums are off by up to 0.5"),
    ([[0.5, -0.125], [0.0, 0.125]], aot.AtMost(), "the lowest entry is -0.12"),
    ([[0.5, 0.0], [0.0, 0.0]], aot.FixedMass(0.75), "the mass is off by 0.25"),
    ([[0.0, 0.0], [0.5, 0.0]], aot.AtMost(), "mass lies on a forbidden pair"),
]


@pytest.mark.parametrize(("plan", "marginals", "verdict"), VERDICTS)
def test_infeasible_plans_are_told_apart(plan, marginals, verdict):
    cost = [[-1.0, 1.0], [np.inf if "forbidden" in verdict else 0.0, -2.0]]
    certificate = aot.certify(cost, plan=plan, source_potential=[-1.0, -2.0], marginals=marginals)
    assert not certificate.feasible
    assert repr(certificate) == f"<Certificate of 2 x 2: infeasible: {verdict}>"


def test_a_problem_without_any_plan():
    cost = [[1.0, np.inf], [1.0, np.inf]]
    certificate = aot.certify(cost, plan=np.eye(2) / 2, source_potential=[0.0, 0.0], marginals=aot.Equal())
    assert certificate.lower_bound == certificate.gap == math.inf
    assert repr(certificate) == "<Certificate of 2 x 2: no plan satisfies the constraints>"


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0)])
def test_empty(shape):
    plan, f, g = np.zeros(shape), np.zeros(shape[0]), np.zeros(shape[1])
    certificate = aot.certify(np.zeros(shape), plan=plan, source_potential=f, target_potential=g)
    assert certificate.value == certificate.gap == certificate.violation == certificate.mass == 0.0


def test_tensors():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(2)
    cost, plan, f = rng.standard_normal((5, 6)), rng.random((5, 6)) / 30, rng.standard_normal(5)
    expected = aot.certify(cost, plan=plan, source_potential=f)
    tensors = [torch.from_numpy(array) for array in (cost, plan, f)]
    tensors[0].requires_grad_()
    for form in (tensors[1], tensors[1].to_sparse()):
        for judged in (tensors[0], cost):
            certificate = aot.certify(judged, plan=form, source_potential=tensors[2])
            assert certificate.value == pytest.approx(expected.value, rel=1e-14)
            assert certificate.lower_bound == expected.lower_bound
            assert certificate.violations == expected.violations
    single = aot.certify(tensors[0].float(), plan=tensors[1].float(), source_potential=tensors[2].float())
    assert single.value == pytest.approx(expected.value, rel=1e-5)


def test_inputs_are_untouched():
    arrays: dict[str, Any] = {
        "cost": np.ones((2, 3)),
        "source_weights": np.ones(2),
        "target_weights": np.ones(3),
        "plan": np.full((2, 3), 0.1),
        "source_potential": np.ones(2),
        "target_potential": np.ones(3),
    }
    before = {name: array.copy() for name, array in arrays.items()}
    for array in arrays.values():
        array.flags.writeable = False
    aot.certify(**arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, before[name])


BAD: list[tuple[dict[str, Any], str]] = [
    ({}, "plan must be given if there are no potentials; got None"),
    ({"plan": np.zeros((3, 2))}, r"plan must have the shape of the cost \(2, 3\); got \(3, 2\)"),
    ({"plan": np.full((2, 3), np.nan)}, "plan must hold finite numbers"),
    ({"plan": sparse.csr_array(np.ones((2, 3))) * np.inf}, "plan must hold finite numbers"),
    ({"plan": "plan"}, "plan must"),
    ({"source_potential": np.zeros(3)}, r"source_potential must have shape \(2,\); got \(3,\)"),
    ({"target_potential": np.zeros(2)}, r"target_potential must have shape \(3,\); got \(2,\)"),
    ({"target_potential": [0.0, np.nan, 0.0]}, "target_potential must not contain NaN"),
    ({"plan": np.zeros((2, 3)), "source_weights": np.ones(3)}, "source_weights must have shape"),
    ({"plan": np.zeros((2, 3)), "target_weights": -np.ones(3)}, "target_weights must be non-negative"),
    (
        {"plan": np.zeros((2, 3)), "source_weights": [1.0, 1.0], "marginals": aot.Equal()},
        "target_weights must have the",
    ),
    ({"plan": np.zeros((2, 3)), "marginals": aot.FixedMass(2.0)}, "mass must be at most"),
    ({"plan": np.zeros((2, 3)), "marginals": "equal"}, "marginals must be an instance of Marginals"),
    ({"plan": np.zeros((2, 3)), "cost": np.full((2, 3), np.nan)}, "cost must not contain NaN"),
    ({"plan": np.zeros((2, 2, 3)), "cost": np.zeros((2, 2, 3))}, "cost must have two dimensions"),
]


@pytest.mark.parametrize(("arguments", "words"), BAD, ids=[words for _, words in BAD])
def test_bad_input(arguments, words):
    with pytest.raises(aot.InvalidInput, match=words):
        aot.certify(**({"cost": np.zeros((2, 3))} | arguments))


def test_extreme_numbers_end_in_numbers():
    for size, marginals in itertools.product((1e99, 1e-200), EXACT):
        cost = np.array([[-size, size], [2 * size, -3 * size]])
        certificate = aot.certify(
            cost, plan=np.eye(2) / 2, source_potential=cost[:, 0], target_potential=cost[0], marginals=marginals
        )
        assert math.isfinite(certificate.value)
        assert certificate.lower_bound <= certificate.value or not certificate.feasible
        assert str(certificate)


@pytest.mark.parametrize("limits", [{"points_in_cells": 0}, {"points_in_cells": 2**62}], ids=["by cells", "by tiles"])
@pytest.mark.parametrize("potentials", ["none", "random", "large", "steep"])
@pytest.mark.parametrize("kind", ["near", "far cluster", "classes", "one each"])
def test_minima_between_points_are_those_of_all_pairs(kind, potentials, limits, monkeypatch):
    rng = np.random.default_rng(sum(map(ord, kind + potentials)))
    n, m = (1, 1) if kind == "one each" else (70, 90)
    x, z = rng.standard_normal((n, 3)), rng.standard_normal((m, 3))
    if kind == "far cluster":  # distances of 1e12 must not cost the others their digits
        x[: n // 2] += 1e6
        z[: m // 3] += 1e6
    cost: Any = aot.DistanceCost(x, z, 1.0)
    if kind == "classes":
        cost = aot.JointCost(x, z, rng.dirichlet(np.ones(4), n), rng.dirichlet(np.ones(4), m))
    f = {"none": 0.0, "random": 1.0, "large": 1e9, "steep": 1.0}[potentials] * rng.standard_normal(n)
    if potentials == "steep":
        f[0] -= 1e8
    monkeypatch.setattr(columns, "pricing_for", partial(columns.pricing_for, limits=Limits(0, 0, 0, **limits)))
    found, expected = columns.column_minima(cost, f), (cost.block(0, n) - f[:, None]).min(axis=0)
    smaller = np.abs(cost.block(0, n)).min(axis=0) + np.abs(f).max()  # than numbers that may be rounded
    assert (np.abs(found - expected) <= 1e-14 * (np.abs(expected) + smaller)).all()


def test_certifies_large_clouds_in_linear_memory():
    rng = np.random.default_rng(7)
    n = 20_000
    x, z = rng.standard_normal((n, 2)), rng.standard_normal((n, 2))
    solution = aot.solve(aot.DistanceCost(x, z, 0.05))
    aot.certify(aot.DistanceCost(x[:9], z[:9], 0.05), source_potential=np.zeros(9))
    tracemalloc.start()
    try:
        given = {"plan": solution.plan, **potentials_of(solution)}
        certificate = aot.certify(aot.DistanceCost(x, z, 0.05), **given)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert certificate.feasible
    assert certificate.gap <= 1e-12
    assert peak < 1e8  # the matrix would take 3.2e9
