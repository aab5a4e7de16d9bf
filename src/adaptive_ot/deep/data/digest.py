"""What tells two datasets apart without reading every image."""

from __future__ import annotations

import hashlib

import numpy as np

from adaptive_ot.deep.data.domain import Domain


def digest(domain: Domain) -> str:
    """Of the names of files, or the pixels of arrays, and their classes.

    Examples
    --------
    >>> domain = Domain("grey", ("only",), np.full((2, 4, 4), 9, np.uint8), np.array([0, 0]))
    >>> digest(domain) == digest(domain._replace(classes=("other",)))
    False
    """
    found = hashlib.sha256("\0".join(domain.classes).encode("utf-8", "surrogateescape"))
    found.update(np.ascontiguousarray(domain.labels, np.int64).tobytes())
    if isinstance(domain.images, np.ndarray):
        found.update(np.ascontiguousarray(domain.images).tobytes())
    else:
        found.update("\0".join(image.name for image in domain.images).encode("utf-8", "surrogateescape"))
    return found.hexdigest()[:16]
