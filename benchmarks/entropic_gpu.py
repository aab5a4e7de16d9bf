"""Batches of small entropic problems on a GPU: one Triton kernel beside a Sinkhorn loop in PyTorch, in one run.

    python benchmarks/entropic_gpu.py [--repeats 50]

Standard normal points and random labels, cost 0.5 |x - z|^2 / median - <p, q>, epsilon 0.1, augmented form, weights
uniform. Both solve the same problems to the same L1 error of the target marginal (of the augmented problem, relative),
which is measured again from the plan in float64. Needs torch, triton and numpy only. Writes
benchmarks/results/entropic_gpu.json.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
import traceback
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

SOURCE = Path(__file__).resolve().parents[1] / "src" / "adaptive_ot"
RESULT = Path(__file__).parent / "results" / "entropic_gpu.json"
DEVICE = "cuda"
SIZES, BATCHES, WARPS = (72, 128), (1, 132, 1056), (4, 8, 16)
EPSILON, TOLERANCE, MAX_PASSES = 0.1, 1e-6, 100_000
SINKHORN_ITERATIONS, SINKHORN_CHECKS, MOST_SINKHORN = 200, 10, 20_000


def kernel_module() -> Any:
    """The module with the kernel, without the rest of the package, which needs Numba."""
    for name, path in (("adaptive_ot", SOURCE), ("adaptive_ot.solvers", SOURCE / "solvers")):
        package = types.ModuleType(name)
        package.__path__ = [str(path)]
        sys.modules[name] = package
    from adaptive_ot.solvers.softmin import triton as batched

    return batched


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


def marginal_error(plans: torch.Tensor, mu: torch.Tensor, nu: torch.Tensor, gamma: torch.Tensor) -> float:
    """The largest L1 error of a batch, over rows and columns of the augmented plans; the dummies take the rest.

    `gamma` are the potentials of the targets, from which follow what the dummy source sends to them and, as rows are
    exact, the dummy target receives.
    """
    mass, supply = mu.sum(1, keepdim=True), nu.sum(1, keepdim=True)
    scaled = torch.cat([gamma + nu.log(), mass.log()], dim=1)
    spill = supply * scaled.softmax(1)
    columns = (plans.sum(1) + spill[:, :-1] - nu).abs().sum(1)
    slack = mu - plans.sum(2)
    corner = (slack.sum(1) + spill[:, -1] - mass[:, 0]).abs() + slack.clamp(max=0).abs().sum(1)
    return float(((columns + corner) / supply[:, 0]).max())


def sinkhorn(costs: torch.Tensor, mu: torch.Tensor, nu: torch.Tensor, iterations: int | None) -> tuple[Any, Any, int]:
    """Sinkhorn's iteration in the log domain on the augmented matrix: potentials of the targets, plan and iterations.

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
    plans = (exponents + f[:, :, None] + g[:, None, :]).exp()[:, :-1, :-1]
    return (g - g[:, -1:])[:, :-1], plans, done


def measure(batched: Any, batch: int, n: int, repeats: int) -> list[dict[str, Any]]:
    costs = joint_costs(batch, n)
    mu = nu = torch.full((batch, n), 1 / n, dtype=torch.float64, device=DEVICE)
    duals = batched.duals_of(mu, nu, "augmented")
    first = (-costs.amin(dim=(1, 2))).clamp(min=EPSILON)
    rows: list[dict[str, Any]] = []
    for dtype in (torch.float64, torch.float32):
        typed = costs.to(dtype)
        for warps in WARPS if dtype is torch.float64 else (8,):

            def run(typed: torch.Tensor = typed, warps: int = warps) -> Any:
                return batched.ascend_batch(typed, duals, EPSILON, first, TOLERANCE, MAX_PASSES, num_warps=warps)

            method = f"triton, {warps} warps, {str(dtype)[6:]}"
            try:
                started = time.perf_counter()
                reached = run()
                torch.cuda.synchronize()
                compiled = time.perf_counter() - started
            except Exception:  # a variant that does not compile should not end the others
                print(f"{n} x {n}, {method}: FAILED\n{traceback.format_exc()}", flush=True)
                continue
            rows.append(
                {
                    "method": method,
                    "milliseconds": milliseconds(run, repeats),
                    "error": marginal_error(reached.plans(typed, duals, EPSILON), mu, nu, reached.gamma),
                    "passes": float(reached.passes.double().mean()),
                    "most_passes": int(reached.passes.max()),
                    "stalled": int(reached.stalled.sum()),
                    "first_call_seconds": compiled,
                }
            )
    for iterations in (SINKHORN_ITERATIONS, None):
        gamma, plans, done = sinkhorn(costs, mu, nu, iterations)
        few = min(repeats, 5 if batch > 500 or iterations is None else 20)
        rows.append(
            {
                "method": f"sinkhorn, {iterations} iterations" if iterations else "sinkhorn, to the tolerance",
                "milliseconds": milliseconds(lambda k=iterations: sinkhorn(costs, mu, nu, k), few),
                "error": marginal_error(plans, mu, nu, gamma),
                "passes": float(2 * done),
            }
        )
    return [{"n": n, "problems": batch, **row} for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=50)
    repeats = parser.parse_args().repeats
    if not torch.cuda.is_available():
        sys.exit("needs a CUDA device")
    try:
        batched = kernel_module()
        tiny = torch.full((1, 3), 1 / 3, dtype=torch.float64, device=DEVICE)
        duals = batched.duals_of(tiny, tiny, "augmented")
        reached = batched.ascend_batch(-torch.ones(1, 3, 3, device=DEVICE), duals, EPSILON, 1.0, 1e-9, 1000)
        print(f"a 3 x 3 problem compiles and runs: error {float(reached.error):.1e}", flush=True)
    except Exception:
        print("THE KERNEL DOES NOT COMPILE OR RUN:", flush=True)
        raise
    import triton

    machine = f"{torch.cuda.get_device_name()}, {platform.processor() or platform.machine()}"
    results = []
    line = "{n:>4} {problems:>5}  {method:<28} {milliseconds:10.3f} {each:10.2f} {error:9.1e} {passes:8.1f}"
    print(f"{machine}, torch {torch.__version__}, triton {triton.__version__}")
    print(f"{'n':>4} {'count':>5}  {'method':<28} {'ms':>10} {'us each':>10} {'error':>9} {'passes':>8}")
    for n in SIZES:
        for batch in BATCHES:
            for row in measure(batched, batch, n, repeats):
                results.append(row)
                print(line.format(each=1e3 * row["milliseconds"] / batch, **row), flush=True)
    report = {
        "command": "python " + " ".join(sys.argv),
        "machine": machine,
        "torch": torch.__version__,
        "triton": triton.__version__,
        "results": results,
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(report, indent=1) + "\n")
    worst = max(row["error"] for row in results if row["method"].startswith("triton"))
    print(f"largest error of the kernel: {worst:.1e}")


if __name__ == "__main__":
    main()
