"""The functions `match` and `match_frames`: match these to those, and leave alone what has no partner."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from adaptive_ot import _meant as meant
from adaptive_ot import _validation as check
from adaptive_ot._arrays import ArrayKind
from adaptive_ot._scores import (
    DenseScores,
    Meaning,
    Scores,
    StackedScores,
    as_scores,
    capacities,
    dense_values,
    pair_scores,
)
from adaptive_ot.batch import is_batch
from adaptive_ot.errors import InvalidInput
from adaptive_ot.matching import Matching, MatchingBatch

# A larger matrix is matched by the solver that examines few of its pairs.
LARGE = 2**20


def match(
    score: Any = None,
    *extra: Any,
    cost: Any = None,
    limit: float | None = None,
    pairs: Any = None,
    shape: tuple[int, int] | None = None,
    source_capacity: Any = None,
    target_capacity: Any = None,
    start: Matching | None = None,
) -> Any:
    """Match sources with targets so that the total score is greatest; what has no good partner stays alone.

    Only pairs with a score above 0 are ever matched, and each point has at most one partner (or as many as its
    capacity). This is adaptive transport with unit weights, and the answer is exact. A log-odds score, the logarithm of
    how much more likely the data are if both are the same, has its zero in the right place.

    Parameters
    ----------
    score
        What speaks for each pair, sources x targets: a NumPy array, a torch tensor, nested lists, or a SciPy sparse
        matrix, whose stored pairs are the candidates (SciPy adds up what is stored twice). -inf forbids a pair. An
        array of shape problems x sources x targets is a batch, answered by a `MatchingBatch`.
    cost, limit
        Instead of scores: costs, and the price of leaving both alone. The score of a pair is the limit minus its cost.
    pairs
        Instead of a matrix: candidate pairs as three arrays, sources, targets and scores (with a `limit`: costs), in
        any order, each pair once.
    shape
        With `pairs`: the numbers of sources and targets; by default as many as the pairs name.
    source_capacity, target_capacity
        How many partners a point may have: one number, or one for each. Only one of the sides may have more than one.
    start
        A matching of a similar problem of the same shape, from which the search begins; the answer is as exact.

    Returns
    -------
    Matching or MatchingBatch
        The pairs, who is left alone, the score, the margin of every pair, and the certificate.

    Notes
    -----
    Integers are exact: the score of integers is an integer. The same problem always has the same matching, whatever
    the number of threads and the order of the pairs; of several matchings with the greatest score, a matrix, a list and
    a `start` may each choose another.

    Examples
    --------
    >>> import adaptive_ot as aot
    >>> matching = aot.match([[3, 2, -1], [2, -4, -1]])
    >>> print(matching)
    Matching, 2 x 3
      pairs      2
      unmatched  0 of 2 sources, 1 of 3 targets
      score      4
    >>> matching.pairs.tolist(), matching.margin.tolist(), matching.unmatched_target.tolist()
    ([[0, 1], [1, 0]], [1, 1], [2])
    >>> aot.match(cost=[[1.0, 9.0], [8.0, 7.0]], limit=5.0).pairs.tolist()
    [[0, 0]]
    >>> aot.match(pairs=([0, 0, 2], [1, 0, 1], [0.5, 0.25, 0.75]), shape=(3, 2)).pairs.tolist()
    [[0, 0], [2, 1]]
    """
    if extra:
        raise meant.second(extra[0])
    name, given = _only_one(score, cost, pairs, limit)
    if shape is not None and name != "pairs":
        raise InvalidInput("shape", "goes with pairs", shape, f"Omit it: {name} has a shape.")
    if name != "pairs" and is_batch(given):
        others = {"start": start, "source_capacity": source_capacity, "target_capacity": target_capacity}
        for other in (name for name, value in others.items() if value is not None):
            raise InvalidInput(other, "does not go with a batch", "one", "Match the problems one by one.")
        return _match_batch(name, given, limit)
    scores = pair_scores(given, shape, limit) if name == "pairs" else as_scores(name, given, limit)
    n, m = scores.shape
    sides = capacities("source_capacity", source_capacity, n), capacities("target_capacity", target_capacity, m)
    if start is not None:
        _check_start(start, scores, sides)
    if isinstance(scores, DenseScores):
        large = n * m > LARGE and start is None
        if sides[0] is None and sides[1] is None and not large:
            values = np.ascontiguousarray(scores.values, np.float64).reshape(-1)
            return _solve_frames([scores], scores.kind, values, np.array([[n, m]]), scores.meaning, start)[0]
        scores.meaning.check(scores.values)
        if sides[0] is None and sides[1] is None and large:
            # Numba takes half a second to import; only a search should pay for it.
            from adaptive_ot.exact.matching import match_matrix

            ones = np.ones(n, np.int64), np.ones(m, np.int64)
            return Matching(scores.shape, *ones, scores, match_matrix(scores.cost()))
    return _match_listed(scores, sides, start)


def match_frames(frames: Iterable[Any], *, limit: float | None = None) -> MatchingBatch:
    """Match many small problems of any sizes in one call, on all threads.

    Parameters
    ----------
    frames
        A matrix of scores, as in `match`, for every problem; they may have any shapes, also without rows or columns.
    limit
        If given, the matrices hold costs, and this is the price of leaving both alone.

    Examples
    --------
    >>> import adaptive_ot as aot
    >>> batch = aot.match_frames([[[1.0, 2.0]], [[3.0], [4.0]], [[-1.0]]])
    >>> batch.pairs.tolist(), batch.score.tolist()
    ([[0, 0, 1], [1, 1, 0]], [2.0, 4.0, 0.0])
    >>> batch[1].unmatched_source
    array([0])
    """
    if not isinstance(frames, Iterable):
        rule = "must be a list of matrices"
        raise InvalidInput("frames", rule, check.describe(frames), "Give one for every problem.")
    problems, shapes = [], []
    for number, frame in enumerate(frames):
        values = dense_values(f"frames[{number}]", frame, 2)
        problems.append(DenseScores(values, ArrayKind.of(frame), Meaning.of(f"frames[{number}]", values, limit)))
        shapes.append(values.shape)
        if problems[-1].meaning.whole:
            problems[-1].meaning.check(values)
    flat = [np.ascontiguousarray(problem.values, np.float64).reshape(-1) for problem in problems]
    values = np.concatenate(flat) if flat else np.empty(0)
    kind = problems[0].kind if problems else ArrayKind.of(values)
    return _solve_frames(problems, kind, values, np.array(shapes).reshape(-1, 2), Meaning.of("frames", values, limit))


def _only_one(score: Any, cost: Any, pairs: Any, limit: float | None) -> tuple[str, Any]:
    """What the user gave, and its name."""
    given = {"score": score, "cost": cost, "pairs": pairs}
    names = [name for name, value in given.items() if value is not None]
    if len(names) != 1:
        rule = "must come alone" if names else "must be given"
        remedy = "Give score=, or cost= and limit=, or pairs=."
        raise InvalidInput(names[0] if names else "score", rule, " and ".join(names) or "nothing", remedy)
    if names == ["cost"] and limit is None:
        raise InvalidInput(
            "limit", "is needed with a cost", None, "Give the price of leaving both alone, as in limit=3.0."
        )
    if names == ["score"] and limit is not None:
        raise InvalidInput("limit", "goes with a cost", limit, "Give cost= instead of the score, or omit the limit.")
    return names[0], given[names[0]]


def _match_batch(name: str, given: Any, limit: float | None) -> MatchingBatch:
    try:
        values = dense_values(name, given, 3)
    except InvalidInput as error:
        raise meant.instead(error, given) from None
    problems = StackedScores(values, ArrayKind.of(given), Meaning.of(name, values, limit))
    flat = np.ascontiguousarray(values, np.float64).reshape(-1)
    shapes = np.broadcast_to(values.shape[1:], (len(values), 2))
    return _solve_frames(problems, problems.kind, flat, shapes, problems.meaning)


def _solve_frames(
    problems: Sequence[DenseScores],
    kind: ArrayKind,
    values: np.ndarray,
    shapes: np.ndarray,
    meaning: Meaning,
    start: Matching | None = None,
) -> MatchingBatch:
    """Solve dense problems, whose values are checked on the way."""
    # Numba takes half a second to import; only a search should pay for it.
    from adaptive_ot.exact.matching import Frames, match_frames

    rows, columns = np.ascontiguousarray(shapes.T, np.int64)
    frames = Frames(values, rows, columns, meaning.sign, meaning.limit, meaning.most)
    found = match_frames(frames, None if start is None else start._matched.target_potential)
    if found is None:
        for problem in [problems] if isinstance(problems, StackedScores) else problems:
            problem.meaning.check(problem.values)
    assert found is not None
    return MatchingBatch(problems, kind, found)


def _check_start(start: Any, scores: Scores, sides: tuple[Any, Any]) -> None:
    check.instance("start", start, Matching)
    if start.shape != scores.shape:
        rule = f"must have the shape of this problem {scores.shape}"
        raise InvalidInput("start", rule, start.shape, "Omit it where the points change.")
    if any(side is not None for side in sides):
        raise InvalidInput("start", "does not go with capacities", "both", "Omit it.")


def _match_listed(scores: Scores, sides: tuple[Any, Any], start: Matching | None) -> Matching:
    """Match over the list of pairs worth making."""
    from adaptive_ot.exact.matching import match_pairs, match_pairs_up_to

    n, m = scores.shape
    ones = np.ones(n, np.int64), np.ones(m, np.int64)
    of_source, of_target = (one if side is None else side for side, one in zip(sides, ones, strict=True))
    if of_source.max(initial=0) > 1 and of_target.max(initial=0) > 1:
        rule = "must be at most 1 where sources have larger capacities"
        raise InvalidInput("target_capacity", rule, int(of_target.max()), "Give capacities to one side.")
    if start is None:
        matched = match_pairs_up_to(scores.listed, of_source, of_target)
    else:
        matched = match_pairs(scores.listed, m, start=start._matched.target_potential)
    return Matching(scores.shape, of_source, of_target, scores, matched)
