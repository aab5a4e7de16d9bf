"""Maximise the dual of an entropic problem by a damped Newton method, along a sequence of decreasing epsilons.

Here, potentials are in units of epsilon. The source potentials are always at their optimum for the target potentials
(`update_rows`), so the dual is a function of the target potentials alone. Its gradient is what the columns lack; its
Hessian, -(diag(c) - G^T D G), is applied by sweeps and never formed. The equations are solved in the form
log c = log nu. Without the Hessian's second term, a step would be Sinkhorn's; that term makes the method fast.

The models differ in the rule for the rows, and in what the columns are due. With `Equal`, nothing caps the potentials.
With `SoftKL`, a row or column is due its weight times exp(-softness * potential). With `FixedMass`, the price of mass
is one more potential: like the row potentials, it is at its optimum for the target potentials. With `SoftKL`, so is the
common constant of the target potentials, which is nearly free if tau is large.

Functions marked `register_jitable` run as plain Python with any `Oracle`, and as compiled code for small problems,
where the interpreter would take longer than the work itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba.extending import register_jitable

from adaptive_ot.entropic import constants
from adaptive_ot.entropic.oracle import NOTHING, Approach, Conditions, Equations, RowRule, RowUpdate
from adaptive_ot.entropic.price import chosen, price_of_mass, price_with_dummies


class Dual(NamedTuple):
    """The dual of one of the entropic forms.

    `reference` holds the logarithms of the target weights of the reference measure. In the augmented form, a dummy
    source with the total weight of the targets takes part (`rule.dummy` stands for the dummy target); otherwise
    potentials are at most `rule.cap` and `cap`. `constant` must be added to the value and depends on no potential.
    `amount` is the mass to move if it is fixed, otherwise 0. `taus` are the prices of divergence of rows and columns,
    or inf. `tilt` must be added to source potentials, in units of the cost, because weights were scaled to the same
    total. `softness` is epsilon over the price of divergence of the columns; the rule has the softness of the rows.
    """

    source_weights: np.ndarray
    target_weights: np.ndarray
    rule: RowRule
    reference: np.ndarray
    augmented: bool
    constant: float
    cap: float
    amount: float = 0.0
    taus: tuple[float, float] = (math.inf, math.inf)
    tilt: float = 0.0
    softness: float = 0.0

    def at(self, epsilon: float) -> Dual:
        """The dual at an epsilon."""
        of_rows, of_columns = self.taus
        return self._replace(rule=self.rule._replace(softness=epsilon / of_rows), softness=epsilon / of_columns)

    def shift(self, h: np.ndarray) -> float:
        """The constant to add to target potentials so that they do not depend on the potentials of the dummies."""
        return dummy_source(self, h)[0] if self.augmented else 0.0


class Point(NamedTuple):
    """The dual and its derivatives at target potentials `gamma`.

    The Hessian is  -(diag(c) - G^T D G - S^T S).  The rows of S, `spill`, are what moves together besides the rows of
    the plan: the dummy source, and what the price moves.

    `due` holds the required column sums. `eliminated` is the one potential that is always at its optimum for the
    others: the price of mass, or the constant that was added to all of `gamma` to centre it. `at` keeps the scalings
    from before, so the row potentials are `at.potential - eliminated`. `error` is the total error of all free columns,
    relative to the target weight or the mass to move; `factor` is the largest error of a single column, as a logarithm.
    """

    gamma: np.ndarray
    at: RowUpdate
    columns: np.ndarray
    due: np.ndarray
    spill: np.ndarray
    eliminated: float
    value: float
    gradient: np.ndarray
    free: np.ndarray
    error: float
    factor: float


class Ascent(NamedTuple):
    """Where an ascent ended, after how many passes over all pairs (or a kept P), and whether it got stuck.

    The first five fields come from the last `Point`.
    """

    gamma: np.ndarray
    at: RowUpdate
    eliminated: float
    value: float
    error: float
    passes: int
    steps: int
    stalled: bool


@register_jitable
def dummy_source(dual: Dual, h: np.ndarray) -> tuple[float, np.ndarray]:
    """The potential of the dummy source and its row of the plan; without the dummy target if the mass is fixed."""
    dummy = -np.inf if dual.amount > 0 else dual.rule.dummy
    highest = max(dummy, np.max(h))
    log_sum = highest + math.log(np.sum(np.exp(h - highest)) + math.exp(dummy - highest))
    total = np.sum(dual.target_weights)
    supply = total - dual.amount
    potential = math.log(np.sum(dual.source_weights) + total) + math.log(supply / total) - log_sum
    return potential, supply * np.exp(h - log_sum)


@register_jitable
def due(weights: np.ndarray, potential: np.ndarray, softness: float) -> np.ndarray:
    """The required sums of rows or columns with these potentials."""
    return weights * np.exp(np.minimum(-softness * potential, constants.HIGHEST)) if softness > 0 else weights


@register_jitable
def worth(weights: np.ndarray, potential: np.ndarray, softness: float) -> np.ndarray:
    """What potentials of rows or columns add to the dual value: the integral of `due`."""
    if softness > 0:
        return weights * np.expm1(np.minimum(-softness * potential, constants.HIGHEST)) / -softness
    return weights * potential


@register_jitable
def at_fixed_mass(softmin: Any, dual: Dual, at: RowUpdate) -> tuple[RowUpdate, np.ndarray, float]:
    """Rows that move the amount in total, with the price in their potentials; what the price moves; the price.

    The price moves the part of a row that its weight does not hold: all of a slack row, the dummy's part of others.
    """
    rule, log_sums = dual.rule, np.maximum(at.log_sums, NOTHING)
    if dual.augmented:
        price = price_with_dummies(dual, log_sums)
        shared = np.logaddexp(log_sums + price, rule.dummy)
        potential, loose = price + rule.total - shared, np.exp(rule.dummy - shared)
    else:
        price = price_of_mass(dual, log_sums)
        potential = price + np.minimum(rule.total - log_sums - price, 0.0)
        loose = 1.0 * (potential == price)
    rows = np.exp(potential + rule.reference + log_sums)
    some = rows > 1e-250 * dual.amount
    inverse = some / chosen(some, rows, 1.0)
    at = RowUpdate(at.h, at.log_sums, potential, at.columns)
    columns = softmin.weighted_columns(at, rule, inverse)
    moved = softmin.weighted_columns(at, rule, inverse * loose)
    weight = math.sqrt(np.sum(rows * loose))
    return RowUpdate(at.h, at.log_sums, potential, columns), moved / (weight if weight > 0 else 1.0), price


@register_jitable
def centred(dual: Dual, at: RowUpdate, gamma: np.ndarray) -> tuple[RowUpdate, np.ndarray, float]:
    """Rows after adding the constant to `gamma` that makes both sides due the same mass; its spill; the constant."""
    of_rows, softness = dual.rule.softness, dual.softness
    share = of_rows / (1 + of_rows)  # of the constant; the rows take the rest back
    missing = log_due(dual.target_weights, gamma, softness) - log_due(dual.source_weights, at.potential, of_rows)
    constant = missing / (softness + share)
    columns = np.exp(share * constant) * at.columns
    moved = columns * math.sqrt((softness + share) / np.sum(columns))
    return RowUpdate(at.h, at.log_sums, at.potential + share * constant, columns), moved, constant


@register_jitable
def log_due(weights: np.ndarray, potential: np.ndarray, softness: float) -> float:
    """The logarithm of the total that all rows or columns are due."""
    exponents = chosen(weights > 0, -softness * potential, NOTHING)
    highest = np.max(exponents)
    return highest + math.log(np.sum(weights * np.exp(exponents - highest)))


@register_jitable
def evaluate(softmin: Any, dual: Dual, gamma: np.ndarray) -> Point:
    """The dual at `gamma`: one pass over all pairs, three if the mass is fixed."""
    mu, nu, rule, softness = dual.source_weights, dual.target_weights, dual.rule, dual.softness
    h, total, fixed = gamma + dual.reference, np.sum(nu), dual.amount > 0
    at, eliminated = softmin.update_rows(h, rule), 0.0
    soft = rule.softness > 0 or softness > 0
    centre = soft and rule.cap > 0 and dual.cap > 0  # caps determine the common constant of the potentials
    spill = np.zeros((int(fixed or centre) + int(dual.augmented), nu.size))
    if fixed:
        at, spill[-1], eliminated = at_fixed_mass(softmin, dual, at)
    elif centre:
        at, spill[-1], eliminated = centred(dual, at, gamma)
        gamma = gamma + eliminated
    value = np.sum(worth(mu, at.potential - eliminated, rule.softness)) + np.sum(worth(nu, gamma, softness))
    value += dual.amount * eliminated
    columns, goal = at.columns, due(nu, gamma, softness)
    if dual.augmented:
        potential, sent = dummy_source(dual, h)
        columns = columns + sent
        value += (total - dual.amount) * potential
        spill[0] = sent / math.sqrt(total - dual.amount)
    else:
        value -= np.sum(np.exp(at.potential + rule.reference + at.log_sums))
    columns, goal = np.maximum(columns, constants.LEAST * total), np.maximum(goal, constants.LEAST * total)
    free = (nu > 0) & ((gamma < dual.cap) | (columns > goal))
    gradient = (goal - columns) * free
    factor = np.max(np.abs(log_ratio(goal, columns, free)))
    unit = max(dual.amount, constants.SMALLEST_UNIT * total) if fixed else max(total, np.sum(goal))
    lost = soft and np.max(columns) <= constants.LEAST * total  # so far from the solution that everything underflows
    error = np.inf if lost else np.sum(np.abs(gradient)) / unit
    return Point(gamma, at, columns, goal, spill, eliminated, value, gradient, free, error, factor)


@register_jitable
def log_ratio(due: np.ndarray, columns: np.ndarray, free: np.ndarray) -> np.ndarray:
    """log(due / columns) for the free columns."""
    due = chosen(free, due, 1.0)
    return np.log(due / chosen(free, np.maximum(columns, 1e-200 * due), 1.0))


@register_jitable
def newton_step(
    softmin: Any, dual: Dual, point: Point, damping: float, direct: bool, conditions: Conditions, goal: float
) -> tuple[np.ndarray, int, bool]:
    """The damped Newton step, the number of sweeps it took, and whether to solve directly from now on."""
    mu, free, softness = dual.source_weights, point.free, dual.rule.softness
    rows = due(mu, point.at.potential - point.eliminated, softness)
    full = (point.at.potential < dual.rule.cap + point.eliminated) & (rows > constants.LEAST * np.sum(mu))
    weights = full / ((1 + softness) * chosen(full, rows, 1.0))
    columns = chosen(free, np.maximum(point.columns, 1e-200 * point.due), 1.0)
    diagonal = (1 + dual.softness + damping) * columns
    right = columns * log_ratio(point.due, point.columns, free)
    uncapped = min(dual.rule.cap, dual.cap) > 0 and not dual.augmented  # a constant may move between the sides
    if (uncapped or dual.amount > 0) and np.sum(free) == np.sum(dual.target_weights > 0):
        right = right - columns * free * (np.sum(right) / np.sum(columns * free))
    equations = Equations(weights, diagonal, point.spill, free, right)
    d, sweeps = right, 0
    residual = max(math.sqrt(point.error), conditions.leave * goal / max(point.error, goal))
    residual = min(constants.LOOSEST_RESIDUAL, residual)
    if not direct:
        d, sweeps, met = conjugate_gradients(softmin, dual, point, equations, residual, conditions.few_sweeps)
        direct = not met and conditions.few_sweeps < constants.MANY_SWEEPS
    if direct:
        direct, d = softmin.solve_directly(point.at, dual.rule, equations)
        sweeps += 1
        if not direct:
            d, more, _ = conjugate_gradients(softmin, dual, point, equations, residual, constants.MANY_SWEEPS)
            sweeps += more
    return d, sweeps, direct


@register_jitable
def conjugate_gradients(
    softmin: Any, dual: Dual, point: Point, equations: Equations, relative: float, most_sweeps: int
) -> tuple[np.ndarray, int, bool]:
    """The Newton step up to a relative residual, the number of sweeps it took, and whether these were enough."""
    diagonal, residual = equations.diagonal, equations.right
    d, direction = np.zeros(residual.size), residual / diagonal
    size = np.sum(residual * direction)
    goal = size * relative**2
    sweeps = 0
    while size > goal and sweeps < most_sweeps:
        product = softmin.curvature(point.at, dual.rule, equations.weights, direction)
        for sent in point.spill:
            product = product + sent * np.sum(sent * direction)
        product = (diagonal * direction - product) * point.free
        sweeps += 1
        bend = np.sum(direction * product)
        if bend <= constants.FLAT * np.sum(direction * diagonal * direction):  # flat up to rounding
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
    conditions: Conditions,
    budget: int,
    tell: Callable[[float, int, float], None] | None,
    level: float,
    passes_before: int,
    direct: bool,
) -> Ascent:
    """Newton steps at one epsilon until error and factor meet their goals; `direct` says how to compute the steps.

    Where no step helps because of rounding that more precise sums would not have, damping would not help either.
    """
    point = evaluate(softmin, dual, gamma)
    each, least = 3 if dual.amount > 0 else 1, constants.LEAST_DAMPING
    passes, steps, damping, longest = each, 0, constants.FIRST_DAMPING, constants.LONGEST_STEP
    weight = np.sum(dual.source_weights) + np.sum(dual.target_weights)
    if dual.amount > 0 and not dual.augmented:
        weight = dual.amount
    stalled = False
    while not stalled and (point.error > goal or point.factor > goal_factor) and passes < budget:
        if tell is not None:
            tell(level, passes_before + passes, point.error)
        d, sweeps, direct = newton_step(softmin, dual, point, damping, direct, conditions, goal)
        ahead = point.gamma + np.minimum(np.maximum(d, -longest), longest)
        trial = evaluate(softmin, dual, within(dual, ahead))
        passes += sweeps + each
        promised = np.sum(point.gradient * (trial.gamma - point.gamma))
        gained = trial.value - point.value
        terms = dual.amount * abs(point.eliminated)
        terms += np.sum(np.abs(worth(dual.source_weights, point.at.potential - point.eliminated, dual.rule.softness)))
        terms += np.sum(np.abs(worth(dual.target_weights, point.gamma, dual.softness)))
        noise = conditions.rounding * (terms + 10 * max(weight, np.sum(point.columns)))
        rounding = max(abs(promised), -gained) <= noise
        if 0 < gained >= constants.ACCEPTED_SHARE * abs(promised) or (rounding and trial.error < point.error):
            if gained >= 0.5 * promised:
                damping = damping / constants.LESS_DAMPING if damping > least else 0.0
                longest = constants.LONGER * longest if np.max(np.abs(d)) > longest else constants.LONGEST_STEP
            point = trial
            steps += 1
        elif damping < constants.MOST_DAMPING and not (rounding and conditions.rounding > constants.ROUNDING):
            if damping == 0:  # where the dual hardly bends, a step needs very little damping
                least = least / constants.LESS_DAMPING**3
            damping = max(constants.MORE_DAMPING * damping, constants.FIRST_DAMPING)
            moved = np.max(np.abs(trial.at.h - point.at.h))  # including the common constant
            if longest > constants.LONGEST_STEP or moved > 1.1 * constants.LONGEST_STEP:
                longest = constants.LONGEST_STEP
                point = evaluate(softmin, dual, point.gamma)  # the P of the trial may not serve this point
                passes += each
        else:
            stalled = True
    return Ascent(point.gamma, point.at, point.eliminated, point.value, point.error, passes, steps, stalled)


@register_jitable
def within(dual: Dual, gamma: np.ndarray) -> np.ndarray:
    """The nearest feasible target potentials; the price of mass takes their common constant."""
    gamma = np.minimum(gamma, dual.cap)
    if dual.amount > 0:
        gamma = gamma - np.max(chosen(dual.target_weights > 0, gamma, NOTHING))
    return gamma


def ascend(
    climb: Callable[..., Ascent],
    softmin: Any,
    dual: Dual,
    epsilon: float,
    size: float,
    tolerance: float,
    max_passes: int,
    tell: Callable[[float, int, float], None] | None,
    direct: bool = False,
    approach: Approach | None = None,
) -> Ascent:
    """Maximise the dual at `epsilon`, from an approach if there is one, or from a larger epsilon.

    There, the dual is nearly quadratic. `size`, the scale of the potentials, decides how large the first epsilon is.
    Potentials are extrapolated from one level to the next: they become linear in epsilon as it goes to zero. `climb` is
    the function above, or its compiled form. `direct` says that Newton's equations are few enough to be solved directly
    from the start.
    """
    level, factor = max(epsilon, constants.FIRST_SHARE * size), constants.FIRST_FACTOR
    gamma, passes = approach or (np.zeros(dual.target_weights.size), 0)
    earlier, g_earlier = level, gamma
    softmin.scale(level)
    while True:
        dual = dual.at(level)
        last = level == epsilon
        goal = max(softmin.conditions.least_error, tolerance if last else max(tolerance, constants.LEVEL_ERROR))
        goal_factor = math.inf if last else constants.LEVEL_FACTOR
        budget = max_passes - passes if last else (max_passes - passes) // 2
        limits = goal, goal_factor, softmin.conditions, budget
        reached = climb(softmin, dual, gamma, *limits, tell, level, passes, direct)
        passes += reached.passes
        if last:
            if not softmin.refine():
                return reached._replace(passes=passes)
            gamma = reached.gamma
            continue
        if reached.steps <= constants.EASY:
            factor = min(constants.LARGEST_FACTOR, 1.5 * factor)
        elif reached.steps > constants.HARD:
            factor = max(constants.SMALLEST_FACTOR, factor / 1.5)
        g = level * reached.gamma
        following = max(epsilon, level / factor) if passes < max_passes // 2 else epsilon
        slope = (following - level) / (level - earlier) if level < earlier else 0.0
        gamma = within(dual, (g + (g - g_earlier) * slope) / following)
        earlier, g_earlier, level = level, g, following
        softmin.scale(level)
