"""Feature benchmarks: every ordered pair of domains of a dataset is a task."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np

from adaptive_ot._validation import nearest, number, whole_number
from adaptive_ot.errors import InvalidInput
from adaptive_ot.workbench.benchmark.domains import Dataset, read_dataset
from adaptive_ot.workbench.benchmark.method import FeatureMethod
from adaptive_ot.workbench.benchmark.ours import OURS
from adaptive_ot.workbench.benchmark.rivals import RIVALS
from adaptive_ot.workbench.benchmark.sampling import DomainPair, sample_pair
from adaptive_ot.workbench.benchmark.study import ARROW, Cell, Study
from adaptive_ot.workbench.environment import versions

METHODS: dict[str, FeatureMethod] = OURS | RIVALS

# Packages whose numbers end up in the results.
DECISIVE = ("adaptive-ot", "numpy", "scipy", "scikit-learn", "pot", "skada")


@dataclass(frozen=True)
class FeatureBenchmark:
    """Computes the numbers of a cell: accuracy on the target, seconds, and mass and outlier AUC where they exist.

    Parameters
    ----------
    datasets
        Where they are, by name.
    samples, drop, outliers
        As in :func:`adaptive_ot.workbench.benchmark.sampling.sample_pair`.
    """

    datasets: dict[str, Path]
    samples: int
    drop: int
    outliers: float

    def __call__(self, cell: Cell) -> dict[str, float]:
        dataset = read_dataset(self.datasets[cell.group])
        source, target = next(pair for pair in permutations(dataset.domains, 2) if ARROW.join(pair) == cell.task)
        options: dict[str, Any] = {"samples": self.samples, "drop": self.drop, "outliers": self.outliers}
        drawn = sample_pair(dataset, source, target, seed=cell.seed, **options)
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
) -> tuple[Study, FeatureBenchmark]:
    """Check everything that can be checked before the work starts.

    Parameters
    ----------
    datasets
        Directories of feature files, or archives of images.
    methods
        Names in METHODS; all by default.
    tasks
        Pairs SOURCE:TARGET; all by default.
    seeds
        How many times everything is drawn.
    samples, drop, outliers
        As in :func:`adaptive_ot.workbench.benchmark.sampling.sample_pair`.

    Returns
    -------
    Study, FeatureBenchmark
        The cells, and the function that computes their numbers.
    """
    seeds, samples = whole_number("seeds", seeds, minimum=1), whole_number("samples", samples, minimum=1)
    drop, outliers = whole_number("drop", drop, minimum=0), number("outliers", outliers, minimum=0.0)
    if outliers >= 1:
        raise InvalidInput("outliers", "must be a share below 1", outliers, "Choose a smaller one, as 0.2.")
    for method in methods:
        if method not in METHODS:
            remedy = f"{nearest(method, METHODS)}Choose from: {', '.join(map(repr, METHODS))}."
            raise InvalidInput("method", "must be a known one", repr(method), remedy)
    chosen = tuple(dict.fromkeys(methods or METHODS))
    for method in chosen:
        METHODS[method].check()
    found = _read(datasets, drop)
    study = Study(
        tasks=_pairs([dataset for dataset, _ in found.values()], tasks),
        methods=chosen,
        seeds=seeds,
        settings={
            "samples": samples,
            "drop": drop,
            "outliers": outliers,
            "data": {name: dataset.digests for name, (dataset, _) in found.items()},
            "versions": versions(DECISIVE),
        },
    )
    return study, FeatureBenchmark({name: path for name, (_, path) in found.items()}, samples, drop, outliers)


def _read(paths: Sequence[Path], drop: int) -> dict[str, tuple[Dataset, Path]]:
    found: dict[str, tuple[Dataset, Path]] = {}
    for path in paths:
        dataset = read_dataset(path)
        if dataset.name in found:
            raise InvalidInput("datasets", "must have different names", f"two '{dataset.name}'", "Rename one of them.")
        if drop >= dataset.classes:
            rule = f"must leave some of the {dataset.classes} classes of '{dataset.name}'"
            raise InvalidInput("drop", rule, drop, "Drop fewer.")
        found[dataset.name] = dataset, path
    if not found:
        raise InvalidInput("datasets", "must be at least one", "none", "Name a directory or an .npz file.")
    return found


def _pairs(datasets: Sequence[Dataset], tasks: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """All ordered pairs of domains, or those that were asked for, in every dataset that has them."""
    pairs = [
        (dataset.name, ":".join(pair), ARROW.join(pair))
        for dataset in datasets
        for pair in permutations(dataset.domains, 2)
    ]
    for task in tasks:
        if all(task != asked for _, asked, _ in pairs):
            names = ", ".join(dict.fromkeys(name for dataset in datasets for name in dataset.domains))
            remedy = f"Choose two of the domains: {names}."
            raise InvalidInput("task", "must be SOURCE:TARGET, two domains of a dataset", repr(task), remedy)
    return tuple((group, name) for group, asked, name in pairs if not tasks or asked in tasks)


def _judge(method: FeatureMethod, drawn: DomainPair) -> dict[str, float]:
    started = time.perf_counter()
    prediction = method.run(drawn.x_source, drawn.y_source, drawn.x_target)
    seconds = time.perf_counter() - started
    right = np.asarray(prediction.labels) == drawn.y_target
    numbers = {"accuracy": float(right[~drawn.outlier].mean()), "seconds": seconds}
    if prediction.transported_mass is not None:
        numbers |= {"transported_mass": float(prediction.transported_mass), "true_overlap": drawn.overlap}
    if prediction.outlier_score is not None and drawn.outlier.any():
        from sklearn.metrics import roc_auc_score

        numbers["outlier_auc"] = float(roc_auc_score(drawn.outlier, prediction.outlier_score))
    return numbers


@cache
def _load(method: str) -> None:
    """Run a method on a toy problem before it is timed, so that imports and compilation do not count."""
    x = np.random.default_rng(0).normal(size=(24, 3))
    y = np.arange(24) % 2
    x[:, 0] += 4 * y
    with suppress(Exception):  # if something is wrong, the cell itself will say so
        METHODS[method].run(x, y, x + 0.1)
