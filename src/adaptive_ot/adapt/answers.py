"""A consensus of classifiers: what an adaptation answers, whether or not the sources were moved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from adaptive_ot.adapt.neighbours import Neighbours, averaged
from adaptive_ot.adapt.presence import normalised

# A member that rules a class out must not decide alone.
LEAST_PROBABILITY = 1e-6


class Classifier(Protocol):
    """Anything that gives class probabilities, one row per sample."""

    def probabilities(self, x: np.ndarray, /) -> np.ndarray: ...


class Consensus:
    """The weighted geometric mean of classifiers, with a say of neighbouring targets: few tasks mislead all of them.

    Parameters
    ----------
    members
        The classifiers with their weights.
    say
        The weight of the average over a sample and its neighbouring targets; the rest is the sample's own. Both are
        weighted in logarithms.
    targets, neighbours, nearest
        The fitted targets, the finder of their neighbours, and the neighbours of each of them.

    Attributes
    ----------
    of_targets
        The probabilities of the fitted targets.
    """

    def __init__(
        self,
        members: Sequence[tuple[Classifier, float]],
        say: float,
        targets: np.ndarray,
        neighbours: Neighbours,
        nearest: np.ndarray,
    ) -> None:
        self.members, self.say, self.neighbours, self.count = members, say, neighbours, nearest.shape[1]
        self.fitted = mean(members, targets)
        self.of_targets = self._heard(self.fitted, nearest)

    def probabilities(self, x: np.ndarray) -> np.ndarray:
        """Class probabilities, one row per sample."""
        return self._heard(mean(self.members, x), self.neighbours.of(x, self.count))

    def _heard(self, own: np.ndarray, nearest: np.ndarray) -> np.ndarray:
        return normalised(own ** (1.0 - self.say) * averaged(own, self.fitted, nearest) ** self.say)


def mean(members: Sequence[tuple[Classifier, float]], x: np.ndarray) -> np.ndarray:
    """The weighted geometric mean of the probabilities, one row per sample."""
    weights = np.array([weight for _, weight in members])
    logarithms = [np.log(np.maximum(member.probabilities(x), LEAST_PROBABILITY)) for member, _ in members]
    return normalised(np.exp(np.tensordot(weights / weights.sum(), logarithms, axes=1)))
