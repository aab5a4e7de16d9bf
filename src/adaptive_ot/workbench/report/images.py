"""Images inside a page: bytes that begin as a PNG or JPEG does become data URIs, nothing else."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence

import numpy as np

from adaptive_ot import _validation as check
from adaptive_ot.errors import InvalidInput

SIGNATURES = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg"}

# How they end, unless a part is missing.
ENDS = {"image/png": b"IEND\xaeB`\x82", "image/jpeg": b"\xff\xd9"}

# What the images of all samples may take together; a third more in the page.
MOST_BYTES = 12_000_000


def data_uri(name: str, image: bytes) -> str:
    r"""An address that holds the image itself.

    Examples
    --------
    >>> data_uri("light", b"\xff\xd8\xff")
    'data:image/jpeg;base64,/9j/'
    """
    return f"data:{_kind(name, image)};base64,{b64encode(image).decode()}"


def check_whole(name: str, image: bytes) -> None:
    """Refuse what was cut off, as by a full disk: a browser would show the half of it, and not say so."""
    if not image.endswith(ENDS[_kind(name, image)]):
        raise InvalidInput(name, "must be a whole PNG or JPEG", "one without its end", "Save it anew.")


def within_budget(images: Sequence[bytes | None], wanted: np.ndarray) -> list[str | None]:
    """Data URIs of as many as the page has room for; those `wanted` go first, then the others in order."""
    everyone = np.concatenate([wanted, np.arange(len(images))]).astype(np.int64)
    _, first = np.unique(everyone, return_index=True)
    order = everyone[np.sort(first)]
    sizes = np.array([len(images[k] or b"") for k in order], dtype=np.int64)
    uris: list[str | None] = [None] * len(images)
    for k in order[np.cumsum(sizes) <= MOST_BYTES]:
        image = images[k]
        uris[k] = None if image is None else data_uri("images", image)
    return uris


def check_images(name: str, images: Sequence[bytes]) -> None:
    for k, image in enumerate(images):
        _kind(f"{name}[{k}]", image)


def _kind(name: str, image: bytes) -> str:
    check.instance(name, image, bytes)
    for signature, kind in SIGNATURES.items():
        if image.startswith(signature):
            return kind
    raise InvalidInput(name, "must be a PNG or JPEG", f"bytes that begin with {image[:8]!r}", "Save it as a PNG.")
