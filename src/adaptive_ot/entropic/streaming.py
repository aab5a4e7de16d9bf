"""`Softmin` for point clouds on a GPU: every sum is a sweep over tiles of all pairs, and nothing is kept for a pair.

An ascent begins in the arithmetic that suits its distance from the solution: float16 at first, then products of float16
that are about as exact as float32, and in the end float64 (see `sweeps`). Newton's equations never need float64. Pairs
of tiles that cannot matter are left out (see `skipping`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from adaptive_ot.entropic import constants, skipping, sweeps
from adaptive_ot.entropic.gpu import TorchSoftmin
from adaptive_ot.entropic.oracle import (
    NOTHING,
    RIDGES,
    Conditions,
    Factors,
    Finished,
    RowRule,
    RowStochastic,
    RowUpdate,
    row_factors,
)
from adaptive_ot.entropic.skipping import Distances
from adaptive_ot.entropic.sweeps import DOUBLE, HALF, SINGLE, Lists

LOG2_E, LN2 = 1 / math.log(2.0), math.log(2.0)

# Points in float16 are good enough where they move exponents by less than this; it pays from this many pairs on.
MOST_MOVED, HALF_ULP = 0.1, 2.0**-12
PAIRS_FOR_HALF = 2**28

# Rounding errors of the dual value, errors of an ascent that can be told from them, and logarithms of the part of a sum
# that may be left out.
ROUNDING = {HALF: 2.0**-23, SINGLE: 2.0**-23, DOUBLE: constants.ROUNDING}
LEAST_ERROR = {HALF: constants.LEVEL_ERROR, SINGLE: 3e-6, DOUBLE: 0.0}
LEFT_OUT = {HALF: -10.0, SINGLE: -17.0, DOUBLE: -37.0}

# The part of the error that is the goal that may be left to conjugate gradients.
LEAVE = 0.2

# Fewer pairs are not worth an order of the points.
PAIRS_FOR_ORDER = 2**31


class Side:
    """One of the clouds, in an order in which its tiles are small if that is worth it.

    `known` are the last log-sum-exps of its points, and the scalings of the other side that they belong to.
    """

    def __init__(self, points: torch.Tensor, terms: torch.Tensor, ordered: bool) -> None:
        self.order = skipping.compact_order(points) if ordered else None
        points, self.terms = (points, terms) if self.order is None else (points[self.order], terms[self.order])
        self.cloud = sweeps.cloud_of(points)
        self.balls, self.leaf = skipping.balls_of(points) if ordered else None, skipping.leaf_size(len(points))
        self.rest = self.terms - points.square().sum(1) / 2  # of the cost, besides half the squared distance
        self.given_terms = terms.cpu().numpy()
        self.known: tuple[np.ndarray, np.ndarray] | None = None

    def put(self, array: np.ndarray) -> torch.Tensor:
        """A vector or matrix in this order, on the device."""
        moved = torch.from_numpy(array).to(self.terms.device)
        return moved if self.order is None else moved[self.order]

    def get(self, tensor: torch.Tensor) -> np.ndarray:
        """A vector or matrix in its own order, on the host."""
        if self.order is not None:
            tensor = torch.empty_like(tensor).index_copy_(0, self.order, tensor)
        return tensor.cpu().numpy()


class Plan(NamedTuple):
    """The plan of a row update, as `curvature` applies it over and over: exponents, factors of rows, and lists."""

    at: RowUpdate
    weights: np.ndarray
    precision: int
    down: torch.Tensor
    across: torch.Tensor
    factors: torch.Tensor
    unit: float
    forth: Lists | None
    back: Lists | None


class StreamedSoftmin(TorchSoftmin):
    """Two point clouds on a device."""

    most_equations, ridges = 10_000, (*RIDGES, 1e-6, 1e-5)  # sums in float32 bend the equations by as much

    def __init__(self, cost: Any, device: Any = None) -> None:
        super().__init__(cost, device)
        ordered = math.prod(cost.shape) >= PAIRS_FOR_ORDER
        self.sources, self.targets = Side(self.u, self.a, ordered), Side(self.w, self.b, ordered)
        self.moved = HALF_ULP * float(self.u.norm(dim=1).max() * self.w.norm(dim=1).max())
        self.apart = distances_of(self.sources, self.targets)
        self.precision, self.plan = DOUBLE, None

    @property
    def conditions(self) -> Conditions:  # pyright: ignore[reportIncompatibleVariableOverride]
        few = constants.FEW_SWEEPS if self.shape[1] <= self.most_equations else constants.MANY_SWEEPS
        return Conditions(ROUNDING[self.precision], LEAST_ERROR[self.precision], LEAVE, few)

    def scale(self, epsilon: float) -> None:
        super().scale(epsilon)
        many = math.prod(self.shape) >= PAIRS_FOR_HALF
        self.precision = HALF if many and self.moved < MOST_MOVED * epsilon else SINGLE
        self.sources.known = self.targets.known = None

    def refine(self) -> bool:
        if self.precision == DOUBLE:
            return False
        self.precision += 1
        return True

    def _update_from_costs(self, h: np.ndarray, rule: RowRule) -> RowUpdate:
        log_sums = self._log_sums(self.sources, self.targets, h)
        potential = rule.potential(log_sums, slice(None))
        return RowUpdate(h, log_sums, potential, self._columns(h, potential + rule.reference))

    def _columns(self, h: np.ndarray, scaling: np.ndarray) -> np.ndarray:
        return np.exp(h + self._log_sums(self.targets, self.sources, scaling))

    def weighted_columns(self, at: RowUpdate, rule: RowRule, weights: np.ndarray) -> np.ndarray:
        scaling = at.potential + rule.reference
        with np.errstate(divide="ignore"):
            shares = np.log(weights) + scaling + at.log_sums
        return self._columns(at.h, np.maximum(scaling + shares, NOTHING))

    def _log_sums(self, rows: Side, columns: Side, scaling: np.ndarray) -> np.ndarray:
        """The log-sum-exp of scaling_j - c_ij / epsilon for every row."""
        shift = self._exponents(scaling, columns)
        middle = shift.max()  # numbers of moderate size keep more digits in float32
        lists = self._lists_for_sums(rows, columns, scaling)
        given = rows.cloud, columns.cloud, LOG2_E / self.epsilon, columns.put(shift - middle), self.precision, lists
        log_sums = rows.get(sweeps.log_sums(*given)) + (middle * LN2 - rows.given_terms / self.epsilon)
        rows.known = scaling, log_sums
        return log_sums

    def _exponents(self, scaling: np.ndarray, side: Side) -> np.ndarray:
        """scaling_i - terms_i / epsilon in base 2."""
        return (scaling - side.given_terms / self.epsilon) * LOG2_E

    def curvature(self, at: RowUpdate, rule: RowRule, weights: np.ndarray, x: np.ndarray) -> np.ndarray:
        plan, sources, targets = self._plan_at(at, rule, weights), self.sources, self.targets
        size = float(np.abs(x).max()) or 1.0  # far from the limits of float32
        given = sources.cloud, targets.cloud, LOG2_E / self.epsilon, plan.down, plan.across
        sent = plan.factors * sweeps.plan_times(*given, targets.put(x / size), plan.precision, plan.forth)
        given = targets.cloud, sources.cloud, LOG2_E / self.epsilon, plan.across, plan.down
        return size * plan.unit * targets.get(sweeps.plan_times(*given, sent, plan.precision, plan.back))

    def _plan_at(self, at: RowUpdate, rule: RowRule, weights: np.ndarray) -> Plan:
        """What `curvature` needs; the same as last time if its arguments are."""
        precision, plan = min(self.precision, SINGLE), self.plan
        if plan is not None and plan.at is at and plan.weights is weights and plan.precision == precision:
            return plan
        factors = row_factors(at.potential, rule.reference, at.log_sums, weights)
        unit = float(factors.max()) or 1.0
        down, across = self._exponents(-at.log_sums, self.sources), self._exponents(at.h, self.targets)
        # -log_sums - c / epsilon: the terms of the rows have the sign of the log-sum-exps here.
        middle = across.max()
        down, across = self.sources.put(down + middle), self.targets.put(across - middle)
        lists = self._lists_for_plan(at, rule, precision)
        self.plan = Plan(at, weights, precision, down, across, self.sources.put(factors / unit), unit, *lists)
        return self.plan

    def _p_blocks(self, p: RowStochastic) -> Iterator[tuple[slice, Any]]:
        h = self._put(p.h)  # rows sum to one in float64, whatever arithmetic their sums came from
        for rows, costs in self._blocks():
            yield rows, self._row_stochastic(h - costs / self.epsilon)[0]

    def fitted(
        self,
        at: RowUpdate,
        rule: RowRule,
        most: np.ndarray,
        fit: Callable[[np.ndarray], np.ndarray],
        clipped: np.ndarray,
        keep: bool,
    ) -> tuple[Finished, np.ndarray]:
        factors = fit(at.columns)  # in float64 at the end of an ascent
        return self.finish(at, rule, most, factors, clipped, keep), factors

    def finish(
        self, at: RowUpdate, rule: RowRule, most: np.ndarray, factors: np.ndarray, clipped: np.ndarray, keep: bool
    ) -> Finished:
        sources, targets, scale = self.sources, self.targets, LOG2_E / self.epsilon
        sums = np.exp(at.potential + rule.reference + at.log_sums)
        row_factors = np.divide(most, sums, out=np.ones(sums.size), where=sums > most)
        down, across = self._scaled(at, rule, (row_factors, factors))
        forth, back = self._lists_for_plan(at, rule, DOUBLE, clipped)
        given = sources.cloud, targets.cloud, scale, down, across, torch.ones_like(across), DOUBLE, forth
        rows = sweeps.plan_times(*given)
        given = targets.cloud, sources.cloud, scale, across, down, sources.terms, sources.put(clipped), back
        columns, costs, lowest = sweeps.judge_plan(*given)
        value = float((costs + targets.terms * columns).sum())
        lowest = targets.get(targets.terms + lowest)
        return Finished(row_factors, sources.get(rows), targets.get(columns), value, lowest, None)

    def times(self, at: RowUpdate, rule: RowRule, factors: Factors, matrix: np.ndarray) -> np.ndarray:
        given = self.sources.cloud, self.targets.cloud, LOG2_E / self.epsilon, *self._scaled(at, rule, factors)
        return self.sources.get(sweeps.plan_times_matrix(*given, self.targets.put(matrix)))

    def marginals(
        self, at: RowUpdate, rule: RowRule, factors: Factors, dtype: np.dtype
    ) -> tuple[np.ndarray, np.ndarray]:
        down, across = self._scaled(at, rule, factors)
        scale, rounded = LOG2_E / self.epsilon, dtype == np.float32
        sources, targets = self.sources.cloud, self.targets.cloud
        ones = torch.ones_like(across), torch.ones_like(down)
        rows = sweeps.plan_times(sources, targets, scale, down, across, ones[0], DOUBLE, None, rounded)
        columns = sweeps.plan_times(targets, sources, scale, across, down, ones[1], DOUBLE, None, rounded)
        return self.sources.get(rows), self.targets.get(columns)

    def _scaled(self, at: RowUpdate, rule: RowRule, factors: Factors) -> tuple[torch.Tensor, torch.Tensor]:
        """The parts of rows and columns in the exponents of a plan multiplied by factors."""
        rows, columns = map(np.log, factors)
        down = self._exponents(at.potential + rule.reference + rows, self.sources)
        return self.sources.put(down), self.targets.put(self._exponents(at.h + columns, self.targets))

    def _lists_for_sums(self, rows: Side, columns: Side, scaling: np.ndarray) -> Lists | None:
        """The tiles that matter to log-sum-exps, of which only lower bounds are known yet."""
        if self.apart is None:
            return None
        apart = self.apart if rows is self.sources else self.apart.transposed()
        reward = skipping.highest(columns.put(scaling) - columns.rest / self.epsilon)
        least = (reward - apart.most / self.epsilon).amax(1)
        if rows.known:
            before, log_sums = rows.known
            known = -skipping.highest(-rows.put(log_sums) - rows.rest / self.epsilon)
            least = torch.maximum(least, known + (scaling - before).min())
        negligible = LEFT_OUT[self.precision] - math.log(len(scaling))
        matters = reward - apart.least / self.epsilon >= least[:, None] + negligible
        return skipping.lists_of(matters, (rows.leaf, columns.leaf))

    def _lists_for_plan(
        self, at: RowUpdate, rule: RowRule, precision: int, floors: np.ndarray | None = None
    ) -> tuple[Lists | None, Lists | None]:
        """The tiles of targets that matter to sources, and those of sources that matter to targets, of a plan.

        With `floors`, tiles matter to targets also if they may have the least c_ij - floor_i.
        """
        if self.apart is None:
            return None, None
        spent = skipping.highest(-self.sources.put(at.log_sums) - self.sources.rest / self.epsilon)
        reward = skipping.highest(self.targets.put(at.h) - self.targets.rest / self.epsilon)
        negligible = LEFT_OUT[precision] + math.log(rule.smallest_share * at.h.size)
        forth = reward - self.apart.least / self.epsilon + spent[:, None] >= negligible
        back = forth.T
        if floors is not None:
            lowest = -skipping.highest(self.sources.put(floors) - self.sources.rest)
            most = (self.apart.most.T + lowest).amin(1)
            back = back | (self.apart.least.T + lowest <= most[:, None])
        down, across = self.sources.leaf, self.targets.leaf
        return skipping.lists_of(forth, (down, across)), skipping.lists_of(back, (across, down))


def distances_of(sources: Side, targets: Side) -> Distances | None:
    """Distances between the tiles, unless they spare nothing."""
    if sources.balls is None or targets.balls is None:
        return None
    apart = skipping.distances(sources.balls, targets.balls)
    return apart if float(apart.least.max()) > 0 else None
