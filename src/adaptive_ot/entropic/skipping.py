"""Which pairs of tiles of two point clouds can matter: bounds on all their exponents from balls around the tiles.

Costs are c_ij = |u_i - w_j|^2 / 2 + rest_i + rest_j. The points of a cloud are put in the order of the leaves of a k-d
tree, which are small. Balls around the leaves bound the distances between their points, and so do their extents in the
direction of each other, which are much smaller than the balls in many dimensions. A tile consists of a few leaves that
are near each other; if it has points of two clusters, it does not fit a small ball, but its leaves do.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch

from adaptive_ot.entropic.sweeps import TILE, Lists

# A leaf has one of these numbers of points: the least with which a cloud has at most so many leaves.
LEAF_SIZES, MOST_LEAVES = (16, 32, 64), 8192

# Leaves are gathered around at most this many of them.
MOST_GROUPS = 256

# A leaf is large beyond this many times the typical radius.
LARGE = 2.0

# Directions of largest spread come from this many points of a part, and this many steps of the power method.
POINTS_OF_PART, POWER_STEPS = 32, 3

# Bounds allow for their own rounding in float32, and are not worth a list if they spare less than this share.
SLACK, LEAST_SPARED = 1e-5, 0.1

# Points have near neighbours if, among this many, the nearest is typically within this part of a large distance, which
# few others exceed.
POINTS_FOR_NEIGHBOURS, NEAR, LARGE_DISTANCE = 2048, 0.45, 0.9

# Numbers in a block of products, which are in float64.
ENTRIES_PER_BLOCK = 2**27


class Leaves(NamedTuple):
    """The leaves of a cloud: centres, points relative to these (leaves x points x coordinates), and radii."""

    centres: torch.Tensor
    offsets: torch.Tensor
    radii: torch.Tensor


class Distances(NamedTuple):
    """Bounds on half the squared distance between the points of two leaves, rows by columns."""

    least: torch.Tensor
    most: torch.Tensor

    def transposed(self) -> Distances:
        return Distances(self.least.T, self.most.T)


def leaf_size(points: int) -> int:
    """The number of points of a leaf."""
    return next((size for size in LEAF_SIZES if points <= size * MOST_LEAVES), TILE)


def has_near_neighbours(points: torch.Tensor) -> bool:
    """Whether leaves can be small: a leaf is hardly smaller than the distance of its points to their neighbours."""
    some = points[:: 1 + len(points) // POINTS_FOR_NEIGHBOURS].float()
    apart = torch.cdist(some, some)
    large = apart.quantile(LARGE_DISTANCE, dim=1).median()
    apart.diagonal().fill_(torch.inf)
    return bool(apart.amin(1).median() <= NEAR * large)


def compact_order(points: torch.Tensor) -> torch.Tensor:
    """An order of the points in which every leaf is small: parts are split at the median of their main direction."""
    n, leaf = len(points), leaf_size(len(points))
    order = torch.arange(n, device=points.device)
    points = points.float()
    cuts = [0, n]
    while max(sizes := [bottom - top for top, bottom in pairwise(cuts)]) > leaf:
        tops, counts = (torch.tensor(numbers, device=points.device) for numbers in (cuts[:-1], sizes))
        steps = torch.arange(POINTS_OF_PART, device=points.device)
        some = points[order[tops[:, None] + steps * counts[:, None] // POINTS_OF_PART]]
        direction = main_direction(some - some.mean(1, keepdim=True))
        part = torch.repeat_interleave(torch.arange(len(sizes), device=points.device), counts)
        place = (points[order] * direction[part]).sum(1).argsort()
        order = order[place[part[place].argsort(stable=True)]]
        middles = [top + -(-size // (2 * leaf)) * leaf for top, size in zip(cuts, sizes, strict=False) if size > leaf]
        cuts = sorted([*cuts, *middles])
    whole = order[: n - n % leaf].view(-1, leaf)
    return torch.cat([whole[gathered(points[whole])].view(-1), order[n - n % leaf :]])


def gathered(leaves: torch.Tensor) -> torch.Tensor:
    """An order of leaves in groups around some of them, each of which was the farthest from those before.

    The splits of the tree scatter clusters over its parts, and leave a few leaves with points of two; these come last.
    """
    centres = leaves.mean(1)
    radii = (leaves - centres[:, None]).norm(dim=2).amax(1)
    large = radii > LARGE * radii.median() if len(radii) else radii > 0
    least = torch.where(large, -torch.inf, torch.inf)
    group, chosen = torch.zeros(len(leaves), dtype=torch.int64, device=leaves.device), []
    for number in range(min(MOST_GROUPS, len(leaves))):
        chosen.append(least.argmax(keepdim=True))
        apart = (centres - centres[chosen[-1]]).square().sum(1)
        group = torch.where(apart < least, number, group)
        least = torch.minimum(least, apart)
    if chosen:
        group = chained(centres[torch.cat(chosen)])[group]
    return torch.where(large, MOST_GROUPS, group).argsort(stable=True)


def chained(points: torch.Tensor) -> torch.Tensor:
    """The place of every point on a path that goes to the nearest point it has not been to."""
    apart = torch.cdist(points, points).cpu().numpy()
    places, here = np.zeros(len(points), np.int64), 0
    for place in range(len(points)):
        places[here] = place
        apart[:, here] = np.inf
        here = int(apart[here].argmin())
    return torch.from_numpy(places).to(points.device)


def main_direction(points: torch.Tensor) -> torch.Tensor:
    """About the direction of largest spread of centred points, for every part."""
    farthest = points.square().sum(2).argmax(1)
    direction = points[torch.arange(len(points), device=points.device), farthest]
    for _ in range(POWER_STEPS):
        direction = torch.einsum("sk,skd->sd", torch.einsum("skd,sd->sk", points, direction), points)
        direction = torch.nn.functional.normalize(direction, dim=1)
    return direction


def leaves_of(points: torch.Tensor) -> Leaves:
    """The leaves of points in their order, padded with the last point."""
    n, d = points.shape
    padding = points[-1:].expand(-n % TILE, d)
    leaves = torch.cat([points, padding]).view(-1, leaf_size(n), d)
    centres = leaves.mean(1)
    offsets = leaves - centres[:, None]
    return Leaves(centres, offsets, offsets.norm(dim=2).amax(1))


def distances(rows: Leaves, columns: Leaves) -> Distances:
    """Bounds for all pairs of leaves.

    With e from centre to centre, and offsets du and dw, half a squared distance is |e|^2 / 2 + <e, du> - <e, dw> +
    |du - dw|^2 / 2. The last term is at least 0, and at most half the squared sum of the radii.
    """
    apart = torch.cdist(rows.centres, columns.centres).float()
    reach = (rows.radii[:, None] + columns.radii).float()
    (nearer, farther), (nearer_too, farther_too) = extents(rows, columns.centres), extents(columns, rows.centres)
    middle, slack = apart.square() / 2, SLACK * apart * (apart + reach)
    least = (apart * (1 - SLACK) - reach * (1 + SLACK)).clamp_min(0.0).square() / 2
    least = torch.maximum(least, middle + nearer + nearer_too.T - slack)
    most = ((apart + reach) * (1 + SLACK)).square() / 2
    most = torch.minimum(most, middle + farther + farther_too.T + slack + reach.square() * (1 + SLACK) / 2)
    return Distances(least, most)


def extents(leaves: Leaves, others: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The least and largest <centre - other, offset> among the points of every leaf, for all other centres."""
    step = max(1, ENTRIES_PER_BLOCK // (leaves.offsets.shape[1] * len(others)))
    least, most = [], []
    for centres, offsets in zip(leaves.centres.split(step), leaves.offsets.split(step), strict=True):
        products = torch.einsum("skd,sd->sk", offsets, centres)[:, :, None] - offsets @ others.T
        least.append(products.amin(1).float())
        most.append(products.amax(1).float())
    return torch.cat(least), torch.cat(most)


def highest(values: torch.Tensor) -> torch.Tensor:
    """The largest of the values of every leaf, -inf for those of padding."""
    whole = values.new_full((len(values) + -len(values) % TILE,), -torch.inf)
    whole[: len(values)] = values
    return whole.view(-1, leaf_size(len(values))).amax(1)


def lists_of(matters: torch.Tensor, sizes: tuple[int, int]) -> Lists | None:
    """Lists of the pairs of tiles that matter, as some of their leaves do, unless they spare too little.

    `sizes` are those of the leaves of rows and columns.
    """
    per_row, per_column = (TILE // size for size in sizes)
    rows, columns = len(matters) // per_row, matters.shape[1] // per_column
    matters = matters.view(rows, per_row, columns, per_column).any(3).any(1)
    counts = matters.sum(1)
    if float(counts.sum()) > (1 - LEAST_SPARED) * matters.numel():
        return None
    starts = torch.zeros(rows + 1, dtype=torch.int32, device=matters.device)
    starts[1:] = counts.cumsum(0)
    return Lists(starts, matters.nonzero()[:, 1].int())
