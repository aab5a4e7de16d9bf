"""How well labels transfer between two conditions of single cells, beside classifiers that nothing adapts.

    python benchmarks/cells.py [--seeds 5]        # needs pip install ".[cells]" scanpy; a few minutes

Two datasets: blood cells (pbmc68k_reduced, which comes with scanpy; types with 19 cells or more), split in two halves;
in one of them, every gene is multiplied by a log-normal factor. And generated cells before and after a treatment. Three
settings: all types on both sides; half of the types missing in the target; two types missing in the source. Accuracy is
that of the cells whose type the source has. The outlier score is judged by the area under the ROC curve for the others.
The script prints tables, and writes benchmarks/results/cells.json.

With scvi-tools (pip install scvi-tools), scANVI is a rival on the generated cells; it needs counts, which the blood
cells lack. It takes about 40 seconds per draw on one core.
"""

from __future__ import annotations

import argparse
import logging
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from anndata import AnnData
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors
from sklearn.semi_supervised import SelfTrainingClassifier

import measure
from adaptive_ot.adapt import transfer_labels
from adaptive_ot.workbench.cli.samples import treated_cells

SETTINGS = ("all types", "half missing in the target", "two missing in the source")
SHIFT = 0.3  # standard deviation of the logarithms of the factors of genes
FEWEST_CELLS = 19
UNKNOWN = 0.05
FIRST_SEED = 100  # the outlier score was designed on draws with smaller seeds


class Task(NamedTuple):
    """Expression and types of the source and of the target."""

    x: np.ndarray
    y: np.ndarray
    z: np.ndarray
    truth: np.ndarray


class Answer(NamedTuple):
    """The predicted types of the targets, their outlier scores, and which of them are called unknown."""

    types: np.ndarray
    score: np.ndarray
    unknown: np.ndarray | None = None


def blood(setting: str, seed: int) -> Task:
    import scanpy

    with warnings.catch_warnings(action="ignore"):
        data: Any = scanpy.datasets.pbmc68k_reduced()
    x, y = data.raw.X.toarray(), data.obs["bulk_labels"].astype(str).to_numpy()
    types, counts = np.unique(y, return_counts=True)
    rng = np.random.default_rng(seed)
    types = rng.permutation(types[counts >= FEWEST_CELLS])
    rows = rng.permutation(np.flatnonzero(np.isin(y, types)))
    source, target = np.array_split(rows, 2)
    if setting == SETTINGS[1]:
        target = target[np.isin(y[target], types[: len(types) // 2])]
    if setting == SETTINGS[2]:
        source = source[~np.isin(y[source], types[:2])]
    factors = np.exp(rng.normal(0, SHIFT, x.shape[1])).astype(x.dtype)
    return Task(x[source], y[source], x[target] * factors, y[target])


def generated(setting: str, seed: int) -> Task:
    types = {SETTINGS[0]: ("ABCDEF", "ABCDEF"), SETTINGS[1]: ("ABCDEF", "ABC"), SETTINGS[2]: ("ABCD", "ABCDEF")}
    cells = treated_cells(*types[setting], seed=seed)
    return Task(cells.control, cells.control_types, cells.treated, cells.treated_types)


def names(word: str, count: int) -> np.ndarray:
    return np.array([f"{word}{number}" for number in range(count)])


def ours(task: Task) -> Answer:
    genes = pd.DataFrame(index=names("gene", task.x.shape[1]))
    cells = [pd.DataFrame(index=names("cell", len(side))) for side in (task.x, task.z)]
    source, target = AnnData(task.x, cells[0].assign(type=task.y), genes), AnnData(task.z, cells[1], genes)
    found = transfer_labels(source, target, label="type", key_added="found").obs
    called = transfer_labels(source, target, label="type", key_added="found", unknown=UNKNOWN).obs["found"]
    return Answer(found["found"].to_numpy(), found["found_outlier_score"].to_numpy(), (called == "unknown").to_numpy())


def neighbours(task: Task) -> Answer:
    pca = PCA(50, random_state=0).fit(np.concatenate([task.x, task.z]))
    model = KNeighborsClassifier(15).fit(pca.transform(task.x), task.y)
    z = pca.transform(task.z)
    return Answer(model.predict(z), model.kneighbors(z)[0].mean(axis=1))


def regression(task: Task) -> Answer:
    model = LogisticRegression(max_iter=1000).fit(task.x, task.y)
    return Answer(model.predict(task.z), 1 - model.predict_proba(task.z).max(axis=1))


def averaged(task: Task) -> Answer:
    """Logistic regression with the mean of its score over neighbours, as ours has: what does the rest of ours add?"""
    answer, z = regression(task), PCA(50, random_state=0).fit_transform(task.z)
    near = NearestNeighbors(n_neighbors=15).fit(z).kneighbors(z, return_distance=False)
    return Answer(answer.types, answer.score[near].mean(axis=1))


def self_training(task: Task) -> Answer:
    types, members = np.unique(task.y, return_inverse=True)
    model: Any = SelfTrainingClassifier(LogisticRegression(max_iter=1000), threshold=0.9)
    with warnings.catch_warnings(action="ignore"):  # where no target is sure enough
        model.fit(np.concatenate([task.x, task.z]), np.concatenate([members, np.full(len(task.z), -1)]))
    return Answer(types[model.predict(task.z)], 1 - model.predict_proba(task.z).max(axis=1))


def counted(logged: np.ndarray) -> np.ndarray:
    """The counts behind `log1p(1e4 * counts / total)`, if the smallest count of each row but zero is one."""
    values = np.expm1(logged)
    ones = np.min(values, axis=1, keepdims=True, where=values > 0, initial=np.inf)
    return np.rint(values / ones)


def scanvi(task: Task) -> Answer:
    """scANVI, trained on the counts of both conditions and the types of the source; defaults but for the epochs."""
    import scvi

    for library in ("lightning.fabric", "lightning.pytorch"):
        logging.getLogger(library).setLevel(logging.ERROR)
    scvi.settings.verbosity = logging.ERROR
    scvi.settings.seed = 0
    sizes = len(task.x), len(task.z)
    cells = pd.DataFrame(
        {"condition": np.repeat(["source", "target"], sizes), "type": [*task.y, *["Unknown"] * sizes[1]]},
        index=names("cell", sum(sizes)),
    )
    data = AnnData(counted(np.concatenate([task.x, task.z])).astype(np.float32), cells)
    quiet: dict[str, Any] = {"accelerator": "cpu", "enable_progress_bar": False}
    with warnings.catch_warnings(action="ignore"):  # about the number of workers
        scvi.model.SCVI.setup_anndata(data, batch_key="condition")
        base = scvi.model.SCVI(data)
        base.train(**quiet)
        model: Any = scvi.model.SCANVI.from_scvi_model(base, labels_key="type", unlabeled_category="Unknown")
        model.train(max_epochs=400, **quiet)  # as many as the model before; 10 by default, too few here
        chances = model.predict(indices=np.arange(sizes[0], sum(sizes)), soft=True)
    return Answer(chances.columns[chances.to_numpy().argmax(axis=1)].to_numpy(), 1 - chances.max(axis=1).to_numpy())


DATASETS: dict[str, Callable[[str, int], Task]] = {"blood": blood, "generated": generated}
METHODS: dict[str, Callable[[Task], Answer]] = {
    "`transfer_labels`": ours,
    "self-training": self_training,
    "logistic regression": regression,
    "logistic regression, score averaged": averaged,
    "15 nearest neighbours": neighbours,
}


def methods(dataset: str) -> dict[str, Callable[[Task], Answer]]:
    return METHODS | {"scANVI": scanvi} if dataset == "generated" and find_spec("scvi") else METHODS


def judged(task: Task, answer: Answer) -> dict[str, float]:
    known = np.isin(task.truth, task.y)
    numbers = {"accuracy": float((answer.types == task.truth)[known].mean())}
    if not known.all():
        numbers["auroc"] = float(roc_auc_score(~known, answer.score))
    if answer.unknown is not None:
        numbers["known_called_unknown"] = float(answer.unknown[known].mean())
        if not known.all():
            numbers["new_called_unknown"] = float(answer.unknown[~known].mean())
    return numbers


def show(found: list[dict[str, Any]], dataset: str, setting: str, method: str, number: str) -> str:
    values = [
        100 * cell[number]
        for cell in found
        if (cell["dataset"], cell["setting"], cell["method"]) == (dataset, setting, method) and number in cell
    ]
    return f"{np.mean(values):.1f} ± {np.std(values):.1f}" if values else "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    seeds = parser.parse_args().seeds
    found: list[dict[str, Any]] = []
    for dataset, make in DATASETS.items():
        for setting in SETTINGS:
            for seed in range(FIRST_SEED, FIRST_SEED + seeds):
                task = make(setting, seed)
                for method, run in methods(dataset).items():
                    where = {"dataset": dataset, "setting": setting, "seed": seed, "method": method.strip("`")}
                    found.append(where | judged(task, run(task)))
    header = measure.header()
    packages = ["adaptive-ot", "numpy", "scipy", "scikit-learn", "anndata", "scanpy"]
    if find_spec("scvi"):
        packages.append("scvi-tools")
    header["versions"] = {package: measure.version(package) for package in packages}
    measure.write_json(measure.RESULTS / "cells.json", header | {"shift": SHIFT, "cells": found})
    for dataset in DATASETS:
        print(f"| {dataset} | {' | '.join(SETTINGS)} | AUROC of new types |\n|---|---|---|---|---|")
        for method in methods(dataset):
            name = method.strip("`")
            row = [show(found, dataset, setting, name, "accuracy") for setting in SETTINGS]
            print(f"| {method} | {' | '.join(row)} | {show(found, dataset, SETTINGS[2], name, 'auroc')} |")
        print()
    print(f"| called unknown, `unknown={UNKNOWN}` | {' | '.join(SETTINGS)} | new types |\n|---|---|---|---|---|")
    for dataset in DATASETS:
        row = [show(found, dataset, setting, "transfer_labels", "known_called_unknown") for setting in SETTINGS]
        row.append(show(found, dataset, SETTINGS[2], "transfer_labels", "new_called_unknown"))
        print(f"| {dataset} | {' | '.join(row)} |")


if __name__ == "__main__":
    main()
