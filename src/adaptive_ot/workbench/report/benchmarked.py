"""The page of a benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from adaptive_ot import plot
from adaptive_ot.errors import InvalidInput
from adaptive_ot.workbench.benchmark.journal import read_benchmark
from adaptive_ot.workbench.benchmark.study import Cell, Outcome, Study
from adaptive_ot.workbench.benchmark.table import (
    ABOUT,
    ABOUT_ORACLES,
    MISSING,
    ORACLE_MARK,
    Column,
    Percent,
    accuracy_columns,
    caption,
    deviation_of,
    mean_of,
    other_columns,
)
from adaptive_ot.workbench.files import trouble
from adaptive_ot.workbench.report.contents import Note, Page, Part, Picture, Table
from adaptive_ot.workbench.report.fields import counted, folded, read_fields
from adaptive_ot.workbench.report.pictures import drawn

RESULTS = "results.json"

# More cells that have not run are only counted.
CELLS_LISTED = 200


def page_of(path: Path) -> Page:
    """What was compared, what came of it, what failed, and what is still to do."""
    study, outcomes = read_benchmark(path)
    kind = "sensitivity" if "grid" in study.settings else "deep" if "recipe" in study.settings else "features"
    parts = _to_do(study, outcomes)
    if outcomes:
        with trouble(f"benchmark '{path}'", "must hold a plan of this version"):
            parts += (_sensitivity if kind == "sensitivity" else _compared)(study, outcomes)
    parts += _failures(outcomes)
    if kind != "features":
        parts += _training(path, study)
    parts.append(folded("Plan", study.record()))
    parts += _environment(path / RESULTS)
    names = {"features": "features", "deep": "networks", "sensitivity": "parameters of a method"}
    counts = {"row" if kind == "sensitivity" else "method": study.methods, "task": study.tasks, "seed": study.all_seeds}
    size = ", ".join(counted(len(given), noun) for noun, given in counts.items())
    return Page(f"Benchmark of {names[kind]}: {', '.join(dict(study.tasks))}", size, parts)


def _compared(study: Study, outcomes: list[Outcome]) -> list[Part]:
    """Methods x tasks, as a table and as a picture; and what else is known."""
    columns = accuracy_columns(study, outcomes)
    parts: list[Part] = [_table("Accuracy", "method", study.methods, columns, caption(study, _about(study)).strip())]
    percent = Percent.of(study, outcomes)
    means = [percent.of_tasks([at]).means() for at in range(len(study.tasks))]
    values, deviations = (np.array([list(map(of, task)) for task in means]).T for of in (mean_of, deviation_of))
    several = len({group for group, _ in study.tasks}) > 1
    names = [f"{group} {task}" if several else task for group, task in study.tasks]
    light, dark = drawn(lambda: plot.comparison(study.methods, names, values, deviations))
    parts.append(Picture("Accuracy of every method", light, dark, "Accuracy in percent, by task and method."))
    methods, others = other_columns(study, outcomes)
    if others:
        note = ABOUT_ORACLES if any(ORACLE_MARK in column.heading for column in others) else ""
        rows = [[method, *(_number(column.texts[k]) for column in others)] for k, method in enumerate(methods)]
        headings = ["method", *(column.heading for column in others)]
        parts.append(Table("Other numbers", headings, rows, f"Means over tasks and seeds. {note}".strip()))
    return parts


def _sensitivity(study: Study, outcomes: list[Outcome]) -> list[Part]:
    from adaptive_ot.workbench.benchmark.sensitivity import ABOUT, curves, part_of, sweeps_of

    light, dark = drawn(lambda: curves(study, outcomes))
    parts: list[Part] = [Picture("Sensitivity", light, dark, "Accuracy over the values of every parameter.", ABOUT)]
    for sweep in sweeps_of(study):
        part, chosen = part_of(study, outcomes, sweep)
        columns = accuracy_columns(part, chosen)
        parts.append(_table(sweep.parameter, sweep.parameter, part.methods, columns, caption(part, "").strip()))
    return parts


def _about(study: Study) -> str:
    if "recipe" not in study.settings:
        return ABOUT
    from adaptive_ot.workbench.benchmark.deep import ABOUT as OF_NETWORKS

    return OF_NETWORKS


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
    if column.values is None:
        return _number(column.texts[k])
    return column.texts[k] if np.isnan(column.values[k]) and column.texts[k] != MISSING else _rounded(column.values[k])


def _rounded(value: float) -> float | None:
    return None if np.isnan(value) else round(value, 1)


def _number(text: str) -> str | float | None:
    """As a number, if it is one."""
    try:
        return float(text)
    except ValueError:
        return None if text in ("", MISSING) else text


def _to_do(study: Study, outcomes: list[Outcome]) -> list[Part]:
    done = {outcome.cell for outcome in outcomes}
    left = [cell for cell in study.cells if cell not in done]
    if not left:
        return []
    note = f"{len(left):,} of {len(study.cells):,} cells have not run yet. The command that started it goes on."
    shown = f"The first {CELLS_LISTED}." if len(left) > CELLS_LISTED else ""
    rows = [_named(cell) for cell in left[:CELLS_LISTED]]
    return [Note(note, "warning"), Table("Not run yet", ("method", "dataset", "task", "seed"), rows, shown)]


def _failures(outcomes: list[Outcome]) -> list[Part]:
    rows = [[*_named(each.cell), each.error] for each in outcomes if each.numbers is None]
    if not rows:
        return []
    note = "They are tried again when the command is given again."
    return [Table("Failed", ("method", "dataset", "task", "seed", "error"), rows, note)]


def _named(cell: Cell) -> list[str | float | None]:
    return [cell.method, cell.group, cell.task, cell.seed]


def _training(path: Path, study: Study) -> list[Part]:
    """How the runs of all cells went, as far as their directories are there."""
    from adaptive_ot.workbench.report.curves import accuracy_curves, read_curves

    runs = read_curves(path, study)
    if not runs:
        return []
    light, dark = drawn(lambda: accuracy_curves(runs))
    text = "Accuracy on the target over the steps of every training: a line for every method and seed."
    return [Picture("Training", light, dark, text, text)]


def _environment(path: Path) -> list[Part]:
    """What it was computed with, which the results of a finished benchmark say."""
    if not path.exists():
        return []
    try:
        return [folded("Environment", read_fields(path).table("environment"))]
    except InvalidInput as error:
        return [Note(f"{error} The numbers here come from the cells themselves.", "warning")]
