"""What a benchmark consists of: cells, one for every task, seed and method."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

from adaptive_ot._records import differences


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


@dataclass(frozen=True)
class Plan:
    """All cells, and everything else that their numbers depend on.

    Examples
    --------
    >>> plan = Plan((("digits", "mnist -> usps"),), ("one", "other"), seeds=2, settings={"samples": 100})
    >>> len(plan.cells)
    4
    >>> plan.differences(plan.record() | {"seeds": 3})
    ['seeds 3, not 2']
    >>> plan.differences(plan.record() | {"samples": 50, "drop": 1})
    ['samples 50, not 100', 'drop 1, not None']
    """

    tasks: tuple[tuple[str, str], ...]
    methods: tuple[str, ...]
    seeds: int
    settings: dict[str, Any]

    @property
    def cells(self) -> list[Cell]:
        """In the order in which they run: every method on one draw of the data, then the next draw."""
        return [
            Cell(group, task, method, seed)
            for group, task in self.tasks
            for seed in range(self.seeds)
            for method in self.methods
        ]

    def record(self) -> dict[str, Any]:
        """As JSON would bring it back."""
        given = {"tasks": self.tasks, "methods": self.methods, "seeds": self.seeds, **self.settings}
        return json.loads(json.dumps(given))

    def differences(self, other: dict[str, Any]) -> list[str]:
        """What another record says otherwise, by name."""
        return differences(self.record(), other)
