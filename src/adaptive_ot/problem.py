"""A transport problem: a cost, two weightings, and what the marginals must satisfy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from adaptive_ot import _validation as check
from adaptive_ot._arrays import is_sparse
from adaptive_ot.costs import NUMBERS_AT_ONCE, Cost, as_cost
from adaptive_ot.marginals import AtMost


@dataclass(frozen=True, eq=False)
class Problem:
    """minimise <C, G> over G >= 0 with row sums <= source_weights and column sums <= target_weights.

    Made with `Problem.build`, which checks its input. Its methods judge any plan and any potentials, whichever solver
    they come from.

    Examples
    --------
    >>> problem = Problem.build([[-1.0, 2.0], [3.0, -2.0]])
    >>> plan = [[0.5, 0.0], [0.0, 0.5]]
    >>> problem.objective(plan), problem.violation(plan)
    (-1.5, 0.0)
    >>> problem.gap(plan, source_potential=[-1.0, -2.0])
    0.0
    """

    cost: Cost
    source_weights: np.ndarray
    target_weights: np.ndarray
    marginals: AtMost

    @classmethod
    def build(
        cls, cost: Any, source_weights: Any = None, target_weights: Any = None, marginals: AtMost | None = None
    ) -> Problem:
        """Check and wrap what a user may pass; weights default to uniform with total 1."""
        marginals = AtMost() if marginals is None else marginals
        check.instance("marginals", marginals, AtMost)
        cost = as_cost(cost)
        return cls(
            cost,
            check.weights("source_weights", source_weights, cost.shape[0], cost.kind),
            check.weights("target_weights", target_weights, cost.shape[1], cost.kind),
            marginals,
        )

    @property
    def most_mass(self) -> float:
        """What can move at most: the smaller of the two totals."""
        return float(min(self.source_weights.sum(), self.target_weights.sum()))

    def objective(self, plan: Any) -> float:
        """<C, plan>; +inf if mass lies on a forbidden pair."""
        rows, columns, mass = self._support(plan)
        costs = self.cost.entries(rows, columns)
        return math.inf if np.isinf(costs).any() else math.fsum(costs * mass)

    def violation(self, plan: Any) -> float:
        """By how much the worst entry or marginal of `plan` breaks its constraint."""
        rows, columns, mass = self._support(plan)
        over_source = np.bincount(rows, mass, self.cost.shape[0]) - self.source_weights
        over_target = np.bincount(columns, mass, self.cost.shape[1]) - self.target_weights
        return max(0.0, *(float(excess.max(initial=0.0)) for excess in (-mass, over_source, over_target)))

    def c_transform(self, source_potential: Any) -> np.ndarray:
        """The best target potential that goes with a source potential: g_j = min(0, min_i C_ij - f_i)."""
        potential = self._source_potential(source_potential)
        n, m = self.cost.shape
        best = np.zeros(m)
        step = max(1, NUMBERS_AT_ONCE // max(1, m))
        for start in range(0, n, step):
            rows = self.cost.block(start, min(start + step, n))
            np.minimum(best, (rows - potential[start : start + step, None]).min(axis=0, initial=0.0), out=best)
        return best

    def dual_value(self, source_potential: Any) -> float:
        """A lower bound on every objective: any potential gives one, once clipped at zero and c-transformed."""
        potential = self._source_potential(source_potential)
        return math.fsum(self.source_weights * potential) + math.fsum(self.target_weights * self.c_transform(potential))

    def gap(self, plan: Any, source_potential: Any) -> float:
        """How far a feasible `plan` can be from optimal at most, as proved by `source_potential`.

        Whether it is feasible is for `violation` to say.
        """
        return max(0.0, self.objective(plan) - self.dual_value(source_potential))

    def _support(self, plan: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        array = check.plan(plan, self.cost.shape)
        if is_sparse(array):
            array = array.tocoo()
            return (*array.coords, array.data.astype(np.float64))
        rows, columns = np.nonzero(array)
        return rows, columns, array[rows, columns].astype(np.float64)

    def _source_potential(self, given: Any) -> np.ndarray:
        return np.minimum(check.potential("source_potential", given, self.source_weights.size), 0.0)
