"""The commands that show results and their options; what they do is in reporting.py and figures.py."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from adaptive_ot.workbench.cli.options import Whole


def report(
    path: Path,
    /,
    *,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
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
        Of a training run: the most images of either domain that are looked at; 1000, if not given.
    device
        Of a training run: where its network looks at them, as PyTorch names it; a GPU, if there is one and nothing else
        is given.
    """
    from adaptive_ot.workbench.cli.reporting import run

    return run(path, output, root, samples, device)


def figures(
    *,
    output: Annotated[Path, Parameter(alias="-o")],
    run: Path | None = None,
    root: Path | None = None,
    dataset: Path | None = None,
    source: str | None = None,
    target: str | None = None,
    drop: str | None = None,
    sensitivity: Path | None = None,
    format: Literal["png", "svg", "pdf"] = "png",
    theme: Literal["light", "dark"] = "light",
) -> int:
    """Draw the figures of the paper from real results: of digits that come with scikit-learn, if nothing is named.

    Parameters
    ----------
    output
        The directory for the figures.
    run
        A finished training run: some of its images, as its network sees them.
    root
        With --run: where its dataset is now; where it was, if not given.
    dataset
        Features of several domains, as for "benchmark features"; a classifier is adapted to them.
    source
        With --dataset: the domain with labels.
    target
        With --dataset: the domain whose labels are only used to sort the figures.
    drop
        The class that is missing in the target of some of them; the one that it has most of, if not given.
    sensitivity
        The directory of a study by "benchmark sensitivity", to draw its curves, too.
    format
        Of the files.
    theme
        For a light or for a dark background.
    """
    from adaptive_ot.workbench.cli.figures import Request
    from adaptive_ot.workbench.cli.figures import run as draw

    return draw(Request(output, run, root, dataset, source, target, drop, sensitivity, format, theme))
