"""A row of a deep benchmark that is chosen among the others for every task and seed, without labels of the target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from adaptive_ot.deep.selection import DEFAULT, Selection, select
from adaptive_ot.workbench.benchmark.deep import directory_of
from adaptive_ot.workbench.benchmark.study import Cell, Outcome, Study
from adaptive_ot.workbench.benchmark.table import markdown

NAME = f"selected by {DEFAULT}"


class SelectedTask(NamedTuple):
    """The finished rows of a task with one seed, and what the criteria say of them, in the same order."""

    group: str
    task: str
    seed: int
    outcomes: tuple[Outcome, ...]
    selection: Selection

    @property
    def rows(self) -> list[str]:
        return [outcome.cell.method for outcome in self.outcomes]

    @property
    def chosen(self) -> Outcome:
        """The row that the default criterion chooses."""
        return self.outcomes[self.selection.candidates.index(self.selection.choice(DEFAULT))]

    def outcome(self) -> Outcome:
        """The numbers of the chosen row; the seconds of all, since the choice needs all."""
        every = [outcome.numbers or {} for outcome in self.outcomes]
        numbers = {**(self.chosen.numbers or {}), "seconds": sum(numbers["seconds"] for numbers in every)}
        return Outcome(Cell(self.group, self.task, NAME, self.seed), numbers)


def select_each(
    study: Study,
    outcomes: list[Outcome],
    directory: Path,
    *,
    samples: int = 1000,
    device: str = "auto",
    progress: Callable[[str], None] = lambda _: None,
) -> Iterator[SelectedTask]:
    """Compare the finished rows of every task and seed that has at least two; `directory` is that of the benchmark."""
    for group, task in study.tasks:
        for seed in study.all_seeds:
            finished = tuple(
                outcome
                for outcome in outcomes
                if outcome.numbers and (outcome.cell.group, outcome.cell.task, outcome.cell.seed) == (group, task, seed)
            )
            if len(finished) > 1:
                runs = [directory_of(outcome.cell, directory) for outcome in finished]
                yield SelectedTask(
                    group, task, seed, finished, select(runs, samples=samples, device=device, progress=progress)
                )


def table_with_selected(study: Study, outcomes: list[Outcome], selected: list[SelectedTask]) -> str:
    """The tables of a benchmark with one more row, and which rows it consists of."""
    extended = replace(study, methods=(*study.methods, NAME))
    counts = Counter(each.chosen.cell.method for each in selected)
    parts = ", ".join(f"{row} {count} x" for row, count in counts.most_common())
    note = f"'{NAME}' is chosen for every task and seed without labels of the target: {parts or 'nothing to choose'}."
    return f"{markdown(extended, [*outcomes, *(each.outcome() for each in selected)])}\n{note}\n"


def records(selected: list[SelectedTask]) -> list[dict[str, Any]]:
    """What was chosen, and the scores by which it was."""
    return [
        {
            "group": each.group,
            "task": each.task,
            "seed": each.seed,
            "method": each.chosen.cell.method,
            "scores": {
                row: candidate.scores for row, candidate in zip(each.rows, each.selection.candidates, strict=True)
            },
        }
        for each in selected
    ]
