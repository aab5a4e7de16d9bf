"""The null hypothesis of an adaptation: the source classifier, as it stands, on the targets."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from adaptive_ot.adapt.heads import EstimatorHead, LinearHead, held_out
from adaptive_ot.adapt.neighbours import COUNTS, Neighbours, averaged, coherence, useful_count
from adaptive_ot.adapt.presence import class_presence, normalised

Head = LinearHead | EstimatorHead

# Neighbours of a target whose predictions are compared with its own, and of a sample whose distance is measured.
COMPARED = 10
MEASURED = 5

# Targets show a shift if they are this many times as far from the sources as the sources are from one another.
FAR = 2.0

# If one class takes more than this share of the targets, confidence must fall below this part to show a shift.
ONE_CLASS, CLEARLY_LESS = 0.8, 0.95

# The smallest factor of the probabilities of a class that seems to be absent.
LEAST_FACTOR = 0.05

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
    presence
        The probability that each class exists in the target.
    coherence
        How far the predictions of neighbouring targets agree beyond chance.
    shift
        Why the classifier may be unfit for the target, or an empty string.
    """

    def __init__(self, new_head: Callable[[], Head], source: np.ndarray, target: np.ndarray, p: np.ndarray) -> None:
        self.source, self.target, self.p = source, target, p
        self.head = new_head()
        self.head.fit(source, p, np.ones(len(p)))
        self.probabilities = self.head.probabilities(target)
        members = p.argmax(axis=1)
        part = np.argsort(members, kind="stable")[:: -(-len(p) // LOOKED_AT)]  # of every class
        known, members = held_out(new_head, source[part], p[part]), members[part]
        confidence = self.probabilities.max(axis=1).mean() / known.max(axis=1).mean()
        among_sources = Neighbours(source[part])
        index = among_sources.of_fitted(max(COUNTS))
        self.neighbours = Neighbours(target)
        nearest = self.neighbours.of_fitted(max(COUNTS))
        count = min(useful_count(index, known, members), nearest.shape[1])
        self.averaged_over, self.compared_with = nearest[:, :count], nearest[:, :COMPARED]
        self.presence = class_presence(
            self.average(self.probabilities), averaged(known, known, index[:, :count]), members
        )
        self.factors = np.maximum(self.presence, LEAST_FACTOR)
        final = self.final(self.probabilities)
        self.coherence = self.coherence_of(final)
        few = target[:: -(-len(target) // LOOKED_AT)]
        farther = among_sources.distance_of(few, MEASURED) / among_sources.distance_of_fitted(MEASURED)
        self.shift = ""
        # If nearly all targets look alike, agreement beyond chance says little: a loss of confidence must be clear.
        one_class = np.bincount(final.argmax(axis=1)).max() > ONE_CLASS * len(final)
        if confidence < (CLEARLY_LESS if one_class else 1.0):
            self.shift = (
                f"the source classifier is {1 - confidence:.0%} less confident on targets than on held-out sources"
            )
        elif farther > FAR:
            self.shift = f"targets are {farther:.1f} times as far from the sources as sources are from one another"

    def average(self, q: np.ndarray) -> np.ndarray:
        """Probabilities of the targets, averaged over neighbours if that helps on held-out sources."""
        return averaged(q, q, self.averaged_over)

    def final(self, q: np.ndarray) -> np.ndarray:
        """Averaged probabilities of the targets, less of classes that seem to be absent."""
        return normalised(self.average(q) * self.factors)

    def coherence_of(self, q: np.ndarray) -> float:
        """How far the predictions of neighbouring targets agree beyond chance."""
        return coherence(q.argmax(axis=1), self.compared_with)

    def self_trained(self) -> Head:
        """The classifier after learning from the sources and the half of the targets it is most certain of.

        The half is taken of the predictions of each class, so that no class is lost. Sources stay where they are. More
        rounds would amplify early mistakes.
        """
        final = self.final(self.probabilities)
        labels, certainty = final.argmax(axis=1), final.max(axis=1)
        certain = np.zeros(len(labels))
        for label in np.unique(labels):
            members = labels == label
            certain[members] = certainty[members] >= np.median(certainty[members])
        sources = np.ones(len(self.source))
        weights = np.concatenate([sources, certain * (len(sources) / certain.sum())])
        both = np.concatenate([self.source, self.target])
        self.head.fit(both, np.concatenate([self.p, np.eye(len(self.factors))[labels]]), weights)
        return self.head
