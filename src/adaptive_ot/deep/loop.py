"""The training loop: every method, every network, one process or many, from the first step or from a checkpoint."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from adaptive_ot._group import process_group
from adaptive_ot._validation import describe
from adaptive_ot.deep.checkpoint import Checkpoint
from adaptive_ot.deep.config import Config
from adaptive_ot.deep.data.domain import digest
from adaptive_ot.deep.data.images import median_side
from adaptive_ot.deep.data.stores import Store
from adaptive_ot.deep.device import computing, default_threads, pick_device, settle_threads, threads_restored
from adaptive_ot.deep.distributed import any_process, rank
from adaptive_ot.deep.evaluation import evaluation
from adaptive_ot.deep.loader import open_stores, paired_batches
from adaptive_ot.deep.methods.method import Alignment, require_finite
from adaptive_ot.deep.open_set import open_set_figures
from adaptive_ot.deep.result import Result
from adaptive_ot.deep.run_directory import RunDirectory, open_run
from adaptive_ot.deep.training import ImageBatch, Training
from adaptive_ot.deep.weights import digest_of
from adaptive_ot.errors import InvalidInput
from adaptive_ot.workbench.runs import on_signal

# Steps between two fetches of numbers, for each of which the device has to wait.
LOG_EVERY = 10

# A network from scratch gains nothing from images that are this much larger than the files.
MUCH_LARGER = 3

# The result reports means over the last part of the run.
LAST_PART = 0.1


class Progress(NamedTuple):
    """State of a run in training."""

    step: int
    iterations: int
    losses: dict[str, float]
    accuracy: float | None = None  # on the target, at the last evaluation
    loading: str | None = None  # the work before the first step
    note: str | None = None  # a remark, made once


class Interrupted(KeyboardInterrupt):
    """A run was stopped by a signal. It is kept up to `step`, and continues from there when it is started again."""

    def __init__(self, step: int) -> None:
        super().__init__(f"stopped after step {step}; the same run goes on from there")
        self.step = step


def train(config: Config, *, progress: Callable[[Progress], None] | None = None, keep_network: bool = True) -> Result:
    """Train a network, or continue a run that was stopped.

    Parameters
    ----------
    config
        Made by `configure`. Its `output` is the directory of the run; a finished run is not repeated.
    progress
        Called every few steps.
    keep_network
        Whether to save a checkpoint after the last step, from which the network can be used later.

    Raises
    ------
    Interrupted
        On Ctrl-C or SIGTERM, after a checkpoint; a plain KeyboardInterrupt while images are loaded.
    """
    if not isinstance(config, Config):
        raise InvalidInput("config", "must be a Config", describe(config), "Make one with `configure`.")
    report = progress or (lambda _: None)

    def loading(what: str) -> None:
        report(Progress(0, config.iterations, {}, loading=what))

    def note(step: int, text: str) -> None:
        report(Progress(step, config.iterations, {}, note=text))

    device = pick_device(config.device)
    seeded = [device] if device.type == "cuda" else []  # the generators that steps seed are restored
    signals = _Signals()
    with process_group(), signals.handled(), torch.random.fork_rng(devices=seeded), threads_restored():
        source, target = open_stores(config, device, loading)
        with _directory(config, source, target) as directory:
            if directory.result is not None:
                return Result.of(directory.result, config.output)
            begun = {"seconds": 0.0, "bad_images": [], "threads": default_threads(config.network, device)}
            begin = directory.checkpoint or Checkpoint(0, {}, begun)
            threads = begin.notes.get("threads", torch.get_num_threads())  # earlier versions did not record it
            settle_threads(threads)
            training = Training(config, len(source.domain.classes), device)
            if begin.tensors:
                training.restore(begin)
            else:
                for text in _remarks(config, source):
                    note(0, text)
            if begin.fallback:
                note(begin.step, f"goes on from step {begin.step}: newer checkpoints are damaged ({begin.fallback})")
            clock = time.perf_counter() - begin.notes["seconds"]
            accuracy, all_solved, signals.training = None, True, True
            for step, (ours, theirs) in enumerate(paired_batches(config, source, target, begin.step), begin.step):
                with computing(device, config):
                    outcome = training.learn(step, ours, theirs)
                done = step + 1
                last = done == config.iterations
                evaluates = last or done % config.evaluate_every == 0
                if evaluates or done % LOG_EVERY == 0:
                    numbers = _numbers(outcome, ours, theirs)
                    line: dict[str, Any] = {"step": step, **numbers}
                    if evaluates:
                        line |= evaluation(training.network, target, config)
                        accuracy = line["accuracy"]
                    directory.append(line)
                    if all_solved and numbers.get("unsolved"):
                        all_solved = False
                        note(done, f"the plan of step {done} misses its tolerance: epsilon may be too small")
                    report(Progress(done, config.iterations, numbers, accuracy))
                stops = any_process(signals.stop_requested) and not last
                if stops or (keep_network if last else done % config.checkpoint_every == 0):
                    bad = _bad_images(begin, source, target)
                    notes = {"seconds": time.perf_counter() - clock, "bad_images": bad, "threads": threads}
                    tensors = training.tensors()
                    require_finite(f"network after step {done}", *tensors.values())
                    directory.save(Checkpoint(done, tensors, notes))
                if stops:
                    raise Interrupted(done)
            bad = _bad_images(begin, source, target)
            result = _result(config, directory.lines(), time.perf_counter() - clock, len(bad))
            if config.unknown == "keep":
                result = replace(result, open_set=open_set_figures(training.network, source, target, config))
            directory.finish(result.record())
            return result


def _remarks(config: Config, source: Store) -> Iterator[str]:
    """What a user should know before a network learns from scratch."""
    if config.weights is not None:
        return
    if config.network != "convnet":
        yield f"{config.network} starts from scratch: with weights it would know images already"
    side = median_side(source.domain.images)
    if MUCH_LARGER * side <= config.crop:
        sizes = f"images of {side} x {side} pixels are enlarged to {config.crop} x {config.crop}"
        yield f"{sizes}, which takes time and adds nothing: set resize and crop to {side} or a little more"


@contextmanager
def _directory(config: Config, source: Store, target: Store) -> Iterator[RunDirectory]:
    """The directory of the run: the first process opens it, then the others."""
    digests = {"source": digest(source.listed), "target": digest(target.listed), "weights": digest_of(config.weights)}
    data = {**digests, "classes": list(source.domain.classes)}
    first = rank() == 0
    if not first:
        any_process(False)  # waits for the first
    with open_run(config, data, writes=first) as directory:
        if first:
            any_process(False)
        yield directory


def _bad_images(begin: Checkpoint, *stores: Store) -> list[str]:
    """Bad images so far; of a stream, including those from before the checkpoint that the run started with."""
    for store in stores:
        store.agree()
    return sorted({*begin.notes["bad_images"], *(name for store in stores for name in store.bad)})


def _numbers(step: Alignment, source: ImageBatch, target: ImageBatch | None) -> dict[str, float]:
    """Numbers to log. The purity of the plan is an oracle: it uses the labels of the target."""
    terms = dict(step.terms)
    if step.plan is not None and target is not None:
        same = source.labels[:, None] == target.labels[None, :]
        terms["plan_purity"] = (step.plan * same).sum() / step.plan.sum().clamp_min(1e-12)
    values = torch.stack([term.float() for term in terms.values()]).tolist()  # fetched at once
    return dict(zip(terms, values, strict=True))


def _result(config: Config, lines: list[dict[str, Any]], seconds: float, bad_images: int) -> Result:
    """Computed from the lines of the metrics, so that a resumed run has the same result."""
    evaluations = [line for line in lines if "accuracy" in line]
    last, best = evaluations[-1], max(evaluations, key=lambda line: line["accuracy"])
    since = min((1 - LAST_PART) * config.iterations, last["step"])
    end = [line for line in lines if line["step"] >= since]

    def mean(name: str) -> float | None:
        values = [line[name] for line in end if name in line]
        return float(np.mean(values)) if values else None

    return Result(
        **{name: last[name] for name in ("accuracy", "mean_class_accuracy", "per_class")},
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
    """Ctrl-C and SIGTERM end a run at once while it loads images, and after the current step while it trains.

    A second Ctrl-C ends it at once in any case. A second SIGTERM does not: a pool of processes that has lost one sends
    the signal again.
    """

    def __init__(self) -> None:
        self.training = self.stop_requested = False

    @contextmanager
    def handled(self) -> Iterator[None]:
        with on_signal(signal.SIGINT, self._handle), on_signal(signal.SIGTERM, self._handle):
            yield

    def _handle(self, number: int, _: object) -> None:
        if not self.training:
            raise KeyboardInterrupt("stopped while loading; the same run goes on")
        if self.stop_requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.stop_requested = True
