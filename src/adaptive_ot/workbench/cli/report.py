"""``adaptive-ot report``: a directory in, a page out."""

from __future__ import annotations

from pathlib import Path

from adaptive_ot.workbench.cli import show
from adaptive_ot.workbench.cli.options import OptionalOutput, Whole, named
from adaptive_ot.workbench.cli.progress import steps_bar
from adaptive_ot.workbench.report import write_report


def report(
    path: Path,
    /,
    *,
    output: OptionalOutput = None,
    root: Path | None = None,
    samples: Whole | None = None,
    device: str | None = None,
) -> int:
    """Write one HTML page about a solve, an adaptation, a training run or a benchmark: open it in any browser.

    The page holds everything it shows, images and names of files included. See docs/report.md.

    Parameters
    ----------
    path
        The directory of a training run or a benchmark, or one that "solve" or "adapt" wrote with --report.
    output
        Where to write the page, as .html; by default report.html in that directory.
    root
        Of a training run: where its dataset is now; where it was, if not given.
    samples
        Of a training run: the most images of either domain that are shown; 1000, if not given.
    device
        Of a training run: where its network runs, as PyTorch names it; by default a GPU if there is one.
    """
    with named("output", "root", "samples", "device"), steps_bar() as progress:
        place = write_report(path, output, root=root, samples=samples, device=device, progress=progress)
    show.line("report", str(place))
    return 0
