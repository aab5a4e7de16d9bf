"""Classifiers that learn from soft labels: class shares and a weight for every sample."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter
from threadpoolctl import threadpool_limits

from adaptive_ot import _validation as check
from adaptive_ot.errors import InvalidInput

# Inverse strength of regularisation, like C in scikit-learn, for features of typical squared distance 1.
STRENGTH = 10.0

# L-BFGS stops if no derivative of the mean loss is larger, as in scikit-learn, or after this many steps.
TOLERANCE = 1e-4
STEPS = 1000

# Smaller shares of a label get no row of their own for a classifier that needs hard labels.
SMALLEST_SHARE = 0.02

# Folds of a cross-validation.
FOLDS = 3


class LinearHead:
    """Multinomial logistic regression; every fit starts where the last one ended."""

    def __init__(self) -> None:
        self.weights = np.zeros((0, 0))

    def fit(self, x: np.ndarray, shares: np.ndarray, weights: np.ndarray) -> None:
        """Minimise the weighted mean of the cross-entropies + |W|^2 / (2 STRENGTH sum of weights); the bias is free."""
        if not self.weights.size:
            self.weights = np.zeros((x.shape[1] + 1, shares.shape[1]))
        targets = (weights / weights.sum())[:, None] * shares
        decay = 1.0 / (STRENGTH * weights.sum())
        total = targets.sum(axis=1, keepdims=True)

        def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
            w = flat.reshape(self.weights.shape)
            scores = x @ w[:-1] + w[-1]
            log_shares = log_softmax(scores, axis=1)
            wrong = np.exp(log_shares) * total - targets
            gradient = np.vstack([x.T @ wrong + decay * w[:-1], wrong.sum(axis=0)])
            value = 0.5 * decay * np.sum(w[:-1] ** 2) - np.sum(targets * log_shares)
            return float(value), gradient.ravel()

        options = {"maxiter": STEPS, "gtol": TOLERANCE, "ftol": 64 * np.finfo(np.float64).eps}
        with threadpool_limits(1, "blas"):  # the products are too small for threads, which would spin while they wait
            found = minimize(loss, self.weights.ravel(), jac=True, method="L-BFGS-B", options=options)
        self.weights = found.x.reshape(self.weights.shape)

    def probabilities(self, x: np.ndarray) -> np.ndarray:
        """Class probabilities, one row per sample."""
        return softmax(x @ self.weights[:-1] + self.weights[-1], axis=1)


class EstimatorHead:
    """Any scikit-learn classifier with sample weights and `predict_proba`; soft labels become weighted copies."""

    def __init__(self, estimator: Any, classes: int) -> None:
        check_learner(estimator, "predict_proba")
        if not has_fit_parameter(estimator, "sample_weight"):
            remedy = "Use another, such as LogisticRegression(); end a pipeline with our estimator instead."
            raise InvalidInput("estimator", "must accept sample_weight in fit", check.describe(estimator), remedy)
        self.estimator: Any = clone(estimator)
        self.classes = classes

    def fit(self, x: np.ndarray, shares: np.ndarray, weights: np.ndarray) -> None:
        """Fit on one copy of a sample for each of its classes."""
        rows, labels = np.nonzero((shares > SMALLEST_SHARE) & (weights[:, None] > 0))
        self.estimator.fit(x[rows], labels, sample_weight=shares[rows, labels] * weights[rows])

    def probabilities(self, x: np.ndarray) -> np.ndarray:
        """Class probabilities, one row per sample; zero for classes without samples."""
        result = np.zeros((len(x), self.classes))
        result[:, self.estimator.classes_] = self.estimator.predict_proba(x)
        return result


def held_out(new_head: Callable[[], LinearHead | EstimatorHead], x: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Class probabilities of labelled samples by classifiers that were not fitted on them.

    Samples are dealt out to the folds like cards, class by class. If a fold leaves a single class to learn from, all
    samples are predicted by one classifier that knows them.
    """
    order = np.argsort(shares.argmax(axis=1), kind="stable")
    fold = np.empty(len(x), dtype=np.intp)
    fold[order] = np.arange(len(x)) % FOLDS
    learnt = [fold != number for number in range(FOLDS)]
    if any(np.count_nonzero(shares[rows].any(axis=0)) < 2 for rows in learnt):
        learnt = [np.ones(len(x), dtype=bool)]
    result = np.empty(shares.shape)
    for rows in learnt:
        head = new_head()
        head.fit(x[rows], shares[rows], np.ones(np.count_nonzero(rows)))
        judged = slice(None) if rows.all() else ~rows
        result[judged] = head.probabilities(x[judged])
    return result


def check_learner(estimator: Any, method: str) -> None:
    """`estimator` is an instance that can be cloned and fitted, and has this method."""
    if isinstance(estimator, type) or not all(hasattr(estimator, name) for name in ("get_params", "fit", method)):
        remedy = f"Give an instance with fit and {method}."
        raise InvalidInput("estimator", f"must be an estimator with {method}", check.describe(estimator), remedy)
