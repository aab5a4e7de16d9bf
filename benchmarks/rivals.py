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

import argparse
import json
import statistics
import sys
import time
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

import measure
from rival_solvers import OURS, POT_DENSE, RIVALS

RESULTS = measure.RESULTS / "rivals.json"
SHARES = (0.1, 0.5)
WEIGHTS = ("uniform", "random")
SMALL, SMALL_CALLS = 72, 200  # a typical mini-batch, and how many calls the median is taken of
SLOW = 2.0  # calls that take longer are not repeated
EXACT = 1e-9  # relative error up to which a value counts as right

Measurement = dict[str, Any]


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


def measure_solver(solver: str, n: int, share: float, weights: str, repeat: int, timeout: float) -> Measurement:
    """Seconds, value and peak memory of one solver on one problem; runs in a process of its own."""
    solve = RIVALS[solver].solve
    for warm_up in (10, 300):
        solve(*problem(warm_up, share, weights))
    measure.reset_peak()
    before = measure.peak_bytes()
    C, mu, nu = problem(n, share, weights)
    peak_reset = measure.reset_peak()
    seconds: list[float] = []
    value, peak = 0.0, 0
    while len(seconds) < repeat and (not seconds or seconds[0] < SLOW):
        measure.limit_time(timeout)
        start = time.perf_counter()
        value = solve(C, mu, nu)
        seconds.append(time.perf_counter() - start)
        measure.limit_time(0)
        peak = peak or measure.peak_bytes()
    summary = statistics.median(seconds) if n == SMALL else min(seconds)
    return {
        "seconds": summary,
        "calls": len(seconds),
        "value": value,
        "memory_mb": (peak - before) / 1e6,
        "cost_matrix_mb": C.nbytes / 1e6,
        "peak_is_of_call": peak_reset,
    }


class Results:
    """What has been measured, on disk after each measurement."""

    def __init__(self, resume: bool) -> None:
        self.header = measure.header()
        self.measurements: list[Measurement] = []
        if resume and RESULTS.exists():
            stored = json.loads(RESULTS.read_text())
            if stored["machine"] != self.header["machine"]:
                sys.exit(f"{RESULTS.name} was measured on another machine ({stored['machine']}): run without --resume.")
            self.measurements = stored["measurements"]

    def find(self, case: Case, solver: str) -> Measurement | None:
        key = (solver, *case)
        return next((m for m in self.measurements if (m["solver"], m["n"], m["share"], m["weights"]) == key), None)

    def holds(self, case: Case, solver: str, timeout: float) -> bool:
        """Whether measuring again would tell nothing new."""
        stored = self.find(case, solver)
        if stored is None or stored["version"] != measure.version(RIVALS[solver].package):
            return False
        return stored.get("error") != "time limit" or stored["timeout"] >= timeout

    def add(self, measurement: Measurement) -> None:
        old = self.find(Case(measurement["n"], measurement["share"], measurement["weights"]), measurement["solver"])
        if old is not None:
            self.measurements.remove(old)
        self.measurements.append(measurement)
        measure.write_json(RESULTS, {**self.header, "measurements": self.measurements})

    def of(self, case: Case) -> list[Measurement]:
        """The measurements of a case, fastest first, with the relative error of each value; failures come last."""
        found = [m for solver in RIVALS if (m := self.find(case, solver)) is not None]
        values = [m["value"] for m in found if "value" in m]
        true = statistics.median(values) if values else 0.0
        judged = [
            m | {"relative_error": abs(m["value"] - true) / (abs(true) or 1.0)} if "value" in m else m for m in found
        ]
        return sorted(judged, key=lambda m: m.get("seconds", np.inf))


def take(results: Results, work: list[tuple[Case, str]], repeat: int, timeout: float) -> None:
    """Measure what is left to measure, with a line of progress each."""
    for done, (case, solver) in enumerate(work, 1):
        rival = RIVALS[solver]
        print(f"[{done}/{len(work)}] {case}: {solver} ... ", end="", file=sys.stderr, flush=True)
        answer = measure.in_child(
            "rivals",
            "measure_solver",
            {
                "solver": solver,
                **case._asdict(),
                "repeat": SMALL_CALLS if case.n == SMALL else repeat,
                "timeout": timeout,
            },
            threads=None if rival.all_cores else 1,
            quiet=True,
        )
        stamp = {
            "version": measure.version(rival.package),
            "timeout": timeout,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        results.add({"solver": solver, **case._asdict(), **answer, **stamp})
        print(answer.get("error") or show_seconds(answer), file=sys.stderr, flush=True)


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


def show_memory(measurement: Measurement | None) -> str:
    """Memory beyond the cost matrix in MB."""
    if measurement is None or "memory_mb" not in measurement:
        return "-"
    return str(round(measurement["memory_mb"] - measurement["cost_matrix_mb"]))


def remark(measurement: Measurement) -> str:
    if "error" in measurement:
        return "" if measurement["error"] == "time limit" else measurement["error"]
    return "" if measurement["relative_error"] <= EXACT else "WRONG VALUE"


def case_table(results: Results, case: Case) -> Table:
    title = str(case) + (f" (median of {SMALL_CALLS} calls)" if case.n == SMALL else "")
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("solver")
    for column in ("time", "/ adaptive-ot", "memory MB", "beyond C MB", "value error"):
        table.add_column(column, justify="right")
    table.add_column("remark")
    ours = results.find(case, OURS)
    for row in results.of(case):
        table.add_row(
            row["solver"],
            show_seconds(row),
            show_ratio(row, ours),
            f"{row['memory_mb']:.0f}" if "memory_mb" in row else "-",
            show_memory(row),
            f"{row['relative_error']:.0e}" if "relative_error" in row else "-",
            remark(row),
            style="bold" if row["solver"].startswith(OURS) else None,
        )
    return table


def summary_table(results: Results, cases: list[Case]) -> Table:
    table = Table(title="Summary", title_justify="left", title_style="bold")
    for column in ("n = m", "negative", "weights", "adaptive-ot", "fastest exact rival"):
        table.add_column(column)
    for column in ("its ratio", "POT dense ratio", "beyond C MB", "POT dense: beyond C MB"):
        table.add_column(column, justify="right")
    for case in cases:
        ours, dense = results.find(case, OURS), results.find(case, POT_DENSE)
        right = [m for m in results.of(case) if m.get("relative_error", np.inf) <= EXACT]
        fastest = next((m for m in right if not m["solver"].startswith(OURS)), None)
        table.add_row(
            str(case.n),
            f"{case.share:.0%}",
            case.weights,
            show_seconds(ours) if ours else "-",
            fastest["solver"] if fastest else "-",
            show_ratio(fastest, ours),
            show_ratio(dense, ours),
            show_memory(ours),
            show_memory(dense),
        )
    return table


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[500, 1000, 2000, 5000], metavar="N")
    parser.add_argument(
        "--repeat", type=int, default=3, help="calls, of which the best counts; slow ones are made once"
    )
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds that one call may take")
    parser.add_argument(
        "--only",
        nargs="+",
        default=[""],
        metavar="WORD",
        help="solvers named so; drops the others' results unless --resume",
    )
    parser.add_argument("--resume", action="store_true", help="keep what the results file holds for the same versions")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    results = Results(options.resume)
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
        take(results, work, options.repeat, options.timeout)
    except KeyboardInterrupt:
        sys.exit("\nInterrupted. Measurements so far are kept; continue with --resume.")
    console = Console(width=None if sys.stdout.isatty() else 150)
    for case in cases:
        console.print(case_table(results, case))
    console.print(summary_table(results, cases))
    console.print("Ratios are times divided by adaptive-ot's; above 1, adaptive-ot is faster.")


if __name__ == "__main__":
    main()
