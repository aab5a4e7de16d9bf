"""Handwritten digits that come with scikit-learn, and the same digits as another scanner might see them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import ndimage

# Chosen once, before any result was seen: a tilted, slightly blurred and paler scan of fewer digits, with some dirt.
MISSING = (7, 8, 9)
OUTLIERS = 0.15
DEGREES = 20.0
BLUR = 0.5
CONTRAST = 0.7
BRIGHTNESS = 0.15


class Digits(NamedTuple):
    """Images of 8 x 8 grey values from 0 to 1, one a row, and their classes; some targets show no digit at all."""

    x: np.ndarray
    y: np.ndarray
    z: np.ndarray
    true_class: np.ndarray
    outlier: np.ndarray


def shifted_digits(seed: int = 0, *, missing: tuple[int, ...] = MISSING, outliers: float = OUTLIERS) -> Digits:
    """A random half of the digits as they are, and the other half shifted, without some classes and with outliers.

    Outliers are images of the target whose pixels are shuffled: the same grey values, and no digit.

    Examples
    --------
    >>> digits = shifted_digits()
    >>> digits.x.shape, digits.z.shape, digits.outlier.sum()
    ((898, 64), (642, 64), np.int64(96))
    """
    from sklearn.datasets import load_digits

    rng = np.random.default_rng(seed)
    everything: Any = load_digits()
    images, labels = everything.images / 16.0, everything.target
    order = rng.permutation(len(labels))
    source, rest = np.split(order, [len(order) // 2])
    target = rest[~np.isin(labels[rest], missing)]
    z = _scanned(images[target]).reshape(len(target), -1)
    outlier = np.arange(len(target)) >= len(target) - round(outliers * len(target))
    z[outlier] = rng.permuted(z[outlier], axis=1)
    return Digits(images[source].reshape(len(source), -1), labels[source], z, labels[target], outlier)


def _scanned(images: np.ndarray) -> np.ndarray:
    tilted = ndimage.rotate(images, DEGREES, axes=(2, 1), reshape=False, order=1)
    return BRIGHTNESS + CONTRAST * ndimage.gaussian_filter(tilted, (0.0, BLUR, BLUR))
