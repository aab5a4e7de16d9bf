"""What an adaptation found: its summary, and the files it is written to."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console

from adaptive_ot import plot, report
from adaptive_ot._environment import environment
from adaptive_ot._files import write_atomically
from adaptive_ot.cli import show
from adaptive_ot.feature_files import Features
from adaptive_ot.report import record
from adaptive_ot.report.contents import Match, Samples
from adaptive_ot.report.fields import counted
from adaptive_ot.report.pictures import Drawn, drawn
from adaptive_ot.report.solutions import match_of

CLASSES_SHOWN = 12

PREDICTIONS, MOVED = record.RESULTS

# Features of a sample that a report shows.
COLUMNS_SHOWN = 8


class Adapted(NamedTuple):
    """A fitted estimator, its data, the labels of the targets or where the sources were moved to, and any images."""

    estimator: Any
    source: Features
    target: Features
    labels: np.ndarray | None
    moved: np.ndarray | None
    images: tuple[list[bytes] | None, list[bytes] | None] = None, None


def suffixes(method: str) -> tuple[str, ...]:
    """What a result can be written to."""
    return (".npz",) if method == "mapping" else (".csv",)


def summary(done: Adapted, method: str, seconds: float) -> dict[str, Any]:
    """What there is to say, as plain numbers and strings."""
    estimator = done.estimator
    classes: list[str] = [] if done.source.y is None else np.unique(done.source.y).astype(str).tolist()
    solution = estimator.solution_
    active = int(estimator.active_source_.sum()), int(estimator.active_target_.sum())
    found = {
        "method": method,
        "model": estimator.marginals.title,
        "sources": len(done.source.x),
        "targets": len(done.target.x),
        "features": done.source.x.shape[1],
        "classes": len(classes) or None,
        "mass": estimator.transported_mass_,
        **{name: None if solution is None else getattr(solution, name) for name in ("value", "gap", "violation")},
        "active_sources": active[0],
        "active_targets": active[1],
        "outlier_targets": len(done.target.x) - active[1],
        "predicted": None,
        "accuracy": None,
        "targets_of_unknown_classes": None,
        "seconds": seconds,
        "output": None,
        "report": None,
    }
    if done.labels is not None:
        labels, counts = np.unique(_sortable(done.labels), return_counts=True)
        found["predicted"] = {str(label): int(count) for label, count in zip(labels, counts, strict=True)}
        predicted, truth = _text(done.labels), _text(done.target.y)
        if truth is not None:
            rejected = getattr(estimator, "reject_label", None)
            called = [*classes, *([] if rejected is None else [rejected])]  # a target may rightly be rejected
            found["accuracy"] = float(np.mean(predicted == truth))
            found["targets_of_unknown_classes"] = int(np.count_nonzero(~np.isin(truth, called)))
    return found


def show_summary(console: Console, of: dict[str, Any]) -> None:
    """Print a summary."""
    classes = "" if of["classes"] is None else f", {counted(of['classes'], 'class')}"
    sizes = f"{counted(of['sources'], 'source')} to {counted(of['targets'], 'target')}"
    show.title(console, f"{of['model']} of {sizes} ({of['method']})")
    show.line(console, "data", f"{counted(of['features'], 'feature')}{classes}")
    show.line(console, "mass", f"{of['mass']:.6g} of 1")
    show.line(
        console,
        "active",
        f"{of['active_sources']} of {of['sources']} sources, {of['active_targets']} of {of['targets']} targets",
    )
    show.line(console, "outliers", f"{counted(of['outlier_targets'], 'target')}: less than half of each is matched")
    if of["predicted"] is not None:
        most = sorted(of["predicted"].items(), key=lambda item: -item[1])
        more = f" and {len(most) - CLASSES_SHOWN} more classes" if len(most) > CLASSES_SHOWN else ""
        show.line(console, "predicted", ", ".join(f"{label}: {n}" for label, n in most[:CLASSES_SHOWN]) + more)
    if of["accuracy"] is not None:
        unknown = of["targets_of_unknown_classes"]
        wrong = f"; {counted(unknown, 'target')} of classes unknown to the source count as wrong" if unknown else ""
        show.line(console, "accuracy", f"{of['accuracy']:.1%} of the target's labels, which were not used{wrong}")
    show.line(console, "effort", f"{of['seconds']:.2f} s")
    if of["output"]:
        show.line(console, "written", of["output"])
    if of["report"] and not any(path.endswith("plan.png") for path in of["report"]):
        show.line(console, "pictures", "none: so many samples take several plans")
    show.report(console, of["report"])


def write_result(option: str, path: Path, done: Adapted) -> None:
    """Labels and outlier scores of all targets as .csv, or moved sources as .npz that can be read as features again."""
    if done.labels is not None:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["index", "label", "outlier_score"])
        scores = done.estimator.target_outlier_score_
        writer.writerows(
            (index, label, f"{score:.6g}") for index, (label, score) in enumerate(zip(done.labels, scores, strict=True))
        )
        write_atomically(option, path, lambda file: file.write(text.getvalue().encode()))
        return
    arrays: dict[str, Any] = {"x": done.moved, "share": done.estimator.source_share_}
    if done.source.y is not None:
        arrays["y"] = done.source.y
    write_atomically(option, path, lambda file: np.savez(file, **arrays))


def write_report(folder: Path, done: Adapted, of: dict[str, Any], configuration: dict[str, Any]) -> list[str]:
    """Everything into a directory, in the place of an older report; the names of the files, the page last."""
    result = folder / (PREDICTIONS if done.moved is None else MOVED)
    write_result("--report", result, done)
    about = {**of, "configuration": configuration, "environment": environment()}
    names = record.write_record("--report", folder, record.ADAPTATION, about, _match(done), _pictures(done), [result])
    report.write_report(folder)
    return names


def _match(done: Adapted) -> Match | None:
    """Who was matched with whom, unless there are several plans or too many samples."""
    solution = done.estimator.solution_
    if solution is None or max(solution.problem.cost.shape) > report.MOST_SAMPLES:
        return None
    predicted = None if done.labels is None else _text(done.labels)
    source, target = _samples(done.source, None, done.images[0]), _samples(done.target, predicted, done.images[1])
    return match_of(solution, source, target)


def _samples(features: Features, predicted: np.ndarray | None, images: list[bytes] | None) -> Samples:
    """Images, if there are any, or the first features."""
    x, labels = features.x, _text(features.y)
    columns = features.columns or tuple(f"feature {k}" for k in range(x.shape[1]))
    return Samples(
        names=[f"#{k}" for k in range(len(x))],  # as in the predictions
        weights=np.full(len(x), 1 / len(x)),  # shares are of these, whatever a class may send
        labels=None if labels is None else labels.tolist(),
        predicted=None if predicted is None else predicted.tolist(),
        images=images,
        values=x[:, :COLUMNS_SHOWN] if images is None else None,
        columns=columns[:COLUMNS_SHOWN] if images is None else (),
    )


def _pictures(done: Adapted) -> dict[str, Drawn]:
    """By sample and by class; predicted classes stand in for true ones."""
    solution = done.estimator.solution_
    if solution is None:
        return {}
    labels = done.source.y, done.labels if done.target.y is None else done.target.y
    sides: list[Any] = [None if each is None else _sortable(each) for each in labels]
    pictures = {"plan": drawn(lambda: plot.plan(solution, *sides))}
    if all(each is not None for each in sides):
        pictures["labels"] = drawn(lambda: plot.label_plan(solution, *sides))
    return pictures


def _text(labels: np.ndarray | None) -> np.ndarray | None:
    """Labels of two files can be compared as text, whatever they are."""
    return None if labels is None else labels.astype(str)


def _sortable(labels: np.ndarray) -> np.ndarray:
    """Numbers stay numbers, unless one was rejected by a word."""
    return labels.astype(str) if labels.dtype == object else labels
