"""Long solves report what they do, stop at Ctrl-C, and let exceptions through."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from numba import types
from numba.core.dispatcher import Dispatcher

import adaptive_ot as aot
from interruption import interrupt

LONG_SOLVE = """
import numpy as np, adaptive_ot as aot

# Compile, or load from the cache, before the clock runs.
rng = np.random.default_rng(0)
x, z = rng.standard_normal((1100, 8)), rng.standard_normal((1100, 8))
aot.solve(aot.DistanceCost(x, z, reach=9.0))

seen = set()
def progress(report):
    if report.stage not in seen:
        seen.add(report.stage)
        print("at", report.stage, flush=True)

{problem}
try:
    {call}
    print("finished", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""

PROBLEMS = {
    "points": "x, z = rng.standard_normal((20_000, 8)), rng.standard_normal((20_000, 8)) + 1\n"
    "cost = aot.DistanceCost(x, z, reach=9.0)",
    "dense": "from scipy.spatial.distance import cdist\n"
    "x, z = rng.standard_normal((5_000, 8)), rng.standard_normal((5_000, 8)) + 1\n"
    "cost = (cdist(x, z, 'sqeuclidean') - 81).astype(np.float32)",
}


def holds_more_than_numbers(kind: types.Type) -> bool:
    if isinstance(kind, types.Tuple | types.UniTuple):
        return any(map(holds_more_than_numbers, kind.types))
    return not isinstance(kind, types.Number | types.Boolean | types.NoneType)


def test_kernels_return_numbers():
    """From the rest Numba makes Python objects with Python code; where Ctrl-C stops that, it fails or crashes."""
    rng = np.random.default_rng(1)
    cost, batch = rng.standard_normal((9, 8)), rng.standard_normal((3, 9, 8))
    weights = rng.random(9)
    for solver in (aot.Exact(), aot.Entropic(0.1)):
        for model in (aot.AtMost(), aot.FixedMass(0.4)):
            aot.solve(cost, weights, marginals=model, solver=solver)
            aot.solve(batch, marginals=model, solver=solver)
    aot.solve(aot.DistanceCost(rng.random((900, 2)), rng.random((900, 2)), reach=0.1))
    aot.mass_path(cost)
    engines = "adaptive_ot.exact", "adaptive_ot.entropic", "adaptive_ot._points"
    modules = [module for name, module in sys.modules.items() if name.startswith(engines)]
    kernels = {thing for module in modules for thing in vars(module).values() if isinstance(thing, Dispatcher)}
    compiled = {kernel: kernel.nopython_signatures for kernel in kernels if kernel.signatures}
    assert {"optimise", "raise_price", "find_negative"} <= {kernel.py_func.__name__ for kernel in compiled}
    wrong = [
        kernel.py_func.__qualname__
        for kernel, signatures in compiled.items()
        if any(holds_more_than_numbers(signature.return_type) for signature in signatures)
    ]
    assert wrong == []


ROBUST = "aot.solve(cost, marginals=aot.ChiSquareBall(0.2), progress=progress)"
SMALL = "cost, weights = rng.standard_normal((300, 280)), rng.random(300)"
ENTROPIC = "aot.solve(cost, solver=aot.Entropic(1e-4), progress=progress)"
ENTROPIC_PROBLEMS = {
    "epsilon": "aot.solve(aot.DistanceCost(x[:50], z[:40], reach=1.0), solver=aot.Entropic(0.1))\n"
    "cost = aot.DistanceCost(*rng.random((2, 9000, 3)), reach=1.0)",
    "batch": "aot.solve(rng.standard_normal((2, 5, 5)), solver=aot.Entropic(0.1))\n"
    "cost = rng.standard_normal((2000, 150, 150))",
}


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
@pytest.mark.parametrize(
    ("problem", "call", "stage"),
    [
        *[(each, "aot.solve(cost, progress=progress)", "pricing") for each in PROBLEMS.values()],
        *[(each, "aot.solve(cost, progress=progress)", "pivoting") for each in PROBLEMS.values()],
        *[(each, "aot.mass_path(cost, progress=progress)", "walking") for each in PROBLEMS.values()],
        (SMALL, "while True: aot.solve(cost, weights, progress=progress)", "pivoting"),
        ("cost = rng.random((400, 300))", ROBUST, "interior"),
        *[(problem, ENTROPIC, stage) for stage, problem in ENTROPIC_PROBLEMS.items()],
    ],
)
def test_ctrl_c(problem, call, stage):
    interrupt(LONG_SOLVE.format(problem=problem, call=call), stage)


def long_enough(n=1500):
    rng = np.random.default_rng(0)
    return aot.DistanceCost(rng.standard_normal((n, 3)), rng.standard_normal((n, 3)) + 0.5, reach=3.0)


def test_progress_is_sane():
    reports: list[aot.Progress] = []
    cost = long_enough()
    solution = aot.solve(cost, progress=reports.append)
    assert {report.stage for report in reports} == {"pricing", "pivoting"}
    for report in reports:
        assert isinstance(report, aot.Progress)
        assert report.fraction is None or 0 < report.fraction <= 1
        assert report.gap >= 0
        assert not math.isnan(report.gap)
        assert report.arcs <= cost.shape[0] * cost.shape[1]
    for name in ("round", "iterations", "arcs"):
        numbers = [getattr(report, name) for report in reports]
        assert numbers == sorted(numbers)
        assert numbers[0] == 0
        assert numbers[-1] > 0
    assert reports[-1].iterations == solution.iterations
    assert math.isinf(reports[0].gap)  # before the first certificate
    assert math.isfinite(reports[-1].gap)


def test_progress_of_pricing_runs_to_the_end():
    reports: list[aot.Progress] = []
    aot.solve(long_enough(2500), progress=reports.append)
    rounds: dict[int, list[float]] = {}
    for report in reports:
        if report.stage == "pricing":
            assert report.fraction is not None
            rounds.setdefault(report.round, []).append(report.fraction)
    assert sorted(rounds) == list(range(len(rounds)))
    for fractions in rounds.values():
        assert fractions == sorted(fractions)
        assert fractions[-1] == 1.0


class Stop(Exception):
    """Raised by a callback."""


@pytest.mark.parametrize(
    ("how", "stage"),
    [
        *[({}, "pricing"), ({}, "pivoting"), ({"marginals": aot.FixedMass(0.9)}, "walking")],
        ({"solver": aot.Entropic(0.5, compiled=False)}, "epsilon"),
    ],
)
@pytest.mark.parametrize("cost", [[[-1.0, 2.0], [3.0, -1.0]], long_enough()], ids=["small", "points"])
def test_exception_in_the_callback_comes_through(how, stage, cost):
    def progress(report):
        if report.stage == stage:
            raise Stop(report.stage)

    with pytest.raises(Stop, match=stage):
        aot.solve(cost, **how, progress=progress)
    assert aot.solve(cost, **how).status.succeeded  # and nothing is broken afterwards


def test_progress_changes_nothing():
    cost = long_enough()
    told, silent = aot.solve(cost, progress=lambda _: None), aot.solve(cost)
    assert (told.value, told.iterations) == (silent.value, silent.iterations)
