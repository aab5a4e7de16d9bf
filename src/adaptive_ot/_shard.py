"""A problem between points whose sources are shared among the processes of a group; all of them have all targets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from adaptive_ot._arrays import to_numpy
from adaptive_ot._group import Shares, Team
from adaptive_ot.costs import COLUMNS_SAMPLED, ROWS_SAMPLED, Cost, PointCost
from adaptive_ot.marginals import Marginals
from adaptive_ot.problem import Problem
from adaptive_ot.solution import Answers, ListedTransport, Transport

NO_PAIRS = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)


class Shard:
    """The share of one process: some of the sources. It answers the calls of the leader."""

    def __init__(self, cost: PointCost, marginals: Marginals) -> None:
        self.cost, self.marginals = cost, marginals
        self.problem: Problem
        self.answers: Answers
        self.active_share: float
        self.taken: dict[str, Any]
        self.transport: Transport = ListedTransport(cost.shape, NO_PAIRS)

    def begin(self, mu: np.ndarray, nu: np.ndarray, distance_weight: float) -> Shares:
        """Take the weights as the model uses them, and the weight of distances that suits all sources."""
        if distance_weight != self.cost.distance_weight:
            self.cost = self.cost.between(*self.cost.arrays)
            self.cost.distance_weight = distance_weight
        self.problem = Problem(self.cost, mu, nu, self.marginals)
        return Shares()

    def end(self, numbers: Mapping[str, float], active_share: float, **arrays: np.ndarray) -> Shares:
        """Take the answers."""
        self.answers, self.active_share = Answers(**numbers, **arrays), active_share
        return Shares()

    def take(self, **found: Any) -> Shares:
        """Take what the leader found."""
        self.taken = found
        return Shares()

    def row_minima(self) -> Shares:
        return Shares(joined=(self.cost.row_minima(),))

    def column_minima(self, f: np.ndarray) -> Shares:
        return Shares(lowest=(self.cost.column_minima(f),))


class Cuts:
    """Where the sources of one process end and those of the next begin."""

    def __init__(self, counts: list[int]) -> None:
        ends = np.cumsum(counts).tolist()
        self.parts = [slice(end - count, end) for end, count in zip(ends, counts, strict=True)]
        self.total = sum(counts)

    def of(self, arrays: Mapping[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
        """The parts of arrays with an entry for every source."""
        return [{name: array[part] for name, array in arrays.items()} for part in self.parts]


class ShardedCost(Cost):
    """The cost of all processes, as the leader knows it: the points of others stay where they are.

    `near` has the points of the leader, and `sampled` the sources that `sample` takes.
    """

    layout = "points"

    def __init__(self, team: Team, cuts: Cuts, near: PointCost, sampled: tuple[np.ndarray, np.ndarray]) -> None:
        self.team, self.cuts, self.near, self.sampled = team, cuts, near, sampled
        self.kind, self.shape = near.kind, (cuts.total, near.shape[1])

    @staticmethod
    def places_sampled(sources: int) -> slice:
        """Which of all sources `sample` takes."""
        return slice(0, None, 1 + sources // ROWS_SAMPLED)

    def sample(self) -> np.ndarray:
        _, z, _, q = map(to_numpy, self.near.arrays)
        x, p = self.sampled
        step = 1 + self.shape[1] // COLUMNS_SAMPLED
        return self.near.between(x, z[::step], p, q[::step]).block(0, len(x))

    def row_minima(self) -> np.ndarray:
        return self.team.call("row_minima").joined[0]

    def column_minima(self, f: np.ndarray) -> np.ndarray:
        return self.team.call("column_minima", parts=self.cuts.of({"f": f})).lowest[0]

    def block(self, start: int, stop: int) -> np.ndarray:
        raise AssertionError("rows of a sharded cost are on several processes")

    def part(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        raise AssertionError("rows of a sharded cost are on several processes")

    def entries(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        raise AssertionError("rows of a sharded cost are on several processes")

    def transposed(self) -> Cost:
        raise AssertionError("rows of a sharded cost are on several processes")
