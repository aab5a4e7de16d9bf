"""Settings and records as dataclasses: every field is checked against its annotation, numbers against their range.

The range of a number is part of the annotation, as in ``threshold: Share = 0.9``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from adaptive_ot._validation import LARGEST, LARGEST_INTEGER, SMALLEST, choice, describe, nearest, number, whole_number
from adaptive_ot.errors import InvalidInput

T = TypeVar("T", bound="Checked")


class Range(NamedTuple):
    """The smallest and the largest value of a number."""

    minimum: float
    maximum: float


NotNegative = Annotated[float, Range(0.0, LARGEST)]
Positive = Annotated[float, Range(SMALLEST, LARGEST)]
Share = Annotated[float, Range(0.0, 1.0)]
BelowOne = Annotated[float, Range(0.0, 0.999999)]

Natural = Annotated[int, Range(0, LARGEST_INTEGER)]
Count = Annotated[int, Range(1, LARGEST_INTEGER)]
Pixels = Annotated[int, Range(1, 8000)]  # on one side; images of more than 64 million pixels are refused


class Checked:
    """Base of frozen dataclasses whose fields are checked whenever one is made."""

    def __post_init__(self) -> None:
        for name, kind in kinds_of(type(self)).items():
            object.__setattr__(self, name, checked(name, getattr(self, name), kind))


def kinds_of(dataclass: type[Any]) -> dict[str, Any]:
    """The annotation of every field."""
    return get_type_hints(dataclass, include_extras=True)


def filled_in(defaults: Any, changes: Mapping[str, Any], what: str) -> Any:
    """A dataclass with some fields changed; unknown names are refused as not a `what`."""
    kinds = kinds_of(type(defaults))
    refuse_unknown(changes, kinds, what)
    return replace(defaults, **{name: checked(name, value, kinds[name]) for name, value in changes.items()})


def refuse_unknown(names: Collection[str], known: Collection[str], what: str) -> None:
    """Raise for the first name that is not known, with the nearest one that is."""
    for name in names:
        if name not in known:
            remedy = f"{nearest(name, known)}Known are: {', '.join(known) or 'none'}."
            raise InvalidInput(f"'{name}'", f"must be a known {what}", "an unknown name", remedy)


def restored(dataclass: type[T], record: Mapping[str, Any], run: Path, file: str) -> T:
    """A dataclass from the record of all its fields in a file of a run."""
    name = f"run '{run}'"
    different = sorted(kinds_of(dataclass).keys() ^ record.keys())
    if different:
        rule, remedy = f"must hold a {file} of this version", "Train it again, or use the version that wrote it."
        raise InvalidInput(name, rule, f"another, which differs in {', '.join(different[:3])}", remedy)
    try:
        return dataclass(**record)
    except InvalidInput as error:
        rule, given = f"must hold a {file} that makes sense", f"{error.given} for {error.argument}"
        raise InvalidInput(name, rule, given, "Restore it, or train it again.") from None


def checked(name: str, value: Any, kind: Any) -> Any:
    """The value of a field, converted to its annotation `kind`, or an `InvalidInput` that names the field.

    `kind` is int or float, possibly with a Range; bool, str, Path, Any, or a Literal; a list, a tuple of any length, or
    a mapping with names as keys; or one of these or None.

    Examples
    --------
    >>> checked("threshold", 1, Share), checked("root", "data", Path).name, checked("weights", None, str | None)
    (1.0, 'data', None)
    >>> checked("seeds", [0, 1], tuple[Natural, ...]), checked("counts", {"dog": 3}, dict[str, Count])
    ((0, 1), {'dog': 3})
    >>> checked("threshold", 1.5, Share)
    Traceback (most recent call last):
    adaptive_ot.errors.InvalidInput: threshold must be a number from 0 to 1; got 1.5. Choose another threshold.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return None if value is None else checked(name, value, arguments[0])
    if origin is Literal:
        choice(name, value, arguments)
        return value
    if origin is Annotated or kind in (int, float):
        kind, limits = arguments or (kind, Range(0, LARGEST_INTEGER) if kind is int else Range(-LARGEST, LARGEST))
        _require(not isinstance(value, bool), name, value, "a number", f"Choose another {name}.")
        if kind is int:
            return whole_number(name, value, minimum=int(limits.minimum), maximum=int(limits.maximum))
        return number(name, value, minimum=limits.minimum, maximum=limits.maximum)
    if kind is Path:
        _require(isinstance(value, str | Path), name, value, "a path", "Write it in quotes.")
        return Path(value)
    if origin in (list, tuple):
        names = arguments[0] is str
        listed = isinstance(value, list | tuple) and not (names and any(not isinstance(each, str) for each in value))
        kinds = ("a list of names", "Write it as a list of words.") if names else ("a list", "Put it in brackets.")
        _require(listed, name, value, *kinds)
        return origin(checked(name, each, arguments[0]) for each in value)
    if origin in (dict, Mapping):
        _require(isinstance(value, Mapping), name, value, "values by name", "Give a dictionary.")
        return {key: checked(f"{name} '{key}'", each, arguments[1]) for key, each in value.items()}
    if kind is bool:
        _require(isinstance(value, bool), name, value, "true or false", "Choose one.")
    elif kind is str:
        _require(isinstance(value, str), name, value, "a word", "Write it in quotes.")
    elif kind is not Any:
        raise TypeError(f"no rule for fields of type {kind}")
    return value


def _require(holds: bool, name: str, value: Any, rule: str, remedy: str) -> None:
    if not holds:
        raise InvalidInput(name, f"must be {rule}", describe(value), remedy)
