"""`Softmin` for point clouds on a GPU: every sum is a sweep over tiles of all pairs, and nothing is kept for a pair.

An ascent begins in the arithmetic that suits its distance from the solution: float16 at first, then products of float16
that are about as exact as float32, and in the end float64 (see `sweeps`). Newton's equations never need float64. Where
a few of Sinkhorn's iterations get close enough, they run on the device without an ascent. Pairs of tiles that cannot
matter are left out (see `skipping`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from adaptive_ot.entropic import constants, skipping, sweeps
from adaptive_ot.entropic.dual import FAR, log_weights
from adaptive_ot.entropic.gpu import TorchSoftmin
from adaptive_ot.entropic.oracle import (
    NOTHING,
    RIDGES,
    Approach,
    Conditions,
    Factors,
    Finished,
    RowRule,
    RowStochastic,
    RowUpdate,
    row_factors,
)
from adaptive_ot.entropic.skipping import Distances
from adaptive_ot.entropic.sweeps import DOUBLE, HALF, SINGLE, Lists, Scaling

if TYPE_CHECKING:
    from adaptive_ot.entropic.ascent import Dual

LOG2_E, LN2 = 1 / math.log(2.0), math.log(2.0)

# Points in float16 are good enough where they move exponents by less than this; it pays from this many pairs on.
MOST_MOVED, HALF_ULP = 0.1, 2.0**-12
PAIRS_FOR_HALF = 2**28

# Rounding errors of the dual value, errors of an ascent that can be told from them, and logarithms of the part of a sum
# that may be left out.
ROUNDING = {HALF: 2.0**-23, SINGLE: 2.0**-23, DOUBLE: constants.ROUNDING}
LEAST_ERROR = {HALF: constants.LEVEL_ERROR, SINGLE: 3e-6, DOUBLE: 0.0}
LEFT_OUT = {HALF: -10.0, SINGLE: -17.0, DOUBLE: -37.0}

# The same for a row of a plan in Newton's equations, which only lead to the next point.
LEFT_OUT_OF_EQUATIONS = -10.0

# The part of the error that is the goal that may be left to conjugate gradients.
LEAVE = 0.2

# Fewer pairs are not worth an order of the points.
PAIRS_FOR_ORDER = 2**31

# Sinkhorn's iterations are given up when, at their present rate, they would take more than this many more. The first
# are faster than the others. The error that they try to reach is about that of rounding.
MOST_AHEAD, FEWEST_ITERATIONS, LEAST_TRIED = 8, 3, 3e-7


class Side:
    """One of the clouds, in an order in which its tiles are small if that is worth it.

    `known` are the last log-sum-exps of its points, and the scalings of the other side that they belong to.
    """

    def __init__(self, points: torch.Tensor, terms: torch.Tensor, ordered: bool) -> None:
        self.order = skipping.compact_order(points) if ordered else None
        points, self.terms = (points, terms) if self.order is None else (points[self.order], terms[self.order])
        self.cloud, self.leaf = sweeps.cloud_of(points), skipping.leaf_size(len(points))
        self.given_terms = terms.cpu().numpy()
        self.known: tuple[np.ndarray, np.ndarray] | None = None

    @cached_property
    def rest(self) -> torch.Tensor:
        """What points add to the cost besides half the squared distance."""
        return self.terms - self.cloud.double[: self.cloud.size].square().sum(1) / 2

    def padded(self, array: np.ndarray, filler: float = sweeps.NO_EXPONENT) -> torch.Tensor:
        return sweeps.padded(self.put(array), self.cloud, DOUBLE, filler)

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


class Judgement(NamedTuple):
    """What float64 says about the plan of a row update: column sums, what they cost, and min_i C_ij - clipped_i."""

    at: RowUpdate
    clipped: np.ndarray
    columns: np.ndarray
    costs: np.ndarray
    lowest: np.ndarray

    def fits(self, at: RowUpdate, clipped: np.ndarray) -> bool:
        return self.at.potential is at.potential and np.array_equal(self.clipped, clipped)


class StreamedSoftmin(TorchSoftmin):
    """Two point clouds on a device."""

    most_equations, ridges = 10_000, (*RIDGES, 1e-6, 1e-5)  # sums in float32 bend the equations by as much

    def __init__(self, cost: Any, device: Any = None) -> None:
        super().__init__(cost, device)
        ordered = math.prod(cost.shape) >= PAIRS_FOR_ORDER and all(map(skipping.has_near_neighbours, (self.u, self.w)))
        self.sources, self.targets = Side(self.u, self.a, ordered), Side(self.w, self.b, ordered)
        self.apart = distances_of(self.sources, self.targets) if ordered else None
        self.epsilon, self.precision, self.plan, self.judged = 0.0, DOUBLE, None, None

    @cached_property
    def moved(self) -> float:
        """The farthest that rounding of points to float16 moves an inner product."""
        return HALF_ULP * float(self.u.norm(dim=1).max() * self.w.norm(dim=1).max())

    @property
    def conditions(self) -> Conditions:  # pyright: ignore[reportIncompatibleVariableOverride]
        few = constants.FEW_SWEEPS if self.shape[1] <= self.most_equations else constants.MANY_SWEEPS
        return Conditions(ROUNDING[self.precision], LEAST_ERROR[self.precision], LEAVE, few)

    def scale(self, epsilon: float) -> None:
        if epsilon == self.epsilon:
            return
        self.epsilon = epsilon
        many = math.prod(self.shape) >= PAIRS_FOR_HALF
        self.precision = HALF if many and self.moved < MOST_MOVED * epsilon else SINGLE
        self.sources.known = self.targets.known = None

    def refine(self) -> bool:
        if self.precision == DOUBLE:
            return False
        self.precision += 1
        return True

    def approach(self, dual: Dual, epsilon: float, tolerance: float, max_passes: int) -> Approach | None:
        """Sinkhorn's iterations for balanced transport, which are enough or a good start where epsilon is large."""
        balanced = min(dual.rule.cap, dual.cap) == FAR and dual.amount == dual.softness == dual.rule.softness == 0
        if not balanced or self.apart is not None:
            return None
        self.scale(epsilon)
        sources, targets, scale, nu = self.sources, self.targets, LOG2_E / epsilon, dual.target_weights
        rows, columns = sources.padded(LOG2_E * dual.rule.log_weights), targets.padded(LOG2_E * log_weights(nu))
        shift, shares = self._exponents(dual.reference, targets), targets.padded(nu / nu.sum(), 0.0)
        across = targets.padded(shift - shift.max())
        across, off = Scaling(across, across.float(), across), []
        while len(off) < max_passes // 2:
            down = sweeps.rescaled(sources.cloud, targets.cloud, scale, across.rounded, rows)
            given = scale, down.rounded, columns, shares, across.exact
            across = sweeps.rescaled(targets.cloud, sources.cloud, *given)
            off.append(across.off)  # of the columns before scaling
            if len(off) == 1:
                continue
            earlier, last = torch.stack(off[-2:]).sum(1).tolist()
            goal, rate = max(LEAST_TRIED, tolerance), last / earlier if earlier > 0 else 0.0
            enough = last <= LEAST_TRIED or (last * rate <= goal and len(off) >= FEWEST_ITERATIONS)
            if not enough and rate < 1 and last * rate**MOST_AHEAD <= goal:
                continue
            if not (enough or last <= constants.LEVEL_ERROR):
                return None
            if enough or last <= LEAST_ERROR[SINGLE]:  # float32 can do no more
                self.precision = DOUBLE
            h = LN2 * targets.get(across.exact[: nu.size]) + targets.given_terms / epsilon
            return Approach(np.where(nu > 0, h - dual.reference, 0.0), len(off))
        return None

    def _update_from_costs(self, h: np.ndarray, rule: RowRule) -> RowUpdate:
        log_sums = self._log_sums(self.sources, self.targets, h)
        potential = rule.potential(log_sums, slice(None))
        if self.precision < DOUBLE or rule.softness > 0:
            return RowUpdate(h, log_sums, potential, self._columns(h, potential + rule.reference))
        # This may be the end, so one sweep finds whatever `finish` will want to know. No row exceeds its weight here.
        clipped = self.epsilon * (np.minimum(potential, 0.0) if rule.dummy > -math.inf else potential)
        self.judged = self._judge(RowUpdate(h, log_sums, potential, h), rule, clipped)
        return self.judged.at

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
        lists = self._lists_for_plan(at, rule, LEFT_OUT_OF_EQUATIONS)
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
        sums = np.exp(at.potential + rule.reference + at.log_sums)
        row_factors = np.divide(most, sums, out=np.ones(sums.size), where=sums > most)
        judged = self.judged
        if judged is None or not judged.fits(at, clipped):
            judged = self._judge(at, rule, clipped)
        rows = row_factors * sums
        if (factors < 1).any():
            down, across = self._scaled(at, rule, (row_factors, factors))
            given = self.sources.cloud, self.targets.cloud, LOG2_E / self.epsilon, down, across
            forth = self._lists_for_plan(at, rule, LEFT_OUT[DOUBLE])[0]
            rows = self.sources.get(sweeps.plan_times(*given, torch.ones_like(across), DOUBLE, forth))
        columns, value = factors * judged.columns, float((factors * judged.costs).sum())
        return Finished(row_factors, rows, columns, value, judged.lowest, None)

    def _judge(self, at: RowUpdate, rule: RowRule, clipped: np.ndarray) -> Judgement:
        sources, targets = self.sources, self.targets
        down = sources.put(self._exponents(at.potential + rule.reference, sources))
        across = targets.put(self._exponents(at.h, targets))
        back = self._lists_for_plan(at, rule, LEFT_OUT[DOUBLE], clipped)[1]
        given = targets.cloud, sources.cloud, LOG2_E / self.epsilon, across, down, sources.terms, sources.put(clipped)
        columns, costs, lowest = sweeps.judge_plan(*given, back)
        found = torch.stack([columns, costs + targets.terms * columns, targets.terms + lowest], 1)
        columns, costs, lowest = targets.get(found).T.copy()
        return Judgement(at._replace(columns=columns), clipped, columns, costs, lowest)

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
        self, at: RowUpdate, rule: RowRule, left_out: float, floors: np.ndarray | None = None
    ) -> tuple[Lists | None, Lists | None]:
        """The tiles of targets that matter to sources, and those of sources that matter to targets, of a plan.

        With `floors`, tiles matter to targets also if they may have the least c_ij - floor_i.
        """
        if self.apart is None:
            return None, None
        spent = skipping.highest(-self.sources.put(at.log_sums) - self.sources.rest / self.epsilon)
        reward = skipping.highest(self.targets.put(at.h) - self.targets.rest / self.epsilon)
        negligible = left_out + math.log(rule.smallest_share * at.h.size)
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
    leaves = (skipping.leaves_of(side.cloud.double[: side.cloud.size]) for side in (sources, targets))
    apart = skipping.distances(*leaves)
    return apart if float(apart.least.max()) > 0 else None
