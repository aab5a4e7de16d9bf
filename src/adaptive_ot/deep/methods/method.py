"""What a method of adaptation is: a loss beside the cross-entropy of the source, for one step at a time."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import nn

from adaptive_ot.errors import InvalidInput


class Pair(NamedTuple):
    """One step: a batch of either domain, over all processes, as the network sees it.

    Features and logits carry gradients. Where several processes share a batch, everything but the images is gathered,
    so a loss over a Pair is the loss over the whole batch, the same in every process.
    """

    source_features: torch.Tensor  # (n, features), after the bottleneck
    source_logits: torch.Tensor  # (n, classes)
    source_labels: torch.Tensor  # (n,)
    target_features: torch.Tensor
    target_logits: torch.Tensor
    source_images: torch.Tensor  # of this process, augmented, in [0, 1]
    target_images: torch.Tensor
    progress: float  # the share of the run that is done, from 0 to 1
    gather: Callable[[torch.Tensor], torch.Tensor]  # what this process computed of its images, over all processes


class Alignment(NamedTuple):
    """What a method adds to the cross-entropy of the source."""

    loss: torch.Tensor
    terms: dict[str, torch.Tensor]  # numbers to log, detached
    plan: torch.Tensor | None = None  # who was matched with whom, if the method knows


def ramp(progress: float) -> float:
    """From 0 to 1 as the run goes on: what knows nothing yet should not bend the features.

    As in thuml/CDAN (pytorch/network.py); there it ends after 10,000 iterations, here with the run.

    >>> [round(ramp(progress), 2) for progress in (0.0, 0.1, 0.5, 1.0)]
    [0.0, 0.46, 0.99, 1.0]
    """
    return 2.0 / (1.0 + math.exp(-10.0 * progress)) - 1.0


def diverged(what: str, given: str) -> InvalidInput:
    """What to say after a step too far."""
    remedy = "Lower the learning rate, or look at the settings of the method, and begin in a new directory."
    return InvalidInput(what, "must stay finite", given, remedy)


def require_finite(what: str, *tensors: torch.Tensor) -> None:
    """Numbers that a solver is about to see, or that are to be kept; of a device, fetched at once."""
    if not torch.stack([each.isfinite().all() for each in tensors]).all():
        raise diverged(what, "numbers that are not")


@dataclass(frozen=True)
class NoSettings:
    """Of a method that has none."""


class Method(nn.Module, ABC):
    """A method: its parameters, if it has any, train with the head of the network.

    Parameters
    ----------
    settings
        An instance of `Settings`.
    features, classes
        What the network puts out.
    """

    Settings: ClassVar[type[Any]] = NoSettings  # a frozen dataclass of numbers and words
    uses_target: ClassVar[bool] = True

    # Settings that matter only where another one has some value.
    needs: ClassVar[Mapping[str, tuple[str, tuple[str, ...]]]] = {}

    @classmethod
    def defaults(cls) -> Any:
        """The settings of its paper or official code; of AOT, those that serve every dataset."""
        return cls.Settings()

    def __init__(self, settings: Any, features: int, classes: int) -> None:
        super().__init__()
        self.settings, self.features, self.classes = settings, features, classes

    def begin(self, network: nn.Module) -> None:
        """Called once with the untrained network, before parameters are listed."""

    @abstractmethod
    def alignment(self, pair: Pair) -> Alignment:
        """The loss of one step."""

    def after_step(self, network: nn.Module) -> None:
        """Called after every step of the optimiser."""
