"""The entropic solver: three readings of entropy-regularised adaptive transport, one dual, one ascent."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from adaptive_ot import _validation as check
from adaptive_ot.costs import ArrayCost, PointCost, SparseCost
from adaptive_ot.problem import Problem
from adaptive_ot.solvers._ascent import Ascent, Dual, ascend
from adaptive_ot.solvers.softmin import NOTHING, RowRule, Softmin

Entropy = Literal["augmented", "product", "counting"]


@dataclass(frozen=True)
class Entropic:
    epsilon: float
    entropy: Entropy = "augmented"
    tolerance: float = 1e-9
    max_iterations: int = 100_000


def log_weights(weights: np.ndarray) -> np.ndarray:
    """Logarithms, NOTHING for zero."""
    return np.log(weights, out=np.full(weights.size, NOTHING), where=weights > 0)


def dual_of(mu: np.ndarray, nu: np.ndarray, entropy: Entropy) -> Dual:
    log_mu, log_nu = log_weights(mu), log_weights(nu)
    positive = nu[nu > 0]
    share = min(1.0, positive.min(initial=np.inf) / mu.max(initial=0.0) / mu.size) / max(1, nu.size)
    if entropy == "augmented":
        log_total = math.log(mu.sum() + nu.sum())
        rule = RowRule(
            np.full(mu.size, log_total),
            np.where(mu > 0, log_mu - log_total, NOTHING),
            math.inf,
            math.log(mu.sum()),
            share,
        )
        reference = log_nu
    elif entropy == "product":
        rule = RowRule(np.zeros(mu.size), log_mu, 0.0, -math.inf, share)
        reference = log_nu
    else:
        nothing = np.where(mu > 0, 0.0, NOTHING)
        rule = RowRule(log_mu, nothing, 0.0, -math.inf, share)
        reference = np.where(nu > 0, 0.0, NOTHING)
    return Dual(mu, nu, rule, reference, entropy == "augmented")


def softmin_for(cost):
    from adaptive_ot.solvers.softmin.compiled import ListedSoftmin, TiledSoftmin

    return ListedSoftmin(cost) if isinstance(cost, SparseCost) else TiledSoftmin(cost)
