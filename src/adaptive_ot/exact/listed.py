"""Lists of pairs, sorted by source and then by target."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from adaptive_ot._jit import kernel


class Pairs(NamedTuple):
    """Pairs by source, then target: those of source i stand at the places ``start[i]`` to ``start[i + 1]``."""

    start: np.ndarray
    column: np.ndarray
    cost: np.ndarray

    @classmethod
    def sorted(cls, rows: np.ndarray, columns: np.ndarray, costs: np.ndarray, shape: tuple[int, int]) -> Pairs:
        """Sort pairs in any order.

        Examples
        --------
        >>> import numpy as np
        >>> pairs = Pairs.sorted(np.array([1, 0, 1]), np.array([2, 1, 0]), np.array([-1.0, -2.0, -3.0]), (2, 3))
        >>> [side.tolist() for side in pairs]
        [[0, 1, 3], [1, 0, 2], [-2.0, -3.0, -1.0]]
        """
        n, m = shape
        by_column = cls(np.zeros(m + 1, np.int64), np.empty(rows.size, np.int32), np.empty(rows.size))
        _group(columns, rows, costs, *by_column)
        return by_column.transposed(n)

    def transposed(self, columns: int) -> Pairs:
        """The same pairs by target, then source."""
        result = Pairs(np.zeros(columns + 1, np.int64), np.empty_like(self.column), np.empty_like(self.cost))
        _transpose(*self, *result)
        return result

    @property
    def rows(self) -> np.ndarray:
        """The source of every pair."""
        return np.repeat(np.arange(self.start.size - 1), np.diff(self.start))

    def only(self, use: np.ndarray) -> Pairs:
        """Some of the pairs."""
        start = np.append(0, np.cumsum(use))[self.start]
        return Pairs(start, self.column[use], self.cost[use])


@kernel
def _group(keys, others, costs, start, column, cost):
    """Sort pairs by key; pairs with equal keys keep their order."""
    for k in range(keys.size):
        start[keys[k] + 1] += 1
    for key in range(start.size - 1):
        start[key + 1] += start[key]
    for k in range(keys.size):
        at = start[keys[k]]
        column[at], cost[at] = others[k], costs[k]
        start[keys[k]] += 1
    _shift(start)


@kernel
def _transpose(start, column, cost, new_start, new_column, new_cost):
    for k in range(column.size):
        new_start[column[k] + 1] += 1
    for key in range(new_start.size - 1):
        new_start[key + 1] += new_start[key]
    for i in range(start.size - 1):
        for k in range(start[i], start[i + 1]):
            at = new_start[column[k]]
            new_column[at], new_cost[at] = i, cost[k]
            new_start[column[k]] += 1
    _shift(new_start)


@kernel
def _shift(start):
    """Turn the ends of the groups, counted up while pairs were stored, into their beginnings."""
    for key in range(start.size - 1, 0, -1):
        start[key] = start[key - 1]
    start[0] = 0


@kernel
def first_repeat(pairs):
    """The place of the first pair that repeats the one before it; -1 if there is none."""
    start, column, _ = pairs
    for i in range(start.size - 1):
        for k in range(start[i] + 1, start[i + 1]):
            if column[k] == column[k - 1]:
                return k
    return -1
