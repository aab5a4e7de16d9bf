"""The rows and columns of a plan by class: classes where they are known, stretches of samples where they are not."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import NamedTuple

import numpy as np

from adaptive_ot.plot.names import natural
from adaptive_ot.workbench.report.contents import Match

# More rows or columns than this can neither be read nor tapped; the smallest classes then share one.
MOST_GROUPS = 60
MOST_STRETCHES = 20


class Axis(NamedTuple):
    """The groups of one side, the group of every sample, and the numbers of its true and predicted classes."""

    kind: str
    names: list[str]
    members: np.ndarray
    labels: np.ndarray | None
    predicted: np.ndarray | None


def axes(match: Match) -> tuple[list[str], Axis, Axis]:
    """All classes in natural order, and both sides by group.

    Sides with known classes have the same groups in the same order, so that equal classes meet on a diagonal.
    """
    sides = match.source, match.target
    columns = [column for side in sides for column in (side.labels, side.predicted) if column is not None]
    classes = sorted({name for column in columns for name in column}, key=natural)
    place = {name: k for k, name in enumerate(classes)}

    def numbered(column: Sequence[str] | None) -> np.ndarray | None:
        return None if column is None else np.array([place[name] for name in column], dtype=np.int64)

    numbers = [(numbered(side.labels), numbered(side.predicted)) for side in sides]
    known = [predicted if labels is None else labels for labels, predicted in numbers]
    of_class, names = _group(
        np.concatenate([np.zeros(0, np.int64), *(own for own in known if own is not None)]), classes
    )
    found = []
    for side, own, (labels, predicted) in zip(sides, known, numbers, strict=True):
        if own is None:
            found.append(Axis("samples", *_stretches(len(side.names)), labels, predicted))
        else:
            found.append(
                Axis("predicted class" if labels is None else "class", names, of_class[own], labels, predicted)
            )
    return classes, *found


def _group(members: np.ndarray, names: list[str]) -> tuple[np.ndarray, list[str]]:
    """The group of every class, and the names of the groups. Of very many classes, the smallest share the last."""
    sizes = np.bincount(members, minlength=len(names))
    present = chosen = np.flatnonzero(sizes)
    if present.size > MOST_GROUPS:
        chosen = np.sort(present[np.argsort(-sizes[present], kind="stable")[: MOST_GROUPS - 1]])
    of_class = np.full(len(names), chosen.size)
    of_class[chosen] = np.arange(chosen.size)
    others = present.size - chosen.size
    return of_class, [names[k] for k in chosen] + ([f"{others} other classes"] if others else [])


def _stretches(size: int) -> tuple[list[str], np.ndarray]:
    """The names of few stretches of samples, of 1, 2, 5, 10, 20, ... each, and the stretch of every sample."""
    steps = (factor * 10**power for power in count() for factor in (1, 2, 5))
    step = next(step for step in steps if step * MOST_STRETCHES >= size)
    starts = range(0, size, step)
    names = [f"samples {start}–{min(start + step, size) - 1}" if step > 1 else f"sample {start}" for start in starts]
    return names, np.arange(size) // step
