"""``adaptive-ot solve``: files in, a summary and a plan out."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rich.console import Console

from adaptive_ot import DistanceCost, Entropic, Exact, InvalidInput, NotConverged, Progress
from adaptive_ot import solve as solve_problem
from adaptive_ot.cli import files, show


class Request(NamedTuple):
    """What the user typed."""

    cost: Path
    targets: Path | None
    reach: float | None
    source_weights: Path | None
    target_weights: Path | None
    output: Path | None
    epsilon: float | None
    entropy: Literal["augmented", "product", "counting"] | None
    tolerance: float
    max_pivots: int | None
    max_iterations: int | None
    json: bool


def run(request: Request) -> int:
    """Solve as asked, print a summary, write the plan; one that did not converge too, with an exit code of its own."""
    if request.output:
        inputs = (request.cost, request.targets, request.source_weights, request.target_weights)
        files.check_output(request.output, inputs=inputs)
    solver = _solver(request)
    cost = _cost(request)
    if request.output:
        files.check_output(request.output, shape=cost.shape)
    weights = [
        files.read_weights(argument, path) if path else None
        for argument, path in (
            ("--source-weights", request.source_weights),
            ("--target-weights", request.target_weights),
        )
    ]
    started = time.perf_counter()
    with _progress_bar() as progress, _naming_files(request):
        solution = solve_problem(cost, *weights, solver=solver, progress=progress, raise_if_not_converged=False)
    seconds = time.perf_counter() - started
    if request.output:
        files.write_plan(request.output, solution)
    summary = show.summary(solution, seconds, request.output)
    if request.json:
        print(json.dumps(summary, indent=2))
    else:
        show.solution(Console(), summary)
    if not solution.status.succeeded:
        raise NotConverged(f"{solution.status.value} (gap {solution.gap:.2g})", solution)
    return 0


def _solver(request: Request) -> Exact | Entropic:
    """Exact, or entropic if an epsilon was given; options of the other kind are refused."""
    exact = request.epsilon is None
    foreign = {"--entropy": request.entropy, "--max-iterations": request.max_iterations}
    for option, given in foreign.items() if exact else [("--max-pivots", request.max_pivots)]:
        if given is not None:
            rule, remedy = ("needs", "Give") if exact else ("does not go with", "Leave away")
            raise InvalidInput(option, f"{rule} --epsilon", given, f"{remedy} --epsilon.")
    if request.epsilon is None:
        return Exact(tolerance=request.tolerance, max_pivots=request.max_pivots)
    limit = {} if request.max_iterations is None else {"max_iterations": request.max_iterations}
    return Entropic(request.epsilon, request.entropy or "augmented", tolerance=request.tolerance, **limit)


def _cost(request: Request) -> Any:
    """The cost matrix, or the cost of two point clouds."""
    if request.targets is None:
        if request.reach is not None:
            remedy = "Give the target points too, or leave --reach away."
            raise InvalidInput("--reach", "goes with two point files", "one file", remedy)
        return files.read_cost(request.cost)
    if request.reach is None:
        remedy = "Give --reach, the distance at which matching stops to pay."
        raise InvalidInput("--reach", "is needed with two point files", "none", remedy)
    x, z = files.read_points("x", request.cost), files.read_points("z", request.targets)
    return DistanceCost(x, z, request.reach)


@contextmanager
def _naming_files(request: Request) -> Iterator[None]:
    """Let complaints about arrays name the options and files they came from."""
    names = {
        "cost": f"cost file '{request.cost}'",
        "source_weights": f"--source-weights file '{request.source_weights}'",
        "target_weights": f"--target-weights file '{request.target_weights}'",
    }
    try:
        yield
    except InvalidInput as error:
        name = names.get(error.argument, error.argument)
        raise InvalidInput(name, error.rule, error.given, error.remedy) from None


@contextmanager
def _progress_bar() -> Iterator[Callable[[Progress], None] | None]:
    """A bar on the terminal that disappears when the work is done; nothing if stderr is not a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    from rich import progress

    columns = (
        progress.SpinnerColumn(),
        progress.TextColumn("{task.description:<9}"),
        progress.BarColumn(bar_width=24),
        progress.TimeElapsedColumn(),
        progress.TextColumn("{task.fields[state]}"),
    )
    with progress.Progress(*columns, console=console, transient=True) as bar:
        tasks = {
            "starting": bar.add_task("starting", total=None, state="loading the compiled kernels"),
            "pricing": bar.add_task("pricing", total=1.0, visible=False, state=""),
            "pivoting": bar.add_task("pivoting", total=None, visible=False, state=""),
            "epsilon": bar.add_task("epsilon", total=None, visible=False, state=""),
        }

        def report(now: Progress) -> None:
            state = show.state(now)
            done = min(now.fraction or 0.0, 0.999)  # a finished task would stop its clock
            for stage, task in tasks.items():
                bar.update(task, visible=stage == now.stage, completed=done, state=state)

        yield report
