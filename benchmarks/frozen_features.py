"""A rehearsal of deep adaptation: a bottleneck and a classifier on frozen features, in seconds and without a GPU.

    python benchmarks/frozen_features.py --data data/pacs_resnet50 [--seeds 1] [--jobs 2]

DATA is a dataset as for `adaptive-ot benchmark features`. Each domain gets mean 0 and deviation 1 in every feature, as
BatchNorm with statistics of its own would do. Every pair of domains is a task, once with all
classes in the target and once with four drawn by the seed. This is a first look at a change of a method, before a GPU
trains whole networks with it. Results: benchmarks/results/frozen_features.json.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
from dataclasses import replace
from functools import lru_cache, partial
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

import measure
from adaptive_ot.deep.methods import METHODS, Pair
from adaptive_ot.workbench.benchmark.domains import read_dataset

STEPS, PER_CLASS, BOTTLENECK, LEFT = 400, 10, 256, 4
RATE, MOMENTUM, DECAY = 0.003, 0.9, 5e-4

ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "AOT": ("aot", {}),
    "AOT, presence ignored": ("aot", {"presence": "ignored"}),
    "AOT, no neighbours": ("aot", {"neighbours": 0}),
    "JUMBOT": ("jumbot", {}),
}


class Run(NamedTuple):
    row: str
    source: str
    target: str
    classes: tuple[int, ...] | None  # those of the target, or all
    seed: int


@lru_cache
def standardised(data: Path, domain: str) -> tuple[torch.Tensor, torch.Tensor]:
    features = read_dataset(data).domains[domain]
    x = torch.as_tensor(features.x, dtype=torch.float32)
    return (x - x.mean(0)) / x.std(0).clamp_min(1e-3), torch.as_tensor(features.y)


def accuracy(data: Path, run: Run) -> float:
    """Accuracy on the target after the last step."""
    torch.set_num_threads(1)
    torch.manual_seed(run.seed)
    rng = np.random.default_rng(run.seed)
    (x, y), (z, t), classes = standardised(data, run.source), standardised(data, run.target), read_dataset(data).classes
    if run.classes is not None:
        kept = torch.isin(t, torch.tensor(run.classes))
        z, t = z[kept], t[kept]
    bottleneck, classifier = nn.Linear(x.shape[1], BOTTLENECK), nn.Linear(BOTTLENECK, classes)
    for layer in (bottleneck, classifier):
        nn.init.xavier_normal_(layer.weight)
        nn.init.zeros_(layer.bias)
    name, changes = ROWS[run.row]
    method = METHODS[name](replace(METHODS[name].defaults(), **changes), BOTTLENECK, classes)
    parameters = [*bottleneck.parameters(), *classifier.parameters()]
    optimiser = torch.optim.SGD(parameters, RATE, MOMENTUM, weight_decay=DECAY, nesterov=True)
    members = [np.flatnonzero(y == label) for label in range(classes)]
    for step in range(STEPS):
        ours = torch.from_numpy(np.concatenate([rng.choice(each, PER_CLASS) for each in members]))
        theirs = torch.from_numpy(rng.choice(len(z), PER_CLASS * classes, replace=False))
        sources, targets = bottleneck(x[ours]), bottleneck(z[theirs])
        logits = classifier(sources)
        pair = Pair(
            source_features=sources,
            source_logits=logits,
            source_labels=y[ours],
            target_features=targets,
            target_logits=classifier(targets),
            source_images=x[:0],
            target_images=z[:0],
            target_identities=theirs,
            progress=step / STEPS,
            gather=lambda each: each,
        )
        loss = nn.functional.cross_entropy(logits, y[ours]) + method.alignment(pair).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    with torch.no_grad():
        return (classifier(bottleneck(z)).argmax(1) == t).double().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data/pacs_resnet50"))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    dataset = read_dataset(options.data)
    runs = [
        Run(row, *task, kept, seed)
        for seed in range(options.seeds)
        for kept in (None, tuple(sorted(random.Random(seed).sample(range(dataset.classes), LEFT))))
        for row in ROWS
        for task in permutations(dataset.domains, 2)
    ]
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        found = pool.map(partial(accuracy, options.data), runs, chunksize=1)
    outcomes = [run._asdict() | {"accuracy": round(each, 4)} for run, each in zip(runs, found, strict=True)]
    print(f"{'accuracy, mean over tasks':<26} {'all classes':>12} {f'{LEFT} classes':>12}")
    for row in ROWS:
        means = [
            np.mean(
                [each["accuracy"] for each in outcomes if each["row"] == row and (each["classes"] is None) == whole]
            )
            for whole in (True, False)
        ]
        print(f"{row:<26} {100 * means[0]:12.1f} {100 * means[1]:12.1f}")
    measure.write_json(measure.RESULTS / "frozen_features.json", measure.header() | {"runs": outcomes})


if __name__ == "__main__":
    main()
