"""What a benchmark consists of: cells, one for every task, seed and method."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from adaptive_ot.workbench.records import differences

ARROW = " -> "  # between the source and the target of a task
MOST_SEEDS = 100_000  # nobody has the time for more


class Cell(NamedTuple):
    """One run of one method. Tasks of a group, say of one dataset, share a mean in the table."""

    group: str
    task: str
    method: str
    seed: int

    def __str__(self) -> str:
        return f"{self.method}, {self.group} {self.task}, seed {self.seed}"


class Outcome(NamedTuple):
    """What came of a cell: numbers, or the reason why there are none."""

    cell: Cell
    numbers: dict[str, float] | None
    error: str | None = None

    def record(self) -> dict[str, Any]:
        """As plain names and values."""
        return self.cell._asdict() | ({"error": self.error} if self.numbers is None else {"numbers": self.numbers})


class Part(NamedTuple):
    """The tasks and seeds that a method runs, where these are not all."""

    tasks: tuple[tuple[str, str], ...]
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
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

    Examples
    --------
    >>> plan = Plan((("digits", "mnist -> usps"),), ("one", "other"), seeds=2, settings={"samples": 100})
    >>> len(plan.cells)
    4
    >>> plan.differences(plan.record() | {"seeds": 3})
    ['seeds 3, not 2']
    >>> plan.differences(plan.record() | {"samples": 50, "drop": 1})
    ['samples 50, not 100', 'drop 1, not None']
    >>> part = Plan(plan.tasks, plan.methods, (3, 5), {}, only={"other": Part(plan.tasks, (5,))})
    >>> [(cell.seed, cell.method) for cell in part.cells]
    [(3, 'one'), (5, 'one'), (5, 'other')]
    """

    tasks: tuple[tuple[str, str], ...]
    methods: tuple[str, ...]
    seeds: int | tuple[int, ...]
    settings: dict[str, Any]
    only: dict[str, Part] = field(default_factory=dict)

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
        return json.loads(json.dumps(given))

    @classmethod
    def of(cls, record: dict[str, Any]) -> Plan:
        """From `record`, which anybody may have changed: a ValueError, TypeError or KeyError says what is wrong."""
        given = dict(record)
        tasks, methods, seeds = _tasks(given.pop("tasks")), given.pop("methods"), given.pop("seeds")
        if not (isinstance(methods, list) and all(isinstance(method, str) for method in methods)):
            raise ValueError("'methods' that are not a list of names")
        only = {
            method: Part(_tasks(part["tasks"]), tuple(part["seeds"])) for method, part in given.pop("only", {}).items()
        }
        plan = cls(tasks, tuple(methods), seeds if type(seeds) is int else tuple(seeds), given, only)
        few = len(seeds) if isinstance(seeds, list) else seeds
        if not 0 < few <= MOST_SEEDS or not all(type(seed) is int for seed in plan.all_seeds):
            raise ValueError(f"'seeds' that are not at most {MOST_SEEDS} whole numbers")
        return plan

    def differences(self, other: dict[str, Any]) -> list[str]:
        """What another record says otherwise, by name."""
        return differences(self.record(), other)


def _tasks(given: Any) -> tuple[tuple[str, str], ...]:
    tasks = tuple((group, task) for group, task in given)
    if not all(isinstance(word, str) for task in tasks for word in task):
        raise ValueError("'tasks' that are not pairs of names")
    return tasks
