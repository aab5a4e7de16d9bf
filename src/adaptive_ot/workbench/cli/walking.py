"""``adaptive-ot path``: what every mass costs, and which to choose."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from adaptive_ot import mass_path
from adaptive_ot.workbench.cli import files, show
from adaptive_ot.workbench.cli.inputs import Inputs
from adaptive_ot.workbench.cli.progress import progress_bar
from adaptive_ot.workbench.files import write_atomically

PICTURES = (".png", ".svg", ".pdf")


class Request(NamedTuple):
    """What the user typed."""

    inputs: Inputs
    output: Path | None
    plot: Path | None
    json: bool


def run(request: Request) -> int:
    """Walk along all masses, print a summary, write the corners and draw the path."""
    inputs, output, plot = request.inputs, request.output, request.plot
    if output:
        files.check_output(output, (".csv",), inputs=inputs.paths)
    if plot:
        files.check_output(plot, PICTURES, inputs=inputs.paths, option="--plot")
    distances = inputs.targets is not None and inputs.reach is None
    if distances:  # prices are then squared distances, of which none pays
        inputs = inputs._replace(reach=0.0)
    cost, weights = inputs.read_cost(), inputs.read_weights()
    started = time.perf_counter()
    with progress_bar() as progress, inputs.named():
        path = mass_path(cost, *weights, progress=progress)
    seconds = time.perf_counter() - started
    if output:
        files.write_path(output, path)
    if plot:
        from adaptive_ot.plot import mass_path as draw

        figure: Any = draw(path).figure
        kind = plot.suffix[1:].lower()
        write_atomically("--plot", plot, lambda file: figure.savefig(file, format=kind))
    summary = show.path_summary(path, seconds, output, plot) | ({"adaptive": None} if distances else {})
    if request.json:
        print(json.dumps(summary, indent=2))
    else:
        show.path(Console(), summary)
    return 0
