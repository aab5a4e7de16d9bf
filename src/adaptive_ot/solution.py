"""The answer to a transport problem, whichever solver found it."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from array_api_compat import is_torch_array

from adaptive_ot import _html
from adaptive_ot import _meant as meant
from adaptive_ot import _validation as check
from adaptive_ot._arrays import rounded_down, to_numpy
from adaptive_ot.errors import InvalidInput
from adaptive_ot.marginals import Bound
from adaptive_ot.problem import Problem

if TYPE_CHECKING:
    from scipy import sparse


class Status(Enum):
    """How a solver ended; the value says what that means. The first two are successes."""

    OPTIMAL = "optimal: the gap is certified to be within tolerance"
    CONVERGED = "converged: the marginals of the regularised problem are within tolerance"
    PIVOT_LIMIT = "stopped at the pivot limit: allow more pivots"
    ITERATION_LIMIT = (
        "stopped at the iteration limit: use a larger epsilon or tolerance, more iterations, or aot.Exact()"
    )
    IMPRECISE = "the tolerance is out of reach in float64: costs, weights or epsilon differ too much in size"

    @property
    def succeeded(self) -> bool:
        """Whether the solver met its tolerance."""
        return self in (Status.OPTIMAL, Status.CONVERGED)


class Cluster(NamedTuple):
    """Sources and targets (indices) tied together by transported mass."""

    sources: np.ndarray
    targets: np.ndarray
    mass: float


class LabelPlan(NamedTuple):
    """Mass between classes: ``mass[a, b]`` goes from ``source_labels[a]`` to ``target_labels[b]``."""

    source_labels: np.ndarray
    target_labels: np.ndarray
    mass: np.ndarray


class Outliers(NamedTuple):
    """Sources and targets (indices) that carry no mass; for a batch, a row for each: problem and source or target."""

    sources: Any
    targets: Any


STATUSES = tuple(Status)
FIRST_FAILURE = STATUSES.index(Status.PIVOT_LIMIT)

Support = tuple[np.ndarray, np.ndarray, np.ndarray]


def marginal(index: np.ndarray, mass: np.ndarray, size: int) -> np.ndarray:
    """Mass by source, by target or by class."""
    return np.bincount(index, mass, size).astype(np.float64)  # bincount returns integers for empty input


class Transport(ABC):
    """The plan G of a solver, in the most compact form that the solver has; two forms can hold a batch of plans."""

    shape: tuple[int, ...]

    @abstractmethod
    def support(self) -> Support:
        """Sources, targets and masses of the pairs that carry mass, by source, then target."""

    @abstractmethod
    def dense(self, dtype: np.dtype) -> Any:
        """The plan as an array."""

    @abstractmethod
    def marginals(self, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
        """Row and column sums, in float64, of the plan rounded to this precision."""

    @abstractmethod
    def times(self, matrix: np.ndarray) -> np.ndarray:
        """G @ matrix."""


class ListedTransport(Transport):
    """A list of the few pairs that carry mass: sources, targets, masses. Those of a batch begin with the problems."""

    def __init__(self, shape: tuple[int, ...], pairs: tuple[np.ndarray, ...]) -> None:
        self.shape, self.pairs = shape, pairs

    def one(self, problem: int) -> ListedTransport:
        """The plan of one problem of a batch."""
        part = slice(*np.searchsorted(self.pairs[0], (problem, problem + 1)))
        return ListedTransport(self.shape[1:], tuple(side[part] for side in self.pairs[1:]))

    def support(self) -> Support:
        rows, columns, mass = self.pairs
        return rows, columns, mass

    def dense(self, dtype: np.dtype) -> np.ndarray:
        *index, mass = self.pairs
        plan = np.zeros(self.shape, dtype)
        plan[tuple(index)] = rounded_down(mass, dtype)
        return plan

    def marginals(self, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
        *problem, rows, columns, mass = self.pairs
        mass = rounded_down(mass, dtype)
        start, problems = (problem[0], self.shape[0]) if problem else (0, 1)
        sides = zip((rows, columns), self.shape[-2:], strict=True)
        of_rows, of_columns = (
            marginal(start * size + index, mass, problems * size).reshape(*self.shape[:-2], size)
            for index, size in sides
        )
        return of_rows, of_columns

    def times(self, matrix: np.ndarray) -> np.ndarray:
        from scipy import sparse

        rows, columns, mass = self.pairs
        return sparse.csr_array((mass, (rows, columns)), shape=self.shape) @ matrix


class DenseTransport(Transport):
    """A matrix, in NumPy or on the device of the input; of a batch, all matrices in one array."""

    def __init__(self, plan: Any) -> None:
        self.shape, self.plan = tuple(plan.shape), plan

    def one(self, problem: int) -> DenseTransport:
        """The plan of one problem of a batch."""
        return DenseTransport(self.plan[problem])

    def support(self) -> Support:
        plan = to_numpy(self.plan)
        rows, columns = np.nonzero(plan)
        return rows, columns, plan[rows, columns]

    def dense(self, dtype: np.dtype) -> Any:
        return self.plan

    def marginals(self, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
        plan = rounded_down(self.plan, dtype)
        if is_torch_array(plan):
            plan = plan.double()
            return to_numpy(plan.sum(-1)), to_numpy(plan.sum(-2))
        return plan.sum(axis=-1, dtype=np.float64), plan.sum(axis=-2, dtype=np.float64)

    def times(self, matrix: np.ndarray) -> np.ndarray:
        return to_numpy(self.plan) @ matrix


class Answers(NamedTuple):
    """The numbers that a solver found, in float64; for a batch, each has one more axis in front.

    `Solution` explains the names. `status` is the place of the status in `Status`. Arrays may be on a GPU.
    """

    value: Any
    regularised_value: Any
    mass: Any
    price: Any
    gap: Any
    violation: Any
    iterations: Any
    status: Any
    source_marginal: Any
    target_marginal: Any
    source_potential: Any
    target_potential: Any


def presented(name: str) -> cached_property[Any]:
    """One of the answers, in the library and precision of the input."""
    return cached_property(lambda found: found.problem.kind.present(getattr(found.answers, name)))


def number(name: str) -> cached_property[float]:
    """One of the answers to a single problem."""
    return cached_property(lambda found: float(getattr(found.answers, name)))


@dataclass(frozen=True, eq=False, repr=False)
class Found:
    """What a solver found for one problem, a `Solution`, or for many, a `SolutionBatch` with a leading axis."""

    problem: Any
    transport: Any
    answers: Answers
    active_share: float
    epsilon: float | None = None

    source_marginal = presented("source_marginal")
    target_marginal = presented("target_marginal")
    source_potential = presented("source_potential")
    target_potential = presented("target_potential")

    @cached_property
    def active_source(self) -> Any:
        return self._active(self.answers.source_marginal, self.problem.source_weights)

    @cached_property
    def active_target(self) -> Any:
        return self._active(self.answers.target_marginal, self.problem.target_weights)

    @cached_property
    def outliers(self) -> Outliers:
        """The sources and targets that are not active, by their indices.

        Points of weight 0 are among them. For a batch, each side has a row for every outlier: problem and point.

        Examples
        --------
        >>> import adaptive_ot as aot
        >>> aot.solve([[-1.0, 2.0], [3.0, 4.0]]).outliers
        Outliers(sources=array([1]), targets=array([1]))
        >>> aot.solve([[[-1.0, 2.0]], [[3.0, 4.0]]]).outliers.sources.tolist()
        [[1, 0]]
        """
        sides = (np.argwhere(~to_numpy(side)) for side in (self.active_source, self.active_target))
        return Outliers(*(self.problem.kind.present(side[:, 0] if side.shape[1] == 1 else side) for side in sides))

    def _repr_html_(self) -> str:
        return _html.table(str(self))

    def _active(self, marginal: Any, weights: Any) -> Any:
        least = self.active_share * weights
        if is_torch_array(marginal):
            least = sys.modules["torch"].as_tensor(least, device=marginal.device)
        return self.problem.kind.present(marginal > least)

    @property
    def converged(self) -> Any:
        return self.answers.status < FIRST_FAILURE

    def _chosen_lines(self) -> list[str]:
        """Lines on the numbers that were estimated, and on the strength of the entropy."""
        chosen = dict(getattr(self.problem.cost, "estimated", {}))
        if self.epsilon is not None:
            chosen["epsilon"] = f"{self.epsilon:.6g}"
        return [f"  {name:8}  {text}" for name, text in chosen.items()]


@dataclass(frozen=True, eq=False, repr=False)
class Solution(Found):
    """A transport plan with its certificate.

    Numbers are computed in float64; for a float32 cost, the arrays returned are rounded to float32. The entries of a
    plan are rounded down, so that no point gives or takes more than its weight.

    Attributes
    ----------
    problem
        The problem that was solved.
    transport
        The plan as the solver found it; `plan`, `sparse_plan` and `support` are made from it.
    value, mass
        The cost of the plan (with `SoftKL`, including the divergence of its marginals), and the mass that it moves.
    regularised_value
        The objective that the solver minimised: `value`, plus epsilon times the entropy where the solver is entropic.
    source_marginal, target_marginal
        Mass leaving each source and reaching each target.
    source_potential, target_potential
        The duals: how much one more unit of a weight would change the (regularised) value. The duals of an exact
        solution are feasible: their sums, plus the price, never exceed the cost, and both are <= 0 where marginals are
        bounded by the weights. Where both totals are prescribed, a constant may move from one side to the other.
    active_source, active_target
        Which points carry mass; the others are outlier candidates (`outliers` has their indices). An entropic plan
        moves a little mass everywhere, so a point is active if it moves more than `active_share` of its weight, one
        hundredth.
    price
        With `FixedMass`, the cost per unit of the last bit of mass: the plan is that of adaptive transport with the
        price subtracted from every cost. Otherwise 0.
    gap
        Certified bound on how far `value` is above the optimum of the exact problem: `value` minus the value of
        feasible duals, which an entropic solution derives from its own duals as `Problem.dual_value` does. The value of
        a plan that is not feasible (see `violation`) may also be below the optimum.
    violation
        `Problem.violation` of the plan as returned: rounding, or, where an entropic plan has to meet its marginals
        exactly, the tolerance.
    status, iterations
        How the solver ended, and the number of steps: simplex pivots, or passes over all pairs or a kernel.
    epsilon
        The strength of the entropy, given or chosen; None for an exact solution.
    converged
        Whether the solver met its tolerance; a tensor on the GPU if `solve` did not wait for it (see `Entropic`).

    Examples
    --------
    >>> import adaptive_ot as aot
    >>> print(aot.solve([[-1.0, 2.0], [3.0, 4.0]]))
    Adaptive transport, 2 x 2
      status    optimal: the gap is certified to be within tolerance
      value     -0.5   (certified gap 0)
      mass      0.5 of at most 1
      active    1 of 2 sources, 1 of 2 targets
      steps     1
    """

    problem: Problem
    transport: Transport

    value = number("value")
    regularised_value = number("regularised_value")
    mass = number("mass")
    price = number("price")
    gap = number("gap")
    violation = number("violation")

    @property
    def iterations(self) -> int:
        return int(self.answers.iterations)

    @property
    def status(self) -> Status:
        return STATUSES[int(self.answers.status)]

    @classmethod
    def certified(
        cls,
        problem: Problem,
        transport: Transport,
        marginals: tuple[np.ndarray, np.ndarray],
        source_potential: np.ndarray,
        bound: Bound,
        *,
        value: float,
        status: Status,
        iterations: int,
        gap: float | None = None,
        violation: float | None = None,
        regularised_value: float | None = None,
        target_potential: np.ndarray | None = None,
        price: float | None = None,
        active_share: float = 0.0,
        epsilon: float | None = None,
    ) -> Solution:
        """The solution with this plan, judged by the bound of its potentials; every engine ends here.

        The gap, the target potential and the price default to those of the bound.
        """
        rows, columns = marginals
        dtype = problem.kind.dtype
        if violation is None or dtype != np.float64:
            sums = marginals if dtype == np.float64 else transport.marginals(dtype)
            violation = problem.marginals.violation(problem.source_weights, problem.target_weights, *sums)
        answers = Answers(
            value=value,
            regularised_value=value if regularised_value is None else regularised_value,
            mass=float(rows.sum()),
            price=bound.price if price is None else price,
            gap=max(0.0, value - bound.value) if gap is None else gap,
            violation=violation,
            iterations=iterations,
            status=STATUSES.index(status),
            source_marginal=rows,
            target_marginal=columns,
            source_potential=source_potential,
            target_potential=bound.target_potential if target_potential is None else target_potential,
        )
        return cls(problem, transport, answers, active_share, epsilon)

    @cached_property
    def support(self) -> Support:
        """Sources, targets and masses of the pairs that carry mass, by source, then target."""
        return self.transport.support()

    @cached_property
    def sparse_plan(self) -> sparse.csr_array:
        """The plan as a SciPy CSR array in float64, whatever the input was."""
        from scipy import sparse

        rows, columns, mass = self.support
        return sparse.csr_array((mass, (rows, columns)), shape=self.problem.cost.shape)

    @cached_property
    def plan(self) -> Any:
        """The plan in the library of the input: dense for a dense cost, sparse for sparse and point-cloud costs.

        Solvers keep only the pairs that carry mass; the dense array is created on first access.
        """
        cost = self.problem.cost
        if cost.layout != "dense":
            return cost.kind.present_sparse(self.sparse_plan)
        return cost.kind.present_plan(self.transport.dense(cost.kind.dtype))

    def clusters(self) -> list[Cluster]:
        """The connected components of the transported mass, heaviest first.

        An entropic plan moves a little mass between all points. There, only pairs between active points count, and only
        if they carry more than `active_share` of the heaviest pair of their source or of their target.

        Examples
        --------
        >>> import adaptive_ot as aot
        >>> for cluster in aot.solve([[-1.0, 9.0], [9.0, -2.0]]).clusters():
        ...     print(cluster.sources, cluster.targets, cluster.mass)
        [0] [0] 0.5
        [1] [1] 0.5
        """
        from scipy import sparse
        from scipy.sparse.csgraph import connected_components

        rows, columns, mass = self.main_pairs()
        n, m = self.problem.cost.shape
        graph = sparse.coo_array((mass, (rows, columns + n)), shape=(n + m, n + m))
        _, component = connected_components(graph, directed=False)
        masses = np.bincount(component[rows], mass, component.max(initial=-1) + 1)
        members = np.argsort(component, kind="stable")
        ends = np.cumsum(np.bincount(component, minlength=masses.size))
        heaviest_first = sorted(np.flatnonzero(masses), key=lambda c: (-masses[c], ends[c]))
        clusters = []
        for c in heaviest_first:
            nodes = members[(ends[c - 1] if c else 0) : ends[c]]
            clusters.append(Cluster(nodes[nodes < n], nodes[nodes >= n] - n, float(masses[c])))
        return clusters

    def by_label(self, source_labels: Any, target_labels: Any) -> LabelPlan:
        """The mass that moves between classes.

        Examples
        --------
        >>> import adaptive_ot as aot
        >>> aot.solve([[-1.0, 9.0], [9.0, -2.0]]).by_label(["cat", "dog"], ["cat", "owl"]).mass
        array([[0.5, 0. ],
               [0. , 0.5]])
        """
        n, m = self.problem.cost.shape
        from_labels, source = check.labels("source_labels", source_labels, n)
        to_labels, target = check.labels("target_labels", target_labels, m)
        by_source = self.transport.times(np.eye(to_labels.size)[target])
        table = np.zeros((from_labels.size, to_labels.size))
        np.add.at(table, source, by_source)
        return LabelPlan(from_labels, to_labels, table)

    def barycentric_map(self, target_points: Any, source_points: Any = None) -> Any:
        """The new position of each source: the mean of its targets, weighted by mass.

        A source that carries no mass keeps its position, which comes from `source_points`, or from the cost if the cost
        was built from points.

        Examples
        --------
        >>> import adaptive_ot as aot
        >>> x, z = [[0.0], [9.0]], [[1.0], [5.0]]
        >>> aot.solve(aot.DistanceCost(x, z, reach=2.0)).barycentric_map(z)
        array([[1.],
               [9.]])
        """
        cost = self.problem.cost
        n, m = cost.shape
        targets = check.points("target_points", target_points, rows=m)
        if source_points is None and cost.positions:
            source_points = cost.positions[0]
        moving = to_numpy(self.active_source)
        if source_points is None:
            if not moving.all():
                raise InvalidInput(
                    "source_points",
                    "is needed because sources without mass stay where they are",
                    f"None, and {n - np.count_nonzero(moving)} of {n} sources carry no mass",
                    "Pass the source points.",
                )
            mapped = np.empty((n, targets.shape[1]))
        else:
            mapped = check.points("source_points", source_points, rows=n).copy()
            check.same_columns("target_points", targets, "source_points", mapped)
        leaving = self.transport.times(np.ones((m, 1)))
        mapped[moving] = self.transport.times(targets)[moving] / leaving[moving]
        return cost.kind.present(mapped)

    def main_pairs(self) -> Support:
        """The pairs that tie points together: the `support`, or the pairs of an entropic plan that `clusters` counts.

        Examples
        --------
        >>> import adaptive_ot as aot
        >>> solution = aot.solve([[-1.0, 9.0], [9.0, -2.0]], solver=aot.Entropic(0.5))
        >>> len(solution.support[2]), len(solution.main_pairs()[2])
        (4, 2)
        """
        rows, columns, mass = self.support
        if self.active_share == 0:
            return rows, columns, mass
        heaviest = np.zeros(self.problem.cost.shape[0]), np.zeros(self.problem.cost.shape[1])
        np.maximum.at(heaviest[0], rows, mass)
        np.maximum.at(heaviest[1], columns, mass)
        main = mass > self.active_share * np.minimum(heaviest[0][rows], heaviest[1][columns])
        main &= to_numpy(self.active_source)[rows] & to_numpy(self.active_target)[columns]
        return rows[main], columns[main], mass[main]

    def __repr__(self) -> str:
        n, m = self.problem.cost.shape
        numbers = f"value {self.value:.6g}, mass {self.mass:.6g}, gap {self.gap:.1e}"
        return f"<Solution of {n} x {m}: {numbers}, {self.status.name}>"

    def __str__(self) -> str:
        sources = str(self.problem.cost.shape[0])
        return "\n".join([*self._lines(sources, mass=_of_at_most(self)), *meant.notes(self)])

    def _lines(self, sources: str, *, value: str = "", mass: str = "", here: str = "") -> list[str]:
        """What is printed of every solution; the words say which sources these are, and what else numbers are about."""
        n, m = self.problem.cost.shape
        active = [int(np.count_nonzero(to_numpy(side))) for side in (self.active_source, self.active_target)]
        return [
            f"{self.problem.marginals.title}, {sources} x {m}",
            f"  status    {self.status.value}",
            f"  value     {self.value:.12g}   (certified gap {self.gap:.2g}{_excess(self)}){value}",
            f"  mass      {self.mass:.12g}{mass}",
            f"  active    {active[0]} of {n} sources{here}, {active[1]} of {m} targets",
            *self._chosen_lines(),
            f"  steps     {self.iterations}",
        ]


def _excess(solution: Solution) -> str:
    """A note on the violation, if it is more than rounding."""
    rounding = max(1e-9, float(np.finfo(solution.problem.cost.kind.dtype).eps))
    notable = solution.violation > rounding * max(1.0, solution.mass)
    return f", marginals off by {solution.violation:.2g}" if notable else ""


def _of_at_most(solution: Solution) -> str:
    most = solution.problem.most_mass
    return f" of at most {most:.12g}" if most < np.inf else ""
