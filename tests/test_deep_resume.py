"""Runs that are stopped and go on: the same bits as without a stop, for every method."""

import dataclasses
import json
import signal

import pytest
import torch
from safetensors.torch import load_file

from adaptive_ot.deep import Interrupted, Progress, configure, evaluate, train
from adaptive_ot.deep.checkpoint import save_checkpoint
from adaptive_ot.deep.methods import METHODS
from adaptive_ot.deep.run_directory import decisive, read_run
from adaptive_ot.errors import InvalidInput
from commands import contents
from patterns import metrics, save_folders, save_patterns, small_run

STEPS = 30
SHORT = {"iterations": STEPS, "batch": 12, "bottleneck": 16, "evaluate_every": 7, "checkpoint_every": 1000}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return save_patterns(tmp_path_factory.mktemp("patterns") / "patterns.npz", 48)


pytestmark = pytest.mark.usefixtures("one_thread")


def stop_at(step, number=signal.SIGINT, times=1):
    """A signal as soon as a run reports that it has come so far."""

    def report(now: Progress) -> None:
        if now.loading is None and now.note is None and now.step == step:
            for _ in range(times):
                signal.raise_signal(number)

    return report


def stop(config, step, number=signal.SIGINT, times=1):
    """Train until a signal stops the run after this step."""
    with pytest.raises(Interrupted) as interruption:
        train(config, progress=stop_at(step, number, times))
    assert interruption.value.step == step


def state(output):
    """Everything but what clocks say."""
    result = json.loads((output / "result.json").read_text())
    del result["seconds"]
    metrics = (output / "metrics.jsonl").read_text()
    return result, metrics, (output / "checkpoints" / f"step-{STEPS:08}.safetensors").read_bytes()


SETTINGS = {
    "aot": {"neighbours": 3},
    "caco": {"keys": 3, "threshold": 0.3},
    "cdan": {"largest_product": 10, "projections": 8},
}


@pytest.mark.parametrize("method", METHODS)
def test_resumed_equals_uninterrupted(root, tmp_path, method):
    """Weights, momenta, dictionaries and projections, metrics and result; stopped twice, once by either signal."""
    whole, parts = (
        small_run(root, tmp_path / name, method=method, settings=SETTINGS.get(method), **SHORT)
        for name in ("whole", "parts")
    )
    expected = train(whole)
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    for step, number in ((10, signal.SIGINT), (21, signal.SIGTERM)):
        stop(parts, step, number)
        assert not (tmp_path / "parts" / "result.json").exists()
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    result = train(parts)
    assert dataclasses.replace(result, seconds=expected.seconds, output=expected.output) == expected
    assert state(parts.output) == state(whole.output)
    kept = load_file(parts.output / "checkpoints" / f"step-{STEPS:08}.safetensors")
    if method == "caco":
        assert int(kept["method.entered"].min()) > 3
        assert any(name.startswith("method.encoder.") for name in kept)
        assert max(line["contrast"] for line in metrics(parts.output)) > 0
    if method == "cdan":
        assert kept["method.feature_directions"].shape == (16, 8)


def test_one_step_at_a_time(root, tmp_path):
    """However often it is stopped."""
    short = SHORT | {"iterations": 7, "evaluate_every": 1}
    config = small_run(root, tmp_path / "run", method="jumbot", **short)
    for step in range(1, 7):
        stop(config, step)
    result = train(config)
    whole = train(dataclasses.replace(config, output=tmp_path / "whole"))
    assert dataclasses.replace(result, seconds=0.0, output=config.output) == dataclasses.replace(
        whole, seconds=0.0, output=config.output
    )
    one, other = (each / "metrics.jsonl" for each in (tmp_path / "run", tmp_path / "whole"))
    assert one.read_bytes() == other.read_bytes()


def test_a_second_ctrl_c_is_obeyed_at_once(root, tmp_path):
    config = small_run(root, tmp_path / "run", method="source-only", **SHORT)
    with pytest.raises(KeyboardInterrupt) as interruption:
        train(config, progress=stop_at(10, times=2))
    assert not isinstance(interruption.value, Interrupted)
    assert not (tmp_path / "run" / "checkpoints").exists()
    train(config)
    assert (tmp_path / "run" / "result.json").exists()


def test_a_second_sigterm_changes_nothing(root, tmp_path):
    """As a pool of processes does when one of them has ended."""
    config = small_run(root, tmp_path / "run", method="source-only", **SHORT)
    stop(config, 10, signal.SIGTERM, times=2)


def test_a_signal_at_the_last_step_comes_too_late(root, tmp_path):
    config = small_run(root, tmp_path / "run", method="source-only", **SHORT)
    assert train(config, progress=stop_at(STEPS)).steps == STEPS


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_images_are_read(root, tmp_path, number):
    """There is no step to wait for; a run that has begun is as it was."""
    many = save_patterns(tmp_path / "many.npz", 400)
    config = small_run(many, tmp_path / "run", method="source-only", **SHORT)
    loading = []

    def report(now: Progress) -> None:
        loading.append(now.loading)
        if now.loading == "images of clear: 100 of 400":
            signal.raise_signal(number)

    def interrupted():
        with pytest.raises(KeyboardInterrupt, match="stopped while loading; the same run goes on") as interruption:
            train(config, progress=report)
        assert not isinstance(interruption.value, Interrupted)
        assert loading.pop() == "images of clear: 100 of 400"

    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    interrupted()
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert not config.output.exists()
    stop(config, 10)
    before = contents(config.output)
    interrupted()
    assert contents(config.output) == before


def test_bad_images_are_counted_once(tmp_path):
    """Of a stream they turn up one after the other, before a stop and after it."""
    save_folders(tmp_path / "data", "ab", clear=12, faint=4, contrast=0.5, cut=(6, 7, 10, 11))  # of the source only
    config = configure(
        dataset="folders",
        **{"root": tmp_path / "data", "source": "clear", "target": "faint", "output": tmp_path / "whole"},
        **{"method": "source-only", "network": "convnet", "bottleneck": 8, "resize": 16, "crop": 16, "device": "cpu"},
        **{"storage": "stream", "workers": 0, "on_bad_image": "skip", "iterations": 6, "batch": 2, "evaluate_every": 1},
    )
    assert train(config).bad_images == 4
    parts = dataclasses.replace(config, output=tmp_path / "parts")
    for step in (2, 4):
        stop(parts, step)
    assert train(parts).bad_images == 4
    # They are part of the dataset all the same, wherever its images are kept and whenever they are found.
    moved = dataclasses.replace(config, output=tmp_path / "moved")
    stop(moved, 2)
    kept = dataclasses.replace(moved, storage="device")
    assert train(kept).bad_images == 4
    assert evaluate(kept.output).accuracy == train(kept).accuracy


def test_a_damaged_checkpoint_is_mentioned(root, tmp_path):
    """The one before it is taken, the user is told, and the result is the same."""
    config = small_run(root, tmp_path / "run", method="source-only", **SHORT | {"checkpoint_every": 8})
    stop(config, 20)
    newest = tmp_path / "run" / "checkpoints" / "step-00000020.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1] + b"?")
    reports: list[Progress] = []
    train(config, progress=reports.append)
    notes = [now.note for now in reports if now.note]
    assert len(notes) == 1
    assert notes[0] == "goes on from step 16: newer checkpoints are damaged (step 20: damaged tensors)"
    train(dataclasses.replace(config, output=tmp_path / "whole"))
    assert state(config.output) == state(tmp_path / "whole")


def test_moved_weights_do_not_matter_but_other_weights_do(root, tmp_path):
    from safetensors.torch import save_file

    from adaptive_ot.deep.networks import build_network

    def save(path, seed):
        save_file(build_network("convnet", 4, bottleneck=16, seed=seed).backbone.state_dict(), path)
        return str(path)

    first = save(tmp_path / "first.safetensors", 5)
    config = small_run(root, tmp_path / "run", method="source-only", weights=first, **SHORT)
    stop(config, 10)
    other = save(tmp_path / "other.safetensors", 6)
    with pytest.raises(InvalidInput, match="data weights"):
        train(dataclasses.replace(config, weights=other))
    with pytest.raises(InvalidInput, match="data weights"):
        train(dataclasses.replace(config, weights=None))
    moved = tmp_path / "moved.safetensors"
    (tmp_path / "first.safetensors").rename(moved)
    with pytest.raises(InvalidInput, match="weights"):
        train(config)
    train(dataclasses.replace(config, weights=str(moved)))
    whole = dataclasses.replace(config, weights=str(moved), output=tmp_path / "whole")
    train(whole)
    assert state(config.output) == state(whole.output)


def test_training_in_another_thread_than_the_main_one(root, tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    config = small_run(root, tmp_path / "run", method="source-only", **SHORT)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(train, config).result().steps == STEPS


def test_a_run_keeps_the_number_of_threads_it_began_with(root, tmp_path, monkeypatch):
    """With another one, sums would be rounded differently."""
    seen = set()

    def threads(now: Progress) -> None:
        if now.loading is None:
            seen.add(torch.get_num_threads())

    def used(config, available):
        torch.set_num_threads(available)
        seen.clear()
        train(config, progress=threads)
        assert torch.get_num_threads() == available
        torch.set_num_threads(1)
        return seen

    def begun(name, available):
        torch.set_num_threads(available)
        config = small_run(root, tmp_path / name, method="source-only", **SHORT)
        stop(config, 10)
        return config

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert used(small_run(root, tmp_path / "new", method="source-only", **SHORT), 3) == {1}
    monkeypatch.setenv("OMP_NUM_THREADS", "2")  # then the user has chosen
    assert used(begun("begun", 2), 3) == {2}
    old = begun("old", 2)
    run = read_run(old.output)
    assert run.checkpoint
    before = run.checkpoint._replace(notes={"seconds": 1.0, "bad_images": []})  # as version 0.1 wrote it
    save_checkpoint(old.output / "checkpoints", before, decisive(run.record["config"]) | {"data": run.record["data"]})
    assert used(old, 3) == {3}


def test_images_that_are_enlarged_much_are_mentioned(tmp_path):
    """To a network that starts from scratch, it costs time alone."""
    save_folders(tmp_path, ("a", "b"), clear=4, faint=4, contrast=0.9)
    task = {"dataset": "folders", "root": tmp_path, "source": "clear", "target": "faint", "device": "cpu"}
    task |= {"network": "convnet", "method": "source-only", "iterations": 1, "batch": 2}

    def notes(**size):
        reports: list[Progress] = []
        train(configure(**task, **size, output=tmp_path / f"run {size}"), progress=reports.append)
        return [now.note for now in reports if now.note]

    (note,) = notes(resize=56, crop=48)
    assert note.startswith("images of 16 x 16 pixels are enlarged to 48 x 48")
    assert notes(resize=56, crop=47) == []
    cut = tmp_path / "clear" / "a" / "00.png"
    cut.write_bytes(cut.read_bytes()[:-100])
    assert len(notes(resize=64, crop=64, on_bad_image="skip")) == 1
