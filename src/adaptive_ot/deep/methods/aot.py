"""AOT: adaptive optimal transport between the batches decides who is matched, and how much.

"Partial Distribution Alignment via Adaptive Optimal Transport". The published cost is alpha |x - z|^2 - beta <p, q>
with constants for every dataset (`published` in the presets). The default is its scale-free form, in which distances
count relative to their median, and the entropy relative to the chance to guess a class, so that one setting can serve
every network and dataset. Less entropy trusts early guesses too much where classes are few, more mixes them up where
classes are many. The loss counts little at first (`ramp`): guesses of a network that does not know the target yet could
feed themselves. What a source may send is an upper bound, which may be larger for classes that are frequent in the
target and full (`rooms`), and as the run goes on, targets become what their neighbours are taken for (`neighbours`); in
the paper all bounds are equal, and nobody asks neighbours.
"""

from __future__ import annotations

from adaptive_ot.deep.methods.transport import TransportMethod, TransportSettings


class AOT(TransportMethod):
    """Rows and columns of the plan at most the weights, costs of both signs."""

    @classmethod
    def defaults(cls) -> TransportSettings:
        return TransportSettings(
            cost="scale-free",
            beta=2.0,
            marginals="at-most",
            solver="entropic",
            epsilon=1.5,
            ramp=True,
            rooms="grown",
            neighbours=10,
        )
