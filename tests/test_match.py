"""Matchings with abstention: judged by brute force, by other solvers, and by solving again."""

from __future__ import annotations

import math
import sys
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import linear_sum_assignment

import adaptive_ot as aot
import adaptive_ot.match
from budget import mostly_slow
from check import as_numpy

SIZES = st.integers(0, 5)


def brute_force(score: np.ndarray, capacity: Any = None) -> Any:
    """The greatest score of sources with capacities: all subsets of targets, for one source after the other."""
    n, m = score.shape
    best: dict[int, Any] = {0: 0}
    for i in range(n):
        for _ in range(1 if capacity is None else min(int(capacity[i]), m)):
            after = dict(best)
            for used, total in best.items():
                for j in range(m):
                    if not used >> j & 1 and score[i, j] > 0:
                        more = used | 1 << j
                        after[more] = max(after.get(more, -1), total + score[i, j])
            best = after
    return max(best.values())


def random_score(rng: np.random.Generator, whole: bool, largest: int = 7) -> np.ndarray:
    n, m = rng.integers(0, largest + 1, 2)
    score = rng.integers(-5, 8, (n, m)) if whole else rng.normal(0.3, 1.0, (n, m))
    if not whole and score.size:
        score[rng.random((n, m)) < 0.2] = -np.inf
    return score


def forms(score: np.ndarray) -> dict[str, aot.Matching]:
    """The matching of the same scores in every form in which they can be given."""
    rows, columns = np.nonzero(np.isfinite(score))
    order = np.random.default_rng(0).permutation(rows.size)
    listed = rows[order], columns[order], score[rows, columns][order]
    matrix = sparse.coo_array((listed[2], listed[:2]), shape=score.shape)
    return {
        "dense": aot.match(score),
        "cost": aot.match(cost=3 - score, limit=3),
        "pairs": aot.match(pairs=listed, shape=score.shape),
        "sparse": aot.match(matrix),
        "batch": aot.match(np.stack([score, score]))[1],
        "frames": aot.match_frames([score, score[:, :2]])[0],
    }


def check_matching(matching: aot.Matching, score: np.ndarray, capacity: Any = None, other: Any = None) -> None:
    """Fail unless the matching is feasible, says the truth about itself, and proves that it is optimal."""
    n, m = score.shape
    pairs = as_numpy(matching.pairs)
    assert pairs.shape == (len(matching), 2)
    assert pairs.dtype == np.int64
    rows, columns = pairs.T
    listed = list(map(tuple, pairs.tolist()))
    assert listed == sorted(set(listed))
    used = np.bincount(rows, minlength=n), np.bincount(columns, minlength=m)
    for have, may in zip(used, (capacity, other), strict=True):
        assert (have <= (1 if may is None else may)).all()
    assert np.array_equal(as_numpy(matching.unmatched_source), np.flatnonzero(used[0] == 0))
    assert np.array_equal(as_numpy(matching.unmatched_target), np.flatnonzero(used[1] == 0))
    scores = score[rows, columns]
    assert (scores > 0).all()
    np.testing.assert_allclose(as_numpy(matching.pair_scores), scores, rtol=1e-6)
    assert math.isclose(matching.score, math.fsum(scores), rel_tol=1e-12, abs_tol=1e-12)
    certificate = matching.certificate
    assert certificate.feasible
    assert certificate.violation == 0
    scale = 1 + abs(certificate.value)
    assert certificate.gap <= 1e-12 * scale
    assert abs(certificate.value + matching.score) <= 1e-12 * scale


@pytest.mark.parametrize("seed", mostly_slow(range(20), 2))
def test_brute_force(seed):
    """2,000 problems with ties, forbidden pairs and empty sides, in every form."""
    rng = np.random.default_rng(seed)
    for number in range(100):
        whole = number % 2 == 0
        score = random_score(rng, whole)
        best = brute_force(score)
        for form, matching in forms(score).items():
            if whole:
                assert type(matching.score) is int, form
                assert matching.score == best, form
            else:
                assert math.isclose(matching.score, best, rel_tol=1e-12, abs_tol=1e-12), form
            if number < 20:
                check_matching(matching, score)


@pytest.mark.parametrize("seed", mostly_slow(range(20), 2))
def test_margin_is_what_solving_without_the_pair_loses(seed):
    rng = np.random.default_rng([seed, 1])
    for number in range(50):
        score = random_score(rng, number % 2 == 0, largest=6)
        for matching in (aot.match(score), forms(score)["pairs"]):
            assert len(matching.margin) == len(matching)
            for (i, j), margin in zip(matching.pairs, matching.margin, strict=True):
                without = score.astype(float)
                without[i, j] = -1
                expected = matching.score - brute_force(without)
                assert math.isclose(margin, expected, abs_tol=1e-12)
                assert number % 2 or margin == expected


@pytest.mark.parametrize("seed", mostly_slow(range(20), 2))
def test_capacities_against_brute_force(seed):
    rng = np.random.default_rng([seed, 2])
    for number in range(40):
        score = random_score(rng, number % 2 == 0, largest=5)
        n, m = score.shape
        capacity = rng.integers(0, 4, n)
        best = brute_force(score, capacity)
        rows, columns = np.nonzero(np.isfinite(score))
        listed = aot.match(
            pairs=(rows, columns, score[rows, columns]), shape=score.shape, source_capacity=capacity.tolist()
        )
        mirrored = aot.match(score.T, target_capacity=capacity)
        check_matching(mirrored, score.T, None, capacity)
        for matching in (aot.match(score, source_capacity=capacity), listed):
            assert math.isclose(matching.score, best, rel_tol=1e-12, abs_tol=1e-12)
            check_matching(matching, score, capacity)
            for (i, j), margin in zip(matching.pairs, matching.margin, strict=True):
                without = score.astype(float)
                without[i, j] = -1
                assert math.isclose(margin, matching.score - brute_force(without, capacity), abs_tol=1e-12)
        assert math.isclose(mirrored.score, best, rel_tol=1e-12, abs_tol=1e-12)
        others = aot.match(score, source_capacity=capacity, target_capacity=np.arange(m) % 2)
        assert math.isclose(others.score, brute_force(score[:, 1::2], capacity), rel_tol=1e-12, abs_tol=1e-12)


def rivals(score: np.ndarray) -> dict[str, float]:
    """The greatest score as others find it."""
    i, j = linear_sum_assignment(np.maximum(score, 0), maximize=True)
    found = {"scipy": math.fsum(np.maximum(score, 0)[i, j])}
    try:
        import lap

        _, partner, _ = lap.lapjv(-np.maximum(score, 0), extend_cost=True)
        pairs = [(i, j) for i, j in enumerate(partner) if j >= 0]
        found["lapx"] = math.fsum(max(score[pair], 0) for pair in pairs)
    except ImportError:
        pass
    return found


@pytest.mark.parametrize("shape", [(40, 40), (30, 70), (90, 25), (200, 200)])
@pytest.mark.parametrize("share", [0.05, 0.5, 1.0])
def test_scipy_and_lapx(shape, share):
    rng = np.random.default_rng([*shape, int(100 * share)])
    for score in (
        rng.uniform(share - 1, share, shape),
        rng.integers(-9, 9, shape),
        -((rng.normal(size=(shape[0], 1)) - rng.normal(size=shape[1])) ** 2) + share,
    ):
        expected = rivals(score)
        for form, matching in forms(score).items():
            check_matching(matching, score)
            for rival, best in expected.items():
                assert math.isclose(matching.score, best, rel_tol=1e-12, abs_tol=1e-12), (form, rival)


def test_networkx():
    networkx = pytest.importorskip("networkx")
    rng = np.random.default_rng(3)
    for _ in range(10):
        rows, columns = rng.integers(0, 30, 120), rng.integers(0, 25, 120)
        _, first = np.unique(rows * 25 + columns, return_index=True)
        rows, columns = rows[first], columns[first]
        score = rng.integers(-3, 9, rows.size)
        graph = networkx.Graph()
        for i, j, s in zip(rows.tolist(), columns.tolist(), score.tolist(), strict=True):
            graph.add_edge(("source", i), ("target", j), weight=s)
        best = sum(graph.edges[pair]["weight"] for pair in networkx.max_weight_matching(graph))
        assert aot.match(pairs=(rows, columns, score)).score == best


@pytest.mark.parametrize("larger", [False, True])
def test_or_tools(larger):
    min_cost_flow = pytest.importorskip("ortools.graph.python.min_cost_flow", exc_type=ImportError)
    rng = np.random.default_rng(4)
    n, m, size = (3000, 2500, 20_000) if larger else (60, 50, 500)
    rows, columns = rng.integers(0, n, size), rng.integers(0, m, size)
    _, first = np.unique(rows * m + columns, return_index=True)
    rows, columns = rows[first], columns[first]
    score = rng.integers(-50, 1000, rows.size)
    capacity = rng.integers(0, 3, n)
    flow = min_cost_flow.SimpleMinCostFlow()
    ones = np.ones(max(n, m, rows.size), np.int64)
    flow.add_arcs_with_capacity_and_unit_cost(np.full(n, n + m), np.arange(n), capacity, 0 * capacity)
    flow.add_arcs_with_capacity_and_unit_cost(rows, n + columns, ones[: rows.size], -score)
    flow.add_arcs_with_capacity_and_unit_cost(n + np.arange(m), np.full(m, n + m + 1), ones[:m], 0 * ones[:m])
    total = int(capacity.sum())
    flow.add_arc_with_capacity_and_unit_cost(n + m, n + m + 1, total, 0)
    flow.set_node_supply(n + m, total)
    flow.set_node_supply(n + m + 1, -total)
    assert flow.solve() == flow.OPTIMAL
    matching = aot.match(pairs=(rows, columns, score), shape=(n, m), source_capacity=capacity)
    assert matching.score == -flow.optimal_cost()
    assert matching.certificate.gap <= 1e-12 * matching.score


def test_a_large_matrix_is_matched_as_small_ones_are(monkeypatch):
    rng = np.random.default_rng(5)
    score = rng.integers(-20, 20, (60, 80))
    expected = aot.match(score)
    monkeypatch.setattr(sys.modules["adaptive_ot.match"], "LARGE", 100)
    monkeypatch.setattr("adaptive_ot.exact.matching.CROWD_PER_POINT", 5)
    for matching in (aot.match(score), forms(score)["pairs"]):
        check_matching(matching, score)
        assert matching.score == expected.score


@pytest.mark.parametrize("shape", [(400, 400), (300, 500), (500, 300)])
@pytest.mark.parametrize("kind", ["ties", "large integers", "sizes", "clouds"])
def test_matrices_that_begin_with_an_auction(shape, kind):
    rng = np.random.default_rng([*shape, len(kind)])
    score = {
        "ties": lambda: rng.integers(-2, 3, shape),
        "large integers": lambda: rng.integers(-(2**39), 2**39, shape),
        "sizes": lambda: rng.normal(size=shape) * 10.0 ** rng.uniform(-9, 9, shape),
        "clouds": lambda: (
            6 - ((rng.normal(size=(shape[0], 1, 4)) - rng.normal(size=(1, shape[1], 4))) ** 2).sum(axis=2)
        ),
    }[kind]()
    matching = aot.match(score)
    check_matching(matching, score)
    i, j = linear_sum_assignment(np.maximum(score, 0), maximize=True)
    if score.dtype.kind == "i":
        assert matching.score == int(np.maximum(score, 0)[i, j].sum())
    assert math.isclose(matching.score, math.fsum(np.maximum(score, 0)[i, j]), rel_tol=1e-12)


@pytest.mark.parametrize("shape", [(30, 30), (20, 45), (45, 20)])
@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_a_start_changes_nothing_but_the_way(shape, share):
    rng = np.random.default_rng([*shape, int(share * 10)])
    score = rng.uniform(share - 1, share, shape)
    previous = aot.match(score)
    listed = aot.match(sparse.csr_array(np.maximum(score, 0)))
    for size in (0.0, 0.01, 0.3, 3.0):
        moved = score + size * rng.normal(size=shape)
        best = aot.match(moved).score
        again = aot.match(moved, start=previous)
        again_listed = aot.match(sparse.csr_array(np.maximum(moved, 0)), start=listed)
        for matching in (again, again_listed):
            check_matching(matching, moved)
            assert math.isclose(matching.score, best, rel_tol=1e-12)
        previous, listed = again, again_listed


@given(st.data())
def test_laws(data):
    """Order does not matter, a worse score never helps, and what speaks against a pair never counts."""
    n, m = data.draw(SIZES), data.draw(SIZES)
    score = np.array(data.draw(st.lists(st.integers(-4, 6), min_size=n * m, max_size=n * m)), int).reshape(n, m)
    total = aot.match(score).score
    assert aot.match(score.T).score == total
    assert aot.match(np.maximum(score, 0)).score == total
    assert aot.match(score[::-1, ::-1].copy()).score == total
    assert aot.match(score - 1).score <= total
    assert aot.match(10 * score).score == 10 * total
    scores = [aot.match(score - price).score for price in range(6)]
    assert all(later <= earlier for earlier, later in pairwise(scores))


def test_order_of_pairs_does_not_matter():
    rng = np.random.default_rng(6)
    rows, columns = np.divmod(rng.permutation(2500)[:800], 50)
    score = rng.integers(0, 3, 800)  # ties everywhere
    expected = aot.match(pairs=(rows, columns, score)).pairs
    for _ in range(3):
        order = rng.permutation(800)
        found = aot.match(pairs=(rows[order], columns[order], score[order])).pairs
        assert np.array_equal(found, expected)


def test_threads_share_the_components(monkeypatch):
    rng = np.random.default_rng(8)
    rows, columns = rng.integers(0, 3000, (2, 4000))
    _, first = np.unique(rows * 3000 + columns, return_index=True)
    listed = rows[first], columns[first], rng.integers(-1, 4, first.size)  # ties, and components of many sizes
    alone = aot.match(pairs=listed, shape=(3000, 3000))
    monkeypatch.setattr("adaptive_ot.exact.matching.LISTED_PER_THREAD", 500)
    monkeypatch.setattr("numba.get_num_threads", lambda: 4)
    together = aot.match(pairs=listed, shape=(3000, 3000))
    assert np.array_equal(together.pairs, alone.pairs)
    assert np.array_equal(together.target_potential, alone.target_potential)
    check_matching(together, np.asarray(sparse.coo_array((listed[2], listed[:2]), (3000, 3000)).toarray()))


def test_torch_in_torch_out():
    torch = pytest.importorskip("torch")
    score = torch.tensor([[1.0, 2.0], [0.5, 3.0]], dtype=torch.float32, requires_grad=True)
    matching = aot.match(score)
    for field in ("pairs", "pair_scores", "margin", "unmatched_source", "source_potential"):
        assert isinstance(getattr(matching, field), torch.Tensor)
    assert matching.pairs.tolist() == [[0, 0], [1, 1]]
    assert matching.margin.dtype == torch.float32
    assert isinstance(aot.match(torch.stack([score, score])).score, torch.Tensor)


def test_inputs_are_left_alone():
    score = np.arange(12.0).reshape(3, 4) - 5
    listed = np.array([1, 0, 1]), np.array([0, 1, 1]), np.array([1.0, 2.0, -3.0])
    kept = score.copy(), [side.copy() for side in listed]
    matrix = sparse.csr_array(score)
    matching = aot.match(score, start=aot.match(score))
    before = matching.target_potential.copy()
    aot.match(score + 1, start=matching)
    aot.match(pairs=listed)
    aot.match(matrix, source_capacity=2)
    assert np.array_equal(matching.target_potential, before)
    assert np.array_equal(score, kept[0])
    assert np.array_equal(matrix.toarray(), score)
    assert all(np.array_equal(side, before) for side, before in zip(listed, kept[1], strict=True))


def test_read_only_and_strided_input():
    score = np.arange(24.0).reshape(4, 6)[:, ::2] - 9
    score.flags.writeable = False
    check_matching(aot.match(score), score)
    check_matching(aot.match(score.astype(np.float32)), score)


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0)])
def test_empty(shape):
    for matching in forms(np.zeros(shape)).values():
        assert matching.score == 0
        assert matching.pairs.shape == (0, 2)
        assert matching.margin.shape == (0,)
        assert [len(matching.unmatched_source), len(matching.unmatched_target)] == list(shape)
    empty = np.empty(0)
    assert aot.match(pairs=(empty, empty, empty), shape=shape).shape == shape
    assert aot.match(pairs=(empty, empty, empty)).shape == (0, 0)
    assert len(aot.match_frames([])) == 0
    assert aot.match_frames([]).pairs.shape == (0, 3)


def test_frames_of_all_sizes():
    rng = np.random.default_rng(7)
    frames = [random_score(rng, number % 2 == 0, 30) for number in range(60)]
    batch = aot.match_frames(frames)
    assert len(batch) == 60
    for number, (frame, matching) in enumerate(zip(frames, batch, strict=True)):
        check_matching(matching, frame)
        assert np.array_equal(batch.pairs[batch.pairs[:, 0] == number, 1:], matching.pairs)
        assert math.isclose(batch.score[number], aot.match(frame).score, rel_tol=1e-12, abs_tol=1e-12)
    assert len(batch[3:7]) == 4
    assert batch[-1].shape == frames[-1].shape
    costs = aot.match_frames([np.array([[1, 4]]), np.array([[3]])], limit=3)
    assert costs.score.tolist() == [2, 0]
    assert costs.score.dtype == np.int64


def linked(rng: np.random.Generator, decoy_shift: float = 0.0, decoys: int = 600) -> tuple[aot.Matching, np.ndarray]:
    """600 sources and targets of which a third belong together, decoys, and random candidates; also who is right."""
    n = 600
    right = rng.permutation(n)
    candidates = rng.integers(0, n + decoys, (n, 12))
    score = np.full((n, n + decoys), -np.inf)
    np.put_along_axis(score, candidates, rng.normal(0.0, 2.0, candidates.shape), axis=1)
    score[:, n:] += decoy_shift
    score[np.arange(200), right[:200]] = rng.normal(6.0, 2.0, 200)
    right[200:] = -1
    return aot.match(score), right


def true_rate(found: Any, right: np.ndarray) -> float:
    return float((right[found.pairs[:, 0]] != found.pairs[:, 1]).mean()) if len(found) else 0.0


@pytest.mark.parametrize("decoys", [600, 300])
def test_error_rate_with_exchangeable_decoys(decoys):
    """On average, the rate is kept; the interval holds the true rate about as often as it says."""
    shares, rates, held = [], [], []
    for seed in range(40):
        matching, right = linked(np.random.default_rng([seed, decoys]), decoys=decoys)
        found = matching.at_error_rate(0.1, decoys=np.arange(600 + decoys) >= 600)
        share, (low, high) = true_rate(found, right), found.interval
        shares.append(share)
        rates.append(found.rate)
        held.append(low <= share <= high)
    assert 0.04 < np.mean(shares) < 0.11
    assert max(rates) <= 0.1
    assert np.mean(held) > 0.8


def test_error_rate_is_too_low_if_decoys_are_easy_to_tell():
    """The assumption matters: decoys unlike wrong targets prove nothing."""
    shares = []
    for seed in range(10):
        matching, right = linked(np.random.default_rng(seed), decoy_shift=-3.0)
        shares.append(true_rate(matching.at_error_rate(0.05, decoys=range(600, 1200)), right))
    assert np.mean(shares) > 0.1


def test_error_rate_asks_the_price_of_every_pair():
    """The links are those of the matching with the price subtracted, on the mass path."""
    matching, _ = linked(np.random.default_rng(0))
    found = matching.at_error_rate(0.05, decoys=np.arange(1200) >= 600)
    assert found.price > 0
    assert np.all(np.diff(found.curve.price) > 0)
    score = -matching._scores.cost()
    dearer = aot.match(score - found.price)
    real = dearer.pairs[:, 1] < 600
    assert np.array_equal(dearer.pairs[real], found.pairs)
    np.testing.assert_allclose(found.pair_scores, score[tuple(found.pairs.T)])
    path = aot.mass_path(-score, np.ones(600), np.ones(1200))
    assert round(path.mass_at(-found.price)) == len(dearer)
    place = np.searchsorted(found.curve.price, found.price)
    assert found.curve.matched[place] == len(found)
    assert found.curve.rate[place] == found.rate == (found.curve.decoys[place] + 1) / len(found)


def test_error_rate_at_the_edges():
    always = aot.match([[5.0, -1.0]]).at_error_rate(1.0, decoys=[1])
    assert (always.price, always.pairs.tolist()) == (0.0, [[0, 0]])
    never = aot.match([[1.0, 5.0]]).at_error_rate(0.01, decoys=[1])
    assert (never.price, len(never), never.pair_scores.size) == (math.inf, 0, 0)
    nothing = aot.match([[-1.0, -5.0]]).at_error_rate(0.5, decoys=[1])
    assert len(nothing) == 0
    assert "0 links" in repr(nothing)


NAN = [[1.0, np.nan]]
ANY: Any = 3
ONE = [[1.0]]
REFUSED = {
    "nothing": (lambda: aot.match(), "score must be given; got nothing"),
    "both": (lambda: aot.match(ONE, cost=ONE), "score must come alone; got score and cost"),
    "cost without a limit": (lambda: aot.match(cost=ONE), "limit is needed with a cost"),
    "score with a limit": (lambda: aot.match(ONE, limit=1.0), "limit goes with a cost"),
    "bad limit": (lambda: aot.match(cost=ONE, limit=math.nan), "limit must be a number"),
    "shape": (lambda: aot.match(ONE, shape=(1, 1)), "shape goes with pairs"),
    "NaN": (lambda: aot.match(NAN), r"score must not contain NaN; got nan at \(0, 1\). Use -inf to forbid a pair"),
    "NaN cost": (lambda: aot.match(cost=NAN, limit=2.0), r"cost must not contain NaN.*\+inf"),
    "NaN in a batch": (lambda: aot.match([NAN, NAN]), r"score must not contain NaN; got nan at \(0, 0, 1\)"),
    "NaN in a frame": (lambda: aot.match_frames([ONE, NAN]), r"frames\[1\] must not contain NaN"),
    "NaN in a list": (
        lambda: aot.match(pairs=([0], [0], [math.nan])),
        r"pairs\[2\] must not contain NaN; got nan at 0",
    ),
    "NaN in a sparse matrix": (lambda: aot.match(sparse.csr_array(NAN)), r"score must not .* NaN; got nan at \(0, 1\)"),
    "infinite": (lambda: aot.match([[np.inf]]), "score must not be above 1e[+]100"),
    "-inf cost": (lambda: aot.match(cost=[[-np.inf]], limit=1.0), "cost must not be below -1e[+]100"),
    "large integer": (lambda: aot.match([[2**50]]), "score must stay within 2\\*\\*40"),
    "text": (lambda: aot.match([["a"]]), "score must hold real numbers"),
    "dimensions": (lambda: aot.match([1.0]), "score must have two dimensions"),
    "repeated": (
        lambda: aot.match(pairs=([0, 1, 0], [2, 0, 2], [1, 1, -1])),
        r"pairs must not repeat; got \(0, 2\) twice",
    ),
    "two arrays": (lambda: aot.match(pairs=([0], [0])), r"pairs must be \(sources, targets, scores\)"),
    "lengths": (lambda: aot.match(pairs=([0, 1], [0], [1.0])), r"pairs\[0\] must be one-dimensional"),
    "negative": (lambda: aot.match(pairs=([-1], [0], [1.0])), r"pairs\[0\] must not be negative"),
    "fractions": (lambda: aot.match(pairs=([0.5], [0], [1.0])), r"pairs\[0\] must hold integers"),
    "outside": (lambda: aot.match(pairs=([0], [3], [1.0]), shape=(1, 3)), r"pairs\[1\] must be below 3"),
    "capacity": (lambda: aot.match(ONE, source_capacity=[-1]), "source_capacity must hold whole numbers from 0"),
    "endless capacity": (
        lambda: aot.match(ONE, source_capacity=1e30),
        "source_capacity must hold whole numbers from 0",
    ),
    "half": (lambda: aot.match(ONE, target_capacity=0.5), "target_capacity must hold whole numbers"),
    "capacities": (
        lambda: aot.match(ONE, target_capacity=[1, 2]),
        r"target_capacity must be one number or have shape \(1,\)",
    ),
    "both sides": (lambda: aot.match(ONE, source_capacity=2, target_capacity=2), "target_capacity must be at most 1"),
    "start": (lambda: aot.match(ONE, start=ANY), "start must be an instance of Matching"),
    "start elsewhere": (lambda: aot.match(ONE, start=aot.match([[1.0, 2.0]])), r"start must have the shape .*\(1, 1\)"),
    "start of a batch": (lambda: aot.match([ONE], start=aot.match(ONE)), "start does not go with a batch"),
    "capacity of a batch": (lambda: aot.match([ONE], source_capacity=2), "source_capacity does not go with a batch"),
    "rate": (lambda: aot.match(ONE).at_error_rate(0.0, decoys=[0]), "rate must be a number from"),
    "no decoys": (
        lambda: aot.match(ONE).at_error_rate(0.1, decoys=[False]),
        "decoys must be some of the targets; got no",
    ),
    "only decoys": (lambda: aot.match(ONE).at_error_rate(0.1, decoys=[0]), "decoys must be some .*; got only decoys"),
    "decoys elsewhere": (lambda: aot.match(ONE).at_error_rate(0.1, decoys=[1]), "decoys must be a mask"),
    "no frames": (lambda: aot.match_frames(ANY), "frames must be a list of matrices"),
    "frames": (lambda: aot.match_frames([ONE, [1.0]]), r"frames\[1\] must have two dimensions"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    call, message = REFUSED[case]
    with pytest.raises(aot.InvalidInput, match=message):
        call()
