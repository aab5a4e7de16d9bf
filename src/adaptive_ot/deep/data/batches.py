"""The samples of a step: pure functions of (seed, step), so that a resumed run needs no state."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from adaptive_ot.errors import InvalidInput

# Streams of random numbers.
SAMPLES_OF_CLASS, EXTRA_CLASSES, SAMPLES, SELECTION = range(4)


def balanced_batch(labels: np.ndarray, classes: int, size: int, seed: int, step: int) -> np.ndarray:
    """Indices of `size` samples, equally many of every class.

    The remainder of `size` goes to classes chosen at random. Each class cycles through permutations of its samples, so
    that none is repeated before (nearly) all have been used, and a batch holds none twice unless the class is too
    small. `labels` are the classes of all samples, from 0 to `classes` - 1; each must occur.

    Examples
    --------
    >>> labels = np.array([0, 0, 1, 1, 1, 2])
    >>> labels[balanced_batch(labels, classes=3, size=6, seed=0, step=5)]
    array([0, 1, 2, 0, 1, 2])
    """
    members = _members(np.asarray(labels, np.int32).tobytes(), classes)
    rounds = -(-size // classes)  # samples that every class has ready, used or not
    ready = np.array(
        [
            samples[_cycle(len(samples), rounds, step, (seed, SAMPLES_OF_CLASS, label))]
            for label, samples in enumerate(members)
        ]
    )
    full, rest = divmod(size, classes)
    batch = ready[:, :full].T.ravel()
    if rest:
        chosen = _generator(seed, EXTRA_CLASSES, step).choice(classes, rest, replace=False)
        batch = np.concatenate([batch, ready[np.sort(chosen), full]])
    return batch


def random_batch(count: int, size: int, seed: int, step: int) -> np.ndarray:
    """Indices of `size` out of `count` samples: a permutation batch by batch, then another; the rest is dropped."""
    return _cycle(count, size, step, (seed, SAMPLES)).astype(np.int64)


def balanced_selection(labels: np.ndarray, size: int, seed: int) -> np.ndarray:
    """Indices of at most `size` different samples, ascending, with classes as equal in number as possible.

    Examples
    --------
    >>> labels = np.array([0, 0, 0, 0, 1, 2, 2])
    >>> labels[balanced_selection(labels, size=5, seed=0)]
    array([0, 0, 1, 2, 2])
    """
    order = _permutation(len(labels), seed, SELECTION)
    by_class = np.argsort(labels[order], kind="stable")
    ascending = labels[order][by_class]
    turn = np.empty(len(labels), np.int64)  # rank of every sample within its class
    turn[by_class] = np.arange(len(labels)) - np.searchsorted(ascending, ascending)
    return np.sort(order[np.argsort(turn, kind="stable")[:size]])


def _cycle(count: int, size: int, step: int, key: tuple[int, ...]) -> np.ndarray:
    """Batch number `step` of an endless sequence of permutations of `count` indices."""
    if size <= count:
        epoch, at = divmod(step, count // size)
        return _permutation(count, *key, epoch)[at * size : (at + 1) * size]
    first, skipped = divmod(step * size, count)
    last = (step * size + size - 1) // count
    line = np.concatenate([_permutation(count, *key, epoch) for epoch in range(first, last + 1)])
    return line[skipped : skipped + size]


@lru_cache(maxsize=1024)
def _permutation(count: int, *key: int) -> np.ndarray:
    order = _generator(*key).permutation(count).astype(np.int32)
    order.flags.writeable = False
    return order


@lru_cache(maxsize=4)
def _members(labels: bytes, classes: int) -> list[np.ndarray]:
    """The samples of every class, cached by the labels themselves."""
    known = np.frombuffer(labels, np.int32)
    members = [np.flatnonzero(known == label) for label in range(classes)]
    missing = [label for label, samples in enumerate(members) if not len(samples)]
    if missing or sum(map(len, members)) != len(known):
        given = f"none of class {missing[0]}" if missing else f"labels outside 0 to {classes - 1}"
        raise InvalidInput("labels", f"must name each of {classes} classes", given, "Add samples, or leave it out.")
    return members


def _generator(*key: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(key))
