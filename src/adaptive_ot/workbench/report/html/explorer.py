"""A match, made small enough for a page: sums over everything, and only those pairs that a reader can ask for.

The scripts know nothing but the result of `explore`, which `model.js` takes as it is. Samples, classes and groups go by
number, groups of sources are rows, and blocks and cells are counted row by row:

- mass, count, traces: the transported mass, the number of pairs that are listed, and of those that are too faint
- most: how many pairs are kept of a sample (partners), of a block and of all
- classes: their names
- source, target: lists with an entry for every sample (names, weights, moved, partners, group, line of the map; images,
  values, class, predicted, each or None), with one for every group (groups, sizes), the samples that are left alone
  (left), the kind of the groups (kind), the names of the values (columns), and how many values there were (width)
- pairs: lists of source, target and mass, sorted by mass: the strongest of a sample, a block or a cell come first
- blocks: the mass of every pair of groups, and the number of its pairs
- map: its height and width, and of the cells with pairs: their numbers (cells), mass and count
- plan, disagreements: the class of every target by the plan (-1: none), and the targets that are predicted otherwise
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from adaptive_ot.solution import marginal
from adaptive_ot.workbench.report.contents import Match, Samples
from adaptive_ot.workbench.report.html.groups import Axis, axes
from adaptive_ot.workbench.report.matches import check_match
from adaptive_ot.workbench.report.pictures import within_budget

# How many of the strongest pairs are kept: of every sample, of every block, and of all.
PARTNERS = 5
PAIRS_OF_BLOCK = 24
PAIRS_OF_ALL = 500

# The most rows and columns of the map, and columns of values.
MOST_CELLS = 400
MOST_COLUMNS = 24

# Less than this share of a weight is rounding.
ROUNDING = 1e-9

# Less than this share of the strongest pair is not listed: entropic plans leave a trace of mass on every pair.
WORTH_A_LOOK = 0.01

# A sample that moves less than this share of its weight is left alone, like the outliers of an adaptation.
TAKES_PART = 0.5

# This many of every list have their images before any others.
SHOWN_FIRST = 100


class _Pairs(NamedTuple):
    """Sorted by mass, the strongest first; equal ones by source and target."""

    source: np.ndarray
    target: np.ndarray
    mass: np.ndarray

    def only(self, chosen: np.ndarray) -> _Pairs:
        return _Pairs(*(column[chosen] for column in self))


def explore(match: Match) -> dict[str, Any]:
    """The data for the script of a page, as plain lists and numbers."""
    check_match(match)
    classes, rows, columns = axes(match)
    everything = _sorted_pairs(match)
    worth = _worth_a_look(match, everything)
    pairs = everything.only(worth)
    all_blocks = rows.members[everything.source] * len(columns.names) + columns.members[everything.target]
    block = all_blocks[worth]
    lines = _lines(rows), _lines(columns)
    height, width = (min(MOST_CELLS, len(line)) for line in lines)
    cell = lines[0][pairs.source] * width + lines[1][pairs.target]
    kept = _leaders(pairs.source, PARTNERS) | _leaders(pairs.target, PARTNERS)
    kept |= _leaders(block, PAIRS_OF_BLOCK) | _leaders(cell, 1) | (np.arange(len(cell)) < PAIRS_OF_ALL)
    shown = pairs.only(kept)
    cells, of_cell = np.unique(cell, return_inverse=True)
    data = {
        "mass": _short(everything.mass.sum()),
        "count": len(pairs.mass),
        "traces": len(everything.mass) - len(pairs.mass),
        "most": {"partners": PARTNERS, "block": PAIRS_OF_BLOCK, "all": PAIRS_OF_ALL},
        "classes": classes,
        "source": _side(match.source, rows, lines[0])
        | _moved(match.source, everything.source, everything.mass, pairs.source),
        "target": _side(match.target, columns, lines[1])
        | _moved(match.target, everything.target, everything.mass, pairs.target),
        "pairs": {"source": shown.source.tolist(), "target": shown.target.tolist(), "mass": _digits(shown.mass)},
        "blocks": _sums(all_blocks, everything.mass, block, len(rows.names) * len(columns.names)),
        "map": {"height": height, "width": width, "cells": cells.tolist()}
        | _sums(of_cell, pairs.mass, of_cell, len(cells)),
        **_judge(rows.labels, columns, len(classes), everything, np.unique(pairs.target)),
    }
    return _with_images(match, shown, data)


def _merged(rows: Any, columns: Any, mass: Any, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every pair once, with all of its mass, by row and then by column."""
    from scipy import sparse

    ends = np.asarray(rows, np.int64), np.asarray(columns, np.int64)
    csr = sparse.csr_array((np.asarray(mass, np.float64), ends), shape=shape)
    csr.sum_duplicates()  # SciPy 1.13 does not do so by itself
    of_row = np.repeat(np.arange(shape[0]), np.diff(csr.indptr))
    return of_row, csr.indices.astype(np.int64), np.asarray(csr.data)


def _sorted_pairs(match: Match) -> _Pairs:
    """Pairs that carry mass, each once."""
    shape = len(match.source.names), len(match.target.names)
    pairs = _Pairs(*_merged(match.rows, match.columns, match.mass, shape))
    order = np.argsort(-pairs.mass, kind="stable")
    return pairs.only(order[pairs.mass[order] > 0])


def _worth_a_look(match: Match, pairs: _Pairs) -> np.ndarray:
    """Which pairs are not far below the strongest of their source, or of their target, if that moves notably."""
    worth = np.zeros(len(pairs.mass), dtype=bool)
    for side, index in ((match.source, pairs.source), (match.target, pairs.target)):
        weights, moved = np.asarray(side.weights, np.float64), marginal(index, pairs.mass, len(side.names))
        share = np.minimum(1.0, np.divide(moved, weights, out=np.ones(len(moved)), where=weights > 0))
        strongest = np.zeros(len(moved))
        np.maximum.at(strongest, index, pairs.mass)
        moves = share >= WORTH_A_LOOK * share[index].max(initial=0.0)
        worth |= moves[index] & (pairs.mass >= WORTH_A_LOOK * strongest[index])
    return worth


def _leaders(group: np.ndarray, count: int) -> np.ndarray:
    """Which pairs are among the first `count` of their group."""
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    rank = np.arange(len(group)) - np.repeat(starts, np.diff(np.append(starts, len(group))))
    leads = np.empty(len(group), dtype=bool)
    leads[order] = rank < count
    return leads


def _lines(axis: Axis) -> np.ndarray:
    """The row (or column) of the map of every sample, samples sorted by group."""
    size = len(axis.members)
    position = np.empty(size, dtype=np.int64)
    position[np.argsort(axis.members, kind="stable")] = np.arange(size)
    return position * min(MOST_CELLS, size) // max(1, size)


def _sums(group: np.ndarray, mass: np.ndarray, counted: np.ndarray, size: int) -> dict[str, Any]:
    """The mass of every group, and the number of its pairs."""
    return {"mass": _digits(marginal(group, mass, size)), "count": np.bincount(counted, minlength=size).tolist()}


def _side(side: Samples, axis: Axis, line: np.ndarray) -> dict[str, Any]:
    values = None if side.values is None else np.asarray(side.values)[:, :MOST_COLUMNS]
    return {
        "names": list(side.names),
        "kind": axis.kind,
        "groups": axis.names,
        "sizes": np.bincount(axis.members, minlength=len(axis.names)).tolist(),
        "group": axis.members.tolist(),
        "line": line.tolist(),
        "class": None if axis.labels is None else axis.labels.tolist(),
        "predicted": None if axis.predicted is None else axis.predicted.tolist(),
        "values": None if values is None else [_digits(row) for row in values],
        "columns": list(side.columns)[:MOST_COLUMNS],
        "width": len(side.columns),
    }


def _moved(side: Samples, index: np.ndarray, mass: np.ndarray, counted: np.ndarray) -> dict[str, Any]:
    """How much of every sample moves, and which ones are left alone."""
    size, weights = len(side.names), np.asarray(side.weights, dtype=np.float64)
    moved = marginal(index, mass, size)
    left = np.flatnonzero(moved < (TAKES_PART - ROUNDING) * weights)
    return {
        "weights": _digits(weights),
        "moved": _digits(moved),
        "partners": np.bincount(counted, minlength=size).tolist(),
        "left": left[np.argsort(moved[left] - weights[left], kind="stable")].tolist(),
    }


def _judge(
    source_classes: np.ndarray | None, target: Axis, classes: int, pairs: _Pairs, matched: np.ndarray
) -> dict[str, Any]:
    """The class from which every matched target receives most, and the targets with another prediction."""
    if source_classes is None:
        return {"plan": None, "disagreements": None}
    shape = len(target.members), max(1, classes)
    targets, labels, received = _merged(pairs.target, source_classes[pairs.source], pairs.mass, shape)
    order = np.lexsort([labels, -received])
    best = order[_leaders(targets[order], 1)]
    best = best[np.isin(targets[best], matched)]
    plan = np.full(shape[0], -1)
    plan[targets[best]] = labels[best]
    differ = None if target.predicted is None else np.flatnonzero((plan >= 0) & (plan != target.predicted)).tolist()
    return {"plan": plan.tolist(), "disagreements": differ}


def _with_images(match: Match, pairs: _Pairs, data: dict[str, Any]) -> dict[str, Any]:
    """The images of samples that are shown first; where room is short, others have none."""
    sides = match.source, match.target
    n = len(match.source.names)
    images = [image for side in sides for image in side.images or [None] * len(side.names)]
    ends = np.column_stack([pairs.source, n + pairs.target]).ravel()
    left = data["source"]["left"][:SHOWN_FIRST]
    targets = data["target"]["left"][:SHOWN_FIRST] + (data["disagreements"] or [])[:SHOWN_FIRST]
    wanted = [ends[: 2 * SHOWN_FIRST], np.array(left, np.int64), n + np.array(targets, np.int64), ends]
    uris = within_budget(images, np.concatenate(wanted))
    data["source"]["images"] = None if match.source.images is None else uris[:n]
    data["target"]["images"] = None if match.target.images is None else uris[n:]
    return data


def _short(number: Any) -> float | str:
    """Six digits; JSON has no infinities."""
    return float(f"{number:.6g}") if np.isfinite(number) else str(number)


def _digits(numbers: np.ndarray) -> list[float | str]:
    return [_short(number) for number in numbers.tolist()]
