"""ROT: adversarial robust transport, which may leave out targets that are far from all sources.

Balaji, Chellappa, Feizi, "Robust Optimal Transport with Applications in Generative Modeling and Domain Adaptation",
NeurIPS 2020; yogeshbalaji/robustOT (in DA: trainers/robust_adversarial.py, losses.py, configs/robust_adversarial.json).
Features approach each other in the dual of robust transport,

    min over features,  min over target weights w,  max over critics d:   mean a(d(x_i)) - sum_j w_j b(d(z_j)),

with w in the chi-square ball (1/2) mean (m w_j - 1)^2 <= rho and d 1-Lipschitz by spectral norms. The Wasserstein
dual of the paper has a(d) = b(d) = d; all official configurations for adaptation have the logistic loss of GANs ("ns"),
a(d) = log sigmoid(d) and b(d) = softplus(d), and so has the default here. Different here:

- The weights are the exact solution for the targets of a batch, at every step. Officially they are found for the whole
  target domain every 500 iterations, by a conic solver, or by a second network with a penalty for leaving the ball.
- Officially the critic has its own optimiser and takes five steps for one of the features. Here both move at once, the
  features with a fifth of the gradient, and the critic with the larger learning rate of the head.
- Entropy and virtual adversarial terms, whose official weights are 0, are left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.parametrizations import spectral_norm

from adaptive_ot._ball import Ball
from adaptive_ot.deep.fields import NotNegative
from adaptive_ot.deep.methods.adversarial import reverse, xavier
from adaptive_ot.deep.methods.method import Alignment, Method, Pair, require_finite

HIDDEN = 256


class ROT(Method):
    """Robust adversarial transport."""

    @dataclass(frozen=True)
    class Settings:
        """Defaults of DA/configs/robust_adversarial.json."""

        rho: NotNegative = 0.2
        loss: Literal["logistic", "wasserstein"] = "logistic"
        strength: NotNegative = (
            0.2  # factor of the gradient of the features: officially the critic takes five steps for one
        )

    def __init__(self, settings: Settings, features: int, classes: int) -> None:
        super().__init__(settings, features, classes)
        self.critic = nn.Sequential(
            spectral_norm(xavier(nn.Linear(features, HIDDEN))),
            nn.ReLU(),
            spectral_norm(xavier(nn.Linear(HIDDEN, HIDDEN))),
            nn.ReLU(),
            spectral_norm(xavier(nn.Linear(HIDDEN, 1))),
        )

    def alignment(self, pair: Pair) -> Alignment:
        features = reverse(torch.cat([pair.source_features, pair.target_features]), self.settings.strength)
        scores = self.critic(features).squeeze(1)
        source, target = scores.split([len(pair.source_features), len(pair.target_features)])
        if self.settings.loss == "logistic":
            source, target = functional.logsigmoid(source), functional.softplus(target)
        weights = weights_of_highest_mean(target, self.settings.rho)
        distance = source.mean() - weights @ target
        # One over the sum of squares: the number of samples with equal weights that would have the same sum.
        terms = {"distance": distance.detach(), "effective_targets": 1.0 / weights.square().sum() / len(weights)}
        return Alignment(-distance, terms)


def weights_of_highest_mean(values: torch.Tensor, rho: float) -> torch.Tensor:
    """The weights w, >= 0 with sum 1 and (1/2) mean (n w - 1)^2 <= rho, for which sum w_i values_i is largest.

    >>> weights_of_highest_mean(torch.tensor([0.0, 1.0, 2.0]), rho=0.25)
    tensor([0.0447, 0.3333, 0.6220])
    """
    require_finite("output of the critic", values)
    potential = -values.detach().double().cpu().numpy()
    ball = Ball(np.full(potential.size, 1.0 / potential.size), 2.0 * rho)
    cut = ball.cut(potential)
    away = cut - cut.mean()
    deviation = math.sqrt(np.mean(away**2))
    if deviation > 0:
        weights = np.maximum(1.0 - math.sqrt(ball.rho) * away / deviation, 0.0)
    else:  # only the largest values get weight
        weights = (potential == potential.min()).astype(float)
    return torch.as_tensor(weights / weights.sum(), dtype=values.dtype, device=values.device)
