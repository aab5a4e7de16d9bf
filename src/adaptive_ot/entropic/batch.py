"""Entropic batches: problem by problem on all CPU cores, or all at once on a GPU."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np

from adaptive_ot._progress import Progress
from adaptive_ot.batch import Answers, PlanArray, ProblemBatch, SolutionBatch
from adaptive_ot.entropic.dual import Movable
from adaptive_ot.entropic.solver import ACTIVE_SHARE, Entropic, solve_entropic, status_of
from adaptive_ot.errors import Infeasible
from adaptive_ot.marginals import AtMost, Marginals
from adaptive_ot.solution import Solution

# Progress is reported, and Ctrl-C handled, after each round of about this many pairs per thread.
PAIRS_PER_ROUND = 2**20

# The most sources or targets of a problem that a single GPU program can solve.
LARGEST_ON_GPU = 128


def solve_entropic_batch(
    problems: ProblemBatch, solver: Entropic, report: Callable[[Progress], None], movable: Movable
) -> SolutionBatch:
    """Solve every problem as if it were alone."""
    all_weigh = all(bool((side.sum(axis=1) > 0).all()) for side in (problems.source_weights, problems.target_weights))
    if problems.kind.on_gpu and all_weigh and fits_one_program(problems.marginals, problems.cost.shape[1:]):
        return solve_on_gpu(problems, solver)
    import numba

    from adaptive_ot._threads import run_together
    from adaptive_ot.entropic.small import worth_compiling

    batch, n, m = problems.cost.shape
    precise = problems.precise()
    solutions: list[Solution | None] = [None] * batch

    def solve_some(one_way: Entropic, start: int, stop: int, step: int) -> None:
        for b in range(start, stop, step):
            try:
                solutions[b] = solve_entropic(precise[b], one_way, lambda _: None, movable)
            except Infeasible as error:
                raise Infeasible(error.mass, error.most_mass, b) from None

    threads = 1 if problems.kind.on_gpu else numba.get_num_threads()
    round_size = threads * max(1, PAIRS_PER_ROUND // max(1, n * m))
    for start in range(0, batch, round_size):
        stop = min(start + round_size, batch)
        # Decide here, so that all problems of a round are solved the same way, whichever thread is ahead.
        one_way = replace(solver, compiled=worth_compiling()) if solver.compiled is None else solver
        run_together([partial(solve_some, one_way, start + k, stop, threads) for k in range(threads)])
        done = [solution for solution in solutions[:stop] if solution is not None]
        passes, gap = sum(one.iterations for one in done), max(one.gap for one in done)
        report(Progress("batch", 1, stop / batch, passes, 0, gap))
    return SolutionBatch.of(problems, [solution for solution in solutions if solution is not None])


def fits_one_program(marginals: Marginals, shape: tuple[int, int]) -> bool:
    """Whether Triton is installed, and one of its programs can solve this model and hold a problem of this shape."""
    return marginals == AtMost() and min(shape) > 0 and max(shape) <= LARGEST_ON_GPU and has_triton()


@cache
def has_triton() -> bool:
    """Whether Triton is installed; warns once if it is not."""
    try:
        import triton  # noqa: F401
    except ImportError:
        message = "Triton is not installed: small problems on the GPU are solved step by step, which takes longer."
        warnings.warn(message, RuntimeWarning, stacklevel=2)
        return False
    return True


def solve_on_gpu(problems: ProblemBatch, solver: Entropic) -> SolutionBatch:
    """Solve all problems with one launch and one synchronisation."""
    import torch

    from adaptive_ot.entropic.triton import NUMBERS, solve_batch

    costs: Any = problems.cost
    n, m = costs.shape[1:]
    weights = np.concatenate([problems.source_weights, problems.target_weights], axis=1)
    settings = solver.entropy, solver.epsilon, solver.tolerance, solver.max_iterations
    plans, found = solve_batch(costs, torch.from_numpy(weights).to(costs.device), *settings)
    numbers: dict[str, np.ndarray] = dict(zip(NUMBERS, found[:, : len(NUMBERS)].cpu().numpy().T, strict=True))
    sides = found[:, len(NUMBERS) :].split([n, m, n, m], dim=1)  # stay on the device
    numbers["price"] = np.zeros(len(problems))
    answers = Answers(
        *(numbers[name] for name in Answers._fields[:6]),
        *sides,
        iterations=numbers["passes"].astype(np.int64),
    )
    ends = zip(numbers["error"], numbers["stalled"], strict=True)
    status = tuple(status_of(error, solver, stalled > 0) for error, stalled in ends)
    return SolutionBatch(problems, PlanArray(plans), answers, status, ACTIVE_SHARE)


def plan_on_gpu(cost: Any, source_weights: Any, solver: Entropic) -> tuple[Any, Any]:
    """The plan that `solve` finds for adaptive transport, without its certificate: the host never waits for the GPU.

    Targets have equal weights. The second result is 1 if the plan misses the tolerance of the solver, otherwise 0. The
    problem must fit into one program.
    """
    import torch

    from adaptive_ot.entropic.triton import NUMBERS, solve_batch

    m = cost.shape[1]
    weights = torch.cat([source_weights, cost.new_full((m,), 1 / m)])[None]
    settings = solver.entropy, solver.epsilon, solver.tolerance, solver.max_iterations
    plans, found = solve_batch(cost[None], weights, *settings)
    return plans[0], (~(found[0, NUMBERS.index("error")] <= solver.tolerance)).float()  # 1 for NaN, too
