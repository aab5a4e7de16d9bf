"""Labels transferred between two conditions of single cells."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from adaptive_ot import InvalidInput, MissingDependency
from adaptive_ot.adapt import JointTransportClassifier, transfer_labels
from adaptive_ot.workbench.cli.samples import treated_cells
from domains import one_blas_thread  # noqa: F401

anndata = pytest.importorskip("anndata")
pd = pytest.importorskip("pandas")

KEY = "type_transferred"


def conditions(source_types="ABCD", target_types="ABCD", *, seed=0, size=160, **more):
    """A labelled control, a treatment without labels, and the types of the latter."""
    cells = treated_cells(source_types, target_types, seed=seed, size=size, **more)
    var = pd.DataFrame(index=cells.genes)
    control = anndata.AnnData(
        cells.control, obs=pd.DataFrame({"type": pd.Categorical(cells.control_types)}, index=cells.names), var=var
    )
    treated = anndata.AnnData(cells.treated, obs=pd.DataFrame(index=cells.names), var=var)
    return control, treated, cells.treated_types


def transferred(source, target, **more) -> Any:
    return transfer_labels(source, target, label="type", **more)


def answers(result):
    """All that was added, as arrays and text."""
    return [
        *(np.asarray(result.obs[KEY + end]) for end in ("", "_probability", "_outlier_score")),
        result.uns[KEY]["labels"].to_numpy(),
        np.array([result.uns[KEY][name] for name in ("overlap", "unknown_above")]),
    ]


def assert_same(first, second):
    """Numbers up to the tolerance of the plans: in between, the process may have begun to compile the ascent."""
    for one, other in zip(answers(first), answers(second), strict=True):
        if one.dtype.kind == "f":
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)
        else:
            np.testing.assert_array_equal(one, other)


def accuracy(result, types):
    return float((np.asarray(result.obs[KEY]) == types).mean())


@pytest.fixture(scope="module")
def both():
    return conditions()


@pytest.fixture(scope="module")
def plain(both):
    return transferred(*both[:2])


def test_labels_probabilities_and_scores(both, plain):
    source, target, types = both
    assert accuracy(plain, types) > 0.9
    assert list(plain.obs[KEY].cat.categories) == ["A", "B", "C", "D"]
    assert plain.obs_names.equals(target.obs_names)
    probability = plain.obs[f"{KEY}_probability"]
    assert probability.between(0.25, 1).all()
    assert np.isfinite(plain.obs[f"{KEY}_outlier_score"]).all()
    about = plain.uns[KEY]
    assert 0 < about["overlap"] <= 1
    assert about["genes"] == 400
    assert about["unknown_above"] == np.inf
    assert isinstance(about["adapted"], bool)
    assert isinstance(about["reason"], str)
    table = about["labels"]
    assert list(table.index) == ["A", "B", "C", "D"]
    assert table["source_cells"].to_dict() == source.obs["type"].value_counts().to_dict()
    assert table["target_cells"].to_dict() == plain.obs[KEY].value_counts().to_dict()
    presence = table["presence"]
    assert presence.isna().all() or presence.between(0, 1).all()


def test_the_classifier_is_the_estimator_on_the_shared_genes(both, plain):
    source, target, _ = both
    order = np.argsort(source.var_names.to_numpy())
    X = np.concatenate([source.X[:, order], target.X[:, order]])
    y = np.concatenate([source.obs["type"].to_numpy(), np.full(len(target), "?")])
    model = JointTransportClassifier().fit(X, y, sample_domain=np.repeat([0, -1], [len(source), len(target)]))
    np.testing.assert_array_equal(plain.obs[KEY].to_numpy(), model.predict(target.X[:, order]))


def test_nothing_is_written_to_the_arguments(both):
    source, target, _ = (part.copy() for part in both)
    target.uns["kept"] = {"one": 1}
    before = [(adata.X.copy(), adata.obs.copy(), adata.var.copy()) for adata in (source, target)]
    result = transferred(source, target, unknown=0.05)
    for adata, (x, obs, var) in zip((source, target), before, strict=True):
        np.testing.assert_array_equal(adata.X, x)
        pd.testing.assert_frame_equal(adata.obs, obs)
        pd.testing.assert_frame_equal(adata.var, var)
        assert KEY not in adata.uns
    assert result.uns["kept"] == {"one": 1}
    result.X[:] = 0
    result.uns["kept"]["one"] = 2
    assert target.X.any()
    assert target.uns["kept"] == {"one": 1}


@pytest.mark.parametrize("missing", ["source", "target", "both"])
def test_types_may_be_missing(missing):
    sides = {"source": ("ABC", "ABCD"), "target": ("ABCD", "AB"), "both": ("ABC", "BCD")}
    source, target, types = conditions(*sides[missing], seed=1)
    result = transferred(source, target)
    known = np.isin(types, list(sides[missing][0]))
    assert accuracy(result[known], types[known]) > 0.75
    if missing == "source":  # where a type takes the place of another, nobody can tell by the score alone
        score = result.obs[f"{KEY}_outlier_score"].to_numpy()
        assert score[~known].mean() > score[known].mean()


def test_a_source_of_one_type():
    source, target, _ = conditions("A", "AB", size=60)
    assert set(transferred(source, target).obs[KEY]) == {"A"}


def test_cells_of_a_new_type_are_unknown():
    source, target, types = conditions("ABC", "ABCD", size=200)
    new = types == "D"
    target.X[np.ix_(new, np.arange(0, 400, 8))] += 2  # unlike all others
    result = transferred(source, target, unknown=0.02)
    called = np.asarray(result.obs[KEY] == "unknown")
    assert called[new].mean() > 0.8
    assert called[~new].mean() < 0.1
    assert list(result.obs[KEY].cat.categories) == [*"ABC", "unknown"]
    about = result.uns[KEY]
    np.testing.assert_array_equal(called, result.obs[f"{KEY}_outlier_score"] > about["unknown_above"])
    assert about["labels"]["target_cells"].sum() == (~called).sum()
    # Except for the answer "unknown", nothing changes.
    without = transferred(source, target)
    np.testing.assert_array_equal(np.asarray(without.obs[KEY])[~called], np.asarray(result.obs[KEY])[~called])
    np.testing.assert_array_equal(without.obs[f"{KEY}_outlier_score"], result.obs[f"{KEY}_outlier_score"])


@pytest.mark.parametrize("form", [sparse.csr_matrix, sparse.csc_matrix, sparse.csr_array])
def test_sparse_matrices_give_the_same_answers(both, plain, form):
    source, target, _ = (part.copy() for part in both)
    source.X, target.X = form(source.X), form(target.X)
    result = transferred(source, target)
    assert_same(result, plain)
    assert sparse.issparse(result.X)


def test_a_layer_a_view_and_other_settings(both, plain):
    source, target, _ = (part.copy() for part in both)
    for adata in (source, target):
        adata.layers["logged"] = adata.X.copy()
        adata.X = np.rint(np.expm1(adata.X))
    assert_same(transferred(source, target, layer="logged"), plain)
    more = anndata.concat([both[1], both[1]], index_unique="-")
    assert_same(transferred(both[0], more[: both[1].n_obs]), plain)
    other = transferred(*both[:2], model=JointTransportClassifier(kappa=0.1, guard=False))
    assert (other.obs[f"{KEY}_probability"] != plain.obs[f"{KEY}_probability"]).any()


def test_genes_are_matched_by_name(both, plain):
    source, target, _ = both
    order = np.random.default_rng(0).permutation(source.n_vars)
    assert_same(transferred(source, target[:, order]), plain)
    assert_same(transferred(source[:, order], target), plain)
    result = transferred(source[:, 100:], target[:, :300])
    assert result.n_vars == 300
    assert result.uns[KEY]["genes"] == 200
    assert_same(result, transferred(source, target, genes=source.var_names[100:300]))


def test_labels_of_targets_are_not_read(both, plain):
    source, target, types = (part.copy() for part in both)
    rng = np.random.default_rng(0)
    for labels in (types, rng.permutation(types), np.full(len(types), None), np.arange(len(types)) * 1.0):
        target.obs["type"] = labels
        result = transferred(source, target)
        assert_same(result, plain)
        pd.testing.assert_series_equal(result.obs["type"], target.obs["type"])


def test_a_representation_of_both(both):
    together = np.concatenate([adata.X for adata in both[:2]])
    centred = together - together.mean(axis=0)
    rows = np.split(centred @ np.linalg.svd(centred, full_matrices=False)[2][:20].T, 2)
    source, target = (
        anndata.AnnData(obs=adata.obs, obsm={"X_pca": part}) for adata, part in zip(both[:2], rows, strict=True)
    )
    types = both[2]
    result = transferred(source, target, use_rep="X_pca")
    assert accuracy(result, types) > 0.9
    assert result.uns[KEY]["genes"] == 0
    sources = source.copy()
    sources.obsm["X_pca"] = pd.DataFrame(sources.obsm["X_pca"], index=sources.obs_names)
    assert_same(transferred(sources, target, use_rep="X_pca"), result)


@pytest.mark.parametrize(
    "column",
    [
        lambda types: types.astype(object),
        lambda types: pd.Categorical(types, categories=["never", *"DCBA"]),
        lambda types: types.astype(object).map({"A": 10, "B": 11, "C": 12, "D": 13}).astype(int),
        lambda types: types == "A",
    ],
    ids=["text", "categories", "numbers", "booleans"],
)
def test_kinds_of_labels(both, plain, column):
    source, target, types = both
    source = source.copy()
    source.obs["type"] = column(source.obs["type"])
    result = transferred(source, target)
    found = result.obs[KEY]
    assert "never" not in found.cat.categories
    assert set(found) <= set(source.obs["type"])
    expected = column(pd.Series(types))
    assert (np.asarray(found) == np.asarray(expected)).mean() > 0.9
    if found.cat.categories[0] == "D":
        assert list(found.cat.categories) == list("DCBA")  # the order of the user's categories, as in plots


def test_numbers_become_text_beside_unknown(both):
    source = both[0].copy()
    source.obs["type"] = source.obs["type"].cat.codes.to_numpy()
    result = transferred(source, both[1], unknown=0.05)
    assert list(result.obs[KEY].cat.categories) == ["0", "1", "2", "3", "unknown"]


def test_the_answer_can_be_written_and_read(both, tmp_path):
    source = both[0].copy()
    source.obs["type"] = source.obs["type"].cat.rename_categories({"A": "CD8+/CD45RA+"})  # no key may have a slash
    for unknown in (None, 0.05):
        result = transferred(source, both[1], unknown=unknown)
        result.write_h5ad(tmp_path / "cells.h5ad")
        assert_same(anndata.read_h5ad(tmp_path / "cells.h5ad"), result)


def test_files_that_stay_on_disk(both, plain, tmp_path):
    for name, adata in zip(("source", "target"), both, strict=False):
        adata.copy().write_h5ad(tmp_path / f"{name}.h5ad")
    source, target = (anndata.read_h5ad(tmp_path / f"{name}.h5ad", backed="r") for name in ("source", "target"))
    result = transferred(source, target)
    assert_same(result, plain)
    assert not result.isbacked
    for adata in (source, target):
        adata.file.close()


def test_the_name_of_the_columns(both):
    result = transferred(*both[:2], key_added="guess")
    assert list(result.obs) == ["guess", "guess_probability", "guess_outlier_score"]
    assert list(result.uns) == ["guess"]


def changed(side, change):
    """Both conditions, after a change of a copy of one of them."""

    def make(source, target):
        parts = [source.copy(), target.copy()]
        other = change(parts[side])
        parts[side] = parts[side] if other is None else other
        return parts

    return make


def value(number):
    def change(adata):
        adata.X[3, 5] = number

    return change


def counts(adata):
    adata.X = np.rint(np.expm1(adata.X))


def unlogged(adata):
    adata.X = np.expm1(adata.X)


def scaled(adata):
    adata.X = adata.X - adata.X.mean(axis=0)


def twice(adata):
    adata.var_names = ["gene0", *adata.var_names[:-1]]


def renamed(adata):
    adata.var_names = [f"ENSG{number}" for number in range(adata.n_vars)]


def unlabelled(adata):
    adata.obs.loc[adata.obs_names[:7], "type"] = np.nan


def continuous(adata):
    adata.obs["type"] = np.linspace(0, 1, adata.n_obs)


def named_unknown(adata):
    adata.obs["type"] = adata.obs["type"].cat.rename_categories({"A": "unknown"})


def empty(adata):
    return anndata.AnnData(obs=adata.obs, var=adata.var)


REFUSALS = {
    "raw counts": (
        changed(0, counts),
        {},
        "adata_source must hold log-normalised .* raw counts.*normalize_total.*log1p",
    ),
    "counts in the target": (changed(1, counts), {}, "adata_target must hold log-normalised values; got whole numbers"),
    "no logarithm": (changed(1, unlogged), {}, "adata_target must .* without the logarithm. Type scanpy.pp.log1p"),
    "scaled values": (changed(1, scaled), {}, "adata_target must .* not negative; got -.*before scanpy.pp.scale"),
    "NaN": (changed(0, value(np.nan)), {}, "adata_source must hold finite values; got NaN or infinity"),
    "infinity": (changed(1, value(np.inf)), {}, "adata_target must hold finite values"),
    "no values": (changed(0, empty), {}, "adata_source must have values in X; got None. Choose a layer"),
    "genes twice": (changed(1, twice), {}, "adata_target must name every gene once; got 'gene0' .*var_names_make_uni"),
    "other names": (changed(1, renamed), {}, "at least 20 genes .* got 0 .*'gene0' and 'ENSG0'.* Name genes alike"),
    "few genes": (changed(1, lambda adata: adata[:, :9].copy()), {}, "share at least 20 genes .* got 9"),
    "few chosen genes": (changed(1, lambda _: None), {"genes": ["gene1"]}, "genes must name at least 20; got 1"),
    "absent genes": (changed(1, lambda _: None), {"genes": ["gene1", "CD4"]}, "got 1 of 2 that are not, such as 'CD4'"),
    "one gene as text": (changed(1, lambda _: None), {"genes": "gene1"}, "genes must be a list of names; got 'gene1'"),
    "numbers of genes": (changed(1, lambda _: None), {"genes": [1, 2]}, "genes must be a list of names; got 1"),
    "no such column": (
        changed(0, lambda _: None),
        {"label": "tpye"},
        "label must be .*; got 'tpye'. Choose one of 'type'",
    ),
    "no text": (changed(0, lambda _: None), {"label": None}, "label must be an instance of str; got None"),
    "missing labels": (changed(0, unlabelled), {}, "label must .* got 7 cells without. .*obs\\['type'\\].notna"),
    "continuous labels": (
        changed(0, continuous),
        {},
        "label must name a column of labels; got 'type' with dtype float64",
    ),
    "a type named unknown": (changed(0, named_unknown), {"unknown": 0.1}, "must not hold the label 'unknown'"),
    "share too large": (
        changed(0, lambda _: None),
        {"unknown": 0.7},
        "unknown must be a number from .* to 0.5; got 0.7",
    ),
    "share too small": (changed(0, lambda _: None), {"unknown": 0.001}, "unknown must be at least 1 / 160"),
    "no layer": (changed(0, lambda _: None), {"layer": "logged"}, "layer must be a layer of both; got 'logged'"),
    "no representation": (changed(0, lambda _: None), {"use_rep": "X_pca"}, "use_rep must be a key of obsm of both"),
    "no cells": (changed(1, lambda adata: adata[:0].copy()), {}, "adata_target must hold cells; got none"),
    "an array": (lambda source, target: (source, target.X), {}, "adata_target must be an instance of AnnData"),
    "a model": (
        changed(0, lambda _: None),
        {"model": "joint"},
        "model must be an instance of JointTransportClassifier",
    ),
    "both kinds": (changed(0, lambda _: None), {"use_rep": "X_pca", "layer": "a"}, "use_rep must be given without"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusal(both, name):
    change, options, message = REFUSALS[name]
    source, target = change(*both[:2])
    with pytest.raises(InvalidInput, match=message):
        transfer_labels(source, target, **({"label": "type"} | options))


def test_counts_in_sparse_matrices_are_refused(both):
    source, target, _ = (part.copy() for part in both)
    source.X = sparse.csr_matrix(np.rint(np.expm1(source.X)).astype(np.int64))
    with pytest.raises(InvalidInput, match="whole numbers"):
        transferred(source, target)


@pytest.mark.parametrize(
    ("rows", "message"),
    [(np.ones((160, 3)), "must have as many columns in both; got 3 and 2"), (np.full((160, 2), np.nan), "finite")],
)
def test_representations_are_compared(both, rows, message):
    source, target, _ = (part.copy() for part in both)
    source.obsm["X_pca"], target.obsm["X_pca"] = rows, np.ones((160, 2))
    with pytest.raises(InvalidInput, match=message):
        transferred(source, target, use_rep="X_pca")


def test_without_anndata(both, monkeypatch):
    monkeypatch.setitem(sys.modules, "anndata", None)
    with pytest.raises(MissingDependency, match=r"adaptive-ot\[cells\]"):
        transferred(*both[:2])
