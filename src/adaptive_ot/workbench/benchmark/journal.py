"""The directory of a benchmark: its study, and a line for every finished cell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from adaptive_ot.workbench.benchmark.study import Outcome, Study
from adaptive_ot.workbench.files import trouble
from adaptive_ot.workbench.runs import Journal, holds_run, read_journal, read_record, refuse_another, write_record

PLAN, CELLS = "plan.json", "cells.jsonl"


def open_journal(directory: Path, study: Study) -> Journal:
    """The finished cells of a study. Failed cells are discarded, as they run again; another study is refused."""
    if holds_run(directory, PLAN, "benchmark"):
        there = read_record(f"output '{directory}'", directory / PLAN)
        refuse_another(directory, "benchmark", study.record(), there)
    else:
        write_record(directory / PLAN, study.record())
    cells = set(study.cells)

    def is_finished(line: dict[str, Any]) -> bool:
        outcome = Outcome.of(line)
        return outcome is not None and outcome.numbers is not None and outcome.cell in cells

    return Journal(directory / CELLS, is_finished, writes=True)


def read_benchmark(directory: Path) -> tuple[Study, list[Outcome]]:
    """A study and its outcomes so far, failures included, without changing anything."""
    name = f"benchmark '{directory}'"
    record = read_record(name, directory / PLAN)
    with trouble(name, f"must hold a {PLAN} that can be read"):
        study = Study.of(record)
    lines = read_journal(directory / CELLS, lambda line: Outcome.of(line) is not None)
    outcomes = {outcome.cell: outcome for outcome in map(Outcome.of, lines) if outcome}
    return study, [outcomes[cell] for cell in study.cells if cell in outcomes]
