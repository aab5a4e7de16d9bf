"""How this project compiles: cached, without the GIL, with C semantics for division."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Timer
from typing import Any

import numba
from numba import float64
from numba.core import event
from numba.extending import intrinsic

# Compiling for longer than this, in all, is announced.
SILENT_SECONDS = 2.0

# When the files that may hold kernels were last changed.
_SOURCES = tuple(
    (path.name, path.stat().st_mtime_ns)
    for pattern in ("_*.py", "exact/*.py", "entropic/*.py")
    for path in sorted(Path(__file__).parent.glob(pattern))
)

_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}


class Announcement(event.Listener):
    """One message in the log of a process, while its first long compilation is under way."""

    def __init__(self) -> None:
        self.dispatcher: Any = None  # the kernel that is being compiled: the outermost, since kernels call others
        self.started, self.seconds, self.timer = 0.0, 0.0, Timer(0.0, self.announce)

    def on_start(self, event: Any) -> None:
        dispatcher = event.data["dispatcher"]
        if self.dispatcher is None and dispatcher.py_func.__module__.startswith(__package__ or ""):
            self.dispatcher, self.started = dispatcher, time.perf_counter()
            self.timer = Timer(max(0.0, SILENT_SECONDS - self.seconds), self.announce)
            self.timer.daemon = True
            self.timer.start()

    def on_end(self, event: Any) -> None:
        if event.data["dispatcher"] is self.dispatcher:
            self.timer.cancel()
            self.dispatcher, self.seconds = None, self.seconds + time.perf_counter() - self.started

    def announce(self) -> None:
        event.unregister("numba:compile", self)
        logging.getLogger("adaptive_ot").warning(
            "Compiling kernels for their first use. The machine code is kept on disk; later runs start at once."
        )


event.register("numba:compile", Announcement())


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


def has_machine_code(compiled: Any) -> bool:
    """Whether a kernel was compiled for this machine before, by this process or, according to its cache, another."""
    if compiled.signatures:
        return True
    with suppress(AttributeError, OSError):
        kept = compiled._cache._cache_file._load_index()
        return any(key[1] == compiled.targetctx.codegen().magic_tuple() for key in kept)
    return False


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
