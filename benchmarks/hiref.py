"""How close to optimal Hierarchical Refinement (HiRef) comes, as `certify` finds, beside an exact solve.

    git clone https://github.com/raphael-group/HiRef
    python benchmarks/hiref.py --hiref HiRef/src [--sizes 2000 5000 10000] [--dimensions 2 16 64]

HiRef (Halmos et al., ICML 2025) matches two clouds of equal size by low-rank transport between ever smaller parts, in
linear memory. Its code needs torch, scikit-learn and matplotlib. Here, two standard normal clouds and the cost
|x - z|^2. HiRef runs as its README recommends for speed (the solver of LR_mini.py, 30 to 45 iterations), in float64 on
one thread, down to parts of at most `--parts` points, which it then matches by one problem of that rank.

"seconds" is processor time. The certificate is that of HiRef's matching, with the potentials of the exact solution:
"gap" is how much more than the optimum the matching costs, and "relative gap" the same as a share of the optimum.
adaptive-ot solves `DistanceCost(x, z, 0)` with `Equal()`. Every solve has a process of its own, which solves a small
problem first. Memory is the peak of the process less what it held before it made the points. Results go to
benchmarks/results/hiref.json after each size.
"""

from __future__ import annotations

import argparse
import contextlib
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
SETTINGS = {"max_iter": 45, "min_iter": 30, "max_inneriters_balanced": 60}  # of the README, under "Acceleration"
DEPTH, LARGEST_RANK = 6, 16  # of its schedule of ranks, and its default
SHOWN = {"seconds": ".2f", "memory_mb": ",.0f", "cost": ".4f", "gap": ".1e", "relative_gap": ".1e"}


def hiref(x: np.ndarray, z: np.ndarray, parts: int) -> np.ndarray:
    """The target of every source."""
    import HR_OT  # pyright: ignore[reportMissingImports]
    import LR_mini  # pyright: ignore[reportMissingImports]
    import rank_annealing  # pyright: ignore[reportMissingImports]
    import torch

    torch.manual_seed(0)
    clouds = torch.from_numpy(x), torch.from_numpy(z)
    with contextlib.redirect_stdout(io.StringIO()):
        ranks = rank_annealing.optimal_rank_schedule(len(x), DEPTH, parts + 1, LARGEST_RANK)
        solvers = {"solver": LR_mini.LROT_LR_opt, "solver_full": LR_mini.LROT_opt}
        refinement = HR_OT.HierarchicalRefinementOT.init_from_point_clouds(
            *clouds, ranks, base_rank=1, solver_params=SETTINGS, sq_Euclidean=True, **solvers
        )
        pairs = refinement.run()
    sources, targets = (torch.cat(side).numpy() for side in zip(*pairs, strict=True))
    matched = np.full(len(x), -1)
    matched[sources] = targets
    return matched


def exact(x: np.ndarray, z: np.ndarray) -> aot.Solution:
    return aot.solve(aot.DistanceCost(x, z, 0.0), marginals=aot.Equal())


def judged(x: np.ndarray, z: np.ndarray, matched: np.ndarray) -> dict[str, Any]:
    """What `certify` finds about a matching."""
    potential, n = exact(x, z).source_potential, len(x)
    plan = sparse.csr_array((np.full(n, 1 / n), (np.arange(n), matched)), shape=(n, n))
    certificate = aot.certify(aot.DistanceCost(x, z, 0.0), plan=plan, source_potential=potential, marginals=aot.Equal())
    gap = {"gap": certificate.gap, "relative_gap": certificate.gap / certificate.lower_bound}
    return {"cost": certificate.value, "feasible": certificate.feasible} | gap


def measure_solver(folder: str, n: int, dimension: int, parts: int | None, timeout: float) -> measure.Measurement:
    """Processor time, memory and certificate of one solver (of ours without parts), in a process of its own."""
    if parts is not None:
        sys.path.insert(0, folder)

    def call(size: int) -> Any:
        x, z = measure.clouds(size, dimension)
        return exact(x, z) if parts is None else hiref(x, z, min(parts, size))

    call(60)
    if parts is None:
        call(n)  # kernels depend on the size
    measure.reset_peak()
    before = measure.peak_bytes()
    seconds, answer, peak = measure.timed(lambda: call(n), 1, timeout, processor=True)
    measured = {"seconds": seconds[0], "memory_mb": (peak - before) / 1e6}
    if parts is not None:
        return measured | judged(*measure.clouds(n, dimension), answer)
    gap = {"gap": answer.gap, "relative_gap": answer.gap / answer.value}
    return measured | {"cost": answer.value, "feasible": True} | gap


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hiref", type=Path, required=True, help="the folder src of a clone of HiRef")
    parser.add_argument("--sizes", type=int, nargs="+", default=[2000, 5000, 10_000], metavar="N")
    parser.add_argument("--dimensions", type=int, nargs="+", default=[2, 16, 64], metavar="D")
    parser.add_argument("--parts", type=int, nargs="+", default=[125, 1000], metavar="POINTS")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds of processor time of one solve")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    table = Table("n = m", "in", "solver", "seconds", "MB", "cost", "gap", "relative gap")
    for n in options.sizes:
        for dimension in options.dimensions:
            for parts in (None, *options.parts):
                problem = {"n": n, "dimension": dimension, "parts": parts, "timeout": options.timeout}
                given = problem | {"folder": str(options.hiref.resolve())}
                threads = None if parts is None else 1
                answer = measure.in_child("hiref", "measure_solver", given, threads=threads, quiet=True)
                solver = "adaptive-ot" if parts is None else f"HiRef, parts of {parts}"
                rows.append(problem | {"solver": solver} | answer)
                measure.write_json(RESULTS, measure.header() | {"measurements": rows})
                cells = [format(answer[key], form) for key, form in SHOWN.items() if key in answer]
                cells = cells or [answer["error"]]
                print(f"{n:>7} R^{dimension:<3} {solver:20} {'  '.join(cells)}", file=sys.stderr, flush=True)
                table.add_row(f"{n:,}", f"R^{dimension}", solver, *cells)
    Console().print(table)


if __name__ == "__main__":
    main()
