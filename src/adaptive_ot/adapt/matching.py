"""Plans between the samples of two domains, and what follows from them: shares, labels, and moved sources.

Large domains are matched in batches: every source and every target belongs to one, and batches of equal number are
matched with each other. Their plans, side by side, are a plan of the whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from adaptive_ot.costs import PAIRS_FOR_MEDIAN
from adaptive_ot.entropic.solver import Entropic
from adaptive_ot.exact.solver import Exact
from adaptive_ot.marginals import AtMost, ChiSquareBall, Marginals, SoftKL
from adaptive_ot.solution import Solution
from adaptive_ot.solve import solve

EPSILON = 0.1

# Where nothing but distance is known, pairs attract each other that are closer than the median by this part of it, or
# by one spread of all distances, if that is less: domains far apart have distances that hardly differ.
CLEARLY = 0.1

# What every class may send, whatever the target seems to hold: far too little to matter, enough to divide by.
SMALLEST_ROOM = 1e-6

# A sample takes part if more than this share of its weight is transported.
TAKES_PART = 0.5


class Matching(NamedTuple):
    """What a plan says about every sample.

    Attributes
    ----------
    mass
        The transported mass, where both domains weigh 1.
    source_share, target_share
        How much of the weight of each source and target is transported.
    moved
        Where the sources go: to the mean of the targets they are sent to as far as they are sent, and along with the
        mean displacement of all as far as they are not. So nobody is left behind, and nobody is sent to the origin.
    labels
        The label that reaches each target, a mean of those of its sources; zero where nothing arrives.
    solution
        The plan, if one batch was enough.
    """

    mass: float
    source_share: np.ndarray
    target_share: np.ndarray
    moved: np.ndarray
    labels: np.ndarray
    solution: Solution | None


class Batch(NamedTuple):
    """Sources and targets (indices) that are matched with each other, and their relative squared distances."""

    sources: np.ndarray
    targets: np.ndarray
    distances: np.ndarray


class Matcher:
    """Matches two sets of features again and again: distances are computed once, and relative to their median.

    Parameters
    ----------
    x, z
        Features of sources and targets.
    strata
        One number a source; batches get the same mixture of them.
    marginals, solver
        The model, adaptive transport if None, and how to solve it, with a little entropy if None.
    batch_size
        The largest number of samples of a domain that are matched at once.
    seed
        Decides who is in which batch.
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
    ) -> None:
        self.x, self.z, self.centre = x, z, z.mean(axis=0)
        self.marginals = AtMost() if marginals is None else marginals
        if solver is None:
            solver = Exact() if isinstance(self.marginals, ChiSquareBall) else Entropic(EPSILON)
        self.solver = solver
        count = -(-max(len(x), len(z)) // batch_size)
        count = min(count, len(x), len(z))  # no batch without sources or without targets
        sources, targets = seed.permutation(len(x)), seed.permutation(len(z))
        sources = sources[np.argsort(strata[sources], kind="stable")]  # dealt out like cards, class by class
        self.batches = [self._batch(np.sort(sources[k::count]), np.sort(targets[k::count])) for k in range(count)]
        sample = np.concatenate([_sample(batch.distances, PAIRS_FOR_MEDIAN // count) for batch in self.batches])
        self.typical = self._typical(sample)
        for batch in self.batches:
            np.divide(batch.distances, self.typical, out=batch.distances)
        self.spread = float(np.std(sample / self.typical)) or 1.0

    def by_distance(self, y: np.ndarray, beta: float) -> Matching:
        """Match by features alone: pairs clearly closer than the median attract each other.

        Distances concentrate in high dimensions. They are measured in units of twice their spread here, so that most
        costs lie between -1 and 1, as where classes agree or do not.
        """
        scale, reach = beta / (2.0 * self.spread), 1.0 - min(CLEARLY, self.spread)
        return self._match(y, lambda batch: scale * (batch.distances - reach), np.ones(len(self.x)))

    def by_class(self, p: np.ndarray, q: np.ndarray, kappa: float, beta: float) -> Matching:
        """Match by features and classes, with the scale-free joint cost beta (kappa |x - z|^2 / median - <p, q>).

        Adaptive transport need not use all of a class: it may send as much as the target seems to hold of it, by the
        probabilities or by the predictions, in doubt. Otherwise a class that is missing there would take targets from
        the others, and a classifier would learn it from them.
        """
        room = np.ones(len(p))
        if isinstance(self.marginals, AtMost):
            predicted = np.bincount(q.argmax(axis=1), minlength=q.shape[1]) / len(q)
            held = np.maximum(q.mean(axis=0), predicted)
            room = p @ np.clip(held / p.mean(axis=0), SMALLEST_ROOM, 1.0)

        def cost(batch: Batch) -> np.ndarray:
            agreement = p[batch.sources].astype(batch.distances.dtype) @ q[batch.targets].T.astype(
                batch.distances.dtype
            )
            return beta * (kappa * batch.distances - agreement)

        return self._match(p, cost, room)

    def _typical(self, sample: np.ndarray) -> float:
        """The median distance, or the mean where most pairs coincide, up to the digits that cancelled."""
        lengths = (np.einsum("ij,ij->i", side, side) for side in (self.x - self.centre, self.z - self.centre))
        noise = 4 * np.finfo(self.x.dtype).eps * sum(float(np.median(length)) for length in lengths)
        for typical in (float(np.median(sample)), float(np.mean(sample))):
            if typical > noise:
                return typical
        return 1.0

    def _batch(self, sources: np.ndarray, targets: np.ndarray) -> Batch:
        x, z = self.x[sources], self.z[targets]
        x, z = x - self.centre, z - self.centre  # fewer digits cancel
        distances = -2.0 * (x @ z.T)
        distances += np.einsum("ij,ij->i", x, x)[:, None]
        distances += np.einsum("ij,ij->i", z, z)
        return Batch(sources, targets, np.maximum(distances, 0.0, out=distances))

    def _match(self, y: np.ndarray, cost_of: Callable[[Batch], np.ndarray], room: np.ndarray) -> Matching:
        n, m, count = len(self.x), len(self.z), len(self.batches)
        y = y.reshape(n, -1)
        source_share, target_share = np.zeros(n), np.zeros(m)
        moved, labels = np.zeros(self.x.shape), np.zeros((m, y.shape[1]))
        solution = None
        for batch in self.batches:
            cost = cost_of(batch)
            if isinstance(self.marginals, SoftKL):
                cost = cost - cost.min()  # where moving pays, unbalanced transport would create mass
            solution = solve(
                cost, room[batch.sources] / len(batch.sources), marginals=self.marginals, solver=self.solver
            )
            plan = solution.plan
            source_share[batch.sources] = plan.sum(axis=1, dtype=np.float64) * len(batch.sources)
            target_share[batch.targets] = plan.sum(axis=0, dtype=np.float64) * len(batch.targets)
            moved[batch.sources] = (plan @ self.z[batch.targets]) * len(batch.sources)
            labels[batch.targets] = (plan.T @ y[batch.sources]) * len(batch.targets)
        mass = float(source_share.mean())
        if mass > 0:
            displacement = moved.mean(axis=0) - source_share @ self.x / n
            staying = np.maximum(0.0, 1.0 - source_share / room)[:, None]
            going = np.maximum(room, source_share)[:, None]  # unbalanced transport may send more than there is
            moved = moved / going + staying * (self.x + displacement / mass)
        else:
            moved = self.x.astype(np.float64)
        labels = np.divide(labels, target_share[:, None], out=np.zeros(labels.shape), where=target_share[:, None] > 0)
        only = solution if count == 1 else None
        return Matching(mass, source_share, target_share, moved, labels, only)


def nothing_matched(x: np.ndarray, classes: int) -> Matching:
    """Where there is no target."""
    return Matching(0.0, np.zeros(len(x)), np.zeros(0), x.astype(np.float64), np.zeros((0, classes)), None)


def _sample(values: np.ndarray, most: int) -> np.ndarray:
    """About so many of the values, evenly taken."""
    return values.ravel()[:: max(1, values.size // max(1, most))].astype(np.float64)
