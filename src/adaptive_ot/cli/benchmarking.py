"""``adaptive-ot benchmark features``: run what is not finished yet, print the table, write the results."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from adaptive_ot import InvalidInput
from adaptive_ot._validation import whole_number
from adaptive_ot.benchmark import engine
from adaptive_ot.benchmark.features import prepare
from adaptive_ot.benchmark.table import markdown, write_results
from adaptive_ot.cli.progress import cells_bar

OPTIONS = ("output", "method", "task", "seeds", "samples", "drop", "outliers", "jobs")


class Request(NamedTuple):
    """What the user typed."""

    datasets: tuple[Path, ...]
    output: Path
    methods: list[str]
    tasks: list[str]
    seeds: int
    samples: int
    drop: int
    outliers: float
    jobs: int


def run(request: Request) -> int:
    """Check, run, print and write."""
    with _named(), cells_bar() as progress:
        jobs = whole_number("jobs", request.jobs, minimum=1)
        plan, work = prepare(
            request.datasets,
            methods=request.methods,
            tasks=request.tasks,
            seeds=request.seeds,
            samples=request.samples,
            drop=request.drop,
            outliers=request.outliers,
        )
        outcomes = engine.run(plan, work, request.output, jobs=jobs, progress=progress)
        written = write_results(request.output, plan, outcomes)
    print(markdown(plan, outcomes))
    print(*(f"Written to {path}" for path in written), sep="\n")
    return 0


@contextmanager
def _named() -> Iterator[None]:
    """Let complaints name options as the user typed them."""
    try:
        yield
    except InvalidInput as error:
        name = f"--{error.argument}" if error.argument.split(" ")[0] in OPTIONS else error.argument
        raise InvalidInput(name, error.rule, error.given, error.remedy) from None
