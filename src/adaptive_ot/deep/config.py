"""The settings of a training run: defaults, then the preset of the dataset, then a file, then arguments."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from adaptive_ot._validation import choice, describe
from adaptive_ot.deep.fields import (
    BelowOne,
    Checked,
    Count,
    Natural,
    NotNegative,
    Pixels,
    checked,
    filled_in,
    kinds_of,
    refuse_unknown,
)
from adaptive_ot.deep.methods import METHODS, Method
from adaptive_ot.errors import InvalidInput
from adaptive_ot.workbench.files import check_input, trouble


@dataclass(frozen=True, kw_only=True)
class Config(Checked):
    """Everything that the result of a training run depends on, and its directory.

    Made by `configure`, which fills in the preset of the dataset; docs/deep.md describes every field.
    """

    # Data
    dataset: str
    root: Path
    source: str
    target: str
    output: Path
    source_classes: tuple[str, ...] = ()  # the classes that the source keeps; empty for all
    target_classes: tuple[str, ...] = ()  # likewise of the target
    unknown: Literal["refuse", "keep"] = "refuse"  # target classes that the source does not have
    on_bad_image: Literal["error", "skip"] = "error"

    # Method and network
    method: str = "aot"
    settings: Mapping[str, Any] = field(default_factory=dict)
    network: str = "resnet50"
    weights: str | None = None
    bottleneck: Count = 512

    # Optimiser
    iterations: Count = 5000
    batch: Count = 64  # of either domain
    learning_rate: NotNegative = 0.001
    learning_rate_decay: NotNegative = 0.001
    learning_rate_power: NotNegative = 0.75
    head_factor: NotNegative = 10.0
    momentum: BelowOne = 0.9
    weight_decay: NotNegative = 5e-4
    passes: Literal["two", "joint"] = "two"
    precision: Literal["auto", "float32", "tf32", "bf16"] = "auto"
    deterministic: bool = True  # a resumed run equals an uninterrupted one, bit for bit
    compile: bool = False  # the network, by torch.compile

    # Images
    resize: Pixels = 256
    crop: Pixels = 224
    crop_kind: Literal["resized", "random", "none"] = "resized"
    flip: bool = True
    test_crops: Literal["centre", "ten"] = "centre"
    storage: Literal["auto", "device", "stream"] = "auto"
    workers: Natural = 4

    # The run
    seed: Natural = 0
    device: str = "auto"
    evaluate_every: Count = 500
    checkpoint_every: Count = 500

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.crop > self.resize:
            remedy = "Choose a smaller crop, or a larger resize."
            raise InvalidInput("crop", f"must be at most resize, {self.resize}", self.crop, remedy)
        if self.crop_kind == "none" and self.crop != self.resize:
            rule = f"must equal resize, {self.resize}, with crop_kind 'none'"
            raise InvalidInput("crop", rule, self.crop, "Make them equal, or crop.")

    def record(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return json.loads(json.dumps({each.name: getattr(self, each.name) for each in fields(self)}, default=str))


def configure(
    *,
    dataset: str,
    root: Path | str,
    source: str,
    target: str,
    output: Path | str,
    config_file: Path | str | None = None,
    published: bool = False,
    protocol: str | None = None,
    settings: Mapping[str, Any] | None = None,
    **overrides: Any,
) -> Config:
    """The config of a run: the preset of its dataset, changed by a file, changed by arguments.

    Parameters
    ----------
    dataset, root, source, target
        Two domains of a dataset: "office31", "office-home", "visda", "pacs", "digits", or any "folders" or "lists".
    output
        The directory of the run.
    config_file
        A TOML file with fields of `Config`, and settings of the method in a table `[settings]`.
    published
        Use the settings of the method's paper for this dataset instead of our defaults.
    protocol
        "partial": the target keeps the classes that the literature on partial adaptation keeps of this dataset.
    settings
        Settings of the method.
    **overrides
        Any other field of `Config`.

    Examples
    --------
    >>> config = configure(dataset="office31", root=".", source="amazon", target="webcam", output="run", published=True)
    >>> config.iterations, config.batch, config.settings["alpha"], config.settings["beta"]
    (5000, 62, 0.01, 5.0)
    """
    preset = read_preset(dataset)
    of_protocol = _protocol(dataset, preset.pop("protocols", {}), protocol)
    found = _read(Path(config_file)) if config_file else {}
    of_file = found.pop("settings", {})
    if not isinstance(of_file, dict):
        rule = "must hold 'settings' as a table"
        raise InvalidInput(f"config file '{config_file}'", rule, describe(of_file), "Write it as [settings].")
    of_methods, of_papers = preset.pop("methods", {}), preset.pop("published", {})
    asked = of_file | checked("settings", {} if settings is None else settings, Mapping[str, Any])
    task = {"dataset": dataset, "root": root, "source": source, "target": target, "output": output}
    for each in (name for name in task if name in found):
        rule = f"must not hold '{each}', which is given beside it"
        raise InvalidInput(f"config file '{config_file}'", rule, describe(found[each]), "Remove it.")
    if of_protocol and "target_classes" in found | overrides:
        raise InvalidInput("target_classes", "does not go with a protocol, which chooses them", "both", "Omit one.")
    values: dict[str, Any] = preset | of_protocol | found | overrides | task
    if isinstance(values.get("weights"), Path):
        values["weights"] = str(values["weights"])
    name = values.get("method", Config.method)
    method = method_named(name)
    if published and name not in of_papers:
        listed = ", ".join(f"'{each}'" for each in of_papers) or "none"
        rule = f"needs a method with published settings for '{dataset}'"
        raise InvalidInput("published", rule, f"'{name}'", f"There are settings for: {listed}.")
    of_method = of_methods.get(name, {}) | (of_papers[name] if published else {}) | asked
    if values.get("unknown") == "keep" and hasattr(method.defaults(), "presence"):
        of_method = {"presence": "ignored"} | of_method  # unknown images must not be matched, however full the overlap
    filled = filled_in(method.defaults(), of_method, f"setting of method '{name}'")
    method(filled, 2, 2)  # a small one, which refuses settings that make no sense
    _refuse_idle(method, filled, asked)
    known = kinds_of(Config)
    for each in values:
        if each not in known and hasattr(filled, each):
            rule, remedy = "must be a known field of a run", "Put it under settings."
            raise InvalidInput(f"'{each}'", rule, f"a setting of method '{name}'", remedy)
    refuse_unknown(values, known, "field of a run")
    values["settings"] = asdict(filled)
    return Config(**values)


def method_named(name: Any) -> type[Method]:
    """The class of a method."""
    choice("method", name, tuple(METHODS))
    return METHODS[name]


def _refuse_idle(method: type[Method], settings: Any, asked: Mapping[str, Any]) -> None:
    """Refuse settings that have no effect beside the others."""
    for name, (other, values) in method.needs.items():
        found = getattr(settings, other)
        if name in asked and found not in values:
            rule = f"needs {other} {' or '.join(map(repr, values))}"
            remedy = "Omit it: it would have no effect."
            raise InvalidInput(f"setting '{name}'", rule, f"{other} {found!r}", remedy)


def _protocol(dataset: str, known: dict[str, Any], asked: str | None) -> dict[str, Any]:
    """The fields that a protocol sets."""
    if asked is None:
        return {}
    if asked not in known:
        rule = f"must be a protocol of '{dataset}': {', '.join(known) or 'there is none'}"
        raise InvalidInput("protocol", rule, describe(asked), "Name the classes of the target with target_classes.")
    return {name: value for name, value in known[asked].items() if name != "literature"}


def read_preset(dataset: str) -> dict[str, Any]:
    """The preset of a dataset, with its protocols."""
    folder = files("adaptive_ot.deep") / "presets"
    names = sorted(each.name.removesuffix(".toml") for each in folder.iterdir() if each.name.endswith(".toml"))
    choice("dataset", dataset, tuple(names))
    return tomllib.loads((folder / f"{dataset}.toml").read_text(encoding="utf-8"))


def _read(path: Path) -> dict[str, Any]:
    name = f"config file '{path}'"
    check_input(name, path, (".toml",))
    with trouble(name, "must be valid TOML"):
        return tomllib.loads(path.read_text(encoding="utf-8"))
