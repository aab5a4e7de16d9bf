"""How many links of a matching are false, estimated from decoys: targets that cannot be right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from adaptive_ot.exact.matching import Matched
    from adaptive_ot.matching import Matching

# Prices at which the matching is found, and steps by which the one searched for is then closed in on.
PRICES = 64
STEPS = 12

CONFIDENCE = 0.95


class Curve(NamedTuple):
    """The estimate at several prices, which ascend: real targets and decoys matched, and the share of false links."""

    price: np.ndarray
    matched: np.ndarray
    decoys: np.ndarray
    rate: np.ndarray


@dataclass(frozen=True, eq=False, repr=False)
class ErrorRate:
    """The links that keep to an error rate; made by `Matching.at_error_rate`.

    Attributes
    ----------
    pairs, pair_scores
        The links to real targets, and their scores before the price. There are none if no price is high enough.
    price
        What was asked of every pair; inf if no price is high enough.
    rate
        The estimated share of false links.
    interval
        Between these the true share lies with a probability of 0.95, if decoys are exchangeable: the number of false
        links follows a negative binomial distribution, given that of decoys.
    curve
        The estimate at other prices.
    """

    pairs: Any
    pair_scores: Any
    price: float
    rate: float
    interval: tuple[float, float]
    curve: Curve

    def __len__(self) -> int:
        return len(self.pairs)

    def __repr__(self) -> str:
        low, high = self.interval
        return f"<ErrorRate {self.rate:.3g} ({low:.3g} to {high:.3g}): {len(self)} links at the price {self.price:.4g}>"


def price_at_rate(matching: Matching, rate: float, is_decoy: np.ndarray) -> ErrorRate:
    """The lowest price at which the estimate is at most `rate`: first on a grid, then closed in on."""
    from adaptive_ot.exact.matching import match_pairs_up_to

    pairs = matching._scores.listed
    ratio = int((~is_decoy).sum()) / int(is_decoy.sum())
    seen: dict[float, tuple[int, int, float]] = {}

    def matched_at(price: float) -> Matched:
        if price == 0:
            return matching._matched
        left = pairs._replace(cost=pairs.cost + price)
        return match_pairs_up_to(left.only(left.cost < 0), matching.source_capacity, matching.target_capacity)

    def estimate(price: float) -> float:
        reached = is_decoy[matched_at(price).columns]
        decoys = int(reached.sum())
        seen[price] = reached.size - decoys, decoys, estimated_rate(reached.size - decoys, decoys, ratio)
        return seen[price][2]

    scores = np.sort(-matching._matched.cost)
    grid = np.unique(np.append(0.0, scores[np.linspace(0, scores.size - 1, PRICES).astype(int)] if scores.size else []))
    kept = next((price for price in grid.tolist() if estimate(price) <= rate), np.inf)
    if 0 < kept < np.inf:
        below = float(grid[np.searchsorted(grid, kept) - 1])
        for _ in range(STEPS):
            between = scores[(scores > below) & (scores < kept)]
            if between.size == 0:
                break
            middle = float(between[between.size // 2])
            below, kept = (below, middle) if estimate(middle) <= rate else (middle, kept)
    curve = Curve(*map(np.array, zip(*((price, *seen[price]) for price in sorted(seen)), strict=True)))
    present = matching._scores.kind.present
    found = matched_at(kept) if kept < np.inf else None
    if found is None:
        return ErrorRate(present(np.empty((0, 2), np.int64)), present(np.empty(0)), kept, 0.0, (0.0, 0.0), curve)
    real = ~is_decoy[found.columns]
    links = np.stack((found.rows[real], found.columns[real]), axis=1).astype(np.int64)
    worth = matching._scores.meaning.scores(found.cost[real] - kept)
    matched, decoys, estimated = seen[kept]
    return ErrorRate(present(links), present(worth), kept, estimated, interval(matched, decoys, ratio), curve)


def estimated_rate(matched: int, decoys: int, ratio: float) -> float:
    """The share of false links, when this many real targets and decoys are matched."""
    return min(1.0, ratio * (decoys + 1) / max(1, matched))


def interval(matched: int, decoys: int, ratio: float) -> tuple[float, float]:
    """Where the share of false links is likely to lie."""
    from scipy.stats import nbinom

    tail = (1 - CONFIDENCE) / 2
    low, high = nbinom.ppf([tail, 1 - tail], decoys + 1, 1 / (1 + ratio)) / max(1, matched)
    return min(1.0, float(low)), min(1.0, float(high))
