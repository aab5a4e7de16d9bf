"""The marginals near given weights, sum_i (r_i - w_i)^2 / w_i <= rho with r >= 0 and sum r = sum w = 1.

The dual needs the lowest mean of a potential f over these marginals. Without the constraint r >= 0 it is

    <w, f> - sqrt(rho) std_w(f);

with the constraint, it is the highest such value of any potential below f. That potential is f cut off at a level: the
marginal of lowest mean is proportional to w max(0, level - f), and the level puts it on the edge of the ball.
"""

from __future__ import annotations

import math

import numpy as np


class Ball:
    """A ball around positive weights that add up to one."""

    def __init__(self, weights: np.ndarray, rho: float) -> None:
        self.weights = weights
        # The corners of the simplex are farthest away; a ball that is larger than needed would only cost digits.
        farthest = 1.0 / float(weights.min())
        self.is_everything = rho >= farthest
        self.rho = min(rho, 2.0 * farthest)
        self.spread = np.sqrt(self.rho * weights)

    def reach(self, marginal: np.ndarray) -> float:
        """The distance of a marginal from the centre, relative to the radius."""
        return float(np.linalg.norm((marginal - self.weights) / self.spread))

    def is_beyond(self, allowed: np.ndarray) -> bool:
        """Whether no marginal on the allowed points is in the ball: the nearest one is proportional to the weights."""
        return float(self.weights[allowed].sum()) * (1.0 + self.rho) < 1.0 - 1e-12

    def lowest_mean(self, potential: np.ndarray) -> float:
        """A lower bound on the mean of a potential over all marginals; exact if the potential was cut."""
        mean = float(self.weights @ potential)
        off = potential - mean
        unit = float(np.abs(off).max()) or 1.0  # so that squares neither overflow nor vanish
        return mean - unit * math.sqrt(self.rho * float(self.weights @ (off / unit) ** 2))

    def cut(self, potential: np.ndarray) -> np.ndarray:
        """Cut a potential off at the level above which it only adds to its deviation; it may be infinite there."""
        order = np.argsort(potential)[: np.count_nonzero(np.isfinite(potential))]
        lowest = potential[order[0]]
        heights, weights = potential[order] - lowest, self.weights[order]
        unit = float(heights[-1]) or 1.0
        heights = heights / unit
        zeroth, first, second = np.cumsum([weights, weights * heights, weights * heights**2], axis=1)
        # The marginal whose level is the next height; it approaches the centre as the level rises.
        level = heights[1:]
        mass = level * zeroth[:-1] - first[:-1]
        square = level**2 * zeroth[:-1] - 2.0 * level * first[:-1] + second[:-1]
        inside = (mass > 0) & (square <= (1.0 + self.rho) * mass**2)
        last = int(np.argmax(np.append(inside, True)))
        # The level is between this height and the next, where the marginal is on the edge.
        weight, mean = zeroth[last], first[last] / zeroth[last]
        variance, room = max(0.0, second[last] / weight - mean**2), 1.0 + self.rho - 1.0 / weight
        above = math.sqrt(variance / (weight * room)) if room > 0 else 0.0
        return np.minimum(potential, lowest + unit * max(mean + above, heights[last]))
