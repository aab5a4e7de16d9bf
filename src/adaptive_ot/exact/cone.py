"""A point in the second-order cone of a chi-square ball and one in its dual cone, and how both move.

A marginal is w + sqrt(rho w) s; it is in the ball when (1, s) is in the cone. The dual point is (bound, tilt), with

    tilt = sqrt(rho w) f - multiplier sqrt(w)

for a potential f and the multiplier of <sqrt(w), s> = 0, the constraint that the marginal has the mass of the weights.

Nesterov and Todd's scaling is the symmetric W with W (bound, tilt) = W^-1 (1, s). With v = (height, along),
height^2 - |along|^2 = 1, and J = diag(1, -1, ..., -1), its square is scale^2 (2 v v^T - J).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from adaptive_ot._ball import Ball

Element = tuple[float, np.ndarray]


class ConeStep(NamedTuple):
    """A step of the offset s and a step of the dual point."""

    offset: np.ndarray
    bound: float
    tilt: np.ndarray


class Cone:
    """An interior point of the cone of a ball, and an interior point of the dual cone."""

    def __init__(self, ball: Ball) -> None:
        self.ball, self.axis = ball, np.sqrt(ball.weights)
        # Start inside the ball, closer to the central path than its centre: light points get more than their weight.
        lift = 1.0 - self.axis * self.axis.sum()
        length = 2.0 * max(float(np.linalg.norm(lift)), math.sqrt(ball.rho) * float(self.axis.sum()))
        self.offset, self.bound, self.tilt = lift / length, 1.0, np.zeros(self.axis.size)

    def marginal(self) -> np.ndarray:
        return self.ball.weights + self.ball.spread * self.offset

    def complementarity(self) -> float:
        return self.bound + float(self.offset @ self.tilt)

    def rescale(self) -> None:
        """Compute the scaling at the current points."""
        primal, dual = math.sqrt(margin(1.0, self.offset)), math.sqrt(margin(self.bound, self.tilt))
        offset, tilt = self.offset / primal, self.tilt / dual
        cosine = self.bound / dual / primal + float(offset @ tilt)
        self.scale = math.sqrt(primal / dual)
        self.along = (offset - tilt) / math.sqrt(2.0 * (1.0 + cosine))
        self.height = math.sqrt(1.0 + float(self.along @ self.along))
        self.middle = self.scaled(self.bound, self.tilt)
        # For steps that keep the first entry, W^2 / scale^2 is the identity minus a square; for steps that also keep
        # the mass, minus another square.
        self.corner = 2.0 * self.height**2 - 1.0
        self.blocked = self.along * math.sqrt(2.0 / self.corner)
        free = self.unblocked(self.axis)
        self.freedom = float(self.axis @ free)
        self.held = free / math.sqrt(self.freedom)

    def scaled(self, first: float, rest: np.ndarray, inverse: bool = False) -> Element:
        """W, or its inverse, times an element."""
        along, scale = (-self.along, 1.0 / self.scale) if inverse else (self.along, self.scale)
        inner = float(along @ rest)
        return scale * (self.height * first + inner), scale * (rest + along * (first + inner / (1.0 + self.height)))

    def unblocked(self, values: np.ndarray) -> np.ndarray:
        return values - self.blocked * float(self.blocked @ values)

    def to_boundary(self) -> Element:
        """The aim of the predictor: no complementarity at all."""
        return -1.0, -self.offset

    def to_centre(self, complementarity: float, tried: ConeStep) -> Element:
        """The aim of the corrector: this complementarity, after the product of the steps that were tried."""
        a0, a = self.scaled(0.0, tried.offset, inverse=True)
        b0, b = self.scaled(tried.bound, tried.tilt)
        wanted0, wanted = complementarity - a0 * b0 - float(a @ b), -(a0 * b + b0 * a)
        # Divide by the scaled point, in the algebra of the cone.
        middle0, middle = self.middle
        quotient0 = (middle0 * wanted0 - float(middle @ wanted)) / margin(middle0, middle)
        first, rest = self.scaled(quotient0, (wanted - quotient0 * middle) / middle0)
        return first - 1.0, rest - self.offset

    def step(self, aim: Element, potential: np.ndarray) -> ConeStep:
        """Solve step + W^2 (dual step) = aim for the given step of the potential."""
        square, (first, rest) = self.scale**2, aim
        rest = rest - self.along * (2.0 * self.height * first / self.corner)
        tilt = self.ball.spread * potential
        excess = float(self.axis @ (self.offset + rest - square * self.unblocked(tilt)))
        tilt = tilt + self.axis * (excess / (square * self.freedom))
        bound = (first / square - 2.0 * self.height * float(self.along @ tilt)) / self.corner
        return ConeStep(rest - square * self.unblocked(tilt), bound, tilt)

    def longest(self, step: ConeStep) -> float:
        """How much of a step stays in the cones."""
        plan = longest(1.0, self.offset, 0.0, step.offset)
        return min(plan, longest(self.bound, self.tilt, step.bound, step.tilt))

    def move(self, step: ConeStep, length: float) -> None:
        self.offset = self.offset + length * step.offset
        self.bound, self.tilt = self.bound + length * step.bound, self.tilt + length * step.tilt


def margin(first: float, rest: np.ndarray) -> float:
    """first^2 - |rest|^2, which is positive inside the cone: at least a rounding error."""
    norm = math.sqrt(float(rest @ rest))
    return max((first - norm) * (first + norm), 1e-30 * first**2)


def longest(first: float, rest: np.ndarray, first_step: float, rest_step: np.ndarray) -> float:
    """The longest step in the cone: the first root of its margin, a quadratic."""
    inside, square = margin(first, rest), first_step**2 - float(rest_step @ rest_step)
    half = first * first_step - float(rest @ rest_step)
    discriminant = half**2 - square * inside
    speed = math.sqrt(discriminant) - half if discriminant > 0 else 0.0
    return inside / speed if speed > 0 else math.inf
