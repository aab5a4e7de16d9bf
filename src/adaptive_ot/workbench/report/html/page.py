"""A page: one HTML file that loads nothing, and runs no script but ours."""

from __future__ import annotations

import json
import math
import re
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from adaptive_ot import _validation as check
from adaptive_ot.errors import InvalidInput, MissingDependency
from adaptive_ot.workbench.report.contents import Explorer, Facts, Note, Page, Picture, Table
from adaptive_ot.workbench.report.html import sentences
from adaptive_ot.workbench.report.html.explorer import explore
from adaptive_ot.workbench.report.pictures import data_uri

if TYPE_CHECKING:
    from jinja2 import Environment

EXPLORER_SCRIPTS = ("model.js", "cards.js", "panel.js", "maps.js", "explorer.js")

# Digits of a number, and letters beyond which a column of equally many decimals is too wide to read.
DIGITS = 4
WIDEST = 9

# HTML knows no control characters but these two, and UTF-8 no surrogates.
_UNPRINTABLE = re.compile("[^\t\n\x20-\x7e\xa0-\ud7ff\ue000-\U0010ffff]")


def render(page: Page) -> str:
    """The HTML of a page. No text of the page is trusted.

    Examples
    --------
    >>> html = render(Page("Digits", "MNIST to USPS", [Note("All of the mass moved.")]))
    >>> "<h1>Digits</h1>" in html, "http" in html.partition("<body>")[2]
    (True, False)
    """
    check.instance("page", page, Page)
    environment = _environment()
    parts = [_view(number, part) for number, part in enumerate(page.parts, 1)]
    explorers = EXPLORER_SCRIPTS if any(part["kind"] == "explorer" for part in parts) else ()
    script = "".join(_source(environment, name) for name in ("page.js", *explorers))
    style = _source(environment, "page.css")
    return environment.get_template("page.html").render(
        page=page, parts=parts, style=style, script=script, policy=_policy(style, script)
    )


@cache
def _environment() -> Environment:
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise MissingDependency("jinja2", "report") from None
    return Environment(
        loader=PackageLoader("adaptive_ot.workbench.report.html"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _source(environment: Environment, name: str) -> str:
    """A file of ours, as it is."""
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]


def _policy(style: str, script: str) -> str:
    """Nothing but this very style and script, and images inside the page."""
    style_hash, script_hash = (b64encode(sha256(text.encode()).digest()).decode() for text in (style, script))
    return (
        f"default-src 'none'; img-src data:; style-src 'sha256-{style_hash}'; script-src 'sha256-{script_hash}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _view(number: int, part: Any) -> dict[str, Any]:
    """A part, and what its template needs beside it."""
    name = f"parts[{number - 1}]"
    check.instance(name, part, Facts, Table, Picture, Explorer, Note)
    view: dict[str, Any] = {"id": f"part-{number}", "kind": type(part).__name__.lower(), "part": part}
    if isinstance(part, Table):
        size = len(part.columns)
        for k, row in enumerate(part.rows):
            if len(row) != size:
                rule, remedy = f"must have {size} cells, one a column", "Use None for a cell without a value."
                raise InvalidInput(f"{name}.rows[{k}]", rule, len(row), remedy)
        rows = cells_of(part)
        view |= {"rows": rows, "numeric": [all(row[k].number or row[k].missing for row in rows) for k in range(size)]}
    elif isinstance(part, Picture):
        view |= {theme: data_uri(f"{name}.{theme}", getattr(part, theme), whole=True) for theme in ("light", "dark")}
    elif isinstance(part, Explorer):
        data = explore(part.match)
        view |= {"data": data, "json": _json(data), "sentences": sentences}
    return view


def _json(data: Any) -> str:
    """JSON that neither ends a script element nor opens a comment in it."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)  # in ASCII
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _printable(value: Any) -> Any:
    """Every value on the page goes through here: text without characters that HTML cannot hold."""
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", re.sub("\r\n?", "\n", value))


class TableCell(NamedTuple):
    """A text, the number it stands for if it is one, and whether the value is missing."""

    text: str
    number: str | None = None
    missing: bool = False
    bold: bool = False


def cells_of(table: Table) -> list[list[TableCell]]:
    """The rows of a table; the numbers of a column have equally many decimals.

    Examples
    --------
    >>> rows = cells_of(Table("Accuracy", ["method", "percent"], [("AOT", 84.625), ("none", 53.0), ("failed", None)]))
    >>> [row[1].text for row in rows], rows[0][1].number
    (['84.62', '53.00', '–'], '84.625')
    """
    forms = [_form([row[k] for row in table.rows]) for k in range(len(table.columns))]
    return [
        [_cell(row[at], form)._replace(bold=(k, at) in table.bold) for at, form in enumerate(forms)]
        for k, row in enumerate(table.rows)
    ]


def _cell(value: Any, form: str) -> TableCell:
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        text = number = str(int(value))
    elif value is None or (_is_float(value) and math.isnan(value)):
        return TableCell("–", missing=True)
    elif not _is_float(value):
        return TableCell(str(value))
    elif math.isinf(value):
        text, number = ("∞", "Infinity") if value > 0 else ("-∞", "-Infinity")
    else:
        text, number = format(float(value), form), repr(float(value))
    return TableCell(text.replace("-", "\N{MINUS SIGN}"), number)


def _form(column: Sequence[Any]) -> str:
    """As many decimals as the numbers of a column need, unless these are too many to read."""
    floats = [float(value) for value in column if _is_float(value) and math.isfinite(value)]
    texts = [f"{value:.{DIGITS}g}" for value in floats]
    decimals = max((len(text.partition(".")[2]) for text in texts), default=0)
    widest = max((len(f"{abs(value):.{decimals}f}") for value in floats), default=0)
    return f".{decimals}f" if widest <= WIDEST and not any("e" in text for text in texts) else f".{DIGITS}g"


def _is_float(value: Any) -> bool:
    return isinstance(value, float | np.floating)
