"""Processor time and memory of exact transport between point clouds, beside solvers that form the matrix or do not.

    python benchmarks/rival_points.py                          # all of it
    python benchmarks/rival_points.py --sizes 2000 --only adaptive-ot lazy
    python benchmarks/rival_points.py --resume                 # what the results file lacks or holds for other versions

Two standard normal clouds of n points, uniform weights, and the cost |x - z|^2 - reach^2 with a reach of 1 or one that
makes 10 % of the pairs negative (estimated on a sample of pairs); or balanced transport with the cost |x - z|^2.

`ot.lp.emd2_lazy` of POT, like adaptive-ot, does not form the matrix, but it solves balanced transport only. For
adaptive transport, it is given one more point a side and three more dimensions (see `lifted`): its optimum is then that
of the adaptive problem. The other rivals are given the matrix, and forming it is part of their time and memory; what
else they need is in rival_solvers.py.

Each measurement has a process of its own, which solves a small problem first (adaptive-ot also one of the same size,
since its kernels depend on the size), and then the problem, up to --repeat times if that takes less than two seconds;
the best time counts. "seconds" is the processor time of all threads, and so is the limit; rivals run on one thread. A
solver that reached the limit is not given larger clouds of the same kind. Memory is the peak during the first call less
what the process held before it made the points. Values are compared with the median of all values. Results go to
benchmarks/results/rival_points.json after each measurement.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

import measure
from rival_solvers import OURS, POT_DENSE, POT_PIVOTS, RIVALS
from scale import reach_for

RESULTS = measure.RESULTS / "rival_points.json"
EXACT = 1e-9  # relative error up to which a value counts as right
BALANCED, SHARE, REACH = "balanced", "10 % negative", "reach 1"
DIMENSIONS = {REACH: (2, 3), SHARE: (2, 3, 16), BALANCED: (2, 3, 16)}  # in R^16, no pairs are closer than 1

Solver = Callable[[np.ndarray, np.ndarray, float | None], float]  # reach None is balanced transport


def adaptive_ot(x: np.ndarray, z: np.ndarray, reach: float | None) -> float:
    import adaptive_ot as aot

    if reach is None:
        return aot.solve(aot.DistanceCost(x, z, 0.0), marginals=aot.Equal()).value
    return aot.solve(aot.DistanceCost(x, z, reach)).value


def pot_lazy(x: np.ndarray, z: np.ndarray, reach: float | None) -> float:
    if reach is None:
        return _emd2_lazy(x, z, None)
    n, radius = len(x), np.sqrt(np.square(x).sum(axis=1).max())
    lift = sum(np.square(np.square(points).sum(axis=1)).mean() for points in (x, z)) / (4 * radius**2)
    value = _emd2_lazy(*lifted(x, z, reach, radius), np.append(np.full(n, 1 / n), 1.0))
    return value - lift - 2 * radius**2 - reach**2


def lifted(x: np.ndarray, z: np.ndarray, reach: float, radius: float) -> tuple[np.ndarray, np.ndarray]:
    """Points between which balanced transport is the adaptive transport of x and z.

    The last point of each side takes, or gives, what does not move. In the new coordinates, the squared distances are
    |x - z|^2 - reach^2, and 0 for pairs with a last point, plus a number for each row and one for each column. All
    balanced plans pay the same for these numbers, so they do not change which plan is optimal.
    """

    def side(points: np.ndarray, own: int, other: int) -> np.ndarray:
        extended = np.zeros((len(points) + 1, points.shape[1] + 3))
        height, slack = extended[:-1, points.shape[1] :], extended[-1, points.shape[1] :]
        extended[:-1, : points.shape[1]] = points
        height[:, own] = np.square(points).sum(axis=1) / (2 * radius)
        slack[[other, 2]] = radius, reach / np.sqrt(2)
        return extended

    return side(x, 0, 1), side(z, 1, 0)


def _emd2_lazy(x: np.ndarray, z: np.ndarray, weights: np.ndarray | None) -> float:
    from ot.lp import emd2_lazy

    answer: Any = emd2_lazy(x, z, weights, weights, numItermax=POT_PIVOTS, log=True, return_matrix=False)
    value, log = answer
    if log["warning"] is not None:
        raise RuntimeError(log["warning"])
    return float(value)


def given_matrix(adaptive: str, balanced: str) -> Solver:
    """Rivals of rival_solvers.py, which are given the cost of every pair."""

    def solve(x: np.ndarray, z: np.ndarray, reach: float | None) -> float:
        from scipy.spatial.distance import cdist

        C, weights = cdist(x, z, "sqeuclidean"), np.full(len(x), 1 / len(x))
        if reach is not None:
            C -= reach**2
            return RIVALS[adaptive].solve(C, weights, weights)
        largest = C.max()
        C -= largest  # so that a solver that takes the lesser of a cost and 0 takes the cost
        return RIVALS[balanced].solve(C, weights, weights) + largest

    return solve


class Rival(NamedTuple):
    """A solver of clouds, and the package it comes from."""

    solve: Solver
    package: str
    all_cores: bool = False
    balanced: bool = True


SOLVERS = {
    OURS: Rival(adaptive_ot, "adaptive-ot", all_cores=True),
    "POT emd2_lazy": Rival(pot_lazy, "pot"),
    "POT emd": Rival(given_matrix(POT_DENSE, "POT emd, min(C, 0)"), "pot"),
    "POT emd, sparse": Rival(given_matrix("POT emd, sparse", ""), "pot", balanced=False),
    "lapcpp, cost_limit=0": Rival(given_matrix("lapcpp, cost_limit=0", "lapcpp, min(C, 0)"), "lapcpp"),
    "lapx lapjvs": Rival(given_matrix("lapx lapjvs", "lapx lapjvs"), "lapx"),
    "SciPy linear_sum_assignment": Rival(given_matrix(*["SciPy linear_sum_assignment"] * 2), "scipy"),
    "OR-tools SimpleMinCostFlow": Rival(given_matrix("OR-tools SimpleMinCostFlow", ""), "ortools", balanced=False),
}


class Case(NamedTuple):
    """A problem between clouds, the dimension and the size."""

    problem: str
    dimension: int
    n: int

    def __str__(self) -> str:
        return f"{self.problem}, R^{self.dimension}, n = m = {self.n:,}"


def points(problem: str, dimension: int, n: int) -> tuple[np.ndarray, np.ndarray, float | None]:
    x, z = measure.clouds(n, dimension)
    if problem == BALANCED:
        return x, z, None
    return x, z, 1.0 if problem == REACH else reach_for(x, z, 0.1)


def measure_solver(
    solver: str, problem: str, dimension: int, n: int, repeat: int, timeout: float
) -> measure.Measurement:
    """Seconds, value and peak memory of one solver on one problem; runs in a process of its own."""
    solve = SOLVERS[solver].solve
    for warm_up in (300, n) if solver == OURS else (300,):
        solve(*points(problem, dimension, warm_up))
    measure.reset_peak()
    before = measure.peak_bytes()
    given = points(problem, dimension, n)
    measure.reset_peak()
    seconds, value, peak = measure.timed(lambda: solve(*given), repeat, timeout, processor=True)
    return {"seconds": min(seconds), "calls": len(seconds), "value": value, "memory_mb": (peak - before) / 1e6}


def larger(slow: measure.Measurement, case: Case) -> bool:
    """Whether a problem is like one that took too long, and larger."""
    return (slow["problem"], slow["dimension"]) == (case.problem, case.dimension) and slow["n"] < case.n


def cell(measurement: measure.Measurement | None, median: float) -> str:
    if measurement is None:
        return ""
    if "seconds" not in measurement:
        return measure.show_seconds(measurement) if measurement["error"] == "time limit" else "not run"
    wrong = abs(measurement["value"] - median) > EXACT * abs(median)
    return f"{measure.show_seconds(measurement)}, {measurement['memory_mb']:,.0f} MB{', WRONG' if wrong else ''}"


def table(results: measure.Results, cases: list[Case]) -> Table:
    whole = Table(title="Processor time and memory", title_justify="left", title_style="bold")
    for column in ("problem", "in", "n = m", *SOLVERS):
        whole.add_column(column, justify="left" if column == "problem" else "right")
    for case in cases:
        median = statistics.median([m["value"] for m in results.of(case) if "value" in m] or [0.0])
        cells = [cell(results.find(case, solver), median) for solver in SOLVERS]
        whole.add_row(case.problem, f"R^{case.dimension}", f"{case.n:,}", *cells)
    return whole


def main() -> None:
    parser = measure.options(__doc__, timeout=60.0)
    parser.set_defaults(sizes=[2000, 5000, 10_000])
    options = parser.parse_args()
    results = measure.Results(RESULTS, SOLVERS, options.resume)
    cases = [
        Case(problem, dimension, n)
        for n in sorted(options.sizes)
        for problem in DIMENSIONS
        for dimension in DIMENSIONS[problem]
    ]
    work = [
        (case, solver)
        for case in cases
        for solver, rival in SOLVERS.items()
        if (rival.balanced or case.problem != BALANCED)
        and any(word in solver for word in options.only)
        and not (options.resume and results.holds(case, solver, options.timeout))
    ]
    try:
        results.take("rival_points", work, options.timeout, lambda _: options.repeat, larger)
    except KeyboardInterrupt:
        sys.exit("\nInterrupted. Measurements so far are kept; continue with --resume.")
    Console(width=None if sys.stdout.isatty() else 220).print(table(results, sorted(cases)))


if __name__ == "__main__":
    main()
