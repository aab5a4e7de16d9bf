"""Measuring: calls in a process of their own, time limits, peak memory, and results files that can be resumed.

`in_child("rivals", "measure", {...})` runs `rivals.measure(...)` in a fresh Python process and returns its answer, so
that neither memory nor threads nor compiled code of one measurement touch the next.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import importlib
import json
import os
import platform
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from adaptive_ot.workbench.files import write_atomically

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
SLOW = 2.0  # seconds of calls after which none is repeated

Measurement = dict[str, Any]

# POT imports whichever of these it finds, which takes seconds and slows each of its calls a little.
NO_BACKENDS = {f"POT_BACKEND_DISABLE_{name}": "1" for name in ("PYTORCH", "JAX", "TENSORFLOW", "CUPY")}


def in_child(
    module: str, function: str, arguments: dict[str, Any], *, threads: int | None, quiet: bool
) -> dict[str, Any]:
    """The answer of `module.function(**arguments)`, or {"error": why there is none}; all cores if `threads` is None."""
    environment = {name: value for name, value in os.environ.items() if name not in THREAD_VARIABLES} | NO_BACKENDS
    if threads is not None:
        environment |= dict.fromkeys(THREAD_VARIABLES, str(threads))
    process = subprocess.run(
        [sys.executable, str(HERE / "measure.py"), module, function, json.dumps(arguments)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL if quiet else None,
        text=True,
        check=False,
    )
    if process.returncode == 0:
        return json.loads(process.stdout.splitlines()[-1])
    if -process.returncode in (signal.SIGALRM, signal.SIGPROF):
        return {"error": "time limit"}
    if process.returncode < 0:
        return {"error": f"killed by {signal.Signals(-process.returncode).name}"}
    return {"error": f"exit status {process.returncode}"}


def answer(module: str, function: str, arguments: str) -> dict[str, Any]:
    """The child's side of `in_child`."""
    try:
        return getattr(importlib.import_module(module), function)(**json.loads(arguments))
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def limit_time(seconds: float, processor: bool = False) -> None:
    """End this process after `seconds` (of processor time), even inside a C function; 0 lifts the limit."""
    alarm, timer = (signal.SIGPROF, signal.ITIMER_PROF) if processor else (signal.SIGALRM, signal.ITIMER_REAL)
    signal.signal(alarm, signal.SIG_DFL)
    signal.setitimer(timer, seconds)


def processor_time() -> float:
    """Seconds of all threads of this process; under a limit, `time.process_time` of Linux only counts whole ticks."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def timed(
    call: Callable[[], Any], repeat: int, timeout: float, processor: bool = False
) -> tuple[list[float], Any, int]:
    """Seconds of up to `repeat` calls, none longer than `timeout`; the last answer; the peak of memory in the first.

    With `processor`, both are seconds of processor time.
    """
    clock = processor_time if processor else time.perf_counter
    seconds: list[float] = []
    answer, peak = None, 0
    while len(seconds) < repeat and sum(seconds) < SLOW:
        limit_time(timeout, processor)
        start = clock()
        answer = call()
        seconds.append(clock() - start)
        limit_time(0, processor)
        peak = peak or peak_bytes()
    return seconds, answer, peak


def reset_peak() -> bool:
    """Give freed memory back and let the peak start again from what is held now; False where the system cannot."""
    if sys.platform != "linux":
        return False
    ctypes.CDLL(None).malloc_trim(0)
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def peak_bytes() -> int:
    """The most memory this process held since `reset_peak`, or since its start where that cannot be known."""
    if sys.platform == "linux":
        lines = Path("/proc/self/status").read_text().splitlines()
        kilobytes = next(line.split()[1] for line in lines if line.startswith("VmHWM:"))
        return int(kilobytes) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def clouds(n: int, dimension: int = 16, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two standard normal point clouds of n points."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, dimension)), rng.standard_normal((n, dimension))


def weights(kind: str, n: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Weights of total 1 for n sources and n targets, "uniform" or "random"."""
    if kind == "uniform":
        return np.full(n, 1 / n), np.full(n, 1 / n)
    rng = np.random.default_rng(seed)
    mu, nu = rng.random(n), rng.random(n)
    return mu / mu.sum(), nu / nu.sum()


def machine() -> dict[str, Any]:
    """What the times depend on."""
    model = platform.processor()
    if sys.platform == "linux":
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), model)
    return {"cpu": model, "cores": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()}


def version(package: str) -> str:
    """The version of an installed package; for adaptive-ot with a fingerprint of its source."""
    try:
        number = metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
    if package != "adaptive-ot":
        return number
    source = hashlib.sha256()
    for path in sorted((HERE.parent / "src").rglob("*.py")):
        source.update(path.read_bytes())
    return f"{number}+source.{source.hexdigest()[:8]}"


def _without_folder(argument: str) -> str:
    """The argument; of an absolute path, its last part: results are published, and folders are nobody's business."""
    return Path(argument).name if Path(argument).is_absolute() else argument


def header() -> dict[str, Any]:
    """How a results file begins."""
    packages = (
        "adaptive-ot",
        "numpy",
        "scipy",
        "numba",
        "pot",
        "lapx",
        "lapcpp",
        "ortools",
        "ott-jax",
        "jax",
        "geomloss",
        "torch",
    )
    return {
        "command": " ".join(["python", Path(sys.argv[0]).name, *map(_without_folder, sys.argv[1:])]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": {package: version(package) for package in packages},
    }


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a results file; an interrupted run leaves the old one or the new one, never half."""
    path.parent.mkdir(exist_ok=True)
    text = json.dumps(content, indent=1) + "\n"
    write_atomically("results", path, lambda file: file.write(text.encode()))


def kept(path: Path, problem: Measurement) -> list[Measurement]:
    """The measurements in a results file of problems other than this one."""
    stored = json.loads(path.read_text())["measurements"] if path.exists() else []
    return [row for row in stored if not problem.items() <= row.items()]


class Packaged(Protocol):
    """A solver to be measured, as far as measuring goes: the package it comes from, and whether it has all cores."""

    @property
    def package(self) -> str: ...
    @property
    def all_cores(self) -> bool: ...


class Results:
    """What has been measured, on disk after each measurement. A case is a named tuple of numbers and words."""

    def __init__(self, path: Path, solvers: Mapping[str, Packaged], resume: bool) -> None:
        self.path, self.solvers = path, solvers
        self.header = header()
        self.measurements: list[Measurement] = []
        if resume and path.exists():
            stored = json.loads(path.read_text())
            if stored["machine"] != self.header["machine"]:
                sys.exit(f"{path.name} was measured on another machine ({stored['machine']}): run without --resume.")
            self.measurements = stored["measurements"]

    def find(self, case: Any, solver: str) -> Measurement | None:
        key = {"solver": solver, **case._asdict()}
        return next((m for m in self.measurements if key.items() <= m.items()), None)

    def of(self, case: Any) -> list[Measurement]:
        """The measurements of a case, fastest first; failures come last."""
        found = [m for solver in self.solvers if (m := self.find(case, solver)) is not None]
        return sorted(found, key=lambda m: m.get("seconds", np.inf))

    def holds(self, case: Any, solver: str, timeout: float) -> bool:
        """Whether measuring again would tell nothing new."""
        stored = self.find(case, solver)
        if stored is None or stored["version"] != version(self.solvers[solver].package):
            return False
        return stored.get("error") != "time limit" or stored["timeout"] >= timeout

    def take(
        self,
        module: str,
        work: list[tuple[Any, str]],
        timeout: float,
        repeat: Callable[[Any], int],
        easier: Callable[[Measurement, Any], bool] = lambda measured, case: False,
    ) -> None:
        """Measure each case and solver with `module.measure_solver` in a child, with a line of progress each.

        A solver that ran into the time limit on a case that is `easier` is passed over.
        """
        for done, (case, solver) in enumerate(work, 1):
            print(f"[{done}/{len(work)}] {case}: {solver} ... ", end="", file=sys.stderr, flush=True)
            key = {"solver": solver, **case._asdict()}
            mine = [m for m in self.measurements if m["solver"] == solver and m.get("error") == "time limit"]
            if any(easier(measured, case) for measured in mine):
                answer: Measurement = {"error": "too slow for an easier problem"}
            else:
                answer = in_child(
                    module,
                    "measure_solver",
                    {**key, "repeat": repeat(case), "timeout": timeout},
                    threads=None if self.solvers[solver].all_cores else 1,
                    quiet=True,
                )
            stamp = {
                "version": version(self.solvers[solver].package),
                "timeout": timeout,
                "date": datetime.now(UTC).isoformat(timespec="seconds"),
            }
            self._add(case, solver, {**key, **answer, **stamp})
            print(answer.get("error") or show_seconds(answer), file=sys.stderr, flush=True)

    def _add(self, case: Any, solver: str, measurement: Measurement) -> None:
        old = self.find(case, solver)
        if old is not None:
            self.measurements.remove(old)
        self.measurements.append(measurement)
        write_json(self.path, {**self.header, "measurements": self.measurements})


def show_seconds(measurement: Measurement) -> str:
    if "seconds" in measurement:
        seconds = measurement["seconds"]
        return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"
    return f"> {measurement['timeout']:g} s" if measurement["error"] == "time limit" else "failed"


def show_ratio(measurement: Measurement | None, ours: Measurement | None) -> str:
    """How many times as long as adaptive-ot it took."""
    if measurement is None or ours is None or "seconds" not in ours:
        return "-"
    if "seconds" in measurement:
        return f"{measurement['seconds'] / ours['seconds']:.2f}"
    return f"> {measurement['timeout'] / ours['seconds']:.0f}" if measurement["error"] == "time limit" else "-"


def options(description: str | None, timeout: float) -> argparse.ArgumentParser:
    """The options that all comparisons have."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[500, 1000, 2000, 5000], metavar="N")
    parser.add_argument(
        "--repeat", type=int, default=3, help="calls, of which the best counts; slow ones are made once"
    )
    parser.add_argument("--timeout", type=float, default=timeout, help="seconds that one call may take")
    parser.add_argument(
        "--only",
        nargs="+",
        default=[""],
        metavar="WORD",
        help="solvers named so; drops the others' results unless --resume",
    )
    parser.add_argument("--resume", action="store_true", help="keep what the results file holds for the same versions")
    return parser


if __name__ == "__main__":
    print(json.dumps(answer(*sys.argv[1:])), flush=True)
