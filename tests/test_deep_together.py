"""Runs that two processes share are the runs of one. This file is also what torchrun starts."""

import json
import signal
import sys
from pathlib import Path

import pytest

pytest.importorskip("adaptive_ot.deep", exc_type=ImportError)

import torch
from safetensors.torch import load_file

from adaptive_ot._group import process_group
from adaptive_ot.deep import Interrupted, Progress, configure, train
from adaptive_ot.deep.distributed import rank, world_size
from patterns import SIZE, metrics, save_folders, save_patterns, small_run
from processes import torchrun

METHODS = ("source-only", "aot", "deepjdot", "dann", "cdan", "caco")
STEPS = 6  # few: where two pixels tie, rounding picks the one that learns
STOP = 3


def config_of(folder, method, name):
    """An odd batch: 6 of one process, 7 of the other. An odd number of target images, too."""
    return small_run(
        folder / "patterns.npz",
        folder / name / method,
        method=method,
        settings={"keys": 4, "threshold": 0.0} if method == "caco" else None,
        **{"iterations": STEPS, "batch": 13, "bottleneck": 16, "evaluate_every": 1, "learning_rate": 0.002},
    )


def config_of_stream(folder, name):
    """Images that turn out to be bad one by one, each in the process that meets it."""
    return configure(
        dataset="folders",
        **{"root": folder / "images", "source": "clear", "target": "faint", "output": folder / name / "stream"},
        **{"method": "dann", "network": "convnet", "bottleneck": 8, "resize": SIZE, "crop": SIZE, "device": "cpu"},
        **{"storage": "stream", "workers": 0, "on_bad_image": "skip", "batch": 5, "iterations": STEPS},
        **{"evaluate_every": 2, "checkpoint_every": 4, "learning_rate": 0.002},
    )


def stopped(folder):
    """A signal that reaches one process stops both, after the same step; then both go on."""
    config = config_of(folder, "dann", "stopped")

    def report(now: Progress) -> None:
        if rank() == 1 and now.loading is None and now.step == STOP:
            signal.raise_signal(signal.SIGTERM)

    try:
        train(config, progress=report)
    except Interrupted as stop:
        (folder / f"stopped-{rank()}.txt").write_text(str(stop.step))
    train(config)


def main(folder):
    with process_group():
        assert world_size() == 2
        for method in METHODS:
            result = train(config_of(folder, method, "together"))
            (folder / f"{method}-{rank()}.json").write_text(json.dumps(result.record()))
        result = train(config_of_stream(folder, "together"))
        (folder / f"stream-{rank()}.json").write_text(json.dumps(result.record()))
        stopped(folder)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))


pytestmark = pytest.mark.slow  # `test_deep_distributed` has two processes share a step, in seconds


@pytest.fixture(scope="module")
def folder(tmp_path_factory, one_thread):
    """The runs of one process and of two."""
    folder = tmp_path_factory.mktemp("runs")
    save_patterns(folder / "patterns.npz", 45)
    save_folders(folder / "images", "ab", clear=45, faint=45, contrast=0.6, cut=range(1, 45, 3))
    with torchrun(__file__, folder, 2):
        for method in METHODS:
            train(config_of(folder, method, "alone"))
        train(config_of_stream(folder, "alone"))
    return folder


def weights(output):
    return load_file(output / "checkpoints" / f"step-{STEPS:08}.safetensors")


# Gradients of a batch are added up in another order by two processes. In float32 that is 1e-7 of their size at first,
# and grows with every step, to 3e-6 here; a gradient that were wrong by a tenth would change weights by far more.
ROUNDING = 1e-4


@pytest.mark.parametrize("run", [*METHODS, "stream"])
def test_two_processes_train_as_one(folder, run):
    alone, together = folder / "alone" / run, folder / "together" / run
    one, two = weights(alone), weights(together)
    assert one.keys() == two.keys()
    for name in one:
        torch.testing.assert_close(
            two[name], one[name], rtol=ROUNDING, atol=ROUNDING, msg=lambda text, name=name: f"{name}: {text}"
        )
    for ours, theirs in zip(metrics(together), metrics(alone), strict=True):
        assert ours.pop("per_class") == theirs.pop("per_class")
        assert ours == pytest.approx(theirs, rel=ROUNDING, abs=ROUNDING)
    first, second = (json.loads((folder / f"{run}-{k}.json").read_text()) for k in range(2))
    assert {**first, "seconds": 0} == {**second, "seconds": 0}
    written = json.loads((together / "result.json").read_text())
    assert {**first, "seconds": 0} == {**written, "seconds": 0}


def test_bad_images_are_counted_in_whichever_process_they_turn_up(folder):
    """Some in one process, some in the other, some in both; the checkpoints know them, too."""
    one, two = (json.loads((folder / name / "stream" / "result.json").read_text()) for name in ("alone", "together"))
    assert 15 < one["bad_images"] <= 30
    assert two["bad_images"] == one["bad_images"]
    for step in (4, STEPS):
        notes = [
            json.loads((folder / name / "stream" / "checkpoints" / f"step-{step:08}.json").read_text())["notes"]
            for name in ("alone", "together")
        ]
        assert notes[0]["bad_images"] == notes[1]["bad_images"]


def test_a_signal_stops_both(folder):
    """The same bits as without it."""
    assert [(folder / f"stopped-{k}.txt").read_text() for k in range(2)] == [str(STOP)] * 2
    whole, parts = folder / "together" / "dann", folder / "stopped" / "dann"
    assert metrics(parts) == metrics(whole)
    one, two = weights(whole), weights(parts)
    assert all(torch.equal(one[name], two[name]) for name in one)
