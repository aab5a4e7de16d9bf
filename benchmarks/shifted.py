"""How the exact solver copes with clouds that are shifted against each other: rounds and pivots for every point.

    python benchmarks/shifted.py [--size 4000] [--dimension 8] [--rival]

Standard normal points, the targets moved by `shift` in every coordinate, uniform weights. With a reach that pays for
every pair, all mass has to cross the shift, which is where column generation has the most to find. Rounds and pivots
include those of the coarser problems; pivots are counted per point of one side. Then the problem is balanced transport,
and `--rival` times `ot.lp.emd2_lazy` of POT, which does not form the matrix either; `certify` judges its potentials.
Results of every size and dimension go to benchmarks/results/shifted.json.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np

import adaptive_ot as aot
import measure

RESULTS = measure.RESULTS / "shifted.json"
MOVED = 1 - 1e-12  # so much that the problem is balanced transport
MOST_PIVOTS = 10**9  # enough for POT never to give up


def of_rival(x: np.ndarray, z: np.ndarray, reach: float) -> dict[str, float]:
    """Processor time and value of POT, with the reward of every pair subtracted, and the gap that its duals leave."""
    from ot.lp import emd2_lazy

    started = time.process_time()
    answer: Any = emd2_lazy(x, z, numItermax=MOST_PIVOTS, log=True, return_matrix=False)
    seconds, (value, log) = time.process_time() - started, answer
    potentials = {"source_potential": log["u"], "target_potential": log["v"]}
    proved = aot.certify(aot.DistanceCost(x, z, 0.0), marginals=aot.Equal(), **potentials).lower_bound
    return {"pot_processor_seconds": seconds, "pot_value": value - reach**2, "pot_gap": value - proved}


def solved(x: np.ndarray, z: np.ndarray, reach: float) -> dict[str, Any]:
    """What one solve took."""
    rounds = 0

    def note(progress: aot.Progress) -> None:
        nonlocal rounds
        rounds = progress.round

    started, processor = time.perf_counter(), time.process_time()
    solution = aot.solve(aot.DistanceCost(x, z, reach), progress=note)
    seconds, processor = time.perf_counter() - started, time.process_time() - processor
    return {
        "seconds": seconds,
        "processor_seconds": processor,
        "rounds": rounds,
        "pivots_a_point": solution.iterations / len(x),
        "mass": solution.mass,
        "value": solution.value,
        "gap": solution.gap,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=4000)
    parser.add_argument("--dimension", type=int, default=8)
    parser.add_argument("--rival", action="store_true", help="time POT where everything pays")
    options = parser.parse_args()
    n, dimension = options.size, options.dimension
    rng = np.random.default_rng(0)
    x, z = rng.standard_normal((n, dimension)), rng.standard_normal((n, dimension))
    solved(x, z, 3.0 * dimension**0.5)
    kept = json.loads(RESULTS.read_text())["runs"] if RESULTS.exists() else []
    others = [
        run for run in kept if (run["measurements"][0]["n"], run["measurements"][0]["dimension"]) != (n, dimension)
    ]
    rows: list[dict[str, Any]] = []
    print("shift  reach  seconds  processor  rounds  pivots a point   mass  gap    POT (processor)")
    for shift in (0.0, 0.3, 1.0):
        for reach in (4.0, 9.0):
            row = {"n": n, "dimension": dimension, "shift": shift, "reach": reach} | solved(x, z + shift, reach)
            if options.rival and row["mass"] > MOVED:
                row |= of_rival(x, z + shift, reach)
            rows.append(row)
            pot = f"{row['pot_processor_seconds']:.2f}, gap {row['pot_gap']:.0e}" if "pot_value" in row else ""
            took = f"{row['seconds']:7.2f}  {row['processor_seconds']:9.2f}  {row['rounds']:6}"
            answer = f"{row['pivots_a_point']:14.1f}  {row['mass']:5.3f}  {row['gap']:.0e}"
            measure.write_json(RESULTS, {"runs": [*others, measure.header() | {"measurements": rows}]})
            print(f"{shift:5g}  {reach:5g}  {took}  {answer}  {pot}", flush=True)


if __name__ == "__main__":
    main()
