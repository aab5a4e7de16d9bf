"""Images of both domains of a finished run as its network sees them, to show which of them its method matches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch.nn.functional import interpolate

from adaptive_ot._validation import whole_number
from adaptive_ot.deep.config import Config
from adaptive_ot.deep.data.batches import balanced_selection, random_batch
from adaptive_ot.deep.data.domain import Domain, domains_of
from adaptive_ot.deep.data.stores import decoded_parts
from adaptive_ot.deep.device import computing, pick_device
from adaptive_ot.deep.evaluation import IMAGES_AT_ONCE, outputs
from adaptive_ot.deep.methods import Method, Pair
from adaptive_ot.deep.networks import Network
from adaptive_ot.deep.run_directory import read_run
from adaptive_ot.deep.trained import at_root, check_data, network_of
from adaptive_ot.deep.training import new_method
from adaptive_ot.errors import InvalidInput

# Most pixels on a side.
THUMBNAIL = 64

# Lower bound of probabilities whose logarithm enters a cost.
SMALLEST = 1e-30


class Side(NamedTuple):
    """Images of one domain, as a network sees them."""

    names: list[str]  # of files, or positions in an array
    places: np.ndarray  # in the domain
    labels: np.ndarray  # indices of classes
    thumbnails: np.ndarray  # bytes (n, height, width, 3), at most 64 a side
    features: torch.Tensor  # a row for every image, averaged over its crops
    probabilities: torch.Tensor  # likewise


class Embedding(NamedTuple):
    """Some images of both domains of a run as its network sees them, and the method after the last step."""

    classes: tuple[str, ...]
    source: Side
    target: Side
    method: Method

    def pair(self) -> Pair:
        """All images as one step at the end of the run."""
        device = self.source.features.device
        logits = [side.probabilities.clamp_min(SMALLEST).log() for side in (self.source, self.target)]
        labels, identities = (torch.from_numpy(each).to(device) for each in (self.source.labels, self.target.places))
        features, none = (self.source.features, self.target.features), torch.zeros(0, device=device)
        return Pair(
            features[0],
            logits[0],
            labels,
            features[1],
            logits[1],
            none,
            none,
            identities,
            progress=1.0,
            gather=lambda each: each,
        )


@torch.no_grad()
def embed(
    run: Path,
    *,
    root: Path | None = None,
    samples: int = 1000,
    device: str = "auto",
    seed: int | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Embedding:
    """Some images of both domains as the network of a finished run sees them.

    At most `samples` of either domain: of the source equally many of every class, of the target any. The choice
    depends on the `seed` only, by default that of the run. `run`, `root` and `device` are as in `evaluate`.
    """
    samples, found = whole_number("samples", samples, minimum=1), read_run(run)
    config = at_root(found, root)
    torch_device = pick_device(device)
    network = network_of(found, torch_device).eval()
    source, target = domains_of(config)
    check_data(found, config.root, source=source, target=target)
    seed = config.seed if seed is None else seed
    of_source = balanced_selection(source.labels, samples, seed)
    of_target = np.sort(random_batch(len(target.labels), min(samples, len(target.labels)), seed, 0))
    sides = [
        _side(network, domain, chosen, config, torch_device, progress)
        for domain, chosen in ((source, of_source), (target, of_target))
    ]
    method = new_method(config, len(source.classes)).to(torch_device)
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
    """Some images of a domain; unusable ones are left out if the run skips them."""
    selection = domain.part(chosen)
    images = selection.images
    used, thumbnails, embedded = [], [], []
    size, skip = min(THUMBNAIL, config.resize), config.on_bad_image == "skip"
    with computing(device, config):
        for part in decoded_parts(images, config.resize, device, IMAGES_AT_ONCE, skip=skip):
            if part.indices:
                used += part.indices
                embedded.append(outputs(network, part.pixels, config))
                small = interpolate(part.pixels.float(), size, mode="area").round().byte()
                thumbnails.append(small.permute(0, 2, 3, 1))
            report(f"images of {domain.name}: {part.done} of {len(images)}")
    if not used:
        rule, given = "must hold images that can be used", f"none among {len(images)}"
        raise InvalidInput(f"domain '{domain.name}'", rule, given, "Check the data root.")
    return Side(
        [f"{domain.name} {chosen[k]}" if isinstance(images, np.ndarray) else images[k].name for k in used],
        chosen[used],
        selection.labels[used],
        torch.cat(thumbnails).cpu().numpy(),
        *(torch.cat(part) for part in zip(*embedded, strict=True)),
    )
