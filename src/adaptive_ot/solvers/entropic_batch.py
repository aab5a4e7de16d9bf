"""Entropic batches: on the CPU problem by problem on all cores, on a GPU all at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from adaptive_ot._arrays import to_numpy
from adaptive_ot.batch import Answers, PlanArray, ProblemBatch, SolutionBatch
from adaptive_ot.solution import Solution
from adaptive_ot.solvers.entropic import ACTIVE_SHARE, Entropic, solve_entropic
from adaptive_ot.solvers.exact import Progress

# Progress is told, and Ctrl-C heard, after each round of about this many pairs a thread.
PAIRS_PER_ROUND = 2**20


def solve_entropic_batch(problems: ProblemBatch, solver: Entropic, report: Callable[[Progress], None]) -> SolutionBatch:
    """Solve every problem as if it were alone, and stack the answers."""
    import numba

    from adaptive_ot.solvers._threads import run_together

    batch, n, m = problems.cost.shape
    solutions: list[Solution | None] = [None] * batch

    def solve_some(start: int, stop: int, step: int) -> None:
        for b in range(start, stop, step):
            solutions[b] = solve_entropic(problems[b], solver, lambda _: None)

    threads = 1 if problems.kind.on_gpu else numba.get_num_threads()
    round_size = threads * max(1, PAIRS_PER_ROUND // max(1, n * m))
    for start in range(0, batch, round_size):
        stop = min(start + round_size, batch)
        run_together([partial(solve_some, start + k, stop, threads) for k in range(threads)])
        done = [solution for solution in solutions[:stop] if solution is not None]
        passes, gap = sum(one.iterations for one in done), max(one.gap for one in done)
        report(Progress("batch", 1, stop / batch, passes, 0, gap))
    return stacked(problems, [solution for solution in solutions if solution is not None])


def stacked(problems: ProblemBatch, solutions: list[Solution]) -> SolutionBatch:
    """Solutions of single problems as a batch."""
    batch, n, m = problems.cost.shape
    answers, plans = Answers.empty(batch, n, m), np.empty((batch, n, m), problems.kind.dtype)
    for b, solution in enumerate(solutions):
        for name, array in answers._asdict().items():
            array[b] = to_numpy(getattr(solution, name))
        plans[b] = to_numpy(solution.plan)
    status = tuple(solution.status for solution in solutions)
    return SolutionBatch(problems, PlanArray(plans), answers, status, ACTIVE_SHARE)
