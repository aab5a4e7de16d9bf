"""How much worse a matching gets without one of its pairs.

Without the pair (i, j), a unit must find another way from i to j in the residual graph: along pairs that are not
matched, back along matched ones, and through a root where points may be left alone. Reduced costs are the lengths, so
the margin of the pair is the length of the shortest way.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from adaptive_ot._jit import kernel
from adaptive_ot.exact.heap import CLOSED, forget, new_heap, pop, push


class Residual(NamedTuple):
    """The graph: pairs by source, whether they are matched, matched sources by target, potentials, and spare capacity.

    The sources that are matched with target j stand at the places ``taken_start[j]`` to ``taken_start[j + 1]``.
    """

    start: np.ndarray
    column: np.ndarray
    cost: np.ndarray
    matched: np.ndarray
    taken_start: np.ndarray
    taken_by: np.ndarray
    f: np.ndarray
    g: np.ndarray
    spare_source: np.ndarray
    spare_target: np.ndarray


@kernel
def shortest_ways(graph, rows, columns, margins):
    """Fill in the margins of matched pairs."""
    n, m = graph.f.size, graph.g.size
    heap, visited, from_root = new_heap(n + m), np.empty(n + m, np.int32), np.empty(m)
    size, count = 0, 0
    for i in range(n):
        if graph.spare_source[i]:
            visited[count] = i
            count += 1
            size = push(heap, size, i, 0.0)
    for j in range(m):
        visited[count] = n + j
        count += 1
        size = push(heap, size, n + j, -graph.g[j])
    while size > 0:
        node = pop(heap, size)
        size, count = _relax(graph, heap, size - 1, node, np.inf, visited, count)
    for j in range(m):
        from_root[j] = heap.distance[n + j]
    for k in range(count):
        forget(heap, visited[k])
    for pair in range(rows.size):
        margins[pair] = _way(graph, heap, visited, from_root, rows[pair], columns[pair])


@kernel
def _way(graph, heap, visited, from_root, i, j):
    """The length of the shortest way from source i to target j, directly or through the root."""
    n = graph.f.size
    shortest = -graph.f[i] + from_root[j]
    visited[0] = i
    size, count = push(heap, 0, i, 0.0), 1
    while size > 0 and heap.distance[heap.nodes[0]] < shortest:
        node = pop(heap, size)
        size -= 1
        distance = heap.distance[node]
        if node == n + j:
            shortest = distance
        elif node < n:
            shortest = min(shortest, distance - graph.f[node] + from_root[j])
        elif graph.spare_target[node - n]:
            shortest = min(shortest, distance + from_root[j])
        size, count = _relax(graph, heap, size, node, shortest, visited, count)
    for k in range(count):
        forget(heap, visited[k])
    return shortest


@kernel
def _relax(graph, heap, size, node, most, visited, count):
    """Visit the neighbours of a node within the distance `most`; returns the sizes of the heap and of the visited."""
    n, distance = graph.f.size, heap.distance[node]
    if node < n:
        for k in range(graph.start[node], graph.start[node + 1]):
            j = graph.column[k]
            further = distance + max(0.0, graph.cost[k] - graph.f[node] - graph.g[j])  # negative only by rounding
            if further < min(most, heap.distance[n + j]) and not graph.matched[k] and heap.place[n + j] != CLOSED:
                if heap.distance[n + j] == np.inf:
                    visited[count] = n + j
                    count += 1
                size = push(heap, size, n + j, further)
    else:
        for k in range(graph.taken_start[node - n], graph.taken_start[node - n + 1]):
            i = graph.taken_by[k]
            if distance < heap.distance[i] and heap.place[i] != CLOSED:
                if heap.distance[i] == np.inf:
                    visited[count] = i
                    count += 1
                size = push(heap, size, i, distance)
    return size, count
