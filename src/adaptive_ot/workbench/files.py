"""What readers and writers of files share: checks, atomic writes, a lock, and one clear line when bytes are wrong."""

from __future__ import annotations

import csv
import io
import math
import os
import secrets
import stat
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from adaptive_ot.errors import AdaptiveOTError, InvalidInput

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None

# What the arrays of a compressed file may take in memory, in GiB, and the environment variable that allows more.
MOST_UNPACKED = 4.0
ALLOWANCE = "ADAPTIVE_OT_MAX_UNPACKED_GIB"

# Files of a directory that a complaint names.
NAMED = 3

# A spreadsheet takes what begins so for a formula, and runs it.
FORMULA = ("=", "+", "-", "@", "\t", "\r")

_locks: set[int] = set()


def _leave_locks_to_the_parent() -> None:
    """A process that outlives the one it was forked from, even by a second, would keep its locks."""
    while _locks:
        os.close(_locks.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_locks_to_the_parent)


def check_input(name: str, path: Path, suffixes: tuple[str, ...]) -> None:
    """`path` is a file of a known kind with something in it."""
    with trouble(name, "must be a file that can be read"):
        if not path.exists():
            raise InvalidInput(name, "must exist", "no such file", "Check the path.")
        if not path.is_file():
            raise InvalidInput(name, "must be a file", "a directory or device", "Check the path.")
        if path.suffix.lower() not in suffixes:
            raise InvalidInput(name, f"must end in {any_of(suffixes)}", suffix_of(path), "Convert it first.")
        if path.stat().st_size == 0:
            raise InvalidInput(name, "must not be empty", "0 bytes", "Write it again.")


def open_archive(file: IO[bytes]) -> Any:
    """The arrays of an .npz file, none of them a pickle, and none larger than the file says.

    A few megabytes of a compressed file can ask for any amount of memory. So unpacked arrays may take 4 GiB in all, or
    as much as the file itself: uncompressed files may be of any size.
    """
    if not zipfile.is_zipfile(file):
        raise ValueError("not a zip archive")
    with zipfile.ZipFile(file) as archive:
        check_unpacked(file, sum(member.file_size for member in archive.infolist()))
        for member in archive.infolist():
            with archive.open(member) as content:
                check_header(content, member.file_size)
    file.seek(0)
    return np.load(file, allow_pickle=False)


def check_unpacked(file: IO[bytes], unpacked: int) -> None:
    """What a file asks for is no more than is allowed, or than there is on disk."""
    most = most_unpacked()
    if unpacked > max(most * 2**30, file.seek(0, os.SEEK_END)):
        rule = f"may take {most:.3g} GiB of memory, or as much as on disk"
        given = f"{unpacked / 2**30:.3g} GiB in a file of {file.tell() / 2**20:.3g} MiB"
        enough = math.ceil(unpacked / 2**30)
        remedy = f"If you trust the file, set {ALLOWANCE}={enough}, or save it uncompressed, with numpy.savez."
        raise InvalidInput(f"file '{file.name}'", rule, given, remedy)


def most_unpacked() -> float:
    """What compressed arrays may take, in GiB."""
    given = os.environ.get(ALLOWANCE, "")
    try:
        allowed = float(given or MOST_UNPACKED)
    except ValueError:
        allowed = math.nan
    if not allowed > 0:
        raise InvalidInput(ALLOWANCE, "must be a number of GiB above 0", repr(given), f"Set it to {MOST_UNPACKED:g}.")
    return allowed


def check_header(content: IO[bytes], size: int) -> None:
    """An array in a file of this size does not claim to be larger, if it is an array at all."""
    try:
        version = np.lib.format.read_magic(content)
    except ValueError:
        return
    if version > (2, 0):
        raise ValueError("an array whose fields have names")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(content)
    if math.prod(shape) * dtype.itemsize > size and not dtype.hasobject:
        raise ValueError(f"an array of {math.prod(shape):,} numbers in {size:,} bytes")


def make_directory(argument: str, path: Path) -> None:
    """A directory to write to, made if it does not exist."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"{argument} '{path}'", "must be a directory", error.strerror, "Choose another.") from None


def write_atomically(argument: str, path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write beside `path`, then rename: whatever happens, `path` holds all of the new file or all of the old one.

    A new file has the permissions of any new file, one that replaces another has those of the other.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")  # one of a killed process may lie there
    try:
        with trouble(f"{argument} '{path}'", "must be a place to write to"):
            with open(temporary, "xb") as file:
                with suppress(FileNotFoundError):
                    os.chmod(temporary, stat.S_IMODE(path.stat().st_mode))  # before there is anything to read
                write(file)
                file.flush()
                os.fsync(file.fileno())  # otherwise the new name could outlive a power cut, and its content not
            os.replace(temporary, path)
            _settle(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def as_csv(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    r"""A table for .csv files that is safe to open in a spreadsheet: text that would run there gets an apostrophe.

    Examples
    --------
    >>> as_csv(["label", "score"], [["dog", -0.5], ["-1.5", 2], ["=HYPERLINK(1)", 3]])
    b"label,score\ndog,-0.5\n-1.5,2\n'=HYPERLINK(1),3\n"
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_harmless(str(cell)) for cell in row] for row in rows)
    return text.getvalue().encode("utf-8", "surrogateescape")  # names of files may be any bytes


def _harmless(cell: str) -> str:
    if not cell.startswith(FORMULA):
        return cell
    with suppress(ValueError):
        float(cell)
        return cell
    return f"'{cell}"


@contextmanager
def alone_in(directory: Path) -> Iterator[None]:
    """No other run writes to the directory meanwhile. The lock goes with the process, whatever ends it."""
    if not fcntl:
        yield
        return
    make_directory("output", directory)
    with trouble(f"output '{directory}'", "must be a directory to write to"):
        descriptor = os.open(directory, os.O_RDONLY)  # itself: files in it are replaced
    _locks.add(descriptor)
    try:
        with suppress(OSError):  # some file systems have no locks
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                rule, remedy = "must not be in use", "Wait until it has ended, or choose another directory."
                raise InvalidInput(f"output '{directory}'", rule, "another run that writes to it", remedy) from None
        yield
    finally:
        if descriptor in _locks:
            _locks.remove(descriptor)
            os.close(descriptor)


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


def _settle(directory: Path) -> None:
    """Let a power cut not bring back the names that were in a directory before."""
    with suppress(OSError):  # some systems know no such thing
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def any_of(suffixes: tuple[str, ...]) -> str:
    """
    Examples
    --------
    >>> any_of((".npz", ".csv", ".npy"))
    '.npz, .csv or .npy'
    """
    return " or ".join(filter(None, (", ".join(suffixes[:-1]), suffixes[-1])))


def one_with(names: Sequence[str]) -> str:
    """What a directory that was not expected holds.

    Examples
    --------
    >>> one_with(["a", "b", "c", "d", "e"]), one_with([])
    ('one with a, b, c and 2 more', 'an empty directory')
    """
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return f"one with {', '.join(names[:NAMED])}{more}" if names else "an empty directory"


def suffix_of(path: Path) -> str:
    return repr(path.suffix) if path.suffix else "no suffix"
