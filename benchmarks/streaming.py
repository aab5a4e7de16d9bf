"""Two point clouds on a GPU: time to an error of the marginals, beside FlashSinkhorn in float32 and tf32.

    python benchmarks/streaming.py [--sizes 5000 10000 20000 50000 100000] [--million] [--clustered]

Standard normal points in R^64 (coordinates are float32 numbers), uniform weights, balanced transport with the cost
|x - z|^2, epsilon 0.05 and 0.01 of the median cost. "seconds" is from tensors on the device to the solution: for
adaptive-ot, a certified `Solution` of `aot.solve(DistanceCost(x, z, 0), marginals=Equal())`; for FlashSinkhorn, the
potentials of `sinkhorn_flashstyle_alternating` after a number of iterations, with its kernels tuned before. "error" is
the L1 error of both marginals, computed afterwards in float64 by torch from the potentials, block by block (from a
sample of rows and columns, where there are more than 200,000). "gap" bounds how much more the plan costs than optimal
transport without entropy: what the plan costs, computed in the same way, less the lower bound that `aot.certify` finds
for the potentials. A plan with an error may cost less than it should. For more than 200,000 points, it is the gap of
the `Solution`. --clustered compares solves that skip tiles with solves that do not, for 100 clusters with labels and
the cost of `JointCost`. FlashSinkhorn rows are left out where it is not installed. Results:
benchmarks/results/streaming.json.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

import adaptive_ot as aot
from adaptive_ot.entropic import skipping, streaming
from adaptive_ot.entropic.sweeps import TILE

RESULT = Path(__file__).parent / "results" / "streaming.json"
DEVICE, DIMENSION = "cuda", 64
SIZES, SHARES, ERRORS = (5000, 10_000, 20_000, 50_000, 100_000), (0.05, 0.01), (1e-3, 1e-6)
ITERATIONS = {0.05: (3, 5, 10), 0.01: (20, 50, 100, 200)}
MOST_SECONDS = 3.0  # of FlashSinkhorn, for one number of iterations
MILLION, CLUSTERS, CLUSTERED = 1_000_000, 100, 100_000
JUDGED_WHOLE, JUDGED_SAMPLE, PAIRS_PER_BLOCK = 200_000, 4096, 2**28


def clouds(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator(device=DEVICE).manual_seed(n)
    x, z = (torch.randn(n, DIMENSION, generator=generator, device=DEVICE) for _ in range(2))
    return x.double(), z.double()


def median_cost(x: torch.Tensor, z: torch.Tensor) -> float:
    return float(torch.cdist(x[:2000], z[:2000]).square().median())


def judged(x: torch.Tensor, z: torch.Tensor, f: torch.Tensor, g: torch.Tensor, epsilon: float) -> dict[str, float]:
    """The L1 error of both marginals of exp((f + g - c) / epsilon) / (n m), its cost and its gap, in float64."""
    (rows, cost), (columns, _) = judged_rows(x, z, f, g, epsilon), judged_rows(z, x, g, f, epsilon)
    if len(x) > JUDGED_WHOLE:
        return {"error": rows + columns}
    potentials = {"source_potential": f, "target_potential": g}
    proved = aot.certify(aot.DistanceCost(x, z, 0.0), marginals=aot.Equal(), **potentials).lower_bound
    return {"error": rows + columns, "value": cost, "gap": cost - proved}


def judged_rows(
    x: torch.Tensor, z: torch.Tensor, f: torch.Tensor, g: torch.Tensor, epsilon: float
) -> tuple[float, float]:
    """The L1 error of the row sums of a plan, and what the plan costs."""
    if len(x) > JUDGED_WHOLE:
        x, f = x[:: len(x) // JUDGED_SAMPLE], f[:: len(f) // JUDGED_SAMPLE]
    step, errors, costs = max(1, PAIRS_PER_BLOCK // len(z)), [], []
    square = z.square().sum(1)
    for rows, potential in zip(x.split(step), f.split(step), strict=True):
        slack = torch.addmm(g - square, rows, z.T, alpha=2.0)  # f + g - c
        slack += (potential - rows.square().sum(1))[:, None]
        plan = (slack / epsilon).exp_() / len(z)
        sums = plan.sum(1)
        errors.append((sums - 1.0).abs())
        costs.append(sums * potential + plan @ g - slack.mul_(plan).sum(1))
    return float(torch.cat(errors).mean()), float(torch.cat(costs).mean())


def seconds_of(call: Any, repeats: int) -> tuple[float, Any]:
    """The least time of a call, with the device idle before and after, and its last result."""
    times, result = [], None
    for _ in range(repeats):
        torch.cuda.synchronize()
        started = time.perf_counter()
        result = call()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
        if sum(times) > MOST_SECONDS:
            break
    return min(times), result


def ours(x: torch.Tensor, z: torch.Tensor, share: float, error: float) -> dict[str, Any]:
    epsilon = share * median_cost(x, z)
    solver = aot.Entropic(epsilon, tolerance=error)

    def call() -> aot.Solution:
        return aot.solve(aot.DistanceCost(x, z, 0.0), marginals=aot.Equal(), solver=solver)

    torch.cuda.reset_peak_memory_stats()
    seconds, solution = seconds_of(call, 3)
    memory = torch.cuda.max_memory_allocated() / 2**30
    row = {"n": len(x), "epsilon": share, "method": f"adaptive-ot, tolerance {error:g}", "seconds": seconds}
    row |= {"passes": solution.iterations, "value": solution.value, "gap": solution.gap, "peak_gib": memory}
    return row | judged(x, z, solution.source_potential, solution.target_potential, epsilon)


def flash(x: torch.Tensor, z: torch.Tensor, share: float, tf32: bool) -> list[dict[str, Any]]:
    from flash_sinkhorn.sinkhorn_solvers import sinkhorn_flashstyle_alternating

    epsilon, rows = share * median_cost(x, z), []
    weights, given = torch.full((len(x),), 1 / len(x), device=DEVICE), (x.float(), z.float())

    def call(iterations: int) -> Any:
        settings = {"eps": epsilon, "n_iters": iterations, "allow_tf32": tf32}
        return sinkhorn_flashstyle_alternating(*given, weights, weights, **settings)

    call(2)  # tunes its kernels
    for iterations in ITERATIONS[share]:
        seconds, (f, g) = seconds_of(lambda k=iterations: call(k), 3)
        method = f"FlashSinkhorn, {'tf32' if tf32 else 'float32'}"
        row = {"n": len(x), "epsilon": share, "method": method, "seconds": seconds}
        rows.append(row | judged(x, z, f.double(), g.double(), epsilon) | {"passes": iterations})
        if 2 * seconds > MOST_SECONDS:
            break
    return rows


def clustered_cost(n: int) -> aot.JointCost:
    """Clusters whose points have the label of their cluster, or are predicted to, nine times out of ten."""
    generator = torch.Generator(device=DEVICE).manual_seed(0)
    centres = torch.randn(CLUSTERS, DIMENSION, generator=generator, device=DEVICE, dtype=torch.float64)
    sides = []
    for _ in range(2):
        label = torch.randint(CLUSTERS, (n,), generator=generator, device=DEVICE)
        noise = torch.randn(n, DIMENSION, generator=generator, device=DEVICE, dtype=torch.float64)
        sides.append((centres[label] + 0.2 * noise, torch.nn.functional.one_hot(label, CLUSTERS).double()))
    (x, p), (z, q) = sides
    return aot.JointCost(x, z, p, 0.9 * q + 0.1 / CLUSTERS)


def clustered(share: float, skip: bool) -> dict[str, Any]:
    """A solve with or without skipping; a share of the median absolute cost is epsilon."""
    cost, kept, before = clustered_cost(CLUSTERED), [], (streaming.PAIRS_FOR_ORDER, skipping.lists_of)

    def lists_of(matters: torch.Tensor, sizes: tuple[int, int]) -> Any:
        lists = before[1](matters, sizes)
        kept.append(len(lists.tiles) / tiles**2 if lists else 1.0)
        return lists

    tiles = -(-CLUSTERED // TILE)
    epsilon = share * float(np.median(np.abs(cost.sample())))
    solver = aot.Entropic(epsilon, tolerance=1e-6)
    streaming.PAIRS_FOR_ORDER, skipping.lists_of = before[0] if skip else math.inf, lists_of
    seconds, solution = seconds_of(lambda: aot.solve(cost, solver=solver), 2)
    streaming.PAIRS_FOR_ORDER, skipping.lists_of = before
    row = {"n": CLUSTERED, "epsilon": share, "method": f"100 clusters, {'skipping' if skip else 'all tiles'}"}
    skipped = 1 - sum(kept) / len(kept) if kept else 0.0
    numbers = {"passes": solution.iterations, "value": solution.value, "gap": solution.gap, "skipped": skipped}
    return row | {"seconds": seconds, "error": solution.violation * CLUSTERED} | numbers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--million", action="store_true")
    parser.add_argument("--clustered", action="store_true")
    parser.add_argument("--output", type=Path, default=RESULT)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("needs a CUDA device")
    import triton

    machine = f"{torch.cuda.get_device_name()}, {platform.processor() or platform.machine()}"
    rivals = find_spec("flash_sinkhorn") is not None
    results: list[dict[str, Any]] = []

    def add(row: dict[str, Any]) -> None:
        results.append(row)
        skipped = f"  skipped {row['skipped']:.0%}" if "skipped" in row else ""
        line = "{n:>8} {epsilon:>5}  {method:<28} {seconds:9.4f} {error:9.1e} {passes:>7}".format(**row)
        line += f" {row['gap'] / abs(row['value']):9.1%}"
        print(line + skipped, flush=True)
        report = {"command": "python " + " ".join(sys.argv), "machine": machine, "torch": torch.__version__}
        report |= {"triton": triton.__version__, "results": results}
        arguments.output.parent.mkdir(exist_ok=True)
        arguments.output.write_text(json.dumps(report, indent=1) + "\n")

    print(f"{machine}, torch {torch.__version__}, triton {triton.__version__}")
    print(f"{'n':>8} {'share':>5}  {'method':<28} {'seconds':>9} {'error':>9} {'passes':>7} {'gap':>9}")
    ours(*clouds(3000), 0.05, 1e-3)  # compiles the kernels
    ours(*clouds(17_000), 0.05, 1e-3)
    cases = [(n, share) for n in arguments.sizes for share in SHARES]
    for n, share in cases:
        for error in ERRORS:
            add(ours(*clouds(n), share, error))
    if arguments.clustered:
        for skip in (True, False):
            add(clustered(SHARES[0], skip))
    if arguments.million:
        add(ours(*clouds(MILLION), 0.05, 1e-3))
    for n, share in cases if rivals else ():
        for tf32 in (False, True):
            for row in flash(*clouds(n), share, tf32):
                add(row)


if __name__ == "__main__":
    main()
