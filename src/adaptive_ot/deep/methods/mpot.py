"""m-POT: partial transport of a fixed mass with the cost alpha |x - z|^2 + lambda cross-entropy(y, q).

Nguyen, Nguyen, Pham, Ho, "Improving Mini-batch Optimal Transport via Partial Transportation", ICML 2022. Constants for
Office-Home as in the paper and the official code (github.com/UT-Austin-Data-Science-Group/Mini-batch-OT, DeepDA); those
for other datasets are in their presets.
"""

from __future__ import annotations

from adaptive_ot.deep.methods.aot import AOT, AOTSettings


class MPOT(AOT):
    """A given share of a batch is matched."""

    @classmethod
    def defaults(cls) -> AOTSettings:
        return AOTSettings(cost="cross-entropy", alpha=0.01, beta=0.5, marginals="fixed-mass", mass=0.5, solver="exact")
