"""Settings for all tests."""

import signal
import subprocess
import sys
from importlib.util import find_spec

import pytest
from hypothesis import settings

# The same examples on every machine, however slow, and nothing left on disk.
settings.register_profile("full", max_examples=300, deadline=None, derandomize=True, database=None)
settings.register_profile("quick", settings.get_profile("full"), max_examples=50)
settings.load_profile("quick")  # unless --hypothesis-profile=full is given, as `make test-all` does

# nohup, and shells in the background, have their children ignore Ctrl-C; processes that tests start inherit from here.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, signal.SIG_DFL)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Skip files that need PyTorch where there is none: some have nothing else to test."""
    report = yield
    reason = str(report.longrepr)
    if report.failed and find_spec("torch") is None and ("No module named 'torch" in reason or "needs torch" in reason):
        report.outcome, report.longrepr = "skipped", (str(collector.path), 1, "could not import 'torch'")
    return report


@pytest.fixture(scope="module")
def one_thread():
    """Small networks are faster so, and sums are rounded alike on every machine."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def start():
    """Start commands in sessions of their own; those that still run in the end are killed."""
    from commands import environment

    started = []

    def start(*command, **more):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        command = [sys.executable, *map(str, command)]
        started.append(subprocess.Popen(command, env=environment(**more), start_new_session=True, **pipes))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()
