"""CDAN: domain-adversarial training on features and predicted classes together.

Long, Cao, Wang, Jordan, "Conditional Adversarial Domain Adaptation", NeurIPS 2018; thuml/CDAN (pytorch/loss.py, `CDAN`
and `Entropy`, pytorch/network.py, `RandomLayer`). The discriminator sees the outer product of features and class
probabilities, or random projections of it where it has more than 4096 entries. By default this is CDAN+E, the best in
the paper and the default of its script: a sample counts 1 + exp(-entropy of its prediction). Without
`entropy_conditioning` it is the plain CDAN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from adaptive_ot.deep.fields import Count, Natural, NotNegative
from adaptive_ot.deep.methods.adversarial import Discriminator, reverse, tell_apart
from adaptive_ot.deep.methods.method import Alignment, Method, Pair, ramp


class CDAN(Method):
    """Conditional domain-adversarial training."""

    @dataclass(frozen=True)
    class Settings:
        """Defaults of the paper and of thuml/CDAN."""

        trade_off: NotNegative = 1.0
        entropy_conditioning: bool = True
        largest_product: Natural = 4096  # larger outer products are replaced by random projections
        projections: Count = 1024

    feature_directions: torch.Tensor
    class_directions: torch.Tensor

    def __init__(self, settings: Settings, features: int, classes: int) -> None:
        super().__init__(settings, features, classes)
        self.projects = features * classes > settings.largest_product
        if self.projects:
            self.register_buffer("feature_directions", torch.randn(features, settings.projections))
            self.register_buffer("class_directions", torch.randn(classes, settings.projections))
        self.discriminator = Discriminator(settings.projections if self.projects else features * classes)

    def alignment(self, pair: Pair) -> Alignment:
        strength, weights = ramp(pair.progress), None
        if self.settings.entropy_conditioning:
            weights = _weights(pair.source_logits, strength), _weights(pair.target_logits, strength)
        source = self.conditioned(pair.source_features, pair.source_logits)
        target = self.conditioned(pair.target_features, pair.target_logits)
        loss, accuracy = tell_apart(self.discriminator, reverse(source, strength), reverse(target, strength), weights)
        terms = {"adversarial": loss.detach(), "discriminator_accuracy": accuracy}
        return Alignment(self.settings.trade_off * loss, terms)

    def conditioned(self, features: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        """The input of the discriminator. As in the official code, no gradient flows to the predictions."""
        probabilities = logits.detach().softmax(1)
        if self.projects:
            projected = (features @ self.feature_directions) * (probabilities @ self.class_directions)
            return projected / math.sqrt(self.settings.projections)
        return (features.unsqueeze(2) * probabilities.unsqueeze(1)).flatten(1)


def _weights(logits: torch.Tensor, strength: float) -> torch.Tensor:
    """Certain predictions count up to twice as much as others; the weights, too, train against the discriminator."""
    entropy = -(logits.softmax(1) * logits.log_softmax(1)).sum(1)
    weights = 1.0 + torch.exp(-reverse(entropy, strength))
    return weights / weights.sum().detach()
