"""Pages that show what was matched, and what was left alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from adaptive_ot._validation import whole_number
from adaptive_ot.errors import InvalidInput
from adaptive_ot.workbench.files import check_place_for_file, one_with, suffix_of, trouble, write_atomically
from adaptive_ot.workbench.report import recorded
from adaptive_ot.workbench.report.html.page import render
from adaptive_ot.workbench.report.matches import MOST_SAMPLES
from adaptive_ot.workbench.report.record import PAGE, SUMMARY, read_record

__all__ = ["MOST_SAMPLES", "write_report"]

# Images of a training run that are looked at by default.
SAMPLES = 1000

# The file by which a directory of each kind is known; beside them, SUMMARY.
TRAINING, BENCHMARK = "run.json", "plan.json"


def write_report(
    path: Path | str,
    output: Path | str | None = None,
    *,
    root: Path | str | None = None,
    samples: int | None = None,
    device: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> Path:
    """Write one self-contained HTML page about a solve, an adaptation, a training run or a whole benchmark.

    Parameters
    ----------
    path
        The directory of a training run or a benchmark, or one that ``adaptive-ot solve`` or ``adapt`` wrote with
        ``--report``.
    output
        Where to write the page, as .html; by default `path`/report.html.
    root
        For a training run: where its dataset is now, if it has moved.
    samples
        For a training run: the most images of either domain that are looked at; by default 1000.
    device
        For a training run: the PyTorch device of its network. By default "auto": a GPU if there is one.
    progress
        Called with the name of every step before it begins.

    Returns
    -------
    The path of the page.

    Examples
    --------
    >>> write_report("nowhere")
    Traceback (most recent call last):
    adaptive_ot.errors.InvalidInput: path 'nowhere' must exist; got no such directory. Check the path.
    """
    path = Path(path)
    if samples is not None and whole_number("samples", samples, minimum=1) > MOST_SAMPLES:
        rule = f"must be at most {MOST_SAMPLES}, as many as can be looked at"
        raise InvalidInput("samples", rule, samples, "Choose fewer.")
    output = path / PAGE if output is None else Path(output)
    kind = _kind(path)
    _check_output(output)
    for name, given in (("root", root), ("samples", samples), ("device", device)):
        if given is not None and kind != TRAINING:
            raise InvalidInput(name, "goes with a training run", f"'{path}', which is none", "Omit it.")
    report = progress or (lambda _: None)
    report(f"reading {path}")
    if kind == TRAINING:
        from adaptive_ot.workbench.report import trained

        root = None if root is None else Path(root)
        page = trained.page_of(path, root=root, samples=samples or SAMPLES, device=device or "auto", report=report)
    elif kind == BENCHMARK:
        from adaptive_ot.workbench.report import benchmarked

        page = benchmarked.page_of(path)
    else:
        page = recorded.page_of(read_record(path))
    report(f"writing {output}")
    content = render(page).encode("utf-8", "replace")
    write_atomically("output", output, lambda file: file.write(content), like=path / kind)
    return output


def _kind(path: Path) -> str:
    name = f"path '{path}'"
    with trouble(name, "must be a directory that can be read"):
        if not path.exists():
            raise InvalidInput(name, "must exist", "no such directory", "Check the path.")
        if not path.is_dir():
            raise InvalidInput(name, "must be a directory", "a file", "Name the directory that it lies in.")
        found = sorted(each.name for each in path.iterdir())
    for kind in (TRAINING, BENCHMARK, SUMMARY):
        if kind in found:
            return kind
    rule = "must hold a training run, a benchmark, or what 'adaptive-ot solve' or 'adapt' wrote with --report"
    raise InvalidInput(name, rule, one_with(found), "Check the path.")


def _check_output(path: Path) -> None:
    name = f"output '{path}'"
    if path.suffix.lower() not in (".html", ".htm"):
        raise InvalidInput(name, "must end in .html", suffix_of(path), "Choose another name.")
    check_place_for_file(name, path)
