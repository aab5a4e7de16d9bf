"""The mass path: partial transport of every mass at once, to help decide how much should move."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np

from adaptive_ot import _html
from adaptive_ot import _validation as check
from adaptive_ot._group import Message
from adaptive_ot._partners import find_gap, most_points, sample
from adaptive_ot._progress import Progress
from adaptive_ot.batch import is_batch
from adaptive_ot.costs import PointCost
from adaptive_ot.distributed import Meeting, Options, SolutionPart, check_same
from adaptive_ot.errors import Infeasible, InvalidInput
from adaptive_ot.exact.solver import Exact
from adaptive_ot.marginals import AtMost, FixedMass
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


@overload
def mass_path(
    cost: PointCost | Callable[[], PointCost],
    source_weights: Any = None,
    target_weights: Any = None,
    *,
    progress: Callable[[Progress], None] | None = None,
    group: Any,
) -> MassPathPart: ...
@overload
def mass_path(
    cost: Any,
    source_weights: Any = None,
    target_weights: Any = None,
    *,
    progress: Callable[[Progress], None] | None = None,
) -> MassPath: ...
def mass_path(
    cost: Any,
    source_weights: Any = None,
    target_weights: Any = None,
    *,
    progress: Callable[[Progress], None] | None = None,
    group: Any = None,
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
    group
        A group of `torch.distributed` whose processes all make this call, as for `solve`: each passes the cost and
        weights of its own sources, and gets a `MassPathPart`, which has the path of the whole problem.

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
    if group is not None:
        return MassPathPart.walked(group, cost, source_weights, target_weights, progress)
    if is_batch(cost):
        raise InvalidInput("cost", "must be that of a single problem", "a batch", "Call mass_path for each of them.")
    problem = Problem.build(cost, source_weights, target_weights, call="mass_path")
    return _walk(problem, _checked_progress(progress))


def _checked_progress(progress: Any) -> Callable[[Progress], None]:
    if progress is not None:
        check.function("progress", progress)
    return progress or (lambda _: None)


def _walk(problem: Problem, report: Callable[[Progress], None]) -> MassPath:
    """Walk along the whole path."""
    # Numba takes half a second to import; only a solve should pay for it.
    from adaptive_ot.exact.columns import pricing_for
    from adaptive_ot.exact.parametric import ParametricSimplex
    from adaptive_ot.exact.simplex import slack_tree
    from adaptive_ot.exact.weights import whole_weights

    pricing = pricing_for(problem.cost)
    lowest = pricing.minima(np.zeros(problem.cost.shape[0]))[0].min(initial=np.inf)
    base = float(lowest) if np.isfinite(lowest) else 0.0
    weights, most = whole_weights(problem.source_weights, problem.target_weights), problem.most_mass

    def tell() -> None:
        done = min(1.0, walk.mass / most) if most else 1.0
        report(Progress("walking", 0, done, walk.pivots, 0, 0.0))

    walk = ParametricSimplex(pricing, slack_tree(weights.source, weights.target), weights, base, tell)
    walk.to(2**62)
    return MassPath.of(problem, Walk(walk.steps(), weights, base))


class Walk(NamedTuple):
    """The steps of a walk along a mass path, and what they start from."""

    steps: Steps
    weights: NetworkWeights
    base: float


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
    _walk: Walk | None

    @classmethod
    def of(cls, problem: Problem, walk: Walk) -> MassPath:
        """The path of a walk."""
        steps, weights, base = walk
        # Rounding the weights up to integers leaves a few units over; these move last and mean nothing.
        moving = steps.amount > (0 if weights.unit else weights.source.size + weights.target.size)
        price, mass = base + steps.price[moving], np.cumsum(steps.amount[moving]) * weights.grain
        corner = np.append(price[1:] > price[:-1], True)[: price.size]
        price, mass = price[corner], np.append(0.0, mass[corner])
        value = np.append(0.0, np.cumsum(price * np.diff(mass)))
        return cls(problem, mass, value, price, walk)

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

        assert self._walk is not None
        steps, weights, base = self._walk
        mass = self._checked(mass)
        problem = replace(self.problem, marginals=FixedMass(mass))
        pricing, goal = pricing_for(self.problem.cost), flow_of(mass, weights)
        walk = ParametricSimplex.repeated(pricing, weights, base, steps, goal)
        return solution_of(problem, Exact(), walk, True, steps.tail.size)

    def suggest(self) -> Suggestion:
        """Which mass to choose: see `Suggestion`."""
        return Suggestion(self.mass_at(0.0), self._elbow)

    @cached_property
    def _elbow(self) -> float | None:
        cost = self.problem.cost
        able = [np.flatnonzero(side > 0) for side in self._weights]
        most = min(able[0].size, able[1].size, most_points(getattr(cost, "dimension", 1)))
        costs = cost.part(*(side[sample(side.size, most)] for side in able))
        least = cost.least if cost.least > -np.inf else costs.min(initial=np.inf)
        gap = find_gap(costs - least) if np.isfinite(least) else None
        mass = self.mass_at(least + gap.middle) if gap else 0.0
        return mass if 0 < mass < self.most_mass else None

    @property
    def _weights(self) -> tuple[np.ndarray, np.ndarray]:
        return self.problem.source_weights, self.problem.target_weights

    def _mass_at(self, prices: np.ndarray) -> np.ndarray:
        return self.mass[np.searchsorted(self.price, prices, side="left")]

    def _price_at(self, masses: np.ndarray) -> np.ndarray:
        if not self.price.size:
            return np.zeros(masses.shape)
        return self.price[np.maximum(0, np.searchsorted(self.mass, masses, side="left") - 1)]

    def _checked(self, mass: float) -> float:
        fixed = FixedMass(mass)
        fixed.checked(*self._weights)
        mass = fixed.prescribed(*self._weights)
        if mass > self.most_mass * (1 + 1e-9):
            raise Infeasible(mass, self.most_mass)
        return min(mass, self.most_mass)

    @property
    def _size(self) -> str:
        n, m = self.problem.cost.shape
        return f"{n} x {m}"

    def __repr__(self) -> str:
        pieces = f"mass 0 to {self.most_mass:.6g} in {self.price.size} pieces"
        return f"<{type(self).__name__} of {self._size}: {pieces}>"

    def __str__(self) -> str:
        adaptive, elbow = self.suggest()
        lines = [f"Mass path, {self._size}", f"  mass      0 to {self.most_mass:.12g} in {self.price.size} pieces"]
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


@dataclass(frozen=True, eq=False, repr=False)
class MassPathPart(MassPath):
    """The mass path of a problem that the processes of a group share; made by `mass_path` with a group.

    Masses, values, prices and suggestions are those of the whole problem, the same in every process. Plans are made
    together: `solution_at` and `plan_at` return the rows of the sources of this process, and all processes have to call
    them, with the same mass.

    Attributes
    ----------
    problem
        Cost and weights of the sources of this process, and of all targets.
    """

    _meeting: Meeting
    _whole: MassPath | None  # in the process of rank 0
    _suggested: float | None
    _totals: list[float]

    @classmethod
    def walked(cls, group: Any, cost: Any, source_weights: Any, target_weights: Any, progress: Any) -> MassPathPart:
        """Walk in the process of rank 0, while all processes price."""

        def options() -> Options:
            return Options(AtMost(), Exact(), _checked_progress(progress))

        meeting = Meeting.of(group, cost, source_weights, target_weights, options)
        found: list[MassPath] = []

        def lead(problem: Problem) -> None:
            path = _walk(problem, meeting.report)
            totals = [float(side.sum()) for side in path._weights]
            corners = {"mass": path.mass, "value": path.value, "price": path.price}
            meeting.team.call("take", {"elbow": path._elbow, "totals": totals, **corners})
            found.append(path)

        meeting.work(lead)
        taken, whole = meeting.shard.taken, found[0] if found else None
        mass, value, price = taken["mass"], taken["value"], taken["price"]
        return cls(meeting.shard.problem, mass, value, price, None, meeting, whole, taken["elbow"], taken["totals"])

    def solution_at(self, mass: float) -> SolutionPart:
        """The part of this process in the solution of `FixedMass(mass)`. All processes have to call it."""
        meeting, checked = self._meeting, []

        def look() -> Message:
            checked.append(self._checked(mass))
            return {"same": {"mass": f"{checked[0]!r}"}}

        check_same(meeting.team.exchange(look))
        if self._whole:
            with meeting.team.leading(meeting.shard):
                meeting.hand_out(self._whole.solution_at(checked[0]))
        else:
            meeting.team.serve(meeting.shard)
        return meeting.part(replace(self.problem, marginals=FixedMass(checked[0])))

    @cached_property
    def _elbow(self) -> float | None:
        return self._suggested

    @property
    def _weights(self) -> tuple[np.ndarray, np.ndarray]:
        return np.array(self._totals[:1]), np.array(self._totals[1:])

    @property
    def _size(self) -> str:
        return f"{self._meeting.cuts.total} x {self.problem.cost.shape[1]}"


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
