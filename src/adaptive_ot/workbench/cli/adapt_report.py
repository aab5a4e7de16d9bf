"""The result of an adaptation: its summary, its files and its report."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from adaptive_ot import plot
from adaptive_ot.workbench import report
from adaptive_ot.workbench.cli import show
from adaptive_ot.workbench.environment import environment
from adaptive_ot.workbench.feature_files import Features
from adaptive_ot.workbench.files import as_csv
from adaptive_ot.workbench.report import record
from adaptive_ot.workbench.report.contents import Match, Samples
from adaptive_ot.workbench.report.matches import VALUES_SHOWN, match_of
from adaptive_ot.workbench.report.pictures import Drawn, drawn
from adaptive_ot.workbench.wording import (
    LABELS_IGNORED,
    absent,
    accuracy,
    adapted_mass,
    counted,
    outliers,
    overlap,
    sources_and_targets,
)

PREDICTIONS, MOVED = record.RESULTS


class Adaptation(NamedTuple):
    """A fitted estimator, its data, and the predicted labels of the targets or the moved sources.

    `labels_ignored` says that the target has labels, none of which is a class of the source; its data are then without.
    """

    estimator: Any
    source: Features
    target: Features
    labels: np.ndarray | None
    moved: np.ndarray | None
    images: tuple[list[bytes] | None, list[bytes] | None] = None, None
    labels_ignored: bool = False


def summary(done: Adaptation, method: str, seconds: float) -> dict[str, Any]:
    """The adaptation as plain numbers and strings."""
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
        "most_mass": None if solution is None else show.finite(solution.problem.most_mass),
        **{name: None if solution is None else getattr(solution, name) for name in ("value", "gap", "violation")},
        "pairs": None if solution is None else len(solution.support[0]),
        **_evidence(estimator),
        "active_sources": active[0],
        "active_targets": active[1],
        "outlier_targets": len(done.target.x) - active[1],
        "predicted": None,
        "accuracy": None,
        "targets_of_unknown_classes": None,
        "labels_ignored": done.labels_ignored,
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


def _evidence(estimator: Any) -> dict[str, Any]:
    """The answers of `JointTransportClassifier` about the adaptation; None for other estimators."""
    if not hasattr(estimator, "class_presence_"):
        return dict.fromkeys(("adapted", "reason", "overlap", "overlap_interval", "class_presence"))
    presence = zip(map(str, estimator.classes_.tolist()), estimator.class_presence_.tolist(), strict=True)
    return {
        "adapted": bool(estimator.adapted_),
        "reason": estimator.reason_,
        "overlap": estimator.overlap_,
        "overlap_interval": list(estimator.overlap_interval_),
        "class_presence": dict(presence),
    }


def show_summary(of: dict[str, Any]) -> None:
    """Print a summary."""
    classes = "" if of["classes"] is None else f", {counted(of['classes'], 'class')}"
    sizes = sources_and_targets(of["sources"], of["targets"], "to")
    known = of["accuracy"] is not None
    drawn = not of["report"] or any(path.endswith("plan.png") for path in of["report"])
    show.title(f"{of['model']} of {sizes} ({of['method']})")
    show.lines(
        {
            "data": f"{counted(of['features'], 'feature')}{classes}",
            "mass": adapted_mass(of["mass"], of["most_mass"]),
            "adapted": None if of["adapted"] is None else f"{'yes' if of['adapted'] else 'no'}. {of['reason']}",
            "overlap": None if of["overlap"] is None else overlap(of["overlap"], *of["overlap_interval"]),
            "missing": None if of["class_presence"] is None else absent(of["class_presence"]),
            "active": show.active(of),
            "outliers": outliers(of["outlier_targets"]),
            "labels": LABELS_IGNORED if of["labels_ignored"] else None,
            "predicted": None if of["predicted"] is None else show.classes(of["predicted"]),
            "accuracy": accuracy(of["accuracy"], of["targets_of_unknown_classes"]) if known else None,
            "effort": f"{of['seconds']:.2f} s",
            "written": of["output"],
            "pictures": None if drawn else "none: this many samples take several plans",
            "report": show.report(of["report"]),
        }
    )


def result_of(done: Adaptation) -> record.Writer:
    """Writes labels and outlier scores of all targets as .csv, or moved sources as .npz, which are features again."""
    if done.labels is not None:
        found = zip(done.labels, done.estimator.target_outlier_score_, strict=True)
        rows = ((index, label, f"{score:.6g}") for index, (label, score) in enumerate(found))
        content = as_csv(["index", "label", "outlier_score"], rows)
        return lambda file: file.write(content)
    arrays: dict[str, Any] = {"x": done.moved, "share": done.estimator.source_share_}
    if done.source.y is not None:
        arrays["y"] = done.source.y
    return lambda file: np.savez(file, **arrays)


def write(folder: Path, done: Adaptation, of: dict[str, Any], configuration: dict[str, Any]) -> list[str]:
    """Write the report into a directory, in place of an older one; the paths of its files, the page last."""
    results = {PREDICTIONS if done.moved is None else MOVED: result_of(done)}
    about = {**of, "configuration": configuration, "environment": environment()}
    names = record.write_record("--report", folder, record.ADAPTATION, about, _match(done), _pictures(done), results)
    report.write_report(folder)
    return names


def _match(done: Adaptation) -> Match | None:
    """Who was matched with whom, unless there are several plans or too many samples."""
    solution = done.estimator.solution_
    if solution is None or max(solution.problem.cost.shape) > report.MOST_SAMPLES:
        return None
    predicted = None if done.labels is None else _text(done.labels)
    weights = solution.problem.source_weights, solution.problem.target_weights
    source = _samples(done.source, weights[0], None, done.images[0])
    return match_of(solution, source, _samples(done.target, weights[1], predicted, done.images[1]))


def _samples(
    features: Features, weights: np.ndarray, predicted: np.ndarray | None, images: list[bytes] | None
) -> Samples:
    """Images, if there are any, or the first features."""
    x, labels = features.x, _text(features.y)
    columns = features.columns or tuple(f"feature {k}" for k in range(x.shape[1]))
    return Samples(
        names=[f"#{k}" for k in range(len(x))],  # as in the predictions
        weights=weights,
        labels=None if labels is None else labels.tolist(),
        predicted=None if predicted is None else predicted.tolist(),
        images=images,
        values=x[:, :VALUES_SHOWN] if images is None else None,
        columns=columns[:VALUES_SHOWN] if images is None else (),
    )


def _pictures(done: Adaptation) -> dict[str, Drawn]:
    """By sample and by class; predicted classes stand in for true ones."""
    solution = done.estimator.solution_
    if solution is None:
        return {}
    labels = done.source.y, done.labels if done.target.y is None else done.target.y
    sides: list[Any] = [None if each is None else _sortable(each) for each in labels]
    is_predicted = done.target.y is None and done.labels is not None

    def named(ax: Any, text: str) -> Any:
        if is_predicted:
            ax.set_xlabel(text)
        return ax

    pictures = {"plan": drawn(lambda: named(plot.plan(solution, *sides), "targets by predicted class"))}
    if all(each is not None for each in sides):
        pictures["labels"] = drawn(lambda: named(plot.label_plan(solution, *sides), "predicted target class"))
    return pictures


def _text(labels: np.ndarray | None) -> np.ndarray | None:
    """Labels of two files can be compared as text, whatever they are."""
    return None if labels is None else labels.astype(str)


def _sortable(labels: np.ndarray) -> np.ndarray:
    """Numbers stay numbers, unless one was rejected by a word."""
    return labels.astype(str) if labels.dtype == object else labels
