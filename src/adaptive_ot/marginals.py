"""What the marginals of a transport plan must satisfy: the models of the family, and what proves an answer to each.

Every model is a convex problem over plans G >= 0 with row sums r and column sums c, and every one has a dual over
potentials with f_i + g_j + price <= C_ij, where only `FixedMass` has a price of mass. So any source potential f,
together with ``lowest_j = min_i C_ij - f_i``, proves a lower bound: that is what `Marginals.bound` turns them into.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from adaptive_ot import _validation as check
from adaptive_ot._ball import Ball
from adaptive_ot.errors import InvalidInput

# Totals that differ by less than this part are meant to be equal: float32 weights rarely sum to one.
SAME_TOTAL = 1e-6

# More than the relative error of a few operations in float64.
ROUNDING = 2.0**-50

# Ratios closer to one than this have divergences that must be summed as a series: the closed form cancels.
NEARLY_ONE = 1e-3

Weights = tuple[np.ndarray, np.ndarray]


class Bound(NamedTuple):
    """A lower bound on the objective of every plan, and the target potential and price of mass that prove it."""

    value: float
    target_potential: np.ndarray
    price: float = 0.0


class Marginals(ABC):
    """What a model asks of the row sums r and column sums c of a plan, given weights mu and nu."""

    title: ClassVar[str]

    def checked(self, mu: np.ndarray, nu: np.ndarray) -> Weights:
        """The weights (of one problem, or a row for each of many) as the model takes them, if they fit it."""
        return mu, nu

    def clipped(self, source_potential: np.ndarray) -> np.ndarray:
        """The nearest potential that is feasible for the dual."""
        return np.minimum(source_potential, check.LARGEST)

    @abstractmethod
    def bound(self, mu: np.ndarray, nu: np.ndarray, f: np.ndarray, lowest: np.ndarray) -> Bound:
        """What a (clipped) source potential proves, with lowest_j = min_i C_ij - f_i."""

    @abstractmethod
    def violation(self, mu: np.ndarray, nu: np.ndarray, r: np.ndarray, c: np.ndarray) -> float:
        """By how much marginals break the rules at worst."""

    def penalty(self, mu: np.ndarray, nu: np.ndarray, r: np.ndarray, c: np.ndarray) -> float:
        """What the objective has beside the cost of the plan."""
        return 0.0


@dataclass(frozen=True)
class AtMost(Marginals):
    """Adaptive transport: row sums at most the source weights, column sums at most the target weights.

    How much mass moves is not prescribed: pairs of negative cost attract it, pairs of positive cost never carry any.

    Examples
    --------
    >>> import adaptive_ot as aot
    >>> aot.solve([[-1.0, 2.0], [3.0, 4.0]], marginals=aot.AtMost()).mass
    0.5
    """

    title: ClassVar[str] = "Adaptive transport"

    def clipped(self, source_potential: np.ndarray) -> np.ndarray:
        return np.minimum(source_potential, 0.0)

    def bound(self, mu: np.ndarray, nu: np.ndarray, f: np.ndarray, lowest: np.ndarray) -> Bound:
        g = np.minimum(lowest, 0.0)
        return Bound(_sum(mu * f) + _sum(nu * g), g)

    def violation(self, mu: np.ndarray, nu: np.ndarray, r: np.ndarray, c: np.ndarray) -> float:
        return _excess(mu, nu, r, c)


@dataclass(frozen=True)
class Equal(Marginals):
    """Kantorovich's balanced transport: everything moves, row and column sums equal the weights.

    Both sides must have the same total weight. Where these differ by rounding, up to a millionth, the target weights
    are scaled to the total of the source weights.

    Examples
    --------
    >>> import adaptive_ot as aot
    >>> aot.solve([[-1.0, 2.0], [3.0, 4.0]], marginals=aot.Equal()).value
    1.5
    """

    title: ClassVar[str] = "Balanced transport"

    def checked(self, mu: np.ndarray, nu: np.ndarray) -> Weights:
        return _balanced(mu, nu, "Equal")

    def bound(self, mu: np.ndarray, nu: np.ndarray, f: np.ndarray, lowest: np.ndarray) -> Bound:
        g = np.where(nu > 0, lowest, np.minimum(lowest, 0.0))  # a target without weight need not be reached
        return Bound(_sum(mu * f) + _sum(nu * g), g)

    def violation(self, mu: np.ndarray, nu: np.ndarray, r: np.ndarray, c: np.ndarray) -> float:
        return max(float(np.abs(r - mu).max(initial=0.0)), float(np.abs(c - nu).max(initial=0.0)))


@dataclass(frozen=True)
class FixedMass(Marginals):
    """Partial transport: exactly `mass` moves, and no point gives or takes more than its weight.

    Parameters
    ----------
    mass
        How much to move, at most the smaller of the two total weights; a share of everything if these are 1.

    Examples
    --------
    >>> import adaptive_ot as aot
    >>> solution = aot.solve([[1.0, 2.0], [3.0, 5.0]], marginals=aot.FixedMass(0.75))
    >>> solution.value, solution.price  # the last bit that moves costs 4 a unit: two pairs come, one goes
    (1.5, 4.0)
    """

    title: ClassVar[str] = "Partial transport"

    mass: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "mass", check.number("mass", self.mass, minimum=0.0))

    def clipped(self, source_potential: np.ndarray) -> np.ndarray:
        return np.minimum(source_potential, 0.0)

    def checked(self, mu: np.ndarray, nu: np.ndarray) -> Weights:
        most = np.minimum(mu.sum(axis=-1), nu.sum(axis=-1)).min(initial=np.inf)
        if self.mass > most * (1 + SAME_TOTAL):
            rule = f"must be at most the smaller of the total weights, {most:.12g}"
            raise InvalidInput("mass", rule, f"{self.mass:.12g}", "Choose a smaller mass, or larger weights.")
        return mu, nu

    def amount(self, mu: np.ndarray, nu: np.ndarray) -> float:
        """The mass to move: what was asked for, up to rounding of the total weights."""
        return float(min(self.mass, mu.sum(), nu.sum()))

    def bound(self, mu: np.ndarray, nu: np.ndarray, f: np.ndarray, lowest: np.ndarray) -> Bound:
        # A price p of mass proves p * mass + <mu, f> + <nu, min(0, lowest - p)>. The best p is where the targets that
        # are cheaper can just take the mass.
        amount = self.amount(mu, nu)
        order = np.argsort(lowest, kind="stable")
        taken = np.cumsum(nu[order])
        enough = int(np.searchsorted(taken, amount * (1 - 1e-12)))
        price = float(lowest[order[min(enough, order.size - 1)]]) if order.size else 0.0
        if math.isinf(price):  # not even all targets that can be reached take so much
            return Bound(math.inf if amount > 0 else _sum(mu * f), np.zeros(nu.size))
        g = np.minimum(lowest - price, 0.0)
        return Bound(_sum(mu * f) + _sum(nu * g) + price * amount, g, price)

    def violation(self, mu: np.ndarray, nu: np.ndarray, r: np.ndarray, c: np.ndarray) -> float:
        return max(_excess(mu, nu, r, c), abs(float(r.sum()) - self.amount(mu, nu)))


@dataclass(frozen=True)
class SoftKL(Marginals):
    """Unbalanced transport: marginals may differ from the weights, at the price of their divergence.

    The objective, and so `Solution.value`, is <C, G> + tau KL(row sums | mu) + tau KL(column sums | nu), where
    KL(a | b) = sum a log(a / b) - a + b.

    Parameters
    ----------
    tau
        What a unit of divergence costs, in units of the cost. Large: marginals close to the weights; small: mass
        disappears where moving it costs much more than `tau`. Where moving it *pays* much more, mass appears, by a
        factor of up to exp(-C / tau): use costs that are not far below zero.

    Examples
    --------
    >>> import adaptive_ot as aot
    >>> solution = aot.solve([[0.0, 9.0], [9.0, 9.0]], marginals=aot.SoftKL(tau=1.0), solver=aot.Entropic(0.01))
    >>> solution.plan.round(2) + 0.0
    array([[0.5 , 0.  ],
           [0.  , 0.01]])
    """

    title: ClassVar[str] = "Unbalanced transport"

    tau: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "tau", check.number("tau", self.tau, minimum=check.SMALLEST))

    def bound(self, mu: np.ndarray, nu: np.ndarray, f: np.ndarray, lowest: np.ndarray) -> Bound:
        # A constant may move from one side to the other; where it proves most, both sides are due the same mass.
        totals = _sum(mu), _sum(nu)
        if not min(totals) > 0:
            return Bound(self.tau * sum(totals), lowest)
        source, target = (_log_mean_exp(weights, -side / self.tau) for weights, side in ((mu, f), (nu, lowest)))
        with np.errstate(over="ignore"):  # hopeless potentials prove nothing, -inf
            off = float(np.expm1(0.5 * (source + target)))
        apart = _sum(np.concatenate([mu, -nu])) ** 2 / (math.sqrt(totals[0]) + math.sqrt(totals[1])) ** 2
        moved = -2 * math.sqrt(totals[0]) * math.sqrt(totals[1]) * off
        return Bound(self.tau * (apart + moved - ROUNDING * (apart + abs(moved))), lowest)

    def violation(self, mu: np.ndarray, nu: np.ndarray, r: np.ndarray, c: np.ndarray) -> float:
        return max(float(side[weights == 0].max(initial=0.0)) for side, weights in ((r, mu), (c, nu)))

    def penalty(self, mu: np.ndarray, nu: np.ndarray, r: np.ndarray, c: np.ndarray) -> float:
        return self.tau * (_divergence(r, mu) + _divergence(c, nu))


@dataclass(frozen=True)
class ChiSquareBall(Marginals):
    """Robust transport: everything moves, between the best reweightings of both sides that are not too far off.

    Row sums r have the total of mu and sum (r_i - mu_i)^2 / mu_i <= rho |mu|, column sums likewise for nu. So `rho` is
    the largest chi-square divergence from the weights, as a share.

    Parameters
    ----------
    rho
        How far the marginals may move. With uniform weights and a share a of outliers, dropping them takes a / (1 - a).

    Examples
    --------
    >>> import adaptive_ot as aot
    >>> solution = aot.solve([[0.0, 4.0], [4.0, 4.0]], marginals=aot.ChiSquareBall(rho=0.25))
    >>> round(solution.value, 9), solution.source_marginal.round(9)
    (1.0, array([0.75, 0.25]))
    """

    title: ClassVar[str] = "Robust transport"

    rho: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "rho", check.number("rho", self.rho, minimum=0.0))

    def checked(self, mu: np.ndarray, nu: np.ndarray) -> Weights:
        return _balanced(mu, nu, "ChiSquareBall")

    def bound(self, mu: np.ndarray, nu: np.ndarray, f: np.ndarray, lowest: np.ndarray) -> Bound:
        of_source, _ = self._lowest_mean(mu, f)
        of_target, g = self._lowest_mean(nu, lowest)
        return Bound(of_source + of_target, g)

    def _lowest_mean(self, weights: np.ndarray, potential: np.ndarray) -> tuple[float, np.ndarray]:
        """The least that marginals in the ball can make of a potential, cut to where it proves most."""
        total = float(weights.sum())
        share = weights / (total or 1.0)
        weigh = share > 0
        cut = np.minimum(potential, 0.0)  # whatever it is where there is no weight
        if not np.isfinite(potential[weigh]).any():
            return (math.inf if weigh.any() else 0.0), cut
        ball = Ball(share[weigh], self.rho)
        cut[weigh] = ball.cut(potential[weigh])
        return total * ball.lowest_mean(cut[weigh]), cut

    def violation(self, mu: np.ndarray, nu: np.ndarray, r: np.ndarray, c: np.ndarray) -> float:
        worst = abs(float(r.sum()) - float(mu.sum()))
        for weights, side in ((mu, r), (nu, c)):
            off = np.divide(side - weights, np.sqrt(weights), out=np.zeros(side.size), where=weights > 0)
            root = math.sqrt(weights.sum())
            outside = root * max(0.0, math.sqrt(off @ off) - math.sqrt(self.rho) * root)
            worst = max(worst, outside, float(side[weights == 0].max(initial=0.0)))
        return worst


def as_marginals(given: Any) -> Marginals:
    """What a user may pass: a model, or None for adaptive transport."""
    marginals = AtMost() if given is None else given
    check.instance("marginals", marginals, Marginals)
    return marginals


def _sum(terms: np.ndarray) -> float:
    return math.fsum(terms) if np.isfinite(terms).all() else float(terms.sum())


def _excess(mu: np.ndarray, nu: np.ndarray, r: np.ndarray, c: np.ndarray) -> float:
    """By how much a marginal exceeds its weight at worst."""
    return max(float((r - mu).max(initial=0.0)), float((c - nu).max(initial=0.0)))


def _log_mean_exp(weights: np.ndarray, exponents: np.ndarray) -> float:
    """The logarithm of the weighted mean of exponentials, over the points that weigh something, rounded up."""
    share = weights / weights.sum()
    share, exponents = share[share > 0], exponents[share > 0]
    exponents = exponents * (1 + np.copysign(ROUNDING, exponents))
    highest = float(exponents.max())
    if math.isinf(highest):
        return highest
    below_one = _sum(share * np.expm1(exponents - highest))  # precise where all are nearly the same
    return highest + (
        math.log1p(below_one) if below_one > -0.5 else math.log(float(share @ np.exp(exponents - highest)))
    )


def _divergence(marginal: np.ndarray, weights: np.ndarray) -> float:
    """KL(marginal | weights), precise to the last digits of the marginals even where these nearly are the weights."""
    marginal, weights = marginal[weights > 0], weights[weights > 0]
    with np.errstate(over="ignore"):  # an ascent that got nowhere
        ratio, off = marginal / weights, (marginal - weights) / weights
        terms = weights * (ratio * np.log(np.where(ratio > 0, ratio, 1.0)) - off)
    if not np.isfinite(terms).all():
        return math.inf
    near = np.abs(off) < NEARLY_ONE
    x = off[near]
    terms[near] = weights[near] * x**2 * np.polyval([1 / 30, -1 / 20, 1 / 12, -1 / 6, 1 / 2], x)
    return math.fsum(terms)


def _balanced(mu: np.ndarray, nu: np.ndarray, model: str) -> Weights:
    """Weights of the same total, the targets' scaled to it."""
    source, target = mu.sum(axis=-1, keepdims=True), nu.sum(axis=-1, keepdims=True)
    off = np.abs(source - target) > SAME_TOTAL * np.maximum(source, target)
    if off.any():
        first = int(np.argmax(off))
        raise InvalidInput(
            "target_weights",
            f"must have the same total as the source weights with {model}",
            f"{target.flat[first]:.12g} against {source.flat[first]:.12g}",
            "Scale them, or use AtMost, FixedMass or SoftKL.",
        )
    return mu, nu * np.divide(source, target, out=np.ones_like(target), where=target > 0)
