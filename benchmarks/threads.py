"""What threads are worth to a training step on a CPU: processor time and time of networks, with one thread and more.

    python benchmarks/threads.py

Each network takes some steps, forward and backward, in a process of its own. Where other programs run, look at the
processor time: threads that wait for each other use it, too. Writes benchmarks/results/threads.json.
"""

from __future__ import annotations

import os
import resource
import time
from typing import Any

from measure import RESULTS, header, in_child, write_json

# Network, pixels on a side, batch, steps.
CASES = (("convnet", 28, 100, 5), ("convnet", 64, 64, 3), ("resnet18", 64, 32, 2), ("resnet18", 224, 16, 1))


def main() -> None:
    rows = []
    for network, side, batch, steps in CASES:
        for threads in sorted({1, 2, os.cpu_count() or 1}):
            case = {"network": network, "side": side, "batch": batch, "steps": steps}
            rows.append(case | {"threads": threads} | in_child("threads", "step", case, threads=threads, quiet=True))
            print(rows[-1], flush=True)
    write_json(RESULTS / "threads.json", header() | {"rows": rows})


def step(network: str, side: int, batch: int, steps: int) -> dict[str, Any]:
    """Seconds of a step, by the clock and by the processor."""
    import torch

    from adaptive_ot.deep.networks import build_network

    model, images = build_network(network, 10, bottleneck=128), torch.rand(batch, 3, side, side)

    def train() -> None:
        model(images)[1].square().mean().backward()

    train()
    begin, used = time.perf_counter(), _processor()
    for _ in range(steps):
        train()
    seconds, processor = time.perf_counter() - begin, _processor() - used
    return {"seconds": round(seconds / steps, 4), "processor_seconds": round(processor / steps, 4)}


def _processor() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
