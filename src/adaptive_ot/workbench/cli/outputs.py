"""Places for results, checked before the work starts."""

from __future__ import annotations

import math
import os
from pathlib import Path

from adaptive_ot import InvalidInput
from adaptive_ot.workbench.files import accessible, any_of, check_place_for_file, suffix_of
from adaptive_ot.workbench.report import record

# A dense plan may take this many bytes.
DENSE_LIMIT = 2**32


def check_output(
    path: Path,
    suffixes: tuple[str, ...],
    shape: tuple[int, ...] = (),
    inputs: tuple[Path | None, ...] = (),
    option: str = "--output",
) -> None:
    """Refuse a place where a result could not be written later, before the work starts."""
    name = f"{option} '{path}'"
    if path.suffix.lower() not in suffixes:
        raise InvalidInput(name, f"must end in {any_of(suffixes)}", suffix_of(path), "Choose one of them.")
    check_place_for_file(name, path)
    with accessible(name, "must be a place to write to"):
        if not os.access(path.parent, os.W_OK):
            raise InvalidInput(name, "must lie in a directory open to you", f"'{path.parent}'", "Choose another.")
        if path.exists() and any(given and given.exists() and path.samefile(given) for given in inputs):
            raise InvalidInput(name, "must not be one of the inputs", "the same file", "Choose another name.")
    dense = 8 * math.prod(shape)
    if path.suffix.lower() == ".npy" and dense > DENSE_LIMIT:
        rule = f"may take {DENSE_LIMIT / 2**30:g} GiB"
        raise InvalidInput(name, rule, f"{dense / 2**30:.3g} GiB for a dense plan", "Write a sparse .npz or .csv.")


def check_report(folder: Path, inputs: tuple[Path | None, ...]) -> None:
    """Refuse a directory where a report could not be written later, or that holds something else; make nothing."""
    name, rule = f"--report '{folder}'", "must be a directory to write to"
    with accessible(name, rule):
        there = next(place for place in (folder, *folder.absolute().parents) if os.path.lexists(place))
        if not there.is_dir():
            raise InvalidInput(name, rule, f"'{there}', which is not a directory", "Choose another.")
        if not os.access(there, os.W_OK):
            raise InvalidInput(name, "must lie in a directory open to you", f"'{there}'", "Choose another.")
    if folder.is_dir():
        for each in record.FILES:
            check_output(folder / each, (Path(each).suffix,), inputs=inputs, option="--report")
    record.check_place("--report", folder)
