"""ALDA: a discriminator learns how wrong predictions are, and corrects the pseudo-labels by it.

Chen, Zhao, Liu, Cai, "Adversarial-Learned Loss for Domain Adaptation", AAAI 2020; ZJULearning/ALDA (loss.py,
`ALDA_loss`; train.py; network.py, `Multi_AdversarialNetwork`). Different here:

- The term that trains the discriminator alone goes through it a second time, with detached features and other dropout,
  where the official code freezes the network for a backward pass of its own.
- The gradient of every tensor of the discriminator has norm at most 1: otherwise the features can grow faster than it
  learns, until it diverges.
- If no target sample is confident enough, the corrected loss is 0; the official code divides 0 by 0.
- The ramp of the corrected loss ends with the run instead of after 10,000 iterations.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional

from adaptive_ot.deep.fields import NotNegative, Share
from adaptive_ot.deep.methods.adversarial import Discriminator, reverse
from adaptive_ot.deep.methods.method import Alignment, Method, Pair, ramp


class ALDA(Method):
    """Adversarial-learned loss."""

    @dataclass(frozen=True)
    class Settings:
        """Defaults of train.py; the digits have a threshold of 0.6 there."""

        trade_off: NotNegative = 1.0
        threshold: Share = 0.9  # least confidence of a prediction that counts as a label of the target

    def __init__(self, settings: Settings, features: int, classes: int) -> None:
        super().__init__(settings, features, classes)
        self.discriminator = Discriminator(features, classes)
        for parameter in self.discriminator.parameters():
            parameter.register_hook(lambda gradient: gradient / gradient.norm().clamp_min(1.0))

    def alignment(self, pair: Pair) -> Alignment:
        strength, n = ramp(pair.progress), len(pair.source_logits)
        features = torch.cat([pair.source_features, pair.target_features])
        confusion = confusion_matrices(self.discriminator(reverse(features, strength)))

        probabilities = pair.target_logits.softmax(1)
        confidence, target_guess = probabilities.detach().max(1)
        sure = (confidence > self.settings.threshold).float()

        # Corrected labels: the columns of the predicted classes.
        source_corrected = _column(confusion[:n], pair.source_logits.argmax(1))
        target_corrected = _column(confusion[n:], target_guess)
        labels = functional.one_hot(pair.source_labels, self.classes).float()
        opposite = (1.0 - functional.one_hot(target_guess, self.classes)) / (self.classes - 1)
        against = _cross_entropy(source_corrected, labels).sum() + sure @ _cross_entropy(target_corrected, opposite)
        adversarial = against / (n + sure.sum())

        agreement = (probabilities * target_corrected.detach()).mean(1)
        corrected = -(sure @ agreement) / sure.sum().clamp_min(1.0)
        of_source = self.discriminator(pair.source_features.detach())
        regularisation = functional.cross_entropy(of_source, pair.source_labels)

        loss = self.settings.trade_off * (adversarial + strength * corrected) + regularisation
        terms = {"adversarial": adversarial, "corrected": corrected, "regularisation": regularisation}
        return Alignment(loss, {name: term.detach() for name, term in terms.items()} | {"sure": sure.mean()})


def confusion_matrices(scores: torch.Tensor) -> torch.Tensor:
    """For every sample, entry (k, l) is the probability of class k if l was predicted.

    The discriminator gives the probability that the prediction l is right; all other classes are equally likely.

    >>> confusion_matrices(torch.zeros(1, 3))
    tensor([[[0.5000, 0.2500, 0.2500],
             [0.2500, 0.5000, 0.2500],
             [0.2500, 0.2500, 0.5000]]])
    """
    right = torch.sigmoid(scores).unsqueeze(1)
    same = torch.eye(scores.shape[1], device=scores.device, dtype=scores.dtype)
    return same * right + (1.0 - same) * (1.0 - right) / (scores.shape[1] - 1)


def _column(matrices: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
    return torch.take_along_dim(matrices, classes[:, None, None], dim=2).squeeze(2)


def _cross_entropy(probabilities: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Binary cross-entropy of every sample, summed over the classes.

    It is bounded where float32 cannot tell a probability from 0 or 1, so that nothing drives the features further. (The
    official code has about the same bound for 1, and 1e-12 for 0.)
    """
    least = torch.finfo(probabilities.dtype).eps
    yes, no = probabilities.clamp_min(least).log(), (1.0 - probabilities).clamp_min(least).log()
    return -(labels * yes + (1.0 - labels) * no).sum(1)
