"""How tests run: one thread each where they run side by side; Triton is interpreted where there is no GPU."""

import os
from importlib.util import find_spec

# Tests side by side share the cores; threads are counted when NumPy and PyTorch are first imported.
if "PYTEST_XDIST_WORKER" in os.environ:
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")

NEED = {
    "triton": [f"src/adaptive_ot/entropic/{name}.py" for name in ("triton", "sweeps", "skipping", "streaming")],
    "mkdocs": ["docs/pages.py"],
    "anndata": ["src/adaptive_ot/adapt/cells.py", "docs/cells.md"],
}
collect_ignore = [path for package, paths in NEED.items() if not find_spec(package) for path in paths]

if find_spec("triton") and find_spec("torch"):
    import torch

    # Before anybody imports Triton, as torchvision does: it looks once.
    if not torch.cuda.is_available():
        os.environ.setdefault("TRITON_INTERPRET", "1")
