"""Coordinates in which features are compared, whatever their number and their units."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors

# More features are projected on this many principal directions: classifiers fit several times faster.
DIRECTIONS = 256


class Coordinates:
    """Centred coordinates along at most `DIRECTIONS` directions, divided by `unit`, the typical distance once known."""

    def __init__(self, samples: np.ndarray) -> None:
        self.origin = samples.mean(axis=0, dtype=np.float64)
        self.unit = 1.0
        self.directions = None
        if min(samples.shape) > DIRECTIONS:
            pca: Any = PCA(DIRECTIONS, svd_solver="randomized", random_state=0).fit(samples)
            self.directions = pca.components_.T.astype(np.float64)

    def of(self, samples: np.ndarray) -> np.ndarray:
        """The coordinates of samples, in float64."""
        centred = samples - self.origin
        return (centred if self.directions is None else centred @ self.directions) / self.unit


class Nearest:
    """Finds the nearest of the given samples; around their mean, fewer digits cancel."""

    def __init__(self, samples: np.ndarray) -> None:
        self.origin = samples.mean(axis=0)
        self.neighbours = NearestNeighbors(n_neighbors=1).fit(samples - self.origin)

    def index(self, samples: np.ndarray) -> np.ndarray:
        """The number of the nearest sample, for each of these."""
        return self.neighbours.kneighbors(samples - self.origin, return_distance=False)[:, 0]
