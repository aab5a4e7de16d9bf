"""Entropic batches: problem by problem on all CPU cores, or all at once on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from adaptive_ot._arrays import ArrayKind, is_sparse
from adaptive_ot._progress import Progress
from adaptive_ot.batch import ProblemBatch, SolutionBatch
from adaptive_ot.entropic.dual import Movable
from adaptive_ot.entropic.solver import ACTIVE_SHARE, Entropic, has_triton, solve_entropic
from adaptive_ot.entropic.strength import with_strength
from adaptive_ot.errors import Infeasible
from adaptive_ot.marginals import AtMost, Marginals
from adaptive_ot.solution import STATUSES, Answers, DenseTransport, Solution, Status

# Progress is reported, and Ctrl-C handled, after each round of about this many pairs per thread.
PAIRS_PER_ROUND = 2**20

# The most sources or targets of a problem that a single GPU program can solve.
LARGEST_ON_GPU = 128


def solve_entropic_batch(
    problems: ProblemBatch, solver: Entropic, report: Callable[[Progress], None], movable: Movable
) -> SolutionBatch:
    """Solve every problem as if it were alone; those without an epsilon share one."""
    solver = with_strength(solver, problems)
    all_weigh = all(bool((side.sum(axis=1) > 0).all()) for side in (problems.source_weights, problems.target_weights))
    if all_weigh and fits_one_program(problems.cost, problems.marginals):
        return solve_on_gpu(problems, solver)
    import numba

    from adaptive_ot._threads import run_together
    from adaptive_ot.entropic.small import worth_compiling

    batch, n, m = problems.cost.shape
    solutions: list[Solution | None] = [None] * batch

    def solve_some(one_way: Entropic, start: int, stop: int, step: int) -> None:
        for b in range(start, stop, step):
            try:
                solutions[b] = solve_entropic(problems[b], one_way, lambda _: None, movable)
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
    return SolutionBatch.of(problems, [solution for solution in solutions if solution is not None], solver.strength)


def fits_one_program(cost: Any, marginals: Marginals) -> bool:
    """Whether one GPU program can solve such a problem, or each problem of such a batch: dense, small, on a GPU."""
    if not ArrayKind.of(cost).on_gpu or is_sparse(cost) or cost.ndim not in (2, 3):
        return False
    n, m = cost.shape[-2:]
    return marginals == AtMost() and 0 < min(n, m) <= max(n, m) <= LARGEST_ON_GPU and has_triton()


def solve_on_gpu(problems: ProblemBatch, solver: Entropic) -> SolutionBatch:
    """Solve all problems with one launch and one synchronisation; with none if the solver does not wait."""
    import torch

    from adaptive_ot.entropic.triton import NUMBERS, solve_batch

    n, m = problems.cost.shape[1:]
    weights: Any = problems.source_weights, problems.target_weights
    if isinstance(weights[0], np.ndarray):
        weights = torch.from_numpy(np.concatenate(weights, axis=1)).to(problems.cost.device)
    else:
        weights = torch.cat(weights, dim=1)
    settings = solver.entropy, solver.strength, solver.tolerance, solver.max_iterations
    plans, found = solve_batch(problems.cost, weights, *settings)
    sides = found[:, len(NUMBERS) :].split([n, m, n, m], dim=1)  # stay on the device
    rows: Any = found[:, : len(NUMBERS)].T
    rows, xp = (rows.cpu().numpy(), np) if solver.wait else (rows, torch)
    numbers: dict[str, Any] = dict(zip(NUMBERS, rows, strict=True))
    error, stalled, passes = (numbers.pop(name) for name in ("error", "stalled", "passes"))
    converged, limited, imprecise = map(STATUSES.index, (Status.CONVERGED, Status.ITERATION_LIMIT, Status.IMPRECISE))
    answers = Answers(
        **numbers,
        price=xp.zeros_like(passes),
        iterations=xp.asarray(passes, dtype=xp.int64),
        status=xp.where(error <= solver.tolerance, converged, xp.where(stalled > 0, imprecise, limited)),
        **dict(zip(Answers._fields[-4:], sides, strict=True)),
    )
    return SolutionBatch(problems, DenseTransport(plans), answers, ACTIVE_SHARE, solver.strength)
