"""``adaptive-ot report``: a directory in, a page out."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from adaptive_ot.workbench.cli import show
from adaptive_ot.workbench.cli.options import named
from adaptive_ot.workbench.cli.progress import steps_bar
from adaptive_ot.workbench.report import write_report


def run(path: Path, output: Path | None, root: Path | None, samples: int | None, device: str | None) -> int:
    """Write the page, and say where it is."""
    with named("output", "root", "samples", "device"), steps_bar() as progress:
        place = write_report(path, output, root=root, samples=samples, device=device, progress=progress)
    show.line(Console(), "report", str(place))
    return 0
