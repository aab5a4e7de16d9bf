"""The directory of a benchmark: its plan, and a line for every finished cell that no crash takes back."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

from adaptive_ot.errors import InvalidInput
from adaptive_ot.workbench.benchmark.plan import Cell, Outcome, Plan
from adaptive_ot.workbench.files import make_directory, one_with, trouble, write_atomically

PLAN, CELLS = "plan.json", "cells.jsonl"


class Journal:
    """The cells that are done, on disk before `add` returns.

    Parameters
    ----------
    directory
        Where they are kept; made if it does not exist. One with another plan is refused.
    plan
        What is to be run.
    """

    def __init__(self, directory: Path, plan: Plan) -> None:
        self.directory, self.name = directory, f"output '{directory}'"
        make_directory("output", directory)
        with trouble(self.name, "must be a directory to write to"):
            if (directory / PLAN).exists():
                self._check_plan(plan)
            elif (directory / CELLS).exists():
                rule = f"must hold the {PLAN} of its {CELLS}"
                raise InvalidInput(self.name, rule, "none", "Choose another directory.")
            elif others := sorted(path.name for path in directory.iterdir() if not path.name.startswith(".")):
                rule, remedy = "must be new, empty, or hold a benchmark", "Choose another directory."
                raise InvalidInput(self.name, rule, one_with(others), remedy)
            else:
                text = json.dumps(plan.record(), indent=2)
                write_atomically("output", directory / PLAN, lambda file: file.write(text.encode()))
            self.finished = self._read(set(plan.cells))
        # Without lines torn by a crash, which would swallow the next one, and without failures, which are tried again.
        lines = b"".join(map(_line, self.finished.values()))
        write_atomically("output", directory / CELLS, lambda file: file.write(lines))

    def add(self, outcome: Outcome) -> None:
        """Keep what came of a cell."""
        with (
            trouble(self.name, "must have room for the results"),
            open(self.directory / CELLS, "ab", buffering=0) as file,
        ):
            line = _line(outcome)
            if file.write(line) != len(line):
                raise OSError("the disk is full")
            os.fsync(file.fileno())

    def _check_plan(self, plan: Plan) -> None:
        try:
            found = json.loads((self.directory / PLAN).read_bytes())
        except ValueError:
            found = None
        if not isinstance(found, dict):
            rule = f"must hold a {PLAN} that can be read"
            raise InvalidInput(self.name, rule, "something else", "Choose another directory.")
        different = plan.differences(found)
        if different:
            given = f"one with other settings: {'; '.join(different)}"
            rule, remedy = "must be new or hold the same benchmark", "Choose another directory."
            raise InvalidInput(self.name, rule, given, remedy)

    def _read(self, cells: set[Cell]) -> dict[Cell, Outcome]:
        """The finished cells; a line that cannot be read does not count, and its cell runs again."""
        outcomes = map(_parse, _lines(self.directory))
        return {outcome.cell: outcome for outcome in outcomes if outcome and outcome.numbers and outcome.cell in cells}


def read_benchmark(directory: Path) -> tuple[Plan, list[Outcome]]:
    """The plan of a benchmark and what came of it so far, failures included, without changing anything."""
    name = f"benchmark '{directory}'"
    with trouble(name, f"must hold a {PLAN} that can be read"):
        plan = Plan.of(json.loads((directory / PLAN).read_bytes()))
        outcomes = {outcome.cell: outcome for outcome in map(_parse, _lines(directory)) if outcome}
    return plan, [outcomes[cell] for cell in plan.cells if cell in outcomes]


def _lines(directory: Path) -> list[bytes]:
    path = directory / CELLS
    return path.read_bytes().split(b"\n") if path.exists() else []


def _line(outcome: Outcome) -> bytes:
    return json.dumps(outcome.record()).encode() + b"\n"


def _parse(line: bytes) -> Outcome | None:
    """What came of a cell, if the line is whole."""
    try:
        found: Any = json.loads(line)
        group, task, method, seed = (found[field] for field in Cell._fields)
        cell = Cell(str(group), str(task), str(method), seed)
        if type(seed) is not int:
            return None
        if "error" in found:
            return Outcome(cell, None, str(found["error"]))
        numbers = found["numbers"]
        whole = numbers and all(map(math.isfinite, numbers.values()))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
        return None
    return Outcome(cell, numbers) if whole else None
