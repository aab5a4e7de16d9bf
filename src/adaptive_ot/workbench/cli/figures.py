"""``adaptive-ot figures``: the figures of the paper, from digits that come with scikit-learn, a run, or features."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from rich.console import Console

from adaptive_ot import InvalidInput, plot, solve
from adaptive_ot.workbench.cli import show
from adaptive_ot.workbench.cli.options import named
from adaptive_ot.workbench.cli.progress import steps_bar
from adaptive_ot.workbench.cli.samples import TOY_COST
from adaptive_ot.workbench.files import make_directory, write_atomically
from adaptive_ot.workbench.report.figures import Domains, class_to_drop, figures_of
from adaptive_ot.workbench.report.pictures import saved
from adaptive_ot.workbench.wording import counted

# Samples of either domain, at most.
SAMPLES = 1000

EQUAL_WEIGHTS = "all images weigh the same; 'adaptive-ot report' shows the plan of the run's own method and weights"


class Request(NamedTuple):
    """What the user typed."""

    output: Path
    run: Path | None
    root: Path | None
    dataset: Path | None
    source: str | None
    target: str | None
    drop: str | None
    sensitivity: Path | None
    format: Literal["png", "svg", "pdf"]
    theme: Literal["light", "dark"]


def run(request: Request) -> int:
    """Draw all of them, and say where they are."""
    _check(request)
    with named(*request._fields):
        make_directory("output", request.output)
        with steps_bar() as progress:
            progress("features and probabilities of both domains")
            domains = _domains(request)
            drop = class_to_drop(domains, request.drop)
            figures = dict(_figures(request, domains, drop))
        with steps_bar(len(figures)) as progress:
            for name, draw in figures.items():
                path = request.output / f"{name}.{request.format}"
                progress(f"drawing {path}")
                content = saved(draw, request.theme, request.format)
                write_atomically("output", path, lambda file, content=content: file.write(content))
    console, sizes = Console(), (counted(len(domains.x), "source"), counted(len(domains.z), "target"))
    show.title(console, f"Figures of {' and '.join(sizes)}; the class that is dropped is {domains.classes[drop]}")
    if request.run:
        show.line(console, "weights", EQUAL_WEIGHTS)
    for name in figures:
        show.line(console, "figure", str(request.output / f"{name}.{request.format}"))
    return 0


def _check(request: Request) -> None:
    """Options that do not go together are refused by name."""
    if request.run and request.dataset:
        raise InvalidInput("--run", "does not go with --dataset", request.dataset, "Leave one of them away.")
    if request.root and not request.run:
        raise InvalidInput("--root", "goes with --run", "none", "Leave it away, or name the run.")
    for name in ("source", "target"):
        given = getattr(request, name)
        if request.dataset and given is None:
            raise InvalidInput(f"--{name}", "is needed with --dataset", "none", "Name a domain of the dataset.")
        if given is not None and not request.dataset:
            raise InvalidInput(f"--{name}", "goes with --dataset", repr(given), "Leave it away, or name the dataset.")


def _domains(request: Request) -> Domains:
    if request.run:
        return _of_run(request.run, request.root)
    if request.dataset:
        return _of_dataset(request.dataset, str(request.source), str(request.target))
    return _of_digits()


def _figures(request: Request, domains: Domains, drop: int) -> Iterator[tuple[str, Callable[[], Any]]]:
    yield "toy", lambda: plot.transport(solve(TOY_COST))
    yield from figures_of(domains, drop)
    if request.run:
        from adaptive_ot.deep.run_directory import read_account

        lines = read_account(request.run).lines
        yield "training", lambda: plot.training(lines)
    if request.sensitivity:
        yield "sensitivity", _sensitivity(request.sensitivity)


def _of_run(run: Path, root: Path | None) -> Domains:
    from adaptive_ot.deep.embedding import embed

    found = embed(run, root=root, samples=SAMPLES)
    source, target = found.source, found.target
    x, z, q = (each.double().cpu().numpy() for each in (source.features, target.features, target.probabilities))
    return Domains(x, z, q, source.labels, target.labels, found.classes)


def _of_dataset(path: Path, source: str, target: str) -> Domains:
    from adaptive_ot.workbench.benchmark.domains import read_dataset
    from adaptive_ot.workbench.benchmark.draws import draw

    dataset = read_dataset(path)
    for option, name in (("source", source), ("target", target)):
        if name not in dataset.domains:
            remedy = f"Choose from: {', '.join(dataset.domains)}."
            raise InvalidInput(option, f"must be a domain of '{path}'", repr(name), remedy)
    if source == target:
        raise InvalidInput("target", "must be another domain than the source", repr(target), "Choose another.")
    drawn = draw(dataset, source, target, seed=0, samples=SAMPLES)
    return _adapted(drawn.x_source, drawn.y_source, drawn.x_target, drawn.y_target, dataset.names)


def _of_digits() -> Domains:
    from adaptive_ot.workbench.cli.digits import shifted_digits

    digits = shifted_digits(missing=(), outliers=0.0)
    some = slice(SAMPLES)
    names = tuple(map(str, range(10)))
    return _adapted(digits.x[some], digits.y[some], digits.z[some], digits.true_class[some], names)


def _adapted(x: np.ndarray, y: np.ndarray, z: np.ndarray, truth: np.ndarray, classes: tuple[str, ...]) -> Domains:
    """With the probabilities that an adapted classifier gives; it does not see the labels of the target."""
    from adaptive_ot.adapt import JointTransportClassifier
    from adaptive_ot.workbench.benchmark.method import stacked

    features, labels, domain = stacked(x, y, z)
    model = JointTransportClassifier().fit(features, labels, sample_domain=domain)
    q = np.zeros((len(z), len(classes)))
    q[:, model.classes_] = model.predict_proba(z)
    return Domains(x, z, q, y, truth, classes)


def _sensitivity(directory: Path) -> Callable[[], Any]:
    from adaptive_ot.workbench.benchmark.journal import read_benchmark
    from adaptive_ot.workbench.benchmark.sensitivity import curves

    plan, outcomes = read_benchmark(directory)
    if "grid" not in plan.settings:
        rule, remedy = "must be a study of sensitivity", "Name the --output of 'benchmark sensitivity'."
        raise InvalidInput(f"--sensitivity '{directory}'", rule, "another benchmark", remedy)
    return lambda: curves(plan, outcomes)
