"""How well an adaptation did, judged without any label of the target."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils.metadata_routing import MetadataRequest

from adaptive_ot.adapt.domains import source_mask
from adaptive_ot.errors import InvalidInput


class RoundTripScore:
    """There and back again: adapt from the target, with the labels that were predicted for it, to the source.

    The score of the way back is the score on the true labels of the sources (reverse validation). Wrong labels of
    targets rarely lead back to the right labels of sources, so the best `kappa`, `beta` and epsilon can be chosen by
    it; labels of targets are never read. It is a scorer for `GridSearchCV` and `cross_validate`, which need
    ``sklearn.set_config(enable_metadata_routing=True)`` to hand `sample_domain` on to it.

    Examples
    --------
    >>> import numpy as np
    >>> from adaptive_ot.adapt import JointTransportClassifier, RoundTripScore
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1], 50)
    >>> x = rng.normal(size=(100, 2)) + 8 * np.c_[y, y]
    >>> X, domain = np.concatenate([x, x + [5, -5]]), np.repeat([0, -1], 100)
    >>> model = JointTransportClassifier().fit(X, np.tile(y, 2), sample_domain=domain)
    >>> float(RoundTripScore()(model, X, np.tile(y, 2), sample_domain=domain))
    1.0
    """

    def __call__(self, estimator: Any, X: Any, y: Any, *, sample_domain: Any = None) -> float:
        """The score of the way back, of a fitted estimator and samples of both domains."""
        if sample_domain is None:
            remedy = "Pass it, or in a search: sklearn.set_config(enable_metadata_routing=True)."
            raise InvalidInput("sample_domain", "is needed to tell sources from targets", None, remedy)
        X, y = np.asarray(X), np.asarray(y)
        source = source_mask(sample_domain, len(X))
        there = estimator.predict(X[~source])
        labelled = np.isin(there, estimator.classes_) if hasattr(estimator, "classes_") else np.isfinite(there)
        if not labelled.any():
            return 0.0
        way_back = np.concatenate([X[~source][labelled], X[source]])
        guessed = there[labelled].astype(y.dtype)
        unknown = np.resize(guessed, source.sum())  # ignored, as labels of targets are
        domain = np.repeat([0, -1], [labelled.sum(), source.sum()])
        back: Any = clone(estimator)
        back.fit(way_back, np.concatenate([guessed, unknown]), sample_domain=domain)
        return float(back.score(X[source], y[source]))

    def get_metadata_routing(self) -> MetadataRequest:
        """A search hands `sample_domain` on to those who ask for it."""
        requests: Any = MetadataRequest(owner=type(self).__name__)
        requests.score.add_request(param="sample_domain", alias=True)
        return requests

    def __repr__(self) -> str:
        return "RoundTripScore()"
