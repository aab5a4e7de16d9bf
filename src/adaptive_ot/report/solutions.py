"""From a solution to the match that a page shows."""

from __future__ import annotations

import numpy as np

from adaptive_ot.report import MOST_SAMPLES
from adaptive_ot.report.contents import Explorer, Match, Samples
from adaptive_ot.solution import Solution

# More pairs are too many to be kept.
MOST_PAIRS = 2_000_000

TOO_MANY = f"There are too many samples to look at them one by one: a side may have {MOST_SAMPLES:,}."


def match_of(solution: Solution, source: Samples, target: Samples) -> Match:
    """Both sides and the pairs that carry mass; of very many pairs the heaviest."""
    rows, columns, mass = solution.support
    if len(mass) > MOST_PAIRS:
        chosen = np.sort(np.argpartition(-mass, MOST_PAIRS)[:MOST_PAIRS])
        rows, columns, mass = rows[chosen], columns[chosen], mass[chosen]
    return Match(source=source, target=target, rows=rows, columns=columns, mass=mass.astype(np.float64))


def explorer(match: Match, mass: float) -> Explorer:
    """The match as a part of a page, which says so where pairs of a plan of this mass were left out."""
    shown = float(match.mass.sum())
    caption = ""
    if shown < (1 - 1e-6) * mass:
        caption = f"The {len(match.mass):,} heaviest pairs are kept: they carry {shown / mass:.1%} of the mass."
    return Explorer("Who is matched with whom", match, caption)
