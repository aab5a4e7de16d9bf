"""The record of a solve or an adaptation: a directory from which its page can be made again at any time.

::

    summary.json     what was found, what was asked for, and what it was computed with
    match.npz        the samples of both sides, and the pairs that carry mass
    NAME.png         pictures, and NAME_dark.png for dark screens
    report.html      the page

Beside them lie the results of an adaptation, predictions.csv or moved.npz.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from adaptive_ot._files import trouble, write_atomically
from adaptive_ot.errors import InvalidInput
from adaptive_ot.report.contents import Match
from adaptive_ot.report.fields import Fields, read_fields
from adaptive_ot.report.match_file import read_match, write_match
from adaptive_ot.report.pictures import Drawn

SUMMARY, MATCH, PAGE = "summary.json", "match.npz", "report.html"
SOLVE, ADAPTATION = "solve", "adaptation"
RESULTS = ("predictions.csv", "moved.npz")
PICTURES = ("transport", "plan", "labels", "convergence")

# All that a record can hold, the summary last: it tells that the others are complete.
FILES = (
    *RESULTS,
    MATCH,
    *(f"{name}{ending}.png" for name in PICTURES for ending in ("", "_dark")),
    PAGE,
    SUMMARY,
)


class Record(NamedTuple):
    """A record as it lies in its directory."""

    kind: str
    summary: Fields
    match: Match | None
    pictures: dict[str, Drawn]


def check_place(option: str, folder: Path) -> None:
    """A directory that is empty, or holds an older record, perhaps an unfinished one."""
    name = f"{option} '{folder}'"
    with trouble(name, "must be a directory to write to"):
        others = sorted(path.name for path in folder.iterdir() if path.name not in FILES and path.name[:1] != ".")
        if others and not _holds_record(folder):
            given = f"one with {', '.join(others[:3])}{f' and {len(others) - 3} more' if len(others) > 3 else ''}"
            raise InvalidInput(name, "must be new, empty, or hold an older report", given, "Choose another directory.")


def write_record(
    option: str,
    folder: Path,
    kind: str,
    summary: Mapping[str, Any],
    match: Match | None,
    pictures: Mapping[str, Drawn],
    results: Iterable[Path] = (),
) -> list[str]:
    """Write all but the page, in the place of an older record; the names of all files, with that of the page.

    Parameters
    ----------
    option
        What to name in complaints.
    folder
        Where; after `check_place`.
    kind
        `SOLVE` or `ADAPTATION`.
    summary, match, pictures
        What it holds; pictures by one of the names in `PICTURES`.
    results
        Files of it that are there already.
    """
    older = {folder / name for name in FILES} if _holds_record(folder) else set()
    written = list(results)
    if match is not None:
        written.append(folder / MATCH)
        write_atomically(option, folder / MATCH, lambda file: write_match(file, match))
    for name, (light, dark) in pictures.items():
        for path, content in ((folder / f"{name}.png", light), (folder / f"{name}_dark.png", dark)):
            written.append(path)
            write_atomically(option, path, lambda file, content=content: file.write(content))
    kept = [*written, folder / SUMMARY, folder / PAGE]
    names = [str(path) for path in kept]
    text = json.dumps({"kind": kind, **summary, "report": names}, indent=2) + "\n"
    write_atomically(option, folder / SUMMARY, lambda file: file.write(text.encode()))
    for path in older - set(kept):
        with trouble(f"{option} '{path}'", "must not stay from an older report"):
            path.unlink(missing_ok=True)
    return names


def read_record(folder: Path) -> Record:
    """What `write_record` wrote, checked."""
    summary = read_fields(folder / SUMMARY)
    name, kind = f"report '{folder}'", summary.values.get("kind")
    if kind not in (SOLVE, ADAPTATION):
        rule = f"must hold the {SUMMARY} of a solve or an adaptation"
        raise InvalidInput(name, rule, "another", "Check the path, or make it anew with --report.")
    listed = {Path(path).name for path in summary.texts("report")} - {PAGE}
    missing = sorted(each for each in listed & set(FILES) if not (folder / each).is_file())
    if missing:
        raise InvalidInput(name, f"must hold its {missing[0]}", "no such file", "Make it anew with --report.")
    match = read_match(folder / MATCH) if MATCH in listed else None
    with trouble(name, "must hold pictures that can be read"):
        pictures = {
            each: Drawn((folder / f"{each}.png").read_bytes(), (folder / f"{each}_dark.png").read_bytes())
            for each in PICTURES
            if f"{each}.png" in listed
        }
    return Record(kind, summary, match, pictures)


def _holds_record(folder: Path) -> bool:
    try:
        found = json.loads((folder / SUMMARY).read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.get("kind") in (SOLVE, ADAPTATION)
