"""Our own methods for feature benchmarks: adaptive transport, and its family for comparison."""

from __future__ import annotations

from typing import Any

import numpy as np

from adaptive_ot.costs import JointCost
from adaptive_ot.entropic.solver import Entropic
from adaptive_ot.marginals import Equal, FixedMass, SoftKL
from adaptive_ot.solve import solve
from adaptive_ot.workbench.benchmark.method import FeatureMethod, Prediction, classifier, stacked

# Unbalanced transport has no exact solver. The joint cost is scale-free: this much entropy is as much everywhere.
SOFT = {"marginals": SoftKL(0.5), "solver": Entropic(0.05)}


def joint(**settings: Any) -> FeatureMethod:
    """Features and labels matched jointly, with settings of the classifier, as one of the models of the family."""

    def run(x_source: np.ndarray, y_source: np.ndarray, x_target: np.ndarray) -> Prediction:
        from adaptive_ot.adapt import JointTransportClassifier

        return _fitted(JointTransportClassifier(**settings), x_source, y_source, x_target)

    return FeatureMethod(run)


def labels(x_source: np.ndarray, y_source: np.ndarray, x_target: np.ndarray) -> Prediction:
    """Labels that travel along the plan."""
    from adaptive_ot.adapt import LabelTransportClassifier

    return _fitted(LabelTransportClassifier(), x_source, y_source, x_target)


def in_place(x_source: np.ndarray, y_source: np.ndarray, x_target: np.ndarray) -> Prediction:
    """Plans that start from the source classifier; it learns the labels they send, and no source moves."""
    from adaptive_ot.adapt.heads import EstimatorHead

    classes, members = np.unique(y_source, return_inverse=True)
    p, alike = np.eye(len(classes))[members], np.ones(len(members))
    head = EstimatorHead(classifier(), len(classes))
    head.fit(x_source, p, alike)
    for _ in range(2):
        cost = JointCost(x_source, x_target, p, head.probabilities(x_target))
        sent = solve(cost, solver=Entropic(0.1)).plan.T @ p * len(p)
        both, shares = np.concatenate([x_source, x_target]), np.concatenate([p, sent])
        head.fit(both, shares, np.ones(len(both)))
    return Prediction(classes[head.probabilities(x_target).argmax(axis=1)])


def mapping(x_source: np.ndarray, y_source: np.ndarray, x_target: np.ndarray) -> Prediction:
    """Sources that are moved to the target, and a classifier trained on them where they arrive."""
    from adaptive_ot.adapt import TransportAdapter

    x, y, domain = stacked(x_source, y_source, x_target)
    adapter = TransportAdapter().fit(x, y, sample_domain=domain)
    moved = adapter.transform(x_source, sample_domain=np.ones(len(x_source), dtype=int))
    return _prediction(adapter, classifier().fit(moved, y_source).predict(x_target))


def _fitted(model: Any, x_source: np.ndarray, y_source: np.ndarray, x_target: np.ndarray) -> Prediction:
    x, y, domain = stacked(x_source, y_source, x_target)
    model.fit(x, y, sample_domain=domain)
    return _prediction(model, model.predict(x_target))


def _prediction(model: Any, predicted: np.ndarray) -> Prediction:
    mass, score = getattr(model, "transported_mass_", None), getattr(model, "target_outlier_score_", None)
    low, high = getattr(model, "overlap_interval_", (None, None))
    estimates = {
        "overlap": getattr(model, "overlap_", None),
        "overlap_low": low,
        "overlap_high": high,
        "adapted": getattr(model, "adapted_", None),
    }
    return Prediction(
        predicted, mass, score, {name: float(each) for name, each in estimates.items() if each is not None}
    )


OURS = {
    "AOT (joint)": joint(),
    "AOT (joint), no guard": joint(guard=False),
    "AOT in place": FeatureMethod(in_place),
    "AOT mapping": FeatureMethod(mapping),
    "AOT labels": FeatureMethod(labels),
    "Kantorovich (joint)": joint(marginals=Equal()),
    "partial 0.5 (joint)": joint(marginals=FixedMass(0.5)),
    "partial 0.75 (joint)": joint(marginals=FixedMass(0.75)),
    "unbalanced 0.5 (joint)": joint(**SOFT),
}
