"""Run a few kernels at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Thread

# How long an interrupted call waits for its threads, which need a fraction of this unless one never got going.
SECONDS_TO_END = 10.0


def run_together(jobs: Sequence[Callable[[], None]]) -> None:
    """Run all jobs, the first on the calling thread, and return when all are done.

    Plain threads rather than a pool: Ctrl-C inside the locks of `concurrent.futures` can leave one locked, and its
    workers waiting for ever. Here a worker needs no lock to finish.

    Examples
    --------
    >>> done = []
    >>> run_together([lambda: done.append(1), lambda: done.append(2)])
    >>> sorted(done)
    [1, 2]
    """
    errors: list[BaseException] = []

    def guarded(job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:
            errors.append(error)

    threads = [Thread(target=guarded, args=(job,), daemon=True) for job in jobs[1:]]
    try:
        for thread in threads:
            thread.start()
        jobs[0]()
        for thread in threads:
            thread.join()
    except BaseException:
        for thread in threads:
            if thread.ident is not None:
                thread.join(SECONDS_TO_END)
        raise
    if errors:
        raise errors[0]
