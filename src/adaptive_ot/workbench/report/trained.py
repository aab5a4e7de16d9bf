"""The page of a training run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from adaptive_ot import plot
from adaptive_ot.deep.config import Config
from adaptive_ot.deep.data.domain import UNKNOWN, domains_of
from adaptive_ot.deep.device import pick_device
from adaptive_ot.deep.embedding import Embedding, Side, embed
from adaptive_ot.deep.methods.aot import AOT
from adaptive_ot.deep.result import Result
from adaptive_ot.deep.run_directory import METRICS, read_metrics, read_run
from adaptive_ot.errors import AdaptiveOTError
from adaptive_ot.workbench import wording
from adaptive_ot.workbench.report.contents import Facts, Note, Page, Part, Picture, Samples, Table
from adaptive_ot.workbench.report.fields import folded
from adaptive_ot.workbench.report.matches import BY_CLASS, explorer, match_of, weigh_the_same
from adaptive_ot.workbench.report.pictures import drawn, thumbnails

# Values of a metrics line that make no curve.
NOT_DRAWN = {"step", "mean_class_accuracy", "per_class"}

CAPACITIES = (
    "Sources do not weigh the same: classes of the source may send more where they seem frequent in the target."
)
NEIGHBOURS = "The class of a target image is taken from its neighbours in the target, not from its own prediction."
EVALUATED = (
    "The network sees these images as in an evaluation: BatchNorm uses running statistics of both domains together. "
    "Mass and purity of the result were measured in training, where each domain has the statistics of its own batches, "
    "and may be higher."
)

JUDGED = "judged by labels of the target, which the training never sees"


def page_of(path: Path, *, root: Path | None, samples: int, device: str, report: Callable[[str], None]) -> Page:
    """How a run went, finished or not; if finished, also the match of some images by its network and its method."""
    run, lines = read_run(path), read_metrics(path)
    config, environments = run.config, run.record["environments"]
    result = None if run.result is None else Result.of(run.result, path)
    parts: list[Part] = [_result(result) if result else _so_far(lines, config.iterations)]
    if any(set(line) - NOT_DRAWN for line in lines):
        report("drawing how it went")
        text = "Accuracy on the target, and the mass that the plan moves, over the steps of the training."
        parts.append(Picture("Training", *drawn(lambda: plot.training(lines)), text))
    elif result:
        parts.append(Note(f"How the training went cannot be drawn: {METRICS} holds no numbers.", "warning"))
    parts += _classes(result, lines)
    if result and result.open_set:
        heading, text = wording.OPEN_SET
        parts.append(Table("Unknown classes", heading, wording.open_set(result.open_set), text))
    if result:
        parts += _explored(path, config, root, samples, device, report)
    parts.append(folded("Configuration", config.record()))
    for number, each in enumerate(environments, start=1):
        heading = "Environment" if len(environments) == 1 else f"Environment {number}"
        parts.append(folded(heading, each if isinstance(each, Mapping) else {"unknown": each}))
    title = f"{config.method}: {config.source} to {config.target}"
    return Page(title, f"A training run of adaptive-ot on {config.dataset}", parts)


def _result(result: Result) -> Facts:
    said = wording.trained(result, chosen=JUDGED, judged=JUDGED)
    return Facts("Result", [(label, text) for label, text in said.items() if text])


def _so_far(lines: list[dict[str, Any]], iterations: int) -> Note:
    step = int(lines[-1]["step"]) + 1 if lines else 0
    last = next((line for line in reversed(lines) if "accuracy" in line), None)
    so_far = f" It had {last['accuracy']:.1%} of the target right at step {int(last['step']) + 1:,}." if last else ""
    return Note(
        f"This run is not finished: it was at step {step:,} of {iterations:,}.{so_far} Give the same command "
        "again to continue. Who is matched with whom can be seen when it is finished.",
        "warning",
    )


def _classes(result: Result | None, lines: list[dict[str, Any]]) -> list[Table]:
    """The accuracy of every class, after the last step or at the last evaluation."""
    evaluated = [line for line in lines if "per_class" in line]
    if result:
        per_class, when = result.per_class, "After the last step."
    elif evaluated:
        per_class, when = evaluated[-1]["per_class"], f"At step {evaluated[-1]['step'] + 1:,}."
    else:
        return []
    rows = [(name, round(100 * accuracy, 1)) for name, accuracy in per_class.items()]
    return [
        Table("Accuracy by class", ("class", "accuracy in percent"), rows, f"{when} Judged by labels of the target.")
    ]


def _explored(
    path: Path, config: Config, root: Path | None, samples: int, device: str, report: Callable[[str], None]
) -> list[Part]:
    """The plan over some images, or a note why there is none. Wrong arguments of the caller are refused."""
    pick_device(device)
    if root is not None:
        domains_of(replace(config, root=root))
    try:
        embedding = embed(path, root=root, samples=samples, device=device, progress=report)
    except AdaptiveOTError as error:
        remedy = "If the data have moved, say with --root where they are now."
        return [Note(f"Who is matched with whom cannot be shown: {error} {remedy}", "warning")]
    report("matching the images")
    return _matched(embedding, config)


def _matched(embedding: Embedding, config: Config) -> list[Part]:
    source, target, classes, method = embedding.source, embedding.target, embedding.classes, embedding.method
    parts: list[Part] = []
    if not isinstance(method, AOT):
        method = AOT(AOT.defaults(), source.features.shape[1], len(classes))
        text = f"The method {config.method} makes no plan itself. This one is by the scale-free cost of AOT."
        parts.append(Note(text))
    solution = method.match(embedding.pair())
    if not solution.status.succeeded:
        parts.append(Note(f"The plan is not as precise as asked: {solution.status.value}.", "warning"))
    classes = *classes, UNKNOWN
    problem, names = solution.problem, np.array(classes)
    caption = (
        f"{len(source.names):,} images of {config.source}, as many of every class as there are, and "
        f"{len(target.names):,} of {config.target}, at random. Labels of the target are shown, and not used."
    )
    if not weigh_the_same(problem.source_weights):
        caption = f"{caption} {CAPACITIES}"
    if method.neighbours is not None:
        caption = f"{caption} {NEIGHBOURS}"
    if config.passes == "two":
        caption = f"{caption} {EVALUATED}"
    picture = drawn(lambda: plot.label_plan(solution, names[source.labels], names[target.labels]))
    heading, text = BY_CLASS
    parts.append(Picture(heading, *picture, text, caption))
    sides = (source, problem.source_weights), (target, problem.target_weights)
    match = match_of(solution, *(_samples(side, weights, classes) for side, weights in sides))
    return [*parts, explorer(match, len(solution.support[0]), solution.mass)]


def _samples(side: Side, weights: np.ndarray, classes: tuple[str, ...]) -> Samples:
    predicted = side.probabilities.argmax(1).cpu().numpy()
    return Samples(
        names=side.names,
        weights=weights,
        labels=[classes[k] for k in side.labels],
        predicted=[classes[k] for k in predicted],
        images=thumbnails(side.thumbnails),
    )
