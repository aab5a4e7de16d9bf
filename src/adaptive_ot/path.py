"""The mass path: partial transport of every mass at once, to help decide how much should move."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from adaptive_ot import _html
from adaptive_ot import _validation as check
from adaptive_ot._partners import find_gap, most_points, sample
from adaptive_ot._progress import Progress
from adaptive_ot.batch import is_batch
from adaptive_ot.errors import Infeasible, InvalidInput
from adaptive_ot.exact.solver import Exact
from adaptive_ot.marginals import FixedMass
from adaptive_ot.problem import Problem
from adaptive_ot.solution import Solution

if TYPE_CHECKING:
    from adaptive_ot.exact.parametric import Steps
    from adaptive_ot.exact.weights import NetworkWeights


class Suggestion(NamedTuple):
    """Masses worth a look.

    `adaptive` is the mass that adaptive transport moves with the unchanged cost: everything that pays off. `elbow` is
    the mass up to the price that lies between the costs of points with a near partner and those of points without; None
    if there is no such gap. It does not depend on where the cost is zero.
    """

    adaptive: float
    elbow: float | None


def mass_path(
    cost: Any,
    source_weights: Any = None,
    target_weights: Any = None,
    *,
    progress: Callable[[Progress], None] | None = None,
) -> MassPath:
    """Partial transport of every mass, from nothing to all that can move.

    The least cost of moving a mass is a convex, piecewise linear function of the mass. Its slope is the *price* of mass
    (lambda in the literature): partial transport of that mass is adaptive transport of ``cost - price``. A single walk
    visits all pieces. "Computing all Optimal Partial Transports" (ICLR 2023) solved this problem first.

    Parameters
    ----------
    cost, source_weights, target_weights
        As for `solve`: dense, sparse or from points, of any sign.
    progress
        Called with a `Progress` several times a second during a long walk.

    Examples
    --------
    >>> import adaptive_ot as aot
    >>> path = aot.mass_path([[-3.0, 1.0], [2.0, 4.0]])
    >>> path.mass, path.value, path.price
    (array([0. , 0.5, 1. ]), array([ 0. , -1.5,  0.5]), array([-3.,  4.]))
    >>> path.plan_at(0.25)
    array([[0.25, 0.  ],
           [0.  , 0.  ]])
    >>> path.mass_at(price=0.0)
    0.5
    >>> path.suggest()
    Suggestion(adaptive=0.5, elbow=None)
    """
    # Numba takes half a second to import; only a solve should pay for it.
    from adaptive_ot.exact.columns import pricing_for
    from adaptive_ot.exact.parametric import ParametricSimplex
    from adaptive_ot.exact.simplex import slack_tree
    from adaptive_ot.exact.weights import whole_weights

    if is_batch(cost):
        raise InvalidInput("cost", "must be that of a single problem", "a batch", "Call mass_path for each of them.")
    problem = Problem.build(cost, source_weights, target_weights, call="mass_path")
    if progress is not None:
        check.function("progress", progress)
    pricing = pricing_for(problem.cost)
    lowest = pricing.minima(np.zeros(problem.cost.shape[0]))[0].min(initial=np.inf)
    base = float(lowest) if np.isfinite(lowest) else 0.0
    weights = whole_weights(problem.source_weights, problem.target_weights)

    def tell() -> None:
        if progress:
            progress(Progress("walking", 0, min(1.0, walk.mass / problem.most_mass), walk.pivots, 0, 0.0))

    walk = ParametricSimplex(pricing, slack_tree(weights.source, weights.target), weights, base, tell)
    walk.to(2**62)
    return MassPath.of(problem, walk.steps(), weights, base)


@dataclass(frozen=True, eq=False, repr=False)
class MassPath:
    """The least cost of moving every mass; made by `mass_path`.

    Attributes
    ----------
    problem
        Cost and weights.
    mass, value
        The corners of the path, from 0 to all that can move: a mass and the least cost of moving it. In between, both
        the cost and the plan are linear.
    price
        The cost of a unit of mass between two corners, ascending (one entry fewer than corners).
    """

    problem: Problem
    mass: np.ndarray
    value: np.ndarray
    price: np.ndarray
    _steps: Steps
    _weights: NetworkWeights
    _base: float

    @classmethod
    def of(cls, problem: Problem, steps: Steps, weights: NetworkWeights, base: float) -> MassPath:
        """The path of a walk."""
        # Rounding the weights up to integers leaves a few units over; these move last and mean nothing.
        moving = steps.amount > (0 if weights.unit else weights.source.size + weights.target.size)
        price, mass = base + steps.price[moving], np.cumsum(steps.amount[moving]) * weights.grain
        corner = np.append(price[1:] > price[:-1], True)[: price.size]
        price, mass = price[corner], np.append(0.0, mass[corner])
        value = np.append(0.0, np.cumsum(price * np.diff(mass)))
        return cls(problem, mass, value, price, steps, weights, base)

    @property
    def most_mass(self) -> float:
        """All that can move."""
        return float(self.mass[-1])

    def mass_at(self, price: Any) -> Any:
        """The mass that adaptive transport of ``cost - price`` moves: everything that costs less than the price.

        A number for a number, an array for an array of prices.
        """
        return _each("price", price, lambda each: check.number("price", each), self._mass_at)

    def value_at(self, mass: Any) -> Any:
        """The least cost of moving a mass; for an array of masses, an array.

        Examples
        --------
        >>> import adaptive_ot as aot
        >>> path = aot.mass_path([[-3.0, 1.0], [2.0, 4.0]])
        >>> path.value_at(0.5), path.value_at([0.0, 0.25, 1.0])
        (-1.5, array([ 0.  , -0.75,  0.5 ]))
        """
        return _each("mass", mass, self._checked, lambda masses: np.interp(masses, self.mass, self.value))

    def price_at(self, mass: Any) -> Any:
        """The cost per unit of the last bit of a mass; 0 if nothing can move. For an array of masses, an array."""
        return _each("mass", mass, self._checked, self._price_at)

    def plan_at(self, mass: float) -> Any:
        """An optimal plan of this mass, in the library of the input."""
        return self.solution_at(mass).plan

    def solution_at(self, mass: float) -> Solution:
        """The solution of `FixedMass(mass)`, with its certificate; `status` says whether the certificate holds."""
        from adaptive_ot.exact.columns import pricing_for
        from adaptive_ot.exact.parametric import ParametricSimplex
        from adaptive_ot.exact.prescribed import flow_of, solution_of

        mass = self._checked(mass)
        problem = replace(self.problem, marginals=FixedMass(mass))
        pricing, goal = pricing_for(self.problem.cost), flow_of(mass, self._weights)
        walk = ParametricSimplex.repeated(pricing, self._weights, self._base, self._steps, goal)
        return solution_of(problem, Exact(), walk, True, self._steps.tail.size)

    def suggest(self) -> Suggestion:
        """Which mass to choose: see `Suggestion`."""
        return Suggestion(self.mass_at(0.0), self._elbow)

    @cached_property
    def _elbow(self) -> float | None:
        cost, weights = self.problem.cost, (self.problem.source_weights, self.problem.target_weights)
        able = [np.flatnonzero(side > 0) for side in weights]
        most = min(able[0].size, able[1].size, most_points(getattr(cost, "dimension", 1)))
        costs = cost.part(*(side[sample(side.size, most)] for side in able))
        least = cost.least if cost.least > -np.inf else costs.min(initial=np.inf)
        gap = find_gap(costs - least) if np.isfinite(least) else None
        mass = self.mass_at(least + gap.middle) if gap else 0.0
        return mass if 0 < mass < self.most_mass else None

    def _mass_at(self, prices: np.ndarray) -> np.ndarray:
        return self.mass[np.searchsorted(self.price, prices, side="left")]

    def _price_at(self, masses: np.ndarray) -> np.ndarray:
        if not self.price.size:
            return np.zeros(masses.shape)
        return self.price[np.maximum(0, np.searchsorted(self.mass, masses, side="left") - 1)]

    def _checked(self, mass: float) -> float:
        weights = self.problem.source_weights, self.problem.target_weights
        fixed = FixedMass(mass)
        fixed.checked(*weights)
        mass = fixed.prescribed(*weights)
        if mass > self.most_mass * (1 + 1e-9):
            raise Infeasible(mass, self.most_mass)
        return min(mass, self.most_mass)

    def __repr__(self) -> str:
        n, m = self.problem.cost.shape
        return f"<MassPath of {n} x {m}: mass 0 to {self.most_mass:.6g} in {self.price.size} pieces>"

    def __str__(self) -> str:
        n, m = self.problem.cost.shape
        adaptive, elbow = self.suggest()
        lines = [f"Mass path, {n} x {m}", f"  mass      0 to {self.most_mass:.12g} in {self.price.size} pieces"]
        if self.price.size:

            def at(mass: float | None) -> str:
                return (
                    "none" if mass is None else f"mass {mass:.6g}, value {np.interp(mass, self.mass, self.value):.6g}"
                )

            lines += [
                f"  price     {self.price[0]:.6g} to {self.price[-1]:.6g} a unit",
                f"  adaptive  {at(adaptive)}",
                f"  elbow     {at(elbow)}",
            ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return _html.table(str(self))


def _each(name: str, given: Any, checked: Callable[[float], float], answer: Callable[[np.ndarray], np.ndarray]) -> Any:
    """The answer to a single number, or the answers to all numbers of an array, in its shape."""
    try:
        single = np.ndim(given) == 0
    except ValueError:  # ragged, which the check of an array explains
        single = False
    if single:
        return float(answer(np.array(checked(given))))
    array = check.real_array(name, given).astype(np.float64)
    if array.size:
        checked(float(array.min()))  # NaN if any number is
        array = np.minimum(array, checked(float(array.max())))
    return answer(array)
