"""The function `solve`, which solves every problem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypedDict, Unpack, overload

import numpy as np

from adaptive_ot import _meant as meant
from adaptive_ot import _validation as check
from adaptive_ot._progress import Progress
from adaptive_ot.batch import ProblemBatch, SolutionBatch, is_batch
from adaptive_ot.costs import ArrayCost, PointCost, as_cost
from adaptive_ot.distributed import Options, SolutionPart, solve_in_group
from adaptive_ot.entropic.batch import fits_one_program, solve_entropic_batch, solve_on_gpu
from adaptive_ot.entropic.solver import Entropic, solve_entropic
from adaptive_ot.errors import InvalidInput, NotConverged
from adaptive_ot.exact.solver import Exact, solve_exact
from adaptive_ot.marginals import AtMost, Marginals, as_marginals
from adaptive_ot.problem import Problem
from adaptive_ot.solution import Solution

NO_GRADIENT = "Use aot.autodiff.transport_value or transport_plan, or pass {}.detach()."


class Keywords(TypedDict, total=False):
    """The keywords of `solve`."""

    marginals: Marginals | tuple[Marginals, Marginals] | None
    solver: Exact | Entropic | None
    progress: Callable[[Progress], None] | None
    raise_if_not_converged: bool


@overload
def solve(
    cost: PointCost | Callable[[], PointCost],
    source_weights: Any = None,
    target_weights: Any = None,
    *,
    group: Any,
    **keywords: Unpack[Keywords],
) -> SolutionPart: ...
@overload
def solve(
    cost: PointCost | Sequence[Sequence[float]],
    source_weights: Any = None,
    target_weights: Any = None,
    **keywords: Unpack[Keywords],
) -> Solution: ...
@overload
def solve(
    cost: Sequence[Sequence[Sequence[float]]],
    source_weights: Any = None,
    target_weights: Any = None,
    **keywords: Unpack[Keywords],
) -> SolutionBatch: ...
@overload
def solve(
    cost: Any, source_weights: Any = None, target_weights: Any = None, **keywords: Unpack[Keywords]
) -> Any: ...  # the type of an array does not tell its number of dimensions
def solve(
    cost: Any,
    source_weights: Any = None,
    target_weights: Any = None,
    *extra: Any,
    marginals: Marginals | tuple[Marginals, Marginals] | None = None,
    solver: Exact | Entropic | None = None,
    progress: Callable[[Progress], None] | None = None,
    raise_if_not_converged: bool = True,
    group: Any = None,
    **unknown: Any,
) -> Any:
    """Adaptive optimal transport: the plan of least cost whose marginals stay below the weights.

    Parameters
    ----------
    cost
        Costs of any sign, sources x targets: a NumPy array, a torch tensor (the answer is a tensor, too; for gradients,
        see `adaptive_ot.autodiff`), nested lists, a SciPy sparse matrix (only stored pairs may carry mass),
        `DistanceCost` or `JointCost`. +inf forbids a pair.
        Dense arrays and points are not copied. An array of shape problems x sources x targets is a batch of independent
        problems, answered by a `SolutionBatch`.
    source_weights, target_weights
        Non-negative weights whose totals may differ; uniform with total 1 by default. For a batch, either one set
        of weights for all problems, or one row per problem.
    marginals
        The constraints on the marginals, `AtMost()` by default. A pair of `AtMost`, `Equal` and `SoftKL` has one rule
        for the sources and one for the targets: ``(AtMost(), Equal())`` serves every target in full.
    solver
        `Exact()`, the default, or `Entropic()`, whose epsilon may be given.
    progress
        Called with a `Progress` several times a second during long solves.
    raise_if_not_converged
        Raise `NotConverged` rather than return a solution that misses its tolerance.
    group
        A group of `torch.distributed` whose processes all make this call: they solve one problem together. Each passes
        the cost and weights of its own sources, and all targets, and gets the `SolutionPart` of its sources. Then,
        `cost` may also be a function that makes the `DistanceCost` or `JointCost` of this process; what it raises in
        one process, all of them raise. See docs/distributed.md.

    Returns
    -------
    Solution or SolutionBatch
        The plan with its certificate; for a batch, the plans and certificates of all problems.

    Examples
    --------
    >>> import adaptive_ot as aot
    >>> solution = aot.solve([[-3.0, 1.0], [2.0, 4.0]])
    >>> solution.mass, solution.value
    (0.5, -1.5)
    >>> solution.plan
    array([[0.5, 0. ],
           [0. , 0. ]])
    >>> aot.solve([[[-3.0, 1.0], [2.0, 4.0]], [[5.0, -1.0], [-1.0, 5.0]]]).value  # a batch of two
    array([-1.5, -1. ])
    """
    if extra:
        raise meant.fourth(extra[0])
    if unknown:
        raise meant.keyword(*next(iter(unknown.items())))
    options = partial(_checked, marginals, solver, progress)
    if group is not None:
        part = solve_in_group(group, cost, source_weights, target_weights, options, _solve_one)
        return _converged(part) if raise_if_not_converged else part
    meant.no_gradient(NO_GRADIENT, cost=cost, source_weights=source_weights, target_weights=target_weights)
    marginals, solver, progress = options()
    if isinstance(solver, Entropic) and not solver.wait and fits_one_program(cost, marginals):
        batch = solve_on_gpu(ProblemBatch.unchecked(cost, source_weights, target_weights, marginals), solver)
        return batch if cost.ndim == 3 else batch[0]
    if is_batch(cost):
        batch = _solve_batch(ProblemBatch.build(cost, source_weights, target_weights, marginals), solver, progress)
        failed = np.flatnonzero(~batch.converged).tolist()
        if raise_if_not_converged and failed:
            which = ", ".join(map(str, failed[:10])) + (", ..." if len(failed) > 10 else "")
            reason = batch.status[failed[0]].value
            raise NotConverged(f"{len(failed)} of {len(batch)} problems ({which}) failed; the first: {reason}", batch)
        return batch
    problem = Problem.build(cost, source_weights, target_weights, marginals)
    solution = _solve_one(problem, solver, progress)
    return _converged(solution) if raise_if_not_converged else solution


def _checked(marginals: Any, solver: Any, progress: Any) -> Options:
    """The options, with their defaults; models that a solver cannot solve are refused."""
    solver = Exact() if solver is None else solver
    progress = (lambda _: None) if progress is None else progress
    if not isinstance(solver, Exact | Entropic):
        raise meant.solver(solver)
    check.function("progress", progress)
    marginals = as_marginals(marginals)
    refusal = marginals.no_exact_form if isinstance(solver, Exact) else marginals.no_entropic_form
    if refusal is not None:
        raise InvalidInput("solver", refusal.rule, solver, refusal.remedy)
    return Options(marginals, solver, progress)


def _converged(solution: Solution) -> Solution:
    if not solution.status.succeeded:
        raise NotConverged(f"{solution.status.value} (gap {solution.gap:.2g}, value {solution.value:.6g})", solution)
    return solution


def _solve_one(problem: Problem, solver: Exact | Entropic, report: Callable[[Progress], None]) -> Solution:
    if isinstance(solver, Exact):
        return solve_exact(problem, solver, report)
    if isinstance(problem.cost, ArrayCost) and fits_one_program(problem.cost.array, problem.marginals):
        return solve_entropic_batch(ProblemBatch.of(problem), solver, report, _movable)[0]
    return solve_entropic(problem, solver, report, _movable)


def _movable(pairs: Any, mu: Any, nu: Any) -> float:
    """The most mass that allowed pairs can move; the entropic engine cannot compute it itself."""
    return solve_exact(Problem(as_cost(-pairs), mu, nu, AtMost()), Exact(), lambda _: None).mass


def _solve_batch(problems: ProblemBatch, solver: Exact | Entropic, report: Callable[[Progress], None]) -> SolutionBatch:
    if isinstance(solver, Entropic):
        return solve_entropic_batch(problems, solver, report, _movable)
    # Numba takes half a second to import; only a solve should pay for it.
    from adaptive_ot.exact.batch import solve_exact_batch

    return solve_exact_batch(problems, solver, report)
