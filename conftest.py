"""Modules whose optional dependency is missing have no doctests to collect; without a GPU, Triton is interpreted."""

import os
from importlib.util import find_spec

collect_ignore = [] if find_spec("triton") else ["src/adaptive_ot/solvers/softmin/triton.py"]

if find_spec("triton") and find_spec("torch"):
    import torch

    # Before anybody imports Triton, as torchvision does: it looks once.
    if not torch.cuda.is_available():
        os.environ.setdefault("TRITON_INTERPRET", "1")
