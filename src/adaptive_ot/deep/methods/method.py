"""The interface of a method of adaptation: a loss added to the cross-entropy of the source, step by step."""

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
    """The batches of a step as the network sees them, over all processes.

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
    target_identities: torch.Tensor  # (m,), numbers that tell the images of the target apart
    progress: float  # completed share of the run, from 0 to 1
    gather: Callable[[torch.Tensor], torch.Tensor]  # rows of this process to rows of all


class Alignment(NamedTuple):
    """A loss, and numbers to log."""

    loss: torch.Tensor
    terms: dict[str, torch.Tensor]  # numbers to log, detached
    plan: torch.Tensor | None = None  # of the methods that match samples


def ramp(progress: float) -> float:
    """A weight that rises from 0 to 1 during the run: an untrained adversary should not change the features.

    As in thuml/CDAN (pytorch/network.py); there it ends after 10,000 iterations, here with the run.

    >>> [round(ramp(progress), 2) for progress in (0.0, 0.1, 0.5, 1.0)]
    [0.0, 0.46, 0.99, 1.0]
    """
    return 2.0 / (1.0 + math.exp(-10.0 * progress)) - 1.0


def diverged(what: str, given: str) -> InvalidInput:
    """The error for numbers that are no longer finite."""
    remedy = "Lower the learning rate, or look at the settings of the method, and begin in a new directory."
    return InvalidInput(what, "must stay finite", given, remedy)


def require_finite(what: str, *tensors: torch.Tensor) -> None:
    """Raise unless all numbers are finite; waits for the device only once."""
    if not torch.stack([each.isfinite().all() for each in tensors]).all():
        raise diverged(what, "numbers that are not")


@dataclass(frozen=True)
class NoSettings:
    """Settings of a method that has none."""


class Method(nn.Module, ABC):
    """A method; its parameters, if it has any, train with the head of the network.

    Parameters
    ----------
    settings
        An instance of `Settings`.
    features, classes
        Numbers of features and classes of the network.
    """

    Settings: ClassVar[type[Any]] = NoSettings  # a frozen dataclass with annotations of fields.py
    uses_target: ClassVar[bool] = True

    # Settings that have an effect only if another one has one of some values.
    needs: ClassVar[Mapping[str, tuple[str, tuple[str, ...]]]] = {}

    @classmethod
    def defaults(cls) -> Any:
        """The settings of the paper or official code; for AOT, one setting for every dataset."""
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
