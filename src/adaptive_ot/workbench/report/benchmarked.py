"""The page of a benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from adaptive_ot import plot
from adaptive_ot.errors import InvalidInput
from adaptive_ot.workbench.benchmark.study import Cell, Outcome, Study, read_benchmark
from adaptive_ot.workbench.benchmark.table import (
    ABOUT_ORACLES,
    MISSING,
    ORACLE_MARK,
    Column,
    Percent,
    accuracy_columns,
    by_condition,
    caption,
    condition_columns,
    deviation_of,
    mean_of,
    other_columns,
)
from adaptive_ot.workbench.files import trouble
from adaptive_ot.workbench.report.contents import Note, Page, Part, Picture, Table
from adaptive_ot.workbench.report.fields import folded, read_fields
from adaptive_ot.workbench.report.pictures import drawn
from adaptive_ot.workbench.wording import counted

RESULTS = "results.json"

# Cells without a result that are listed; more are only counted.
CELLS_LISTED = 200
CELL = ("method", "dataset", "task", "seed")


def page_of(path: Path) -> Page:
    """The comparison, failures, and the cells that have not run yet."""
    study, outcomes = read_benchmark(path)
    kind = study.kind
    parts = _to_do(study, outcomes)
    if outcomes:
        compared = _by_condition if study.conditions else _compared
        parts += _sensitivity(path, study, outcomes) if kind == "sensitivity" else compared(study, outcomes)
    failed = [[*_named(each.cell), each.error] for each in outcomes if each.numbers is None]
    if failed:
        parts.append(Table("Failed", (*CELL, "error"), failed, "They run again when the command is given again."))
    if kind != "features":
        parts += _training(path, study)
    parts.append(folded("Plan", study.record()))
    parts += _environment(path / RESULTS)
    names = {"features": "features", "deep": "networks", "sensitivity": "parameters of a method"}
    counts = {"row" if kind == "sensitivity" else "method": study.methods, "task": study.tasks, "seed": study.all_seeds}
    size = ", ".join(counted(len(given), noun) for noun, given in counts.items())
    return Page(f"Benchmark of {names[kind]}: {', '.join(dict(study.tasks))}", size, parts)


def _to_do(study: Study, outcomes: list[Outcome]) -> list[Part]:
    done = {outcome.cell for outcome in outcomes}
    left = [cell for cell in study.cells if cell not in done]
    if not left:
        return []
    note = f"{len(left):,} of {len(study.cells):,} cells have not run yet. Give the same command again to continue."
    shown = f"The first {CELLS_LISTED}." if len(left) > CELLS_LISTED else ""
    return [Note(note, "warning"), Table("Not run yet", CELL, [_named(cell) for cell in left[:CELLS_LISTED]], shown)]


def _named(cell: Cell) -> list[str | float | None]:
    return [cell.method, cell.group, cell.task, cell.seed]


def _compared(study: Study, outcomes: list[Outcome]) -> list[Part]:
    """Methods x tasks, as a table and as a picture, and other numbers."""
    percent = Percent.of(study, outcomes)
    means = [percent.of_tasks([at]).means() for at in range(len(study.tasks))]
    values, deviations = (np.array([list(map(of, task)) for task in means]).T for of in (mean_of, deviation_of))
    several = len({group for group, _ in study.tasks}) > 1
    names = [f"{group} {task}" if several else task for group, task in study.tasks]
    picture = drawn(lambda: plot.comparison(study.methods, names, values, deviations))
    table, *others = _tables(study, outcomes)
    return [table, Picture("Accuracy of every method", *picture, "Accuracy in percent, by task and method."), *others]


def _by_condition(study: Study, outcomes: list[Outcome]) -> list[Part]:
    """Methods x conditions, as a table and as a picture, and the tables of each condition."""
    columns = condition_columns(study, outcomes)
    names = list(study.conditions)
    values, deviations = (
        np.array([getattr(column, field) for column in columns[: len(names)]]).T for field in ("values", "deviations")
    )
    picture = drawn(lambda: plot.comparison(study.methods, names, values, deviations))
    parts: list[Part] = [
        _table("Accuracy by condition", "method", study.methods, columns, caption(study)),
        Picture("Accuracy of every method", *picture, "Accuracy in percent, by condition and method."),
    ]
    for name, part, chosen in by_condition(study, outcomes):
        if chosen:
            parts += _tables(part, chosen, f": {name}")
    return parts


def _tables(study: Study, outcomes: list[Outcome], condition: str = "") -> list[Part]:
    """Methods x tasks, and other numbers."""
    columns = accuracy_columns(study, outcomes)
    parts: list[Part] = [_table(f"Accuracy{condition}", "method", study.methods, columns, caption(study))]
    methods, others = other_columns(study, outcomes)
    if others:
        note = ABOUT_ORACLES if any(ORACLE_MARK in column.heading for column in others) else ""
        about = f"Means over tasks and seeds. {note}".strip()
        parts.append(_table(f"Other numbers{condition}", "method", methods, others, about))
    return parts


def _sensitivity(path: Path, study: Study, outcomes: list[Outcome]) -> list[Part]:
    from adaptive_ot.workbench.benchmark.sensitivity import ABOUT, curves, part_of, sweeps_of

    with trouble(f"benchmark '{path}'", "must hold a plan of this version"):
        grids = [(sweep.parameter, *part_of(study, outcomes, sweep)) for sweep in sweeps_of(study)]
        if study.settings["baseline"] not in (None, *study.methods):
            raise ValueError("a baseline that is no method")
    picture = drawn(lambda: curves(study, outcomes))
    parts: list[Part] = [Picture("Sensitivity", *picture, "Accuracy over the values of every parameter.", ABOUT)]
    for parameter, part, chosen in grids:
        columns = accuracy_columns(part, chosen)
        parts.append(_table(parameter, parameter, part.methods, columns, caption(part)))
    return parts


def _table(heading: str, first: str, names: Sequence[str], columns: list[Column], note: str) -> Table:
    """Numbers as numbers, so that they sort; the mean first, with its deviation, and the best in bold."""
    headings, bold = [first], set()
    rows: list[list[str | float | None]] = [[name] for name in names]
    for column in sorted(columns, key=lambda column: column.heading != "mean"):
        bold |= {(k, len(headings)) for k, best in enumerate(column.best()) if best}
        headings.append(column.heading)
        for k, row in enumerate(rows):
            row.append(_cell(column, k))
        if column.heading == "mean" and column.deviations and not np.isnan(column.deviations).all():
            headings.append("±")
            for row, deviation in zip(rows, column.deviations, strict=True):
                row.append(_rounded(deviation))
    return Table(heading, headings, rows, note, frozenset(bold))


def _cell(column: Column, k: int) -> str | float | None:
    """A rounded number, a word such as "failed", or None where nothing is known."""
    text = column.texts[k]
    if column.values is not None:
        return text if np.isnan(column.values[k]) and text != MISSING else _rounded(column.values[k])
    try:
        return float(text)
    except ValueError:
        return None if text in ("", MISSING) else text


def _rounded(value: float) -> float | None:
    return None if np.isnan(value) else round(value, 1)


def _training(path: Path, study: Study) -> list[Part]:
    """Accuracy over the steps of all runs whose directories are there."""
    from adaptive_ot.workbench.report.curves import accuracy_curves, read_curves

    curves = read_curves(path, study)
    if not curves:
        return []
    text = "Accuracy on the target over the steps of every training: a line for every method and seed."
    return [Picture("Training", *drawn(lambda: accuracy_curves(curves)), text, text)]


def _environment(path: Path) -> list[Part]:
    """The environment, from the results of a finished benchmark."""
    if not path.exists():
        return []
    try:
        return [folded("Environment", read_fields(path).table("environment"))]
    except InvalidInput as error:
        return [Note(f"{error} The numbers here come from the cells themselves.", "warning")]
