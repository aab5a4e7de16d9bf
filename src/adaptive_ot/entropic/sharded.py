"""The oracle of several processes: each has the rows of its own sources, and the leader runs the ascent.

The leader sends the column scalings. Every process updates its rows; the log-sum-exps and potentials of all rows are
joined in the leader, and the column sums are added. A product with the Hessian takes a vector of columns to all
processes and one back. Whatever a process has to know about its rows beyond that is sent only when it has changed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adaptive_ot._shard import ShardedCost
from adaptive_ot.entropic import constants
from adaptive_ot.entropic.cpu import MOST_EQUATIONS, is_few, solve_sparse
from adaptive_ot.entropic.dense import solve_dense
from adaptive_ot.entropic.oracle import Conditions, Equations, Factors, Finished, Oracle, RowRule, RowUpdate

# How a process can give its part of the matrix of Newton's equations.
NOT, SPARSE, DENSE = range(3)


class ShardedSoftmin(Oracle):
    """The sums over the rows of all processes, in the leader."""

    def __init__(self, cost: ShardedCost) -> None:
        self.team, self.cuts, self.shape = cost.team, cost.cuts, cost.shape
        self.held: dict[str, np.ndarray] = {}  # what the processes hold: the very arrays

    def scale(self, epsilon: float) -> None:
        self._agree(self.team.call("scale", {"epsilon": epsilon}).joined[0])

    def refine(self) -> bool:
        return self._agree(self.team.call("refine").joined[0])

    def _agree(self, found: np.ndarray) -> bool:
        """Expect no more than any process can do; returns whether one can do more than before."""
        rounding, least_error, leave, _, refined = found.max(axis=0)
        few = found[:, -2].min()
        if self.shape[1] > MOST_EQUATIONS and few < constants.FEW_SWEEPS:
            few = constants.MANY_SWEEPS
        self.conditions = Conditions(rounding, least_error, leave, int(few))
        return bool(refined)

    def update_rows(self, h: np.ndarray, rule: RowRule) -> RowUpdate:
        self._hold(total=rule.total, reference=rule.reference)
        found = self.team.call("update_rows", {"h": h, "rule": rule[2:]})
        (log_sums, potential), (columns,) = found.joined, found.added
        update = RowUpdate(h, log_sums, potential, columns)
        self.held |= {"h": h, "log_sums": update.log_sums, "potential": update.potential}
        return update

    def curvature(self, at: RowUpdate, rule: RowRule, weights: np.ndarray, x: np.ndarray) -> np.ndarray:
        self._hold_all(at, rule, weights)
        return self.team.call("curvature", {"x": x, "rule": rule[2:]}).added[0]

    def weighted_columns(self, at: RowUpdate, rule: RowRule, weights: np.ndarray) -> np.ndarray:
        self._hold_all(at, rule, weights)
        return self.team.call("weighted_columns", {"rule": rule[2:]}).added[0]

    def solve_directly(self, at: RowUpdate, rule: RowRule, equations: Equations) -> tuple[bool, np.ndarray]:
        weights, diagonal, spill, free, right = equations
        self._hold_all(at, rule, weights)
        scale = free / np.sqrt(diagonal)
        ways, *pairs = self.team.call("make_gram", {"scale": scale, "rule": rule[2:]}).joined
        given, solved, x = (spill * scale, scale * right), False, right
        if (ways == SPARSE).all():
            from scipy import sparse

            rows, columns, values = pairs
            gram = sparse.coo_array((values, (rows, columns)), shape=(right.size, right.size)).tocsc()
            if is_few(gram):
                solved, x = solve_sparse(gram, *given)
        if not solved and (ways != NOT).all() and right.size <= MOST_EQUATIONS:
            solved, x = solve_dense(self.team.call("give_gram").added[0], *given)
        return solved, scale * x

    def finish(
        self, at: RowUpdate, rule: RowRule, most: np.ndarray, factors: np.ndarray, clipped: np.ndarray, keep: bool
    ) -> Finished:
        self._hold_all(at, rule)
        parts = self.cuts.of({"most": most, "clipped": clipped})
        found = self.team.call("finish", {"factors": factors, "rule": rule[2:]}, parts)
        (row_factors, rows), (columns, value) = found.joined, found.added
        return Finished(row_factors, rows, columns, float(value[0]), found.lowest[0], None)

    def plan_rows(self, at: RowUpdate, rule: RowRule) -> Any:
        raise AssertionError("every process has the plan of its own rows")

    def marginals(
        self, at: RowUpdate, rule: RowRule, factors: Factors, dtype: np.dtype
    ) -> tuple[np.ndarray, np.ndarray]:
        found = self.team.call("sums", {"dtype": dtype.str})
        return found.joined[0], found.added[0]

    def _hold_all(self, at: RowUpdate, rule: RowRule, weights: np.ndarray | None = None) -> None:
        """Have all processes hold the plan of an update; they have that of the last one."""
        rows = {"total": rule.total, "reference": rule.reference, "log_sums": at.log_sums, "potential": at.potential}
        self._hold(at.h, **rows, **({} if weights is None else {"weights": weights}))

    def _hold(self, h: np.ndarray | None = None, **rows: np.ndarray) -> None:
        new = {name: array for name, array in rows.items() if array is not self.held.get(name)}
        everyone = {} if h is None or h is self.held.get("h") else {"h": h}
        if new or everyone:
            self.team.call("hold", everyone, self.cuts.of(new))
            self.held |= new | everyone
