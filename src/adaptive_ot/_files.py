"""What readers and writers of files share: checks, atomic writes, and one clear line when the bytes are wrong."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from adaptive_ot.errors import AdaptiveOTError, InvalidInput


def check_input(name: str, path: Path, suffixes: tuple[str, ...]) -> None:
    """`path` is a file of a known kind with something in it."""
    if path.suffix.lower() not in suffixes:
        raise InvalidInput(name, f"must end in {any_of(suffixes)}", suffix_of(path), "Convert it first.")
    with trouble(name, "must be a file that can be read"):
        if not path.exists():
            raise InvalidInput(name, "must exist", "no such file", "Check the path.")
        if not path.is_file():
            raise InvalidInput(name, "must be a file", "a directory or device", "Check the path.")
        if path.stat().st_size == 0:
            raise InvalidInput(name, "must not be empty", "0 bytes", "Write it again.")


def open_archive(file: IO[bytes]) -> Any:
    """The arrays of an .npz file, none of them a pickle."""
    if not zipfile.is_zipfile(file):
        raise ValueError("not a zip archive")
    file.seek(0)
    return np.load(file, allow_pickle=False)


def make_directory(argument: str, path: Path) -> None:
    """A directory to write to, made if it does not exist."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"{argument} '{path}'", "must be a directory", error.strerror, "Choose another.") from None


def write_atomically(argument: str, path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write beside `path`, then rename: whatever happens, `path` holds all of the new file or all of the old one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with trouble(f"{argument} '{path}'", "must be a place to write to"):
            with open(temporary, "xb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())  # otherwise the new name could outlive a power cut, and its content not
            os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def trouble(name: str, rule: str) -> Iterator[None]:
    """Whatever goes wrong with a file is the file's fault: parsers raise anything on bytes they do not expect."""
    try:
        yield
    except AdaptiveOTError:
        raise
    except OSError as error:
        raise InvalidInput(name, rule, error.strerror or error, "Check the path and its permissions.") from None
    except Exception as error:
        reason = str(error).rstrip(". ") or type(error).__name__
        raise InvalidInput(name, rule, reason, "Write the file again.") from None


def any_of(suffixes: tuple[str, ...]) -> str:
    """
    Examples
    --------
    >>> any_of((".npz", ".csv", ".npy"))
    '.npz, .csv or .npy'
    """
    return " or ".join(filter(None, (", ".join(suffixes[:-1]), suffixes[-1])))


def suffix_of(path: Path) -> str:
    return repr(path.suffix) if path.suffix else "no suffix"
