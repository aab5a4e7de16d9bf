"""Coordinates in which features are compared, whatever their units and however many there are."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.decomposition import PCA

# More features than that are projected on their leading principal directions: classifiers fit several times faster.
DIRECTIONS = 256


class Frame:
    """Centred coordinates along at most `DIRECTIONS` directions, in units in which a typical distance is 1."""

    def __init__(self, samples: np.ndarray) -> None:
        self.origin = samples.mean(axis=0, dtype=np.float64)
        self.unit = 1.0
        self.directions = None
        if min(samples.shape) > DIRECTIONS:
            pca: Any = PCA(DIRECTIONS, svd_solver="randomized", random_state=0).fit(samples)
            self.directions = pca.components_.T.astype(np.float64)

    def set_unit(self, typical: float) -> None:
        """The typical squared distance, so far."""
        self.unit *= float(np.sqrt(typical)) if typical > 0 else 1.0

    def coordinates(self, samples: np.ndarray) -> np.ndarray:
        """Where samples are, in float64."""
        centred = samples - self.origin
        return (centred if self.directions is None else centred @ self.directions) / self.unit
