"""The result of a training run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from adaptive_ot.deep.fields import Checked, Count, Natural, NotNegative, Share, restored


@dataclass(frozen=True, kw_only=True)
class Result(Checked):
    """The outcome of a training run, or of a later evaluation, which replaces the accuracies.

    Attributes
    ----------
    accuracy, mean_class_accuracy, per_class
        On the target, of the network after the last step: the headline.
    best_accuracy, best_step
        The highest accuracy of all evaluations during training. An oracle: it is chosen by the labels of the target.
    transported_mass
        Mean over the last tenth of the run; None for methods without a plan.
    plan_purity
        The share of that mass between images of one class. An oracle, too.
    open_set
        With unknown classes in the target, for every score (see docs/deep.md): its label-free threshold, and how well
        it tells the unknown images. The accuracies above are those on images of known classes, none rejected.
    steps, seconds
        Length of the training.
    bad_images
        Number of files that could not be used.
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
    open_set: dict[str, dict[str, float]] | None = None

    def record(self) -> dict[str, Any]:
        """The content of result.json."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "output"}

    @classmethod
    def of(cls, record: Mapping[str, Any], output: Path) -> Result:
        """The result with this `record`."""
        added = {"open_set": None}  # earlier versions did not have it
        return restored(cls, {**added, **record, "output": output}, output, "result.json")
