"""Fields of dataclasses as files, the command line or Python may give them: each of its kind, numbers in their range.

The range of a number stands where the field is declared, as in ``threshold: Share = 0.9``.
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
    """The least and the largest number that a field may have."""

    minimum: float
    maximum: float


NotNegative = Annotated[float, Range(0.0, LARGEST)]
Positive = Annotated[float, Range(SMALLEST, LARGEST)]
Share = Annotated[float, Range(0.0, 1.0)]
BelowOne = Annotated[float, Range(0.0, 0.999999)]

Natural = Annotated[int, Range(0, LARGEST_INTEGER)]
Count = Annotated[int, Range(1, LARGEST_INTEGER)]
Pixels = Annotated[int, Range(1, 8000)]  # of one side: an image may have 64 million


def filled_in(defaults: Any, given: Mapping[str, Any], what: str) -> Any:
    """A dataclass with some values changed, each checked, unknown ones refused by name."""
    kinds = kinds_of(type(defaults))
    refuse_unknown(given, kinds, what)
    return replace(defaults, **{name: checked(name, value, kinds[name]) for name, value in given.items()})


def kinds_of(dataclass: type[Any]) -> dict[str, Any]:
    """What each of its fields may be."""
    return get_type_hints(dataclass, include_extras=True)


def refuse_unknown(given: Mapping[str, Any], known: Collection[str], what: str) -> None:
    """All names are known."""
    for name in given:
        if name not in known:
            remedy = f"{nearest(name, known)}Known are: {', '.join(known) or 'none'}."
            raise InvalidInput(f"'{name}'", f"must be a known {what}", "an unknown name", remedy)


class Checked:
    """A frozen dataclass whose fields are of their kinds, however it is made."""

    def __post_init__(self) -> None:
        for name, kind in kinds_of(type(self)).items():
            object.__setattr__(self, name, checked(name, getattr(self, name), kind))


def restored(dataclass: type[T], record: Mapping[str, Any], run: Path, file: str) -> T:
    """What a file in the directory of a run holds: all fields of a dataclass."""
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
    """The value of a field, of the kind that its annotation says.

    Examples
    --------
    >>> checked("threshold", 1, Share), checked("root", "data", Path).name, checked("weights", None, str | None)
    (1.0, 'data', None)
    >>> checked("threshold", 1.5, Share)
    Traceback (most recent call last):
    adaptive_ot.errors.InvalidInput: threshold must be a number from 0 to 1; got 1.5. Choose another threshold.
    """
    origin = get_origin(kind)
    if origin in (Union, UnionType):  # something or nothing
        return None if value is None else checked(name, value, get_args(kind)[0])
    if origin is Annotated:
        return _number(name, value, *get_args(kind))
    if kind in (int, float):
        return _number(name, value, kind, Range(-LARGEST, LARGEST) if kind is float else Range(0, LARGEST_INTEGER))
    if origin is Literal:
        choice(name, value, get_args(kind))
    elif kind is Path:
        if not isinstance(value, str | Path):
            raise InvalidInput(name, "must be a path", describe(value), "Write it in quotes.")
        return Path(value)
    elif origin is tuple:
        if not (isinstance(value, list | tuple) and all(isinstance(each, str) for each in value)):
            raise InvalidInput(name, "must be a list of names", describe(value), "Write it as a list of words.")
        return tuple(value)
    elif origin in (dict, Mapping):
        if not isinstance(value, Mapping):
            raise InvalidInput(name, "must be values by name", describe(value), "Give a dictionary.")
        return {key: checked(f"{name} '{key}'", each, get_args(kind)[1]) for key, each in value.items()}
    elif kind is not Any and not isinstance(value, kind):
        rule, remedy = {bool: ("true or false", "Choose one."), str: ("a word", "Write it in quotes.")}[kind]
        raise InvalidInput(name, f"must be {rule}", describe(value), remedy)
    return value


def _number(name: str, value: Any, kind: type, limits: Range) -> float:
    if isinstance(value, bool):  # to Python they are numbers
        raise InvalidInput(name, "must be a number", describe(value), f"Choose another {name}.")
    if kind is int:
        return whole_number(name, value, minimum=int(limits.minimum), maximum=int(limits.maximum))
    return number(name, value, minimum=limits.minimum, maximum=limits.maximum)
