"""Checkpoints: what was saved comes back to the bit, or the one before it, or a clear refusal."""

import errno
import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import adaptive_ot as aot
from adaptive_ot.deep.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from budget import mostly_slow

CONFIG = {"method": "aot", "seed": 3, "settings": {"beta": 1.5}}
KINDS = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool]


def checkpoint(step, value=None):
    weight = torch.full((3, 2), float(step if value is None else value))
    return Checkpoint(step, {"weight": weight, "step": torch.tensor(step)}, {"best_accuracy": 0.5, "best_step": step})


def saved(directory, *steps):
    for step in steps:
        save_checkpoint(directory, checkpoint(step), CONFIG)


def loaded(directory):
    found = load_checkpoint(directory, CONFIG)
    assert found is not None
    return found


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def files(step):
    return [f"step-{step:08}.json", f"step-{step:08}.safetensors"]


def bits(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def same(one, other):
    assert one.dtype == other.dtype
    assert one.shape == other.shape
    assert torch.equal(bits(one), bits(other))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_tensors_come_back_to_the_bit(tmp_path, kind):
    generator = torch.Generator().manual_seed(0)
    tensors = {
        name: torch.randint(-3 if kind.is_signed else 0, 2, shape, generator=generator).to(kind)
        for name, shape in {"a": (4, 3, 2), "b.weight": (1,), "scalar": (), "empty": (0, 3)}.items()
    }
    save_checkpoint(tmp_path, Checkpoint(7, tensors, {"text": "é\n", "numbers": [0.1, 1e300, None], "1": {}}), CONFIG)
    found = loaded(tmp_path)
    assert (found.step, found.fallback) == (7, None)
    assert found.notes == {"text": "é\n", "numbers": [0.1, 1e300, None], "1": {}}
    assert found.tensors.keys() == tensors.keys()
    for name, tensor in tensors.items():
        same(found.tensors[name], tensor)
        found.tensors[name].add_(1) if kind != torch.bool else None  # and can be written to


def test_special_numbers_come_back(tmp_path):
    values = torch.tensor([np.nan, np.inf, -np.inf, -0.0, 1e-45])
    save_checkpoint(tmp_path, Checkpoint(0, {"x": values}, {}), CONFIG)
    same(loaded(tmp_path).tensors["x"], values)


def test_any_layout_is_taken(tmp_path):
    """Other memory formats, views of one memory, parameters that need gradients; nothing of it is changed."""
    images = torch.arange(48.0).reshape(2, 2, 3, 4).to(memory_format=torch.channels_last)
    shared = torch.arange(6.0)
    tensors = {
        "channels_last": images,
        "turned": images[0, 0].T,
        "one": shared,
        "other": shared[2:],
        "expanded": torch.tensor(2.0).expand(3),
        "parameter": torch.nn.Parameter(torch.ones(2)),
    }
    save_checkpoint(tmp_path, Checkpoint(1, tensors, {}), CONFIG)
    found = loaded(tmp_path)
    for name, tensor in tensors.items():
        same(found.tensors[name], tensor.detach())
    assert images.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_tensors_of_a_gpu_come_back_on_the_cpu(tmp_path):
    tensor = torch.arange(5, device="cuda")
    save_checkpoint(tmp_path, Checkpoint(1, {"x": tensor}, {}), CONFIG)
    same(loaded(tmp_path).tensors["x"], tensor.cpu())


def test_the_files_are_what_they_say(tmp_path):
    """Read by others: safetensors, JSON, and a SHA-256 of hashlib."""
    saved(tmp_path, 500)
    about, tensors = (tmp_path / name for name in files(500))
    manifest = json.loads(about.read_text())
    assert manifest["step"] == 500
    assert manifest["bytes"] == tensors.stat().st_size
    assert manifest["sha256"] == hashlib.sha256(tensors.read_bytes()).hexdigest()
    assert manifest["notes"] == {"best_accuracy": 0.5, "best_step": 500}
    assert torch.equal(load_file(tensors)["weight"], torch.full((3, 2), 500.0))


def test_the_newest_and_the_previous_are_kept(tmp_path):
    for step in (10, 20, 30, 40):
        saved(tmp_path, step)
        assert names(tmp_path) == sorted(name for each in (step - 10, step) if each for name in files(each))
    assert loaded(tmp_path).step == 40


def test_nothing_to_load(tmp_path):
    assert load_checkpoint(tmp_path, CONFIG) is None
    assert load_checkpoint(tmp_path / "missing", CONFIG) is None


def test_one_that_was_never_completed_does_not_count(tmp_path):
    saved(tmp_path, 10)
    (tmp_path / files(10)[0]).unlink()  # killed before the manifest was written
    (tmp_path / ".step-00000020.safetensors.0a1b.tmp").write_bytes(b"half")
    (tmp_path / "step-by-step.json").write_text("of somebody else")
    assert load_checkpoint(tmp_path, CONFIG) is None
    saved(tmp_path, 30)
    assert names(tmp_path) == sorted([*files(30), "step-by-step.json"])


def flipped(content, bit):
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.mark.parametrize("flips", mostly_slow([100, 1000], 1))
def test_every_flipped_bit_is_detected(tmp_path, flips):
    saved(tmp_path, 10, 20)
    rng, paths = np.random.default_rng(0), [tmp_path / name for name in files(20)]
    contents = [path.read_bytes() for path in paths]
    sizes = [8 * len(content) for content in contents]
    for _ in range(flips):
        which = int(rng.integers(2))
        paths[which].write_bytes(flipped(contents[which], int(rng.integers(sizes[which]))))
        found = loaded(tmp_path)
        assert found.step == 10
        assert (found.fallback or "").startswith("step 20: ")
        paths[which].write_bytes(contents[which])
    assert loaded(tmp_path).step == 20


@pytest.mark.parametrize("every", mostly_slow([11, 1], 1))
def test_every_bit_of_a_manifest_counts(tmp_path, every):
    """Also those that JSON does not care about: 1e5 is 1E5."""
    save_checkpoint(tmp_path, Checkpoint(1, {}, {"rate": 1e-07, "é": [True]}), CONFIG)
    path = tmp_path / files(1)[0]
    content = path.read_bytes()
    for bit in range(0, 8 * len(content), every):
        path.write_bytes(flipped(content, bit))
        with pytest.raises(aot.InvalidInput, match="a damaged manifest"):
            load_checkpoint(tmp_path, CONFIG)


DAMAGE = {
    "truncated tensors": lambda about, tensors: tensors.write_bytes(tensors.read_bytes()[:-1]),
    "longer tensors": lambda about, tensors: tensors.write_bytes(tensors.read_bytes() + b"\0"),
    "no tensors": lambda about, tensors: tensors.unlink(),
    "a directory": lambda about, tensors: (tensors.unlink(), tensors.mkdir()),
    "empty manifest": lambda about, tensors: about.write_bytes(b""),
    "no object": lambda about, tensors: about.write_bytes(b"[]"),
    "deep": lambda about, tensors: about.write_bytes(b"[" * 100_000),
    "no digest": lambda about, tensors: about.write_bytes(b"{}"),
    "other fields": lambda about, tensors: about.write_bytes(b'{"manifest_sha256": "", "stop": 1}'),
    "binary": lambda about, tensors: about.write_bytes(b"\xff\0\xfe"),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_one_gives_way_to_the_previous(tmp_path, damage):
    saved(tmp_path, 10, 20)
    damage(*(tmp_path / name for name in files(20)))
    found = loaded(tmp_path)
    assert (found.step, found.notes) == (10, checkpoint(10).notes)
    assert (found.fallback or "").startswith("step 20: ")
    damage(*(tmp_path / name for name in files(10)))
    with pytest.raises(aot.InvalidInput, match=r"must hold one that is whole; got step 20: .*; step 10: ") as refusal:
        load_checkpoint(tmp_path, CONFIG)
    assert str(tmp_path) in str(refusal.value)


def test_the_previous_one_under_the_newest_name(tmp_path):
    saved(tmp_path, 10, 20)
    for old, new in zip(files(10), files(20), strict=True):
        (tmp_path / new).write_bytes((tmp_path / old).read_bytes())
    found = loaded(tmp_path)
    assert (found.step, found.fallback) == (10, "step 20: the manifest of another step")


def test_after_a_fallback_the_damaged_one_goes(tmp_path):
    saved(tmp_path, 10, 20)
    (tmp_path / files(20)[1]).write_bytes(b"")
    saved(tmp_path, 15)
    assert names(tmp_path) == sorted(files(10) + files(15))


def test_other_settings_are_refused(tmp_path):
    saved(tmp_path, 10)
    with pytest.raises(aot.InvalidInput, match="must belong to this run; got one of other settings or data at step 10"):
        load_checkpoint(tmp_path, CONFIG | {"seed": 4})
    assert load_checkpoint(tmp_path, dict(reversed(CONFIG.items())))  # their order is no setting


@pytest.mark.parametrize(("call", "moment"), [("fsync", 0), ("fsync", 2), ("replace", 0), ("replace", 1)])
def test_a_failed_write_leaves_the_old_ones(tmp_path, monkeypatch, call, moment):
    """Of the tensors or of the manifest: the checkpoints before are as they were, and the next save works."""
    saved(tmp_path, 10, 20)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    calls, real = [], getattr(os, call)

    def full(*arguments):
        calls.append(arguments)
        if len(calls) == moment + 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*arguments)

    monkeypatch.setattr(os, call, full)
    with pytest.raises(aot.InvalidInput, match="must be a place to write to; got No space left on device"):
        saved(tmp_path, 30)
    monkeypatch.undo()
    assert {path: path.read_bytes() for path in before} == before
    assert not [name for name in names(tmp_path) if name.endswith(".tmp")]
    found = loaded(tmp_path)
    assert (found.step, found.fallback) == (20, None)
    saved(tmp_path, 30)
    assert names(tmp_path) == sorted(files(20) + files(30))


def test_no_place_to_write_to(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(aot.InvalidInput, match="must be a directory"):
        saved(tmp_path / "file", 10)
    with pytest.raises(aot.InvalidInput, match="must be a directory"):
        load_checkpoint(tmp_path / "file", CONFIG)
    Path(tmp_path / "closed").mkdir(mode=0o500)
    if os.access(tmp_path / "closed", os.W_OK):
        pytest.skip("to root no directory is closed")
    with pytest.raises(aot.InvalidInput, match="must be a place to write to; got Permission denied"):
        saved(tmp_path / "closed", 10)
