"""Costs, points and weights from files, plans into files. Nothing here can run code from a file (no pickles)."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np
from scipy import sparse

from adaptive_ot.errors import InvalidInput
from adaptive_ot.path import MassPath
from adaptive_ot.solution import Solution
from adaptive_ot.workbench.files import (
    any_of,
    as_csv,
    check_header,
    check_input,
    check_unpacked,
    open_archive,
    suffix_of,
    trouble,
    write_atomically,
)
from adaptive_ot.workbench.report import record

READABLE = (".npy", ".npz", ".csv")
WRITABLE = (".npz", ".csv", ".npy")

# A dense plan may take this many bytes.
DENSE_LIMIT = 2**32


def read_cost(path: Path) -> np.ndarray | sparse.csr_array:
    """A cost matrix; in an .npz the array "cost", the only array, or what `scipy.sparse.save_npz` wrote."""
    cost = _read("cost", path, key="cost", sparse_too=True)
    if cost.ndim == 3:
        given = f"3 with shape {cost.shape}"
        raise InvalidInput("cost", "must have two dimensions (sources x targets)", given, "Save one problem a file.")
    return cost


def read_points(argument: str, path: Path) -> np.ndarray:
    """Points, one a row; in an .npz the array "x" or the only one."""
    return _read(argument, path, key="x")


def read_weights(argument: str, path: Path) -> np.ndarray:
    """Weights, in a .csv as one row or one column; in an .npz the array "weights" or the only one."""
    weights = _read(argument, path, key="weights")
    return weights.ravel() if path.suffix.lower() == ".csv" and 1 in weights.shape else weights


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
    folder = path.parent
    with trouble(name, "must be a place to write to"):
        if path.is_dir():
            raise InvalidInput(name, "must be a file", "a directory", "Add a file name.")
        if not folder.is_dir():
            raise InvalidInput(name, "must lie in a directory that exists", f"'{folder}'", "Create it first.")
        if not os.access(folder, os.W_OK):
            raise InvalidInput(name, "must lie in a directory open to you", f"'{folder}'", "Choose another.")
        if path.exists() and any(given and given.exists() and path.samefile(given) for given in inputs):
            raise InvalidInput(name, "must not be one of the inputs", "the same file", "Choose another name.")
    dense = 8 * math.prod(shape)
    if path.suffix.lower() == ".npy" and dense > DENSE_LIMIT:
        rule = f"may take {DENSE_LIMIT / 2**30:g} GiB"
        raise InvalidInput(name, rule, f"{dense / 2**30:.3g} GiB for a dense plan", "Write a sparse .npz or .csv.")


def check_report(folder: Path, inputs: tuple[Path | None, ...]) -> None:
    """Refuse a directory where a report could not be written later, or that holds something else; make nothing."""
    name, rule = f"--report '{folder}'", "must be a directory to write to"
    with trouble(name, rule):
        there = next(place for place in (folder, *folder.absolute().parents) if os.path.lexists(place))
        if not there.is_dir():
            raise InvalidInput(name, rule, f"'{there}', which is none", "Choose another.")
        if not os.access(there, os.W_OK):
            raise InvalidInput(name, "must lie in a directory open to you", f"'{there}'", "Choose another.")
    if folder.is_dir():
        for each in record.FILES:
            check_output(folder / each, (Path(each).suffix,), inputs=inputs, option="--report")
    record.check_place("--report", folder)


def write_plan(path: Path, solution: Solution) -> None:
    """The plan as .npz (`scipy.sparse.load_npz` reads it), .csv (source, target, mass; from 0) or .npy (dense)."""
    plan = solution.sparse_plan

    def triples(file: IO[bytes]) -> None:
        pairs = plan.tocoo()
        columns: Any = [*pairs.coords, pairs.data]
        np.savetxt(file, np.column_stack(columns), ["%d", "%d", "%.17g"], ",", header="source,target,mass", comments="")

    writers: dict[str, Callable[[IO[bytes]], None]] = {
        ".npz": lambda file: sparse.save_npz(file, plan),
        ".csv": triples,
        ".npy": lambda file: np.save(file, plan.toarray(), allow_pickle=False),
    }
    write_atomically("--output", path, writers[path.suffix.lower()])


def write_path(path: Path, found: MassPath) -> None:
    """The corners of a mass path as .csv: mass, least cost, and the price of a unit from there on, if it goes on."""
    mass, value, price = ([f"{number:.17g}" for number in side] for side in (found.mass, found.value, found.price))
    content = as_csv(["mass", "value", "price"], zip(mass, value, [*price, ""], strict=True))
    write_atomically("--output", path, lambda file: file.write(content))


def _read(argument: str, path: Path, key: str, sparse_too: bool = False) -> Any:
    name, suffix = f"{argument} file '{path}'", path.suffix.lower()
    check_input(name, path, READABLE)
    with trouble(name, f"must be a valid {suffix} file"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if suffix == ".csv":
            return _read_csv(path)
        with open(path, "rb") as file:
            if suffix == ".npz":
                return _read_npz(name, file, key, sparse_too)
            check_header(file, path.stat().st_size)
            file.seek(0)
            return np.lib.format.read_array(file, allow_pickle=False)


def _read_csv(path: Path) -> np.ndarray:
    with open(path, encoding="utf-8-sig") as file:
        header = not any(_is_number(cell) for cell in file.readline().split(","))
        if not header:
            file.seek(0)
        numbers = np.loadtxt(file, delimiter=",", comments=None, quotechar='"', ndmin=2)
    if numbers.size == 0:
        raise ValueError("no numbers, only a header" if header else "no numbers")
    return numbers


def _read_npz(name: str, file: IO[bytes], key: str, sparse_too: bool) -> Any:
    with open_archive(file) as archive:
        held = archive.files
        if sparse_too and {"format", "shape", "data"} <= set(held):
            return _read_sparse(file)
        if key not in held and len(held) != 1:
            what = ", ".join(map(repr, held[:5])) or "none"
            raise InvalidInput(name, f"must hold one array, or one named '{key}'", what, f"Save it as {key}=...")
        array: Any = archive[key if key in held else held[0]]
        if not isinstance(array, np.ndarray):
            raise ValueError(f"a zip archive without arrays: {held[0]!r}")
        return array


def _read_sparse(file: IO[bytes]) -> sparse.csr_array:
    file.seek(0)
    matrix: Any = sparse.load_npz(file)
    check_unpacked(file, 8 * max(matrix.shape))  # rows may be many even where there is nothing in them
    # SciPy trusts the indices of a file; compiled code would follow them out of bounds.
    if hasattr(matrix, "check_format"):
        matrix.check_format(full_check=True)
    return sparse.csr_array(matrix)


def _is_number(cell: str) -> bool:
    try:
        float(cell.strip().strip('"'))
    except ValueError:
        return False
    return True
