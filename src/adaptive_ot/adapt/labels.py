"""Adaptation by transporting labels along the plan; targets that receive none can be rejected."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin, clone
from sklearn.linear_model import Ridge

from adaptive_ot import _validation as check
from adaptive_ot.adapt.coordinates import Nearest
from adaptive_ot.adapt.domains import DomainEstimator, plain
from adaptive_ot.adapt.heads import check_learner
from adaptive_ot.adapt.joint import JointMatching
from adaptive_ot.adapt.matching import MATCHED, Matching
from adaptive_ot.entropic.solver import Entropic
from adaptive_ot.errors import InvalidInput
from adaptive_ot.exact.solver import Exact
from adaptive_ot.marginals import Marginals

# Plans for the joint cost: one corrects the first guess, one transports the labels.
PLANS = 2


class ReceivedLabels:
    """The labels that reached the fitted targets; other samples get the label of the nearest fitted target."""

    def __init__(self, targets: np.ndarray, matching: Matching) -> None:
        self.nearest = Nearest(targets) if len(targets) else None
        self.labels, self.matched = matching.labels, matching.target_share > MATCHED

    def of(self, samples: np.ndarray, otherwise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Labels of samples, taken from `otherwise` for those that received none; and a mask of the latter.

        Without fitted targets all labels are taken from there, but none is marked.
        """
        if self.nearest is None:
            return otherwise, np.zeros(len(samples), dtype=bool)
        index = self.nearest.index(samples)
        matched = self.matched[index]
        return np.where(matched[:, None], self.labels[index], otherwise), ~matched


@dataclass(eq=False, repr=False)
class LabelTransportClassifier(JointMatching):
    """Labels of sources flow to targets along the transport plan; targets that receive none can be rejected.

    The plan is the second one for the joint cost of `JointTransportClassifier`. A sample that was not fitted gets the
    label of the nearest fitted target.

    Parameters
    ----------
    kappa, beta, marginals, solver, estimator, batch_size, random_state
        As for `JointTransportClassifier`. With `Exact()`, plans are sparse: between domains of equal size, most
        targets get their labels from one or two sources.
    reject_label
        The prediction for targets that receive a label for less than half of their weight, such as "unknown" (open-set
        adaptation). By default the fitted classifier predicts these.

    Attributes
    ----------
    classes_, transported_mass_, source_share_, target_share_, active_source_, active_target_, solution_
        As for `JointTransportClassifier`.
    target_outlier_score_
        The unmatched share of every target.

    Examples
    --------
    >>> import numpy as np
    >>> from adaptive_ot.adapt import LabelTransportClassifier
    >>> rng = np.random.default_rng(0)
    >>> y = np.array(["cat", "dog"] * 40)
    >>> source = rng.normal(size=(80, 2)) + np.where(y == "dog", 9, 0)[:, None]
    >>> target = np.concatenate([source[:60] + 1, rng.normal(size=(20, 2)) + [60, -60]])  # twenty are something else
    >>> X, domain = np.concatenate([source, target]), np.repeat([0, -1], 80)
    >>> model = LabelTransportClassifier(reject_label="unknown").fit(X, np.tile(y, 2), sample_domain=domain)
    >>> model.predict(target[[0, 1, -1]])
    array(['cat', 'dog', 'unknown'], dtype=object)
    """

    reject_label: Any = None
    batch_size: int = 4096
    random_state: Any = 0

    def fit(self, X: Any, y: Any, *, sample_domain: Any = None, group: Any = None) -> LabelTransportClassifier:
        """Fit on sources (domain >= 0) with labels and targets (< 0), whose labels are ignored.

        `group` is as for `JointTransportClassifier`.
        """
        return self._fit_together(group, X, y, sample_domain)

    def _fit(self, X: Any, y: Any, sample_domain: Any) -> None:
        task = self._prepare(X, y, sample_domain)
        if self.reject_label is not None and self.reject_label in self.classes_.tolist():
            remedy = "Choose a label of its own, or None."
            raise InvalidInput("reject_label", "must not be a class of the source", self.reject_label, remedy)
        if len(task.target) == 0:
            matching = self._fit_sources(task)
        else:
            # The mean of two classifiers: few tasks mislead both.
            q = np.mean([start.probabilities(task.target) for start in self._starts(task)], axis=0)
            matching, self._head = self._alternate(task, q, PLANS)
        self._publish(matching)
        self._received = ReceivedLabels(task.features, matching)

    def predict_proba(self, X: Any, *, sample_domain: Any = None, allow_source: bool = False) -> np.ndarray:
        """Class shares of the received labels, or probabilities without any; the other arguments are ignored."""
        return self._shares(X)[0]

    def predict(self, X: Any, *, sample_domain: Any = None, allow_source: bool = False) -> np.ndarray:
        """Labels of samples of the target domain, `reject_label` for those that received none."""
        shares, rejected = self._shares(X)
        labels = self.classes_[shares.argmax(axis=1)]
        if self.reject_label is None or not rejected.any():
            return labels
        labels = labels.astype(object)
        labels[rejected] = self.reject_label
        return plain(labels)

    def _shares(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        x = self._checked(X)
        return self._received.of(x, self._head.probabilities(self._coordinates.of(x)))


@dataclass(eq=False, repr=False)
class LabelTransportRegressor(RegressorMixin, DomainEstimator):
    """Numbers flow from sources to targets along the transport plan, which matches by distance.

    Parameters
    ----------
    marginals, solver, batch_size, random_state
        As for `TransportAdapter`.
    estimator
        A scikit-learn regressor, `Ridge()` by default, fitted on the moved sources. It predicts targets that receive a
        number for less than half of their weight.
    reject_label
        The prediction for these targets instead, such as NaN.

    Examples
    --------
    >>> import numpy as np
    >>> from adaptive_ot.adapt import LabelTransportRegressor
    >>> x = np.random.default_rng(0).normal(size=(60, 2)) + np.repeat([[0, 0], [9, 9]], 30, axis=0)
    >>> y = np.repeat([1.0, 5.0], 30)
    >>> X, domain = np.concatenate([x, x + [2, -2]]), np.repeat([0, -1], 60)
    >>> model = LabelTransportRegressor().fit(X, np.tile(y, 2), sample_domain=domain)
    >>> model.predict([[2, -2], [11, 7]]).round(1)
    array([1., 5.])
    """

    marginals: Marginals | None = None
    solver: Exact | Entropic | None = None
    estimator: Any = None
    reject_label: float | None = None
    batch_size: int = 4096
    random_state: Any = 0

    def fit(self, X: Any, y: Any, *, sample_domain: Any = None, group: Any = None) -> LabelTransportRegressor:
        """Fit on sources (domain >= 0) with numbers and targets (< 0), whose numbers are ignored.

        `group` is as for `JointTransportClassifier`.
        """
        return self._fit_together(group, X, y, sample_domain)

    def _fit(self, X: Any, y: Any, sample_domain: Any) -> None:
        estimator = Ridge() if self.estimator is None else self.estimator
        check_learner(estimator, "predict")
        if self.reject_label is not None and not isinstance(self.reject_label, Real):
            remedy = "Choose a number, or NaN."
            raise InvalidInput("reject_label", "must be a number", check.describe(self.reject_label), remedy)
        _, x, y, z = self._split(X, y, sample_domain, labels=False)
        matching = self._scaled_matcher(x, z, np.zeros(len(x))).by_distance(y, 1.0)
        self._publish(matching)
        self._received = ReceivedLabels(z, matching)
        self.estimator_: Any = clone(estimator)
        self.estimator_.fit(matching.moved / self._coordinates.unit, y)

    def predict(self, X: Any, *, sample_domain: Any = None, allow_source: bool = False) -> np.ndarray:
        """Numbers for samples of the target domain; the other arguments are for pipelines, and ignored."""
        x = self._checked(X)
        fitted = self.estimator_.predict(self._coordinates.of(x))
        numbers, rejected = self._received.of(x, fitted[:, None])
        return (
            numbers[:, 0] if self.reject_label is None else np.where(rejected, float(self.reject_label), numbers[:, 0])
        )

    def score(
        self, X: Any, y: Any, sample_weight: Any = None, *, sample_domain: Any = None, allow_source: bool = False
    ) -> float:
        """The coefficient of determination; the last two arguments are for pipelines, and ignored."""
        return super().score(X, y, sample_weight)
