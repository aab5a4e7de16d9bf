"""A training run that is killed again and again: is what comes of it the same, bit for bit?

    OMP_NUM_THREADS=1 python benchmarks/killed.py

A convnet learns generated images with AOT, once undisturbed. Then the same run begins anew and is ended by SIGKILL, by
turns at a moment drawn from its whole length, and within a checkpoint that it writes; it goes on until it is finished,
then the next one begins, until 100 kills are reached. Every finished run must have the weights and momenta, metrics and
result of the undisturbed one (all but the seconds it took). Writes benchmarks/results/killed.json.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import platform
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from adaptive_ot.deep import configure, loop, train
from adaptive_ot.deep.run_directory import RunDirectory
from adaptive_ot.deep.training import Training

RESULT = Path(__file__).parent / "results" / "killed.json"
STEPS, SIZE = 120, 20
PHASES = ("starting", "reading images", "a step", "an evaluation", "metrics", "a checkpoint", "the result")

# What a process is doing, seen by the one that will kill it.
phase = mmap.mmap(-1, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    kills = parser.parse_args().kills
    torch.set_num_threads(1)
    announce_phases()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_images(folder / "images")
        started = time.perf_counter()
        run(folder, "undisturbed")
        length = time.perf_counter() - started
        hit, different = kill_again_and_again(folder, kills, length)
    record = {
        "command": f"OMP_NUM_THREADS=1 python benchmarks/killed.py {' '.join(sys.argv[1:])}".strip(),
        "run": f"convnet, aot, {STEPS} steps, a checkpoint every 4",
        "kills": sum(hit.values()),
        "while": {each: hit[each] for each in PHASES},
        "finished_runs": different.total(),
        "runs_that_differ": different[True],
        "seconds": round(time.perf_counter() - started),
        "torch": torch.__version__,
        "platform": platform.platform(),
    }
    RESULT.write_text(json.dumps(record, indent=2) + "\n")
    print(json.dumps(record, indent=2))
    sys.exit(1 if different[True] else 0)


def kill_again_and_again(folder: Path, kills: int, length: float) -> tuple[Counter[str], Counter[bool]]:
    """How many kills hit which phase, and how many finished runs differ from the undisturbed one."""
    rng, hit, different = random.Random(0), Counter[str](), Counter[bool]()
    expected = outcome(folder / "undisturbed")
    while hit.total() < kills:
        name = f"run-{different.total()}"
        while found := run(folder, name, a_moment(rng, length, aimed=hit.total() % 2 == 1)):
            hit[found] += 1
            length *= 1.02  # whatever else slows this machine down or does not, some are killed and some get there
            print(f"{hit.total():4d} {name} killed during {found}", flush=True)
        length *= 0.95
        left_over = any((folder / name).rglob("*.tmp"))
        different[left_over or outcome(folder / name) != expected] += 1
    return hit, different


def a_moment(rng: random.Random, length: float, *, aimed: bool) -> Callable[[], None]:
    """Waits for some time; if aimed, for a checkpoint that has begun, and a little more."""
    patience, a_little = rng.uniform(0, length), rng.uniform(0, 0.004)

    def wait() -> None:
        if not aimed:
            time.sleep(patience)
            return
        until = time.perf_counter() + patience
        while time.perf_counter() < until or PHASES[phase[0]] != "a checkpoint":
            if time.perf_counter() > until + length:  # it has ended
                return
            time.sleep(0.0002)
        time.sleep(a_little)

    return wait


def run(folder: Path, name: str, wait: Callable[[], None] | None = None) -> str | None:
    """Train in a process of its own; what it did when it was killed after a wait, None if it was faster."""
    phase[0] = PHASES.index("starting")
    child = os.fork()
    if child == 0:
        try:
            train(config(folder, folder / name))
            os._exit(0)
        finally:  # never back into what the parent does
            os._exit(1)
    if wait:
        wait()
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return PHASES[phase[0]]
    if status:
        raise RuntimeError(f"{name} failed")
    return None


def config(folder: Path, output: Path) -> Any:
    return configure(
        dataset="folders",
        **{"root": folder / "images", "source": "clear", "target": "faint", "output": output, "device": "cpu"},
        **{"network": "convnet", "bottleneck": 32, "resize": SIZE, "crop": 16, "crop_kind": "random", "batch": 16},
        **{"iterations": STEPS, "evaluate_every": 10, "checkpoint_every": 4, "learning_rate": 0.01, "head_factor": 1},
    )


def outcome(output: Path) -> tuple[Any, ...]:
    """Everything but what clocks say."""
    result = json.loads((output / "result.json").read_bytes())
    del result["seconds"]
    tensors = {path.name: path.read_bytes() for path in (output / "checkpoints").glob("*.safetensors")}
    return result, (output / "metrics.jsonl").read_bytes(), tensors


def save_images(root: Path) -> None:
    """Stripes in four directions, 80 images of either domain."""
    rng, (rows, columns) = np.random.default_rng(0), np.mgrid[:SIZE, :SIZE]
    for domain, contrast in (("clear", 60), ("faint", 25)):
        for number in range(80):
            down, right = ((1, 0), (0, 1), (0.7, 0.7), (0.7, -0.7))[number % 4]
            waves = np.sin(rng.uniform(1, 1.6) * (down * rows + right * columns) + rng.uniform(0, 6))
            pixels = 128 + contrast * waves + 20 * rng.standard_normal(waves.shape)
            path = root / domain / f"class{number % 4}" / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(path)


def announce_phases() -> None:
    """Let the parts of a training say when they begin and end."""

    def announced(owner: Any, name: str, during: str) -> None:
        function, number = getattr(owner, name), PHASES.index(during)

        def call(*arguments: Any, **options: Any) -> Any:
            before, phase[0] = phase[0], number
            result = function(*arguments, **options)
            phase[0] = number if during == "a step" else before  # and what is around it
            return result

        setattr(owner, name, call)

    announced(loop, "open_stores", "reading images")
    announced(loop, "evaluation", "an evaluation")
    announced(Training, "learn", "a step")
    announced(RunDirectory, "append", "metrics")
    announced(RunDirectory, "save", "a checkpoint")
    announced(RunDirectory, "finish", "the result")


if __name__ == "__main__":
    main()
