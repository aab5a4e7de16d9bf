"""Progress reports of long solves."""

from __future__ import annotations

import math
from typing import NamedTuple


class Progress(NamedTuple):
    """A report that a long solve makes several times a second.

    `fraction` is how much of the current stage is done, if known; `gap` is the certified gap after the last round of
    pricing, infinite before the first and while coarser versions of the problem are solved. For a batch, they are the
    fraction of the problems solved and the largest of their gaps. An entropic solve reports its current `epsilon`,
    which decreases in stages, and how far off the marginals are there (`error`).
    """

    stage: str
    round: int
    fraction: float | None
    iterations: int
    arcs: int
    gap: float
    epsilon: float | None = None
    error: float = math.inf
