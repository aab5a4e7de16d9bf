"""Decoded images of a domain, batch by batch on a device: all kept there, or streamed through worker processes.

Both give the same pixels, but treat bad images differently with ``on_bad_image="skip"``. Kept images have all been
decoded, so bad ones are left out from the start. Of a stream only the headers have been read: an image that turns out
to be bad later is replaced by the next good one in the order of the domain, cyclically and always the same one, and
added to `bad`. Where labels may be used, it is the next one of the same class.
"""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from adaptive_ot.deep.config import Config
from adaptive_ot.deep.data.domain import Domain
from adaptive_ot.deep.data.images import ImageFile, check_image, quietly, read_image
from adaptive_ot.deep.distributed import of_all_processes
from adaptive_ot.errors import DataError, InvalidInput

# Largest store on the device in bytes; it also takes at most a quarter of the free memory.
LARGEST_STORE = 8 * 2**30


class Store:
    """The usable images of a domain, stretched to `resize` x `resize` RGB pixels.

    The ``storage`` "device" decodes all images now and keeps them; "stream" decodes them on demand, ahead of time in
    worker processes; "auto" keeps them if they take at most 8 GiB and a quarter of the free memory. Bad images raise
    the error of the first one in the order of the domain, or are skipped.

    Parameters
    ----------
    listed
        The domain with all its images.
    report
        Called with a line on the progress now and then.
    labelled
        Whether labels may be used, to replace a bad image by one of its class.

    Attributes
    ----------
    domain, labels
        The domain without the images that were left out, and the classes of its images; indices count in it.
    places
        The places of these images in the domain with all its images.
    pixels
        All images on the device, if they are kept.
    bad
        Names of the images that could not be used so far, each with the reason.
    """

    def __init__(
        self,
        listed: Domain,
        config: Config,
        device: torch.device,
        report: Callable[[str], None],
        *,
        labelled: bool = False,
    ) -> None:
        self.listed, self.config, self.device, self.labelled = listed, config, device, labelled
        self.skip = config.on_bad_image == "skip"
        self.bad: dict[str, str] = {}
        shape = len(listed.labels), 3, config.resize, config.resize
        fits = config.storage == "auto" and math.prod(shape) <= min(LARGEST_STORE, _free(device) // 4)
        pixels = np.empty(shape, np.uint8) if fits or config.storage == "device" else None
        with quietly():
            good = self._usable_indices(pixels, report)
        if not good:
            given = f"{len(self.bad)} that cannot be used" if self.bad else "none"
            raise InvalidInput(f"domain '{listed.name}'", "must hold images", given, "Check the data root.")
        self.domain = listed.part(good)
        self.labels, self.places = self.domain.labels, np.array(good)
        self.pixels = None if pixels is None else torch.from_numpy(pixels[: len(good)]).to(device)

    def _usable_indices(self, pixels: np.ndarray | None, report: Callable[[str], None]) -> list[int]:
        """Decode all images into `pixels`, or read their headers; in threads, since Pillow releases the lock."""
        good: list[int] = []
        examine = _header_error if pixels is None else partial(_decoded, size=self.config.resize)
        pool = ThreadPoolExecutor(os.cpu_count())
        try:
            for done, found in enumerate(pool.map(examine, self.listed.images), 1):
                if not isinstance(found, DataError):
                    if pixels is not None:
                        pixels[len(good)] = found
                    good.append(done - 1)
                elif self.skip:
                    self.bad[found.path] = found.reason
                else:
                    raise found
                if done % 100 == 0:
                    report(f"images of {self.listed.name}: {done} of {len(self.listed.images)}")
        finally:
            pool.shutdown(cancel_futures=True)  # do not wait for the rest after an error or Ctrl-C
        return good

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def usable(self) -> np.ndarray:
        """Mask of the images that have not turned out to be bad so far."""
        images = self.domain.images
        if isinstance(images, np.ndarray):
            return np.ones(len(self), np.bool_)
        return np.array([image.name not in self.bad for image in images])

    def agree(self) -> None:
        """Share the bad images that any process has met; all processes must call it."""
        self.bad.update(of_all_processes(list(self.bad.items())))

    def batches(self, indices: Iterable[np.ndarray]) -> Iterator[torch.Tensor]:
        """The images of each batch of indices, in order: bytes (b, 3, size, size) on the device."""
        if self.pixels is None:
            yield from self._streamed(indices)
            return
        for batch in indices:
            where = torch.as_tensor(np.asarray(batch, np.int64)).to(self.device, non_blocking=True)
            yield self.pixels.index_select(0, where)

    def _streamed(self, indices: Iterable[np.ndarray]) -> Iterator[torch.Tensor]:
        loader = DataLoader(
            _Batches(self.domain, self.config.resize, self.skip, self.labelled),
            batch_size=None,  # the sampler gives whole batches, and so does the dataset
            sampler=indices,
            num_workers=min(self.config.workers, os.cpu_count() or 1),  # more would only compete
            generator=torch.Generator(),  # the global one is left to the training
            pin_memory=self.device.type == "cuda",
            worker_init_fn=_leave_signals_to_the_parent,
        )
        with quietly():  # some versions of Python warn of processes started beside threads
            decoded = iter(loader)
        for pixels, failures in decoded:
            self.bad.update(failures)
            if pixels is None:
                path, reason = failures[-1]
                raise DataError(path, f"{reason}, and no other image in its place can" if self.skip else reason)
            yield pixels.to(self.device, non_blocking=True)


class _Batches(Dataset[Any]):
    """Batches of pixels and failures, computed by a worker. Failures are returned: torch rewrites what is raised."""

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
        """The image itself, then its possible replacements."""
        yield index
        if self.skip:
            labels = self.domain.labels
            others = np.flatnonzero(labels == labels[index]) if self.labelled else np.arange(len(labels))
            yield from np.roll(others, -np.searchsorted(others, index))[1:].tolist()


class DecodedPart(NamedTuple):
    """Some images: how many are done by now, the indices of the usable ones, their pixels, and errors of the others."""

    done: int
    indices: list[int]
    pixels: torch.Tensor
    errors: list[DataError]


def decoded_parts(
    images: Sequence[ImageFile] | np.ndarray, size: int, device: torch.device, count: int, *, skip: bool
) -> Iterator[DecodedPart]:
    """Decode images in order, at most `count` at once. The first bad one raises its error unless they are skipped."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for start in range(0, len(images), count):
            with quietly():
                found = list(pool.map(partial(_decoded, size=size), images[start : start + count]))
            errors = [each for each in found if isinstance(each, DataError)]
            if errors and not skip:
                raise errors[0]
            good = {start + at: each for at, each in enumerate(found) if isinstance(each, np.ndarray)}
            pixels = torch.from_numpy(np.array([*good.values()], np.uint8).reshape(-1, 3, size, size)).to(device)
            yield DecodedPart(start + len(found), [*good], pixels, errors)


def _decoded(image: Any, size: int) -> np.ndarray | DataError:
    try:
        return np.ascontiguousarray(read_image(image, size).transpose(2, 0, 1))
    except DataError as error:
        return error


def _header_error(image: Any) -> DataError | None:
    try:
        if not isinstance(image, np.ndarray):
            check_image(image)
    except DataError as error:
        return error
    return None


def _free(device: torch.device) -> int:
    """Bytes of free memory; all memory, where the system does not report it."""
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
    """Ctrl-C reaches every process, but one report is enough; SIGTERM ends workers, whatever the parent does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
