"""Where solving coarser problems first pays: processor time of the exact solver with and without them.

    python benchmarks/scales.py [--points | --matrices] [--sizes 2000 5000]

Standard normal points, the targets moved by `shift` in every coordinate, and a reach for which a share `paying` of the
pairs has a negative cost. `--matrices` gives the solver the matrix of the costs, and also matrices of random costs.
`with` and `without` are the least of three runs, which take turns. Results of every command go to
benchmarks/results/scales.json.
"""

from __future__ import annotations

import argparse
import json
import time
from itertools import product
from typing import Any

import numpy as np

import adaptive_ot as aot
import measure
from adaptive_ot.exact.limits import LIMITS, Limits
from adaptive_ot.exact.solver import solve_exact

RESULTS = measure.RESULTS / "scales.json"
WITHOUT = Limits(coarsest_points=2**40)
SHARES = (0.01, 0.1, 0.5, 1.0)
SAMPLE = 1000  # rows and columns from which the share of paying pairs is estimated
RUNS = 3


def threshold(costs: np.ndarray, paying: float) -> float:
    """What must be subtracted from costs for a share of them to pay."""
    return float(costs.max()) * 1.5 if paying == 1 else float(np.quantile(costs, paying))


def of_points(n: int, dimension: int, shift: float, paying: float, dense: bool) -> Any:
    """The cost of two clouds, as points or as a matrix."""
    x, z = measure.clouds(n, dimension)
    z = z + shift
    reach = threshold(aot.DistanceCost(x[:SAMPLE], z[:SAMPLE], 0.0).block(0, SAMPLE), paying) ** 0.5
    cost = aot.DistanceCost(x, z, reach)
    return cost.block(0, n) if dense else cost


def of_chance(n: int, paying: float) -> np.ndarray:
    """A matrix of independent random costs."""
    costs = np.random.default_rng(0).random((n, n))
    return costs - threshold(costs[:SAMPLE, :SAMPLE], paying)


def compared(cost: Any, n: int, weights: str) -> dict[str, Any]:
    """What both ways of solving took."""
    problem = aot.Problem.build(cost, *measure.weights(weights, n))
    seconds: dict[str, float] = {}
    pivots: dict[str, float] = {}
    values = []
    for _, (name, limits) in product(range(RUNS), (("without", WITHOUT), ("with", LIMITS))):
        started = time.process_time()
        solution = solve_exact(problem, aot.Exact(), lambda _: None, limits)
        seconds[name] = min(seconds.get(name, np.inf), time.process_time() - started)
        pivots[name] = solution.iterations / n
        values.append(solution.value)
    assert np.ptp(values) <= 1e-9 * abs(values[0])
    return {"processor_seconds": seconds, "pivots_a_point": pivots, "ratio": seconds["with"] / seconds["without"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", action="store_true", help="only point clouds")
    parser.add_argument("--matrices", action="store_true", help="only matrices")
    parser.add_argument("--sizes", type=int, nargs="+", default=[2000, 5000])
    options = parser.parse_args()
    cases: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    for n in options.sizes:
        if not options.matrices:
            cases += [
                {"n": n, "cost": "points", "dimension": d, "shift": shift, "paying": share, "weights": "uniform"}
                for shift, d, share in product((0.0, 1.0), (2, 3, 8, 16), SHARES)
            ]
        if not options.points:
            cases += [
                {"n": n, "cost": "matrix", "dimension": d, "shift": shift, "paying": share, "weights": weights}
                for (shift, d), share, weights in product(((0.0, 2), (0.0, 8), (1.0, 8)), SHARES, ("uniform", "random"))
            ]
            cases += [
                {"n": n, "cost": "random", "paying": share, "weights": weights}
                for share, weights in product(SHARES, ("uniform", "random"))
            ]
    header = measure.header()
    runs = json.loads(RESULTS.read_text())["runs"] if RESULTS.exists() else []
    others = [run for run in runs if run["command"] != header["command"]]
    print("with / without  case")
    for case in cases:
        n, paying = case["n"], case["paying"]
        if case["cost"] == "random":
            cost = of_chance(n, paying)
        else:
            cost = of_points(n, case["dimension"], case["shift"], paying, case["cost"] == "matrix")
        rows.append(case | compared(cost, n, case["weights"]))
        measure.write_json(RESULTS, {"runs": [*others, header | {"measurements": rows}]})
        print(f"{rows[-1]['ratio']:14.2f}  {', '.join(f'{key} {value}' for key, value in case.items())}", flush=True)


if __name__ == "__main__":
    main()
