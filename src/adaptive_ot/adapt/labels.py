"""Adaptation by transporting labels: they flow along the plan, and targets that receive none can be told apart."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin, clone
from sklearn.linear_model import Ridge
from sklearn.neighbors import NearestNeighbors
from sklearn.utils.validation import check_is_fitted

from adaptive_ot import _validation as check
from adaptive_ot.adapt.domains import DomainEstimator, plain
from adaptive_ot.adapt.frame import Frame
from adaptive_ot.adapt.heads import check_learner
from adaptive_ot.adapt.joint import JointMatching
from adaptive_ot.adapt.matching import TAKES_PART, Matching, nothing_matched
from adaptive_ot.entropic.solver import Entropic
from adaptive_ot.errors import InvalidInput
from adaptive_ot.exact.solver import Exact
from adaptive_ot.marginals import Marginals

# For the joint cost: one that corrects the first guess, and one for the labels to flow along.
PLANS = 2


class Received:
    """What reached the fitted targets; a sample that was not fitted is taken for the nearest that was."""

    def __init__(self, targets: np.ndarray, matching: Matching) -> None:
        self.origin = targets.mean(axis=0)  # fewer digits cancel
        self.nearest = NearestNeighbors(n_neighbors=1).fit(targets - self.origin)
        self.labels, self.matched = matching.labels, matching.target_share > TAKES_PART

    def look_up(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The label of every sample, and whether it received one."""
        index = self.nearest.kneighbors(x - self.origin, return_distance=False)[:, 0]
        return self.labels[index], self.matched[index]


class LabelTransportClassifier(JointMatching):
    """Labels of sources flow to targets along the transport plan; targets that receive none can be rejected.

    The plan is the second for the joint cost, as of `JointTransportClassifier`. A sample that was not fitted gets the
    label of the nearest target that was.

    Parameters
    ----------
    kappa, beta, marginals, solver, estimator, batch_size, random_state
        As of `JointTransportClassifier`. With `Exact()`, plans are sparse: between domains of equal size, most
        targets get their labels from one or two sources.
    reject_label
        The prediction where less than half of a target's weight receives a label, such as "unknown" (open-set
        adaptation). If None, the classifier that was fitted along decides there.

    Attributes
    ----------
    classes_, transported_mass_, source_share_, target_share_, active_source_, active_target_, target_outlier_score_
        As of `JointTransportClassifier`; `solution_`, too.

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

    def __init__(
        self,
        kappa: float = 0.5,
        beta: float = 1.0,
        marginals: Marginals | None = None,
        solver: Exact | Entropic | None = None,
        estimator: Any = None,
        reject_label: Any = None,
        batch_size: int = 4096,
        random_state: Any = 0,
    ) -> None:
        self.kappa = kappa
        self.beta = beta
        self.marginals = marginals
        self.solver = solver
        self.estimator = estimator
        self.reject_label = reject_label
        self.batch_size = batch_size
        self.random_state = random_state

    def fit(self, X: Any, y: Any, *, sample_domain: Any = None) -> LabelTransportClassifier:
        """Fit on sources (domain >= 0) with labels and targets (< 0), whose labels are ignored."""
        matching, targets = self._alternate(X, y, sample_domain, PLANS)
        if self.reject_label is not None and self.reject_label in self.classes_.tolist():
            remedy = "Choose a label of its own, or None."
            raise InvalidInput("reject_label", "must not be a class of the source", self.reject_label, remedy)
        self._keep(matching)
        self._received = Received(targets, matching) if len(targets) else None
        return self

    def predict_proba(self, X: Any, *, sample_domain: Any = None, allow_source: bool = False) -> np.ndarray:
        """Class shares of the labels received, or probabilities where none were; the rest is for pipelines."""
        return self._shares(self._checked(X))[0]

    def predict(self, X: Any, *, sample_domain: Any = None, allow_source: bool = False) -> np.ndarray:
        """Labels of samples of the target domain, `reject_label` for those that received none."""
        shares, matched = self._shares(self._checked(X))
        labels = self.classes_[shares.argmax(axis=1)]
        if self.reject_label is None or matched.all():
            return labels
        labels = labels.astype(object)
        labels[~matched] = self.reject_label
        return plain(labels)

    def _shares(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        probabilities = self._head.probabilities(self._frame.coordinates(x))
        if self._received is None:
            return probabilities, np.ones(len(x), dtype=bool)
        labels, matched = self._received.look_up(x)
        return np.where(matched[:, None], labels, probabilities), matched


class LabelTransportRegressor(RegressorMixin, DomainEstimator):
    """Numbers flow from sources to targets along the transport plan, which matches by distance.

    Parameters
    ----------
    marginals, solver, batch_size, random_state
        As of `TransportAdapter`.
    estimator
        A scikit-learn regressor, `Ridge()` by default, fitted on the moved sources. It decides where less than half of
        a target's weight receives a number.
    reject_label
        The prediction there instead, such as NaN.

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

    def __init__(
        self,
        marginals: Marginals | None = None,
        solver: Exact | Entropic | None = None,
        estimator: Any = None,
        reject_label: float | None = None,
        batch_size: int = 4096,
        random_state: Any = 0,
    ) -> None:
        self.marginals = marginals
        self.solver = solver
        self.estimator = estimator
        self.reject_label = reject_label
        self.batch_size = batch_size
        self.random_state = random_state

    def fit(self, X: Any, y: Any, *, sample_domain: Any = None) -> LabelTransportRegressor:
        """Fit on sources (domain >= 0) with numbers and targets (< 0), whose numbers are ignored."""
        estimator = Ridge() if self.estimator is None else self.estimator
        check_learner(estimator, "predict")
        if self.reject_label is not None and not isinstance(self.reject_label, Real):
            remedy = "Choose a number, or NaN."
            raise InvalidInput("reject_label", "must be a number", check.describe(self.reject_label), remedy)
        _, x, y, z = self._domains(X, y, sample_domain, labels=False)
        self._frame = Frame(np.concatenate([x, z]))
        x = self._frame.coordinates(x)
        if len(z):
            matcher = self._matcher(x, self._frame.coordinates(z), np.zeros(len(x)))
            matching, typical = matcher.by_distance(y, 1.0), matcher.typical
        else:
            matching, typical = nothing_matched(x, 1), float(2 * x.var(axis=0).sum())
        self._frame.set_unit(typical)
        self._keep(matching)
        self._received = Received(z, matching) if len(z) else None
        self.estimator_: Any = clone(estimator)
        self.estimator_.fit(matching.moved / self._frame.unit, y)
        return self

    def predict(self, X: Any, *, sample_domain: Any = None, allow_source: bool = False) -> np.ndarray:
        """Numbers for samples of the target domain; the other arguments are for pipelines, and ignored."""
        check_is_fitted(self)
        X = self._features(X, reset=False)
        fitted = self.estimator_.predict(self._frame.coordinates(X))
        if self._received is None:
            return fitted
        labels, matched = self._received.look_up(X)
        return np.where(matched, labels[:, 0], fitted if self.reject_label is None else float(self.reject_label))

    def score(
        self, X: Any, y: Any, sample_weight: Any = None, *, sample_domain: Any = None, allow_source: bool = False
    ) -> float:
        """The coefficient of determination; the last two arguments are for pipelines, and ignored."""
        return super().score(X, y, sample_weight)
