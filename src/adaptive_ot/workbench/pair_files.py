"""Files of candidate pairs, read piece by piece: two names and a number in every row."""

from __future__ import annotations

import csv
import math
import shlex
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from adaptive_ot import _validation as check
from adaptive_ot.errors import InvalidInput, MissingDependency
from adaptive_ot.workbench.files import as_csv, check_input, check_separator, is_number, trouble, write_atomically

READABLE = (".csv", ".parquet")

# Names of columns that are no scores, in lower case.
COSTS = ("cost", "distance")
PROBABILITIES = ("probability", "match_probability")

# What the cells of the columns are.
CELLS = ("a source", "a target", "a number as the score", "true or false")

OPTIONS = "--source, --target and --score."


@dataclass
class Names:
    """Numbers for names, in the order in which they appear."""

    numbers: dict[str, int] = field(default_factory=dict)

    def numbered(self, column: Any) -> np.ndarray:
        """The numbers of a column of names; new names get new ones."""
        encoded = column.dictionary_encode()
        number = np.array([self.numbers.setdefault(name, len(self.numbers)) for name in encoded.dictionary.to_pylist()])
        return number.astype(np.int64)[np.asarray(encoded.indices)]


@dataclass(frozen=True)
class NamedPairs:
    """Candidate pairs, the names behind them, and which targets are decoys."""

    sources: list[str]
    targets: list[str]
    rows: np.ndarray
    columns: np.ndarray
    numbers: np.ndarray
    decoys: np.ndarray | None

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.sources), len(self.targets)


def read_pairs(path: Path, wanted: dict[str, str | None], decoy: str | None, costs: bool = False) -> NamedPairs:
    """Read sources, targets and numbers from the `wanted` columns; by default, these are the first three.

    Unless `costs` are expected, a third column with the name of a cost is refused, and one of probabilities always is.
    """
    name = f"pairs file '{path}'"
    check_input(name, path, READABLE)
    sources, targets = Names(), Names()
    pieces: list[tuple[np.ndarray, ...]] = []
    with trouble(name, f"must be a valid {path.suffix.lower()} file"):
        for source, target, number, *flag in _columns(name, path, wanted, decoy, costs):
            numbers = np.asarray(number, np.float64)
            pieces.append((sources.numbered(source), targets.numbered(target), numbers, *map(np.asarray, flag)))
    for side, names in (("source", sources), ("target", targets)):
        if "" in names.numbers or None in names.numbers:
            raise InvalidInput(name, f"must name every {side}", "an empty name", "Leave these pairs out.")
    empty = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0), np.empty(0, np.bool_)
    rows, columns, numbers, *flags = (np.concatenate(side) for side in zip(*pieces, strict=True)) if pieces else empty
    decoys = None if decoy is None else _decoys(name, columns, flags[0], list(targets.numbers))
    return NamedPairs(list(sources.numbers), list(targets.numbers), rows, columns, numbers, decoys)


def write_links(path: Path, columns: dict[str, Any]) -> None:
    """Write links as .csv or .parquet."""
    if path.suffix.lower() == ".csv":
        content = as_csv(list(columns), zip(*columns.values(), strict=True))
        write_atomically("--output", path, lambda file: file.write(content))
        return
    import pyarrow as pa
    from pyarrow import parquet

    write_atomically("--output", path, lambda file: parquet.write_table(pa.table(columns), file))


def _columns(
    name: str, path: Path, wanted: dict[str, str | None], decoy: str | None, costs: bool
) -> Iterator[list[Any]]:
    """The columns, piece by piece: names as text, numbers as float64, flags as booleans."""
    try:
        import pyarrow as pa
        from pyarrow import csv as arrow_csv
        from pyarrow import parquet
    except ImportError:
        raise MissingDependency("pyarrow", "cli") from None
    with open(path, "rb") as file:
        if path.suffix.lower() == ".parquet":
            table = parquet.ParquetFile(file)
            chosen = _chosen(name, table.schema_arrow.names, wanted, decoy, costs)
            kinds = [pa.string(), pa.string(), pa.float64(), pa.bool_()]
            for piece in table.iter_batches(columns=chosen):
                found = [_cast(name, piece, each, kind) for each, kind in zip(chosen, kinds, strict=False)]
                for k in _with_gaps(found):
                    given = f"none in {chosen[k]!r}"
                    raise InvalidInput(
                        name, f"must have {CELLS[k]} in every row", given, "Fill it in, or leave it out."
                    )
                yield found
            return
        header = _header(file)
        if wanted["--score"] is None and is_number("".join(header[2:3])):
            remedy = "Line 1 looks like data: add one before it, such as source,target,score."
            raise InvalidInput(
                name, "must start with the names of its columns", f"{header[2]!r} for the scores", remedy
            )
        chosen = _chosen(name, header, wanted, decoy, costs)
        kinds = dict(zip(chosen, [pa.string(), pa.string(), pa.float64(), pa.bool_()], strict=False))
        options = arrow_csv.ConvertOptions(column_types=kinds, include_columns=chosen)
        try:
            with closing(arrow_csv.open_csv(file, convert_options=options)) as reader:
                for piece in reader:
                    found = [piece.column(each) for each in chosen]
                    if _with_gaps(found) or _too_good(np.asarray(found[2], np.float64), costs).any():
                        _blame_a_cell(name, path, chosen, options, costs)
                    yield found
        except pa.ArrowInvalid:
            _blame_a_cell(name, path, chosen, options, costs)
            raise


def _cast(name: str, piece: Any, column: str, kind: Any) -> Any:
    """A column of a .parquet file as another kind."""
    import pyarrow as pa

    try:
        return piece.column(column).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        rule, remedy = f"must hold {kind} in {column!r}", "Convert it, or name other columns with " + OPTIONS
        raise InvalidInput(name, rule, error, remedy) from None


def _with_gaps(columns: list[Any]) -> list[int]:
    """Which columns, behind the names, have cells that are missing or NaN."""
    return [k for k, column in enumerate(columns) if k > 1 and column.is_null(nan_is_null=True).true_count]


def _too_good(numbers: np.ndarray, costs: bool) -> np.ndarray:
    """Which scores are too high to add up, or costs too low; the other infinity forbids a pair."""
    return (-numbers if costs else numbers) > check.LARGEST


def _blame_a_cell(name: str, path: Path, chosen: list[str], options: Any, costs: bool) -> None:
    """Refuse the first cell of a .csv file that is no score or no flag, if there is one."""
    with open(path, encoding="utf-8-sig", newline="") as file:
        rows = csv.reader(file)
        header = next(rows)
        for row in (row for row in rows if len(row) == len(header)):
            for column, what in list(zip(chosen, CELLS, strict=False))[2:]:
                cell = row[header.index(column)].strip()
                flag = cell in options.true_values + options.false_values
                number = float(cell) if is_number(cell) else math.nan
                if _too_good(np.array(number), costs):
                    bound, given = f"{check.LARGEST:g}", f"{cell} in line {rows.line_num}, column {column!r}"
                    rule = f"must not have a cost below -{bound}" if costs else f"must not have a score above {bound}"
                    raise InvalidInput(name, rule, given, "Use a smaller finite number.")
                if flag if what == CELLS[3] else not math.isnan(number):
                    continue
                given = f"{check.describe(cell) if cell else 'nothing'} in line {rows.line_num}, column {column!r}"
                remedy = _remedy(cell, what, chosen)
                raise InvalidInput(name, f"must have {what} in every line", given, remedy)


def _remedy(cell: str, what: str, chosen: list[str]) -> str:
    """What to write instead of a cell."""
    if what == CELLS[3]:
        return "Write true or false, or 1 or 0."
    if is_number(cell) or not cell:
        return "Fill it in, or leave this pair out."
    if is_number(cell.replace(",", ".")):
        return "Write decimals with a point, as in 1.5."
    taken = ", ".join(map(repr, chosen[:3]))
    return f"Source, target and score were taken from {taken}; name other columns with {OPTIONS}"


def _header(file: IO[bytes]) -> list[str]:
    """The names of the columns of a .csv file, which is left at its beginning."""
    line = file.readline().decode("utf-8-sig")
    file.seek(0)
    header = next(csv.reader([line]), [])
    if len(header) == 1:
        check_separator(f"pairs file '{file.name}'", header[0], 1)
    return header


def _chosen(name: str, held: list[str], wanted: dict[str, str | None], decoy: str | None, costs: bool) -> list[str]:
    """The columns to read, which must be different and must exist."""
    if len(held) < 3:
        raise InvalidInput(name, "must have three columns", f"{len(held)}", "They are sources, targets and scores.")
    asked = {option: given or held[place] for place, (option, given) in enumerate(wanted.items())}
    asked |= {} if decoy is None else {"--decoy": decoy}
    for option, column in asked.items():
        if column not in held:
            names = ", ".join(map(repr, held[:6]))
            raise InvalidInput(option, f"must be a column of '{path_of(name)}'", repr(column), f"It has {names}.")
    if wanted["--score"] is None:
        _check_order(name, held, asked)
        _check_meaning(name, asked["--score"], costs)
    if len(set(asked.values())) < len(asked):
        twice = " and ".join(asked)
        raise InvalidInput(name, "must have a column for each of " + twice, repr(list(asked.values())), "Name others.")
    return list(asked.values())


def _check_order(name: str, held: list[str], asked: dict[str, str]) -> None:
    """Refuse to look for scores in the third column if another is named score."""
    if "score" not in held or asked["--score"] == "score":
        return
    others = [column for column in held if column not in ("score", asked.get("--decoy"))]
    words = shlex.join(["--score", "score", "--source", others[0], "--target", others[1]])
    given = ", ".join(map(repr, held[:6]))
    raise InvalidInput(name, "must have a source, a target and a score in this order", given, f"Write {words}.")


def _check_meaning(name: str, column: str, costs: bool) -> None:
    """Refuse a third column whose name says that its numbers are no scores."""
    called = column.strip().lower().replace(" ", "_")
    if called in PROBABILITIES:
        remedy = "Convert it: score = log(p / (1 - p))."
    elif called in COSTS and not costs:
        remedy = "Give --limit, the price of leaving both alone: score = limit - cost."
    else:
        return
    remedy += f" If the numbers are scores, write --score {shlex.quote(column)}."
    raise InvalidInput(name, "must have scores in its third column", repr(column), remedy)


def path_of(name: str) -> str:
    """The path in the name of a file."""
    return name.split("'", 1)[1].removesuffix("'")


def _decoys(name: str, columns: np.ndarray, flags: np.ndarray, targets: list[str]) -> np.ndarray:
    """Which targets are decoys, in all of their pairs."""
    said = np.bincount(columns, flags, len(targets)), np.bincount(columns, minlength=len(targets))
    mixed = np.flatnonzero((said[0] > 0) & (said[0] < said[1]))
    if mixed.size:
        given = f"both for {targets[mixed[0]]!r}"
        raise InvalidInput(name, "must say of a target that it is a decoy always or never", given, "Correct it.")
    return said[0] > 0
