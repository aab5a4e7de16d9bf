"""Entropic problems on a GPU: one Triton kernel for many small ones beside a Sinkhorn loop in PyTorch; large ones.

    python benchmarks/entropic_gpu.py [--repeats 50]

Standard normal points and random labels, cost 0.5 |x - z|^2 / median - <p, q>, epsilon 0.1, augmented form, weights
uniform. Both solve the same problems to the same L1 error of the marginals (of the augmented problem, relative), which
is measured again from the plan. "aot.solve" is the call a user makes, from a tensor on the device to a certified
Solution; "value and gradient" a step of a training loop. Writes benchmarks/results/entropic_gpu.json.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import adaptive_ot as aot
from adaptive_ot.autodiff import transport_value
from adaptive_ot.entropic.triton import NUMBERS, solve_batch

RESULT = Path(__file__).parent / "results" / "entropic_gpu.json"
DEVICE = "cuda"
SIZES, BATCHES, WARPS = (72, 128), (1, 132, 1056), (4, 8, 16)
EPSILON, TOLERANCE, MAX_PASSES = 0.1, 1e-6, 100_000
SINKHORN_ITERATIONS, SINKHORN_CHECKS, MOST_SINKHORN = 200, 10, 20_000
LARGE, SHARES = (2000, 5000), (0.1, 0.01, 0.001)
POINTS = 20_000


def joint_costs(batch: int, n: int) -> torch.Tensor:
    """Scale-free joint costs of clouds with labels, in float64."""
    generator = torch.Generator().manual_seed(n)
    x, z = (torch.randn(batch, n, 16, generator=generator, dtype=torch.float64) for _ in range(2))
    p, q = (torch.randn(batch, n, 10, generator=generator, dtype=torch.float64).mul(2).softmax(2) for _ in range(2))
    squares = torch.cdist(x, z).square()
    median = squares.flatten(1).median(dim=1).values[:, None, None]
    return (0.5 * squares / median - p @ q.mT).to(DEVICE)


def milliseconds(function: Callable[[], object], repeats: int) -> float:
    """The median over repeats, each with the device idle before and after."""
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        started = time.perf_counter()
        function()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    return 1e3 * float(np.median(times))


def marginal_error(plans: torch.Tensor, slack: torch.Tensor, spill: torch.Tensor, mu: Any, nu: Any) -> float:
    """The largest L1 error of a batch over rows and columns, with what stays at the sources and targets."""
    rows, columns = (plans.sum(2) + slack - mu).abs().sum(1), (plans.sum(1) + spill - nu).abs().sum(1)
    return float(((rows + columns) / nu.sum(1)).max())


def sinkhorn(
    costs: torch.Tensor, mu: torch.Tensor, nu: torch.Tensor, iterations: int | None
) -> tuple[torch.Tensor, int]:
    """Sinkhorn's iteration in the log domain on the augmented matrix: its plan, and the iterations it took.

    Without a number of iterations it stops at the tolerance, which is looked at every SINKHORN_CHECKS of them.
    """
    mass, supply = mu.sum(1, keepdim=True), nu.sum(1, keepdim=True)
    exponents = torch.nn.functional.pad(-costs.double() / EPSILON, (0, 1, 0, 1))
    a, b = torch.cat([mu, supply], 1), torch.cat([nu, mass], 1)
    exponents = exponents + (a.log() - (mass + supply).log())[:, :, None] + b.log()[:, None, :]
    log_a, log_b = a.log(), b.log()
    f, g = torch.zeros_like(a), torch.zeros_like(b)
    done = 0
    while True:
        for _ in range(iterations or SINKHORN_CHECKS):
            g = log_b - (exponents + f[:, :, None]).logsumexp(1)
            f = log_a - (exponents + g[:, None, :]).logsumexp(2)
            done += 1
        if iterations or done >= MOST_SINKHORN:
            break
        columns = (exponents + f[:, :, None] + g[:, None, :]).logsumexp(1).exp()
        if float(((columns - b).abs().sum(1) / supply[:, 0]).max()) <= TOLERANCE:  # a synchronisation
            break
    plans = (exponents + f[:, :, None] + g[:, None, :]).exp()
    return plans, done


def measure(batch: int, n: int, repeats: int) -> list[dict[str, Any]]:
    costs = joint_costs(batch, n)
    mu = nu = torch.full((batch, n), 1 / n, dtype=torch.float64, device=DEVICE)
    weights = torch.cat([mu, nu], dim=1)
    rows: list[dict[str, Any]] = []
    for dtype in (torch.float64, torch.float32):
        typed = costs.to(dtype)
        for warps in WARPS if dtype is torch.float64 else (8,):

            def run(typed: torch.Tensor = typed, warps: int = warps) -> tuple[torch.Tensor, torch.Tensor]:
                return solve_batch(typed, weights, "augmented", EPSILON, TOLERANCE, MAX_PASSES, num_warps=warps)

            started = time.perf_counter()
            plans, found = run()
            torch.cuda.synchronize()
            compiled = time.perf_counter() - started
            f, g = found[:, len(NUMBERS) + 2 * n :].split([n, n], dim=1)
            slack, spill = mu / 2 * (f / EPSILON).exp(), nu / 2 * (g / EPSILON).exp()
            numbers = dict(zip(NUMBERS, found.T, strict=False))
            rows.append(
                {
                    "method": f"kernel, {warps} warps, {str(dtype)[6:]}",
                    "milliseconds": milliseconds(run, repeats),
                    "error": marginal_error(plans.double(), slack, spill, mu, nu),
                    "passes": float(numbers["passes"].mean()),
                    "first_call_seconds": compiled,
                }
            )
    solver = aot.Entropic(EPSILON, tolerance=TOLERANCE, compiled=True)
    whole = costs[0] if batch == 1 else costs

    def step() -> None:
        transport_value(whole.detach().requires_grad_(), solver=solver).sum().backward()

    calls = {"aot.solve, float64": lambda: aot.solve(whole, solver=solver), "value and gradient": step}
    for method, call in calls.items():
        rows.append({"method": method, "milliseconds": milliseconds(call, repeats)})
    for iterations in (SINKHORN_ITERATIONS, None):
        plans, done = sinkhorn(costs, mu, nu, iterations)
        few = min(repeats, 5 if batch > 500 or iterations is None else 20)
        rows.append(
            {
                "method": f"sinkhorn, {iterations} iterations" if iterations else "sinkhorn, to the tolerance",
                "milliseconds": milliseconds(lambda k=iterations: sinkhorn(costs, mu, nu, k), few),
                "error": marginal_error(plans[:, :-1, :-1], plans[:, :-1, -1], plans[:, -1, :-1], mu, nu),
                "passes": float(2 * done),
            }
        )
    return [{"n": n, "problems": batch, **row} for row in rows]


def measure_large() -> list[dict[str, Any]]:
    """One dense problem, or two point clouds, too large for one program."""
    rows = []
    for n in LARGE:
        x, z = (torch.randn(n, 16, dtype=torch.float64, device=DEVICE) for _ in range(2))
        cost = torch.cdist(x, z).square()
        cost -= cost.median()
        for share in SHARES:
            solver = aot.Entropic(share * float(cost.abs().median()), tolerance=TOLERANCE)
            aot.solve(cost[:200, :200].contiguous(), solver=solver)  # warms up
            started = time.perf_counter()
            solution = aot.solve(cost, solver=solver)
            seconds = time.perf_counter() - started
            rows.append(
                {"n": n, "problems": 1, "method": f"dense, epsilon {share}", "milliseconds": 1e3 * seconds}
                | {"passes": float(solution.iterations), "gap": solution.gap, "value": solution.value}
            )
    x, z = (torch.randn(POINTS, 16, dtype=torch.float64, device=DEVICE) for _ in range(2))
    torch.cuda.reset_peak_memory_stats()
    started = time.perf_counter()
    solution = aot.solve(aot.DistanceCost(x, z, reach=5.0), solver=aot.Entropic(1.0, tolerance=TOLERANCE))
    row = {"n": POINTS, "problems": 1, "method": "points in R^16", "passes": float(solution.iterations)}
    memory = torch.cuda.max_memory_allocated() / 2**20
    rows.append(row | {"milliseconds": 1e3 * (time.perf_counter() - started), "peak_mib": memory, "gap": solution.gap})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=50)
    repeats = parser.parse_args().repeats
    if not torch.cuda.is_available():
        sys.exit("needs a CUDA device")
    import triton

    machine = f"{torch.cuda.get_device_name()}, {platform.processor() or platform.machine()}"
    results = []
    line = "{n:>5} {problems:>5}  {method:<28} {milliseconds:10.3f} {each:10.2f} {error:9.1e} {passes:8.1f}"
    print(f"{machine}, torch {torch.__version__}, triton {triton.__version__}")
    print(f"{'n':>5} {'count':>5}  {'method':<28} {'ms':>10} {'us each':>10} {'error':>9} {'passes':>8}")
    parts = [lambda n=n, batch=batch: measure(batch, n, repeats) for n in SIZES for batch in BATCHES]
    for part in [*parts, measure_large]:
        for row in part():
            results.append(row)
            blank = {"error": math.nan, "passes": math.nan}
            print(line.format(**(blank | row), each=1e3 * row["milliseconds"] / row["problems"]), flush=True)
    report = {
        "command": "python " + " ".join(sys.argv),
        "machine": machine,
        "torch": torch.__version__,
        "triton": triton.__version__,
        "results": results,
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
