"""JUMBOT: unbalanced transport with the cost alpha |x - z|^2 + lambda cross-entropy(y, q).

Fatras, Séjourné, Flamary, Courty, "Unbalanced minibatch Optimal Transport; applications to Domain Adaptation", ICML
2021. Constants for Office-Home as in the official code (github.com/kilianFatras/JUMBOT, Domain_Adaptation); those for
other datasets are in their presets.
"""

from __future__ import annotations

from adaptive_ot.deep.methods.aot import AOT, AOTSettings


class JUMBOT(AOT):
    """Marginals may differ from the weights for a price."""

    @classmethod
    def defaults(cls) -> AOTSettings:
        return AOTSettings(
            cost="cross-entropy", alpha=0.01, beta=0.5, marginals="soft-kl", tau=0.5, solver="entropic", epsilon=0.01
        )
