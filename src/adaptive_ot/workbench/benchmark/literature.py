"""Figures of the literature on the protocol of a deep benchmark, to be shown beside its own."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Any, NamedTuple

from adaptive_ot.workbench.benchmark.study import Study

AS_PUBLISHED = "as published"
ABOUT = (
    "As published: copied from the papers, which may differ from this benchmark in weights, crops and length of the "
    "training; the iterate is the one that the official code reports. The best one is chosen by labels of the target."
)


class Published(NamedTuple):
    """A mean over all tasks of a protocol in percent, and which iterate of a training it belongs to."""

    method: str
    mean: float
    iterate: str


def literature(study: Study) -> list[Published]:
    """What the literature reports for the dataset and the target classes of a study.

    Examples
    --------
    >>> literature(Study((("pacs", "photo -> sketch"),), ("AOT",), 1, {"recipe": {"dataset": "pacs"}}))
    []
    """
    recipe = study.settings.get("recipe", {})
    if study.kind != "deep" or "dataset" not in recipe:
        return []
    preset = files("adaptive_ot") / "deep" / "presets" / f"{recipe['dataset']}.toml"
    protocols: dict[str, Any] = tomllib.loads(preset.read_text(encoding="utf-8")).get("protocols", {})
    return [
        Published(method, **figure)
        for protocol in protocols.values()
        if protocol["target_classes"] == recipe["target_classes"]
        for method, figure in protocol.get("literature", {}).items()
    ]
