"""`Softmin` in torch, for dense and point costs given as CUDA tensors, in float64.

P is kept on the device if it fits in one block of rows; otherwise each pass makes it anew, so that nothing of the size
of all pairs is stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch

from adaptive_ot._points import inner_products
from adaptive_ot.entropic.dense import ArraySoftmin
from adaptive_ot.entropic.oracle import RIDGES, RowStochastic

# Numbers in a block of rows (1 GB in float64); a P of up to this size is kept.
ENTRIES_PER_BLOCK = 2**27


class TorchSoftmin(ArraySoftmin):
    """A cost matrix, or points, on a device."""

    xp = torch
    most_equations, ridges = 20_000, RIDGES

    def __init__(self, cost: Any, device: Any = None) -> None:
        super().__init__(cost.shape)
        self.cost, self.device = cost, device or cost.kind.device
        if cost.layout == "points":
            self.u, self.w, self.a, self.b = inner_products(cost, torch, partial(torch.as_tensor, device=self.device))

    def _blocks(self) -> Iterator[tuple[slice, torch.Tensor]]:
        n, m = self.shape
        step = max(1, ENTRIES_PER_BLOCK // m)
        for rows in (slice(top, min(top + step, n)) for top in range(0, n, step)):
            if self.cost.layout == "dense":
                yield rows, torch.as_tensor(self.cost.array[rows], dtype=torch.float64, device=self.device)
            else:
                product = torch.addmm(self.b, self.u[rows], self.w.T, alpha=-1.0)
                yield rows, product.add_(self.a[rows, None])

    def _put(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)

    def _get(self, array: torch.Tensor) -> np.ndarray:
        return array.cpu().numpy()

    def _cost(self, plan: torch.Tensor, costs: torch.Tensor) -> float:
        return float(torch.where(plan > 0, plan * costs, 0.0).sum())

    def _solve(
        self, p: RowStochastic, factors: np.ndarray, growth: np.ndarray, side: np.ndarray, right: np.ndarray
    ) -> tuple[bool, np.ndarray]:
        if right.size > self.most_equations:
            return False, right
        sides = self._put(side)
        matrix = self._gram(p, factors, growth).addmm_(sides.T, sides).neg_()
        matrix.diagonal().add_(1.0)
        for ridge in self.ridges:
            matrix.diagonal().add_(ridge)
            factor, failed = torch.linalg.cholesky_ex(matrix)
            if not int(failed):
                return True, self._get(torch.cholesky_solve(self._put(right)[:, None], factor)[:, 0])
        return False, right
