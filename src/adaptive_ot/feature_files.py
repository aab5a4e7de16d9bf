"""Features and labels from files. Nothing here can run code from a file (no pickles)."""

from __future__ import annotations

import csv
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import numpy as np

from adaptive_ot._files import check_input, open_archive, trouble
from adaptive_ot._validation import REAL
from adaptive_ot.errors import InvalidInput, MissingDependency

READABLE = (".npz", ".csv", ".parquet", ".safetensors")

LABEL_COLUMNS = ("y", "label")

COLUMNS_NAMED = 8

# What pandas calls the row numbers that it writes into a .parquet file.
ROW_NUMBERS = re.compile(r"__index_level_\d+__")


class Features(NamedTuple):
    """One row of numbers for every sample, and its label where there is one."""

    x: np.ndarray
    y: np.ndarray | None


def read_features(
    path: Path | str,
    labels: Literal["required", "optional", "ignored"] = "required",
    name: str | None = None,
) -> Features:
    r"""Features and labels of a dataset.

    Parameters
    ----------
    path
        An .npz or .safetensors file with the arrays ``x`` (samples x features) and ``y``, or a .csv or .parquet file
        with one column a feature and a column ``y`` or ``label``. A .csv file starts with the names of its columns.
    labels
        Whether there must be labels, may be, or are not looked at.
    name
        What to call the file in complaints.

    Returns
    -------
    Features
        ``x`` in float32 where the file has no more digits, otherwise in float64; ``y`` as integers or text, or None.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "pets.csv"
    ...     _ = path.write_text("size,weight,label\n30,4.5,cat\n60,25,dog\n")
    ...     x, y = read_features(path)
    >>> x
    array([[30. ,  4.5],
           [60. , 25. ]])
    >>> y
    array(['cat', 'dog'], dtype='<U3')
    """
    path = Path(path)
    name, suffix = name or f"feature file '{path}'", path.suffix.lower()
    check_input(name, path, READABLE)
    with trouble(name, f"must be a valid {suffix} file"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x, y = READERS[suffix](name, path, labels)
    x = _numbers(name, x)
    return Features(x, None if y is None else _labels(name, y, len(x)))


def _read_npz(name: str, path: Path, labels: str) -> tuple[Any, Any]:
    with open(path, "rb") as file, open_archive(file) as archive:
        return _named_arrays(name, archive.files, archive.__getitem__, labels)


def _read_safetensors(name: str, path: Path, labels: str) -> tuple[Any, Any]:
    try:
        from safetensors import safe_open
    except ImportError:
        raise MissingDependency("safetensors", "files") from None
    with safe_open(path, framework="numpy") as file:
        return _named_arrays(name, list(file.keys()), file.get_tensor, labels)


def _named_arrays(name: str, held: list[str], read: Callable[[str], Any], labels: str) -> tuple[Any, Any]:
    """The arrays x and y of a file that has names for its arrays."""
    for key in ("x", "y") if labels == "required" else ("x",):
        if key not in held:
            raise InvalidInput(name, f"must hold an array '{key}'", _listed(held), f"Save it as {key}.")
    return read("x"), read("y") if labels != "ignored" and "y" in held else None


def _read_csv(name: str, path: Path, labels: str) -> tuple[Any, Any]:
    with open(path, encoding="utf-8-sig", newline="") as file:
        header = next(csv.reader([file.readline()]), [])
        if all(_is_number(cell) for cell in header):
            remedy = "Name the columns in the first line, that of the labels y or label."
            raise InvalidInput(name, "must start with the names of its columns", _listed(header), remedy)
        feature_columns, label_column = _columns(name, [cell.strip() for cell in header], labels)
        at = file.tell()
        x = _load_columns(file, np.float64, feature_columns)
        if not x.size:
            raise ValueError("no numbers, only a header")
        if label_column is None or labels == "ignored":
            return x, None
        file.seek(at)
        return x, _numbers_if_all_are(_load_columns(file, np.str_, [label_column])[:, 0])


def _load_columns(file: IO[str], dtype: type, columns: list[int]) -> np.ndarray:
    return np.loadtxt(file, dtype, delimiter=",", comments=None, quotechar='"', usecols=columns, ndmin=2)


def _read_parquet(name: str, path: Path, labels: str) -> tuple[Any, Any]:
    try:
        from pyarrow import parquet
    except ImportError:
        raise MissingDependency("pyarrow", "files") from None
    with open(path, "rb") as file:
        table = parquet.read_table(file)
    table = table.select([column for column in table.column_names if not ROW_NUMBERS.fullmatch(column)])
    feature_columns, label_column = _columns(name, table.column_names, labels)
    x = np.column_stack([_parquet_numbers(name, table, at) for at in feature_columns])
    if label_column is None or labels == "ignored":
        return x, None
    return x, np.asarray(table.column(label_column).to_pylist())


def _parquet_numbers(name: str, table: Any, at: int) -> np.ndarray:
    column = table.column(at).to_numpy()
    if column.dtype.kind not in REAL:
        given = f"'{table.column_names[at]}' of type {table.column(at).type}"
        raise InvalidInput(name, "must have columns of real numbers beside the label", given, "Leave it out.")
    return column


def _columns(name: str, header: list[str], labels: str) -> tuple[list[int], int | None]:
    """Where the features are, and where the label is."""
    found = [at for at, column in enumerate(header) if column in LABEL_COLUMNS]
    if len(found) > 1 or (labels == "required" and not found):
        rule = f"must have one column named {' or '.join(LABEL_COLUMNS)}"
        raise InvalidInput(name, rule, _listed(header), "Rename the column of the labels.")
    features = [at for at in range(len(header)) if at not in found]
    if not features:
        raise InvalidInput(name, "must have a column of numbers beside the label", _listed(header), "Add features.")
    return features, found[0] if found else None


def _numbers(name: str, x: Any) -> np.ndarray:
    """Finite features, samples x features, at least one of each."""
    if not isinstance(x, np.ndarray):
        raise InvalidInput(name, "must hold an array 'x' that can be read", "something else", "Write the file again.")
    if x.dtype.kind not in REAL:
        raise InvalidInput(name, "must hold real numbers in 'x'", f"dtype {x.dtype}", "Convert it to float32.")
    if x.ndim != 2 or not x.size:
        rule = "must hold features as samples x features, at least one of each"
        raise InvalidInput(name, rule, f"shape {x.shape}", "Give one row a sample.")
    single = x.dtype.kind == "f" and x.dtype.itemsize <= 4
    with np.errstate(over="ignore"):  # longer numbers become infinite
        x = np.ascontiguousarray(x, np.float32 if single else np.float64)
    finite = np.isfinite(x)
    if not finite.all():
        row, column = (int(k) for k in np.argwhere(~finite)[0])
        given = f"{x[row, column]} at row {row}, column {column}"
        raise InvalidInput(name, "must hold finite numbers", given, "Fill it in or remove it.")
    return x


def _labels(name: str, y: Any, size: int) -> np.ndarray:
    """One label a sample: whole numbers, or text without holes."""
    if not isinstance(y, np.ndarray) or y.ndim != 1 or len(y) != size:
        given = f"shape {y.shape}" if isinstance(y, np.ndarray) else "something else"
        raise InvalidInput(name, f"must hold one label for each of its {size} samples", given, "Complete 'y'.")
    if y.dtype.kind in "SU":
        y = np.char.decode(y, "utf-8", "replace") if y.dtype.kind == "S" else y
        lengths = np.char.str_len(np.char.strip(y))
        if not lengths.all():
            at = int(np.argmin(lengths))
            raise InvalidInput(name, "must have a label for every sample", f"none in row {at}", "Fill it in.")
        return y
    rule = "must hold labels that are whole numbers or text"
    if y.dtype.kind not in REAL:
        raise InvalidInput(name, rule, f"dtype {y.dtype}", "Convert 'y'.")
    broken = ~(y.astype(np.float64) % 1 == 0)
    if broken.any():
        raise InvalidInput(name, rule, f"{y[broken][0]} in row {int(np.argmax(broken))}", "Convert 'y'.")
    return y.astype(np.int64)


def _numbers_if_all_are(cells: np.ndarray) -> np.ndarray:
    return cells.astype(np.float64) if all(_is_number(cell) for cell in cells) else cells


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _listed(names: list[str]) -> str:
    """The first few of many names."""
    shown = [name if len(name) <= 40 else f"{name[:37]}..." for name in names[:COLUMNS_NAMED]]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return ", ".join(map(repr, shown)) + more if shown else "none"


READERS = {
    ".npz": _read_npz,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
    ".safetensors": _read_safetensors,
}
