"""``adaptive-ot solve``: files in, a summary and a plan out."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rich.console import Console

from adaptive_ot import (
    AtMost,
    ChiSquareBall,
    Entropic,
    Equal,
    Exact,
    FixedMass,
    InvalidInput,
    Marginals,
    NotConverged,
    Progress,
    SoftKL,
    solve,
)
from adaptive_ot.workbench.cli import files, show
from adaptive_ot.workbench.cli.inputs import Inputs
from adaptive_ot.workbench.cli.progress import progress_bar


class Model(NamedTuple):
    """Which transport the user asked for: adaptive, if nothing is set."""

    equal: bool
    mass: float | None
    tau: float | None
    rho: float | None

    def marginals(self, epsilon: float | None) -> Marginals:
        """What was asked for, at most one, and one that can be solved with or without entropy."""
        asked = [f"--{name}" for name, value in self._asdict().items() if value is not None and value is not False]
        if len(asked) > 1:
            remedy = "Choose one of them, or none for adaptive transport."
            raise InvalidInput(asked[0], "does not go with another model", " ".join(asked), remedy)
        if self.tau is not None and epsilon is None:
            raise InvalidInput("--tau", "needs --epsilon", "none", "Give a small --epsilon, or another model.")
        if self.rho is not None and epsilon is not None:
            raise InvalidInput("--rho", "does not go with --epsilon", epsilon, "Leave --epsilon away, or use --tau.")
        if self.equal:
            return Equal()
        if self.mass is not None:
            return FixedMass(self.mass)
        if self.tau is not None:
            return SoftKL(self.tau)
        return AtMost() if self.rho is None else ChiSquareBall(self.rho)


class Request(NamedTuple):
    """What the user typed."""

    inputs: Inputs
    model: Model
    output: Path | None
    epsilon: float | None
    entropy: Literal["augmented", "product", "counting"] | None
    tolerance: float
    max_pivots: int | None
    max_iterations: int | None
    report: Path | None
    json: bool


def run(request: Request) -> int:
    """Solve as asked, print a summary, write the plan; one that did not converge too, with an exit code of its own."""
    inputs, output, report = request.inputs, request.output, request.report
    if output:
        files.check_output(output, files.WRITABLE, inputs=inputs.paths)
    if report:
        files.check_report(report, inputs=inputs.paths)
    solver = _solver(request)
    with inputs.named():
        marginals = request.model.marginals(request.epsilon)
    cost = inputs.read_cost()
    if output:
        files.check_output(output, files.WRITABLE, shape=cost.shape)
    weights = inputs.read_weights()
    trace: list[Progress] = []
    started = time.perf_counter()
    with progress_bar() as progress, inputs.named():
        options = {"marginals": marginals, "solver": solver, "progress": _keeping(trace, progress)}
        solution = solve(cost, *weights, **options, raise_if_not_converged=False)
    seconds = time.perf_counter() - started
    if output:
        files.write_plan(output, solution)
    summary = show.summary(solution, seconds, output)
    if report:
        from adaptive_ot.workbench.cli import solved  # which loads matplotlib

        summary["report"] = solved.report(report, solution, summary, _configuration(request), trace)
    if request.json:
        print(json.dumps(summary, indent=2))
    else:
        show.solution(Console(), summary)
    if not solution.status.succeeded:
        raise NotConverged(f"{solution.status.value} (gap {solution.gap:.2g})", solution)
    return 0


def _keeping(trace: list[Progress], show: Callable[[Progress], None] | None) -> Callable[[Progress], None]:
    """Keep where the solve was, and show it if there is somebody to see it."""

    def tell(now: Progress) -> None:
        trace.append(now)
        if show:
            show(now)

    return tell


def _configuration(request: Request) -> dict[str, Any]:
    """What was asked for, options that were not given left out."""
    given = request.inputs._asdict() | request.model._asdict() | request._asdict()
    kept = {name: value for name, value in given.items() if name not in ("inputs", "model", "output", "report", "json")}
    return {name: str(value) if isinstance(value, Path) else value for name, value in kept.items() if value is not None}


def _solver(request: Request) -> Exact | Entropic:
    """Exact, or entropic if an epsilon was given; options of the other kind are refused."""
    exact = request.epsilon is None
    foreign = {"--entropy": request.entropy, "--max-iterations": request.max_iterations}
    for option, given in foreign.items() if exact else [("--max-pivots", request.max_pivots)]:
        if given is not None:
            rule, remedy = ("needs", "Give") if exact else ("does not go with", "Omit")
            raise InvalidInput(option, f"{rule} --epsilon", given, f"{remedy} --epsilon.")
    if request.epsilon is None:
        return Exact(tolerance=request.tolerance, max_pivots=request.max_pivots)
    solver = Entropic(request.epsilon, request.entropy or "augmented", request.tolerance)
    return solver if request.max_iterations is None else replace(solver, max_iterations=request.max_iterations)
