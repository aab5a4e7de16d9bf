"""Domain adaptation: scikit-learn's own checks, honesty, laws, known answers, bad input, random attacks.

Warnings are errors here (see pyproject.toml), so a RuntimeWarning on the way fails a test as well.
"""

from __future__ import annotations

import pickle  # to see that others can
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import check_estimator

import adaptive_ot as aot
from adaptive_ot.adapt import (
    JointTransportClassifier,
    LabelTransportClassifier,
    LabelTransportRegressor,
    RoundTripScore,
    TransportAdapter,
)
from adaptive_ot.adapt.heads import EstimatorHead, LinearHead
from adaptive_ot.adapt.matching import Matcher
from domains import Data, clusters, fitted, fresh, one_blas_thread  # noqa: F401

CLASSIFIERS = [
    JointTransportClassifier(),
    JointTransportClassifier(marginals=aot.Equal(), solver=aot.Exact()),
    JointTransportClassifier(marginals=aot.FixedMass(0.5)),
    JointTransportClassifier(estimator=LogisticRegression()),
    LabelTransportClassifier(),
    LabelTransportClassifier(solver=aot.Exact()),
    LabelTransportClassifier(reject_label=-7),
]
REGRESSORS = [
    LabelTransportRegressor(),
    LabelTransportRegressor(solver=aot.Exact(), estimator=LinearRegression()),
]
ADAPTERS = [
    TransportAdapter(),
    TransportAdapter(marginals=aot.Equal(), solver=aot.Exact(), unmatched="drop"),
    TransportAdapter(marginals=aot.FixedMass(0.5), unmatched="weight"),
]
PREDICTORS = [*CLASSIFIERS, *REGRESSORS]
EVERYTHING = [*PREDICTORS, *ADAPTERS]
ONE_OF_EACH = [JointTransportClassifier(), LabelTransportClassifier(), LabelTransportRegressor(), TransportAdapter()]

each = pytest.mark.parametrize("model", EVERYTHING, ids=str)
each_kind = pytest.mark.parametrize("model", ONE_OF_EACH, ids=str)


def answers(unfitted: Any, X: Any, y: Any, domain: Any, at: Any = None) -> dict[str, np.ndarray]:
    """All that a fitted model says, about the samples `at` (those it is fitted on unless told)."""
    model = fitted(unfitted, X, y, domain)
    at = X if at is None else at
    result = {
        "mass": np.asarray(model.transported_mass_),
        "source_share": model.source_share_,
        "target_share": model.target_share_,
        "active_source": model.active_source_,
        "active_target": model.active_target_,
        "outlier": model.target_outlier_score_,
    }
    if hasattr(model, "transform"):
        result["weight"] = model.sample_weight_
        result["moved"] = model.transform(at, sample_domain=np.zeros(len(at), dtype=int))
    else:
        result["prediction"] = model.predict(at)
    if hasattr(model, "predict_proba"):
        result["probability"] = model.predict_proba(at)
    return result


def round_trip(model: Any, data: Data) -> float:
    return RoundTripScore()(model, data.X, data.y, sample_domain=data.domain)


def assert_same(first: dict[str, np.ndarray], second: dict[str, np.ndarray], tolerance: float = 0.0) -> None:
    """Equal bit by bit, or up to rounding; what is no real number is always equal."""
    assert first.keys() == second.keys()
    for name, value in first.items():
        if tolerance and value.dtype.kind == "f":
            np.testing.assert_allclose(second[name], value, rtol=tolerance, atol=tolerance, err_msg=name)
        else:
            np.testing.assert_array_equal(second[name], value, err_msg=name)


def assert_sound(said: dict[str, np.ndarray], about: str = "") -> None:
    """All answers are finite, shares and scores lie where they may, and probabilities sum to 1."""
    for name, value in said.items():
        assert np.isfinite(value.astype(np.float64)).all(), f"{about}: {name}"
    assert said["mass"] == pytest.approx(said["source_share"].mean(), abs=1e-12), about
    assert (said["source_share"] >= 0).all()
    assert ((said["outlier"] >= 0) & (said["outlier"] <= 1)).all()
    if "probability" in said:
        np.testing.assert_allclose(said["probability"].sum(axis=1), 1.0, err_msg=about)
        assert (said["probability"] >= 0).all()


# scikit-learn's own checks


@pytest.mark.parametrize("model", [*EVERYTHING, TransportAdapter(unmatched="weight")], ids=str)
def test_it_is_a_scikit_learn_estimator(model):
    check_estimator(fresh(model), on_skip=None)


# Honesty: labels of targets are not read


def masked(y: np.ndarray, source: np.ndarray) -> dict[str, Any]:
    """The same labels of sources beside all that may stand for labels of targets."""
    rng = np.random.default_rng(1)
    shuffled = y.copy()
    shuffled[~source] = rng.permutation(y[~source])
    result: dict[str, Any] = {"permuted": shuffled, "list": shuffled.tolist()}
    for name, dtype, value in [
        ("minus one", y.dtype, -1),
        ("new class", y.dtype, 99),
        ("NaN", np.float64, np.nan),
        ("infinity", np.float64, np.inf),
        ("float32", np.float32, np.nan),
        ("int8", np.int8, -1),
        ("None", object, None),
        ("text", object, "?"),
        ("NaN object", object, np.nan),
    ]:
        labels = y.astype(dtype)
        labels[~source] = value
        result[name] = labels
    mixed = y.astype(object)
    mixed[~source] = rng.choice(np.array([None, "?", np.nan, 3], dtype=object), size=(~source).sum())
    result["mixed"] = mixed
    return result


@each
def test_labels_of_targets_and_numbers_of_domains_are_not_read(model):
    """The same answers to the bit, and nothing that was given is changed."""
    data, domain = clusters(), clusters().domain
    numbers = np.arange(len(data.X)) % 3
    domains = [np.where(data.source, numbers, -1 - numbers), 0.1 * domain, domain.astype(np.int8), domain.tolist()]
    expected = answers(model, *data)
    for labels in masked(data.y, data.source).values():
        before = repr(list(labels))
        assert_same(expected, answers(model, data.X, labels, domain))
        assert repr(list(labels)) == before
    for other in domains:
        assert_same(expected, answers(model, data.X, data.y, other))
    for part, old in zip(data, clusters(), strict=True):
        np.testing.assert_array_equal(part, old)
        part.flags.writeable = False
    assert_same(expected, answers(model, *data))


@pytest.mark.parametrize("model", PREDICTORS, ids=str)
def test_the_round_trip_reads_no_labels_of_targets(model):
    data = clusters()
    score = round_trip(fitted(model, *data), data)
    for name, labels in masked(data.y, data.source).items():
        model = fitted(model, data.X, labels, data.domain)
        assert round_trip(model, data._replace(y=labels)) == score, name


def test_text_labels_of_targets_may_be_longer():
    data = clusters()
    y = np.array(["a", "b", "c"])[data.y]
    other = np.where(data.source, y, "something else")
    model = JointTransportClassifier()
    assert_same(answers(model, data.X, y, data.domain), answers(model, data.X, other, data.domain))


# Laws


@each
def test_the_order_of_domains_does_not_matter(model):
    data = clusters()
    order = np.argsort(~data.source, kind="stable")
    at = data.X[::3]
    one, other = answers(model, *data, at=at), answers(model, *data.at(order), at=at)
    for found in (one, other):
        found.pop("weight", None)  # in the order of all samples
    assert_same(one, other)


@each
def test_permuting_samples_permutes_the_answers(model):
    data = clusters()
    order = np.random.default_rng(3).permutation(len(data.X))
    expected, permuted = answers(model, *data, at=data.X), answers(model, *data.at(order), at=data.X)
    sources, targets = (np.argsort(np.argsort(order[side[order]])) for side in (data.source, ~data.source))
    for name in ("source_share", "active_source"):
        expected[name] = expected[name][sources]
    for name in ("target_share", "active_target", "outlier"):
        expected[name] = expected[name][targets]
    if "weight" in expected:
        expected["weight"] = expected["weight"][order]
    assert_same(expected, permuted, tolerance=1e-5)


@each
@pytest.mark.parametrize(
    ("scale", "shift", "features", "dtype", "tolerance"),
    [
        *((scale, 0.0, 3, np.float64, 1e-6) for scale in (1e-80, 1e-3, 1e6, 1e80)),
        (1.0, 1e8, 3, np.float64, 1e-5),
        (1.0, 1e8, 20, np.float64, 1e-5),  # neighbours are found by inner products; far away digits cancel
        *((scale, 0.0, 3, np.float32, 1e-3) for scale in (1e-30, 1.0, 1e30)),  # squares are 0 or infinite in float32
    ],
)
def test_scale_and_translation_do_not_matter(model, scale, shift, features, dtype, tolerance):
    data = clusters(features=features)
    if isinstance(model, LabelTransportRegressor):
        model = fresh(model).set_params(estimator=LinearRegression())  # Ridge() has a scale of its own
    expected, changed = answers(model, *data), answers(model, (scale * data.X + shift).astype(dtype), *data[1:])
    if "moved" in changed:
        changed["moved"] = (changed["moved"].astype(np.float64) - shift) / scale
    assert_same(expected, changed, tolerance)
    if "probability" in changed:
        rounding = 1e-12 if dtype == np.float64 or model.estimator is None else 1e-6  # scikit-learn answers in float32
        np.testing.assert_allclose(changed["probability"].sum(axis=1), 1.0, rtol=rounding)


@pytest.mark.parametrize("model", CLASSIFIERS, ids=str)
def test_names_of_classes_do_not_matter(model):
    data = clusters()
    order = np.array([2, 0, 1])
    expected, renamed = answers(model, *data), answers(model, data.X, order[data.y], data.domain)
    named = np.where(expected["prediction"] >= 0, order[expected["prediction"]], expected["prediction"])
    np.testing.assert_array_equal(renamed["prediction"], named)
    np.testing.assert_allclose(renamed["probability"][:, order], expected["probability"], atol=2e-3)


@pytest.mark.parametrize("model", CLASSIFIERS[:-1], ids=str)
@pytest.mark.parametrize(
    "labels",
    [
        np.array(["ant", "bee", "cat"]),
        np.array(["ant", "bee", "cat"], dtype=object),
        np.array([-5, 0, 7]),
        np.array([0.0, 1.0, 2.0]),
        np.array([0, 1, 2], dtype=object),
        np.array([3, 4, 5], dtype=np.uint8),
        np.array([False, True]),
    ],
    ids=lambda labels: f"{labels.dtype} {labels[0]}",
)
def test_labels_of_any_type(model, labels):
    data = clusters(classes=len(labels))
    expected, renamed = answers(model, *data), answers(model, data.X, labels[data.y], data.domain)
    predicted = renamed.pop("prediction")
    np.testing.assert_array_equal(predicted, labels[expected.pop("prediction")])
    assert predicted.dtype == labels.dtype or labels.dtype == object
    assert_same(expected, renamed)


@each
def test_pickles_and_parameters(model):
    data = clusters()
    first = fitted(model, *data)
    again = pickle.loads(pickle.dumps(first))
    for method in ("predict", "predict_proba"):
        if hasattr(first, method):
            np.testing.assert_array_equal(getattr(first, method)(data.X), getattr(again, method)(data.X))
    np.testing.assert_array_equal(first.source_share_, again.source_share_)
    parameters = model.get_params(deep=False)
    other = type(model)().set_params(**parameters)
    assert_same(answers(model, *data), answers(other, *data))
    assert first.get_params(deep=False).keys() == parameters.keys()


def test_scale_does_not_matter_where_most_samples_coincide():
    """The median distance is zero then, or what rounding leaves of it."""
    rng = np.random.default_rng(0)
    for point in (0.0, 0.1):
        few = rng.normal(size=(12, 2))
        X = np.concatenate([few[:6], np.full((20, 2), point), few[6:], np.full((20, 2), point)])
        y, domain = np.arange(52) % 2, np.repeat([0, -1], 26)
        for model in ONE_OF_EACH:
            expected, scaled = answers(model, X, y, domain), answers(model, 2.0**20 * X, y, domain)
            for name in ("mass", "source_share", "target_share"):
                np.testing.assert_allclose(scaled[name], expected[name], atol=1e-6)


def test_twins_may_go_different_ways():
    X, domain = np.array([[0.0], [0.0], [10.0], [-1.0], [1.0], [11.0]]), np.repeat([0, -1], 3)
    adapter = TransportAdapter(marginals=aot.Equal(), solver=aot.Exact())
    moved = adapter.fit_transform(X, sample_domain=domain)
    assert sorted(moved[:3, 0]) == [-1.0, 1.0, 11.0]
    np.testing.assert_array_equal(moved[3:], X[3:])


# Answers known by construction, or from elsewhere


def known() -> Data:
    """Ten sources of each of three classes; ten targets of each of the first two, and ten like nothing."""
    rng = np.random.default_rng(5)
    centres = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0], [90.0, 90.0]])
    of_source, of_target = np.repeat([0, 1, 2], 10), np.repeat([0, 1, 3], 10)
    x, z = (centres[of] + 0.3 * rng.normal(size=(30, 2)) for of in (of_source, of_target))
    return Data(np.concatenate([x, z]), np.concatenate([of_source, of_target]), np.repeat([0, -1], 30))


@pytest.mark.parametrize("model", [JointTransportClassifier(), LabelTransportClassifier()], ids=str)
def test_missing_classes_and_outliers_are_left_alone(model):
    data = known()
    exact = fitted(model.set_params(solver=aot.Exact()), *data)
    assert exact.transported_mass_ == pytest.approx(2 / 3, abs=0.01)
    sent = exact.active_source_
    assert sent.sum() >= 19  # the capacity of a class is an estimate
    assert not sent[data.y[:30] == 2].any()
    np.testing.assert_array_equal(exact.active_target_, data.y[30:] != 3)
    np.testing.assert_allclose(exact.target_share_, data.y[30:] != 3, atol=0.05)
    score, strange = exact.target_outlier_score_, data.y[30:] == 3
    assert score[strange].min() > score[~strange].max() + 0.5
    np.testing.assert_array_equal(exact.predict(data.X[30:50]), data.y[30:50])
    assert exact.solution_.status.name == "OPTIMAL"

    entropic = fitted(model.set_params(solver=None), *data)
    assert entropic.transported_mass_ == pytest.approx(2 / 3, abs=0.02)
    np.testing.assert_allclose(entropic.target_share_, data.y[30:] != 3, atol=0.05)
    np.testing.assert_array_equal(entropic.active_source_, data.y[:30] != 2)
    np.testing.assert_array_equal(entropic.predict(data.X[30:50]), data.y[30:50])


def test_outliers_can_be_rejected():
    data = known()
    for label in ("unknown", -1, np.nan):
        model = fitted(LabelTransportClassifier(reject_label=label), *data)
        predicted = model.predict(data.X[30:])
        np.testing.assert_array_equal(predicted[:20], data.y[30:50])
        rejected = predicted[20:] == label if label == label else predicted[20:] != predicted[20:]
        assert rejected.all()
        assert model.score(data.X[30:], data.y[30:]) == pytest.approx(2 / 3)
    assert fitted(LabelTransportClassifier(reject_label=-1), *data).predict(data.X).dtype == data.y.dtype
    numbers = fitted(LabelTransportRegressor(reject_label=np.nan), *data)
    np.testing.assert_array_equal(np.isnan(numbers.predict(data.X[30:])), data.y[30:] == 3)


def test_round_trip_with_rejection():
    data = known()
    text = np.array(["a", "b", "c", "d"])[data.y]
    for y, label in product((data.y, text), ("unknown", -1, None, np.nan)):
        model = fitted(LabelTransportClassifier(reject_label=label), data.X, y, data.domain)
        assert round_trip(model, data._replace(y=y)) == pytest.approx(2 / 3)
    for label in (np.nan, 0.0, None):
        model = fitted(LabelTransportRegressor(reject_label=label), *data)
        assert np.isfinite(round_trip(model, data))


def test_round_trip_tells_right_from_wrong():
    data = clusters()
    model = fitted(JointTransportClassifier(), *data)
    assert round_trip(model, data) == 1.0
    guesses = np.random.default_rng(0).integers(0, 3, len(data.X))
    nonsense = fitted(JointTransportClassifier(), data.X, np.where(data.source, guesses, 0), data.domain)
    assert round_trip(nonsense, data._replace(y=guesses)) < 0.8


def blobs(classes: int, samples: int = 90) -> tuple[np.ndarray, np.ndarray]:
    """Classes that overlap, of typical squared distance about 1."""
    rng = np.random.default_rng(7)
    y = np.arange(samples) % classes
    return 0.5 * rng.normal(size=(samples, 4)) + 0.4 * rng.normal(size=(classes, 4))[y], y


@pytest.mark.parametrize(("classes", "strength"), [(2, 20.0), (3, 10.0), (5, 10.0)])
def test_linear_head_is_logistic_regression(classes, strength):
    """With two classes scikit-learn has one vector instead of two opposite ones, so half of the penalty."""
    x, y = blobs(classes)
    head = LinearHead()
    head.fit(x, np.eye(classes)[y], np.ones(len(x)))
    for tolerance, off in ((1e-4, 1e-3), (1e-8, 5e-3)):  # ours is the first
        expected = LogisticRegression(C=strength, tol=tolerance, max_iter=10_000).fit(x, y).predict_proba(x)
        np.testing.assert_allclose(head.probabilities(x), expected, atol=off)


@pytest.mark.parametrize(
    ("head", "expected", "off"),
    [
        (LinearHead(), LogisticRegression(C=10.0, tol=1e-8, max_iter=10_000), 1e-3),
        (EstimatorHead(LogisticRegression(), 3), LogisticRegression(), 0.02),
    ],
)
def test_soft_labels_are_a_weighted_fit(head, expected, off):
    """On one copy of every sample for every class, weighted by its share."""
    rng = np.random.default_rng(8)
    x, _ = blobs(3)
    shares, weights = rng.dirichlet(np.ones(3), size=len(x)), rng.uniform(0.1, 2.0, size=len(x))
    head.fit(x, shares, weights)
    copies, labels = np.repeat(x, 3, axis=0), np.tile(np.arange(3), len(x))
    expected.fit(copies, labels, sample_weight=(shares * weights[:, None]).ravel())
    np.testing.assert_allclose(head.probabilities(x), expected.predict_proba(x), atol=off)


def test_linear_head_starts_where_it_ended():
    x, y = blobs(3)
    head = LinearHead()
    head.fit(x, np.eye(3)[y], np.ones(len(x)))
    first = head.weights.copy()
    head.fit(x, np.eye(3)[y], np.ones(len(x)))
    np.testing.assert_allclose(head.weights, first, atol=1e-2)


def test_estimator_head_without_one_of_the_classes():
    x, y = blobs(2)
    head = EstimatorHead(GaussianNB(), 4)
    head.fit(x, np.eye(4)[2 * y + 1], np.ones(len(x)))
    probabilities = head.probabilities(x)
    assert not probabilities[:, [0, 2]].any()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)


@pytest.mark.parametrize(
    "estimator",
    [
        MLPClassifier(solver="lbfgs", max_iter=2000, random_state=0),
        LogisticRegression(),
        GaussianNB(),
        RandomForestClassifier(10, random_state=0),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_estimators_for_the_head(estimator):
    data = clusters()
    for kind in (JointTransportClassifier, LabelTransportClassifier):
        model = fitted(kind(estimator=estimator), *data)
        assert model.score(data.X[~data.source], data.y[~data.source]) > 0.9
    assert not hasattr(estimator, "classes_")


@pytest.mark.parametrize("solver", [aot.Exact(), aot.Entropic(0.1)], ids=["exact", "entropic"])
@pytest.mark.parametrize("marginals", [aot.AtMost(), aot.Equal(), aot.FixedMass(0.5)], ids=str)
def test_plans_are_those_of_the_joint_cost(solver, marginals):
    rng = np.random.default_rng(9)
    x, z, q = rng.normal(size=(25, 4)), rng.normal(size=(30, 4)) + 0.5, rng.dirichlet(np.ones(3), size=30)
    p = np.eye(3)[np.arange(25) % 3]
    seed = np.random.RandomState(0)
    matcher = Matcher(x, z, np.arange(25) % 3, marginals=marginals, solver=solver, batch_size=100, seed=seed)
    matching = matcher.by_class(p, q, 0.7, 1.3)
    assert matching.solution is not None
    weights = np.full(25, 1 / 25)
    if isinstance(marginals, aot.AtMost):  # no class sends more than the target seems to hold of it
        shares = held = p.mean(axis=0)
        corrected = q
        for _ in range(200):
            corrected = q * held / shares / (q * held / shares).sum(axis=1, keepdims=True)
            held = 0.2 * corrected.mean(axis=0) + 0.8 * shares
        weights, q = (held / shares)[np.arange(25) % 3] / 25, corrected
        assert np.ptp(weights) > 0.04 / 25
    cost = aot.JointCost(x, z, p, q, kappa=0.7, beta=1.3)
    expected = aot.solve(cost, weights, marginals=marginals, solver=solver)
    plan = expected.plan.toarray() if hasattr(expected.plan, "toarray") else expected.plan
    assert matching.solution.value == pytest.approx(expected.value, abs=1e-9)
    np.testing.assert_allclose(matching.solution.plan, plan, atol=1e-8)
    np.testing.assert_allclose(matching.source_share, 25 * plan.sum(axis=1), atol=1e-6)
    np.testing.assert_allclose(matching.target_share, 30 * plan.sum(axis=0), atol=1e-6)
    received = plan.sum(axis=0)[:, None]
    some = received[:, 0] > 1e-9
    np.testing.assert_allclose(matching.labels[some], ((plan.T @ p) / received.clip(1e-300))[some], atol=1e-6)


@pytest.mark.parametrize("solver", [aot.Exact(), aot.Entropic(0.1)], ids=["exact", "entropic"])
def test_sources_move_where_the_plan_sends_them(solver):
    data = clusters()
    adapter = fitted(TransportAdapter(marginals=aot.Equal(), solver=solver), *data)
    moved = adapter.transform(data.X, sample_domain=data.domain)
    expected = adapter.solution_.barycentric_map(data.X[~data.source])
    np.testing.assert_allclose(moved[data.source], expected, atol=1e-6)
    np.testing.assert_array_equal(moved[~data.source], data.X[~data.source])
    np.testing.assert_array_equal(adapter.fit_transform(data.X, sample_domain=data.domain)[0], moved[0])


def test_sources_that_are_not_sent_move_along():
    """The last source is far from all targets: it moves by the mean of what the others do."""
    X = np.array([[0.0], [1.0], [2.0], [3.0], [500.0], [1.0], [2.0], [3.0], [4.0]])
    adapter: Any = TransportAdapter(solver=aot.Exact())
    moved = adapter.fit_transform(X, sample_domain=np.repeat([0, -1], [5, 4]))[:5, 0]
    assert adapter.source_share_[4] == 0
    plan = adapter.solution_.plan
    displacement = (plan * (X[5:, 0] - X[:5])).sum() / plan.sum()
    assert moved[4] == pytest.approx(500 + displacement)
    assert moved[1] == pytest.approx(5 * (plan @ X[5:, 0])[1])  # all of it is sent


def test_received_labels_are_means_along_the_plan():
    data = clusters()
    for solver in (aot.Exact(), aot.Entropic(0.1)):
        model = fitted(LabelTransportRegressor(solver=solver, marginals=aot.Equal()), *data)
        plan = model.solution_.plan
        expected = (plan.T @ data.y[data.source]) / plan.sum(axis=0)
        np.testing.assert_allclose(model.predict(data.X[~data.source]), expected, atol=1e-6)


@pytest.mark.parametrize("size", [1, 5, 7, 24, 1000])
@each_kind
def test_batches(model, size):
    data = clusters(samples=36)
    whole = answers(model, *data, at=data.X[~data.source])
    for marginals in (aot.AtMost(), aot.Equal(), aot.FixedMass(0.5)):
        batched = fitted(fresh(model).set_params(batch_size=size, marginals=marginals), *data)
        # A class that is more frequent in the target may send more than its weight in the source.
        for share, most in ((batched.source_share_, 1.2), (batched.target_share_, 1 + 1e-6)):
            assert share.min() >= 0
            assert share.max() <= most
            if isinstance(marginals, aot.Equal):
                np.testing.assert_allclose(share, 1.0, atol=1e-6)
        if isinstance(marginals, aot.FixedMass):
            assert batched.transported_mass_ == pytest.approx(0.5, abs=1e-6)
        assert (batched.solution_ is None) == (size < 36)
        if isinstance(marginals, aot.AtMost) and size >= 24 and hasattr(model, "predict_proba"):
            assert (batched.predict(data.X[~data.source]) == whole["prediction"]).mean() > 0.9


def test_batches_are_drawn_by_the_seed():
    data = clusters(samples=40)
    one, same, other = (answers(JointTransportClassifier(batch_size=10, random_state=k), *data) for k in (1, 1, 2))
    assert_same(one, same)
    assert (one["source_share"] != other["source_share"]).any()
    first, second = (answers(JointTransportClassifier(random_state=k), *data) for k in (1, 2))
    assert_same(first, second)


def test_domains_of_different_sizes():
    data = clusters(samples=30)
    for side, expected in ((data.source, (6, 30)), (~data.source, (30, 6))):
        keep = np.concatenate([np.flatnonzero(side)[:6], np.flatnonzero(~side)])
        for size in (4, 1000):
            model = fitted(JointTransportClassifier(batch_size=size), *data.at(keep))
            assert (len(model.source_share_), len(model.target_share_)) == expected
            assert model.transported_mass_ == pytest.approx(model.source_share_.mean())
            model = fitted(model.set_params(marginals=aot.Equal()), *data.at(keep))
            np.testing.assert_allclose(model.source_share_, 1.0, atol=1e-6)  # nobody is in a batch without targets


def test_a_domain_given_twice_is_the_same_domain():
    """Both domains weigh the same, however many samples they have."""
    data, model = clusters(), LabelTransportClassifier(solver=aot.Entropic(0.1))
    twice = np.concatenate([np.arange(48), np.flatnonzero(~data.source)])
    one, other = answers(model, *data), answers(model, *data.at(twice), at=data.X)
    np.testing.assert_allclose(other["probability"], one["probability"], atol=2e-3)
    assert other["mass"] == pytest.approx(one["mass"], abs=1e-3)


def test_plans_by_distance_have_the_documented_cost():
    """Distances against nine tenths of their median, in units of twice their spread."""
    data = clusters()
    distance = ((data.X[data.source][:, None] - data.X[~data.source]) ** 2).sum(axis=2)
    distance /= np.median(distance)
    for solver in (aot.Exact(), aot.Entropic(0.1)):
        found = fitted(TransportAdapter(solver=solver), *data).solution_
        expected = aot.solve((distance - 0.9) / (2 * distance.std()), solver=solver)
        assert found.value == pytest.approx(expected.value, abs=1e-9)
        np.testing.assert_allclose(found.plan, expected.plan, atol=1e-8)


def test_domains_far_apart_are_matched_too():
    """All distances are within a tenth of their median then; the closest pairs still attract each other."""
    data = clusters()
    shifted = data.X + np.where(data.source, 0, 1000)[:, None]
    model = fitted(TransportAdapter(), shifted, data.y, data.domain)
    assert model.transported_mass_ > 0.2
    moved = model.transform(shifted, sample_domain=data.domain)
    assert np.abs(moved[data.source].mean(axis=0) - shifted[~data.source].mean(axis=0)).max() < 30


def test_what_unmatched_sources_count():
    data = known()
    for unmatched in ("keep", "drop", "weight"):
        adapter = TransportAdapter(solver=aot.Exact(), unmatched=unmatched)
        said = adapter.fit_transform(data.X, sample_domain=data.domain)
        share = adapter.source_share_
        expected = {"keep": np.ones(30), "drop": (share > 0.5).astype(float), "weight": share}[unmatched]
        np.testing.assert_allclose(adapter.sample_weight_, np.concatenate([expected, np.ones(30)]))
        assert share.min() < 0.5 < share.max()
        if unmatched == "keep":
            assert isinstance(said, np.ndarray)
        else:
            np.testing.assert_array_equal(said[1]["sample_weight"], adapter.sample_weight_)
        np.testing.assert_array_equal(adapter.fit_transform(data.X), data.X)  # no domains, no weights


def test_more_than_everything_is_no_outlier():
    """Robust transport may send more of a sample than there is."""
    model = fitted(JointTransportClassifier(marginals=aot.ChiSquareBall(0.2)), *clusters())
    assert model.target_share_.max() > 1
    assert model.target_outlier_score_.min() >= 0


# Unusual input that works


@each
def test_degenerate_input(model):
    data = clusters()
    two = np.array([[0.0, 1.0], [1.0, 0.0]])
    for name, X, y, domain in [
        ("one class", data.X, np.zeros(48, int), data.domain),
        ("a class of one", data.X, np.where(np.arange(48) == np.argmax(data.source), 5, data.y), data.domain),
        ("constant features", np.full((48, 3), 0.1), data.y, data.domain),
        ("all zero", np.zeros((48, 3)), data.y, data.domain),
        ("constant, far away", np.full((48, 3), 1e7 + 0.37), data.y, data.domain),
        ("one constant feature", data.X * [1, 0, 1], data.y, data.domain),
        ("duplicates", np.concatenate([data.X, data.X]), np.tile(data.y, 2), np.tile(data.domain, 2)),
        ("two samples", two, [0, 1], [0, -1]),
        ("two equal samples", two[[0, 0]], [0, 1], [0, -1]),
        ("one source", np.concatenate([data.X[:1], data.X]), [1, *data.y], [0, *([-1] * 48)]),
        ("one target", np.concatenate([data.X[:1], data.X]), [1, *data.y], [-1, *([0] * 48)]),
        ("far apart", data.X + np.where(data.source, 0, 1e12)[:, None], data.y, data.domain),
        ("integers", np.rint(data.X).astype(int), data.y, data.domain),
        ("half precision", data.X.astype(np.float16), data.y, data.domain),
        ("lists", data.X.tolist(), data.y.tolist(), data.domain.tolist()),
        ("Fortran order", np.asfortranarray(data.X), data.y, data.domain),
        ("other byte order", data.X.astype(">f8"), data.y, data.domain),
    ]:
        assert_sound(answers(model, X, y, domain), name)


@each_kind
def test_no_domains_no_adaptation(model):
    data = clusters()
    model = fresh(model).fit(data.X, data.y)
    assert model.transported_mass_ == 0
    assert model.target_share_.shape == (0,)
    if isinstance(model, TransportAdapter):
        np.testing.assert_array_equal(model.transform(data.X), data.X)
    else:
        assert model.score(data.X, data.y) > 0.3


@each_kind
def test_data_frames(model):
    pandas = pytest.importorskip("pandas")
    data = clusters()
    X = pandas.DataFrame(data.X, columns=["a", "b", "c"], index=np.arange(48)[::-1])
    y, domain = pandas.Series(data.y, index=X.index), pandas.Series(data.domain)
    assert_same(answers(model, *data), answers(model, X, y, domain), tolerance=1e-9)
    model = fitted(model, X, y, domain)
    np.testing.assert_array_equal(model.feature_names_in_, ["a", "b", "c"])
    if hasattr(model, "predict"):
        score = RoundTripScore()(model, X, y, sample_domain=domain)
        expected = round_trip(fitted(model, *data), data)
        assert score == pytest.approx(expected)
        with pytest.raises(ValueError, match="feature names"):
            model.predict(X[["b", "a", "c"]])


def test_series_of_labels():
    pandas = pytest.importorskip("pandas")
    data = clusters()
    expected = answers(JointTransportClassifier(), *data)
    missing = pandas.Series(masked(data.y, data.source)["None"])
    for y in (missing, missing.astype("Int64"), pandas.Series(pandas.Categorical(data.y)), missing.astype(float)):
        assert_same(expected, answers(JointTransportClassifier(), data.X, y, data.domain))
    text = pandas.Series(np.array(["a", "b", "c"])[data.y])
    for dtype in (object, "string", "category"):
        predicted = fitted(JointTransportClassifier(), data.X, text.astype(dtype), data.domain).predict(data.X)
        np.testing.assert_array_equal(predicted, np.array(["a", "b", "c"])[expected["prediction"]])


# Bad input


def changed(array: np.ndarray, value: Any, where: int = 3) -> np.ndarray:
    array = array.astype(np.float64 if isinstance(value, float) else object)
    array[where] = value
    return array


def refusals() -> dict[str, tuple[dict[str, Any], str]]:
    """What is changed in a good call of fit, and what the error must say."""
    X, y, domain = clusters()
    first = int(np.argmax(domain >= 0))
    return {
        "no targets": ({"sample_domain": np.zeros(48)}, "sample_domain must mark some samples as target"),
        "no sources": ({"sample_domain": -np.ones(48)}, "sample_domain must mark some samples as source"),
        "booleans for domains": (
            {"sample_domain": domain < 0},
            "sample_domain must hold finite numbers; got dtype bool",
        ),
        "domains too short": ({"sample_domain": domain[:-1]}, "sample_domain must have one number per sample"),
        "domains in a column": ({"sample_domain": domain[:, None]}, "sample_domain must have one number per sample"),
        "one domain for all": ({"sample_domain": 0}, "sample_domain must have one number per sample"),
        "domains with NaN": ({"sample_domain": changed(domain, np.nan)}, "sample_domain must hold finite numbers"),
        "domains with infinity": ({"sample_domain": changed(domain, np.inf)}, "sample_domain must hold finite numbers"),
        "domains of text": ({"sample_domain": domain.astype(str)}, "sample_domain must hold finite numbers"),
        "domains named": ({"sample_domain": ["source", "target"] * 24}, "sample_domain must hold finite numbers"),
        "complex domains": ({"sample_domain": domain + 0j}, "sample_domain must hold finite numbers"),
        "ragged domains": ({"sample_domain": [[1], [1, 2]] * 24}, "sample_domain must"),
        "labels too short": ({"y": y[:-1]}, "y must have one label per sample"),
        "no labels": ({"y": None}, "requires y"),
        "two columns of labels": ({"y": np.c_[y, y]}, "y should be a 1d array"),
        "NaN among labels": ({"y": changed(y, np.nan, first)}, "Input y contains NaN"),
        "infinity among labels": ({"y": changed(y, np.inf, first)}, "Input y contains infinity"),
        "complex labels": ({"y": y + 1j}, "Complex data"),
        "None among labels": ({"y": changed(y.astype(object), None, first)}, "y must|y contains NaN"),
        "text among numbers": ({"y": changed(y, "a", first)}, "y must"),
        "None among text": ({"y": changed(np.full(48, "a", dtype=object), None, first)}, "y must"),
        "NaN in X": ({"X": changed(X, np.nan)}, "Input X contains NaN"),
        "infinity in X": ({"X": changed(X, np.inf)}, "Input X contains infinity"),
        "X too large": ({"X": 1e200 * X}, "X must hold numbers up to"),
        "X too small": ({"X": 1e-200 * X}, "X must reach"),
        "complex X": ({"X": X + 1j}, "Complex data not supported"),
        "text in X": ({"X": np.full(X.shape, "a")}, "could not convert"),
        "one dimension": ({"X": X[:, 0]}, "Expected 2D array"),
        "three dimensions": ({"X": X[:, :, None]}, "dim 3"),
        "no features": ({"X": X[:, :0]}, "0 feature"),
        "no samples": ({"X": X[:0], "y": y[:0], "sample_domain": domain[:0]}, "0 sample"),
        "X is None": ({"X": None}, "Expected 2D array"),
    }


@each_kind
@pytest.mark.parametrize("name", refusals())
def test_bad_input_is_refused(model, name):
    change, message = refusals()[name]
    good = dict(zip(("X", "y", "sample_domain"), clusters(), strict=True))
    if isinstance(model, TransportAdapter) and set(change) == {"y"}:
        fresh(model).fit(**(good | change))  # labels are not used
        return
    with pytest.raises(ValueError, match=message):
        fresh(model).fit(**(good | change))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        *(({"kappa": value}, "kappa must be a number from 0") for value in (-1, np.nan, np.inf, "a", None)),
        *(({"beta": value}, "beta must be a number from 0") for value in (-1, np.nan, "a", None)),
        *(({"max_iter": value}, "max_iter must be a whole number") for value in (0, -1, 1.5, None, "a")),
        *(({"batch_size": value}, "batch_size must be a whole number") for value in (0, -1, 2.5, None, "a")),
        *(({"marginals": value}, "marginals must be an instance") for value in ("Equal", aot.Equal, aot.Exact(), 1)),
        *(({"solver": value}, "solver must be an instance") for value in ("exact", aot.Exact, aot.Equal(), 0.1)),
        ({"marginals": aot.SoftKL(1.0), "solver": aot.Exact()}, "solver must be Entropic with SoftKL"),
        ({"marginals": aot.ChiSquareBall(0.1), "solver": aot.Entropic(0.1)}, "solver cannot be Entropic"),
        ({"marginals": aot.FixedMass(2.0)}, "mass must be at most"),
        ({"random_state": "a"}, "cannot be used to seed"),
        ({"unmatched": "forget"}, "unmatched must be one of"),
        ({"unmatched": None}, "unmatched must be one of"),
        *(({"estimator": value}, "estimator must be") for value in (LogisticRegression, "forest", 3, ...)),
    ],
    ids=str,
)
def test_bad_parameters_are_refused(parameters, message):
    data = clusters()
    for kind in (JointTransportClassifier, LabelTransportClassifier, LabelTransportRegressor, TransportAdapter):
        if parameters.keys() <= kind().get_params().keys():
            with pytest.raises(ValueError, match=message):
                fitted(kind().set_params(**parameters), *data)


HEADS = [
    (LinearSVC(), "be an estimator with predict_proba"),
    (LinearRegression(), "be an estimator with predict_proba"),
    (KNeighborsClassifier(), "accept sample_weight"),
    (make_pipeline(StandardScaler(), LogisticRegression()), "accept sample_weight"),
]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        *(
            (kind(estimator=estimator), f"estimator must {rule}")
            for kind in (JointTransportClassifier, LabelTransportClassifier)
            for estimator, rule in HEADS
        ),
        (LabelTransportClassifier(reject_label=2), "reject_label must not be a class of the source"),
        (LabelTransportRegressor().set_params(reject_label="unknown"), "reject_label must be a number"),
    ],
    ids=str,
)
def test_unsuitable_heads_and_rejections(model, message):
    with pytest.raises(aot.InvalidInput, match=message):
        fitted(model, *clusters())


def test_bad_labels_for_numbers_or_classes():
    data = clusters()
    with pytest.raises(aot.InvalidInput, match="y must hold numbers"):
        fitted(LabelTransportRegressor(), data.X, np.array(["a", "b", "c"])[data.y], data.domain)
    with pytest.raises(ValueError, match="continuous"):
        fitted(JointTransportClassifier(), data.X, data.y + 0.5, data.domain)


@each_kind
def test_bad_samples_after_the_fit(model):
    data = clusters()
    with pytest.raises(ValueError, match="not fitted"):
        (fresh(model).transform if hasattr(model, "transform") else fresh(model).predict)(data.X)
    model = fitted(model, *data)
    ask = model.transform if hasattr(model, "transform") else model.predict
    for X, message in [
        (data.X[:, :2], "2 features"),
        (changed(data.X, np.nan), "NaN"),
        (1e200 * data.X, "X must hold numbers up to"),
        (data.X[0], "Expected 2D"),
        (data.X[:0], "0 sample"),
    ]:
        with pytest.raises(ValueError, match=message):
            ask(X)
    ask(1e-200 * data.X)  # near the origin
    ask(1e90 * data.X)  # far from it


def test_bad_round_trips():
    data = clusters()
    model = fitted(JointTransportClassifier(), *data)
    with pytest.raises(aot.InvalidInput, match="sample_domain is needed"):
        RoundTripScore()(model, data.X, data.y)
    with pytest.raises(aot.InvalidInput, match="y must have one label"):
        round_trip(model, data._replace(y=data.y[:-1]))
    with pytest.raises(aot.InvalidInput, match="sample_domain must mark some samples as target"):
        round_trip(model, data._replace(domain=np.zeros(48)))
    with pytest.raises(ValueError, match="not fitted"):
        round_trip(JointTransportClassifier(), data)


# Random attacks


@st.composite
def attacks(draw):
    model = fresh(draw(st.sampled_from(ONE_OF_EACH)))
    if isinstance(model, LabelTransportRegressor):
        model.set_params(estimator=LinearRegression())  # Ridge() warns where features are large
    marginals = st.sampled_from(
        [None, aot.Equal(), aot.FixedMass(0.0), aot.FixedMass(0.3), aot.SoftKL(0.5), aot.ChiSquareBall(0.2)]
    )
    solver = st.sampled_from([None, None, aot.Exact(), aot.Entropic(0.05), aot.Entropic(5.0)])
    model.set_params(marginals=draw(marginals), solver=draw(solver), batch_size=draw(st.integers(1, 20)))
    assume(not (isinstance(model.marginals, aot.ChiSquareBall) and isinstance(model.solver, aot.Entropic)))  # refused
    if "kappa" in model.get_params():
        model.set_params(kappa=draw(st.sampled_from([0.0, 0.5, 100.0])), beta=draw(st.sampled_from([0.0, 1.0, 30.0])))
    n, m, features = draw(st.integers(1, 12)), draw(st.integers(1, 12)), draw(st.integers(1, 20))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    X = rng.normal(size=(n + m, features)) * 10.0 ** draw(st.integers(-30, 30)) + draw(st.sampled_from([0.0, 5.0, 1e9]))
    if draw(st.booleans()):
        X = np.round(X, draw(st.integers(0, 2)))  # ties
    y = rng.integers(0, draw(st.integers(1, 4)), size=n + m)
    domain = rng.permutation(np.repeat([0, -1], [n, m]))
    return model, X.astype(draw(st.sampled_from([np.float64, np.float32]))), y, domain


@given(attacks())
@settings(max_examples=80)
def test_whatever_the_data(attack):
    model, X, y, domain = attack
    said = answers(model, X, y, domain)
    assert_sound(said)
    if not isinstance(model.marginals, aot.SoftKL | aot.ChiSquareBall):
        assert said["source_share"].max() <= 1 + 1e-5


@pytest.mark.parametrize("scale", [1e-3, 1e3, 1e7])
def test_numbers_for_unmatched_targets_do_not_depend_on_units(scale):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2))
    X = np.concatenate([x, rng.normal(size=(30, 2)), rng.normal(size=(10, 2)) + 50])
    y, domain = np.resize(x[:, 0], 80), np.repeat([0, -1], 40)
    far = X[-2:]
    expected = fitted(LabelTransportRegressor(), X, y, domain).predict(far)
    found = fitted(LabelTransportRegressor(), scale * X, y, domain).predict(scale * far)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_few_sources_do_not_outvote_many_targets():
    """Weights of targets are small where sources are few; their rows still count."""
    rng = np.random.default_rng(0)
    head = EstimatorHead(LogisticRegression(C=100.0), 2)
    x = np.concatenate([rng.normal(size=(10, 2)), rng.normal(size=(1000, 2)) + np.array([8, 0])])
    right = np.concatenate([np.arange(10) % 2, (x[10:, 1] > 0).astype(int)])
    head.fit(x, np.eye(2)[right], np.concatenate([np.ones(10), np.full(1000, 0.01)]))
    assert (head.probabilities(x[10:]).argmax(axis=1) == right[10:]).mean() > 0.95


def test_many_features_are_compared_in_few_directions():
    """Three features seen in 400 dimensions are still three."""
    few = clusters(samples=200, classes=4)
    wide = np.linalg.qr(np.random.default_rng(0).normal(size=(400, 3)))[0]
    for model in (JointTransportClassifier(), LabelTransportClassifier()):
        expected = fitted(model, *few)
        found = fitted(model, few.X @ wide.T, few.y, few.domain)
        assert (found.predict(few.X @ wide.T) == expected.predict(few.X)).all()
        np.testing.assert_allclose(found.transported_mass_, expected.transported_mass_, rtol=1e-6)
