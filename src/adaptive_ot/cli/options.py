"""Options as the user types them."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter


def _whole(_: Any, tokens: Any) -> int:
    """Left alone, cyclopts would round fractions."""
    text = tokens[0].value
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"it must be a whole number; got {text!r}.") from None


Whole = Annotated[int, Parameter(converter=_whole)]
