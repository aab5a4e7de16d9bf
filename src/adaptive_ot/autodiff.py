"""Differentiate through transport with PyTorch.

The value is differentiated by the envelope theorem: its gradient with respect to the cost is the plan, with respect to
the weights the potentials, or what the model makes of them. The entropic plan is differentiated implicitly, by one
linear system for the potentials at the solution, with the constraints that are active there; so the value can be
differentiated twice.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from adaptive_ot import _validation as check
from adaptive_ot.errors import InvalidInput, MissingDependency
from adaptive_ot.marginals import AtMost, ChiSquareBall, FixedMass, Marginals, SoftKL, as_marginals
from adaptive_ot.solve import solve
from adaptive_ot.solvers.entropic import Entropic
from adaptive_ot.solvers.exact import Exact

try:
    import torch
    from torch.autograd import Function
except ImportError:
    raise MissingDependency("torch", "torch") from None

# Added to the diagonal of the linear system, relative to it: where all weights move on both sides, potentials are free
# up to a constant, and the system is singular in a direction that does not matter.
RIDGE = 1e-14


def transport_value(
    cost: Any,
    source_weights: Any = None,
    target_weights: Any = None,
    *,
    marginals: Marginals | None = None,
    solver: Exact | Entropic | None = None,
) -> torch.Tensor:
    """What transport costs, as a tensor to differentiate (twice, if entropic): with the entropy, if there is any.

    Parameters
    ----------
    cost
        Costs, sources x targets, as a torch tensor, or a batch of them with one more dimension in front.
    source_weights, target_weights
        Weights as tensors, uniform with total 1 by default; for a batch, for all problems or one row for each. Where
        both sides must have the same total, gradients are those along changes that keep it so.
    marginals
        What the marginals must satisfy, `AtMost()` by default.
    solver
        `Exact()`, the default, or `Entropic(epsilon)`.

    Examples
    --------
    >>> import torch, adaptive_ot as aot
    >>> cost = torch.tensor([[-3.0, 1.0], [2.0, 4.0]], requires_grad=True)
    >>> value = transport_value(cost)
    >>> value.backward()
    >>> value.item(), cost.grad.tolist()
    (-1.5, [[0.5, 0.0], [0.0, 0.0]])
    """
    solver = Exact() if solver is None else solver
    model = _Model.of(marginals, solver)
    value = _Value.apply(*_tensors(cost, source_weights, target_weights), model)
    return value.to(cost.dtype)


def transport_plan(
    cost: Any,
    source_weights: Any = None,
    target_weights: Any = None,
    *,
    marginals: Marginals | None = None,
    solver: Exact | Entropic,
) -> torch.Tensor:
    """The plan, as a tensor to differentiate; parameters as for `transport_value`, but the solver must be given.

    An exact plan jumps from one vertex to another and is constant in between: there is nothing to differentiate.

    Examples
    --------
    >>> import torch, adaptive_ot as aot
    >>> cost = torch.tensor([[-1.0, 0.3], [0.5, -0.2]], requires_grad=True)
    >>> plan = transport_plan(cost, solver=aot.Entropic(0.5))
    >>> plan[0, 0].backward()
    >>> bool(cost.grad[0, 0] < 0 < cost.grad[0, 1])  # dearer pairs carry less, dearer rivals leave more
    True
    """
    model = _Model.of(marginals, solver)
    inputs = _tensors(cost, source_weights, target_weights)
    if isinstance(solver, Exact) and torch.is_grad_enabled() and any(part.requires_grad for part in inputs):
        raise InvalidInput(
            "solver",
            "must be Entropic to differentiate the plan: an exact plan is constant almost everywhere",
            solver,
            "Use Entropic(epsilon), transport_value, or detach the cost.",
        )
    state = _solve(*inputs, model)
    return _differentiable(*inputs, model, state)[0].to(cost.dtype)


class _Model(NamedTuple):
    """What is solved, and how."""

    marginals: Marginals
    solver: Exact | Entropic

    @classmethod
    def of(cls, marginals: Any, solver: Any) -> _Model:
        marginals = as_marginals(marginals)
        check.instance("solver", solver, Exact, Entropic)
        return cls(marginals, solver)

    @property
    def epsilon(self) -> float:
        return self.solver.epsilon if isinstance(self.solver, Entropic) else 0.0

    @property
    def softness(self) -> float:
        return self.epsilon / self.marginals.tau if isinstance(self.marginals, SoftKL) else 0.0

    @property
    def bounded(self) -> bool:
        """Whether the weights are upper bounds."""
        return isinstance(self.marginals, AtMost | FixedMass)

    def has_dummies(self, mu: torch.Tensor, nu: torch.Tensor) -> bool:
        """Whether the entropy is that of a problem with dummies, and something is left to them."""
        if not (self.bounded and isinstance(self.solver, Entropic) and self.solver.entropy == "augmented"):
            return False
        if not isinstance(self.marginals, FixedMass):
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


class _State(NamedTuple):
    """A solution in float64, without graph."""

    value: torch.Tensor
    plan: torch.Tensor
    source_potential: torch.Tensor
    target_potential: torch.Tensor


def _tensors(cost: Any, source_weights: Any, target_weights: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Cost and weights as tensors in float64, with their graphs."""
    check.tensor("cost", cost)
    if cost.ndim not in (2, 3):
        raise InvalidInput("cost", "must have two dimensions, or three for a batch", cost.ndim, "Reshape it.")
    sides = []
    for name, given, size in (
        ("source_weights", source_weights, cost.shape[-2]),
        ("target_weights", target_weights, cost.shape[-1]),
    ):
        side = torch.full((size,), 1 / max(1, size), dtype=torch.float64, device=cost.device)
        if given is not None:
            check.tensor(name, given)
            side = given.double()
        sides.append(side.expand(len(cost), -1) if cost.ndim == 3 and side.ndim == 1 else side)
    return cost.double(), sides[0], sides[1]


def _solve(cost: torch.Tensor, mu: torch.Tensor, nu: torch.Tensor, model: _Model) -> _State:
    solution = solve(cost.detach(), mu.detach(), nu.detach(), marginals=model.marginals, solver=model.solver)
    value = torch.as_tensor(solution.regularised_value, dtype=torch.float64, device=cost.device)
    return _State(value, solution.plan, solution.source_potential, solution.target_potential)


class _Value(Function):
    @staticmethod
    def forward(ctx: Any, cost: Any, mu: Any, nu: Any, model: Any) -> torch.Tensor:
        state = _solve(cost, mu, nu, model)
        ctx.model = model
        ctx.save_for_backward(cost, mu, nu, *state)
        return state.value.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (gradient,) = gradients
        cost, mu, nu, *state = ctx.saved_tensors
        state = _State(*state)
        twice = torch.is_grad_enabled()  # a graph of the gradient is made only for those who asked for one
        plan, f, g = _differentiable(cost, mu, nu, ctx.model, state) if twice else state[1:]
        by_mu, by_nu = _slope(ctx.model.marginals, mu, f), _slope(ctx.model.marginals, nu, g)
        if ctx.model.weighted and not ctx.model.has_dummies(mu, nu):
            by_mu = by_mu + ctx.model.epsilon * (nu.sum(-1, keepdim=True) - _ratio(plan.sum(-1), mu))
            by_nu = by_nu + ctx.model.epsilon * (mu.sum(-1, keepdim=True) - _ratio(plan.sum(-2), nu))
        side = gradient[..., None]
        return side[..., None] * plan, side * by_mu, side * by_nu, None


def _slope(marginals: Marginals, weights: torch.Tensor, potential: torch.Tensor) -> torch.Tensor:
    """By how much the dual value changes with each weight of one side, at fixed potentials."""
    if isinstance(marginals, SoftKL):
        return -marginals.tau * torch.expm1(-potential / marginals.tau)
    if isinstance(marginals, ChiSquareBall):  # of  <w, f> - root(rho) root(|w| <w, f^2> - <w, f>^2)
        total = _positive(weights.sum(-1, keepdim=True))
        off = potential - (weights * potential).sum(-1, keepdim=True) / total
        squares = (weights * off**2).sum(-1, keepdim=True)
        spread = _ratio(squares + total * off**2, (2 * (total * squares).sqrt()).expand_as(off))
        return potential - marginals.rho**0.5 * spread
    return potential


def _positive(weights: torch.Tensor) -> torch.Tensor:
    """Weights with 1 for zero, to divide by and to take logarithms of."""
    return torch.where(weights > 0, weights, 1.0)


def _ratio(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.where(b > 0, a / _positive(b), 0.0)


def _differentiable(
    cost: torch.Tensor, mu: torch.Tensor, nu: torch.Tensor, model: _Model, state: _State
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Plan and potentials with a graph back to cost and weights, none for an exact solution."""
    plan, f, g = state.plan, state.source_potential, state.target_potential
    if isinstance(model.solver, Exact):
        return plan, f, g
    if model.has_dummies(mu, nu):
        return _with_dummies(cost, mu, nu, model, state)
    rows, columns = plan.sum(-1) > 0, plan.sum(-2) > 0
    if model.bounded:
        rows, columns = f < 0, g < 0
    elif model.softness == 0:  # a constant may move between the sides
        columns = columns & (torch.arange(nu.shape[-1], device=nu.device) != plan.sum(-2).argmax(-1, keepdim=True))
    priced = isinstance(model.marginals, FixedMass)
    settings = model.epsilon, model.weighted, model.softness, priced
    return _Equilibrium.apply(cost, mu, nu, plan, f, g, rows, columns, *settings)


def _with_dummies(
    cost: torch.Tensor, mu: torch.Tensor, nu: torch.Tensor, model: _Model, state: _State
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The balanced problem with its dummies: every constraint is active, and one potential is free to choose.

    If mass is fixed, the dummies leave it to the others, and exchange nothing.
    """
    plan, f, g = state.plan, state.source_potential, state.target_potential
    epsilon, n, m = model.epsilon, *cost.shape[-2:]
    mu_total, nu_total = mu.sum(-1), nu.sum(-1)
    total = _positive(mu_total + nu_total)
    moving, exchanged = 0.0, plan.sum((-2, -1))
    if isinstance(model.marginals, FixedMass):
        moving, exchanged = exchanged, torch.zeros_like(exchanged)
    weights = (
        torch.cat([mu, (nu_total - moving)[..., None]], -1),
        torch.cat([nu, (mu_total - moving)[..., None]], -1),
    )
    slack = (mu * (mu_total / total)[..., None] * (f / epsilon).exp()).detach()
    spill = (nu * (nu_total / total)[..., None] * (g / epsilon).exp()).detach()
    whole = torch.cat([plan, slack[..., None]], -1)
    dummy = torch.cat([spill, exchanged[..., None]], -1)
    whole = torch.cat([whole, dummy[..., None, :]], -2)
    # Only the derivatives of its potentials are needed, with that of the dummy target fixed.
    f_whole, g_whole = torch.zeros_like(weights[0]), torch.zeros_like(weights[1])
    rows = torch.ones_like(weights[0], dtype=torch.bool)
    columns = torch.ones_like(weights[1], dtype=torch.bool)
    columns[..., m] = False
    padded = torch.nn.functional.pad(cost, (0, 1, 0, 1))
    balanced, f_moved, g_moved = _Equilibrium.apply(
        padded, *weights, whole, f_whole, g_whole, rows, columns, epsilon, False, 0.0, False
    )
    # `f` as it is, with the derivative of  f' + g'_dummy - epsilon log(mu |mu| / total).
    log_total = total.log()[..., None]
    f_log = _positive(mu).log() + _positive(mu_total).log()[..., None] - log_total
    g_log = _positive(nu).log() + _positive(nu_total).log()[..., None] - log_total
    f_change = f_moved[..., :n] + g_moved[..., m:] - epsilon * f_log
    g_change = g_moved[..., :m] + f_moved[..., n:] - epsilon * g_log
    return balanced[..., :n, :m], f + f_change - f_change.detach(), g + g_change - g_change.detach()


class _Equilibrium(Function):
    """Plan and potentials of an entropic problem, given as they were found, with their derivatives.

    Active rows and columns keep their sums at the weights, times exp(-softness * potential / epsilon); the potentials
    of the others stay. The plan is exp((f_i + g_j + price - C_ij) / epsilon), times mu_i nu_j if `weighted`. If
    `priced`, the price keeps the mass: it is one more column, which shares its mass with all others.
    """

    @staticmethod
    def forward(
        ctx: Any,
        cost: Any,
        mu: Any,
        nu: Any,
        plan: Any,
        f: Any,
        g: Any,
        rows: Any,
        columns: Any,
        epsilon: float,
        weighted: bool,
        softness: float,
        priced: bool,
    ) -> Any:
        ctx.epsilon, ctx.weighted, ctx.softness, ctx.priced = epsilon, weighted, softness, priced
        ctx.save_for_backward(mu, nu, plan, rows, columns)
        return plan.clone(), f.clone(), g.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *by: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        by_plan, by_f, by_g = by
        mu, nu, plan, rows, columns = ctx.saved_tensors
        epsilon = ctx.epsilon
        r, c = plan.sum(-1), plan.sum(-2)
        p = (by_plan * plan).sum(-1) + epsilon * by_f
        q = (by_plan * plan).sum(-2) + epsilon * by_g
        # [(1 + softness) diag(r) plan; plan^T (1 + softness) diag(c)] (u, v) = (p, q), the rows eliminated.
        inverse = torch.where(rows & (r > 0), 1 / ((1 + ctx.softness) * torch.where(r > 0, r, 1.0)), 0.0)
        active, whole, square = columns & (c > 0), plan, torch.diag_embed((1 + ctx.softness) * (1 + RIDGE) * c)
        if ctx.priced:
            corner = torch.cat([c, c.sum(-1, keepdim=True)], -1)
            square = torch.cat([torch.cat([square, c[..., None]], -1), corner[..., None, :]], -2)
            whole, q = (
                torch.cat([plan, r[..., None]], -1),
                torch.cat([q, (by_plan * plan).sum((-2, -1))[..., None]], -1),
            )
            active = torch.cat([active, torch.ones_like(active[..., :1])], -1)
        pairs = active[..., :, None] & active[..., None, :]
        schur = torch.where(pairs, square - whole.mT @ (inverse[..., None] * whole), 0.0)
        schur = schur + torch.diag_embed(torch.where(active, 0.0, 1.0))
        right = torch.where(active, q - (whole.mT @ (inverse * p)[..., None])[..., 0], 0.0)
        solved = torch.linalg.solve(schur, right)
        u = inverse * (p - (whole @ solved[..., None])[..., 0])
        v, price = (solved[..., :-1], solved[..., -1:, None]) if ctx.priced else (solved, 0.0)
        rest = plan * (by_plan - u[..., :, None] - v[..., None, :] - price)
        by_mu, by_nu = (u * _ratio(r, mu), v * _ratio(c, nu)) if ctx.softness > 0 else (u, v)
        if ctx.weighted:
            by_mu, by_nu = by_mu + _ratio(rest.sum(-1), mu), by_nu + _ratio(rest.sum(-2), nu)
        return -rest / epsilon, by_mu, by_nu, *(None,) * 9
