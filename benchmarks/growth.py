"""How time and memory grow with the number of points, fitted to the results of the other benchmarks.

    python benchmarks/growth.py
    python benchmarks/growth.py --points 1e8 --gpus 1024 --gigabytes-per-second 50

A row fits the power of n that is closest to all sizes of one kind of problem, by least squares of logarithms. Times are
of processors where they were measured. The second table extrapolates entropic transport between point clouds to many
GPUs, each of which holds all targets and a part of the sources: from the time of a pass over a million points, the
passes and the memory in benchmarks/results/streaming.json, from the bandwidth that is given, and from what a GPU sends
and receives for every pass, one number for each target both ways.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import measure

BYTES_PER_NUMBER = 8


def read(name: str) -> dict[str, Any]:
    return json.loads((measure.RESULTS / name).read_text())


def exact_kinds() -> dict[str, list[dict[str, float]]]:
    """Measurements of scale.py by kind of problem."""
    kinds = defaultdict(list)
    for row in read("scale.json")["measurements"]:
        if "error" not in row:
            pays = "10 % negative" if row.get("given_reach") is None else f"reach {row['given_reach']:g}"
            seconds = row.get("processor_seconds", row["seconds"])
            name = f"exact, R^{row['dimension']}, {pays}, {row['weights']} weights"
            numbers = {"n": row["n"], "seconds": seconds, "mb": row["peak_mb"], "pivots": row["pivots"] / row["n"]}
            kinds[name].append(numbers)
    return kinds


def entropic_kinds() -> dict[str, list[dict[str, float]]]:
    """Our measurements of entropic.py and streaming.py."""
    kinds = defaultdict(list)
    for row in read("entropic.json")["measurements"]:
        if row["solver"] == "adaptive-ot" and row["n"] > 72:
            kinds[f"entropic, dense, CPU, epsilon {row['epsilon']:g}"].append(row)
    for row in read("streaming.json")["results"]:
        if row["method"].startswith("adaptive-ot") and row["n"] <= 100_000:
            name = f"entropic, R^64, GPU, epsilon {row['epsilon']:g}, {row['method'].split(', ')[1]}"
            kinds[name].append(row | {"mb": row["peak_gib"] * 2**30 / 1e6})
    return kinds


def exponent(rows: list[dict[str, float]], key: str) -> float:
    """The power of n that fits best."""
    sizes, numbers = (np.log([row[name] for row in rows]) for name in ("n", key))
    return float(np.polyfit(sizes, numbers, 1)[0])


def growth_table() -> Table:
    table = Table("problem", "n", "time grows as", "memory grows as", "pivots a point")
    for name, rows in (exact_kinds() | entropic_kinds()).items():
        rows.sort(key=lambda row: row["n"])
        if rows[0]["n"] < rows[-1]["n"]:
            memory = f"n^{exponent(rows, 'mb'):.1f}" if "mb" in rows[0] else ""
            pivots = f"{rows[0]['pivots']:.0f} to {rows[-1]['pivots']:.0f}" if "pivots" in rows[0] else ""
            sizes = f"{rows[0]['n']:,} to {rows[-1]['n']:,}"
            table.add_row(name, sizes, f"n^{exponent(rows, 'seconds'):.1f}", memory, pivots)
    return table


def extrapolated(points: float, gpus: int, bandwidth: float) -> Table:
    """Time and memory of one GPU among many, from the largest measurement on one."""
    largest = max(read("streaming.json")["results"], key=lambda row: row["n"])
    each = largest["seconds"] / largest["passes"] / largest["n"] ** 2  # seconds for a pair
    computing, sending = each * points**2 / gpus, 2 * BYTES_PER_NUMBER * points / bandwidth
    memory = largest["peak_gib"] * points / largest["n"] * (1 + 1 / gpus) / 2  # all targets, some sources
    table = Table(f"{points:g} x {points:g} points, {gpus} GPUs", "")
    table.add_row(f"measured on one GPU, n = {largest['n']:,}", f"{1 / each:.2g} pairs a second in every pass")
    table.add_row("a pass, computing", f"{computing:.3g} s")
    table.add_row(f"a pass, sums and potentials at {bandwidth / 1e9:g} GB/s", f"{sending:.3g} s")
    table.add_row(
        f"{largest['passes']} passes, error 1e-3", f"{(computing + sending) * largest['passes'] / 60:.3g} min"
    )
    table.add_row("memory of a GPU", f"{memory:.3g} GiB")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=float, default=1e8)
    parser.add_argument("--gpus", type=int, default=1024)
    parser.add_argument("--gigabytes-per-second", type=float, default=50.0, help="received by each GPU")
    options = parser.parse_args()
    console = Console(width=140)
    console.print(growth_table())
    console.print(extrapolated(options.points, options.gpus, 1e9 * options.gigabytes_per_second))


if __name__ == "__main__":
    main()
