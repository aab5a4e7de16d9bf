"""Crops and flips of a whole batch at once, on its device, with randomness that depends on (seed, step) only."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np
import torch

from adaptive_ot._validation import choice
from adaptive_ot.deep.device import memory_format
from adaptive_ot.errors import InvalidInput

# RandomResizedCrop, as torchvision has it: the share of the area, the ratio of width to height, and how often to try.
SCALE = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)
TRIES = 10

# Told apart from each other, and from the draws of batches.
STREAMS = {"source": 16, "target": 17}


class Views(NamedTuple):
    """How each image of a batch is looked at."""

    boxes: np.ndarray  # (n, 4) float32: left, top, width, height, in pixels of the stored image
    flip: np.ndarray  # (n,) bool

    def part(self, where: slice) -> Views:
        """Those of some images: a process that holds a part of the batch draws all and takes its own."""
        return Views(self.boxes[where], self.flip[where])


def draw_views(
    n: int,
    *,
    size: int,
    crop: int,
    kind: Literal["resized", "random", "none"],
    flip: bool,
    seed: int,
    step: int,
    stream: Literal["source", "target"],
) -> Views:
    """How `n` images of `size` x `size` pixels are looked at in a step; pure.

    Parameters
    ----------
    crop
        Pixels of the result.
    kind
        ``"resized"``: a random part of random shape, stretched; ``"random"``: a random square of `crop` pixels as it
        is; ``"none"``: the whole image, stretched.
    flip
        Whether half of them are mirrored.

    Examples
    --------
    >>> views = draw_views(2, size=8, crop=6, kind="random", flip=True, seed=0, step=1, stream="source")
    >>> views.boxes[:, 2:]
    array([[6., 6.],
           [6., 6.]], dtype=float32)
    """
    choice("crop_kind", kind, ("resized", "random", "none"))
    random = np.random.default_rng(np.random.SeedSequence([seed, STREAMS[stream], step]))
    if kind == "resized":
        sides = _sides(n, size, random)
    else:
        sides = np.full((n, 2), crop if kind == "random" else size)
        _check_crop(int(sides.max(initial=0)), size)
    corners = np.floor(random.random((n, 2)) * (size - sides + 1))
    mirrored = random.random(n) < 0.5
    return Views(np.hstack([corners, sides]).astype(np.float32), mirrored & flip)


def augment(pixels: torch.Tensor, views: Views, crop: int) -> torch.Tensor:
    """The boxes of the images, stretched bilinearly to `crop` x `crop`, mirrored where asked; in [0, 1].

    A box of `crop` x `crop` gives the very pixels, and each image only depends on itself: parts of a batch come out
    as in the whole. Points beyond the outermost pixels of a box take their values, as if it had been cut out first.

    Parameters
    ----------
    pixels
        Bytes (n, 3, size, size) on any device.

    Returns
    -------
    torch.Tensor
        float32 (n, 3, crop, crop) on that device, channels last if that is a GPU.

    Examples
    --------
    >>> pixels = torch.arange(16, dtype=torch.uint8).reshape(1, 1, 4, 4)
    >>> views = Views(np.array([[1, 2, 2, 2]], np.float32), np.array([True]))
    >>> augment(pixels, views, crop=2) * 255
    tensor([[[[10.,  9.],
              [14., 13.]]]])
    """
    device = pixels.device
    left, top, width, height = torch.as_tensor(views.boxes).to(device, non_blocking=True).T[:, :, None]
    flip = torch.as_tensor(views.flip).to(device, non_blocking=True)[:, None]
    across = torch.arange(crop, device=device, dtype=torch.float32).expand(len(pixels), -1)
    rows = _stretched(pixels, 2, top, height, across)
    image = _stretched(rows, 3, left, width, torch.where(flip, crop - 1 - across, across))
    return (image / 255).contiguous(memory_format=memory_format(device))


def test_views(pixels: torch.Tensor, crop: int, kind: Literal["centre", "ten"]) -> list[torch.Tensor]:
    """The central square; or those in the corners and it, of the images and of their mirror images; in [0, 1].

    Examples
    --------
    >>> [view.shape for view in test_views(torch.zeros(2, 3, 8, 8, dtype=torch.uint8), 6, "centre")]
    [torch.Size([2, 3, 6, 6])]
    """
    choice("test_crops", kind, ("centre", "ten"))
    size = pixels.shape[-1]
    _check_crop(crop, size)
    middle, far, layout = round((size - crop) / 2), size - crop, memory_format(pixels.device)
    corners = [(0, 0), (0, far), (far, 0), (far, far), (middle, middle)]
    images, corners = ([pixels, pixels.flip(-1)], corners) if kind == "ten" else ([pixels], corners[-1:])
    return [
        (image[..., top : top + crop, left : left + crop] / 255).contiguous(memory_format=layout)
        for image in images
        for top, left in corners
    ]


def _sides(n: int, size: int, random: np.random.Generator) -> np.ndarray:
    """Width and height of RandomResizedCrop: of the first try that fits; otherwise the whole (square) image."""
    area = size**2 * random.uniform(*SCALE, (n, TRIES))
    ratio = np.exp(random.uniform(math.log(RATIO[0]), math.log(RATIO[1]), (n, TRIES)))
    tries = np.round(np.sqrt(np.stack([area * ratio, area / ratio], axis=-1)))
    fits = ((tries > 0) & (tries <= size)).all(axis=-1)
    tries[~fits] = size
    return tries[np.arange(n), fits.argmax(axis=1)]  # the first that fits; the whole, if none does


def _stretched(
    images: torch.Tensor, axis: int, start: torch.Tensor, length: torch.Tensor, at: torch.Tensor
) -> torch.Tensor:
    """Along one axis, `length` pixels from `start` on are read at the places `at` of as many as `at` is long.

    Sums and products one by one: fused ones round differently at the end of a vector, and slices would not agree.
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


def _check_crop(crop: int, size: int) -> None:
    if crop > size:
        rule = f"must be at most the size that images are stored at ({size})"
        raise InvalidInput("crop", rule, crop, "Choose a smaller crop or a larger resize.")
