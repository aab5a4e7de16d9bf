"""The sums over the rows of one of several processes, which answers the calls of `ShardedSoftmin`."""

from __future__ import annotations

from typing import Any

import numpy as np

from adaptive_ot._arrays import to_numpy
from adaptive_ot._group import Shares
from adaptive_ot._shard import Shard
from adaptive_ot.entropic.cpu import TiledSoftmin
from adaptive_ot.entropic.oracle import RowRule, RowUpdate
from adaptive_ot.entropic.sharded import DENSE, NOT, SPARSE
from adaptive_ot.entropic.solver import TiledTransport, softmin_for

# As in an ascent of one process: a step to such numbers is not accepted.
quietly = np.errstate(divide="ignore", over="ignore", invalid="ignore")


class SoftminShard(Shard):
    """The sums over the rows of one process."""

    def begin(self, mu: np.ndarray, nu: np.ndarray, distance_weight: float) -> Shares:
        shares = super().begin(mu, nu, distance_weight)
        self.softmin: Any = softmin_for(self.cost) if mu.size else TiledSoftmin(self.cost)
        self.held: dict[str, np.ndarray] = {}
        self.at = RowUpdate(*[np.zeros(0)] * 4)
        self.gram: Any = None
        return shares

    def scale(self, epsilon: float) -> Shares:
        self.softmin.scale(epsilon)
        return self._conditions()

    def refine(self) -> Shares:
        return self._conditions(self.softmin.refine())

    def _conditions(self, refined: bool = True) -> Shares:
        return Shares(joined=(np.array([[*self.softmin.conditions, refined]]),))

    def hold(self, **arrays: np.ndarray) -> Shares:
        """Keep these arrays for what follows: the rule and weights of the rows, or another update than the last."""
        self.held |= arrays
        if {"h", "log_sums", "potential"} & arrays.keys():
            self.at = RowUpdate(self.held["h"], self.held["log_sums"], self.held["potential"], np.zeros(0))
        return Shares()

    def _rule(self, numbers: list[float]) -> RowRule:
        return RowRule(self.held["total"], self.held["reference"], *numbers)

    @quietly
    def update_rows(self, h: np.ndarray, rule: list[float]) -> Shares:
        self.at = self.softmin.update_rows(h, self._rule(rule))
        self.held |= {"h": h, "log_sums": self.at.log_sums, "potential": self.at.potential}
        return Shares(joined=(self.at.log_sums, self.at.potential), added=(self.at.columns,))

    @quietly
    def curvature(self, x: np.ndarray, rule: list[float]) -> Shares:
        return Shares(added=(self.softmin.curvature(self.at, self._rule(rule), self.held["weights"], x),))

    @quietly
    def weighted_columns(self, rule: list[float]) -> Shares:
        return Shares(added=(self.softmin.weighted_columns(self.at, self._rule(rule), self.held["weights"]),))

    @quietly
    def make_gram(self, scale: np.ndarray, rule: list[float]) -> Shares:
        """Make this part of the matrix, and say how it can be given; if it is sparse, give it."""
        gram = self.softmin.gram(self.at, self._rule(rule), self.held["weights"], scale)
        self.gram = gram if gram is None or hasattr(gram, "tocoo") else to_numpy(gram)
        rows, columns, values = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)
        way = NOT if gram is None else DENSE
        if gram is not None and hasattr(gram, "tocoo"):
            pairs, way = gram.tocoo(), SPARSE
            rows, columns, values = pairs.coords[0].astype(np.int64), pairs.coords[1].astype(np.int64), pairs.data
        return Shares(joined=(np.array([way]), rows, columns, values))

    def give_gram(self) -> Shares:
        return Shares(added=(self.gram.toarray() if hasattr(self.gram, "toarray") else self.gram,))

    @quietly
    def finish(self, most: np.ndarray, clipped: np.ndarray, factors: np.ndarray, rule: list[float]) -> Shares:
        """The last pass. It also makes the plan of these rows."""
        given = self.at, self._rule(rule)
        found = self.softmin.finish(*given, most, factors, clipped, keep=False)
        self.factors = found.factors, factors
        if most.size:
            self.transport = TiledTransport(self.softmin, *given, self.problem.source_weights, self.factors)
        sums = found.columns, np.array([found.value])
        return Shares(joined=(found.factors, found.rows), added=sums, lowest=(found.lowest,))

    def sums(self, dtype: str) -> Shares:
        rows, columns = self.transport.marginals(np.dtype(dtype))
        return Shares(joined=(rows,), added=(columns,))
