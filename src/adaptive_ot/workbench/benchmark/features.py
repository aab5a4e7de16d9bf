"""Feature benchmarks: every ordered pair of domains of a dataset is a task, or every domain, under all conditions."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import permutations, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from adaptive_ot._validation import choice, nearest, number, whole_number
from adaptive_ot.errors import InvalidInput
from adaptive_ot.workbench.benchmark.domains import Dataset, read_dataset
from adaptive_ot.workbench.benchmark.method import FeatureMethod
from adaptive_ot.workbench.benchmark.ours import OURS
from adaptive_ot.workbench.benchmark.rivals import RIVALS
from adaptive_ot.workbench.benchmark.sampling import OVERLAPS, PLAIN, SHIFTS, Condition, DomainPair, sample_pair
from adaptive_ot.workbench.benchmark.study import ARROW, Cell, Study
from adaptive_ot.workbench.environment import versions

METHODS: dict[str, FeatureMethod] = OURS | RIVALS

# Packages whose numbers end up in the results.
DECISIVE = ("adaptive-ot", "numpy", "scipy", "scikit-learn", "pot", "skada")


class Task(NamedTuple):
    """Where a source and a target come from; the same domain for both unless the shift is "domains"."""

    source: str
    target: str
    condition: Condition

    @property
    def asked(self) -> str:
        """As --task knows it."""
        return f"{self.source}:{self.target}" if self.condition.shift == "domains" else self.source

    @property
    def name(self) -> str:
        """As the table knows it, without what goes without saying."""
        shift, overlap = self.condition
        place = ARROW.join((self.source, self.target)) if shift == "domains" else self.source
        said = [word for word in (shift, overlap) if word not in ("domains", "none", "all")]
        return ", ".join([place, *said])


@dataclass(frozen=True)
class FeatureBenchmark:
    """Computes the numbers of a cell: accuracy on the target, seconds, and what else a method has to tell.

    Parameters
    ----------
    datasets
        Where they are, by name.
    samples, drop, outliers
        As in :func:`adaptive_ot.workbench.benchmark.sampling.sample_pair`.
    conditions
        Of all tasks.
    """

    datasets: dict[str, Path]
    samples: int
    drop: int
    outliers: float
    conditions: tuple[Condition, ...] = (PLAIN,)

    def __call__(self, cell: Cell) -> dict[str, float]:
        dataset = read_dataset(self.datasets[cell.group])
        task = next(task for task in _tasks_of(dataset, self.conditions) if task.name == cell.task)
        options: dict[str, Any] = {"samples": self.samples, "drop": self.drop, "outliers": self.outliers}
        drawn = sample_pair(dataset, **task._asdict(), seed=cell.seed, **options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the table will show what rivals warn about
            _load(cell.method)
            return _judge(METHODS[cell.method], drawn)


def prepare(
    datasets: Sequence[Path],
    *,
    methods: Sequence[str] = (),
    tasks: Sequence[str] = (),
    seeds: int = 3,
    samples: int = 1000,
    drop: int = 0,
    outliers: float = 0.0,
    shifts: Sequence[str] = (),
    overlaps: Sequence[str] = (),
) -> tuple[Study, FeatureBenchmark]:
    """Check everything that can be checked before the work starts.

    Parameters
    ----------
    datasets
        Directories of feature files, or archives of images.
    methods
        Names in METHODS; all by default.
    tasks
        Pairs SOURCE:TARGET, or domains for other shifts; all by default.
    seeds
        How many times everything is drawn.
    samples, drop, outliers
        As in :func:`adaptive_ot.workbench.benchmark.sampling.sample_pair`.
    shifts, overlaps
        Each task runs under all pairs of them; "domains" and "all" by default.

    Returns
    -------
    Study, FeatureBenchmark
        The cells, and the function that computes their numbers.
    """
    seeds, samples = whole_number("seeds", seeds, minimum=1), whole_number("samples", samples, minimum=1)
    drop, outliers = whole_number("drop", drop, minimum=0), number("outliers", outliers, minimum=0.0)
    if outliers >= 1:
        raise InvalidInput("outliers", "must be a share below 1", outliers, "Choose a smaller one, as 0.2.")
    for shift in shifts:
        choice("shift", shift, SHIFTS)
    for overlap in overlaps:
        choice("overlap", overlap, OVERLAPS)
    pairs = product(dict.fromkeys(shifts or PLAIN[:1]), dict.fromkeys(overlaps or PLAIN[1:]))
    conditions = tuple(Condition(*pair) for pair in pairs)
    for method in methods:
        if method not in METHODS:
            remedy = f"{nearest(method, METHODS)}Choose from: {', '.join(map(repr, METHODS))}."
            raise InvalidInput("method", "must be a known one", repr(method), remedy)
    chosen = tuple(dict.fromkeys(methods or METHODS))
    for method in chosen:
        METHODS[method].check()
    found = _read(datasets, drop, conditions)
    chosen_tasks = _tasks([dataset for dataset, _ in found.values()], tasks, conditions)
    study = Study(
        tasks=tuple((group, task.name) for group, task in chosen_tasks),
        methods=chosen,
        seeds=seeds,
        settings={
            "samples": samples,
            "drop": drop,
            "outliers": outliers,
            "data": {name: dataset.digests for name, (dataset, _) in found.items()},
            "versions": versions(DECISIVE),
        },
        conditions={} if conditions == (PLAIN,) else _by_condition(chosen_tasks),
    )
    paths = {name: path for name, (_, path) in found.items()}
    return study, FeatureBenchmark(paths, samples, drop, outliers, conditions)


def _read(paths: Sequence[Path], drop: int, conditions: Sequence[Condition]) -> dict[str, tuple[Dataset, Path]]:
    found: dict[str, tuple[Dataset, Path]] = {}
    for path in paths:
        dataset = read_dataset(path)
        if dataset.name in found:
            raise InvalidInput("datasets", "must have different names", f"two '{dataset.name}'", "Rename one of them.")
        if drop >= dataset.classes:
            rule = f"must leave some of the {dataset.classes} classes of '{dataset.name}'"
            raise InvalidInput("drop", rule, drop, "Drop fewer.")
        for condition in conditions:
            _check_condition(dataset, path, drop, condition)
        found[dataset.name] = dataset, path
    if not found:
        raise InvalidInput("datasets", "must be at least one", "none", "Name a directory or an .npz file.")
    return found


def _check_condition(dataset: Dataset, path: Path, drop: int, condition: Condition) -> None:
    """Check that a dataset has what a condition needs."""
    name = f"dataset '{path}'"
    if condition.shift == "domains" and len(dataset.domains) < 2:
        given, remedy = ", ".join(map(repr, dataset.domains)), "Add a domain, or choose the shift 'none' or 'noise'."
        raise InvalidInput(name, "must have at least two domains", given, remedy)
    if condition.shift == "rotation" and dataset.image is None:
        remedy = "Choose another shift, or an .npz file of images: see docs/benchmark.md."
        raise InvalidInput("shift", f"must be another one than 'rotation' as {name} has no images", "it", remedy)
    if condition.overlap != "all" and dataset.classes - drop < 2:
        rule = f"must be 'all' as the target of {name} has a single class"
        raise InvalidInput("overlap", rule, repr(condition.overlap), "Omit it, or drop fewer classes.")


def _tasks_of(dataset: Dataset, conditions: Sequence[Condition]) -> list[Task]:
    pairs, halves = list(permutations(dataset.domains, 2)), [(domain, domain) for domain in dataset.domains]
    return [
        Task(*pair, condition)
        for condition in conditions
        for pair in (pairs if condition.shift == "domains" else halves)
    ]


def _tasks(
    datasets: Sequence[Dataset], asked: Sequence[str], conditions: Sequence[Condition]
) -> tuple[tuple[str, Task], ...]:
    """All tasks with the names of their datasets, or those that were asked for, in every dataset that has them."""
    tasks = [(dataset.name, task) for dataset in datasets for task in _tasks_of(dataset, conditions)]
    for each in asked:
        if all(each != task.asked for _, task in tasks):
            names = ", ".join(dict.fromkeys(name for dataset in datasets for name in dataset.domains))
            if any(condition.shift != "domains" for condition in conditions):
                rule, remedy = "must be a domain of a dataset, or SOURCE:TARGET", f"Choose from the domains: {names}."
            else:
                rule, remedy = "must be SOURCE:TARGET, two domains of a dataset", f"Choose two of the domains: {names}."
            raise InvalidInput("task", rule, repr(each), remedy)
    chosen = tuple((group, task) for group, task in tasks if not asked or task.asked in asked)
    names = [f"{group} {task.name}" for group, task in chosen]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidInput("datasets", "must have tasks of different names", f"two '{twice}'", "Rename a domain.")
    return chosen


def _by_condition(tasks: Sequence[tuple[str, Task]]) -> dict[str, tuple[tuple[str, str], ...]]:
    names = dict.fromkeys(str(task.condition) for _, task in tasks)
    return {name: tuple((group, task.name) for group, task in tasks if str(task.condition) == name) for name in names}


def _judge(method: FeatureMethod, drawn: DomainPair) -> dict[str, float]:
    started = time.perf_counter()
    prediction = method.run(drawn.x_source, drawn.y_source, drawn.x_target)
    seconds = time.perf_counter() - started
    right = np.asarray(prediction.labels) == drawn.y_target
    numbers = {"accuracy": float(right[~drawn.outlier].mean()), "seconds": seconds}
    if prediction.transported_mass is not None:
        numbers["transported_mass"] = float(prediction.transported_mass)
    numbers |= prediction.numbers or {}
    if "transported_mass" in numbers or "overlap" in numbers:
        numbers["true_overlap"] = drawn.overlap
    scores = {"outlier_auc": prediction.outlier_score}
    scores |= {f"outlier_auc_{name}": score for name, score in (prediction.other_scores or {}).items()}
    if drawn.outlier.any():
        from sklearn.metrics import roc_auc_score

        numbers |= {
            name: float(roc_auc_score(drawn.outlier, score)) for name, score in scores.items() if score is not None
        }
    return numbers


@cache
def _load(method: str) -> None:
    """Run a method on a toy problem before it is timed, so that imports and compilation do not count."""
    x = np.random.default_rng(0).normal(size=(24, 3))
    y = np.arange(24) % 2
    x[:, 0] += 4 * y
    with suppress(Exception):  # if something is wrong, the cell itself will say so
        METHODS[method].run(x, y, x + 0.1)
