"""Use of a finished run: another evaluation on its target, and predictions for other images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from adaptive_ot._validation import choice, describe
from adaptive_ot.deep.config import Config
from adaptive_ot.deep.data.domain import UNKNOWN, Domain, digest, domains_of
from adaptive_ot.deep.data.images import ImageFile
from adaptive_ot.deep.data.stores import Store, decoded_parts
from adaptive_ot.deep.device import computing, memory_format, pick_device
from adaptive_ot.deep.evaluation import IMAGES_AT_ONCE, evaluation, outputs
from adaptive_ot.deep.loop import Progress
from adaptive_ot.deep.methods.method import require_finite
from adaptive_ot.deep.networks import Network, build_network
from adaptive_ot.deep.open_set import DECISIVE, Seen, open_set_figures, unmatched_share_of
from adaptive_ot.deep.result import Result
from adaptive_ot.deep.run_directory import Run, read_run
from adaptive_ot.errors import InvalidInput


class Predictions(NamedTuple):
    """The classes of images according to a network.

    Attributes
    ----------
    files, labels, confidence
        Every usable image, the name of its class, and the probability of that class.
    bad
        The unusable images, each with the reason.
    unmatched
        With unknown classes in the target, the share of every usable image that matches no image of the source. Where
        it exceeds the threshold of the run, the label is "unknown"; the probability is still that of a known class.
    """

    files: list[Path]
    labels: list[str]
    confidence: np.ndarray
    bad: list[tuple[str, str]]
    unmatched: np.ndarray | None = None


def evaluate(
    run: Path,
    *,
    root: Path | None = None,
    test_crops: Literal["centre", "ten"] | None = None,
    device: str = "auto",
) -> Result:
    """Evaluate the network of a finished run on its target again.

    Parameters
    ----------
    run
        The directory of the run.
    root
        Where the dataset is now; by default, where it was.
    test_crops
        The centre of an image, or ten crops whose probabilities are averaged; by default, as in the run.
    device
        As PyTorch names it; "auto" is a GPU if there is one.
    """
    found = read_run(run)
    config = at_root(found, root)
    config = config if test_crops is None else replace(config, test_crops=test_crops)
    torch_device = pick_device(device)
    network = network_of(found, torch_device)
    source, target = domains_of(config)
    store = Store(target, config, torch_device, lambda _: None)
    check_data(found, config.root, target=target)
    result = replace(Result.of(found.result or {}, found.path), **evaluation(network, store, config))
    if config.unknown == "refuse":
        return result
    check_data(found, config.root, source=source)
    known = Store(source, config, torch_device, lambda _: None, labelled=True)
    return replace(result, open_set=open_set_figures(network, known, store, config))


@torch.no_grad()
def predict(
    run: Path,
    images: Sequence[Path],
    *,
    root: Path | None = None,
    on_bad_image: Literal["error", "skip"] = "error",
    device: str = "auto",
    progress: Callable[[Progress], None] | None = None,
) -> Predictions:
    """Predict the classes of images with the network of a finished run.

    Parameters
    ----------
    run
        The directory of the run.
    images
        Files.
    root
        Where the dataset is now, of a run with unknown classes in the target; by default, where it was.
    on_bad_image
        "error" raises a `DataError` for the first unusable image; "skip" leaves such images out.
    device
        As PyTorch names it; "auto" is a GPU if there is one.
    progress
        Called now and then, with the number of images as steps.
    """
    choice("on_bad_image", on_bad_image, ("error", "skip"))
    if isinstance(images, str | Path):
        raise InvalidInput("images", "must be a list of files", describe(images), "Put it in brackets.")
    found = read_run(run)
    config, torch_device = found.config, pick_device(device)
    network = network_of(found, torch_device).eval()
    classes = found.record["data"]["classes"]
    sizes = config.bottleneck, len(classes)
    files, bad, seen = [], [], [tuple(torch.zeros(0, size, device=torch_device) for size in sizes)]
    pictures = [ImageFile(str(path), str(path)) for path in images]
    with computing(torch_device, config):
        for part in decoded_parts(pictures, config.resize, torch_device, IMAGES_AT_ONCE, skip=on_bad_image == "skip"):
            bad += [(error.path, error.reason) for error in part.errors]
            files += [images[at] for at in part.indices]
            if part.indices:
                seen.append(outputs(network, part.pixels, config))
            if progress:
                progress(Progress(part.done, len(images), {}))
    images_seen = Seen(*(torch.cat(each).float() for each in zip(*seen, strict=True)))
    require_finite("probabilities of classes", images_seen.probabilities)
    probabilities = images_seen.probabilities.cpu().numpy()
    labels, confidence = [classes[at] for at in probabilities.argmax(1)], probabilities.max(1, initial=0.0)
    if config.unknown == "refuse":
        return Predictions(files, labels, confidence, bad)
    unmatched = _unmatched(found, root, network, torch_device, images_seen)
    limit = _limit(found)
    labels = [UNKNOWN if share > limit else label for share, label in zip(unmatched, labels, strict=True)]
    return Predictions(files, labels, confidence, bad, unmatched)


def _limit(run: Run) -> float:
    """The unmatched share above which an image is called unknown."""
    figures = (Result.of(run.result or {}, run.path).open_set or {}).get(DECISIVE, {})
    if "threshold" not in figures:
        rule, given = f"must hold a result.json with the threshold of '{DECISIVE}'", "one without"
        raise InvalidInput(f"run '{run.path}'", rule, given, "Restore it, or train it again.")
    return figures["threshold"]


def _unmatched(run: Run, root: Path | None, network: Network, device: torch.device, images: Seen) -> np.ndarray:
    """The unmatched share of new images, which needs the images of the run."""
    config = at_root(run, root)
    source, target = domains_of(config)
    check_data(run, config.root, source=source, target=target)
    known = Store(source, config, device, lambda _: None, labelled=True)
    others = Store(target, config, device, lambda _: None)
    return unmatched_share_of(network, known, others, config)(images)


def at_root(run: Run, root: Path | None) -> Config:
    """The config of a run, with the dataset where it is now."""
    if root is not None:
        return replace(run.config, root=root)
    if not run.config.root.exists():
        rule, remedy = "must find its dataset where it was", "Say where it is now, with `root` (--root)."
        raise InvalidInput(f"run '{run.path}'", rule, f"nothing at '{run.config.root}'", remedy)
    return run.config


def check_data(run: Run, root: Path, **domains: Domain) -> None:
    """Refuse a source or target that is not the one of the training."""
    data = run.record["data"]
    for name, domain in domains.items():
        if digest(domain) != data[name] or list(domain.classes) != data["classes"]:
            rule, given = f"must have the {name} it was trained with", f"other images or classes below '{root}'"
            raise InvalidInput(f"run '{run.path}'", rule, given, "Restore them.")


def network_of(run: Run, device: torch.device) -> Network:
    """The network after the last step."""
    name, config, classes = f"run '{run.path}'", run.config, run.record["data"].get("classes", [])
    if run.result is None:
        raise InvalidInput(name, "must be finished", "one that is not", "Give the command that started it again.")
    if run.checkpoint is None:
        remedy = "Train it again; a benchmark keeps networks with `keep_checkpoints = true`."
        raise InvalidInput(name, "must hold its network", "none", remedy)
    step, why = run.checkpoint.step, run.checkpoint.fallback
    if step != config.iterations:
        rule, given = f"must hold the network of its last step, {config.iterations}", f"that of step {step}"
        raise InvalidInput(name, rule, f"{given} ({why})" if why else given, "Train it again.")
    tensors = run.checkpoint.part("network.")
    named = isinstance(classes, list) and all(isinstance(each, str) for each in classes)
    if not named or len(classes) != len(tensors["classifier.bias"]):
        raise InvalidInput(name, "must hold the names of its classes", "others", "Train it again.")
    network: Any = build_network(config.network, len(classes), bottleneck=config.bottleneck, seed=config.seed)
    network.load_state_dict(tensors)
    return network.to(device, memory_format=memory_format(device))
