"""What the marginals of a transport plan must satisfy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class AtMost:
    """Adaptive transport: row sums at most the source weights, column sums at most the target weights.

    How much mass moves is not prescribed: pairs of negative cost attract it, pairs of positive cost never carry any.

    Examples
    --------
    >>> import adaptive_ot as aot
    >>> aot.solve([[-1.0, 2.0], [3.0, 4.0]], marginals=aot.AtMost()).mass
    0.5
    """
