"""The directory of a training run.

::

    run.json         the config, the data, and the environments it was computed in
    metrics.jsonl    losses and accuracies, a line for every step that has some
    checkpoints/     the newest, and the one before
    result.json      once it is finished
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from adaptive_ot.deep.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from adaptive_ot.deep.config import Config
from adaptive_ot.deep.fields import Natural, checked, restored
from adaptive_ot.deep.methods.method import diverged
from adaptive_ot.errors import InvalidInput
from adaptive_ot.workbench.environment import environment
from adaptive_ot.workbench.runs import (
    Journal,
    alone_in,
    flat,
    holds_run,
    read_journal,
    read_record,
    refuse_another,
    write_record,
)

RUN, METRICS, CHECKPOINTS, RESULT = "run.json", "metrics.jsonl", "checkpoints", "result.json"

# Fields of a config that may change while a run is stopped: they decide where things are and how fast they go. Not the
# number of iterations, which sets the pace of a method, nor how often is evaluated, which decides on the best iterate.
# Other images or weights in the files are noticed by digests in the data of a run.
FREE = ("output", "root", "weights", "device", "workers", "storage", "checkpoint_every")

# Fields that earlier versions did not have, with the values they worked with: their runs can go on.
ADDED = {"source_classes": [], "unknown": "refuse"}

# Likewise settings of methods.
ADDED_SETTINGS = {"presence": "ignored"}

# Everything else in a line of the metrics is a number.
KINDS = {"step": Natural, "per_class": dict[str, float]}


@dataclass(frozen=True)
class Run:
    """A run as read from its directory, finished or not; its checkpoint is read when it is needed."""

    path: Path
    config: Config
    record: dict[str, Any]  # the content of run.json
    result: dict[str, Any] | None

    @cached_property
    def checkpoint(self) -> Checkpoint | None:
        return load_checkpoint(self.path / CHECKPOINTS, _identity(self.record))


class RunDirectory:
    """An open run; made by `open_run`.

    Attributes
    ----------
    checkpoint
        Where the run continues; None at the beginning.
    result
        The result of a finished run, otherwise None.
    """

    def __init__(self, config: Config, data: Mapping[str, Any], *, writes: bool) -> None:
        self.path, self._writes = config.output, writes
        record = {"config": config.record(), "data": json.loads(json.dumps(data)), "environments": [environment()]}
        if writes:
            self._begin(record)
        self._identity = _identity(record)
        self.result = _result(self.path)
        self.checkpoint = load_checkpoint(self.path / CHECKPOINTS, self._identity)
        finished, checkpoint = self.result is not None, self.checkpoint
        step = math.inf if finished else checkpoint.step if checkpoint else 0  # later steps come again
        self._metrics = Journal(
            self.path / METRICS, lambda line: _is_metrics(line) and line["step"] < step, writes=writes
        )

    def lines(self) -> list[dict[str, Any]]:
        """All lines of the metrics so far."""
        return list(self._metrics.lines)

    def append(self, line: Mapping[str, Any]) -> None:
        """Add a line to the metrics. Its "step" counts from 0: a checkpoint is the effect of lines below its step.

        The line survives the end of the process, and from the next checkpoint on a power cut.
        """
        if wrong := _not_finite(line):
            raise diverged("metrics", f"{wrong} at step {line['step']}")
        self._metrics.append(line)

    def save(self, checkpoint: Checkpoint) -> None:
        """Keep a checkpoint, and the lines before it."""
        if self._writes:
            self._metrics.settle()
            save_checkpoint(self.path / CHECKPOINTS, checkpoint, self._identity)

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write the result."""
        if self._writes:
            self._metrics.settle()
            write_record(self.path / RESULT, result)

    def close(self) -> None:
        self._metrics.close()

    def _begin(self, record: dict[str, Any]) -> None:
        """Write the record of a new run, or check that the same run is there."""
        there = _read_run(self.path) if holds_run(self.path, RUN, "run") else record
        if not self._has_begun():
            write_record(self.path / RUN, record)
            return
        refuse_another(self.path, "run", _identity(record), _identity(there))
        if record["environments"][0] not in there["environments"]:
            write_record(self.path / RUN, record | {"environments": there["environments"] + record["environments"]})

    def _has_begun(self) -> bool:
        """Whether there is anything to lose: otherwise a command may be corrected."""
        metrics = self.path / METRICS
        has_lines = metrics.exists() and metrics.stat().st_size > 0
        return has_lines or (self.path / CHECKPOINTS).exists() or (self.path / RESULT).exists()


@contextmanager
def open_run(config: Config, data: Mapping[str, Any], *, writes: bool = True) -> Iterator[RunDirectory]:
    """Begin or continue a run in its directory, which no other process can do meanwhile.

    Parameters
    ----------
    config
        With the directory, `output`, which is made if it does not exist. One that holds something else is refused.
    data
        A digest of the data, as JSON values. The same run with other data is another run.
    writes
        Of several processes that share a run, one. The others have the same lines and checkpoint, and write nothing.
    """
    with alone_in(config.output) if writes else nullcontext():
        run = RunDirectory(config, data, writes=writes)
        try:
            yield run
        finally:
            run.close()


def read_run(path: Path) -> Run:
    """Read a run from its directory, without changing anything."""
    path = checked("run", path, Path)
    record = _read_run(path)
    return Run(path, restored(Config, ADDED | record["config"], path, RUN), record, _result(path))


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of the metrics in the directory of a run that may still be going on."""
    return read_journal(path / METRICS, _is_metrics)


def decisive(config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a recorded config that the result depends on."""
    kept = {name: value for name, value in config.items() if name not in FREE and ADDED.get(name, ...) != value}
    settings = config["settings"].items()
    return kept | {"settings": {name: value for name, value in settings if ADDED_SETTINGS.get(name, ...) != value}}


def _identity(record: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a record that distinguishes a run from others."""
    return decisive(record["config"]) | {"data": record["data"]}


def _read_run(path: Path) -> dict[str, Any]:
    record = read_record(f"run '{path}'", path / RUN)
    kinds = {"config": dict, "data": dict, "environments": list}
    if not all(isinstance(record.get(name), kind) for name, kind in kinds.items()):
        raise InvalidInput(f"run '{path}'", f"must hold the {RUN} of a training run", "another", "Check the path.")
    return record


def _result(path: Path) -> dict[str, Any] | None:
    return read_record(f"run '{path}'", path / RESULT) if (path / RESULT).exists() else None


def _is_metrics(line: dict[str, Any]) -> bool:
    try:
        for name, value in line.items():
            checked(name, value, KINDS.get(name, float))
    except InvalidInput:
        return False
    return "step" in line


def _not_finite(line: Mapping[str, Any]) -> str:
    values = flat(dict(line)).items()
    return ", ".join(f"{name} {value}" for name, value in values if value != value or value in (math.inf, -math.inf))
