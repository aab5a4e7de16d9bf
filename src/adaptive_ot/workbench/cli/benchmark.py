"""``adaptive-ot benchmark``: run the cells that are not finished yet, print the table, write the results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import App, Parameter

from adaptive_ot._validation import whole_number
from adaptive_ot.workbench.cli.options import Output, Whole, Words, named
from adaptive_ot.workbench.cli.progress import cells_bar

if TYPE_CHECKING:
    from adaptive_ot.workbench.benchmark.engine import Work
    from adaptive_ot.workbench.benchmark.study import Outcome, Study

benchmark = App(name="benchmark", help="Compare methods of domain adaptation; finished cells survive a crash.")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class BenchmarkOptions:
    """The options of every benchmark.

    Parameters
    ----------
    output
        The directory for the results.
    jobs
        Processes side by side, with one thread of the CPU each if there are several.
    """

    output: Output
    jobs: Whole = 1


@benchmark.command
def features(
    *datasets: Path,
    options: BenchmarkOptions,
    method: Words = None,
    task: Words = None,
    seeds: Whole = 3,
    samples: Whole = 1000,
    drop: Whole = 0,
    outliers: float = 0.0,
    shift: Words = None,
    overlap: Words = None,
) -> int:
    """Adapt from every domain of a dataset to every other, by our methods, POT and SKADA.

    The same command continues where it was stopped. See docs/benchmark.md.

    Parameters
    ----------
    datasets
        A directory with a file of features and labels for every domain (.npz, .csv, .parquet or .safetensors), or an
        .npz file with images NAME_train_x and labels NAME_train_y of every domain.
    method
        One of the methods in docs/benchmark.md, as "AOT (joint)"; repeat it for several. All, if not given.
    task
        One of the tasks, as SOURCE:TARGET, or as a domain for other shifts than "domains"; repeat it for several. All,
        if not given.
    seeds
        How many times samples are drawn.
    samples
        Samples of either domain.
    drop
        This many classes are missing in the target.
    outliers
        This share of the target belongs to no class.
    shift
        What differs between source and target: "domains" (default); or both are halves of one domain, with nothing else
        ("none"), noise in the target ("noise") or turned images in it ("rotation"). Repeat it for several.
    overlap
        Classes of the target: "all" (default), "half", "third", "imbalanced", or all with a third "unknown" to the
        source. Repeat it for several; all pairs with --shift run.
    """
    from adaptive_ot.workbench.benchmark.features import prepare

    sampling = {"seeds": seeds, "samples": samples, "drop": drop, "outliers": outliers}
    prepared = partial(prepare, datasets, methods=method or [], tasks=task or [], **sampling)
    prepared = partial(prepared, shifts=shift or [], overlaps=overlap or [])
    with named("output", "jobs", "method", "task", "shift", "overlap", *sampling):
        return _code(_run(prepared, options)[1])


@benchmark.command
def deep(plan: Path, /, *, options: BenchmarkOptions) -> int:
    """Train networks on images: the tasks, methods and seeds of a plan file.

    The same command continues where it was stopped, also in the middle of a training. See docs/deep_benchmark.md.

    Parameters
    ----------
    plan
        A .toml file with the dataset, the recipe, the tasks, the seeds, and a table for every method.
    """
    from adaptive_ot.workbench.benchmark.deep import prepare

    with named("output", "jobs"):
        return _code(_run(partial(prepare, plan, options.output), options)[1])


@benchmark.command
def sensitivity(plan: Path, /, *, options: BenchmarkOptions) -> int:
    """Vary the parameters of a method one at a time, and draw the accuracies.

    The same command continues where it was stopped. See docs/deep_benchmark.md.

    Parameters
    ----------
    plan
        A .toml file as for "benchmark deep", with one method and the values of its parameters in a table [grid].
    """
    from adaptive_ot.workbench.benchmark.sensitivity import draw, markdown, prepare

    with named("output", "jobs"):
        study, outcomes = _run(partial(prepare, plan, options.output), options, markdown)
        picture = options.output / "sensitivity.png"
        draw(study, outcomes, picture)
    print(f"Written to {picture}")
    return _code(outcomes)


def _run(
    prepare: Callable[[], tuple[Study, Work]],
    options: BenchmarkOptions,
    write: Callable[[Study, list[Outcome]], str] | None = None,
) -> tuple[Study, list[Outcome]]:
    """Check, run, print and write."""
    from adaptive_ot.workbench.benchmark import engine
    from adaptive_ot.workbench.benchmark.table import markdown, write_results

    with cells_bar() as progress:
        jobs = whole_number("jobs", options.jobs, minimum=1)
        study, work = prepare()
        outcomes = engine.run(study, work, options.output, jobs=jobs, progress=progress)
        text = (write or markdown)(study, outcomes)
        written = write_results(options.output, study, outcomes, text)
    print(text)
    print(*(f"Written to {path}" for path in written), sep="\n")
    return study, outcomes


def _code(outcomes: list[Outcome]) -> int:
    """1 if a cell failed."""
    return int(any(outcome.numbers is None for outcome in outcomes))
