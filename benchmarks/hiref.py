"""How close to optimal Hierarchical Refinement (HiRef) comes, as `certify` finds, beside an exact solve.

    git clone https://github.com/peterhalmos/HiRef
    python benchmarks/hiref.py --hiref HiRef [--sizes 2000 5000 10000] [--dimensions 2 16 64]

HiRef (Halmos et al., ICML 2025) matches two clouds of equal size by low-rank transport between ever smaller parts, in
linear memory. This is the version in JAX, which its authors recommend; it needs jax and torch. Here, it matches two
standard normal clouds for the cost |x - z|^2, with the settings of its notebook for 10,000 points. `hiref_lr` finds a
bijection. `hiref_lr_fast`, the function in its README, compiles more, but chooses the points of every part separately:
a point may be in two parts, or in none.

`certify` judges the matching with the potentials of the exact solution: "gap" is how much more than the optimum it
costs, and "relative gap" the same as a share of the optimum. Where points are in no part, the matching is not feasible
and has no gap; "unmatched" is the share of sources without a partner. adaptive-ot solves `DistanceCost(x, z, 0)` with
`Equal()`.

Every solve has a process of its own, and "seconds" is processor time, also in the limit; adaptive-ot has one thread,
since threads of BLAS that wait count as busy. A first solve compiles: of the same size for adaptive-ot and
`hiref_lr_fast`, of 200 points for `hiref_lr`, which traces its functions for every part anew. Memory is the peak less
what the process held before it made the points. Results go to benchmarks/results/hiref.json after each solve; those of
other problems stay there.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy import sparse

import adaptive_ot as aot
import measure

RESULTS = measure.RESULTS / "hiref.json"
OURS = "adaptive-ot"
MODULES = {"hiref_lr": "src.HiRef", "hiref_lr_fast": "src.HiRef_fast"}
SCHEDULE = {"hierarchy_depth": 6, "max_Q": 200, "max_rank": 500}
SETTINGS = {"iters_per_level": 70, "gamma": 40.0, "rescale_cost": False}
TINY = 200  # points of a first solve
SHOWN = {"seconds": ".2f", "memory_mb": ",.0f", "cost": ".4f", "gap": ".1e", "relative_gap": ".1e", "unmatched": ".1%"}


def hiref(function: str, x: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sources and the targets of all pairs."""
    import jax.numpy as jnp

    with contextlib.redirect_stdout(io.StringIO()):
        ranks = importlib.import_module("src.rank_annealing").optimal_rank_schedule(len(x), **SCHEDULE)
        solve = getattr(importlib.import_module(MODULES[function]), function)
        parts = solve(jnp.asarray(x), jnp.asarray(z), rank_schedule=ranks, base_rank=1, **SETTINGS)
    sources, targets = (np.concatenate([np.asarray(part[side]) for part in parts]) for side in (0, 1))
    return sources, targets


def exact(x: np.ndarray, z: np.ndarray) -> aot.Solution:
    return aot.solve(aot.DistanceCost(x, z, 0.0), marginals=aot.Equal())


def judged(x: np.ndarray, z: np.ndarray, pairs: tuple[np.ndarray, np.ndarray]) -> dict[str, Any]:
    """What `certify` finds about a matching."""
    n, (sources, targets) = len(x), pairs
    plan = sparse.coo_array((np.full(sources.size, 1 / n), (sources, targets)), shape=(n, n))
    cost, potential = aot.DistanceCost(x, z, 0.0), exact(x, z).source_potential
    certificate = aot.certify(cost, plan=plan, source_potential=potential, marginals=aot.Equal())
    answer = {"cost": certificate.value, "unmatched": 1 - np.unique(sources).size / n}
    if certificate.feasible:
        answer |= {"gap": certificate.gap, "relative_gap": certificate.gap / certificate.lower_bound}
    return answer | {"feasible": certificate.feasible, "verdict": repr(certificate)}


def measure_solver(solver: str, folder: str, n: int, dimension: int, timeout: float) -> measure.Measurement:
    """Processor time, memory and certificate of one solver; runs in a process of its own."""
    sys.path.insert(0, folder)

    def call(size: int) -> Any:
        x, z = measure.clouds(size, dimension)
        return exact(x, z) if solver == OURS else hiref(solver, x, z)

    call(TINY if solver == "hiref_lr" else n)
    measure.reset_peak()
    before = measure.peak_bytes()
    seconds, answer, peak = measure.timed(lambda: call(n), 1, timeout, processor=True)
    measured = {"seconds": seconds[0], "memory_mb": (peak - before) / 1e6}
    if solver != OURS:
        return measured | judged(*measure.clouds(n, dimension), answer)
    gap = {"gap": answer.gap, "relative_gap": answer.gap / answer.value}
    return measured | {"cost": answer.value, "unmatched": 0.0, "feasible": True} | gap


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hiref", type=Path, required=True, help="a clone of HiRef")
    parser.add_argument("--sizes", type=int, nargs="+", default=[2000, 5000, 10_000], metavar="N")
    parser.add_argument("--dimensions", type=int, nargs="+", default=[2, 16, 64], metavar="D")
    parser.add_argument("--solvers", nargs="+", choices=(OURS, *MODULES), default=(OURS, *MODULES), metavar="NAME")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds of processor time of one solve")
    options = parser.parse_args()
    table = Table("n = m", "in", "solver", *SHOWN)
    for n in options.sizes:
        for dimension in options.dimensions:
            for solver in options.solvers:
                problem = {"solver": solver, "n": n, "dimension": dimension}
                given = problem | {"folder": str(options.hiref.resolve()), "timeout": options.timeout}
                threads = 1 if solver == OURS else None
                answer = measure.in_child("hiref", "measure_solver", given, threads=threads, quiet=True)
                rows = [*measure.kept(RESULTS, problem), problem | {"timeout": options.timeout} | answer]
                measure.write_json(RESULTS, measure.header() | {"measurements": rows})
                cells = [format(answer[key], form) if key in answer else "" for key, form in SHOWN.items()]
                cells = cells if "cost" in answer else [answer["error"]]
                print(f"{n:>7} R^{dimension:<3} {solver:14} {'  '.join(cells)}", file=sys.stderr, flush=True)
                table.add_row(f"{n:,}", f"R^{dimension}", solver, *cells)
    Console(width=None if sys.stdout.isatty() else 130).print(table)


if __name__ == "__main__":
    main()
