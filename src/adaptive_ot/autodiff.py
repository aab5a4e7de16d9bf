"""Differentiate through transport with PyTorch.

The value is differentiated by the envelope theorem: its gradient with respect to the cost is the plan, with respect to
the weights the potentials, or what the model makes of them. The entropic plan is differentiated implicitly, by one
linear system for the potentials at the solution, with the constraints that are active there. That system can be
differentiated in turn, so entropic values and plans have derivatives of every order.
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
    """The transport value, entropy included, as a tensor to differentiate: once if exact, to any order if entropic.

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
    return _Solved.apply(*_tensors(cost, source_weights, target_weights), model)[0].to(cost.dtype)


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
    differentiated = torch.is_grad_enabled() and any(part.requires_grad for part in inputs)
    if differentiated and isinstance(solver, Exact):
        raise InvalidInput(
            "solver",
            "must be Entropic to differentiate the plan: an exact plan is constant almost everywhere",
            solver,
            "Use Entropic(epsilon), transport_value, or detach the cost.",
        )
    plan = _Solved.apply(*inputs, model)[1].to(cost.dtype)
    if differentiated:
        model.has_dummies(*inputs[1:])  # refuses a batch that could not be differentiated
    return plan


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


class _Solved(Function):
    """Value, plan and potentials of a problem in float64.

    The backward pass is written in terms of the outputs, so that it can be differentiated in turn, to any order.
    """

    @staticmethod
    def forward(cost: Any, mu: Any, nu: Any, model: _Model) -> Any:
        solution = solve(cost, mu, nu, marginals=model.marginals, solver=model.solver)
        value = torch.as_tensor(solution.regularised_value, dtype=torch.float64, device=cost.device)
        return value, solution.plan, solution.source_potential, solution.target_potential

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        cost, mu, nu, ctx.model = inputs
        _, plan, f, g = output
        ctx.set_materialize_grads(False)
        if isinstance(ctx.model.solver, Exact):
            ctx.mark_non_differentiable(plan, f, g)
        ctx.save_for_backward(cost, mu, nu, plan, f, g)

    @staticmethod
    def backward(ctx: Any, *by: Any) -> Any:
        by_value, *by_solution = by
        cost, mu, nu, *solution = ctx.saved_tensors
        at = _Point(ctx.model, mu, nu, *solution)
        gradients = torch.zeros_like(at.plan), torch.zeros_like(mu), torch.zeros_like(nu)
        if by_value is not None:
            slopes = _slopes(at)
            if isinstance(at.model.marginals, ChiSquareBall):
                slopes = [_Once.apply(slope, cost, mu, nu) for slope in slopes]
            side = by_value[..., None]
            gradients = side[..., None] * slopes[0], side * slopes[1], side * slopes[2]
        if any(given is not None for given in by_solution):
            given = (torch.zeros_like(s) if b is None else b for s, b in zip(solution, by_solution, strict=True))
            adjoint = _adjoint_with_dummies if at.model.has_dummies(mu, nu) else _adjoint
            gradients = [a + b for a, b in zip(gradients, adjoint(at, *given), strict=True)]
        return *gradients, None


class _Once(Function):
    """Passes a derivative on, and refuses to differentiate it by the inputs that it depends on."""

    @staticmethod
    def forward(derivative: Any, *inputs: Any) -> Any:
        return derivative.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *by: Any) -> Any:
        raise InvalidInput(
            "marginals",
            "must have an entropic form to differentiate the value twice",
            "ChiSquareBall",
            "Use SoftKL with Entropic(epsilon), or detach the gradient.",
        )


class _Point(NamedTuple):
    """A solution, and what it depends on."""

    model: _Model
    mu: torch.Tensor
    nu: torch.Tensor
    plan: torch.Tensor
    f: torch.Tensor
    g: torch.Tensor


def _slopes(at: _Point) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """By how much the value changes with each cost and each weight: the envelope theorem."""
    model, mu, nu = at.model, at.mu, at.nu
    by_mu, by_nu = _slope(model.marginals, mu, at.f), _slope(model.marginals, nu, at.g)
    if model.weighted and not model.has_dummies(mu, nu):
        by_mu = by_mu + model.epsilon * (nu.sum(-1, keepdim=True) - _ratio(at.plan.sum(-1), mu))
        by_nu = by_nu + model.epsilon * (mu.sum(-1, keepdim=True) - _ratio(at.plan.sum(-2), nu))
    return at.plan, by_mu, by_nu


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


def _adjoint(
    at: _Point, by_plan: torch.Tensor, by_f: torch.Tensor, by_g: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What derivatives by plan and potentials are by cost and weights."""
    model, mu, nu, plan = at.model, at.mu, at.nu, at.plan
    rows, columns = plan.sum(-1) > 0, plan.sum(-2) > 0
    if model.bounded:
        rows, columns = at.f < 0, at.g < 0
    elif model.softness == 0:  # a constant may move between the sides
        columns = columns & (torch.arange(nu.shape[-1], device=nu.device) != plan.sum(-2).argmax(-1, keepdim=True))
    rest, u, v = _equilibrium(model, plan, rows, columns, by_plan, by_f, by_g, isinstance(model.marginals, FixedMass))
    by_mu, by_nu = u, v
    if model.softness > 0:
        by_mu, by_nu = u * _ratio(plan.sum(-1), mu), v * _ratio(plan.sum(-2), nu)
    if model.weighted:
        by_mu, by_nu = by_mu + _ratio(rest.sum(-1), mu), by_nu + _ratio(rest.sum(-2), nu)
    return -rest / model.epsilon, by_mu, by_nu


def _adjoint_with_dummies(
    at: _Point, by_plan: torch.Tensor, by_f: torch.Tensor, by_g: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The same for the balanced problem with its dummies: every constraint is active, and one potential is free.

    If mass is fixed, the dummies leave it to the others, and exchange nothing. In terms of the potentials f', g' of
    the balanced problem,  f = f' + g'_dummy - epsilon log(mu |mu| / (|mu| + |nu|)).
    """
    model, mu, nu, plan = at.model, at.mu, at.nu, at.plan
    epsilon, n, m = model.epsilon, *plan.shape[-2:]
    mu_total, nu_total = mu.sum(-1, keepdim=True), nu.sum(-1, keepdim=True)
    total = _positive(mu_total + nu_total)
    slack = mu * (mu_total / total) * (at.f / epsilon).exp()
    spill = nu * (nu_total / total) * (at.g / epsilon).exp()
    exchanged = plan.sum((-2, -1))[..., None]
    if isinstance(model.marginals, FixedMass):
        exchanged = torch.zeros_like(exchanged)
    whole = torch.cat([plan, slack[..., None]], -1)
    whole = torch.cat([whole, torch.cat([spill, exchanged], -1)[..., None, :]], -2)
    rows = torch.ones_like(whole[..., 0], dtype=torch.bool)
    columns = torch.arange(m + 1, device=plan.device).expand(whole[..., 0, :].shape) < m
    f_sum, g_sum = by_f.sum(-1, keepdim=True), by_g.sum(-1, keepdim=True)
    by = torch.nn.functional.pad(by_plan, (0, 1, 0, 1)), torch.cat([by_f, g_sum], -1), torch.cat([by_g, f_sum], -1)
    rest, u, v = _equilibrium(model, whole, rows, columns, *by)
    common = (f_sum + g_sum) / total
    by_mu = u[..., :n] + v[..., m:] - epsilon * (_ratio(by_f, mu) + _ratio(f_sum, mu_total) - common)
    by_nu = v[..., :m] + u[..., n:] - epsilon * (_ratio(by_g, nu) + _ratio(g_sum, nu_total) - common)
    return -rest[..., :n, :m] / epsilon, by_mu, by_nu


def _equilibrium(
    model: _Model,
    plan: torch.Tensor,
    rows: torch.Tensor,
    columns: torch.Tensor,
    by_plan: torch.Tensor,
    by_f: torch.Tensor,
    by_g: torch.Tensor,
    priced: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The linear system for the potentials: derivatives by  log plan  at fixed potentials, and by rows and columns.

    Active rows and columns keep their sums at the weights, times exp(-softness * potential / epsilon); the potentials
    of the others stay. The plan is exp((f_i + g_j + price - C_ij) / epsilon), times mu_i nu_j if weighted. If `priced`,
    the price keeps the mass: it is one more column, which shares its mass with all others.
    """
    r, c = plan.sum(-1), plan.sum(-2)
    p = (by_plan * plan).sum(-1) + model.epsilon * by_f
    q = (by_plan * plan).sum(-2) + model.epsilon * by_g
    # [(1 + softness) diag(r) plan; plan^T (1 + softness) diag(c)] (u, v) = (p, q), the rows eliminated.
    stiff = 1 + model.softness
    inverse = torch.where(rows & (r > 0), 1 / (stiff * _positive(r)), 0.0)
    active, whole, square = columns & (c > 0), plan, torch.diag_embed(stiff * (1 + RIDGE) * c)
    if priced:
        corner = torch.cat([c, c.sum(-1, keepdim=True)], -1)
        square = torch.cat([torch.cat([square, c[..., None]], -1), corner[..., None, :]], -2)
        whole = torch.cat([plan, r[..., None]], -1)
        q = torch.cat([q, (by_plan * plan).sum((-2, -1))[..., None]], -1)
        active = torch.cat([active, torch.ones_like(active[..., :1])], -1)
    pairs = active[..., :, None] & active[..., None, :]
    schur = torch.where(pairs, square - whole.mT @ (inverse[..., None] * whole), 0.0)
    schur = schur + torch.diag_embed(torch.where(active, 0.0, 1.0))
    right = torch.where(active, q - (whole.mT @ (inverse * p)[..., None])[..., 0], 0.0)
    solved = torch.linalg.solve(schur, right)
    u = inverse * (p - (whole @ solved[..., None])[..., 0])
    v, price = (solved[..., :-1], solved[..., -1:, None]) if priced else (solved, 0.0)
    return plan * (by_plan - u[..., :, None] - v[..., None, :] - price), u, v
