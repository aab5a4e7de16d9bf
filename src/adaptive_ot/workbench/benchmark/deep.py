"""Deep benchmarks: networks trained by a study file, every cell in a run directory of its own."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from adaptive_ot.deep import Config, configure, train
from adaptive_ot.deep.data.domain import digest, domains_of
from adaptive_ot.deep.networks import build_network
from adaptive_ot.deep.open_set import DECISIVE as DECISIVE_SCORE
from adaptive_ot.deep.run_directory import CHECKPOINTS, decisive
from adaptive_ot.deep.weights import digest_of
from adaptive_ot.errors import InvalidInput
from adaptive_ot.workbench.benchmark.study import ARROW, Cell, Part, Study
from adaptive_ot.workbench.benchmark.study_file import OF_CELLS, Row, StudyFile, located_in, read_study
from adaptive_ot.workbench.environment import versions

# Packages whose numbers end up in the results.
DECISIVE = ("adaptive-ot", "numpy", "torch", "torchvision", "timm", "pillow")


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
        if result.open_set:
            decisive_figures = result.open_set[DECISIVE_SCORE].items()
            numbers |= {name: value for name, value in decisive_figures if name not in ("threshold", "auroc")}
            numbers |= {f"auroc_{score}": each["auroc"] for score, each in result.open_set.items() if "auroc" in each}
        if config.on_bad_image == "skip":
            numbers["bad_images"] = result.bad_images
        if not self.keep_checkpoints:
            shutil.rmtree(config.output / CHECKPOINTS, ignore_errors=True)
        return {name: number for name, number in numbers.items() if number is not None}

    def config(self, cell: Cell) -> Config:
        """The training run of a cell."""
        source, target = cell.task.split(ARROW)
        place = {"source": source, "target": target, "output": directory_of(cell, self.output)}
        return configure(**self.options[cell.method], **place, seed=cell.seed)


def prepare(path: Path, output: Path, *, selects: bool = False) -> tuple[Study, DeepBenchmark]:
    """Check everything that can be checked before the work starts.

    Parameters
    ----------
    path
        A study file; see docs/deep_benchmark.md.
    output
        The directory of the benchmark.
    selects
        Whether one of the rows is chosen in the end, for which their networks must be kept.

    Returns
    -------
    Study, DeepBenchmark
        The cells, and the function that computes their numbers.
    """
    content = read_study(path)
    if not content.rows:
        with located_in(content.path):
            raise InvalidInput("methods", "must be at least one", "none", "Start each with [[methods]].")
    if selects:
        with located_in(content.path):
            if len(content.rows) < 2:
                raise InvalidInput("methods", "must be at least two to select from", "one", "Add another.")
            if not content.keep_checkpoints:
                given, remedy = "false", "Add `keep_checkpoints = true`."
                raise InvalidInput("keep_checkpoints", "must be true to select from the networks", given, remedy)
        _refuse_without_networks(output)
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
    settings = _dependencies(content.path, configs, tasks) | (more or {})
    return _study(content.rows, tasks, settings), work


def configuration(row: Row, output: Path) -> Config:
    """The training run of the first cell of a row; the others differ in task and seed alone."""
    dataset, name = row.options["dataset"], row.name
    return DeepBenchmark({name: row.options}, output).config(
        Cell(dataset, row.tasks[0].replace(":", ARROW), name, row.seeds[0])
    )


def _refuse_without_networks(output: Path) -> None:
    """Refuse a benchmark whose finished runs did not keep their networks: they are not trained again."""
    finished = [run.parent for run in (output / "runs").glob("*/result.json")]
    without = [run for run in finished if not (run / CHECKPOINTS).is_dir()]
    if without:
        rule, given = "must hold the networks of its finished runs to select from", f"{len(without)} runs without"
        remedy = "Choose a new directory: these runs finished before the study said keep_checkpoints = true."
        raise InvalidInput(f"output '{output}'", rule, given, remedy)


def directory_of(cell: Cell, output: Path) -> Path:
    """The run directory of a cell in the directory of a benchmark."""
    return output / "runs" / directory_name(cell)


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


def _dependencies(path: Path, configs: dict[str, Config], tasks: Iterable[str]) -> dict[str, Any]:
    """Everything the numbers depend on: settings, digests of data and weights, versions; no path and no device.

    Parameters
    ----------
    path
        The study file, for messages.
    configs
        A training run of every row.
    tasks
        Of all rows, as SOURCE:TARGET.
    """
    with located_in(path):
        data, classes = _data(next(iter(configs.values())), tasks)
    weights: dict[tuple[Any, ...], str | None] = {}  # a digest for every network that was built
    records = {}
    for name, config in configs.items():
        with located_in(path, name):
            network = config.network, config.bottleneck, config.weights
            if network not in weights:
                weights[network] = _weights(config, classes)
        record = {field: value for field, value in decisive(config.record()).items() if field not in OF_CELLS}
        records[name] = record | {"weights": weights[network]}
    return {**_in_common(records), "data": data, "versions": versions(DECISIVE)}


def _data(config: Config, tasks: Iterable[str]) -> tuple[dict[str, Any], int]:
    """A digest of the images of every task, and how many classes they have."""
    digests, classes = {}, 0
    for task in tasks:
        names = task.split(":")
        source, target = domains_of(replace(config, source=names[0], target=names[1]))
        digests[task] = {"source": digest(source), "target": digest(target)}
        classes = len(source.classes)
    return digests, classes


def _weights(config: Config, classes: int) -> str | None:
    """A digest of the file with the weights, which fit the network."""
    build_network(config.network, classes, bottleneck=config.bottleneck, weights=config.weights, seed=config.seed)
    return digest_of(config.weights)


def _in_common(records: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The values that all rows have in common, and the other values of each row."""
    first = next(iter(records.values()))
    recipe = {
        field: value
        for field, value in first.items()
        if field not in ("method", "settings") and all(record[field] == value for record in records.values())
    }
    rows = {name: {field: record[field] for field in record if field not in recipe} for name, record in records.items()}
    return {"recipe": recipe, "rows": rows}
