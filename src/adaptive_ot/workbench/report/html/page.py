"""A page: one HTML file that needs nothing else, and lets nothing else in."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from adaptive_ot import _validation as check
from adaptive_ot.errors import InvalidInput, MissingDependency
from adaptive_ot.workbench.report.contents import Explorer, Facts, Note, Page, Picture, Table
from adaptive_ot.workbench.report.html import words
from adaptive_ot.workbench.report.html.cells import written
from adaptive_ot.workbench.report.html.explorer import explore
from adaptive_ot.workbench.report.images import check_whole, data_uri

if TYPE_CHECKING:
    from jinja2 import Environment

EXPLORER_SCRIPTS = ("model.js", "cards.js", "panel.js", "maps.js", "explorer.js")

PARTS = (Facts, Table, Picture, Explorer, Note)

# HTML knows no control characters but these two, and UTF-8 no surrogates.
_UNPRINTABLE = re.compile("[^\t\n\x20-\x7e\xa0-\ud7ff\ue000-\U0010ffff]")


def render(page: Page) -> str:
    """Turn what there is to see into a page.

    Parameters
    ----------
    page
        What it holds. No text in it is trusted.

    Returns
    -------
    The HTML. The only script and style it runs are ours; it loads nothing.

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
    """What the template of a part needs beside the part itself."""
    name = f"parts[{number - 1}]"
    check.instance(name, part, *PARTS)
    view: dict[str, Any] = {"id": f"part-{number}", "kind": type(part).__name__.lower(), "part": part}
    if isinstance(part, Table):
        _check_table(name, part)
        view["rows"] = written(part)
        view["numeric"] = [
            all(row[k].number or row[k].missing for row in view["rows"]) for k in range(len(part.columns))
        ]
    if isinstance(part, Picture):
        for field, image in (("light", part.light), ("dark", part.dark)):
            check_whole(f"{name}.{field}", image)
            view[field] = data_uri(f"{name}.{field}", image)
    if isinstance(part, Explorer):
        data = explore(part.match)
        view |= {"data": data, "json": _json(data), "words": words, "summary": words.summary(part.match, data)}
    return view


def _check_table(name: str, table: Table) -> None:
    for k, row in enumerate(table.rows):
        if len(row) != len(table.columns):
            rule = f"must have {len(table.columns)} cells, one a column"
            raise InvalidInput(f"{name}.rows[{k}]", rule, len(row), "Use None for a cell without a value.")


def _json(data: Any) -> str:
    """JSON that neither ends a script element nor opens a comment in it."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)  # in ASCII
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _printable(value: Any) -> Any:
    """What stands for every value on the page: text without what HTML cannot hold."""
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", re.sub("\r\n?", "\n", value))
