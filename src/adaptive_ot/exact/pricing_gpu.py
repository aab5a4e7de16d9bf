"""Pricing on a GPU, for costs given as CUDA tensors: the same contract as `_pricing`, block by block in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from adaptive_ot._points import HALF_ULP, inner_product_bound
from adaptive_ot.costs import ArrayCost, Cost, PointCost
from adaptive_ot.exact.pricing import Pricing, Tick, Violated, unique_pairs

# Reduced costs held on the device at once (1 GB in float64).
ENTRIES_PER_BLOCK = 2**27


class TorchPricing(Pricing):
    """Prices blocks of rows; only the pairs it finds travel to the host, where they are evaluated again."""

    def __init__(self, cost: Cost) -> None:
        self.cost, self.shape = cost, cost.shape
        self.device = cost.kind.device
        if isinstance(cost, PointCost):
            self.u, self.v, self.a, self.b = map(self._to_device, inner_product_bound(cost, HALF_ULP))

    def violated(self, f: np.ndarray, g: np.ndarray, keep: int, tick: Tick) -> Violated:
        n, m = self.shape
        f_device, g_device = self._to_device(f), self._to_device(g)
        by_column = Lowest(keep)
        minimum = torch.zeros(m, dtype=torch.float64, device=self.device)
        step = max(1, ENTRIES_PER_BLOCK // m)
        pairs = []
        for top in range(0, n, step):
            bottom = min(top + step, n)
            reduced = self._block(top, bottom).sub_(f_device[top:bottom, None]).sub_(g_device)
            minimum = torch.minimum(minimum, reduced.amin(dim=0))
            below = reduced < 0
            if int(below.sum()) <= keep * (bottom - top):  # few enough to take them all
                found = below.nonzero()
            else:
                value, column = torch.topk(reduced, min(keep, m), dim=1, largest=False)
                row = torch.arange(bottom - top, device=self.device)[:, None].expand_as(column)
                found = torch.stack([row, column], dim=-1)[value < 0]
                by_column.add(reduced, top)
            pairs.append(found + torch.tensor([top, 0], device=self.device))
            tick(bottom / n)
        rows, columns = torch.cat([*pairs, by_column.pairs().to(self.device)]).cpu().numpy().T
        i, j = unique_pairs(rows, columns, m)
        return Violated(i, j, self.cost.entries(i, j), minimum.cpu().numpy())

    def _block(self, top: int, bottom: int) -> torch.Tensor:
        """Lower bounds, up to rounding exact, for the costs of the rows top:bottom, in memory of their own."""
        if isinstance(self.cost, ArrayCost):
            rows: Any = self.cost.array[top:bottom]
            return rows.to(torch.float64, copy=True)
        return torch.addmm(self.b, self.u[top:bottom], self.v.T, alpha=-1.0).add_(self.a[top:bottom, None])

    def _to_device(self, array: np.ndarray) -> Any:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)


class Lowest:
    """The lowest `keep` entries of every column, over blocks of rows that are added one after the other."""

    def __init__(self, keep: int) -> None:
        self.keep = keep
        self.value: torch.Tensor | None = None
        self.row: torch.Tensor | None = None

    def add(self, block: torch.Tensor, top: int) -> None:
        value, row = torch.topk(block, min(self.keep, len(block)), dim=0, largest=False)
        row += top
        if self.value is not None and self.row is not None:
            value, row = torch.cat([self.value, value]), torch.cat([self.row, row])
            value, place = torch.topk(value, min(self.keep, len(value)), dim=0, largest=False)
            row = row.gather(0, place)
        self.value, self.row = value, row

    def pairs(self) -> torch.Tensor:
        """(row, column) of the kept entries below zero."""
        if self.value is None or self.row is None:
            return torch.empty((0, 2), dtype=torch.int64)
        column = torch.arange(self.row.shape[1], device=self.row.device).expand_as(self.row)
        return torch.stack([self.row, column], dim=-1)[self.value < 0]
