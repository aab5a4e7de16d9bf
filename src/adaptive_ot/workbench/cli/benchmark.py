"""``adaptive-ot benchmark``: run the cells that are not finished yet, print the table, write the results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import App, Parameter

from adaptive_ot._validation import whole_number
from adaptive_ot.workbench.cli.options import Flag, Output, Whole, Words, named
from adaptive_ot.workbench.cli.progress import cells_bar, steps_bar

if TYPE_CHECKING:
    from adaptive_ot.workbench.benchmark.engine import Work
    from adaptive_ot.workbench.benchmark.study import Outcome, Study

# Makes the text of the results from cells and outcomes, and what is written with them for programs.
Write = Callable[["Study", "list[Outcome]"], "tuple[str, dict[str, Any]]"]

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
def deep(plan: Path, /, *, options: BenchmarkOptions, select: Flag = False) -> int:
    """Train networks on images: the tasks, methods and seeds of a plan file.

    The same command continues where it was stopped, also in the middle of a training. See docs/deep_benchmark.md.

    Parameters
    ----------
    plan
        A .toml file with the dataset, the recipe, the tasks, the seeds, and a table for every method.
    select
        Add a row that chooses one of the others for every task and seed, without labels of the target, as "select"
        does. The plan must say keep_checkpoints = true.
    """
    from adaptive_ot.workbench.benchmark.deep import prepare

    with named("output", "jobs"):
        prepared = partial(prepare, plan, options.output, selects=select)
        return _code(_run(prepared, options, _selecting(options.output) if select else None)[1])


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

    def write(study: Study, outcomes: list[Outcome]) -> tuple[str, dict[str, Any]]:
        return markdown(study, outcomes), {}

    with named("output", "jobs"):
        study, outcomes = _run(partial(prepare, plan, options.output), options, write)
        picture = options.output / "sensitivity.png"
        draw(study, outcomes, picture)
    print(f"Written to {picture}")
    return _code(outcomes)


def _selecting(output: Path) -> Write:
    """A function that chooses among the finished runs in this directory."""
    from adaptive_ot.workbench.benchmark.selection import records, select_each, table_with_selected

    def write(study: Study, outcomes: list[Outcome]) -> tuple[str, dict[str, Any]]:
        with steps_bar() as progress:
            selected = list(select_each(study, outcomes, output, progress=progress))
        return table_with_selected(study, outcomes, selected), {"selected": records(selected)}

    return write


def _run(
    prepare: Callable[[], tuple[Study, Work]],
    options: BenchmarkOptions,
    write: Write | None = None,
) -> tuple[Study, list[Outcome]]:
    """Check, run, print and write."""
    from adaptive_ot.workbench.benchmark import engine
    from adaptive_ot.workbench.benchmark.table import markdown, write_results

    with cells_bar() as progress:
        jobs = whole_number("jobs", options.jobs, minimum=1)
        study, work = prepare()
        outcomes = engine.run(study, work, options.output, jobs=jobs, progress=progress)
    text, more = write(study, outcomes) if write else (markdown(study, outcomes), {})
    written = write_results(options.output, study, outcomes, text, more)
    print(text)
    print(*(f"Written to {path}" for path in written), sep="\n")
    return study, outcomes


def _code(outcomes: list[Outcome]) -> int:
    """1 if a cell failed."""
    return int(any(outcome.numbers is None for outcome in outcomes))
