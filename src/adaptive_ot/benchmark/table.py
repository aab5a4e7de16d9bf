"""The results of a benchmark for people (results.md) and for programs (results.json)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from adaptive_ot._environment import environment
from adaptive_ot._files import write_atomically
from adaptive_ot.benchmark.plan import Outcome, Plan

FAILED = "failed"


class Column(NamedTuple):
    """A heading, and for every method what to print and by what to find the best."""

    heading: str
    texts: list[str]
    values: list[float] | None = None

    def shown(self) -> list[str]:
        """The texts, those of the highest value as printed in bold."""
        if self.values is None:
            return self.texts
        printed = [round(value, 1) for value in self.values]
        best = max((value for value in printed if not np.isnan(value)), default=None)
        return [f"**{text}**" if value == best else text for text, value in zip(self.texts, printed, strict=True)]


def write_results(directory: Path, plan: Plan, outcomes: list[Outcome]) -> tuple[Path, Path]:
    """Write results.md and results.json, and say where they are."""
    described = {
        "plan": plan.record(),
        "environment": environment(),
        "cells": [outcome.record() for outcome in outcomes],
    }
    contents = {"results.md": markdown(plan, outcomes), "results.json": json.dumps(described, indent=2) + "\n"}
    for name, text in contents.items():
        write_atomically("output", directory / name, lambda file, text=text: file.write(text.encode()))
    return directory / "results.md", directory / "results.json"


def markdown(plan: Plan, outcomes: list[Outcome]) -> str:
    """Accuracies of methods x tasks with their means, other numbers if there are any, and what failed."""
    parts = [_accuracies(plan, outcomes), _caption(plan), _other_numbers(plan, outcomes), _failures(outcomes)]
    return "\n".join(part for part in parts if part)


def _accuracies(plan: Plan, outcomes: list[Outcome]) -> str:
    # methods x tasks x seeds, in percent; NaN where a cell failed
    found = {outcome.cell: outcome.numbers for outcome in outcomes if outcome.numbers}
    percent = np.full((len(plan.methods), len(plan.tasks), plan.seeds), np.nan)
    for cell, numbers in found.items():
        at = plan.methods.index(cell.method), plan.tasks.index((cell.group, cell.task)), cell.seed
        percent[at] = 100 * numbers.get("accuracy", np.nan)
    groups = list(dict.fromkeys(group for group, _ in plan.tasks))
    columns = []
    for group in groups:
        members = [at for at, task in enumerate(plan.tasks) if task[0] == group]
        columns += [_column(plan.tasks[at][1], percent[:, [at]], spread=False) for at in members]
        if len(groups) > 1:
            columns.append(_column(f"{group} mean", percent[:, members]))
    columns.append(_column("mean", percent))
    return _table(plan.methods, [*columns, _seconds(plan, outcomes)])


def _column(heading: str, percent: np.ndarray, spread: bool = True) -> Column:
    """The mean over tasks and seeds, with the deviation over seeds of the mean over tasks."""
    of_seeds = percent.mean(axis=1)
    means = of_seeds.mean(axis=1)
    texts = [FAILED if np.isnan(mean) else f"{mean:.1f}" for mean in means]
    if spread and percent.shape[2] > 1:
        deviations = of_seeds.std(axis=1, ddof=1)
        texts = [
            text if text == FAILED else f"{text} ± {deviation:.1f}"
            for text, deviation in zip(texts, deviations, strict=True)
        ]
    return Column(heading, texts, means.tolist())


def _seconds(plan: Plan, outcomes: list[Outcome]) -> Column:
    return Column("seconds", [_mean(outcomes, method, "seconds", ".2f") or FAILED for method in plan.methods])


def _caption(plan: Plan) -> str:
    spread = f", ± the standard deviation over {plan.seeds} seeds of the mean over tasks" if plan.seeds > 1 else ""
    return f"Accuracy in percent; means over tasks and seeds{spread}. Seconds for one fit and prediction.\n"


def _other_numbers(plan: Plan, outcomes: list[Outcome]) -> str:
    """Means over tasks and seeds of whatever else the methods that have it report."""
    names = dict.fromkeys(name for outcome in outcomes for name in outcome.numbers or ())
    names = [name for name in names if name not in ("accuracy", "seconds")]
    methods = [method for method in plan.methods if any(_mean(outcomes, method, name, "") for name in names)]
    columns = [
        Column(name.replace("_", " "), [_mean(outcomes, method, name, ".3f") for method in methods]) for name in names
    ]
    return _table(methods, columns) if columns else ""


def _failures(outcomes: list[Outcome]) -> str:
    reasons = Counter((each.cell.method, each.error) for each in outcomes if each.numbers is None)
    return "".join(f"- {method} failed {times} x: {error}\n" for (method, error), times in reasons.items())


def _mean(outcomes: list[Outcome], method: str, name: str, form: str) -> str:
    """Over all finished cells of a method that have this number; nothing if none has."""
    of_method = [outcome.numbers for outcome in outcomes if outcome.numbers and outcome.cell.method == method]
    values = [numbers[name] for numbers in of_method if name in numbers]
    return format(float(np.mean(values)), form) if values else ""


def _table(methods: Iterable[str], columns: list[Column]) -> str:
    """Markdown that is aligned for those who read it as it is."""
    texts = [["method", *methods], *([column.heading, *column.shown()] for column in columns)]
    texts = [[cell.replace("|", "\\|") for cell in column] for column in texts]
    widths = [max(map(len, column)) for column in texts]
    first, *others = ([cell.rjust(width) for cell in column] for column, width in zip(texts, widths, strict=True))
    header, *rows = zip([cell.strip().ljust(widths[0]) for cell in first], *others, strict=True)
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "".join(f"| {' | '.join(row)} |\n" for row in (header, rule, *rows))
