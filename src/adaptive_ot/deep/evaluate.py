"""What a trained network says of images."""

from __future__ import annotations

import numpy as np
import torch

from adaptive_ot.deep.config import Config
from adaptive_ot.deep.data.augment import test_views
from adaptive_ot.deep.data.stores import Store
from adaptive_ot.deep.device import computing
from adaptive_ot.deep.distributed import gather, rank, world_size
from adaptive_ot.deep.methods.method import require_finite
from adaptive_ot.deep.networks import Network

IMAGES_AT_ONCE = 256


@torch.no_grad()
def probabilities(network: Network, store: Store, config: Config) -> np.ndarray:
    """Of every class (columns) for every image (rows), the mean over the crops of it; processes share the work."""
    was_training = network.training
    network.eval()
    count, ranks = len(store), world_size()
    own = np.arange(count)[rank() * count // ranks : (rank() + 1) * count // ranks]
    step = max(1, IMAGES_AT_ONCE // (10 if config.test_crops == "ten" else 1))
    parts = [own[start : start + step] for start in range(0, len(own), step)]
    classes = network.classifier.out_features
    found = [torch.zeros(0, classes, device=store.device)]
    with computing(store.device, config):
        found += [of_pixels(network, pixels, config) for pixels in store.batches(parts)]
    network.train(was_training)
    store.agree()
    likely = gather(torch.cat(found))
    require_finite("probabilities of classes", likely)
    return likely.cpu().numpy()


def of_pixels(network: Network, pixels: torch.Tensor, config: Config) -> torch.Tensor:
    """The same for one batch of bytes (n, 3, size, size)."""
    views = [network(view)[1].softmax(1) for view in test_views(pixels, config.crop, config.test_crops)]
    return torch.stack(views).mean(0)
