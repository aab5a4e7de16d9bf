"""Deep benchmarks: networks trained by a study file, every cell in a run directory of its own."""

from __future__ import annotations

import hashlib
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adaptive_ot.deep import Config, configure, train
from adaptive_ot.deep.run_directory import CHECKPOINTS
from adaptive_ot.errors import InvalidInput
from adaptive_ot.workbench.benchmark.dependencies import dependencies
from adaptive_ot.workbench.benchmark.study import ARROW, Cell, Part, Study
from adaptive_ot.workbench.benchmark.study_file import Row, StudyFile, located_in, read_study

ABOUT = "Of the last iterate, judged on the whole target. Seconds for one training."


@dataclass(frozen=True)
class DeepBenchmark:
    """Trains the network of a cell, and returns its numbers.

    Parameters
    ----------
    options
        Arguments of `adaptive_ot.deep.configure`, for every row of the table.
    output
        The directory of the benchmark.
    keep_checkpoints
        Whether finished cells keep their checkpoints.
    """

    options: dict[str, dict[str, Any]]
    output: Path
    keep_checkpoints: bool = False

    def __call__(self, cell: Cell) -> dict[str, float]:
        config = self.config(cell)
        result = train(config, keep_network=self.keep_checkpoints)
        numbers = {
            "accuracy": result.accuracy,
            "mean_class_accuracy": result.mean_class_accuracy,
            "best_accuracy": result.best_accuracy,
            "transported_mass": result.transported_mass,
            "plan_purity": result.plan_purity,
            "seconds": result.seconds,
        }
        if config.on_bad_image == "skip":
            numbers["bad_images"] = result.bad_images
        if not self.keep_checkpoints:
            shutil.rmtree(config.output / CHECKPOINTS, ignore_errors=True)
        return {name: number for name, number in numbers.items() if number is not None}

    def config(self, cell: Cell) -> Config:
        """The training run of a cell."""
        source, target = cell.task.split(ARROW)
        place = {"source": source, "target": target, "output": self.output / "runs" / directory_name(cell)}
        return configure(**self.options[cell.method], **place, seed=cell.seed)


def prepare(path: Path, output: Path) -> tuple[Study, DeepBenchmark]:
    """Check everything that can be checked before the work starts.

    Parameters
    ----------
    path
        A study file; see docs/deep_benchmark.md.
    output
        The directory of the benchmark.

    Returns
    -------
    Study, DeepBenchmark
        The cells, and the function that computes their numbers.
    """
    content = read_study(path)
    if not content.rows:
        with located_in(content.path):
            raise InvalidInput("methods", "must be at least one", "none", "Start each with [[methods]].")
    return assemble(content, output)


def assemble(content: StudyFile, output: Path, more: dict[str, Any] | None = None) -> tuple[Study, DeepBenchmark]:
    """The cells of all rows, after a check of their settings, images and weights; `more` goes into the study."""
    work = DeepBenchmark({row.name: row.options for row in content.rows}, output, content.keep_checkpoints)
    if len(work.options) < len(content.rows):
        with located_in(content.path):
            given = next(row.name for row in content.rows if sum(row.name == other.name for other in content.rows) > 1)
            raise InvalidInput("methods", "must have different names", f"two '{given}'", "Rename one of them.")
    configs: dict[str, Config] = {}
    for row in content.rows:
        with located_in(content.path, row.name):
            configs[row.name] = configuration(row, output)
    tasks = tuple(dict.fromkeys(task for row in content.rows for task in row.tasks))
    settings = dependencies(content.path, configs, tasks) | (more or {})
    return _study(content.rows, tasks, settings), work


def configuration(row: Row, output: Path) -> Config:
    """The training run of the first cell of a row; the others differ in task and seed alone."""
    dataset, name = row.options["dataset"], row.name
    return DeepBenchmark({name: row.options}, output).config(
        Cell(dataset, row.tasks[0].replace(":", ARROW), name, row.seeds[0])
    )


def directory_name(cell: Cell) -> str:
    """A name that every file system accepts, and that no other cell has.

    Examples
    --------
    >>> directory_name(Cell("pacs", "art_painting -> cartoon", "AOT, κ = 1/2", 0))
    'aot-1-2-art-painting-cartoon-0-a445e310'
    """
    words = re.findall("[a-z0-9]+", f"{cell.method} {cell.task} {cell.seed}".lower())
    digest = hashlib.sha256("\0".join(map(str, cell)).encode("utf-8", "surrogatepass")).hexdigest()
    return f"{'-'.join(words)[:100]}-{digest[:8]}"


def _study(rows: tuple[Row, ...], tasks: tuple[str, ...], settings: dict[str, Any]) -> Study:
    named = {task: (rows[0].options["dataset"], task.replace(":", ARROW)) for task in tasks}
    seeds = tuple(sorted({seed for row in rows for seed in row.seeds}))
    only = {
        row.name: Part(tuple(named[task] for task in row.tasks), row.seeds)
        for row in rows
        if set(row.tasks) < set(tasks) or set(row.seeds) < set(seeds)
    }
    return Study(tuple(named.values()), tuple(row.name for row in rows), seeds, settings, only)
