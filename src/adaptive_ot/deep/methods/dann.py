"""DANN: features by which a discriminator cannot tell the domains apart.

Ganin, Ustinova, Ajakan, Germain, Larochelle, Laviolette, Marchand, Lempitsky, "Domain-Adversarial Training of Neural
Networks", JMLR 2016; for networks that start from ImageNet as in thuml/CDAN (pytorch/loss.py, `DANN`, and
pytorch/train_image.py: trade-off 1, discriminator on the bottleneck).
"""

from __future__ import annotations

from dataclasses import dataclass

from adaptive_ot.deep.fields import NotNegative
from adaptive_ot.deep.methods.adversarial import Discriminator, reverse, tell_apart
from adaptive_ot.deep.methods.method import Alignment, Method, Pair, ramp


class DANN(Method):
    """Domain-adversarial training."""

    @dataclass(frozen=True)
    class Settings:
        """Defaults of thuml/CDAN."""

        trade_off: NotNegative = 1.0

    def __init__(self, settings: Settings, features: int, classes: int) -> None:
        super().__init__(settings, features, classes)
        self.discriminator = Discriminator(features)

    def alignment(self, pair: Pair) -> Alignment:
        strength = ramp(pair.progress)
        features = reverse(pair.source_features, strength), reverse(pair.target_features, strength)
        loss, accuracy = tell_apart(self.discriminator, *features)
        terms = {"adversarial": loss.detach(), "discriminator_accuracy": accuracy}
        return Alignment(self.settings.trade_off * loss, terms)
