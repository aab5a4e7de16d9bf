"""Which samples are sources, which are targets, and what scikit-learn must know about it."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite, column_or_1d, validate_data

from adaptive_ot import _validation as check
from adaptive_ot.adapt.matching import TAKES_PART, Matcher, Matching
from adaptive_ot.entropic.solver import Entropic
from adaptive_ot.errors import InvalidInput
from adaptive_ot.exact.solver import Exact
from adaptive_ot.marginals import Marginals

FEATURES = (np.float64, np.float32)

# Squares of float32 features have all their digits, and a sum, if the largest of them lies in between.
SINGLE = 1e-12, 1e15


class Domains(NamedTuple):
    """The samples of both domains; `source` says which of all samples are sources."""

    source: np.ndarray
    x: np.ndarray
    y: Any
    z: np.ndarray


class DomainEstimator(BaseEstimator):
    """What our estimators share: where `sample_domain` is routed to, and how samples are told apart.

    The requests are class attributes, so that estimators work inside pipelines, `cross_validate` and `GridSearchCV`
    wherever metadata routing is switched on, and nothing has to be switched on for using them alone.
    """

    __metadata_request__fit: ClassVar = {"sample_domain": True}
    __metadata_request__predict: ClassVar = {"sample_domain": True, "allow_source": True}
    __metadata_request__predict_proba: ClassVar = {"sample_domain": True, "allow_source": True}
    __metadata_request__score: ClassVar = {"sample_domain": True, "allow_source": True}

    marginals: Marginals | None
    solver: Exact | Entropic | None
    batch_size: int
    random_state: Any

    def _domains(self, X: Any, y: Any, sample_domain: Any, *, labels: bool | None) -> Domains:
        """Check and split samples; `labels`: True for classes, False for numbers, None if they are not used."""
        check.whole_number("batch_size", self.batch_size, minimum=1)
        if self.marginals is not None:
            check.instance("marginals", self.marginals, Marginals)
        if self.solver is not None:
            check.instance("solver", self.solver, Exact, Entropic)
        if labels is not None and y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        X = self._features(X, ensure_min_samples=1 if labels is None else 2)
        largest = float(np.abs(X).max())
        if 0 < largest < check.SMALLEST:
            raise InvalidInput("X", f"must reach {check.SMALLEST:g}, or be zero", largest, "Scale the features up.")
        if X.dtype == np.float32 and not SINGLE[0] < largest < SINGLE[1]:
            X = X.astype(np.float64)
        source = source_mask(sample_domain, len(X))
        if labels is None:
            return Domains(source, X[source], None, X[~source])
        y = np.asarray(y) if not hasattr(y, "iloc") else y.to_numpy()
        y = column_or_1d(y, warn=True)
        if len(y) != len(X):
            raise InvalidInput(
                "y", f"must have one label a sample ({len(X)})", len(y), "Targets need one, of any kind."
            )
        y = plain(y[source])
        if not labels:
            y = _numbers(y)
        assert_all_finite(y, input_name="y")
        if labels:
            _check_order(y)
            check_classification_targets(y)
        return Domains(source, X[source], y, X[~source])

    def _features(self, X: Any, **rules: Any) -> Any:
        """Finite features whose squares are finite, too."""
        X = validate_data(self, X, dtype=FEATURES, **rules)
        if not float(max(X.max(), -X.min())) <= check.LARGEST:
            rule = f"must hold numbers up to {check.LARGEST:g}"
            raise InvalidInput("X", rule, np.abs(X).max(), "Scale the features down.")
        return X

    def _matcher(self, x: np.ndarray, z: np.ndarray, strata: np.ndarray) -> Matcher:
        seed = check_random_state(self.random_state)
        return Matcher(
            x, z, strata, marginals=self.marginals, solver=self.solver, batch_size=self.batch_size, seed=seed
        )

    def _keep(self, matching: Matching) -> None:
        """Tell the user what the last plan says about the samples."""
        self.transported_mass_ = matching.mass
        self.source_share_, self.target_share_ = matching.source_share, matching.target_share
        self.active_source_ = matching.source_share > TAKES_PART
        self.active_target_ = matching.target_share > TAKES_PART
        self.target_outlier_score_ = 1.0 - np.minimum(1.0, matching.target_share)
        self.solution_ = matching.solution


def source_mask(sample_domain: Any, samples: int, *, both: bool = True) -> np.ndarray:
    """Which samples are sources: all, if nothing is said about domains; `both` must be there, if one is asked for."""
    if sample_domain is None:
        return np.ones(samples, dtype=bool)
    remedy = "Use >= 0 for sources, < 0 for targets."
    try:
        domain = np.asarray(sample_domain)
    except ValueError as error:
        raise InvalidInput("sample_domain", "must be a list of numbers", error, remedy) from None
    if domain.shape != (samples,):
        rule = f"must have one number a sample ({samples})"
        raise InvalidInput("sample_domain", rule, f"shape {domain.shape}", remedy)
    numbers = domain.dtype.kind in check.REAL and domain.dtype != bool  # False would be a source
    if not numbers or not np.isfinite(domain).all():
        given = "NaN or infinity" if numbers else f"dtype {domain.dtype}"
        raise InvalidInput("sample_domain", "must hold finite numbers", given, remedy)
    source = domain >= 0
    for name, missing, which in (
        () if not both else (("source", not source.any(), ">= 0"), ("target", source.all(), "< 0"))
    ):
        if missing:
            rule = f"must mark some samples as {name} ({which})"
            remedy = "Give samples of both domains, or no sample_domain to fit without adaptation."
            raise InvalidInput("sample_domain", rule, f"{samples} samples of the other domain", remedy)
    return source


def plain(y: np.ndarray) -> np.ndarray:
    """Labels of the type they have: numbers that stood beside None or text came as objects."""
    if y.dtype == object and all(isinstance(label, Real | np.bool_) for label in y):
        return np.array(y.tolist())
    return y


def _check_order(y: np.ndarray) -> None:
    try:
        np.unique(y)
    except TypeError as error:
        raise InvalidInput("y", "must hold labels of one type for sources", error, "Label all of them.") from None


def _numbers(y: np.ndarray) -> np.ndarray:
    try:
        return y.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInput("y", "must hold numbers for sources", error, "Convert them, or use a classifier.") from None
