"""Study files (plan files to users): the rows, tasks and seeds of a deep benchmark, written as TOML."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

from adaptive_ot._validation import describe
from adaptive_ot.deep.config import Config
from adaptive_ot.deep.fields import checked, refuse_unknown
from adaptive_ot.errors import InvalidInput
from adaptive_ot.workbench.files import check_input, trouble

# Fields of a training run that differ between cells, that all rows share, and that make a row.
OF_CELLS = {"source", "target", "output", "seed"}
OF_DATA = {"dataset", "root", "source_classes", "target_classes", "unknown"}
OF_ROWS = {"method", "settings"}
FIELDS = {each.name for each in fields(Config)} - OF_CELLS
TOP = FIELDS - OF_ROWS | {"published", "protocol", "tasks", "seeds", "methods", "keep_checkpoints"}
ROW = FIELDS - OF_DATA | {"published", "tasks", "seeds", "name"}


class Row(NamedTuple):
    """A method under its name in the table, the arguments of `adaptive_ot.deep.configure`, and its tasks and seeds."""

    name: str
    options: dict[str, Any]
    tasks: tuple[str, ...]
    seeds: tuple[int, ...]


class StudyFile(NamedTuple):
    """The content of a study file.

    `shared` holds arguments of `adaptive_ot.deep.configure` for all rows, `more` everything else.
    """

    path: Path
    shared: dict[str, Any]
    tasks: tuple[str, ...]
    seeds: tuple[int, ...]
    keep_checkpoints: bool
    more: dict[str, Any]
    rows: tuple[Row, ...] = ()

    def row(self, table: dict[str, Any]) -> Row:
        """A row from a table of the file."""
        name = table.get("name", table.get("method"))
        if not (isinstance(name, str) and name.strip() and name.isprintable()):
            remedy = 'Write name = "..." under [[methods]].'
            raise InvalidInput(f"name in plan '{self.path}'", "must be text", describe(name), remedy)
        with located_in(self.path, name):
            refuse_unknown(table, sorted(ROW), "key")
            checked("method", table.get("method"), str)
            tasks = _tasks(table["tasks"]) if "tasks" in table else self.tasks
            seeds = _seeds(table["seeds"]) if "seeds" in table else self.seeds
            own = {key: value for key, value in table.items() if key not in ("name", "tasks", "seeds")}
            return Row(name, self.shared | _with_paths(own, self.path.parent), tasks, seeds)


def read_study(path: Path, more: frozenset[str] = frozenset()) -> StudyFile:
    """Read a study file.

    Parameters
    ----------
    path
        The file.
    more
        Further keys that it may have at the top.
    """
    check_input(f"plan '{path}'", path, (".toml",))
    with trouble(f"plan '{path}'", "must be valid TOML"):
        found = tomllib.loads(path.read_text("utf-8"))
    with located_in(path):
        refuse_unknown(found, sorted(TOP | more), "key")
        for name in ("dataset", "root"):
            checked(name, found.get(name), str)
        tables = found.pop("methods", [])
        if not (isinstance(tables, list) and all(isinstance(table, dict) for table in tables)):
            raise InvalidInput("methods", "must be tables", describe(tables), "Start each with [[methods]].")
        content = StudyFile(
            path=path,
            tasks=_tasks(found.pop("tasks", None)),
            seeds=_seeds(found.pop("seeds", [0])),
            keep_checkpoints=checked("keep_checkpoints", found.pop("keep_checkpoints", False), bool),
            more={name: found.pop(name) for name in more & set(found)},
            shared=_with_paths(found, path.parent),
        )
    return content._replace(rows=tuple(map(content.row, tables)))


@contextmanager
def located_in(path: Path, row: str | None = None) -> Iterator[None]:
    """Let error messages name the file, and the row of the table."""
    try:
        yield
    except InvalidInput as error:
        where = f"in plan '{path}'" if row is None else f"of '{row}' in plan '{path}'"
        raise InvalidInput(f"{error.argument} {where}", error.rule, error.given, error.remedy) from None


def _with_paths(options: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Paths are relative to the study file; "imagenet" is not a path."""
    options = dict(options)
    if "root" in options:
        options["root"] = (folder / options["root"]).absolute()
    if isinstance(options.get("weights"), str) and options["weights"] != "imagenet":
        options["weights"] = str((folder / options["weights"]).absolute())
    if "published" in options:
        checked("published", options["published"], bool)
    return options


def _tasks(given: Any) -> tuple[str, ...]:
    texts = given if isinstance(given, list) else []
    if not texts or not all(isinstance(text, str) and all(text.split(":")) and text.count(":") == 1 for text in texts):
        rule, remedy = "must be a list of SOURCE:TARGET", 'Write tasks = ["photo:sketch"], say.'
        raise InvalidInput("tasks", rule, describe(given), remedy)
    return _different("tasks", texts)


def _seeds(given: Any) -> tuple[int, ...]:
    numbers = list(range(given)) if type(given) is int and 0 < given <= 1000 else given
    if not (isinstance(numbers, list) and numbers and all(type(seed) is int and 0 <= seed < 2**31 for seed in numbers)):
        rule, remedy = "must be whole numbers from 0, or how many", "Write seeds = [0, 1, 2] or seeds = 3, say."
        raise InvalidInput("seeds", rule, describe(given), remedy)
    return _different("seeds", numbers)


def _different(name: str, given: list[Any]) -> tuple[Any, ...]:
    twice = next((each for each in given if given.count(each) > 1), None)
    if twice is not None:
        raise InvalidInput(name, "must be different", f"{twice!r} twice", "Remove one of them.")
    return tuple(given)
