"""Features and labels from files. Nothing here can run code from a file (no pickles)."""

from __future__ import annotations

import csv
import re
import warnings
from array import array
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from adaptive_ot._validation import REAL
from adaptive_ot.errors import InvalidInput, MissingDependency
from adaptive_ot.workbench.files import check_input, check_separator, is_number, open_archive, trouble

READABLE = (".npz", ".csv", ".parquet", ".safetensors")

LABEL_COLUMNS = ("y", "label")

COLUMNS_NAMED = 8

# The column of row numbers that pandas writes into a .parquet file.
ROW_NUMBERS = re.compile(r"__index_level_\d+__")

# A label that is a number, as programs write it. Others, as 007 and +7, stay text: several could become one number.
NUMBER = re.compile(r"\s*(-?(0|[1-9]\d*)(\.\d*)?(e[-+]?\d+)?|nan)\s*", re.IGNORECASE | re.ASCII)


class Features(NamedTuple):
    """One row of numbers for every sample, its label where there is one, and the names of the columns."""

    x: np.ndarray
    y: np.ndarray | None
    columns: tuple[str, ...] | None = None


class Content(NamedTuple):
    """The raw content of a file, with names for its rows and columns in error messages."""

    x: Any
    y: Any
    label: str = "y"
    columns: tuple[str, ...] | None = None
    lines: list[int] | None = None

    def row(self, at: int) -> str:
        return f"row {at}" if self.lines is None else f"line {self.lines[at]}"

    def column(self, at: int) -> str:
        return f"column {at if self.columns is None else repr(self.columns[at])}"


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
        Whether labels are required, optional (all of them may be missing), or ignored.
    name
        The name of the file in error messages.

    Returns
    -------
    Features
        ``x`` in float32 where the file has no more digits, otherwise in float64; ``y`` as integers or text, or None;
        ``columns`` as named in a .csv or .parquet file, or None.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "pets.csv"
    ...     _ = path.write_text("size,weight,label\n30,4.5,cat\n60,25,dog\n")
    ...     x, y, columns = read_features(path)
    >>> x
    array([[30. ,  4.5],
           [60. , 25. ]])
    >>> y
    array(['cat', 'dog'], dtype='<U3')
    >>> columns
    ('size', 'weight')
    """
    path = Path(path)
    name, suffix = name or f"feature file '{path}'", path.suffix.lower()
    check_input(name, path, READABLE)
    with trouble(name, f"must be a valid {suffix} file"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        content = READERS[suffix](name, path, labels)
    x = _numbers(name, content)
    return Features(x, checked_labels(name, content, len(x), labels), content.columns)


def matched(name: str, features: Features, first: Features, first_name: str) -> Features:
    """`features` with the columns in the order of `first`: by name where both have names, otherwise by position.

    Parameters
    ----------
    name, first_name
        Their names in error messages.
    """
    remedy = "Use the same features for both."
    if features.columns is None or first.columns is None:
        sizes = features.x.shape[1], first.x.shape[1]
        if sizes[0] != sizes[1]:
            raise InvalidInput(name, f"must have as many features as {first_name} ({sizes[1]})", sizes[0], remedy)
        return features
    at = {column: k for k, column in enumerate(features.columns)}
    surplus, missing = sorted(at.keys() - {*first.columns}), sorted({*first.columns} - at.keys())
    if surplus or missing:
        given = f"{_listed(surplus)} instead of {_listed(missing)}"
        raise InvalidInput(name, f"must have the columns of {first_name}", given, remedy)
    x = np.take(features.x, [at[column] for column in first.columns], axis=1)
    return features._replace(x=x, columns=first.columns)


def _read_npz(name: str, path: Path, labels: str) -> Content:
    with open(path, "rb") as file, open_archive(file) as archive:

        def read(key: str) -> Any:
            try:
                return archive[key]
            except ValueError as error:
                if "Object arrays" not in str(error):
                    raise
                way_out = ", or leave 'y' out" if key == "y" and labels == "optional" else ""
                remedy = f"Save it as numbers or text{way_out}."
                raise InvalidInput(name, "must not hold Python objects", f"some in '{key}'", remedy) from None

        return _named_arrays(name, archive.files, read, labels)


def _read_safetensors(name: str, path: Path, labels: str) -> Content:
    try:
        from safetensors import safe_open
    except ImportError:
        raise MissingDependency("safetensors", "files") from None
    with safe_open(path, framework="numpy") as file:
        return _named_arrays(name, list(file.keys()), file.get_tensor, labels)


def _named_arrays(name: str, held: list[str], read: Callable[[str], Any], labels: str) -> Content:
    """The arrays x and y of a file that has names for its arrays."""
    for key in ("x", "y") if labels == "required" else ("x",):
        if key not in held:
            raise InvalidInput(name, f"must hold an array '{key}'", _listed(held), f"Save it as {key}.")
    return Content(read("x"), read("y") if labels != "ignored" and "y" in held else None)


def _read_csv(name: str, path: Path, labels: str) -> Content:
    with open(path, encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)
        header = [cell.strip() for cell in next(reader, [])]
        if len(header) == 1:
            check_separator(name, header[0], 1)
        as_data = sum(map(is_number, header))
        if as_data == len(header) or (as_data and labels == "required" and not {*header} & {*LABEL_COLUMNS}):
            remedy = "Line 1 looks like data: add one before it with names, that of the labels y or label."
            raise InvalidInput(name, "must start with the names of its columns", _listed(header), remedy)
        features, label = _columns(name, header, labels)
        numbers, label_cells, lines = array("d"), [], []
        for row in filter(None, reader):
            if len(row) != len(header):
                rule, given = f"must have {len(header)} cells in every line", f"{len(row)} in line {reader.line_num}"
                raise InvalidInput(name, rule, given, "Write decimals with a point, and quote text with commas.")
            try:
                numbers.extend([float(row[at]) for at in features])
            except ValueError:
                at = next(at for at in features if not is_number(row[at]))
                cell = _listed([row[at]]) if row[at].strip() else "nothing"
                given = f"{cell} in line {reader.line_num}, column '{header[at]}'"
                remedy = "Fill it in, or remove the line or the column."
                raise InvalidInput(name, "must hold numbers beside the label", given, remedy) from None
            lines.append(reader.line_num)
            if label is not None:
                label_cells.append(row[label])
    if not lines:
        raise ValueError("no numbers, only a header")
    x, columns = np.asarray(numbers).reshape(len(lines), -1), tuple(header[at] for at in features)
    if label is None:
        return Content(x, None, columns=columns, lines=lines)
    return Content(x, _numbers_if_all_are(label_cells), header[label], columns, lines)


def _read_parquet(name: str, path: Path, labels: str) -> Content:
    try:
        from pyarrow import parquet
    except ImportError:
        raise MissingDependency("pyarrow", "files") from None
    with open(path, "rb") as file:
        table = parquet.read_table(file)
    index = (table.schema.pandas_metadata or {}).get("index_columns", [])
    table = table.drop_columns(
        [
            column
            for column in table.column_names
            if ROW_NUMBERS.fullmatch(column) or (column in index and column not in LABEL_COLUMNS)
        ]
    )
    features, label = _columns(name, table.column_names, labels)
    x = np.column_stack([_parquet_numbers(name, table, at) for at in features])
    columns = tuple(table.column_names[at] for at in features)
    if label is None:
        return Content(x, None, columns=columns)
    return Content(x, np.asarray(table.column(label).to_pylist()), table.column_names[label], columns)


def _parquet_numbers(name: str, table: Any, at: int) -> np.ndarray:
    column = table.column(at).to_numpy()
    if column.dtype.kind not in REAL:
        given = f"'{table.column_names[at]}' of type {table.column(at).type}"
        raise InvalidInput(name, "must have columns of real numbers beside the label", given, "Leave it out.")
    return column


def _columns(name: str, header: list[str], labels: str) -> tuple[list[int], int | None]:
    """The positions of the features, and that of the label unless there is none or it is ignored."""
    unclear = [column for column, times in Counter(header).items() if times > 1 or not column]
    if unclear:
        remedy = "Name it; row numbers are no feature (pandas: index=False)."
        raise InvalidInput(name, "must have a name of its own for every column", _listed(unclear), remedy)
    found = [at for at, column in enumerate(header) if column in LABEL_COLUMNS]
    if len(found) > 1 or (labels == "required" and not found):
        rule = f"must have one column named {' or '.join(LABEL_COLUMNS)}"
        raise InvalidInput(name, rule, _listed(header), "Rename the column of the labels.")
    features = [at for at in range(len(header)) if at not in found]
    if not features:
        raise InvalidInput(name, "must have a column of numbers beside the label", _listed(header), "Add features.")
    return features, found[0] if found and labels != "ignored" else None


def _numbers(name: str, content: Content) -> np.ndarray:
    """Finite features, samples x features, at least one of each."""
    x = content.x
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
        given = f"{x[row, column]} in {content.row(row)}, {content.column(column)}"
        raise InvalidInput(name, "must hold finite numbers", given, "Fill it in or remove it.")
    return x


def checked_labels(name: str, content: Content, size: int, labels: str = "required") -> np.ndarray | None:
    """One label a sample: whole numbers, or text; none where they are optional and all missing."""
    y, label = content.y, content.label
    if y is None:
        return None
    if not isinstance(y, np.ndarray) or y.ndim != 1 or len(y) != size:
        given = f"shape {y.shape}" if isinstance(y, np.ndarray) else "something else"
        raise InvalidInput(name, f"must hold one label for each of its {size} samples", given, f"Complete '{label}'.")
    y = np.char.decode(y, "utf-8", "replace") if y.dtype.kind == "S" else y
    missing = _missing(y)
    if labels == "optional" and missing.all():
        return None
    if missing.any():
        given = f"none in {content.row(int(np.argmax(missing)))} of '{label}'"
        remedy = f"Fill it in, or leave '{label}' out." if labels == "optional" else "Fill it in."
        raise InvalidInput(name, "must have a label for every sample", given, remedy)
    if y.dtype.kind == "U":
        return y
    rule, remedy = "must hold labels that are whole numbers or text", f"Convert '{label}' to int64 or text."
    if y.dtype.kind not in REAL:
        raise InvalidInput(name, rule, f"dtype {y.dtype}", remedy)
    with np.errstate(invalid="ignore"):  # a number that does not fit becomes another one, and is found below
        whole = y.astype(np.int64)
    broken = whole != y
    if broken.any():
        at = int(np.argmax(broken))
        raise InvalidInput(name, rule, f"{y[at]} in {content.row(at)}", remedy)
    return whole


def _missing(y: np.ndarray) -> np.ndarray:
    if y.dtype.kind == "U":
        return np.char.str_len(np.char.strip(y)) == 0
    return np.isnan(y) if y.dtype.kind == "f" else np.array([label is None for label in y])


def _numbers_if_all_are(cells: list[str]) -> np.ndarray:
    """Numbers if every cell is one that is represented exactly, otherwise the text."""
    text = np.array(cells)
    if not all(map(NUMBER.fullmatch, cells)):
        return text
    try:
        return np.array([int(cell) for cell in cells], np.int64)
    except OverflowError:
        return text
    except ValueError:  # a point, an exponent, nothing
        numbers = text.astype(np.float64)
        return text if (np.abs(numbers) >= 2**53).any() else numbers


def _listed(names: list[str]) -> str:
    """The first few of the names."""
    shown = [name if len(name) <= 40 else f"{name[:37]}..." for name in names[:COLUMNS_NAMED]]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return ", ".join(map(repr, shown)) + more if shown else "none"


READERS = {
    ".npz": _read_npz,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
    ".safetensors": _read_safetensors,
}
