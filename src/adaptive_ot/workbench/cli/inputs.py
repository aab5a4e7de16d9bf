"""The files of a problem: costs, points and weights. Nothing here can run code from a file (no pickles)."""

from __future__ import annotations

import csv
import warnings
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, Any, NamedTuple

import numpy as np
from cyclopts import Parameter
from scipy import sparse

from adaptive_ot import DistanceCost, InvalidInput
from adaptive_ot import _validation as check
from adaptive_ot.workbench.cli.options import named
from adaptive_ot.workbench.feature_files import LABEL_COLUMNS
from adaptive_ot.workbench.files import (
    check_header,
    check_input,
    check_memory,
    check_separator,
    check_unpacked,
    is_number,
    open_archive,
    trouble,
)

READABLE = (".npy", ".npz", ".csv")


class Table(NamedTuple):
    """The numbers of a file, and the names of its columns where a .csv file has them."""

    numbers: Any
    columns: tuple[str, ...] | None = None


class NamedCost(NamedTuple):
    """A cost, and the names of the coordinates of its sources and targets where these are points with names."""

    cost: Any
    source_columns: tuple[str, ...] | None = None
    target_columns: tuple[str, ...] | None = None


_COST = "Cost matrix, sources x targets, of any sign; or the source points, one a row."
_TARGETS = "Target points, one a row; then the first file holds the source points."
Cost = Annotated[Path, Parameter(help=_COST)]
Targets = Annotated[Path | None, Parameter(help=_TARGETS)]


class Share(NamedTuple):
    """Which rows of a file a process reads: it is number `number` of so many."""

    number: int
    of: int

    def part(self, rows: Any) -> Any:
        """These rows of an array."""
        if self == WHOLE or not rows.ndim:
            return rows
        n = len(rows)
        return rows[n * self.number // self.of : n * (self.number + 1) // self.of]


WHOLE = Share(0, 1)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ProblemOptions:
    """Options of a problem, whose cost comes from one file or two point files.

    Parameters
    ----------
    reach
        With two point files: the distance beyond which a match no longer pays off. The cost is |x - z|^2 - reach^2.
        If omitted, "solve" estimates it and says so; the prices of "path" are then squared distances.
    source_weights
        A weight for every source; by default 1/n each.
    target_weights
        A weight for every target; by default 1/m each.
    """

    reach: float | None = None
    source_weights: Path | None = None
    target_weights: Path | None = None

    @property
    def weight_files(self) -> dict[str, Path]:
        files = {"source_weights": self.source_weights, "target_weights": self.target_weights}
        return {name: path for name, path in files.items() if path}

    def files(self, cost: Path, targets: Path | None) -> tuple[Path | None, ...]:
        """All files of the problem, none of which may be overwritten."""
        return cost, targets, *self.weight_files.values()

    def read_cost(
        self, cost: Path, targets: Path | None, default_reach: float | None = None, share: Share = WHOLE
    ) -> NamedCost:
        """The cost matrix, or the cost of two point clouds with the names of their coordinates.

        Of the sources, only the share that a process has.
        """
        if targets is None:
            if share != WHOLE:
                given, remedy = f"{share.of} and a cost matrix", "Start it without torchrun, or give two point files."
                raise InvalidInput("the number of processes", "must be 1 for a cost matrix", given, remedy)
            if self.reach is not None:
                remedy = "Give the target points too, or omit --reach."
                raise InvalidInput("--reach", "goes with two point files", "one file", remedy)
            return NamedCost(read_cost(cost))
        reach = default_reach if self.reach is None else self.reach
        if reach is None and share != WHOLE:
            remedy = (
                "Give the distance beyond which a match no longer pays off (a process sees only its own sources), "
                "or run it once without torchrun to have it estimated."
            )
            raise InvalidInput("--reach", "is needed if several processes solve a problem", "none", remedy)
        x = read_points("x", cost, share)
        z = _in_the_order_of(x.columns, read_points("z", targets))
        return NamedCost(DistanceCost(x.numbers, z.numbers, reach), x.columns, z.columns)

    def read_weights(self, share: Share = WHOLE) -> dict[str, np.ndarray]:
        """The weights of the sides that have a file, with the share of the sources that a process has."""
        shares = {"source_weights": share, "target_weights": WHOLE}
        return {name: _read_weights(_option(name), path, shares[name]) for name, path in self.weight_files.items()}

    def named(self, cost: Path) -> AbstractContextManager[None]:
        """Let error messages about arrays name the options and files they came from."""
        files = {name: f"{_option(name)} file '{path}'" for name, path in self.weight_files.items()}
        return named("mass", "tau", "rho", cost=f"cost file '{cost}'", **files)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def read_cost(path: Path) -> np.ndarray | sparse.csr_array:
    """A cost matrix; in an .npz the array "cost", the only array, or what `scipy.sparse.save_npz` wrote."""
    cost = _read("cost", path, key="cost", sparse_too=True).numbers
    if cost.ndim == 3:
        given = f"3 with shape {cost.shape}"
        raise InvalidInput("cost", "must have two dimensions (sources x targets)", given, "Save one problem a file.")
    return cost


def read_points(argument: str, path: Path, share: Share = WHOLE) -> Table:
    """Points, one a row; in an .npz the array "x" or the only one. A share of an .npy file is read alone.

    In a .csv file, a column of labels is refused; y beside x is a coordinate.
    """
    points = _read(argument, path, key="x", mapped=share != WHOLE)
    columns = points.columns or ()
    for column in LABEL_COLUMNS:
        if column in columns and not (column == "y" and "x" in columns):
            remedy = "Remove it, or rename it if it is a coordinate; adaptive-ot adapt reads labels."
            raise InvalidInput(f"{argument} file '{path}'", "must hold coordinates", f"a column {column!r}", remedy)
    return points._replace(numbers=share.part(points.numbers))


def _in_the_order_of(columns: tuple[str, ...] | None, points: Table) -> Table:
    """The points with their coordinates in this order, if these have the same names."""
    if columns is None or points.columns is None or sorted(columns) != sorted(points.columns):
        return points
    if len({*columns}) < len(columns):
        return points
    order = [points.columns.index(column) for column in columns]
    return Table(np.take(points.numbers, order, axis=1), columns)


def _read_weights(argument: str, path: Path, share: Share) -> np.ndarray:
    """Weights, in a .csv as one row or one column; in an .npz the array "weights" or the only one."""
    weights = _read(argument, path, key="weights").numbers
    return share.part(weights.ravel() if path.suffix.lower() == ".csv" and 1 in weights.shape else weights)


def _read(argument: str, path: Path, key: str, sparse_too: bool = False, mapped: bool = False) -> Table:
    name, suffix = f"{argument} file '{path}'", path.suffix.lower()
    check_input(name, path, READABLE)
    with trouble(name, f"must be a valid {suffix} file"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if suffix == ".csv":
            return _read_csv(name, path)
        with open(path, "rb") as file:
            if suffix == ".npz":
                return Table(_read_npz(name, file, key, sparse_too))
            size = path.stat().st_size
            check_header(file, size)
            if not mapped:
                check_memory(name, size)
            file.seek(0)
            if mapped:
                return Table(np.lib.format.open_memmap(path, mode="r"))
            return Table(np.lib.format.read_array(file, allow_pickle=False))


def _read_csv(name: str, path: Path) -> Table:
    with open(path, encoding="utf-8-sig") as file:
        names = [cell.strip() for cell in next(csv.reader([file.readline()]), [])]
        header = not any(map(is_number, names))
        if not header:
            file.seek(0)
        try:
            numbers = np.loadtxt(file, delimiter=",", comments=None, quotechar='"', ndmin=2)
        except ValueError:
            file.seek(0)
            _blame_a_cell(name, file, names if header else None)
            raise
    if numbers.size == 0:
        raise ValueError("no numbers, only a header" if header else "no numbers")
    named = header and all(names) and len(names) == numbers.shape[1]
    return Table(numbers, tuple(names) if named else None)


def _blame_a_cell(name: str, file: IO[str], names: list[str] | None) -> None:
    """Refuse the first cell that is no number, if there is one."""
    if names is not None and len(names) == 1:
        check_separator(name, names[0], 1)  # before line 2 is blamed
    rows = csv.reader(file)
    for row in rows:
        if names is not None and rows.line_num == 1:
            continue
        for k, cell in enumerate(map(str.strip, row)):
            if not is_number(cell):
                check_separator(name, cell, rows.line_num)
                column = f"'{names[k]}'" if names and k < len(names) and names[k] else k + 1
                given = f"{check.describe(cell) if cell else 'nothing'} in line {rows.line_num}, column {column}"
                remedy = "Fill it in, or remove the column: names of rows and labels are not read here."
                raise InvalidInput(name, "must hold numbers only", given, remedy)


def _read_npz(name: str, file: IO[bytes], key: str, sparse_too: bool) -> Any:
    with open_archive(file) as archive:
        held = archive.files
        if sparse_too and {"format", "shape", "data"} <= set(held):
            return _read_sparse(file)
        if key not in held and len(held) != 1:
            names = ", ".join(map(repr, held[:5])) or "none"
            raise InvalidInput(name, f"must hold one array, or one named '{key}'", names, f"Save it as {key}=...")
        array: Any = archive[key if key in held else held[0]]
        if not isinstance(array, np.ndarray):
            raise ValueError(f"a zip archive without arrays: {held[0]!r}")
        return array


def _read_sparse(file: IO[bytes]) -> sparse.csr_array:
    file.seek(0)
    matrix: Any = sparse.load_npz(file)
    check_unpacked(file, 8 * max(matrix.shape))  # empty rows take memory, too
    # SciPy trusts the indices of a file; compiled code would follow them out of bounds.
    if hasattr(matrix, "check_format"):
        matrix.check_format(full_check=True)
    return sparse.csr_array(matrix)
