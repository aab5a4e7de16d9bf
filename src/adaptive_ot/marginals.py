"""The models: what each one requires of the marginals of a plan, and the lower bound that certifies an answer.

Every model is a convex problem over plans G >= 0 with row sums r and column sums c. Every model has a dual over
potentials with f_i + g_j + price <= C_ij; only `FixedMass` has a price of mass. Any source potential f, together with
``lowest_j = min_i C_ij - f_i``, therefore proves a lower bound, which `Marginals.bound` computes.

Most models have one rule for the row sums and an independent one for the column sums; a `Side` describes one of these
rules. Engines read only what a model declares, so a new model needs only a subclass of `Marginals`.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from adaptive_ot import _meant as meant
from adaptive_ot import _validation as check
from adaptive_ot._ball import Ball
from adaptive_ot.errors import InvalidInput

# Totals that differ by less than this share count as equal: float32 weights rarely sum to exactly one.
SAME_TOTAL = 1e-6

# Larger than the relative error of a few float64 operations, or of a precise sum to the sum of its absolute terms.
ROUNDING = 2.0**-50

# Divergences of ratios closer to one than this are summed as a series, because the closed form cancels.
NEARLY_ONE = 1e-3

Weights = tuple[np.ndarray, np.ndarray]


class Bound(NamedTuple):
    """A lower bound on the objective of every plan, and the target potential and price of mass that prove it."""

    value: float
    target_potential: np.ndarray
    price: float = 0.0


class Violations(NamedTuple):
    """The largest amount by which row sums, column sums, the mass and negative entries of a plan break a rule."""

    source: float
    target: float
    mass: float = 0.0
    negative: float = 0.0


class Refusal(NamedTuple):
    """Why an engine cannot solve a model, and what to use instead."""

    rule: str
    remedy: str


@dataclass(frozen=True)
class Side:
    """The rule for the sums of one side: the rows or the columns.

    If `bounded`, the sums are at most the weights. If `tau` is finite, every unit of their Kullback-Leibler divergence
    from the weights costs `tau`. Otherwise the sums equal the weights.
    """

    bounded: bool = False
    tau: float = math.inf

    @property
    def soft(self) -> bool:
        """Whether the sums may differ from the weights in either direction."""
        return self.tau < math.inf

    @property
    def highest_potential(self) -> float:
        """The upper bound on feasible potentials."""
        return 0.0 if self.bounded else check.LARGEST

    def cut(self, weights: np.ndarray, potential: np.ndarray) -> np.ndarray:
        """Lower a potential to where it gives the best bound; a point without weight need not be reached."""
        if self.soft:
            return potential
        cut = np.minimum(potential, 0.0)
        return cut if self.bounded else np.where(weights > 0, potential, cut)

    def worth(self, weights: np.ndarray, potential: np.ndarray) -> float:
        """What a potential adds to the dual."""
        if not self.soft:
            return _sum(weights * potential)
        if not weights.any():
            return 0.0
        with np.errstate(over="ignore"):  # potentials that are far off give a bound of -inf
            grown = float(np.expm1(_log_mean_exp(weights, -potential / self.tau)))
        return -self.tau * _sum(weights) * (grown + ROUNDING * abs(grown))

    def violation(self, weights: np.ndarray, sums: np.ndarray) -> float:
        """The largest amount by which a sum breaks the rule."""
        if self.soft:
            return float(sums[weights == 0].max(initial=0.0))
        excess = sums - weights
        return float((excess if self.bounded else np.abs(excess)).max(initial=0.0))

    def penalty(self, weights: np.ndarray, sums: np.ndarray) -> float:
        """What the sums add to the objective."""
        return self.tau * _divergence(sums, weights) if self.soft else 0.0


AT_MOST, EQUAL = Side(bounded=True), Side()


class Marginals:
    """The requirements on the row sums r and column sums c of a plan, given weights mu and nu.

    A subclass declares its `title` and its `sides`; that is enough for both engines. If an engine cannot solve
    a model, `no_exact_form` or `no_entropic_form` says why.
    """

    title: str
    sides: tuple[Side, Side]
    no_exact_form: Refusal | None = None
    no_entropic_form: Refusal | None = None

    @property
    def prescribes_mass(self) -> bool:
        """Whether the mass that moves is known beforehand, because one side must be met exactly."""
        return EQUAL in self.sides and not any(side.soft for side in self.sides)

    @property
    def exact_method(self) -> Literal["adaptive", "prescribed", "robust"]:
        """The method of the exact engine."""
        return "prescribed" if self.prescribes_mass else "adaptive"

    def checked(self, mu: np.ndarray, nu: np.ndarray) -> Weights:
        """Check the weights (of one problem, or one row per problem) and return them as the model uses them."""
        if self.sides == (EQUAL, EQUAL):
            return _balanced(mu, nu, type(self).__name__)
        if self.sides == (EQUAL, AT_MOST):
            return _fitting("source_weights", mu, nu), nu
        if self.sides == (AT_MOST, EQUAL):
            return mu, _fitting("target_weights", nu, mu)
        return mu, nu

    def prescribed(self, mu: np.ndarray, nu: np.ndarray) -> float:
        """The mass that must move, for models that prescribe it."""
        return float((mu if self.sides[0] == EQUAL else nu).sum())

    def most_mass(self, mu: np.ndarray, nu: np.ndarray) -> float:
        """The most mass that can move; infinite if the marginals may exceed the weights."""
        totals = zip((mu, nu), self.sides, strict=True)
        return float(min((weights.sum() for weights, side in totals if not side.soft), default=math.inf))

    def transposed(self) -> Marginals:
        """The same model with the rules for rows and columns exchanged."""
        if self.sides[0] == self.sides[1]:
            return self
        model = copy.copy(self)
        object.__setattr__(model, "sides", self.sides[::-1])
        return model

    def clipped(self, source_potential: np.ndarray) -> np.ndarray:
        """The nearest potential that is feasible for the dual and small enough to be summed."""
        return np.clip(source_potential, -check.LARGEST, self.sides[0].highest_potential)

    def bound(self, mu: np.ndarray, nu: np.ndarray, f: np.ndarray, lowest: np.ndarray) -> Bound:
        """The lower bound that a (clipped) source potential proves, with lowest_j = min_i C_ij - f_i."""
        g = self.sides[1].cut(nu, lowest)
        return Bound(self.sides[0].worth(mu, f) + self.sides[1].worth(nu, g), g)

    def violation(self, mu: np.ndarray, nu: np.ndarray, r: np.ndarray, c: np.ndarray) -> float:
        """The largest amount by which the marginals break a rule."""
        return max(self.violations(mu, nu, r, c))

    def violations(self, mu: np.ndarray, nu: np.ndarray, r: np.ndarray, c: np.ndarray) -> Violations:
        """The largest amount by which the marginals break each of the rules."""
        return Violations(self.sides[0].violation(mu, r), self.sides[1].violation(nu, c))

    def penalty(self, mu: np.ndarray, nu: np.ndarray, r: np.ndarray, c: np.ndarray) -> float:
        """What the objective adds to the cost of the plan."""
        return self.sides[0].penalty(mu, r) + self.sides[1].penalty(nu, c)


@dataclass(frozen=True)
class AtMost(Marginals):
    """Adaptive transport: row sums at most the source weights, column sums at most the target weights.

    The mass that moves is not prescribed: pairs of negative cost attract mass, and no optimal plan uses pairs of
    positive cost.

    Examples
    --------
    >>> import adaptive_ot as aot
    >>> aot.solve([[-1.0, 2.0], [3.0, 4.0]], marginals=aot.AtMost()).mass
    0.5
    """

    title = "Adaptive transport"
    sides = (AT_MOST, AT_MOST)


@dataclass(frozen=True)
class Equal(Marginals):
    """Kantorovich's balanced transport: everything moves, row and column sums equal the weights.

    Both sides must have the same total weight. If the totals differ only by rounding, up to a millionth, the target
    weights are scaled to the total of the source weights.

    Examples
    --------
    >>> import adaptive_ot as aot
    >>> aot.solve([[-1.0, 2.0], [3.0, 4.0]], marginals=aot.Equal()).value
    1.5
    """

    title = "Balanced transport"
    sides = (EQUAL, EQUAL)


@dataclass(frozen=True)
class FixedMass(Marginals):
    """Partial transport: exactly `mass` moves, and no point gives or takes more than its weight.

    Parameters
    ----------
    mass
        The mass to move, at most the smaller of the two total weights. If both totals are 1, `mass` is a fraction.

    Examples
    --------
    >>> import adaptive_ot as aot
    >>> solution = aot.solve([[1.0, 2.0], [3.0, 5.0]], marginals=aot.FixedMass(0.75))
    >>> solution.value, solution.price  # the last bit that moves costs 4 a unit: two pairs come, one goes
    (1.5, 4.0)
    """

    title = "Partial transport"
    sides = (AT_MOST, AT_MOST)

    mass: float

    @property
    def prescribes_mass(self) -> bool:
        return True

    def __post_init__(self) -> None:
        object.__setattr__(self, "mass", check.number("mass", self.mass, minimum=0.0))

    def checked(self, mu: np.ndarray, nu: np.ndarray) -> Weights:
        most = np.minimum(mu.sum(axis=-1), nu.sum(axis=-1)).min(initial=np.inf)
        if self.mass > most * (1 + SAME_TOTAL):
            rule = f"must be at most the smaller of the total weights, {most:.12g}"
            raise InvalidInput("mass", rule, f"{self.mass:.12g}", "Choose a smaller mass, or larger weights.")
        return mu, nu

    def prescribed(self, mu: np.ndarray, nu: np.ndarray) -> float:
        return float(min(self.mass, mu.sum(), nu.sum()))  # up to rounding of the total weights

    def bound(self, mu: np.ndarray, nu: np.ndarray, f: np.ndarray, lowest: np.ndarray) -> Bound:
        # A price p of mass proves p * mass + <mu, f> + <nu, min(0, lowest - p)>. At the best p, the cheaper targets can
        # just take the mass.
        amount = self.prescribed(mu, nu)
        order = np.argsort(lowest, kind="stable")
        taken = np.cumsum(nu[order])
        enough = int(np.searchsorted(taken, amount * (1 - 1e-12)))
        price = float(lowest[order[min(enough, order.size - 1)]]) if order.size else 0.0
        if math.isinf(price):  # all reachable targets together cannot take this much
            return Bound(math.inf if amount > 0 else _sum(mu * f), np.zeros(nu.size))
        g = np.minimum(lowest - price, 0.0)
        return Bound(_sum(mu * f) + _sum(nu * g) + price * amount, g, price)

    def violations(self, mu: np.ndarray, nu: np.ndarray, r: np.ndarray, c: np.ndarray) -> Violations:
        off = abs(float(r.sum()) - self.prescribed(mu, nu))
        return super().violations(mu, nu, r, c)._replace(mass=off)


@dataclass(frozen=True)
class SoftKL(Marginals):
    """Unbalanced transport: marginals may differ from the weights, at a cost proportional to the divergence.

    The objective, and so `Solution.value`, is <C, G> + tau KL(row sums | mu) + tau KL(column sums | nu), where
    KL(a | b) = sum a log(a / b) - a + b.

    Parameters
    ----------
    tau
        The price of a unit of divergence, in units of the cost. A large `tau` keeps the marginals close to the weights;
        with a small one, mass disappears where moving it costs much more than `tau`. Where moving mass *pays* much
        more, mass appears, by a factor of up to exp(-C / tau): use costs that are not far below zero.

    Examples
    --------
    >>> import adaptive_ot as aot
    >>> solution = aot.solve([[0.0, 9.0], [9.0, 9.0]], marginals=aot.SoftKL(tau=1.0), solver=aot.Entropic(0.01))
    >>> solution.plan.round(2) + 0.0
    array([[0.5 , 0.  ],
           [0.  , 0.01]])
    """

    title = "Unbalanced transport"
    no_exact_form = Refusal(
        "must be Entropic with SoftKL: without entropy it is no linear programme for the simplex to solve",
        "Use Entropic(epsilon) with a small epsilon, or FixedMass/AtMost with Exact.",
    )

    tau: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "tau", check.number("tau", self.tau, minimum=check.SMALLEST))
        object.__setattr__(self, "sides", (Side(tau=self.tau), Side(tau=self.tau)))

    def bound(self, mu: np.ndarray, nu: np.ndarray, f: np.ndarray, lowest: np.ndarray) -> Bound:
        # A constant may move from one side to the other; the bound is best where both sides are due the same mass.
        totals = _sum(mu), _sum(nu)
        if not min(totals) > 0:
            return Bound(self.tau * sum(totals), lowest)
        source, target = (_log_mean_exp(weights, -side / self.tau) for weights, side in ((mu, f), (nu, lowest)))
        with np.errstate(over="ignore"):  # potentials that are far off give a bound of -inf
            off = float(np.expm1(0.5 * (source + target)))
        apart = _sum(np.concatenate([mu, -nu])) ** 2 / (math.sqrt(totals[0]) + math.sqrt(totals[1])) ** 2
        moved = -2 * math.sqrt(totals[0]) * math.sqrt(totals[1]) * off
        return Bound(self.tau * (apart + moved - ROUNDING * (apart + abs(moved))), lowest)


@dataclass(frozen=True)
class ChiSquareBall(Marginals):
    """Robust transport: everything moves, between the best reweightings of both sides within a chi-square ball.

    Row sums r have the total of mu and sum (r_i - mu_i)^2 / mu_i <= rho |mu|, column sums likewise for nu. So `rho` is
    the largest relative chi-square divergence from the weights.

    Parameters
    ----------
    rho
        How far the marginals may move. With uniform weights, dropping a share a of outliers takes rho = a / (1 - a).

    Examples
    --------
    >>> import adaptive_ot as aot
    >>> solution = aot.solve([[0.0, 4.0], [4.0, 4.0]], marginals=aot.ChiSquareBall(rho=0.25))
    >>> round(solution.value, 9), solution.source_marginal.round(9)
    (1.0, array([0.75, 0.25]))
    """

    title = "Robust transport"
    sides = (EQUAL, EQUAL)  # of the best reweightings
    no_entropic_form = Refusal(
        "cannot be Entropic with ChiSquareBall: the ball ties all rows together, so there is no entropic step row "
        "by row",
        "Use Exact(), or SoftKL with Entropic.",
    )

    rho: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "rho", check.number("rho", self.rho, minimum=0.0))

    @property
    def exact_method(self) -> Literal["adaptive", "prescribed", "robust"]:
        return "robust"

    def bound(self, mu: np.ndarray, nu: np.ndarray, f: np.ndarray, lowest: np.ndarray) -> Bound:
        of_source, _ = self._lowest_mean(mu, f)
        of_target, g = self._lowest_mean(nu, lowest)
        return Bound(of_source + of_target, g)

    def _lowest_mean(self, weights: np.ndarray, potential: np.ndarray) -> tuple[float, np.ndarray]:
        """The lowest mean of a potential over the marginals in the ball, and the potential cut to the best bound."""
        total = float(weights.sum())
        share = weights / (total or 1.0)
        weigh = share > 0
        cut = np.minimum(potential, 0.0)  # any such value will do for points without weight
        if not np.isfinite(potential[weigh]).any():
            return (math.inf if weigh.any() else 0.0), cut
        ball = Ball(share[weigh], self.rho)
        cut[weigh] = ball.cut(potential[weigh])
        return total * ball.lowest_mean(cut[weigh]), cut

    def violations(self, mu: np.ndarray, nu: np.ndarray, r: np.ndarray, c: np.ndarray) -> Violations:
        off = abs(float(r.sum()) - float(mu.sum()))
        return Violations(self._outside(mu, r), self._outside(nu, c), mass=off)

    def _outside(self, weights: np.ndarray, sums: np.ndarray) -> float:
        """How far sums are outside the ball; points without weight must not carry mass."""
        off = np.divide(sums - weights, np.sqrt(weights), out=np.zeros(sums.size), where=weights > 0)
        root = math.sqrt(weights.sum())
        outside = root * max(0.0, math.sqrt(off @ off) - math.sqrt(self.rho) * root)
        return max(outside, float(sums[weights == 0].max(initial=0.0)))


@dataclass(frozen=True)
class PerSide(Marginals):
    """One rule for the row sums and another for the column sums; `solve` makes it from a pair of models.

    Examples
    --------
    Semi-relaxed transport: every target is served in full, each source gives at most its weight.

    >>> import adaptive_ot as aot
    >>> aot.solve([[1.0, 2.0], [5.0, 9.0]], [1.0, 1.0], [0.5, 0.5], marginals=(aot.AtMost(), aot.Equal())).plan
    array([[0.5, 0.5],
           [0. , 0. ]])
    """

    source: Marginals
    target: Marginals

    def __post_init__(self) -> None:
        for model in (self.source, self.target):
            if not isinstance(model, AtMost | Equal | SoftKL):
                rule = "must be AtMost, Equal or SoftKL on each side of a pair"
                raise InvalidInput("marginals", rule, model, "FixedMass and ChiSquareBall rule both sides at once.")
        sides = self.source.sides[0], self.target.sides[1]
        names = f"{type(self.source).__name__}, {type(self.target).__name__}"
        object.__setattr__(self, "sides", sides)
        object.__setattr__(self, "title", f"Semi-relaxed transport ({names})")
        object.__setattr__(self, "no_exact_form", self.source.no_exact_form or self.target.no_exact_form)

    def transposed(self) -> Marginals:
        return PerSide(self.target, self.source)


def as_marginals(given: Any) -> Marginals:
    """Convert what a user may pass: a model, a pair of models (one per side), or None for adaptive transport."""
    if isinstance(given, tuple | list) and len(given) == 2:
        source, target = map(as_marginals, given)
        return source if source == target else PerSide(source, target)
    marginals: Any = AtMost() if given is None else given
    if not isinstance(marginals, Marginals):
        raise meant.model(given)
    return marginals


def _sum(terms: np.ndarray) -> float:
    """The sum, as if nearly nothing were rounded before the end; `math.fsum` takes longer than some solves on a GPU."""
    highest = float(np.abs(terms).max(initial=0.0))
    if not 0 < highest < check.LARGEST**2:
        return float(terms.sum())
    unit = 4.0 * 2.0 ** math.frexp(highest * terms.size)[1]
    coarse = (terms + unit) - unit  # the leading digits, so few that they add up exactly
    return float(coarse.sum()) + float((terms - coarse).sum())


def _log_mean_exp(weights: np.ndarray, exponents: np.ndarray) -> float:
    """The logarithm of the weighted mean of exponentials, over the points with positive weight, rounded up."""
    share = weights / weights.sum()
    share, exponents = share[share > 0], exponents[share > 0]
    exponents = exponents * (1 + np.copysign(ROUNDING, exponents))
    highest = float(exponents.max())
    if math.isinf(highest):
        return highest
    below_one = _sum(share * np.expm1(exponents - highest))  # precise where all exponents are nearly the same
    return highest + (
        math.log1p(below_one) if below_one > -0.5 else math.log(float(share @ np.exp(exponents - highest)))
    )


def _divergence(marginal: np.ndarray, weights: np.ndarray) -> float:
    """KL(marginal | weights), precise to the last digits of the marginals even where they nearly equal the weights."""
    marginal, weights = marginal[weights > 0], weights[weights > 0]
    with np.errstate(over="ignore"):  # after an ascent that made no progress
        ratio, off = marginal / weights, (marginal - weights) / weights
        terms = weights * (ratio * np.log(np.where(ratio > 0, ratio, 1.0)) - off)
    if not np.isfinite(terms).all():
        return math.inf
    near = np.abs(off) < NEARLY_ONE
    x = off[near]
    terms[near] = weights[near] * x**2 * np.polyval([1 / 30, -1 / 20, 1 / 12, -1 / 6, 1 / 2], x)
    return math.fsum(terms)


def _balanced(mu: np.ndarray, nu: np.ndarray, model: str) -> Weights:
    """Weights of the same total: the target weights are scaled to the total of the source weights."""
    source, target = mu.sum(axis=-1, keepdims=True), nu.sum(axis=-1, keepdims=True)
    off = np.abs(source - target) > SAME_TOTAL * np.maximum(source, target)
    if off.any():
        first, units = int(np.argmax(off)), bool((mu == 1).all() and (nu == 1).all())
        raise InvalidInput(
            "target_weights",
            f"must have the same total as the source weights with {model}",
            f"{target.flat[first]:.12g} against {source.flat[first]:.12g}",
            "Use aot.match for one-to-one pairs, or AtMost."
            if units
            else "Scale them, or use AtMost, FixedMass or SoftKL.",
        )
    return mu, nu * np.divide(source, target, out=np.ones_like(target), where=target > 0)


def _fitting(name: str, weights: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Weights that the other side can take in full, scaled down if they exceed it only by rounding."""
    total, most = weights.sum(axis=-1, keepdims=True), limits.sum(axis=-1, keepdims=True)
    over = total > most * (1 + SAME_TOTAL)
    if over.any():
        first = int(np.argmax(over))
        raise InvalidInput(
            name,
            "must have a total of at most that of the other side, which has to serve them in full",
            f"{total.flat[first]:.12g} against {most.flat[first]:.12g}",
            "Scale the weights, or use AtMost or SoftKL on this side.",
        )
    return weights * np.divide(most, total, out=np.ones_like(total), where=total > most)
