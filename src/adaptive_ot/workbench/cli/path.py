"""``adaptive-ot path``: what every mass costs, and which to choose."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cyclopts import Parameter

from adaptive_ot import MassPath, mass_path
from adaptive_ot.workbench.cli import outputs, show
from adaptive_ot.workbench.cli.inputs import Cost, ProblemOptions, Targets
from adaptive_ot.workbench.cli.options import Flag, OptionalOutput
from adaptive_ot.workbench.cli.progress import solve_bar
from adaptive_ot.workbench.files import as_csv, write_atomically
from adaptive_ot.workbench.wording import counted, sources_and_targets

PICTURES = (".png", ".svg", ".pdf")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PathOptions(ProblemOptions):
    """Everything beside the cost.

    Parameters
    ----------
    output
        Where to write the corners of the path, as .csv: mass, least cost of moving it, price of a unit from there on.
    plot
        Where to draw the path: .png, .svg or .pdf.
    json
        Print a summary for programs.
    """

    output: OptionalOutput = None
    plot: Path | None = None
    json: Flag = False


def path(cost: Cost, targets: Targets = None, /, *, options: PathOptions = PathOptions()) -> int:
    """What it costs to move every mass: which one to choose for partial transport.

    Files are as for "solve".
    """
    inputs, output, plot = options.files(cost, targets), options.output, options.plot
    if output:
        outputs.check_output(output, (".csv",), inputs=inputs)
    if plot:
        outputs.check_output(plot, PICTURES, inputs=inputs, option="--plot")
    problem, weights = options.read_cost(cost, targets, default_reach=0.0).cost, options.read_weights()
    started = time.perf_counter()
    with solve_bar() as progress, options.named(cost):
        found = mass_path(problem, **weights, progress=progress)
    summary = _summary(found, time.perf_counter() - started, output, plot)
    if targets is not None and options.reach is None:
        summary["adaptive"] = None  # prices are squared distances, none of which pays off
    if output:
        _write_corners(output, found)
    if plot:
        from adaptive_ot.plot import mass_path as draw

        figure: Any = draw(found).figure
        write_atomically("--plot", plot, lambda file: figure.savefig(file, format=plot.suffix[1:].lower()))
    show.result(summary, options.json, _show)
    return 0


def _write_corners(path: Path, found: MassPath) -> None:
    """The corners as .csv: mass, least cost, and the price of a unit from there on, which the last one lacks."""
    mass, value, price = ([f"{number:.17g}" for number in side] for side in (found.mass, found.value, found.price))
    content = as_csv(["mass", "value", "price"], zip(mass, value, [*price, ""], strict=True))
    write_atomically("--output", path, lambda file: file.write(content))


def _summary(path: MassPath, seconds: float, output: Path | None, plot: Path | None) -> dict[str, Any]:
    """The mass path as plain numbers and strings."""
    n, m = path.problem.cost.shape
    pieces = int(path.price.size)

    def at(mass: float | None) -> dict[str, float] | None:
        return None if mass is None else {"mass": mass, "value": path.value_at(mass)}

    return {
        "sources": n,
        "targets": m,
        "most_mass": path.most_mass,
        "pieces": pieces,
        "first_price": float(path.price[0]) if pieces else None,
        "last_price": float(path.price[-1]) if pieces else None,
        **{name: at(mass) for name, mass in path.suggest()._asdict().items()},
        "seconds": seconds,
        "output": None if output is None else str(output),
        "plot": None if plot is None else str(plot),
    }


def _show(of: dict[str, Any]) -> None:
    def suggestion(name: str, meaning: str) -> str | None:
        return of[name] and f"mass {of[name]['mass']:.12g}, value {of[name]['value']:.12g} ({meaning})"

    show.title(f"Mass path of {sources_and_targets(of['sources'], of['targets'], 'to')}")
    show.lines(
        {
            "mass": f"0 to {of['most_mass']:.12g} in {counted(of['pieces'], 'piece')}",
            "price": f"{of['first_price']:.6g} to {of['last_price']:.6g} a unit" if of["pieces"] else None,
            "adaptive": suggestion("adaptive", "all that pays"),
            "elbow": suggestion("elbow", "what has a near partner") or "none",
            "effort": f"{of['seconds']:.2f} s",
            "output": of["output"],
            "plot": of["plot"],
        }
    )
