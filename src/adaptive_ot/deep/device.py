"""Device and precision of a run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from adaptive_ot.deep.config import Config
from adaptive_ot.deep.fields import checked
from adaptive_ot.errors import InvalidInput


def pick_device(name: str) -> torch.device:
    """The device of this name; "auto" is a GPU if there is one, of several processes each its own."""
    if name == "auto":
        if not torch.cuda.is_available():
            return torch.device("cpu")
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK") or torch.cuda.current_device()))
    checked("device", name, str)
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
        torch.autocast(device.type, enabled=False)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidInput("device", "must be one that PyTorch can use", f"'{name}': {reason}", "Try 'cpu'.") from None
    return device


@contextmanager
def computing(device: torch.device, config: Config) -> Iterator[None]:
    """The precision and kernels of a run ("auto": bf16 on GPUs, float32 on CPUs); flags of PyTorch are restored."""
    precision, fixed = config.precision, config.deterministic
    if precision == "auto":
        precision = "bf16" if device.type == "cuda" else "float32"
    short = precision != "float32"
    with (
        torch.backends.cudnn.flags(enabled=True, benchmark=not fixed, deterministic=fixed, allow_tf32=short),
        _products_in_tf32(short),
        torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"),
    ):
        yield


def memory_format(device: torch.device) -> torch.memory_format:
    """Channels last suits tensor cores; on CPUs it costs BatchNorm two digits."""
    return torch.channels_last if device.type == "cuda" else torch.contiguous_format


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """Neither bfloat16 nor tf32: their three digits are too few for differences of features."""
    with _products_in_tf32(False), torch.autocast(device.type, enabled=False):
        yield


@contextmanager
def _products_in_tf32(allowed: bool) -> Iterator[None]:
    matmul = torch.backends.cuda.matmul
    before = matmul.allow_tf32
    matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        matmul.allow_tf32 = before


def default_threads(network: str, device: torch.device) -> int:
    """How many threads PyTorch uses in a new run: one for the small network on a CPU, where more are slower."""
    small = device.type == "cpu" and network == "convnet"
    return 1 if small and "OMP_NUM_THREADS" not in os.environ else torch.get_num_threads()


@contextmanager
def threads_restored() -> Iterator[None]:
    """Leave PyTorch with as many threads as it has now."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


def settle_threads(count: int) -> None:
    """Use this many threads: with another number sums are rounded differently.

    The threads of Numba start now: in the middle of a run they would change the number that PyTorch uses.
    """
    import numba

    numba.get_num_threads()
    torch.set_num_threads(count)
