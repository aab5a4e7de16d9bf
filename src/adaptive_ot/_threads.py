"""Run a few kernels at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Thread
from typing import TypeVar

T = TypeVar("T")

# How long an interrupted call waits for its threads; they need a fraction of this unless one never started.
SECONDS_TO_END = 10.0


def run_together(jobs: Sequence[Callable[[], T]]) -> list[T]:
    """Run all jobs, the first on the calling thread, and return their results when all are done.

    We use plain threads rather than a pool: Ctrl-C inside `concurrent.futures` can leave one of its locks locked and
    its workers waiting forever. Here, a worker needs no lock to finish.

    Examples
    --------
    >>> run_together([lambda: 1, lambda: 2])
    [1, 2]
    """
    results: dict[int, T] = {}
    errors: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            results[number] = jobs[number]()
        except BaseException as error:
            errors.append(error)

    threads = [Thread(target=guarded, args=(number,), daemon=True) for number in range(1, len(jobs))]
    try:
        for thread in threads:
            thread.start()
        results[0] = jobs[0]()
        for thread in threads:
            thread.join()
    except BaseException:
        for thread in threads:
            if thread.ident is not None:
                thread.join(SECONDS_TO_END)
        raise
    if errors:
        raise errors[0]
    return [results[number] for number in range(len(jobs))]
