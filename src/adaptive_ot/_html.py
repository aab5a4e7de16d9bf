"""What notebooks show of an answer: the text of `print` as a small table, with nothing to load and nothing to run."""

from __future__ import annotations


def table(text: str) -> str:
    r"""A title and lines of a name and a value, as `print` shows them, in HTML that suits light and dark pages.

    Examples
    --------
    >>> print(table("A <title>\n  mass      0.5 & more\n            still the mass"))
    <table style="text-align:left"><caption style="text-align:left;white-space:nowrap"><b>A &lt;title&gt;</b></caption>
    <tr><th style="text-align:left">mass</th><td style="text-align:left">0.5 &amp; more still the mass</td></tr>
    </table>
    """
    from html import escape  # whose table of entities would slow down the import of the library

    title, *lines = text.splitlines()
    rows: list[list[str]] = []
    for line in lines:
        name, value = line[2:12].strip(), line[12:].strip()
        if name:
            rows.append([name, value])
        else:
            rows[-1][1] += f" {value}"
    left = ' style="text-align:left"'
    cells = [f"<tr><th{left}>{escape(name)}</th><td{left}>{escape(value)}</td></tr>" for name, value in rows]
    caption = f'<caption style="text-align:left;white-space:nowrap"><b>{escape(title)}</b></caption>'
    return "\n".join([f"<table{left}>{caption}", *cells, "</table>"])
