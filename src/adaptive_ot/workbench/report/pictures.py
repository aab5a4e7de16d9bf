"""Images for pages: figures in both themes, thumbnails of samples, and the data URIs that hold them."""

from __future__ import annotations

import warnings
from base64 import b64encode
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any, Literal, NamedTuple

import numpy as np

from adaptive_ot import _validation as check
from adaptive_ot import plot
from adaptive_ot.errors import InvalidInput, MissingDependency

# How files of each kind begin, and how they end unless a part is missing.
SIGNATURES = {"image/png": (b"\x89PNG\r\n\x1a\n", b"IEND\xaeB`\x82"), "image/jpeg": (b"\xff\xd8\xff", b"\xff\xd9")}

# The images of all samples may take this many bytes together; in the page they take a third more.
MOST_BYTES = 12_000_000

# Images with fewer pixels a side are enlarged by a whole number of times, since screens would blur them.
READABLE = 48


class Drawn(NamedTuple):
    """One picture as PNG files, for light and for dark screens."""

    light: bytes
    dark: bytes


def drawn(draw: Callable[[], Any]) -> Drawn:
    """The axes or figure that `draw` returns, in both themes."""
    return Drawn(saved(draw, "light", "png"), saved(draw, "dark", "png"))


def saved(draw: Callable[[], Any], theme: Literal["light", "dark"], kind: str) -> bytes:
    """The bytes of a file of this kind."""
    file = BytesIO()
    with plot.theme(theme), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        made = draw()
        figure = made if hasattr(made, "savefig") else made.figure
        figure.savefig(file, format=kind)
    return file.getvalue()


def thumbnails(pixels: np.ndarray) -> list[bytes]:
    """A file for each of many images of one size, given as bytes (n, height, width) or (n, height, width, 3).

    Small images become PNG files, since JPEG would blur them; others become JPEG files.

    Examples
    --------
    >>> [image[1:4] for image in thumbnails(np.zeros((2, 8, 8), np.uint8))]
    [b'PNG', b'PNG']
    """
    try:
        from PIL import Image
    except ImportError:
        raise MissingDependency("Pillow", "report") from None
    times = max(1, READABLE // max(1, *pixels.shape[1:3]))
    kind = {"format": "PNG"} if times > 1 else {"format": "JPEG", "quality": 80}
    files = []
    for each in pixels.repeat(times, axis=1).repeat(times, axis=2):
        file = BytesIO()
        Image.fromarray(each).save(file, **kind)
        files.append(file.getvalue())
    return files


def check_image(name: str, image: bytes, whole: bool = False) -> str:
    """The media type of a PNG or JPEG. Browsers show half of a file that was cut off: `whole` refuses those."""
    check.instance(name, image, bytes)
    for kind, (start, end) in SIGNATURES.items():
        if image.startswith(start):
            if whole and not image.endswith(end):
                raise InvalidInput(name, "must be a whole PNG or JPEG", "one without its end", "Save it again.")
            return kind
    raise InvalidInput(name, "must be a PNG or JPEG", f"bytes that begin with {image[:8]!r}", "Save it as a PNG.")


def data_uri(name: str, image: bytes, whole: bool = False) -> str:
    """An address that holds the image itself."""
    return f"data:{check_image(name, image, whole)};base64,{b64encode(image).decode()}"


def within_budget(images: Sequence[bytes | None], wanted: np.ndarray) -> list[str | None]:
    """Data URIs of as many images as the page has room for: those `wanted` first, then the others in order."""
    candidates = np.concatenate([wanted, np.arange(len(images))]).astype(np.int64)
    order = candidates[np.sort(np.unique(candidates, return_index=True)[1])]
    sizes = np.array([len(images[k] or b"") for k in order], dtype=np.int64)
    uris: list[str | None] = [None] * len(images)
    for k in order[np.cumsum(sizes) <= MOST_BYTES]:
        image = images[k]
        uris[k] = None if image is None else data_uri("images", image)
    return uris
