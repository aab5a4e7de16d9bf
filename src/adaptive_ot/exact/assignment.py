"""Adaptive transport where all weights are equal: an assignment in which points may stay unpaired.

This is the method of Jonker and Volgenant (1987), except that a row may also stay alone at cost zero. The prices of
columns (the potentials g <= 0) only fall, and only for paired columns, so the final pairs are optimal. First the rows
bid for columns as in an auction; the rows left waiting are then paired along shortest alternating paths.

We write loops instead of array expressions because they compile in a fraction of the time. What every problem needs is
inlined: handing the arrays of a small problem from kernel to kernel takes as long as solving it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba.extending import register_jitable

from adaptive_ot._jit import inlined, kernel, lower

ALONE = -1

# Problems of so many pairs begin with an auction of at most so many bids per row.
APPROACHED = 2**17
MOST_APPROACHES = 12

# No minimal bid has so many bits less than the largest cost.
LEAST_BITS = 30

# After this many bids per row, shortest paths take over; they always terminate.
BIDS_PER_ROW = 3


class Memory(NamedTuple):
    """Arrays that one problem after the other can use; they may be longer than needed."""

    owner: np.ndarray
    taken: np.ndarray
    waiting: np.ndarray
    reduced: np.ndarray
    distance: np.ndarray
    open_price: np.ndarray
    closed_distance: np.ndarray
    previous: np.ndarray
    closed: np.ndarray


@register_jitable
def new_memory(size):
    """Memory for problems of at most this many rows and columns."""
    whole = np.empty((4, size), np.int64)
    real = np.empty((5, size))
    return Memory(whole[0], real[0], whole[1], real[1], real[2], real[3], real[4], whole[2], whole[3])


@kernel
def assign(cost, partner, price, warm, most_steps, memory):
    """Fill in the partner of every row (ALONE if it has none) and the price of every column.

    If `warm`, the prices (at most 0) were right for a similar problem. Returns how many times a row was examined; more
    than `most_steps` means that the method gave up.
    """
    owner, steps = memory.owner, 0
    if not warm:
        for j in range(price.size):
            price[j] = 0.0
        if cost.size >= APPROACHED:
            steps += _approach(cost, price, memory)
    for i in range(partner.size):
        partner[i] = ALONE
    for j in range(price.size):
        owner[j] = ALONE
    count, bids = _bid(cost, partner, owner, price, memory.waiting, memory.reduced)
    steps += bids
    if count > 0:
        steps += _augment_all(cost, partner, price, count, most_steps, memory)
    if warm or cost.size >= APPROACHED:
        steps += _lower_prices(cost, partner, price, most_steps - steps, memory)
    return steps


@kernel
def _approach(cost, price, memory):
    """An auction with minimal bids, which leads close to the right prices; returns the number of bids.

    A minimal bid is about half of what the second best column typically costs more than the best one. It is a power of
    two, not too small, so that integers remain exact.
    """
    n, m = cost.shape
    owner, waiting, reduced = memory.owner, memory.waiting, memory.reduced
    largest, between = 0.0, 0.0
    for i in range(n):
        lowest, second, _ = _two_lowest(cost, i, price, reduced)
        largest, between = max(largest, -lowest), between + second - lowest
        waiting[i] = n - 1 - i
    for j in range(m):
        owner[j] = ALONE
    if between == 0.0:
        return n
    least = math.ldexp(1.0, max(math.frexp(between / n)[1] - 2, math.frexp(largest)[1] - LEAST_BITS))
    count, bids = n, n
    while count > 0 and bids < MOST_APPROACHES * n:
        row = waiting[count - 1]
        bids, count = bids + 1, count - 1
        lowest, second, column = _two_lowest(cost, row, price, reduced)
        if lowest == 0.0:
            continue
        price[column] -= second - lowest + least
        if owner[column] != ALONE:
            waiting[count] = owner[column]
            count += 1
        owner[column] = row
    return bids


@inlined
def _two_lowest(cost, row, price, reduced):
    """The lowest and second lowest reduced cost of a row, at most 0, and the first column of the lowest.

    Both loops become vector instructions: no step depends on what an earlier one has found.
    """
    m = price.size
    lowest, second, first, last = 0.0, 0.0, m, ALONE
    for j in range(m):
        reduced[j] = cost[row, j] - price[j]
        lowest = lower(lowest, reduced[j])
    for j in range(m if lowest < 0.0 else 0):
        is_lowest = reduced[j] == lowest
        first = min(first, j if is_lowest else m)
        last = max(last, j if is_lowest else ALONE)
        second = lower(second, 0.0 if is_lowest else reduced[j])
    return lowest, lowest if first < last else second, first


@kernel
def _lower_prices(cost, partner, price, most_steps, memory):
    """Columns without a row may still ask for more than anybody pays: have them look for rows."""
    n, m = cost.shape
    owner, waiting, count, steps = memory.owner, memory.waiting, 0, 0
    for j in range(m):
        if owner[j] == ALONE and price[j] < 0.0:
            waiting[count] = j
            count += 1
    if count == 0:
        return 0
    transposed, row_price, taken = np.empty((m, n)), np.empty(n), memory.taken
    for i in range(n):
        for j in range(m):
            transposed[j, i] = cost[i, j]
        j = partner[i]
        row_price[i] = 0.0 if j == ALONE else min(0.0, cost[i, j] - price[j])
        taken[i] = 0.0 if j == ALONE else np.inf
    for k in range(count):
        if steps > most_steps:
            break
        steps += _augment(transposed, owner, partner, row_price, waiting[k], memory)
    for j in range(m):
        i = owner[j]
        price[j] = 0.0 if i == ALONE else min(0.0, cost[i, j] - row_price[i])
    return steps


@inlined
def _bid(cost, partner, owner, price, waiting, reduced):
    """Each row takes its best column and lowers the price until its second best is as good.

    Returns how many rows are left waiting, and the number of bids.
    """
    n, m = partner.size, price.size
    bids, count = 0, 0
    for first in range(n):
        row = first
        while row != ALONE:
            bids += 1
            lowest, second, column = _two_lowest(cost, row, price, reduced)
            if lowest == 0.0:  # nothing pays, and prices only get worse
                break
            if second == lowest and owner[column] != ALONE:
                for j in range(m):
                    if reduced[j] == lowest and owner[j] == ALONE:
                        column = j
            loser = owner[column]
            if loser != ALONE and (second == lowest or bids > BIDS_PER_ROW * n):
                waiting[count] = row
                count += 1
                break
            price[column] -= second - lowest
            owner[column], partner[row] = row, column
            if loser != ALONE:
                partner[loser] = ALONE
            row = loser
    return count, bids


@kernel
def _augment_all(cost, partner, price, count, most_steps, memory):
    """Pair the waiting rows, one after the other; columns without a row keep their price.

    Returns the number of rows examined.
    """
    owner, taken, steps = memory.owner, memory.taken, 0
    for j in range(price.size):
        taken[j] = 0.0 if owner[j] == ALONE else np.inf
    for k in range(count):
        if steps > most_steps:
            break
        steps += _augment(cost, partner, owner, price, memory.waiting[k], memory)
    return steps


@kernel
def _augment(cost, partner, owner, price, start, memory):
    """Dijkstra from a waiting row to the nearest end: a column without an owner, or a row that is better left alone.

    Returns the number of rows examined.
    """
    m, count, taken = price.size, 0, memory.taken
    distance, open_price, closed_distance = memory.distance, memory.open_price, memory.closed_distance
    previous, closed = memory.previous, memory.closed
    for j in range(m):
        distance[j], open_price[j] = np.inf, price[j]
    row, offset = start, 0.0
    end, end_row = 0.0, start
    while True:
        nearest, nearest_free = np.inf, np.inf
        for j in range(m):
            through_row = cost[row, j] - open_price[j] + offset
            nearer = through_row < distance[j]
            distance[j] = through_row if nearer else distance[j]
            previous[j] = row if nearer else previous[j]
            nearest = lower(nearest, distance[j])
            nearest_free = lower(nearest_free, distance[j] + taken[j])
        if nearest >= end:
            column, nearest = ALONE, end
            break
        column = 0
        if nearest == nearest_free:
            while distance[column] + taken[column] != nearest:
                column += 1
            taken[column] = np.inf
            break
        while distance[column] != nearest:
            column += 1
        closed[count], closed_distance[count] = column, nearest
        count += 1
        row = owner[column]
        offset = nearest - (cost[row, column] - price[column])
        if offset < end:
            end, end_row = offset, row
        open_price[column], distance[column] = -np.inf, np.inf  # never nearer again
    for k in range(count):
        price[closed[k]] -= max(0.0, nearest - closed_distance[k])  # negative only by rounding
    if column == ALONE and end_row != start:
        column, partner[end_row] = partner[end_row], ALONE
    while column != ALONE:
        row = previous[column]
        owner[column] = row
        column, partner[row] = partner[row], column
    return count + 1
