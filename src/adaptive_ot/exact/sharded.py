"""Pricing by several processes: each prices some rows, and the leader runs the simplex.

The processes get the points when they are first asked about them, in the order in which the leader has them. So the
rows of a process lie in a few cells of space (see `multiscale`), and most columns are far from them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adaptive_ot._group import Shares, Team
from adaptive_ot._shard import Cuts
from adaptive_ot.costs import PointCost
from adaptive_ot.exact.limits import LIMITS, Limits
from adaptive_ot.exact.pricing import Pairs, Pricing, Tick, Violated


class SharedPoints(PointCost):
    """Points in the leader, of which other processes can price a part."""

    team: Team

    @classmethod
    def of(cls, cost: PointCost, team: Team) -> SharedPoints:
        weights = {"distance_weight": cost.distance_weight, "class_weight": cost.class_weight, "offset": cost.offset}
        shared = cls(cost.kind, *cost.arrays, **weights)
        shared.team = team
        return shared

    def between(self, x: Any, z: Any, p: Any, q: Any) -> SharedPoints:
        return SharedPoints.of(super().between(x, z, p, q), self.team)


def is_worth_sharing(cost: SharedPoints, limits: Limits) -> bool:
    """Whether there are enough pairs, and a row for every process."""
    n, m = cost.shape
    return n * m >= limits.shared_pairs and n >= cost.team.size > 1


class SharedPricing(Pricing):
    """The prices of all rows, in the leader."""

    def __init__(self, cost: SharedPoints, limits: Limits = LIMITS) -> None:
        super().__init__(cost, limits)
        self.team, n = cost.team, cost.shape[0]
        ends = [n * k // self.team.size for k in range(self.team.size + 1)]
        self.cuts = Cuts(np.diff(ends).tolist())

    def violated(self, f: np.ndarray, g: np.ndarray, keep: int, tick: Tick) -> Violated:
        found = self._ask("violated", {"g": g, "keep": keep}, f)
        rows, columns, costs = found.joined
        # Every process has the lowest of its own rows. Of those of a column, keep the lowest of all.
        reduced = costs - f[rows] - g[columns]
        kept = among_lowest(rows, reduced, keep) | among_lowest(columns, reduced, keep)
        tick(1.0)
        return Violated(rows[kept], columns[kept], costs[kept], found.lowest[0])

    def below(self, f: np.ndarray, g: np.ndarray, limit: float, most: int) -> Pairs | None:
        pairs = Pairs(*self._ask("below", {"g": g, "limit": limit, "most": most}, f).joined)
        return pairs if pairs.rows.size <= most else None

    def minima(self, f: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = self._ask("minima", {}, f)
        return found.joined[0], found.lowest[0]

    def largest(self) -> float:
        return -float(self._ask("largest", {}).lowest[0][0])

    def sample(self, f: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, int]:
        n, m = self.shape
        rows = range(0, n, 1 + n // self.limits.rows_sampled)
        return np.concatenate([self.cost.block(i, i + 1)[0] - f[i] - g for i in rows]), n * m

    def _ask(self, name: str, everyone: dict[str, Any], f: np.ndarray | None = None) -> Shares:
        if self.team.service.shown is not self:  # the processes have other points, if any
            cost, first = self.cost, [{"first": part.start} for part in self.cuts.parts]
            parts = [each | start for each, start in zip(self.cuts.of({"x": cost.x, "p": cost.p}), first, strict=True)]
            weights = [cost.distance_weight, cost.class_weight, cost.offset]
            self.team.call("take_points", {"z": cost.z, "q": cost.q, "weights": weights}, parts)
            self.team.service.shown = self
        return self.team.call(name, everyone, None if f is None else self.cuts.of({"f": f}))


def among_lowest(node: np.ndarray, value: np.ndarray, keep: int) -> np.ndarray:
    """Which values are among the `keep` lowest of their node; of equal ones, the first count."""
    order = np.lexsort((value, node))
    place = np.arange(node.size) - np.searchsorted(node[order], node[order], side="left")
    among = np.empty(node.size, np.bool_)
    among[order] = place < keep
    return among
