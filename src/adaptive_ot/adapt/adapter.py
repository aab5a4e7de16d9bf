"""Adaptation by moving sources along the plan, before any model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import OneToOneFeatureMixin, TransformerMixin

from adaptive_ot import _validation as check
from adaptive_ot.adapt.coordinates import Nearest
from adaptive_ot.adapt.domains import DomainEstimator, source_mask
from adaptive_ot.adapt.matching import MATCHED
from adaptive_ot.entropic.solver import Entropic
from adaptive_ot.exact.solver import Exact
from adaptive_ot.marginals import Marginals


@dataclass(eq=False, repr=False)
class TransportAdapter(OneToOneFeatureMixin, TransformerMixin, DomainEstimator):
    """Moves sources to the target domain along the transport plan; targets stay where they are.

    The transported share of a source moves to the mean of its targets; the rest shifts by the average displacement.
    Samples that were not fitted move like the nearest fitted source.

    Train on moved sources alone: SKADA's pipelines do so, but scikit-learn's pipelines pass on all samples with all
    labels, including those of targets.

    Parameters
    ----------
    marginals
        The transport model: `AtMost()`, adaptive, by default; pairs clearly closer than the median attract mass.
    solver
        `Entropic(0.1)` by default, or `Exact()`. Costs are distances in units of twice their standard deviation.
    unmatched
        The `sample_weight_` of sources: ``"keep"``, 1 for all; ``"drop"``, 0 for unmatched ones; ``"weight"``, their
        transported share. With the last two and a given `sample_domain`, `fit_transform` returns features and
        ``{"sample_weight": weights}``, like adapters of SKADA; the next step of a SKADA pipeline must request it, as in
        ``LogisticRegression().set_fit_request(sample_weight=True)``.
    batch_size, random_state
        As for `JointTransportClassifier`.

    Attributes
    ----------
    sample_weight_
        A weight for every fitted sample, in their order.
    transported_mass_, source_share_, target_share_, active_source_, active_target_, solution_
        As for `JointTransportClassifier`.
    target_outlier_score_
        The unmatched share of every target.

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

    marginals: Marginals | None = None
    solver: Exact | Entropic | None = None
    unmatched: str = "keep"
    batch_size: int = 4096
    random_state: Any = 0

    def fit(self, X: Any, y: Any = None, *, sample_domain: Any = None, group: Any = None) -> TransportAdapter:
        """Match sources (domain >= 0) and targets (< 0); labels are ignored.

        Without `sample_domain` all samples are sources, and nothing moves. `group` is as for
        `JointTransportClassifier`.
        """
        return self._fit_together(group, X, y, sample_domain)

    def _fit(self, X: Any, y: Any, sample_domain: Any) -> None:
        check.choice("unmatched", self.unmatched, ("keep", "drop", "weight"))
        source, x, _, z = self._split(X, None, sample_domain, labels=None)
        matching = self._matcher(x, z, np.zeros(len(x))).by_distance(np.zeros(len(x)), 1.0)
        self._publish(matching)
        self.sample_weight_ = np.ones(len(source))
        if self.unmatched == "drop":
            self.sample_weight_[source] = matching.source_share > MATCHED
        elif self.unmatched == "weight":
            self.sample_weight_[source] = np.minimum(1.0, matching.source_share)
        self._displacement = matching.moved - x
        self._nearest = Nearest(x)

    def transform(self, X: Any, *, sample_domain: Any = None, allow_source: bool = True) -> np.ndarray:
        """Move sources (domain >= 0) to the target domain; targets, and samples of unknown domain, stay.

        `allow_source` is for pipelines, and ignored.
        """
        X = self._checked(X)
        if sample_domain is None:
            return X
        source = source_mask(sample_domain, len(X), both=False)
        result = X.copy()
        if source.any():
            result[source] += self._displacement[self._nearest.index(X[source])]
        return result

    def fit_transform(self, X: Any, y: Any = None, *, sample_domain: Any = None, group: Any = None, **_: Any) -> Any:
        """Fit and move the fitted samples; returns weights as well, unless unmatched sources are kept."""
        self.fit(X, y, sample_domain=sample_domain, group=group)
        if sample_domain is None:
            return self.transform(X)
        moved = self._checked(X).copy()
        moved[source_mask(sample_domain, len(moved))] += self._displacement  # equal samples may move differently
        return moved if self.unmatched == "keep" else (moved, {"sample_weight": self.sample_weight_})
