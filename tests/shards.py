"""Several processes of a group, played by this one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import adaptive_ot as aot
from adaptive_ot._group import Shares, Team, packed, unpacked
from adaptive_ot._shard import Cuts, Shard, ShardedCost
from adaptive_ot.costs import PointCost
from adaptive_ot.entropic.shard import SoftminShard
from adaptive_ot.exact.shard import PricingShard
from adaptive_ot.exact.sharded import SharedPoints
from adaptive_ot.problem import Problem


def silent(_):
    """No progress."""


class Table(Team):
    """A team whose processes take turns in this one. Messages go through bytes, as between processes."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        self.shards, self.service, self.ranks = shards, shards[0], list(range(len(shards)))
        self.calls: list[str] = []

    def call(self, name, everyone=None, parts=None) -> Shares:
        self.calls.append(name)
        parts = [{}] * self.size if parts is None else parts
        everyone = everyone or {}
        shares = [
            getattr(shard, name)(**unpacked(packed({**everyone, **part})))
            for shard, part in zip(self.shards, parts, strict=True)
        ]
        joined, added, lowest = (list(zip(*answers, strict=True)) for answers in zip(*shares, strict=True))
        return Shares(
            tuple(map(np.concatenate, joined)),
            tuple(np.sum(each, axis=0) for each in added),
            tuple(np.minimum.reduce(each) for each in lowest),
        )


def point_cost(n, m, dimension, seed=0, classes=0):
    rng = np.random.default_rng(seed)
    x, z = rng.normal(size=(n, dimension)), rng.normal(size=(m, dimension)) + 0.3
    if not classes:
        return aot.DistanceCost(x, z, reach=1.2)
    scores = rng.random((n + m, classes))
    return aot.JointCost(x, z, scores[:n], scores[n:], alpha=0.3)


def weights(n, m, seed=0):
    rng = np.random.default_rng(seed)
    mu, nu = rng.random(n) * (rng.random(n) < 0.9), rng.random(m) * (rng.random(m) < 0.9)
    return mu / mu.sum(), nu / nu.sum()


def sharded(cost: PointCost, mu, nu, marginals, counts) -> tuple[Problem, Table]:
    """The same problem in the leader of a table whose shards have so many rows each, and the table."""
    cuts = Cuts(counts)
    parts = [SoftminShard(cost.between(cost.x[part], cost.z, cost.p[part], cost.q), marginals) for part in cuts.parts]
    table = Table(parts)
    mu, nu = marginals.checked(mu, nu)
    table.call("begin", {"nu": nu, "distance_weight": cost.distance_weight}, cuts.of({"mu": mu}))
    some = ShardedCost.places_sampled(cuts.total)
    whole = ShardedCost(table, cuts, table.service.cost, (cost.x[some], cost.p[some]))
    return Problem(whole, mu, nu, marginals), table


def tabled(cost, shards) -> SharedPoints:
    table = Table([PricingShard(cost, aot.AtMost()) for _ in range(shards)])
    return SharedPoints.of(cost, table)
