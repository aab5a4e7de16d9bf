"""Distances between persistence diagrams, judged by an assignment with the diagonal written out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

import adaptive_ot as aot
from budget import mostly_slow


def random_diagram(rng: np.random.Generator, size: Any) -> np.ndarray:
    birth = rng.uniform(0, 1, size)
    return np.stack((birth, birth + rng.exponential(0.2, size)), axis=1)


def by_assignment(a: np.ndarray, b: np.ndarray, order: float, internal: float) -> float:
    """Every point may be matched with a copy of the diagonal of its own."""
    n, m = len(a), len(b)
    cost = np.zeros((n + m, n + m))
    cost[:n, :m] = np.linalg.norm(a[:, None] - b[None], internal, axis=2) ** order
    for side, part in ((a, cost[:n, m:]), (b, cost[n:, :m].T)):
        middle = side.mean(axis=1, keepdims=True)
        part[:] = (np.linalg.norm(side - middle, internal, axis=1) ** order)[:, None]
    return float(cost[linear_sum_assignment(cost)].sum() ** (1 / order))


@pytest.mark.parametrize("seed", mostly_slow(range(40), 8))
@pytest.mark.parametrize("order", [1.0, 2.0, 3.5])
@pytest.mark.parametrize("internal", [1.0, 2.0, 3.0, math.inf])
def test_is_the_assignment_with_the_diagonal(seed, order, internal):
    rng = np.random.default_rng(seed)
    a, b = random_diagram(rng, rng.integers(0, 30)), random_diagram(rng, rng.integers(0, 30))
    value, pairs = aot.diagrams.distance(a, b, order, internal=internal, matching=True)
    assert math.isclose(value, by_assignment(a, b, order, internal), rel_tol=1e-12, abs_tol=1e-14)
    assert sorted(pairs[pairs[:, 0] >= 0, 0]) == list(range(len(a)))
    assert sorted(pairs[pairs[:, 1] >= 0, 1]) == list(range(len(b)))
    assert math.isclose(aot.diagrams.distance(b, a, order, internal=internal), value, rel_tol=1e-12)


def test_laws():
    rng = np.random.default_rng(0)
    a, b, c = (random_diagram(rng, size) for size in (20, 25, 15))
    d = aot.diagrams.distance
    assert d(a, a) == 0
    assert d(a, rng.permutation(a)) == 0
    assert d(a, c) <= d(a, b) + d(b, c) + 1e-12
    assert math.isclose(d(3 * a + 1, 3 * b + 1), 3 * d(a, b), rel_tol=1e-12)
    on_diagonal = np.repeat(rng.random((5, 1)), 2, axis=1)
    assert math.isclose(d(np.concatenate((a, on_diagonal)), b), d(a, b), rel_tol=1e-12)


def test_points_that_never_die():
    inf = math.inf
    a = [[0.0, inf], [0.5, 1.0], [3.0, inf], [-inf, 2.0]]
    b = [[3.5, inf], [0.25, inf], [-inf, 1.0]]
    value, pairs = aot.diagrams.distance(a, b, order=1, matching=True)
    assert math.isclose(value, 0.25 + 0.5 + 0.25 + 1.0)
    assert pairs.tolist() == [[0, 1], [1, -1], [2, 0], [3, 2]]
    assert aot.diagrams.distance(a, b[:2]) == inf
    assert aot.diagrams.distance([[-inf, inf]], [[-inf, inf]]) == 0
    assert aot.diagrams.distance([[0.0, inf]], []) == inf
    assert aot.diagrams.distance([], []) == 0


def test_many_pairs_of_diagrams():
    rng = np.random.default_rng(1)
    first = [random_diagram(rng, size) for size in (5, 0, 12)]
    second = [random_diagram(rng, size) for size in (7, 3, 12)]
    values, pairs = aot.diagrams.distance(first, second, matching=True)
    assert values.tolist() == [aot.diagrams.distance(a, b) for a, b in zip(first, second, strict=True)]
    assert [len(each) >= 3 for each in pairs] == [True] * 3
    assert aot.diagrams.distance(np.stack([first[2]] * 2), np.stack([second[2]] * 2)).tolist() == [values[2]] * 2


@pytest.mark.parametrize("internal", [2.0, math.inf])
@pytest.mark.parametrize("order", [1.0, 2.0])
def test_gradients(order, internal):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(2)
    a, b = (torch.tensor(random_diagram(rng, size), requires_grad=True) for size in (8, 11))
    more = torch.tensor([[0.3, math.inf]], dtype=torch.float64)

    def value(a: Any, b: Any) -> Any:
        return aot.diagrams.distance(torch.cat((a, more)), torch.cat((more + 0.1, b)), order, internal=internal)

    assert torch.autograd.gradcheck(value, (a, b), eps=1e-7, atol=1e-5)
    assert aot.diagrams.distance(a, b.detach().numpy(), order, internal=internal).requires_grad
    same = aot.diagrams.distance(a, a.detach(), order, internal=internal)
    same.backward()
    assert torch.isfinite(a.grad).all()
    stacked = aot.diagrams.distance([a, a], [b, a.detach()], order)
    assert stacked.shape == (2,)
    assert stacked.requires_grad


REFUSED = {
    "shape": (lambda: aot.diagrams.distance([[1.0, 2.0, 3.0]], []), "a must have a row of birth and death"),
    "NaN": (
        lambda: aot.diagrams.distance([], [[math.nan, 1.0]]),
        "b must hold .* birth nan and death 1 at index 0",
    ),
    "order of time": (lambda: aot.diagrams.distance([[1.0, 0.0]], []), "a must hold births"),
    "dead before": (lambda: aot.diagrams.distance([[-math.inf, -math.inf]], []), "a must hold births"),
    "large": (
        lambda: aot.diagrams.distance([[0.0, 1e200]], []),
        "a must hold finite numbers up to 1e[+].*; got birth 0 and death 1e[+]200 at index 0",
    ),
    "order": (lambda: aot.diagrams.distance([], [], 0.5), "order must be a number from 1"),
    "internal": (lambda: aot.diagrams.distance([], [], internal=0.5), "internal must be a number from 1"),
    "numbers of diagrams": (
        lambda: aot.diagrams.distance([np.ones((1, 2))], [np.ones((1, 2))] * 2),
        "b must hold as many",
    ),
    "in a batch": (lambda: aot.diagrams.distance([np.eye(2)], [np.eye(2)]), r"a\[0\] must hold births"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    call, message = REFUSED[case]
    with pytest.raises(aot.InvalidInput, match=message):
        call()
