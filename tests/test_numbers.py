"""Numbers that nobody gave: estimated reaches, elbows, and the strength of the entropy."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import isotonic_regression
from scipy.spatial.distance import cdist

import adaptive_ot as aot
from adaptive_ot._partners import MOST_POINTS, concave_corners, find_gap
from adaptive_ot.workbench.cli.samples import moons_with_outliers


def moons(seed):
    clouds = moons_with_outliers(500, seed=seed)
    return clouds.x, clouds.z, np.concatenate([clouds.source_outlier, clouds.target_outlier])


def torus(seed):
    """Two samples of a torus with a sixth of uniform outliers in a box."""
    rng, sides = np.random.default_rng(seed), []
    for _ in range(2):
        u, v = rng.uniform(0, 2 * np.pi, (2, 500))
        ring = 2 + 0.7 * np.cos(v)
        points = np.column_stack([ring * np.cos(u), ring * np.sin(u), 0.7 * np.sin(v)])
        sides.append(np.concatenate([points + rng.normal(0, 0.05, points.shape), rng.uniform(-8, 8, (100, 3))]))
    return *sides, np.tile(np.arange(600) >= 500, 2)


def digits(seed):
    """The halves of the digits, a sixth of them with shuffled pixels."""
    datasets = pytest.importorskip("sklearn.datasets")
    rng, images = np.random.default_rng(seed), datasets.load_digits().data
    x, z = np.split(images[rng.permutation(len(images))][:1796], 2)
    outlier = np.arange(898) >= 748
    x[outlier], z[outlier] = rng.permuted(x[outlier], axis=1), rng.permuted(z[outlier], axis=1)
    return x, z, np.tile(outlier, 2)


def estimate(cost):
    assert cost.estimate is not None
    return cost.estimate


def active(solution):
    return np.concatenate([solution.active_source, solution.active_target])


@pytest.mark.parametrize("clouds", [moons, torus, digits])
def test_outliers_stay_alone_and_inliers_match(clouds):
    """On average over seeds, at most 5 % of the inliers are lost and at most 10 % of the outliers are matched."""
    lost, matched = [], []
    for seed in range(200, 203 if clouds is digits else 205):
        x, z, outlier = clouds(seed)
        cost = aot.DistanceCost(x, z)
        assert estimate(cost).alone == pytest.approx(outlier.mean(), abs=0.08)
        found = active(aot.solve(cost))
        lost.append(np.mean(~found[~outlier]))
        matched.append(np.mean(found[outlier]))
        assert aot.mass_path(cost).suggest().elbow == pytest.approx(1 - outlier.mean(), abs=0.05)
    assert np.mean(lost) <= 0.05
    assert np.mean(matched) <= 0.10


@pytest.mark.parametrize("dimension", [2, 5, 16])
@pytest.mark.parametrize("seed", range(5))
def test_without_outliers_nearly_all_match_and_there_is_no_elbow(dimension, seed):
    x, z = np.random.default_rng(seed).normal(size=(2, 400, dimension))
    cost = aot.DistanceCost(x, z)
    assert estimate(cost).alone is None
    assert active(aot.solve(cost)).mean() > 0.95
    assert aot.mass_path(cost).suggest().elbow is None
    assert "elbow     none" in str(aot.mass_path(cost))


def in_halves(name):
    """The data in two random halves of one size."""

    def draw(rng):
        data = getattr(pytest.importorskip("sklearn.datasets"), f"load_{name}")().data
        order, half = rng.permutation(len(data)), len(data) // 2
        return data[order[:half]], data[order[half : 2 * half]]

    return draw


REPEATED = {
    "iris": in_halves("iris"),
    "wine": in_halves("wine"),
    "rounded": lambda rng: np.round(rng.normal(size=(2, 300, 2)), 1),
    "more points": lambda rng: np.round(rng.normal(size=(2, 500, 2)), 1),
    "fewer points": lambda rng: np.round(rng.normal(size=(2, 100, 2)), 1),
    "nine values": lambda rng: np.round(rng.normal(size=(2, 300, 2))),
    "ages": lambda rng: rng.integers(18, 90, (2, 300, 1)),
    "grey values": lambda rng: np.round(50 * rng.normal(size=(2, 300, 2))) + 100,
    "counts": lambda rng: rng.poisson(3, (2, 300, 2)),
    "skewed counts": lambda rng: rng.geometric(0.3, (2, 300, 3)),
    "binary": lambda rng: rng.integers(0, 2, (2, 300, 8)),
    "one-hot": lambda rng: np.eye(6)[rng.integers(0, 6, (2, 300))],
    "columns in other units": lambda rng: np.round(rng.normal(size=(2, 300, 3)), 1) * [1.0, 0.37, 2.9],
}


@pytest.mark.parametrize("kind", REPEATED)
def test_repeated_values_are_no_gap(kind):
    """The few distances that are possible have peaks of their own, but no point stands out."""

    def drawn(seed):
        return tuple(np.asarray(side, dtype=float) for side in REPEATED[kind](np.random.default_rng(seed)))

    for seed in range(5):
        x, z = drawn(seed)
        cost = aot.DistanceCost(x, z)
        assert estimate(cost).alone is None
        assert find_gap(cdist(x, z, "sqeuclidean")) is find_gap(cdist(x, z)) is None
        assert aot.DistanceCost(8 * x, 8 * z).reach == pytest.approx(8 * cost.reach, rel=1e-9)
        assert aot.DistanceCost(z, x).reach == pytest.approx(cost.reach, rel=1e-9)
    x, z = drawn(0)
    assert active(aot.solve(aot.DistanceCost(x, z))).mean() > 0.95
    for cost in (aot.DistanceCost(x, z), cdist(x, z, "sqeuclidean")):
        assert aot.mass_path(cost).suggest().elbow is None


@pytest.mark.parametrize("to", [0.01, 0.1])
def test_outliers_are_found_in_rounded_data(to):

    def rounded(seed):
        x, z, outlier = moons(seed)
        return to * np.round(x / to), to * np.round(z / to), outlier

    for seed in range(200, 205):
        x, z, outlier = rounded(seed)
        cost = aot.DistanceCost(x, z)
        assert estimate(cost).alone == pytest.approx(outlier.mean(), abs=0.05)
        found = active(aot.solve(cost))
        assert np.mean(~found[~outlier]) <= 0.08
        assert np.mean(found[outlier]) <= 0.2
    x, z, outlier = rounded(200)
    for cost in (aot.DistanceCost(x, z), cdist(x, z, "sqeuclidean")):
        assert aot.mass_path(cost).suggest().elbow == pytest.approx(1 - outlier.mean(), abs=0.07)


@pytest.mark.parametrize("outliers", [0, 100])
def test_the_reach_follows_units_motions_and_order(outliers):
    rng = np.random.default_rng(3)
    x, z = rng.normal(size=(2, 300, 4))
    x[:outliers] += 30.0
    reach = aot.DistanceCost(x, z).reach
    turn, _ = np.linalg.qr(rng.normal(size=(4, 4)))
    order = rng.permutation(300)
    for scale in (1e-9, 0.3, 1e12):
        assert aot.DistanceCost(scale * x, scale * z).reach == pytest.approx(scale * reach, rel=1e-9)
    assert aot.DistanceCost(x @ turn + 5.0, z @ turn + 5.0).reach == pytest.approx(reach, rel=1e-6)
    assert aot.DistanceCost(x[order], z[order[::-1]]).reach == reach
    assert aot.DistanceCost(z, x).reach == reach


def test_large_clouds_are_sampled_always_in_the_same_way():
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=(6000, 2)), rng.normal(size=(3000, 2))
    x[::5] += 100.0
    cost = aot.DistanceCost(x, z)
    assert estimate(cost).points == 2 * MOST_POINTS
    assert cost.reach == aot.DistanceCost(x, z).reach
    assert cost.reach == aot.DistanceCost(z, x).reach
    assert 0.1 < cost.reach < 90
    wide = rng.normal(size=(1200, 784))
    assert estimate(aot.DistanceCost(wide, wide + 1e-3)).points < 1600


@pytest.mark.parametrize("dimension", [1, 3, 50, 784])
def test_every_dimension(dimension):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(100, dimension))
    z = x + 0.01 * rng.normal(size=x.shape)
    z[:20] += 100.0
    cost = aot.DistanceCost(x, z)
    np.testing.assert_array_equal(aot.solve(cost).active_target, np.arange(100) >= 20)


@pytest.mark.parametrize(
    ("x", "z"),
    [
        ([[1.0]], [[1.0]]),
        ([[1.0]], [[4.0]]),
        ([[0.0], [1.0]], [[0.0], [1.0]]),
        (np.zeros((30, 2)), np.zeros((20, 2))),
        (np.zeros((30, 2)), np.ones((20, 2))),
        (np.repeat(np.eye(3), 40, axis=0), np.repeat(np.eye(3), 40, axis=0)),
        (np.append(np.zeros((60, 1)), np.arange(9.0)[:, None], axis=0), np.zeros((60, 1))),
        (1e-120 * np.arange(50.0)[:, None], 1e-120 * np.arange(50.0)[:, None]),
        (1e90 * np.arange(50.0)[:, None], 1e90 * np.arange(50.0)[:, None]),
    ],
    ids=str,
)
def test_few_points_and_points_that_coincide(x, z):
    cost = aot.DistanceCost(x, z)
    assert 0 < cost.reach < math.inf
    assert aot.solve(cost).mass > 0.85


@pytest.mark.parametrize("shape", [(0, 2), (3, 0), (0, 0)])
def test_no_points_or_no_coordinates(shape):
    assert aot.DistanceCost(np.zeros(shape), np.zeros((4, shape[1]))).reach == 1.0


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_bad_points_and_reaches(bad):
    with pytest.raises(aot.InvalidInput, match="finite"):
        aot.DistanceCost([[0.0], [bad]], [[1.0]])
    with pytest.raises(aot.InvalidInput, match="reach"):
        aot.DistanceCost([[0.0]], [[1.0]], bad)


def test_what_is_printed():
    x, z = np.random.default_rng(0).normal(size=(2, 100, 3))
    given, estimated = aot.DistanceCost(x, z, 2.0), aot.DistanceCost(x, z)
    assert given.estimate is None
    assert "estimated" not in str(aot.solve(given)) + repr(given)
    line = f"{estimated.reach:.4g}, estimated: none of 200 points stands out as an outlier"
    assert f"  reach     {line}\n" in str(aot.solve(estimated))
    assert line in repr(estimated)


def test_tensors():
    torch = pytest.importorskip("torch")
    x, z, _ = moons(0)
    reach = aot.DistanceCost(x, z).reach
    assert aot.DistanceCost(torch.tensor(x), torch.tensor(z)).reach == reach
    single = aot.DistanceCost(torch.tensor(x).float(), torch.tensor(z).float())
    assert single.reach == pytest.approx(reach, rel=1e-3)


@pytest.mark.parametrize("seed", range(20))
def test_the_majorant_is_an_isotonic_regression(seed):
    """The slopes of the least concave majorant are the decreasing regression of the slopes between the points."""
    rng = np.random.default_rng(seed)
    x, y = np.cumsum(rng.exponential(size=30)), np.cumsum(rng.exponential(size=30))
    corners = concave_corners(x, y)
    slopes = isotonic_regression(np.diff(y) / np.diff(x), weights=np.diff(x), increasing=False).x
    expected = y[0] + np.append(0.0, np.cumsum(slopes * np.diff(x)))
    np.testing.assert_allclose(np.interp(x, x[corners], y[corners]), expected, rtol=1e-12)


def test_the_gap_lies_between_near_and_far_partners():
    near = np.random.default_rng(0).uniform(0.5, 1.0, (40, 40))
    costs = np.full((60, 60), np.inf)
    costs[:40, :40], costs[40:, 40:] = near, 100 * near[:20, :20]
    gap = find_gap(costs)
    assert gap is not None
    assert 0.5 < gap.low <= 1.0 < gap.middle < gap.high <= 100
    assert gap.alone == pytest.approx(1 / 3, abs=0.02)
    assert find_gap(near) is find_gap(np.full((5, 5), np.inf)) is find_gap(np.zeros((5, 5))) is None


def test_the_elbow_follows_units_and_depends_neither_on_the_zero_nor_on_the_layout():
    x, z, _ = moons(1)
    cost = cdist(x, z, "sqeuclidean")
    elbow: Any = aot.mass_path(cost).suggest().elbow
    assert elbow == pytest.approx(0.8, abs=0.04)
    for other in (3.0 * cost - 7.0, 1e-6 * cost + 1.0, cost.T, sparse.csr_array(cost - 100.0)):
        assert aot.mass_path(other).suggest().elbow == pytest.approx(elbow, abs=1e-9)
    weights = np.append(np.ones(500), np.zeros(50))  # points without weight do not count
    wide = np.hstack([cost, np.zeros((500, 50))])
    assert aot.mass_path(wide, np.ones(500), weights).suggest().elbow == pytest.approx(500 * elbow)


MODELS = [
    aot.AtMost(),
    aot.Equal(),
    aot.FixedMass(0.4),
    aot.SoftKL(0.7),
    (aot.AtMost(), aot.Equal()),
    (aot.Equal(), aot.SoftKL(0.7)),
]


def scaled(model: Any, by: float) -> Any:
    if isinstance(model, tuple):
        return tuple(scaled(side, by) for side in model)
    return aot.SoftKL(by * model.tau) if isinstance(model, aot.SoftKL) else model


@pytest.mark.parametrize("marginals", MODELS, ids=str)
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_epsilon_follows_the_units_of_the_cost(marginals, kind):
    cost = np.random.default_rng(0).normal(size=(40, 30))
    cost -= cost.min() if isinstance(marginals, aot.SoftKL) else 0.0
    first = aot.solve(kind(cost + 0.01), marginals=marginals, solver=aot.Entropic())
    large = aot.solve(kind(8.0 * (cost + 0.01)), marginals=scaled(marginals, 8.0), solver=aot.Entropic())
    assert large.epsilon == pytest.approx(8 * first.epsilon, rel=1e-12)
    assert large.mass == pytest.approx(first.mass, rel=1e-6)
    assert f"  epsilon   {first.epsilon:.6g}\n" in str(first)
    assert first.epsilon == aot.solve(cost + 0.01, marginals=marginals, solver=aot.Entropic()).epsilon


@pytest.mark.parametrize("reach", [0.2, 1.0, 5.0])
def test_with_the_default_the_value_is_a_few_per_cent_off(reach):
    x, z = np.random.default_rng(0).normal(size=(2, 80, 2))
    cost = aot.DistanceCost(x, z, reach)
    exact, entropic = aot.solve(cost), aot.solve(cost, solver=aot.Entropic())
    assert 0 < (entropic.value - exact.value) / -exact.value < 0.08
    assert entropic.mass == pytest.approx(exact.mass, abs=0.08)
    dense = aot.solve(cost.block(0, 80), solver=aot.Entropic())
    assert dense.epsilon == pytest.approx(entropic.epsilon, rel=1e-12)
    turned = aot.solve(cost.block(0, 80).T, solver=aot.Entropic())
    assert turned.epsilon == entropic.epsilon


def test_a_batch_has_one_epsilon():
    rng = np.random.default_rng(0)
    costs = rng.normal(size=(4, 12, 9)) * np.array([1.0, 1.0, 1.0, 10.0])[:, None, None]
    batch = aot.solve(costs, solver=aot.Entropic())
    assert batch.epsilon == batch[3].epsilon
    assert f"  epsilon   {batch.epsilon:.6g}" in str(batch)
    np.testing.assert_allclose(batch.value, aot.solve(costs, solver=aot.Entropic(batch.epsilon)).value, rtol=1e-9)
    assert aot.solve(costs[:1], solver=aot.Entropic()).epsilon == aot.solve(costs[0], solver=aot.Entropic()).epsilon


@pytest.mark.parametrize(
    ("cost", "moves"),
    [
        (np.zeros((3, 4)), 1.0),
        (np.full((3, 4), -2.0), 1.0),
        (np.full((3, 4), 2.0), 0.1),
        (np.full((3, 4), np.inf), 0.0),
        (np.zeros((0, 4)), 0.0),
        ([[-1.0]], 1.0),
        ([[np.inf, -1.0], [5.0, np.inf]], 0.55),
    ],
    ids=str,
)
def test_costs_of_which_little_can_be_learnt(cost, moves):
    solution = aot.solve(cost, solver=aot.Entropic())
    assert 0 < solution.epsilon < math.inf
    assert solution.mass <= moves


def test_epsilon_is_needed_where_nothing_may_wait():
    with pytest.raises(aot.InvalidInput, match="epsilon is needed with wait=False") as caught:
        aot.Entropic(wait=False)
    assert caught.value.argument == "epsilon"


@pytest.mark.parametrize("shape", [(12, 9), (2, 12, 9)])
def test_derivatives_take_epsilon_as_given(shape):
    torch = pytest.importorskip("torch")
    from adaptive_ot.autodiff import transport_plan, transport_value

    cost = torch.from_numpy(np.random.default_rng(0).normal(size=shape))
    given = aot.Entropic(aot.solve(cost, solver=aot.Entropic()).epsilon)
    gradients = []
    for solver in (aot.Entropic(), given):
        leaf = cost.clone().requires_grad_()
        (transport_value(leaf, solver=solver).sum() + transport_plan(leaf, solver=solver).square().sum()).backward()
        gradients.append(leaf.grad)
    torch.testing.assert_close(*gradients)
