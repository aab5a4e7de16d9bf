"""Sources and targets: how they are told apart, checked, and announced to scikit-learn."""

from __future__ import annotations

from abc import abstractmethod
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite, check_is_fitted, column_or_1d, validate_data

from adaptive_ot import _meant as meant
from adaptive_ot import _validation as check
from adaptive_ot.adapt.coordinates import Coordinates
from adaptive_ot.adapt.matching import MATCHED, Matcher, Matching
from adaptive_ot.adapt.together import Together, described
from adaptive_ot.entropic.solver import Entropic
from adaptive_ot.errors import InvalidInput
from adaptive_ot.exact.solver import Exact
from adaptive_ot.marginals import Marginals

# Squares of float32 features, and their sums, keep all digits if the largest feature lies between these bounds.
SINGLE = 1e-12, 1e15


class DomainEstimator(BaseEstimator):
    """The base of all estimators: routes `sample_domain`, splits samples into domains, and matches them.

    The metadata requests are class attributes: estimators work inside pipelines, `cross_validate` and `GridSearchCV`
    wherever metadata routing is switched on, and alone without it.
    """

    __metadata_request__fit: ClassVar = {"sample_domain": True, "group": UNUSED}
    __metadata_request__predict: ClassVar = {"sample_domain": True, "allow_source": True}
    __metadata_request__predict_proba: ClassVar = {"sample_domain": True, "allow_source": True}
    __metadata_request__score: ClassVar = {"sample_domain": True, "allow_source": True}

    marginals: Marginals | None
    solver: Exact | Entropic | None
    batch_size: int
    random_state: Any

    def _fit_together(self, group: Any, X: Any, y: Any, sample_domain: Any) -> Self:
        """Fit as `_fit` of every estimator does, among the processes of the group if there is one."""
        self._together = Together(group)
        try:
            with self._together.in_step(lambda: described(self, X, y, sample_domain)):
                self._fit(X, y, sample_domain)
        finally:
            del self._together  # a group cannot be copied
        return self

    @abstractmethod
    def _fit(self, X: Any, y: Any, sample_domain: Any) -> None: ...

    def _split(self, X: Any, y: Any, sample_domain: Any, *, labels: bool | None) -> tuple[np.ndarray, Any, Any, Any]:
        """Check samples: which are sources, the sources, their labels, and the targets.

        `labels` is True for classes, False for numbers, and None if labels are not used.
        """
        check.whole_number("batch_size", self.batch_size, minimum=1)
        if not isinstance(self.marginals, Marginals | None):
            raise meant.model(self.marginals, pairs=False)
        if not isinstance(self.solver, Exact | Entropic | None):
            raise meant.solver(self.solver)
        if labels is not None and y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        X = self._features(X, ensure_min_samples=1 if labels is None else 2)
        largest = float(np.abs(X).max())
        if 0 < largest < check.SMALLEST:
            raise InvalidInput("X", f"must reach {check.SMALLEST:g}, or be zero", largest, "Scale the features up.")
        if X.dtype == np.float32 and not SINGLE[0] < largest < SINGLE[1]:
            X = X.astype(np.float64)
        source = source_mask(sample_domain, len(X))
        y = None if labels is None else _source_labels(y, source, classes=labels)
        return source, X[source], y, X[~source]

    def _features(self, X: Any, **rules: Any) -> Any:
        """Finite features with finite squares."""
        X = validate_data(self, X, dtype=(np.float64, np.float32), **rules)
        if not float(max(X.max(), -X.min())) <= check.LARGEST:
            rule = f"must hold numbers up to {check.LARGEST:g}"
            raise InvalidInput("X", rule, np.abs(X).max(), "Scale the features down.")
        return X

    def _checked(self, X: Any) -> Any:
        """Features of samples that a fitted estimator is asked about."""
        check_is_fitted(self)
        return self._features(X, reset=False)

    def _matcher(self, x: np.ndarray, z: np.ndarray, strata: np.ndarray) -> Matcher:
        seed, model = check_random_state(self.random_state), {"marginals": self.marginals, "solver": self.solver}
        return Matcher(x, z, strata, **model, batch_size=self.batch_size, seed=seed, together=self._together)

    def _scaled_matcher(self, x: np.ndarray, z: np.ndarray, strata: np.ndarray) -> Matcher:
        """A matcher in coordinates of both domains, whose typical distance becomes their unit."""
        self._coordinates = Coordinates(np.concatenate([x, z]))
        matcher = self._matcher(self._coordinates.of(x), self._coordinates.of(z), strata)
        self._coordinates.unit = float(np.sqrt(matcher.typical))
        return matcher

    def _publish(self, matching: Matching) -> None:
        """Set the fitted attributes that describe the last plan."""
        self.transported_mass_ = matching.mass
        self.source_share_, self.target_share_ = matching.source_share, matching.target_share
        self.active_source_ = matching.source_share > MATCHED
        self.active_target_ = matching.target_share > MATCHED
        self.target_outlier_score_ = 1.0 - np.minimum(1.0, matching.target_share)
        self.solution_ = matching.solution


def source_mask(sample_domain: Any, samples: int, *, both: bool = True) -> np.ndarray:
    """Mark the sources: all samples if `sample_domain` is None; otherwise there must be samples of `both` domains."""
    if sample_domain is None:
        return np.ones(samples, dtype=bool)
    remedy = "Use >= 0 for sources, < 0 for targets."
    try:
        domain = np.asarray(sample_domain)
    except ValueError as error:
        raise InvalidInput("sample_domain", "must be a list of numbers", error, remedy) from None
    if domain.shape != (samples,):
        rule = f"must have one number per sample ({samples})"
        raise InvalidInput("sample_domain", rule, f"shape {domain.shape}", remedy)
    by_mask = "Write sample_domain=np.where(is_target, -1, 0)."
    numbers = domain.dtype.kind in check.REAL and domain.dtype != bool  # False would be a source
    if not numbers or not np.isfinite(domain).all():
        given = "NaN or infinity" if numbers else f"dtype {domain.dtype}"
        remedy = by_mask if domain.dtype == bool else remedy
        raise InvalidInput("sample_domain", "must hold finite numbers", given, remedy)
    source = domain >= 0
    if both and (source.all() or not source.any()):
        rule = f"must mark some samples as {'target (< 0)' if source.any() else 'source (>= 0)'}"
        if set(np.unique(domain).tolist()) == {0, 1}:
            raise InvalidInput("sample_domain", rule, "only 0 and 1", by_mask)
        remedy = "Give samples of both domains, or omit sample_domain to fit without adaptation."
        raise InvalidInput("sample_domain", rule, f"{samples} samples of the other domain", remedy)
    return source


def _source_labels(y: Any, source: np.ndarray, *, classes: bool) -> np.ndarray:
    """The labels of the sources: classes, or numbers."""
    y = column_or_1d(y.to_numpy() if hasattr(y, "iloc") else np.asarray(y), warn=True)
    if len(y) != len(source):
        remedy = "Targets need a label, too; any will do."
        raise InvalidInput("y", f"must have one label per sample ({len(source)})", len(y), remedy)
    y = plain(y[source])
    if not classes:
        try:
            y = y.astype(np.float64)
        except (TypeError, ValueError) as error:
            remedy = "Convert them, or use a classifier."
            raise InvalidInput("y", "must hold numbers for sources", error, remedy) from None
    assert_all_finite(y, input_name="y")
    if classes:
        try:
            np.unique(y)
        except TypeError as error:
            raise InvalidInput("y", "must hold labels of one type for sources", error, "Label all of them.") from None
        check_classification_targets(y)
    return y


def plain(y: np.ndarray) -> np.ndarray:
    """Labels with their own type: numbers beside None or text arrive as objects."""
    if y.dtype == object and all(isinstance(label, Real | np.bool_) for label in y):
        return np.array(y.tolist())
    return y
