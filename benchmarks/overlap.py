"""What is lost, and how much mass moves, when the target misses classes or holds outliers.

    python benchmarks/overlap.py DATASET --output DIR      # as for `adaptive-ot benchmark features`; can be resumed

Full overlap, one, two and three classes missing in the target, and a fifth of the target outliers. No method is told.
Results: benchmarks/results/overlap.json, and the picture docs/overlap.png: transported mass against the true overlap,
the most mass that equal classes can exchange, of every task, and the accuracy that every method loses.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

import measure
from adaptive_ot.workbench.benchmark import engine
from adaptive_ot.workbench.benchmark.features import prepare
from adaptive_ot.workbench.benchmark.study import Outcome
from adaptive_ot.workbench.benchmark.table import markdown
from adaptive_ot.workbench.cli.progress import cells_bar

SETTINGS: dict[str, dict[str, Any]] = {
    "full overlap": {},
    "1 class missing": {"drop": 1},
    "2 classes missing": {"drop": 2},
    "3 classes missing": {"drop": 3},
    "20 % outliers": {"outliers": 0.2},
}
OURS: tuple[str, ...] = (
    "AOT (joint)",
    "unbalanced 0.5 (joint)",
    "partial 0.75 (joint)",
    "partial 0.5 (joint)",
    "Kantorovich (joint)",
)
OTHERS: tuple[str, ...] = (
    "POT unbalanced",
    "POT Sinkhorn L1L2",
    "source only, domains centred",
    "source only",
)
COLOURS: dict[str, str] = dict(zip(OURS, ("#0072B2", "#009E73", "#E69F00", "#CC79A7", "#999999"), strict=True))


def mean(outcomes: list[Outcome], method: str, number: str) -> float:
    return float(np.mean([each.numbers[number] for each in outcomes if each.cell.method == method and each.numbers]))


def draw(found: dict[str, list[Outcome]], accuracies: dict[str, dict[str, float]]) -> Any:
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.6), layout="constrained")
    for method in OURS[:-1]:
        numbers = [o.numbers for of in found.values() for o in of if o.cell.method == method and o.numbers]
        overlap, mass = (np.array([n[name] for n in numbers]) for name in ("true_overlap", "transported_mass"))
        slope = np.polyfit(overlap, mass, 1)
        label = f"{method.removesuffix(' (joint)')} (correlation {_correlation(overlap, mass):.2f})"
        left.scatter(overlap, mass, s=9, alpha=0.6, color=COLOURS[method], label=label, linewidths=0)
        ends = np.array([overlap.min(), overlap.max()])
        left.plot(ends, np.polyval(slope, ends), color=COLOURS[method])
    left.plot([0.3, 1], [0.3, 1], ":", color="black", label="mass = overlap", linewidth=1)
    left.set(xlabel="true overlap of the domains", ylabel="transported mass", title="Mass against overlap")
    left.legend(fontsize=8)
    for method in (*OURS, *OTHERS):
        ours = method in OURS
        style = {"color": COLOURS[method], "marker": "o"} if ours else {"color": "black", "alpha": 0.4, "marker": "."}
        heights = [100 * accuracies[name][method] for name in SETTINGS]
        dashes = "-" if ours else (0, (1 + 2 * OTHERS.index(method), 1))
        right.plot(list(SETTINGS)[:-1], heights[:-1], linestyle=dashes, label=method.removesuffix(" (joint)"), **style)
        right.plot(list(SETTINGS)[-1:], heights[-1:], **style)
    right.set(ylabel="accuracy in percent, mean over tasks", title="Accuracy as the overlap shrinks")
    right.tick_params(axis="x", labelrotation=20)
    right.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
    return figure


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.corrcoef(a, b)[0, 1]) if np.ptp(b) > 1e-9 else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--output", type=Path, required=True, help="directory for the cells")
    parser.add_argument("--seeds", type=int, default=4, help="which classes are missing depends on them")
    parser.add_argument("--samples", type=int, default=500)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    found, accuracies, tables = {}, {}, {}
    for name, setting in SETTINGS.items():
        methods = (*OURS, *OTHERS)
        study, work = prepare(
            [options.dataset], methods=methods, seeds=options.seeds, samples=options.samples, **setting
        )
        with cells_bar() as progress:
            directory = options.output / name.replace(" ", "_").replace("%", "percent")
            found[name] = engine.run(study, work, directory, jobs=options.jobs, progress=progress)
        accuracies[name] = {method: mean(found[name], method, "accuracy") for method in methods}
        tables[name] = {
            method: {
                number: mean(found[name], method, number)
                for number in ("accuracy", "transported_mass", "true_overlap", "outlier_auc")
                if any(number in (o.numbers or {}) for o in found[name] if o.cell.method == method)
            }
            for method in methods
        }
        print(f"\n{name}\n\n{markdown(study, found[name])}", flush=True)
    measure.write_json(measure.RESULTS / "overlap.json", measure.header() | {"means": tables})
    print("| method | " + " | ".join(SETTINGS) + " |")
    for method in (*OURS, *OTHERS):
        full = 100 * accuracies["full overlap"][method]
        cells = [
            f"{100 * accuracies[name][method]:.1f} ({100 * accuracies[name][method] - full:+.1f})" for name in SETTINGS
        ]
        print(f"| {method} | " + " | ".join(cells) + " |")
    draw(found, accuracies).savefig(Path(__file__).parents[1] / "docs" / "overlap.png", dpi=110)


if __name__ == "__main__":
    main()
