"""The null hypothesis of an adaptation: the source classifier, as it stands, on the targets."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from adaptive_ot.adapt.heads import EstimatorHead, LinearHead, held_out
from adaptive_ot.adapt.presence import class_presence

Head = LinearHead | EstimatorHead

# The smallest factor of the probabilities of a class that seems to be absent.
LEAST_FACTOR = 0.05

# There is no shift if classes have moved by less than this part of the distance between two classes. If they have moved
# further than that distance, there may be one however confident the classifier is.
DISPLACED, FAR = 0.6, 1.0

# There may be a shift if the most confident quarter of the targets is less confident than this part of the most
# confident quarter of held-out sources, class by class. (The mean would fall with every target of an unknown class.)
MOST_CONFIDENT, LESS_CONFIDENT = 0.75, 0.95

# Fewer targets are too few to tell a shift.
FEWEST = 50

# The most samples that are looked at where a part of a domain is enough.
LOOKED_AT = 4096


class Unadapted:
    """The source classifier on the targets, and what can be said about it without labels of targets.

    Parameters
    ----------
    new_head
        Makes a classifier.
    source, target
        Samples of both domains, in units of the typical distance.
    p
        The classes of the sources, one row per source with a single 1.

    Attributes
    ----------
    head, probabilities
        The classifier fitted on all sources, and its probabilities of the targets.
    presence, factors
        The probability that each class exists in the target, and what its predictions are multiplied by.
    displacement
        How far classes have moved, relative to the distance between two classes.
    confidence
        The confidence of the classifier on targets, relative to that on held-out sources of the predicted classes.
    """

    def __init__(self, new_head: Callable[[], Head], source: np.ndarray, target: np.ndarray, p: np.ndarray) -> None:
        self.head = new_head()
        self.head.fit(source, p, np.ones(len(p)))
        self.probabilities = self.head.probabilities(target)
        members = p.argmax(axis=1)
        part = np.argsort(members, kind="stable")[:: -(-len(p) // LOOKED_AT)]  # of every class
        known = held_out(new_head, source[part], p[part])
        self.presence = class_presence(self.probabilities, known, members[part])
        self.factors = np.maximum(self.presence, LEAST_FACTOR)
        self.displacement = displacement(source, p, target, self.probabilities)
        self.confidence = relative_confidence(self.probabilities, known)

    @property
    def far(self) -> bool:
        """Whether classes have moved further than they lie apart."""
        return self.displacement > FAR

    @property
    def reason_to_stay(self) -> str:
        """Why the classifier seems to fit the targets, or an empty string if there may be a shift."""
        if len(self.probabilities) < FEWEST:
            return f"There are fewer than {FEWEST} targets: too few to tell a shift."
        if self.displacement < DISPLACED:
            return f"Classes have moved by only {self.displacement:.0%} of the distance between them."
        one_class = np.ptp(self.probabilities.argmax(axis=1)) == 0  # then neighbours have nothing to disagree on
        if self.confidence >= LESS_CONFIDENT and (one_class or not self.far):
            return "The source classifier is as confident on targets as on held-out sources."
        return ""

    @property
    def shift(self) -> str:
        """What speaks for a shift, where there is no reason to stay."""
        moved = f"Classes have moved by {self.displacement:.0%} of the distance between them"
        if self.confidence < LESS_CONFIDENT:
            return f"{moved}, and the source classifier is {1.0 - self.confidence:.0%} less confident on targets"
        return moved


def displacement(source: np.ndarray, p: np.ndarray, target: np.ndarray, q: np.ndarray) -> float:
    """The distance between the means of a class in both domains, relative to that between two classes of the source.

    It is a root mean square over the targets. The random part of the means, which depends on the number of samples, is
    subtracted: without a shift, the result is about zero. It is zero if the means of the classes do not differ.

    Examples
    --------
    >>> p = np.repeat(np.eye(2), 500, axis=0)
    >>> source, target = np.random.default_rng(0).normal(size=(2, 1000, 3)) + 4 * p[:, :1]
    >>> displacement(source, p, target, p) < 0.05, round(displacement(source, p, target + 4, p), 1)
    (True, 1.0)
    """
    (x, x_noise, _), (z, z_noise, size) = _class_means(source, p), _class_means(target, q)
    one, other = np.triu_indices(len(x), 1)
    if not len(one):
        return 0.0
    moved = np.sum((z - x) ** 2, axis=1) - x_noise - z_noise
    apart = np.median(np.sum((x[one] - x[other]) ** 2, axis=1) - x_noise[one] - x_noise[other])
    return float(np.sqrt(max(0.0, np.average(moved, weights=size)) / apart)) if apart > 0 else 0.0


def _class_means(samples: np.ndarray, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The mean of every class, the expected squared error of the mean, and the size of the class."""
    size = np.maximum(shares.sum(axis=0), np.finfo(np.float64).tiny)
    means = (shares.T @ samples) / size[:, None]
    spread = (shares.T @ np.sum(samples**2, axis=1)) / size - np.sum(means**2, axis=1)
    return means, np.maximum(spread, 0.0) * np.sum((shares / size) ** 2, axis=0), size


def relative_confidence(targets: np.ndarray, sources: np.ndarray) -> float:
    """The confidence of predictions for targets, relative to that of predictions of the same classes for sources.

    Classes differ in how certain their predictions are. Compared class by class, confidence does not depend on which
    classes the target has.
    """
    totals = np.zeros(2)
    for label, size in zip(*np.unique(targets.argmax(axis=1), return_counts=True), strict=True):
        levels = [side.max(axis=1)[side.argmax(axis=1) == label] for side in (targets, sources)]
        if len(levels[1]):
            totals += size * np.array([np.quantile(level, MOST_CONFIDENT) for level in levels])
    return float(totals[0] / totals[1]) if totals[1] else 1.0
