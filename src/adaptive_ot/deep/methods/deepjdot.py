"""DeepJDOT: balanced transport with the cost alpha |x - z|^2 + lambda cross-entropy(y, q).

Damodaran, Kellenberger, Flamary, Tuia, Courty, "DeepJDOT: Deep Joint Distribution Optimal Transport for Unsupervised
Domain Adaptation", ECCV 2018. On ImageNet networks as in the comparison of JUMBOT (github.com/kilianFatras/JUMBOT): its
constants for Office-Home, exact balanced plan.
"""

from __future__ import annotations

from adaptive_ot.deep.methods.aot import AOT, AOTSettings


class DeepJDOT(AOT):
    """Everything in a batch is matched."""

    @classmethod
    def defaults(cls) -> AOTSettings:
        return AOTSettings(cost="cross-entropy", alpha=0.01, beta=0.5, marginals="equal", solver="exact")
