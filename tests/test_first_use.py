"""What a first solve compiles, and when it says so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from threading import Event
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import adaptive_ot as aot
from adaptive_ot import _jit
from adaptive_ot.entropic import small

COST = np.random.default_rng(0).standard_normal((12, 9))


def run(code, cache):
    """What a new process with this kernel cache prints."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache)}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, stdout=-1, text=True
    ).stdout.split()


@pytest.fixture
def nothing_on_disk(monkeypatch):
    """As if the compiled ascent had never been needed."""
    monkeypatch.setattr(small, "has_machine_code", lambda _: False)
    monkeypatch.setattr(small, "interpreted_passes", 0)


def test_first_entropic_solves_compile_nothing(tmp_path):
    code = """
import numpy as np, adaptive_ot as aot
from numba.core import event
cost = np.random.default_rng(0).standard_normal((3, 12, 9))
with event.install_recorder("numba:compile") as compilations:
    for marginals in (aot.AtMost(), aot.FixedMass(0.5), aot.SoftKL(0.5), aot.Equal()):
        aot.solve(cost[0], marginals=marginals, solver=aot.Entropic(0.1))
    aot.solve(cost, solver=aot.Entropic(0.1))
print(len(compilations.buffer))
"""
    assert run(code, tmp_path) == ["0"]


@pytest.mark.usefixtures("nothing_on_disk")
def test_compiled_once_that_pays_off(monkeypatch):
    """Interpreted until enough passes are counted, those of a batch included."""
    passes = aot.solve(COST, solver=aot.Entropic(0.1)).iterations
    assert small.interpreted_passes == passes
    aot.solve(np.stack([COST, COST]), solver=aot.Entropic(0.1))
    assert small.interpreted_passes == 3 * passes
    monkeypatch.setattr(small, "PASSES_WORTH_COMPILING", 3 * passes)
    aot.solve(COST, solver=aot.Entropic(0.1))
    aot.solve(np.stack([COST, COST]), solver=aot.Entropic(0.1))
    assert small.interpreted_passes == 3 * passes


@pytest.mark.usefixtures("nothing_on_disk")
@pytest.mark.parametrize("compiled", [True, False])
def test_the_choice_is_the_users(compiled, monkeypatch):
    monkeypatch.setattr(small, "worth_compiling", lambda: not compiled)
    solution = aot.solve(COST, solver=aot.Entropic(0.1, compiled=compiled))
    assert (small.interpreted_passes == 0) == compiled
    np.testing.assert_allclose(solution.plan, aot.solve(COST, solver=aot.Entropic(0.1)).plan, atol=1e-9)


def test_machine_code_is_found_on_disk(tmp_path):
    code = """
import numpy as np
from adaptive_ot import _jit
from adaptive_ot.exact import weights as _weights
print(_jit.has_machine_code(_weights.fit))
pairs = np.zeros(1, np.int64)
_weights.fit(np.ones(1), pairs, pairs, np.ones(1), np.ones(1))
"""
    assert [run(code, tmp_path) for _ in range(2)] == [["False"], ["True"]]


def compiling(function) -> Any:
    return SimpleNamespace(data={"dispatcher": function})


def test_a_long_compilation_is_announced(monkeypatch, caplog):
    """While it is under way, and only once."""
    announced = Event()
    monkeypatch.setattr(_jit, "SILENT_SECONDS", 0.0)
    monkeypatch.setattr(_jit.event, "unregister", lambda *_: announced.set())
    listener = _jit.Announcement()
    listener.on_start(compiling(small._climb))
    listener.timer.join()
    assert announced.is_set()
    assert "Compiling kernels" in caplog.text
    assert len(caplog.records) == 1


def test_short_compilations_and_those_of_others_are_not_announced(monkeypatch, caplog):
    monkeypatch.setattr(_jit, "SILENT_SECONDS", 3600.0)
    listener = _jit.Announcement()
    made_by_exec: dict[str, Any] = {}
    exec("def function(): pass", made_by_exec)
    made_by_exec["function"].__module__ = None  # as where the namespace has no name
    for function in (test_machine_code_is_found_on_disk, made_by_exec["function"]):
        listener.on_start(compiling(SimpleNamespace(py_func=function)))
        assert not listener.timer.is_alive()
    listener.on_start(compiling(small._climb))
    assert listener.timer.is_alive()
    listener.on_end(compiling(small._climb))
    listener.timer.join()
    assert not caplog.records


def test_ctrl_c_waits_for_a_compilation(monkeypatch):
    """Raised inside a callback of LLVM it would be lost, and the kernel would have no machine code."""

    @_jit.kernel
    def doubled(number):
        return 2 * number

    load = doubled._cache.load_overload  # before anything is compiled

    def interrupted(*arguments):
        signal.raise_signal(signal.SIGINT)
        return load(*arguments)

    monkeypatch.setattr(doubled._cache, "load_overload", interrupted)
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        doubled(1.5)
    assert signal.getsignal(signal.SIGINT) is handler
    assert len(doubled.signatures) == 1
    assert doubled(1.5) == 3.0
