"""``adaptive-ot figures``: the figures of the paper, from digits that come with scikit-learn, a run, or features."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
from cyclopts import Parameter

from adaptive_ot import InvalidInput, plot, solve
from adaptive_ot.workbench.cli import show
from adaptive_ot.workbench.cli.options import Output, named
from adaptive_ot.workbench.cli.progress import steps_bar
from adaptive_ot.workbench.cli.samples import TOY_COST
from adaptive_ot.workbench.files import make_directory, write_atomically
from adaptive_ot.workbench.report.figures import Domains, class_to_drop, figures_of
from adaptive_ot.workbench.report.pictures import saved
from adaptive_ot.workbench.wording import sources_and_targets

# Samples of either domain, at most.
SAMPLES = 1000

EQUAL_WEIGHTS = "all images weigh the same; 'adaptive-ot report' shows the plan of the run's own method and weights"


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class FigureOptions:
    """The data of the figures, and their files.

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
        The class that is missing in the target of some figures; its most frequent one, if not given.
    sensitivity
        The directory of a study by "benchmark sensitivity", to draw its curves, too.
    format
        Format of the files.
    theme
        For a light or for a dark background.
    """

    output: Output
    run: Path | None = None
    root: Path | None = None
    dataset: Path | None = None
    source: str | None = None
    target: str | None = None
    drop: str | None = None
    sensitivity: Path | None = None
    format: Literal["png", "svg", "pdf"] = "png"
    theme: Literal["light", "dark"] = "light"


def figures(*, options: FigureOptions) -> int:
    """Draw the figures of the paper from real results: of digits that come with scikit-learn, if nothing is named."""
    _check(options)
    with named(*(field.name for field in fields(FigureOptions))):
        make_directory("output", options.output)
        with steps_bar() as progress:
            progress("features and probabilities of both domains")
            domains = _domains(options)
            drop = class_to_drop(domains, options.drop)
            drawings = dict(_drawings(options, domains, drop))
        places = [options.output / f"{name}.{options.format}" for name in drawings]
        with steps_bar(len(drawings)) as progress:
            for path, draw in zip(places, drawings.values(), strict=True):
                progress(f"drawing {path}")
                content = saved(draw, options.theme, options.format)
                write_atomically("output", path, lambda file, content=content: file.write(content))
    sizes = sources_and_targets(len(domains.x), len(domains.z))
    show.title(f"Figures of {sizes}; the class that is dropped is {domains.classes[drop]}")
    show.lines({"weights": EQUAL_WEIGHTS if options.run else None})
    for path in places:
        show.line("figure", str(path))
    return 0


def _check(options: FigureOptions) -> None:
    """Refuse options that do not go together."""
    if options.run and options.dataset:
        raise InvalidInput("--run", "does not go with --dataset", options.dataset, "Omit one of them.")
    if options.root and not options.run:
        raise InvalidInput("--root", "goes with --run", "none", "Omit it, or name the run.")
    for name, given in (("--source", options.source), ("--target", options.target)):
        if options.dataset and given is None:
            raise InvalidInput(name, "is needed with --dataset", "none", "Name a domain of the dataset.")
        if given is not None and not options.dataset:
            raise InvalidInput(name, "goes with --dataset", repr(given), "Omit it, or name the dataset.")


def _domains(options: FigureOptions) -> Domains:
    if options.run:
        return _of_run(options.run, options.root)
    if options.dataset:
        return _of_dataset(options.dataset, str(options.source), str(options.target))
    return _of_digits()


def _drawings(options: FigureOptions, domains: Domains, drop: int) -> Iterator[tuple[str, Callable[[], Any]]]:
    yield "toy", lambda: plot.transport(solve(TOY_COST))
    yield from figures_of(domains, drop)
    if options.run:
        from adaptive_ot.deep.run_directory import read_metrics

        lines = read_metrics(options.run)
        yield "training", lambda: plot.training(lines)
    if options.sensitivity:
        yield "sensitivity", _sensitivity(options.sensitivity)


def _of_run(run: Path, root: Path | None) -> Domains:
    from adaptive_ot.deep.embedding import embed

    found = embed(run, root=root, samples=SAMPLES)
    source, target = found.source, found.target
    x, z, q = (each.double().cpu().numpy() for each in (source.features, target.features, target.probabilities))
    return Domains(x, z, q, source.labels, target.labels, found.classes)


def _of_dataset(path: Path, source: str, target: str) -> Domains:
    from adaptive_ot.workbench.benchmark.domains import read_dataset
    from adaptive_ot.workbench.benchmark.sampling import sample_pair

    dataset = read_dataset(path)
    for option, name in (("source", source), ("target", target)):
        if name not in dataset.domains:
            remedy = f"Choose from: {', '.join(dataset.domains)}."
            raise InvalidInput(option, f"must be a domain of '{path}'", repr(name), remedy)
    if source == target:
        raise InvalidInput("target", "must be another domain than the source", repr(target), "Choose another.")
    drawn = sample_pair(dataset, source, target, seed=0, samples=SAMPLES)
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
    from adaptive_ot.workbench.benchmark.sensitivity import curves
    from adaptive_ot.workbench.benchmark.study import read_benchmark

    study, outcomes = read_benchmark(directory)
    if study.kind != "sensitivity":
        rule, remedy = "must be a study of sensitivity", "Name the --output of 'benchmark sensitivity'."
        raise InvalidInput(f"--sensitivity '{directory}'", rule, "another benchmark", remedy)
    return lambda: curves(study, outcomes)
