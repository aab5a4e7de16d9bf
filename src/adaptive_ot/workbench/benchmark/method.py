"""Methods of feature benchmarks, whether ours or a rival's."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from adaptive_ot.errors import MissingDependency


class Prediction(NamedTuple):
    """Labels of the target; mass, outlier scores, other numbers and other scores by name, where a method has them."""

    labels: np.ndarray
    transported_mass: float | None = None
    outlier_score: np.ndarray | None = None
    numbers: dict[str, float] | None = None
    other_scores: dict[str, np.ndarray] | None = None


class Package(NamedTuple):
    """A module, the name of its package, and the extra that installs it."""

    module: str
    name: str
    extra: str


SKLEARN = Package("sklearn", "scikit-learn", "adapt")
POT = Package("ot", "pot", "bench")
SKADA = Package("skada", "skada", "bench")


class FeatureMethod(NamedTuple):
    """From features and labels of the source and features of the target to labels of the target."""

    run: Callable[[np.ndarray, np.ndarray, np.ndarray], Prediction]
    needs: tuple[Package, ...] = (SKLEARN,)

    def check(self) -> None:
        """Check that all packages it needs are installed."""
        for package in self.needs:
            if not find_spec(package.module):
                raise MissingDependency(package.name, package.extra)


def classifier() -> Any:
    """The classifier that every method ends with, so that only the adaptation differs."""
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=10.0, max_iter=1000)


def stacked(x_source: np.ndarray, y_source: np.ndarray, x_target: np.ndarray) -> tuple[np.ndarray, ...]:
    """Both domains in one array, the labels, unknown (-1) in the target, and the domain of every row."""
    domain = np.repeat([1, -2], [len(x_source), len(x_target)])
    y = np.concatenate([y_source, np.full(len(x_target), -1)])
    return np.concatenate([x_source, x_target]), y, domain
