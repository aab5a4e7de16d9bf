"""Values from the files of a run, which anybody may have changed since: each is checked, or refused by name."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from adaptive_ot._validation import LARGEST, LARGEST_INTEGER, describe
from adaptive_ot.errors import InvalidInput
from adaptive_ot.workbench.files import trouble
from adaptive_ot.workbench.report.contents import Facts
from adaptive_ot.workbench.runs import flat

# Letters of one value that are shown.
LETTERS = 2000


class Fields:
    """Names and values of a file, checked when they are asked for.

    Examples
    --------
    >>> Fields("result.json", {"accuracy": "high"}).number("accuracy")
    Traceback (most recent call last):
    adaptive_ot.errors.InvalidInput: result.json must hold 'accuracy' as a number; got 'high'. Write it again.
    """

    def __init__(self, name: str, values: Mapping[str, Any]) -> None:
        self.name, self.values = name, values

    def number(self, key: str) -> float:
        """A number, possibly infinite, like the gap of a solve without a bound."""
        return float(self._get(key, "a number", lambda value: is_number(value) or value in (math.inf, -math.inf)))

    def amount(self, key: str, most: float = LARGEST) -> float:
        """A finite number that is not negative, like mass or seconds."""
        kind = "a finite number from 0" + (f" to {most:g}" if most < LARGEST else "")
        return float(self._get(key, kind, lambda value: is_number(value) and 0 <= value <= most))

    def whole(self, key: str, most: int = LARGEST_INTEGER) -> int:
        kind = "a whole number from 0" + (f" to {most}" if most < LARGEST_INTEGER else "")
        return self._get(key, kind, lambda value: type(value) is int and 0 <= value <= most)

    def text(self, key: str) -> str:
        return self._get(key, "text", lambda value: isinstance(value, str))

    def texts(self, key: str) -> list[str]:
        return self._get(
            key,
            "a list of words",
            lambda value: isinstance(value, list) and all(isinstance(each, str) for each in value),
        )

    def table(self, key: str) -> dict[str, Any]:
        return self._get(key, "names and values", lambda value: isinstance(value, dict))

    def counts(self, key: str) -> dict[str, int]:
        inside = Fields(self.name, self.table(key))
        return {name: inside.whole(name) for name in inside.values}

    def is_given(self, key: str) -> bool:
        """Whether there is a value that is not null."""
        return self.values.get(key) is not None

    def _get(self, key: str, kind: str, is_valid: Callable[[Any], bool]) -> Any:
        value = self.values.get(key)
        if not is_valid(value):
            given = describe(value) if key in self.values else "none"
            raise InvalidInput(self.name, f"must hold '{key}' as {kind}", given, "Write it again.")
        return value


def read_fields(path: Path) -> Fields:
    """The names and values of a .json file."""
    name = f"'{path}'"
    with trouble(name, "must be a file of names and values"):
        found = json.loads(path.read_bytes())
        if not isinstance(found, dict):
            raise ValueError(f"a {type(found).__name__}")
        flat(found)  # raises where it is nested too deeply to be shown
    return Fields(name, found)


def is_number(value: Any) -> bool:
    """
    Examples
    --------
    >>> [is_number(value) for value in (1, 0.5, True, "1", float("nan"), 10**400)]
    [True, True, False, False, False, False]
    """
    return type(value) in (int, float) and -LARGEST <= value <= LARGEST


def folded(heading: str, record: Mapping[str, Any]) -> Facts:
    """A whole configuration or environment; nested names become one, a command can be pasted into a shell."""
    values = flat({**record})
    if isinstance(values.get("command"), list):
        values["command"] = shlex.join(map(str, values["command"]))
    return Facts(heading, [(name, _text(value)) for name, value in values.items()], folded=True)


def _text(value: Any) -> str:
    if isinstance(value, list):
        text = ", ".join(map(_text, value)) or "none"
    elif isinstance(value, bool) or value is None:
        text = {None: "none", True: "yes", False: "no"}[value]
    elif isinstance(value, float) and float(f"{value:g}") == value:
        text = f"{value:g}"
    else:
        text = str(value)
    return text if len(text) <= LETTERS else f"{text[:LETTERS]}…"
