"""Runs that are killed at random moments, again and again: what comes of them is the same to the byte."""

import os
import subprocess
import sys

import pytest

from budget import mostly_slow
from commands import environment
from interruption import PATIENCE

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

# A toy, so fast that most of its time goes into files; 40 steps.
TOY = """
from adaptive_ot.deep.checkpoint import Checkpoint
from adaptive_ot.deep.config import Config
from adaptive_ot.deep.run_directory import open_run

def train(output):
    config = Config(dataset="pacs", root=Path(), source="a", target="b", output=output)
    with open_run(config, {}) as run:
        at = run.checkpoint or Checkpoint(0, {"weight": torch.ones(3)}, {"best": 0.0})
        weight, best = at.tensors["weight"], at.notes["best"]
        for step in range(at.step, 40):
            weight = torch.sin(weight * (step + 1)) + 1
            best = max(best, float(weight[0]))
            run.append({"step": step, "loss": float(weight.sum())})
            time.sleep(0.001)
            if step % 3 == 2:
                run.save(Checkpoint(step + 1, {"weight": weight}, {"best": best}))
        run.save(Checkpoint(40, {"weight": weight}, {"best": best}))
        run.finish({"accuracy": best})
"""

# The loop itself on a few images; 40 steps.
LOOP = """
import numpy as np
from adaptive_ot.deep import configure
from adaptive_ot.deep import train as train_network

rng = np.random.default_rng(0)
arrays = {f"{name}_train_x": rng.integers(0, 256, (12, 12, 12), dtype=np.uint8) for name in "ab"}
np.savez("small.npz", **arrays, a_train_y=np.arange(12) % 3, b_train_y=np.arange(12) % 3)

def train(output):
    place = {"dataset": "digits", "root": "small.npz", "source": "a", "target": "b", "output": output}
    recipe = {"resize": 12, "crop": 12, "batch": 6, "iterations": 40, "evaluate_every": 5, "checkpoint_every": 3}
    train_network(configure(**place, method="dann", device="cpu", **recipe))
"""

# The first process never trains: what libraries start then does not survive a fork.
SCRIPT = """
import os, random, signal, sys, time
from pathlib import Path
import torch

torch.set_num_threads(1)
{work}

def attempt(output, patience):
    child = os.fork()
    if child == 0:
        train(output)
        os._exit(0)
    if patience is not None:
        time.sleep(patience)
        os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1] != 0

started = time.perf_counter()
assert not attempt(Path("uninterrupted"), None)
patience = time.perf_counter() - started
rng, kills, rounds = random.Random(0), 0, 0
while kills < {kills}:
    output = Path(f"killed-{{rounds}}")
    while attempt(output, rng.uniform(0, {share} * patience)):
        kills += 1
        patience *= 1.01  # if other processes slow this one down, it still gets there
    assert not attempt(output, None)  # what is finished stays so
    rounds += 1
print(kills, rounds)
"""


def output_of(script, folder):
    """What a script prints that is run in a folder."""
    command = [sys.executable, "-W", "ignore", "-c", script]  # newer versions of Python mind a fork
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=PATIENCE)
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("times", mostly_slow([1, 10], 1))
@pytest.mark.parametrize(("work", "kills", "share"), [(TOY, 12, 0.4), (LOOP, 3, 0.8)], ids=["toy", "loop"])
def test_killed_at_random_moments(tmp_path, work, kills, share, times):
    """The same metrics and weights, byte for byte, as without being killed."""
    kills *= times
    script = SCRIPT.format(work=work, kills=kills, share=share)
    killed, rounds = map(int, output_of(script, tmp_path).split())
    assert killed >= kills

    def state(directory):
        names = ("metrics.jsonl", "checkpoints/step-00000040.safetensors", "checkpoints/step-00000039.safetensors")
        return [(directory / name).read_bytes() for name in names]

    for path in [tmp_path / f"killed-{k}" for k in range(rounds)]:
        assert state(path) == state(tmp_path / "uninterrupted")
        assert not [each for each in path.rglob("*") if each.name.endswith(".tmp")]


FORKED = """
import os, signal
from pathlib import Path
from adaptive_ot.workbench.runs import alone_in

refused, tell = os.pipe()
with alone_in(Path("run")):
    worker = os.fork()
    if worker == 0:
        try:
            with alone_in(Path("run")):
                os._exit(9)
        except ValueError:
            os.write(tell, b"!")
            signal.pause()
    os.close(tell)
    assert os.read(refused, 1) == b"!"
with alone_in(Path("run")):
    print(os.waitpid(worker, os.WNOHANG))
os.kill(worker, signal.SIGKILL)
"""


def test_a_worker_does_not_keep_the_lock(tmp_path):
    """Nor can it have it as long as its parent does."""
    assert output_of(FORKED, tmp_path) == "(0, 0)\n"
