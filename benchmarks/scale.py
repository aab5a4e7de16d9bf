"""How time and memory of exact adaptive transport grow with the number of points.

    make scale                                              # 10,000, 30,000 and 100,000 points a side
    python benchmarks/scale.py --sizes 1000 3000 --weights random
    python benchmarks/scale.py --dimension 2 --reach 1      # in the plane, where nearly everything pays
    python benchmarks/scale.py --dimension 3 --reach 0.1 --sizes 1000000

Two standard normal clouds, by default in R^16; unless given, the reach is such that 10 % of the pairs are negative
(estimated on a sample of pairs). The cost matrix, 80 GB at n = 100,000, is never formed. Each size has a process of its
own, which solves a small problem first so that compilation is not timed. Memory is the peak of the whole process.
`seconds` is the time on the clock, `processor_seconds` that of all threads together. Results go to
benchmarks/results/scale.json after each size; those of other problems stay there.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import adaptive_ot as aot
import measure

RESULTS = measure.RESULTS / "scale.json"
SAMPLE = 1_000_000  # pairs on which the reach is estimated


class Watch:
    """Shows progress on stderr and tells pricing from pivoting.

    Pricing reports after each block of rows, together with the fraction it has done, so a round of pricing takes the
    time between its first and its last report, divided by the fraction that lies between them. The rest is pivoting.
    """

    def __init__(self) -> None:
        self.start = self.shown = time.perf_counter()
        self.last: aot.Progress | None = None
        self.reports: dict[int, list[tuple[float, float]]] = {}

    def __call__(self, progress: aot.Progress) -> None:
        now = time.perf_counter()
        self.last = progress
        if progress.fraction is not None:
            self.reports.setdefault(progress.round, []).append((progress.fraction, now))
        if now - self.shown > 0.5:
            self.shown = now
            done = "" if progress.fraction is None else f" {progress.fraction:4.0%}"
            work = f"{progress.iterations:,} pivots, {progress.arcs:,} arcs"
            line = f"{now - self.start:7.0f} s  round {progress.round}, {work}"
            print(
                f"\r{line}, gap {progress.gap:.1e}, {progress.stage}{done}\033[K", end="", file=sys.stderr, flush=True
            )

    def pricing_seconds(self) -> float | None:
        """None for problems so small that every round of pricing is a single report; such rounds do not count."""
        seconds, measured = 0.0, False
        for reports in self.reports.values():
            (first, begin), (last, end) = reports[0], reports[-1]
            if last > first:
                seconds, measured = seconds + (end - begin) / (last - first), True
        return seconds if measured else None


def reach_for(x: np.ndarray, z: np.ndarray, share: float) -> float:
    """The distance within which about `share` of all pairs lie."""
    rng = np.random.default_rng(2)
    i, j = rng.integers(0, len(x), SAMPLE), rng.integers(0, len(z), SAMPLE)
    return math.sqrt(np.quantile(np.square(x[i] - z[j]).sum(axis=1), share))


def measure_size(n: int, dimension: int, weights: str, share: float | None, reach: float | None) -> dict[str, Any]:
    """Solve one problem and say what it took; runs in a process of its own."""
    x, z = measure.clouds(n, dimension)
    if share is not None:
        reach = reach_for(x, z, share)
    assert reach is not None
    measure.reset_peak()
    part = slice(0, min(n, 512 << 2 * dimension, 10_000))  # enough points for every kernel that the clouds will need
    aot.solve(aot.DistanceCost(x[part], z[part], reach=1.0))
    mu, nu = measure.weights(weights, n)
    watch, processor = Watch(), time.process_time()
    solution = aot.solve(aot.DistanceCost(x, z, reach=reach), mu, nu, progress=watch)
    seconds = time.perf_counter() - watch.start
    print("\r\033[K", end="", file=sys.stderr, flush=True)
    pricing = watch.pricing_seconds()
    return {
        "reach": reach,
        "seconds": seconds,
        "processor_seconds": time.process_time() - processor,
        "pricing_seconds": pricing,
        "pivoting_seconds": None if pricing is None else seconds - pricing,
        "peak_mb": measure.peak_bytes() / 1e6,
        "rounds": watch.last.round if watch.last else 1,
        "pivots": solution.iterations,
        "arcs": watch.last.arcs if watch.last else 0,
        "mass": solution.mass,
        "value": solution.value,
        "relative_gap": solution.gap / abs(solution.value) if solution.value else 0.0,
    }


def growth_table(rows: list[dict[str, Any]], title: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    columns = (
        "n = m",
        "seconds",
        "pricing",
        "pivoting",
        "grows as",
        "peak MB",
        "rounds",
        "pivots",
        "mass",
        "value",
        "gap",
    )
    for column in columns:
        table.add_column(column, justify="right")
    before: dict[str, Any] | None = None
    for row in rows:
        if "error" in row:
            table.add_row(f"{row['n']:,}", row["error"])
            continue
        growth = math.log(row["seconds"] / before["seconds"]) / math.log(row["n"] / before["n"]) if before else None
        table.add_row(
            f"{row['n']:,}",
            f"{row['seconds']:.2f}",
            *("-" if row[key] is None else f"{row[key]:.2f}" for key in ("pricing_seconds", "pivoting_seconds")),
            "" if growth is None else f"n^{growth:.2f}",
            f"{row['peak_mb']:,.0f}",
            f"{row['rounds']}",
            f"{row['pivots']:,}",
            f"{row['mass']:.6f}",
            f"{row['value']:.9f}",
            f"{row['relative_gap']:.0e}",
        )
        before = row
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 30_000, 100_000], metavar="N")
    parser.add_argument("--weights", choices=("uniform", "random"), default="uniform")
    parser.add_argument("--share", type=float, default=0.1, help="share of negative pairs")
    parser.add_argument("--dimension", type=int, default=16)
    parser.add_argument("--reach", type=float, help="instead of a share of negative pairs")
    options = parser.parse_args()
    share = options.share if options.reach is None else None
    kind = {"dimension": options.dimension, "weights": options.weights, "share": share, "given_reach": options.reach}
    kept = json.loads(RESULTS.read_text())["measurements"] if RESULTS.exists() else []
    rows: list[dict[str, Any]] = []
    for n in sorted(set(options.sizes)):
        print(f"n = m = {n:,}", file=sys.stderr, flush=True)
        problem = {"n": n} | {key.removeprefix("given_"): value for key, value in kind.items()}
        answer = measure.in_child("scale", "measure_size", problem, threads=None, quiet=False)
        rows.append({"n": n} | kind | answer | measure.header())
        others = [row for row in kept if {"n": row["n"]} | {key: row.get(key) for key in kind} != {"n": n} | kind]
        kept = [*others, rows[-1]]
        measure.write_json(RESULTS, {"measurements": kept})
    pairs = f"{share:.0%} negative pairs" if share else f"reach {options.reach:g}"
    title = f"Point clouds in R^{options.dimension}, {pairs}, {options.weights} weights"
    Console(width=None if sys.stdout.isatty() else 150).print(growth_table(rows, title))


if __name__ == "__main__":
    main()
