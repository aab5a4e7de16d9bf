"""Networks: images in [0, 1] to features and class scores; initial weights depend on the seed only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from difflib import get_close_matches
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.functional import adaptive_avg_pool1d

from adaptive_ot._validation import describe, nearest
from adaptive_ot.deep._torchvision import models
from adaptive_ot.deep.device import full_precision
from adaptive_ot.deep.weights import load_backbone
from adaptive_ot.errors import InvalidInput, MissingDependency

TIMM = "timm:"


class Normalise(nn.Module):
    """Images in [0, 1], RGB, as the weights of a backbone expect them: (image - mean) / deviation for each channel.

    The constants belong to the name of the network, not to its weights, and so are not in the state dict.
    """

    mean: torch.Tensor
    deviation: torch.Tensor

    def __init__(self, mean: tuple[float, ...], deviation: tuple[float, ...], *, bgr: bool = False) -> None:
        super().__init__()
        self.bgr = bgr
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1), persistent=False)
        self.register_buffer("deviation", torch.tensor(deviation).view(-1, 1, 1), persistent=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return ((images.flip(1) if self.bgr else images) - self.mean) / self.deviation


class MeanPool(nn.Module):
    """The mean over all places in full precision, with a deterministic gradient on GPUs (as in GridPool)."""

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        return maps.mean((2, 3), dtype=torch.promote_types(maps.dtype, torch.float32))


class GridPool(nn.Module):
    """The means over the cells of a grid, as nn.AdaptiveAvgPool2d, but with a deterministic gradient on GPUs."""

    def __init__(self, parts: int) -> None:
        super().__init__()
        self.parts = parts

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        rows, columns = (
            adaptive_avg_pool1d(torch.eye(size, dtype=maps.dtype, device=maps.device), self.parts)
            for size in maps.shape[2:]
        )
        return (rows.T @ maps @ columns).flatten(1)


class Backbone(NamedTuple):
    """A module from images to vectors, with the normalisation that it expects."""

    body: nn.Module
    width: int  # of the vectors
    normalise: Normalise
    published_head: tuple[str, ...] = ("fc",)  # name of the removed classifier in files of weights


class Network(nn.Module):
    """Normalisation, backbone, linear bottleneck, linear classifier.

    The head is that of the official code of JUMBOT (github.com/kilianFatras/JUMBOT): no BatchNorm, no ReLU, weights
    Xavier-normal, biases zero.
    """

    def __init__(self, name: str, backbone: Backbone, bottleneck: int, classes: int) -> None:
        super().__init__()
        self.name, self.published_head = name, backbone.published_head
        self.normalise, self.backbone = backbone.normalise, backbone.body
        self.bottleneck = nn.Linear(backbone.width, bottleneck)
        self.classifier = nn.Linear(bottleneck, classes)
        for layer in (self.bottleneck, self.classifier):
            nn.init.xavier_normal_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Features (n, bottleneck) and logits (n, classes) of images (n, 3, height, width) in [0, 1], RGB."""
        vectors = self.backbone(self.normalise(images))
        with full_precision(images.device):  # which costs these layers nothing
            features = self.bottleneck(vectors.to(self.bottleneck.weight.dtype))
            return features, self.classifier(features)

    def head_parameters(self) -> Iterator[nn.Parameter]:
        """Parameters that always start from scratch, unlike those of the backbone."""
        yield from self.bottleneck.parameters()
        yield from self.classifier.parameters()


def build_network(
    name: str, classes: int, *, bottleneck: int = 512, weights: str | None = None, seed: int = 0
) -> Network:
    """A network with `classes` scores and `bottleneck` features; a pure function of the arguments.

    Parameters
    ----------
    name
        ``resnet18``, ``resnet34``, ``resnet50``, ``resnet101`` (torchvision), ``resnet50-caffe`` (for weights of Keras
        or Caffe), ``convnet`` (small, for digits), or ``timm:NAME``.
    weights
        Of the backbone: a .safetensors, .pth or .pt file, or ``imagenet`` to download them; None starts from scratch.
    """
    of_timm = isinstance(name, str) and name.startswith(TIMM)
    if not of_timm and name not in BACKBONES:
        rule = f"must be one of {', '.join(BACKBONES)}, or {TIMM}NAME"
        raise InvalidInput("network", rule, describe(name), f"{nearest(name, BACKBONES)}Choose one of them.")
    # torch.manual_seed would reseed the generators of all GPUs as well.
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)
        backbone = _timm(name.removeprefix(TIMM)) if of_timm else BACKBONES[name]()
        network = Network(name, backbone, bottleneck, classes)
    if weights is not None:
        load_backbone(network, weights)
    return network


def _resnet(name: str) -> Backbone:
    body: Any = getattr(models, name)(weights=None)
    width = body.fc.in_features
    body.avgpool, body.fc = MeanPool(), nn.Identity()
    return Backbone(body, width, Normalise((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))


def _resnet50_caffe() -> Backbone:
    """ResNet-50 as first published: stages shrink at the first 1 x 1 convolution, images are BGR from 0 to 255.

    Keras adds 1.001e-5 to variances where torch adds 1e-5, a difference below the rounding of its weights.
    """
    backbone = _resnet("resnet50")
    body: Any = backbone.body
    for stage in (body.layer2, body.layer3, body.layer4):
        stage[0].conv1.stride, stage[0].conv2.stride = (2, 2), (1, 1)
    mean = (103.939 / 255, 116.779 / 255, 123.68 / 255)
    return backbone._replace(normalise=Normalise(mean, (1 / 255,) * 3, bgr=True))


def _convnet() -> Backbone:
    """Three convolutions, then the means over the 4 x 4 places that remain of 28 x 28 or 32 x 32 pixels."""

    def stage(before: int, after: int) -> nn.Module:
        convolution = nn.Conv2d(before, after, 3, padding=1, bias=False)
        half = nn.MaxPool2d(2, ceil_mode=True)  # keeps a single pixel
        return nn.Sequential(convolution, nn.BatchNorm2d(after), nn.ReLU(inplace=True), half)

    body = nn.Sequential(stage(3, 16), stage(16, 32), stage(32, 64), GridPool(4))
    return Backbone(body, 64 * 4 * 4, Normalise((0.5,) * 3, (0.5,) * 3))


def _timm(name: str) -> Backbone:
    if find_spec("timm") is None:
        raise MissingDependency("timm", "timm")
    import timm  # after torchvision, which it imports
    from timm.data.config import resolve_model_data_config

    if not timm.is_model(name):
        close = get_close_matches(name, timm.list_models(), 3)
        remedy = f"Did you mean {' or '.join(TIMM + each for each in close)}?" if close else "See timm.list_models()."
        raise InvalidInput("network", f"must name a model of timm after {TIMM}", describe(name), remedy)
    body: Any = timm.create_model(name, pretrained=False, num_classes=0)
    about, head = resolve_model_data_config(body), body.pretrained_cfg.get("classifier") or ()
    width = getattr(body, "head_hidden_size", None) or body.num_features
    return Backbone(body, width, Normalise(about["mean"], about["std"]), (head,) if isinstance(head, str) else head)


BACKBONES: dict[str, Callable[[], Backbone]] = {
    **{name: partial(_resnet, name) for name in ("resnet18", "resnet34", "resnet50", "resnet101")},
    "resnet50-caffe": _resnet50_caffe,
    "convnet": _convnet,
}
