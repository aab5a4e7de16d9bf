"""Shared by readers and writers of files: checks, atomic writes, and one clear line when a file is wrong."""

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

# Memory for the arrays of a compressed file, in GiB, and the environment variable that allows more.
MOST_UNPACKED = 4.0
ALLOWANCE = "ADAPTIVE_OT_MAX_UNPACKED_GIB"

# Files of a directory that an error message names.
NAMED = 3

# A spreadsheet runs text that begins with one of these as a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def check_input(name: str, path: Path, suffixes: tuple[str, ...]) -> None:
    """Check that `path` is a non-empty file of a known kind."""
    with accessible(name, "must be a file that can be read"):
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

    A compressed file of a few megabytes can ask for any amount of memory. So unpacked arrays may take 4 GiB in all, or
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
    """Refuse a file that asks for more memory than is allowed, and than its size on disk."""
    most = most_unpacked()
    if unpacked > max(most * 2**30, file.seek(0, os.SEEK_END)):
        rule = f"may take {most:.3g} GiB of memory, or as much as on disk"
        given = f"{unpacked / 2**30:.3g} GiB in a file of {file.tell() / 2**20:.3g} MiB"
        enough = math.ceil(unpacked / 2**30)
        remedy = f"If you trust the file, set {ALLOWANCE}={enough}, or save it uncompressed, with numpy.savez."
        raise InvalidInput(f"file '{file.name}'", rule, given, remedy)


def check_memory(name: str, size: int) -> None:
    """Refuse an array that cannot fit into memory; reading it might end the process without a word."""
    if hasattr(os, "sysconf"):
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if size > memory > 0:
            rule = f"must fit into memory, {memory / 2**30:.3g} GiB here"
            remedy = "Give points instead of a cost matrix, fewer points, or use a machine with more memory."
            raise InvalidInput(name, rule, f"{size / 2**30:.3g} GiB", remedy)


def most_unpacked() -> float:
    """The memory that compressed arrays may take, in GiB."""
    given = os.environ.get(ALLOWANCE, "")
    try:
        allowed = float(given or MOST_UNPACKED)
    except ValueError:
        allowed = math.nan
    if not allowed > 0:
        raise InvalidInput(ALLOWANCE, "must be a number of GiB above 0", repr(given), f"Set it to {MOST_UNPACKED:g}.")
    return allowed


def check_header(content: IO[bytes], size: int) -> None:
    """Refuse an array that claims to be larger than its file of this size."""
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
    """Make a directory to write to, unless it exists."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"{argument} '{path}'", "must be a directory", error.strerror, "Choose another.") from None


def check_place_for_file(name: str, path: Path) -> None:
    """Refuse a path that cannot become a file."""
    with accessible(name, "must be a place to write to"):
        if path.is_dir():
            raise InvalidInput(name, "must be a file", "a directory", "Add a file name.")
        if not path.parent.is_dir():
            raise InvalidInput(name, "must lie in a directory that exists", f"'{path.parent}'", "Create it first.")


def write_atomically(argument: str, path: Path, write: Callable[[IO[bytes]], object], like: Path | None = None) -> None:
    """Write beside `path`, then rename: whatever happens, `path` holds the whole new file or the whole old one.

    A new file has the permissions of the file `like`, or of any new file; one that replaces another has those of the
    other. A link stays, and the file that it points to is replaced.
    """
    place = Path(os.path.realpath(path))
    temporary = place.with_name(f".{place.name}.{secrets.token_hex(4)}.tmp")  # one of a killed process may lie there
    try:
        with accessible(f"{argument} '{path}'", "must be a place to write to"):
            with open(temporary, "xb") as file:
                with suppress(FileNotFoundError):
                    model = place if like is None or place.exists() else like
                    os.chmod(temporary, stat.S_IMODE(model.stat().st_mode))  # before there is anything to read
                write(file)
                file.flush()
                os.fsync(file.fileno())  # otherwise the new name could outlive a power cut, and its content not
            os.replace(temporary, place)
            _settle(place.parent)
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
    return f"'{cell}" if cell.startswith(FORMULA) and not is_number(cell) else cell


@contextmanager
def trouble(name: str, rule: str) -> Iterator[None]:
    """Report anything that goes wrong while a user's file is parsed: parsers raise anything on unexpected bytes."""
    with accessible(name, rule):
        try:
            yield
        except (AdaptiveOTError, OSError):
            raise
        except Exception as error:
            reason = str(error).rstrip(". ") or type(error).__name__
            raise InvalidInput(name, rule, reason, "Write the file again.") from None


@contextmanager
def accessible(name: str, rule: str) -> Iterator[None]:
    """Report errors of the file system, such as missing permissions or a full disk."""
    try:
        yield
    except OSError as error:
        raise InvalidInput(name, rule, error.strerror or error, "Check the path and its permissions.") from None


def _settle(directory: Path) -> None:
    """Make the names in a directory survive a power cut."""
    with suppress(OSError):  # some systems cannot
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
    """A directory by the files it unexpectedly holds.

    Examples
    --------
    >>> one_with(["a", "b", "c", "d", "e"]), one_with([])
    ('one with a, b, c and 2 more', 'an empty directory')
    """
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return f"one with {', '.join(names[:NAMED])}{more}" if names else "an empty directory"


def is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def check_separator(name: str, cell: str, line: int) -> None:
    """Refuse a cell of a .csv file that is a whole line, with something else than commas between its cells."""
    for character, called in ((";", "semicolons"), ("\t", "tabs"), (" ", "spaces")):
        parts = cell.split(character)
        if len(parts) > 1 and (character != " " or all(map(is_number, parts))):
            remedy = "Put a comma between two cells, and a point before decimals."
            raise InvalidInput(name, "must have commas between its cells", f"{called} in line {line}", remedy)


def suffix_of(path: Path) -> str:
    return repr(path.suffix) if path.suffix else "no suffix"
