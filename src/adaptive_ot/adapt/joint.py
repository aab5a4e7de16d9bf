"""Adaptation by joint transport: match features and classes together, and fit a classifier to the match."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_consistent_length, column_or_1d

from adaptive_ot import _validation as check
from adaptive_ot.adapt.answers import Classifier, Consensus, mean
from adaptive_ot.adapt.domains import DomainEstimator
from adaptive_ot.adapt.heads import EstimatorHead, LinearHead
from adaptive_ot.adapt.matching import Matcher, Matching
from adaptive_ot.adapt.neighbours import Neighbours, Votes, averaged, coherence, unanimity
from adaptive_ot.adapt.presence import normalised
from adaptive_ot.adapt.unadapted import Head, Unadapted
from adaptive_ot.entropic.solver import Entropic
from adaptive_ot.exact.solver import Exact
from adaptive_ot.marginals import Marginals

# Targets that receive labels weigh as much as all sources together, unless less than this mass arrives.
LEAST_ARRIVING_MASS = 0.1

# Plans with sources in place. More would amplify early mistakes.
PLANS_IN_PLACE = 2

# Neighbouring targets whose predictions are compared and averaged, and neighbouring sources that vote on a class.
# With fewer targets, fewer of them: the neighbours of a target should not be all targets.
NEIGHBOURS = 10
TARGETS_PER_NEIGHBOUR = 5

# Moving the sources must remove some of the disagreement between neighbouring targets: a share of SLOPE * (confidence -
# EVEN), where confidence is that of the source classifier on targets. The less confident it is, the less is asked for;
# below EVEN, agreement may even fall. If classes have moved far, this share is enough.
SLOPE, EVEN, IF_FAR = 4.0, 0.85, 0.2

# Moving the sources must lead to the same place from three starts: the last classifiers must agree this much beyond
# chance (by `unanimity`). With less, nothing tells a shift from classes that are missing.
UNANIMOUS = 0.5

# Of two routes, the one whose classifiers agree more on neighbouring targets (by `coherence`) has the larger weight:
# larger by this factor in the exponent.
TRUST = 10.0

# The weight of neighbouring targets in the answer if the sources move.
SAY_IF_MOVED = 0.7

# How far `overlap_interval_` reaches below and above the estimate: a constant, and a factor of the disagreement between
# neighbouring targets. Chosen so that 90 % of the intervals held the true overlap on the draws used for development.
# Samples of unknown classes seem to match, so the interval reaches further down than up.
BELOW, ABOVE = (0.17, 0.22), (0.09, 0.17)


class Task(NamedTuple):
    """Sources and targets in common coordinates; `p` holds the classes of sources as probabilities."""

    matcher: Matcher
    source: np.ndarray
    target: np.ndarray
    p: np.ndarray
    features: np.ndarray  # of the targets, as they were given

    @property
    def offset(self) -> np.ndarray:
        """The difference of the means of the domains."""
        return self.target.mean(axis=0) - self.source.mean(axis=0)


class Route(NamedTuple):
    """One way to an answer: its last plan, its first and its last classifier, and the weight of both."""

    plan: Matching
    members: tuple[Classifier, Classifier]
    weight: float


class Answer(NamedTuple):
    """The members of a consensus with their weights, the say of neighbouring targets, and the plan to publish."""

    members: list[tuple[Classifier, float]]
    say: float
    plan: Matching


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
        if hasattr(self, "transported_mass_"):
            del self.transported_mass_  # if this fit fails, there is no model
        check.number("kappa", self.kappa, minimum=0.0)
        check.number("beta", self.beta, minimum=0.0)
        _, x, y, z = self._split(X, y, sample_domain, labels=True)
        self.classes_, members = np.unique(y, return_inverse=True)
        p = np.eye(len(self.classes_))[members]
        self._head: Classifier = self._new_head()
        self.n_iter_ = 1
        matcher = self._scaled_matcher(x, z, members)
        return Task(matcher, matcher.x / self._coordinates.unit, self._coordinates.of(z), p, z)

    def _starts(self, task: Task) -> tuple[Head, Head]:
        """Classifiers for sources shifted by the difference of the means, and moved by a plan for distances alone."""
        alike, moved = np.ones(len(task.p)), task.matcher.by_distance(task.p, self.beta).moved / self._coordinates.unit
        starts = self._new_head(), self._new_head()
        for head, sources in zip(starts, (task.source + task.offset, moved), strict=True):
            head.fit(sources, task.p, alike)
        return starts

    def _alternate(self, task: Task, q: np.ndarray, most: int) -> tuple[Matching, Head]:
        """Alternate plans and fits on moved sources, at most this many times, from a guess of the targets' classes."""
        head, count = self._new_head(), 0
        while True:
            matching = task.matcher.by_class(task.p, q, self.kappa, self.beta)
            self._learn(head, task, matching.moved / self._coordinates.unit, matching)
            count += 1
            before, q = q, head.probabilities(task.target)
            if count == most or (before.argmax(axis=1) == q.argmax(axis=1)).all():
                self.n_iter_ = max(self.n_iter_, count)
                return matching, head

    def _learn(self, head: Head, task: Task, sources: np.ndarray, matching: Matching) -> None:
        """Fit a classifier on sources, and on the targets with the labels that a plan sends them."""
        weights = np.concatenate([np.ones(len(sources)), _weights(matching.target_share, len(sources))])
        both = np.concatenate([sources, task.target])
        head.fit(both, np.concatenate([task.p, matching.labels]), weights)

    def _fit_sources(self, task: Task) -> Matching:
        """Fit the classifier on sources alone; an empty plan."""
        self._head = head = self._new_head()
        head.fit(task.source, task.p, np.ones(len(task.p)))
        return task.matcher.by_distance(task.p, self.beta)

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

    The source classifier is the null hypothesis, and every departure from it must earn its place:

    1. A test finds which classes exist in the target. Plans for the joint cost beta (kappa |x - z|^2 / median - <p, q>)
       send labels to the targets, where p are source labels and q predicted probabilities of targets. Predictions of
       classes that seem to be absent count little. A second classifier learns from the sources, which stay in place,
       and from the targets with these labels.
    2. If classes have moved, and far or the source classifier has lost confidence, moving the sources is tried: plans
       alternate with fits on moved sources. Three routes lead there. They start from the predictions of a classifier
       for sources shifted by the difference of the means, of one for sources moved by a plan for distances, and of the
       nearest sources in place. If neighbouring targets agree less on the votes of the nearest sources than on the
       source classifier, the source classifier itself replaces the third route.
    3. Moving is accepted if the predictions of neighbouring targets then agree more, and if the three routes lead to
       the same place. The less confident the source classifier is, the less agreement of neighbours is asked for; if it
       has lost much, this agreement may even fall.
    4. The answer is a consensus, in which neighbouring targets have a say. If the sources stay, its members are both
       classifiers and the votes of the nearest sources; the more classes are missing, the larger is the say of
       neighbouring targets. If the sources move, its members are the first and the last classifier of every route. The
       more neighbouring targets agree on a route, the larger is its weight. If the routes disagree, the source
       classifier answers alone.

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
        logistic regression by default. If its probabilities are always near 0 or 1, a loss of confidence goes unseen.
    max_iter
        The largest number of plans of a route; fewer if the predictions no longer change.
    batch_size
        The largest number of samples of a domain that are matched at once. Larger domains are matched in random batches
        with the same mixture of classes.
    random_state
        Draws the batches; without effect if one batch is enough.
    guard
        Whether moving the sources must earn its place. If False, the sources always move.

    Attributes
    ----------
    classes_
        The labels of the sources.
    class_presence_
        The probability that each class exists in the target, as the source classifier sees it: not reliable if
        classes have moved, see `reason_`.
    adapted_, reason_
        Whether the sources were moved, and why or why not.
    overlap_, overlap_interval_
        An estimate of the overlap of the domains, which weigh 1 each, and an interval that held the true overlap in
        90 % of the tasks on which its width was chosen. The overlap is the most mass that can move between equal
        classes. In the estimate, samples of unknown classes count as matched.
    transported_mass_
        The mass of the plan.
    source_share_, target_share_
        The transported share of the weight of every source and target, in the order of the samples.
    active_source_, active_target_
        Which samples are matched: more than half of their weight is transported. (`solution_` has lower thresholds.)
    target_outlier_score_
        The unmatched share of every target in the first plan, averaged over the target and its ten nearest targets:
        high for groups of samples unlike the sources. A lone outlier scores low.
    solution_
        The last plan with its certificate: that of the route of largest weight if adapted, otherwise with sources in
        place. Sources weigh what their class may send. None if there were several batches.
    n_iter_
        The number of plans of the longest route, accepted or not; 1 if moving was not tried.

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

    def fit(self, X: Any, y: Any, *, sample_domain: Any = None, group: Any = None) -> JointTransportClassifier:
        """Fit on labelled sources and unlabelled targets.

        Parameters
        ----------
        X
            Features of both domains, one sample per row.
        y
            Labels; those of targets are ignored, and may be anything.
        sample_domain
            >= 0 for sources, < 0 for targets. By default all samples are sources, and nothing is adapted.
        group
            A group of `torch.distributed` whose processes all make this call, with the same samples: they share the
            plans. See docs/distributed.md.
        """
        return self._fit_together(group, X, y, sample_domain)

    def _fit(self, X: Any, y: Any, sample_domain: Any) -> None:
        most = check.whole_number("max_iter", self.max_iter, minimum=1)
        check.instance("guard", self.guard, bool)
        task = self._prepare(X, y, sample_domain)
        if len(task.target) == 0:
            self._publish(self._fit_sources(task))
            self.class_presence_ = np.ones(len(self.classes_))
            self.adapted_, self.reason_ = False, "There are no targets."
            self.overlap_, self.overlap_interval_ = 0.0, (0.0, 0.0)
            return
        null = Unadapted(self._new_head, task.source, task.target, task.p)
        self.class_presence_ = null.presence
        neighbours = Neighbours(task.target)
        nearest = neighbours.of_fitted(min(NEIGHBOURS, len(task.target) // TARGETS_PER_NEIGHBOUR))
        first, plan, in_place = self._learnt_in_place(task, null)
        before = coherence(null.probabilities.argmax(axis=1), nearest)
        votes = Votes(task.source, task.p, NEIGHBOURS)
        self.adapted_ = False
        answer = self._answer_by_moving(task, null, votes, plan, most, nearest)
        if answer is None:
            alike: tuple[Classifier, ...] = null.head, in_place, votes
            # The fewer classes there are, the purer are neighbourhoods. A presence of 0.5 is no evidence.
            say = float(np.maximum(0.0, 1.0 - 2.0 * null.presence).mean())
            answer = Answer([(member, 1.0) for member in alike], say, plan)
        self._head = consensus = Consensus(answer.members, answer.say, task.target, neighbours, nearest)
        self._publish(answer.plan)
        unmatched = 1.0 - np.minimum(1.0, first.target_share)[:, None]
        self.target_outlier_score_ = averaged(unmatched, unmatched, nearest)[:, 0]
        self._estimate_overlap(task, consensus.of_targets.argmax(axis=1), before)

    def _learnt_in_place(self, task: Task, null: Unadapted) -> tuple[Matching, Matching, Head]:
        """The first and the last plan from the source classifier, and a classifier for sources in place and targets."""
        head, q, plans = self._new_head(), null.probabilities, []
        for _ in range(PLANS_IN_PLACE):
            plans.append(task.matcher.by_class(task.p, normalised(q * null.factors), self.kappa, self.beta))
            self._learn(head, task, task.source, plans[-1])
            q = head.probabilities(task.target)
        return plans[0], plans[-1], head

    def _answer_by_moving(
        self, task: Task, null: Unadapted, votes: Votes, in_place: Matching, most: int, nearest: np.ndarray
    ) -> Answer | None:
        """The answer of three routes, or of the source classifier if they disagree; none if the sources should stay."""
        if self.guard and null.reason_to_stay:
            self.reason_ = null.reason_to_stay
            return None
        before = coherence(null.probabilities.argmax(axis=1), nearest)
        routes = self._routes(task, null, votes, in_place, most, nearest)
        moved = Answer(_weighted(routes), SAY_IF_MOVED, max(routes, key=lambda route: route.weight).plan)
        if not self.guard:
            self.adapted_, self.reason_ = True, "The guard is switched off."
            return moved
        after = coherence(mean(moved.members, task.target).argmax(axis=1), nearest)
        gain = (after - before) / max(1.0 - before, np.finfo(float).eps)
        asked = SLOPE * (null.confidence - EVEN)
        accepted = gain > (min(asked, IF_FAR) if null.far else asked)
        change = f"changed the agreement of neighbouring targets from {before:.2f} to {after:.2f}."
        self.reason_ = f"{null.shift}; moving the sources {'' if accepted else 'only '}{change}"
        if not accepted:
            return None
        ends = [route.members[1].probabilities(task.target).argmax(axis=1) for route in routes]
        agreed = unanimity(np.array(ends))
        self.adapted_ = agreed >= UNANIMOUS
        if not self.adapted_:
            self.reason_ = f"{null.shift}, but the three routes disagree (kappa {agreed:.2f}), so the sources stay."
            return Answer([(null.head, 1.0)], 0.0, in_place)
        return moved

    def _routes(
        self, task: Task, null: Unadapted, votes: Votes, in_place: Matching, most: int, nearest: np.ndarray
    ) -> list[Route]:
        """Three routes, two of which start from moved sources."""
        before = coherence(null.probabilities.argmax(axis=1), nearest)
        routes = [self._route(task, start, most, nearest) for start in self._starts(task)]
        if coherence(votes.probabilities(task.target).argmax(axis=1), nearest) > before:
            return [*routes, self._route(task, votes, most, nearest)]
        return [*routes, Route(in_place, (null.head, null.head), _trust(before, before))]

    def _route(self, task: Task, start: Classifier, most: int, nearest: np.ndarray) -> Route:
        """Alternate plans and fits, from the predictions of a classifier, averaged over neighbouring targets."""
        q = start.probabilities(task.target)
        plan, end = self._alternate(task, averaged(q, q, nearest), most)
        guesses = q, end.probabilities(task.target)
        return Route(plan, (start, end), _trust(*(coherence(guess.argmax(axis=1), nearest) for guess in guesses)))

    def _estimate_overlap(self, task: Task, predicted: np.ndarray, coherent: float) -> None:
        """The mass that could move between equal classes, by the predicted classes of the targets."""
        held = np.bincount(predicted, minlength=len(self.classes_)) / len(predicted)
        self.overlap_ = float(np.minimum(held, task.p.mean(axis=0)).sum())
        below, above = (width + factor * (1.0 - max(0.0, coherent)) for width, factor in (BELOW, ABOVE))
        self.overlap_interval_ = max(0.0, self.overlap_ - below), min(1.0, self.overlap_ + above)


def _trust(first: float, last: float) -> float:
    """The weight of a route, from the agreement of neighbouring targets on its first and its last classifier."""
    return float(np.exp(TRUST * (first + last)))


def _weighted(routes: list[Route]) -> list[tuple[Classifier, float]]:
    """The classifiers of all routes with their weights."""
    return [(member, route.weight) for route in routes for member in route.members]


def _weights(share: np.ndarray, total: int) -> np.ndarray:
    """Weights of targets that receive labels: together they weigh as much as all sources, unless little arrives."""
    return share * (total / max(share.sum(), LEAST_ARRIVING_MASS * len(share)))
