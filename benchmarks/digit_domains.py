"""More domains of handwritten digits, to choose settings of deep adaptation on; MNIST and USPS stay for the tables.

    python benchmarks/digit_domains.py [--digits data/digits.npz] [--output data/digit_domains.npz]

- optdigits: the digits of scikit-learn, 8 x 8 pixels that fill the image, enlarged;
- mnist-part: 4,000 digits of MNIST as they are;
- texture: 4,000 others of MNIST, as the difference to a smooth random background (much as in MNIST-M);
- turned: 4,000 digits of USPS, turned by 40 degrees to either side;
- usps, mnist: as they are.

The file is a `digits` dataset: `adaptive-ot train --dataset digits --root data/digit_domains.npz --source optdigits
--target usps`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import ndimage
from sklearn.datasets import load_digits

SIDE, IMAGES = 28, 4000
SMOOTH, STRENGTH, ANGLE = 2.0, 0.8, 40


def as_bytes(images: Iterable[Any]) -> np.ndarray:
    return np.stack(list(images)).clip(0, 255).astype(np.uint8)


def enlarged(images: np.ndarray) -> np.ndarray:
    return as_bytes([ndimage.zoom(image.astype(float), SIDE / len(image), order=1) for image in images])


def on_texture(images: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    backgrounds = (ndimage.gaussian_filter(rng.standard_normal(image.shape), SMOOTH) for image in images)
    scaled = (255 * STRENGTH * (each - each.min()) / np.ptp(each) for each in backgrounds)
    return as_bytes([np.abs(image - background) for image, background in zip(images, scaled, strict=True)])


def turned(images: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return as_bytes(
        [ndimage.rotate(each.astype(float), rng.choice([-ANGLE, ANGLE]), reshape=False, order=1) for each in images]
    )


def domains(digits: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Images and labels of every domain."""
    rng = np.random.default_rng(0)
    small, labels = load_digits(return_X_y=True)
    with np.load(digits) as file:
        mnist, usps = ((file[f"{name}_train_x"], file[f"{name}_train_y"]) for name in ("mnist", "usps"))
    usps = enlarged(usps[0]), usps[1]
    order = rng.permutation(len(mnist[0]))
    first, second = order[:IMAGES], order[IMAGES : 2 * IMAGES]
    texture = on_texture(mnist[0][second], rng)
    some = rng.permutation(len(usps[0]))[:IMAGES]
    return {
        "optdigits": (enlarged(np.reshape(small, (-1, 8, 8)) * 255 / 16), np.asarray(labels)),
        "mnist-part": (mnist[0][first], mnist[1][first]),
        "texture": (texture, mnist[1][second]),
        "turned": (turned(usps[0][some], rng), usps[1][some]),
        "usps": usps,
        "mnist": mnist,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--digits", type=Path, default=Path("data/digits.npz"))
    parser.add_argument("--output", type=Path, default=Path("data/digit_domains.npz"))
    options = parser.parse_args()
    arrays = {}
    for name, (images, labels) in domains(options.digits).items():
        arrays |= {f"{name}_train_x": images, f"{name}_train_y": np.asarray(labels, np.uint8)}
        print(f"{name:<12} {len(images):>6} images, {len(np.unique(labels))} classes")
    np.savez_compressed(options.output, **arrays)


if __name__ == "__main__":
    main()
