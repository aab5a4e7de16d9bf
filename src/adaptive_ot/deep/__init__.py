"""Deep domain adaptation: networks trained on labelled images of one domain and unlabelled ones of another."""

from importlib.util import find_spec

from adaptive_ot.errors import MissingDependency

for _package in ("torch", "torchvision", "PIL", "safetensors"):
    if find_spec(_package) is None:
        raise MissingDependency("torch, torchvision, Pillow and safetensors", "deep")

# ruff: noqa: E402
from adaptive_ot.deep.config import Config, configure
from adaptive_ot.deep.loop import Interrupted, Progress, train
from adaptive_ot.deep.result import Result
from adaptive_ot.deep.selection import Candidate, Selection, select
from adaptive_ot.deep.trained import Predictions, evaluate, predict

__all__ = [
    "Candidate",
    "Config",
    "Interrupted",
    "Predictions",
    "Progress",
    "Result",
    "Selection",
    "configure",
    "evaluate",
    "predict",
    "select",
    "train",
]
