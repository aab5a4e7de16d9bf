"""The record of a solve or an adaptation: a directory from which its page can be written again at any time.

::

    summary.json     the result, the configuration and the environment
    match.npz        the samples of both sides, and the pairs that carry mass
    NAME.png         pictures, and NAME_dark.png for dark screens
    report.html      the page

Beside them lie the results of an adaptation, predictions.csv or moved.npz. The summary is written first, marked as
incomplete, and again at the end: an interrupted record still lists the files that belong to it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

from adaptive_ot.errors import InvalidInput
from adaptive_ot.workbench.files import accessible, make_directory, one_with, trouble, write_atomically
from adaptive_ot.workbench.report.contents import Match
from adaptive_ot.workbench.report.fields import Fields, read_fields
from adaptive_ot.workbench.report.matches import read_match, write_match
from adaptive_ot.workbench.report.pictures import Drawn, check_image
from adaptive_ot.workbench.wording import counted

PAGE, SUMMARY, MATCH = "report.html", "summary.json", "match.npz"
SOLVE, ADAPTATION = "solve", "adaptation"
RESULTS = ("predictions.csv", "moved.npz")
PICTURES = ("transport", "plan", "labels", "convergence")
THEMES = ("", "_dark")

# Every file that a record can hold.
FILES = (*RESULTS, MATCH, *(f"{name}{theme}.png" for name in PICTURES for theme in THEMES), PAGE, SUMMARY)

AGAIN = "Write it again with --report."

Writer = Callable[[IO[bytes]], object]


class Record(NamedTuple):
    """The contents of a record, pictures by name."""

    kind: str
    summary: Fields
    match: Match | None
    pictures: dict[str, Drawn]


def check_place(option: str, folder: Path) -> None:
    """Refuse a directory unless it is new, empty, or holds an older record: we never overwrite files of others."""
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
    """Write everything but the page, replacing an older record. Returns the paths of all files, the page last.

    Parameters
    ----------
    option
        The name of the folder in messages.
    folder
        The directory, after `check_place`; made if it does not exist.
    kind
        `SOLVE` or `ADAPTATION`.
    summary, match, pictures
        The contents; pictures by a name in `PICTURES`.
    results
        Writers of the results of an adaptation, by a name in `RESULTS`.
    """
    writers: dict[str, Writer] = {**(results or {})}
    if match is not None:
        writers[MATCH] = lambda file: write_match(file, match)
    for name, drawn in pictures.items():
        for theme, content in zip(THEMES, drawn, strict=True):
            writers[f"{name}{theme}.png"] = lambda file, content=content: file.write(content)
    names = [*writers, SUMMARY, PAGE]

    def write_summary(**values: Any) -> None:
        text = json.dumps({"kind": kind, **values}, indent=2) + "\n"
        write_atomically(option, folder / SUMMARY, lambda file: file.write(text.encode()))

    make_directory(option, folder)
    older = _files_of(folder) or frozenset()
    write_summary(complete=False, report=sorted({*names, *older}))
    for name in older - {SUMMARY}:
        with accessible(f"{option} '{folder / name}'", "must not stay from an older report"):
            (folder / name).unlink(missing_ok=True)
    for name, write in writers.items():
        write_atomically(option, folder / name, write, like=folder / SUMMARY)
    kept = None if match is None else len(match.mass)
    write_summary(**{"complete": True, **summary, "pairs_kept": kept, "report": names})
    return [str(folder / name) for name in names]


def read_record(folder: Path) -> Record:
    """Read and check what `write_record` wrote."""
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
        each: Drawn(*(_picture(folder / f"{each}{theme}.png") for theme in THEMES))
        for each in PICTURES
        if f"{each}.png" in listed
    }
    return Record(kind, summary, match, pictures)


def _match(path: Path, summary: Fields) -> Match:
    """The match of this summary, and not of another problem."""
    match = read_match(path)
    sizes = {"source": len(match.source.names), "target": len(match.target.names), "pair": len(match.mass)}
    keys = ("sources", "targets", "pairs_kept")
    expected = {noun: summary.whole(key) for noun, key in zip(sizes, keys, strict=True)}
    if sizes != expected:
        rule, given = (" and ".join(counted(n, noun) for noun, n in each.items()) for each in (expected, sizes))
        raise InvalidInput(f"'{path}'", f"must hold the {rule} of the {SUMMARY}", given, AGAIN)
    return match


def _picture(path: Path) -> bytes:
    with trouble(f"'{path}'", "must be a whole PNG"):
        content = path.read_bytes()
    check_image(f"'{path}'", content, whole=True)
    return content


def _files_of(folder: Path) -> frozenset[str] | None:
    """The files of the record in this folder, complete or not; None if there is no record."""
    try:
        found = read_fields(folder / SUMMARY)
        names = found.texts("report")
    except InvalidInput:
        return None
    is_ours = found.values.get("kind") in (SOLVE, ADAPTATION) and type(found.values.get("complete")) is bool
    return frozenset(names) & frozenset(FILES) if is_ours else None
