"""Runs the cells of a benchmark, whatever they are: finished ones never again, failed ones the next time."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from adaptive_ot.errors import InvalidInput
from adaptive_ot.workbench.benchmark.journal import Journal
from adaptive_ot.workbench.benchmark.plan import Cell, Outcome, Plan
from adaptive_ot.workbench.files import alone_in

Work = Callable[[Cell], dict[str, float]]

# Processes side by side get one thread each; libraries look at these once, when they are loaded.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")

# Seconds for processes that were told to end.
LAST_WORDS = 60


class Progress(NamedTuple):
    """How far a benchmark is, and what runs now."""

    done: int
    total: int
    running: Cell


def run(
    plan: Plan,
    work: Work,
    directory: Path,
    *,
    jobs: int = 1,
    progress: Callable[[Progress], None] | None = None,
) -> list[Outcome]:
    """Run all cells that are not finished yet.

    Parameters
    ----------
    plan
        The cells.
    work
        Computes the finite numbers of a cell. With several jobs it is pickled.
    directory
        Where finished cells are kept, and looked for.
    jobs
        How many processes; with 1, cells run in this one.
    progress
        Called before every cell.

    Returns
    -------
    list of Outcome
        One for every cell, in the order of the plan. A cell that raised an error has its message instead of numbers.
    """
    with alone_in(directory), _terminating_as_ctrl_c():
        journal = Journal(directory, plan)
        outcomes = dict(journal.finished)
        left = [cell for cell in plan.cells if cell not in outcomes]

        def started(cell: Cell) -> None:
            if progress:
                progress(Progress(len(outcomes), len(plan.cells), cell))

        def ended(outcome: Outcome) -> None:
            journal.add(outcome)
            outcomes[outcome.cell] = outcome

        if jobs == 1 or len(left) < 2:
            for cell in left:
                started(cell)
                ended(_attempt(work, cell))
        else:
            _run_in_processes(work, left, jobs, started, ended)
    return [outcomes[cell] for cell in plan.cells]


def _attempt(work: Work, cell: Cell) -> Outcome:
    try:
        numbers = {name: float(number) for name, number in work(cell).items()}
        for name, number in numbers.items():
            if not math.isfinite(number):
                raise ValueError(f"{name} is {number}")
        return Outcome(cell, numbers)
    except Exception as error:
        return Outcome(cell, None, " ".join(f"{type(error).__name__}: {error}".split())[:500])


def _run_in_processes(
    work: Work, cells: list[Cell], jobs: int, started: Callable[[Cell], None], ended: Callable[[Outcome], None]
) -> None:
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(min(jobs, len(cells)), multiprocessing.get_context("spawn"), _prepare_worker)
    try:
        with _spawning():
            futures = {pool.submit(_attempt_here, work, cell): cell for cell in cells}
        waiting = dict.fromkeys(cells)
        started(cells[0])
        for future in as_completed(futures):
            ended(future.result())
            del waiting[futures[future]]
            if waiting:
                started(next(iter(waiting)))
        pool.shutdown()
    except BaseException as error:
        pool.shutdown(wait=False, cancel_futures=True)
        workers = set(multiprocessing.active_children()) - others
        for process in workers:
            process.terminate()
        for process in workers:
            process.join(LAST_WORDS)
        if isinstance(error, BrokenProcessPool):
            remedy = "Run it again with fewer; finished cells are kept."
            raise InvalidInput("jobs", "must leave enough memory for each", "a process that died", remedy) from None
        raise


def _attempt_here(work: Work, cell: Cell) -> Outcome:
    """In a process of its own: work that hears of its end may save what it has, but the process takes no other cell."""
    try:
        return _attempt(work, cell)
    except BaseException:
        os._exit(1)


def _prepare_worker() -> None:
    """A process whose parent was killed would wait for work for ever, and Ctrl-C is for the parent alone."""
    parent = multiprocessing.parent_process()
    if hasattr(os, "setpgrp"):
        os.setpgrp()

    def follow() -> None:
        if parent:
            parent.join()
            os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


@contextmanager
def _spawning() -> Iterator[None]:
    """Processes started here have one thread each, and leave Ctrl-C to the one that started them."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        with _on_signal(signal.SIGINT, signal.SIG_IGN):
            yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _terminating_as_ctrl_c() -> Iterator[None]:
    """To be told to terminate is to be interrupted: other processes are ended too."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with _on_signal(signal.SIGTERM, interrupt):
        yield


@contextmanager
def _on_signal(number: signal.Signals, handler: Callable[..., None] | signal.Handlers) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # only the main thread hears signals
        yield
        return
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)
