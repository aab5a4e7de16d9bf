"""Entropic batches: on the CPU problem by problem on all cores, on a GPU all at once."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from adaptive_ot._arrays import to_numpy
from adaptive_ot.batch import Answers, PlanArray, ProblemBatch, SolutionBatch
from adaptive_ot.solution import Solution
from adaptive_ot.solvers.entropic import ACTIVE_SHARE, Entropic, solve_entropic, status_of
from adaptive_ot.solvers.exact import Progress

# Progress is told, and Ctrl-C heard, after each round of about this many pairs a thread.
PAIRS_PER_ROUND = 2**20

# The most sources or targets of a problem that one program on a GPU solves on its own.
LARGEST_ON_GPU = 128


def solve_entropic_batch(problems: ProblemBatch, solver: Entropic, report: Callable[[Progress], None]) -> SolutionBatch:
    """Solve every problem as if it were alone."""
    weigh = all(bool((side.sum(axis=1) > 0).all()) for side in (problems.source_weights, problems.target_weights))
    if problems.kind.on_gpu and weigh and fits_one_program(problems.cost.shape[1:]):
        return solve_on_gpu(problems, solver)
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


def fits_one_program(shape: tuple[int, int]) -> bool:
    """Whether Triton is there, and one program of it can hold a problem of this shape."""
    return 0 < min(shape) and max(shape) <= LARGEST_ON_GPU and has_triton()


@cache
def has_triton() -> bool:
    """Whether Triton is installed; says so, once, if it is not."""
    try:
        import triton  # noqa: F401
    except ImportError:
        message = "Triton is not installed: small problems on the GPU are solved step by step, which takes longer."
        warnings.warn(message, RuntimeWarning, stacklevel=2)
        return False
    return True


def scale_down(most: Any, sums: Any) -> Any:
    """What to multiply by so that sums do not exceed a limit."""
    return (most / sums.clamp(min=1e-300)).clamp(max=1.0)


def solve_on_gpu(problems: ProblemBatch, solver: Entropic) -> SolutionBatch:
    """One launch for the ascents, a few for the certificates, one synchronisation: `entropic.certify` in torch."""
    import torch

    from adaptive_ot.solvers.softmin.triton import ascend_batch, duals_of

    costs: Any = problems.cost
    epsilon = float(solver.epsilon)
    mu, nu = (torch.from_numpy(side).to(costs.device) for side in (problems.source_weights, problems.target_weights))
    duals = duals_of(mu, nu, solver.entropy)
    reward = (-costs.amin(dim=(1, 2))).clamp(min=0.0)
    reached = ascend_batch(costs, duals, epsilon, reward, float(solver.tolerance), solver.max_iterations)
    costs = costs.to(torch.float64)
    h = reached.gamma + duals.target_reference
    scaling = reached.potential + duals.source_reference
    plan = torch.exp(scaling[:, :, None] + h[:, None, :] - costs / epsilon)
    plan *= scale_down(mu, plan.sum(dim=2))[:, :, None]
    plan *= scale_down(nu, plan.sum(dim=1))[:, None, :]
    rows, columns = plan.sum(dim=2), plan.sum(dim=1)
    value = torch.where(plan > 0, plan * costs, 0.0).sum(dim=(1, 2))
    f = epsilon * reached.potential
    lowest = (costs - f.clamp(max=0.0)[:, :, None]).amin(dim=1).clamp(max=0.0)
    gap = (value - (mu * f.clamp(max=0.0)).sum(1) - (nu * lowest).sum(1)).clamp(min=0.0)
    violation = torch.maximum((rows - mu).amax(1), (columns - nu).amax(1)).clamp(min=0.0)
    constant = mu.sum(1) * nu.sum(1) if solver.entropy == "product" else 0.0
    gamma = reached.gamma
    if duals.augmented:
        log_sum = torch.logsumexp(torch.cat([gamma + duals.target_reference, duals.dummy[:, None]], dim=1), dim=1)
        gamma = gamma + ((mu.sum(1) + nu.sum(1)).log() - log_sum)[:, None]
    g = torch.where(nu > 0, epsilon * gamma, lowest)
    numbers = [value, epsilon * (reached.value + constant), rows.sum(1), gap, violation]
    sides = [rows, columns, f, g]
    ends = [reached.passes, reached.error, reached.stalled]
    flat = torch.cat([part.double().reshape(-1) for part in (*numbers, *sides, *ends)]).cpu().numpy()
    batch, n, m = costs.shape
    pieces = iter(np.split(flat, np.cumsum([batch] * 5 + [batch * n, batch * m] * 2 + [batch] * 2)))
    value, regularised, mass, gap, violation = (next(pieces) for _ in range(5))
    rows, columns, f, g = (next(pieces).reshape(batch, size) for size in (n, m, n, m))
    passes, error, stalled = pieces
    answers = Answers(value, regularised, mass, gap, violation, rows, columns, f, g, passes.astype(np.int64))
    status = tuple(status_of(e, solver, bool(stuck)) for e, stuck in zip(error, stalled, strict=True))
    return SolutionBatch(problems, PlanArray(plan), answers, status, ACTIVE_SHARE)
