"""Targets with classes that the source does not have: domains, scores, thresholds, runs, predictions, pages."""

import csv
import dataclasses
import json
import shutil
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import roc_auc_score

from adaptive_ot.deep import configure, evaluate, open_set, predict, train
from adaptive_ot.deep.data.domain import read_domains
from adaptive_ot.deep.open_set import Seen, figures, received_shares, scores, threshold
from adaptive_ot.errors import InvalidInput
from adaptive_ot.workbench.cli import main
from adaptive_ot.workbench.report.contents import Table
from adaptive_ot.workbench.report.trained import page_of
from patterns import SIZE, save_folders, save_patterns
from test_deep_resume import stop

NAMES = ("across", "down", "falling", "rising")
KNOWN = NAMES[:3]

pytestmark = pytest.mark.usefixtures("one_thread")


def configured(folder, **changes: Any):
    values: dict[str, Any] = {
        **{"source": "clear", "target": "faint", "output": folder / "run", "device": "cpu", "network": "convnet"},
        **{"bottleneck": 16, "iterations": 30, "batch": 18, "learning_rate": 0.02, "head_factor": 1, "resize": SIZE},
        **{"crop": SIZE, "crop_kind": "none", "evaluate_every": 15, "source_classes": KNOWN, "unknown": "keep"},
    }
    return configure(dataset="folders", root=folder / "data", **values | changes)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A finished run whose source lacks a class; nobody changes it."""
    folder = tmp_path_factory.mktemp("open")
    save_folders(folder / "data", NAMES, clear=60, faint=40, contrast=0.9)
    train(configured(folder))
    return folder


# Domains


def test_classes_that_the_source_does_not_have_share_a_label(folder):
    names = "folders", folder / "data", "clear", "faint"
    source, target = read_domains(*names, (), KNOWN, keep_unknown=True)
    assert source.classes == target.classes == KNOWN
    assert np.bincount(source.labels).tolist() == [15, 15, 15]
    assert np.bincount(target.labels).tolist() == [10, 10, 10, 10]
    assert np.array_equal(target.known, target.labels < 3)
    assert all("rising" in image.name for image, known in zip(target.images, target.known, strict=True) if not known)
    _, part = read_domains(*names, ("down", "rising"), KNOWN, keep_unknown=True)
    assert np.bincount(part.labels).tolist() == [0, 10, 0, 10]


def test_digits_that_the_source_does_not_have(tmp_path):
    path = save_patterns(tmp_path / "patterns.npz", 40)
    _, whole = read_domains("digits", path, "clear", "faint")
    source, target = read_domains("digits", path, "clear", "faint", (), ("1", "3"), keep_unknown=True)
    assert source.classes == ("1", "3")
    assert np.bincount(source.labels).tolist() == [10, 10]
    assert target.labels.tolist() == [{1: 0, 3: 1}.get(label, 2) for label in whole.labels.tolist()]
    assert isinstance(target.images, np.ndarray)
    assert isinstance(whole.images, np.ndarray)
    assert np.array_equal(target.images, whole.images)


def test_domains_that_are_refused(folder, tmp_path):
    names = "folders", folder / "data", "clear", "faint"
    for match, wanted, of_source, keep in (
        (r"must have no class outside the source's .* set unknown to 'keep'", (), KNOWN, False),
        ("source_classes must be classes of the source: 'across', .* got 'rising up'", (), ("rising up",), True),
        ("target 'faint' must hold images; got none of 'cat'", ("cat", "down"), KNOWN, True),
        ("target 'faint' must share a class with the source; got 'rising' alone", ("rising",), KNOWN, True),
    ):
        with pytest.raises(InvalidInput, match=match):
            read_domains(*names, wanted, of_source, keep_unknown=keep)
    save_folders(tmp_path, ("a", "unknown"), clear=4, faint=4, contrast=0.9)
    with pytest.raises(InvalidInput, match="source must have no class 'unknown' where unknown classes are kept"):
        read_domains("folders", tmp_path, "clear", "faint", keep_unknown=True)
    with pytest.raises(InvalidInput, match="unknown must be one of"):
        configured(folder, unknown="ignore")


# Scores and figures


@given(arrays(np.float64, st.integers(2, 30), elements=st.floats(-10, 10, width=16)))
def test_the_threshold_divides_best(values):
    """By trying every threshold: the squared deviations within both groups are least."""

    def within(limit):
        groups = [group for group in (values[values <= limit], values[values > limit]) if group.size]
        return sum(((group - group.mean()) ** 2).sum() for group in groups)

    least = min(map(within, values))
    assert within(threshold(values)) <= least + 1e-9 * max(1.0, np.abs(values).max() ** 2 * values.size)


def test_figures_by_loops():
    rng = np.random.default_rng(0)
    labels, predicted, score = rng.integers(0, 4, 200), rng.integers(0, 3, 200), rng.integers(0, 9, 200) / 9
    score[labels == 3] += 0.3
    found = figures(score, predicted, labels, 3)
    shares = {label: [] for label in range(4)}
    for guess, label, each in zip(predicted, labels, score, strict=True):
        answer = 3 if each > found["threshold"] else guess
        shares[int(label)].append(float(answer == label))
    assert found["os_star"] == pytest.approx(np.mean([np.mean(shares[label]) for label in range(3)]))
    assert found["unknown_accuracy"] == pytest.approx(np.mean(shares[3]))
    assert 1 / found["h_score"] == pytest.approx((1 / found["os_star"] + 1 / found["unknown_accuracy"]) / 2)
    assert found["auroc"] == pytest.approx(roc_auc_score(labels == 3, score))
    assert found["rejected"] == pytest.approx((score > found["threshold"]).mean())
    assert set(figures(score, predicted, np.minimum(labels, 2), 3)) == {"threshold", "rejected", "os_star"}


def seen(labels, classes, unknown, rng):
    """Features near the axis of their class, of unknown images near another, with probabilities that say so."""
    axes = torch.eye(classes + 1, dtype=torch.float32)
    features = axes[labels] + 0.05 * torch.from_numpy(rng.normal(size=(len(labels), classes + 1))).float()
    sure = torch.nn.functional.one_hot(torch.from_numpy(labels % classes), classes) * 0.85 + 0.15 / classes
    unsure = torch.full((classes,), 1 / classes)
    return Seen(features, torch.where(torch.from_numpy(labels == unknown)[:, None], unsure, sure.float()))


@pytest.mark.parametrize("at_once", [1000, 16])
def test_unknown_images_match_little(at_once, monkeypatch):
    """In one plan or in several, every score tells them, as they are far away and the network is not sure."""
    monkeypatch.setattr(open_set, "MATCHED", at_once)
    rng = np.random.default_rng(0)
    labels, of_source = rng.integers(0, 4, 60), np.arange(30) % 3
    source, target = seen(of_source, 3, 3, rng), seen(labels, 3, 3, rng)
    found = scores(source, torch.from_numpy(of_source), target, seed=1)
    assert set(found) == {"unmatched", "confidence", "entropy", "distance"}
    predicted = target.probabilities.argmax(1).numpy()
    for score in found.values():
        assert figures(score, predicted, labels, 3)["auroc"] == 1.0
    assert ((found["unmatched"] >= 0) & (found["unmatched"] <= 1)).all()
    confidence = 1 - target.probabilities.double().max(1).values.numpy()
    np.testing.assert_allclose(found["confidence"], confidence)
    again = scores(source, torch.from_numpy(of_source), target, seed=1)
    assert all(np.array_equal(found[name], again[name]) for name in found)


def test_received_shares_are_those_of_a_plan():
    """No class of the source sends more than it has: of twice as many images, half are left."""
    rng = np.random.default_rng(0)
    of_source, labels = np.repeat([0, 1], 10), np.repeat([0, 1], [30, 10])
    shares = received_shares(seen(of_source, 2, 2, rng), torch.from_numpy(of_source), seen(labels, 2, 2, rng))
    assert shares[labels == 0].sum() / 40 <= 0.5 + 1e-5
    assert shares[labels == 1].mean() > shares[labels == 0].mean()


# Runs


def test_a_run_and_its_evaluation(folder):
    result = train(configured(folder))
    assert result.open_set
    assert list(result.open_set) == ["unmatched", "confidence", "entropy", "distance"]
    assert set(result.per_class) == set(KNOWN)  # unknown images are no error of the network
    assert evaluate(folder / "run", device="cpu") == result
    for each in result.open_set.values():
        assert 0 <= each["h_score"] <= 1
        assert each["os_star"] <= result.mean_class_accuracy + 1e-12  # a rejected image is wrong
    assert json.loads((folder / "run" / "result.json").read_text())["open_set"] == result.open_set


def test_a_stopped_run_has_the_same_figures(folder, tmp_path):
    config = dataclasses.replace(configured(folder), output=tmp_path / "run")
    stop(config, 10)
    whole = train(configured(folder))
    assert train(config).open_set == whole.open_set


def test_predictions_may_be_unknown(folder, tmp_path, capsys, monkeypatch):
    result = train(configured(folder))
    images = sorted((folder / "data" / "faint").rglob("*.png"))
    found = predict(folder / "run", images, device="cpu")
    assert result.open_set
    assert found.unmatched is not None
    rejected = found.unmatched > result.open_set["unmatched"]["threshold"]
    assert np.array_equal(rejected, np.array(found.labels) == "unknown")
    assert set(found.labels) <= {*KNOWN, "unknown"}
    assert 0 < rejected.sum() < len(images)
    monkeypatch.chdir(tmp_path)
    assert main(["predict", str(folder / "run"), str(folder / "data" / "faint"), "--output", "out.csv"]) == 0
    assert "unknown" in capsys.readouterr().out
    with open("out.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["file", "label", "confidence", "unmatched"]
    assert [row["label"] for row in rows] == found.labels
    copy = shutil.copytree(folder / "run", tmp_path / "copy")
    record = json.loads((copy / "result.json").read_text())
    (copy / "result.json").write_text(json.dumps(record | {"open_set": None}))
    with pytest.raises(InvalidInput, match=r"must hold a result\.json with the threshold of 'unmatched'"):
        predict(copy, images[:1], device="cpu")
    none = predict(folder / "run", [], device="cpu")
    assert (none.labels, len(none.unmatched if none.unmatched is not None else [0])) == ([], 0)


def test_predictions_need_the_images_of_the_run(folder, tmp_path, capfd):
    images, elsewhere = [next((folder / "data" / "faint").rglob("*.png"))], tmp_path / "data"
    (folder / "data").rename(elsewhere)
    try:
        moved = [elsewhere / each.relative_to(folder / "data") for each in images]
        with pytest.raises(InvalidInput, match="must find its dataset where it was"):
            predict(folder / "run", moved, device="cpu")
        assert len(predict(folder / "run", moved, root=elsewhere, device="cpu").labels) == 1
    finally:
        elsewhere.rename(folder / "data")


def test_the_page_and_the_command_show_every_score(folder, capsys):
    page = page_of(folder / "run", root=None, samples=1000, device="cpu", report=lambda _: None)
    (table,) = [part for part in page.parts if isinstance(part, Table) and part.heading == "Unknown classes"]
    result = train(configured(folder)).open_set
    assert result
    assert [row[:2] for row in table.rows] == [[name, f"{100 * each['auroc']:.1f}"] for name, each in result.items()]
    assert main(["evaluate", str(folder / "run"), "--device", "cpu"]) == 0
    shown = capsys.readouterr().out
    assert "H-score" in shown
    assert f"{100 * result['unmatched']['h_score']:.1f}" in shown


def test_runs_of_aot_before_presence_go_on_without_it(folder, tmp_path):
    before = {"source_classes": (), "unknown": "refuse", "settings": {"presence": "ignored"}}
    config = configured(folder, **before, output=tmp_path / "run")
    stop(config, 10)
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    del record["config"]["settings"]["presence"]
    (tmp_path / "run" / "run.json").write_text(json.dumps(record))
    settings = {**config.settings, "presence": "estimated"}
    with pytest.raises(InvalidInput, match=r"no settings presence \(here 'estimated'\)"):
        train(dataclasses.replace(config, settings=settings))
    whole = train(dataclasses.replace(config, output=tmp_path / "whole"))
    assert train(config).accuracy == whole.accuracy


def test_runs_of_earlier_versions_go_on(folder, tmp_path):
    """Their records say nothing of unknown classes."""
    closed = {"source_classes": (), "unknown": "refuse", "output": tmp_path / "run", "method": "source-only"}
    config = configured(folder, **closed)
    stop(config, 10)
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    for name in ("source_classes", "unknown"):
        del record["config"][name]
    (tmp_path / "run" / "run.json").write_text(json.dumps(record))
    result = train(config)
    whole = train(dataclasses.replace(config, output=tmp_path / "whole"))
    assert result.accuracy == whole.accuracy
    assert result.open_set is None
    path = tmp_path / "run" / "result.json"
    finished = json.loads(path.read_text())
    del finished["open_set"]
    path.write_text(json.dumps(finished))
    assert evaluate(tmp_path / "run", device="cpu").accuracy == result.accuracy
