"""Selection among finished runs without labels of the target."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from adaptive_ot.deep import Candidate, Selection, configure, select, train
from adaptive_ot.deep.selection import CRITERIA, DEFAULT, by_plan, density, information
from adaptive_ot.errors import InvalidInput
from adaptive_ot.workbench.cli import main
from commands import refused
from patterns import SIZE, save_patterns

pytestmark = pytest.mark.usefixtures("one_thread")


def configured(folder, name, **changes: Any):
    values: dict[str, Any] = {
        **{"source": "clear", "target": "faint", "output": folder / name, "device": "cpu", "bottleneck": 16},
        **{"iterations": 40, "batch": 16, "resize": SIZE, "crop": SIZE, "evaluate_every": 20, "method": "source-only"},
    }
    return configure(dataset="digits", root=folder / "patterns.npz", **values | changes)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Runs that learned well, hardly, and nothing, which is a run with its steps too small to move."""
    folder = tmp_path_factory.mktemp("selection")
    save_patterns(folder / "patterns.npz", 96)
    for name, changes in {
        "good": {"method": "aot"},
        "short": {"iterations": 3},
        "nothing": {"learning_rate": 0.0, "iterations": 1},
        "other": {"target": "shaded", "iterations": 1},
    }.items():
        train(configured(folder, name, **changes))
    return folder


# Criteria


@given(st.integers(0, 1000))
def test_density_and_information_by_loops(seed):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(4, 0.3), 9)
    unit = p / np.linalg.norm(p, axis=1, keepdims=True)
    entropies = []
    for i in range(9):
        weights = np.array([np.exp(unit[i] @ unit[j] / 0.05) for j in range(9) if j != i])
        weights /= weights.sum()
        entropies.append(-(weights * np.log(weights)).sum())
    assert density(torch.from_numpy(p)) == pytest.approx(np.mean(entropies))
    mean = p.mean(0)
    of_each = [-sum(x * np.log(x) for x in row if x > 0) for row in p]
    expected = -(mean * np.log(mean)).sum() - np.mean(of_each)
    assert information(torch.from_numpy(p)) == pytest.approx(expected, abs=1e-9)


def test_criteria_of_a_plan_by_loops():
    rng = np.random.default_rng(0)
    plan = rng.random((6, 5)) * (rng.random((6, 5)) < 0.6) / 30
    plan[:, 2] = 0  # an image that nothing is sent to
    labels, predicted = np.array([0, 1, 2, 0, 1, 2]), np.array([0, 1, 3, 2, 2])
    back = consistent = 0.0
    for i in range(6):
        for j in range(5):
            consistent += plan[i, j] * (labels[i] == predicted[j])
            for k in range(6):
                if plan[i, j] and labels[i] == labels[k]:
                    back += plan[i, j] * plan[k, j] / plan[:, j].sum()
    found = by_plan(plan, labels, predicted)
    assert found["round trip"] == pytest.approx(back / plan.sum())
    assert found["mass"] == pytest.approx(consistent)
    assert by_plan(np.zeros((6, 5)), labels, predicted) == {"round trip": 0.0, "mass": 0.0}


# Runs


def test_every_criterion_prefers_a_run_that_learned(folder):
    selection = select([folder / "nothing", folder / "good"], device="cpu")
    nothing, good = selection.candidates
    assert good.accuracy > nothing.accuracy + 0.3
    for name in ("information", "round trip", "mass"):
        assert selection.choice(name) is good
        assert selection.regret(name) == 0
    assert set(good.scores) == set(CRITERIA)


def test_the_ensemble_is_the_mean_of_all(folder):
    """Of three runs, two of which are the same, those agree with it as the third one does not."""
    twin = configured(folder, "twin", method="aot")
    train(twin)
    selection = select([folder / "nothing", folder / "good", twin.output], device="cpu")
    nothing, good, same = selection.candidates
    assert good.scores == same.scores
    assert good.scores["ensemble"] > nothing.scores["ensemble"]
    assert selection.choice("ensemble") is good  # the first of equals


def test_regret_and_verdict():
    def candidate(method, score, accuracy):
        return Candidate(folder_of(method), method, dict.fromkeys(CRITERIA, score), accuracy)

    def folder_of(method):
        from pathlib import Path

        return Path("runs", method)

    plain, aot, dann = candidate("source-only", 0.5, 0.7), candidate("aot", 0.6, 0.8), candidate("dann", 0.4, 0.9)
    assert Selection((plain, aot, dann)).regret(DEFAULT) == pytest.approx(0.1)
    assert Selection((plain, aot, dann)).adapts is True
    assert Selection((dann, plain)).adapts is False
    assert Selection((aot, dann)).adapts is None


def test_the_command(folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "160")
    assert main(["select", "short", "good", "--device", "cpu", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["run"] for each in found["runs"]] == ["short", "good"]
    assert main(["select", "short", "good", "--device", "cpu"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith("2 runs on the same images, compared without labels of the target run method ensemble")
    for name, each in found["choices"].items():
        assert f"{name} {each['run']}, {100 * each['regret']:.1f} points below the best run (oracle)" in shown
    verdict = "adapt" if found["adapt"] else "do not adapt"
    assert f"verdict {verdict}: the ensemble criterion chooses" in shown
    assert main(["select", "nothing", "short", "--device", "cpu"]) == 0
    assert "needs runs of both kinds" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "runs must be at least two different ones; got 0"),
        (["good"], "runs must be at least two different ones; got 1"),
        (["good", "./good"], "runs must be at least two different ones; got the same one twice"),
        (["good", "missing"], "run 'missing' must"),
        (["good", "other"], "run 'other' must have the target of the first, 'good'; got another target"),
        (["good", "short", "--samples", "0"], "--samples must be"),
        (["good", "short", "--device", "toaster"], "--device must be one that PyTorch can use"),
    ],
)
def test_what_is_refused(folder, capfd, monkeypatch, arguments, message):
    monkeypatch.chdir(folder)
    refused(capfd, ["select", *arguments], message)


def test_runs_that_are_not_finished_are_refused(folder, tmp_path):
    unfinished = tmp_path / "run"
    unfinished.mkdir()
    (unfinished / "run.json").write_text((folder / "good" / "run.json").read_text())
    with pytest.raises(InvalidInput, match="must be finished"):
        select([folder / "good", unfinished])
