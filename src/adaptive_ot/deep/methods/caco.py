"""CaCo: target features are attracted by the keys of their class, from both domains, and repelled by the others.

Huang, Guan, Xiao, Lu, Shao, "Category Contrast for Unsupervised Domain Adaptation in Visual Tasks", CVPR 2022;
jxhuang0508/CaCo (in caco: domain_adaptation/train_UDA_f.py, config.py; utils/loss_caco.py), which is for segmentation
only. Here it is adapted to images:

- A key is the feature of one image by the momentum encoder; there it is the mean over the pixels of a class, and the
  source's by the network itself. Source keys enter under their label, target keys under the encoder's prediction where
  that is sure. As there, the contrast begins once every class has all its keys, and reliable keys weigh more.
- A query is compared with the keys of its class on average; there the sum is divided by the number of all keys, and
  weighs 0.01. The consistency of predictions between two scales of an image is left out.
- There training begins with a network that knows the source. Here nothing is learned yet: the encoder's momentum rises
  as (1 + t) / (10 + t) to its value, and the weight of the contrast along the ramp of the adversarial methods.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from adaptive_ot.deep.fields import BelowOne, Count, NotNegative, Positive, Share
from adaptive_ot.deep.methods.method import Alignment, Method, Pair, ramp


class CaCo(Method):
    """Category contrast."""

    @dataclass(frozen=True)
    class Settings:
        """Defaults of the official code."""

        trade_off: NotNegative = 1.0
        keys: Count = 100  # of every class
        temperature: Positive = 0.07
        momentum: Share = 0.999
        threshold: Share = 0.9  # least confidence of a prediction for a target image to become a key
        reliability_margin: BelowOne = 0.1  # weights of keys differ from 1 by at most this

    encoder: nn.Module
    keys: torch.Tensor
    reliability: torch.Tensor
    entered: torch.Tensor
    steps: torch.Tensor

    def __init__(self, settings: Settings, features: int, classes: int) -> None:
        super().__init__(settings, features, classes)
        self.register_buffer("keys", torch.zeros(classes, settings.keys, features))
        self.register_buffer("reliability", torch.ones(classes, settings.keys))
        self.register_buffer("entered", torch.zeros(classes, dtype=torch.int64))  # number of keys so far
        self.register_buffer("steps", torch.zeros(()))

    def begin(self, network: nn.Module) -> None:
        self.encoder = copy.deepcopy(network).requires_grad_(False)

    def alignment(self, pair: Pair) -> Alignment:
        with torch.no_grad():
            source_keys = pair.gather(self.encoder(pair.source_images)[0])
            target_keys, target_logits = (pair.gather(part.float()) for part in self.encoder(pair.target_images))
            probabilities = target_logits.softmax(1)
            confidence, guess = probabilities.max(1)
            sure = confidence >= self.settings.threshold
            known = torch.zeros_like(pair.source_labels)
            self.enter(source_keys, pair.source_labels, self.reliability_of(known.float()), known == 0)
            entropy = -(probabilities * target_logits.log_softmax(1)).sum(1)
            self.enter(target_keys, guess, self.reliability_of(entropy), sure)
            is_full = (self.entered >= self.settings.keys).all()

        contrast = torch.where(is_full, self.contrast(pair.target_features, guess), 0.0)
        terms = {"contrast": contrast.detach(), "sure": sure.float().mean(), "dictionary_full": is_full.float()}
        return Alignment(self.settings.trade_off * ramp(pair.progress) * contrast, terms)

    def reliability_of(self, entropy: torch.Tensor) -> torch.Tensor:
        """The weight of a key, from the entropy of its prediction."""
        margin = self.settings.reliability_margin
        return (1.0 + margin - entropy / math.log(self.classes)).clamp(1.0 - margin, 1.0 + margin)

    def enter(
        self, features: torch.Tensor, labels: torch.Tensor, reliability: torch.Tensor, accepted: torch.Tensor
    ) -> None:
        """Put the accepted samples into the dictionary, each in place of the oldest key of its class."""
        member = functional.one_hot(labels, self.classes) * accepted.unsqueeze(1)
        earlier = (member.cumsum(0) - member).gather(1, labels.unsqueeze(1)).squeeze(1)
        size, count = self.settings.keys, member.sum(0)
        stays = accepted & (count[labels] - earlier <= size)  # a batch may have more than fit
        # An extra slot takes all others: shapes that depend on values would wait for the GPU.
        slot = torch.where(stays, labels * size + (self.entered[labels] + earlier) % size, self.classes * size)
        self.keys = _replaced(self.keys, slot, functional.normalize(features.float(), dim=1))
        self.reliability = _replaced(self.reliability, slot, reliability)
        self.entered = self.entered + count

    def contrast(self, features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy of picking the keys of the own class among all keys, weighted by their reliability."""
        similarity = functional.normalize(features, dim=1) @ self.keys.flatten(0, 1).T / self.settings.temperature
        picked = (similarity + self.reliability.flatten().log()).log_softmax(1).unflatten(1, (self.classes, -1))
        return -picked.mean(2).gather(1, labels.unsqueeze(1)).mean()

    @torch.no_grad()
    def after_step(self, network: nn.Module) -> None:
        self.steps += 1
        momentum = ((1 + self.steps) / (10 + self.steps)).clamp_max(self.settings.momentum)
        for ours, theirs in zip(self.encoder.parameters(), network.parameters(), strict=True):
            ours.lerp_(theirs, 1 - momentum)
        for ours, theirs in zip(self.encoder.buffers(), network.buffers(), strict=True):
            ours.copy_(theirs)


def _replaced(held: torch.Tensor, slot: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    """A copy of `held` (classes, keys, ...) with new rows in their slots; the slot after the last is dropped."""
    flat = held.flatten(0, 1)
    return torch.cat([flat, flat[:1]]).index_copy_(0, slot, new)[:-1].view_as(held)
