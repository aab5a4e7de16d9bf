"""Adaptation by joint transport: match features and classes together, and fit a classifier to the match."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_consistent_length, column_or_1d

from adaptive_ot import _validation as check
from adaptive_ot.adapt.domains import DomainEstimator
from adaptive_ot.adapt.heads import EstimatorHead, LinearHead
from adaptive_ot.adapt.matching import Matcher, Matching
from adaptive_ot.adapt.neighbours import averaged
from adaptive_ot.adapt.presence import normalised
from adaptive_ot.adapt.unadapted import Head, Unadapted
from adaptive_ot.entropic.solver import Entropic
from adaptive_ot.exact.solver import Exact
from adaptive_ot.marginals import Marginals

# Targets that receive labels weigh as much as all sources together, unless less than this mass arrives.
LEAST_ARRIVING_MASS = 0.1

# Transport must remove this share of the disagreement between neighbouring targets.
LEAST_GAIN = 0.2

# Half the width of `overlap_interval_`: a constant, and a factor of the disagreement between neighbouring targets.
# Chosen so that 90 % of the intervals held the true overlap on the draws used for development.
HALF_WIDTH = 0.08, 0.35


class Task(NamedTuple):
    """Sources and targets in common coordinates; `p` holds the classes of sources as probabilities."""

    matcher: Matcher
    source: np.ndarray
    target: np.ndarray
    p: np.ndarray
    features: np.ndarray  # of the targets, as they were given


@dataclass(eq=False, repr=False)
class JointMatching(ClassifierMixin, DomainEstimator):
    """The base of classifiers with the joint cost: plans and fits alternate."""

    kappa: float = 0.5
    beta: float = 1.0
    marginals: Marginals | None = None
    solver: Exact | Entropic | None = None
    estimator: Any = None

    def __sklearn_is_fitted__(self) -> bool:
        """Whether a fit came to its end."""
        return hasattr(self, "transported_mass_")

    def _prepare(self, X: Any, y: Any, sample_domain: Any) -> Task:
        check.number("kappa", self.kappa, minimum=0.0)
        check.number("beta", self.beta, minimum=0.0)
        _, x, y, z = self._split(X, y, sample_domain, labels=True)
        self.classes_, members = np.unique(y, return_inverse=True)
        p = np.eye(len(self.classes_))[members]
        self._head: Head = self._new_head()
        self.n_iter_ = 1
        matcher = self._scaled_matcher(x, z, members)
        return Task(matcher, matcher.x / self._coordinates.unit, self._coordinates.of(z), p, z)

    def _alternate(
        self, task: Task, most: int, average: Callable[[np.ndarray], np.ndarray] = lambda q: q
    ) -> tuple[Matching, Head]:
        """Alternate plans and fits, at most this many times; `average` smooths the probabilities of targets."""
        matcher, target, p = task.matcher, task.target, task.p
        head, alike, unit = self._new_head(), np.ones(len(p)), self._coordinates.unit
        matching = matcher.by_distance(p, self.beta)
        if len(target) == 0:
            head.fit(task.source, p, alike)
            return matching, head
        # A first guess: the mean of classifiers fitted on sources moved in two ways. Few tasks mislead both.
        guesses = []
        for moved in (matcher.x + (matcher.centre - matcher.x.mean(axis=0)), matching.moved):
            head.fit(moved / unit, p, alike)
            guesses.append(head.probabilities(target))
        q = np.mean(guesses, axis=0)
        for self.n_iter_ in range(1, most + 1):
            matching = matcher.by_class(p, average(q), self.kappa, self.beta)
            together = np.concatenate([matching.moved / unit, target])
            weights = np.concatenate([alike, _weights(matching.target_share, len(p))])
            head.fit(together, np.concatenate([p, matching.labels]), weights)
            before, q = q, head.probabilities(target)
            if (before.argmax(axis=1) == q.argmax(axis=1)).all():
                break
        return matching, head

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

    def _new_head(self) -> Head:
        if self.estimator is None or len(self.classes_) == 1:  # many classifiers refuse a single class
            return LinearHead()
        return EstimatorHead(self.estimator, len(self.classes_))


@dataclass(eq=False, repr=False)
class JointTransportClassifier(JointMatching):
    """A classifier for an unlabelled target domain, learnt from a labelled source domain that only partly matches it.

    The source classifier is the null hypothesis: transport is used only if it earns its place.

    1. The source classifier predicts the targets. A test finds which classes exist in the target; predictions of the
       others are discounted. Predictions are averaged over neighbouring targets if that helps on held-out sources.
    2. If the classifier is less confident on targets than on held-out sources, or the targets are far from the sources,
       transport is tried: plans for the joint cost beta (kappa |x - z|^2 / median - <p, q>), with source labels p and
       predicted target probabilities q, alternate with fits on the moved sources and on the targets, with the labels
       that the plan sends them.
    3. Transport is accepted if it removes a fifth of the disagreement between predictions of neighbouring targets.
       Otherwise the sources stay where they are, and the source classifier learns from the targets it is most certain
       of.

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
    guard
        Whether transport must earn its place. If False, the result of transport is always used.

    Attributes
    ----------
    classes_
        The labels of the sources.
    class_presence_
        The probability that each class exists in the target, as the source classifier sees it: not reliable if
        `adapted_`.
    adapted_, reason_
        Whether transport was accepted, and why or why not.
    overlap_, overlap_interval_
        An estimate of the overlap of the domains, which weigh 1 each, and an interval that held the true overlap in
        90 % of the tasks on which its width was chosen. The overlap is the most mass that can move between equal
        classes. Samples of unknown classes count as matched.
    transported_mass_
        The mass of the plan.
    source_share_, target_share_
        The transported share of the weight of every source and target, in the order of the samples.
    active_source_, active_target_
        Which samples are matched: more than half of their weight is transported. (`solution_` has lower thresholds.)
    target_outlier_score_
        The unmatched share of every target in the plan of the source classifier, averaged over the target and its ten
        nearest targets: high for groups of samples unlike the sources. A lone outlier scores low.
    solution_
        The plan with its certificate: the last one if adapted, otherwise the plan of the source classifier. Sources
        weigh what their class may send. None if there were several batches.
    n_iter_
        The number of plans for the joint cost; 1 if none was tried.

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
    >>> (model.predict(cats) == "cat").all(), model.class_presence_.round(1), model.overlap_
    (np.True_, array([1., 0.]), 0.5)
    """

    max_iter: int = 6
    batch_size: int = 4096
    random_state: Any = 0
    guard: bool = True

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
        check.instance("guard", self.guard, bool)
        task = self._prepare(X, y, sample_domain)
        if len(task.target) == 0:
            matching, self._head = self._alternate(task, most)
            self._publish(matching)
            self.class_presence_ = self._factors = np.ones(len(self.classes_))
            self.adapted_, self.reason_, self._neighbours = False, "There are no targets.", None
            self.overlap_, self.overlap_interval_ = 0.0, (0.0, 0.0)
            return self
        null = Unadapted(self._new_head, task.source, task.target, task.p)
        self.class_presence_ = null.presence
        plan = task.matcher.by_class(task.p, normalised(null.probabilities * null.factors), self.kappa, self.beta)
        self._publish(self._decide(task, null, most) or plan)
        unmatched = 1.0 - np.minimum(1.0, plan.target_share)[:, None]
        self.target_outlier_score_ = averaged(unmatched, unmatched, null.compared_with)[:, 0]
        self._count = null.averaged_over.shape[1]
        self._neighbours = null.neighbours if self._count else None
        self._fitted = self._head.probabilities(task.target)
        self._estimate_overlap(task, null)
        return self

    def _decide(self, task: Task, null: Unadapted, most: int) -> Matching | None:
        """Adapt if that is better than not to; returns the last plan of an accepted adaptation."""
        if self.guard and not null.shift:
            self.adapted_, self.reason_ = False, "The targets show no sign of a shift."
        else:
            matching, head = self._alternate(task, most, null.average)
            reached = null.coherence_of(null.average(head.probabilities(task.target)))
            gain = (reached - null.coherence) / max(1.0 - null.coherence, np.finfo(float).eps)
            self.adapted_ = not self.guard or gain > LEAST_GAIN
            self.reason_ = _reason(null, reached, self.adapted_) if self.guard else "The guard is switched off."
            if self.adapted_:
                self._head, self._factors = head, np.ones(len(self.classes_))
                return matching
        self._head, self._factors = null.self_trained(), null.factors
        return None

    def _estimate_overlap(self, task: Task, null: Unadapted) -> None:
        """The mass that could move between equal classes, by the predicted classes of the targets."""
        predicted = (null.average(self._fitted) * self._factors).argmax(axis=1)
        held = np.bincount(predicted, minlength=len(self.classes_)) / len(predicted)
        self.overlap_ = float(np.minimum(held, task.p.mean(axis=0)).sum())
        half = HALF_WIDTH[0] + HALF_WIDTH[1] * (1.0 - max(0.0, null.coherence))
        self.overlap_interval_ = max(0.0, self.overlap_ - half), min(1.0, self.overlap_ + half)

    def predict_proba(self, X: Any, *, sample_domain: Any = None, allow_source: bool = False) -> np.ndarray:
        """Class probabilities of samples of the target domain; the other arguments are for pipelines, and ignored."""
        x = self._checked(X)
        samples = self._coordinates.of(x)
        q = self._head.probabilities(samples)
        if self._neighbours is not None:
            q = averaged(q, self._fitted, self._neighbours.of(samples, self._count))
        return normalised(q * self._factors)


def _weights(share: np.ndarray, total: int) -> np.ndarray:
    """Weights of targets that receive labels: together they weigh as much as all sources, unless little arrives."""
    return share * (total / max(share.sum(), LEAST_ARRIVING_MASS * len(share)))


def _reason(null: Unadapted, reached: float, adapted: bool) -> str:
    shift = null.shift[0].upper() + null.shift[1:]
    change = f"{null.coherence:.2f} to {reached:.2f}"
    if adapted:
        return f"{shift}, and transport raised the agreement of neighbouring targets from {change}."
    return f"{shift}, but transport changed the agreement of neighbouring targets from {change} only."
