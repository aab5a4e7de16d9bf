"""What the neighbours of target images are taken for: images that the network sees alike are likely of one class."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

# So many images of the target are remembered, and no more: the network of long ago saw them otherwise. A target that is
# not larger comes round again, and its images are then neighbours of their own: what they say counts for less.
REMEMBERED = 700


class Neighbours(nn.Module):
    """The last images of the target, as the network saw them when they passed by.

    >>> memory = Neighbours(1, features=2, classes=2)
    >>> sight, guesses = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[0.9, 0.1], [0.3, 0.7]])
    >>> memory.remember(sight, guesses)
    >>> memory.guesses_near(torch.tensor([[5.0, 1.0]]), torch.tensor([[0.5, 0.5]]))
    tensor([[0.9000, 0.1000]])

    Parameters
    ----------
    count
        How many neighbours are asked, at most `REMEMBERED`.
    features, classes
        What the network puts out.
    """

    directions: torch.Tensor
    guesses: torch.Tensor

    def __init__(self, count: int, features: int, classes: int) -> None:
        super().__init__()
        self.count = count
        self.register_buffer("directions", torch.zeros(REMEMBERED, features))
        self.register_buffer("guesses", torch.zeros(REMEMBERED, classes))  # of zeros, where nothing is remembered yet

    def guesses_near(self, features: torch.Tensor, guesses: torch.Tensor) -> torch.Tensor:
        """For each image of a batch the mean guess of the nearest others, of the batch or remembered.

        Near are features that point the same way. Where there are no others, an image has its own guess.
        """
        directions = functional.normalize(features.float())
        others, theirs = torch.cat([directions, self.directions]), torch.cat([guesses.float(), self.guesses])
        likeness = (directions @ others.T).fill_diagonal_(-torch.inf)  # in the batch nobody is a neighbour of its own
        nearest = likeness.masked_fill(theirs.sum(1) == 0, -torch.inf).topk(self.count)
        found = nearest.values > -torch.inf
        mean = (theirs[nearest.indices] * found[..., None]).sum(1) / found.sum(1, keepdim=True).clamp_min(1)
        return torch.where(found.any(1, keepdim=True), mean, guesses.float()).to(guesses.dtype)

    def remember(self, features: torch.Tensor, guesses: torch.Tensor) -> None:
        """The images of a batch, which take the place of those that passed by first."""
        self.directions = torch.cat([functional.normalize(features.float()), self.directions])[:REMEMBERED]
        self.guesses = torch.cat([guesses.float(), self.guesses])[:REMEMBERED]
