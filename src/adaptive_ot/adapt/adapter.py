"""Adaptation by moving: sources go where the plan sends them, for any model to be trained on."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.base import OneToOneFeatureMixin, TransformerMixin
from sklearn.neighbors import NearestNeighbors
from sklearn.utils.validation import check_is_fitted

from adaptive_ot import _validation as check
from adaptive_ot.adapt.domains import DomainEstimator, source_mask
from adaptive_ot.adapt.matching import TAKES_PART, nothing_matched
from adaptive_ot.entropic.solver import Entropic
from adaptive_ot.exact.solver import Exact
from adaptive_ot.marginals import Marginals


class TransportAdapter(OneToOneFeatureMixin, TransformerMixin, DomainEstimator):
    """Moves sources to the target domain along the transport plan; targets stay as they are.

    A source goes to the mean of the targets it is sent to as far as it is sent, and along with the mean displacement of
    all as far as it is not. Samples that were not fitted move as the nearest source that was.

    Train on moved sources alone: SKADA's pipelines do, but scikit-learn's hand on all samples with all labels, those of
    targets, too.

    Parameters
    ----------
    marginals
        The transport model: `AtMost()`, adaptive, by default; pairs clearly closer than the median attract each other.
    solver
        `Entropic(0.1)` by default, or `Exact()`. Costs are distances in units of twice their spread.
    unmatched
        What sources that are hardly sent count in `sample_weight_`: ``"keep"``, as much as others; ``"drop"``, nothing;
        ``"weight"``, their transported share. With the last two, `fit_transform` returns features and
        ``{"sample_weight": weights}``, as adapters of SKADA do, wherever `sample_domain` is given; the next step of a
        SKADA pipeline must ask for it, as in ``LogisticRegression().set_fit_request(sample_weight=True)``.
    batch_size, random_state
        The most samples of a domain that are matched at once, and who is matched with whom if there are more.

    Attributes
    ----------
    sample_weight_
        What every fitted sample should count, in their order.
    transported_mass_, source_share_, target_share_, active_source_, active_target_, target_outlier_score_, solution_
        As of `JointTransportClassifier`.

    Examples
    --------
    >>> import numpy as np
    >>> from adaptive_ot.adapt import TransportAdapter
    >>> source, target = np.array([[0.0], [1.0], [9.0], [50.0]]), np.array([[1.0], [2.0], [10.0]])
    >>> X, domain = np.concatenate([source, target]), np.repeat([0, -1], [4, 3])
    >>> import adaptive_ot as aot
    >>> adapter = TransportAdapter(solver=aot.Exact(), unmatched="drop").fit(X, sample_domain=domain)
    >>> adapter.transform([[0.5], [3.5]], sample_domain=[0, -1])[1]  # targets stay
    array([3.5])
    >>> adapter.sample_weight_
    array([1., 1., 1., 0., 1., 1., 1.])
    """

    __metadata_request__transform: ClassVar = {"sample_domain": True, "allow_source": True}

    def __init__(
        self,
        marginals: Marginals | None = None,
        solver: Exact | Entropic | None = None,
        unmatched: str = "keep",
        batch_size: int = 4096,
        random_state: Any = 0,
    ) -> None:
        self.marginals = marginals
        self.solver = solver
        self.unmatched = unmatched
        self.batch_size = batch_size
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, *, sample_domain: Any = None) -> TransportAdapter:
        """Match sources (domain >= 0) and targets (< 0); labels are ignored.

        Without `sample_domain` all samples are sources, and nothing moves.
        """
        check.choice("unmatched", self.unmatched, ("keep", "drop", "weight"))
        source, x, _, z = self._domains(X, None, sample_domain, labels=None)
        if len(z):
            matching = self._matcher(x, z, np.zeros(len(x))).by_distance(np.zeros(len(x)), 1.0)
        else:
            matching = nothing_matched(x, 1)
        self._keep(matching)
        self.sample_weight_ = np.ones(len(source))
        if self.unmatched == "drop":
            self.sample_weight_[source] = matching.source_share > TAKES_PART
        elif self.unmatched == "weight":
            self.sample_weight_[source] = np.minimum(1.0, matching.source_share)
        self._displacement = matching.moved - x
        self._origin = x.mean(axis=0)  # fewer digits cancel
        self._nearest = NearestNeighbors(n_neighbors=1).fit(x - self._origin)
        return self

    def transform(self, X: Any, *, sample_domain: Any = None, allow_source: bool = True) -> np.ndarray:
        """Move sources (domain >= 0) to the target domain; targets, and all samples of unknown domain, stay.

        `allow_source` is for pipelines, and ignored.
        """
        check_is_fitted(self)
        X = self._features(X, reset=False)
        if sample_domain is None:
            return X
        source = source_mask(sample_domain, len(X), both=False)
        result = X.copy()
        if source.any():
            nearest = self._nearest.kneighbors(X[source] - self._origin, return_distance=False)[:, 0]
            result[source] += self._displacement[nearest]
        return result

    def fit_transform(self, X: Any, y: Any = None, *, sample_domain: Any = None, **_: Any) -> Any:
        """Fit and move the fitted samples; together with weights, unless unmatched samples are kept."""
        self.fit(X, y, sample_domain=sample_domain)
        if sample_domain is None:
            return self.transform(X)
        moved = self._features(X, reset=False).copy()
        moved[source_mask(sample_domain, len(moved))] += self._displacement  # twins may go different ways
        return moved if self.unmatched == "keep" else (moved, {"sample_weight": self.sample_weight_})
