"""The strength of the entropy where the user gave none: a share of what the best partner of a point is worth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from adaptive_ot._partners import most_points, sample
from adaptive_ot.batch import ProblemBatch
from adaptive_ot.problem import Problem

if TYPE_CHECKING:
    from adaptive_ot.entropic.solver import Entropic
    from adaptive_ot.marginals import Marginals, Side

# With this share, the values of all models are a few per cent off (benchmarks/epsilon.py).
SHARE = 0.05

# Of a batch, so many costs are looked at.
MOST_COSTS = 4_000_000


def with_strength(solver: Entropic, problem: Problem | ProblemBatch) -> Entropic:
    """The solver with an epsilon: its own, or one for this problem or for all problems of this batch."""
    if solver.epsilon is not None:
        return solver
    gains = np.concatenate([np.zeros(1), *_gains_of(problem)])
    gains = gains[gains > 0] if (gains > 0).any() else np.abs(gains[gains < 0])  # where nothing pays, the least losses
    typical = float(np.median(gains)) if gains.size else 1.0  # with a single cost for all pairs, any strength will do
    return replace(solver, epsilon=SHARE * typical)


def _gains_of(problems: Problem | ProblemBatch) -> Iterator[np.ndarray]:
    """The gains of the points of a problem, or of some problems of a batch."""
    if isinstance(problems, ProblemBatch):
        batch, n, m = problems.cost.shape
        for index in sample(batch, max(1, MOST_COSTS // max(1, n * m))).tolist():
            yield from _gains_of(problems[index])
        return
    cost, weights = problems.cost, (problems.source_weights, problems.target_weights)
    most = most_points(getattr(cost, "dimension", 1))
    able = [np.flatnonzero(side > 0) for side in weights]
    costs = cost.part(*(side[sample(side.size, most)] for side in able))
    for side, table in zip(problems.marginals.sides, (costs, costs.T), strict=True):
        yield gains(table, problems.marginals, side)


def gains(costs: np.ndarray, marginals: Marginals, side: Side) -> np.ndarray:
    """How much cheaper the best partner of every row is than a typical partner, or than none where that is allowed.

    Examples
    --------
    >>> from adaptive_ot import AtMost, Equal
    >>> costs = np.array([[-3.0, 1.0, 2.0], [5.0, 6.0, 7.0]])
    >>> [gains(costs, model, model.sides[0]).tolist() for model in (AtMost(), Equal())]
    [[3.0, -5.0], [4.0, 1.0]]
    """
    costs = costs[np.isfinite(costs).any(axis=1)] if costs.shape[1] else costs[:0]
    if costs.size == 0:
        return np.zeros(0)
    others = np.nanmedian(np.where(np.isfinite(costs), costs, np.nan), axis=1)
    if side.soft:
        others = np.minimum(others, side.tau)
    elif side.bounded and not marginals.prescribes_mass:
        others = np.minimum(others, 0.0)
    return others - costs.min(axis=1)
