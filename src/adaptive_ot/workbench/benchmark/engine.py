"""Runs the cells of a study: finished ones never again, failed ones the next time."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from adaptive_ot.errors import InvalidInput
from adaptive_ot.workbench.benchmark.study import Cell, Outcome, Study, open_journal
from adaptive_ot.workbench.runs import alone_in, on_signal

Work = Callable[[Cell], dict[str, float]]

# Processes side by side get one thread each; libraries look at these once, when they are loaded.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")

# Seconds that terminated processes have to save their work.
GRACE = 60


class CellStarted(NamedTuple):
    """The cell that runs now, and how many are done."""

    done: int
    total: int
    cell: Cell


def run(
    study: Study,
    work: Work,
    directory: Path,
    *,
    jobs: int = 1,
    progress: Callable[[CellStarted], None] | None = None,
) -> list[Outcome]:
    """Run all cells that are not finished yet.

    Parameters
    ----------
    study
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
        One for every cell, in the order of the study. A cell that raised an error has its message instead of numbers.
    """
    with alone_in(directory), _terminating_as_ctrl_c(), closing(open_journal(directory, study)) as journal:
        outcomes = {outcome.cell: outcome for outcome in map(Outcome.of, journal.lines) if outcome}
        left = [cell for cell in study.cells if cell not in outcomes]

        def started(cell: Cell) -> None:
            if progress:
                progress(CellStarted(len(outcomes), len(study.cells), cell))

        def ended(outcome: Outcome) -> None:
            journal.append(outcome.record())
            journal.settle()
            outcomes[outcome.cell] = outcome

        if jobs == 1 or len(left) < 2:
            for cell in left:
                started(cell)
                ended(_attempt(work, cell))
        else:
            _run_in_processes(work, left, jobs, started, ended)
    return [outcomes[cell] for cell in study.cells]


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
            process.join(GRACE)
        if isinstance(error, BrokenProcessPool):
            remedy = "Run it again with fewer; finished cells are kept."
            raise InvalidInput("jobs", "must leave enough memory for each", "a process that died", remedy) from None
        raise


def _attempt_here(work: Work, cell: Cell) -> Outcome:
    """In a process of its own: work that is terminated may save its state, but the process takes no other cell."""
    try:
        return _attempt(work, cell)
    except BaseException:
        os._exit(1)


def _prepare_worker() -> None:
    """End with the parent, which may be killed, and leave Ctrl-C to it."""
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
        with on_signal(signal.SIGINT, signal.SIG_IGN):
            yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _terminating_as_ctrl_c() -> Iterator[None]:
    """Treat SIGTERM as Ctrl-C, so that other processes are ended too."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with on_signal(signal.SIGTERM, interrupt):
        yield
