"""Pricing on a GPU, for costs given as CUDA tensors: it finds violated pairs block by block, in float64."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import torch

from adaptive_ot.exact.pricing import BlockPricing, Tick, Violated, unique_pairs

# Reduced costs held on the device at once (1 GB in float64).
ENTRIES_PER_BLOCK = 2**27


class TorchPricing(BlockPricing):
    """Prices blocks of rows; only the pairs it finds travel to the host, where they are evaluated again."""

    def violated(self, f: np.ndarray, g: np.ndarray, keep: int, tick: Tick) -> Violated:
        n, m = self.shape
        f_device, g_device = self._to_device(f), self._to_device(g)
        by_column = LowestOfColumns(m, keep, g_device)
        minimum = torch.zeros_like(g_device)
        step = max(1, ENTRIES_PER_BLOCK // m)
        pairs = []
        for top in range(0, n, step):
            bottom = min(top + step, n)
            reduced = self._costs(top, bottom).sub_(f_device[top:bottom, None]).sub_(g_device)
            minimum = torch.minimum(minimum, reduced.amin(dim=0))
            below = reduced < 0
            if int(below.sum()) <= keep * (bottom - top):  # few enough to keep them all
                found = below.nonzero()
            else:
                value, column = torch.topk(reduced, min(keep, m), dim=1, largest=False)
                row = torch.arange(bottom - top, device=column.device)[:, None].expand_as(column)
                found = torch.stack([row, column], dim=-1)[value < 0]
                by_column.add(reduced, top)
            pairs.append(found + torch.tensor([top, 0], device=found.device))
            tick(bottom / n)
        rows, columns = torch.cat([*pairs, by_column.pairs()]).cpu().numpy().T
        i, j = unique_pairs(rows, columns, m)
        return Violated(i, j, self.cost.entries(i, j), minimum.cpu().numpy())

    @cached_property
    def _bound_on_device(self) -> tuple[Any, ...]:
        return tuple(map(self._to_device, self.bound))

    def _costs(self, top: int, bottom: int) -> torch.Tensor:
        """Lower bounds, exact up to rounding, on the costs of the rows top:bottom, as a new tensor."""
        if self.cost.layout == "dense":
            rows: Any = self.cost.array[top:bottom]
            return rows.to(torch.float64, copy=True)
        u, v, a, b = self._bound_on_device
        return torch.addmm(b, u[top:bottom], v.T, alpha=-1.0).add_(a[top:bottom, None])

    def _to_device(self, array: np.ndarray) -> Any:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.cost.kind.device)


class LowestOfColumns:
    """The lowest `keep` entries below zero of every column, over blocks of rows added one after the other."""

    def __init__(self, columns: int, keep: int, like: torch.Tensor) -> None:
        self.value = like.new_zeros((keep, columns))
        self.row = torch.zeros_like(self.value, dtype=torch.int64)

    def add(self, block: torch.Tensor, top: int) -> None:
        keep = len(self.value)
        value, row = torch.topk(block, min(keep, len(block)), dim=0, largest=False)
        value, row = torch.cat([self.value, value]), torch.cat([self.row, row + top])
        self.value, place = torch.topk(value, keep, dim=0, largest=False)
        self.row = row.gather(0, place)

    def pairs(self) -> torch.Tensor:
        """(row, column) of the kept entries."""
        column = torch.arange(self.row.shape[1], device=self.row.device).expand_as(self.row)
        return torch.stack([self.row, column], dim=-1)[self.value < 0]
