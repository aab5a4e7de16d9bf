"""Both domains of a finished run as its network sees them: for a look at what its method matches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch.nn.functional import interpolate

from adaptive_ot._validation import whole_number
from adaptive_ot.deep.config import Config
from adaptive_ot.deep.data.augment import test_views
from adaptive_ot.deep.data.batches import balanced_selection, random_batch
from adaptive_ot.deep.data.digest import digest
from adaptive_ot.deep.data.domain import Domain, read_domains
from adaptive_ot.deep.data.images import quietly
from adaptive_ot.deep.device import computing, pick_device
from adaptive_ot.deep.finished import at_root, decoded, network_of, of_other_data
from adaptive_ot.deep.methods import Method, Pair
from adaptive_ot.deep.networks import Network
from adaptive_ot.deep.run_directory import read_run
from adaptive_ot.deep.training import new_method
from adaptive_ot.errors import InvalidInput

# Pixels a side, at most.
THUMBNAIL = 64

# Probabilities of no more have no logarithm that a cost could use.
SMALLEST = 1e-30


class Side(NamedTuple):
    """Images of one domain, as a network sees them.

    Attributes
    ----------
    names
        Of the files, or where they are in an array.
    labels
        The places of their classes.
    thumbnails
        Bytes (n, height, width, 3), at most 64 a side.
    features, probabilities
        Of every image (rows), the means over its crops.
    """

    names: list[str]
    labels: np.ndarray
    thumbnails: np.ndarray
    features: torch.Tensor
    probabilities: torch.Tensor


class Embedding(NamedTuple):
    """Some images of both domains of a run as its network sees them, and the method as it was after the last step."""

    classes: tuple[str, ...]
    source: Side
    target: Side
    method: Method

    def pair(self) -> Pair:
        """All of them as one step at the end of the run."""
        device = self.source.features.device
        logits = [side.probabilities.clamp_min(SMALLEST).log() for side in (self.source, self.target)]
        labels, none = torch.from_numpy(self.source.labels).to(device), torch.zeros(0, device=device)
        features = self.source.features, self.target.features
        return Pair(features[0], logits[0], labels, features[1], logits[1], none, none, 1.0, lambda each: each)


@torch.no_grad()
def embed(
    run: Path,
    *,
    root: Path | None = None,
    samples: int = 1000,
    device: str = "auto",
    progress: Callable[[str], None] | None = None,
) -> Embedding:
    """Some images of both domains as the network of a finished run sees them.

    Parameters
    ----------
    run
        The directory of the run.
    root
        Where the dataset is now; where it was, if not given.
    samples
        The most images of either domain: as many of every class of the source as there are, and any of the target. They
        depend on the seed of the run alone.
    device
        As PyTorch names it; "auto" is a GPU if there is one.
    progress
        Called with what is done, now and then.
    """
    samples, found = whole_number("samples", samples, minimum=1), read_run(run)
    config = at_root(run, found.config, root)
    place = pick_device(device)
    network = network_of(run, found, place).eval()
    domains = read_domains(config.dataset, config.root, config.source, config.target, config.target_classes)
    for name, domain in zip(("source", "target"), domains, strict=True):
        if digest(domain) != found.data[name] or list(domain.classes) != found.data["classes"]:
            raise of_other_data(run, name, config.root)
    source, target = domains
    chosen = (
        balanced_selection(source.labels, samples, config.seed),
        np.sort(random_batch(len(target.labels), min(samples, len(target.labels)), config.seed, 0)),
    )
    sides = [
        _side(network, domain, which, config, place, progress or (lambda _: None))
        for domain, which in zip(domains, chosen, strict=True)
    ]
    method = new_method(config, len(source.classes)).to(place)
    method.begin(network)
    assert found.checkpoint is not None  # there is a network
    method.load_state_dict(found.checkpoint.part("method."))
    return Embedding(source.classes, sides[0], sides[1], method.eval())


def _side(
    network: Network,
    domain: Domain,
    chosen: np.ndarray,
    config: Config,
    device: torch.device,
    report: Callable[[str], None],
) -> Side:
    """What the network makes of some images of a domain; those that cannot be used are left out, if the run does."""
    files = domain.images
    images = files[chosen] if isinstance(files, np.ndarray) else [files[at] for at in chosen]
    used, thumbnails, features, probabilities = [], [], [], []
    size = min(THUMBNAIL, config.resize)
    with quietly(), computing(device, config):
        for stop, good, pixels, errors in decoded(images, config.resize, device):
            if errors and config.on_bad_image == "error":
                raise errors[0]
            views = [network(view) for view in test_views(pixels, config.crop, config.test_crops)] if good else []
            used += good
            if good:
                features.append(torch.stack([each.float() for each, _ in views]).mean(0))
                probabilities.append(torch.stack([logits.float().softmax(1) for _, logits in views]).mean(0))
                thumbnails.append(interpolate(pixels.float(), size, mode="area").round().byte().permute(0, 2, 3, 1))
            report(f"images of {domain.name}: {stop} of {len(images)}")
    if not used:
        rule, given = "must hold images that can be used", f"none among {len(images)}"
        raise InvalidInput(f"domain '{domain.name}'", rule, given, "Check the data root.")
    at = chosen[used]
    return Side(
        [f"{domain.name} {k}" if isinstance(files, np.ndarray) else files[k].name for k in at],
        domain.labels[at],
        torch.cat(thumbnails).cpu().numpy(),
        torch.cat(features),
        torch.cat(probabilities),
    )
