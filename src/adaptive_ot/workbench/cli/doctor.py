"""``adaptive-ot doctor``: what is installed, what runs where, and whether it computes the right thing."""

from __future__ import annotations

import os
import platform
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from adaptive_ot import DistanceCost, Solution, __version__, solve
from adaptive_ot.workbench.cli import show
from adaptive_ot.workbench.cli.samples import TOY_COST, TOY_VALUE
from adaptive_ot.workbench.environment import versions
from adaptive_ot.workbench.wording import counted

PACKAGES = ("numpy", "scipy", "numba", "torch", "matplotlib")


def doctor() -> int:
    """Show what is installed and what will run where, and solve two problems with known answers."""
    show.title("Installed")
    system = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    show.lines({"Python": system, "adaptive-ot": __version__})
    show.lines(dict.fromkeys(PACKAGES, "not installed") | versions(PACKAGES) | {"BLAS": _blas()})
    show.title("What runs where")
    show.lines(_machine())
    show.title("Self-test")
    results = [_test("toy 6 x 5", _toy), _test("400 x 400", _cloud)]
    show.line("result", "OK" if all(results) else "FAILED: please report this page")
    return 0 if all(results) else 1


def _blas() -> str:
    config: Any = np.show_config(mode="dicts")
    blas = config.get("Build Dependencies", {}).get("blas", {})
    return f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip()


def _machine() -> dict[str, str]:
    """Threads, GPU, and where compiled code is kept."""
    import numba

    from adaptive_ot.exact import simplex as _simplex

    kernels = [each for each in vars(_simplex).values() if hasattr(each, "py_func")]
    folders = [kernel.stats.cache_path for kernel in kernels if kernel.stats.cache_path]
    threads = numba.get_num_threads()
    gpu = _gpu()
    on_gpu = f"{gpu}: prices costs given as CUDA tensors" if gpu else None
    return {
        "threads": f"{threads} of {os.cpu_count()} processors (NUMBA_NUM_THREADS changes it)",
        "pivots": "one CPU thread",
        "pricing": f"dense and point costs: {counted(threads, 'CPU thread')}; sparse and small costs: one",
        "GPU": on_gpu or "none, or no torch to see it: everything runs on the CPU",
        "cache": _cache(folders[0] if folders else None),
    }


def _gpu() -> str | None:
    try:
        import torch
    except ImportError:
        return None
    return torch.cuda.get_device_name() if torch.cuda.is_available() else None


def _cache(folder: str | None) -> str:
    """Can compiled code be kept? Otherwise every process compiles anew."""
    try:
        if folder:
            os.makedirs(folder, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return f"compiled code is kept in {folder}"
    except OSError:
        pass
    return f"not writable ({folder or 'no place found'}): every process compiles for some seconds; set NUMBA_CACHE_DIR"


def _test(label: str, test: Callable[[], tuple[Solution, float]]) -> bool:
    """Compare a solution with a value found in another way."""
    started = time.perf_counter()
    solution, expected = test()
    seconds = time.perf_counter() - started
    error = abs(solution.value - expected) / max(1.0, abs(expected))
    good = error <= 1e-12 and solution.gap <= 1e-9
    numbers = f"value {solution.value:.9g}, error {error:.1e}, certified gap {solution.gap:.1e}, {seconds:.2f} s"
    show.line(label, f"{'OK' if good else 'WRONG'}: {numbers}")
    return good


def _toy() -> tuple[Solution, float]:
    return solve(TOY_COST), TOY_VALUE


def _cloud() -> tuple[Solution, float]:
    """With uniform weights and as many sources as targets, the problem is an assignment with costs min(C, 0)."""
    from scipy.optimize import linear_sum_assignment

    size = 400
    x, z = np.random.default_rng(0).normal(size=(2, size, 3))
    cost = DistanceCost(x, z, reach=1.0)
    clipped = np.minimum(cost.block(0, size), 0.0)
    return solve(cost), float(clipped[linear_sum_assignment(clipped)].sum()) / size
