"""How commands print: titles, labelled lines, and a summary for people or for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from adaptive_ot.workbench.wording import counted

CLASSES_SHOWN = 12


def result(summary: dict[str, Any], as_json: bool, show: Callable[[dict[str, Any]], None]) -> None:
    """Print a summary, as JSON or by `show`."""
    if as_json:
        print(json.dumps(summary, indent=2))
    else:
        show(summary)


def title(text: str) -> None:
    Console().print(Text(printable(text), style="bold"), soft_wrap=True)


def line(label: str, text: str) -> None:
    Console().print(Text.assemble((f"  {label:<12}", "cyan"), printable(text)), soft_wrap=True)


def lines(labelled: Mapping[str, str | None]) -> None:
    """A line for every label that has a text."""
    for label, text in labelled.items():
        if text:
            line(label, text)


def printable(text: str) -> str:
    r"""Text without characters that a terminal would obey, which names of files and classes can hold.

    Examples
    --------
    >>> printable("café \x1b[2J")
    'café ?[2J'
    """
    return "".join(each if each.isprintable() else "?" for each in text)


def finite(number: float) -> float | None:
    """JSON has no infinity."""
    return number if math.isfinite(number) else None


def active(of: Mapping[str, Any]) -> str:
    """The active samples of a summary."""
    return f"{of['active_sources']} of {of['sources']} sources, {of['active_targets']} of {of['targets']} targets"


def classes(counts: Mapping[str, int]) -> str:
    """How many samples each class has, the most frequent classes first."""
    most = sorted(counts.items(), key=lambda item: -item[1])
    more = f" and {len(most) - CLASSES_SHOWN} more classes" if len(most) > CLASSES_SHOWN else ""
    return ", ".join(f"{label}: {count}" for label, count in most[:CLASSES_SHOWN]) + more


def report(files: list[str] | None) -> str | None:
    """Where the page of a report is, which comes last among its files."""
    return f"{files[-1]}, with {counted(len(files) - 1, 'file')} beside it" if files else None
