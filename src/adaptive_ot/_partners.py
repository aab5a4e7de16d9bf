"""Which points have a partner nearby: the gap behind an estimated reach and behind the elbow of a mass path.

Most points of two clouds that match have partners at much the same distance, and outliers have none as near. Seen on a
logarithmic scale, the distances to the nearest partners then have two peaks, with a gap between them. Distances without
outliers have one peak, whatever the dimension: above it, they become rarer and rarer. So a gap is a dent in the
distribution: fewer points up to some distance than any distribution has that becomes rarer and rarer.

Where values repeat (counts, rounded measurements), so do distances, and every possible distance is a peak of its own.
Such distances are first spread as if the points had not been rounded, several times; a gap must be seen every time.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from adaptive_ot._arrays import to_numpy

# How many nearest partners are averaged, and how deep a dent must then be, in standard deviations of a count of
# points: as deep as in one of a hundred pairs of clouds without outliers (benchmarks/reach.py).
DEPTHS = {1: 2.5, 5: 2.1}

# Outliers are at least this share of the points.
LEAST_SHARE = 0.02
LEAST_POINTS = 5

# Where in the gap, on a logarithmic scale, matches stop.
PLACE = 0.4

# Lower costs, relative to the median, count as this much: their logarithms would be infinite.
NEGLIGIBLE = 1e-12

# Costs repeat where there are fewer than this share of distinct ones among the least of all points. Those of points
# that do not repeat are at least half of them: each belongs to a source and a target. Costs that differ by less,
# relative to the median, are equal up to rounding errors.
DISTINCT = 0.25
ROUNDING = 1e-9

# Costs that repeat are spread so many times: once is a matter of luck.
DRAWS = 3

# Without a gap, the reach is this many times the distance that so many points have to their nearest partners, or this
# many times the distance by which the points of a line are displaced, if that is more.
USUAL, TIMES_USUAL, TIMES_DISPLACED = 0.95, 10.0, 5.0

# Up to so many points of either side are looked at, fewer if that takes more than so many operations.
MOST_POINTS = 2000
OPERATIONS = 500_000_000


class Gap(NamedTuple):
    """Few points have their nearest partners at costs between `low` and `high`; the share `alone` has none below."""

    low: float
    high: float
    alone: float

    @property
    def middle(self) -> float:
        """Where matches stop."""
        return self.low ** (1 - PLACE) * self.high**PLACE


class Estimate(NamedTuple):
    """A reach from the data: from how many points, and which share of them has no near partner (None: no gap)."""

    reach: float
    points: int
    alone: float | None

    def __str__(self) -> str:
        if self.points == 0:
            return "not estimated: there are no points on one of the sides"
        if self.alone is None:
            return f"estimated: none of {self.points} points stands out as an outlier"
        return f"estimated: {100 * self.alone:.0f} % of {self.points} points have no near partner"


def sample(size: int, most: int) -> np.ndarray:
    """Which points to look at: all, or always the same ones."""
    return np.arange(size) if size <= most else np.sort(np.random.default_rng(0).choice(size, most, replace=False))


def most_points(dimension: int) -> int:
    """How many points of either side may be looked at."""
    return min(MOST_POINTS, math.isqrt(OPERATIONS // max(1, dimension)))


def estimated_reach(x: Any, z: Any) -> Estimate:
    """A reach from as many points of either cloud, so that both are as dense."""
    from scipy.spatial.distance import cdist

    most = min(len(x), len(z), most_points(x.shape[1]))
    source, target = (to_numpy(side[sample(len(side), most).tolist()]) for side in (x, z))
    squares = cdist(source, target, "sqeuclidean")
    positive = squares[squares > 0]
    points = sum(squares.shape) if squares.size else 0
    if positive.size == 0:
        return Estimate(1.0, points, None)  # any reach serves points that coincide
    gap = find_gap(squares)
    if gap:
        return Estimate(math.sqrt(gap.middle), points, gap.alone)
    nearest = np.concatenate((squares.min(axis=1), squares.min(axis=0)))
    usual = math.sqrt(max(np.quantile(nearest, USUAL), resolution(squares)))
    displaced = math.sqrt(np.median(positive) / min(squares.shape))
    return Estimate(max(TIMES_USUAL * usual, TIMES_DISPLACED * displaced), points, None)


def find_gap(costs: np.ndarray) -> Gap | None:
    """The gap between points with and without a near partner, or None if there is none.

    Parameters
    ----------
    costs
        Sources x targets, none of them negative; +inf forbids a pair. They count as squared distances where they
        repeat.

    Examples
    --------
    >>> x, z = np.linspace(0, 1, 30), np.append(np.linspace(0, 1, 20), np.linspace(9, 99, 10))
    >>> gap = find_gap(abs(x[:, None] - z))
    >>> bool(gap.low < 0.1 < 9 < gap.high), round(gap.alone, 2)  # no partner near: 10 of 60 points
    (True, 0.17)
    """
    allowed = np.isfinite(costs)
    typical = np.median(costs[(costs > 0) & allowed]) if ((costs > 0) & allowed).any() else 0.0
    if typical == 0:
        return None
    step = resolution(costs)
    if step == 0.0:
        return _gap(costs, typical)
    gaps: list[Gap] = []
    for draw in range(DRAWS):
        gap = _gap(spread(costs, step, draw), typical)
        if gap is None:
            return None
        gaps.append(gap)
    low, high, alone = sorted(gaps)[DRAWS // 2]
    return Gap(max(low, step), max(high, step), alone)  # points that differ by one step are near


def _gap(costs: np.ndarray, typical: float) -> Gap | None:
    """The deepest dent in the logarithms of the least costs, if it is deep enough."""
    logs = np.log(np.maximum(costs, NEGLIGIBLE * typical))
    deepest, found = 1.0, None
    for count, least_depth in DEPTHS.items():
        means = np.concatenate((mean_of_least(logs, count), mean_of_least(logs.T, count)))
        depth, gap = deepest_dent(np.sort(means[np.isfinite(means)]))
        if gap and depth / least_depth >= deepest:
            deepest, found = depth / least_depth, gap
    return found and Gap(math.exp(found.low), math.exp(found.high), found.alone)


def resolution(costs: np.ndarray) -> float:
    """The least positive cost if the least costs of the points repeat, as those of rounded points do; else 0.

    Examples
    --------
    >>> x, z = np.random.default_rng(0).normal(size=(2, 50, 1))
    >>> resolution((x - z.T) ** 2), round(resolution((x.round(1) - z.T.round(1)) ** 2), 6)
    (0.0, 0.01)
    """
    count = max(DEPTHS)
    near = np.concatenate([least_values(side, count).ravel() for side in (costs, costs.T)])
    positive = costs[(costs > 0) & np.isfinite(costs)]
    if positive.size == 0:
        return 0.0
    equal = ROUNDING * float(np.median(positive))
    near = np.sort(near[(near > equal) & np.isfinite(near)])
    if near.size == 0:  # all points coincide with so many others
        return float(positive[positive > equal].min())
    distinct = np.count_nonzero(np.diff(near) > equal) + 1
    return float(near[0]) if distinct < DISTINCT * near.size else 0.0


def spread(costs: np.ndarray, step: float, draw: int) -> np.ndarray:
    """Squared distances after every point has moved along a line by up to half of the root of the step.

    Rounding to multiples of that root moves points as far. A point moves with all its distances, since of many that are
    spread one by one, the least would be too small. The same draw always moves them in the same way.
    """
    moves = math.sqrt(step) * np.random.default_rng(draw).uniform(-0.5, 0.5, max(costs.shape))
    return (np.sqrt(costs) + (moves[: costs.shape[0], None] + moves[: costs.shape[1]])) ** 2


def least_values(values: np.ndarray, count: int) -> np.ndarray:
    """The least values of every row, in any order."""
    count = min(count, values.shape[1])
    return np.partition(values, count - 1, axis=1)[:, :count]


def mean_of_least(values: np.ndarray, count: int) -> np.ndarray:
    """The mean of the least finite values of every row; inf where there is none."""
    least = least_values(values, count)
    finite = np.isfinite(least)
    number = finite.sum(axis=1)
    total = np.where(finite, least, 0.0).sum(axis=1)
    return np.divide(total, number, out=np.full(len(values), np.inf), where=number > 0)


def deepest_dent(values: np.ndarray) -> tuple[float, Gap | None]:
    """Where the upper half of ascending values is most below its least concave majorant.

    A distribution whose density falls has a concave count. Within one piece of the majorant, that density is constant,
    so that of `number` values in the piece, a count is off by a few times the root of `number`.
    """
    upper = values[values.size // 2 :]
    at = np.unique(upper)
    up_to, before = (np.searchsorted(upper, at, side).astype(float) for side in ("right", "left"))
    least = max(LEAST_POINTS, LEAST_SHARE * values.size)
    deepest, found = 0.0, None
    corners = concave_corners(at, up_to)
    for start, end in pairwise(corners):
        number = up_to[end] - up_to[start]
        if number < least:
            continue
        inside = slice(start + 1, end + 1)
        line = up_to[start] + (at[inside] - at[start]) * (number / (at[end] - at[start]))
        lacking = line - before[inside]
        most = int(np.argmax(lacking))
        depth = float(lacking[most]) / math.sqrt(number)
        if depth > deepest:
            alone = float(upper.size - up_to[start]) / values.size
            deepest, found = depth, Gap(float(at[start]), float(at[start + 1 + most]), alone)
    return deepest, found


def concave_corners(x: np.ndarray, y: np.ndarray) -> list[int]:
    """The corners of the least concave function above the points; x ascends."""
    corners: list[int] = []
    for k in range(x.size):
        while len(corners) > 1:
            a, b = corners[-2:]
            if (y[k] - y[b]) * (x[b] - x[a]) < (y[b] - y[a]) * (x[k] - x[b]):
                break
            corners.pop()
        corners.append(k)
    return corners
