"""Predictions of a network for images, and their accuracy."""

from __future__ import annotations

from typing import Any

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


def evaluation(network: Network, store: Store, config: Config) -> dict[str, Any]:
    """The accuracies of a network on a labelled domain, on the images of known classes."""
    predicted, usable = probabilities(network, store, config).argmax(1), store.usable & store.domain.known
    return accuracies(predicted[usable], store.labels[usable], store.domain.classes)


def accuracies(predicted: np.ndarray, labels: np.ndarray, classes: tuple[str, ...]) -> dict[str, Any]:
    """Overall accuracy, that of every class that occurs, and the mean over these classes.

    Examples
    --------
    >>> accuracies(np.array([0, 1, 1, 1]), np.array([0, 0, 0, 1]), ("cat", "dog", "owl"))["per_class"]
    {'cat': 0.3333333333333333, 'dog': 1.0}
    """
    right = predicted == labels
    per_class = {name: float(right[labels == k].mean()) for k, name in enumerate(classes) if (labels == k).any()}
    mean = float(np.mean(list(per_class.values())))
    return {"accuracy": float(right.mean()), "mean_class_accuracy": mean, "per_class": per_class}


def probabilities(network: Network, store: Store, config: Config) -> np.ndarray:
    """Class probabilities (columns) of every image (rows), averaged over its crops; processes share the work."""
    return embedded(network, store, config)[1].cpu().numpy()


@torch.no_grad()
def embedded(
    network: Network, store: Store, config: Config, chosen: np.ndarray | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Features and class probabilities of every image, or of those with some indices; processes share the work."""
    was_training = network.training
    network.eval()
    chosen = np.arange(len(store)) if chosen is None else chosen
    count, ranks = len(chosen), world_size()
    own = chosen[rank() * count // ranks : (rank() + 1) * count // ranks]
    step = max(1, IMAGES_AT_ONCE // (10 if config.test_crops == "ten" else 1))
    parts = [own[start : start + step] for start in range(0, len(own), step)]
    sizes = network.classifier.in_features, network.classifier.out_features
    found = [tuple(torch.zeros(0, size, device=store.device) for size in sizes)]
    with computing(store.device, config):
        found += [outputs(network, pixels, config) for pixels in store.batches(parts)]
    network.train(was_training)
    store.agree()
    features, likely = (gather(torch.cat(each)) for each in zip(*found, strict=True))
    require_finite("probabilities of classes", likely)
    return features, likely


def outputs(network: Network, pixels: torch.Tensor, config: Config) -> tuple[torch.Tensor, torch.Tensor]:
    """Features and class probabilities of bytes (n, 3, size, size), averaged over the crops of each image."""
    views = [network(view) for view in test_views(pixels, config.crop, config.test_crops)]
    features = torch.stack([features.float() for features, _ in views]).mean(0)
    return features, torch.stack([logits.softmax(1) for _, logits in views]).mean(0)
