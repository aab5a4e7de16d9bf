"""What the transport methods share: a cost between two batches, a plan for it, and the cost of that plan as the loss.

The plan is computed from a cost without gradient and then held; gradients flow through the cost, to the features of
both domains and to the class probabilities of the target. The methods differ only in their settings: most of all in the
cost and in the marginals.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Literal

import torch
from torch.nn import functional

from adaptive_ot.deep.fields import NotNegative, Positive, Range, Share
from adaptive_ot.deep.methods.method import Alignment, Method, Pair, ramp, require_finite
from adaptive_ot.deep.methods.neighbours import REMEMBERED, Neighbours
from adaptive_ot.entropic.batch import fits_one_program
from adaptive_ot.entropic.solver import Entropic
from adaptive_ot.errors import Infeasible, InvalidInput
from adaptive_ot.exact.solver import Exact
from adaptive_ot.marginals import AtMost, Equal, FixedMass, Marginals, SoftKL
from adaptive_ot.solution import Solution
from adaptive_ot.solve import solve

# Sums of a plan may be this far from the weights, in all: far below the noise of mini-batches.
TOLERANCE = 1e-6
MAX_ITERATIONS = 2000

# How much of the demand for room, a running mean, is left after a step.
MEMORY = 0.95


@dataclass(frozen=True, kw_only=True)
class TransportSettings:
    """Cost, marginals and solver. Some numbers matter only in some forms: see `TransportMethod.needs`."""

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

    ramp: bool = False  # whether the loss counts little at first, as with the adversarial methods
    rooms: Literal["equal", "grown"] = "equal"  # what the classes of a source batch may send, with "at-most"
    neighbours: Annotated[int, Range(0, REMEMBERED)] = 0  # in the target, whose guesses count as the run goes on


class TransportMethod(Method):
    """The loss <G, C>: C is the cost between the two batches, G a plan that is optimal for it, as neighbours see it."""

    Settings = TransportSettings
    settings: TransportSettings
    needs = MappingProxyType(
        {
            "alpha": ("cost", ("published", "cross-entropy")),
            "kappa": ("cost", ("scale-free",)),
            "mass": ("marginals", ("fixed-mass",)),
            "tau": ("marginals", ("soft-kl",)),
            "entropy": ("solver", ("entropic",)),
            "epsilon": ("solver", ("entropic",)),
            "rooms": ("marginals", ("at-most",)),
        }
    )
    demand: torch.Tensor

    def __init__(self, settings: TransportSettings, features: int, classes: int) -> None:
        super().__init__(settings, features, classes)
        if settings.marginals == "soft-kl" and settings.solver == "exact":
            rule, remedy = "must be 'entropic' with marginals 'soft-kl'", "Change one of them."
            raise InvalidInput("setting 'solver'", rule, "'exact'", remedy)
        # Relative to its weight, the scale-free cost has the same plans with any weight; with none, all are as good.
        scale_free = settings.cost == "scale-free"
        unit = (settings.beta or 1.0) if scale_free else 1.0
        epsilon = settings.epsilon * unit / (classes if scale_free else 1)
        self.marginals = _marginals(settings, unit)
        # Whether compiled code is on disk must not change a bit of a run, or a resumed one would differ.
        entropic = Entropic(epsilon, settings.entropy, TOLERANCE, MAX_ITERATIONS, compiled=False)
        self.solver = Exact() if settings.solver == "exact" else entropic
        self.grows = settings.rooms == "grown" and settings.marginals == "at-most"
        # The room that each class needs, as it seems; 1 is all that the target weighs.
        self.register_buffer("demand", torch.full((classes,), 1 / classes, dtype=torch.float64))
        self.neighbours = Neighbours(settings.neighbours, features, classes) if settings.neighbours else None

    def alignment(self, pair: Pair) -> Alignment:
        distances, told = distance_cost(pair, self.settings), self._told_by_neighbours(pair)
        cost, weights = add_classes(distances, pair, self.settings), self.source_weights(pair)
        decisive = cost if told is pair else add_classes(distances.detach(), told, self.settings)
        plan, unsolved = batch_plan(decisive, weights, self.marginals, self.solver)
        if self.neighbours is not None:
            self.neighbours.remember(pair.target_features.detach(), pair.target_logits.detach().softmax(1))
        if self.grows:
            self._update_demand(pair, plan.double().sum(1), weights)
        transport = (plan * cost).sum()
        loss = ramp(pair.progress) * transport if self.settings.ramp else transport
        return Alignment(loss, {"transport": transport.detach(), "mass": plan.sum(), "unsolved": unsolved}, plan)

    def match(self, pair: Pair) -> Solution:
        """The plan with its certificate, on the CPU: for a look at more samples than a batch holds."""
        cost = joint_cost(self._told_by_neighbours(pair), self.settings).detach().double().cpu()
        weights = self.source_weights(pair).cpu()
        options: Any = {"marginals": self.marginals, "solver": self.solver, "raise_if_not_converged": False}
        return solve(cost.numpy(), weights.numpy(), **options)

    def source_weights(self, pair: Pair) -> torch.Tensor:
        """Equal; or, as the run goes on, more for a class that seems to need it.

        A source batch has as many samples of every class, and the target may not. A class that is frequent there is
        soon full, and what is left of it drawn to others, perhaps to classes that the target does not have at all. No
        class gets less, however rare it seems: the network may not know it yet, and room need not be used.
        """
        labels = pair.source_labels
        equal = torch.full(labels.shape, 1 / len(labels), device=labels.device, dtype=torch.float64)
        if not self.grows:
            return equal
        present = functional.one_hot(labels, self.classes).sum(0)
        needed = (self.demand / present.clamp_min(1))[labels]
        return equal + pair.progress * (needed - equal).clamp_min(0)

    @torch.no_grad()
    def _told_by_neighbours(self, pair: Pair) -> Pair:
        """The batches as they decide the plan: more and more, targets are what their neighbours are taken for.

        A wrong guess among many right ones is outvoted, and does not feed itself. At first all guess poorly, and what
        neighbours agree on would only be the class that is guessed most.
        """
        if self.neighbours is None:
            return pair
        own = pair.target_logits.softmax(1)
        guesses = own + pair.progress * (self.neighbours.guesses_near(pair.target_features, own) - own)
        return pair._replace(target_logits=guesses.clamp_min(torch.finfo(own.dtype).tiny).log())

    def _update_demand(self, pair: Pair, sent: torch.Tensor, weights: torch.Tensor) -> None:
        """The room that classes need: what the target seems to have of them, times how full their room is.

        Guesses alone would feed themselves: a class that is guessed too often would get more room, and so more guesses.
        """
        members = functional.one_hot(pair.source_labels, self.classes).double()
        rooms, held = weights @ members, pair.target_logits.detach().double().softmax(1).mean(0)
        needed = torch.where(rooms > 0, held * (sent @ members) / rooms, self.demand)  # as it was, if not in the batch
        self.demand = MEMORY * self.demand + (1 - MEMORY) * needed


def joint_cost(pair: Pair, settings: TransportSettings) -> torch.Tensor:
    """The cost between the two batches, with gradients; only the scale of the distances is taken as given."""
    return add_classes(distance_cost(pair, settings), pair, settings)


def distance_cost(pair: Pair, settings: TransportSettings) -> torch.Tensor:
    """What distances cost; with "scale-free", in units of beta."""
    squares = squared_distances(pair.source_features, pair.target_features)
    if settings.cost == "scale-free":
        return settings.kappa * squares / _typical(squares.detach())
    return settings.alpha * squares


def add_classes(distances: torch.Tensor, pair: Pair, settings: TransportSettings) -> torch.Tensor:
    """The joint cost: what distances cost, less where the target is taken for the class of the source."""
    classes = functional.one_hot(pair.source_labels, pair.target_logits.shape[1]).to(distances.dtype)
    if settings.cost == "cross-entropy":
        return distances - settings.beta * classes @ pair.target_logits.log_softmax(1).T
    agreement = classes @ pair.target_logits.softmax(1).T
    if settings.cost == "published":
        return distances - settings.beta * agreement
    return settings.beta * (distances - agreement)


def _typical(squares: torch.Tensor) -> torch.Tensor:
    """The median, or the mean where most points coincide."""
    median = squares.median()
    return torch.where(median > 0, median, squares.mean()).clamp_min(torch.finfo(squares.dtype).tiny)


def squared_distances(x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    """|x_i - z_j|^2 with a gradient that is finite for equal points, too."""
    return (x.square().sum(1)[:, None] + z.square().sum(1)[None, :] - 2 * x @ z.T).clamp_min(0)


def batch_plan(
    cost: torch.Tensor, source_weights: torch.Tensor, marginals: Marginals, solver: Exact | Entropic
) -> tuple[torch.Tensor, torch.Tensor]:
    """The optimal plan for a small cost, a constant, on the device of the cost; all targets weigh the same.

    With it comes 0, or 1 if the solver did not meet its tolerance, which is no reason to end a training. A batch is far
    too small to keep a GPU busy for long: either one program solves it there, or the CPU does.
    """
    given: Any = cost.detach().double()
    weights: Any = source_weights
    if cost.is_cuda and isinstance(solver, Entropic) and fits_one_program(marginals, (cost.shape[0], cost.shape[1])):
        plan, unsolved = plan_in_one_launch(given, weights, solver)
        return plan.to(cost.dtype), unsolved
    given, weights = given.cpu(), weights.cpu()
    try:
        solution = solve(given, weights, marginals=marginals, solver=solver, raise_if_not_converged=False)
    except (InvalidInput, Infeasible):
        require_finite("cost between the batches", given)
        raise
    unsolved = torch.tensor(0.0 if solution.status.succeeded else 1.0, device=cost.device)
    return solution.plan.to(cost.device, cost.dtype), unsolved


def plan_in_one_launch(
    cost: torch.Tensor, source_weights: torch.Tensor, solver: Entropic
) -> tuple[torch.Tensor, torch.Tensor]:
    """What `solve` finds for adaptive transport, without its certificate: nobody waits for a GPU."""
    from adaptive_ot.entropic.triton import NUMBERS, solve_batch

    m = cost.shape[1]
    weights = torch.cat([source_weights, cost.new_full((m,), 1 / m)])[None]
    settings = solver.entropy, solver.epsilon, solver.tolerance, solver.max_iterations
    plans, found = solve_batch(cost[None], weights, *settings)
    return plans[0], (~(found[0, NUMBERS.index("error")] <= solver.tolerance)).float()  # nor is what is not a number


def _marginals(settings: TransportSettings, unit: float) -> Marginals:
    match settings.marginals:
        case "at-most":
            return AtMost()
        case "equal":
            return Equal()
        case "fixed-mass":
            return FixedMass(settings.mass)
        case "soft-kl":
            return SoftKL(unit * settings.tau)
