"""Samples of two domains by a seed, with classes missing in the target and outliers in it."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np

from adaptive_ot.errors import InvalidInput
from adaptive_ot.workbench.benchmark.domains import Dataset
from adaptive_ot.workbench.feature_files import Features


class DomainPair(NamedTuple):
    """Rows of unit norm, the class of every row, and which rows of the target are outliers."""

    x_source: np.ndarray
    y_source: np.ndarray
    x_target: np.ndarray
    y_target: np.ndarray
    outlier: np.ndarray

    @property
    def overlap(self) -> float:
        """The most mass that can move between equal classes, where both domains weigh 1; outliers have none."""
        classes = range(int(max(self.y_source.max(), self.y_target.max())) + 1)
        shares = [((self.y_source == k).mean(), ((self.y_target == k) & ~self.outlier).mean()) for k in classes]
        return float(sum(map(min, shares)))


def sample_pair(
    dataset: Dataset, source: str, target: str, *, seed: int, samples: int, drop: int = 0, outliers: float = 0.0
) -> DomainPair:
    """At most `samples` rows of both domains, a function of the seed and the names of the domains alone.

    Parameters
    ----------
    dataset, source, target
        Two domains of a dataset.
    seed
        The seed of everything random.
    samples
        Rows to draw, without replacement.
    drop
        Classes that are missing in the target; which ones depends on the seed and the number of classes.
    outliers
        This share of the target is replaced by rows whose features come from a random row of the target each.
    """
    kept = np.sort(generator(seed, "classes").permutation(dataset.classes)[drop:])
    x_source, y_source = _rows(dataset.domains[source], seed, source, samples, np.arange(dataset.classes))
    x_target, y_target = _rows(dataset.domains[target], seed, target, samples, kept)
    if not len(y_target):
        given = f"none in '{target}' of seed {seed}"
        raise InvalidInput("drop", "must leave samples in the target", given, "Drop fewer classes.")
    random = generator(seed, target, "outliers")
    size = len(y_target)
    replaced = random.permutation(size)[: min(round(outliers * size), size - 1)]
    origin = random.integers(size, size=(len(replaced), x_target.shape[1]))
    strange = x_target[origin, np.arange(x_target.shape[1])]
    x_target[replaced] = strange
    outlier = np.isin(np.arange(size), replaced)
    return DomainPair(_unit(x_source), y_source, _unit(x_target), y_target, outlier)


def generator(seed: int, *words: str) -> np.random.Generator:
    """Random numbers that depend on the seed and the words alone."""
    digest = hashlib.sha256("\0".join(words).encode("utf-8", "surrogateescape")).digest()
    return np.random.default_rng([seed, int.from_bytes(digest[:8], "big")])


def _rows(domain: Features, seed: int, name: str, samples: int, classes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    y = np.asarray(domain.y)
    order = generator(seed, name).permutation(len(y))
    chosen = order[np.isin(y[order], classes)][:samples]
    return domain.x[chosen].astype(np.float64), y[chosen]


def _unit(x: np.ndarray) -> np.ndarray:
    _, exponent = np.frexp(np.abs(x).max(axis=1, keepdims=True))
    x = np.ldexp(x, -exponent)  # squares of very large or small numbers do not fit; powers of two change no digit
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    return x / np.where(norms > 0, norms, 1.0)
