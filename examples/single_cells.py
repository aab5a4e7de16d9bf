"""Label the cells of a treated sample from a control; types are missing on either side.

python examples/single_cells.py                                  # generated cells
python examples/single_cells.py SOURCE.h5ad TARGET.h5ad LABEL    # your own, log-normalised
"""

import sys

import anndata
import pandas as pd
from sklearn.metrics import roc_auc_score

from adaptive_ot.adapt import transfer_labels
from adaptive_ot.workbench.cli.samples import treated_cells


def generated() -> tuple[anndata.AnnData, anndata.AnnData]:
    """A control with the types A to D, and a treated sample with B to F."""
    cells = treated_cells("ABCD", "BCDEF", size=400)
    genes = pd.DataFrame(index=cells.genes)
    control = pd.DataFrame({"type": cells.control_types}, index=cells.names)
    treated = pd.DataFrame({"truth": cells.treated_types}, index=cells.names)  # to compare with; never read before
    return anndata.AnnData(cells.control, control, genes), anndata.AnnData(cells.treated, treated, genes)


own = len(sys.argv) == 4
if own:
    label = sys.argv[3]
    source, target = (anndata.read_h5ad(path) for path in sys.argv[1:3])
else:
    label = "type"
    source, target = generated()

labelled = transfer_labels(source, target, label=label, unknown=0.05)
key = f"{label}_transferred"
about = labelled.uns[key]
print(f"{source.n_obs} labelled and {target.n_obs} other cells, {about['genes']} genes of both")
print(f"overlap {about['overlap']:.2f}, adapted: {about['adapted']}. {about['reason']}")
print(about["labels"].to_string())
print(f"unknown cells: {(labelled.obs[key] == 'unknown').sum()}")

if not own:
    truth, score = labelled.obs["truth"], labelled.obs[f"{key}_outlier_score"]
    new = truth.isin(["E", "F"])
    print("true types (rows), and what their cells were called:")
    print(pd.crosstab(truth, labelled.obs[key]).to_string())
    print(f"AUC of the outlier score for the new types: {roc_auc_score(new, score):.2f}")
