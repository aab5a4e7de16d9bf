"""The metrics of a run: a line of JSON for every step that is worth one, none of them lost or torn by a crash."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from adaptive_ot.deep.fields import Natural, checked
from adaptive_ot.deep.methods.method import diverged
from adaptive_ot.workbench.files import trouble, write_atomically
from adaptive_ot.workbench.records import flat

# Everything else in a line is a number.
KINDS = {"step": Natural, "per_class": dict[str, float]}


class Metrics:
    """A file of lines, each with the number of its "step".

    Parameters
    ----------
    path
        The file.
    before
        Only lines of earlier steps are kept: those from there on come again. What a crash has torn is no line, nor is
        what no run writes.
    writes
        False for a process that only looks on: it has the same `lines`, the file is another's.
    """

    def __init__(self, path: Path, before: float, *, writes: bool) -> None:
        self._name = f"output '{path}'"
        with trouble(self._name, "must be a file that can be read and written"):
            found = path.read_bytes() if path.exists() else b""
            lines = map(_parsed, found.splitlines(keepends=True))
            self.lines = [line for line in lines if line and line["step"] < before]
            self._file = self._cleared(path, found) if writes else None

    def _cleared(self, path: Path, found: bytes) -> IO[bytes]:
        """The file without what is no line any more, to add others to."""
        kept = b"".join(map(_text, self.lines))
        if kept != found:
            write_atomically("output", path, lambda file: file.write(kept))
        return open(path, "ab", buffering=0)

    def append(self, line: Mapping[str, Any]) -> None:
        """Add a line; a process that is killed does not lose it."""
        try:
            text = _text(line)
        except ValueError:
            raise diverged("metrics", f"{_not_finite(line)} at step {line['step']}") from None
        if self._file:
            with trouble(self._name, "must have room for the metrics"):
                if self._file.write(text) != len(text):
                    raise OSError("the disk is full")
        self.lines.append(json.loads(text))

    def settle(self) -> None:
        """Let no power cut take lines back."""
        if self._file:
            with trouble(self._name, "must have room for the metrics"):
                os.fsync(self._file.fileno())

    def close(self) -> None:
        if self._file:
            self._file.close()


def _text(line: Mapping[str, Any]) -> bytes:
    return json.dumps(line, allow_nan=False).encode() + b"\n"


def _parsed(line: bytes) -> dict[str, Any] | None:
    """A line, if it is whole and holds what a run writes."""
    try:
        found = json.loads(line)
        for name, value in found.items():
            checked(name, value, KINDS.get(name, float))
    except (ValueError, AttributeError, RecursionError):
        return None
    return found if line.endswith(b"\n") and "step" in found else None


def _not_finite(line: Mapping[str, Any]) -> str:
    values = flat(dict(line)).items()
    return ", ".join(f"{name} {value}" for name, value in values if value != value or value in (math.inf, -math.inf))
