"""The Triton kernel takes the same path as the compiled ascent, problem by problem and in batches.

Runs on a GPU where there is one, otherwise under Triton's interpreter on the CPU, which is slow: sizes are small there.
"""

from __future__ import annotations

import os
from types import SimpleNamespace

import numpy as np
import pytest

from adaptive_ot.solvers.entropic import dual_of
from adaptive_ot.solvers.softmin import small

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when Triton and the kernel are imported
pytest.importorskip("triton", reason="Triton is not installed")

from adaptive_ot.solvers.softmin import triton as batched  # noqa: E402

ENTROPIES = ["augmented", "product", "counting"]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
MAX_PASSES = 10_000
on_gpu = pytest.mark.skipif(DEVICE == "cpu", reason="too slow for the interpreter; needs a GPU")


def random_problem(n, m, seed, forbidden=0.0, target_total=0.8):
    rng = np.random.default_rng(seed)
    cost, mu, nu = rng.normal(size=(n, m)), rng.random(n) + 0.1, rng.random(m) + 0.1
    cost[rng.random((n, m)) < forbidden] = np.inf
    return cost, mu / mu.sum(), target_total * nu / nu.sum()


def without_weight(n, m, seed):
    cost, mu, nu = random_problem(n, m, seed)
    mu[[0, -1]] = nu[[1, 2]] = 0
    return cost, mu, nu


def with_nothing_allowed(n, m, seed):
    cost, mu, nu = random_problem(n, m, seed, forbidden=0.4)
    cost[1:3], cost[:, 1] = np.inf, np.inf
    return cost, mu, nu


def only_positive(n, m, seed):
    cost, mu, nu = random_problem(n, m, seed)
    return np.abs(cost) + 0.1, mu, nu


def only_towards_nothing(n, m, seed):
    """A row whose only partners have no weight."""
    cost, mu, nu = without_weight(n, m, seed)
    cost[2, nu > 0] = np.inf
    return cost, mu, nu


PROBLEMS = {
    "1 x 1": random_problem(1, 1, 0),
    "1 x 7": random_problem(1, 7, 1),
    "9 x 1": random_problem(9, 1, 2),
    "16 x 16": random_problem(16, 16, 3),
    "20 x 13": random_problem(20, 13, 4),
    "11 x 33": random_problem(11, 33, 5),
    "some forbidden": random_problem(14, 18, 6, forbidden=0.3),
    "nothing allowed": with_nothing_allowed(12, 10, 7),
    "without weight": without_weight(13, 9, 8),
    "only towards nothing": only_towards_nothing(10, 12, 9),
    "only positive": only_positive(12, 17, 10),
}
LARGE = {f"{n} x {m}": random_problem(n, m, n + m) for n, m in [(72, 72), (128, 128), (100, 60), (33, 128)]}


def first_epsilon(cost, epsilon):
    """The largest reward, as the solver chooses it."""
    return max(epsilon, -float(cost.min()))


def ascend_both(cost, mu, nu, entropy, epsilon, tolerance=1e-12):
    dual, first = dual_of(mu, nu, entropy), first_epsilon(cost, epsilon)
    expected = small.ascend(np.asarray(cost, np.float64), dual, epsilon, first, tolerance, MAX_PASSES)
    costs, sources, targets = (torch.as_tensor(a, device=DEVICE)[None] for a in (cost, mu, nu))
    duals = batched.duals_of(sources, targets, entropy)
    found = batched.ascend_batch(costs, duals, epsilon, first, tolerance, MAX_PASSES)
    return dual, expected, found, found.plans(costs, duals, epsilon)[0].cpu().numpy()


def assert_same(cost, mu, nu, entropy, epsilon, unique=True):
    """Potentials agree to 1e-12 in the units of the cost, if they are unique, and masses to 1e-12."""
    dual, expected, batch, plan = ascend_both(cost, mu, nu, entropy, epsilon)
    cost = np.asarray(cost, np.float64)
    found = SimpleNamespace(**{name: field[0].cpu().numpy() for name, field in batch._asdict().items()})
    point, weighty = expected.point, mu > 0
    assert not any(np.isnan(field).any() for field in vars(found).values())
    assert found.error <= 1e-12
    assert not found.stalled
    assert found.passes == pytest.approx(expected.passes, rel=0.1, abs=2)
    same = {"rtol": 0, "atol": 1e-12}
    if unique:
        np.testing.assert_allclose(epsilon * found.gamma, epsilon * point.gamma, **same)
        np.testing.assert_allclose(epsilon * found.potential[weighty], epsilon * point.at.potential[weighty], **same)
    np.testing.assert_array_equal(np.isfinite(found.row_sums), np.isfinite(point.at.row_sums))
    np.testing.assert_allclose(found.columns, point.at.columns, **same)
    np.testing.assert_allclose(epsilon * found.value, epsilon * point.value, **same)
    rows, columns = point.at.potential + dual.rule.reference, point.gamma + dual.reference
    np.testing.assert_allclose(plan, np.exp(rows[:, None] + columns - cost / epsilon), **same)
    np.testing.assert_allclose(plan.sum(axis=1), point.at.rows(dual.rule), **same)
    np.testing.assert_allclose(plan.sum(axis=0), found.columns, **same)


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("entropy", ENTROPIES)
def test_same_as_compiled(name, entropy):
    assert_same(*PROBLEMS[name], entropy, 0.3)


@pytest.mark.parametrize("epsilon", [0.5, 0.1, 0.02])
@pytest.mark.parametrize("entropy", ENTROPIES)
def test_same_at_other_epsilons(entropy, epsilon):
    assert_same(*random_problem(12, 9, 11), entropy, epsilon)


def test_same_where_all_mass_moves():
    """Between equal totals the potentials are unique up to a constant only."""
    assert_same(*random_problem(20, 13, 4, target_total=1.0), "counting", 0.5, unique=False)


@pytest.mark.parametrize("entropy", ["augmented", "product"])
def test_batch_is_problem_by_problem(entropy):
    """Problems of a batch may have epsilons, tolerances and starting points of their own."""
    problems = [random_problem(9, 6, seed) for seed in range(3)]
    epsilons, tolerances = np.array([1.0, 0.3, 0.5]), np.array([1e-9, 1e-3, 1e-6])
    costs, mu, nu = (torch.as_tensor(np.stack(arrays), device=DEVICE) for arrays in zip(*problems, strict=True))
    firsts = np.array([first_epsilon(*pair) for pair in zip(costs.cpu(), epsilons, strict=True)])
    duals = batched.duals_of(mu, nu, entropy)
    epsilon, first, tolerance = map(torch.from_numpy, (epsilons, firsts, tolerances))
    together = batched.ascend_batch(costs, duals, epsilon, first, tolerance, MAX_PASSES)
    for k in range(3):
        alone_duals = batched.duals_of(mu[k : k + 1], nu[k : k + 1], entropy)
        numbers = float(epsilons[k]), float(firsts[k]), float(tolerances[k])
        alone = batched.ascend_batch(costs[k : k + 1], alone_duals, *numbers, MAX_PASSES)
        for one, many in zip(alone, together, strict=True):
            assert torch.equal(one[0], many[k])


def test_float32_costs_are_exact():
    """Costs in float32 are converted as they are, and nothing is computed in float32."""
    cost, mu, nu = random_problem(12, 15, 0)
    assert_same(cost.astype(np.float32), mu, nu, "augmented", 0.1)


@pytest.mark.parametrize("entropy", ENTROPIES)
def test_stops_when_out_of_passes(entropy):
    cost, mu, nu = PROBLEMS["20 x 13"]
    costs, sources, targets = (torch.as_tensor(a, device=DEVICE)[None] for a in (cost, mu, nu))
    duals = batched.duals_of(sources, targets, entropy)
    expected = small.ascend(cost, dual_of(mu, nu, entropy), 0.3, 2.0, 1e-12, 12)
    found = batched.ascend_batch(costs, duals, 0.3, 2.0, 1e-12, 12)
    assert int(found.passes[0]) == expected.passes
    assert float(found.error[0]) == pytest.approx(expected.point.error, rel=1e-6)
    assert expected.point.error > 1e-12


def test_refuses_what_does_not_fit():
    duals = batched.duals_of(torch.ones(1, 129), torch.ones(1, 2), "augmented")
    with pytest.raises(ValueError, match="at most 128"):
        batched.ascend_batch(torch.zeros(1, 129, 2), duals, 0.1, 0.1, 1e-6, 100)


@on_gpu
@pytest.mark.parametrize("epsilon", [0.5, 0.1, 0.02])
@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("entropy", ENTROPIES)
def test_large_ones_are_the_same_on_a_gpu(name, entropy, epsilon):
    assert_same(*LARGE[name], entropy, epsilon)


@on_gpu
def test_one_launch_without_synchronisation():
    cost, mu, nu = LARGE["72 x 72"]
    costs, sources, targets = (torch.as_tensor(a, device=DEVICE).expand(50, *a.shape) for a in (cost, mu, nu))
    duals = batched.duals_of(sources, targets, "augmented")
    batched.ascend_batch(costs, duals, 0.1, 3.0, 1e-9, MAX_PASSES)  # compiles
    torch.cuda.set_sync_debug_mode("error")
    try:
        found = batched.ascend_batch(costs, duals, 0.1, 3.0, 1e-9, MAX_PASSES)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert float(found.error.max()) <= 1e-9
    assert torch.equal(found.gamma[0], found.gamma[-1])
