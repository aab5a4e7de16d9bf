"""The results of a benchmark for people (results.md) and for programs (results.json)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from adaptive_ot.workbench.benchmark.literature import ABOUT as ABOUT_PUBLISHED
from adaptive_ot.workbench.benchmark.literature import AS_PUBLISHED, literature
from adaptive_ot.workbench.benchmark.study import Outcome, Study
from adaptive_ot.workbench.environment import environment
from adaptive_ot.workbench.files import write_atomically

FAILED, MISSING = "failed", "–"

# What the table shows, by the kind of the study.
ABOUT = {
    "features": "Seconds for one fit and prediction.",
    "deep": "Of the last iterate, judged on the whole target. Seconds for one training.",
    "sensitivity": "",
}

# Numbers that need the labels of the target.
ORACLE = frozenset({"best_accuracy", "plan_purity"})
ORACLE_MARK = " (oracle)"
ABOUT_ORACLES = "Oracle: chosen or judged by labels of the target, which no method sees."


class Column(NamedTuple):
    """A heading and the text of every method; the values that decide on the best, and their deviations over seeds."""

    heading: str
    texts: list[str]
    values: list[float] | None = None
    deviations: list[float] | None = None

    def best(self) -> list[bool]:
        """Which methods have the highest value, as printed."""
        printed = [round(value, 1) for value in self.values or [np.nan] * len(self.texts)]
        highest = max((value for value in printed if not np.isnan(value)), default=None)
        return [value == highest for value in printed]

    def shown(self) -> list[str]:
        """The texts, the best in bold."""
        return [f"**{text}**" if best else text for text, best in zip(self.texts, self.best(), strict=True)]


def write_results(
    directory: Path, study: Study, outcomes: list[Outcome], text: str | None = None, more: dict[str, Any] | None = None
) -> tuple[Path, Path]:
    """Write results.md, with the table unless another text is given, and results.json, with `more`; their paths."""
    described = {
        "plan": study.record(),
        "environment": environment(),
        "cells": [outcome.record() for outcome in outcomes],
        **(more or {}),
    }
    if study.conditions:
        described["conditions"] = condition_means(study, outcomes)
    text = markdown(study, outcomes) if text is None else text
    contents = {"results.md": text, "results.json": json.dumps(described, indent=2) + "\n"}
    for name, content in contents.items():
        write_atomically("output", directory / name, lambda file, content=content: file.write(content.encode()))
    return directory / "results.md", directory / "results.json"


def markdown(study: Study, outcomes: list[Outcome]) -> str:
    """Accuracies of methods x tasks with their means, other numbers if there are any, and failures.

    With conditions, the means of all conditions, and then all of this for each condition.
    """
    about = f"{caption(study)}\n"
    if study.conditions:
        parts = [_table("method", study.methods, condition_columns(study, outcomes)), about]
        for name, part, chosen in by_condition(study, outcomes):
            parts += [f"## {name}\n", markdown(part, chosen)]
        return "\n".join(parts)
    numbers = [accuracies(study, outcomes), about, _other_numbers(study, outcomes)]
    parts = [*numbers, _beside_the_literature(study, outcomes), failures(outcomes)]
    return "\n".join(part for part in parts if part)


def accuracies(study: Study, outcomes: list[Outcome], heading: str = "method") -> str:
    """One row a method, under this heading, and one column a task, in percent."""
    return _table(heading, study.methods, accuracy_columns(study, outcomes))


def accuracy_columns(study: Study, outcomes: list[Outcome]) -> list[Column]:
    """One column a task, in percent; means over groups of tasks and over all; seeds where they differ; seconds."""
    percent = Percent.of(study, outcomes)
    groups = list(dict.fromkeys(group for group, _ in study.tasks))
    columns = []
    for group in groups:
        members = [at for at, task in enumerate(study.tasks) if task[0] == group]
        columns += [_column(study.tasks[at][1], percent.of_tasks([at]), spread=False) for at in members]
        if len(groups) > 1:
            columns.append(_column(f"{group} mean", percent.of_tasks(members)))
    columns.append(_column("mean", percent))
    return [*columns, *_seeds(percent), _seconds(study, outcomes)]


def by_condition(study: Study, outcomes: list[Outcome]) -> list[tuple[str, Study, list[Outcome]]]:
    """For each condition its name, a study of its tasks alone, and their outcomes."""
    return [
        (
            name,
            replace(study, tasks=tasks, conditions={}),
            [outcome for outcome in outcomes if (outcome.cell.group, outcome.cell.task) in tasks],
        )
        for name, tasks in study.conditions.items()
    ]


def condition_columns(study: Study, outcomes: list[Outcome]) -> list[Column]:
    """One column a condition, in percent, a mean over its tasks; the mean over all; seeds if they differ; seconds."""
    percent = Percent.of(study, outcomes)
    columns = [
        _column(name, percent.of_tasks([study.tasks.index(task) for task in tasks]), spread=False)
        for name, tasks in study.conditions.items()
    ]
    return [*columns, _column("mean", percent), *_seeds(percent), _seconds(study, outcomes)]


def condition_means(study: Study, outcomes: list[Outcome]) -> dict[str, dict[str, float | None]]:
    """The accuracy of each method in each condition, a mean over tasks and seeds; None if something failed."""
    means = {name: Percent.of(part, chosen).means() for name, part, chosen in by_condition(study, outcomes)}
    return {
        name: {
            method: None if np.isnan(mean := mean_of(of_seeds)) else mean / 100
            for method, of_seeds in zip(study.methods, of_methods, strict=True)
        }
        for name, of_methods in means.items()
    }


class Percent(NamedTuple):
    """Accuracies of methods x tasks x seeds, NaN where a cell failed, and which cells are there at all."""

    values: np.ndarray
    planned: np.ndarray

    @classmethod
    def of(cls, study: Study, outcomes: list[Outcome]) -> Percent:
        shape = len(study.methods), len(study.tasks), len(study.all_seeds)
        values, planned = np.full(shape, np.nan), np.zeros(shape, bool)
        for (group, task, method, seed), numbers, _ in outcomes:
            at = study.methods.index(method), study.tasks.index((group, task)), study.all_seeds.index(seed)
            planned[at] = True
            values[at] = 100 * (numbers or {}).get("accuracy", np.nan)
        return cls(values, planned)

    def of_tasks(self, tasks: list[int]) -> Percent:
        return Percent(self.values[:, tasks], self.planned[:, tasks])

    def means(self) -> list[np.ndarray]:
        """For every method the means over tasks, one for each of the seeds that have all of the tasks."""
        return [
            values.mean(axis=0)[planned.all(axis=0)] for values, planned in zip(self.values, self.planned, strict=True)
        ]


def _column(heading: str, percent: Percent, spread: bool = True) -> Column:
    """The mean over tasks and seeds, with the deviation over seeds of the mean over tasks."""
    means = percent.means()
    texts = [_text(of_seeds, spread) for of_seeds in means]
    return Column(heading, texts, list(map(mean_of, means)), list(map(deviation_of, means)))


def _text(of_seeds: np.ndarray, spread: bool) -> str:
    if not of_seeds.size:
        return MISSING
    if np.isnan(of_seeds).any():
        return FAILED
    deviation = f" ± {deviation_of(of_seeds):.1f}" if spread and of_seeds.size > 1 else ""
    return f"{mean_of(of_seeds):.1f}{deviation}"


def mean_of(of_seeds: np.ndarray) -> float:
    """The mean; NaN without values."""
    return float(of_seeds.mean()) if of_seeds.size else np.nan


def deviation_of(of_seeds: np.ndarray) -> float:
    """The standard deviation; NaN of fewer than two values."""
    return float(of_seeds.std(ddof=1)) if of_seeds.size > 1 else np.nan


def _seeds(percent: Percent) -> list[Column]:
    """The number of seeds behind each mean, where it differs."""
    sizes = [of_seeds.size for of_seeds in percent.means()]
    return [Column("seeds", [str(size) if size else MISSING for size in sizes])] if len(set(sizes)) > 1 else []


def _seconds(study: Study, outcomes: list[Outcome]) -> Column:
    return Column("seconds", [_mean(outcomes, method, "seconds", ".2f") or FAILED for method in study.methods])


def caption(study: Study) -> str:
    """Explains the numbers of the table."""
    spread = ""
    if study.only:
        spread = ", of the seeds that ran all tasks; ± the standard deviation over seeds of the mean over tasks"
    elif len(study.all_seeds) > 1:
        spread = f", ± the standard deviation over {len(study.all_seeds)} seeds of the mean over tasks"
    return f"Accuracy in percent; means over tasks and seeds{spread}. {ABOUT[study.kind]}".strip()


def _other_numbers(study: Study, outcomes: list[Outcome]) -> str:
    methods, columns = other_columns(study, outcomes)
    note = f"\n{ABOUT_ORACLES}\n" if any(ORACLE_MARK in column.heading for column in columns) else ""
    return _table("method", methods, columns) + note if columns else ""


def _beside_the_literature(study: Study, outcomes: list[Outcome]) -> str:
    """Our means, of the last and of the best iterate, and those of the literature on the same protocol."""
    published = literature(study)
    if not published:
        return ""
    rows = list(zip(study.methods, _column("mean", Percent.of(study, outcomes)).texts, repeat("last"), strict=False))
    for method in study.methods:
        best = _mean(outcomes, method, "best_accuracy", ".1%").removesuffix("%")
        rows.append((method, best or FAILED, "best"))
    ours = len(rows)
    rows += [(each.method, f"{each.mean:.1f}", each.iterate) for each in published]
    methods, means, iterates = map(list, zip(*rows, strict=True))
    origins = ["this benchmark"] * ours + [AS_PUBLISHED] * len(published)
    columns = [Column("mean", means), Column("iterate", iterates), Column("from", origins)]
    return f"{_table('method', methods, columns)}\n{ABOUT_PUBLISHED}\n"


def other_columns(study: Study, outcomes: list[Outcome]) -> tuple[list[str], list[Column]]:
    """Means over tasks and seeds of all other numbers, for the methods that have some."""
    names = dict.fromkeys(name for outcome in outcomes for name in outcome.numbers or ())
    names = [name for name in names if name not in ("accuracy", "seconds")]
    methods = [method for method in study.methods if any(_mean(outcomes, method, name, "") for name in names)]
    return methods, [
        Column(
            name.replace("_", " ") + (ORACLE_MARK if name in ORACLE else ""),
            [_mean(outcomes, method, name, ".3f") for method in methods],
        )
        for name in names
    ]


def failures(outcomes: list[Outcome]) -> str:
    """The methods that failed, how often, and why."""
    reasons = Counter((each.cell.method, each.error) for each in outcomes if each.numbers is None)
    return "".join(f"- {method} failed {times} x: {error}\n" for (method, error), times in reasons.items())


def _mean(outcomes: list[Outcome], method: str, name: str, form: str) -> str:
    """Over all finished cells of a method that have this number; nothing if none has."""
    of_method = [outcome.numbers for outcome in outcomes if outcome.numbers and outcome.cell.method == method]
    values = [numbers[name] for numbers in of_method if name in numbers]
    return format(float(np.mean(values)), form) if values else ""


def _table(heading: str, methods: Iterable[str], columns: list[Column]) -> str:
    """Markdown with aligned columns, readable as plain text."""
    texts = [[heading, *methods], *([column.heading, *column.shown()] for column in columns)]
    texts = [[cell.replace("|", "\\|") for cell in column] for column in texts]
    widths = [max(map(len, column)) for column in texts]
    first, *others = ([cell.rjust(width) for cell in column] for column, width in zip(texts, widths, strict=True))
    header, *rows = zip([cell.strip().ljust(widths[0]) for cell in first], *others, strict=True)
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "".join(f"| {' | '.join(row)} |\n" for row in (header, rule, *rows))
