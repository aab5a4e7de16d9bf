"""The record of a solve or an adaptation: a directory from which its page can be made again at any time.

::

    summary.json     what was found, what was asked for, and what it was computed with
    match.npz        the samples of both sides, and the pairs that carry mass
    NAME.png         pictures, and NAME_dark.png for dark screens
    report.html      the page

Beside them lie the results of an adaptation, predictions.csv or moved.npz. The summary is written first, as that of a
record that is not complete, and again at the end: it tells whose files these are, whatever happens in between.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

from adaptive_ot.errors import InvalidInput
from adaptive_ot.workbench.files import make_directory, one_with, trouble, write_atomically
from adaptive_ot.workbench.report import PAGE, SUMMARY
from adaptive_ot.workbench.report.contents import Match, Picture
from adaptive_ot.workbench.report.fields import Fields, counted, read_fields
from adaptive_ot.workbench.report.images import check_whole
from adaptive_ot.workbench.report.match_file import read_match, write_match
from adaptive_ot.workbench.report.pictures import Drawn

MATCH = "match.npz"
SOLVE, ADAPTATION = "solve", "adaptation"
RESULTS = ("predictions.csv", "moved.npz")
PICTURES = ("transport", "plan", "labels", "convergence")

# All that a record can hold.
FILES = (
    *RESULTS,
    MATCH,
    *(f"{name}{ending}.png" for name in PICTURES for ending in ("", "_dark")),
    PAGE,
    SUMMARY,
)

AGAIN = "Make it anew with --report."

Writer = Callable[[IO[bytes]], object]


class Record(NamedTuple):
    """A record as it lies in its directory."""

    kind: str
    summary: Fields
    match: Match | None
    pictures: dict[str, Drawn]

    def shown(self, about: Mapping[str, tuple[str, str]]) -> list[Picture]:
        """Those of its pictures that are named here, in this order, with their headings and captions."""
        named = [(*about[name], *self.pictures[name]) for name in about if name in self.pictures]
        return [Picture(heading, light, dark, text, text) for heading, text, light, dark in named]


def check_place(option: str, folder: Path) -> None:
    """A directory that is new, empty, or holds an older record, complete or not: no file of others is lost."""
    name, choose = f"{option} '{folder}'", "Choose another directory."
    with trouble(name, "must be a directory to write to"):
        if not folder.exists():
            return
        found = sorted(path.name for path in folder.iterdir() if path.name[:1] != ".")
    ours = _files_of(folder)
    if found and ours is None:
        raise InvalidInput(name, "must be new, empty, or hold an older report", one_with(found), choose)
    foreign = sorted({*found} & {*FILES} - {*(ours or ())})
    if foreign:
        raise InvalidInput(name, "must hold no other file of a name that a report needs", one_with(foreign), choose)


def write_record(
    option: str,
    folder: Path,
    kind: str,
    summary: Mapping[str, Any],
    match: Match | None,
    pictures: Mapping[str, Drawn],
    results: Mapping[str, Writer] | None = None,
) -> list[str]:
    """Write all but the page, in the place of an older record; the paths of all files, that of the page last.

    Parameters
    ----------
    option
        What to name in complaints.
    folder
        Where; after `check_place`. Made, if it does not exist.
    kind
        `SOLVE` or `ADAPTATION`.
    summary, match, pictures
        What it holds; pictures by one of the names in `PICTURES`.
    results
        What writes the results of an adaptation, by one of the names in `RESULTS`.
    """
    writers = {**(results or {}), **_writers(match, pictures)}
    names = [*writers, SUMMARY, PAGE]
    make_directory(option, folder)
    older = _files_of(folder) or frozenset()
    _write_summary(option, folder, {"kind": kind, "complete": False, "report": sorted({*names, *older})})
    for name in older - {SUMMARY}:
        with trouble(f"{option} '{folder / name}'", "must not stay from an older report"):
            (folder / name).unlink(missing_ok=True)
    for name, write in writers.items():
        write_atomically(option, folder / name, write)
    kept = None if match is None else len(match.mass)
    about = {"kind": kind, "complete": True, **summary, "pairs_kept": kept, "report": names}
    _write_summary(option, folder, about)
    return [str(folder / name) for name in names]


def read_record(folder: Path) -> Record:
    """What `write_record` wrote, checked."""
    summary = read_fields(folder / SUMMARY)
    name, kind = f"report '{folder}'", summary.values.get("kind")
    if kind not in (SOLVE, ADAPTATION):
        rule = f"must hold the {SUMMARY} of a solve or an adaptation"
        raise InvalidInput(name, rule, "another", f"Check the path. {AGAIN}")
    if summary.values.get("complete") is not True:
        given = f"the {SUMMARY} of one that was interrupted"
        raise InvalidInput(name, "must be complete", given, "Give the command with --report again.")
    listed = {*summary.texts("report")} & {*FILES} - {PAGE}
    missing = sorted(each for each in listed if not (folder / each).is_file())
    if missing:
        raise InvalidInput(name, f"must hold its {missing[0]}", "no such file", AGAIN)
    match = _match(folder / MATCH, summary) if MATCH in listed else None
    pictures = {
        each: Drawn(_picture(folder / f"{each}.png"), _picture(folder / f"{each}_dark.png"))
        for each in PICTURES
        if f"{each}.png" in listed
    }
    return Record(kind, summary, match, pictures)


def _writers(match: Match | None, pictures: Mapping[str, Drawn]) -> dict[str, Writer]:
    writers: dict[str, Writer] = {} if match is None else {MATCH: lambda file: write_match(file, match)}
    for name, drawn in pictures.items():
        for ending, content in zip(("", "_dark"), drawn, strict=True):
            writers[f"{name}{ending}.png"] = lambda file, content=content: file.write(content)
    return writers


def _write_summary(option: str, folder: Path, summary: Mapping[str, Any]) -> None:
    text = json.dumps(summary, indent=2) + "\n"
    write_atomically(option, folder / SUMMARY, lambda file: file.write(text.encode()))


def _match(path: Path, summary: Fields) -> Match:
    """That of this summary, and not of another problem."""
    match = read_match(path)
    sizes = len(match.source.names), len(match.target.names), len(match.mass)
    expected = tuple(map(summary.whole, ("sources", "targets", "pairs_kept")))
    if sizes != expected:
        rule, given = (
            " and ".join(counted(size, noun) for size, noun in zip(each, ("source", "target", "pair"), strict=True))
            for each in (expected, sizes)
        )
        raise InvalidInput(f"'{path}'", f"must hold the {rule} of the {SUMMARY}", given, AGAIN)
    return match


def _picture(path: Path) -> bytes:
    with trouble(f"'{path}'", "must be a whole PNG"):
        content = path.read_bytes()
    check_whole(f"'{path}'", content)
    return content


def _files_of(folder: Path) -> frozenset[str] | None:
    """The names of all files of the record that is there, complete or not; None, if there is none."""
    try:
        found = Fields(SUMMARY, json.loads((folder / SUMMARY).read_bytes()))
        names = found.texts("report")
    except (OSError, ValueError, RecursionError, AttributeError):
        return None
    is_ours = found.values.get("kind") in (SOLVE, ADAPTATION) and type(found.values.get("complete")) is bool
    return frozenset(names) & frozenset(FILES) if is_ours else None
