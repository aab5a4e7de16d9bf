"""A benchmark is a study: a grid of cells, one for every task, seed and method; its directory has a line for each."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from adaptive_ot.workbench.files import trouble
from adaptive_ot.workbench.runs import Journal, holds_run, read_journal, read_record, refuse_another, write_record

PLAN, CELLS = "plan.json", "cells.jsonl"  # in the directory of a benchmark

ARROW = " -> "  # between the source and the target of a task
MOST_SEEDS = 100_000  # against mistakes in a file


class Cell(NamedTuple):
    """One run of one method. Tasks of a group, say of one dataset, share a mean in the table."""

    group: str
    task: str
    method: str
    seed: int

    def __str__(self) -> str:
        return f"{self.method}, {self.group} {self.task}, seed {self.seed}"


class Outcome(NamedTuple):
    """The numbers of a cell, or the error that kept it from having some."""

    cell: Cell
    numbers: dict[str, float] | None
    error: str | None = None

    def record(self) -> dict[str, Any]:
        """As plain names and values."""
        return self.cell._asdict() | ({"error": self.error} if self.numbers is None else {"numbers": self.numbers})

    @classmethod
    def of(cls, record: dict[str, Any]) -> Outcome | None:
        """From `record`; None if it is not the record of an outcome."""
        try:
            group, task, method, seed = (record[field] for field in Cell._fields)
            cell = Cell(str(group), str(task), str(method), seed)
            if type(seed) is not int:
                return None
            if "error" in record:
                return cls(cell, None, str(record["error"]))
            numbers = record["numbers"]
            return cls(cell, numbers) if numbers and all(map(math.isfinite, numbers.values())) else None
        except (TypeError, KeyError, AttributeError, OverflowError):
            return None


class Part(NamedTuple):
    """The tasks and seeds that a method runs, where these are not all."""

    tasks: tuple[tuple[str, str], ...]
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Study:
    """All cells, and everything else that their numbers depend on.

    Parameters
    ----------
    tasks, methods
        The columns and the rows of the table; a task with its group.
    seeds
        Which ones, or how many, from 0.
    settings
        Whatever else the numbers depend on, as JSON knows it.
    only
        Methods that run a part of it.
    conditions
        The tasks by what was done to their data, if anything was.

    Examples
    --------
    >>> study = Study((("digits", "mnist -> usps"),), ("one", "other"), seeds=2, settings={"samples": 100})
    >>> len(study.cells)
    4
    >>> part = Study(study.tasks, study.methods, (3, 5), {}, only={"other": Part(study.tasks, (5,))})
    >>> [(cell.seed, cell.method) for cell in part.cells]
    [(3, 'one'), (5, 'one'), (5, 'other')]
    """

    tasks: tuple[tuple[str, str], ...]
    methods: tuple[str, ...]
    seeds: int | tuple[int, ...]
    settings: dict[str, Any]
    only: dict[str, Part] = field(default_factory=dict)
    conditions: dict[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)

    @property
    def kind(self) -> Literal["features", "deep", "sensitivity"]:
        """By what the settings hold."""
        return "sensitivity" if "grid" in self.settings else "deep" if "recipe" in self.settings else "features"

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """By number."""
        return tuple(range(self.seeds)) if isinstance(self.seeds, int) else self.seeds

    @property
    def cells(self) -> list[Cell]:
        """In the order in which they run: every method on one draw of the data, then the next draw."""
        return [
            Cell(*task, method, seed)
            for task in self.tasks
            for seed in self.all_seeds
            for method in self.methods
            if method not in self.only or (task in self.only[method].tasks and seed in self.only[method].seeds)
        ]

    def record(self) -> dict[str, Any]:
        """As JSON would bring it back."""
        given = {"tasks": self.tasks, "methods": self.methods, "seeds": self.seeds, **self.settings}
        if self.only:
            given["only"] = {method: part._asdict() for method, part in self.only.items()}
        if self.conditions:
            given["conditions"] = self.conditions
        return json.loads(json.dumps(given))

    @classmethod
    def of(cls, record: dict[str, Any]) -> Study:
        """From `record`, which may have been edited: a ValueError, TypeError or KeyError says what is wrong."""
        given = dict(record)
        tasks, methods, seeds = _tasks(given.pop("tasks")), given.pop("methods"), given.pop("seeds")
        if not (isinstance(methods, list) and all(isinstance(method, str) for method in methods)):
            raise ValueError("'methods' that are not a list of names")
        only = {
            method: Part(_tasks(part["tasks"]), tuple(part["seeds"])) for method, part in given.pop("only", {}).items()
        }
        conditions = {name: _tasks(part) for name, part in dict(given.pop("conditions", {})).items()}
        if not all(part and set(part) <= set(tasks) for part in conditions.values()):
            raise ValueError("'conditions' with other tasks, or none")
        study = cls(tasks, tuple(methods), seeds if type(seeds) is int else tuple(seeds), given, only, conditions)
        few = len(seeds) if isinstance(seeds, list) else seeds
        if not 0 < few <= MOST_SEEDS or not all(type(seed) is int for seed in study.all_seeds):
            raise ValueError(f"'seeds' that are not at most {MOST_SEEDS} whole numbers")
        return study


def _tasks(given: Any) -> tuple[tuple[str, str], ...]:
    tasks = tuple((group, task) for group, task in given)
    if not all(isinstance(word, str) for task in tasks for word in task):
        raise ValueError("'tasks' that are not pairs of names")
    return tasks


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
