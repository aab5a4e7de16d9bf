"""The heap of Dijkstra's method, as a binary heap that knows the place of every node."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba.extending import register_jitable

from adaptive_ot._jit import inlined

UNVISITED, CLOSED = -1, -2


class Heap(NamedTuple):
    """Nodes by distance: ``nodes`` is the heap, ``place`` where a node stands in it, UNVISITED, or CLOSED.

    Between two searches, all distances are infinite and all places UNVISITED.
    """

    distance: np.ndarray
    place: np.ndarray
    nodes: np.ndarray


@register_jitable
def new_heap(size):
    """An empty heap for this many nodes."""
    return Heap(np.full(size, np.inf), np.full(size, UNVISITED, np.int32), np.empty(size, np.int32))


@inlined
def push(heap, size, node, distance):
    """Lower the distance of a node, which joins the heap if it was not visited; returns the size of the heap."""
    nodes, place = heap.nodes, heap.place
    at = place[node]
    if at < 0:
        at = size
        size += 1
    while at > 0:
        above = nodes[(at - 1) // 2]
        if heap.distance[above] <= distance:
            break
        nodes[at], place[above] = above, at
        at = (at - 1) // 2
    nodes[at], place[node], heap.distance[node] = node, at, distance
    return size


@inlined
def pop(heap, size):
    """Close the nearest node of a heap of this size, which must not be empty."""
    nodes, place = heap.nodes, heap.place
    nearest, node = nodes[0], nodes[size - 1]
    key, at, below = heap.distance[node], 0, 1
    while below < size - 1:
        if below + 1 < size - 1 and heap.distance[nodes[below + 1]] < heap.distance[nodes[below]]:
            below += 1
        other = nodes[below]
        if heap.distance[other] >= key:
            break
        nodes[at], place[other] = other, at
        at, below = below, 2 * below + 1
    nodes[at], place[node] = node, at
    place[nearest] = CLOSED
    return nearest


@inlined
def forget(heap, node):
    """Make a node unvisited again."""
    heap.distance[node], heap.place[node] = np.inf, UNVISITED
