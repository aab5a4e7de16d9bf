"""Measuring: calls in a process of their own, peak memory, and what a results file says about the machine.

`in_child("rivals", "measure", {...})` runs `rivals.measure(...)` in a fresh Python process and returns its answer, so
that neither memory nor threads nor compiled code of one measurement touch the next.
"""

from __future__ import annotations

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
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")

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
    if process.returncode == -signal.SIGALRM:
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


def limit_time(seconds: float) -> None:
    """End this process after `seconds`, even inside a C function; 0 lifts the limit."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)


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


def header() -> dict[str, Any]:
    """How a results file begins."""
    packages = ("adaptive-ot", "numpy", "scipy", "numba", "pot", "lapx", "ortools")
    return {
        "command": " ".join(["python", Path(sys.argv[0]).name, *sys.argv[1:]]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": {package: version(package) for package in packages},
    }


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a results file so that an interrupted run leaves the old or the new one, never half."""
    path.parent.mkdir(exist_ok=True)
    draft = path.with_suffix(".tmp")
    draft.write_text(json.dumps(content, indent=1) + "\n")
    draft.replace(path)


if __name__ == "__main__":
    print(json.dumps(answer(*sys.argv[1:])), flush=True)
