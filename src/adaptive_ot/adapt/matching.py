"""Transport plans between the samples of two domains, and what follows: shares, labels, and moved sources.

Large domains are matched in batches: every sample belongs to one batch of sources or targets, and batches of equal
number are matched with each other. Together their plans are a plan of the whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from adaptive_ot._group import Message
from adaptive_ot.adapt.presence import label_shift
from adaptive_ot.adapt.together import Together
from adaptive_ot.costs import PAIRS_FOR_MEDIAN
from adaptive_ot.entropic.solver import Entropic
from adaptive_ot.exact.solver import Exact
from adaptive_ot.marginals import AtMost, Marginals, as_marginals
from adaptive_ot.solution import Solution
from adaptive_ot.solve import solve

EPSILON = 0.1

# Matched by distance alone, a pair attracts mass if it is closer than the median by this part of the median, or by the
# standard deviation of all distances if that is less: between domains far apart, distances hardly differ.
CLEARLY = 0.1

# A sample is matched if more than this share of its weight is transported. (A sample of a `Solution` is active already
# if it carries any mass, or more than 1 % of its weight in an entropic plan.)
MATCHED = 0.5


# What a matching has for every source; the rest is for every target.
OF_SOURCES = "source_share", "moved"


class Matching(NamedTuple):
    """The consequences of a plan for every sample.

    Attributes
    ----------
    mass
        The transported mass, if both domains weigh 1.
    source_share, target_share
        The transported share of the weight of each source and target.
    moved
        The new positions of the sources: the transported share of a source moves to the mean of its targets, the rest
        shifts by the average displacement.
    labels
        The mean of the labels sent to each target; zero for targets that receive nothing.
    solution
        The plan, if one batch was enough.
    """

    mass: float
    source_share: np.ndarray
    target_share: np.ndarray
    moved: np.ndarray
    labels: np.ndarray
    solution: Solution | None


class MatchedBatch(NamedTuple):
    """Sources and targets (indices) that are matched with each other, and their relative squared distances."""

    sources: np.ndarray
    targets: np.ndarray
    distances: np.ndarray


class Matcher:
    """Matches the same samples several times; distances are computed once, relative to the typical distance.

    Parameters
    ----------
    x, z
        Features of sources and targets. Without targets, nothing is matched.
    strata
        A class number for each source; batches get the same mixture of classes.
    marginals, solver
        The transport model, adaptive by default, and the solver, with a little entropy by default.
    batch_size
        The largest number of samples of a domain that are matched at once.
    seed
        Draws the batches.
    together
        The processes among which the batches are divided.

    Attributes
    ----------
    typical
        The typical squared distance: the median, as in `JointCost`, from the distances computed anyway. If most pairs
        coincide up to rounding it is the mean, and 1 if all do. Without targets it is the mean between sources.
    """

    def __init__(
        self,
        x: np.ndarray,
        z: np.ndarray,
        strata: np.ndarray,
        *,
        marginals: Marginals | None,
        solver: Exact | Entropic | None,
        batch_size: int,
        seed: np.random.RandomState,
        together: Together | None = None,
    ) -> None:
        self.x, self.z, self.together = x, z, together or Together()
        self.places: list[tuple[np.ndarray, np.ndarray]] = []  # of all batches: which sources, which targets
        self.batches: dict[int, MatchedBatch] = {}  # those of this process, by number
        self.marginals = as_marginals(marginals)
        if solver is None:
            solver = Exact() if self.marginals.no_entropic_form else Entropic(EPSILON)
        self.solver = solver
        if len(z) == 0:
            self.typical, self.spread = float(2 * x.var(axis=0).sum()) or 1.0, 1.0
            return
        self.centre = z.mean(axis=0)
        count = -(-max(len(x), len(z)) // batch_size)
        count = min(count, len(x), len(z))  # no batch without sources or without targets
        drawn = self.together.drawn(sources=seed.permutation(len(x)), targets=seed.permutation(len(z)))
        sources, targets = drawn["sources"], drawn["targets"]
        sources = sources[np.argsort(strata[sources], kind="stable")]  # dealt out like cards, class by class
        self.places = [(np.sort(sources[k::count]), np.sort(targets[k::count])) for k in range(count)]

        def measured() -> Message:
            """Compute distances, and show some of them."""
            self.batches = {k: self._batch(*self.places[k]) for k in self.together.mine(count)}
            most = PAIRS_FOR_MEDIAN // count
            return {str(k): _sample(batch.distances, most) for k, batch in self.batches.items()}

        def in_order(pieces: list[Message]) -> Message:
            found = united(pieces)
            return {"sample": np.concatenate([found[str(k)] for k in range(count)])}

        sample = self.together.joint("distances", measured, in_order)["sample"]
        self.typical = self._typical(sample)
        for batch in self.batches.values():
            np.divide(batch.distances, self.typical, out=batch.distances)
        self.spread = float(np.std(sample / self.typical)) or 1.0

    def by_distance(self, y: np.ndarray, beta: float) -> Matching:
        """Match by features alone: pairs clearly closer than the median attract mass.

        Distances concentrate in high dimensions. In units of twice their standard deviation, most costs lie between -1
        and 1, like costs from agreeing and disagreeing classes.
        """
        scale, reach = beta / (2.0 * self.spread), 1.0 - min(CLEARLY, self.spread)
        return self._match(y, lambda batch: scale * (batch.distances - reach), np.ones(len(self.x)))

    def by_class(self, p: np.ndarray, q: np.ndarray, kappa: float, beta: float) -> Matching:
        """Match by features and classes, with the scale-free joint cost beta (kappa |x - z|^2 / median - <p, q>).

        Under adaptive transport, a class that the target seems to hold more of may send more than its weight, and a
        class that it seems to hold less of may send less. The probabilities q are corrected for the same class shares.
        """
        q, capacity = self.together.agreed(q), np.ones(len(p))
        if self.marginals == AtMost():
            shares = p.mean(axis=0)
            held, q = label_shift(q, shares)
            capacity = p @ (held / shares)

        def cost(batch: MatchedBatch) -> np.ndarray:
            dtype = batch.distances.dtype
            costs = p[batch.sources].astype(dtype) @ (-beta * q[batch.targets].T).astype(dtype)
            costs += beta * kappa * batch.distances
            return costs

        return self._match(p, cost, capacity)

    def _typical(self, sample: np.ndarray) -> float:
        lengths = (np.einsum("ij,ij->i", side, side) for side in (self.x - self.centre, self.z - self.centre))
        rounding = 4 * np.finfo(self.x.dtype).eps * sum(float(np.median(length)) for length in lengths)
        candidates = (float(np.median(sample)), float(np.mean(sample)))
        return next((typical for typical in candidates if typical > rounding), 1.0)

    def _batch(self, sources: np.ndarray, targets: np.ndarray) -> MatchedBatch:
        x, z = self.x[sources] - self.centre, self.z[targets] - self.centre  # fewer digits cancel
        distances = -2.0 * (x @ z.T)
        distances += np.einsum("ij,ij->i", x, x)[:, None]
        distances += np.einsum("ij,ij->i", z, z)
        return MatchedBatch(sources, targets, np.maximum(distances, 0.0, out=distances))

    def _match(self, y: np.ndarray, cost_of: Callable[[MatchedBatch], np.ndarray], capacity: np.ndarray) -> Matching:
        """Solve all batches; `capacity` is the part of every source that may be sent."""
        n, m = len(self.x), len(self.z)
        y = y.reshape(n, -1)
        solution: Solution | None = None
        shapes = ("source_share", (n,)), ("moved", self.x.shape), ("target_share", (m,)), ("labels", (m, y.shape[1]))

        def matched() -> Message:
            nonlocal solution
            found: Message = {}
            for k, batch in self.batches.items():
                solution = self._solved(batch, cost_of(batch), capacity)
                plan, rows, columns = solution.plan, *map(len, self.places[k])
                found[f"source_share {k}"] = plan.sum(axis=1, dtype=np.float64) * rows
                found[f"target_share {k}"] = plan.sum(axis=0, dtype=np.float64) * columns
                found[f"moved {k}"] = (plan @ self.z[batch.targets]) * rows
                found[f"labels {k}"] = (plan.T @ y[batch.sources]) * columns
            return found

        def joined(pieces: list[Message]) -> Message:
            found, whole = united(pieces), {name: np.zeros(shape) for name, shape in shapes}
            for k, (sources, targets) in enumerate(self.places):
                for name, array in whole.items():
                    array[sources if name in OF_SOURCES else targets] = found[f"{name} {k}"]
            return whole

        whole = self.together.joint("a plan", matched, joined)
        source_share, moved, target_share, labels = (whole[name] for name, _ in shapes)
        mass = float(source_share.mean())
        if mass > 0:
            displacement = moved.mean(axis=0) - source_share @ self.x / n
            staying = np.maximum(0.0, 1.0 - source_share / capacity)[:, None]
            going = np.maximum(capacity, source_share)[:, None]  # unbalanced transport may send more than there is
            moved = moved / going + staying * (self.x + displacement / mass)
        else:
            moved = self.x.astype(np.float64)
        labels = np.divide(labels, target_share[:, None], out=np.zeros(labels.shape), where=target_share[:, None] > 0)
        return Matching(mass, source_share, target_share, moved, labels, solution if len(self.places) == 1 else None)

    def _solved(self, batch: MatchedBatch, cost: np.ndarray, capacity: np.ndarray) -> Solution:
        if all(side.soft for side in self.marginals.sides):
            cost = cost - cost.min()  # with negative costs, unbalanced transport would create mass
        weights = capacity[batch.sources] / len(batch.sources)
        return solve(cost, weights, marginals=self.marginals, solver=self.solver)


def united(pieces: list[Message]) -> Message:
    """All entries of the pieces; where several have one, it is that of the first."""
    return {name: value for piece in reversed(pieces) for name, value in piece.items()}


def _sample(values: np.ndarray, most: int) -> np.ndarray:
    """About this many values at equal distances."""
    return values.ravel()[:: max(1, values.size // max(1, most))].astype(np.float64)
