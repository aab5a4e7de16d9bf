"""Values from files of a run, which anybody may have changed since: each is what it should be, or refused by name."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adaptive_ot._validation import LARGEST, describe
from adaptive_ot.errors import InvalidInput
from adaptive_ot.workbench.files import trouble
from adaptive_ot.workbench.report.contents import Facts
from adaptive_ot.workbench.runs import flat

# More letters of one value are not shown.
LETTERS = 2000

LARGEST_WHOLE = 2**63 - 1


class Fields:
    """A table of values.

    Parameters
    ----------
    name
        What to call the file in complaints.
    values
        By name.

    Examples
    --------
    >>> Fields("result.json", {"accuracy": "high"}).number("accuracy")
    Traceback (most recent call last):
    adaptive_ot.errors.InvalidInput: result.json must hold 'accuracy' as a number; got 'high'. Make it anew.
    """

    def __init__(self, name: str, values: Mapping[str, Any]) -> None:
        self.name, self.values = name, values

    def number(self, key: str) -> float:
        """It may be infinite, as the gap of a solve that proved nothing."""
        value = self.values.get(key)
        if not (is_number(value) or (isinstance(value, float) and math.isinf(value))):
            self._refuse(key, "a number")
        return float(self.values[key])

    def amount(self, key: str, most: float = LARGEST) -> float:
        """Mass, seconds: finite, and not negative."""
        value: Any = self.values.get(key)
        if not (is_number(value) and 0 <= value <= most):
            self._refuse(key, "a finite number from 0" + (f" to {most:g}" if most < LARGEST else ""))
        return float(self.values[key])

    def share(self, key: str) -> float:
        return self.amount(key, most=1.0)

    def whole(self, key: str, most: int = LARGEST_WHOLE) -> int:
        value = self.values.get(key)
        if type(value) is not int or not 0 <= value <= most:
            self._refuse(key, "a whole number from 0" + (f" to {most}" if most < LARGEST_WHOLE else ""))
        return self.values[key]

    def text(self, key: str) -> str:
        if not isinstance(self.values.get(key), str):
            self._refuse(key, "text")
        return self.values[key]

    def texts(self, key: str) -> list[str]:
        value = self.values.get(key)
        if not (isinstance(value, list) and all(isinstance(each, str) for each in value)):
            self._refuse(key, "a list of words")
        return self.values[key]

    def table(self, key: str) -> dict[str, Any]:
        if not isinstance(self.values.get(key), dict):
            self._refuse(key, "names and values")
        return self.values[key]

    def counts(self, key: str) -> dict[str, int]:
        inside = Fields(self.name, self.table(key))
        return {name: inside.whole(name) for name in inside.values}

    def is_given(self, key: str) -> bool:
        """Whether it has a value that is not null."""
        return self.values.get(key) is not None

    def _refuse(self, key: str, kind: str) -> None:
        given = describe(self.values[key]) if key in self.values else "none"
        raise InvalidInput(self.name, f"must hold '{key}' as {kind}", given, "Make it anew.")


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


def counted(number: int, noun: str) -> str:
    """
    Examples
    --------
    >>> counted(1, "pair"), counted(1200, "pair"), counted(2, "pass")
    ('1 pair', '1,200 pairs', '2 passes')
    """
    return f"{number:,} {noun}{'' if number == 1 else 'es' if noun.endswith('s') else 's'}"


def folded(heading: str, record: Mapping[str, Any]) -> Facts:
    """All of a configuration or an environment, names of names in one."""
    rows = [
        (name, _shown(_pasteable(value) if name == "command" else value)) for name, value in flat({**record}).items()
    ]
    return Facts(heading, rows, folded=True)


def _pasteable(command: Any) -> Any:
    """Words as a shell would take them."""
    return shlex.join(map(str, command)) if isinstance(command, list) else command


def _shown(value: Any) -> str:
    """As people write it."""
    if isinstance(value, list):
        text = ", ".join(map(_shown, value)) or "none"
    elif isinstance(value, bool) or value is None:
        text = {None: "none", True: "yes", False: "no"}[value]
    elif isinstance(value, float) and float(f"{value:g}") == value:
        text = f"{value:g}"
    else:
        text = str(value)
    return text if len(text) <= LETTERS else f"{text[:LETTERS]}…"
