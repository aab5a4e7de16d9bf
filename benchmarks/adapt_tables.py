"""Print the tables of docs/measured.md and README.md about adaptation, from the results in benchmarks/results.

    python benchmarks/adapt_tables.py

It reads adapt_held.json, adapt_pacs.json, adapt_digits.json and adapt_pacs_draws.json: results of
`adaptive-ot benchmark features`. Means are taken over tasks and seeds first, then over the pairs of data and shift,
which count alike.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

import measure

FILES = {"held": "letters and satellite", "pacs": "PACS", "digits": "digits"}
SHIFTS = {"none": "halves", "noise": "noise", "rotation": "turned by 5 degrees", "domains": "one domain to another"}
OVERLAPS = {
    "all": "all classes",
    "half": "half left",
    "third": "a third left",
    "imbalanced": "imbalanced",
    "unknown": "unknown classes",
}
MISSING = ("half", "third", "imbalanced")
OURS, NONE = "AOT (joint)", "source only"
SCORES = {
    "`target_outlier_score_`": (OURS, "outlier_auc"),
    "distance to the 10th nearest source": ("k-NN", "outlier_auc"),
    "entropy of the source classifier": (NONE, "outlier_auc_entropy"),
    "1 - its largest probability": (NONE, "outlier_auc"),
}


class Cell(NamedTuple):
    """What a method reached on one draw of a task; a block is a pair of data and shift."""

    block: tuple[str, str]
    overlap: str
    task: str
    seed: int
    method: str
    numbers: dict[str, float]


def read(files: Iterable[str] = FILES) -> list[Cell]:
    cells = []
    for file in files:
        found = json.loads((measure.RESULTS / f"adapt_{file}.json").read_text())
        condition = {}
        for name, tasks in found["plan"]["conditions"].items():
            condition |= {(group, task): name.split(", ") for group, task in tasks}
        for cell in found["cells"]:
            shift, overlap = condition[cell["group"], cell["task"]]
            cells.append(Cell((file, shift), overlap, cell["task"], cell["seed"], cell["method"], cell["numbers"]))
    return cells


def mean_of(cells: list[Cell], number: str, **given: object) -> float:
    """The mean of a number over cells with these fields, in percent."""
    found = [cell for cell in cells if all(getattr(cell, name) == value for name, value in given.items())]
    return 100 * float(np.mean([cell.numbers[number] for cell in found if number in cell.numbers]))


def row(name: str, values: list[float], form: str = "{:.1f}") -> None:
    print(f"| {name} | {' | '.join(form.format(value) for value in values)} |")


def heading(*names: str) -> None:
    print(f"\n| {' | '.join(names)} |\n|{'---|' * len(names)}")


def main() -> None:
    cells = read()
    blocks, methods = list(dict.fromkeys(cell.block for cell in cells)), dict.fromkeys(cell.method for cell in cells)
    accuracy = {
        (method, block, overlap): mean_of(cells, "accuracy", method=method, block=block, overlap=overlap)
        for method in methods
        for block in blocks
        for overlap in OVERLAPS
    }

    def over(method: str, of: list[tuple[str, str]], overlaps: tuple[str, ...]) -> float:
        return float(np.mean([accuracy[method, block, overlap] for block in of for overlap in overlaps]))

    every = tuple(OVERLAPS)
    held = [block for block in blocks if block[0] == "held"]
    for name, of in (("all data", blocks), ("letters and satellite", held)):
        heading(f"method, {name}", *OVERLAPS.values(), "mean")
        for method in sorted(methods, key=lambda method: -over(method, of, every)):
            row(method, [over(method, of, (overlap,)) for overlap in every] + [over(method, of, every)])
    small, large = ([b for b in blocks if (b[1] == "domains") == far] for far in (False, True))
    heading("method", "small shift", "missing", "unknown", "large shift", "missing", "unknown", "mean")
    for method in sorted(methods, key=lambda method: -over(method, blocks, every)):
        values = [over(method, of, which) for of in (small, large) for which in (("all",), MISSING, ("unknown",))]
        row(method, [*values, over(method, blocks, every)])
    heading(f"{OURS} against {NONE}", *OVERLAPS.values())
    for block in blocks:
        name = f"{FILES[block[0]]}, {SHIFTS[block[1]]}"
        row(name, [accuracy[OURS, block, each] - accuracy[NONE, block, each] for each in every], "{:+.1f}")
    harmed(cells)
    by_draw(read(["pacs_draws"]))
    overlap_estimates(cells, large)
    heading("score", *(f"{FILES[file]}, {SHIFTS[shift]}" for file, shift in blocks), "mean")
    for name, (method, number) in SCORES.items():
        values = [mean_of(cells, number, method=method, block=block) for block in blocks]
        row(name, [*values, float(np.mean(values))])


def harmed(cells: list[Cell]) -> None:
    """Print the tasks on which ours loses more than three points against no adaptation."""
    by_task = defaultdict(lambda: defaultdict(list))
    for cell in cells:
        by_task[cell.block, cell.task][cell.method].append(100 * cell.numbers["accuracy"])
    change = {task: np.mean(of[OURS]) - np.mean(of[NONE]) for task, of in by_task.items()}
    worst = sorted((loss, *task) for task, loss in change.items() if loss < -3)
    for name, far in (("small", False), ("large", True)):
        changes = [change[task] for task in change if (task[0][1] == "domains") == far]
        print(f"\n{name} shift: {len(changes)} tasks, the worst change is {min(changes):+.1f} points")
    print(f"{len(worst)} of {len(change)} tasks lose more than 3 points:")
    for loss, (file, _), task in worst:
        print(f"  {FILES[file]}, {task}: {loss:.1f}")


def by_draw(cells: list[Cell]) -> None:
    """Print the means over pairs of domains for each draw of classes."""
    seeds = sorted({cell.seed for cell in cells})
    heading("PACS, one domain to another, by draw", *map(str, seeds), "mean")
    for overlap in dict.fromkeys(cell.overlap for cell in cells):
        for method in (NONE, OURS):
            given = {"overlap": overlap, "method": method}
            values = [mean_of(cells, "accuracy", seed=seed, **given) for seed in seeds]
            row(f"{method}, {OVERLAPS[overlap]}", [*values, mean_of(cells, "accuracy", **given)])


def overlap_estimates(cells: list[Cell], large: list[tuple[str, str]]) -> None:
    ours = [cell for cell in cells if cell.method == OURS]
    parts = {
        "all fits": ours,
        "small shift": [cell for cell in ours if cell.block not in large],
        "large shift": [cell for cell in ours if cell.block in large],
        "unknown classes": [cell for cell in ours if cell.overlap == "unknown"],
    }
    heading("overlap", "fits", "correlation", "of the mass", "interval holds", "its width", "adapted")
    for name, of in parts.items():
        table = {key: np.array([cell.numbers[key] for cell in of]) for key in ours[0].numbers if key != "outlier_auc"}
        true, low, high = table["true_overlap"], table["overlap_low"], table["overlap_high"]
        correlations = [np.corrcoef(true, table[key])[0, 1] for key in ("overlap", "transported_mass")]
        rates = [np.mean((low <= true) & (true <= high)), np.mean(high - low), np.mean(table["adapted"])]
        row(name, [float(value) for value in (len(of), *correlations, *rates)], "{:.2f}")


if __name__ == "__main__":
    main()
