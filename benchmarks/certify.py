"""What `certify` takes for sparse plans between large point clouds, beside the exact solve that they come from.

    python benchmarks/certify.py [--size 100000] [--dimensions 2 3 16]

Two standard normal clouds in R^2 and R^3 (reach 1) and in R^16 (10 % of the pairs negative). `certify` is given the
plan and the potentials of both sides, and prices all pairs twice: once for each side. Times are processor time, since a
machine is seldom quiet for so long; memory is the peak during the call less what was held before, and the peak of the
process. Each problem has a process of its own, which certifies a smaller one first so that compilation is not timed.
Results: benchmarks/results/certify.json; those of other problems stay there.
"""

from __future__ import annotations

import argparse
from typing import Any

from rich.console import Console
from rich.table import Table

import adaptive_ot as aot
import measure
from scale import reach_for

RESULTS = measure.RESULTS / "certify.json"
REACHES = {2: 1.0, 3: 1.0, 16: None}  # of R^16, the reach that makes 10 % of the pairs negative
SMALLER = 10_000  # points for which every kernel is used


def measure_certify(n: int, dimension: int) -> dict[str, Any]:
    """Solve one problem, and say what it takes to certify the answer; runs in a process of its own."""
    certified(min(n, SMALLER), dimension)
    return certified(n, dimension)


def certified(n: int, dimension: int) -> dict[str, Any]:
    x, z = measure.clouds(n, dimension)
    cost = aot.DistanceCost(x, z, REACHES[dimension] or reach_for(x, z, 0.1))
    started = measure.processor_time()
    solution = aot.solve(cost)
    solved = measure.processor_time() - started
    answer = {name: getattr(solution, name) for name in ("plan", "source_potential", "target_potential")}
    value = solution.value
    del solution
    measure.reset_peak()
    before, started = measure.peak_bytes(), measure.processor_time()
    certificate = aot.certify(cost, **answer)
    return {
        "processor_seconds": measure.processor_time() - started,
        "solve_processor_seconds": solved,
        "memory_mb": (measure.peak_bytes() - before) / 1e6,
        "peak_mb": measure.peak_bytes() / 1e6,
        "entries": int(answer["plan"].nnz),
        "feasible": certificate.feasible,
        "relative_gap": certificate.gap / abs(value),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=100_000)
    parser.add_argument("--dimensions", type=int, nargs="+", choices=REACHES, default=list(REACHES), metavar="D")
    options = parser.parse_args()
    table = Table("in", "certify, seconds", "solve, seconds", "memory MB", "peak MB", "relative gap", "feasible")
    for dimension in options.dimensions:
        problem = {"n": options.size, "dimension": dimension}
        row = problem | measure.in_child("certify", "measure_certify", problem, threads=None, quiet=False)
        rows = [*measure.kept(RESULTS, problem), row]
        measure.write_json(RESULTS, measure.header() | {"measurements": rows})
        times = f"{row['processor_seconds']:.2f}", f"{row['solve_processor_seconds']:.1f}"
        memory = f"{row['memory_mb']:,.0f}", f"{row['peak_mb']:,.0f}"
        table.add_row(f"R^{dimension}", *times, *memory, f"{row['relative_gap']:.0e}", str(row["feasible"]))
    Console().print(table)


if __name__ == "__main__":
    main()
