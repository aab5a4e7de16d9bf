"""Selection among finished runs without labels of the target: five criteria, and what each of them would cost.

- "ensemble" (EnsV): how often a run agrees with the mean prediction of all runs.
- "density" (soft neighbourhood density, SND): the entropy of the similarities between predictions.
- "information": the entropy of the mean prediction less the mean entropy of predictions.
- "round trip": an adaptive plan takes mass from source images to target images, and from there back in proportion to
  what each target image received: the share that comes back to its class.
- "mass": the mass of that plan between source images and target images that are predicted to be of the same class.

All of them are larger for a better run. They see the same images of every run. The plan is that of AOT with its default
settings, whatever the method of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch.nn.functional import normalize

from adaptive_ot.deep.embedding import Embedding, embed
from adaptive_ot.deep.fields import checked
from adaptive_ot.deep.open_set import SMALLEST, Seen, adaptive_plan
from adaptive_ot.deep.result import Result
from adaptive_ot.deep.run_directory import Run, read_run
from adaptive_ot.deep.trained import network_of
from adaptive_ot.errors import InvalidInput

CRITERIA = ("ensemble", "density", "information", "round trip", "mass")

# The criterion that decides: the one with the least regret in benchmarks/selection.py.
DEFAULT = "ensemble"

# Temperature of the similarities in the paper on soft neighbourhood density.
TEMPERATURE = 0.05

# Which images are looked at does not depend on the seed of a run.
SEED = 0


class Candidate(NamedTuple):
    """A finished run, its scores by criterion, and its accuracy on the target after the last step (an oracle)."""

    run: Path
    method: str
    scores: dict[str, float]
    accuracy: float


class Selection(NamedTuple):
    """Finished runs, and which of them each criterion chooses."""

    candidates: tuple[Candidate, ...]

    def choice(self, criterion: str) -> Candidate:
        """The run with the highest score; of equal ones the first."""
        return max(self.candidates, key=lambda candidate: candidate.scores[criterion])

    def regret(self, criterion: str) -> float:
        """How much accuracy the choice loses to the best run. An oracle: it needs labels of the target."""
        return max(candidate.accuracy for candidate in self.candidates) - self.choice(criterion).accuracy

    @property
    def adapts(self) -> bool | None:
        """Whether the default criterion chooses a run that adapts; None without both kinds of runs."""
        kinds = {candidate.method == "source-only" for candidate in self.candidates}
        return None if len(kinds) < 2 else self.choice(DEFAULT).method != "source-only"


def select(
    runs: Sequence[Path],
    *,
    root: Path | None = None,
    samples: int = 1000,
    device: str = "auto",
    progress: Callable[[str], None] = lambda _: None,
) -> Selection:
    """Compare finished runs on the same source and target by criteria that need no labels of the target.

    Parameters
    ----------
    runs
        The directories of at least two runs.
    root
        Where the dataset is now; by default, where it was.
    samples
        How many images of either domain are looked at, at most.
    device
        As PyTorch names it; "auto" is a GPU if there is one.
    progress
        Called with a line on the progress now and then.
    """
    found = _comparable(checked("runs", runs, list[Path]))
    embeddings = []
    for run in found:
        progress(f"looking at {run.path}")
        embeddings.append(embed(run.path, root=root, samples=samples, device=device, seed=SEED))
    likely = torch.stack([each.target.probabilities.double().cpu() for each in embeddings])
    agreed = likely.mean(0).argmax(1)
    candidates = []
    for run, embedding, own in zip(found, embeddings, likely, strict=True):
        progress(f"matching the images of {run.path}")
        scores = {
            "ensemble": float((own.argmax(1) == agreed).double().mean()),
            "density": density(own),
            "information": information(own),
            **_by_plan(embedding),
        }
        result = Result.of(run.result or {}, run.path)
        candidates.append(Candidate(run.path, run.config.method, scores, result.accuracy))
    return Selection(tuple(candidates))


def density(probabilities: torch.Tensor) -> float:
    """The mean entropy of the similarities of every image to all others.

    Similar are images with similar predictions, at a low temperature: where predictions form dense groups, many others
    are similar, and the entropy is high.

    Examples
    --------
    >>> groups = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0]])
    >>> round(density(groups), 3)  # the logarithm of two others that are equally similar
    0.693
    """
    directions = normalize(probabilities)
    similar = (directions @ directions.T / TEMPERATURE).fill_diagonal_(-torch.inf).softmax(1)
    return float(_entropy(similar).mean())


def information(probabilities: torch.Tensor) -> float:
    """The mutual information of images and predictions: sure of every image, and not always of the same class.

    Examples
    --------
    >>> round(information(torch.eye(4)), 3)
    1.386
    """
    return float(_entropy(probabilities.mean(0, keepdim=True)) - _entropy(probabilities).mean())


def _entropy(probabilities: torch.Tensor) -> torch.Tensor:
    return -(probabilities * probabilities.clamp_min(SMALLEST).log()).sum(1)


def _by_plan(embedding: Embedding) -> dict[str, float]:
    """The criteria that look at a plan between both domains."""
    source, target = (Seen(side.features, side.probabilities) for side in (embedding.source, embedding.target))
    labels = torch.from_numpy(embedding.source.labels).to(source.features.device)
    plan = np.asarray(adaptive_plan(source, labels, target).plan)
    predicted = target.probabilities.argmax(1).cpu().numpy()
    return by_plan(plan, embedding.source.labels, predicted)


def by_plan(plan: np.ndarray, labels: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """The criteria of a plan between images with these labels and images with these predictions.

    Examples
    --------
    >>> by_plan(np.array([[0.5, 0.0], [0.0, 0.25]]), np.array([0, 1]), np.array([0, 0]))
    {'round trip': 1.0, 'mass': 0.5}
    """
    of_classes = np.stack([plan[labels == label].sum(0) for label in range(1 + max(labels.max(), predicted.max()))])
    received = of_classes.sum(0)
    total = received.sum()
    returned = np.divide((of_classes**2).sum(0), received, out=np.zeros_like(received), where=received > 0).sum()
    consistent = of_classes[predicted, np.arange(len(predicted))].sum()
    return {"round trip": float(returned / total) if total else 0.0, "mass": float(consistent)}


def _comparable(paths: Sequence[Path]) -> list[Run]:
    """The runs, if there are several finished ones with the same images and classes."""
    different = {path.resolve() for path in paths}
    if len(paths) < 2 or len(different) < len(paths):
        given = "the same one twice" if len(different) < len(paths) else f"{len(paths)}"
        raise InvalidInput("runs", "must be at least two different ones", given, "Name the directory of each.")
    runs = [read_run(path) for path in paths]
    for run in runs:
        network_of(run, torch.device("cpu"))  # which says what is missing
        for what in ("source", "target", "classes"):
            if run.record["data"].get(what) != runs[0].record["data"].get(what):
                rule = f"must have the {what} of the first, '{runs[0].path}'"
                given = f"another {what}" if what != "classes" else "others"
                raise InvalidInput(f"run '{run.path}'", rule, given, "Compare runs on the same images only.")
    return runs
