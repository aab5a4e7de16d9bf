"""Labels for the cells of one condition, learnt from the labelled cells of another."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from sklearn.base import clone

from adaptive_ot import _validation as check
from adaptive_ot._arrays import is_sparse
from adaptive_ot.adapt.joint import JointTransportClassifier
from adaptive_ot.errors import InvalidInput, MissingDependency

if TYPE_CHECKING:
    import pandas as pd
    from anndata import AnnData

# Fewer shared genes are a sign that the two datasets name their genes differently.
FEWEST_GENES = 20

# The logarithm of a share of any total is smaller; larger values have not been logged.
LARGEST_LOGARITHM = 30.0

UNKNOWN = "unknown"
NORMALISE = "Type scanpy.pp.normalize_total(adata, target_sum=1e4), then scanpy.pp.log1p(adata)."


def transfer_labels(
    adata_source: AnnData,
    adata_target: AnnData,
    *,
    label: str,
    key_added: str | None = None,
    genes: Iterable[str] | None = None,
    layer: str | None = None,
    use_rep: str | None = None,
    unknown: float | None = None,
    model: JointTransportClassifier | None = None,
) -> AnnData:
    """Label the cells of a target from the labelled cells of a source: another condition, donor, batch or experiment.

    Cell types may be missing on either side. Nothing is written to the arguments, and no column of `adata_target` is
    read. Genes are matched by name, and all values must be log-normalised.

    Parameters
    ----------
    adata_source, adata_target
        The two conditions.
    label
        The column of `adata_source.obs` with the labels, such as cell types.
    key_added
        The name of the new columns; by default `label` followed by "_transferred".
    genes
        Names of the genes to use, for example the highly variable ones; by default all genes that both have.
    layer
        The layer of both with the values; by default `X`.
    use_rep
        Use this representation in `obsm` instead of genes. It must be computed from both conditions together:
        principal components that were computed separately cannot be compared.
    unknown
        Call cells "unknown" if they are less like the source than held-out cells of the source are. The number is the
        share of held-out source cells that would be called so, such as 0.05. By default every cell gets a label. This
        takes two more fits, each on half of the source.
    model
        A `JointTransportClassifier` with other settings.

    Returns
    -------
    AnnData
        A copy of `adata_target`. With `KEY` for `key_added`, it has

        - `obs[KEY]`: the label, a category;
        - `obs[KEY + "_probability"]`: the probability of the likeliest label;
        - `obs[KEY + "_outlier_score"]`: `target_outlier_score_` of the classifier, higher for cells unlike the source;
        - `uns[KEY]`: a dictionary with `overlap` (the part of the conditions that matches), `adapted` and `reason`
          (whether the classifier was adapted, and why), `genes` (how many were used; 0 with `use_rep`), `unknown_above`
          (the outlier score above which cells are unknown; infinite without `unknown`), and `labels`: a table of
          `source_cells`, `target_cells` and `presence`, the probability that the target has such cells, by label.

    Examples
    --------
    >>> import pandas as pd
    >>> from anndata import AnnData
    >>> from adaptive_ot.adapt import transfer_labels
    >>> from adaptive_ot.workbench.cli.samples import treated_cells
    >>> cells = treated_cells(source_types="ABC", target_types="AB")
    >>> genes = pd.DataFrame(index=cells.genes)
    >>> control = AnnData(cells.control, obs=pd.DataFrame({"type": cells.control_types}, index=cells.names), var=genes)
    >>> treated = AnnData(cells.treated, obs=pd.DataFrame(index=cells.names), var=genes)
    >>> labelled = transfer_labels(control, treated, label="type")
    >>> float((labelled.obs["type_transferred"] == cells.treated_types).mean()) > 0.9
    True
    >>> list(labelled.obs)
    ['type_transferred', 'type_transferred_probability', 'type_transferred_outlier_score']
    """
    try:
        import anndata
        import pandas as pd
    except ImportError:
        raise MissingDependency("anndata", "cells") from None
    for name, adata in (("adata_source", adata_source), ("adata_target", adata_target)):
        check.instance(name, adata, anndata.AnnData)
        if adata.n_obs == 0:
            raise InvalidInput(name, "must hold cells", "none", "Check how it was filtered.")
    given = {"label": label, "key_added": key_added, "layer": layer, "use_rep": use_rep}
    for name, text in given.items():
        if name == "label" or text is not None:
            check.instance(name, text, str)
    model = JointTransportClassifier() if model is None else model
    check.instance("model", model, JointTransportClassifier)
    categories, members = _labels(adata_source, label, unknown)
    source, target = (adata.to_memory() if adata.isbacked else adata for adata in (adata_source, adata_target))
    if use_rep is None:
        x, z = _expression(source, target, genes, layer)
    else:
        x, z = _representation(source, target, genes, layer, use_rep)

    threshold = np.inf if unknown is None else _threshold(model, x, members, unknown)
    fitted = _fit(model, x, members, z)
    probabilities, outlier_score = fitted.predict_proba(z), fitted.target_outlier_score_
    codes = probabilities.argmax(axis=1)
    held = np.bincount(codes[outlier_score <= threshold], minlength=len(categories))
    if unknown is not None:
        names = pd.Index([str(category) for category in categories] + [UNKNOWN])
        codes = np.where(outlier_score > threshold, len(categories), codes)
    else:
        names = categories

    result = target.copy() if target is adata_target else target
    key = f"{label}_transferred" if key_added is None else key_added
    result.obs[key] = pd.Categorical.from_codes(codes, categories=names)
    result.obs[f"{key}_probability"] = probabilities.max(axis=1)
    result.obs[f"{key}_outlier_score"] = outlier_score
    table = {
        "source_cells": np.bincount(members, minlength=len(categories)),
        "target_cells": held,
        "presence": fitted.class_presence_,
    }
    result.uns[key] = {
        "overlap": fitted.overlap_,
        "adapted": bool(fitted.adapted_),
        "reason": fitted.reason_,
        "genes": x.shape[1] if use_rep is None else 0,
        "unknown_above": float(threshold),
        "labels": pd.DataFrame(table, index=pd.Index([str(category) for category in categories])),
    }
    return result


def _labels(adata: AnnData, label: str, unknown: float | None) -> tuple[pd.Index, np.ndarray]:
    """The labels that occur, in the order of the categories, and the number of the label of each cell."""
    import pandas as pd

    if label not in adata.obs:
        remedy = f"Choose one of {', '.join(map(repr, adata.obs))}." if len(adata.obs.columns) else "Add it."
        raise InvalidInput("label", "must be a column of adata_source.obs", repr(label), remedy)
    column = adata.obs[label]
    missing = int(column.isna().sum())
    if missing:
        remedy = f"Leave them out: adata_source[adata_source.obs[{label!r}].notna()]."
        raise InvalidInput("label", "must name a column without missing values", f"{missing} cells without", remedy)
    if not isinstance(column.dtype, pd.CategoricalDtype) and column.dtype.kind in "fc":
        remedy = "Choose another column, or convert it: astype(str)."
        raise InvalidInput("label", "must name a column of labels", f"{label!r} with dtype {column.dtype}", remedy)
    labels = pd.Categorical(column).remove_unused_categories()
    if unknown is not None:
        check.number("unknown", unknown, minimum=np.finfo(float).tiny, maximum=0.5)
        if UNKNOWN in map(str, labels.categories):
            remedy = "Leave these cells out, or rename the label."
            raise InvalidInput("label", f"must not hold the label {UNKNOWN!r} if unknown is given", label, remedy)
        if adata.n_obs < max(4, 1 / unknown):
            rule = f"must be at least 1 / {adata.n_obs}, one of the source cells, of which it needs 4"
            raise InvalidInput("unknown", rule, unknown, "Choose a larger share, or None.")
    return labels.categories, np.asarray(labels.codes, dtype=np.int64)


def _expression(source: AnnData, target: AnnData, genes: Iterable[str] | None, layer: str | None) -> list[np.ndarray]:
    """Log-normalised values of the shared genes, in the order of their names."""
    sides = {"adata_source": source, "adata_target": target}
    for name, adata in sides.items():
        if not adata.var_names.is_unique:
            twice = adata.var_names[adata.var_names.duplicated()][0]
            remedy = f"Type {name}.var_names_make_unique(), or sum them."
            raise InvalidInput(name, "must name every gene once", f"{twice!r} twice", remedy)
    shared = source.var_names.intersection(target.var_names)
    if genes is not None:
        wanted = _names(genes)
        absent = [gene for gene in wanted if gene not in shared]
        if absent:
            given = f"{len(absent)} of {len(wanted)} that are not, such as {absent[0]!r}"
            raise InvalidInput("genes", "must be genes of both", given, "Leave them out.")
        shared = source.var_names.intersection(wanted)
    if len(shared) < FEWEST_GENES:
        examples = " and ".join(f"{adata.var_names[0]!r}" for adata in sides.values() if adata.n_vars)
        remedy = "Name genes alike in both, for example by symbols; genes of both are matched by var_names."
        rule = f"must share at least {FEWEST_GENES} genes with adata_source"
        if genes is not None and len(source.var_names.intersection(target.var_names)) >= FEWEST_GENES:
            raise InvalidInput("genes", f"must name at least {FEWEST_GENES}", len(shared), "Choose more genes.")
        raise InvalidInput("adata_target", rule, f"{len(shared)} (first names: {examples})", remedy)
    shared = shared.sort_values()
    return [_checked(name, _values(name, adata, layer), adata.var_names, shared) for name, adata in sides.items()]


def _names(genes: Any) -> list[str]:
    remedy = "For example: genes=adata.var_names[adata.var['highly_variable']]."
    if isinstance(genes, str):
        raise InvalidInput("genes", "must be a list of names", repr(genes), remedy)
    if not isinstance(genes, Iterable):
        raise InvalidInput("genes", "must be a list of names", check.describe(genes), remedy)
    names = list(genes)
    other = [name for name in names if not isinstance(name, str)]
    if other:
        raise InvalidInput("genes", "must be a list of names", check.describe(other[0]), remedy)
    return list(dict.fromkeys(names))


def _values(name: str, adata: AnnData, layer: str | None) -> Any:
    if layer is not None and layer not in adata.layers:
        given = f"{layer!r}, with layers {list(adata.layers)} in {name}"
        raise InvalidInput("layer", "must be a layer of both", given, "Choose one that both have, or None for X.")
    values = adata.X if layer is None else adata.layers[layer]
    if values is None:
        raise InvalidInput(name, "must have values in X", "None", "Choose a layer: layer='...'.")
    return values


def _checked(name: str, values: Any, names: pd.Index, genes: pd.Index) -> np.ndarray:
    """These genes as a dense array; refused unless they look log-normalised."""
    columns = names.get_indexer(genes)
    array = values[:, columns].toarray() if is_sparse(values) else np.asarray(values)[:, columns]
    array = np.ascontiguousarray(array)  # sums are rounded alike, whatever the layout of the values
    if array.dtype.kind not in check.REAL:
        raise InvalidInput(name, "must hold numbers", f"dtype {array.dtype}", "Convert the values to float32.")
    if not np.isfinite(array).all():
        remedy = "Replace them, or leave these genes or cells out."
        raise InvalidInput(name, "must hold finite values", "NaN or infinity", remedy)
    largest = float(array.max())
    if array.min() < 0:
        remedy = "Use the values from before scanpy.pp.scale, often in adata.raw.to_adata(), or use_rep='X_pca'."
        given = f"{array.min():.3g}, so the values are probably scaled"
        raise InvalidInput(name, "must hold log-normalised values, which are not negative", given, remedy)
    if largest > 0 and (array == np.rint(array)).all():
        raise InvalidInput(name, "must hold log-normalised values", "whole numbers, probably raw counts", NORMALISE)
    if largest > LARGEST_LOGARITHM:
        given = f"values up to {largest:.4g}, probably without the logarithm"
        raise InvalidInput(name, "must hold log-normalised values", given, "Type scanpy.pp.log1p(adata).")
    return array


def _representation(source: AnnData, target: AnnData, genes: Any, layer: Any, use_rep: str) -> list[np.ndarray]:
    if genes is not None or layer is not None:
        given = "genes" if genes is not None else "layer"
        raise InvalidInput("use_rep", "must be given without genes and layer", given, f"Leave {given} out.")
    arrays = []
    for name, adata in (("adata_source", source), ("adata_target", target)):
        if use_rep not in adata.obsm:
            given = f"{use_rep!r}, with {list(adata.obsm)} in {name}.obsm"
            remedy = "Compute it for both conditions together, for example with scanpy.pp.pca, then split them."
            raise InvalidInput("use_rep", "must be a key of obsm of both", given, remedy)
        values: Any = adata.obsm[use_rep]
        array = values.toarray() if is_sparse(values) else np.asarray(values)
        if array.dtype.kind not in check.REAL or not np.isfinite(array).all():
            raise InvalidInput("use_rep", "must hold finite numbers", f"others in {name}", "Compute it again.")
        arrays.append(array)
    widths = [array.shape[1] for array in arrays]
    if widths[0] != widths[1]:
        remedy = "Compute it for both conditions together, then split them."
        raise InvalidInput("use_rep", "must have as many columns in both", f"{widths[0]} and {widths[1]}", remedy)
    return arrays


def _fit(model: JointTransportClassifier, x: np.ndarray, members: np.ndarray, z: np.ndarray) -> Any:
    """A fitted copy of the model."""
    y, domain = np.concatenate([members, np.full(len(z), -1)]), np.repeat([0, -1], [len(x), len(z)])
    return cast("Any", clone(model)).fit(np.concatenate([x, z]), y, sample_domain=domain)


def _threshold(model: JointTransportClassifier, x: np.ndarray, members: np.ndarray, share: float) -> float:
    """The outlier score that this share of source cells exceeds when each half of the source plays the target."""
    order = np.argsort(members, kind="stable")  # dealt out in turn, label by label
    halves = order[::2], order[1::2]
    scores = [
        _fit(model, x[kept], members[kept], x[held]).target_outlier_score_ for kept, held in (halves, halves[::-1])
    ]
    return float(np.quantile(np.concatenate(scores), 1.0 - share))
