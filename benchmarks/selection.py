"""Which label-free criterion chooses best among trained networks? Regret to the best run, task by task.

    python benchmarks/selection.py BENCHMARK...    # directories of `benchmark deep` with `keep_checkpoints = true`
    python benchmarks/selection.py --uneven data/digits.npz data/digits_uneven.npz

In each benchmark the rows compete, for every task and seed. Beside the criteria of `adaptive-ot select` stand choices
that look at nothing: the same row every time, and a random one. The verdict on a row is whether it is better than the
row without adaptation. All of this is judged by labels of the target, which no criterion sees. Results:
benchmarks/results/selection_digits.json, or another file with --name.

--uneven makes the data of benchmarks/plans/selection_digits.toml: MNIST and USPS, and both with classes that are up to
ten times as frequent as others.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.stats import spearmanr

import measure
from adaptive_ot.deep.selection import CRITERIA
from adaptive_ot.workbench.benchmark.selection import SelectedTask, select_each
from adaptive_ot.workbench.benchmark.study import read_benchmark

# How many times as frequent the most frequent class is as the rarest.
IMBALANCE = 10


class Judged(NamedTuple):
    """A task with one seed: the accuracy and the scores of every row."""

    task: str
    seed: int
    rows: list[str]
    adapts: np.ndarray  # whether the row adapts at all
    accuracies: np.ndarray
    scores: dict[str, np.ndarray]

    @property
    def regrets(self) -> np.ndarray:
        """What each row loses to the best one."""
        return self.accuracies.max() - self.accuracies

    def right_verdicts(self, values: np.ndarray) -> list[bool]:
        """Whether each row that adapts is rated above the one that does not, if and only if it is better."""
        if self.adapts.all():
            return []
        plain = int(np.flatnonzero(~self.adapts)[0])
        above, better = values > values[plain], self.accuracies > self.accuracies[plain]
        return (above == better)[self.adapts].tolist()


def judged(name: str, of: SelectedTask) -> Judged:
    candidates = of.selection.candidates
    return Judged(
        f"{name}: {of.task}",
        of.seed,
        list(of.rows),
        np.array([each.method != "source-only" for each in candidates]),
        np.array([each.accuracy for each in candidates]),
        {criterion: np.array([each.scores[criterion] for each in candidates]) for criterion in CRITERIA},
    )


def summary(found: list[Judged]) -> dict[str, dict[str, float]]:
    """Means over tasks and seeds, for every criterion, every row, and a random choice."""
    lines = {}
    for criterion in CRITERIA:
        regrets = [each.regrets[each.scores[criterion].argmax()] for each in found]
        verdicts = [right for each in found for right in each.right_verdicts(each.scores[criterion])]
        ranks: Any = [spearmanr(each.scores[criterion], each.accuracies)[0] for each in found]
        lines[criterion] = _regret(regrets) | _verdicts(verdicts) | {"rank correlation": float(np.nanmean(ranks))}
    for row in dict.fromkeys(row for each in found for row in each.rows):
        regrets = [each.regrets[each.rows.index(row)] for each in found if row in each.rows]
        lines[f"always {row}"] = _regret(regrets)
    better = [right for each in found for right in each.right_verdicts(each.adapts.astype(float))]
    lines["random"] = {"regret": float(np.mean([each.regrets.mean() for each in found]))}
    return lines | {"always adapt": _verdicts(better)}


def _regret(regrets: list[float]) -> dict[str, float]:
    return {"regret": float(np.mean(regrets)), "largest regret": float(np.max(regrets))}


def _verdicts(right: list[bool]) -> dict[str, float]:
    return {"verdicts that are right": float(np.mean(right))} if right else {}


def show(lines: dict[str, dict[str, float]]) -> None:
    columns = ("regret", "largest regret", "verdicts that are right", "rank correlation")
    table = Table("choice", *columns)
    for name, numbers in lines.items():
        texts = [numbers.get(column) for column in columns]
        form = (".1%", ".1%", ".0%", ".2f")
        table.add_row(name, *("" if x is None else format(x, f) for x, f in zip(texts, form, strict=True)))
    Console().print(table)


def write_uneven(origin: Path, destination: Path) -> None:
    """The domains of an archive, and each once more with classes of unequal frequency: `<domain>_uneven`."""
    with np.load(origin) as archive:
        arrays = {name: archive[name] for name in archive.files if "_train_" in name}
    rng = np.random.default_rng(0)
    for domain in [name.removesuffix("_train_y") for name in list(arrays) if name.endswith("_train_y")]:
        labels = arrays[f"{domain}_train_y"]
        classes = rng.permutation(np.unique(labels))
        shares = IMBALANCE ** -np.linspace(0, 1, len(classes))
        chances = dict(zip(classes.tolist(), shares.tolist(), strict=True))
        kept = rng.random(len(labels)) < np.array([chances[label] for label in labels.tolist()])
        for part in "xy":
            arrays[f"{domain}_uneven_train_{part}"] = arrays[f"{domain}_train_{part}"][kept]
        print(domain, dict(zip(*map(np.ndarray.tolist, np.unique(labels[kept], return_counts=True)), strict=True)))
    np.savez_compressed(destination, allow_pickle=False, **arrays)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmarks", type=Path, nargs="*")
    parser.add_argument("--uneven", type=Path, nargs=2, metavar=("ORIGIN", "DESTINATION"))
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--name", default="selection_digits")
    options = parser.parse_args()
    if options.uneven:
        write_uneven(*options.uneven)
        return
    found = []
    for directory in options.benchmarks:
        study, outcomes = read_benchmark(directory)
        for each in select_each(study, outcomes, directory, samples=options.samples, device=options.device):
            if len(each.rows) == len(study.methods):  # otherwise the rows that finished first would compete
                found.append(judged(directory.name, each))
                print(found[-1].task, "seed", each.seed, flush=True)
    if not found:
        parser.error("needs the directory of a benchmark with a task whose rows are all finished")
    lines = summary(found)
    tasks = [
        {"task": each.task, "seed": each.seed, "rows": each.rows, "accuracies": each.accuracies.tolist()}
        | {"scores": {name: values.tolist() for name, values in each.scores.items()}}
        for each in found
    ]
    content = {"summary": lines, "tasks": tasks}
    measure.write_json(measure.RESULTS / f"{options.name}.json", measure.header() | content)
    show(lines)


if __name__ == "__main__":
    main()
