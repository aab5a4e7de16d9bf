"""Does `RoundTripScore` choose well? Settings chosen by it for every task, beside the default, the best and the worst.

    python benchmarks/criterion.py DATASET...           # as for `adaptive-ot benchmark features`

Every task is fitted with every kappa and epsilon of a small grid. The criterion sees no label of the target; the best
and the worst setting are known only by these labels. Results: benchmarks/results/criterion.json.
"""

from __future__ import annotations

import argparse
from itertools import permutations, product
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.stats import spearmanr

import adaptive_ot as aot
import measure
from adaptive_ot.adapt import JointTransportClassifier, RoundTripScore
from adaptive_ot.workbench.benchmark.domains import read_dataset
from adaptive_ot.workbench.benchmark.method import stacked
from adaptive_ot.workbench.benchmark.sampling import DomainPair, sample_pair

SETTINGS: list[tuple[float, float]] = list(product((0.25, 0.5, 0.75, 1.0), (0.05, 0.1)))
DEFAULT = SETTINGS.index((0.5, 0.1))


def judged(drawn: DomainPair, kappa: float, epsilon: float) -> tuple[float, float]:
    """Accuracy on the target, and what the criterion thinks of it."""
    x, y, domain = stacked(drawn.x_source, drawn.y_source, drawn.x_target)
    model = JointTransportClassifier(kappa=kappa, solver=aot.Entropic(epsilon)).fit(x, y, sample_domain=domain)
    accuracy = float((model.predict(drawn.x_target) == drawn.y_target).mean())
    return accuracy, RoundTripScore()(model, x, y, sample_domain=domain)


def summary(accuracies: np.ndarray, scores: np.ndarray) -> dict[str, float]:
    """Means over tasks, of accuracies and scores with a row a task and a column a setting."""
    tasks = np.arange(len(scores))
    correlations: Any = [spearmanr(*pair)[0] for pair in zip(accuracies, scores, strict=True)]
    return {
        "default": float(accuracies[:, DEFAULT].mean()),
        "chosen by the criterion": float(accuracies[tasks, scores.argmax(axis=1)].mean()),
        "one at random": float(accuracies.mean()),
        "best": float(accuracies.max(axis=1).mean()),
        "worst": float(accuracies.min(axis=1).mean()),
        "rank correlation": float(np.nanmean(correlations)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", type=Path, nargs="+")
    parser.add_argument("--samples", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--drop", type=int, default=0, help="classes missing in the target")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    tasks = [(d, *pair) for d in map(read_dataset, options.datasets) for pair in permutations(d.domains, 2)]
    for dataset, source, target in track(tasks, "tasks", console=Console(stderr=True)):
        drawn = sample_pair(dataset, source, target, seed=options.seed, samples=options.samples, drop=options.drop)
        accuracies, scores = zip(*(judged(drawn, *setting) for setting in SETTINGS), strict=True)
        rows.append({"task": f"{source} -> {target}", "accuracy": accuracies, "score": scores})
    found = summary(*(np.array([row[name] for row in rows]) for name in ("accuracy", "score")))
    content = {"settings": SETTINGS, "summary": found, "tasks": rows}
    measure.write_json(measure.RESULTS / "criterion.json", measure.header() | content)
    table = Table("setting", "accuracy, mean over tasks")
    for name, value in found.items():
        table.add_row(name, f"{value:.2f}" if name == "rank correlation" else f"{value:.1%}")
    Console().print(table)


if __name__ == "__main__":
    main()
