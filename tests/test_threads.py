import threading
import time

import pytest

from adaptive_ot import _threads


def test_returns_only_when_all_jobs_are_done(monkeypatch):
    monkeypatch.setattr(_threads, "SECONDS_TO_END", 0.01)
    done = []

    def slow():
        time.sleep(0.3)
        done.append(1)

    _threads.run_together([lambda: None, slow])
    assert done == [1]


@pytest.mark.parametrize("failing", [0, 1])
def test_an_error_in_any_job_comes_out(failing):
    def fail():
        raise MemoryError("no room")

    jobs = [lambda: None, lambda: None]
    jobs[failing] = fail
    before = threading.active_count()
    with pytest.raises(MemoryError, match="no room"):
        _threads.run_together(jobs)
    assert threading.active_count() == before
