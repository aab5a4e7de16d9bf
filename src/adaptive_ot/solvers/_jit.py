"""How this project compiles: cached, without the GIL, with C semantics for division."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba

_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}


def kernel(function: Callable[..., Any]) -> Any:
    """Compile `function` on first use and keep the machine code on disk where that is possible.

    Kernels are serial and release the GIL; parallelism comes from Python threads. Numba's own parallel loops would
    abort the process when two user threads call them at once.
    """
    try:
        return numba.njit(cache=True, **_OPTIONS)(function)
    except RuntimeError:  # no writable place for the cache, as in a read-only container
        return numba.njit(**_OPTIONS)(function)


def reduced(function: Callable[..., Any]) -> Any:
    """Compile a short loop whose sums may be taken in any order, so that it runs on vector instructions."""
    return numba.njit(fastmath={"reassoc", "contract", "nsz"}, **_OPTIONS)(function)


def contracted(function: Callable[..., Any]) -> Any:
    """Compile a short loop whose roundings must happen in the order written, except within a multiply-add."""
    return numba.njit(fastmath={"contract"}, **_OPTIONS)(function)


def inlined(function: Callable[..., Any]) -> Any:
    """Compile `function` into its callers: a tree passed by value costs more than these short bodies."""
    return numba.njit(inline="always", **_OPTIONS)(function)
