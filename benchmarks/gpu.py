"""Exact solves with pricing on a GPU beside the same solves with pricing on the CPU, in one run.

    python benchmarks/gpu.py [--sizes 5000 20000 100000]

Standard normal points in R^16, 10 % of the pairs negative, uniform weights; dense matrices up to 20,000. Values must
agree, and every solution carries its certificate. Writes benchmarks/results/gpu.json.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from pathlib import Path

import numpy as np
import torch

import adaptive_ot as aot

LARGEST_DENSE = 20_000


def clouds(n: int) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Two clouds and the reach that makes 10 % of the pairs negative."""
    generator = torch.Generator().manual_seed(0)
    x, z = (torch.randn(n, 16, generator=generator, dtype=torch.float64) for _ in range(2))
    return x, z, float(torch.cdist(x[:2000], z[:2000]).quantile(0.1))


def timed(cost: object) -> dict[str, object]:
    """Solve and split the time between pricing and pivoting."""
    seconds = {"pricing": 0.0, "pivoting": 0.0}
    rounds = 0
    last = started = time.perf_counter()

    def note(progress: aot.Progress) -> None:
        nonlocal last, rounds
        now = time.perf_counter()
        seconds[progress.stage] += now - last
        last, rounds = now, progress.round

    solution = aot.solve(cost, progress=note)
    return {
        "seconds": time.perf_counter() - started,
        "pricing_seconds": seconds["pricing"],
        "rounds": rounds,
        "value": solution.value,
        "mass": solution.mass,
        "relative_gap": solution.gap / abs(solution.value),
        "plan": f"{solution.plan.layout} on {solution.plan.device}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[5000, 20_000, 100_000])
    sizes = parser.parse_args().sizes
    machine = f"{torch.cuda.get_device_name()}, {platform.processor() or platform.machine()}"
    results = []
    for warm_up in ("cpu", "cuda"):
        x, z, reach = clouds(1500)
        aot.solve(aot.DistanceCost(x.to(warm_up), z.to(warm_up), reach))
        aot.solve((torch.cdist(x, z).square() - reach**2).to(warm_up))
    for n in sizes:
        x, z, reach = clouds(n)
        for form in ("dense", "points"):
            if form == "dense" and n > LARGEST_DENSE:
                continue
            for device in ("cpu", "cuda"):
                a, b = x.to(device), z.to(device)
                cost = aot.DistanceCost(a, b, reach) if form == "points" else torch.cdist(a, b).square() - reach**2
                results.append({"n": n, "cost": form, "device": device, **timed(cost)})
                print(json.dumps(results[-1]), flush=True)
    report = {
        "command": "python " + " ".join(sys.argv),
        "machine": machine,
        "torch": torch.__version__,
        "results": results,
    }
    path = Path(__file__).parent / "results" / "gpu.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n")
    print(f"\n{machine}")
    line = "{n:>7} {cost:<7} {device:<5} {seconds:8.2f} s  pricing {pricing_seconds:8.2f} s  gap {relative_gap:.1e}"
    for one in results:
        print(line.format(**one))
    spread = max(np.ptp([one["value"] for one in results if one["n"] == n]) for n in sizes)
    print(f"largest difference between the values of one size: {spread:.1e}")


if __name__ == "__main__":
    main()
