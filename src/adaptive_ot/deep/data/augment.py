"""Crops and flips of a whole batch at once, on its device; random numbers depend on (seed, step) only."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np
import torch

from adaptive_ot.deep._torchvision import center_crop, ten_crop
from adaptive_ot.deep.config import Config
from adaptive_ot.deep.device import memory_format

# RandomResizedCrop of torchvision: the share of the area, the ratio of width to height, and the number of tries.
SCALE = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)
TRIES = 10

# Streams of random numbers, different from those of batches.
STREAMS = {"source": 16, "target": 17}


class Views(NamedTuple):
    """The crop of each image of a batch, and whether it is mirrored."""

    boxes: np.ndarray  # (n, 4) float32: left, top, width, height, in pixels of the stored image
    flip: np.ndarray  # (n,) bool

    def part(self, where: slice) -> Views:
        """The views of some images: every process draws those of the whole batch and takes its own."""
        return Views(self.boxes[where], self.flip[where])


def draw_views(config: Config, step: int, stream: Literal["source", "target"]) -> Views:
    """Random views of a batch in a step; pure.

    With the ``crop_kind`` "resized" these are random parts of random shape, with "random" squares of `crop` pixels,
    with "none" whole images. Half of them are mirrored, if the run flips images.
    """
    n, size, kind = config.batch, config.resize, config.crop_kind
    random = np.random.default_rng(np.random.SeedSequence([config.seed, STREAMS[stream], step]))
    sides = _sides(n, size, random) if kind == "resized" else np.full((n, 2), config.crop if kind == "random" else size)
    corners = np.floor(random.random((n, 2)) * (size - sides + 1))
    mirrored = random.random(n) < 0.5
    return Views(np.hstack([corners, sides]).astype(np.float32), mirrored & config.flip)


def augment(pixels: torch.Tensor, views: Views, crop: int) -> torch.Tensor:
    """The boxes of bytes (n, 3, size, size), stretched bilinearly to `crop` x `crop`, mirrored where asked; in [0, 1].

    A box of `crop` x `crop` gives exactly its pixels. Images do not depend on each other, so parts of a batch come out
    as in the whole. Points beyond the outermost pixels of a box take their values, as if it had been cut out first.
    """
    device = pixels.device
    left, top, width, height = torch.as_tensor(views.boxes).to(device, non_blocking=True).T[:, :, None]
    flip = torch.as_tensor(views.flip).to(device, non_blocking=True)[:, None]
    across = torch.arange(crop, device=device, dtype=torch.float32).expand(len(pixels), -1)
    rows = _stretched(pixels, 2, top, height, across)
    image = _stretched(rows, 3, left, width, torch.where(flip, crop - 1 - across, across))
    return (image / 255).contiguous(memory_format=memory_format(device))


def test_views(pixels: torch.Tensor, crop: int, kind: Literal["centre", "ten"]) -> list[torch.Tensor]:
    """The central square; or the corners and the centre, of the images and of their mirror images; in [0, 1]."""
    views = ten_crop(pixels, [crop]) if kind == "ten" else [center_crop(pixels, [crop])]
    return [(view / 255).contiguous(memory_format=memory_format(pixels.device)) for view in views]


def _sides(n: int, size: int, random: np.random.Generator) -> np.ndarray:
    """Width and height of RandomResizedCrop: the first try that fits, otherwise the whole (square) image."""
    area = size**2 * random.uniform(*SCALE, (n, TRIES))
    ratio = np.exp(random.uniform(math.log(RATIO[0]), math.log(RATIO[1]), (n, TRIES)))
    tries = np.round(np.sqrt(np.stack([area * ratio, area / ratio], axis=-1)))
    fits = ((tries > 0) & (tries <= size)).all(axis=-1)
    tries[~fits] = size
    return tries[np.arange(n), fits.argmax(axis=1)]


def _stretched(
    images: torch.Tensor, axis: int, start: torch.Tensor, length: torch.Tensor, at: torch.Tensor
) -> torch.Tensor:
    """Stretch `length` pixels from `start` on, along one axis, to the number of places in `at`, and read those.

    Sums and products are computed one by one: fused ones round differently at the end of a vector, and parts of a
    batch would not agree with the whole.
    """
    count = at.shape[1]
    place = ((at + 0.5) * (length / count) - 0.5).clamp(min=0).minimum(length - 1)
    before = place.floor()
    share = place - before
    after = torch.minimum(before + 1, length - 1)
    shape = (len(images), 1, count, 1) if axis == 2 else (len(images), 1, 1, count)
    size = list(images.shape)
    size[axis] = count

    def read(where: torch.Tensor) -> torch.Tensor:
        return images.gather(axis, (start + where).long().reshape(shape).expand(size)).float()

    low, high = read(before), read(after)
    return low + (high - low) * share.reshape(shape)
