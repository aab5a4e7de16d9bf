"""The oracle and the pricing that ask several shards, here in one process, answer as one that has all rows."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import adaptive_ot as aot
from adaptive_ot._group import packed, unpacked
from adaptive_ot.entropic import cpu
from adaptive_ot.entropic.solver import solve_entropic
from adaptive_ot.exact.limits import LIMITS
from adaptive_ot.exact.pricing import PointPricing
from adaptive_ot.exact.sharded import SharedPricing, among_lowest
from adaptive_ot.exact.solver import solve_exact
from adaptive_ot.problem import Problem
from shards import point_cost, sharded, silent, tabled, weights

MODELS = [
    aot.AtMost(),
    aot.FixedMass(0.4),
    aot.Equal(),
    aot.SoftKL(0.5),
    aot.solve([[0.0]], marginals=(aot.AtMost(), aot.SoftKL(1.0)), solver=aot.Entropic(1.0)).problem.marginals,
    aot.solve([[0.0]], marginals=(aot.Equal(), aot.AtMost())).problem.marginals,
]


@pytest.mark.parametrize("entropy", ["augmented", "product", "counting"])
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.title)
def test_shards_ascend_as_one(model, entropy):
    cost, (mu, nu) = point_cost(60, 45, 3, classes=2), weights(60, 45)
    nu = (
        nu if isinstance(model, aot.Equal) else 1.3 * nu
    )  # with the same total, a constant would be free elsewhere, too
    solver = aot.Entropic(0.05, entropy=entropy)
    alone = aot.solve(cost, mu, nu, marginals=model, solver=solver)
    for counts in ([60], [20, 40], [0, 59, 1], [13, 0, 30, 17]):
        problem, table = sharded(cost, mu, nu, model, counts)
        found = solve_entropic(problem, solver, silent, lambda *_: math.nan)
        for name in ("value", "mass", "gap", "regularised_value", "violation"):
            assert getattr(found, name) == pytest.approx(getattr(alone, name), rel=1e-10, abs=1e-10), name
        assert found.status is alone.status
        for name in ("source_marginal", "target_marginal"):
            np.testing.assert_allclose(getattr(found, name), getattr(alone, name), rtol=0, atol=1e-10)
        if not isinstance(model, aot.Equal):  # there, a constant may move from one side to the other
            np.testing.assert_allclose(found.source_potential, alone.source_potential, rtol=1e-9, atol=1e-9)
            np.testing.assert_allclose(found.target_potential, alone.target_potential, rtol=1e-9, atol=1e-9)
        plan = np.vstack([shard.transport.dense(np.dtype(np.float64)) for shard in table.shards])
        np.testing.assert_allclose(plan, alone.plan.toarray(), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("most_equations", "way"), [(3000, "dense"), (0, "sparse"), (0, "none")])
def test_newton_steps_are_solved_together(monkeypatch, most_equations, way):
    """At a small epsilon, conjugate gradients give up; then the shards add up a matrix, dense or sparse."""
    dense = way == "dense"
    monkeypatch.setattr(cpu, "SPARSE_SHARE", 1e-9 if dense else 1.1)
    monkeypatch.setattr(cpu, "FEW_PER_COLUMN", 10_000 if way == "sparse" else 0)
    monkeypatch.setattr(cpu, "MOST_EQUATIONS", most_equations)
    monkeypatch.setattr("adaptive_ot.entropic.sharded.MOST_EQUATIONS", most_equations)
    cost, (mu, nu) = point_cost(150, 120, 2), weights(150, 120)
    solver = aot.Entropic(0.003)
    problem, table = sharded(cost, mu, nu, aot.AtMost(), [70, 80])
    found = solve_entropic(problem, solver, silent, lambda *_: math.nan)
    alone = aot.solve(cost, mu, nu, solver=solver)
    calls = table.calls
    assert "make_gram" in calls
    assert ("give_gram" in calls) == dense
    assert found.value == pytest.approx(alone.value, abs=1e-9)
    assert found.source_potential @ mu + found.target_potential @ nu == pytest.approx(
        alone.source_potential @ mu + alone.target_potential @ nu, abs=1e-9
    )


def test_float32_is_rounded_down_by_shard():
    cost = point_cost(40, 30, 3)
    single = aot.DistanceCost(cost.x.astype(np.float32), cost.z.astype(np.float32), reach=1.2)
    mu, nu = weights(40, 30)
    alone = aot.solve(single, mu, nu, solver=aot.Entropic(0.1))
    problem, _ = sharded(single, mu, nu, aot.AtMost(), [11, 29])
    found = solve_entropic(problem, aot.Entropic(0.1), silent, lambda *_: math.nan)
    assert found.violation == pytest.approx(alone.violation, abs=1e-15)
    assert found.source_potential.dtype == np.float32


def test_shards_ascend_as_one_in_torch(monkeypatch):
    """As on GPUs without Triton."""
    pytest.importorskip("torch")
    from adaptive_ot.entropic.gpu import TorchSoftmin

    monkeypatch.setattr("adaptive_ot.entropic.shard.softmin_for", lambda cost: TorchSoftmin(cost, "cpu"))
    cost, (mu, nu) = point_cost(40, 30, 3), weights(40, 30)
    alone = aot.solve(cost, mu, nu, marginals=aot.FixedMass(0.4), solver=aot.Entropic(0.1))
    problem, _ = sharded(cost, mu, nu, aot.FixedMass(0.4), [13, 0, 27])
    found = solve_entropic(problem, aot.Entropic(0.1), silent, lambda *_: math.nan)
    assert found.value == pytest.approx(alone.value, abs=1e-10)
    np.testing.assert_allclose(found.target_potential, alone.target_potential, rtol=0, atol=1e-9)


@pytest.mark.parametrize("shards", [2, 3, 5])
@pytest.mark.parametrize(("n", "m", "dimension", "classes"), [(70, 50, 3, 0), (40, 90, 6, 4), (2100, 30, 1, 0)])
def test_shards_price_as_one(n, m, dimension, classes, shards):
    cost = point_cost(n, m, dimension, classes=classes)
    alone, shared = PointPricing(cost), SharedPricing(tabled(cost, shards))
    rng = np.random.default_rng(1)
    for scale in (0.0, 0.3, 3.0):
        f, g = -scale * rng.random(n), -scale * rng.random(m)
        for keep in (1, 4):
            one, several = alone.violated(f, g, keep, silent), shared.violated(f, g, keep, silent)
            for mine, theirs in zip(several, one, strict=True):
                np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-13)
        one, several = alone.below(f, g, 0.5, n * m), shared.below(f, g, 0.5, n * m)
        assert one is not None
        assert several is not None
        for mine, theirs in zip(several, one, strict=True):
            np.testing.assert_array_equal(mine, theirs)
        assert shared.below(f, g, 0.5, one.rows.size - 1) is None
        for mine, theirs in zip(shared.minima(f), alone.minima(f), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-12)
    assert shared.largest() == pytest.approx(alone.largest(), abs=1e-12)
    assert shared.sample(f, g)[1] == n * m


def test_points_are_sent_again_when_another_pricing_asks():
    cost = tabled(point_cost(20, 10, 2), 2)
    first, second = SharedPricing(cost), SharedPricing(cost.between(cost.x[::-1], cost.z, cost.p, cost.q))
    f = np.zeros(20)
    before = first.minima(f)[0]
    np.testing.assert_allclose(second.minima(f)[0], before[::-1])
    np.testing.assert_array_equal(first.minima(f)[0], before)
    assert cost.team.calls.count("take_points") == 3  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("dimension", [1, 4])
@pytest.mark.parametrize(
    "model", [aot.AtMost(), aot.FixedMass(0.3), aot.Equal(), aot.ChiSquareBall(0.1)], ids=lambda model: model.title
)
def test_the_simplex_gets_the_same_pairs(model, dimension):
    """So it makes the same pivots, and the answer is the same to the last bit."""
    limits = LIMITS._replace(
        few_pairs=0, few_pairs_per_node=0, searched_entries=0, shared_pairs=0, coarsest_points=16, points_in_cells=4
    )
    cost, (mu, nu) = point_cost(90, 70, dimension), weights(90, 70)
    problem = Problem.build(cost, mu, nu, model)
    alone = solve_exact(problem, aot.Exact(), silent, limits)
    for shards in (2, 3):
        shared = tabled(cost, shards)
        found = solve_exact(replace(problem, cost=shared), aot.Exact(), silent, limits)
        assert "violated" in shared.team.calls  # pyright: ignore[reportAttributeAccessIssue]
        assert found.value == pytest.approx(alone.value, abs=1e-12)
        assert found.gap == pytest.approx(alone.gap, abs=1e-11)
        assert abs(found.sparse_plan - alone.sparse_plan).max() <= 1e-12


def test_the_lowest_of_each():
    node, value = np.array([2, 0, 2, 2, 0]), np.array([1.0, 5.0, 0.0, 1.0, 4.0])
    assert among_lowest(node, value, 1).tolist() == [False, False, True, False, True]
    assert among_lowest(node, value, 2).tolist() == [True, True, True, False, True]  # of equal ones, the first


def test_messages_survive():
    message = {
        "text": "ä\n",
        "number": 0.1 + 0.2,
        "infinite": -math.inf,
        "list": [1, None],
        "empty": np.zeros((0, 3)),
        "matrix": np.arange(6.0).reshape(2, 3).T,
        "bytes": np.array([True, False]),
        "integers": np.arange(3),
    }
    back = unpacked(packed(message))
    assert back.keys() == message.keys()
    for name, value in message.items():
        if isinstance(value, np.ndarray):
            assert back[name].dtype == value.dtype
            np.testing.assert_array_equal(back[name], value)
        else:
            assert back[name] == value
