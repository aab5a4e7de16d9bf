"""Everything the numbers of a deep benchmark depend on, checked before the work starts; no path and no device."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from adaptive_ot.deep.config import Config
from adaptive_ot.deep.data.domain import digest, read_domains
from adaptive_ot.deep.networks import build_network
from adaptive_ot.deep.run_directory import decisive
from adaptive_ot.deep.weights import digest_of
from adaptive_ot.workbench.benchmark.study_file import OF_CELLS, located_in
from adaptive_ot.workbench.environment import versions

# Packages whose numbers end up in the results.
DECISIVE = ("adaptive-ot", "numpy", "torch", "torchvision", "timm", "pillow")


def dependencies(path: Path, configs: dict[str, Config], tasks: Iterable[str]) -> dict[str, Any]:
    """Settings, digests of data and weights, and versions.

    Parameters
    ----------
    path
        The study file, for messages.
    configs
        A training run of every row.
    tasks
        Of all rows, as SOURCE:TARGET.
    """
    with located_in(path):
        data, classes = _data(next(iter(configs.values())), tasks)
    weights: dict[tuple[Any, ...], str | None] = {}  # a digest for every network that was built
    records = {}
    for name, config in configs.items():
        with located_in(path, name):
            network = config.network, config.bottleneck, config.weights
            if network not in weights:
                weights[network] = _weights(config, classes)
        record = {field: value for field, value in decisive(config).items() if field not in OF_CELLS}
        records[name] = record | {"weights": weights[network]}
    return {**_in_common(records), "data": data, "versions": versions(DECISIVE)}


def _data(config: Config, tasks: Iterable[str]) -> tuple[dict[str, Any], int]:
    """A digest of the images of every task, and how many classes they have."""
    digests, classes = {}, 0
    for task in tasks:
        names = task.split(":")
        source, target = read_domains(config.dataset, config.root, names[0], names[1], config.target_classes)
        digests[task] = {"source": digest(source), "target": digest(target)}
        classes = len(source.classes)
    return digests, classes


def _weights(config: Config, classes: int) -> str | None:
    """A digest of the file with the weights, which fit the network."""
    build_network(config.network, classes, bottleneck=config.bottleneck, weights=config.weights, seed=config.seed)
    return digest_of(config.weights)


def _in_common(records: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The values that all rows have in common, and the other values of each row."""
    first = next(iter(records.values()))
    recipe = {
        field: value
        for field, value in first.items()
        if field not in ("method", "settings") and all(record[field] == value for record in records.values())
    }
    rows = {name: {field: record[field] for field in record if field not in recipe} for name, record in records.items()}
    return {"recipe": recipe, "rows": rows}
