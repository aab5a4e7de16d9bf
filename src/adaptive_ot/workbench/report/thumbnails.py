"""Small images of samples, as files inside a page."""

from __future__ import annotations

from io import BytesIO

import numpy as np

from adaptive_ot.errors import MissingDependency

# Images with fewer pixels a side are enlarged, by a whole number of times: screens would blur them.
READABLE = 48


def thumbnails(pixels: np.ndarray) -> list[bytes]:
    """One file for each of many images of one size.

    Parameters
    ----------
    pixels
        Bytes (n, height, width) or (n, height, width, 3).

    Returns
    -------
    PNG files of small images, which would suffer from JPEG, and JPEG files of others.

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
    if times > 1:
        pixels = pixels.repeat(times, axis=1).repeat(times, axis=2)
    kind = {"format": "PNG"} if times > 1 else {"format": "JPEG", "quality": 80}
    files = []
    for each in pixels:
        file = BytesIO()
        Image.fromarray(each).save(file, **kind)
        files.append(file.getvalue())
    return files
