"""From a solution to the match that a page shows."""

from __future__ import annotations

import numpy as np

from adaptive_ot.solution import Solution
from adaptive_ot.workbench.report import MOST_SAMPLES
from adaptive_ot.workbench.report.contents import Explorer, Match, Samples

# More pairs are too many to be kept.
MOST_PAIRS = 2_000_000

# Numbers of a sample that are shown: its first coordinates or features.
VALUES_SHOWN = 8

TOO_MANY = f"There are too many samples to look at them one by one: a side may have {MOST_SAMPLES:,}."


def match_of(solution: Solution, source: Samples, target: Samples) -> Match:
    """Both sides and the pairs that carry mass; of very many pairs the heaviest."""
    rows, columns, mass = solution.support
    if len(mass) > MOST_PAIRS:
        chosen = np.sort(np.argpartition(-mass, MOST_PAIRS)[:MOST_PAIRS])
        rows, columns, mass = rows[chosen], columns[chosen], mass[chosen]
    return Match(source=source, target=target, rows=rows, columns=columns, mass=mass.astype(np.float64))


def explorer(match: Match, pairs: int, mass: float) -> Explorer:
    """The match as a part of a page, which says so if it is not all of a plan of so many pairs and this mass."""
    kept = len(match.mass)
    caption = ""
    if kept < pairs:
        share = float(match.mass.sum()) / (mass or 1.0)
        caption = f"The {kept:,} heaviest of {pairs:,} pairs are kept: they carry {share:.1%} of the mass."
    return Explorer("Who is matched with whom", match, caption)


def weigh_the_same(weights: np.ndarray) -> bool:
    """
    Examples
    --------
    >>> weigh_the_same(np.full(3, 1 / 3)), weigh_the_same(np.array([0.25, 0.75]))
    (True, False)
    """
    return bool(np.allclose(weights, weights.mean() if weights.size else 0.0, rtol=1e-6, atol=0.0))
