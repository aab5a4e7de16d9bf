"""The images of a run, and the batches of each step: augmented, and pure functions of the seed and the step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Literal

import numpy as np
import torch

from adaptive_ot.deep.config import Config, method_named
from adaptive_ot.deep.data.augment import augment, draw_views
from adaptive_ot.deep.data.batches import balanced_batch, random_batch
from adaptive_ot.deep.data.domain import domains_of
from adaptive_ot.deep.data.stores import Store
from adaptive_ot.deep.distributed import rank, world_size
from adaptive_ot.deep.training import ImageBatch
from adaptive_ot.errors import InvalidInput


def open_stores(config: Config, device: torch.device, report: Callable[[str], None]) -> tuple[Store, Store]:
    """The images of source and target; `report` is called with lines on the progress."""
    source, target = domains_of(config)
    if len(source.classes) < 2:
        given = f"{', '.join(source.classes)} alone"
        raise InvalidInput(f"source '{config.source}'", "must have at least two classes", given, "Add another.")
    return Store(source, config, device, report, labelled=True), Store(target, config, device, report)


def paired_batches(
    config: Config, source: Store, target: Store, start: int
) -> Iterator[tuple[ImageBatch, ImageBatch | None]]:
    """Augmented batches of both domains from step `start` on, the same ones however many processes share them."""
    classes, size, ranks = len(source.domain.classes), config.batch, world_size()
    own = slice(rank() * size // ranks, (rank() + 1) * size // ranks)

    @lru_cache(maxsize=512)  # asked for twice: by a store, perhaps far ahead, and for the labels
    def indices(stream: str, step: int) -> np.ndarray:
        if stream == "source":
            return balanced_batch(source.labels, classes, size, config.seed, step)
        return random_batch(len(target), size, config.seed, step)

    def augmented(store: Store, stream: Literal["source", "target"]) -> Iterator[ImageBatch]:
        steps = range(start, config.iterations)
        for step, pixels in zip(steps, store.batches(indices(stream, step)[own] for step in steps), strict=True):
            views = draw_views(config, step, stream).part(own)
            drawn = indices(stream, step)
            labels, identities = (
                torch.from_numpy(each[drawn]).to(store.device, non_blocking=True)
                for each in (store.labels, store.places)
            )
            yield ImageBatch(augment(pixels, views, config.crop), labels, identities)

    if method_named(config.method).uses_target:
        yield from zip(augmented(source, "source"), augmented(target, "target"), strict=True)
    else:
        yield from ((batch, None) for batch in augmented(source, "source"))
