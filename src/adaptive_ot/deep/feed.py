"""What the loop is fed with: augmented batches of both domains, each a pure function of the seed and the step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Literal

import numpy as np
import torch

from adaptive_ot.deep.config import Config, method_named
from adaptive_ot.deep.data.augment import augment, draw_views
from adaptive_ot.deep.data.batches import balanced_batch, random_batch
from adaptive_ot.deep.data.domain import Domain, read_domains
from adaptive_ot.deep.data.stores import Store, open_store
from adaptive_ot.deep.distributed import rank, world_size
from adaptive_ot.deep.training import Batch
from adaptive_ot.errors import InvalidInput


def open_stores(config: Config, device: torch.device, report: Callable[[str], None]) -> tuple[Store, Store]:
    """The images of source and target; `report` hears what is done."""
    source, target = read_domains(config.dataset, config.root, config.source, config.target, config.target_classes)
    if len(source.classes) < 2:
        given = f"{', '.join(source.classes)} alone"
        raise InvalidInput(f"source '{config.source}'", "must have at least two classes", given, "Add another.")
    return store_of(source, config, device, report, labelled=True), store_of(target, config, device, report)


def store_of(
    domain: Domain, config: Config, device: torch.device, report: Callable[[str], None], *, labelled: bool = False
) -> Store:
    """The images of a domain, as a run asks for them."""

    def tell(done: int, total: int) -> None:
        if done % 100 == 0:
            report(f"images of {domain.name}: {done} of {total}")

    return open_store(
        domain,
        resize=config.resize,
        device=device,
        storage=config.storage,
        workers=config.workers,
        on_bad_image=config.on_bad_image,
        labelled=labelled,
        progress=tell,
    )


def paired_batches(config: Config, source: Store, target: Store, start: int) -> Iterator[tuple[Batch, Batch | None]]:
    """Augmented batches of both domains from a step on; the same ones, however many processes share them."""
    classes, size, ranks = len(source.domain.classes), config.batch, world_size()
    own = slice(rank() * size // ranks, (rank() + 1) * size // ranks)

    @lru_cache(maxsize=256)  # asked for twice: by a store, perhaps far ahead, and for the labels
    def of_source(step: int) -> np.ndarray:
        return balanced_batch(source.labels, classes, size, config.seed, step)

    @lru_cache(maxsize=256)
    def of_target(step: int) -> np.ndarray:
        return random_batch(len(target), size, config.seed, step)

    def augmented(
        store: Store, indices: Callable[[int], np.ndarray], stream: Literal["source", "target"]
    ) -> Iterator[Batch]:
        steps = range(start, config.iterations)
        for step, pixels in zip(steps, store.batches(indices(step)[own] for step in steps), strict=True):
            views = draw_views(
                size,
                size=config.resize,
                crop=config.crop,
                kind=config.crop_kind,
                flip=config.flip,
                seed=config.seed,
                step=step,
                stream=stream,
            )
            labels = torch.from_numpy(store.labels[indices(step)]).to(store.device, non_blocking=True)
            yield Batch(augment(pixels, views.part(own), config.crop), labels)

    ours = augmented(source, of_source, "source")
    if method_named(config.method).uses_target:
        yield from zip(ours, augmented(target, of_target, "target"), strict=True)
    else:
        yield from ((batch, None) for batch in ours)
