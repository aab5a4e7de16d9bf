"""The prices of the rows of one of several processes, which answers the calls of `SharedPricing`."""

from __future__ import annotations

from typing import Any

import numpy as np

from adaptive_ot._group import Shares
from adaptive_ot._shard import Shard
from adaptive_ot.costs import PointCost
from adaptive_ot.exact.columns import pricing_for
from adaptive_ot.exact.pricing import Pairs, Pricing
from adaptive_ot.solution import ListedTransport


class PricingShard(Shard):
    """The prices of the rows of one process."""

    pricing: Pricing
    first: int
    shown: Any = None  # in the leader, whose points the processes have

    def take_points(
        self, first: int, x: np.ndarray, p: np.ndarray, z: np.ndarray, q: np.ndarray, weights: list[float]
    ) -> Shares:
        """The rows of this process from the row `first` on, and all columns."""
        distance_weight, class_weight, offset = weights
        numbers = {"distance_weight": distance_weight, "class_weight": class_weight, "offset": offset}
        self.pricing, self.first = pricing_for(PointCost(self.cost.kind, x, z, p, q, **numbers)), first
        return Shares()

    def violated(self, f: np.ndarray, g: np.ndarray, keep: int) -> Shares:
        rows, columns, costs, target_minimum = self.pricing.violated(f, g, keep, lambda done: None)
        return Shares(joined=(rows + self.first, columns, costs), lowest=(target_minimum,))

    def below(self, f: np.ndarray, g: np.ndarray, limit: float, most: int) -> Shares:
        pairs = self.pricing.below(f, g, limit, most)
        if pairs is None:  # one more than allowed
            pairs = Pairs(np.zeros(most + 1, np.int64), np.zeros(most + 1, np.int64), np.zeros(most + 1))
        return Shares(joined=(pairs.rows + self.first, pairs.columns, pairs.costs))

    def minima(self, f: np.ndarray) -> Shares:
        of_rows, of_columns = self.pricing.minima(f)
        return Shares(joined=(of_rows,), lowest=(of_columns,))

    def largest(self) -> Shares:
        return Shares(lowest=(np.array([-self.pricing.largest()]),))

    def take_plan(self, rows: np.ndarray, columns: np.ndarray, mass: np.ndarray) -> Shares:
        self.transport = ListedTransport(self.cost.shape, (rows, columns, mass))
        return Shares()
