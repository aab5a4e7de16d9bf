"""``adaptive-ot predict``: images in, a table of classes out."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from rich.console import Console

from adaptive_ot import InvalidInput, deep
from adaptive_ot.deep.data.images import SUFFIXES
from adaptive_ot.deep.data.layouts import entries
from adaptive_ot.workbench.cli import files, show
from adaptive_ot.workbench.cli.options import named
from adaptive_ot.workbench.cli.progress import training_bar
from adaptive_ot.workbench.files import as_csv, write_atomically
from adaptive_ot.workbench.wording import counted

SHOWN = 12


def predict(
    run: Path, images: Sequence[Path], output: Path, on_bad_image: Literal["error", "skip"], device: str
) -> int:
    """Find the images, ask the network, write the table and say what is in it."""
    files.check_output(output, (".csv",), inputs=tuple(images))
    found = list(dict.fromkeys(file for path in images for file in _images(path)))
    if not found:
        raise InvalidInput("images", "must be at least one", "none", f"Known are {', '.join(SUFFIXES)}.")
    with named("device", "on_bad_image"), training_bar() as progress:
        predictions = deep.predict(run, found, on_bad_image=on_bad_image, device=device, progress=progress)
    _write(output, predictions)
    console = Console()
    show.title(console, f"{counted(len(predictions.files), 'image')} by {run}")
    most = Counter(predictions.labels).most_common()
    more = f" and {len(most) - SHOWN} more classes" if len(most) > SHOWN else ""
    show.line(console, "predicted", ", ".join(f"{name}: {n}" for name, n in most[:SHOWN]) + more)
    if predictions.bad:
        shown = "; ".join(f"{name}: {reason}" for name, reason in predictions.bad[:3])
        show.line(console, "left out", f"{counted(len(predictions.bad), 'image')} ({shown})")
    show.line(console, "written", str(output))
    return 0


def _images(path: Path) -> Iterator[Path]:
    """A file, or all images below a directory, in the order of their names."""
    if not path.exists():
        raise InvalidInput(f"images '{path}'", "must exist", "no such file or directory", "Check the path.")
    yield from _below(path, path) if path.is_dir() else [path]


def _below(root: Path, folder: Path) -> Iterator[Path]:
    for each in entries(root, folder):
        if each.is_dir(follow_symlinks=False):
            yield from _below(root, Path(each.path))
        elif each.name.lower().endswith(SUFFIXES):
            yield Path(each.path)


def _write(output: Path, predictions: deep.Predictions) -> None:
    rows = zip(predictions.files, predictions.labels, predictions.confidence, strict=True)
    cells = ((os.fspath(file), label, f"{sure:.6g}") for file, label, sure in rows)
    content = as_csv(["file", "label", "confidence"], cells)
    write_atomically("--output", output, lambda file: file.write(content))
