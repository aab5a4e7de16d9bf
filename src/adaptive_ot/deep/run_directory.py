"""The directory of a training run: what it is, how it went, where it goes on, and what came of it.

::

    run.json         the config, the data, and what it was computed with
    metrics.jsonl    a line for every step that is worth one
    checkpoints/     the newest, and the one before
    result.json      once it is finished
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from adaptive_ot.deep.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from adaptive_ot.deep.config import Config
from adaptive_ot.deep.fields import checked, restored
from adaptive_ot.deep.metrics import Metrics
from adaptive_ot.errors import InvalidInput
from adaptive_ot.workbench.environment import environment
from adaptive_ot.workbench.files import alone_in, make_directory, one_with, trouble, write_atomically
from adaptive_ot.workbench.records import differences

RUN, METRICS, CHECKPOINTS, RESULT = "run.json", "metrics.jsonl", "checkpoints", "result.json"

# Fields of a config that may change while a run is stopped: where things are and how fast they are done. Not the number
# of iterations, which sets the pace of a method, nor how often is evaluated, which decides on the best iterate. What
# the files of images and weights hold is told apart by digests in the data of a run.
FREE = ("output", "root", "weights", "device", "workers", "storage", "checkpoint_every")

# What a killed process may leave.
LEFT_OVER = re.compile(r"\.(run\.json|metrics\.jsonl|result\.json)\.[0-9a-f]+\.tmp")


class Run(NamedTuple):
    """A run as it lies in its directory."""

    config: Config
    data: dict[str, Any]
    checkpoint: Checkpoint | None
    result: dict[str, Any] | None


class Account(NamedTuple):
    """How a run went so far, finished or not, without its network."""

    config: Config
    data: dict[str, Any]
    environments: list[Any]
    lines: list[dict[str, Any]]
    result: dict[str, Any] | None


class RunDirectory:
    """A run that is written; made by `open_run`.

    Attributes
    ----------
    checkpoint
        Where it goes on; None at the beginning.
    result
        What came of it, if it is finished.
    """

    def __init__(self, config: Config, data: Mapping[str, Any]) -> None:
        self.path, self._name = config.output, f"output '{config.output}'"
        data = json.loads(json.dumps(data))
        record = {"config": config.record(), "data": data, "environments": [environment()]}
        self._begin(record)
        self._resume(record, writes=True)

    def lines(self) -> list[dict[str, Any]]:
        """All lines of the metrics so far."""
        return list(self._metrics.lines)

    def append(self, line: Mapping[str, Any]) -> None:
        """Add a line to the metrics; its "step" counts from 0, so a checkpoint holds what lines below its step led to.

        A process that is killed loses no line, a power cut none from before the last checkpoint.
        """
        self._metrics.append(line)

    def save(self, checkpoint: Checkpoint) -> None:
        """Keep a checkpoint, and the lines before it."""
        self._metrics.settle()
        save_checkpoint(self.path / CHECKPOINTS, checkpoint, self._identity)

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write what came of it."""
        self._metrics.settle()
        self._write(RESULT, result)
        self.result = dict(result)

    def close(self) -> None:
        self._metrics.close()

    def _begin(self, record: dict[str, Any]) -> None:
        """Note what is run, unless that is noted already; refuse what is not ours."""
        with trouble(self._name, "must be a directory to write to"):
            left_over = [path for path in self.path.iterdir() if LEFT_OVER.fullmatch(path.name)]
            found = sorted({path.name for path in self.path.iterdir()} - {path.name for path in left_over})
        if found and RUN not in found:
            rule, remedy = "must be new, empty, or hold a run", "Choose another directory."
            raise InvalidInput(self._name, rule, one_with(found), remedy)
        there = _read_run(self.path) if found else record
        with trouble(self._name, "must be a directory to write to"):
            for path in left_over:
                path.unlink()
        if not self._begun():
            self._write(RUN, record)
            return
        different = differences(_identity(record), _identity(there))
        if different:
            given = f"one with other settings: {'; '.join(different)}"
            raise InvalidInput(self._name, "must be new or hold the same run", given, "Choose another directory.")
        if record["environments"][0] not in there["environments"]:
            self._write(RUN, record | {"environments": there["environments"] + record["environments"]})

    def _begun(self) -> bool:
        """Something was done: otherwise there is nothing to lose, and a command may be corrected."""
        metrics = self.path / METRICS
        return (
            (metrics.exists() and metrics.stat().st_size > 0)
            or (self.path / CHECKPOINTS).exists()
            or (self.path / RESULT).exists()
        )

    def _resume(self, record: Mapping[str, Any], *, writes: bool) -> None:
        """Look where it goes on."""
        self._identity = _identity(record)
        self.result = _result(self.path)
        self.checkpoint = load_checkpoint(self.path / CHECKPOINTS, self._identity)
        step = math.inf if self.result else self.checkpoint.step if self.checkpoint else 0
        self._metrics = Metrics(self.path / METRICS, before=step, writes=writes)

    def _write(self, name: str, record: Mapping[str, Any]) -> None:
        text = json.dumps(record, indent=2, allow_nan=False) + "\n"
        write_atomically("output", self.path / name, lambda file: file.write(text.encode()))


class Onlooker(RunDirectory):
    """A run that another process writes, seen by one that shares its work: the same, but nothing is written."""

    def __init__(self, config: Config, data: Mapping[str, Any]) -> None:
        self.path, self._name = config.output, f"output '{config.output}'"
        self._resume({"config": config.record(), "data": data}, writes=False)

    def save(self, checkpoint: Checkpoint) -> None: ...
    def finish(self, result: Mapping[str, Any]) -> None: ...


@contextmanager
def open_run(config: Config, data: Mapping[str, Any], *, writes: bool = True) -> Iterator[RunDirectory]:
    """Begin a run in its directory, or go on with it; no other process can meanwhile.

    Parameters
    ----------
    config
        With the directory, `output`, which is made if it does not exist. One that holds something else is refused.
    data
        A digest of the data, as JSON values. The same run with other data is another run.
    writes
        Of several processes that share a run, one.
    """
    if not writes:
        yield Onlooker(config, data)
        return
    make_directory("output", config.output)
    with alone_in(config.output):
        run = RunDirectory(config, data)
        try:
            yield run
        finally:
            run.close()


def read_run(path: Path) -> Run:
    """A run as it lies in its directory, without changing anything."""
    path = checked("run", path, Path)
    record = _read_run(path)
    config = restored(Config, record["config"], path, RUN)
    checkpoint = load_checkpoint(path / CHECKPOINTS, _identity(record))
    return Run(config, record["data"], checkpoint, _result(path))


def read_account(path: Path) -> Account:
    """How a run went so far, without changing anything; checkpoints are not looked at."""
    record = _read_run(path)
    config = restored(Config, record["config"], path, RUN)
    lines = Metrics(path / METRICS, before=math.inf, writes=False).lines
    return Account(config, record["data"], record["environments"], lines, _result(path))


def decisive(config: Config) -> dict[str, Any]:
    """What the result depends on, beside the data."""
    return {name: value for name, value in config.record().items() if name not in FREE}


def _identity(record: Mapping[str, Any]) -> dict[str, Any]:
    """What tells two runs apart, settings by their own names."""
    return {name: value for name, value in record["config"].items() if name not in FREE} | {"data": record["data"]}


def _read_run(path: Path) -> dict[str, Any]:
    record = _read_object(path / RUN)
    kinds = {"config": dict, "data": dict, "environments": list}
    if not all(isinstance(record.get(name), kind) for name, kind in kinds.items()):
        raise InvalidInput(f"run '{path}'", f"must hold the {RUN} of a training run", "another", "Check the path.")
    return record


def _read_object(path: Path) -> dict[str, Any]:
    name = f"run '{path.parent}'"
    with trouble(name, f"must hold a {path.name} that can be read"):
        found = json.loads(path.read_bytes(), parse_constant=_finite, parse_float=_finite)
    if not isinstance(found, dict):
        raise InvalidInput(name, f"must hold a {path.name} that can be read", "something else", "Check the path.")
    return found


def _finite(text: str) -> float:
    """Python reads NaN and infinities, too."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text}")
    return value


def _result(path: Path) -> dict[str, Any] | None:
    return _read_object(path / RESULT) if (path / RESULT).exists() else None
