"""Adaptation by joint transport: features and classes matched together, and a classifier fitted to the match."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d

from adaptive_ot import _validation as check
from adaptive_ot.adapt.domains import DomainEstimator
from adaptive_ot.adapt.frame import Frame
from adaptive_ot.adapt.heads import EstimatorHead, LinearHead
from adaptive_ot.adapt.matching import Matching, nothing_matched
from adaptive_ot.entropic.solver import Entropic
from adaptive_ot.exact.solver import Exact
from adaptive_ot.marginals import Marginals

# Targets that receive labels count as much as all sources together, unless less mass than this arrives.
HARDLY = 0.1


class JointMatching(ClassifierMixin, DomainEstimator):
    """What classifiers with the joint cost share: plans and fits that take turns."""

    kappa: float
    beta: float
    estimator: Any

    def _alternate(self, X: Any, y: Any, sample_domain: Any, most: int) -> tuple[Matching, np.ndarray]:
        """At most so many plans for the joint cost; the last of them, and the targets."""
        kappa = check.number("kappa", self.kappa, minimum=0.0)
        beta = check.number("beta", self.beta, minimum=0.0)
        _, x, y, z = self._domains(X, y, sample_domain, labels=True)
        self.classes_, members = np.unique(y, return_inverse=True)
        p = np.eye(len(self.classes_))[members]
        self.n_iter_ = 1
        self._frame = Frame(np.concatenate([x, z]))
        self._head = self._new_head(len(self.classes_))
        alike = np.ones(len(x))
        x = self._frame.coordinates(x)
        if len(z) == 0:
            self._frame.set_unit(float(2 * x.var(axis=0).sum()))
            self._head.fit(x / self._frame.unit, p, alike)
            return nothing_matched(x, len(self.classes_)), z
        matcher = self._matcher(x, self._frame.coordinates(z), members)
        self._frame.set_unit(matcher.typical)
        target = self._frame.coordinates(z)
        matching, all_alike = matcher.by_distance(p, beta), x + (matcher.centre - x.mean(axis=0))
        q = self._first_guess((all_alike, matching.moved), p, target)
        for self.n_iter_ in range(1, most + 1):
            matching = matcher.by_class(p, q, kappa, beta)
            together = np.concatenate([matching.moved / self._frame.unit, target])
            share = matching.target_share
            weights = np.concatenate([alike, share * (len(x) / max(share.sum(), HARDLY * len(z)))])
            self._head.fit(together, np.concatenate([p, matching.labels]), weights)
            before, q = q, self._head.probabilities(target)
            if (before.argmax(axis=1) == q.argmax(axis=1)).all():
                break
        return matching, z

    def _first_guess(self, moved: tuple[np.ndarray, ...], p: np.ndarray, target: np.ndarray) -> np.ndarray:
        """The mean of what classifiers say that are fitted on sources moved in several ways: few tasks mislead all."""
        guesses = []
        for x in moved:
            self._head.fit(x / self._frame.unit, p, np.ones(len(x)))
            guesses.append(self._head.probabilities(target))
        return np.mean(guesses, axis=0)

    def predict_proba(self, X: Any, *, sample_domain: Any = None, allow_source: bool = False) -> np.ndarray:
        """Class probabilities of samples of the target domain; the other arguments are for pipelines, and ignored."""
        X = self._checked(X)
        return self._head.probabilities(self._frame.coordinates(X))

    def predict(self, X: Any, *, sample_domain: Any = None, allow_source: bool = False) -> np.ndarray:
        """Labels of samples of the target domain; the other arguments are for pipelines, and ignored."""
        likeliest = self.predict_proba(X).argmax(axis=1)
        return self.classes_[likeliest]

    def score(
        self, X: Any, y: Any, sample_weight: Any = None, *, sample_domain: Any = None, allow_source: bool = False
    ) -> float:
        """Mean accuracy on the given samples; the last two arguments are for pipelines, and ignored."""
        check_consistent_length(X, y, sample_weight)
        right = self.predict(X).astype(object) == column_or_1d(y).astype(object)  # `reject_label` is of any type
        return float(np.average(right.astype(np.float64), weights=sample_weight))

    def _checked(self, X: Any) -> Any:
        check_is_fitted(self)
        return self._features(X, reset=False)

    def _new_head(self, classes: int) -> LinearHead | EstimatorHead:
        if self.estimator is None or classes == 1:  # many classifiers refuse a single class
            return LinearHead()
        return EstimatorHead(self.estimator, classes)


class JointTransportClassifier(JointMatching):
    """A classifier for a target domain without labels, learnt from a source domain that only partly matches it.

    A first plan matches the domains by distance. One classifier is fitted on sources where it moves them, another on
    sources moved all alike, by the difference of the means; the first guess is the mean of theirs. From then on, a plan
    for the joint cost beta (kappa |x - z|^2 / median - <p, q>), with source labels p and predicted target probabilities
    q, and a fit on the moved sources and on the targets with the labels that the plan sends them, by weight of the mass
    that arrives, take turns. Samples that match nothing carry no mass and so do not matter. Under adaptive transport,
    no class sends more than the target seems to hold of it.

    Parameters
    ----------
    kappa
        Weight of the distance, where the median squared distance counts as 1 and certain agreement of classes as 1.
    beta
        Scale of the cost against the entropy of `solver`.
    marginals
        The transport model: `AtMost()`, adaptive, by default; `Equal()`, `FixedMass(mass)` or `SoftKL(tau)` for
        comparison.
    solver
        `Entropic(0.1)` by default, or `Exact()`.
    estimator
        A scikit-learn classifier with `predict_proba` and sample weights, such as `MLPClassifier()`, to be fitted
        instead of multinomial logistic regression.
    max_iter
        Plans for the joint cost, at most; fewer where the predictions no longer change.
    batch_size
        The most samples of a domain that are matched at once. Larger domains are matched in random batches of the same
        mixture of classes.
    random_state
        Decides who is in which batch; without effect where one batch is enough.

    Attributes
    ----------
    classes_
        The labels of the sources.
    transported_mass_
        How much of the domains, which weigh 1 each, the last plan matches.
    source_share_, target_share_
        How much of the weight of every source and target it transports, in the order of the samples.
    active_source_, active_target_
        Which of them take part: more than half of the weight.
    target_outlier_score_
        How much of every target is left alone: near 1 for samples like no source.
    solution_
        The last plan with its certificate, for what every class may send; None if it took several batches.
    n_iter_
        Plans for the joint cost; 1 if there is no target.

    Examples
    --------
    >>> import numpy as np
    >>> from adaptive_ot.adapt import JointTransportClassifier
    >>> rng = np.random.default_rng(0)
    >>> y = np.array(["cat", "dog"] * 40)
    >>> source = rng.normal(size=(80, 2)) + np.where(y == "dog", 9, 0)[:, None]
    >>> cats = rng.normal(size=(40, 2)) + [3, 0]  # no dogs in the target
    >>> X, domain = np.concatenate([source, cats]), np.repeat([0, -1], [80, 40])
    >>> model = JointTransportClassifier().fit(X, np.concatenate([y, ["?"] * 40]), sample_domain=domain)
    >>> (model.predict(cats) == "cat").all(), round(model.transported_mass_, 1)
    (np.True_, 0.5)
    """

    def __init__(
        self,
        kappa: float = 0.5,
        beta: float = 1.0,
        marginals: Marginals | None = None,
        solver: Exact | Entropic | None = None,
        estimator: Any = None,
        max_iter: int = 6,
        batch_size: int = 4096,
        random_state: Any = 0,
    ) -> None:
        self.kappa = kappa
        self.beta = beta
        self.marginals = marginals
        self.solver = solver
        self.estimator = estimator
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.random_state = random_state

    def fit(self, X: Any, y: Any, *, sample_domain: Any = None) -> JointTransportClassifier:
        """Fit on labelled sources and unlabelled targets.

        Parameters
        ----------
        X
            Features of both domains, one sample a row.
        y
            Labels; those of targets are ignored, and may be anything.
        sample_domain
            >= 0 for sources, < 0 for targets. Without, all samples are sources, and nothing is adapted.
        """
        most = check.whole_number("max_iter", self.max_iter, minimum=1)
        self._keep(self._alternate(X, y, sample_domain, most)[0])
        return self
