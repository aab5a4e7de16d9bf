"""What a training step costs on a GPU: a bare ResNet-50, the loop around it, and what the methods add.

    python benchmarks/deep_speed.py --root data/pacs --weights data/resnet50_imagenet_v1.safetensors

PACS art_painting -> cartoon, 62 + 62 images, in bf16 and tf32. "bare" is two forward passes, one backward pass and the
optimiser on a batch that stays the same, already augmented; "no transport" is our loop, which also draws, gathers and
augments batches and logs, with a loss of zero for the target; the others are the loop with a method. All take turns.
Writes benchmarks/results/deep_speed.json.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from adaptive_ot.deep import Config, configure
from adaptive_ot.deep.data.stores import Store
from adaptive_ot.deep.device import computing, pick_device
from adaptive_ot.deep.loader import open_stores, paired_batches
from adaptive_ot.deep.methods import METHODS, Alignment, Method, Pair
from adaptive_ot.deep.training import Training

RESULT = Path(__file__).parent / "results" / "deep_speed.json"
WARM_UP, STEPS, ROUNDS = 5, 30, 3


class NoTransport(Method):
    """Both domains go through the network, and the target's loss is zero."""

    @dataclass(frozen=True)
    class Settings:
        """None."""

    def alignment(self, pair: Pair) -> Alignment:
        return Alignment(0.0 * pair.target_logits.sum(), {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--weights", required=True)
    parser.add_argument("--methods", nargs="*", default=["no-transport", "aot", "deepjdot", "jumbot", "mpot", "dann"])
    parser.add_argument("--precisions", nargs="*", default=["bf16", "tf32"])
    parser.add_argument("--kernels", nargs="*", default=["deterministic", "fastest"], help="or compiled")
    options = parser.parse_args()
    METHODS["no-transport"] = NoTransport
    config = configure(
        dataset="pacs",
        root=options.root,
        source="art_painting",
        target="cartoon",
        output="unused",
        network="resnet50-caffe",
        weights=options.weights,
        batch=62,
        iterations=100_000,
    )
    device = pick_device("auto")
    stores = open_stores(config, device, lambda what: None)
    record = {
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "torch": torch.__version__,
        "command": f"python benchmarks/deep_speed.py {' '.join(sys.argv[1:])}",
        "images": "62 + 62",
    }
    results = []
    for precision in options.precisions:
        for kernels in options.kernels:
            kinds = {"deterministic": kernels == "deterministic", "compile": kernels == "compiled"}
            flags = {"precision": precision, **kinds}
            steps = {"bare": bare_step(replace(config, **flags), stores, device)}
            for method in options.methods:
                settings = vars(METHODS[method].defaults())
                steps[method] = loop_step(replace(config, **flags, method=method, settings=settings), stores, device)
            milliseconds = taking_turns(steps, device)
            for name, value in milliseconds.items():
                results.append({"precision": precision, "kernels": kernels, "step": name, "milliseconds": value})
                print(f"{precision:5s} {kernels:14s} {name:14s} {value:7.2f} ms", flush=True)
            RESULT.write_text(json.dumps({**record, "results": results}, indent=2) + "\n")


def bare_step(config: Config, stores: tuple[Store, Store], device: torch.device) -> Callable[[], object]:
    """Nothing but the network, on one batch again and again."""
    training = Training(replace(config, method="no-transport", settings={}), 7, device)
    source, target = next(paired_batches(replace(config, method="aot"), *stores, 0))
    assert target is not None

    def step() -> None:
        with computing(device, config):
            outputs = training._passes(source.images, target.images)
            loss = torch.nn.functional.cross_entropy(outputs[1], source.labels) + 0.0 * outputs[3].sum()
            training.optimiser.zero_grad()
            loss.backward()
            training.optimiser.step()

    return step


def loop_step(config: Config, stores: tuple[Store, Store], device: torch.device) -> Callable[[], object]:
    """A step of the loop, with its batches, and numbers fetched every ten steps."""
    training, number = Training(config, 7, device), iter(range(10**9))
    batches = paired_batches(config, *stores, 0)

    def step() -> None:
        at = next(number)
        source, target = next(batches)
        with computing(device, config):
            losses = training.learn(at, source, target)
        if at % 10 == 0 and losses.terms:
            torch.stack([term.float() for term in losses.terms.values()]).tolist()

    return step


def taking_turns(steps: dict[str, Callable[[], object]], device: torch.device) -> dict[str, float]:
    """The median over rounds of the mean over steps of each."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(ROUNDS):
        for name, step in steps.items():
            for _ in range(WARM_UP if turn == 0 else 1):
                step()
            _settle(device)
            started = time.perf_counter()
            for _ in range(STEPS):
                step()
            _settle(device)
            times[name].append(1e3 * (time.perf_counter() - started) / STEPS)
    return {name: float(np.median(values)) for name, values in times.items()}


def _settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
