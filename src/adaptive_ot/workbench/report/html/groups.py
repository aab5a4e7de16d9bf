"""The rows and columns of a plan by class: classes where they are known, stretches of samples where they are not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from adaptive_ot.plot.names import natural
from adaptive_ot.workbench.report.contents import Match, Samples

# More rows or columns than this can neither be read nor tapped; the smallest classes then share one.
MOST_GROUPS = 60
MOST_STRETCHES = 20


class Axis(NamedTuple):
    """The groups of one side: what they are, their names, and the group of every sample."""

    kind: str
    names: list[str]
    members: np.ndarray

    @property
    def sizes(self) -> np.ndarray:
        return np.bincount(self.members, minlength=len(self.names))


class Classes(NamedTuple):
    """All classes that are mentioned anywhere, in natural order, and the number of the class of every sample."""

    names: list[str]
    source: np.ndarray | None
    source_predicted: np.ndarray | None
    target: np.ndarray | None
    target_predicted: np.ndarray | None


def number_classes(match: Match) -> Classes:
    """Give every class a number."""
    columns = [match.source.labels, match.source.predicted, match.target.labels, match.target.predicted]
    names = sorted({name for column in columns if column is not None for name in column}, key=natural)
    number = {name: k for k, name in enumerate(names)}
    return Classes(names, *(_numbers(column, number) for column in columns))


def _numbers(column: Sequence[str] | None, number: dict[str, int]) -> np.ndarray | None:
    return None if column is None else np.array([number[name] for name in column], dtype=np.int64)


def axes(match: Match, classes: Classes) -> tuple[Axis, Axis]:
    """Both sides, over the same classes in the same order where both know theirs: equal classes meet on a diagonal."""
    source_classes = classes.source_predicted if classes.source is None else classes.source
    target_classes = classes.target_predicted if classes.target is None else classes.target
    everyone = [own for own in (source_classes, target_classes) if own is not None]
    of_class, names = _group(np.concatenate(everyone) if everyone else np.zeros(0, np.int64), classes.names)
    return (
        _axis(match.source, source_classes, of_class, names),
        _axis(match.target, target_classes, of_class, names),
    )


def _axis(side: Samples, own: np.ndarray | None, of_class: np.ndarray, names: list[str]) -> Axis:
    if own is None:
        return _stretches(len(side.names))
    return Axis("predicted class" if side.labels is None else "class", names, of_class[own])


def _group(members: np.ndarray, names: list[str]) -> tuple[np.ndarray, list[str]]:
    """The group of every class, and what the groups are called; the smallest classes share the last where many."""
    sizes = np.bincount(members, minlength=len(names))
    present = np.flatnonzero(sizes)
    chosen = present
    if present.size > MOST_GROUPS:
        chosen = np.sort(present[np.argsort(-sizes[present], kind="stable")[: MOST_GROUPS - 1]])
    of_class = np.full(len(names), chosen.size)
    of_class[chosen] = np.arange(chosen.size)
    others = present.size - chosen.size
    return of_class, [names[k] for k in chosen] + ([f"{others} other classes"] if others else [])


def _stretches(size: int) -> Axis:
    """Samples in their order, so many a group that there are few groups."""
    step = next(step for step in _round_numbers() if step * MOST_STRETCHES >= size)
    starts = range(0, size, step)
    names = [f"samples {start}–{min(start + step, size) - 1}" if step > 1 else f"sample {start}" for start in starts]
    return Axis("samples", names, np.arange(size) // step)


def _round_numbers():
    power = 1
    while True:
        yield from (power, 2 * power, 5 * power)
        power *= 10
