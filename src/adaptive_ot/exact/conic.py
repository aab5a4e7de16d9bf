"""Robust transport with chi-square balls, by an interior-point method over listed pairs.

Minimise <C, G> over G >= 0 of mass M = sum mu = sum nu whose row sums r and column sums c stay near the weights:

    sum_i (r_i - mu_i)^2 / mu_i <= rho M    and    sum_j (c_j - nu_j)^2 / nu_j <= rho M.

Where M = 1, the dual is to maximise

    <mu, f> + <nu, g> - sqrt(rho) (std_mu(f) + std_nu(g))    over    f_i + g_j <= C_ij.

The method follows the central path of both problems: Mehrotra's predictor and corrector in a product of cones, one for
every pair and a second-order cone for every ball. Its linear systems have the form of a transport problem. With D the
ratios of mass to slack on the pairs, they are

    [ diag(D 1) + Q_mu         D          ]
    [       D^T         diag(D^T 1) + Q_nu],    Q diagonal minus two squares,

and one Cholesky factor on the smaller side solves them. The potentials are feasible from the start, the plan after its
first full step. If no plan exists, the dual grows without bound: a value above the highest cost is the proof.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve

from adaptive_ot._ball import Ball
from adaptive_ot.exact.cone import Cone, ConeStep, Element

# The method stops at this gap, relative to the range of the costs.
TARGET_GAP = 1e-11

# Below this gap, this many iterations without improvement mean that rounding allows no more digits.
LOW_GAP = 1e-5
PATIENCE = 6
MAX_ITERATIONS = 200

# A point of this weight changes the value by less than a rounding error.
NEGLIGIBLE = 1e-26

# A marginal may be outside a ball by this fraction of its radius.
ROUNDING = 4e-13

# The ratios form a full matrix if it has at most this many entries, or if at least one in this many pairs is listed.
FULL_MATRIX = 1 << 16
ONE_LISTED_IN = 8

Report = Callable[[int, float], None]
Vectors = tuple[np.ndarray, np.ndarray]


class RobustTransport(NamedTuple):
    """A plan in the balls, with potentials that bound its value from below.

    The potentials add up to at most the cost of every listed pair. `infeasible` means a proof that no plan is in
    the balls. The mass is then zero, as it is if the method gave up before it had found a plan.
    """

    mass: np.ndarray
    source_potential: np.ndarray
    target_potential: np.ndarray
    iterations: int
    infeasible: bool


def robust_transport(
    rows: np.ndarray,
    columns: np.ndarray,
    costs: np.ndarray,
    source_weights: np.ndarray,
    target_weights: np.ndarray,
    rho: float,
    report: Report = lambda iteration, gap: None,
) -> RobustTransport:
    """Solve over the listed pairs; `report` gets the iteration and the gap relative to the range of the costs.

    Some source must have weight.
    """
    mass, total = np.zeros(rows.size), float(source_weights.sum())
    f, g = np.zeros(source_weights.size), np.zeros(target_weights.size)
    negligible = NEGLIGIBLE / max(1.0, rho) * total
    heavy_rows, heavy_columns = source_weights > negligible, target_weights > negligible
    use = heavy_rows[rows] & heavy_columns[columns]
    if not use.any():
        return RobustTransport(mass, f, g, 0, infeasible=True)
    lowest = float(costs[use].min())
    scale = (float(costs[use].max()) - lowest) or abs(lowest) or 1.0
    mu, nu = source_weights[heavy_rows], target_weights[heavy_columns]
    row_number, column_number = np.cumsum(heavy_rows) - 1, np.cumsum(heavy_columns) - 1
    pairs = Listed(row_number[rows[use]], column_number[columns[use]], mu.size, nu.size)
    source, target = Ball(mu / mu.sum(), rho), Ball(nu / nu.sum(), rho)
    solved = solve_scaled(pairs, (costs[use] - lowest) / scale, source, target, report)
    mass[use] = total * solved.mass
    f[heavy_rows], g[heavy_columns] = scale * solved.source_potential, scale * solved.target_potential + lowest
    # Points without weight: any potentials below the costs will do.
    light = ~heavy_rows[rows] & heavy_columns[columns]
    f = np.where(heavy_rows, f, finite(lowest_at(rows[light], (costs - g[columns])[light], f.size)))
    light = ~heavy_columns[columns]
    g = np.where(heavy_columns, g, finite(lowest_at(columns[light], (costs - f[rows])[light], g.size)))
    return solved._replace(mass=mass, source_potential=f, target_potential=g)


def solve_scaled(pairs: Listed, costs: np.ndarray, source: Ball, target: Ball, report: Report) -> RobustTransport:
    """Solve for costs from zero to one; for the linear systems, the targets must be the smaller side."""
    if pairs.n < pairs.m:
        solved = solve_scaled(Listed(pairs.columns, pairs.rows, pairs.m, pairs.n), costs, target, source, report)
        return solved._replace(source_potential=solved.target_potential, target_potential=solved.source_potential)
    if source.is_everything and target.is_everything:
        cheapest = np.arange(costs.size) == costs.argmin()
        return RobustTransport(cheapest.astype(float), np.zeros(pairs.n), np.zeros(pairs.m), 0, infeasible=False)
    path, best = CentralPath(pairs, costs, source, target), BestSoFar(pairs, costs, source, target)
    listed = pairs.sums(np.ones(costs.size))
    infeasible = source.is_beyond(listed[0] > 0) or target.is_beyond(listed[1] > 0)
    iteration = waited = 0
    while not infeasible and iteration < MAX_ITERATIONS and waited < PATIENCE and best.gap > TARGET_GAP:
        gap_before = best.gap
        # Once the digits are used up, a system may be singular; the best result so far is then the answer.
        with np.errstate(all="ignore"):
            try:
                path.advance()
            except (np.linalg.LinAlgError, ValueError, ArithmeticError):
                break
            if not path.is_interior():
                break
        iteration += 1
        best.improve_plan(path.mass / path.mass.sum())
        best.improve_potentials(path.f)
        report(iteration, best.gap)
        waited = waited + 1 if LOW_GAP > best.gap > 0.9 * gap_before else 0
        infeasible = best.dual_value > 1.0 + 1e-6
    return RobustTransport(best.mass, *best.potentials, iteration, infeasible)


def lowest_at(points: np.ndarray, values: np.ndarray, size: int) -> np.ndarray:
    """The lowest of the values at each point; infinite for points without values."""
    lowest = np.full(size, np.inf)
    np.minimum.at(lowest, points, values)
    return lowest


def finite(potential: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(potential), potential, 0.0)


class Listed(NamedTuple):
    """The listed pairs of n sources and m targets."""

    rows: np.ndarray
    columns: np.ndarray
    n: int
    m: int

    def sums(self, values: np.ndarray) -> Vectors:
        """Sums over the pairs of each source and of each target."""
        return np.bincount(self.rows, values, self.n), np.bincount(self.columns, values, self.m)

    def added(self, f: np.ndarray, g: np.ndarray) -> np.ndarray:
        return f[self.rows] + g[self.columns]

    def matrix(self, values: np.ndarray) -> Any:
        if self.n * self.m > max(FULL_MATRIX, ONE_LISTED_IN * self.rows.size):
            return sparse.csr_array((values, (self.rows, self.columns)), shape=(self.n, self.m))
        return np.bincount(self.rows * self.m + self.columns, values, self.n * self.m).reshape(self.n, self.m)


class BestSoFar:
    """The best plan in the balls and the best potentials; they need not come from the same iteration."""

    def __init__(self, pairs: Listed, costs: np.ndarray, source: Ball, target: Ball) -> None:
        self.pairs, self.costs, self.source, self.target = pairs, costs, source, target
        self.mass, self.value = np.zeros(costs.size), math.inf
        self.potentials, self.dual_value = (np.zeros(pairs.n), np.zeros(pairs.m)), -math.inf
        self.central, self.central_reach = self.mass, math.inf

    @property
    def gap(self) -> float:
        return self.value - self.dual_value

    def improve_plan(self, mass: np.ndarray) -> None:
        """Mix a plan outside the balls (by rounding, say) with the plan that was farthest inside."""
        reach = self.reach(mass)
        if reach < self.central_reach:
            self.central, self.central_reach = mass, reach
        if reach > 1.0 > self.central_reach:
            mass = mass + (reach - 1.0) / (reach - self.central_reach) * (self.central - mass)
        value = float(mass @ self.costs)
        if value < self.value and self.reach(mass) <= 1.0 + ROUNDING:
            self.mass, self.value = mass, value

    def reach(self, mass: np.ndarray) -> float:
        row_sums, column_sums = self.pairs.sums(mass)
        return max(self.source.reach(row_sums), self.target.reach(column_sums))

    def improve_potentials(self, f: np.ndarray) -> None:
        """Raise both potentials to the costs, as far as that improves the bound."""
        pairs = self.pairs
        g = self.target.cut(lowest_at(pairs.columns, self.costs - f[pairs.rows], pairs.m))
        f = self.source.cut(lowest_at(pairs.rows, self.costs - g[pairs.columns], pairs.n))
        dual_value = self.source.lowest_mean(f) + self.target.lowest_mean(g)
        if dual_value > self.dual_value:
            self.potentials, self.dual_value = (f, g), dual_value


class Direction(NamedTuple):
    mass: np.ndarray
    slack: np.ndarray
    f: np.ndarray
    g: np.ndarray
    source: ConeStep
    target: ConeStep


class CentralPath:
    """An interior plan with interior potentials, and how to move both along the central path."""

    def __init__(self, pairs: Listed, costs: np.ndarray, source: Ball, target: Ball) -> None:
        self.pairs, self.source, self.target = pairs, Cone(source), Cone(target)
        product = self.source.marginal()[pairs.rows] * self.target.marginal()[pairs.columns]
        self.mass = product / product.sum()
        self.f, self.g = np.full(pairs.n, -0.5), np.full(pairs.m, -0.5)
        self.slack = costs + 1.0

    def gap(self) -> float:
        return float(self.mass @ self.slack) + self.source.complementarity() + self.target.complementarity()

    def is_interior(self) -> bool:
        return math.isfinite(self.gap() + float(self.f.sum())) and min(self.mass.min(), self.slack.min()) > 0

    def advance(self) -> None:
        """Try a step to the boundary, then take a step that is corrected by it and stays as central as necessary."""
        self.source.rescale()
        self.target.rescale()
        equations = NormalEquations(self)
        tried = self.direction(equations, -self.mass, self.source.to_boundary(), self.target.to_boundary())
        centre = self.gap() / (self.mass.size + 2) * (1.0 - min(1.0, self.longest(tried))) ** 3
        step = self.direction(
            equations,
            (centre - tried.mass * tried.slack) / self.slack - self.mass,
            self.source.to_centre(centre, tried.source),
            self.target.to_centre(centre, tried.target),
        )
        # One length for the plan and the potentials: with two, the path is lost near its end.
        length = min(1.0, 0.99 * self.longest(step))
        self.mass, self.slack = self.mass + length * step.mass, self.slack + length * step.slack
        self.f, self.g = self.f + length * step.f, self.g + length * step.g
        self.source.move(step.source, length)
        self.target.move(step.target, length)

    def direction(
        self, equations: NormalEquations, aim: np.ndarray, source_aim: Element, target_aim: Element
    ) -> Direction:
        """The step with these aims after which the plan has the marginals; a second round refines the first."""
        pairs, source, target = self.pairs, self.source, self.target
        f, g = np.zeros(pairs.n), np.zeros(pairs.m)
        wanted = source.marginal(), target.marginal()
        for _ in range(2):
            row_sums, column_sums = pairs.sums(self.mass + aim + equations.ratio * pairs.added(f, g))
            more_f, more_g = equations.solve(
                wanted[0] + source.ball.spread * source.step(source_aim, f).offset - row_sums,
                wanted[1] + target.ball.spread * target.step(target_aim, g).offset - column_sums,
            )
            f, g = f + more_f, g + more_g
        added = pairs.added(f, g)
        source_step, target_step = source.step(source_aim, f), target.step(target_aim, g)
        return Direction(aim + equations.ratio * added, -added, f, g, source_step, target_step)

    def longest(self, step: Direction) -> float:
        """How much of a step stays in the cones."""
        fastest = -min(float((step.mass / self.mass).min()), float((step.slack / self.slack).min()))
        of_pairs = 1.0 / fastest if fastest > 0 else math.inf
        return min(of_pairs, self.source.longest(step.source), self.target.longest(step.target))


class NormalEquations:
    """The linear systems of one iteration: find steps of the potentials that change the sums by given amounts."""

    def __init__(self, path: CentralPath) -> None:
        pairs, source, target = path.pairs, path.source, path.target
        self.ratio = path.mass / path.slack
        row_spread, column_spread = source.scale * source.ball.spread, target.scale * target.ball.spread
        row_sums, column_sums = pairs.sums(self.ratio)
        self.diagonal = row_sums + row_spread**2
        self.eliminated = pairs.matrix(self.ratio / self.diagonal[pairs.rows])
        schur = np.diag(column_sums + column_spread**2) - pairs.matrix(self.ratio).T @ self.eliminated
        self.factor = cho_factor(schur, lower=True, overwrite_a=True, check_finite=False)
        # The target has the mass of the source; fixing the mass there as well would make the system singular.
        none_row, none_column = np.zeros(pairs.n), np.zeros(pairs.m)
        self.row_squares = np.stack([row_spread * source.blocked, row_spread * source.held, none_row], axis=1)
        self.column_squares = np.stack([none_column, none_column, column_spread * target.blocked], axis=1)
        self.solved = self.without_squares(self.row_squares, self.column_squares)
        self.small = np.eye(3) - self.onto_squares(*self.solved)

    def without_squares(self, rows: np.ndarray, columns: np.ndarray) -> Vectors:
        """Solve without the squares: the sources are eliminated, and a Cholesky factor solves for the targets."""
        g = cho_solve(self.factor, columns - self.eliminated.T @ rows, check_finite=False)
        return (rows.T / self.diagonal).T - self.eliminated @ g, g

    def onto_squares(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Scalar products with the vectors whose squares are subtracted."""
        return self.row_squares.T @ rows + self.column_squares.T @ columns

    def solve(self, rows: np.ndarray, columns: np.ndarray) -> Vectors:
        """Solve the whole system, by Woodbury's formula."""
        f, g = self.without_squares(rows, columns)
        weights = np.linalg.solve(self.small, self.onto_squares(f, g))
        return f + self.solved[0] @ weights, g + self.solved[1] @ weights
