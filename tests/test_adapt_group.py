"""Real processes fit an estimator together, on Gloo. This file is also what each of them runs."""

from __future__ import annotations

import json
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", exc_type=ImportError)

from sklearn.linear_model import LogisticRegression

import adaptive_ot as aot
from adaptive_ot.adapt import (
    JointTransportClassifier,
    LabelTransportClassifier,
    LabelTransportRegressor,
    TransportAdapter,
)
from adaptive_ot.adapt.together import Together
from domains import Data, clusters, fresh
from interruption import PATIENCE
from processes import run_ranks

SIZES = 2, 3
BATCHES: dict[str, Any] = {"batch_size": 25}  # of 96 samples a side: four batches
MODELS = {
    "joint": JointTransportClassifier(guard=False, **BATCHES),
    "guarded": JointTransportClassifier(**BATCHES),
    "equal": JointTransportClassifier(marginals=aot.Equal(), solver=aot.Exact(), **BATCHES),
    "estimator": JointTransportClassifier(estimator=LogisticRegression(), **BATCHES),
    "labels": LabelTransportClassifier(reject_label=-7, **BATCHES),
    "numbers": LabelTransportRegressor(marginals=aot.FixedMass(0.5), **BATCHES),
    "moved": TransportAdapter(unmatched="drop", **BATCHES),
    "one batch": JointTransportClassifier(),
    "more processes than batches": TransportAdapter(batch_size=60),
}
NUMBERS = (
    "transported_mass_",
    "source_share_",
    "target_share_",
    "target_outlier_score_",
    "class_presence_",
    "overlap_",
)


def data(name: str) -> Data:
    X, y, domain = clusters(seed=1, samples=96)
    return Data(X.astype(np.float32) if name == "equal" else X, y, domain)


def found(model: Any, X: np.ndarray) -> dict[str, Any]:
    """What a fitted model knows, and what it does with samples."""
    results = {name: np.asarray(getattr(model, name)) for name in NUMBERS if hasattr(model, name)}
    if hasattr(model, "transform"):
        results |= {"moved": model.transform(X, sample_domain=np.zeros(len(X))), "weight": model.sample_weight_}
    else:
        results["predicted"] = model.predict(X)
    if hasattr(model, "predict_proba"):
        results["probabilities"] = model.predict_proba(X)
    return results


# What every process does.


class Unlucky(LogisticRegression):
    """Cannot be fitted in the process of rank 1."""

    def fit(self, X, y, sample_weight=None):
        if os.environ["RANK"] == "1":
            raise KeyError("the classifier is gone")
        return super().fit(X, y, sample_weight)


class Drawn(LogisticRegression):
    """Another classifier in every process."""

    def predict_proba(self, X):
        shares = super().predict_proba(X)
        return 0.5 * shares + 0.5 * np.roll(shares, int(os.environ["RANK"]), axis=1)


def outcome(call: Any) -> str:
    try:
        return repr(call())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def refusals(rank: int, size: int, group: Any) -> dict[str, Any]:
    X, y, domain = data("joint")
    last = rank == size - 1
    holed = X.copy()
    holed[3, 1] = np.nan

    def fit(X=X, y=y, domain=domain, **keywords):
        return lambda: JointTransportClassifier(**BATCHES, **keywords).fit(X, y, sample_domain=domain, group=group)

    return {
        "nan": fit(X=holed if last else X),
        "nan everywhere": fit(X=holed),
        "dimension": fit(X=X[:, :2] if last else X),
        "dtype": fit(X=X.astype(np.float32) if last else X),
        "no rows": fit(X=X[:0], y=y[:0], domain=domain[:0]) if last else fit(),
        "rows": fit(X=X[rank:], y=y[rank:], domain=domain[rank:]),
        "labels": fit(y=y + rank),
        "domain": fit(domain=domain if last else -1 - domain),
        "parameter": fit(kappa=0.5 + rank),
        "wrong everywhere": fit(kappa=-1.0),
        "fails": fit(estimator=Unlucky()),
        "steps": lambda: Together(group).joint("a plan" if last else "the end", dict, lambda pieces: {}),
        "differs": fit(estimator=Drawn()),
        # Nothing is wrong with these.
        "drawn": lambda: fit(random_state=None)().source_share_.tolist(),
        "copied": lambda: fresh(JointTransportClassifier(**BATCHES).fit(X, y, sample_domain=domain, group=group)),
    }


def main(folder: str, rank: int, size: int) -> None:
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    address, long = f"file://{folder}/meeting{size}", timedelta(seconds=PATIENCE)
    distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=size, timeout=long)
    group = distributed.group.WORLD
    for name, model in MODELS.items():
        X, y, domain = data(name)
        together = fresh(model).fit(X, y, sample_domain=domain, group=group)
        np.savez(Path(folder, f"{name}-{size}-{rank}.npz"), **found(together, X))
    X, _, domain = data("moved")
    moved = TransportAdapter(**BATCHES).fit_transform(X, sample_domain=domain, group=group)
    np.save(Path(folder, f"fit_transform-{size}-{rank}.npy"), moved)
    said = {name: outcome(call) for name, call in refusals(rank, size, group).items()}
    Path(folder, f"said-{size}-{rank}.json").write_text(json.dumps(said))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))


# What is expected of them.


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("together")
    codes, output = run_ranks(__file__, folder, SIZES, lambda _, rank: {"RANK": str(rank)})
    assert set(codes.values()) == {0}, output
    return folder


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", MODELS)
def test_all_have_the_fit_of_a_single_process(folder, name, size):
    X, y, domain = data(name)
    alone = found(fresh(MODELS[name]).fit(X, y, sample_domain=domain), X)
    for rank in range(size):
        together = np.load(folder / f"{name}-{size}-{rank}.npz")
        assert {*together} == {*alone}
        for field, expected in alone.items():
            np.testing.assert_allclose(together[field], expected, rtol=1e-10, atol=1e-10, err_msg=field)


@pytest.mark.parametrize("size", SIZES)
def test_fitted_samples_move_as_alone(folder, size):
    X, _, domain = data("moved")
    alone = TransportAdapter(**BATCHES).fit_transform(X, sample_domain=domain)
    for rank in range(size):
        np.testing.assert_allclose(np.load(folder / f"fit_transform-{size}-{rank}.npy"), alone, rtol=0, atol=1e-10)


REFUSED = {
    "nan": ("InvalidInput: X must be the same in every process", "Pass all samples in every process"),
    "nan everywhere": ("ValueError: Input X contains NaN",),
    "dimension": ("InvalidInput: X must be the same", "192 x 3 float64", "192 x 2 float64"),
    "dtype": ("InvalidInput: X must be the same", "192 x 3 float64", "192 x 3 float32"),
    "no rows": ("InvalidInput: X must be the same", "192 x 3 float64", "0 x 3 float64"),
    "rows": ("InvalidInput: X must be the same", "191 x 3 float64"),
    "labels": ("InvalidInput: y must be the same", "192 labels"),
    "domain": ("InvalidInput: sample_domain must be the same", "192 numbers"),
    "parameter": ("InvalidInput: estimator must be the same", "kappa=1.5"),
    "wrong everywhere": ("InvalidInput: kappa must be",),
    "differs": ("InvalidInput: group must have processes that", "random_state"),
    "steps": ("InvalidInput: group must have processes that decide alike; got the end in process 0 and a plan in",),
    "drawn": ("[", ", ", "]"),
    "copied": ("JointTransportClassifier(batch_size=25)",),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", REFUSED)
def test_all_refuse_what_one_does_wrong(folder, size, name):
    words = [json.loads((folder / f"said-{size}-{rank}.json").read_text())[name] for rank in range(size)]
    assert len(set(words)) == 1, words
    for expected in REFUSED[name]:
        assert expected in words[0]


@pytest.mark.parametrize("size", SIZES)
def test_a_failure_in_one_process_stops_all(folder, size):
    for rank in range(size):
        words = json.loads((folder / f"said-{size}-{rank}.json").read_text())["fails"]
        lost = "ProcessLost: Process 1 of the group is lost: KeyError: 'the classifier is gone'"
        assert words.startswith("KeyError" if rank == 1 else lost)
