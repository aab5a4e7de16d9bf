"""Parts of adversarial methods: a network that tells the domains apart, and features trained against it.

One optimiser serves both sides. The discriminator's loss goes backwards as it is through the discriminator, and with
its sign reversed into the features: Ganin et al. 2016, "Domain-Adversarial Training of Neural Networks".
The discriminator and its initialisation are those of thuml/CDAN (pytorch/network.py), on which most later results are
based.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

HIDDEN = 1024
DROPOUT = 0.5


class _Reversal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, strength: float) -> torch.Tensor:
        ctx.strength = strength
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return -ctx.strength * gradients[0], None


def reverse(tensor: torch.Tensor, strength: float) -> torch.Tensor:
    """The tensor itself, but with its gradient multiplied by -strength.

    >>> x = torch.ones(2, requires_grad=True)
    >>> reverse(x, 0.5).sum().backward()
    >>> x.grad
    tensor([-0.5000, -0.5000])
    """
    return _Reversal.apply(tensor, strength)  # type: ignore[no-any-return]


class Discriminator(nn.Sequential):
    """Three layers from features to `outputs` logits."""

    def __init__(self, features: int, outputs: int = 1) -> None:
        layers = [nn.Linear(features, HIDDEN), nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, outputs)]
        for layer in layers:
            xavier(layer)
        hidden = [part for layer in layers[:-1] for part in (layer, nn.ReLU(), nn.Dropout(DROPOUT))]
        super().__init__(*hidden, layers[-1])


def xavier(layer: nn.Linear) -> nn.Linear:
    """The layer, initialised as in the official codes."""
    nn.init.xavier_normal_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def tell_apart(
    discriminator: nn.Module,
    source: torch.Tensor,
    target: torch.Tensor,
    weights: tuple[torch.Tensor, torch.Tensor] | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The cross-entropy of source (1) against target (0), in which both domains count for a half; and the accuracy.

    The weights of the samples of a domain, equal by default, add up to one.
    """
    logits = discriminator(torch.cat([source, target])).squeeze(1)
    of_source, of_target = logits.split([len(source), len(target)])
    losses = functional.softplus(-of_source), functional.softplus(of_target)
    if weights is None:
        loss = (losses[0].mean() + losses[1].mean()) / 2
    else:
        loss = ((weights[0] * losses[0]).sum() + (weights[1] * losses[1]).sum()) / 2
    right = (of_source > 0).float().mean() + (of_target < 0).float().mean()
    return loss, right.detach() / 2
