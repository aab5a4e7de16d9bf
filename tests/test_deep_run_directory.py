"""Directories of runs: what was begun goes on as if nothing had happened, and nothing else is ever touched."""

import dataclasses
import errno
import json
import os
from pathlib import Path

import pytest
import torch

import adaptive_ot as aot
from adaptive_ot.deep.checkpoint import Checkpoint
from adaptive_ot.deep.config import Config
from adaptive_ot.deep.run_directory import FREE, METRICS, RESULT, RUN, open_run, read_run
from commands import contents
from patterns import metrics

DATA = {"source": "abc", "target": "def", "counts": (3, 4)}


@pytest.fixture
def config(tmp_path):
    places = {"root": tmp_path / "data", "output": tmp_path / "new" / "run"}
    return Config(dataset="pacs", source="art", target="photo", settings={"beta": 1.5}, **places)


def checkpoint(step):
    return Checkpoint(step, {"weight": torch.full((2,), float(step))}, {"best": step / 10})


def test_a_new_run(config):
    with open_run(config, DATA) as run:
        assert (run.checkpoint, run.result) == (None, None)
        run.append({"step": 0, "losses": {"source": 1.5}})
        assert metrics(config.output) == [{"step": 0, "losses": {"source": 1.5}}]  # at once
    record = json.loads((config.output / RUN).read_text())
    assert record["config"] == config.record()
    assert record["data"] == {"source": "abc", "target": "def", "counts": [3, 4]}
    assert record["environments"][0]["packages"]["torch"] == torch.__version__


def test_a_run_goes_on(config):
    """After the checkpoint of step 4, steps 4 and 5 are taken again; the lines are those of a run without a stop."""
    with open_run(config, DATA) as run:
        for step in range(6):
            run.append({"step": step})
            if step in (1, 3):
                run.save(checkpoint(step + 1))
    with open(config.output / METRICS, "a") as file:
        file.write('{"step": 6, "lo')
    with open_run(config, DATA) as run:
        assert run.checkpoint is not None
        assert (run.checkpoint.step, run.checkpoint.notes) == (4, {"best": 0.4})
        assert torch.equal(run.checkpoint.tensors["weight"], torch.full((2,), 4.0))
        assert run.lines() == [{"step": step} for step in range(4)]
        for step in range(4, 8):
            run.append({"step": step})
        assert run.lines() == metrics(config.output)
        run.finish({"accuracy": 0.5})
    assert metrics(config.output) == [{"step": step} for step in range(8)]
    found = read_run(config.output)
    assert (found.config, found.result) == (config, {"accuracy": 0.5})
    assert found.checkpoint
    assert found.checkpoint.step == 4


NO_LINES = [
    *[
        '{"step": "0"}',
        '{"step": null}',
        '{"step": [1]}',
        '{"step": true}',
        '{"step": 1.5}',
        '{"step": -1}',
        '{"step": {}}',
    ],
    *["[]", "3", '"step"', "null", "{}", "", "{", "\xff", '{"step": NaN}', '{"step": 1e999}', "[" * 9999],
    *['{"step": 1, "loss": "low"}', '{"step": 1, "loss": null}', '{"step": 1, "loss": [1]}', '{"step": 1, "loss": {}}'],
    *['{"step": 1, "loss": true}', '{"step": 1, "loss": NaN}', '{"step": 1, "loss": -Infinity}'],
    *['{"step": 1, "accuracy": {"a": 1}}', '{"step": 1, "per_class": 1}', '{"step": 1, "per_class": {"a": "b"}}'],
    *['{"step": 1, "per_class": {"a": NaN}}', '{"step": 1, "per_class": [1]}'],
]


@pytest.mark.parametrize("writes", [True, False])
@pytest.mark.parametrize("text", NO_LINES, ids=lambda text: text[:30])
def test_what_is_no_line_of_metrics_is_left_out(config, text, writes):
    good = [{"step": 0, "loss": 1.5}, {"step": 1, "accuracy": 1, "per_class": {"a": 0.5}}]
    with open_run(config, DATA) as run:
        run.append(good[0])
        run.save(checkpoint(2))
    with open(config.output / METRICS, "ab") as file:
        file.write(text.encode("latin-1") + b"\n" + json.dumps(good[1]).encode() + b"\n")
    with open_run(config, DATA, writes=writes) as run:
        assert run.lines() == good
    assert not writes or metrics(config.output) == good


def test_a_process_that_shares_a_run_writes_nothing(config):
    with open_run(config, DATA) as run:
        for step in range(3):
            run.append({"step": step})
        run.save(checkpoint(2))
        with open(config.output / METRICS, "a") as file:
            file.write('{"step": 3')
        before = contents(config.output)
        with open_run(config, DATA, writes=False) as other:
            assert other.checkpoint
            assert other.checkpoint.step == 2
            other.append({"step": 2, "again": True})
            other.save(checkpoint(9))
            other.finish({})
            assert other.lines() == [{"step": 0}, {"step": 1}, {"step": 2, "again": True}]
        assert contents(config.output) == before


def test_without_a_checkpoint_it_starts_again(config):
    for _ in range(2):
        with open_run(config, DATA) as run:
            assert run.checkpoint is None
            run.append({"step": 0})
    assert metrics(config.output) == [{"step": 0}]


def test_what_may_change_while_a_run_is_stopped(config):
    others = {
        "root": Path("elsewhere"),
        "device": "cuda:3",
        "workers": 9,
        "storage": "stream",
        "checkpoint_every": 7,
        "weights": "moved.pth",
    }
    assert {*others, "output"} == set(FREE)
    with open_run(config, DATA) as run:
        run.save(checkpoint(1))
    moved = config.output.parent / "moved"
    config.output.rename(moved)
    with open_run(dataclasses.replace(config, output=moved, **others), DATA) as run:
        assert run.checkpoint
    assert len(json.loads((moved / RUN).read_text())["environments"]) == 1


def test_another_environment_is_noted(config, monkeypatch):
    with open_run(config, DATA) as run:
        run.save(checkpoint(1))
    monkeypatch.setattr("adaptive_ot.workbench.environment.version", lambda package: "99")
    with open_run(config, DATA):
        pass
    found = json.loads((config.output / RUN).read_text())["environments"]
    assert [each["packages"]["torch"] for each in found] == [torch.__version__, "99"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": "dann"}, "method 'aot', not 'dann'"),
        ({"seed": 1, "iterations": 9}, "iterations 5000, not 9; seed 0, not 1"),
        ({"settings": {"beta": 2.0, "kappa": 1}}, "settings beta 1.5, not 2.0; no settings kappa (here 1)"),
        ({"target_classes": ("dog",)}, "target_classes without dog"),
        ({"evaluate_every": 10}, "evaluate_every 500, not 10"),
        ({"data": {"source": "abc"}}, "data target 'def' (here none)"),
    ],
)
def test_another_run_is_refused_by_name(config, change, message):
    with open_run(config, DATA) as run:
        run.append({"step": 0})
    before = contents(config.output)
    data = change.pop("data", DATA)
    with (
        pytest.raises(aot.InvalidInput, match="must be new or hold the same run; got one with other settings") as error,
        open_run(dataclasses.replace(config, **change), data),
    ):
        pass
    assert message in str(error.value)
    assert contents(config.output) == before


@pytest.mark.parametrize("writes", [True, False])
def test_checkpoints_of_other_data(config, writes):
    """Copied into the directory, or left beside a run.json that was changed together with the data."""
    with open_run(config, DATA) as run:
        run.save(checkpoint(1))
    record = json.loads((config.output / RUN).read_text())
    other = record["data"] | {"target": "other"}
    (config.output / RUN).write_text(json.dumps(record | {"data": other}))
    message = "must belong to this run; got one of other settings or data at step 1"
    with pytest.raises(aot.InvalidInput, match=message), open_run(config, other, writes=writes):
        pass


def test_before_the_first_step_a_command_can_be_corrected(config):
    with open_run(config, DATA):
        pass
    other = dataclasses.replace(config, on_bad_image="skip")
    with open_run(other, {}):
        pass
    assert read_run(config.output).config == other


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"thesis.tex": b"x"}, "must be new, empty, or hold a run; got one with thesis.tex"),
        (dict.fromkeys("abcde", b"x"), "got one with a, b, c and 2 more."),
        ({METRICS: b"{}"}, "must be new, empty, or hold a run"),
        ({RESULT: b"{}"}, "must be new, empty, or hold a run"),
        ({RUN: b"{"}, "must hold a run.json that can be read"),
        ({RUN: b"[]"}, "must hold a run.json that can be read"),
        ({RUN: b"\xff"}, "must hold a run.json that can be read"),
        ({RUN: b"{}"}, "must hold the run.json of a training run"),
        ({RUN: b'{"config": 1, "data": {}, "environments": []}'}, "must hold the run.json of a training run"),
    ],
)
def test_what_is_not_ours_is_left_alone(config, files, message):
    config.output.mkdir(parents=True)
    for name, content in files.items():
        (config.output / name).write_bytes(content)
    with pytest.raises(aot.InvalidInput, match=message), open_run(config, DATA):
        pass
    assert {path.name: path.read_bytes() for path in config.output.iterdir()} == files


def test_what_a_killed_process_left_is_no_obstacle(config):
    config.output.mkdir(parents=True)
    (config.output / ".run.json.0a1b2c3d.tmp").write_bytes(b"{")
    with open_run(config, DATA):
        pass
    assert sorted(path.name for path in config.output.iterdir()) == [METRICS, RUN]


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_are_none_are_refused(config, number):
    with open_run(config, DATA) as run:
        with pytest.raises(aot.InvalidInput, match=f"must stay finite; got losses source {number} at step 0") as error:
            run.append({"step": 0, "losses": {"source": number, "target": 1.0}})
        assert "target" not in str(error.value)
    assert metrics(config.output) == []


def test_one_process_at_a_time(config):
    pytest.importorskip("fcntl")
    with (
        open_run(config, DATA),
        pytest.raises(aot.InvalidInput, match="must not be in use; got another run that writes to it"),
        open_run(config, DATA),
    ):
        pass
    with open_run(config, DATA):  # which has ended
        pass


def test_a_full_disk(config, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with open_run(config, DATA) as run:
        run.append({"step": 0})
        run.save(checkpoint(1))
        before = contents(config.output)
        monkeypatch.setattr(os, "fsync", full)
        for action in (lambda: run.save(checkpoint(2)), lambda: run.finish({})):
            with pytest.raises(aot.InvalidInput, match="got No space left on device"):
                action()
        monkeypatch.undo()
        assert contents(config.output) == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_metrics_that_do_not_fit(config, monkeypatch):
    with (
        open_run(config, DATA) as run,
        open("/dev/full", "wb", buffering=0) as full,
        monkeypatch.context() as patch,
    ):
        patch.setattr(run._metrics, "_file", full)
        with pytest.raises(aot.InvalidInput, match="must have room for another line; got No space left on device"):
            run.append({"step": 0})


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
def test_reading_numbers_that_are_none(config, number):
    with open_run(config, DATA):
        pass
    text = (config.output / RUN).read_text()
    for written in ('"beta": 1.5', '"seed": 0', '"target": "def"'):
        assert written in text
        (config.output / RUN).write_text(text.replace(written, f"{written.split(':')[0]}: {number}"))
        with pytest.raises(aot.InvalidInput, match=rf"must hold a run\.json that can be read; got the number {number}"):
            read_run(config.output)


def test_reading_a_run_of_another_version(config):
    with open_run(config, DATA):
        pass
    record = json.loads((config.output / RUN).read_text())
    without = {name: value for name, value in record["config"].items() if name not in ("crop", "seed")}
    for other, name in ((record["config"] | {"colour": 1}, "colour"), (without, "crop, seed")):
        (config.output / RUN).write_text(json.dumps(record | {"config": other}))
        rule = rf"must hold a run\.json of this version; got another, which differs in {name}\."
        with pytest.raises(aot.InvalidInput, match=rule):
            read_run(config.output)
    (config.output / RUN).write_text(json.dumps(record | {"config": record["config"] | {"target_classes": 1}}))
    with pytest.raises(aot.InvalidInput, match=r"must hold a run\.json that makes sense; got 1 for target_classes"):
        read_run(config.output)
    with pytest.raises(aot.InvalidInput, match=r"must hold a run\.json that can be read; got No such file"):
        read_run(config.output.parent)
