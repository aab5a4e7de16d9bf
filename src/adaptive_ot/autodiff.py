"""Differentiate through transport with PyTorch.

The value is differentiated by the envelope theorem: its gradient with respect to the cost is the plan; with respect to
the weights, it follows from the potentials. The entropic plan is differentiated implicitly, by one linear system for
the potentials at the solution, with the constraints that are tight there. That system can be differentiated in turn,
so entropic values and plans have derivatives of every order.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec

from adaptive_ot import _meant as meant
from adaptive_ot import _validation as check
from adaptive_ot.batch import ProblemBatch
from adaptive_ot.entropic.solver import Entropic
from adaptive_ot.entropic.strength import with_strength
from adaptive_ot.errors import InvalidInput, MissingDependency
from adaptive_ot.exact.solver import Exact
from adaptive_ot.marginals import Marginals
from adaptive_ot.problem import Problem
from adaptive_ot.solve import solve

try:
    import torch
    from torch.autograd import Function
except ImportError:
    raise MissingDependency("torch", "torch") from None

from adaptive_ot._derivatives import Model, Point, Triple, adjoint, slopes

Arguments = ParamSpec("Arguments")


def _uncompiled(function: Callable[Arguments, torch.Tensor]) -> Callable[Arguments, torch.Tensor]:
    """Leave the function to the interpreter where `torch.compile` compiles its caller: a solver is not a graph."""

    @wraps(function)
    def called(*arguments: Arguments.args, **options: Arguments.kwargs) -> torch.Tensor:
        if torch.compiler.is_compiling():
            apart: Any = torch.compiler.disable(function)
            return apart(*arguments, **options)
        return function(*arguments, **options)

    return called


@_uncompiled
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
        `Exact()`, the default, or `Entropic()`, whose epsilon may be given; otherwise it is chosen, and taken as given.

    Examples
    --------
    >>> import torch, adaptive_ot as aot
    >>> cost = torch.tensor([[-3.0, 1.0], [2.0, 4.0]], requires_grad=True)
    >>> value = transport_value(cost)
    >>> value.backward()
    >>> value.item(), cost.grad.tolist()
    (-1.5, [[0.5, 0.0], [0.0, 0.0]])
    """
    model = Model.of(marginals, Exact() if solver is None else solver)
    inputs = _tensors(cost, source_weights, target_weights)
    return _Solved.apply(*inputs, _with_strength(model, inputs))[0].to(cost.dtype)


@_uncompiled
def transport_plan(
    cost: Any,
    source_weights: Any = None,
    target_weights: Any = None,
    *extra: Any,
    marginals: Marginals | None = None,
    solver: Exact | Entropic | None = None,
) -> torch.Tensor:
    """The plan as a tensor to differentiate; parameters as for `transport_value`, but the solver is required.

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
    if extra:
        raise meant.fourth(extra[0], "autodiff.transport_plan")
    inputs = _tensors(cost, source_weights, target_weights)
    if solver is None:
        raise InvalidInput("solver", "must be given", None, "Write solver=aot.Entropic(epsilon).")
    model = Model.of(marginals, solver)
    differentiated = torch.is_grad_enabled() and any(part.requires_grad for part in inputs)
    if differentiated and isinstance(solver, Exact):
        raise InvalidInput(
            "solver",
            "must be Entropic to differentiate the plan: an exact plan is constant almost everywhere",
            solver,
            "Use Entropic(epsilon), transport_value, or detach the cost.",
        )
    model = _with_strength(model, inputs)
    plan = _Solved.apply(*inputs, model)[1].to(cost.dtype)
    if differentiated:
        model.has_dummies(*inputs[1:])  # refuses a batch that could not be differentiated
    return plan


def _tensors(cost: Any, source_weights: Any, target_weights: Any) -> Triple:
    """Cost and weights as tensors in float64, with their graphs."""
    check.tensor("cost", cost)
    if cost.ndim not in (2, 3):
        raise InvalidInput("cost", "must have two dimensions, or three for a batch", cost.ndim, "Reshape it.")

    def side(name: str, weights: Any, size: int) -> torch.Tensor:
        if weights is None:
            weights = torch.full((size,), 1 / max(1, size), dtype=torch.float64, device=cost.device)
        try:
            check.tensor(name, weights)
        except InvalidInput as error:
            raise meant.by_position(name, weights) or error from None
        return weights.double().expand(len(cost), -1) if cost.ndim > weights.ndim + 1 else weights.double()

    n, m = cost.shape[-2:]
    return cost.double(), side("source_weights", source_weights, n), side("target_weights", target_weights, m)


def _with_strength(model: Model, inputs: Triple) -> Model:
    """The model with the epsilon that `solve` would choose: its derivatives need the number."""
    if not isinstance(model.solver, Entropic) or model.solver.epsilon is not None:
        return model
    cost, mu, nu = (part.detach() for part in inputs)
    kind = ProblemBatch if cost.ndim == 3 else Problem
    return model._replace(solver=with_strength(model.solver, kind.build(cost, mu, nu, model.marginals)))


class _Solved(Function):
    """Value, plan and potentials of a problem in float64.

    The backward pass is written in terms of the outputs, so that it can be differentiated in turn, to any order.
    """

    @staticmethod
    def forward(cost: Any, mu: Any, nu: Any, model: Model) -> Any:
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
        at = Point(ctx.model, cost, mu, nu, *solution)
        gradients = torch.zeros_like(at.plan), torch.zeros_like(mu), torch.zeros_like(nu)
        if by_value is not None:
            by_cost, by_mu, by_nu = slopes(at)
            if at.model.marginals.no_entropic_form:
                by_cost, by_mu, by_nu = (_Once.apply(slope, cost, mu, nu) for slope in (by_cost, by_mu, by_nu))
            side = by_value[..., None]
            gradients = side[..., None] * by_cost, side * by_mu, side * by_nu
        if any(given is not None for given in by_solution):
            pairs = zip(solution, by_solution, strict=True)
            plan, f, g = (torch.zeros_like(each) if by is None else by for each, by in pairs)
            gradients = [a + b for a, b in zip(gradients, adjoint(at, (plan, f, g)), strict=True)]
        return *gradients, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> Any:
        raise InvalidInput(
            "cost",
            "must not be mapped by torch.vmap",
            "one of its batches",
            "Give a batch, problems x sources x targets; for Jacobians and Hessians, use torch.func.jacrev.",
        )

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise InvalidInput(
            "cost",
            "must not carry a tangent: derivatives go backwards only",
            "forward-mode differentiation",
            "Use torch.autograd.grad, torch.func.grad or torch.func.jacrev.",
        )


class _Once(Function):
    """Pass a derivative on, and refuse to differentiate it by the inputs that it depends on."""

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

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> Any:
        _Once.backward(None)  # torch.func maps over derivatives only to differentiate again
