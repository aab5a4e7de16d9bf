"""No adaptation: the network as it is trained on the source alone."""

from __future__ import annotations

from adaptive_ot.deep.methods.method import Alignment, Method, Pair


class SourceOnly(Method):
    """Cross-entropy on the source, nothing else."""

    uses_target = False

    def alignment(self, pair: Pair) -> Alignment:
        return Alignment(pair.source_logits.new_zeros(()), {})
