"""How this project compiles: cached, without the GIL, with C semantics for division."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numba
from numba import float64
from numba.extending import intrinsic

# When the files of all kernels, here and in folders below, were last changed.
_SOURCES = tuple((path.name, path.stat().st_mtime_ns) for path in sorted(Path(__file__).parent.rglob("*.py")))

_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}


def kernel(function: Callable[..., Any]) -> Any:
    """Compile `function` on first use and keep the machine code on disk where that is possible.

    Kernels are serial and release the GIL; parallelism comes from Python threads. Numba's own parallel loops would
    abort the process when two user threads call them at once.

    Python calls only kernels that return numbers and fill the arrays they are given: from arrays and named tuples Numba
    makes Python objects with Python code, and where Ctrl-C stops that it fails with a SystemError, or crashes. A
    function that makes the arrays for both worlds is a `register_jitable` one.
    """
    try:
        compiled: Any = numba.njit(cache=True, **_OPTIONS)(function)
    except RuntimeError:  # no writable place for the cache, as in a read-only container
        return numba.njit(**_OPTIONS)(function)
    # A kernel contains those it calls, but Numba would look for changes in the file of the caller only.
    with suppress(AttributeError):
        compiled._cache._cache_file._source_stamp = _SOURCES
    return compiled


def reduced(function: Callable[..., Any]) -> Any:
    """Compile a short loop whose sums may be taken in any order, so that it runs on vector instructions."""
    return numba.njit(fastmath={"reassoc", "contract", "nsz"}, **_OPTIONS)(function)


def fused(function: Callable[..., Any]) -> Any:
    """Compile a short loop that may fuse a product and a sum, but must not reorder them."""
    return numba.njit(fastmath={"contract"}, **_OPTIONS)(function)


def inlined(function: Callable[..., Any]) -> Any:
    """Compile `function` into its callers: a tree passed by value costs more than these short bodies."""
    return numba.njit(inline="always", **_OPTIONS)(function)


def _lower(typing_context: Any, a: Any, b: Any) -> Any:
    """The lower of two float64 that are not NaN; loops that take a minimum with it become vector instructions."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        flags = ("nnan", "nsz")
        return builder.select(builder.fcmp_ordered("<", *arguments, flags=flags), *arguments, flags=flags)

    return float64(float64, float64), generate


lower: Any = intrinsic(_lower)
