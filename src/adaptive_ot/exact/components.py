"""Connected components of listed pairs: problems of their own, which threads can share."""

from __future__ import annotations

import numpy as np

from adaptive_ot._jit import kernel
from adaptive_ot.exact.listed import Pairs


def shares(pairs: Pairs, columns: int, count: int) -> np.ndarray:
    """A number from 0 to `count` - 1 for every source: no component is split, and all have about as many pairs.

    Examples
    --------
    >>> pairs = Pairs.sorted(np.array([0, 1, 2, 2]), np.array([1, 0, 1, 2]), -np.ones(4), (3, 3))
    >>> shares(pairs, 3, 2).tolist()
    [0, 1, 0]
    """
    sources = pairs.start.size - 1
    label = np.empty(sources, np.int64)
    _label(*pairs[:2], np.arange(sources + columns), label)
    heavy = np.bincount(label, np.diff(pairs.start), sources)
    before = np.cumsum(heavy) - heavy
    return (before * count // max(1.0, float(heavy.sum()))).astype(np.int64)[label]


@kernel
def _label(start, column, above, label):
    """Label every source with the first one of its component; `above` leads from node to node towards it."""
    sources = label.size
    for i in range(sources):
        for k in range(start[i], start[i + 1]):
            a, b = _top(above, i), _top(above, sources + column[k])
            above[max(a, b)] = min(a, b)
    for i in range(sources):
        label[i] = _top(above, i)


@kernel
def _top(above, node):
    while above[node] != node:
        above[node] = above[above[node]]
        node = above[node]
    return node
