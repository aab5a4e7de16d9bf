"""The part of the demo with handwritten digits: a table of transport models, and pictures of adaptive transport."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from adaptive_ot import AtMost, Equal, FixedMass, Marginals, SoftKL, plot
from adaptive_ot.adapt import JointTransportClassifier
from adaptive_ot.workbench.benchmark.method import stacked
from adaptive_ot.workbench.benchmark.sampling import DomainPair
from adaptive_ot.workbench.cli import adapt_report, outputs, show
from adaptive_ot.workbench.cli.adapt_report import Adaptation
from adaptive_ot.workbench.cli.digits import BLUR, DEGREES, MISSING, OUTLIERS, Digits, shifted_digits
from adaptive_ot.workbench.cli.progress import steps_bar
from adaptive_ot.workbench.feature_files import Features
from adaptive_ot.workbench.report.pictures import thumbnails

# Nothing but these differs between the rows of the table.
MODELS: dict[str, Marginals | None] = {
    "source only": None,
    "Kantorovich: all moves": Equal(),
    "partial, mass 0.25": FixedMass(0.25),
    "partial, mass 0.5": FixedMass(0.5),
    "partial, mass 0.75": FixedMass(0.75),
    "unbalanced, tau 0.5": SoftKL(0.5),
    "adaptive": AtMost(),
}

# Random halves of the digits: a single one could favour any model.
DRAWS = 3

# Rows and columns of images on either side of the picture.
GRID = 6, 8


class Score(NamedTuple):
    """How a model did; every number is a share, and NaN where there is no plan."""

    accuracy: float
    mass: float
    outliers_left: float
    digits_left: float


def run(draw: Callable[[Any, str], None], folder: Path) -> None:
    """Print the table; draw the first adaptive plan, and write a report of it into a folder."""
    draws = [shifted_digits(seed) for seed in range(DRAWS)]
    results: dict[str, list[Score]] = {name: [] for name in MODELS}
    models: dict[str, tuple[Any, float]] = {}
    with steps_bar(len(MODELS) * DRAWS) as progress:
        for number, digits in enumerate(draws, start=1):
            for name, marginals in MODELS.items():
                progress(f"draw {number} of {DRAWS}: {name}")
                started = time.perf_counter()
                model = fitted(digits, marginals)
                models.setdefault(name, (model, time.perf_counter() - started))
                results[name].append(judge(digits, model))
    first, (adaptive, seconds) = draws[0], models["adaptive"]
    show.title("Handwritten digits, and a tilted, blurred and paler scan of others")
    show.line("source", f"{len(first.y)} digits with labels")
    show.line(
        "target",
        f"{len(first.z)} images, turned by {DEGREES:g} degrees, blurred by {BLUR:g} pixels; no "
        f"{', '.join(map(str, MISSING))}; {OUTLIERS:.0%} are shuffled pixels",
    )
    show.line("in common", f"mass {common_mass(first):.2f}, if all were matched within classes")
    show.line("labels", "those of targets are only used for this table and for sorting, never to fit")
    Console().print(table(results))
    show.line("columns", "accuracy on the target's digits, mass moved, outliers and digits left alone")
    best = max(results, key=lambda name: np.mean([each.accuracy for each in results[name]]))
    if best != "adaptive":
        show.line("best", f"{best}: a setting that suits these digits; adaptive transport has none to choose")
    show.line("draws", f"means of {DRAWS} random halves, +- the standard deviation; pictures of the first")
    names = first.y.astype(str), np.where(first.outlier, "outlier", first.true_class.astype(str))
    draw(plot.plan(adaptive.solution_, *names).figure, "plan.png")
    draw(plot.label_plan(adaptive.solution_, *names).figure, "labels.png")
    draw(left_alone(first, adaptive.target_outlier_score_, adaptive.active_target_), "left_alone.png")
    with steps_bar() as progress:
        progress("writing the report")
        written = report(folder, first, adaptive, names[1], seconds)
    show.line("report", show.report(written) or "")


def report(
    folder: Path, digits: Digits, model: JointTransportClassifier, truth: np.ndarray, seconds: float
) -> list[str]:
    """The report of an adaptation, with images to look at; the names of its files."""
    images = [thumbnails(np.rint(255 * (1 - side.reshape(-1, 8, 8))).astype(np.uint8)) for side in (digits.x, digits.z)]
    both = Features(digits.x, digits.y), Features(digits.z, truth)
    done = Adaptation(model, *both, model.predict(digits.z), None, (images[0], images[1]))
    configuration = {"source": "digits of scikit-learn", "target": "another scan of them", "method": "joint"}
    outputs.check_report(folder, inputs=())
    return adapt_report.write(folder, done, adapt_report.summary(done, "joint", seconds), configuration)


def fitted(digits: Digits, marginals: Marginals | None) -> JointTransportClassifier:
    """The classifier after adaptation with a model, or without adaptation if there is none; no true class is read."""
    if marginals is None:
        return JointTransportClassifier().fit(digits.x, digits.y)
    features, labels, domain = stacked(digits.x, digits.y, digits.z)
    return JointTransportClassifier(marginals=marginals).fit(features, labels, sample_domain=domain)


def judge(digits: Digits, model: JointTransportClassifier) -> Score:
    """Accuracy on the target's digits, the mass, and the shares left alone."""
    outlier = digits.outlier
    accuracy = float(np.mean((model.predict(digits.z) == digits.true_class)[~outlier]))
    if not len(model.active_target_):
        return Score(accuracy, np.nan, np.nan, np.nan)
    left = ~model.active_target_
    return Score(accuracy, model.transported_mass_, float(left[outlier].mean()), float(left[~outlier].mean()))


def common_mass(digits: Digits) -> float:
    """The mass that could move if classes were known: the smaller share of each class."""
    return DomainPair(*digits).overlap


def table(results: dict[str, list[Score]]) -> Table:
    """A row for every model: means over draws, and the spread of the accuracy."""
    shown = Table(box=SIMPLE_HEAD)
    shown.add_column("model", no_wrap=True)
    for heading in ("accuracy", "mass", "outliers left", "digits left"):
        shown.add_column(heading, justify="right", no_wrap=True)
    best = max(np.mean([each.accuracy for each in of]) for of in results.values())
    for name, of in results.items():
        mean = Score(*np.mean(of, axis=0))
        spread = 100 * np.std([each.accuracy for each in of], ddof=1)
        shares = f"{mean.mass:.2f}", f"{mean.outliers_left:.0%}", f"{mean.digits_left:.0%}"
        of_plan = shares if np.isfinite(mean.mass) else ("-", "-", "-")
        style = "bold" if mean.accuracy == best else ""
        shown.add_row(name, f"{mean.accuracy:.1%} +- {spread:.1f}", *of_plan, style=style)
    return shown


def left_alone(digits: Digits, score: np.ndarray, active: np.ndarray) -> Any:
    """The targets of the highest outlier scores as images, and some that were matched; true outliers are framed."""
    from adaptive_ot.plot.canvas import VERMILLION, new_figure

    order = np.argsort(-score, kind="stable")
    count = GRID[0] * GRID[1]
    matched = np.flatnonzero(active)
    evenly = matched[np.arange(count) * len(matched) // count]
    figure = new_figure((11, 4.8))
    halves: Any = figure.subfigures(1, 2, wspace=0.05)
    sides = (
        ("left alone", "the highest outlier scores", order[:count]),
        ("matched", f"{count} of {len(matched)}", evenly),
    )
    for half, (title, which, chosen) in zip(halves, sides, strict=True):
        strange = int(np.count_nonzero(digits.outlier[chosen]))
        half.suptitle(f"{title}: {which}\n{strange} of {count} true outliers (framed)", fontsize="medium")
        for ax, index in zip(half.subplots(*GRID).flat, chosen, strict=True):
            ax.imshow(digits.z[index].reshape(8, 8), "gray_r", vmin=0.0, vmax=1.0)
            ax.set(xticks=[], yticks=[])
            ax.spines[:].set_visible(bool(digits.outlier[index]))
            ax.spines[:].set(color=VERMILLION, linewidth=2.5)
    return figure
