"""Checkpoints that survive crashes, full disks and flipped bits: tensors, and a manifest that proves them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load, save

from adaptive_ot.errors import InvalidInput
from adaptive_ot.workbench.files import accessible, make_directory, write_atomically

KEPT = 2

# Files of a checkpoint, and their leftovers of a killed process.
OURS = re.compile(r"\.?step-[0-9]{8,}\.(json|safetensors)(\.[0-9a-f]+\.tmp)?")


class Checkpoint(NamedTuple):
    """A run after this many steps."""

    step: int
    tensors: dict[str, torch.Tensor]
    notes: dict[str, Any]  # JSON values
    fallback: str | None = None  # why it is not the newest one

    def part(self, prefix: str) -> dict[str, torch.Tensor]:
        """The tensors whose names begin with the prefix, by the rest of their names."""
        return {name.removeprefix(prefix): each for name, each in self.tensors.items() if name.startswith(prefix)}


class Manifest(NamedTuple):
    """Proves that a checkpoint is whole, and to which run it belongs."""

    step: int
    bytes: int
    sha256: str
    run: str
    notes: dict[str, Any]


def save_checkpoint(directory: Path, checkpoint: Checkpoint, run: Mapping[str, Any]) -> None:
    """Write a checkpoint; only when it is complete, all but the one before it are removed.

    Parameters
    ----------
    directory
        Made if it does not exist. No other process may write there meanwhile.
    checkpoint
        Tensors may lie on any device.
    run
        Settings and data of the run: a checkpoint is only loaded into the run it belongs to.
    """
    make_directory("checkpoints", directory)
    data = save({name: _copy(tensor) for name, tensor in checkpoint.tensors.items()})
    proof = hashlib.sha256(data).hexdigest()
    manifest = _signed(Manifest(checkpoint.step, len(data), proof, _digest(run), checkpoint.notes))
    tensors, about = _files(directory, checkpoint.step)
    write_atomically("checkpoint", tensors, lambda file: file.write(data))
    write_atomically("checkpoint", about, lambda file: file.write(manifest))
    earlier = sorted(step for step in _steps(directory) if step < checkpoint.step)
    _remove_all_but(directory, {checkpoint.step, *earlier[-(KEPT - 1) :]})


def load_checkpoint(directory: Path, run: Mapping[str, Any]) -> Checkpoint | None:
    """The newest checkpoint that is whole, with tensors on the CPU; None if none was ever completed.

    If that is not the newest one, `fallback` says why.
    """
    damage = []
    with accessible(f"checkpoints '{directory}'", "must be a directory that can be read"):
        steps = sorted(_steps(directory), reverse=True)
    for step in steps:
        try:
            manifest, tensors = _read(directory, step)
        except (ValueError, OSError) as error:
            damage.append(f"step {step}: {error}")
            continue
        if manifest.run != _digest(run):
            rule, given = "must belong to this run", f"one of other settings or data at step {step}"
            remedy = "Restore run.json, or choose another directory."
            raise InvalidInput(f"checkpoints '{directory}'", rule, given, remedy)
        return Checkpoint(step, tensors, manifest.notes, "; ".join(damage) or None)
    if damage:
        remedy = "Restore them, or remove the directory to start again."
        raise InvalidInput(f"checkpoints '{directory}'", "must hold one that is whole", "; ".join(damage), remedy)
    return None


def _read(directory: Path, step: int) -> tuple[Manifest, dict[str, torch.Tensor]]:
    """Everything in a checkpoint; a ValueError or OSError if a single bit is wrong."""
    tensors, about = _files(directory, step)
    manifest = _verified(about.read_bytes())
    if manifest.step != step:
        raise ValueError("the manifest of another step")
    data = tensors.read_bytes()
    if len(data) != manifest.bytes:
        raise ValueError(f"{len(data)} bytes of tensors instead of {manifest.bytes}")
    if hashlib.sha256(data).hexdigest() != manifest.sha256:
        raise ValueError("damaged tensors")
    return manifest, load(data)


def _signed(manifest: Manifest) -> bytes:
    content = manifest._asdict()
    return json.dumps(content | {"manifest_sha256": _digest(content)}, indent=2, allow_nan=False).encode() + b"\n"


def _verified(content: bytes) -> Manifest:
    """The manifest, if these are the very bytes that were written."""
    try:
        record = json.loads(content)
        del record["manifest_sha256"]
        manifest = Manifest(**record)
        if content == _signed(manifest):  # digest, spelling and spaces
            return manifest
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise ValueError("a damaged manifest")


def _digest(record: Mapping[str, Any]) -> str:
    as_read = json.loads(json.dumps(record, allow_nan=False))  # where keys are words, and pairs are lists
    return hashlib.sha256(json.dumps(as_read, sort_keys=True).encode()).hexdigest()


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """On the CPU, contiguous, and sharing memory with no other tensor, as safetensors requires."""
    return torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor.detach())


def _files(directory: Path, step: int) -> tuple[Path, Path]:
    return directory / f"step-{step:08}.safetensors", directory / f"step-{step:08}.json"


def _steps(directory: Path) -> set[int]:
    """The steps of checkpoints with a manifest: without one, a checkpoint was never completed."""
    names = [path.name for path in directory.iterdir()] if directory.exists() else []
    return {int(match[1]) for name in names if (match := re.fullmatch(r"step-([0-9]{8,})\.json", name))}


def _remove_all_but(directory: Path, steps: set[int]) -> None:
    """Remove older checkpoints, leftovers of a killed process, and damaged files of later steps."""
    kept = {path.name for step in steps for path in _files(directory, step)}
    with accessible(f"checkpoints '{directory}'", "must be a directory to write to"):
        for path in directory.iterdir():
            if path.name not in kept and OURS.fullmatch(path.name):
                path.unlink(missing_ok=True)
