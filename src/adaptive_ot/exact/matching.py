"""Matchings of greatest score: the door from matrices and lists of pairs to the kernels."""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import numba
import numpy as np

from adaptive_ot._arrays import ArrayKind
from adaptive_ot._jit import inlined, kernel
from adaptive_ot._threads import run_together
from adaptive_ot.costs import ArrayCost
from adaptive_ot.exact.assignment import ALONE, assign, new_memory
from adaptive_ot.exact.components import shares
from adaptive_ot.exact.listed import Pairs
from adaptive_ot.exact.margins import Residual, shortest_ways
from adaptive_ot.exact.solver import Exact, solve_exact
from adaptive_ot.exact.sparse_assignment import Columns, Rows, augment_all, bid, new_search
from adaptive_ot.marginals import AtMost
from adaptive_ot.problem import Problem

# A thread pays off from this many pairs of small problems, and takes this many between two checks of Ctrl-C.
PAIRS_PER_THREAD = 2**15
PAIRS_PER_CALL = 2**22

# Matrices of so many columns are padded to a multiple of a vector of processors.
PADDED = 16
LANES = 8

# The same for lists of pairs, whose components must be found first.
LISTED_PER_THREAD = 2**18

# A list of more pairs per point, and of this part of all pairs, becomes a matrix, whose solver looks at few of them.
CROWD_PER_POINT = 64
CROWDED = 0.25
LARGEST_MATRIX = 2**26

# About this many pairs of a list are examined between two checks of Ctrl-C.
WORK_PER_CALL = 20_000_000
ROWS_PER_CALL = 2**18


class Frames(NamedTuple):
    """Dense problems, one after the other in flat arrays; ``sign * values - limit`` is the cost of a pair.

    No ``-sign * values`` may be larger than `most`, or NaN.
    """

    values: np.ndarray
    rows: np.ndarray
    columns: np.ndarray
    sign: float
    limit: float
    most: float


class Matched(NamedTuple):
    """Matched pairs by source, then target, their costs, and the potentials that prove them optimal."""

    rows: np.ndarray
    columns: np.ndarray
    cost: np.ndarray
    source_potential: np.ndarray
    target_potential: np.ndarray

    def transposed(self) -> Matched:
        """The same with sources and targets exchanged."""
        order = np.lexsort((self.rows, self.columns))
        pairs = self.columns[order], self.rows[order], self.cost[order]
        return Matched(*pairs, self.target_potential, self.source_potential)


class MatchedFrames(NamedTuple):
    """Of every source, its target (ALONE if it has none) and the cost of this pair; the prices of all targets.

    The flat arrays hold one problem after the other; `row_at` and `column_at` say where each begins. `cost` is the
    total of every problem.
    """

    row_at: np.ndarray
    column_at: np.ndarray
    partner: np.ndarray
    paid: np.ndarray
    price: np.ndarray
    cost: np.ndarray

    def one(self, b: int) -> Matched:
        """The answer to one problem."""
        rows = slice(self.row_at[b], self.row_at[b + 1])
        partner, paid = self.partner[rows], self.paid[rows]
        price = self.price[self.column_at[b] : self.column_at[b + 1]]
        paired = np.flatnonzero(partner != ALONE)
        columns, f = partner[paired], np.zeros(partner.size)
        f[paired] = np.minimum(paid[paired] - price[columns], 0.0)
        return Matched(paired, columns, paid[paired], f, price)


def match_frames(frames: Frames, start: np.ndarray | None = None) -> MatchedFrames | None:
    """Solve all problems; `start` holds prices of the targets to begin with. Returns None for forbidden values."""
    problems = frames.rows.size
    ends = np.zeros((3, problems + 1), np.int64)
    np.cumsum((frames.rows * frames.columns, frames.rows, frames.columns), axis=1, out=ends[:, 1:])
    pair_at, row_at, column_at = ends
    pairs = int(pair_at[-1])
    partner, paid, cost = np.empty(row_at[-1], np.int64), np.zeros(row_at[-1]), np.zeros(problems)
    price = np.zeros(column_at[-1]) if start is None else np.minimum(start, 0.0)
    found = MatchedFrames(row_at, column_at, partner, paid, price, cost)
    threads = max(1, min(numba.get_num_threads(), problems, pairs // PAIRS_PER_THREAD))
    calls = threads * max(1, math.ceil(pairs / PAIRS_PER_CALL))
    cuts = [*np.searchsorted(pair_at[:-1], [pairs * k // calls for k in range(calls)]).tolist(), problems]
    cuts[0] = 0
    for k in range(0, calls, threads):
        parts = [(cuts[call], cuts[call + 1]) for call in range(k, k + threads)]
        jobs = [partial(_match_all, *part, frames, pair_at, start is not None, found) for part in parts]
        if not all(run_together(jobs)):
            return None
    return found


@kernel
def _match_all(first, last, frames, pair_at, warm, found):
    """Solve the problems from `first` to `last`, one after the other; returns whether all values are allowed."""
    values, rows, columns, sign, limit, largest = frames
    row_at, column_at, partners, paid, target_price, total = found  # taken from the tuple once: references are counted
    most, longest = 0, 0
    for b in range(first, last):
        n, width = rows[b], _padded(columns[b])
        most, longest = max(most, n * width), max(longest, n, width)
    costs, prices, memory = np.empty(most), np.empty(longest), new_memory(longest)
    cost = costs.reshape(1, most)
    for b in range(first, last):
        n, m, at = rows[b], columns[b], column_at[b]
        width = _padded(m)
        if not _fill(costs, n, m, width, values, pair_at[b], sign, limit, largest):
            return False
        if cost.shape != (n, width):  # a new view takes as long as a small problem
            cost = costs[: n * width].reshape(n, width)
        price, partner = prices[:width], partners[row_at[b] : row_at[b + 1]]
        for j in range(width):
            price[j] = target_price[at + j] if j < m else 0.0
        assign(cost, partner, price, warm, 2**62, memory)
        for j in range(m):
            target_price[at + j] = price[j]
        for i in range(n):
            if partner[i] != ALONE:
                paid[row_at[b] + i] = cost[i, partner[i]]
                total[b] += cost[i, partner[i]]
    return True


@kernel
def _fill(costs, rows, columns, width, values, at, sign, limit, largest):
    """Write the costs of a problem to rows of this width; returns whether all of its values are allowed."""
    if width == columns:
        rows, columns, width = 1, rows * columns, rows * columns
    wrong = 0
    for i in range(rows):
        row, given = costs[i * width : (i + 1) * width], values[at + i * columns : at + (i + 1) * columns]
        for j in range(columns):
            value = sign * given[j]
            wrong += 0 if -value <= largest else 1  # counting needs no branches
            row[j] = value - limit
        for j in range(columns, width):
            row[j] = 0.0
    return wrong == 0


@inlined
def _padded(columns):
    """The columns of a matrix and some of cost 0, which nobody takes; vector instructions need no remainder then."""
    return columns if columns < PADDED else (columns + LANES - 1) // LANES * LANES


def match_pairs(
    pairs: Pairs, targets: int, capacity: np.ndarray | None = None, start: np.ndarray | None = None
) -> Matched:
    """Match over listed pairs of negative cost; sources may have capacities, or prices of targets to begin with."""
    sources = pairs.start.size - 1
    # One copy more than there are pairs stays alone, and so proves that capacity is left.
    copies = np.ones(sources, np.int64) if capacity is None else np.minimum(capacity, np.diff(pairs.start) + 1)
    source = np.repeat(np.arange(sources), copies)
    size = source.size
    rows = Rows(source, np.full(size, ALONE, np.int64), np.zeros(size), np.zeros(size, np.uint8))
    columns = Columns(np.full(targets, ALONE, np.int64), np.zeros(targets) if start is None else np.minimum(start, 0.0))
    _match_rows(pairs, rows, columns)
    paired = np.flatnonzero(rows.partner != ALONE)
    if start is not None:
        _lower_prices(pairs, rows, columns)
        paired = np.flatnonzero(rows.partner != ALONE)
    column, cost = rows.partner[paired], rows.paid[paired]
    order = np.lexsort((column, source[paired]))
    used, f = np.bincount(source[paired], minlength=sources), np.zeros(sources)
    f[source[paired]] = np.minimum(cost - columns.price[column], 0.0)
    f[used < (1 if capacity is None else capacity)] = 0.0  # a copy stays alone
    return Matched(source[paired][order], column[order], cost[order], f, columns.price)


def match_pairs_up_to(pairs: Pairs, of_source: np.ndarray, of_target: np.ndarray) -> Matched:
    """Match points of these capacities; at most one side may have capacities above 1."""
    n, m = of_source.size, of_target.size
    if of_source.min(initial=1) == 0 or of_target.min(initial=1) == 0:
        pairs = pairs.only((of_source[pairs.rows] > 0) & (of_target[pairs.column] > 0))
    if of_target.max(initial=0) > 1:
        return match_pairs(pairs.transposed(m), n, of_target).transposed()
    if of_source.max(initial=0) > 1:
        return match_pairs(pairs, m, of_source)
    crowded = pairs.cost.size > max(CROWD_PER_POINT * (n + m), CROWDED * n * m)
    if crowded and n * m <= LARGEST_MATRIX:
        cost = np.zeros((n, m))
        cost[pairs.rows, pairs.column] = pairs.cost
        return match_matrix(cost)
    return match_pairs(pairs, m)


def _match_rows(pairs: Pairs, rows: Rows, columns: Columns) -> None:
    """Find a column for every row for which one pays; threads share the components."""
    threads = min(numba.get_num_threads(), pairs.cost.size // LISTED_PER_THREAD + 1)
    share = shares(pairs, columns.price.size, threads)[rows.source] if threads > 1 else np.zeros(rows.source.size)
    run_together([partial(_match_share, pairs, rows, columns, np.flatnonzero(share == k)) for k in range(threads)])


def _match_share(pairs: Pairs, rows: Rows, columns: Columns, these: np.ndarray) -> None:
    waiting, room = [these[:0]], np.empty(min(these.size, ROWS_PER_CALL), np.int64)
    for at in range(0, these.size, ROWS_PER_CALL):
        count = bid(pairs, rows, columns, these[at : at + ROWS_PER_CALL], room)
        waiting.append(room[:count].copy())
    _augment(pairs, rows, columns, np.concatenate(waiting))


def _augment(pairs: Pairs, rows: Rows, columns: Columns, waiting: np.ndarray) -> None:
    search, done = new_search(columns.price.size), 0
    while done < waiting.size:
        done = augment_all(pairs, rows, columns, waiting, done, search, WORK_PER_CALL)


def _lower_prices(pairs: Pairs, rows: Rows, columns: Columns) -> None:
    """Columns without a row may still have the price they began with: have them look for rows."""
    owner, price = columns
    waiting = np.flatnonzero((owner == ALONE) & (price < 0))
    paired = np.flatnonzero(rows.partner != ALONE)
    f, paid = np.zeros(rows.partner.size), np.zeros(owner.size)
    f[paired] = np.minimum(rows.paid[paired] - price[rows.partner[paired]], 0.0)
    paid[rows.partner[paired]] = rows.paid[paired]
    mirrored = Rows(np.arange(owner.size), owner, paid, np.zeros(owner.size, np.uint8))
    _augment(pairs.transposed(owner.size), mirrored, Columns(rows.partner, f), waiting)
    paired = np.flatnonzero(owner != ALONE)
    price[:] = 0.0
    price[paired] = np.minimum(paid[paired] - f[owner[paired]], 0.0)
    rows.paid[owner[paired]] = paid[paired]


def margins(pairs: Pairs, matched: Matched, capacities: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """By how much the best matching without a pair is worse, for every matched pair."""
    n, m = capacities[0].size, capacities[1].size
    width = max(1, m)
    keys = pairs.rows * width + pairs.column
    is_matched = np.zeros(keys.size, np.bool_)
    is_matched[np.searchsorted(keys, matched.rows * width + matched.columns)] = True
    by_target = matched.transposed()
    taken = np.bincount(matched.columns, minlength=m)
    graph = Residual(
        *pairs,
        is_matched,
        np.append(0, np.cumsum(taken)),
        by_target.columns,
        matched.source_potential,
        matched.target_potential,
        np.bincount(matched.rows, minlength=n) < capacities[0],
        taken < capacities[1],
    )
    found = np.empty(matched.rows.size)
    shortest_ways(graph, matched.rows, matched.columns, found)
    return found


def match_matrix(cost: np.ndarray) -> Matched:
    """Match over a large dense cost by the solver that examines few of its pairs."""
    n, m = cost.shape
    problem = Problem(ArrayCost.checked(cost, ArrayKind.of(cost)), np.ones(n), np.ones(m), AtMost())
    solution = solve_exact(problem, Exact(), lambda _: None)
    rows, columns, _ = solution.support
    return Matched(
        rows, columns, cost[rows, columns], solution.answers.source_potential, solution.answers.target_potential
    )
