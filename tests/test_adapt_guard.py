"""The parts of an adaptation that do no harm: presence of classes, agreement of neighbours, and the guard."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import cohen_kappa_score, roc_auc_score
from sklearn.neighbors import KNeighborsClassifier

import adaptive_ot as aot
from adaptive_ot.adapt import JointTransportClassifier
from adaptive_ot.adapt.answers import Consensus
from adaptive_ot.adapt.heads import LinearHead, held_out
from adaptive_ot.adapt.neighbours import Neighbours, Votes, averaged, coherence, unanimity
from adaptive_ot.adapt.presence import class_presence, label_shift
from adaptive_ot.adapt.unadapted import displacement, relative_confidence
from adaptive_ot.errors import InvalidInput
from domains import Data, fitted, one_blas_thread  # noqa: F401

CLASSES = 6


def blobs(of_target: np.ndarray, shift: float = 0.0, seed: int = 0, spread: float = 1.0) -> Data:
    """Six classes in R^20 as sources; targets of the given classes, shifted along one direction."""
    rng = np.random.default_rng(seed)
    centres = 1.3 * rng.normal(size=(CLASSES + 1, 20))
    of_source = np.arange(240) % CLASSES
    x = centres[of_source] + rng.normal(size=(240, 20))
    z = centres[of_target] + spread * rng.normal(size=(len(of_target), 20)) + shift * np.eye(20)[0]
    domain = np.repeat([0, -1], [240, len(of_target)])
    return Data(np.concatenate([x, z]), np.concatenate([of_source, of_target]), domain)


def source_only(data: Data) -> float:
    """The accuracy of a classifier of scikit-learn, fitted on the sources."""
    x, y = data.X[data.source], data.y[data.source]
    return float(LogisticRegression(max_iter=5000).fit(x, y).score(data.X[~data.source], data.y[~data.source]))


def accuracy(model: JointTransportClassifier, data: Data) -> float:
    return model.score(data.X[~data.source], data.y[~data.source])


# Neighbours


def test_neighbours_are_those_of_a_brute_force_search():
    rng = np.random.default_rng(0)
    samples, others = rng.normal(size=(50, 3)) + 1e3, rng.normal(size=(9, 3)) + 1e3
    found = Neighbours(samples)
    distance = np.linalg.norm(samples[:, None] - samples, axis=2)
    np.fill_diagonal(distance, np.inf)
    np.testing.assert_array_equal(found.of_fitted(7), distance.argsort(axis=1)[:, :7])
    np.testing.assert_array_equal(found.of(samples, 7), found.of_fitted(7))  # no sample is its own neighbour
    distance = np.linalg.norm(others[:, None] - samples, axis=2)
    np.testing.assert_array_equal(found.of(others, 7), distance.argsort(axis=1)[:, :7])


@pytest.mark.parametrize("samples", [1, 2, 4])
def test_few_samples_have_few_neighbours(samples):
    found = Neighbours(np.arange(samples, dtype=float)[:, None])
    assert found.of_fitted(20).shape == (samples, samples - 1)
    assert found.of(np.zeros((3, 1)), 20).shape == (3, samples - 1)


def test_coherence_is_cohens_kappa_of_neighbours():
    rng = np.random.default_rng(1)
    labels, index = (
        rng.integers(3, size=400),
        np.array([np.delete(np.arange(400), k)[:: 1 + k % 3][:9] for k in range(400)]),
    )
    pairs = np.repeat(labels, index.shape[1]), labels[index].ravel()
    assert coherence(labels, index) == pytest.approx(cohen_kappa_score(*pairs), abs=0.02)
    assert coherence(np.zeros(5, dtype=int), np.zeros((5, 2), dtype=int)) == 0.0  # nothing is known


def test_unanimity_is_cohens_kappa_of_classifiers():
    labels = np.random.default_rng(3).integers(3, size=(2, 50)) // [[1], [2]]
    one, other = np.triu_indices(3, 1)
    assert unanimity(labels) == pytest.approx(cohen_kappa_score(*labels))
    three = np.random.default_rng(4).permuted(np.arange(60) % 3 + np.zeros((3, 1), dtype=int), axis=1)
    kappas = [cohen_kappa_score(three[i], three[j]) for i, j in zip(one, other, strict=True)]
    assert unanimity(three) == pytest.approx(np.mean(kappas))  # equal, as all have the same shares
    assert unanimity(np.zeros((3, 5), dtype=int)) == 0.0  # nothing is known


@pytest.mark.parametrize("count", [1, 7, 300])
def test_votes_are_those_of_scikit_learn(count):
    rng = np.random.default_rng(2)
    x, members, z = rng.normal(size=(60, 4)) + 1e3, rng.integers(3, size=60), rng.normal(size=(9, 4)) + 1e3
    judge = KNeighborsClassifier(min(count, 60)).fit(x, members)
    votes = Votes(x, np.eye(3)[members], count).probabilities(z)
    k = min(count, 60)
    np.testing.assert_allclose(votes, (k * judge.predict_proba(z) + 1 / 3) / (k + 1))  # one vote is everybody's


class Fixed:
    """A classifier that knows its answers by the first coordinate of a sample."""

    def __init__(self, answers: np.ndarray) -> None:
        self.answers = answers

    def probabilities(self, x: np.ndarray) -> np.ndarray:
        return self.answers[np.rint(x[:, 0]).astype(int)]


@given(st.integers(0, 10**6), st.integers(1, 4), st.floats(0, 1))
def test_a_consensus_is_a_weighted_geometric_mean(seed, members, say):
    rng = np.random.default_rng(seed)
    targets = np.arange(8.0)[:, None]
    answers, weights = rng.dirichlet(np.ones(3), size=(members, 8)), rng.uniform(0.1, 5.0, size=members)
    neighbours = Neighbours(targets)
    nearest = neighbours.of_fitted(3)
    classifiers = [Fixed(each) for each in answers]
    model = Consensus(list(zip(classifiers, weights, strict=True)), say, targets, neighbours, nearest)
    said = model.probabilities(targets)
    np.testing.assert_allclose(said.sum(axis=1), 1.0)
    np.testing.assert_allclose(said, model.of_targets)  # no target is its own neighbour
    alone = np.exp(np.average(np.log(answers), axis=0, weights=weights))
    alone /= alone.sum(axis=1, keepdims=True)
    expected = alone ** (1 - say) * averaged(alone, alone, nearest) ** say
    np.testing.assert_allclose(said, expected / expected.sum(axis=1, keepdims=True), atol=1e-5)


def test_one_member_does_not_rule_a_class_out():
    targets = np.arange(2.0)[:, None]
    sure, other = np.array([[1.0, 0.0]] * 2), np.array([[1e-9, 1.0 - 1e-9]] * 2)
    neighbours = Neighbours(targets)
    said = Consensus([(Fixed(sure), 1.0), (Fixed(other), 1.0)], 0.0, targets, neighbours, neighbours.of_fitted(1))
    np.testing.assert_allclose(said.of_targets, 0.5, atol=1e-6)


# Signs of a shift


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("moved", [0.0, 0.5, 1.0, 3.0])
def test_displacement_is_that_of_the_means(moved, seed):
    """Relative to the distance between two classes, and whatever the number of samples."""
    rng = np.random.default_rng(seed)
    centres, direction = np.linalg.qr(rng.normal(size=(20, 20)))[0][:3] * 5, np.full(20, 1 / np.sqrt(20))
    members, of_target = np.arange(90) % 3, np.arange(60) % 2  # one class is missing
    x = centres[members] + rng.normal(size=(90, 20))
    apart = np.linalg.norm(centres[0] - centres[1])
    z = centres[of_target] + rng.normal(size=(60, 20)) + moved * apart * direction
    assert displacement(x, np.eye(3)[members], z, np.eye(3)[of_target]) == pytest.approx(moved, abs=0.15)


def test_displacement_of_a_single_class_is_zero():
    x = np.random.default_rng(0).normal(size=(20, 2))
    assert displacement(x, np.ones((20, 1)), x + 5, np.ones((20, 1))) == 0.0


def test_confidence_is_compared_class_by_class():
    """The second class is always less certain: a target of that class alone shows no loss."""
    sources = np.array([[0.99, 0.01]] * 30 + [[0.4, 0.6]] * 30)
    assert relative_confidence(sources[30:], sources) == pytest.approx(1.0)
    assert relative_confidence(np.array([[0.45, 0.55]] * 9), sources) == pytest.approx(0.55 / 0.6)
    assert relative_confidence(sources[:30], sources[30:]) == 1.0  # nothing to compare with


# Presence of classes, and their shares


def predictions(rng: np.random.Generator, truth: np.ndarray, mistakes: float) -> np.ndarray:
    """One-hot predictions, a share of which are random."""
    said = np.where(rng.random(len(truth)) < mistakes, rng.integers(CLASSES, size=len(truth)), truth)
    return np.eye(CLASSES)[said]


@pytest.mark.parametrize("mistakes", [0.0, 0.1, 0.2])
@pytest.mark.parametrize("left", [1, 2, 3, 6])
def test_presence(left, mistakes):
    """Classes that are predicted only by mistake are absent. Over 20 draws, few are judged wrongly."""
    wrong = []
    for seed in range(20):
        rng = np.random.default_rng([left, seed])
        members = np.arange(600) % CLASSES
        presence = class_presence(
            predictions(rng, rng.integers(left, size=300), mistakes), predictions(rng, members, mistakes), members
        )
        assert ((presence >= 0) & (presence <= 1)).all()
        wrong.append(np.mean((presence > 0.5) != (np.arange(CLASSES) < left)))
    assert np.mean(wrong) < 0.15


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 40), st.integers(1, 40))
def test_presence_and_shares_are_always_sound(seed, classes, targets, sources):
    rng = np.random.default_rng(seed)
    q, known = rng.dirichlet(np.full(classes, 0.1), size=targets), rng.dirichlet(np.full(classes, 0.1), size=sources)
    presence = class_presence(q, known, rng.integers(classes, size=sources))
    assert ((presence >= 0) & (presence <= 1)).all()
    shares = rng.dirichlet(np.ones(classes)) + 1e-3
    found, corrected = label_shift(q, shares / shares.sum())
    assert found.sum() == pytest.approx(1.0)
    assert (found > 0).all()
    np.testing.assert_allclose(corrected.sum(axis=1), 1.0)


def test_shares_are_a_fixed_point_between_predictions_and_source():
    rng = np.random.default_rng(3)
    q, shares = rng.dirichlet(np.ones(4), size=80), np.array([0.1, 0.2, 0.3, 0.4])
    found, corrected = label_shift(q, shares)
    expected = q * found / shares
    np.testing.assert_allclose(corrected, expected / expected.sum(axis=1, keepdims=True), atol=1e-12)
    np.testing.assert_allclose(found, 0.2 * corrected.mean(axis=0) + 0.8 * shares, atol=1e-9)


def test_held_out_predictions_do_not_know_the_sample():
    """With random labels they are no better than chance; in sample, they are."""
    rng = np.random.default_rng(4)
    x, labels = rng.normal(size=(60, 200)), np.eye(2)[rng.integers(2, size=60)]
    said = held_out(LinearHead, x, labels)
    assert (said.argmax(axis=1) == labels.argmax(axis=1)).mean() < 0.75
    head = LinearHead()
    head.fit(x, labels, np.ones(60))
    assert (head.probabilities(x).argmax(axis=1) == labels.argmax(axis=1)).all()


# The estimator


@pytest.mark.parametrize("left", [6, 3, 2])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_no_harm_without_a_shift(left, seed):
    """Whether classes are missing or not; transport alone loses many targets to missing classes."""
    data = blobs(np.arange(180) % left, seed=seed)
    model = fitted(JointTransportClassifier(), *data)
    assert not model.adapted_
    assert accuracy(model, data) >= source_only(data) - 0.03
    assert ((model.class_presence_ > 0.5) == (np.arange(CLASSES) < left)).all()
    low, high = model.overlap_interval_
    assert low <= left / CLASSES <= high
    assert model.overlap_ == pytest.approx(left / CLASSES, abs=0.1)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_large_shift_is_followed(seed):
    data = blobs(np.arange(180) % CLASSES, shift=15.0, seed=seed)
    model = fitted(JointTransportClassifier(), *data)
    assert model.adapted_
    assert "moving the sources changed the agreement" in model.reason_
    assert accuracy(model, data) > max(0.9, source_only(data))


def test_where_three_routes_disagree_the_source_classifier_answers():
    """A mirrored target: nothing tells where its classes come from. With the guard switched off, sources move."""
    data = blobs(np.arange(180) % 3)
    mirrored = np.where(data.source[:, None], data.X, -data.X)
    model = fitted(JointTransportClassifier(), mirrored, data.y, data.domain)
    assert not model.adapted_
    assert "the three routes disagree" in model.reason_
    x, z = mirrored[data.source], mirrored[~data.source]
    unit = np.sqrt(np.median(cdist(x, z, "sqeuclidean")))
    judge = LogisticRegression(C=10, max_iter=5000, tol=1e-8).fit(x / unit, data.y[data.source])
    np.testing.assert_allclose(model.predict_proba(z), judge.predict_proba(z / unit), atol=0.02)
    assert fitted(JointTransportClassifier(guard=False), mirrored, data.y, data.domain).adapted_


def test_the_guard_can_be_switched_off():
    data = blobs(np.arange(180) % 2)
    model = fitted(JointTransportClassifier(guard=False), *data)
    assert (model.adapted_, model.reason_) == (True, "The guard is switched off.")
    predicted = np.bincount(model.predict(data.X[~data.source]), minlength=CLASSES) / 180
    assert model.overlap_ == pytest.approx(np.minimum(predicted, 1 / CLASSES).sum())  # of its own predictions
    with pytest.raises(InvalidInput, match="guard"):
        fitted(JointTransportClassifier().set_params(guard="yes"), *data)


def test_without_targets_nothing_is_claimed():
    data = blobs(np.arange(180) % 3)
    model = JointTransportClassifier().fit(data.X[data.source], data.y[data.source])
    assert (model.adapted_, model.overlap_) == (False, 0.0)
    assert (model.class_presence_ == 1).all()


@pytest.mark.parametrize("marginals", [aot.AtMost(), aot.Equal(), aot.FixedMass(0.5)], ids=str)
def test_outlier_scores_find_unknown_classes(marginals):
    """A class that the source does not have, among all others."""
    data = blobs(np.arange(210) % (CLASSES + 1))
    model = fitted(JointTransportClassifier(marginals=marginals), *data)
    strange = data.y[~data.source] == CLASSES
    least = 0.0 if marginals == aot.Equal() else 0.9  # if all mass moves, nothing is left unmatched
    assert roc_auc_score(strange, model.target_outlier_score_) > least


@pytest.mark.parametrize("shift", [1.0, 20.0])
def test_labels_of_targets_change_nothing(shift):
    data = blobs(np.arange(180) % 3, shift=shift)
    one = fitted(JointTransportClassifier(), *data)
    assert one.adapted_ == (shift > 1)
    masked = np.where(data.source, data.y, -5)
    other = fitted(JointTransportClassifier(), data.X, masked, data.domain)
    for name in ("class_presence_", "overlap_", "overlap_interval_", "reason_", "target_outlier_score_"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    np.testing.assert_array_equal(one.predict_proba(data.X), other.predict_proba(data.X))


@pytest.mark.parametrize(("left", "shift", "spread"), [(CLASSES, 6.0, 2.0), (3, 1.0, 1.0), (3, 20.0, 1.0)])
def test_predictions_do_not_depend_on_their_company(left, shift, spread):
    """Averaged or not, a sample is predicted alone as among others."""
    data = blobs(np.arange(180) % left, shift=shift, spread=spread)
    model = fitted(JointTransportClassifier(), *data)
    assert model.adapted_ == (shift > 6)
    together = model.predict_proba(data.X)
    for k in (0, 100, 300):
        np.testing.assert_allclose(model.predict_proba(data.X[k : k + 1])[0], together[k], atol=1e-9)


@pytest.mark.parametrize("targets", [1, 2, 5, 8, 11, 20, 40])
def test_few_targets_are_too_few_to_tell_a_shift(targets):
    """They are predicted nearly as without them, and not all alike."""
    data = blobs(np.arange(targets) % CLASSES, shift=4.0)
    model = fitted(JointTransportClassifier(), *data)
    assert (model.adapted_, model.reason_.startswith("There are fewer than 50 targets")) == (False, True)
    assert accuracy(model, data) >= source_only(data) - 0.2
    assert len(set(model.predict(data.X[~data.source]))) >= min(targets, 3)


@pytest.mark.parametrize("shift", [[-3, 0, 0, 0], [0, 0, -3, 0], [0, 0, 0, -4]])
def test_a_shifted_class_is_not_pulled_apart(shift):
    """Where one class is predicted, neighbours have nothing to disagree on."""
    x, y = load_iris(return_X_y=True)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    setosa = (np.arange(150) % 2 == 1) & (y == 0)
    x, y = np.concatenate([x[::2], np.repeat(x[setosa], 3, axis=0) + shift]), np.concatenate([y[::2], np.zeros(75)])
    data = Data(x, y.astype(int), np.repeat([0, -1], [75, 75]))
    model = fitted(JointTransportClassifier(), *data)
    assert not model.adapted_
    assert accuracy(model, data) == 1.0


def test_classes_that_do_not_differ_have_not_moved():
    x = np.random.default_rng(0).normal(size=(40, 3))
    p = np.eye(2)[np.arange(40) % 2]
    assert displacement(np.ones((40, 3)), p, x + 5, p) == 0.0


@pytest.mark.parametrize("seed", range(4))
def test_a_target_of_one_class_is_left_alone(seed):
    """Agreement beyond chance says nothing about predictions that are all the same."""
    data = blobs(np.zeros(100, dtype=int), seed=seed)
    model = fitted(JointTransportClassifier(), *data)
    assert not model.adapted_
    assert accuracy(model, data) > 0.95


def test_a_class_of_one_source_does_not_hide_the_others():
    rng = np.random.default_rng(0)
    members = np.array([0] * 40 + [1] * 40 + [2])
    known, said = np.eye(3)[members], np.eye(3)[rng.integers(2, size=60)]
    known[-1] = [1, 0, 0]  # nothing to be recognised by
    presence = class_presence(said, known, members)
    assert presence[:2].min() > 0.9


def test_a_failed_fit_leaves_no_model():
    data, model = blobs(np.arange(60) % 3), JointTransportClassifier(marginals=aot.FixedMass(1.5))
    with pytest.raises(InvalidInput):
        model.fit(data.X, data.y, sample_domain=data.domain)
    with pytest.raises(NotFittedError):
        model.predict(data.X)
    model.set_params(marginals=None).fit(data.X, data.y, sample_domain=data.domain)
    with pytest.raises(InvalidInput):
        model.set_params(marginals=aot.FixedMass(1.5)).fit(data.X, data.y, sample_domain=data.domain)
    with pytest.raises(NotFittedError):
        model.predict(data.X)
