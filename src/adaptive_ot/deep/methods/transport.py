"""Parts of every transport method: a cost between two batches, an optimal plan, and the cost of the plan as the loss.

The plan is computed from a cost without gradient and then held fixed. Gradients flow through the cost, to the features
of both domains and to the class probabilities of the target.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import torch
from torch.nn import functional

from adaptive_ot.deep.fields import NotNegative, Positive, Share
from adaptive_ot.deep.methods.method import Alignment, Method, Pair, require_finite
from adaptive_ot.entropic.batch import fits_one_program
from adaptive_ot.entropic.solver import Entropic
from adaptive_ot.errors import Infeasible, InvalidInput
from adaptive_ot.exact.solver import Exact
from adaptive_ot.marginals import AtMost, Equal, FixedMass, Marginals, SoftKL
from adaptive_ot.solution import Solution
from adaptive_ot.solve import solve

# Total deviation of the marginals of a plan: far below the noise of mini-batches.
TOLERANCE = 1e-6
MAX_ITERATIONS = 2000


@dataclass(frozen=True, kw_only=True)
class TransportSettings:
    """Cost, marginals and solver. `TransportMethod.needs` says when a setting matters."""

    cost: Literal["scale-free", "published", "cross-entropy"]
    alpha: NotNegative = 0.01  # weight of the squared distance, where it is not relative
    kappa: NotNegative = 0.5  # weight of the squared distance relative to its median ("scale-free")
    beta: NotNegative = 1.0  # weight of the classes; with "scale-free", of the loss, whatever the plan

    marginals: Literal["at-most", "equal", "fixed-mass", "soft-kl"]
    mass: Share = 0.75  # of 1, with "fixed-mass"
    tau: Positive = 0.5  # price of divergence, with "soft-kl"; with "scale-free" in units of beta

    solver: Literal["exact", "entropic"]
    entropy: Literal["augmented", "product", "counting"] = "augmented"
    epsilon: Positive = 0.1  # in units of the cost; with "scale-free", of beta times the chance to guess a class


class Planned(NamedTuple):
    """A plan, and further numbers to log."""

    plan: torch.Tensor
    terms: dict[str, torch.Tensor]


class TransportMethod(Method):
    """The loss <G, C>: C is the cost between the two batches, G an optimal plan for it."""

    needs = MappingProxyType(
        {
            "alpha": ("cost", ("published", "cross-entropy")),
            "kappa": ("cost", ("scale-free",)),
            "mass": ("marginals", ("fixed-mass",)),
            "tau": ("marginals", ("soft-kl",)),
            "entropy": ("solver", ("entropic",)),
            "epsilon": ("solver", ("entropic",)),
        }
    )

    def __init__(self, settings: TransportSettings, features: int, classes: int) -> None:
        super().__init__(settings, features, classes)
        if settings.marginals == "soft-kl" and settings.solver == "exact":
            rule, remedy = "must be 'entropic' with marginals 'soft-kl'", "Change one of them."
            raise InvalidInput("setting 'solver'", rule, "'exact'", remedy)
        # The plans of the scale-free cost do not depend on its weight beta; without any weight, all plans are equal.
        scale_free = settings.cost == "scale-free"
        unit = (settings.beta or 1.0) if scale_free else 1.0
        epsilon = settings.epsilon * unit / (classes if scale_free else 1)
        self.marginals: Marginals = {
            "at-most": AtMost(),
            "equal": Equal(),
            "fixed-mass": FixedMass(settings.mass),
            "soft-kl": SoftKL(unit * settings.tau),
        }[settings.marginals]
        # A run must not depend on whether compiled code is on disk: a resumed one would differ. The host goes on while
        # the GPU computes a plan.
        entropic = Entropic(epsilon, settings.entropy, TOLERANCE, MAX_ITERATIONS, compiled=False, wait=False)
        self.solver = Exact() if settings.solver == "exact" else entropic

    def alignment(self, pair: Pair) -> Alignment:
        distances, weights = distance_cost(pair, self.settings), self.source_weights(pair)
        cost, plan_pair = add_classes(distances, pair, self.settings), self.with_plan_logits(pair)
        plan_cost = cost if plan_pair is pair else add_classes(distances.detach(), plan_pair, self.settings)
        plan, more = self.planned(pair, plan_cost, weights)
        transport = (plan * cost).sum()
        terms = {"transport": transport.detach(), "mass": plan.sum(), **more}
        return Alignment(self.loss_weight(pair.progress) * transport, terms, plan)

    def planned(self, pair: Pair, plan_cost: torch.Tensor, weights: torch.Tensor) -> Planned:
        """The plan of a step."""
        plan, unsolved = batch_plan(plan_cost, weights, self.marginals, self.solver)
        self.update(pair, plan, weights)
        return Planned(plan, {"unsolved": unsolved})

    def match(self, pair: Pair) -> Solution:
        """The plan with its certificate, on the CPU, for more samples than a batch holds."""
        cost = joint_cost(self.with_plan_logits(pair), self.settings).detach().double().cpu().numpy()
        weights = self.source_weights(pair).cpu().numpy()
        return solve(cost, weights, marginals=self.marginals, solver=self.solver, raise_if_not_converged=False)

    def source_weights(self, pair: Pair) -> torch.Tensor:
        """Weights of the source samples: equal, with total 1."""
        labels = pair.source_labels
        return torch.full(labels.shape, 1 / len(labels), device=labels.device, dtype=torch.float64)

    def with_plan_logits(self, pair: Pair) -> Pair:
        """The pair with the target logits that the plan is computed from."""
        return pair

    def update(self, pair: Pair, plan: torch.Tensor, weights: torch.Tensor) -> None:
        """Called with every plan."""

    def loss_weight(self, progress: float) -> float:
        """Weight of the loss at this point of the run."""
        return 1.0


def joint_cost(pair: Pair, settings: TransportSettings) -> torch.Tensor:
    """The cost between the two batches, with gradients; the median distance is a constant to them."""
    return add_classes(distance_cost(pair, settings), pair, settings)


def distance_cost(pair: Pair, settings: TransportSettings) -> torch.Tensor:
    """The part of the cost that depends on distances; with "scale-free", in units of beta."""
    squares = squared_distances(pair.source_features, pair.target_features)
    if settings.cost == "scale-free":
        return settings.kappa * squares / typical_square(squares.detach())
    return settings.alpha * squares


def add_classes(distances: torch.Tensor, pair: Pair, settings: TransportSettings) -> torch.Tensor:
    """The joint cost: the cost of distances, lower where the prediction of a target is the class of the source."""
    classes = functional.one_hot(pair.source_labels, pair.target_logits.shape[1]).to(distances.dtype)
    if settings.cost == "cross-entropy":
        return distances - settings.beta * classes @ pair.target_logits.log_softmax(1).T
    agreement = classes @ pair.target_logits.softmax(1).T
    if settings.cost == "published":
        return distances - settings.beta * agreement
    return settings.beta * (distances - agreement)


def typical_square(squares: torch.Tensor) -> torch.Tensor:
    """The median squared distance, as in `adaptive_ot.costs`; the mean if the median is 0, as most points coincide."""
    median = squares.median()
    return torch.where(median > 0, median, squares.mean()).clamp_min(torch.finfo(squares.dtype).tiny)


def squared_distances(x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    """|x_i - z_j|^2, with a finite gradient even for equal points."""
    return (x.square().sum(1)[:, None] + z.square().sum(1)[None, :] - 2 * x @ z.T).clamp_min(0)


def batch_plan(
    cost: torch.Tensor, source_weights: torch.Tensor, marginals: Marginals, solver: Exact | Entropic
) -> tuple[torch.Tensor, torch.Tensor]:
    """The optimal plan for a small cost, without gradient, on the device of the cost; targets have equal weights.

    The second result is 1 if the solver missed its tolerance, otherwise 0: training goes on in either case. A batch is
    too small to keep a GPU busy, so either a single GPU program solves it, or the CPU does.
    """
    at_once = isinstance(solver, Entropic) and fits_one_program(cost, marginals)
    place: Any = cost.device if at_once else "cpu"
    constant, weights = cost.detach().to(place, torch.float64), source_weights.to(place)
    try:
        solution = solve(constant, weights, marginals=marginals, solver=solver, raise_if_not_converged=False)
    except (InvalidInput, Infeasible):
        require_finite("cost between the batches", constant)
        raise
    converged = torch.as_tensor(solution.converged, device=cost.device)
    return solution.plan.to(cost.device, cost.dtype), (~converged).float()
