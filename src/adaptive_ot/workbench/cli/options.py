"""Options as the user types them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from cyclopts import Parameter

from adaptive_ot.errors import InvalidInput


def _whole(_: Any, tokens: Any) -> int:
    """Left alone, cyclopts would round fractions."""
    text = tokens[0].value
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"it must be a whole number; got {text!r}.") from None


Whole = Annotated[int, Parameter(converter=_whole)]


@contextmanager
def named(*options: str, **shown: str) -> Iterator[None]:
    """Let complaints about arguments name what the user typed.

    Parameters
    ----------
    *options
        Arguments that are options of the same name.
    **shown
        Arguments that are typed as something else.

    Examples
    --------
    >>> with named("test_crops", settings="--set"):
    ...     raise InvalidInput("test_crops", "must be one", "ten", "Choose one.")
    Traceback (most recent call last):
    adaptive_ot.errors.InvalidInput: --test-crops must be one; got ten. Choose one.
    """
    names = {option: f"--{option.replace('_', '-')}" for option in options} | shown
    try:
        yield
    except InvalidInput as error:
        word, *rest = error.argument.split(" ", 1)  # as in "output 'runs/1'"
        name = " ".join([names.get(word, word), *rest])
        raise InvalidInput(name, error.rule, error.given, error.remedy) from None
