"""Matches: made from a solution, checked, and kept as .npz files of plain numbers and text that cannot run code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from adaptive_ot import _validation as check
from adaptive_ot.errors import InvalidInput
from adaptive_ot.solution import Solution
from adaptive_ot.workbench.files import open_archive, trouble
from adaptive_ot.workbench.report.contents import Explorer, Match, Samples
from adaptive_ot.workbench.report.pictures import check_image

# The most samples of a side that can be looked at one by one; of more pairs than this only the heaviest are kept.
MOST_SAMPLES = 10_000
MOST_PAIRS = 2_000_000

# Coordinates or features of a sample that are shown.
VALUES_SHOWN = 8

# The heading and the caption of a plan by class.
BY_CLASS = ("Mass between classes", "How much every class sends and receives, and what it has.")

TEXTS = ("names", "labels", "predicted", "columns")


def match_of(solution: Solution, source: Samples, target: Samples) -> Match:
    """Both sides and the pairs that carry mass; the heaviest of them if there are very many."""
    rows, columns, mass = solution.support
    if len(mass) > MOST_PAIRS:
        chosen = np.sort(np.argpartition(-mass, MOST_PAIRS)[:MOST_PAIRS])
        rows, columns, mass = rows[chosen], columns[chosen], mass[chosen]
    return Match(source=source, target=target, rows=rows, columns=columns, mass=mass.astype(np.float64))


def explorer(match: Match, pairs: int, mass: float) -> Explorer:
    """The match as a part of a page. The caption says so if the plan has more pairs than are kept."""
    kept, caption = len(match.mass), ""
    if kept < pairs:
        share = float(match.mass.sum()) / (mass or 1.0)
        caption = f"The {kept:,} heaviest of {pairs:,} pairs are kept: they carry {share:.1%} of the mass."
    return Explorer("Who is matched with whom", match, caption)


def weigh_the_same(weights: np.ndarray) -> bool:
    """
    Examples
    --------
    >>> weigh_the_same(np.full(3, 1 / 3)), weigh_the_same(np.array([0.25, 0.75]))
    (True, False)
    """
    return bool(np.allclose(weights, weights.mean() if weights.size else 0.0, rtol=1e-6, atol=0.0))


def write_match(file: IO[bytes], match: Match) -> None:
    """Write a file that `read_match` can read."""
    arrays: dict[str, Any] = {"rows": match.rows, "columns": match.columns, "mass": match.mass}
    for name, side in (("source", match.source), ("target", match.target)):
        arrays |= {f"{name}_{field}": array for field, array in _arrays_of(side).items()}
    np.savez_compressed(file, **arrays)


def read_match(path: Path) -> Match:
    """Read a match, and refuse one that does not fit together."""
    with trouble(f"'{path}'", "must hold a match"), open(path, "rb") as file, open_archive(file) as archive:
        arrays = {name: archive[name] for name in archive.files}
        pairs = {name: arrays[name] for name in ("rows", "columns", "mass")}
        match = Match(source=_side(arrays, "source_"), target=_side(arrays, "target_"), **pairs)
        try:
            check_match(match)
        except InvalidInput as error:
            given = f"{error.given} where {error.argument} {error.rule}"
            rule = "must hold a match that fits together"
            raise InvalidInput(f"'{path}'", rule, given, "Write it again with --report.") from None
    return match


def _arrays_of(side: Samples) -> dict[str, np.ndarray]:
    """Images are stored one after the other, with the place where each of them ends."""
    texts = {field: getattr(side, field) for field in TEXTS}
    arrays: dict[str, Any] = {field: np.array(given, np.str_) for field, given in texts.items() if given is not None}
    arrays["weights"] = np.asarray(side.weights, np.float64)
    if side.values is not None:
        arrays["values"] = np.asarray(side.values, np.float64)
    if side.images is not None:
        arrays["images"] = np.frombuffer(b"".join(side.images), np.uint8)
        arrays["image_ends"] = np.cumsum([len(image) for image in side.images], dtype=np.int64)
    return arrays


def _side(arrays: dict[str, np.ndarray], prefix: str) -> Samples:
    own = {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}
    texts: dict[str, Any] = {field: own[field].tolist() for field in TEXTS if field in own}
    images = None
    if "images" in own:
        content, ends = own["images"].tobytes(), own["image_ends"].tolist()
        images = [content[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    return Samples(**texts, weights=own["weights"], values=own.get("values"), images=images)


def check_match(match: Match) -> None:
    """Refuse fields that differ in length, pairs of samples that do not exist, and impossible masses."""
    check.instance("match", match, Match)
    _check_side("match.source", match.source)
    _check_side("match.target", match.target)
    pairs = np.size(match.mass)
    _check_numbers("match.mass", match.mass, pairs, check.LARGEST)
    for name, index, side in (("rows", match.rows, match.source), ("columns", match.columns, match.target)):
        _check_numbers(f"match.{name}", index, pairs, len(side.names) - 1)
        if pairs and np.asarray(index).dtype.kind not in "iu":
            given = f"dtype {np.asarray(index).dtype}"
            raise InvalidInput(f"match.{name}", "must hold whole numbers", given, "Convert it to int64.")


def _check_side(name: str, side: Samples) -> None:
    check.instance(name, side, Samples)
    size = len(side.names)
    _check_numbers(f"{name}.weights", side.weights, size, check.LARGEST)
    for field in ("names", "labels", "predicted"):
        if getattr(side, field) is not None:
            _check_texts(f"{name}.{field}", getattr(side, field), size)
    if side.images is not None:
        _check_length(f"{name}.images", side.images, size)
        for k, image in enumerate(side.images):
            check_image(f"{name}.images[{k}]", image)
    if side.values is not None:
        values = _real(f"{name}.values", side.values)
        if values.ndim != 2 or len(values) != size:
            rule = f"must have {size} rows, one a sample"
            raise InvalidInput(f"{name}.values", rule, f"shape {values.shape}", "Omit them if there are none.")
        _check_texts(f"{name}.columns", side.columns, values.shape[1])


def _check_length(name: str, given: Sequence[Any], size: int) -> None:
    if len(given) != size:
        raise InvalidInput(name, f"must have length {size}", len(given), "Give one for each.")


def _check_texts(name: str, texts: Sequence[str], size: int) -> None:
    _check_length(name, texts, size)
    for k, text in enumerate(texts):
        check.instance(f"{name}[{k}]", text, str)


def _check_numbers(name: str, given: Any, size: int, most: float) -> None:
    array = _real(name, given)
    if array.shape != (size,):
        raise InvalidInput(name, f"must have shape ({size},)", array.shape, "Give one for each.")
    wrong = ~((array >= 0) & (array <= most))
    if wrong.any():
        at = int(np.argmax(wrong))
        raise InvalidInput(name, f"must be from 0 to {most:g}", f"{array[at]} at {at}", "Correct it.")


def _real(name: str, given: Any) -> np.ndarray:
    array = np.asarray(given)
    if array.dtype.kind not in check.REAL:
        raise InvalidInput(name, "must hold real numbers", f"dtype {array.dtype}", "Convert it to float64.")
    return array
