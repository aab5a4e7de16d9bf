"""Neighbours: whether their predictions agree, predictions averaged over them, and votes of labelled ones."""

from __future__ import annotations

import numpy as np
from sklearn.neighbors import NearestNeighbors

# Two samples coincide if they are this close, in units of the typical distance.
COINCIDE = 1e-6


class Neighbours:
    """Finds the nearest of the fitted samples, other than the sample itself."""

    def __init__(self, samples: np.ndarray) -> None:
        self.origin = samples.mean(axis=0)  # around the mean, fewer digits cancel
        self.finder = NearestNeighbors().fit(samples - self.origin)
        self.most = len(samples) - 1

    def of_fitted(self, count: int) -> np.ndarray:
        """Indices of the nearest others of every fitted sample, nearest first."""
        count = min(count, self.most)
        if count == 0:
            return np.empty((self.most + 1, 0), dtype=np.intp)
        return self.finder.kneighbors(n_neighbors=count, return_distance=False)

    def of(self, samples: np.ndarray, count: int) -> np.ndarray:
        """Indices of the nearest fitted samples; a fitted sample is not its own neighbour."""
        count = min(count, self.most)
        distances, index = self.finder.kneighbors(samples - self.origin, n_neighbors=count + 1)
        return np.where(distances[:, :1] < COINCIDE, index[:, 1:], index[:, :-1])


class Votes:
    """Class shares among the nearest labelled samples.

    Parameters
    ----------
    samples, shares
        Labelled samples, and the classes of each as probabilities.
    count
        How many of them vote. One more vote is shared by all classes, so that no probability is zero.
    """

    def __init__(self, samples: np.ndarray, shares: np.ndarray, count: int) -> None:
        self.origin, self.shares = samples.mean(axis=0), shares
        self.finder = NearestNeighbors(n_neighbors=min(count, len(samples))).fit(samples - self.origin)

    def probabilities(self, samples: np.ndarray) -> np.ndarray:
        """Class probabilities, one row per sample."""
        index = self.finder.kneighbors(samples - self.origin, return_distance=False)
        return (self.shares[index].sum(axis=1) + 1.0 / self.shares.shape[1]) / (index.shape[1] + 1.0)


def averaged(own: np.ndarray, others: np.ndarray, index: np.ndarray) -> np.ndarray:
    """The mean of a sample's own probabilities and those of its neighbours, which are rows of `others`."""
    return (own + others[index].sum(axis=1)) / (1 + index.shape[1])


def coherence(labels: np.ndarray, index: np.ndarray) -> float:
    """How far neighbours agree beyond chance (Cohen's kappa): 1 if they always do, 0 if all labels are the same.

    Examples
    --------
    >>> index = np.array([[1], [0], [3], [2]])
    >>> coherence(np.array([0, 0, 1, 1]), index), coherence(np.array([0, 1, 0, 1]), index)
    (1.0, -1.0)
    """
    shares = np.bincount(labels) / len(labels)
    by_chance = float(np.sum(shares**2))
    if index.shape[1] == 0 or by_chance == 1.0:
        return 0.0
    agreement = float(np.mean(labels[index] == labels[:, None]))
    return (agreement - by_chance) / (1.0 - by_chance)


def unanimity(labels: np.ndarray) -> float:
    """How far classifiers agree beyond chance, from the labels that each of them gives to all samples, one row each.

    The mean agreement of two classifiers, scaled as Cohen's kappa: 1 if they always agree, 0 if as often as by chance.

    Examples
    --------
    >>> unanimity(np.array([[0, 0, 1, 1], [0, 0, 1, 1]])), unanimity(np.array([[0, 0, 1, 1], [0, 1, 0, 1]]))
    (1.0, 0.0)
    """
    one, other = np.triu_indices(len(labels), 1)
    shares = (labels[:, :, None] == np.unique(labels)).mean(axis=1)
    by_chance = float(np.mean(np.sum(shares[one] * shares[other], axis=1)))
    if by_chance == 1.0:
        return 0.0
    return (float(np.mean(labels[one] == labels[other])) - by_chance) / (1.0 - by_chance)
