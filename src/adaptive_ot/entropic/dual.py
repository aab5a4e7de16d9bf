"""Translate models for the entropic ascent: the points that take part, the dual, the start, and the potentials."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from adaptive_ot.entropic.oracle import NOTHING, RowRule
from adaptive_ot.errors import Infeasible
from adaptive_ot.problem import Problem

if TYPE_CHECKING:
    from adaptive_ot.entropic.ascent import Ascent, Dual
    from adaptive_ot.entropic.solver import Entropic

# Weights below this share of the largest one count as zero: their reciprocals would be infinite.
MINUTE = 1e-250

# Stands for an infinite potential, of a point that no allowed pair reaches, or for no cap at all.
FAR = -NOTHING

# If less than this share of the mass to move is missing, the cause is rounding.
MISSING = 1e-9


# The most mass that allowed pairs can move between weights. An exact solver computes it; `solve` passes it in.
Movable = Callable[[Any, np.ndarray, np.ndarray], float]


class Task(NamedTuple):
    """The weights that take part, the mass to move (0 if it is not prescribed), and the most mass that can move."""

    mu: np.ndarray
    nu: np.ndarray
    amount: float
    most: float

    @property
    def is_empty(self) -> bool:
        return not (self.mu.sum() > 0 and self.nu.sum() > 0)


def task_of(problem: Problem, movable: Movable) -> Task:
    """The points that take part; raises `Infeasible` if forbidden pairs leave no plan."""
    marginals, mu, nu = problem.marginals, problem.source_weights, problem.target_weights
    (source, target), most = marginals.sides, problem.most_mass
    if not marginals.prescribes_mass and source.bounded and target.bounded:
        return Task(mu, nu, 0.0, most)
    pairs = problem.cost.allowed_pairs()
    if pairs is not None:  # a point that cannot be reached takes no part in the plan
        mu = np.where(pairs @ (nu > 0) > 0, mu, 0.0) if source.soft else mu
        nu = np.where(pairs.T @ (mu > 0) > 0, nu, 0.0) if target.soft else nu
    if not marginals.prescribes_mass:
        return Task(mu, nu, 0.0, most)
    amount = problem.prescribed_mass
    if pairs is not None and amount > 0:
        most = movable(pairs, mu, nu)
        if most < amount * (1 - MISSING):
            raise Infeasible(amount, most)
    if not (source.bounded and target.bounded):
        return Task(mu, nu, 0.0, most)
    moves = float(amount > 0)
    return Task(moves * mu, moves * nu, min(amount, most), most)


def dual_of(problem: Problem, task: Task, solver: Entropic) -> Dual:
    """The dual of a model in one of the three forms."""
    mu, nu = (np.where(side > MINUTE * side.max(), side, 0.0) for side in (task.mu, task.nu))
    augmented = solver.entropy == "augmented" and all(side.bounded for side in problem.marginals.sides)
    everything_moves = task.amount > 0 and task.amount >= (1 - solver.tolerance) * max(mu.sum(), nu.sum())
    if augmented and not everything_moves:
        # Something has to be left to the dummies: moving all mass that can move takes an infinite price.
        return dual_with_dummies(mu, nu, min(task.amount, (1 - solver.tolerance) * task.most))
    dual = dual_without_dummies(problem, mu, nu, task.amount, solver)
    if augmented:  # all mass moves on both sides, so only the reference differs
        log_total = math.log(mu.sum() + nu.sum())
        dual = dual._replace(constant=task.amount * (1 + log_total + log_exchange(mu, nu, task.amount)))
    return dual


def dual_with_dummies(mu: np.ndarray, nu: np.ndarray, amount: float) -> Dual:
    """The dual of the augmented form: a dummy source and a dummy target take what does not move."""
    from adaptive_ot.entropic.ascent import Dual

    # The reference is the product of the weights, dummies included, divided by their total: it is scale-free.
    log_total, share = math.log(mu.sum() + nu.sum()), smallest_share(mu, nu)
    rule = RowRule(np.full(mu.size, log_total), log_weights(mu) - log_total, math.inf, math.log(mu.sum()), share)
    constant = amount * log_exchange(mu, nu, amount) if amount > 0 else 0.0
    return Dual(mu, nu, rule, log_weights(nu), True, constant, math.inf, amount)


def dual_without_dummies(problem: Problem, mu: np.ndarray, nu: np.ndarray, amount: float, solver: Entropic) -> Dual:
    """The dual of the product or the counting form: potentials are capped, free, or penalised."""
    from adaptive_ot.entropic.ascent import Dual

    totals = float(problem.source_weights.sum()), float(problem.target_weights.sum())
    source, target = sides = problem.marginals.sides
    constant, tilt = 0.0, 0.0
    for side, weights, total in zip(sides, (mu, nu), totals, strict=True):  # the divergence of what takes no part
        constant += (total - weights.sum()) * (side.tau / solver.strength) if side.soft else 0.0
    if source.soft and source == target:
        # Both sides move the same mass, so their weights may be scaled to the same total: this only shifts potentials.
        roots = math.sqrt(mu.sum()), math.sqrt(nu.sum())
        total, apart = roots[0] * roots[1], (mu.sum() - nu.sum()) / sum(roots)
        tilt = 0.5 * source.tau * math.log(mu.sum() / nu.sum())
        constant += apart**2 * (source.tau / solver.strength)
        mu, nu = mu * (total / mu.sum()), nu * (total / nu.sum())
    if solver.entropy == "counting":
        row_total, references = log_weights(mu), [np.where(side > 0, 0.0, NOTHING) for side in (mu, nu)]
    else:
        row_total, references = np.zeros(mu.size), [log_weights(mu), log_weights(nu)]
        constant += totals[0] * totals[1]
    source_cap, target_cap = (0.0 if side.bounded else FAR for side in sides)
    rule = RowRule(row_total, references[0], source_cap, -math.inf, smallest_share(mu, nu))
    taus = source.tau, target.tau
    return Dual(mu, nu, rule, references[1], False, constant, target_cap, amount, taus, tilt)


def smallest_share(mu: np.ndarray, nu: np.ndarray) -> float:
    """The smallest part of a row that can matter to some column (see `RowRule`)."""
    lightest = nu[nu > 0].min() / (mu.max() * mu.size)
    return min(1.0, lightest) / nu.size


def log_exchange(mu: np.ndarray, nu: np.ndarray, amount: float) -> float:
    """The log ratio of an amount exchanged between the dummies to its reference."""
    return math.log(amount / mu.sum()) + math.log((mu.sum() + nu.sum()) / nu.sum())


def log_weights(weights: np.ndarray) -> np.ndarray:
    """Logarithms, NOTHING for zero."""
    return np.log(weights, out=np.full(weights.size, NOTHING), where=weights > 0)


def first_size(problem: Problem) -> float:
    """The typical size of the potentials, which decides where the ascent starts."""
    sides, costs = problem.marginals.sides, problem.cost.sample()
    lowest = lowest_of(costs)
    if not problem.marginals.prescribes_mass and all(side.bounded for side in sides):
        return max(0.0, -lowest)
    highest = float(costs[costs < math.inf].max())
    if any(side.soft for side in sides):  # mass that cannot move costs tau
        tau = max(side.tau for side in sides if side.soft)
        return max(highest, -lowest, tau * (problem.cost.allowed_pairs() is not None))
    return highest - lowest


def lowest_of(costs: Any) -> float:
    """The lowest of some costs, 0 if there are none."""
    return float(costs.min()) if math.prod(costs.shape) else 0.0


def potentials_of(problem: Problem, dual: Dual, end: Ascent, epsilon: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Source and target potentials at the end of an ascent, and the price of mass, in units of the cost.

    Targets without weight have no potential yet.
    """
    at, shift = end.at, dual.shift(end.at.h)
    price = end.eliminated if dual.amount > 0 else 0.0
    if dual.augmented and dual.amount > 0:
        price += log_exchange(dual.source_weights, dual.target_weights, dual.amount) - shift
    f = epsilon * (at.potential - end.eliminated) + dual.tilt
    g = epsilon * (end.gamma + shift) - dual.tilt
    # Points without weight take no part in the ascent: they get potentials of the exact problem.
    weighs = dual.source_weights > 0
    if not weighs.all():
        highest = max(0.0, float(g[dual.target_weights > 0].max()))
        least = lowest_of(problem.cost.sample()) - epsilon * price - highest
        f = np.where(weighs, f, np.clip(f, min(0.0, least), 0.0))
    if problem.marginals.sides[0].soft:
        f = np.where((problem.source_weights > 0) & (at.log_sums < NOTHING / 2), FAR, f)
    return f, g, epsilon * price
