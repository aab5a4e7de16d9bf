"""The tolerance of the exact solver, and the solution with its certified gap."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from adaptive_ot import _validation as check
from adaptive_ot._arrays import to_numpy
from adaptive_ot.costs import NUMBERS_AT_ONCE
from adaptive_ot.marginals import ROUNDING, Bound
from adaptive_ot.problem import Problem
from adaptive_ot.solution import ListedTransport, Solution, Status, Support, marginal

# No plan that breaks its constraints by more than this share of the total weight counts as optimal.
LARGEST_VIOLATION = 1e-9

# Potentials are known up to this share of the largest one.
POTENTIAL_ROUNDING = 1e-13

# A gap above this share of the cost of the plan must also be small compared with ordinary costs.
CRUDE = 1e-3


@dataclass(frozen=True)
class Exact:
    """Solve to certified optimality.

    Parameters
    ----------
    tolerance
        The largest certified gap allowed, relative to the absolute values of the terms whose difference the gap is:
        <|C|, G> + <mu, |f|> + <nu, |g|> + |price| mass. For adaptive transport this is twice |value|.
        Rounding may add 1e-13 of the largest potentials per unit of mass. A gap above a thousandth of <|C|, G> must
        also be below the tolerance times an ordinary cost (the lower quartile of |C|) per unit of mass.
    max_pivots
        Give up after this many simplex pivots; by default 1000 per point, far more than real problems take.
    """

    tolerance: float = 1e-9
    max_pivots: int | None = None

    def __post_init__(self) -> None:
        check.number("tolerance", self.tolerance, minimum=0.0)
        if self.max_pivots is not None:
            check.whole_number("max_pivots", self.max_pivots, minimum=0)

    def pivot_limit(self, points: int) -> int:
        """The number of pivots after which to give up on a problem of this many points."""
        return 1000 * points if self.max_pivots is None else self.max_pivots


def allowed_gap(
    problem: Problem, solver: Exact, costs: np.ndarray, mass: np.ndarray, source_potential: np.ndarray, bound: Bound
) -> tuple[float, float]:
    """The largest gap that counts as optimal (see `Exact.tolerance`), and the rounding error of the bound.

    Both scale with the costs and with the weights.
    """
    moved, paid, proved, largest = float(mass.sum()), float(np.abs(costs) @ mass), 0.0, 0.0
    sides = (problem.source_weights, source_potential), (problem.target_weights, bound.target_potential)
    for weights, potential in sides:
        size = np.abs(potential)
        proved += float(weights @ size)
        largest += float(size.max(initial=0.0))
    price = abs(bound.price)
    allowed = solver.tolerance * (paid + proved + price * moved) + POTENTIAL_ROUNDING * (largest + price) * moved
    if allowed > CRUDE * paid > 0:
        # Potentials much larger than any cost in the plan come from costs that stand for forbidden pairs. The lower
        # quartile is typical of the costs that matter.
        sizes = np.abs(to_numpy(problem.cost.sample().reshape(-1)[:NUMBERS_AT_ONCE]))
        sizes = sizes[(sizes > 0) & (sizes < np.inf)]
        allowed = min(allowed, max(CRUDE * paid, solver.tolerance * float(np.quantile(sizes, 0.25)) * moved))
    return allowed, ROUNDING * proved


def certified(
    problem: Problem,
    solver: Exact,
    support: Support,
    costs: np.ndarray,
    source_potential: np.ndarray,
    bound: Bound,
    within_limit: bool,
    pivots: int,
    active_share: float = 0.0,
) -> Solution:
    """The solution with these pairs, and its gap to the bound that its potentials prove."""
    mu, nu = problem.source_weights, problem.target_weights
    rows, columns, mass = support
    value = float(costs @ mass)
    gap = max(0.0, value - bound.value)
    allowed = solver.tolerance * abs(value)
    # Adaptive potentials have one sign, so a small gap needs no further check.
    if gap > allowed or problem.marginals.prescribes_mass:
        allowed, rounding = allowed_gap(problem, solver, costs, mass, source_potential, bound)
        if rounding > allowed:  # below its own rounding error, a bound proves nothing
            gap = max(gap, rounding)
    marginals = marginal(rows, mass, mu.size), marginal(columns, mass, nu.size)
    violation = problem.marginals.violation(mu, nu, *marginals)
    if not within_limit:
        status = Status.PIVOT_LIMIT
    elif gap > allowed or violation > LARGEST_VIOLATION * max(mu.sum(), nu.sum()):
        status = Status.IMPRECISE
    else:
        status = Status.OPTIMAL
    transport = ListedTransport(problem.cost.shape, support)
    return Solution.certified(
        problem,
        transport,
        marginals,
        source_potential,
        bound,
        value=value,
        gap=gap,
        violation=violation,
        status=status,
        iterations=pivots,
        active_share=active_share,
    )
