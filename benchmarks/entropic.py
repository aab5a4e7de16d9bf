"""Time and convergence of adaptive-ot's entropic solver beside every Sinkhorn rival, on the same problems and machine.

    make bench                                              # all of it, after rivals.py
    python benchmarks/entropic.py --sizes 500 1000          # less of it
    python benchmarks/entropic.py --resume                  # what the results file lacks or holds for other versions
    python benchmarks/entropic.py --only adaptive-ot POT    # solvers whose names contain a word
    python benchmarks/entropic.py --points --sizes 20000    # clouds whose cost matrix nobody forms

Problems: two standard normal clouds of n points in R^16 and the cost |x - z|^2 - s, with s such that half of the pairs
are negative; uniform weights; epsilon 0.1, 0.01 and 0.001 of the median absolute cost. And a mini-batch as in domain
adaptation: 72 x 72 points, the scale-free joint cost of features and class probabilities, epsilon 0.1.

Each measurement has a process of its own. It solves the problem with a huge epsilon first, which takes few iterations,
so that everything is imported and compiled for that very shape, and then the problem itself, up to --repeat times if
that takes less than two seconds; the best time counts, and at 72 x 72 the median. Time goes from the cost matrix to the
dense plan (see entropic_rivals.py, which also says what each is asked for). All solvers have all cores; adaptive-ot has
a row of its own on one thread too.

Outside the timed part every plan is judged alike: by the L1 error of the rows and columns of the augmented problem,
relative to its total weight. Above 1e-5 it has not converged, whatever the solver says. Values are compared with the
median of those that converged. A solver that ran into the time limit is not asked to solve larger problems, or those of
smaller epsilon. Results go to benchmarks/results/entropic.json after each measurement.

With --points: balanced transport with the cost |x - z|^2 between standard normal clouds in R^64, epsilon 0.05 of the
median cost, to errors of 1e-3 and 1e-6. Time goes from the points to the potentials, and is compared as processor time.
The error is the L1 error of both marginals in float64. Results go to benchmarks/results/entropic_points.json. The
online geometry of ott-jax 0.6 needs jax below 0.9.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

import measure
from entropic_rivals import OURS, POINT_RIVALS, RIVALS, augmented

RESULTS, POINT_RESULTS = measure.RESULTS / "entropic.json", measure.RESULTS / "entropic_points.json"
SMALL, SMALL_CALLS = 72, 200  # a typical mini-batch, and how many calls the median is taken of
DIMENSION, MEDIAN_OF, ROWS_AT_ONCE = 64, 2000, 500
CONVERGED = 1e-5  # error of the marginals; ten times what is asked for, as norms differ


class Case(NamedTuple):
    """A problem: its size, and epsilon as a multiple of the typical cost."""

    n: int
    epsilon: float

    def __str__(self) -> str:
        return f"n = m = {self.n}, {'joint cost, ' if self.n == SMALL else ''}epsilon = {self.epsilon:g}"


class PointCase(NamedTuple):
    """Two clouds of n points, epsilon as a multiple of the median cost, and the error that is asked for."""

    n: int
    epsilon: float
    tolerance: float

    def __str__(self) -> str:
        return f"points, n = m = {self.n}, epsilon = {self.epsilon:g}, error = {self.tolerance:g}"


def problem(n: int, epsilon: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    from scipy.spatial.distance import cdist

    x, z = measure.clouds(n)
    C = cdist(x, z, "sqeuclidean")
    if n == SMALL:
        rng = np.random.default_rng(2)
        labels, probabilities = np.eye(10)[rng.integers(0, 10, n)], rng.dirichlet(np.full(10, 0.3), n)
        C = 0.5 * C / np.median(C) - labels @ probabilities.T
    else:
        C -= np.median(C)
        epsilon *= float(np.median(np.abs(C)))
    return C, *measure.weights("uniform", n), epsilon


def marginal_error(plan: np.ndarray, C: np.ndarray, mu: np.ndarray, nu: np.ndarray) -> float:
    """L1 error of both marginals of the augmented problem relative to its total."""
    a, b, _, total = augmented(C, mu, nu)
    return float(np.abs(plan.sum(axis=1) / total - a).sum() + np.abs(plan.sum(axis=0) / total - b).sum())


def measure_points(solver: str, n: int, epsilon: float, tolerance: float, timeout: float) -> measure.Measurement:
    """Processor time and error of one solver of point clouds."""
    from scipy.spatial.distance import cdist

    x, z = measure.clouds(n, DIMENSION)
    epsilon *= float(np.median(cdist(x[:MEDIAN_OF], z[:MEDIAN_OF], "sqeuclidean")))
    call = POINT_RIVALS[solver].solve(x, z, epsilon, tolerance)
    processor = time.process_time()
    (seconds,), (f, g, iterations), _ = measure.timed(call, 1, timeout)
    processor = time.process_time() - processor
    rows, columns = np.empty(n), np.zeros(n)
    for top in range(0, n, ROWS_AT_ONCE):
        some = slice(top, top + ROWS_AT_ONCE)
        plan = np.exp((f[some, None] + g - cdist(x[some], z, "sqeuclidean")) / epsilon)
        rows[some] = plan.sum(axis=1)
        columns += plan.sum(axis=0)
    error = float(np.abs(rows - 1 / n).sum() + np.abs(columns - 1 / n).sum())
    return {
        "seconds": seconds,
        "processor_seconds": processor,
        "iterations": iterations,
        "marginal_error": error,
        "converged": error <= 10 * tolerance,  # norms differ
    }


def measure_solver(
    solver: str, n: int, epsilon: float, repeat: int, timeout: float, tolerance: float | None = None
) -> measure.Measurement:
    """Seconds, value and error of one solver on one problem; runs in a process of its own."""
    if tolerance is not None:
        return measure_points(solver, n, epsilon, tolerance, timeout)
    solve = RIVALS[solver].solve
    C, mu, nu, epsilon = problem(n, epsilon)
    measure.timed(lambda: solve(C, mu, nu, 100 * float(np.abs(C).max())), 1, timeout)
    seconds, (answer, iterations), _ = measure.timed(lambda: solve(C, mu, nu, epsilon), repeat, timeout)
    plan: Any = answer() if callable(answer) else answer
    error = marginal_error(plan, C, mu, nu)
    if not math.isfinite(error):
        return {"error": "NaN", "iterations": iterations}
    return {
        "seconds": statistics.median(seconds) if n == SMALL else min(seconds),
        "calls": len(seconds),
        "iterations": iterations,
        "value": float(np.vdot(C, plan[:n, :n])),
        "marginal_error": error,
        "converged": error <= CONVERGED,
    }


def case_table(results: measure.Results, case: Case) -> Table:
    title = str(case) + (f" (median of up to {SMALL_CALLS} calls)" if case.n == SMALL else "")
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("solver")
    for column in ("time", "/ adaptive-ot", "iterations", "marginal error", "value", "value error"):
        table.add_column(column, justify="right")
    table.add_column("remark")
    ours = results.find(case, OURS)
    rows = results.of(case)
    values = [row["value"] for row in rows if row.get("converged")]
    true = statistics.median(values) if values else math.nan
    for row in sorted(rows, key=lambda row: not row.get("converged", False)):
        solved = "value" in row
        table.add_row(
            row["solver"],
            measure.show_seconds(row),
            measure.show_ratio(row, ours),
            f"{row['iterations']:,}" if "iterations" in row else "-",
            f"{row['marginal_error']:.0e}" if solved else "-",
            f"{row['value']:.6f}" if solved else "-",
            f"{abs(row['value'] / true - 1):.0e}" if solved else "-",
            "not converged" if solved and not row["converged"] else row.get("error", ""),
            style="bold" if row["solver"].startswith(OURS) else None,
        )
    return table


def summary_table(results: measure.Results, cases: list[Case]) -> Table:
    table = Table(title="Summary", title_justify="left", title_style="bold")
    for column in ("n = m", "epsilon", "adaptive-ot", "fastest rival that converges"):
        table.add_column(column)
    for column in ("its time", "its ratio"):
        table.add_column(column, justify="right")
    for case in cases:
        ours = results.find(case, OURS)
        rivals = [m for m in results.of(case) if m.get("converged") and not m["solver"].startswith(OURS)]
        fastest = rivals[0] if rivals else None
        table.add_row(
            str(case.n),
            f"{case.epsilon:g}",
            measure.show_seconds(ours) if ours else "-",
            fastest["solver"] if fastest else "-",
            measure.show_seconds(fastest) if fastest else "-",
            measure.show_ratio(fastest, ours),
        )
    return table


def points_table(results: measure.Results, case: PointCase) -> Table:
    table = Table(title=str(case), title_justify="left", title_style="bold")
    table.add_column("solver")
    for column in ("processor time", "/ adaptive-ot", "time", "iterations", "marginal error"):
        table.add_column(column, justify="right")
    table.add_column("remark")
    ours = results.find(case, OURS) or {}
    for row in results.of(case):
        solved = "processor_seconds" in row
        compared = solved and "processor_seconds" in ours
        table.add_row(
            row["solver"],
            f"{row['processor_seconds']:.1f} s" if solved else "-",
            f"{row['processor_seconds'] / ours['processor_seconds']:.2f}" if compared else "-",
            measure.show_seconds(row),
            f"{row['iterations']:,}" if solved else "-",
            f"{row['marginal_error']:.0e}" if solved else "-",
            "not converged" if solved and not row["converged"] else row.get("error", ""),
        )
    return table


def compare_points(options: argparse.Namespace) -> None:
    results = measure.Results(POINT_RESULTS, POINT_RIVALS, options.resume)
    cases = [PointCase(n, 0.05, tolerance) for n in options.sizes for tolerance in options.tolerances]
    work = [
        (case, solver)
        for case in cases
        for solver in POINT_RIVALS
        if any(word in solver for word in options.only)
        and not (options.resume and results.holds(case, solver, options.timeout))
    ]
    results.take("entropic", work, options.timeout, lambda _: 1)
    for case in cases:
        Console(width=None if sys.stdout.isatty() else 150).print(points_table(results, case))


def main() -> None:
    parser = measure.options(__doc__, timeout=60.0)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.1, 0.01, 0.001], metavar="E")
    parser.add_argument("--points", action="store_true", help="point clouds instead of matrices")
    parser.add_argument("--tolerances", type=float, nargs="+", default=[1e-3, 1e-6], metavar="T", help="with --points")
    options = parser.parse_args()
    try:
        (compare_points if options.points else compare_matrices)(options)
    except KeyboardInterrupt:
        sys.exit("\nInterrupted. Measurements so far are kept; continue with --resume.")


def compare_matrices(options: argparse.Namespace) -> None:
    results = measure.Results(RESULTS, RIVALS, options.resume)
    cases = [Case(SMALL, 0.1), *(Case(n, epsilon) for n in options.sizes for epsilon in options.epsilons)]
    work = [
        (case, solver)
        for case in cases
        for solver in RIVALS
        if any(word in solver for word in options.only)
        and not (options.resume and results.holds(case, solver, options.timeout))
    ]
    results.take(
        "entropic",
        work,
        options.timeout,
        lambda case: SMALL_CALLS if case.n == SMALL else options.repeat,
        easier=lambda measured, case: measured["n"] <= case.n and measured["epsilon"] >= case.epsilon,
    )
    console = Console(width=None if sys.stdout.isatty() else 150)
    for case in cases:
        console.print(case_table(results, case))
    console.print(summary_table(results, cases))
    console.print("Ratios are times divided by adaptive-ot's; above 1, adaptive-ot is faster.")


if __name__ == "__main__":
    main()
