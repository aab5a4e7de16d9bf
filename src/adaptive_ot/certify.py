"""The function `certify`, which judges the answer of any solver."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from adaptive_ot import _meant as meant
from adaptive_ot import _validation as check
from adaptive_ot.costs import Cost, PointCost
from adaptive_ot.errors import InvalidInput
from adaptive_ot.exact.certificate import LARGEST_VIOLATION
from adaptive_ot.marginals import ROUNDING, Marginals, Violations, as_marginals
from adaptive_ot.problem import Judgement, Problem

UNKNOWN = Judgement(math.nan, math.nan, Violations(math.nan, math.nan, math.nan, math.nan))


@dataclass(frozen=True, eq=False, repr=False)
class Certificate:
    """What is known about a plan, whichever solver it comes from. `certify` makes it; print it for a summary.

    Attributes
    ----------
    problem
        The problem that the plan is judged for.
    value, mass
        The cost of the plan (with `SoftKL`, including the divergence of its marginals), and the mass that it moves.
        The value is +inf if mass lies on a forbidden pair. Both are NaN without a plan.
    lower_bound
        No plan that satisfies the constraints costs less, as the potentials prove; -inf without potentials. If it is
        +inf, no plan satisfies the constraints.
    violations
        The largest amounts by which row sums (``source``), column sums (``target``), the total mass that some models
        prescribe (``mass``) and negative entries (``negative``) break their rules; NaN without a plan.
    """

    problem: Problem
    value: float
    mass: float
    lower_bound: float
    violations: Violations

    @property
    def gap(self) -> float:
        """Bound on how far a feasible plan is from optimal: `value` minus `lower_bound`; inf if either is unknown."""
        known = math.isfinite(self.value) and math.isfinite(self.lower_bound)
        return max(0.0, self.value - self.lower_bound) if known else math.inf

    @property
    def violation(self) -> float:
        """The largest of the `violations`."""
        return max(self.violations)

    @property
    def feasible(self) -> bool:
        """Whether the plan satisfies the constraints, up to 1e-9 of the larger total weight or float32 rounding."""
        rounding = max(LARGEST_VIOLATION, float(np.finfo(self.problem.kind.dtype).eps))
        total = max(float(self.problem.source_weights.sum()), float(self.problem.target_weights.sum()))
        return self.value < math.inf and self.violation <= rounding * total

    def __repr__(self) -> str:
        n, m = self.problem.cost.shape
        return f"<Certificate of {n} x {m}: {self._verdict()}>"

    def __str__(self) -> str:
        n, m = self.problem.cost.shape
        lines = [f"{self.problem.marginals.title}, {n} x {m}", f"  verdict      {self._verdict()}"]
        if not math.isnan(self.value):
            lines.append(f"  value        {self.value:.12g}")
        if self.lower_bound > -math.inf:
            lines.append(f"  lower bound  {self.lower_bound:.12g}")
        if not math.isnan(self.value):
            lines += [f"  mass         {self.mass:.12g}", f"  violation    {self.violation:.2g}"]
        return "\n".join(lines)

    def _verdict(self) -> str:
        if self.lower_bound == math.inf:
            return "no plan satisfies the constraints"
        if math.isnan(self.value):
            return "a lower bound, but no plan was given"
        if not self.feasible:
            return f"infeasible: {self._most_broken()}"
        if self.lower_bound == -math.inf:
            return "feasible, but no potentials prove how close to optimal it is"
        return f"feasible, and optimal to within {self.gap:.2g}"

    def _most_broken(self) -> str:
        if self.value == math.inf:
            return "mass lies on a forbidden pair"
        rule = max(Violations._fields, key=self.violations._asdict().__getitem__)
        largest = self.violation
        if rule == "negative":
            return f"the lowest entry is {-largest:.2g}"
        if rule == "mass":
            return f"the mass is off by {largest:.2g}"
        side = self.problem.marginals.sides[rule == "target"]
        how = f"exceed the {rule} weights" if side.bounded else "are off"
        return f"{'row' if rule == 'source' else 'column'} sums {how} by up to {largest:.2g}"


def certify(
    cost: Any,
    source_weights: Any = None,
    target_weights: Any = None,
    *extra: Any,
    plan: Any = None,
    source_potential: Any = None,
    target_potential: Any = None,
    marginals: Marginals | tuple[Marginals, Marginals] | None = None,
) -> Certificate:
    """Judge the answer of any solver: is the plan feasible, and how far from optimal can it be?

    Nothing is trusted. Value and violation of the plan are recomputed in float64, and potentials are made feasible
    before they count. The n x m matrix of a `DistanceCost` or `JointCost` is never formed.

    Parameters
    ----------
    cost, source_weights, target_weights, marginals
        The problem, as in `solve`; not a batch.
    plan
        The plan to judge: a NumPy array, a torch tensor, nested lists, or a SciPy sparse matrix, which suits large
        point clouds. Negative entries count as a violation.
    source_potential, target_potential
        Dual variables f and g with f_i + g_j <= C_ij, of which one side is enough: the best potential of the other
        side follows from the costs. Any numbers prove a lower bound, but only those close to optimal prove a good one.
        If both sides are given, each proves a bound, and the better one counts.

    Returns
    -------
    Certificate
        Value, mass, violations, lower bound and gap. Without a plan, only the lower bound is known; without potentials,
        the lower bound is -inf and the gap inf.

    Examples
    --------
    >>> import adaptive_ot as aot
    >>> cost, plan = [[-1.0, 2.0], [3.0, -2.0]], [[0.5, 0.0], [0.0, 0.5]]
    >>> print(aot.certify(cost, plan=plan, source_potential=[-1.0, -2.0]))
    Adaptive transport, 2 x 2
      verdict      feasible, and optimal to within 1.3e-15
      value        -1.5
      lower bound  -1.5
      mass         1
      violation    0
    >>> aot.certify(cost, plan=plan)
    <Certificate of 2 x 2: feasible, but no potentials prove how close to optimal it is>
    >>> aot.certify(cost, plan=[[0.75, 0.0], [0.0, 0.5]])
    <Certificate of 2 x 2: infeasible: row sums exceed the source weights by up to 0.25>
    """
    if extra:
        raise meant.fourth(extra[0], "certify")
    problem = Problem.build(cost, source_weights, target_weights, as_marginals(marginals), call="certify")
    if plan is None and source_potential is None and target_potential is None:
        remedy = "Give a plan, source_potential, target_potential, or several of them."
        raise InvalidInput("plan", "must be given if there are no potentials", None, remedy)
    meant.no_solution("plan", plan)
    lower_bound = -math.inf
    if source_potential is not None:
        given = check.potential("source_potential", source_potential, problem.cost.shape[0])
        lower_bound = _proved(problem, given)
    if target_potential is not None:
        given = check.potential("target_potential", target_potential, problem.cost.shape[1])
        lower_bound = max(lower_bound, _proved(problem.transposed(), given))
    value, mass, violations = UNKNOWN if plan is None else problem.judge(plan)
    return Certificate(problem, value, mass, lower_bound, violations)


def _proved(problem: Problem, source_potential: np.ndarray) -> float:
    """The lower bound that a source potential proves, less the rounding error that its terms may have."""
    potential = problem.marginals.clipped(source_potential)
    bound = problem.bound_from(potential, _lowest(problem.cost, potential))
    sizes = [abs(bound.price) * problem.prescribed_mass]
    potentials = potential, bound.target_potential
    for weights, potential in zip((problem.source_weights, problem.target_weights), potentials, strict=True):
        finite = np.isfinite(potential)  # SoftKL adds nothing for targets that no pair reaches
        sizes.append(float(weights[finite] @ np.abs(potential[finite])))
    return bound.value - ROUNDING * sum(sizes)


def _lowest(cost: Cost, potential: np.ndarray) -> np.ndarray:
    """The smallest C_ij - f_i of every target, between points as the exact solver prices them."""
    if not isinstance(cost, PointCost):
        return cost.column_minima(potential)
    from adaptive_ot.exact.columns import column_minima  # imports Numba, which takes half a second

    return column_minima(cost, potential)
