"""How the exact solver copes with clouds that are shifted against each other: rounds and pivots for every point.

    python benchmarks/shifted.py [--size 4000]

Standard normal points in R^8, the targets moved by `shift` in every coordinate, uniform weights. With a reach that pays
for every pair, all mass has to cross the shift, which is where column generation has the most to find.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import adaptive_ot as aot


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=4000)
    n = parser.parse_args().size
    rng = np.random.default_rng(0)
    x, z = rng.standard_normal((n, 8)), rng.standard_normal((n, 8))
    aot.solve(aot.DistanceCost(x[:1500], z[:1500], reach=9.0))
    print("shift  reach  seconds  rounds  pivots a point   mass  gap")
    for shift in (0.0, 0.3, 1.0):
        for reach in (4.0, 9.0):
            rounds = 0

            def note(progress: aot.Progress) -> None:
                nonlocal rounds
                rounds = progress.round

            started = time.perf_counter()
            solution = aot.solve(aot.DistanceCost(x, z + shift, reach), progress=note)
            seconds, pivots = time.perf_counter() - started, solution.iterations / (2 * n)
            answer = f"{solution.mass:5.3f}  {solution.gap:.0e}"
            print(f"{shift:5g}  {reach:5g}  {seconds:7.2f}  {rounds:6}  {pivots:14.1f}  {answer}")


if __name__ == "__main__":
    main()
