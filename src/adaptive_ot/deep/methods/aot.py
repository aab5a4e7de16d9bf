"""AOT: adaptive optimal transport between the batches decides which samples are matched, and how much of them.

"Partial Distribution Alignment via Adaptive Optimal Transport". The published cost is alpha |x - z|^2 - beta <p, q>
with constants for every dataset (`published` in the presets). The default is its scale-free form, in which distances
count relative to their median, and the entropy relative to the chance to guess a class, so that one setting can serve
every network and dataset. Too little entropy trusts early predictions too much where classes are few; too much mixes
classes where they are many. Four additions are not in the paper:

- the ramp: the loss has little weight at first, since wrong predictions of an untrained network reinforce themselves;
- class capacities (the setting `rooms`): classes that are frequent in the target and fully used may send more;
- neighbours: as the run goes on, the plan uses the mean prediction of similar target images;
- presence: where nearly all classes are found in the target, everything is matched.

DeepJDOT, JUMBOT and m-POT are subclasses, so that each addition can be tried with them; by default they have none.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Literal

import torch
from torch import nn
from torch.nn import functional

from adaptive_ot.deep.fields import Range
from adaptive_ot.deep.methods.method import Pair, ramp
from adaptive_ot.deep.methods.transport import Planned, TransportMethod, TransportSettings, batch_plan

# Share of the running mean of the demand that remains after a step.
MEMORY = 0.95

# Number of recent target images that `neighbours` are found among.
REMEMBERED = 700

# A class is absent from the target if its demand, in units of an equal share, is below the first number, and present
# from the second on; likewise the overlap of the domains is partial or full by the share of the present classes.
PRESENT = 0.2, 0.6
FULL = 0.65, 0.85

# The part of the run in which presence begins to count: before, the network knows the source too little.
JUDGED = 0.2, 0.3

# What a match is worth at full overlap, in units of beta: enough that nearly every pair pays.
REWARD = 1.0

# The identity of an empty place; images have numbers from 0.
NOBODY = -1


@dataclass(frozen=True, kw_only=True)
class AOTSettings(TransportSettings):
    """The settings of every transport method, and the four additions."""

    ramp: bool = False  # whether the weight of the loss rises during the run, as in the adversarial methods
    rooms: Literal["equal", "grown"] = "equal"  # class capacities, with "at-most"; recorded runs have this name
    neighbours: Annotated[int, Range(0, REMEMBERED)] = 0  # nearest target images whose predictions are averaged
    presence: Literal["ignored", "estimated"] = "ignored"  # of the classes in the target, with "at-most"


class AOT(TransportMethod):
    """Row and column sums of the plan are at most the weights; costs have both signs."""

    settings: AOTSettings
    needs = MappingProxyType(
        {**TransportMethod.needs, "rooms": ("marginals", ("at-most",)), "presence": ("marginals", ("at-most",))}
    )
    demand: torch.Tensor

    @classmethod
    def defaults(cls) -> AOTSettings:
        return AOTSettings(
            cost="scale-free",
            beta=2.0,
            marginals="at-most",
            solver="entropic",
            epsilon=1.5,
            ramp=True,
            rooms="grown",
            neighbours=10,
            presence="estimated",
        )

    def __init__(self, settings: AOTSettings, features: int, classes: int) -> None:
        super().__init__(settings, features, classes)
        adaptive = settings.marginals == "at-most"
        self.capacities_grow = adaptive and settings.rooms == "grown"
        self.presence_counts = adaptive and settings.presence == "estimated"
        # Estimated capacity that each class needs; the total weight of the target is 1.
        self.register_buffer("demand", torch.full((classes,), 1 / classes, dtype=torch.float64))
        self.neighbours = Neighbours(settings.neighbours, features, classes) if settings.neighbours else None

    def loss_weight(self, progress: float) -> float:
        return ramp(progress) if self.settings.ramp else 1.0

    def source_weights(self, pair: Pair) -> torch.Tensor:
        """Equal weights; as the run goes on, larger ones for classes whose demand exceeds their capacity.

        A source batch has equally many samples of every class, but the target may not. If a class is frequent there,
        its sources are soon used up, and its remaining targets are matched with other classes, perhaps with some that
        the target does not contain. No capacity shrinks, however rare a class seems: the network may not recognise the
        class yet, and a capacity need not be used.
        """
        equal = super().source_weights(pair)
        if not self.capacities_grow:
            return equal
        labels = pair.source_labels
        present = functional.one_hot(labels, self.classes).sum(0)
        needed = (self.demand / present.clamp_min(1))[labels]
        return equal + pair.progress * (needed - equal).clamp_min(0)

    @torch.no_grad()
    def with_plan_logits(self, pair: Pair) -> Pair:
        """Mix in the predictions of neighbours, in proportion to the progress of the run.

        A wrong prediction among many correct ones is outvoted and does not reinforce itself. At the start most
        predictions are poor, and neighbours would only agree on the class that is predicted most often.
        """
        if self.neighbours is None:
            return pair
        own = pair.target_logits.softmax(1)
        theirs = self.neighbours.mean_guesses(pair.target_features, own, pair.target_identities)
        mixed = own + pair.progress * (theirs - own)
        return pair._replace(target_logits=mixed.clamp_min(torch.finfo(own.dtype).tiny).log())

    @torch.no_grad()
    def update(self, pair: Pair, plan: torch.Tensor, weights: torch.Tensor) -> None:
        """Remember the targets; estimate demand as the predicted share of a class times the used part of its capacity.

        Predicted shares alone would reinforce themselves: a class that is predicted too often would get more capacity,
        and so even more predictions.
        """
        predicted = pair.target_logits.softmax(1)
        if self.neighbours is not None:
            self.neighbours.remember(pair.target_features, predicted, pair.target_identities)
        if self.capacities_grow or self.presence_counts:
            members = functional.one_hot(pair.source_labels, self.classes).double()
            capacities, sent = weights @ members, plan.double().sum(1) @ members
            predicted_shares = pair.target_logits.double().softmax(1).mean(0)
            needed = predicted_shares * sent / capacities
            needed = torch.where(capacities > 0, needed, self.demand)  # unchanged if not in the batch
            self.demand = MEMORY * self.demand + (1 - MEMORY) * needed

    def planned(self, pair: Pair, plan_cost: torch.Tensor, weights: torch.Tensor) -> Planned:
        """At full overlap, reward every match.

        A plan that abstains cannot win back a class that the network has lost: nothing is matched with it. A reward
        for every match brings it back. Where classes are missing, it would teach the network classes that are not
        there.
        """
        found = super().planned(pair, plan_cost, weights)
        if not self.presence_counts:
            return found
        overlap = self.overlap(pair.progress)
        found.terms["overlap"] = overlap
        early = pair.progress <= JUDGED[0]
        if early or (overlap.device.type == "cpu" and overlap == 0):  # a GPU goes on without an answer to the host
            return found
        reward = REWARD * self.settings.beta * overlap.to(plan_cost.dtype)
        plan, unsolved = batch_plan(plan_cost - reward, weights, self.marginals, self.solver)
        return Planned(plan, found.terms | {"unsolved": torch.maximum(found.terms["unsolved"], unsolved)})

    def overlap(self, progress: float) -> torch.Tensor:
        """How full the overlap of the domains is, from 0 to 1, by the share of the classes that seem present.

        Judged by the demand of the plans that may abstain; plans that match everything would confirm themselves.
        """
        present = rise(self.demand * self.classes, PRESENT).mean()
        return rise(present, FULL) * rise(torch.tensor(progress), JUDGED)


def rise(values: torch.Tensor, between: tuple[float, float]) -> torch.Tensor:
    """0 up to the first number, 1 from the second on, and linear between them.

    >>> rise(torch.tensor([0.1, 0.3, 0.5]), (0.2, 0.4))
    tensor([0.0000, 0.5000, 1.0000])
    """
    low, high = between
    return ((values - low) / (high - low)).clamp(0, 1)


class Neighbours(nn.Module):
    """The most recent target images, each as the network saw it last: its features and its prediction.

    Older ones are forgotten, since the network has changed.

    >>> memory = Neighbours(1, features=2, classes=2)
    >>> features, guesses = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[0.9, 0.1], [0.3, 0.7]])
    >>> memory.remember(features, guesses, torch.tensor([5, 8]))
    >>> view, guess = torch.tensor([[5.0, 1.0]]), torch.tensor([[0.5, 0.5]])
    >>> memory.mean_guesses(view, guess, torch.tensor([3]))
    tensor([[0.9000, 0.1000]])
    >>> memory.mean_guesses(view, guess, torch.tensor([5]))  # not itself, although it is nearer
    tensor([[0.3000, 0.7000]])
    """

    directions: torch.Tensor
    guesses: torch.Tensor
    identities: torch.Tensor

    def __init__(self, count: int, features: int, classes: int) -> None:
        super().__init__()
        self.count = count
        self.register_buffer("directions", torch.zeros(REMEMBERED, features))
        self.register_buffer("guesses", torch.zeros(REMEMBERED, classes))
        self.register_buffer("identities", torch.full((REMEMBERED,), NOBODY))
        self.register_load_state_dict_pre_hook(self._forget_strangers)

    def mean_guesses(self, features: torch.Tensor, guesses: torch.Tensor, identities: torch.Tensor) -> torch.Tensor:
        """The mean prediction of the nearest other images, of the batch or remembered, by the angle of their features.

        An image without any others keeps its own prediction.
        """
        directions, theirs, others = self._with(features, guesses, identities)
        no_neighbour = (identities[:, None] == others) | (others == NOBODY)
        similarity = functional.normalize(features.float()) @ directions.T
        nearest = similarity.masked_fill(no_neighbour, -torch.inf).topk(self.count)
        found = nearest.values > -torch.inf
        mean = (theirs[nearest.indices] * found[..., None]).sum(1) / found.sum(1, keepdim=True).clamp_min(1)
        return torch.where(found.any(1, keepdim=True), mean, guesses.float()).to(guesses.dtype)

    def remember(self, features: torch.Tensor, guesses: torch.Tensor, identities: torch.Tensor) -> None:
        """Store the images of a batch in place of their earlier views and of the oldest images."""
        latest = self._with(features, guesses, identities)
        self.directions, self.guesses, self.identities = (each[:REMEMBERED] for each in latest)

    def _with(
        self, features: torch.Tensor, guesses: torch.Tensor, identities: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The images of a batch, then those remembered; every image once, and empty places at the end.

        Shapes do not depend on the images, so a GPU goes on without an answer to the host.
        """
        directions = torch.cat([functional.normalize(features.float()), self.directions])
        everyone = torch.cat([identities, self.identities])
        seen_later = (everyone[:, None] == everyone).tril(-1).any(1)
        everyone = everyone.masked_fill(seen_later, NOBODY)
        order = (everyone == NOBODY).int().argsort(stable=True)
        return directions[order], torch.cat([guesses.float(), self.guesses])[order], everyone[order]

    @staticmethod
    def _forget_strangers(_: nn.Module, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Checkpoints of earlier versions have no identities: what they remembered is forgotten."""
        state_dict.setdefault(f"{prefix}identities", torch.full((REMEMBERED,), NOBODY))
