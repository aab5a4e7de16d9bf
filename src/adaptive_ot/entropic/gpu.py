"""`Softmin` in torch, for dense and point costs given as CUDA tensors: the same questions, in blocks of rows.

Everything is float64. The kernel P is kept on the device if it fits; otherwise each pass makes it anew, so that nothing
of the size of all pairs is stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from adaptive_ot._points import inner_products
from adaptive_ot.costs import ArrayCost, Cost, PointCost
from adaptive_ot.entropic.oracle import Balanced, Finished, RowRule, Softmin

# Numbers in a block of rows (1 GB in float64); a kernel of up to this size is kept.
ENTRIES_PER_BLOCK = 2**27

MOST_EQUATIONS = 20_000
RIDGES = (1e-14, 1e-12, 1e-10, 1e-8)


class TorchSoftmin(Softmin):
    """Vectors come and go as NumPy arrays; matrices stay on the device."""

    def __init__(self, cost: Cost) -> None:
        self.cost, self.shape, self.epsilon = cost, cost.shape, 1.0
        self.device = cost.kind.device
        self.kept: tuple[Balanced, torch.Tensor] | None = None
        if isinstance(cost, PointCost):
            self.u, self.w, self.a, self.b = map(self._to_device, inner_products(cost))

    def scale(self, epsilon: float) -> None:
        self.epsilon = epsilon

    def balance(self, h: np.ndarray, rule: RowRule) -> Balanced:
        n, m = self.shape
        row_sums, potential, columns = np.empty(n), np.empty(n), torch.zeros(m, dtype=torch.float64, device=self.device)
        scaling = self._to_device(h)
        kernel = torch.empty(0)
        for top, bottom, costs in self._blocks():
            exponents = scaling - costs / self.epsilon
            sums = torch.logsumexp(exponents, dim=1)
            row_sums[top:bottom] = sums.cpu().numpy()
            potential[top:bottom] = rule.potential(row_sums[top:bottom], slice(top, bottom))
            kernel = torch.exp(exponents - torch.where(sums > -torch.inf, sums, 0.0)[:, None])
            moved = np.exp(potential[top:bottom] + rule.reference[top:bottom] + row_sums[top:bottom])
            columns += self._to_device(moved) @ kernel
        balanced = Balanced(h, row_sums, potential, columns.cpu().numpy())
        if len(kernel) == n:
            self.kept = balanced, kernel
        return balanced

    def curvature(self, at: Balanced, rule: RowRule, weights: np.ndarray, x: np.ndarray) -> np.ndarray:
        factors, vector = self._to_device((weights**0.5 * at.rows(rule)) ** 2), self._to_device(x)
        out = torch.zeros_like(vector)
        for top, bottom, kernel in self._kernels(at):
            out += (factors[top:bottom] * (kernel @ vector)) @ kernel
        return out.cpu().numpy()

    def solve_directly(
        self,
        at: Balanced,
        rule: RowRule,
        weights: np.ndarray,
        diagonal: np.ndarray,
        spill: np.ndarray,
        free: np.ndarray,
        right: np.ndarray,
    ) -> tuple[bool, np.ndarray]:
        if right.size > MOST_EQUATIONS:
            return False, right
        scale = 1 / np.sqrt(diagonal)  # to a diagonal of ones
        matrix = torch.eye(scale.size, dtype=torch.float64, device=self.device)
        factors, column_scale = self._to_device(weights**0.5 * at.rows(rule)), self._to_device(scale)
        for top, bottom, kernel in self._kernels(at):
            plan = factors[top:bottom, None] * kernel * column_scale
            matrix -= plan.T @ plan
        side = self._to_device(spill * scale)
        matrix -= side.T @ side
        fixed = self._to_device(~free)
        matrix[fixed], matrix[:, fixed] = 0.0, 0.0
        matrix[fixed, fixed] = 1.0
        for ridge in RIDGES:  # rounding can make the matrix slightly indefinite
            matrix.diagonal().add_(ridge)
            factor, failed = torch.linalg.cholesky_ex(matrix)
            if not int(failed):
                break
        else:
            return False, right
        return True, scale * torch.cholesky_solve(self._to_device(scale * right)[:, None], factor)[:, 0].cpu().numpy()

    def finish(
        self, at: Balanced, rule: RowRule, most: np.ndarray, factors: np.ndarray, clipped: np.ndarray, keep: bool
    ) -> Finished:
        self.kept = None  # of no more use
        n, m = self.shape
        scaling, h, limit = map(self._to_device, (at.potential + rule.reference, at.h, most))
        potential, column_factors = map(self._to_device, (clipped, factors))
        lowest, columns = (torch.full((m,), x, dtype=torch.float64, device=self.device) for x in (torch.inf, 0.0))
        row_factors, rows, value, plans = np.empty(n), np.empty(n), 0.0, []
        for top, bottom, costs in self._blocks():
            plan = torch.exp(scaling[top:bottom, None] + (h - costs / self.epsilon))
            sums = plan.sum(dim=1)
            scale = torch.where(sums > limit[top:bottom], limit[top:bottom] / sums, 1.0)
            plan *= scale[:, None] * column_factors
            row_factors[top:bottom], rows[top:bottom] = scale.cpu().numpy(), plan.sum(dim=1).cpu().numpy()
            columns += plan.sum(dim=0)
            value += float(torch.where(plan > 0, plan * costs, 0.0).sum())
            lowest = torch.minimum(lowest, (costs - potential[top:bottom, None]).amin(dim=0))
            if keep:
                plans.append(plan)
        plan = torch.cat(plans) if keep else None
        return Finished(row_factors, rows, columns.cpu().numpy(), value, lowest.cpu().numpy(), plan)

    def plan_rows(self, at: Balanced, rule: RowRule) -> Iterator[tuple[int, np.ndarray]]:
        scaling, h = self._to_device(at.potential + rule.reference), self._to_device(at.h)
        for top, bottom, costs in self._blocks():
            yield top, torch.exp(scaling[top:bottom, None] + (h - costs / self.epsilon)).cpu().numpy()

    def _kernels(self, at: Balanced) -> Iterator[tuple[int, int, torch.Tensor]]:
        """P in blocks of rows: the one that was kept, or made anew."""
        if self.kept is not None and self.kept[0].h is at.h:
            yield 0, self.shape[0], self.kept[1]
            return
        h, sums = self._to_device(at.h), self._to_device(np.where(np.isfinite(at.row_sums), at.row_sums, 0.0))
        for top, bottom, costs in self._blocks():
            yield top, bottom, torch.exp(h - costs / self.epsilon - sums[top:bottom, None])

    def _blocks(self) -> Iterator[tuple[int, int, torch.Tensor]]:
        n, m = self.shape
        step = max(1, ENTRIES_PER_BLOCK // m)
        for top in range(0, n, step):
            bottom = min(top + step, n)
            if isinstance(self.cost, ArrayCost):
                rows: Any = self.cost.array[top:bottom]
                yield top, bottom, rows.to(torch.float64)
            else:
                product = torch.addmm(self.b, self.u[top:bottom], self.w.T, alpha=-1.0)
                yield top, bottom, product.add_(self.a[top:bottom, None])

    def _to_device(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)
