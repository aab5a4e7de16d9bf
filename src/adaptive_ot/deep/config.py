"""A training run as plain values: defaults, then the preset of the dataset, then a file, then what the caller says."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib.resources import files
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from adaptive_ot._files import check_input, trouble
from adaptive_ot._validation import describe
from adaptive_ot.errors import InvalidInput

# Tables that a preset may have beside the fields of Config: settings of methods, and those of their papers.
METHODS, PUBLISHED = "methods", "published"


@dataclass(frozen=True, kw_only=True)
class Config:
    """Everything that the result of a training run depends on, and where it goes.

    Made by `configure`, which fills in the preset of the dataset; see docs/deep.md for every field.
    """

    # What is adapted to what
    dataset: str
    root: Path
    source: str
    target: str
    output: Path
    target_classes: tuple[str, ...] = ()  # the only ones in the target; all, if none are named
    on_bad_image: Literal["error", "skip"] = "error"

    # How
    method: str = "aot"
    settings: Mapping[str, Any] = field(default_factory=dict)
    network: str = "resnet50"
    weights: str | None = None
    bottleneck: int = 512

    # The recipe
    iterations: int = 5000
    batch: int = 64  # of either domain
    learning_rate: float = 0.001
    learning_rate_decay: float = 0.001
    learning_rate_power: float = 0.75
    head_factor: float = 10.0
    momentum: float = 0.9
    weight_decay: float = 5e-4
    passes: Literal["two", "joint"] = "two"
    precision: Literal["auto", "float32", "tf32", "bf16"] = "auto"

    # Images
    resize: int = 256
    crop: int = 224
    crop_kind: Literal["resized", "random", "none"] = "resized"
    flip: bool = True
    test_crops: Literal["centre", "ten"] = "centre"
    storage: Literal["auto", "device", "stream"] = "auto"
    workers: int = 4

    # The run
    seed: int = 0
    device: str = "auto"
    evaluate_every: int = 500
    checkpoint_every: int = 500

    def record(self) -> dict[str, Any]:
        """As JSON would bring it back."""
        return json.loads(json.dumps({each.name: getattr(self, each.name) for each in fields(self)}, default=str))
