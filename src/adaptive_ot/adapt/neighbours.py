"""Neighbours among unlabelled samples: whether their predictions agree, and predictions averaged over them."""

from __future__ import annotations

import numpy as np
from sklearn.neighbors import NearestNeighbors

# Numbers of neighbours that predictions may be averaged over. Zero comes first: averaging must earn its place.
COUNTS = (0, 5, 10, 20)

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

    def distance_of(self, samples: np.ndarray, count: int) -> float:
        """The median, over samples, of the mean distance to the nearest fitted ones."""
        distances, _ = self.finder.kneighbors(samples - self.origin, n_neighbors=min(count, self.most + 1))
        return float(np.median(distances.mean(axis=1)))

    def distance_of_fitted(self, count: int) -> float:
        """The same for the fitted samples, each without itself; a tiny number if they coincide."""
        if self.most == 0:
            return np.inf
        distances, _ = self.finder.kneighbors(n_neighbors=min(count, self.most))
        return max(float(np.median(distances.mean(axis=1))), COINCIDE)


def averaged(own: np.ndarray, others: np.ndarray, index: np.ndarray) -> np.ndarray:
    """The mean of a sample's own probabilities and those of its neighbours, which are rows of `others`."""
    return (own + others[index].sum(axis=1)) / (1 + index.shape[1])


def useful_count(index: np.ndarray, probabilities: np.ndarray, members: np.ndarray) -> int:
    """The number of neighbours over which averaging makes held-out predictions better, by a standard error or more.

    Parameters
    ----------
    index
        The neighbours of labelled samples, nearest first.
    probabilities
        Predictions for the same samples by a classifier that was not fitted on them.
    members
        Their true classes.
    """
    best, gain = 0, 0.0
    right = probabilities.argmax(axis=1) == members
    for count in COUNTS:
        if count > index.shape[1]:
            break
        smoothed = averaged(probabilities, probabilities, index[:, :count]).argmax(axis=1) == members
        change = smoothed.astype(float) - right
        if change.mean() > max(gain, change.std() / np.sqrt(len(change))):
            best, gain = count, float(change.mean())
    return best


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
