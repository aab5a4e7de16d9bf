"""Assignment with abstention over listed pairs: `assignment.py` for sparse problems.

Only pairs of negative cost are listed; a row stays alone where nothing pays. A source that may have several partners
stands in several rows, all of which share its pairs. Work stays close to a row that looks for a partner, so each
connected component is solved on its own, and threads may share the arrays if no component is split between them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba.extending import register_jitable

from adaptive_ot._jit import kernel
from adaptive_ot.exact.assignment import ALONE
from adaptive_ot.exact.heap import CLOSED, Heap, forget, new_heap, pop, push

# A row that has bid this often waits for the shortest paths, which always terminate.
MOST_BIDS = 4


class Rows(NamedTuple):
    """Of every row: its source, its column (ALONE if it has none), the cost of this pair, and how often it has bid."""

    source: np.ndarray
    partner: np.ndarray
    paid: np.ndarray
    bids: np.ndarray


class Columns(NamedTuple):
    """Of every column: its row (ALONE if it has none) and its price, the potential g <= 0."""

    owner: np.ndarray
    price: np.ndarray


class Search(NamedTuple):
    """Memory of a search for shortest paths over columns: the row before a column, and the cost of this pair."""

    heap: Heap
    previous: np.ndarray
    previous_cost: np.ndarray
    visited: np.ndarray


@register_jitable
def new_search(columns):
    """Memory for a search over this many columns."""
    return Search(new_heap(columns), np.empty(columns, np.int32), np.empty(columns), np.empty(columns, np.int32))


@kernel
def bid(pairs, rows, columns, these, waiting):
    """Each of these rows takes its best column and lowers the price until the second best is as good.

    Returns how many rows are left waiting.
    """
    start, column, cost = pairs
    owner, price = columns
    count = 0
    for row in these:
        while row != ALONE:
            source = rows.source[row]
            lowest, second, best = 0.0, 0.0, -1
            for k in range(start[source], start[source + 1]):
                reduced = cost[k] - price[column[k]]
                if reduced < lowest:
                    lowest, second, best = reduced, lowest, k
                elif reduced < second:
                    second = reduced
            if best < 0:  # nothing pays, and prices only get worse
                break
            if second == lowest and owner[column[best]] != ALONE:
                for k in range(start[source], start[source + 1]):
                    if owner[column[k]] == ALONE and cost[k] - price[column[k]] == lowest:
                        best = k
            taken = column[best]
            loser = owner[taken]
            if loser != ALONE and (second == lowest or rows.bids[row] == MOST_BIDS):
                waiting[count] = row
                count += 1
                break
            price[taken] -= second - lowest
            owner[taken], rows.partner[row], rows.paid[row] = row, taken, cost[best]
            rows.bids[row] += 1
            if loser != ALONE:
                rows.partner[loser] = ALONE
            row = loser
    return count


@kernel
def augment_all(pairs, rows, columns, waiting, first, search, most_work):
    """Find partners for the waiting rows from place `first` on; returns where to go on after this much work."""
    work, k = 0, first
    while k < waiting.size and work < most_work:
        work += _augment(pairs, rows, columns, waiting[k], search)
        k += 1
    return k


@kernel
def _augment(pairs, rows, columns, waiting, search):
    """Dijkstra from a waiting row to the nearest end: a column without an owner, or a row that is better left alone.

    Returns the number of pairs examined.
    """
    start, column, cost = pairs
    owner, price = columns
    heap, previous, previous_cost, visited = search
    size, count, work = 0, 0, 0
    row, offset = waiting, 0.0
    end, end_row, end_column, end_cost = 0.0, waiting, ALONE, 0.0
    while True:
        source = rows.source[row]
        work += start[source + 1] - start[source]
        for k in range(start[source], start[source + 1]):
            j = column[k]
            distance = cost[k] - price[j] + offset
            if distance < end and distance < heap.distance[j]:
                if owner[j] == ALONE:
                    end, end_row, end_column, end_cost = distance, row, j, cost[k]
                elif heap.place[j] != CLOSED:
                    if heap.distance[j] == np.inf:
                        visited[count] = j
                        count += 1
                    size = push(heap, size, j, distance)
                    previous[j], previous_cost[j] = row, cost[k]
        if size == 0 or heap.distance[heap.nodes[0]] >= end:
            break
        j = pop(heap, size)
        size -= 1
        row = owner[j]
        offset = heap.distance[j] - (rows.paid[row] - price[j])
        if offset < end:
            end, end_row, end_column = offset, row, ALONE
    for k in range(count):
        j = visited[k]
        if heap.place[j] == CLOSED:
            price[j] -= max(0.0, end - heap.distance[j])  # negative only by rounding
        forget(heap, j)
    if end_column != ALONE:
        previous[end_column], previous_cost[end_column] = end_row, end_cost
    elif end_row != waiting:
        end_column, rows.partner[end_row] = rows.partner[end_row], ALONE
    while end_column != ALONE:
        row = previous[end_column]
        owner[end_column], rows.paid[row] = row, previous_cost[end_column]
        end_column, rows.partner[row] = rows.partner[row], end_column
    return work + 1
