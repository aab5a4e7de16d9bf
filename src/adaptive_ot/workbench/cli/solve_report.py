"""The report of a solve: its record, and the page made from it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from adaptive_ot import Progress, Solution, plot
from adaptive_ot.plot.columns import LONGEST_COLUMN
from adaptive_ot.workbench.environment import environment
from adaptive_ot.workbench.report import MOST_SAMPLES, write_report
from adaptive_ot.workbench.report.contents import Match, Samples
from adaptive_ot.workbench.report.matches import VALUES_SHOWN, match_of
from adaptive_ot.workbench.report.pictures import Drawn, drawn
from adaptive_ot.workbench.report.record import SOLVE, write_record

# More points would be one blot.
MOST_POINTS = 20_000


def write(
    folder: Path,
    solution: Solution,
    summary: Mapping[str, Any],
    configuration: Mapping[str, Any],
    trace: Sequence[Progress],
    columns: Sequence[Sequence[str] | None],
) -> list[str]:
    """Write the report into a directory, in place of an older one; the paths of its files, the page last.

    `columns` are the names of the coordinates of both sides, where these are points whose coordinates have names.
    """
    about = {**summary, "configuration": configuration, "environment": environment()}
    names = write_record("--report", folder, SOLVE, about, _match(solution, columns), _pictures(solution, trace))
    write_report(folder)
    return names


def _match(solution: Solution, columns: Sequence[Sequence[str] | None]) -> Match | None:
    problem = solution.problem
    if max(problem.cost.shape) > MOST_SAMPLES:
        return None
    points = solution.problem.cost.positions or (None, None)
    weights = problem.source_weights, problem.target_weights
    sides = []
    for size, where, weight, names in zip(problem.cost.shape, points, weights, columns, strict=True):
        numbered = [f"#{k}" for k in range(size)]  # as in files of plans
        if where is None:
            sides.append(Samples(names=numbered, weights=weight))
        else:
            shown = (names or [f"axis {k}" for k in range(where.shape[1])])[:VALUES_SHOWN]
            sides.append(Samples(names=numbered, weights=weight, values=where[:, :VALUES_SHOWN], columns=shown))
    return match_of(solution, *sides)


def _pictures(solution: Solution, trace: Sequence[Progress]) -> dict[str, Drawn]:
    n, m = solution.problem.cost.shape
    pictures = {}
    if n + m <= MOST_POINTS if solution.problem.cost.positions else max(n, m) <= LONGEST_COLUMN:
        pictures["transport"] = drawn(lambda: plot.transport(solution))
    pictures["plan"] = drawn(lambda: plot.plan(solution))
    known = _known(solution, trace)
    if len(known) > 1:
        pictures["convergence"] = drawn(lambda: plot.convergence({solution.problem.marginals.title: known}))
    return pictures


def _known(solution: Solution, trace: Sequence[Progress]) -> list[Progress]:
    """Steps with a proved bound; an exact solve does not report its last."""
    if any(now.epsilon is not None for now in trace):
        return [now for now in trace if math.isfinite(now.error)]
    end = [trace[-1]._replace(iterations=solution.iterations, gap=solution.gap)] if trace else []
    return [now for now in (*trace, *end) if math.isfinite(now.gap)]
