"""Which pairs of tiles of two point clouds can matter: bounds on all their exponents from balls around the tiles.

Costs are c_ij = |u_i - w_j|^2 / 2 + rest_i + rest_j. The points of a cloud are put in an order that makes every tile a
small ball, as the leaves of a k-d tree are, so that the distances between balls bound those between their points.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import torch

from adaptive_ot.entropic.sweeps import TILE, Lists

# Directions of largest spread come from this many points of a part, and this many steps of the power method.
POINTS_OF_PART, POWER_STEPS = 32, 3

# Bounds allow for their own rounding in float32, and are not worth a list if they spare less than this share.
SLACK, LEAST_SPARED = 1e-5, 0.1


class Balls(NamedTuple):
    """Balls around the tiles of a cloud."""

    centres: torch.Tensor
    radii: torch.Tensor


class Distances(NamedTuple):
    """Bounds on half the squared distance between the points of two tiles, rows by columns."""

    least: torch.Tensor
    most: torch.Tensor

    def transposed(self) -> Distances:
        return Distances(self.least.T, self.most.T)


def compact_order(points: torch.Tensor) -> torch.Tensor:
    """An order of the points in which every tile is small: parts are split at the median of their main direction."""
    n = len(points)
    order = torch.arange(n, device=points.device)
    points = points.float()
    cuts = [0, n]
    while max(sizes := [bottom - top for top, bottom in pairwise(cuts)]) > TILE:
        tops, counts = (torch.tensor(numbers, device=points.device) for numbers in (cuts[:-1], sizes))
        steps = torch.arange(POINTS_OF_PART, device=points.device)
        some = points[order[tops[:, None] + steps * counts[:, None] // POINTS_OF_PART]]
        direction = main_direction(some - some.mean(1, keepdim=True))
        part = torch.repeat_interleave(torch.arange(len(sizes), device=points.device), counts)
        place = (points[order] * direction[part]).sum(1).argsort()
        order = order[place[part[place].argsort(stable=True)]]
        middles = [top + -(-size // (2 * TILE)) * TILE for top, size in zip(cuts, sizes, strict=False) if size > TILE]
        cuts = sorted([*cuts, *middles])
    return order


def main_direction(points: torch.Tensor) -> torch.Tensor:
    """About the direction of largest spread of centred points, for every part."""
    farthest = points.square().sum(2).argmax(1)
    direction = points[torch.arange(len(points), device=points.device), farthest]
    for _ in range(POWER_STEPS):
        direction = torch.einsum("sk,skd->sd", torch.einsum("skd,sd->sk", points, direction), points)
        direction = torch.nn.functional.normalize(direction, dim=1)
    return direction


def balls_of(points: torch.Tensor) -> Balls:
    """The balls around the tiles of points in their order."""
    n, d = points.shape
    count = -(-n // TILE)
    padding = points[-1:].expand(count * TILE - n, d)
    tiles = torch.cat([points, padding]).view(count, TILE, d)
    centres = tiles.mean(1)
    return Balls(centres, (tiles - centres[:, None]).norm(dim=2).amax(1))


def distances(rows: Balls, columns: Balls) -> Distances:
    """Bounds for all pairs of tiles."""
    apart = torch.cdist(rows.centres, columns.centres).float()
    reach = (rows.radii[:, None] + columns.radii).float()
    least = (apart * (1 - SLACK) - reach * (1 + SLACK)).clamp_min(0.0).square() / 2
    return Distances(least, ((apart + reach) * (1 + SLACK)).square() / 2)


def highest(values: torch.Tensor) -> torch.Tensor:
    """The largest of the values of every tile."""
    whole = values.new_full((-(-len(values) // TILE) * TILE,), -torch.inf)
    whole[: len(values)] = values
    return whole.view(-1, TILE).amax(1)


def lists_of(matters: torch.Tensor) -> Lists | None:
    """Lists of the pairs of tiles that matter, unless they spare too little."""
    counts = matters.sum(1)
    if float(counts.sum()) > (1 - LEAST_SPARED) * matters.numel():
        return None
    starts = torch.zeros(len(counts) + 1, dtype=torch.int32, device=matters.device)
    starts[1:] = counts.cumsum(0)
    return Lists(starts, matters.nonzero()[:, 1].int())
