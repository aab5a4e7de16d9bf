"""A batch of small exact problems, beside the solvers one would loop over it or call with it.

    python benchmarks/batch.py [--size 64] [--batch 256]

All solvers take turns in one process, so that a slow spell of the machine meets all of them, and the fastest turn of
each counts. What a rival needs to be given the problem (clipping at zero) is part of its time; a certificate is part of
ours only.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

import numba
import numpy as np
from rich.console import Console
from rich.table import Table

import adaptive_ot as aot
import measure
import rival_solvers

os.environ |= measure.NO_BACKENDS  # read when POT is imported, which the solvers do

ALL_CORES = numba.get_num_threads()

Solve = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def ours(threads: int) -> Solve:
    def solve(costs: np.ndarray, mu: np.ndarray, nu: np.ndarray) -> np.ndarray:
        numba.set_num_threads(threads)
        return aot.solve(costs, mu, nu).value

    return solve


def lapx_clipped(threads: int) -> Solve:
    def solve(costs: np.ndarray, mu: np.ndarray, nu: np.ndarray) -> np.ndarray:
        import lap

        return lap.lapjvr_batch(np.minimum(costs, 0.0), n_threads=threads)[0] * mu[0]

    return solve


def lapx_limit(threads: int) -> Solve:
    """With its own option for pairs that need not be made."""

    def solve(costs: np.ndarray, mu: np.ndarray, nu: np.ndarray) -> np.ndarray:
        import lap

        return lap.lapjvr_batch(costs, cost_limit=0.0, n_threads=threads)[0] * mu[0]

    return solve


def loop(one: rival_solvers.Solver) -> Solve:
    return lambda costs, mu, nu: np.array([one(cost, mu, nu) for cost in costs])


ASSIGNMENT = {
    "lapx lapjvr_batch": lapx_clipped(0),
    "lapx lapjvr_batch, 1 thread": lapx_clipped(1),
    "lapx lapjvr_batch, cost_limit=0": lapx_limit(0),
    "lapx lapjvr_batch, cost_limit=0, 1 thread": lapx_limit(1),
    "SciPy linear_sum_assignment, loop": loop(rival_solvers.scipy_assignment),
}
SOLVERS = {
    "adaptive-ot": ours(ALL_CORES),
    "adaptive-ot, 1 thread": ours(1),
    **ASSIGNMENT,
    "POT emd, loop": loop(rival_solvers.pot_clipped),
}


def cost_batches(batch: int, n: int) -> dict[str, np.ndarray]:
    """Several kinds of costs."""
    rng = np.random.default_rng(0)
    x, z = rng.standard_normal((batch, n, 16)), rng.standard_normal((batch, n, 16))
    squares = squared_distances(x, z)
    centres, shift = rng.standard_normal((10, 16)), 0.3
    source_class, target_class = rng.integers(0, 10, (2, batch, n))
    source = centres[source_class] + 0.5 * rng.standard_normal((batch, n, 16))
    target = centres[target_class] + 0.5 * rng.standard_normal((batch, n, 16)) + shift
    scores = np.exp(3 * np.eye(10)[target_class] + rng.standard_normal((batch, n, 10)))
    scores /= scores.sum(axis=2, keepdims=True)
    return {
        "uniform in [-1, 1]": rng.uniform(-1, 1, (batch, n, n)),
        "uniform in [-1, 0]": rng.uniform(-1, 0, (batch, n, n)),
        "integers from -9 to 9": rng.integers(-9, 10, (batch, n, n)).astype(float),
        "clouds, 10 % negative": squares - np.quantile(squares, 0.1),
        "clouds, 50 % negative": squares - np.quantile(squares, 0.5),
        "domain adaptation": np.array(
            [
                aot.JointCost(a, b, np.eye(10)[labels], q).block(0, n)
                for a, b, labels, q in zip(source, target, source_class, scores, strict=True)
            ]
        ),
    }


def squared_distances(x: np.ndarray, z: np.ndarray) -> np.ndarray:
    return ((x[:, :, None] - z[:, None, :]) ** 2).sum(axis=3)


def microseconds(solvers: dict[str, Solve], problem: tuple, turns: int) -> tuple[dict[str, float], float]:
    """The time of each solver for one problem of the batch, and the largest relative difference of values."""
    values = {name: solve(*problem) for name, solve in solvers.items()}  # also loads what is needed
    expected = values["adaptive-ot"]
    error = max(float(np.abs(found / expected - 1).max()) for found in values.values())
    times: dict[str, list[float]] = {name: [] for name in solvers}
    for _ in range(turns):
        for name, solve in solvers.items():
            started = time.perf_counter()
            solve(*problem)
            times[name].append(time.perf_counter() - started)
    return {name: 1e6 * min(taken) / len(expected) for name, taken in times.items()}, error


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--turns", type=int, default=10)
    options = parser.parse_args()
    n = options.size
    results = []
    for kind, costs in cost_batches(options.batch, n).items():
        for weights in ("uniform", "random"):
            solvers = {name: s for name, s in SOLVERS.items() if weights == "uniform" or name not in ASSIGNMENT}
            times, error = microseconds(solvers, (costs, *measure.weights(weights, n)), options.turns)
            negative = float((costs < 0).mean())
            results.append(
                {"costs": kind, "negative": negative, "weights": weights, "microseconds": times, "difference": error}
            )
    measure.write_json(
        measure.RESULTS / "batch.json",
        measure.header() | {"size": n, "batch": options.batch, "turns": options.turns, "results": results},
    )
    table = Table(title=f"Microseconds a problem, {options.batch} problems of {n} x {n}", title_justify="left")
    for column in ("costs", "weights", *SOLVERS, "values differ by"):
        table.add_column(column)
    for row in results:
        times = row["microseconds"]
        cells = [f"{times[name]:.1f}" if name in times else "-" for name in SOLVERS]
        table.add_row(row["costs"], row["weights"], *cells, f"{row['difference']:.0e}")
    Console(width=170).print(table)


if __name__ == "__main__":
    main()
