"""Two domains for tests of adaptation, and models fitted on them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from sklearn.base import clone
from threadpoolctl import threadpool_limits


@pytest.fixture(autouse=True, scope="module")
def one_blas_thread():
    """Where other programs run, threads that wait for each other make small products 20 times slower."""
    with threadpool_limits(1):
        yield


class Data(NamedTuple):
    X: np.ndarray
    y: np.ndarray
    domain: np.ndarray

    @property
    def source(self) -> np.ndarray:
        return self.domain >= 0

    def at(self, rows: np.ndarray) -> Data:
        """These samples alone, in this order."""
        return Data(*(part[rows] for part in self))


def clusters(seed: int = 0, samples: int = 24, features: int = 3, classes: int = 3) -> Data:
    """Classes far apart, and the target a little off; sources and targets in random order."""
    rng = np.random.default_rng(seed)
    y = np.arange(samples) % classes
    centres = 9 * rng.normal(size=(classes, features))
    x, z = (centres[y] + rng.normal(size=(samples, features)) for _ in range(2))
    domain = np.repeat([0, -1], samples)
    return Data(np.concatenate([x, z + 1]), np.tile(y, 2), domain).at(rng.permutation(2 * samples))


def fresh(model: Any) -> Any:
    """A copy that is not fitted, of any type to the type checker."""
    return clone(model)


def fitted(model: Any, X: Any, y: Any, domain: Any) -> Any:
    return fresh(model).fit(X, y, sample_domain=domain)
