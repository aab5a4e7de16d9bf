"""Robust transport with chi-square balls, by an interior-point method over listed pairs.

Minimise <C, G> over G >= 0 of mass M = sum mu = sum nu whose row sums r and column sums c stay near the weights:

    sum_i (r_i - mu_i)^2 / mu_i <= rho M    and    sum_j (c_j - nu_j)^2 / nu_j <= rho M.

Divided by M, each ball is a second-order cone: r = mu + sqrt(rho mu) s with |s| <= 1. The dual is to maximise

    <mu, f> + <nu, g> - sqrt(rho) (std_mu(f) + std_nu(g))    over    f_i + g_j <= C_ij.

The method follows the central path of both (Mehrotra's predictor and corrector, the scaling of Nesterov and Todd). Its
linear systems are those of a transport problem, with D the ratio of mass and slack on the pairs,

    [ diag(D 1) + Q_mu         D          ]
    [       D^T         diag(D^T 1) + Q_nu],    Q diagonal less two squares,

so one Cholesky factor on the smaller side solves them. The potentials are feasible from the start; the plan is so, too,
where all pairs are listed, and becomes so with its first full step elsewhere. Where there is no plan the dual grows
without bound, and a dual value above the highest cost is the proof.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve

# Gaps relative to the range of the costs: what is promised, and where the method stops.
PROMISED_GAP = 1e-9
TARGET_GAP = 1e-12

MAX_ITERATIONS = 200
PATIENCE = 6  # after so many iterations without gain, below the gap where it waits, there are no more digits to be had
WAITING_GAP = 1e-5
ROUNDING = 4e-13  # by so much, relative to its radius, a marginal may be outside of a ball
REFINEMENTS = 1  # of every linear system

# The ratios form a full matrix where it has at most so many entries, or where one in so many pairs is listed.
FULL_MATRIX = 1 << 16
ONE_LISTED_IN = 8

Vectors = tuple[np.ndarray, np.ndarray]
ConePoint = tuple[float, np.ndarray]
Solve = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


class RobustTransport(NamedTuple):
    """A plan in the balls, with potentials that bound its value from below.

    The potentials add up to at most the cost of every listed pair. Where no plan is in the balls, `infeasible` is true
    and the mass is zero.
    """

    mass: np.ndarray
    source_potential: np.ndarray
    target_potential: np.ndarray
    iterations: int
    converged: bool
    infeasible: bool


def robust_transport(
    rows: np.ndarray,
    columns: np.ndarray,
    costs: np.ndarray,
    source_weights: np.ndarray,
    target_weights: np.ndarray,
    rho: float,
    tell: Callable[[int, float], None] = lambda iteration, gap: None,
) -> RobustTransport:
    """Solve over the listed pairs; `tell` hears the iteration and its gap relative to the range of the costs."""
    mass, total = np.zeros(rows.size), float(source_weights.sum())
    f, g = np.zeros(source_weights.size), np.zeros(target_weights.size)
    if total <= 0:
        return RobustTransport(mass, f, g, 0, True, False)
    weighted = source_weights > 0, target_weights > 0
    use = weighted[0][rows] & weighted[1][columns]
    if not use.any():
        return RobustTransport(mass, f, g, 0, False, True)
    lowest = float(costs[use].min())
    scale = (float(costs[use].max()) - lowest) or 1.0
    numbers = [np.cumsum(which) - 1 for which in weighted]
    pairs = Pairs(numbers[0][rows[use]], numbers[1][columns[use]], *(int(which.sum()) for which in weighted))
    mu, nu = source_weights[weighted[0]] / total, target_weights[weighted[1]] / target_weights.sum()
    solved = solve_scaled(pairs, (costs[use] - lowest) / scale, mu, nu, rho, tell)
    mass[use] = total * solved.mass
    f[weighted[0]], g[weighted[1]] = scale * solved.source_potential, scale * solved.target_potential + lowest
    # Points without weight take the highest potentials below the costs.
    light = ~weighted[0][rows] & weighted[1][columns]
    f[~weighted[0]] = finite(lowest_at(rows[light], costs[light] - g[columns[light]], f.size)[~weighted[0]])
    light = ~weighted[1][columns]
    g[~weighted[1]] = finite(lowest_at(columns[light], costs[light] - f[rows[light]], g.size)[~weighted[1]])
    return solved._replace(mass=mass, source_potential=f, target_potential=g)


def solve_scaled(
    pairs: Pairs, costs: np.ndarray, mu: np.ndarray, nu: np.ndarray, rho: float, tell: Callable[[int, float], None]
) -> RobustTransport:
    """Solve for costs from zero to one and positive weights that add up to one."""
    balls = Ball(mu, rho), Ball(nu, rho)
    path, best = CentralPath(pairs, costs, balls), Certificate(pairs, costs, balls)
    infeasible = any(map(Ball.always_outside, balls, pairs.sums(np.ones(costs.size))))
    iteration, waited = 0, 0
    while not infeasible and iteration < MAX_ITERATIONS and waited < PATIENCE and best.gap > TARGET_GAP:
        before = best.gap
        # At the end of the digits a system may be singular: what was found before is the answer.
        with np.errstate(all="ignore"):
            try:
                path.advance()
            except (np.linalg.LinAlgError, ValueError, ZeroDivisionError):
                break
        if not path.is_finite():
            break
        iteration += 1
        best.improve(path)
        tell(iteration, best.gap)
        waited = waited + 1 if WAITING_GAP > best.gap > 0.9 * before else 0
        infeasible = path.dual_value() > 1.0 + 1e-6
    if infeasible:
        return RobustTransport(np.zeros(costs.size), path.f, path.g, iteration, False, True)
    return RobustTransport(best.mass, *best.potentials, iteration, best.gap <= PROMISED_GAP, False)


class Certificate:
    """The best plan in the balls and the best potentials so far; they need not come from the same iteration."""

    def __init__(self, pairs: Pairs, costs: np.ndarray, balls: tuple[Ball, Ball]) -> None:
        self.pairs, self.costs, self.balls = pairs, costs, balls
        self.central, self.central_reach = np.zeros(costs.size), math.inf
        self.mass, self.value, self.dual_value = np.zeros(costs.size), math.inf, -math.inf
        self.potentials = np.zeros(pairs.n), np.zeros(pairs.m)

    @property
    def gap(self) -> float:
        return self.value - self.dual_value

    def improve(self, path: CentralPath) -> None:
        self.improve_plan(path.mass / path.mass.sum())
        self.improve_potentials(path.f)

    def improve_plan(self, mass: np.ndarray) -> None:
        """Mix a plan that is outside of the balls, as by rounding errors, with the one that is farthest inside."""
        reach = self.reach(mass)
        if reach < self.central_reach:
            self.central, self.central_reach = mass, reach
        if reach > 1.0 > self.central_reach:
            mass = mass + (reach - 1.0) / (reach - self.central_reach) * (self.central - mass)
            reach = self.reach(mass)
        value = float(mass @ self.costs)
        if value < self.value and reach <= 1.0 + ROUNDING:
            self.mass, self.value = mass, value

    def improve_potentials(self, f: np.ndarray) -> None:
        """Raise both potentials to the costs, as far as that is of use."""
        pairs, (source, target) = self.pairs, self.balls
        g = target.highest_useful(lowest_at(pairs.columns, self.costs - f[pairs.rows], pairs.m))
        f = source.highest_useful(lowest_at(pairs.rows, self.costs - g[pairs.columns], pairs.n))
        dual_value = source.lowest_mean(f) + target.lowest_mean(g)
        if dual_value > self.dual_value:
            self.potentials, self.dual_value = (f, g), dual_value

    def reach(self, mass: np.ndarray) -> float:
        return max(map(Ball.reach, self.balls, self.pairs.sums(mass)))


def lowest_at(points: np.ndarray, values: np.ndarray, size: int) -> np.ndarray:
    """The lowest of the values at each point, infinite where there are none."""
    lowest = np.full(size, np.inf)
    np.minimum.at(lowest, points, values)
    return lowest


def finite(potential: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(potential), potential, 0.0)


class Pairs(NamedTuple):
    """The listed pairs as a bipartite graph."""

    rows: np.ndarray
    columns: np.ndarray
    n: int
    m: int

    @property
    def full(self) -> bool:
        return self.n * self.m <= max(FULL_MATRIX, ONE_LISTED_IN * self.rows.size)

    def sums(self, values: np.ndarray) -> Vectors:
        return np.bincount(self.rows, values, self.n), np.bincount(self.columns, values, self.m)

    def added(self, f: np.ndarray, g: np.ndarray) -> np.ndarray:
        return f[self.rows] + g[self.columns]

    def matrix(self, values: np.ndarray) -> Any:
        if self.full:
            return np.bincount(self.rows * self.m + self.columns, values, self.n * self.m).reshape(self.n, self.m)
        return sparse.csr_array((values, (self.rows, self.columns)), shape=(self.n, self.m))


class BallStep(NamedTuple):
    offset: np.ndarray
    bound: float
    tilt: np.ndarray


class Ball:
    """A marginal weights + spread * offset of mass one, and the dual of its cone.

    The cone element is (1, offset), its dual (bound, tilt), and the tilt is spread * potential but for a multiple of
    `axis`, which is the multiplier of the mass.
    """

    def __init__(self, weights: np.ndarray, rho: float) -> None:
        # All of the simplex is in a ball of this size, and larger ones would only cost digits.
        self.rho = min(rho, 2.0 / float(weights.min()))
        self.weights, self.axis = weights, np.sqrt(weights)
        self.spread = math.sqrt(self.rho) * self.axis
        self.offset, self.bound, self.tilt = np.zeros(weights.size), 1.0, np.zeros(weights.size)

    def reach(self, marginal: np.ndarray) -> float:
        """The distance of the marginal from the centre, relative to the radius."""
        return float(np.linalg.norm((marginal - self.weights) / self.spread))

    def always_outside(self, pairs_of_point: np.ndarray) -> bool:
        """Whether so much weight has no pairs at all that the rest is outside of the ball, however distributed."""
        return float(self.weights[pairs_of_point > 0].sum()) * (1.0 + self.rho) < 1.0 - 1e-12

    def highest_useful(self, potential: np.ndarray) -> np.ndarray:
        """Cut a potential off above the level where more of it would only add to its deviation.

        The marginals of lowest mean are proportional to weights * max(0, level - potential), on the edge of the ball.
        """
        order = np.argsort(potential)
        order = order[np.isfinite(potential[order])]
        sorted_, weights = potential[order] - potential[order[0]], self.weights[order]
        weight, first, second = (np.cumsum(weights * sorted_**power) for power in (0, 1, 2))
        # Distance of the marginal whose level is the next potential: it falls as the level rises.
        level = sorted_[1:]
        linear = level * weight[:-1] - first[:-1]
        square = level**2 * weight[:-1] - 2.0 * level * first[:-1] + second[:-1]
        enough = np.append(square <= (1.0 + self.rho) * linear**2, True) 
        enough[:-1] &= linear > 0
        count = int(np.argmax(enough))
        mean = first[count] / weight[count]
        variance = max(0.0, second[count] / weight[count] - mean**2)
        room = 1.0 + self.rho - 1.0 / weight[count]
        above = math.sqrt(variance / weight[count] / room) if room > 0 else 0.0
        return np.minimum(potential, potential[order[0]] + max(mean + above, sorted_[count]))

    def lowest_mean(self, potential: np.ndarray) -> float:
        """The mean less the deviation: at most the mean of the potential under any marginal in the ball."""
        mean = float(self.weights @ potential)
        return mean - math.sqrt(self.rho * float(self.weights @ (potential - mean) ** 2))

    def marginal(self) -> np.ndarray:
        return self.weights + self.spread * self.offset

    def complementarity(self) -> float:
        return self.bound + float(self.offset @ self.tilt)

    def rescale(self) -> None:
        """Nesterov and Todd's scaling: the map W with W (bound, tilt) = W^-1 (1, offset)."""
        primal, dual = math.sqrt(margin(1.0, self.offset)), math.sqrt(margin(self.bound, self.tilt))
        offset, tilt = self.offset / primal, self.tilt / dual
        cosine = self.bound / dual / primal + float(offset @ tilt)
        self.scale = math.sqrt(primal / dual)
        self.along = (offset - tilt) / math.sqrt(2.0 * (1.0 + cosine))
        self.height = math.sqrt(1.0 + float(self.along @ self.along))
        self.middle = self.times(self.bound, self.tilt)
        # With its first entry held, W^2 is scale^2 times the identity less a square; with the mass held, less another.
        self.double = 2.0 * self.height**2 - 1.0
        self.blocked = self.along * math.sqrt(2.0 / self.double)
        free = self.unblocked(self.axis)
        self.freedom = float(self.axis @ free)
        self.held = free / math.sqrt(self.freedom)

    def times(self, first: float, rest: np.ndarray, inverse: bool = False) -> tuple[float, np.ndarray]:
        """W, or its inverse, times a vector."""
        along, scale = (-self.along, 1.0 / self.scale) if inverse else (self.along, self.scale)
        inner = float(along @ rest)
        return scale * (self.height * first + inner), scale * (rest + along * (first + inner / (1.0 + self.height)))

    def unblocked(self, values: np.ndarray) -> np.ndarray:
        return values - self.blocked * float(self.blocked @ values)

    def aim(self, centre: float, trust: float, tried: BallStep) -> tuple[float, np.ndarray]:
        """Where to move: to the `centre`, less the product of the two steps just tried."""
        a0, a = self.times(0.0, tried.offset, inverse=True)
        b0, b = self.times(tried.bound, tried.tilt)
        product0, product = centre - trust * (a0 * b0 + float(a @ b)), -trust * (a0 * b + b0 * a)
        # Divide by the scaled point, in the algebra of the cone.
        middle0, middle = self.middle
        quotient0 = (middle0 * product0 - float(middle @ product)) / margin(middle0, middle)
        first, rest = self.times(quotient0, (product - quotient0 * middle) / middle0)
        return first - 1.0, rest - self.offset

    def step(self, aim: tuple[float, np.ndarray], potential: np.ndarray) -> BallStep:
        """Solve step + W^2 (dual step) = aim, for a given step of the potential."""
        square, (first, rest) = self.scale**2, aim
        plain = rest - self.along * (2.0 * self.height * first / self.double)
        tilt = self.spread * potential
        excess = float(self.axis @ (self.offset + plain - square * self.unblocked(tilt)))
        tilt = tilt + self.axis * (excess / (square * self.freedom))
        bound = (first / square - 2.0 * self.height * float(self.along @ tilt)) / self.double
        return BallStep(plain - square * self.unblocked(tilt), bound, tilt)

    def longest(self, step: BallStep) -> tuple[float, float]:
        return longest(1.0, self.offset, 0.0, step.offset), longest(self.bound, self.tilt, step.bound, step.tilt)

    def move(self, step: BallStep, primal: float, dual: float) -> None:
        self.offset = self.offset + primal * step.offset
        self.bound, self.tilt = self.bound + dual * step.bound, self.tilt + dual * step.tilt


def margin(first: float, rest: np.ndarray) -> float:
    """How far (first, rest) is inside the second-order cone: first^2 - |rest|^2, at least a rounding error."""
    length = math.sqrt(float(rest @ rest))
    return max((first - length) * (first + length), 1e-30 * first * first)


def longest(first: float, rest: np.ndarray, first_step: float, rest_step: np.ndarray) -> float:
    """The longest step within the second-order cone: the first root of a quadratic."""
    square = first_step**2 - float(rest_step @ rest_step)
    half = first * first_step - float(rest @ rest_step)
    inside = margin(first, rest)
    discriminant = half * half - square * inside
    slope = math.sqrt(discriminant) - half if discriminant > 0 else 0.0
    return inside / slope if slope > 0 else math.inf


class Direction(NamedTuple):
    mass: np.ndarray
    slack: np.ndarray
    potentials: tuple[np.ndarray, np.ndarray]
    balls: tuple[BallStep, BallStep]


class CentralPath:
    """An interior plan with interior potentials, and how to move both."""

    def __init__(self, pairs: Pairs, costs: np.ndarray, balls: tuple[Ball, Ball]) -> None:
        self.pairs, self.balls = pairs, balls
        # The product of the weights is well inside the balls; a share of every pair helps where weights are tiny.
        product = balls[0].weights[pairs.rows] * balls[1].weights[pairs.columns]
        self.mass = 0.9 * product / product.sum() + 0.1 / costs.size
        # Costs are in [0, 1].
        self.f, self.g = np.full(pairs.n, -0.5), np.full(pairs.m, -0.5)
        self.slack = costs + 1.0

    def missing(self) -> tuple[np.ndarray, np.ndarray]:
        """What the plan's sums lack to the marginals in the balls."""
        row_sums, column_sums = self.pairs.sums(self.mass)
        return self.balls[0].marginal() - row_sums, self.balls[1].marginal() - column_sums

    def gap(self) -> float:
        return float(self.mass @ self.slack) + sum(ball.complementarity() for ball in self.balls)

    def dual_value(self) -> float:
        potentials = self.f, self.g
        return sum(float(ball.weights @ potential) - ball.bound for ball, potential in zip(self.balls, potentials, strict=True))

    def is_finite(self) -> bool:
        return math.isfinite(self.gap()) and bool(np.isfinite(self.f).all() and (self.mass > 0).all())

    def advance(self) -> None:
        """One step of the predictor and the corrector."""
        for ball in self.balls:
            ball.rescale()
        missing, solve = self.missing(), self.normal_equations()
        mean = self.gap() / (self.mass.size + 2)
        tried = self.direction(missing, solve, -self.mass, [(-1.0, -ball.offset) for ball in self.balls])
        primal, dual = self.longest(tried)
        reachable = min(1.0, primal, dual)
        centre, trust = mean * (1.0 - reachable) ** 3, 1.0
        aims = [ball.aim(centre, trust, step) for ball, step in zip(self.balls, tried.balls, strict=True)]
        aim = (centre - trust * tried.mass * tried.slack) / self.slack - self.mass
        step = self.direction(missing, solve, aim, aims)
        primal = dual = min(1.0, 0.99 * min(self.longest(step)))
        self.mass = self.mass + primal * step.mass
        self.slack = self.slack + dual * step.slack
        self.f, self.g = self.f + dual * step.potentials[0], self.g + dual * step.potentials[1]
        for ball, ball_step in zip(self.balls, step.balls, strict=True):
            ball.move(ball_step, primal, dual)

    def direction(
        self, missing: tuple[np.ndarray, np.ndarray], solve: Solve, aim: np.ndarray, aims: list[tuple[float, np.ndarray]]
    ) -> Direction:
        """The step with the given aims that makes up for what is missing; the second round refines the first."""
        pairs, scaling = self.pairs, self.mass / self.slack
        f, g = np.zeros(pairs.n), np.zeros(pairs.m)
        source, target = self.balls
        for _ in range(REFINEMENTS + 1):
            mass = aim + scaling * pairs.added(f, g)
            of_rows, of_columns = source.step(aims[0], f), target.step(aims[1], g)
            row_sums, column_sums = pairs.sums(mass)
            more = solve(
                missing[0] - row_sums + source.spread * of_rows.offset,
                missing[1] - column_sums + target.spread * of_columns.offset,
            )
            f, g = f + more[0], g + more[1]
        slack = -pairs.added(f, g)
        return Direction(aim - scaling * slack, slack, (f, g), (source.step(aims[0], f), target.step(aims[1], g)))

    def normal_equations(self) -> Solve:
        """Solve for the potentials: a Schur complement on the smaller side, then the rank ones of the balls."""
        scaling = self.mass / self.slack
        matrix = self.pairs.matrix(scaling)
        source, target = self.balls
        curvature = [(ball.scale * ball.spread) ** 2 for ball in self.balls]
        row_diagonal, column_diagonal = (a + b for a, b in zip(self.pairs.sums(scaling), curvature, strict=True))
        transposed = self.pairs.n < self.pairs.m
        if transposed:
            matrix, row_diagonal, column_diagonal = matrix.T, column_diagonal, row_diagonal
        scaled = matrix / row_diagonal[:, None] if self.pairs.full else sparse.diags_array(1.0 / row_diagonal) @ matrix
        product = matrix.T @ scaled
        schur = -(product if self.pairs.full else product.toarray())
        schur[np.diag_indices_from(schur)] += column_diagonal
        factor = cho_factor(schur, lower=True, overwrite_a=True, check_finite=False)

        def without_rank_ones(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            if transposed:
                a, b = b, a
            b = cho_solve(factor, b - scaled.T @ a, check_finite=False)
            a = (a.T / row_diagonal).T - scaled @ b
            return (b, a) if transposed else (a, b)

        # The mass of the second marginal is that of the first: holding it again would make the system singular.
        rank_row = (source.scale * source.spread)[:, None] * np.stack([source.blocked, source.held, 0 * source.held], 1)
        rank_column = (target.scale * target.spread)[:, None] * np.stack([0 * target.held, 0 * target.held, target.blocked], 1)
        solved_row, solved_column = without_rank_ones(rank_row, rank_column)
        small = np.eye(3) - rank_row.T @ solved_row - rank_column.T @ solved_column

        def solve(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            a, b = without_rank_ones(a, b)
            more = np.linalg.solve(small, rank_row.T @ a + rank_column.T @ b)
            return a + solved_row @ more, b + solved_column @ more

        return solve

    def longest(self, step: Direction) -> tuple[float, float]:
        """The longest steps of the plan and of the potentials that stay in the cones."""
        lengths = [ball.longest(ball_step) for ball, ball_step in zip(self.balls, step.balls, strict=True)]
        primal, dual = (min(lengths) for lengths in zip(*lengths, strict=True))
        return min(primal, ratio(self.mass, step.mass)), min(dual, ratio(self.slack, step.slack))


def ratio(values: np.ndarray, step: np.ndarray) -> float:
    fastest = float((step / values).min())
    return -1.0 / fastest if fastest < 0 else math.inf


