"""Pixels of one image from untrusted bytes."""

from __future__ import annotations

import os
import re
import stat
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from io import BytesIO
from typing import BinaryIO, NamedTuple

import numpy as np
from PIL import Image, UnidentifiedImageError, WebPImagePlugin  # noqa: F401

from adaptive_ot.errors import DataError

Image.preinit()  # imports these formats except WebP, before several threads would
FORMATS = ("JPEG", "PNG", "BMP", "WEBP", "PPM")

# Names that are taken for images. Some formats are refused when they are read, rather than overlooked.
SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".pgm", ".gif", ".tif", ".tiff")

LARGEST_FILE = 128 * 2**20
MOST_PIXELS = 64 * 10**6

# Images of a domain, evenly spread, whose size is taken for that of all.
LOOKED_AT = 20


class ImageFile(NamedTuple):
    """An image on disk: a whole file, or `length` bytes of an archive from `start` on."""

    name: str  # relative to the root of the dataset
    path: str
    start: int = 0
    length: int | None = None


def read_image(image: ImageFile | np.ndarray, size: int) -> np.ndarray:
    """Pixels as RGB bytes (size, size, 3), stretched bilinearly with antialiasing, as torchvision resizes PIL images.

    Decoders warn about harmless faults; wrap calls in `quietly`.
    """
    if isinstance(image, np.ndarray):
        return _pixels(Image.fromarray(image), size)
    with _opened(image) as picture:
        picture.load()
        return _pixels(picture, size)


def check_image(image: ImageFile) -> None:
    """Raise unless the file exists and has the header of an image of reasonable size."""
    with _opened(image):
        pass


def median_side(images: Sequence[ImageFile] | np.ndarray) -> int:
    """The median over some images of their longer side, in pixels; files that cannot be read are left out."""
    if isinstance(images, np.ndarray):
        return max(images.shape[1:3])
    sides = []
    with quietly():
        for image in images[:: -(-len(images) // LOOKED_AT)]:
            with suppress(DataError), _opened(image) as picture:
                sides.append(max(picture.size))
    return int(np.median(sides)) if sides else MOST_PIXELS


@contextmanager
def quietly() -> Iterator[None]:
    """Ignore warnings, in all threads: so `read_image`, which runs in threads, does not do it itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _opened(image: ImageFile) -> Iterator[Image.Image]:
    """The picture with its header checked. Every error inside becomes a DataError, since decoders may raise any."""
    try:
        with _bytes(image) as file, Image.open(file, formats=FORMATS) as picture:
            pixels = picture.width * picture.height
            if pixels > MOST_PIXELS:
                raise ValueError(_too_many(pixels))
            yield picture
    except UnidentifiedImageError:
        raise DataError(image.name, f"it is not a valid image of the kinds {', '.join(FORMATS)}") from None
    except Image.DecompressionBombError as error:  # beyond Pillow's own, higher limit
        raise DataError(image.name, _too_many(int(re.findall(r"\d+", str(error))[0]))) from None
    except OSError as error:
        raise DataError(image.name, error.strerror or str(error) or "it cannot be read") from None
    except Exception as error:
        raise DataError(image.name, str(error) or type(error).__name__) from None


def _too_many(pixels: int) -> str:
    return f"{pixels:,} pixels are more than {MOST_PIXELS:,}"


def _bytes(image: ImageFile) -> BinaryIO:
    status = os.stat(image.path)
    if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait for ever
        raise ValueError("it is not a regular file")
    length = status.st_size if image.length is None else image.length
    if not 0 < length <= LARGEST_FILE:
        raise ValueError(f"{length:,} bytes are not between 1 and {LARGEST_FILE:,}")
    file = open(image.path, "rb")  # noqa: SIM115, the caller closes it
    if image.length is None:
        return file
    with file:
        file.seek(image.start)
        return BytesIO(file.read(length))


def _pixels(picture: Image.Image, size: int) -> np.ndarray:
    if picture.mode == "F":
        raise ValueError("its pixels are floating-point numbers, not colours")
    if picture.mode.startswith("I"):  # 16 bits, of which Pillow would drop the upper half
        bright = np.asarray(picture).astype(np.int64) >> 8
        picture = Image.fromarray(np.clip(bright, 0, 255).astype(np.uint8))
    return np.asarray(picture.convert("RGB").resize((size, size), Image.Resampling.BILINEAR))
