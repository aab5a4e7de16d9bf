"""Decoded images of a domain, batch by batch on a device: all kept there, or streamed through worker processes.

Both give the same pixels. They differ in what ``on_bad_image="skip"`` can mean: images that are kept have all been
decoded, so bad ones are left out from the start; of a stream only the headers have been read, so an image that turns
out to be bad later is replaced by the next good one (in the order of the domain, round and round), always the same, and
added to `bad` when that happens. Where labels may be used, that is the next one of its class.
"""

from __future__ import annotations

import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from adaptive_ot._validation import choice, whole_number
from adaptive_ot.deep.data.domain import Domain
from adaptive_ot.deep.data.images import check_image, quietly, read_image
from adaptive_ot.deep.distributed import of_all_processes
from adaptive_ot.errors import DataError, InvalidInput

# A store on the device takes at most this, and at most a quarter of what is free.
LARGEST_STORE = 8 * 2**30

Progress = Callable[[int, int], object]


class Store(ABC):
    """The images of a domain that can be used.

    Attributes
    ----------
    listed
        The domain with all its images.
    domain
        The domain without the images that were left out; indices count in it.
    """

    def __init__(self, listed: Domain, domain: Domain, bad: list[DataError], size: int, device: torch.device) -> None:
        self.listed, self.domain, self.size, self.device = listed, domain, size, device
        self._bad = {error.path: error.reason for error in bad}

    @property
    def labels(self) -> np.ndarray:
        """The class of every image (int64)."""
        return self.domain.labels

    @property
    def bad(self) -> list[tuple[str, str]]:
        """Names of images that could not be used so far, and why."""
        return list(self._bad.items())

    @property
    def usable(self) -> np.ndarray:
        """Which images have not turned out to be bad so far."""
        images = self.domain.images
        if isinstance(images, np.ndarray):
            return np.ones(len(self), np.bool_)
        return np.array([image.name not in self._bad for image in images])

    def agree(self) -> None:
        """Let every process know the bad images that any of them has met; all must call it."""
        self._bad.update(of_all_processes(self.bad))

    def __len__(self) -> int:
        return len(self.labels)

    @abstractmethod
    def batches(self, indices: Iterable[np.ndarray]) -> Iterator[torch.Tensor]:
        """The images of each batch of indices, in order: bytes (b, 3, size, size) on the device."""


def open_store(
    domain: Domain,
    *,
    resize: int,
    device: torch.device,
    storage: Literal["auto", "device", "stream"] = "auto",
    workers: int = 4,
    on_bad_image: Literal["error", "skip"] = "error",
    labelled: bool = True,
    progress: Progress | None = None,
) -> Store:
    """Make the images of a domain available, stretched to `resize` x `resize` RGB pixels.

    Parameters
    ----------
    storage
        ``"device"`` decodes all now and keeps them; ``"stream"`` decodes those that are asked for, in `workers`
        processes ahead of time (0: here, when they are); ``"auto"`` keeps them if they take at most 8 GiB and a quarter
        of the free memory.
    on_bad_image
        ``"error"`` raises the DataError of the first one in the order of the domain; ``"skip"`` leaves them out.
    labelled
        Whether labels may be used, to replace a bad image by one of its class.
    progress
        Called with the number of images that have been looked at, and of all.

    Examples
    --------
    >>> domain = Domain("grey", ("only",), np.full((2, 4, 4), 9, np.uint8), np.array([0, 0]))
    >>> store = open_store(domain, resize=8, device=torch.device("cpu"))
    >>> [batch.shape for batch in store.batches([np.array([1, 0, 1])])]
    [torch.Size([3, 3, 8, 8])]
    """
    whole_number("resize", resize, minimum=1)
    whole_number("workers", workers, minimum=0)
    choice("storage", storage, ("auto", "device", "stream"))
    choice("on_bad_image", on_bad_image, ("error", "skip"))
    if storage == "auto":
        storage = "device" if len(domain.labels) * 3 * resize**2 <= min(LARGEST_STORE, _free(device) // 4) else "stream"
    skip = on_bad_image == "skip"
    with quietly():
        if storage == "device":
            store: Store = _KeptStore(domain, resize, device, skip, progress)
        else:
            store = _StreamedStore(domain, resize, device, skip, progress, workers, labelled)
    if not len(store):
        given = f"{len(store.bad)} that cannot be used" if store.bad else "none"
        raise InvalidInput(f"domain '{domain.name}'", "must hold images", given, "Check the data root.")
    return store


class _KeptStore(Store):
    """All images, decoded, on the device."""

    def __init__(self, domain: Domain, size: int, device: torch.device, skip: bool, progress: Progress | None) -> None:
        pixels = np.empty((len(domain.labels), 3, size, size), np.uint8)
        work = partial(_decoded, size=size)
        super().__init__(domain, *_usable(domain, work, pixels.__setitem__, skip, progress), size, device)
        self.pixels = torch.from_numpy(pixels[: len(self)]).to(device)

    def batches(self, indices: Iterable[np.ndarray]) -> Iterator[torch.Tensor]:
        for batch in indices:
            where = torch.as_tensor(np.asarray(batch, np.int64)).to(self.device, non_blocking=True)
            yield self.pixels.index_select(0, where)


class _StreamedStore(Store):
    """Images decoded when they are asked for, ahead of time by worker processes."""

    def __init__(
        self,
        domain: Domain,
        size: int,
        device: torch.device,
        skip: bool,
        progress: Progress | None,
        workers: int,
        labelled: bool,
    ) -> None:
        super().__init__(domain, *_usable(domain, _checked, lambda place, _: None, skip, progress), size, device)
        self.skip, self.labelled = skip, labelled
        self.workers = min(workers, os.cpu_count() or 1)  # more of them only get in each other's way

    def batches(self, indices: Iterable[np.ndarray]) -> Iterator[torch.Tensor]:
        loader = DataLoader(
            _Batches(self.domain, self.size, self.skip, self.labelled),
            batch_size=None,  # the sampler gives whole batches, and so does the dataset
            sampler=indices,
            num_workers=self.workers,
            generator=torch.Generator(),  # or it would draw from the global one, and change what a training run draws
            pin_memory=self.device.type == "cuda",
            worker_init_fn=_leave_signals_to_the_parent,
        )
        with quietly():  # some versions of Python mind processes that start beside threads
            decoded = iter(loader)
        for pixels, failures in decoded:
            self._bad.update(failures)
            if pixels is None:
                path, reason = failures[-1]
                raise DataError(path, f"{reason}, and no other image in its place can" if self.skip else reason)
            yield pixels.to(self.device, non_blocking=True)


class _Batches(Dataset[Any]):
    """What a worker does: batches of pixels, and what went wrong. That is returned: torch rewrites what is raised."""

    def __init__(self, domain: Domain, size: int, skip: bool, labelled: bool) -> None:
        self.domain, self.size, self.skip, self.labelled = domain, size, skip, labelled

    def __getitem__(self, indices: np.ndarray) -> tuple[torch.Tensor | None, list[tuple[str, str]]]:
        pixels: list[np.ndarray] = []
        failures: list[tuple[str, str]] = []
        with quietly():
            for index in indices:
                for at in self._candidates(int(index)):
                    image = _decoded(self.domain.images[at], self.size)
                    if not isinstance(image, DataError):
                        pixels.append(image)
                        break
                    failures.append((image.path, image.reason))
                else:
                    return None, failures
        return torch.from_numpy(np.stack(pixels)), failures

    def _candidates(self, index: int) -> Iterator[int]:
        """The image itself, then those that may replace it."""
        yield index
        if self.skip:
            labels = self.domain.labels
            others = np.flatnonzero(labels == labels[index]) if self.labelled else np.arange(len(labels))
            yield from np.roll(others, -np.searchsorted(others, index))[1:].tolist()


def _usable(
    domain: Domain,
    work: Callable[[Any], Any],
    keep: Callable[[int, Any], object],
    skip: bool,
    progress: Progress | None,
) -> tuple[Domain, list[DataError]]:
    """What is left of the domain after `work` on every image, and the errors; `keep` gets the good results in order.

    Pillow decodes outside the lock of the interpreter, so threads are enough.
    """
    good, bad = [], []
    pool = ThreadPoolExecutor(os.cpu_count())
    try:
        for at, result in enumerate(pool.map(work, domain.images)):
            if not isinstance(result, DataError):
                keep(len(good), result)
                good.append(at)
            elif skip:
                bad.append(result)
            else:
                raise result
            if progress is not None:
                progress(at + 1, len(domain.images))
    finally:
        pool.shutdown(cancel_futures=True)  # after an error or Ctrl-C nobody waits for the rest
    images = domain.images
    chosen = images[good] if isinstance(images, np.ndarray) else [images[at] for at in good]
    return domain._replace(images=chosen, labels=domain.labels[good]), bad


def _decoded(image: Any, size: int) -> np.ndarray | DataError:
    try:
        return np.ascontiguousarray(read_image(image, size).transpose(2, 0, 1))
    except DataError as error:
        return error


def _checked(image: Any) -> DataError | None:
    try:
        if not isinstance(image, np.ndarray):
            check_image(image)
    except DataError as error:
        return error
    return None


def _free(device: torch.device) -> int:
    """Bytes of memory that are free; all there is, where the system does not say."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    report = Path("/proc/meminfo")
    if report.exists():
        lines = dict(line.split(":", 1) for line in report.read_text().splitlines())
        return int(lines["MemAvailable"].split()[0]) * 1024
    if hasattr(os, "sysconf"):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 4 * LARGEST_STORE


def _leave_signals_to_the_parent(worker: int) -> None:
    """Ctrl-C reaches every process, but one report is enough; and a handler of the parent must not keep us alive."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
