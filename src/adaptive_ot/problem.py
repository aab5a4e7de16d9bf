"""A transport problem: a cost, weights for both sides, and the constraints on the marginals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from adaptive_ot import _meant as meant
from adaptive_ot import _validation as check
from adaptive_ot._arrays import ArrayKind, is_sparse, to_numpy
from adaptive_ot.costs import Cost, as_cost
from adaptive_ot.errors import InvalidInput
from adaptive_ot.marginals import Bound, Marginals, Violations, as_marginals


class Judgement(NamedTuple):
    """What a `Problem` finds out about a plan."""

    value: float
    mass: float
    violations: Violations


@dataclass(frozen=True, eq=False)
class Problem:
    """Minimise <C, G> over plans G >= 0 whose marginals satisfy a model; by default, they stay below the weights.

    Use `Problem.build`, which checks its input. The methods judge any plan and any potentials, whichever solver they
    come from.

    Examples
    --------
    >>> problem = Problem.build([[-1.0, 2.0], [3.0, -2.0]])
    >>> plan = [[0.5, 0.0], [0.0, 0.5]]
    >>> problem.objective(plan), problem.violation(plan)
    (-1.5, 0.0)
    >>> problem.gap(plan, source_potential=[-1.0, -2.0])
    0.0
    """

    cost: Cost
    source_weights: Any  # a NumPy array, or a torch tensor on a GPU that `solve` did not wait for
    target_weights: Any
    marginals: Marginals

    @classmethod
    def build(
        cls,
        cost: Any,
        source_weights: Any = None,
        target_weights: Any = None,
        marginals: Marginals | None = None,
        *,
        call: str = "solve",
    ) -> Problem:
        """Check and wrap the input of a user; weights default to uniform with total 1.

        `call` is the function that errors tell the user to call.
        """
        marginals, given = as_marginals(marginals), cost
        try:
            cost = as_cost(cost)
            weights = (
                check.weights("source_weights", source_weights, cost.shape[0], cost.kind),
                check.weights("target_weights", target_weights, cost.shape[1], cost.kind),
            )
        except InvalidInput as error:
            raise meant.instead(error, given, source_weights, target_weights, call) from None
        return cls(cost, *marginals.checked(*weights), marginals)

    @property
    def kind(self) -> ArrayKind:
        """Library, device and precision of the answer."""
        return self.cost.kind

    @property
    def most_mass(self) -> float:
        """The most mass that can move."""
        return self.marginals.most_mass(*self._weights())

    @property
    def prescribed_mass(self) -> float:
        """The mass that must move, if the model prescribes it."""
        return self.marginals.prescribed(*self._weights())

    def objective(self, plan: Any) -> float:
        """<C, plan> plus the penalty of the model; +inf if mass lies on a forbidden pair, or one beyond 1e100."""
        return self.judge(plan).value

    def violation(self, plan: Any) -> float:
        """The largest amount by which an entry or a marginal of `plan` breaks its constraint."""
        return max(self.judge(plan).violations)

    def judge(self, plan: Any) -> Judgement:
        """The objective and the mass of `plan`, and the amounts by which it breaks its constraints."""
        rows, columns, mass = self._support(plan)
        costs = self.cost.entries(rows, columns)
        mu, nu = self._weights()
        index = zip((rows, columns), self.cost.shape, strict=True)
        sums = [np.bincount(side, mass, size).astype(np.float64) for side, size in index]
        negative = float((-mass).max(initial=0.0))
        violations = self.marginals.violations(mu, nu, *sums)._replace(negative=negative)
        if (costs > check.LARGEST).any():
            value = math.inf
        else:
            value = math.fsum(costs * mass) + self.marginals.penalty(mu, nu, *sums)
        return Judgement(value, math.fsum(mass), violations)

    def c_transform(self, source_potential: Any) -> np.ndarray:
        """The best target potential that goes with a source potential: min_i C_ij - f_i, or 0 where the model says so.

        With `AtMost` and `FixedMass`, both are at most 0; with `FixedMass`, the price of mass is part of the sum.
        """
        return self.bound(source_potential).target_potential

    def dual_value(self, source_potential: Any) -> float:
        """A lower bound on the objective of every plan: any potential gives one, once it is made feasible."""
        return self.bound(source_potential).value

    def bound(self, source_potential: Any) -> Bound:
        """The lower bound that a source potential proves, with the target potential and price of mass behind it."""
        given = check.potential("source_potential", source_potential, self.cost.shape[0])
        potential = self.marginals.clipped(given)
        return self.bound_from(potential, self.cost.column_minima(potential))

    def bound_from(self, potential: np.ndarray, lowest: np.ndarray) -> Bound:
        """The lower bound that a clipped source potential proves, given min_i C_ij - f_i of every target."""
        return self.marginals.bound(*self._weights(), potential, lowest)

    def transposed(self) -> Problem:
        """The problem with sources and targets exchanged; its `bound` is that of a target potential."""
        return Problem(self.cost.transposed(), self.target_weights, self.source_weights, self.marginals.transposed())

    def gap(self, plan: Any, source_potential: Any) -> float:
        """An upper bound on how far a feasible `plan` is from optimal, as proved by `source_potential`.

        Use `violation` to check that the plan is feasible.
        """
        return max(0.0, self.objective(plan) - self.dual_value(source_potential))

    def _weights(self) -> tuple[np.ndarray, np.ndarray]:
        return to_numpy(self.source_weights), to_numpy(self.target_weights)

    def _support(self, plan: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        array = check.plan(plan, self.cost.shape)
        if is_sparse(array):
            array = array.tocoo()
            rows, columns = (index.astype(np.int64) for index in array.coords)  # so that products do not overflow
            return rows, columns, array.data
        rows, columns = np.nonzero(array)
        return rows, columns, array[rows, columns].astype(np.float64)
