"""Entry point of the exact engine: every model names the method that solves it."""

from __future__ import annotations

from collections.abc import Callable

from adaptive_ot._progress import Progress
from adaptive_ot.exact.certificate import Exact
from adaptive_ot.exact.limits import LIMITS, Limits
from adaptive_ot.problem import Problem
from adaptive_ot.solution import Solution

__all__ = ["Exact", "solve_exact"]


def solve_exact(
    problem: Problem, solver: Exact, report: Callable[[Progress], None], limits: Limits = LIMITS
) -> Solution:
    """Solve a problem by the method that its model declares."""
    # Numba takes half a second to import; only a solve should pay for it.
    if problem.marginals.exact_method == "adaptive":
        from adaptive_ot.exact.columns import solve_adaptive as solve_by_method
    elif problem.marginals.exact_method == "prescribed":
        from adaptive_ot.exact.prescribed import solve_prescribed as solve_by_method
    else:
        from adaptive_ot.exact.robust import solve_robust as solve_by_method
    return solve_by_method(problem, solver, report, limits)
