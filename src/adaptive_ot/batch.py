"""Many problems of the same size, and their solutions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, overload

import numpy as np

from adaptive_ot import _meant as meant
from adaptive_ot import _validation as check
from adaptive_ot._arrays import ArrayKind, is_sparse, to_numpy
from adaptive_ot.costs import ArrayCost
from adaptive_ot.errors import InvalidInput
from adaptive_ot.marginals import Marginals, as_marginals
from adaptive_ot.problem import Problem
from adaptive_ot.solution import (
    STATUSES,
    Answers,
    DenseTransport,
    Found,
    ListedTransport,
    Solution,
    Status,
    presented,
)


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
    source_weights: Any  # a NumPy array, or a torch tensor on a GPU if unchecked
    target_weights: Any
    marginals: Marginals

    @classmethod
    def build(
        cls, cost: Any, source_weights: Any = None, target_weights: Any = None, marginals: Marginals | None = None
    ) -> ProblemBatch:
        """Check the input: costs of shape (problems, sources, targets), weights for all problems or one row each."""
        marginals = as_marginals(marginals)
        try:
            kind, array = ArrayKind.of(cost), check.cost_batch(cost)
            batch, n, m = array.shape
            weights = (
                check.weights("source_weights", source_weights, n, kind, batch),
                check.weights("target_weights", target_weights, m, kind, batch),
            )
        except InvalidInput as error:
            raise meant.instead(error, cost, source_weights, target_weights) from None
        return cls(array, kind, *marginals.checked(*weights), marginals)

    @classmethod
    def unchecked(cls, cost: Any, source_weights: Any, target_weights: Any, marginals: Marginals) -> ProblemBatch:
        """One or many problems on a GPU, whose numbers stay there: a look at them would have to wait for the GPU."""
        array = check.gpu_cost(cost)
        array = array[None] if array.ndim == 2 else array
        weights = (
            check.gpu_weights("source_weights", source_weights, array.shape[1], array),
            check.gpu_weights("target_weights", target_weights, array.shape[2], array),
        )
        return cls(array, ArrayKind.of(cost), *weights, marginals)

    @classmethod
    def of(cls, problem: Problem) -> ProblemBatch:
        """A batch of a single problem with a dense cost."""
        assert isinstance(problem.cost, ArrayCost)
        weights = problem.source_weights[None], problem.target_weights[None]
        return cls(problem.cost.array[None], problem.cost.kind, *weights, problem.marginals)

    def __len__(self) -> int:
        return len(self.cost)

    @overload
    def __getitem__(self, index: int) -> Problem: ...
    @overload
    def __getitem__(self, index: slice) -> list[Problem]: ...
    def __getitem__(self, index: int | slice) -> Problem | list[Problem]:
        if isinstance(index, slice):
            return [self[b] for b in range(len(self))[index]]
        index = check.place(index, len(self))
        cost = ArrayCost.checked(self.cost[index], self.kind)
        return Problem(cost, self.source_weights[index], self.target_weights[index], self.marginals)


def empty_answers(batch: int, n: int, m: int) -> Answers:
    """Room for the answers to problems of n sources and m targets; they count as optimal."""
    numbers, whole = np.zeros((6, batch)), np.zeros((2, batch), np.int64)
    return Answers(*numbers, *whole, *(np.empty((batch, size)) for size in (n, m, n, m)))


def store(one: Answers, place: int, answers: Answers) -> None:
    """Write the answers to one problem to their place among those to a batch."""
    for answer, array in zip(one, answers, strict=True):
        array[place] = answer


@dataclass(frozen=True, eq=False, repr=False)
class SolutionBatch(Found, Sequence[Solution]):
    """The solutions of many problems.

    ``batch[b]`` is a `Solution`. The same names on the batch itself give the answers to all problems at once, with the
    problem as the first index, in the library and precision of the input: `plan`, `value`, `regularised_value`, `mass`,
    `price`, `gap`, `violation`, `source_marginal`, `source_potential`, `active_source`, the same for targets,
    `outliers`, `iterations` and `converged`; `status` is a tuple.

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

    problem: ProblemBatch
    transport: DenseTransport | ListedTransport

    value = presented("value")
    regularised_value = presented("regularised_value")
    mass = presented("mass")
    price = presented("price")
    gap = presented("gap")
    violation = presented("violation")
    iterations = presented("iterations")

    @classmethod
    def of(cls, problems: ProblemBatch, solutions: Sequence[Solution], epsilon: float | None = None) -> SolutionBatch:
        """From the solutions of the single problems."""
        plans, answers = np.empty(problems.cost.shape), empty_answers(*problems.cost.shape)
        for b, solution in enumerate(solutions):
            plans[b] = to_numpy(solution.transport.dense(plans.dtype))
            store(solution.answers, b, answers)
        share = max((solution.active_share for solution in solutions), default=0.0)
        return cls(problems, DenseTransport(plans), answers, share, epsilon)

    @property
    def problems(self) -> ProblemBatch:
        return self.problem

    @cached_property
    def status(self) -> tuple[Status, ...]:
        return tuple(STATUSES[place] for place in to_numpy(self.answers.status))

    @cached_property
    def plan(self) -> Any:
        """All plans as one dense array, created on first access."""
        return self.problem.kind.present_plan(self.transport.dense(self.problem.kind.dtype))

    def __len__(self) -> int:
        return len(self.problem)

    @overload
    def __getitem__(self, index: int) -> Solution: ...
    @overload
    def __getitem__(self, index: slice) -> list[Solution]: ...
    def __getitem__(self, index: int | slice) -> Solution | list[Solution]:
        if isinstance(index, slice):
            return [self[b] for b in range(len(self))[index]]
        index = check.place(index, len(self))
        answers = Answers(*(answer[index] for answer in self.answers))
        return Solution(self.problem[index], self.transport.one(index), answers, self.active_share, self.epsilon)

    def __repr__(self) -> str:
        batch, n, m = self.problem.cost.shape
        return f"<SolutionBatch of {batch} problems of {n} x {m}: {self._statuses()}>"

    def __str__(self) -> str:
        batch, n, m = self.problem.cost.shape
        value, mass, gap = map(to_numpy, (self.answers.value, self.answers.mass, self.answers.gap))
        title = f"{self.problem.marginals.title}, {batch} problems of {n} x {m}"
        if batch == 0:
            return title
        active = [
            f"{np.count_nonzero(side) / max(1, side.size):.0%}".replace("%", " %")
            for side in map(to_numpy, (self.active_source, self.active_target))
        ]
        return "\n".join(
            [
                title,
                f"  status    {self._statuses()}",
                f"  value     {_range(value)}   (certified gap at most {gap.max():.2g})",
                f"  mass      {_range(mass)}",
                f"  active    {active[0]} of the sources, {active[1]} of the targets",
                *self._chosen_lines(),
                *meant.nothing_moves(self),
            ]
        )

    def _statuses(self) -> str:
        return ", ".join(f"{count} {status.name.lower()}" for status, count in Counter(self.status).items()) or "none"


def _range(numbers: np.ndarray) -> str:
    return f"{numbers.min():.6g} to {numbers.max():.6g}"
