"""A finished run put to use: another look at its target, and the classes of other images."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from adaptive_ot._validation import choice, describe
from adaptive_ot.deep.config import Config
from adaptive_ot.deep.data.digest import digest
from adaptive_ot.deep.data.domain import read_domains
from adaptive_ot.deep.data.images import ImageFile, quietly, read_image
from adaptive_ot.deep.device import computing, memory_format, pick_device
from adaptive_ot.deep.evaluate import IMAGES_AT_ONCE, of_pixels, probabilities
from adaptive_ot.deep.feed import store_of
from adaptive_ot.deep.judging import Result, judge
from adaptive_ot.deep.loop import Progress
from adaptive_ot.deep.methods.method import require_finite
from adaptive_ot.deep.networks import Network, build_network
from adaptive_ot.deep.run_directory import Run, read_run
from adaptive_ot.errors import DataError, InvalidInput


class Predictions(NamedTuple):
    """What a network says of images.

    Attributes
    ----------
    files, labels, confidence
        Every image that could be used, the name of its class, and the probability of it.
    bad
        Those that could not, and why.
    """

    files: list[Path]
    labels: list[str]
    confidence: np.ndarray
    bad: list[tuple[str, str]]


def evaluate(
    run: Path,
    *,
    root: Path | None = None,
    test_crops: Literal["centre", "ten"] | None = None,
    device: str = "auto",
) -> Result:
    """Look again at how well the network of a finished run knows its target.

    Parameters
    ----------
    run
        The directory of the run.
    root
        Where the dataset is now; where it was, if not given.
    test_crops
        The centre of an image, or ten crops whose probabilities are averaged; as in the run, if not given.
    device
        As PyTorch names it; "auto" is a GPU if there is one.
    """
    found = read_run(run)
    config = at_root(run, found.config, root)
    config = config if test_crops is None else replace(config, test_crops=test_crops)
    place = pick_device(device)
    network = network_of(run, found, place)
    target = read_domains(config.dataset, config.root, config.source, config.target, config.target_classes)[1]
    store = store_of(target, config, place, lambda _: None)
    if digest(target) != found.data["target"]:
        raise of_other_data(run, "target", config.root)
    predicted = probabilities(network, store, config).argmax(1)
    accuracy = judge(predicted[store.usable], store.labels[store.usable], target.classes)
    return replace(
        Result.of(found.result or {}, Path(run)),
        accuracy=accuracy.overall,
        mean_class_accuracy=accuracy.mean_class,
        per_class=accuracy.per_class,
    )


@torch.no_grad()
def predict(
    run: Path,
    images: Sequence[Path],
    *,
    on_bad_image: Literal["error", "skip"] = "error",
    device: str = "auto",
    progress: Callable[[Progress], None] | None = None,
) -> Predictions:
    """The classes of images, by the network of a finished run.

    Parameters
    ----------
    run
        The directory of the run.
    images
        Files.
    on_bad_image
        "error" raises a `DataError` for the first one that cannot be used; "skip" leaves such images out.
    device
        As PyTorch names it; "auto" is a GPU if there is one.
    progress
        Called now and then, with the number of images as steps.
    """
    choice("on_bad_image", on_bad_image, ("error", "skip"))
    if isinstance(images, str | Path):
        raise InvalidInput("images", "must be a list of files", describe(images), "Put it in brackets.")
    found = read_run(run)
    place = pick_device(device)
    network = network_of(run, found, place).eval()
    files, bad, likely = [], [], [np.zeros((0, len(found.data["classes"])), np.float32)]
    pictures = [ImageFile(str(path), str(path)) for path in images]
    with quietly(), computing(place, found.config):
        for stop, good, pixels, errors in decoded(pictures, found.config.resize, place):
            if errors and on_bad_image == "error":
                raise errors[0]
            bad += [(error.path, error.reason) for error in errors]
            files += [images[at] for at in good]
            if good:
                likely.append(of_pixels(network, pixels, found.config).float().cpu().numpy())
            if progress:
                progress(Progress(stop, len(images), {}))
    all_likely = np.concatenate(likely)
    require_finite("probabilities of classes", torch.from_numpy(all_likely))
    labels = [found.data["classes"][at] for at in all_likely.argmax(1)]
    return Predictions(files, labels, all_likely.max(1, initial=0.0), bad)


def at_root(run: Path, config: Config, root: Path | None) -> Config:
    """The config of a run, with the dataset where it is now."""
    if root is not None:
        return replace(config, root=root)
    if not config.root.exists():
        rule, remedy = "must find its dataset where it was", "Say where it is now, with `root` (--root)."
        raise InvalidInput(f"run '{run}'", rule, f"nothing at '{config.root}'", remedy)
    return config


def of_other_data(run: Path, domain: str, root: Path) -> InvalidInput:
    """What to raise where the source or target of a run is not what it was."""
    rule, given = f"must have the {domain} it was trained with", f"other images or classes below '{root}'"
    return InvalidInput(f"run '{run}'", rule, given, "Restore them.")


def network_of(run: Path, found: Run, device: torch.device) -> Network:
    """As it was after the last step."""
    name, config, classes = f"run '{run}'", found.config, found.data.get("classes", [])
    if found.result is None:
        raise InvalidInput(name, "must be finished", "one that is not", "Give the command that started it again.")
    if found.checkpoint is None:
        remedy = "Train it again; a benchmark keeps networks with `keep_checkpoints = true`."
        raise InvalidInput(name, "must hold its network", "none", remedy)
    step, why = found.checkpoint.step, found.checkpoint.fallback
    if step != config.iterations:
        rule, given = f"must hold the network of its last step, {config.iterations}", f"that of step {step}"
        raise InvalidInput(name, rule, f"{given} ({why})" if why else given, "Train it again.")
    tensors = found.checkpoint.part("network.")
    named = isinstance(classes, list) and all(isinstance(each, str) for each in classes)
    if not named or len(classes) != len(tensors["classifier.bias"]):
        raise InvalidInput(name, "must hold the names of its classes", "others", "Train it again.")
    network: Any = build_network(config.network, len(classes), bottleneck=config.bottleneck, seed=config.seed)
    network.load_state_dict(tensors)
    return network.to(device, memory_format=memory_format(device))


def decoded(
    images: Sequence[ImageFile] | np.ndarray, size: int, device: torch.device
) -> Iterator[tuple[int, list[int], torch.Tensor, list[DataError]]]:
    """Part by part: how many have been looked at, which of them can be used, their pixels, and what is wrong else."""
    read = partial(_read, size=size)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for start in range(0, len(images), IMAGES_AT_ONCE):
            found = list(pool.map(read, images[start : start + IMAGES_AT_ONCE]))
            pixels = [each for each in found if isinstance(each, np.ndarray)]
            good = [start + at for at, each in enumerate(found) if isinstance(each, np.ndarray)]
            stacked = torch.from_numpy(np.array(pixels, np.uint8).reshape(-1, size, size, 3))
            errors = [each for each in found if isinstance(each, DataError)]
            yield start + len(found), good, stacked.to(device).permute(0, 3, 1, 2).contiguous(), errors


def _read(image: ImageFile | np.ndarray, size: int) -> np.ndarray | DataError:
    try:
        return read_image(image, size)
    except DataError as error:
        return error
