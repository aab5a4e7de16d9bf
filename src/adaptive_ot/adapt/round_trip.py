"""A score of an adaptation that needs no label of the target."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils import _safe_indexing
from sklearn.utils.metadata_routing import MetadataRequest

from adaptive_ot.adapt.domains import plain, source_mask
from adaptive_ot.errors import InvalidInput


class RoundTripScore(BaseEstimator):
    """Adapt back from the target, with the labels predicted for it, to the source, and score there.

    The score is that of the way back on the true labels of the sources (reverse validation). Wrong labels of targets
    rarely lead back to the right labels of sources, so the score can choose `kappa`, `beta` and epsilon; labels of
    targets are never read. It is a scorer for `GridSearchCV` and `cross_validate`, which need
    ``sklearn.set_config(enable_metadata_routing=True)`` to pass `sample_domain` on to it.

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

    def get_metadata_routing(self) -> MetadataRequest:
        """The metadata that searches pass on; without a method `score`, a class attribute is not enough."""
        request = MetadataRequest(owner=type(self).__name__)
        request.score.add_request(param="sample_domain", alias=True)
        return request

    def __call__(self, estimator: Any, X: Any, y: Any, *, sample_domain: Any = None) -> float:
        """The score of the way back, for a fitted estimator and samples of both domains."""
        if sample_domain is None:
            remedy = "Pass it, or in a search call sklearn.set_config(enable_metadata_routing=True)."
            raise InvalidInput("sample_domain", "is needed to tell sources from targets", None, remedy)
        y = np.asarray(y)
        source = source_mask(sample_domain, len(X))
        if y.shape != source.shape:
            raise InvalidInput(
                "y",
                f"must have one label per sample ({len(source)})",
                f"shape {y.shape}",
                "Targets need a label, too; any will do.",
            )
        sources, targets = np.flatnonzero(source), np.flatnonzero(~source)
        predicted = estimator.predict(_safe_indexing(X, targets))
        classes = getattr(estimator, "classes_", None)
        labelled = np.isfinite(predicted) if classes is None else np.isin(predicted, classes)
        if not labelled.any():
            return 0.0
        way_back = _safe_indexing(X, np.concatenate([targets[labelled], sources]))
        guessed = predicted[labelled] if classes is None else predicted[labelled].astype(classes.dtype)
        unknown = np.resize(guessed, len(sources))  # ignored, like all labels of targets
        domain = np.repeat([0, -1], [labelled.sum(), len(sources)])
        back: Any = clone(estimator)
        if classes is None:  # rejected numbers have no error
            back.set_params(**{name: None for name in back.get_params() if name.endswith("reject_label")})
        back.fit(way_back, np.concatenate([guessed, unknown]), sample_domain=domain)
        return float(back.score(_safe_indexing(X, sources), plain(y[source])))
