"""Decorators that compile kernels with Numba: cached, without the GIL, with C semantics for division."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Timer, current_thread, main_thread
from typing import Any

import numba
from numba import float64
from numba.core import event
from numba.extending import intrinsic

# Compilation is announced once it has taken this long in total.
SILENT_SECONDS = 2.0

# The files that may contain kernels, with the times of their last change.
_SOURCES = tuple(
    (path.name, path.stat().st_mtime_ns)
    for pattern in ("_*.py", "exact/*.py", "entropic/*.py")
    for path in sorted(Path(__file__).parent.glob(pattern))
)

_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}


class Announcement(event.Listener):
    """Logs one message per process, during its first long compilation."""

    def __init__(self) -> None:
        self.dispatcher: Any = None  # the outermost kernel being compiled, since kernels call others
        self.started, self.seconds, self.timer = 0.0, 0.0, Timer(0.0, self.announce)

    def on_start(self, event: Any) -> None:
        dispatcher = event.data["dispatcher"]
        if self.dispatcher is None and (dispatcher.py_func.__module__ or "").startswith(__package__ or ""):
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


class Uninterrupted(event.Listener):
    """Holds Ctrl-C back while the main thread compiles kernels or loads them from disk.

    LLVM calls Python code meanwhile, and a KeyboardInterrupt raised there is lost. The kernel is then left without
    machine code, and calling it crashes the process.
    """

    def __init__(self) -> None:
        self.depth, self.held_back = 0, False
        self.before: Any = None  # the handler of SIGINT that is put back in the end

    def on_start(self, event: Any) -> None:
        if current_thread() is main_thread():
            handler = signal.getsignal(signal.SIGINT)
            if self.depth == 0 and callable(handler):
                self.before, self.held_back = handler, False
                signal.signal(signal.SIGINT, self.hold_back)  # from here on nothing interrupts these lines
            self.depth += 1

    def on_end(self, event: Any) -> None:
        if current_thread() is main_thread():
            self.depth -= 1
            if self.depth == 0 and self.before is not None:
                before, self.before = self.before, None
                signal.signal(signal.SIGINT, before)
                if self.held_back:
                    signal.raise_signal(signal.SIGINT)

    def hold_back(self, signum: int, frame: Any) -> None:
        self.held_back = True


event.register("numba:compile", Announcement())
event.register("numba:compiler_lock", Uninterrupted())


def kernel(function: Callable[..., Any]) -> Any:
    """Compile `function` on first use and keep the machine code on disk if possible.

    Kernels are serial and release the GIL; parallelism comes from Python threads. Numba's own parallel loops would
    abort the process when two user threads call them at once.

    Python calls only kernels that return numbers and fill the arrays they are given. If a kernel returns arrays or
    named tuples, Numba builds the Python objects with Python code; interrupted by Ctrl-C, this fails with a SystemError
    or crashes. Functions that create arrays both for Python and for kernels use `register_jitable`.
    """
    try:
        compiled: Any = numba.njit(cache=True, **_OPTIONS)(function)
    except RuntimeError:  # no writable place for the cache, as in a read-only container
        return numba.njit(**_OPTIONS)(function)
    # A kernel contains the kernels it calls, but Numba looks for changes only in the file of the caller.
    with suppress(AttributeError):
        compiled._cache._cache_file._source_stamp = _SOURCES
    return compiled


def has_machine_code(compiled: Any) -> bool:
    """Whether a kernel was compiled for this machine before, by this process or (according to the cache) by another."""
    if compiled.signatures:
        return True
    with suppress(AttributeError, OSError):
        kept = compiled._cache._cache_file._load_index()
        return any(key[1] == compiled.targetctx.codegen().magic_tuple() for key in kept)
    return False


def reduced(function: Callable[..., Any]) -> Any:
    """Compile a short loop whose sums may be taken in any order, so that it uses vector instructions."""
    return numba.njit(fastmath={"reassoc", "contract", "nsz"}, **_OPTIONS)(function)


def fused(function: Callable[..., Any]) -> Any:
    """Compile a short loop that may fuse a product and a sum, but must not reorder them."""
    return numba.njit(fastmath={"contract"}, **_OPTIONS)(function)


def inlined(function: Callable[..., Any]) -> Any:
    """Compile `function` into its callers: a tree passed by value costs more than these short bodies."""
    return numba.njit(inline="always", **_OPTIONS)(function)


def _lower(typing_context: Any, a: Any, b: Any) -> Any:
    """The lower of two float64 numbers, not NaN; loops that take a minimum with it become vector instructions."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        flags = ("nnan", "nsz")
        return builder.select(builder.fcmp_ordered("<", *arguments, flags=flags), *arguments, flags=flags)

    return float64(float64, float64), generate


lower: Any = intrinsic(_lower)
