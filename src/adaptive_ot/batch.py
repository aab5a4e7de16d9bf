"""Many problems of the same size, and their solutions."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol, overload

import numpy as np
from array_api_compat import is_torch_array

from adaptive_ot import _validation as check
from adaptive_ot._arrays import ArrayKind, is_sparse, rounded_down, to_numpy
from adaptive_ot.costs import ArrayCost
from adaptive_ot.marginals import Marginals, as_marginals
from adaptive_ot.problem import Problem
from adaptive_ot.solution import DenseTransport, ListedTransport, Solution, Status, Transport, marginal, violation_of


def is_batch(cost: Any) -> bool:
    """Whether a user's cost describes many problems: an array, or nested lists, of three dimensions."""
    depth = 0
    while isinstance(cost, list | tuple):
        depth, cost = depth + 1, cost[0] if cost else None
    return not is_sparse(cost) and depth + getattr(cost, "ndim", 0) == 3


@dataclass(frozen=True, eq=False)
class ProblemBatch(Sequence[Problem]):
    """Problems of the same size, each with a cost and weights of its own.

    Use `ProblemBatch.build`, which checks its input.

    Examples
    --------
    >>> problems = ProblemBatch.build([[[-1.0, 2.0]], [[3.0, -2.0]]])
    >>> len(problems), problems[1].objective([[0.0, 0.5]])
    (2, -1.0)
    """

    cost: Any  # a NumPy array, or a torch tensor on a GPU
    kind: ArrayKind
    source_weights: np.ndarray
    target_weights: np.ndarray
    marginals: Marginals

    @classmethod
    def build(
        cls, cost: Any, source_weights: Any = None, target_weights: Any = None, marginals: Marginals | None = None
    ) -> ProblemBatch:
        """Check the input: costs of shape (problems, sources, targets), weights for all problems or one row each."""
        marginals = as_marginals(marginals)
        kind, array = ArrayKind.of(cost), check.cost_batch(cost)
        batch, n, m = array.shape
        weights = marginals.checked(
            check.weights("source_weights", source_weights, n, kind, batch),
            check.weights("target_weights", target_weights, m, kind, batch),
        )
        return cls(array, kind, *weights, marginals)

    @classmethod
    def of(cls, problem: Problem) -> ProblemBatch:
        """A batch of a single problem with a dense cost."""
        assert isinstance(problem.cost, ArrayCost)
        weights = problem.source_weights[None], problem.target_weights[None]
        return cls(problem.cost.array[None], problem.cost.kind, *weights, problem.marginals)

    def __len__(self) -> int:
        return len(self.cost)

    def precise(self) -> ProblemBatch:
        """The same problems with solutions in float64, which the batch rounds when it returns them."""
        return replace(self, kind=replace(self.kind, dtype=np.dtype(np.float64)))

    @overload
    def __getitem__(self, index: int) -> Problem: ...
    @overload
    def __getitem__(self, index: slice) -> list[Problem]: ...
    def __getitem__(self, index: int | slice) -> Problem | list[Problem]:
        if isinstance(index, slice):
            return [self[b] for b in range(len(self))[index]]
        cost = ArrayCost.checked(self.cost[index], self.kind)
        return Problem(cost, self.source_weights[index], self.target_weights[index], self.marginals)


class Plans(Protocol):
    """How a solver stores its plans."""

    def one(self, shape: tuple[int, int], index: int) -> Transport:
        """The plan of one problem."""
        ...

    def dense(self, shape: tuple[int, int, int], dtype: np.dtype) -> Any:
        """All plans in one array."""
        ...


class PlanArray(NamedTuple):
    """Dense plans, in NumPy or on the device of the input."""

    plans: Any

    def one(self, shape: tuple[int, int], index: int) -> Transport:
        return DenseTransport(self.plans[index])

    def dense(self, shape: tuple[int, int, int], dtype: np.dtype) -> Any:
        return self.plans


class PairLists(NamedTuple):
    """Plans as lists of pairs: one row per problem, its first `length` places used. Far smaller than dense plans."""

    rows: np.ndarray
    columns: np.ndarray
    mass: np.ndarray
    length: np.ndarray

    @classmethod
    def empty(cls, batch: int, n: int, m: int) -> PairLists:
        """Room for the basic solutions of problems of n sources and m targets."""
        shape = (batch, min(n * m, n + m))
        return cls(np.empty(shape, np.int64), np.empty(shape, np.int64), np.empty(shape), np.zeros(batch, np.int64))

    def part(self, problems: slice) -> PairLists:
        """The lists of some of the problems, as views to write to."""
        return PairLists(*(side[problems] for side in self))

    def one(self, shape: tuple[int, int], index: int) -> Transport:
        rows, columns, mass = (side[index, : self.length[index]] for side in (self.rows, self.columns, self.mass))
        return ListedTransport(shape, (rows, columns, mass))

    def marginals(self, shape: tuple[int, int, int], dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
        """Row and column sums, in float64, of all plans rounded to this precision."""
        batch, n, m = shape
        used = np.arange(self.rows.shape[1]) < self.length[:, None]
        problem, _ = np.nonzero(used)
        mass = rounded_down(self.mass[used], dtype)
        rows, columns = problem * n + self.rows[used], problem * m + self.columns[used]
        return marginal(rows, mass, batch * n).reshape(batch, n), marginal(columns, mass, batch * m).reshape(batch, m)

    def dense(self, shape: tuple[int, int, int], dtype: np.dtype) -> np.ndarray:
        used = np.arange(self.rows.shape[1]) < self.length[:, None]
        problem, _ = np.nonzero(used)
        plans = np.zeros(shape, dtype)
        plans[problem, self.rows[used], self.columns[used]] = rounded_down(self.mass[used], dtype)
        return plans


class Answers(NamedTuple):
    """The results of a solver for each problem, in float64; `Solution` explains the names.

    Marginals and potentials may be on a GPU.
    """

    value: np.ndarray
    regularised_value: np.ndarray
    mass: np.ndarray
    price: np.ndarray
    gap: np.ndarray
    violation: np.ndarray
    source_marginal: Any
    target_marginal: Any
    source_potential: Any
    target_potential: Any
    iterations: np.ndarray

    @classmethod
    def empty(cls, batch: int, n: int, m: int) -> Answers:
        """Room for the answers to problems of n sources and m targets."""
        numbers, sides = np.zeros((6, batch)), (np.empty((batch, size)) for size in (n, m, n, m))
        return cls(*numbers, *sides, iterations=np.zeros(batch, np.int64))

    def part(self, problems: slice) -> Answers:
        """The answers to some of the problems, as views to write to."""
        return Answers(*(array[problems] for array in self))


def _stacked(name: str) -> cached_property[Any]:
    """An answer to all problems, in the library and precision of the input."""
    return cached_property(lambda batch: batch.problems.kind.present(getattr(batch.answers, name)))


@dataclass(frozen=True, eq=False, repr=False)
class SolutionBatch(Sequence[Solution]):
    """The solutions of many problems.

    ``batch[b]`` is a `Solution`. The same names on the batch itself give the answers to all problems at once, with the
    problem as the first index, in the library and precision of the input: `plan`, `value`, `regularised_value`, `mass`,
    `price`, `gap`, `violation`, `source_marginal`, `source_potential`, `active_source`, the same for targets,
    and `iterations`; `status` is a tuple.

    Examples
    --------
    >>> import adaptive_ot as aot
    >>> batch = aot.solve([[[-3.0, 1.0], [2.0, 4.0]], [[-1.0, 1.0], [1.0, -1.0]]])
    >>> batch.value
    array([-1.5, -1. ])
    >>> batch.plan[0]
    array([[0.5, 0. ],
           [0. , 0. ]])
    >>> batch[1].mass
    1.0
    >>> print(batch)
    Adaptive transport, 2 problems of 2 x 2
      status    2 optimal
      value     -1.5 to -1   (certified gap at most 0)
      mass      0.5 to 1
      active    75 % of the sources, 75 % of the targets
    """

    problems: ProblemBatch
    plans: Plans
    answers: Answers
    status: tuple[Status, ...]
    active_share: float = 0.0

    @classmethod
    def of(cls, problems: ProblemBatch, solutions: Sequence[Solution]) -> SolutionBatch:
        """From the solutions of the single problems, in float64."""
        batch, n, m = problems.cost.shape
        answers, plans = Answers.empty(batch, n, m), np.empty((batch, n, m))
        for b, solution in enumerate(solutions):
            for name, array in answers._asdict().items():
                array[b] = to_numpy(getattr(solution, name))
            plans[b] = to_numpy(solution.transport.dense(np.dtype(np.float64)))
            marginals = answers.source_marginal[b], answers.target_marginal[b]
            answers.violation[b] = violation_of(problems[b], DenseTransport(plans[b]), marginals)
        status = tuple(solution.status for solution in solutions)
        share = max((solution.active_share for solution in solutions), default=0.0)
        return cls(problems, PlanArray(plans), answers, status, share)

    value = _stacked("value")
    regularised_value = _stacked("regularised_value")
    mass = _stacked("mass")
    price = _stacked("price")
    gap = _stacked("gap")
    violation = _stacked("violation")
    source_marginal = _stacked("source_marginal")
    target_marginal = _stacked("target_marginal")
    source_potential = _stacked("source_potential")
    target_potential = _stacked("target_potential")
    iterations = _stacked("iterations")

    @cached_property
    def active_source(self) -> Any:
        """Which sources carry mass."""
        return self.problems.kind.present(self._active()[0])

    @cached_property
    def active_target(self) -> Any:
        """Which targets carry mass."""
        return self.problems.kind.present(self._active()[1])

    def _active(self) -> tuple[Any, Any]:
        answers, problems = self.answers, self.problems
        least = self.active_share * problems.source_weights, self.active_share * problems.target_weights
        if is_torch_array(answers.source_marginal):
            import torch

            least = tuple(torch.from_numpy(side).to(answers.source_marginal.device) for side in least)
        return answers.source_marginal > least[0], answers.target_marginal > least[1]

    @cached_property
    def plan(self) -> Any:
        """All plans as one dense array, created on first access."""
        kind = self.problems.kind
        return kind.present_plan(self.plans.dense(self.problems.cost.shape, kind.dtype))

    def __len__(self) -> int:
        return len(self.problems)

    @overload
    def __getitem__(self, index: int) -> Solution: ...
    @overload
    def __getitem__(self, index: slice) -> list[Solution]: ...
    def __getitem__(self, index: int | slice) -> Solution | list[Solution]:
        if isinstance(index, slice):
            return [self[b] for b in range(len(self))[index]]
        index = range(len(self))[operator.index(index)]
        present, answers = self.problems.kind.present, self.answers
        return Solution(
            problem=self.problems[index],
            transport=self.plans.one(self.problems.cost.shape[1:], index),
            value=float(answers.value[index]),
            regularised_value=float(answers.regularised_value[index]),
            mass=float(answers.mass[index]),
            price=float(answers.price[index]),
            source_marginal=present(answers.source_marginal[index]),
            target_marginal=present(answers.target_marginal[index]),
            source_potential=present(answers.source_potential[index]),
            target_potential=present(answers.target_potential[index]),
            active_source=self.active_source[index],
            active_target=self.active_target[index],
            gap=float(answers.gap[index]),
            violation=float(answers.violation[index]),
            status=self.status[index],
            iterations=int(answers.iterations[index]),
            active_share=self.active_share,
        )

    def __repr__(self) -> str:
        batch, n, m = self.problems.cost.shape
        return f"<SolutionBatch of {batch} problems of {n} x {m}: {self._statuses()}>"

    def __str__(self) -> str:
        batch, n, m = self.problems.cost.shape
        answers = self.answers
        title = f"{self.problems.marginals.title}, {batch} problems of {n} x {m}"
        if batch == 0:
            return title
        active = [
            f"{np.count_nonzero(side) / max(1, side.size):.0%}".replace("%", " %")
            for side in map(to_numpy, self._active())
        ]
        return "\n".join(
            [
                title,
                f"  status    {self._statuses()}",
                f"  value     {_range(answers.value)}   (certified gap at most {answers.gap.max():.2g})",
                f"  mass      {_range(answers.mass)}",
                f"  active    {active[0]} of the sources, {active[1]} of the targets",
            ]
        )

    def _statuses(self) -> str:
        return ", ".join(f"{count} {status.name.lower()}" for status, count in Counter(self.status).items()) or "none"


def _range(numbers: np.ndarray) -> str:
    return f"{numbers.min():.6g} to {numbers.max():.6g}"
