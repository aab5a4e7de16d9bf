"""``adaptive-ot benchmark``: run what is not finished yet, print the table, write the results."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from adaptive_ot._validation import whole_number
from adaptive_ot.workbench.benchmark import engine
from adaptive_ot.workbench.benchmark.plan import Outcome, Plan
from adaptive_ot.workbench.benchmark.table import markdown, write_results
from adaptive_ot.workbench.cli import DONE, FAILED
from adaptive_ot.workbench.cli.options import named
from adaptive_ot.workbench.cli.progress import cells_bar

OPTIONS = ("output", "jobs")


class Features(NamedTuple):
    """What the user typed after ``benchmark features``."""

    datasets: tuple[Path, ...]
    output: Path
    methods: list[str]
    tasks: list[str]
    seeds: int
    samples: int
    drop: int
    outliers: float
    jobs: int


def features(request: Features) -> int:
    """Features from files, and classical methods."""
    from adaptive_ot.workbench.benchmark.features import prepare

    def prepared() -> tuple[Plan, engine.Work]:
        return prepare(
            request.datasets,
            methods=request.methods,
            tasks=request.tasks,
            seeds=request.seeds,
            samples=request.samples,
            drop=request.drop,
            outliers=request.outliers,
        )

    with named(*OPTIONS, "method", "task", "seeds", "samples", "drop", "outliers"):
        return _code(_run(prepared, request.output, request.jobs)[1])


def deep(plan: Path, output: Path, jobs: int) -> int:
    """Images, and networks."""
    from adaptive_ot.workbench.benchmark.deep import ABOUT, prepare

    with named(*OPTIONS):
        return _code(_run(partial(prepare, plan, output), output, jobs, partial(markdown, about=ABOUT))[1])


def sensitivity(plan: Path, output: Path, jobs: int) -> int:
    """The same for one method with one parameter after the other changed, with a picture."""
    from adaptive_ot.workbench.benchmark.sensitivity import draw, markdown, prepare

    with named(*OPTIONS):
        found = _run(partial(prepare, plan, output), output, jobs, markdown)
        picture = output / "sensitivity.png"
        draw(*found, picture)
    print(f"Written to {picture}")
    return _code(found[1])


def _code(outcomes: list[Outcome]) -> int:
    return FAILED if any(outcome.numbers is None for outcome in outcomes) else DONE


def _run(
    prepare: Callable[[], tuple[Plan, engine.Work]],
    output: Path,
    jobs: int,
    report: Callable[[Plan, list[Outcome]], str] = markdown,
) -> tuple[Plan, list[Outcome]]:
    """Check, run, print and write."""
    with cells_bar() as progress:
        jobs = whole_number("jobs", jobs, minimum=1)
        plan, work = prepare()
        outcomes = engine.run(plan, work, output, jobs=jobs, progress=progress)
        text = report(plan, outcomes)
        written = write_results(output, plan, outcomes, text)
    print(text)
    print(*(f"Written to {path}" for path in written), sep="\n")
    return plan, outcomes
