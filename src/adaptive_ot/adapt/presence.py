"""Which classes exist in the target, and how large they are there, judged by predictions alone."""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp
from scipy.stats import nbinom

# Counts of predictions vary more than random draws would: their variance is mean + DISPERSION mean^2.
DISPERSION = 0.5

# A class that exists has at least this share of its share in the source.
LEAST_SHARE = 0.25

# A class is treated as absent below this probability; classes are tested again without those that are absent.
ABSENT = 0.3
ROUNDS = 4

# Prior weight of the class shares of the source against all targets together, where shares are estimated.
PRIOR = 4.0
STEPS = 100
SETTLED = 1e-12


def class_presence(targets: np.ndarray, sources: np.ndarray, members: np.ndarray) -> np.ndarray:
    """The probability that each class exists in the target.

    If a class is absent, it is predicted only by mistake, as often as on held-out sources of the other classes. If it
    exists, it is predicted more often. The probability weighs both explanations of the number of predictions, which
    are equally likely at first.

    Parameters
    ----------
    targets
        Predicted probabilities of the targets.
    sources
        Predicted probabilities of held-out sources.
    members
        The true classes of these sources.

    Examples
    --------
    >>> right = np.repeat(np.eye(2), 50, axis=0)
    >>> class_presence(right[:50], right, np.repeat([0, 1], 50)).round(1)
    array([1., 0.])
    """
    classes, size = targets.shape[1], len(targets)
    shares = np.maximum(np.bincount(members, minlength=classes), 1) / len(members)
    alone = np.bincount(members, minlength=classes) < 2
    presence, active = np.ones(classes), np.ones(classes, dtype=bool)
    for _ in range(ROUNDS):
        left = np.flatnonzero(active)
        counts = np.bincount(left[targets[:, left].argmax(axis=1)], minlength=classes)
        confusion = np.zeros((classes, classes))
        np.add.at(confusion, (members, left[sources[:, left].argmax(axis=1)]), 1.0)
        confusion += 0.5 * shares  # no mistake is impossible
        confusion[alone] = np.eye(classes)[alone]  # held out, a single source has nothing to be recognised by
        confusion /= confusion.sum(axis=1, keepdims=True)
        sizes = counts / np.maximum(np.diag(confusion), 0.3)
        for k in left:
            others = np.where(active, sizes, 0.0)
            others[k] = 0.0
            if not others.any():
                presence[k] = 1.0
                continue
            mistakes = size * float(others @ confusion[:, k]) / float(others.sum())
            share = np.geomspace(LEAST_SHARE * shares[k], 1.0, 12)
            expected = share * size * confusion[k, k] + (1.0 - share) * mistakes
            present = logsumexp(_log_likelihood(counts[k], expected)) - np.log(len(share))
            odds = present - _log_likelihood(counts[k], np.array(mistakes))
            presence[k] = 1.0 / (1.0 + np.exp(-np.clip(odds, -50.0, 50.0)))
        remaining = active & (presence >= ABSENT)
        if not remaining.any() or (remaining == active).all():
            break
        active = remaining
    return presence


def label_shift(probabilities: np.ndarray, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Class shares of the target, and its probabilities corrected for them, by expectation maximisation.

    Parameters
    ----------
    probabilities
        Predicted by a classifier that was fitted on classes of these shares.
    shares
        Also the centre of the prior, which counts as `PRIOR` targets for each target: shares change little unless the
        predictions are clear.
    """
    estimate, size = shares, len(probabilities)
    for _ in range(STEPS):
        corrected = normalised(probabilities * (estimate / shares))
        before, estimate = estimate, (corrected.sum(axis=0) / size + PRIOR * shares) / (1.0 + PRIOR)
        if np.abs(estimate - before).max() < SETTLED:
            break
    return estimate, normalised(probabilities * (estimate / shares))


def _log_likelihood(count: int, mean: np.ndarray) -> np.ndarray:
    mean = np.maximum(mean, 0.3)  # a few mistakes are always possible
    return nbinom.logpmf(count, 1.0 / DISPERSION, 1.0 / (1.0 + DISPERSION * mean))


def normalised(rows: np.ndarray) -> np.ndarray:
    """Rows that sum to 1."""
    return rows / np.maximum(rows.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
