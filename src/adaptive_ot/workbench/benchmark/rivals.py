"""The methods of POT and SKADA, simple ones without transport, and no adaptation.

Settings are the best of a few standard ones on one pair (PACS, ResNet-50 features, art painting -> cartoon, 400 samples
each), judged by the labels of the target. All distances are squared Euclidean.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from adaptive_ot.workbench.benchmark.method import POT, SKADA, SKLEARN, FeatureMethod, Prediction, classifier, stacked


def source_only(x_source: np.ndarray, y_source: np.ndarray, x_target: np.ndarray) -> Prediction:
    """No adaptation."""
    from scipy.special import entr

    model = classifier().fit(x_source, y_source)
    p = model.predict_proba(x_target)
    other_scores = {"entropy": entr(p).sum(axis=1)}
    return Prediction(model.predict(x_target), outlier_score=1 - p.max(axis=1), other_scores=other_scores)


def centred(x_source: np.ndarray, y_source: np.ndarray, x_target: np.ndarray) -> Prediction:
    """The simplest adaptation: the mean of each domain is subtracted."""
    return source_only(x_source - x_source.mean(axis=0), y_source, x_target - x_target.mean(axis=0))


def self_training(x_source: np.ndarray, y_source: np.ndarray, x_target: np.ndarray) -> Prediction:
    """The classifier learns from its own answers on the target, weighted by their probabilities, in 6 rounds."""
    model = classifier().fit(x_source, y_source)
    x = np.concatenate([x_source, x_target])
    for _ in range(6):
        confidence = model.predict_proba(x_target).max(axis=1)
        weights = np.concatenate([np.ones(len(x_source)), confidence * len(x_source) / confidence.sum()])
        y = np.concatenate([y_source, model.predict(x_target)])
        model = classifier().fit(x, y, sample_weight=weights)
    return Prediction(model.predict(x_target))


def neighbour_smoothing(x_source: np.ndarray, y_source: np.ndarray, x_target: np.ndarray) -> Prediction:
    """No adaptation, but probabilities are averaged over a target and the 10 targets nearest to it."""
    from sklearn.neighbors import NearestNeighbors

    model = classifier().fit(x_source, y_source)
    near = NearestNeighbors(n_neighbors=min(10, len(x_target) - 1)).fit(x_target).kneighbors(return_distance=False)
    p = model.predict_proba(x_target)
    return Prediction(model.classes_[(p + p[near].sum(axis=1)).argmax(axis=1)])


def nearest_class_mean(x_source: np.ndarray, y_source: np.ndarray, x_target: np.ndarray) -> Prediction:
    """The class of the source whose mean is nearest."""
    from sklearn.neighbors import NearestCentroid

    return Prediction(NearestCentroid().fit(x_source, y_source).predict(x_target))


def nearest_neighbours(x_source: np.ndarray, y_source: np.ndarray, x_target: np.ndarray) -> Prediction:
    """The most frequent class among the 10 nearest sources; outliers are far from the tenth."""
    from sklearn.neighbors import KNeighborsClassifier

    model = KNeighborsClassifier(n_neighbors=min(10, len(x_source))).fit(x_source, y_source)
    return Prediction(model.predict(x_target), outlier_score=model.kneighbors(x_target)[0][:, -1])


def label_shift(x_source: np.ndarray, y_source: np.ndarray, x_target: np.ndarray) -> Prediction:
    """Probabilities corrected by class shares of the target, estimated by EM (Saerens et al., 2002)."""
    model = classifier().fit(x_source, y_source)
    shares = np.unique(y_source, return_counts=True)[1] / len(y_source)
    p = model.predict_proba(x_target) / shares
    for _ in range(1000):
        posterior = p * shares
        posterior /= posterior.sum(axis=1, keepdims=True)
        before, shares = shares, posterior.mean(axis=0)
        if np.abs(shares - before).max() < 1e-6:
            break
    return Prediction(model.classes_[(p * shares).argmax(axis=1)])


def confusion_shift(x_source: np.ndarray, y_source: np.ndarray, x_target: np.ndarray) -> Prediction:
    """The same with class shares that explain the number of predictions, given the mistakes on held-out sources.

    As BBSE (Lipton et al., 2018), but with non-negative least squares, as the inverse of the confusion matrix may give
    negative shares, and with corrected probabilities instead of a second, weighted fit.
    """
    from scipy.optimize import nnls
    from sklearn.model_selection import cross_val_predict

    model = classifier().fit(x_source, y_source)
    said, known = model.predict_proba(x_target), cross_val_predict(classifier(), x_source, y_source, cv=3)
    confusion = np.array([[np.mean((known == k) & (y_source == j)) for j in model.classes_] for k in model.classes_])
    counts = np.mean(model.predict(x_target)[:, None] == model.classes_, axis=0)
    return Prediction(model.classes_[(said * nnls(confusion, counts)[0]).argmax(axis=1)])


def pot(transport: str, **settings: Any) -> FeatureMethod:
    """Move the sources with a class of `ot.da`, and train on them where they arrive."""

    def run(x_source: np.ndarray, y_source: np.ndarray, x_target: np.ndarray) -> Prediction:
        import ot.da

        # Entropic plans underflow unless costs are scaled; reg_e is then relative to their median.
        move = getattr(ot.da, transport)(norm="median", **settings)
        moved = move.fit(Xs=x_source, ys=y_source, Xt=x_target).transform(Xs=x_source)
        return Prediction(classifier().fit(moved, y_source).predict(x_target))

    return FeatureMethod(run, (SKLEARN, POT))


def skada(build: Callable[[Any, tuple[int, int]], Any]) -> FeatureMethod:
    """A model of SKADA, built from the module and the shape of the smaller domain."""

    def run(x_source: np.ndarray, y_source: np.ndarray, x_target: np.ndarray) -> Prediction:
        import sklearn

        # Importing SKADA switches metadata routing on globally; the context restores it.
        with sklearn.config_context(enable_metadata_routing=True):
            import skada

            x, y, domain = stacked(x_source, y_source, x_target)
            model = build(skada, (min(len(x_source), len(x_target)), x.shape[1]))
            model.fit(x, y, sample_domain=domain)
            return Prediction(model.predict(x_target))

    return FeatureMethod(run, (SKLEARN, POT, SKADA))


def _jdot(module: Any, _: tuple[int, int]) -> Any:
    # 0.1, 0.3, 0.5, 0.7, 0.9 tried, 0.7 is as good; it divides costs by their mean, and fits with weights.
    return module.JDOTClassifier(classifier().set_fit_request(sample_weight=True), alpha=0.5)


def _ot_mapping(module: Any, _: tuple[int, int]) -> Any:
    return module.OTMapping(classifier(), norm="median")


def _entropic_ot_mapping(module: Any, _: tuple[int, int]) -> Any:
    return module.EntropicOTMapping(classifier(), norm="median", reg_e=0.05)  # as for POT


def _coral(module: Any, _: tuple[int, int]) -> Any:
    return module.CORAL(classifier(), reg=1e-3)  # "auto", 0, 1e-3, 1e-2, 0.1 tried


def _subspace_alignment(module: Any, shape: tuple[int, int]) -> Any:
    return module.SubspaceAlignment(classifier(), n_components=min(20, *shape))  # 10, 20, 50, 100 tried


RIVALS = {
    "source only": FeatureMethod(source_only),
    "source only, domains centred": FeatureMethod(centred),
    "self-training": FeatureMethod(self_training),
    "neighbour smoothing": FeatureMethod(neighbour_smoothing),
    "nearest class mean": FeatureMethod(nearest_class_mean),
    "k-NN": FeatureMethod(nearest_neighbours),
    "label shift (EM)": FeatureMethod(label_shift),
    "label shift (BBSE)": FeatureMethod(confusion_shift),
    "POT EMD": pot("EMDTransport"),
    "POT Sinkhorn": pot("SinkhornTransport", reg_e=0.05),  # 1, 0.1, 0.05, 0.02, 0.01 tried
    # 13 pairs of reg_e from 0.1 to 0.01 and reg_cl from 0.1 to 5 tried
    "POT Sinkhorn L1L2": pot("SinkhornL1l2Transport", reg_e=0.02, reg_cl=1.0),
    # 14 pairs of reg_e from 0.1 to 0.01 and reg_m from 0.1 to 5 tried. Between reg_m 1 and 5 lies one sample of 400,
    # and 5 is nearly balanced. The 10 iterations of the default are too few.
    "POT unbalanced": pot("UnbalancedSinkhornTransport", reg_e=0.05, reg_m=1.0, max_iter=1000),
    "SKADA JDOT": skada(_jdot),
    "SKADA OT mapping": skada(_ot_mapping),
    "SKADA entropic OT mapping": skada(_entropic_ot_mapping),
    "SKADA CORAL": skada(_coral),
    "SKADA subspace alignment": skada(_subspace_alignment),
}
