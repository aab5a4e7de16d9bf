"""Directories of resumable runs: a lock, a record of the settings, and a journal of finished work.

A benchmark, a training run and everything else that survives a crash is such a directory. Its record, a JSON object,
tells whether a later command continues the same run. Its journal has a line of JSON for every finished piece of work.
"""

from __future__ import annotations

import json
import math
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from adaptive_ot._validation import describe
from adaptive_ot.errors import InvalidInput
from adaptive_ot.workbench.files import accessible, make_directory, one_with, trouble, write_atomically

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None

# Temporary files that a killed process may leave; see `write_atomically`.
LEFT_OVER = re.compile(r"\..+\.[0-9a-f]+\.tmp")

_locks: set[int] = set()


def _leave_locks_to_the_parent() -> None:
    """Otherwise a forked process that outlives its parent, even by a second, would keep the locks."""
    while _locks:
        os.close(_locks.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_locks_to_the_parent)


@contextmanager
def alone_in(directory: Path) -> Iterator[None]:
    """Keep other runs from writing to the directory. The lock goes with the process, whatever ends it."""
    make_directory("output", directory)
    if not fcntl:
        yield
        return
    with accessible(f"output '{directory}'", "must be a directory to write to"):
        descriptor = os.open(directory, os.O_RDONLY)  # the directory itself, as files in it are replaced
    _locks.add(descriptor)
    try:
        with suppress(OSError):  # some file systems have no locks
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                rule, remedy = "must not be in use", "Wait until it has ended, or choose another directory."
                raise InvalidInput(f"output '{directory}'", rule, "another run that writes to it", remedy) from None
        yield
    finally:
        if descriptor in _locks:
            _locks.remove(descriptor)
            os.close(descriptor)


@contextmanager
def on_signal(number: signal.Signals, handler: Callable[..., None] | signal.Handlers) -> Iterator[None]:
    """Handle a signal within this context; only the main thread receives any."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def holds_run(directory: Path, record: str, kind: str) -> bool:
    """Whether a directory holds a run, by its file `record`; a directory with other files is refused.

    Hidden files do not count, and leftovers of a killed process are removed.
    """
    name = f"output '{directory}'"
    with accessible(name, "must be a directory to write to"):
        names = sorted(path.name for path in directory.iterdir())
        found = [each for each in names if not each.startswith(".")]
        if found and record not in found:
            rule, remedy = f"must be new, empty, or hold a {kind}", "Choose another directory."
            raise InvalidInput(name, rule, one_with(found), remedy)
        for each in filter(LEFT_OVER.fullmatch, names):
            (directory / each).unlink()
    return bool(found)


def refuse_another(directory: Path, kind: str, here: dict[str, Any], there: dict[str, Any]) -> None:
    """Refuse to continue a run whose record differs."""
    different = differences(here, there)
    if different:
        given = f"one with other settings: {'; '.join(different)}"
        rule, remedy = f"must be new or hold the same {kind}", "Choose another directory."
        raise InvalidInput(f"output '{directory}'", rule, given, remedy)


def read_record(name: str, path: Path) -> dict[str, Any]:
    """A JSON object from a file; `name` is the directory in error messages."""
    rule = f"must hold a {path.name} that can be read"
    with trouble(name, rule):
        found = json.loads(path.read_bytes(), parse_constant=_finite, parse_float=_finite)
    if not isinstance(found, dict):
        raise InvalidInput(name, rule, "something else", "Check the path.")
    return found


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    text = json.dumps(record, indent=2, allow_nan=False) + "\n"
    write_atomically("output", path, lambda file: file.write(text.encode()))


class Journal:
    """A file of lines, each a JSON object, none of which is lost or torn by a crash.

    Parameters
    ----------
    path
        The file. Incomplete or foreign lines are discarded.
    keeps
        Whether a line is kept.
    writes
        False for a process that only reads: it has the same `lines`, but leaves the file alone.
    """

    def __init__(self, path: Path, keeps: Callable[[dict[str, Any]], bool], *, writes: bool) -> None:
        self._name = f"output '{path}'"
        with accessible(self._name, "must be a file that can be read and written"):
            found = path.read_bytes() if path.exists() else b""
            self.lines = list(filter(keeps, _parsed(found)))
            kept = b"".join(map(_line, self.lines))
            if writes and kept != found:
                write_atomically("output", path, lambda file: file.write(kept))
            self._file = open(path, "ab", buffering=0) if writes else None  # noqa: SIM115

    def append(self, line: Mapping[str, Any]) -> None:
        """Add a line that survives the end of the process; a ValueError if a number in it is not finite."""
        text = _line(line)
        if self._file:
            with accessible(self._name, "must have room for another line"):
                if self._file.write(text) != len(text):
                    raise OSError("the disk is full")
        self.lines.append(json.loads(text))

    def settle(self) -> None:
        """Make all lines survive a power cut."""
        if self._file:
            with accessible(self._name, "must have room for another line"):
                os.fsync(self._file.fileno())

    def close(self) -> None:
        if self._file:
            self._file.close()


def read_journal(path: Path, keeps: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
    """The lines of a journal that another process may be writing."""
    return Journal(path, keeps, writes=False).lines


def _line(line: Mapping[str, Any]) -> bytes:
    return json.dumps(line, allow_nan=False).encode() + b"\n"


def _parsed(content: bytes) -> Iterator[dict[str, Any]]:
    """The JSON objects among the lines. No part of an object is an object: a torn line is never taken for a whole."""
    for line in content.splitlines():
        with suppress(ValueError, RecursionError):
            found = json.loads(line, parse_constant=_finite, parse_float=_finite)
            if isinstance(found, dict):
                yield found


def _finite(text: str) -> float:
    """Python's JSON also reads NaN and infinities."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text}")
    return value


# The value of a name that a record does not have.
NOTHING = object()


def differences(here: dict[str, Any], there: dict[str, Any]) -> list[str]:
    """The values of `there` that differ from those of `here`, by name.

    Examples
    --------
    >>> differences({"seeds": 2, "data": {"digits": "a"}}, {"seeds": 3, "data": {"digits": "a"}})
    ['seeds 3, not 2']
    >>> differences({"tasks": ["a", "b"]}, {"tasks": ["b", "c"]})
    ['tasks with c and without a']
    >>> differences({"seeds": 2}, {})
    ['no seeds (here 2)']
    """
    ours, theirs = flat(here), flat(there)
    return [
        _difference(name, theirs.get(name, NOTHING), ours.get(name, NOTHING))
        for name in ours | theirs
        if ours.get(name, NOTHING) != theirs.get(name, NOTHING)
    ]


def flat(record: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested names as one, as in "data pets photo.npz"."""
    names = {}
    for name, value in record.items():
        names |= flat(value, f"{prefix}{name} ") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return names


def _difference(name: str, there: Any, here: Any) -> str:
    if there is NOTHING:
        return f"no {name} (here {describe(here)})"
    if here is NOTHING:
        return f"{name} {describe(there)} (here none)"
    if not (isinstance(there, list) and isinstance(here, list)):
        return f"{name} {describe(there)}, not {describe(here)}"
    more, less = ([str(each) for each in one if each not in other] for one, other in ((there, here), (here, there)))
    parts = [f"{word} {', '.join(names)}" for word, names in (("with", more), ("without", less)) if names]
    return f"{name} {' and '.join(parts) or 'in another order'}"
