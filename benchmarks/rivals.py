"""Time and memory of adaptive-ot's exact solver beside every exact rival, on the same problems and machine.

    make bench                                            # all of it
    python benchmarks/rivals.py --sizes 500 1000          # less of it
    python benchmarks/rivals.py --resume                  # what the results file lacks or holds for other versions
    python benchmarks/rivals.py --only adaptive-ot POT    # solvers whose names contain a word

Problems: two standard normal clouds of n points in R^16 and the cost |x - z|^2 - s, with s such that 10 % or 50 % of
the pairs are negative; uniform weights, or random ones of total 1.

Each measurement has a process of its own. It solves a tiny problem and one of 300 points first, so that everything is
imported and compiled, and then the problem itself, up to --repeat times if that takes less than two seconds; the best
time counts. Time includes whatever a rival needs to be given the problem (see rival_solvers.py). Memory is the peak
during the first call less what the process held before the cost matrix was built, so the matrix itself is in it.
Rivals run on one thread, as they are made; adaptive-ot runs on all cores and, in a row of its own, on one thread.
Values are compared with the median of all values. Results go to benchmarks/results/rivals.json after each measurement.
"""

from __future__ import annotations

import statistics
import sys
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

import measure
from rival_solvers import OURS, POT_DENSE, RIVALS

RESULTS = measure.RESULTS / "rivals.json"
SHARES = (0.1, 0.5)
WEIGHTS = ("uniform", "random")
SMALL, SMALL_CALLS = 72, 200  # a typical mini-batch, and how many calls the median is taken of
EXACT = 1e-9  # relative error up to which a value counts as right


class Case(NamedTuple):
    """A problem: its size, the share of negative pairs, and the kind of weights."""

    n: int
    share: float
    weights: str

    def __str__(self) -> str:
        return f"n = m = {self.n}, {self.share:.0%} negative pairs, {self.weights} weights"


def problem(n: int, share: float, weights: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    from scipy.spatial.distance import cdist

    C = cdist(*measure.clouds(n), "sqeuclidean")
    C -= np.quantile(C, share)
    return C, *measure.weights(weights, n)


def measure_solver(solver: str, n: int, share: float, weights: str, repeat: int, timeout: float) -> measure.Measurement:
    """Seconds, value and peak memory of one solver on one problem; runs in a process of its own."""
    solve = RIVALS[solver].solve
    for warm_up in (10, 300):
        solve(*problem(warm_up, share, weights))
    measure.reset_peak()
    before = measure.peak_bytes()
    C, mu, nu = problem(n, share, weights)
    peak_reset = measure.reset_peak()
    seconds, value, peak = measure.timed(lambda: solve(C, mu, nu), repeat, timeout)
    summary = statistics.median(seconds) if n == SMALL else min(seconds)
    return {
        "seconds": summary,
        "calls": len(seconds),
        "value": value,
        "memory_mb": (peak - before) / 1e6,
        "cost_matrix_mb": C.nbytes / 1e6,
        "peak_is_of_call": peak_reset,
    }


def judged(measurements: list[measure.Measurement]) -> list[measure.Measurement]:
    """measure.Measurements of one case with the relative error of each value."""
    values = [m["value"] for m in measurements if "value" in m]
    true = statistics.median(values) if values else 0.0
    return [
        m | {"relative_error": abs(m["value"] - true) / (abs(true) or 1.0)} if "value" in m else m for m in measurements
    ]


def show_memory(measurement: measure.Measurement | None) -> str:
    """Memory beyond the cost matrix in MB."""
    if measurement is None or "memory_mb" not in measurement:
        return "-"
    return str(round(measurement["memory_mb"] - measurement["cost_matrix_mb"]))


def remark(measurement: measure.Measurement) -> str:
    if "error" in measurement:
        return "" if measurement["error"] == "time limit" else measurement["error"]
    return "" if measurement["relative_error"] <= EXACT else "WRONG VALUE"


def case_table(results: measure.Results, case: Case) -> Table:
    title = str(case) + (f" (median of up to {SMALL_CALLS} calls)" if case.n == SMALL else "")
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("solver")
    for column in ("time", "/ adaptive-ot", "memory MB", "beyond C MB", "value error"):
        table.add_column(column, justify="right")
    table.add_column("remark")
    ours = results.find(case, OURS)
    for row in judged(results.of(case)):
        table.add_row(
            row["solver"],
            measure.show_seconds(row),
            measure.show_ratio(row, ours),
            f"{row['memory_mb']:.0f}" if "memory_mb" in row else "-",
            show_memory(row),
            f"{row['relative_error']:.0e}" if "relative_error" in row else "-",
            remark(row),
            style="bold" if row["solver"].startswith(OURS) else None,
        )
    return table


def summary_table(results: measure.Results, cases: list[Case]) -> Table:
    table = Table(title="Summary", title_justify="left", title_style="bold")
    for column in ("n = m", "negative", "weights", "adaptive-ot", "fastest exact rival"):
        table.add_column(column)
    for column in ("its ratio", "POT dense ratio", "beyond C MB", "POT dense: beyond C MB"):
        table.add_column(column, justify="right")
    for case in cases:
        ours, dense = results.find(case, OURS), results.find(case, POT_DENSE)
        right = [m for m in judged(results.of(case)) if m.get("relative_error", np.inf) <= EXACT]
        fastest = next((m for m in right if not m["solver"].startswith(OURS)), None)
        table.add_row(
            str(case.n),
            f"{case.share:.0%}",
            case.weights,
            measure.show_seconds(ours) if ours else "-",
            fastest["solver"] if fastest else "-",
            measure.show_ratio(fastest, ours),
            measure.show_ratio(dense, ours),
            show_memory(ours),
            show_memory(dense),
        )
    return table


def main() -> None:
    options = measure.options(__doc__, timeout=300.0).parse_args()
    results = measure.Results(RESULTS, RIVALS, options.resume)
    large = [Case(n, share, weights) for n in options.sizes for share in SHARES for weights in WEIGHTS]
    cases = list(dict.fromkeys([Case(SMALL, 0.1, "uniform"), *large]))
    work = [
        (case, solver)
        for case in cases
        for solver, rival in RIVALS.items()
        if rival.applies(case.n, case.weights)
        and any(word in solver for word in options.only)
        and not (options.resume and results.holds(case, solver, options.timeout))
    ]
    try:
        results.take("rivals", work, options.timeout, lambda case: SMALL_CALLS if case.n == SMALL else options.repeat)
    except KeyboardInterrupt:
        sys.exit("\nInterrupted. Measurements so far are kept; continue with --resume.")
    console = Console(width=None if sys.stdout.isatty() else 150)
    for case in cases:
        console.print(case_table(results, case))
    console.print(summary_table(results, cases))
    console.print("Ratios are times divided by adaptive-ot's; above 1, adaptive-ot is faster.")


if __name__ == "__main__":
    main()
