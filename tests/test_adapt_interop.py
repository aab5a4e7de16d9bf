"""Domain adaptation inside scikit-learn's and SKADA's pipelines, searches and threads, without changing any setting.

SKADA switches metadata routing on for the whole process when it is imported, so it has a process of its own here.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import pytest
import sklearn
from joblib import Parallel, delayed
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.metadata_routing import get_routing_for_object

import adaptive_ot as aot
import domains
from adaptive_ot.adapt import (
    JointTransportClassifier,
    LabelTransportClassifier,
    LabelTransportRegressor,
    RoundTripScore,
    TransportAdapter,
)
from domains import Data, fresh, one_blas_thread  # noqa: F401

RAISE: Any = "raise"  # what fails in a fold fails the test

PREDICTORS = [JointTransportClassifier(), LabelTransportClassifier(), LabelTransportRegressor()]


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def clusters() -> Data:
    """Three classes of the plane, far apart."""
    return domains.clusters(seed=8, samples=45, features=2)


def run(program: str) -> Any:
    """What a program in a process of its own prints, as JSON."""
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_importing_changes_no_setting():
    answer = run(
        """
        import json, sys
        import sklearn
        before = sklearn.get_config()
        import adaptive_ot.adapt
        heavy = [name for name in ("skada", "torch", "ot", "matplotlib") if name in sys.modules]
        print(json.dumps([sklearn.get_config() == before, heavy]))
        """
    )
    assert answer == [True, []]


def test_requests_for_metadata():
    asks = {"sample_domain": True, "allow_source": True}
    for model in PREDICTORS:
        requests = get_routing_for_object(model)
        assert requests.fit.requests == {"sample_domain": True}
        assert requests.predict.requests == asks
        assert {name: requests.score.requests[name] for name in asks} == asks
        if hasattr(model, "predict_proba"):
            assert requests.predict_proba.requests == asks
    adapter = get_routing_for_object(TransportAdapter())
    assert adapter.fit.requests == {"sample_domain": True}
    assert adapter.transform.requests == asks
    assert get_routing_for_object(RoundTripScore()).score.requests == {"sample_domain": True}


@pytest.mark.usefixtures("routing")
def test_requests_can_be_changed():
    model = JointTransportClassifier().set_fit_request(sample_domain=False)
    assert get_routing_for_object(fresh(model)).fit.requests == {"sample_domain": False}
    assert get_routing_for_object(JointTransportClassifier()).fit.requests == {"sample_domain": True}


@pytest.mark.usefixtures("routing")
@pytest.mark.parametrize("model", PREDICTORS, ids=str)
@pytest.mark.parametrize("scoring", [None, RoundTripScore()], ids=str)
def test_cross_validation(model, scoring):
    """The same as by hand, fold by fold."""
    X, y, domain = clusters()
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    strata = y + 3 * (domain < 0)
    splits = list(folds.split(X, strata))
    found = cross_validate(
        model, X, y, params={"sample_domain": domain}, cv=splits, scoring=scoring, error_score=RAISE
    )["test_score"]
    for score, (train, test) in zip(found, splits, strict=True):
        fitted = fresh(model).fit(X[train], y[train], sample_domain=domain[train])
        judge = scoring or (lambda each, X, y, sample_domain: each.score(X, y))
        assert score == judge(fitted, X[test], y[test], sample_domain=domain[test])
    assert found.min() > 0.5


@pytest.mark.usefixtures("routing")
@pytest.mark.parametrize("model", PREDICTORS, ids=str)
def test_search_by_round_trips(model):
    """Beyond any label of the target: with all of them masked, the same is found."""
    X, y, domain = clusters()
    grid = {"solver": [aot.Entropic(0.1), aot.Entropic(20.0)]}
    searches = []
    for labels in (y, np.where(domain < 0, -1, y)):
        search = GridSearchCV(model, grid, scoring=RoundTripScore(), cv=StratifiedKFold(3), error_score=RAISE)
        splits = list(StratifiedKFold(3).split(X, y + 3 * (domain < 0)))
        searches.append(search.set_params(cv=splits).fit(X, labels, sample_domain=domain))
    one, masked = searches
    np.testing.assert_array_equal(one.cv_results_["mean_test_score"], masked.cv_results_["mean_test_score"])
    assert one.best_params_ == {"solver": aot.Entropic(0.1)}
    np.testing.assert_array_equal(one.predict(X), masked.predict(X))


@pytest.mark.usefixtures("routing")
def test_search_with_data_frames():
    pandas = pytest.importorskip("pandas")
    X, y, domain = clusters()
    frame = pandas.DataFrame(X, columns=["a", "b"])
    search = GridSearchCV(
        JointTransportClassifier(), {"kappa": [0.1, 0.5]}, scoring=RoundTripScore(), cv=3, error_score=RAISE
    )
    one, other = (
        fresh(search).fit(data, labels, sample_domain=domain).cv_results_["mean_test_score"]
        for data, labels in [(X, y), (frame, pandas.Series(y))]
    )
    np.testing.assert_allclose(one, other)


@pytest.mark.usefixtures("routing")
def test_round_trip_of_a_pipeline_that_rejects():
    X, y, domain = clusters()
    X = np.concatenate([X, np.full((4, 2), 500.0)])  # like no source
    y, domain = np.concatenate([y, [0] * 4]), np.concatenate([domain, [-1] * 4])
    model = make_pipeline(StandardScaler(), LabelTransportRegressor(reject_label=np.nan))
    model.fit(X, y, sample_domain=domain)
    assert np.isnan(model.predict(X[-4:])).all()
    assert RoundTripScore()(model, X, y, sample_domain=domain) > 0


def test_moved_features_keep_their_names():
    pandas = pytest.importorskip("pandas")
    X, _, domain = clusters()
    frame = pandas.DataFrame(X, columns=["a", "b"])
    for unmatched in ("keep", "drop"):
        adapter = TransportAdapter(unmatched=unmatched).set_output(transform="pandas")
        moved = adapter.fit_transform(frame, sample_domain=domain)
        moved = moved if unmatched == "keep" else moved[0]
        assert list(moved.columns) == list(adapter.get_feature_names_out()) == ["a", "b"]
        np.testing.assert_allclose(moved, adapter.transform(frame, sample_domain=domain))


def test_search_without_routing_says_so():
    X, y, domain = clusters()
    model = JointTransportClassifier().fit(X, y, sample_domain=domain)
    with pytest.raises(aot.InvalidInput, match="enable_metadata_routing"):
        cross_validate(model, X, y, params={"sample_domain": domain}, scoring=RoundTripScore(), error_score=RAISE)


@pytest.mark.usefixtures("routing")
@pytest.mark.parametrize("model", PREDICTORS, ids=str)
def test_pipelines(model):
    X, y, domain = clusters()
    pipeline = make_pipeline(StandardScaler(), model).fit(X, y, sample_domain=domain)
    by_hand = fresh(model).fit(StandardScaler().fit_transform(X), y, sample_domain=domain)
    np.testing.assert_array_equal(pipeline.predict(X), by_hand.predict(StandardScaler().fit_transform(X)))
    assert pipeline.score(X[domain < 0], y[domain < 0]) > 0.9
    assert RoundTripScore()(pipeline, X, y, sample_domain=domain) > 0.8
    found = cross_validate(
        pipeline, X, y, params={"sample_domain": domain}, cv=3, scoring=RoundTripScore(), error_score=RAISE
    )
    assert np.isfinite(found["test_score"]).all()


@pytest.mark.usefixtures("routing")
def test_pipelines_with_an_adapter():
    X, y, domain = clusters()
    labels = np.where(domain < 0, 0, y)
    adapter = TransportAdapter()
    pipeline = make_pipeline(adapter, LogisticRegression()).fit(X, y, sample_domain=domain)
    moved = fresh(adapter).fit_transform(X, labels, sample_domain=domain)
    expected = LogisticRegression().fit(moved, y).predict(X)
    np.testing.assert_array_equal(pipeline.predict(X), expected)


@pytest.mark.usefixtures("routing")
def test_pipelines_need_to_know_what_to_do_with_domains():
    X, y, domain = clusters()
    with pytest.raises((UnsetMetadataPassedError, TypeError)):
        make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y, sample_domain=domain)


def test_pipelines_without_routing():
    X, y, domain = clusters()
    pipeline = make_pipeline(StandardScaler(), JointTransportClassifier())
    pipeline.fit(X, y, jointtransportclassifier__sample_domain=domain)
    assert pipeline.score(X[domain < 0], y[domain < 0]) == 1.0


def shares(model: Any, X: np.ndarray, y: np.ndarray, domain: np.ndarray) -> np.ndarray:
    model = fresh(model).fit(X, y, sample_domain=domain)
    said = model.transform(X, sample_domain=domain) if hasattr(model, "transform") else model.predict(X)
    return np.concatenate([model.source_share_, model.target_share_, said.ravel()])


@pytest.mark.parametrize("prefer", ["threads", "processes"])
def test_many_at_once(prefer):
    data = clusters()
    models = [*PREDICTORS, TransportAdapter(), JointTransportClassifier(solver=aot.Exact())]
    jobs = models * (6 if prefer == "threads" else 1)
    expected = [shares(model, *data) for model in models] * (len(jobs) // len(models))
    found: Any = Parallel(n_jobs=2, prefer=prefer)(delayed(shares)(model, *data) for model in jobs)
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)  # products may be summed by other threads elsewhere


SKADA = """
import json
import warnings

import numpy as np
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from skada import make_da_pipeline
    from skada.metrics import MixValScorer, PredictionEntropyScorer, SoftNeighborhoodDensity
    from skada.model_selection import DomainShuffleSplit, SourceTargetShuffleSplit, StratifiedDomainShuffleSplit

from adaptive_ot.adapt import *

threadpool_limits(1)
rng = np.random.default_rng(0)
y = np.tile(np.arange(45) % 3, 2)
X = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])[y] + rng.normal(size=(90, 2))
domain = np.repeat([1, -2], 45)
X[domain < 0] += 1
target = domain < 0
answer = {}


def pipelines():
    weighted = LogisticRegression().set_fit_request(sample_weight=True)
    return {
        "joint": make_da_pipeline(StandardScaler(), JointTransportClassifier()),
        "labels": make_da_pipeline(StandardScaler(), LabelTransportClassifier()),
        "keep": make_da_pipeline(TransportAdapter(), LogisticRegression()),
        "drop": make_da_pipeline(TransportAdapter(unmatched="drop"), weighted),
        "weight": make_da_pipeline(TransportAdapter(unmatched="weight"), weighted),
    }


for name, pipeline in pipelines().items():
    pipeline.fit(X, y.copy(), sample_domain=domain)
    scores = [pipeline.score(X[target], y[target], sample_domain=domain[target])]
    scores.append(float((pipeline.predict(X[target]) == y[target]).mean()))
    scores.append(float((pipeline.predict(X, sample_domain=domain, allow_source=True)[target] == y[target]).mean()))
    if name == "joint":
        alone = JointTransportClassifier().fit(StandardScaler().fit_transform(X), y, sample_domain=domain)
        inner = pipeline[-1].base_estimator_
        answer["same"] = bool(np.array_equal(alone.source_share_, inner.source_share_))
    answer[name] = scores

pipeline = make_da_pipeline(StandardScaler(), LabelTransportRegressor())
pipeline.fit(X, y + 0.5, sample_domain=domain)
answer["regressor"] = float(np.abs(pipeline.predict(X[target], sample_domain=domain[target]) - y[target] - 0.5).max())

for splitter in (SourceTargetShuffleSplit, DomainShuffleSplit, StratifiedDomainShuffleSplit):
    for scorer in (PredictionEntropyScorer, SoftNeighborhoodDensity, MixValScorer, RoundTripScore):
        for name in ("joint", "labels", "keep", "weight"):
            found = cross_validate(
                pipelines()[name],
                X,
                y.copy(),
                params={"sample_domain": domain},
                cv=splitter(n_splits=2, random_state=0),
                scoring=scorer(),
                error_score="raise",
            )
            answer[f"{splitter.__name__} {scorer.__name__} {name}"] = found["test_score"].tolist()

search = GridSearchCV(
    pipelines()["joint"],
    {"jointtransportclassifier__kappa": [0.1, 0.5]},
    cv=SourceTargetShuffleSplit(n_splits=2, random_state=0),
    scoring=PredictionEntropyScorer(),
    error_score="raise",
).fit(X, y.copy(), sample_domain=domain)
answer["search"] = float((search.best_estimator_.predict(X[target]) == y[target]).mean())
print(json.dumps(answer))
"""


def test_skada():
    if subprocess.run([sys.executable, "-c", "import skada"], capture_output=True, check=False).returncode:
        pytest.skip("SKADA is not installed")
    answer = run(SKADA)
    assert answer.pop("same")
    assert answer.pop("regressor") < 1.0
    assert answer.pop("search") > 0.9
    for name in ("joint", "labels", "keep", "drop", "weight"):
        first, *others = answer.pop(name)
        assert first > 0.9, name
        assert others == [first, first], name
    assert len(answer) == 3 * 4 * 4
    for name, scores in answer.items():
        assert np.isfinite(scores).all(), name
    assert not sklearn.get_config()["enable_metadata_routing"]


@pytest.mark.parametrize("name", ["JointTransportClassifier", "LabelTransportClassifier", "TransportAdapter"])
def test_notebooks_show_scikit_learns_diagram(name):
    shown = getattr(aot.adapt, name)()._repr_html_()
    assert name in shown
    assert "sk-estimator" in shown
