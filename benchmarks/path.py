"""The whole mass path beside one exact solve, and beside POT called once for each of 50 masses.

    python benchmarks/path.py                  # n = m = 500 and 2000
    python benchmarks/path.py --sizes 500      # less of it

Problems: two standard normal clouds of n points in R^2 and in R^16 and the cost |x - z|^2, with uniform and with random
weights. Measured are adaptive transport with the median taken off the cost, balanced transport (`Equal`; POT `emd`),
the mass path, and partial transport of 50 masses, 1/51 to 50/51, by POT's `partial_wasserstein` (an exact solver with
dummy points). After a warm-up everything runs in turns in one process, and the best time counts; what takes more than
five seconds runs once. Values of POT are compared with those of the path. Results: benchmarks/results/path.json.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

os.environ |= {f"POT_BACKEND_DISABLE_{name}": "1" for name in ("PYTORCH", "JAX", "TENSORFLOW", "CUPY")}

import numpy as np
import ot
from rich.console import Console
from rich.table import Table
from scipy.spatial.distance import cdist

import adaptive_ot as aot
import measure

MASSES = np.arange(1, 51) / 51
SLOW = 5.0

Problem = tuple[np.ndarray, np.ndarray, np.ndarray]


def pot_masses(C: np.ndarray, mu: np.ndarray, nu: np.ndarray) -> np.ndarray:
    plans: Any = (ot.partial.partial_wasserstein(mu, nu, C, m=mass) for mass in MASSES)
    return np.array([(plan * C).sum() for plan in plans])


SOLVERS: dict[str, Callable[..., object]] = {
    "adaptive": lambda C, mu, nu: aot.solve(C - np.median(C), mu, nu),
    "balanced": lambda C, mu, nu: aot.solve(C, mu, nu, marginals=aot.Equal()).value,
    "mass path": lambda C, mu, nu: np.array([*map(aot.mass_path(C, mu, nu).value_at, MASSES)]),
    "POT emd": lambda C, mu, nu: ot.emd2(mu, nu, C),
    "POT, 50 masses": pot_masses,
}


def measured(problem: Problem, turns: int) -> tuple[dict[str, float], float]:
    """The best time of each solver, and the largest relative difference between POT's values and ours."""
    times: dict[str, list[float]] = {name: [] for name in SOLVERS}
    answers: dict[str, Any] = {}
    for _ in range(turns):
        for name, solve in SOLVERS.items():
            if sum(times[name]) > SLOW:
                continue
            started = time.perf_counter()
            answers[name] = solve(*problem)
            times[name].append(time.perf_counter() - started)
    pairs = (("balanced", "POT emd"), ("mass path", "POT, 50 masses"))
    errors = [np.max(np.abs(np.divide(answers[a], answers[b]) - 1)) for a, b in pairs]
    return {name: min(taken) for name, taken in times.items()}, float(max(errors))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[500, 2000], metavar="N")
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    results = []
    for n in [200, *options.sizes]:  # the first warms up
        for dimension in (2, 16):
            C = cdist(*measure.clouds(n, dimension), "sqeuclidean")
            for weights in ("uniform", "random"):
                seconds, error = measured((C, *measure.weights(weights, n)), options.turns)
                row = {"n": n, "dimension": dimension, "weights": weights, "seconds": seconds, "difference": error}
                if n in options.sizes:
                    results.append(row)
                    measure.write_json(measure.RESULTS / "path.json", measure.header() | {"results": results})
    table = Table(title="Seconds", title_justify="left")
    ratio_names = "path / adaptive", "path / balanced", "POT 50 / path"
    for column in ("n = m", "R^d", "weights", *SOLVERS, *ratio_names, "differ"):
        table.add_column(column, justify="right")
    for row in results:
        s = row["seconds"]
        ratios = s["mass path"] / s["adaptive"], s["mass path"] / s["balanced"], s["POT, 50 masses"] / s["mass path"]
        cells = [*(f"{s[name]:.3g}" for name in SOLVERS), *(f"{ratio:.1f}" for ratio in ratios)]
        table.add_row(str(row["n"]), str(row["dimension"]), row["weights"], *cells, f"{row['difference']:.0e}")
    Console(width=170).print(table)


if __name__ == "__main__":
    main()
