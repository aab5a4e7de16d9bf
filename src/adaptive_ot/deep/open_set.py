"""Images of the target whose class the source does not have: scores by which they are told, a threshold, and figures.

An adaptive plan between both domains gives such an image little mass. How much it lacks is compared with three common
scores: the probability of the likeliest class, the entropy of the probabilities, and the distance to source images. All
methods are judged alike: the plan is that of AOT with its default settings on their features, and the threshold of
every score is set by the same rule, without labels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch.nn.functional import normalize

from adaptive_ot.deep.config import Config
from adaptive_ot.deep.data.batches import balanced_selection, random_batch
from adaptive_ot.deep.data.stores import Store
from adaptive_ot.deep.evaluation import embedded
from adaptive_ot.deep.methods.aot import AOT
from adaptive_ot.deep.methods.method import Pair
from adaptive_ot.deep.networks import Network
from adaptive_ot.solution import Solution

# Most images of either domain in one plan.
MATCHED = 1000

# How many new images are matched together with images of the target, so that these are nearly all.
TOGETHER = 100

# The distance to the source is that to the nearest image but this many less one, by the angle of features.
NEAREST = 5

# Lower bound of probabilities whose logarithm is taken.
SMALLEST = 1e-30

# The score that decides what is called unknown, and the stream of random numbers that divides the target into parts.
DECISIVE, PARTS = "unmatched", 48


class Seen(NamedTuple):
    """Images of one domain as a network sees them."""

    features: torch.Tensor
    probabilities: torch.Tensor


def open_set_figures(network: Network, source: Store, target: Store, config: Config) -> dict[str, dict[str, float]]:
    """The figures of every score on the target, by name; see `figures`."""
    known, labels = _source(network, source, config)
    theirs = Seen(*embedded(network, target, config))
    usable = target.usable
    found = scores(known, labels, theirs, config.seed)
    predicted = theirs.probabilities.argmax(1).cpu().numpy()[usable]
    truth, classes = target.labels[usable], len(target.domain.classes)
    return {name: figures(each[usable], predicted, truth, classes) for name, each in found.items()}


def _source(network: Network, source: Store, config: Config) -> tuple[Seen, torch.Tensor]:
    """Some source images, as many of every class as there are, and their labels."""
    chosen = balanced_selection(source.labels, MATCHED, config.seed)
    side = Seen(*embedded(network, source, config, chosen))
    return side, torch.from_numpy(source.labels[chosen]).to(side.features.device)


def unmatched_share_of(network: Network, source: Store, target: Store, config: Config) -> Callable[[Seen], np.ndarray]:
    """A function that gives the unmatched share of new images, which are matched among images of the target."""
    known, labels = _source(network, source, config)
    size = min(MATCHED - TOGETHER, len(target))
    others = Seen(*embedded(network, target, config, np.sort(random_batch(len(target), size, config.seed, 0))))

    def unmatched(images: Seen) -> np.ndarray:
        found = [np.zeros(0)]
        for start in range(0, len(images.features), TOGETHER):
            new = Seen(*(each[start : start + TOGETHER] for each in images))
            joined = Seen(*(torch.cat(each) for each in zip(new, others, strict=True)))
            found.append(1 - received_shares(known, labels, joined)[: len(new.features)])
        return np.concatenate(found)

    return unmatched


def scores(source: Seen, labels: torch.Tensor, target: Seen, seed: int) -> dict[str, np.ndarray]:
    """Four numbers for every target image that are larger the less it resembles the source.

    "unmatched" is the share of its weight that gets no mass; plans are between the source and parts of the target.
    """
    probabilities = target.probabilities.double()
    entropy = -(probabilities * probabilities.clamp_min(SMALLEST).log()).sum(1)
    ours, theirs = normalize(source.features.double()), normalize(target.features.double())
    unmatched, distance = (torch.zeros(len(theirs), dtype=torch.float64) for _ in range(2))
    count = len(theirs)
    order = np.random.default_rng(np.random.SeedSequence([seed, PARTS])).permutation(count)
    for part in map(torch.from_numpy, np.array_split(order, -(-count // MATCHED))):
        of_part = Seen(target.features[part], target.probabilities[part])
        unmatched[part] = torch.from_numpy(1 - received_shares(source, labels, of_part))
        nearest = (1 - theirs[part] @ ours.T).topk(min(NEAREST, len(ours)), largest=False).values[:, -1]
        distance[part] = nearest.cpu()
    found = {"unmatched": unmatched, "confidence": 1 - probabilities.max(1).values, "entropy": entropy}
    return {name: each.cpu().numpy() for name, each in (found | {"distance": distance}).items()}


def received_shares(source: Seen, labels: torch.Tensor, target: Seen) -> np.ndarray:
    """The share of each target image that an adaptive plan matches."""
    solution = adaptive_plan(source, labels, target)
    return np.clip(np.asarray(solution.target_marginal) * len(target.features), 0.0, 1.0)


def adaptive_plan(source: Seen, labels: torch.Tensor, target: Seen) -> Solution:
    """The plan between images of both domains by the default settings of AOT, whatever the method of the run."""
    method = AOT(AOT.defaults(), target.features.shape[1], target.probabilities.shape[1]).to(target.features.device)
    logits = [side.probabilities.clamp_min(SMALLEST).log() for side in (source, target)]
    none = torch.zeros(0, device=labels.device)
    pair = Pair(
        source.features,
        logits[0],
        labels,
        target.features,
        logits[1],
        none,
        none,
        torch.arange(len(target.features), device=labels.device),
        progress=1.0,
        gather=lambda each: each,
    )
    return method.match(pair)


def threshold(values: np.ndarray) -> float:
    """The value that divides numbers into two groups whose means differ most for their sizes (Otsu's rule).

    Larger numbers are those above it. It needs no labels, and is the same rule for every score.

    Examples
    --------
    >>> threshold(np.array([0.1, 0.2, 0.15, 0.9, 1.0]))
    0.2
    """
    ascending = np.sort(values)
    below = np.arange(1, len(values))
    sums = np.cumsum(ascending)
    means, others = sums[:-1] / below, (sums[-1] - sums[:-1]) / (len(values) - below)
    between = below * (len(values) - below) * (others - means) ** 2
    return float(ascending[between.argmax()]) if len(values) > 1 else float(ascending[0])


def figures(score: np.ndarray, predicted: np.ndarray, labels: np.ndarray, classes: int) -> dict[str, float]:
    """How well a score tells known from unknown, and what is predicted with images above its threshold as unknown.

    "os_star" is the accuracy averaged over the known classes, "unknown_accuracy" the share of the unknown images that
    are called so, "h_score" the harmonic mean of both, and "auroc" the chance that an unknown image has a larger score
    than a known one. Without unknown images there is only the first; "threshold" and "rejected" need no labels.
    """
    limit = threshold(score)
    rejected, unknown = score > limit, labels >= classes
    right = (predicted == labels) & ~rejected
    os_star = float(np.mean([right[labels == k].mean() for k in np.unique(labels[~unknown])]))
    found = {"threshold": limit, "rejected": float(rejected.mean()), "os_star": os_star}
    if not unknown.any():
        return found
    called = float(rejected[unknown].mean())
    both = os_star + called
    h_score = 2 * os_star * called / both if both else 0.0
    return found | {"unknown_accuracy": called, "h_score": h_score, "auroc": auroc(score, unknown)}


def auroc(score: np.ndarray, positive: np.ndarray) -> float:
    """The chance that a positive sample has a larger score than a negative one; ties count half.

    Examples
    --------
    >>> auroc(np.array([0.1, 0.4, 0.35, 0.8]), np.array([False, False, True, True]))
    0.75
    """
    from scipy.stats import rankdata

    positives, negatives = int(positive.sum()), int((~positive).sum())
    ranks = rankdata(score)[positive].sum() - positives * (positives + 1) / 2
    return float(ranks / (positives * negatives))
