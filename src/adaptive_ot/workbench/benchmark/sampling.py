"""Samples of a source and a target by a seed: what shifts between the two, and how their classes overlap."""

from __future__ import annotations

import hashlib
import math
from typing import NamedTuple

import numpy as np

from adaptive_ot.errors import InvalidInput
from adaptive_ot.workbench.benchmark.domains import Dataset
from adaptive_ot.workbench.feature_files import Features

# From source to target: another domain; or two halves of one domain, the target with noise or turned images.
SHIFTS = ("domains", "none", "noise", "rotation")

# Classes of the target: all of them, some of them, some of them more often, or some of them not in the source.
OVERLAPS = ("all", "half", "third", "imbalanced", "unknown")

DEGREES = 5.0  # by which images are turned
FREQUENT = 0.8  # the share of the target that the frequent classes have if it is imbalanced


class Condition(NamedTuple):
    """One of SHIFTS and one of OVERLAPS."""

    shift: str = "domains"
    overlap: str = "all"

    def __str__(self) -> str:
        return f"{self.shift}, {self.overlap}"


PLAIN = Condition()


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
    dataset: Dataset,
    source: str,
    target: str,
    *,
    seed: int,
    samples: int,
    drop: int = 0,
    outliers: float = 0.0,
    condition: Condition = PLAIN,
) -> DomainPair:
    """At most `samples` rows of both sides, a function of the seed, the names of the domains and the condition alone.

    Parameters
    ----------
    dataset, source, target
        Two domains of a dataset; one and the same unless the shift is "domains".
    seed
        The seed of everything random.
    samples
        Rows to draw, without replacement.
    drop
        Classes that are missing in the target; which ones depends on the seed and the number of classes.
    outliers
        This share of the target is replaced by rows whose features come from a random row of the target each.
    condition
        What shifts, and which classes the target has.
    """
    classes = Classes.of(condition.overlap, generator(seed, "classes").permutation(dataset.classes)[drop:])
    orders = _orders(dataset, source, target, seed, condition.shift)
    chosen_source = classes.of_source(np.asarray(dataset.domains[source].y), orders[0], samples)
    chosen_target = classes.of_target(np.asarray(dataset.domains[target].y), orders[1], samples)
    for side, name, chosen in (("source", source, chosen_source), ("target", target, chosen_target)):
        if not len(chosen):
            given = f"none in '{name}' of seed {seed}"
            remedy = "Drop fewer classes, or choose another overlap."
            raise InvalidInput("drop" if drop else "overlap", f"must leave samples in the {side}", given, remedy)
    x_source, y_source = _rows(dataset.domains[source], chosen_source)
    x_target, y_target = _rows(dataset.domains[target], chosen_target)
    x_target = _shifted(dataset, target, x_target, seed, condition.shift)
    number = np.argsort(np.argsort(np.isin(np.arange(dataset.classes), classes.unknown), kind="stable"))
    y_source, y_target = number[y_source], number[y_target]  # known classes first, as methods may expect
    random = generator(seed, target, "outliers")
    size = len(y_target)
    replaced = random.permutation(size)[: min(round(outliers * size), size - 1)]
    origin = random.integers(size, size=(len(replaced), x_target.shape[1]))
    strange = x_target[origin, np.arange(x_target.shape[1])]
    x_target[replaced] = strange
    outlier = np.isin(np.arange(size), replaced) | (y_target >= dataset.classes - len(classes.unknown))
    return DomainPair(_unit(x_source), y_source, _unit(x_target), y_target, outlier)


def generator(seed: int, *words: str) -> np.random.Generator:
    """Random numbers that depend on the seed and the words alone."""
    digest = hashlib.sha256("\0".join(words).encode("utf-8", "surrogateescape")).digest()
    return np.random.default_rng([seed, int.from_bytes(digest[:8], "big")])


class Classes(NamedTuple):
    """The classes of the target, those of them that are more frequent, and those that the source does not know."""

    kept: np.ndarray
    frequent: np.ndarray
    unknown: np.ndarray

    @classmethod
    def of(cls, overlap: str, classes: np.ndarray) -> Classes:
        """From the classes that may be in the target, in random order."""
        count, none = len(classes), classes[:0]
        if overlap == "half":
            return cls(classes[: math.ceil(count / 2)], none, none)
        if overlap == "third":
            return cls(classes[: max(2, round(count / 3))], none, none)
        if overlap == "imbalanced":
            return cls(classes, classes[: max(1, round(count / 5))], none)
        if overlap == "unknown":
            return cls(classes, none, classes[: round(count / 3)])
        return cls(classes, none, none)

    def of_source(self, y: np.ndarray, order: np.ndarray, samples: int) -> np.ndarray:
        """The rows with known classes, in this order."""
        return order[~np.isin(y[order], self.unknown)][:samples]

    def of_target(self, y: np.ndarray, order: np.ndarray, samples: int) -> np.ndarray:
        """The rows with classes of the target, in this order; as many as the share of frequent ones allows, mixed."""
        order = order[np.isin(y[order], self.kept)]
        if not len(self.frequent):
            return order[:samples]
        frequent = np.isin(y[order], self.frequent)
        sizes = samples, frequent.sum() / FREQUENT, (~frequent).sum() / (1 - FREQUENT)
        size = int(min(sizes) + 1e-9)
        often = round(FREQUENT * size)
        ranks = np.where(frequent, np.cumsum(frequent), np.cumsum(~frequent))
        places = ranks / (np.where(frequent, often, size - often) + 0.5)
        return order[np.argsort(places, kind="stable")][:size]


def _orders(dataset: Dataset, source: str, target: str, seed: int, shift: str) -> tuple[np.ndarray, np.ndarray]:
    """The rows of both sides in random order: all rows of two domains, or the halves of one."""
    order = generator(seed, source).permutation(len(dataset.domains[source].x))
    if shift == "domains":
        return order, generator(seed, target).permutation(len(dataset.domains[target].x))
    middle = math.ceil(len(order) / 2)
    return order[:middle], order[middle:]


def _rows(domain: Features, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return domain.x[chosen].astype(np.float64), np.asarray(domain.y)[chosen]


def _shifted(dataset: Dataset, name: str, x: np.ndarray, seed: int, shift: str) -> np.ndarray:
    """Rows of the target with noise as large as the deviations of the domain, or as images that are turned."""
    if shift == "noise":
        return x + generator(seed, name, "noise").normal(size=x.shape) * dataset.domains[name].x.std(axis=0)
    if shift == "rotation" and dataset.image is not None:
        from scipy.ndimage import rotate

        images = x.reshape(len(x), *dataset.image)
        return rotate(images, DEGREES, axes=(2, 1), reshape=False, order=1).reshape(x.shape)
    return x


def _unit(x: np.ndarray) -> np.ndarray:
    _, exponent = np.frexp(np.abs(x).max(axis=1, keepdims=True))
    x = np.ldexp(x, -exponent)  # squares of very large or small numbers do not fit; powers of two change no digit
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    return x / np.where(norms > 0, norms, 1.0)
