"""How good predictions are: overall, class by class, and the mean over classes; and what a run leaves as its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from adaptive_ot.deep.fields import Checked, Count, Natural, NotNegative, Share, restored


class Accuracy(NamedTuple):
    """Shares of images whose class was found."""

    overall: float
    mean_class: float
    per_class: dict[str, float]  # of the classes that occur


@dataclass(frozen=True, kw_only=True)
class Result(Checked):
    """What came of a training run; after another look at its target, with the accuracies of that.

    Attributes
    ----------
    accuracy, mean_class_accuracy, per_class
        On the target, of the network after the last step: the headline.
    best_accuracy, best_step
        The highest accuracy of all evaluations of the training. An oracle: it is chosen by the labels of the target.
    transported_mass
        Mean over the last tenth of the run; None for methods without a plan.
    plan_purity
        The share of that mass between images of one class. An oracle, too.
    steps, seconds
        How long it was trained.
    bad_images
        How many files could not be used.
    output
        The directory of the run.
    """

    accuracy: Share
    mean_class_accuracy: Share
    per_class: dict[str, Share]
    best_accuracy: Share
    best_step: Count
    transported_mass: NotNegative | None
    plan_purity: NotNegative | None
    steps: Count
    seconds: NotNegative
    bad_images: Natural
    output: Path

    def record(self) -> dict[str, Any]:
        """As JSON has it, without the place."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "output"}

    @classmethod
    def of(cls, record: Mapping[str, Any], output: Path) -> Result:
        """From `record`."""
        return restored(cls, {**record, "output": output}, output, "result.json")


def judge(predicted: np.ndarray, labels: np.ndarray, classes: tuple[str, ...]) -> Accuracy:
    """Compare numbers of classes.

    Examples
    --------
    >>> judge(np.array([0, 1, 1, 1]), np.array([0, 0, 0, 1]), ("cat", "dog", "owl"))
    Accuracy(overall=0.5, mean_class=0.6666666666666666, per_class={'cat': 0.3333333333333333, 'dog': 1.0})
    """
    right = predicted == labels
    per_class = {name: float(right[labels == k].mean()) for k, name in enumerate(classes) if (labels == k).any()}
    return Accuracy(float(right.mean()), float(np.mean(list(per_class.values()))), per_class)
