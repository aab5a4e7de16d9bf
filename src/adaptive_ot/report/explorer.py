"""A match, made small enough for a page: sums over everything, and only those pairs that somebody can ask for.

The pairs are sorted by mass. Whoever wants the strongest of a sample, a block or a cell takes the first he finds.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from adaptive_ot.report.contents import Match, Samples
from adaptive_ot.report.groups import Axis, Classes, axes, number_classes
from adaptive_ot.report.images import within_budget
from adaptive_ot.report.matches import check_match
from adaptive_ot.solution import marginal

# What is kept: so many of the strongest pairs of every sample and every block, and of all.
PARTNERS = 5
PAIRS_OF_BLOCK = 24
PAIRS_OF_ALL = 500

# Sides of the map of samples, and columns of values.
MOST_CELLS = 400
MOST_COLUMNS = 24

# Less than this share of a weight is rounding.
ROUNDING = 1e-9

# These have their images before others have any.
SHOWN_FIRST = 100


class _Pairs(NamedTuple):
    """Sorted by mass, the strongest first; equal ones by source and target."""

    source: np.ndarray
    target: np.ndarray
    mass: np.ndarray


def explore(match: Match) -> dict[str, Any]:
    """What the script of a page needs to know of a match, as plain lists and numbers.

    Examples
    --------
    >>> import numpy as np
    >>> side = Samples(names=["a", "b"], weights=np.array([0.5, 0.5]), labels=["cat", "dog"])
    >>> match = Match(source=side, target=side, rows=np.array([1]), columns=np.array([1]), mass=np.array([0.25]))
    >>> data = explore(match)
    >>> data["pairs"], data["blocks"]["mass"], data["source"]["left"]
    ({'source': [1], 'target': [1], 'mass': [0.25]}, [0.0, 0.0, 0.0, 0.25], [0, 1])
    """
    check_match(match)
    classes = number_classes(match)
    source_axis, target_axis = axes(match, classes)
    pairs = _sorted_pairs(match)
    block = source_axis.members[pairs.source] * len(target_axis.names) + target_axis.members[pairs.target]
    rows, columns = _cells(source_axis), _cells(target_axis)
    width = int(min(MOST_CELLS, len(columns)))
    cell = rows[pairs.source] * width + columns[pairs.target]
    kept = _leaders(pairs.source, PARTNERS) | _leaders(pairs.target, PARTNERS)
    kept |= _leaders(block, PAIRS_OF_BLOCK) | _leaders(cell, 1) | (np.arange(len(cell)) < PAIRS_OF_ALL)
    source = _side(match.source, source_axis, pairs.source, pairs.mass)
    target = _side(match.target, target_axis, pairs.target, pairs.mass)
    judged = _judge(match, classes, pairs)
    shown = _Pairs(*(column[kept] for column in pairs))
    _add_images(match, shown, source, target, judged)
    filled, of_cell = np.unique(cell, return_inverse=True)
    blocks = len(source_axis.names) * len(target_axis.names)
    return {
        "mass": _short(pairs.mass.sum()),
        "count": len(pairs.mass),
        "classes": classes.names,
        "source": {**source, "class": _listed(classes.source), "predicted": _listed(classes.source_predicted)},
        "target": {**target, "class": _listed(classes.target), "predicted": _listed(classes.target_predicted)},
        "pairs": {"source": shown.source.tolist(), "target": shown.target.tolist(), "mass": _digits(shown.mass)},
        "blocks": {
            "mass": _digits(marginal(block, pairs.mass, blocks)),
            "count": np.bincount(block, minlength=blocks).tolist(),
        },
        "map": {
            "height": int(min(MOST_CELLS, len(rows))),
            "width": width,
            "cells": filled.tolist(),
            "mass": _digits(marginal(of_cell, pairs.mass, len(filled))),
            "count": np.bincount(of_cell, minlength=len(filled)).tolist(),
        },
        **judged,
    }


def _sorted_pairs(match: Match) -> _Pairs:
    """Pairs that carry mass, each once."""
    from scipy import sparse

    shape = len(match.source.names), len(match.target.names)
    mass = np.asarray(match.mass, dtype=np.float64)
    plan = sparse.coo_array((mass, (np.asarray(match.rows), np.asarray(match.columns))), shape=shape)
    plan.sum_duplicates()  # and sorts by row, then column
    order = np.argsort(-plan.data, kind="stable")
    order = order[plan.data[order] > 0]
    rows, columns = plan.coords
    return _Pairs(rows[order].astype(np.int64), columns[order].astype(np.int64), plan.data[order])


def _leaders(group: np.ndarray, count: int) -> np.ndarray:
    """Which pairs are among the first `count` of their group."""
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    rank = np.arange(len(group)) - np.repeat(starts, np.diff(np.append(starts, len(group))))
    leads = np.empty(len(group), dtype=bool)
    leads[order] = rank < count
    return leads


def _cells(axis: Axis) -> np.ndarray:
    """The row (or column) of the map that every sample falls into when they are sorted by group."""
    size = len(axis.members)
    position = np.empty(size, dtype=np.int64)
    position[np.argsort(axis.members, kind="stable")] = np.arange(size)
    return position * min(MOST_CELLS, size) // max(1, size)


def _side(side: Samples, axis: Axis, index: np.ndarray, mass: np.ndarray) -> dict[str, Any]:
    size = len(side.names)
    weights = np.asarray(side.weights, dtype=np.float64)
    moved = marginal(index, mass, size)
    left = np.maximum(0.0, weights - moved)
    some_left = np.flatnonzero(left > ROUNDING * weights)
    values = None if side.values is None else np.asarray(side.values)[:, :MOST_COLUMNS]
    return {
        "names": list(side.names),
        "weights": _digits(weights),
        "moved": _digits(moved),
        "partners": np.bincount(index, minlength=size).tolist(),
        "left": some_left[np.argsort(-left[some_left], kind="stable")].tolist(),
        "kind": axis.kind,
        "groups": axis.names,
        "sizes": axis.sizes.tolist(),
        "group": axis.members.tolist(),
        "values": None if values is None else [_digits(row) for row in values],
        "columns": list(side.columns)[:MOST_COLUMNS],
    }


def _judge(match: Match, classes: Classes, pairs: _Pairs) -> dict[str, Any]:
    """The class most of whose mass every target receives, and the targets of which a classifier says another."""
    if classes.source is None:
        return {"plan": None, "disagreements": None}
    size = len(match.target.names)
    plan = np.full(size, -1)
    key, of_key = np.unique(pairs.target * max(1, len(classes.names)) + classes.source[pairs.source], return_inverse=True)
    received = marginal(of_key, pairs.mass, len(key))
    order = np.argsort(received, kind="stable")[::-1]
    order = order[np.argsort(key[order] // max(1, len(classes.names)), kind="stable")]
    first = _leaders(key[order] // max(1, len(classes.names)), 1)
    best = key[order][first]
    plan[best // max(1, len(classes.names))] = best % max(1, len(classes.names))
    predicted = classes.target_predicted
    if predicted is None:
        return {"plan": plan.tolist(), "disagreements": None}
    return {"plan": plan.tolist(), "disagreements": np.flatnonzero((plan >= 0) & (plan != predicted)).tolist()}


def _add_images(match: Match, pairs: _Pairs, source: dict, target: dict, judged: dict[str, Any]) -> None:
    """The images of those first who are shown first; where room is short, others have none."""
    n, m = len(match.source.names), len(match.target.names)
    images = [*(match.source.images or [None] * n), *(match.target.images or [None] * m)]
    ends = np.column_stack([pairs.source, n + pairs.target]).ravel()
    first = [np.array(source["left"][:SHOWN_FIRST], np.int64), n + np.array(target["left"][:SHOWN_FIRST], np.int64)]
    first.append(n + np.array((judged["disagreements"] or [])[:SHOWN_FIRST], np.int64))
    uris = within_budget(images, np.concatenate([ends[: 2 * SHOWN_FIRST], *first, ends]))
    source["images"] = None if match.source.images is None else uris[:n]
    target["images"] = None if match.target.images is None else uris[n:]


def _listed(numbers: np.ndarray | None) -> list[int] | None:
    return None if numbers is None else numbers.tolist()


def _short(number: Any) -> float | str:
    """Six digits of it; JSON has no infinities."""
    return float(f"{number:.6g}") if np.isfinite(number) else str(number)


def _digits(numbers: np.ndarray) -> list[float | str]:
    return [_short(number) for number in numbers.tolist()]
