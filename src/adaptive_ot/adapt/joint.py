"""Adaptation by joint transport: match features and classes together, and fit a classifier to the match."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_consistent_length, column_or_1d

from adaptive_ot import _validation as check
from adaptive_ot.adapt.domains import DomainEstimator
from adaptive_ot.adapt.heads import EstimatorHead, LinearHead
from adaptive_ot.adapt.matching import Matching
from adaptive_ot.entropic.solver import Entropic
from adaptive_ot.exact.solver import Exact
from adaptive_ot.marginals import Marginals

# Targets that receive labels weigh as much as all sources together, unless less than this mass arrives.
LEAST_ARRIVING_MASS = 0.1


@dataclass(eq=False, repr=False)
class JointMatching(ClassifierMixin, DomainEstimator):
    """The base of classifiers with the joint cost: plans and fits alternate."""

    kappa: float = 0.5
    beta: float = 1.0
    marginals: Marginals | None = None
    solver: Exact | Entropic | None = None
    estimator: Any = None

    def _alternate(self, X: Any, y: Any, sample_domain: Any, most: int) -> tuple[Matching, np.ndarray]:
        """Alternate for at most this many plans; returns the last matching, and the targets."""
        kappa = check.number("kappa", self.kappa, minimum=0.0)
        beta = check.number("beta", self.beta, minimum=0.0)
        _, x, y, z = self._split(X, y, sample_domain, labels=True)
        self.classes_, members = np.unique(y, return_inverse=True)
        p = np.eye(len(self.classes_))[members]
        self.n_iter_ = 1
        self._head = self._new_head(len(self.classes_))
        matcher = self._scaled_matcher(x, z, members)
        target, alike = self._coordinates.of(z), np.ones(len(x))
        matching = matcher.by_distance(p, beta)
        if len(z) == 0:
            self._head.fit(matching.moved / self._coordinates.unit, p, alike)
            return matching, z
        # A first guess: the mean of classifiers fitted on sources moved in two ways. Few tasks mislead both.
        guesses = []
        for moved in (matcher.x + (matcher.centre - matcher.x.mean(axis=0)), matching.moved):
            self._head.fit(moved / self._coordinates.unit, p, alike)
            guesses.append(self._head.probabilities(target))
        q = np.mean(guesses, axis=0)
        for self.n_iter_ in range(1, most + 1):
            matching = matcher.by_class(p, q, kappa, beta)
            together = np.concatenate([matching.moved / self._coordinates.unit, target])
            share = matching.target_share
            weights = np.concatenate([alike, share * (len(x) / max(share.sum(), LEAST_ARRIVING_MASS * len(z)))])
            self._head.fit(together, np.concatenate([p, matching.labels]), weights)
            before, q = q, self._head.probabilities(target)
            if (before.argmax(axis=1) == q.argmax(axis=1)).all():
                break
        return matching, z

    def predict_proba(self, X: Any, *, sample_domain: Any = None, allow_source: bool = False) -> np.ndarray:
        """Class probabilities of samples of the target domain; the other arguments are for pipelines, and ignored."""
        x = self._checked(X)
        return self._head.probabilities(self._coordinates.of(x))

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

    def _new_head(self, classes: int) -> LinearHead | EstimatorHead:
        if self.estimator is None or classes == 1:  # many classifiers refuse a single class
            return LinearHead()
        return EstimatorHead(self.estimator, classes)


@dataclass(eq=False, repr=False)
class JointTransportClassifier(JointMatching):
    """A classifier for an unlabelled target domain, learnt from a labelled source domain that only partly matches it.

    The first plan matches the domains by distance. One classifier is fitted on the sources moved by this plan, another
    on the sources shifted by the difference of the means of the domains; the average of both is the first guess. Then
    two steps alternate: a plan for the joint cost beta (kappa |x - z|^2 / median - <p, q>), with source labels p and
    predicted target probabilities q, and a fit on the moved sources and on the targets, with the labels that the plan
    sends them, weighted by the mass that arrives. Samples that match nothing carry no mass and have no influence. Under
    adaptive transport, no class sends more than the target appears to hold of it.

    Parameters
    ----------
    kappa
        Weight of the distance: a median squared distance costs `kappa`, certain agreement of classes pays 1.
    beta
        Scale of the cost relative to the entropy of `solver`.
    marginals
        The transport model: `AtMost()`, adaptive, by default; `Equal()`, `FixedMass(mass)` or `SoftKL(tau)` for
        comparison.
    solver
        `Entropic(0.1)` by default, or `Exact()`.
    estimator
        A scikit-learn classifier with `predict_proba` and sample weights, such as `MLPClassifier()`; multinomial
        logistic regression by default.
    max_iter
        The largest number of plans for the joint cost; fewer if the predictions no longer change.
    batch_size
        The largest number of samples of a domain that are matched at once. Larger domains are matched in random batches
        with the same mixture of classes.
    random_state
        Draws the batches; without effect if one batch is enough.

    Attributes
    ----------
    classes_
        The labels of the sources.
    transported_mass_
        The matched part of the domains, which weigh 1 each, in the last plan.
    source_share_, target_share_
        The transported share of the weight of every source and target, in the order of the samples.
    active_source_, active_target_
        Which samples are matched: more than half of their weight is transported. (`solution_` has lower thresholds.)
    target_outlier_score_
        The share of every target that is not matched: near 1 for samples unlike all sources.
    solution_
        The last plan with its certificate; sources weigh what their class may send. None if there were several batches.
    n_iter_
        The number of plans for the joint cost; 1 if there is no target.

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

    max_iter: int = 6
    batch_size: int = 4096
    random_state: Any = 0

    def fit(self, X: Any, y: Any, *, sample_domain: Any = None) -> JointTransportClassifier:
        """Fit on labelled sources and unlabelled targets.

        Parameters
        ----------
        X
            Features of both domains, one sample per row.
        y
            Labels; those of targets are ignored, and may be anything.
        sample_domain
            >= 0 for sources, < 0 for targets. By default all samples are sources, and nothing is adapted.
        """
        most = check.whole_number("max_iter", self.max_iter, minimum=1)
        self._publish(self._alternate(X, y, sample_domain, most)[0])
        return self
