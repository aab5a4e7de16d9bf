"""Maximise the dual of an entropic problem: Newton's method, damped, along a sequence of decreasing epsilons.

Potentials are in units of epsilon here. The source potentials are always at their optimum for the target potentials
(`balance`), so the dual is a function of the latter alone. Its gradient is what the columns lack, its Hessian
-(diag(c) - G^T D G), applied by sweeps and never formed. The equations are solved in the form log c = log nu, so that
without the second term a step is that of Sinkhorn's iteration; the second term is what makes it fast.

Functions marked `register_jitable` run as plain Python around any `Softmin`, and compiled around a small problem, where
the interpreter would take longer than the work.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba.extending import register_jitable

from adaptive_ot.solvers._ascent_constants import (
    ACCEPTED_SHARE,
    EASY,
    FEW_SWEEPS,
    FIRST_DAMPING,
    FIRST_FACTOR,
    FIRST_SHARE,
    FLAT,
    HARD,
    LARGEST_FACTOR,
    LEAST_DAMPING,
    LESS_DAMPING,
    LEVEL_ERROR,
    LEVEL_FACTOR,
    LONGER,
    LONGEST_STEP,
    LOOSEST_RESIDUAL,
    MANY_SWEEPS,
    MORE_DAMPING,
    MOST_DAMPING,
    ROUNDING,
    SMALLEST_FACTOR,
)
from adaptive_ot.solvers.softmin import Balanced, RowRule, balance, curvature, solve_directly


class Dual(NamedTuple):
    """The dual of one of the entropic forms.

    `reference` are the logarithms of the target weights of the reference measure. In the augmented form a dummy source
    of the target's total weight takes part (`rule.dummy` stands for the dummy target); otherwise potentials are at most
    zero. `constant` is what the value lacks that does not depend on potentials.
    """

    source_weights: np.ndarray
    target_weights: np.ndarray
    rule: RowRule
    reference: np.ndarray
    augmented: bool
    constant: float

    def shift(self, h: np.ndarray) -> float:
        """What to add to target potentials so that they do not depend on the potentials of the dummies."""
        return dummy_source(self, h)[0] if self.augmented else 0.0


class Point(NamedTuple):
    """The dual and its derivatives at target potentials `gamma`; `spill` is what the dummy source sends.

    `error` is what all free columns are off by, relative to the target weight; `factor` the logarithm of what any one
    of them is off by.
    """

    gamma: np.ndarray
    at: Balanced
    columns: np.ndarray
    spill: np.ndarray
    value: float
    gradient: np.ndarray
    free: np.ndarray
    error: float
    factor: float


class Ascent(NamedTuple):
    """Where an ascent ended, after how many passes over all pairs (or a kept kernel), and whether it got stuck."""

    point: Point
    passes: int
    steps: int
    stalled: bool


@register_jitable
def chosen(mask: np.ndarray, values: np.ndarray, other: float) -> np.ndarray:
    """`values` where the mask is set, elsewhere `other`; np.where would take Numba long to compile."""
    return values * mask + other * ~mask


@register_jitable
def dummy_source(dual: Dual, h: np.ndarray) -> tuple[float, np.ndarray]:
    """The potential of the dummy source, and what it sends to every target."""
    dummy = dual.rule.dummy
    highest = max(dummy, np.max(h))
    log_sum = highest + math.log(np.sum(np.exp(h - highest)) + math.exp(dummy - highest))
    supply = np.sum(dual.target_weights)
    return math.log(np.sum(dual.source_weights) + supply) - log_sum, supply * np.exp(h - log_sum)


@register_jitable
def evaluate(softmin: Any, dual: Dual, gamma: np.ndarray) -> Point:
    """The dual at `gamma`: one pass over all pairs."""
    nu = dual.target_weights
    h = gamma + dual.reference
    at = balance(softmin, h, dual.rule)
    value = np.sum(dual.source_weights * at.potential) + np.sum(nu * gamma)
    if dual.augmented:
        potential, spill = dummy_source(dual, h)
        columns = at.columns + spill
        value += np.sum(nu) * potential
        free = nu > 0
    else:
        spill = np.zeros(0)
        columns = at.columns
        value -= np.sum(np.exp(at.potential + dual.rule.reference + at.row_sums))
        free = (nu > 0) & ((gamma < 0) | (columns > nu))
    gradient = (nu - columns) * free
    factor = np.max(np.abs(log_ratio(dual, columns, free)))
    return Point(gamma, at, columns, spill, value, gradient, free, np.sum(np.abs(gradient)) / np.sum(nu), factor)


@register_jitable
def log_ratio(dual: Dual, columns: np.ndarray, free: np.ndarray) -> np.ndarray:
    """log(nu / c) of the free columns."""
    nu = chosen(free, dual.target_weights, 1.0)
    return np.log(nu / chosen(free, np.maximum(columns, 1e-200 * nu), 1.0))


@register_jitable
def newton_step(softmin: Any, dual: Dual, point: Point, damping: float, direct: bool) -> tuple[np.ndarray, int, bool]:
    """The damped Newton step; also returns the number of sweeps it took, and whether to solve directly from now on."""
    mu, nu, free = dual.source_weights, dual.target_weights, point.free
    full = (point.at.potential < dual.rule.cap) & (mu > 0)
    weights = full / chosen(full, mu, 1.0)
    columns = chosen(free, np.maximum(point.columns, 1e-200 * nu), 1.0)
    diagonal = (1 + damping) * columns
    right = columns * log_ratio(dual, point.columns, free)
    d, sweeps = right, 0
    if not direct:
        d, sweeps, met = conjugate_gradients(softmin, dual, point, weights, diagonal, right, FEW_SWEEPS)
        direct = not met
    if direct:
        spill = point.spill / math.sqrt(np.sum(nu))
        solved, d = solve_directly(softmin, point.at, dual.rule, weights, diagonal, spill, free, right)
        sweeps += 1
        if not solved:
            direct = False
            d, more, _ = conjugate_gradients(softmin, dual, point, weights, diagonal, right, MANY_SWEEPS)
            sweeps += more
    return d, sweeps, direct


@register_jitable
def conjugate_gradients(
    softmin: Any,
    dual: Dual,
    point: Point,
    weights: np.ndarray,
    diagonal: np.ndarray,
    right: np.ndarray,
    most_sweeps: int,
) -> tuple[np.ndarray, int, bool]:
    """The Newton step up to a residual; also returns how many sweeps it took, and whether they were enough."""
    d = np.zeros(right.size)
    residual, direction = right, right / diagonal
    size = np.sum(residual * direction)
    goal = size * min(LOOSEST_RESIDUAL**2, point.error)
    sweeps = 0
    while size > goal and sweeps < most_sweeps:
        product = curvature(softmin, point.at, dual.rule, weights, direction)
        if dual.augmented:
            product = product + point.spill * (np.sum(point.spill * direction) / np.sum(dual.target_weights))
        product = (diagonal * direction - product) * point.free
        sweeps += 1
        bend = np.sum(direction * product)
        if bend <= FLAT * np.sum(direction * diagonal * direction):  # flat as far as rounding can tell
            return (d if sweeps > 1 else direction), sweeps, False
        d = d + (size / bend) * direction
        residual = residual - (size / bend) * product
        scaled = residual / diagonal
        before, size = size, np.sum(residual * scaled)
        direction = scaled + (size / before) * direction
    return d, sweeps, bool(size <= goal)


@register_jitable
def climb(
    softmin: Any,
    dual: Dual,
    gamma: np.ndarray,
    goal: float,
    goal_factor: float,
    budget: int,
    tell: Callable[[float, int, float], None] | None,
    level: float,
    passes_before: int,
) -> Ascent:
    """Newton steps at one epsilon until error and factor are below their goals."""
    point = evaluate(softmin, dual, gamma)
    passes, steps, damping, direct, longest = 1, 0, FIRST_DAMPING, False, LONGEST_STEP
    weight = np.sum(dual.source_weights) + np.sum(dual.target_weights)
    while (point.error > goal or point.factor > goal_factor) and passes < budget:
        if tell is not None:
            tell(level, passes_before + passes, point.error)
        d, sweeps, direct = newton_step(softmin, dual, point, damping, direct)
        ahead = point.gamma + np.minimum(np.maximum(d, -longest), longest)
        if not dual.augmented:
            ahead = np.minimum(ahead, 0.0)
        trial = evaluate(softmin, dual, ahead)
        passes += sweeps + 1
        promised = np.sum(point.gradient * (trial.gamma - point.gamma))
        gained = trial.value - point.value
        terms = np.sum(dual.source_weights * np.abs(point.at.potential)) + np.sum(
            dual.target_weights * np.abs(point.gamma)
        )
        noise = ROUNDING * (terms + 10 * weight)
        rounding = max(abs(promised), -gained) <= noise
        if 0 < gained >= ACCEPTED_SHARE * abs(promised) or (rounding and trial.error < point.error):
            if gained >= 0.5 * promised:
                damping = damping / LESS_DAMPING if damping > LEAST_DAMPING else 0.0
                longest = LONGER * longest if np.max(np.abs(d)) > longest else LONGEST_STEP
            point = trial
            steps += 1
        elif damping < MOST_DAMPING:
            damping = max(MORE_DAMPING * damping, FIRST_DAMPING)
            if longest > LONGEST_STEP:
                longest = LONGEST_STEP
                point = evaluate(softmin, dual, point.gamma)  # where the kernel of the trial may not reach
                passes += 1
        else:
            return Ascent(point, passes, steps, True)
    return Ascent(point, passes, steps, False)


def ascend(
    climb: Callable[..., Ascent],
    softmin: Any,
    dual: Dual,
    epsilon: float,
    largest_reward: float,
    tolerance: float,
    max_passes: int,
    tell: Callable[[float, int, float], None] | None,
) -> Ascent:
    """Maximise the dual at `epsilon`, starting from a larger one, where the dual is nearly quadratic.

    From one level to the next the potentials are extrapolated: towards zero they become linear in epsilon. `climb` is
    the function above, or its compiled form.
    """
    level, factor = max(epsilon, FIRST_SHARE * largest_reward), FIRST_FACTOR
    gamma = np.zeros(dual.target_weights.size)
    earlier, g_earlier = level, gamma
    passes = 0
    while True:
        softmin.scale(level)
        last = level == epsilon
        goal = tolerance if last else max(tolerance, LEVEL_ERROR)
        goal_factor = math.inf if last else LEVEL_FACTOR
        budget = max_passes - passes if last else (max_passes - passes) // 2
        reached = climb(softmin, dual, gamma, goal, goal_factor, budget, tell, level, passes)
        passes += reached.passes
        if last:
            return Ascent(reached.point, passes, reached.steps, reached.stalled)
        if reached.steps <= EASY:
            factor = min(LARGEST_FACTOR, 1.5 * factor)
        elif reached.steps > HARD:
            factor = max(SMALLEST_FACTOR, factor / 1.5)
        g = level * reached.point.gamma
        following = max(epsilon, level / factor) if passes < max_passes // 2 else epsilon
        slope = (following - level) / (level - earlier) if level < earlier else 0.0
        ahead = g + (g - g_earlier) * slope
        if not dual.augmented:
            ahead = np.minimum(ahead, 0.0)
        gamma = ahead / following
        earlier, g_earlier, level = level, g, following
