"""The files of a problem: costs, points and weights. Nothing here can run code from a file (no pickles)."""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, Any

import numpy as np
from cyclopts import Parameter
from scipy import sparse

from adaptive_ot import DistanceCost, InvalidInput
from adaptive_ot.workbench.cli.options import named
from adaptive_ot.workbench.files import (
    check_header,
    check_input,
    check_memory,
    check_unpacked,
    is_number,
    open_archive,
    trouble,
)

READABLE = (".npy", ".npz", ".csv")

_COST = "Cost matrix, sources x targets, of any sign; or the source points, one a row."
_TARGETS = "Target points, one a row; then the first file holds the source points."
Cost = Annotated[Path, Parameter(help=_COST)]
Targets = Annotated[Path | None, Parameter(help=_TARGETS)]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ProblemOptions:
    """Options of a problem, whose cost comes from one file or two point files.

    Parameters
    ----------
    reach
        With two point files: the distance beyond which a match no longer pays off. The cost is |x - z|^2 - reach^2.
        "path" can do without it; its prices are then squared distances.
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

    def read_cost(self, cost: Path, targets: Path | None, default_reach: float | None = None) -> Any:
        """The cost matrix, or the cost of two point clouds."""
        if targets is None:
            if self.reach is not None:
                remedy = "Give the target points too, or omit --reach."
                raise InvalidInput("--reach", "goes with two point files", "one file", remedy)
            return read_cost(cost)
        reach = default_reach if self.reach is None else self.reach
        if reach is None:
            remedy = "Give --reach, the distance beyond which a match no longer pays off."
            raise InvalidInput("--reach", "is needed with two point files", "none", remedy)
        return DistanceCost(read_points("x", cost), read_points("z", targets), reach)

    def read_weights(self) -> dict[str, np.ndarray]:
        """The weights of the sides that have a file."""
        return {name: _read_weights(_option(name), path) for name, path in self.weight_files.items()}

    def named(self, cost: Path) -> AbstractContextManager[None]:
        """Let error messages about arrays name the options and files they came from."""
        files = {name: f"{_option(name)} file '{path}'" for name, path in self.weight_files.items()}
        return named("mass", "tau", "rho", cost=f"cost file '{cost}'", **files)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


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


def _read_weights(argument: str, path: Path) -> np.ndarray:
    """Weights, in a .csv as one row or one column; in an .npz the array "weights" or the only one."""
    weights = _read(argument, path, key="weights")
    return weights.ravel() if path.suffix.lower() == ".csv" and 1 in weights.shape else weights


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
            size = path.stat().st_size
            check_header(file, size)
            check_memory(name, size)
            file.seek(0)
            return np.lib.format.read_array(file, allow_pickle=False)


def _read_csv(path: Path) -> np.ndarray:
    with open(path, encoding="utf-8-sig") as file:
        header = not any(is_number(cell.strip().strip('"')) for cell in file.readline().split(","))
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
