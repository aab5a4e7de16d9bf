"""The training loop: every method, every network, one process or many, from the first step or from a checkpoint."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch

from adaptive_ot._validation import describe
from adaptive_ot.deep.checkpoint import Checkpoint
from adaptive_ot.deep.config import Config
from adaptive_ot.deep.data.digest import digest
from adaptive_ot.deep.data.stores import Store
from adaptive_ot.deep.device import computing, pick_device, settle_threads
from adaptive_ot.deep.distributed import process_group, rank, said_anywhere
from adaptive_ot.deep.evaluate import probabilities
from adaptive_ot.deep.feed import open_stores, paired_batches
from adaptive_ot.deep.judging import Result, judge
from adaptive_ot.deep.methods.method import require_finite
from adaptive_ot.deep.run_directory import RunDirectory, open_run
from adaptive_ot.deep.training import Batch, Losses, Training
from adaptive_ot.deep.weights import digest_of
from adaptive_ot.errors import InvalidInput

# Numbers are fetched from the device every so many steps: it would have to wait for every one.
LOG_EVERY = 10

# The result reports means over the last part of the run.
LAST_PART = 0.1


class Progress(NamedTuple):
    """How far a run is."""

    step: int
    iterations: int
    losses: dict[str, float]
    accuracy: float | None = None  # on the target, at the last evaluation
    loading: str | None = None  # what is done before the first step
    note: str | None = None  # what is worth knowing, once


class Interrupted(KeyboardInterrupt):
    """A run was told to stop. Everything up to `step` is kept, and the same run goes on from there."""

    def __init__(self, step: int) -> None:
        super().__init__(f"stopped after step {step}; the same run goes on from there")
        self.step = step


def train(config: Config, *, progress: Callable[[Progress], None] | None = None, keep_network: bool = True) -> Result:
    """Train a network, or go on where its directory says that it was stopped.

    Parameters
    ----------
    config
        Made by `configure`. Its `output` is the directory of the run; one that is finished is not run again.
    progress
        Called every few steps.
    keep_network
        Whether the last step is followed by a checkpoint, from which the network can be used later.

    Raises
    ------
    Interrupted
        On Ctrl-C or SIGTERM, after a checkpoint; a plain KeyboardInterrupt, if it was still loading.
    """
    if not isinstance(config, Config):
        raise InvalidInput("config", "must be a Config", describe(config), "Make one with `configure`.")
    report = progress or (lambda _: None)

    def loading(what: str) -> None:
        report(Progress(0, config.iterations, {}, loading=what))

    def note(step: int, text: str) -> None:
        report(Progress(step, config.iterations, {}, note=text))

    device = pick_device(config.device)
    seeded = [device] if device.type == "cuda" else []  # by every step, and given back as they were
    signals = _Signals()
    with process_group(), signals.heard(), torch.random.fork_rng(devices=seeded):
        source, target = open_stores(config, device, loading)
        with _directory(config, source, target) as directory:
            if directory.result:
                return Result.of(directory.result, config.output)
            settle_threads()
            training = Training(config, len(source.domain.classes), device)
            begin = directory.checkpoint or Checkpoint(0, {}, {"seconds": 0.0, "bad_images": []})
            if begin.tensors:
                training.restore(begin)
            elif config.weights is None and config.network != "convnet":
                note(0, f"{config.network} starts from scratch: with weights it would know images already")
            if begin.fallback:
                note(begin.step, f"goes on from step {begin.step}: newer checkpoints are damaged ({begin.fallback})")
            clock = time.perf_counter() - begin.notes["seconds"]
            accuracy, all_solved, signals.trains = None, True, True
            for step, (ours, theirs) in enumerate(paired_batches(config, source, target, begin.step), begin.step):
                with computing(device, config):
                    losses = training.learn(step, ours, theirs)
                done = step + 1
                last, looks = done == config.iterations, done % LOG_EVERY == 0
                evaluates = last or done % config.evaluate_every == 0
                if looks or evaluates:
                    numbers = _numbers(losses, ours, theirs)
                    line: dict[str, Any] = {"step": step, **numbers}
                    if evaluates:
                        line |= _evaluation(training, target)
                        accuracy = line["accuracy"]
                    directory.append(line)
                    if all_solved and numbers.get("unsolved"):
                        all_solved = False
                        note(done, f"the plan of step {done} misses its tolerance: epsilon may be too small")
                    report(Progress(done, config.iterations, numbers, accuracy))
                stops = said_anywhere(signals.told_to_stop) and not last
                if stops or (keep_network if last else done % config.checkpoint_every == 0):
                    bad = _bad_images(begin, source, target)
                    notes = {"seconds": time.perf_counter() - clock, "bad_images": bad}
                    tensors = training.tensors()
                    require_finite(f"network after step {done}", *tensors.values())
                    directory.save(Checkpoint(done, tensors, notes))
                if stops:
                    raise Interrupted(done)
            bad = _bad_images(begin, source, target)
            result = _result(config, directory.lines(), time.perf_counter() - clock, len(bad))
            directory.finish(result.record())
            return result


@contextmanager
def _directory(config: Config, source: Store, target: Store) -> Iterator[RunDirectory]:
    """The directory of the run: the first process begins it, then the others look."""
    digests = {"source": digest(source.listed), "target": digest(target.listed), "weights": digest_of(config.weights)}
    data = {**digests, "classes": list(source.domain.classes)}
    first = rank() == 0
    if not first:
        said_anywhere(False)
    with open_run(config, data, writes=first) as directory:
        if first:
            said_anywhere(False)
        yield directory


def _bad_images(begin: Checkpoint, *stores: Store) -> list[str]:
    """Those that turned up so far; of a stream, also before the checkpoint that a run began with."""
    for store in stores:
        store.agree()
    return sorted({*begin.notes["bad_images"], *(path for store in stores for path, _ in store.bad)})


def _numbers(losses: Losses, source: Batch, target: Batch | None) -> dict[str, float]:
    """What to log. How much of the plan lies between images of one class is an oracle: it looks at target labels."""
    terms = dict(losses.terms)
    if losses.plan is not None and target is not None:
        same = source.labels[:, None] == target.labels[None, :]
        terms["plan_purity"] = (losses.plan * same).sum() / losses.plan.sum().clamp_min(1e-12)
    values = torch.stack([term.float() for term in terms.values()]).tolist()  # fetched at once
    return dict(zip(terms, values, strict=True))


def _evaluation(training: Training, target: Store) -> dict[str, Any]:
    predicted = probabilities(training.network, target, training.config).argmax(1)
    accuracy = judge(predicted[target.usable], target.labels[target.usable], target.domain.classes)
    return {
        "accuracy": accuracy.overall,
        "mean_class_accuracy": accuracy.mean_class,
        "per_class": accuracy.per_class,
    }


def _result(config: Config, lines: list[dict[str, Any]], seconds: float, bad_images: int) -> Result:
    """From the lines of the metrics, so that it is the same for a run that was stopped and resumed."""
    evaluations = [line for line in lines if "accuracy" in line]
    last, best = evaluations[-1], max(evaluations, key=lambda line: line["accuracy"])
    since = min((1 - LAST_PART) * config.iterations, last["step"])
    end = [line for line in lines if line["step"] >= since]

    def mean(name: str) -> float | None:
        values = [line[name] for line in end if name in line]
        return float(np.mean(values)) if values else None

    return Result(
        accuracy=last["accuracy"],
        mean_class_accuracy=last["mean_class_accuracy"],
        per_class=last["per_class"],
        best_accuracy=best["accuracy"],
        best_step=best["step"] + 1,
        transported_mass=mean("mass"),
        plan_purity=mean("plan_purity"),
        steps=config.iterations,
        seconds=seconds,
        bad_images=bad_images,
        output=config.output,
    )


class _Signals:
    """Ctrl-C and SIGTERM: as long as a run only loads, they end it at once; then a step is finished before.

    A second Ctrl-C is obeyed at once, too. A second SIGTERM is not: a pool of processes that has lost one sends it to
    those that were told already.
    """

    def __init__(self) -> None:
        self.trains = self.told_to_stop = False

    @contextmanager
    def heard(self) -> Iterator[None]:
        """As long as this lasts."""
        if threading.current_thread() is not threading.main_thread():  # only the main thread hears signals
            yield
            return
        before = {number: signal.signal(number, self._hear) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _hear(self, number: int, _: object) -> None:
        if not self.trains:
            raise KeyboardInterrupt("stopped while loading; the same run goes on")
        if self.told_to_stop and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.told_to_stop = True
