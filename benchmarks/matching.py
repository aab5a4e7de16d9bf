"""Matching with abstention beside other solvers: batches of small problems, large matrices, lists of pairs.

    pip install lapx lapcpp ortools
    python benchmarks/matching.py [batches matrices lists] [--records 3500000]

All solvers of a part take turns in one process, and the fastest turn of each counts, on two clocks: that of the
processors, all threads together, which other work on the machine hardly changes, and that on the wall. What a solver
must be given the problem (clipping at zero) is part of its time.

The candidate pairs of `lists` are made here: records of entities of which 70 % have a record on the other side, and 13
random candidates in blocks of 200. Evidence is normal, 8 +- 4 for the same entity and -3 +- 4 for others, and the score
is the log-odds of both.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

import adaptive_ot as aot
import measure
from adaptive_ot._jit import kernel

RESULTS = measure.RESULTS / "matching.json"

# OR-tools needs more than a kilobyte for each pair.
MOST_PAIRS_FOR_OR_TOOLS = 500_000


CLOCKS = {"": time.process_time, "wall_": time.perf_counter}


def fastest(solvers: dict[str, Callable[[], Any]], turns: int) -> dict[str, dict[str, float]]:
    """Seconds of the fastest turn of each solver, on the clock of the processors and on that on the wall."""
    seconds = {prefix: dict.fromkeys(solvers, np.inf) for prefix in CLOCKS}
    for _ in range(turns):
        for name, solve in solvers.items():
            started = {prefix: clock() for prefix, clock in CLOCKS.items()}
            solve()
            for prefix, clock in CLOCKS.items():
                seconds[prefix][name] = min(seconds[prefix][name], clock() - started[prefix])
    return seconds


def scaled(seconds: dict[str, dict[str, float]], unit: str, factor: float) -> dict[str, dict[str, float]]:
    """The same in another unit."""
    return {
        f"{prefix}{unit}": {name: factor * taken for name, taken in of_clock.items()}
        for prefix, of_clock in seconds.items()
    }


def costs_of(rng: np.random.Generator, kind: str, shape: tuple[int, int, int], share: float) -> np.ndarray:
    """Costs of which this share is negative."""
    batch, n, _ = shape
    if kind == "uniform":
        return rng.uniform(0, 1, shape) - share
    x, z = rng.standard_normal((2, batch, n, 4))
    squares = ((x[:, :, None] - z[:, None]) ** 2).sum(axis=3)
    return squares - np.quantile(squares, share)


def batches() -> list[dict[str, Any]]:
    """Microseconds for a problem, in batches of 256."""
    import lap
    import lapcpp

    rng, rows = np.random.default_rng(0), []
    for kind in ("uniform", "clouds"):
        for n in (10, 30, 64):
            for share in (0.1, 0.5, 1.0):
                costs = costs_of(rng, kind, (256, n, n), share)
                solvers = {
                    "adaptive-ot": lambda costs=costs: aot.match(cost=costs, limit=0.0),
                    "lapcpp, cost_limit=0": lambda costs=costs: lapcpp.lapjv_batch(costs, cost_limit=0.0),
                    "lapcpp, clipped": lambda costs=costs: lapcpp.lapjv_batch(np.minimum(costs, 0.0)),
                    "lapx, cost_limit=0": lambda costs=costs: lap.lapjvr_batch(costs, cost_limit=0.0, n_threads=0),
                    "lapx, clipped": lambda costs=costs: lap.lapjvr_batch(np.minimum(costs, 0.0), n_threads=0),
                    "SciPy, clipped": lambda costs=costs: [linear_sum_assignment(np.minimum(c, 0.0)) for c in costs],
                }
                seconds = fastest(solvers, 60 if n < 64 else 20)
                times = scaled(seconds, "microseconds", 1e6 / len(costs))
                rows.append({"costs": kind, "n": n, "share": share} | times)
    return rows


def matrices() -> list[dict[str, Any]]:
    """Milliseconds for one matrix."""
    import lap
    import lapcpp

    rng, rows = np.random.default_rng(0), []
    for n in (500, 1000, 2000):
        for kind in ("uniform", "clouds"):
            for share in (0.1, 0.5, 1.0):
                cost = costs_of(rng, kind, (1, n, n), share)[0]
                solvers = {
                    "adaptive-ot": lambda cost=cost: aot.match(cost=cost, limit=0.0),
                    "lapcpp, cost_limit=0": lambda cost=cost: lapcpp.lapjv(cost, cost_limit=0.0),
                    "lapcpp, clipped": lambda cost=cost: lapcpp.lapjv(np.minimum(cost, 0.0)),
                    "lapx, clipped": lambda cost=cost: lap.lapjv(np.minimum(cost, 0.0), return_cost=False),
                    "SciPy, clipped": lambda cost=cost: linear_sum_assignment(np.minimum(cost, 0.0)),
                }
                times = scaled(fastest(solvers, 3), "milliseconds", 1e3)
                best = [aot.match(cost=cost, limit=0.0).score, -lapcpp.lapjv(np.minimum(cost, 0.0))[0]]
                rows.append({"costs": kind, "n": n, "share": share} | times)
                rows[-1]["difference"] = abs(best[0] / best[1] - 1)
    return rows


def candidates(records: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Sources, targets and scores of candidate pairs, and the true partner of every source (-1 for none)."""
    rng = np.random.default_rng(0)
    order = rng.permutation(records).astype(np.int32)
    there = rng.random(records) < 0.7
    entity = np.repeat(np.arange(records, dtype=np.int32), 14)
    other = (entity // 200 * 200 + rng.integers(0, 200, entity.size, dtype=np.int32)) % records
    other[::14] = entity[::14]
    # Each entity's candidates in ascending order, and none twice.
    other = np.sort(other.reshape(-1, 14), axis=1).ravel()
    keep = np.append(True, (other[1:] != other[:-1]) | (entity[1:] != entity[:-1]))
    keep &= (other != entity) | there[entity]
    entity, other = entity[keep], other[keep]
    score = rng.normal(-3.0, 4.0, entity.size)
    same = entity == other
    score[same] = rng.normal(8.0, 4.0, int(same.sum()))
    score *= 22 / 32
    score += np.log(0.7 / 13) - 55 / 32
    return entity, order[other], score, np.where(there, order, -1)


@kernel
def take_best(order, rows, columns, scores, source_of, target_of):
    """One-to-one links, the best pair first, as recordlinkage and splink make them."""
    for k in order:
        if scores[k] > 0 and source_of[columns[k]] < 0 and target_of[rows[k]] < 0:
            source_of[columns[k]], target_of[rows[k]] = rows[k], columns[k]


def f1(partner: np.ndarray, true: np.ndarray) -> float:
    right = int(((partner == true) & (true >= 0)).sum())
    return 2 * right / max(1, int((partner >= 0).sum()) + int((true >= 0).sum()))


def lists(records: int) -> list[dict[str, Any]]:
    """Seconds, scores and F1 of links among candidate pairs."""
    rows = []
    for size in sorted({2000, 10_000, records}):  # the first compiles
        i, j, score, true = candidates(size)
        given = measure.peak_bytes()
        started = time.perf_counter()
        matching = aot.match(pairs=(i, j, score), shape=(size, size))
        seconds = time.perf_counter() - started
        peak = measure.peak_bytes()
        started = time.perf_counter()
        certificate = matching.certificate
        row: dict[str, Any] = {
            "records": size,
            "pairs": len(score),
            "seconds": seconds,
            "seconds_of_the_certificate": time.perf_counter() - started,
            "score": matching.score,
            "lower_bound": -certificate.lower_bound,
            "gap": certificate.gap,
            "peak_bytes_with_the_pairs": given,
            "peak_bytes": peak,
            "peak_bytes_with_the_certificate": measure.peak_bytes(),
        }
        partner = np.full(size, -1)
        partner[matching.pairs[:, 0]] = matching.pairs[:, 1]
        row["f1"] = f1(partner, true)
        started = time.perf_counter()
        source_of, target_of = np.full((2, size), -1)
        take_best(np.argsort(-score, kind="stable"), i, j, score, source_of, target_of)
        row["greedy"] = {"seconds": time.perf_counter() - started, "f1": f1(target_of, true)}
        picked = (target_of[i] == j) & (score > 0)
        row["greedy"]["score"] = float(score[picked].sum())
        if len(score) <= MOST_PAIRS_FOR_OR_TOOLS:
            row["or_tools"] = by_or_tools(i, j, score, size)
        rows.append(row)
    return rows


def by_or_tools(i: np.ndarray, j: np.ndarray, score: np.ndarray, size: int) -> dict[str, float]:
    """The same as a flow of least cost, in integers of a millionth."""
    from ortools.graph.python import min_cost_flow

    started = time.perf_counter()
    flow: Any = min_cost_flow.SimpleMinCostFlow()
    paying = score > 0
    rows, columns = i[paying], size + j[paying]
    costs = np.rint(-1e6 * score[paying]).astype(np.int64)
    source, sink, points = 2 * size, 2 * size + 1, np.arange(size)
    one, free = np.ones(size, np.int64), np.zeros(size, np.int64)
    flow.add_arcs_with_capacity_and_unit_cost(np.full(size, source), points, one, free)
    flow.add_arcs_with_capacity_and_unit_cost(rows, columns, np.ones(rows.size, np.int64), costs)
    flow.add_arcs_with_capacity_and_unit_cost(size + points, np.full(size, sink), one, free)
    flow.add_arc_with_capacity_and_unit_cost(source, sink, size, 0)
    flow.set_node_supply(source, size)
    flow.set_node_supply(sink, -size)
    flow.solve()
    return {"seconds": time.perf_counter() - started, "score": -1e-6 * flow.optimal_cost()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["batches", "matrices", "lists"])
    parser.add_argument("--records", type=int, default=350_000)
    options = parser.parse_args()
    parts = {"batches": batches, "matrices": matrices, "lists": lambda: lists(options.records)}
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for part in options.parts:
        results[part] = parts[part]()
        measure.write_json(RESULTS, results | {part: results[part], f"header of {part}": measure.header()})
        results = json.loads(RESULTS.read_text())
        print(json.dumps(results[part], indent=1))


if __name__ == "__main__":
    main()
