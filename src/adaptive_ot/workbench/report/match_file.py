"""A match as an .npz file of plain numbers and text: nothing in it can run."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Any

import numpy as np

from adaptive_ot.errors import InvalidInput
from adaptive_ot.workbench.files import open_archive, trouble
from adaptive_ot.workbench.report.contents import Match, Samples
from adaptive_ot.workbench.report.matches import check_match

WORDS = ("names", "labels", "predicted")


def write_match(file: IO[bytes], match: Match) -> None:
    """Write what `read_match` brings back.

    Examples
    --------
    >>> from io import BytesIO
    >>> side = Samples(names=["a", "b"], weights=np.array([0.5, 0.5]), labels=["cat", "dog"])
    >>> match = Match(source=side, target=side, rows=np.array([1]), columns=np.array([1]), mass=np.array([0.25]))
    >>> file = BytesIO()
    >>> write_match(file, match)
    >>> sorted(np.load(BytesIO(file.getvalue())).files)[:4]
    ['columns', 'mass', 'rows', 'source_columns']
    """
    arrays: dict[str, Any] = {"rows": match.rows, "columns": match.columns, "mass": match.mass}
    for name, side in (("source", match.source), ("target", match.target)):
        arrays |= {f"{name}_{field}": array for field, array in _arrays_of(side).items()}
    np.savez_compressed(file, **arrays)


def read_match(path: Path) -> Match:
    """Read it, and refuse what does not fit together."""
    with trouble(f"'{path}'", "must hold a match"), open(path, "rb") as file, open_archive(file) as archive:
        arrays = {name: archive[name] for name in archive.files}
        source, target = (_side(arrays, name) for name in ("source", "target"))
        rows, columns, mass = (arrays[name] for name in ("rows", "columns", "mass"))
        match = Match(source=source, target=target, rows=rows, columns=columns, mass=mass)
        try:
            check_match(match)
        except InvalidInput as error:
            given = f"{error.given} where {error.argument} {error.rule}"
            rule = "must hold a match that fits together"
            raise InvalidInput(f"'{path}'", rule, given, "Make it anew with --report.") from None
    return match


def _arrays_of(side: Samples) -> dict[str, np.ndarray]:
    """Images one after the other, and where each of them ends."""
    words = {field: getattr(side, field) for field in WORDS} | {"columns": side.columns}
    arrays: dict[str, np.ndarray] = {
        field: np.array(given, np.str_) for field, given in words.items() if given is not None
    }
    arrays["weights"] = np.asarray(side.weights, np.float64)
    if side.values is not None:
        arrays["values"] = np.asarray(side.values, np.float64)
    if side.images is not None:
        arrays["images"] = np.frombuffer(b"".join(side.images), np.uint8)
        arrays["image_ends"] = np.cumsum([len(image) for image in side.images], dtype=np.int64)
    return arrays


def _side(arrays: dict[str, np.ndarray], name: str) -> Samples:
    own = {key.removeprefix(f"{name}_"): array for key, array in arrays.items() if key.startswith(f"{name}_")}
    words: dict[str, Any] = {field: own[field].tolist() for field in (*WORDS, "columns") if field in own}
    images = None
    if "images" in own:
        content, ends = own["images"].tobytes(), own["image_ends"].tolist()
        images = [content[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    return Samples(**words, weights=own["weights"], values=own.get("values"), images=images)
