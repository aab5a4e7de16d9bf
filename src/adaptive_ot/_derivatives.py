"""The derivatives of transport at its solution: of the value by the envelope theorem, of the plan implicitly.

All operations here are ones that PyTorch can differentiate again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from adaptive_ot import _validation as check
from adaptive_ot.entropic.solver import Entropic
from adaptive_ot.errors import InvalidInput
from adaptive_ot.exact.solver import Exact
from adaptive_ot.marginals import ChiSquareBall, FixedMass, Marginals, as_marginals

# Added to the diagonal of the linear system, relative to it: where all weights move on both sides, potentials are free
# up to a constant, and the system is singular in a direction that does not matter.
RIDGE = 1e-14

# One tensor for the rows and one for the columns; before them, one for the plan or the cost.
Pair = tuple[torch.Tensor, torch.Tensor]
Triple = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


class Model(NamedTuple):
    """The model of the marginals and the solver."""

    marginals: Marginals
    solver: Exact | Entropic

    @classmethod
    def of(cls, marginals: Any, solver: Any) -> Model:
        """The model of what a user gave."""
        check.instance("solver", solver, Exact, Entropic)
        model = cls(as_marginals(marginals), solver)
        source, target = model.marginals.sides
        if source != target:
            rule = "must be the same on both sides to be differentiated"
            raise InvalidInput("marginals", rule, model.marginals, "Use one model, or solve without gradients.")
        return model

    @property
    def epsilon(self) -> float:
        return self.solver.strength if isinstance(self.solver, Entropic) else 0.0

    @property
    def softness(self) -> float:
        return self.epsilon / self.marginals.sides[0].tau

    @property
    def bounded(self) -> bool:
        """Whether the weights are upper bounds."""
        return self.marginals.sides[0].bounded

    @property
    def fixed(self) -> bool:
        """Whether the mass is prescribed beside the weights."""
        return self.bounded and self.marginals.prescribes_mass

    def has_dummies(self, mu: torch.Tensor, nu: torch.Tensor) -> bool:
        """Whether the entropy is that of a problem with dummies, and something is left to them."""
        if not (self.bounded and isinstance(self.solver, Entropic) and self.solver.entropy == "augmented"):
            return False
        if not isinstance(self.marginals, FixedMass):  # the mass is an attribute of this model only
            return True
        left = self.marginals.mass < (1 - self.solver.tolerance) * torch.maximum(mu.sum(-1), nu.sum(-1))
        if left.any() and not left.all():
            raise InvalidInput(
                "mass",
                "must leave something in every problem of a batch, or in none, to differentiate the augmented form",
                self.marginals,
                'Solve them apart, or use entropy="product".',
            )
        return bool(left.any())

    @property
    def weighted(self) -> bool:
        """Whether the weights are in the reference of the entropy, dummies aside."""
        return isinstance(self.solver, Entropic) and self.solver.entropy != "counting"


class Limits(NamedTuple):
    """The potentials of one side, its sums over its weights, and its rows of the plan over its weights."""

    potential: torch.Tensor
    ratio: torch.Tensor
    row: torch.Tensor


class Point(NamedTuple):
    """A solution with the inputs it depends on."""

    model: Model
    cost: torch.Tensor
    mu: torch.Tensor
    nu: torch.Tensor
    plan: torch.Tensor
    f: torch.Tensor
    g: torch.Tensor

    def transposed(self) -> Point:
        """The same with targets for sources."""
        return Point(self.model, self.cost.mT, self.nu, self.mu, self.plan.mT, self.g, self.f)

    @property
    def has_dummies(self) -> bool:
        return self.model.has_dummies(self.mu, self.nu)

    def limits(self) -> Limits:
        """Those of all sources; a source without weight has those of a vanishing weight, where these are finite."""
        f, ratio, row = self.f, _ratio(self.plan.sum(-1), self.mu), _ratio(self.plan, self.mu[..., None])
        empty = self.mu == 0
        if self.model.weighted and empty.any():
            limit_f, limit_row = self._newcomers()
            f, row = torch.where(empty, limit_f, f), torch.where(empty[..., None], limit_row, row)
            ratio = torch.where(empty, limit_row.sum(-1), ratio)
        return Limits(f, ratio, row)

    def _newcomers(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Potentials and rows over weights in the limit of vanishing weights."""
        epsilon, totals = self.model.epsilon, (self.mu.sum(-1, keepdim=True), self.nu.sum(-1, keepdim=True))
        rests = torch.full_like(totals[0], -torch.inf)
        if self.has_dummies:
            rests = (totals[0] / _positive(totals[0] + totals[1])).log()
        exponents = (self.g[..., None, :] - self.cost) / epsilon + self._log_scale()[..., None]
        logs = torch.where((self.nu > 0)[..., None, :], exponents + _positive(self.nu).log()[..., None, :], -torch.inf)
        sums = torch.logaddexp(logs.logsumexp(-1), rests)
        alone = sums == -torch.inf  # no pair is allowed, and there is no dummy
        f = -epsilon * torch.where(alone, 0.0, sums) / (1 + self.model.softness)
        if self.model.bounded and not self.has_dummies:
            f = f.clamp(max=0.0)
        return torch.where(alone, torch.inf, f), (logs + f[..., None] / epsilon).exp()

    def _log_scale(self) -> torch.Tensor:
        """The constant  log(plan / (mu nu)) - (f + g - cost) / epsilon,  read off where the plan is heaviest."""
        m, epsilon = self.nu.shape[-1], self.model.epsilon
        at = self.plan.flatten(-2).argmax(-1, keepdim=True)
        mass, cost = self.plan.flatten(-2).gather(-1, at), self.cost.flatten(-2).gather(-1, at)
        i, j = at // m, at % m
        weights = _positive(self.mu.gather(-1, i)).log() + _positive(self.nu.gather(-1, j)).log()
        scale = _positive(mass).log() - weights - (self.f.gather(-1, i) + self.g.gather(-1, j) - cost) / epsilon
        return torch.where(mass > 0, scale, 0.0)


def slopes(at: Point) -> Triple:
    """The derivatives of the value by each cost and each weight: the envelope theorem."""
    return at.plan, _slopes_by_weights(at), _slopes_by_weights(at.transposed())


def _slopes_by_weights(at: Point) -> torch.Tensor:
    """The derivatives of the value by each source weight."""
    marginals, weights, limits = at.model.marginals, at.mu, at.limits()
    slope = potential = limits.potential
    if marginals.sides[0].soft:
        tau = marginals.sides[0].tau
        slope = -tau * torch.expm1(-potential / tau)
    elif isinstance(marginals, ChiSquareBall):  # of  <w, f> - root(rho) root(|w| <w, f^2> - <w, f>^2)
        total = _positive(weights.sum(-1, keepdim=True))
        off = potential - (weights * potential).sum(-1, keepdim=True) / total
        squares = (weights * off**2).sum(-1, keepdim=True)
        slope = potential - marginals.rho**0.5 * _ratio(squares + total * off**2, 2 * (total * squares).sqrt())
    if at.model.weighted and not at.has_dummies:
        slope = slope + at.model.epsilon * (at.nu.sum(-1, keepdim=True) - limits.ratio)
    return slope


def _positive(weights: torch.Tensor) -> torch.Tensor:
    """Weights with 1 for zero, to divide by and to take logarithms of."""
    return torch.where(weights > 0, weights, 1.0)


def _ratio(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Divide a by b, with 0 where b is zero."""
    b = b.expand_as(a)
    return torch.where(b > 0, a / _positive(b), 0.0)


def adjoint(at: Point, by: Triple) -> Triple:
    """Turn derivatives by plan and potentials into derivatives by cost and weights."""
    if at.has_dummies:
        return _adjoint_with_dummies(at, *by)
    model, nu, plan = at.model, at.nu, at.plan
    source, target = at.limits(), at.transposed().limits()
    rows, columns = torch.ones_like(at.mu, dtype=torch.bool), torch.ones_like(nu, dtype=torch.bool)
    if model.bounded:
        rows, columns = source.potential < 0, target.potential < 0
    elif model.softness == 0:  # a constant may move between the sides
        columns = torch.arange(nu.shape[-1], device=nu.device) != plan.sum(-2).argmax(-1, keepdim=True)
    shares = _ratio(source.row, source.ratio[..., None]), _ratio(target.row, target.ratio[..., None])
    u, v, price = _solve(model, plan, shares, (rows, columns), by, model.fixed)
    rest = by[0] - u[..., :, None] - v[..., None, :] - price
    by_mu, by_nu = u, v
    if model.softness > 0:
        by_mu, by_nu = u * source.ratio, v * target.ratio
    if model.weighted:
        by_mu, by_nu = by_mu + (source.row * rest).sum(-1), by_nu + (target.row * rest.mT).sum(-1)
    return -plan * rest / model.epsilon, by_mu, by_nu


def _adjoint_with_dummies(at: Point, by_plan: torch.Tensor, by_f: torch.Tensor, by_g: torch.Tensor) -> Triple:
    """The adjoint of the balanced problem with its dummies: every constraint is tight, and one potential is free.

    If mass is fixed, the dummies leave it to the others, and exchange nothing. In terms of the potentials f', g' of
    the balanced problem,  f = f' + g'_dummy - epsilon log(mu |mu| / (|mu| + |nu|)).
    """
    model, mu, nu, plan = at.model, at.mu, at.nu, at.plan
    epsilon, n, m = model.epsilon, *plan.shape[-2:]
    totals = mu.sum(-1, keepdim=True), nu.sum(-1, keepdim=True)
    total = _positive(totals[0] + totals[1])
    source, target = at.limits(), at.transposed().limits()
    slack = (totals[0] / total) * (source.potential / epsilon).exp()
    spill = (totals[1] / total) * (target.potential / epsilon).exp()
    exchanged = plan.sum((-2, -1))[..., None]
    if model.fixed:
        exchanged = torch.zeros_like(exchanged)
    last_row, last_column = torch.cat([nu * spill, exchanged], -1), torch.cat([mu * slack, exchanged], -1)
    whole = torch.cat([torch.cat([plan, last_row[..., None, :-1]], -2), last_column[..., None]], -1)
    rows = torch.cat([torch.cat([source.row, slack[..., None]], -1), last_row[..., None, :]], -2)
    columns = torch.cat([torch.cat([target.row, spill[..., None]], -1), last_column[..., None, :]], -2)
    shares = _ratio(rows, rows.sum(-1, keepdim=True)), _ratio(columns, columns.sum(-1, keepdim=True))
    free = torch.arange(m + 1, device=plan.device).expand(whole[..., 0, :].shape) < m
    f_sum, g_sum = by_f.sum(-1, keepdim=True), by_g.sum(-1, keepdim=True)
    by = torch.nn.functional.pad(by_plan, (0, 1, 0, 1)), torch.cat([by_f, g_sum], -1), torch.cat([by_g, f_sum], -1)
    u, v, _ = _solve(model, whole, shares, (torch.ones_like(whole[..., 0], dtype=torch.bool), free), by)
    rest = by_plan - u[..., :n, None] - v[..., None, :m]
    common = (f_sum + g_sum) / total
    by_mu = u[..., :n] + v[..., m:] - epsilon * (_ratio(by_f, mu) + _ratio(f_sum, totals[0]) - common)
    by_nu = v[..., :m] + u[..., n:] - epsilon * (_ratio(by_g, nu) + _ratio(g_sum, totals[1]) - common)
    return -plan * rest / epsilon, by_mu, by_nu


def _solve(
    model: Model, plan: torch.Tensor, sides: Pair, tight: Pair, by: Triple, priced: bool = False
) -> tuple[torch.Tensor, torch.Tensor, Any]:
    """Derivatives by the sums of rows and columns, given how each is shared, and by the mass if that is `priced`.

    Tight rows and columns keep their sums at the weights, times exp(-softness * potential / epsilon); the potentials
    of the others stay. The plan is exp((f_i + g_j + price - C_ij) / epsilon), times mu_i nu_j if weighted. In each row,
    (1 + softness) u_i is the mean of  by_ij - v_j - price;  in each column, (1 + softness) v_j is that of
    by_ij - u_i - price;  the price is the mean of all  by_ij - u_i - v_j. The rows are eliminated.
    """
    (shares, means), (rows, columns), (by_plan, by_f, by_g) = sides, tight, by
    r, c, stiff = plan.sum(-1), plan.sum(-2), 1 + model.softness
    p = (shares * by_plan).sum(-1) + model.epsilon * _ratio(by_f, r)
    q = (means.mT * by_plan).sum(-2) + model.epsilon * _ratio(by_g, c)
    inverse = rows / stiff
    square = torch.diag_embed(torch.full_like(c, stiff * (1 + RIDGE)))
    if priced:
        mass = _positive(r.sum(-1, keepdim=True))
        means = torch.cat([means, (r / mass)[..., None, :]], -2)
        shares = torch.cat([shares, torch.ones_like(r)[..., None]], -1)
        square = torch.cat([square, (c / mass)[..., None, :]], -2)
        square = torch.cat([square, torch.ones_like(square[..., :1])], -1)
        q = torch.cat([q, ((by_plan * plan).sum((-2, -1))[..., None] / mass)], -1)
        columns = torch.cat([columns, torch.ones_like(columns[..., :1])], -1)
    schur = torch.where(columns[..., None], square - means @ (inverse[..., None] * shares), 0.0)
    schur = schur + torch.diag_embed(torch.where(columns, 0.0, 1.0))
    right = torch.where(columns, q - (means @ (inverse * p)[..., None])[..., 0], 0.0)
    solved = torch.linalg.solve(schur, right)
    u = inverse * (p - (shares @ solved[..., None])[..., 0])
    return (u, solved[..., :-1], solved[..., -1:, None]) if priced else (u, solved, 0.0)
