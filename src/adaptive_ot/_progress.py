"""What a long solve tells while it runs."""

from __future__ import annotations

import math
from typing import NamedTuple


class Progress(NamedTuple):
    """What a long solve reports several times a second.

    `fraction` is how much of the current stage is done, where that is known; `gap` the certified gap after the last
    round of pricing. For a batch, these are the part of the problems solved and the largest of their gaps. An entropic
    solve tells which epsilon it is at, on its way to a small one, and how far the marginals are off there (`error`).
    """

    stage: str
    round: int
    fraction: float | None
    iterations: int
    arcs: int
    gap: float
    epsilon: float | None = None
    error: float = math.inf
