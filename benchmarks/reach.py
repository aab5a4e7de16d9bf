"""How good are estimated reaches and elbows? Outliers matched and inliers lost, on clouds made here and on digits.

    python benchmarks/reach.py

The numbers in `_partners.py` were chosen on moons of 500 points with 20 % outliers, the torus, digits, Gaussian clouds
and clusters, with seeds below 100. The seeds here are others; so are the sizes, shares and dimensions of the second
table. "Best" is the reach that knows the outliers: of 16 reaches, the one with the smallest sum of both shares.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

import adaptive_ot as aot
import measure
from adaptive_ot.workbench.cli.samples import moons_with_outliers

SEEDS = range(100, 105)
RESULTS = measure.RESULTS / "reach.json"


class Clouds(NamedTuple):
    """Two clouds, and which of their points are outliers."""

    x: np.ndarray
    z: np.ndarray
    source_outlier: np.ndarray
    target_outlier: np.ndarray


Inliers = Callable[[np.random.Generator, int], np.ndarray]


def seen_twice(seed: int, inliers: Inliers, box: float, share: float = 0.2, n: int = 500, m: int | None = None) -> Any:
    """Two samples of a distribution, each with outliers that are uniform in a box."""
    rng, sides = np.random.default_rng(seed), []
    for size in (n, m or n):
        outlier = np.arange(size) >= size - round(share * size)
        points = inliers(rng, size)
        points[outlier] = rng.uniform(-box, box, (int(outlier.sum()), points.shape[1]))
        sides.append((points, outlier))
    (x, of_source), (z, of_target) = sides
    return Clouds(x, z, of_source, of_target)


def moons(seed: int, n: int = 500, share: float = 0.2) -> Clouds:
    return Clouds(*moons_with_outliers(n, share, seed))


def rounded_moons(seed: int, decimals: int) -> Clouds:
    x, z, *outliers = moons(seed)
    return Clouds(x.round(decimals), z.round(decimals), *outliers)


def torus(rng: np.random.Generator, size: int) -> np.ndarray:
    u, v = rng.uniform(0, 2 * np.pi, (2, size))
    ring = 2 + 0.7 * np.cos(v)
    points = np.column_stack([ring * np.cos(u), ring * np.sin(u), 0.7 * np.sin(v)])
    return points + rng.normal(0, 0.05, points.shape)


def gaussian(dimension: int) -> Inliers:
    return lambda rng, size: rng.normal(size=(size, dimension))


def clusters(dimension: int) -> Inliers:
    centres = np.random.default_rng(dimension).uniform(-5, 5, (5, dimension))
    return lambda rng, size: centres[np.arange(size) % 5] + 0.3 * rng.normal(size=(size, dimension))


@cache
def images() -> np.ndarray:
    from sklearn.datasets import load_digits

    everything: Any = load_digits()
    return everything.data


def digits(seed: int, share: float = 1 / 6) -> Clouds:
    """The halves of the digits; outliers are images whose pixels are shuffled."""
    rng, sides = np.random.default_rng(seed), []
    for half in np.split(images()[rng.permutation(len(images()))][:1796], 2):
        outlier = np.arange(len(half)) >= len(half) - round(share * len(half))
        half[outlier] = rng.permuted(half[outlier], axis=1)
        sides.append((half, outlier))
    (x, of_source), (z, of_target) = sides
    return Clouds(x, z, of_source, of_target)


def unpaired(seed: int, noise: float) -> Clouds:
    """Points seen again with little noise, but a fifth of them elsewhere in the same distribution."""
    rng = np.random.default_rng(seed)
    x, outlier = rng.normal(size=(500, 2)), np.arange(500) >= 400
    z = x + noise * rng.normal(size=x.shape)
    z[outlier] = rng.normal(size=(100, 2))
    return Clouds(x, z, outlier, outlier)


CRITERION = {
    "two moons, 20 %": moons,
    "torus in R^3, 17 %, box of 8": partial(seen_twice, inliers=torus, box=8, share=1 / 6, n=600),
    "digits, 17 %": digits,
    **{f"Gaussian in R^{d}": partial(seen_twice, inliers=gaussian(d), box=0, share=0) for d in (2, 5, 16)},
}
OTHERS = {
    **{f"two moons, {share:.0%}": partial(moons, share=share) for share in (0.0, 0.05, 0.1, 0.3, 0.4)},
    **{f"two moons, n = {n}": partial(moons, n=n) for n in (100, 250, 1000)},
    **{f"two moons, rounded to {10.0**-d:g}": partial(rounded_moons, decimals=d) for d in (2, 1)},
    **{f"torus, box of {b}": partial(seen_twice, inliers=torus, box=b, share=1 / 6, n=600) for b in (4, 6)},
    **{f"digits, {share:.0%}": partial(digits, share=share) for share in (0.0, 0.05, 0.4)},
    **{f"Gaussian in R^{d}, 20 %": partial(seen_twice, inliers=gaussian(d), box=6) for d in (2, 5, 16)},
    **{f"Gaussian in R^{d}": partial(seen_twice, inliers=gaussian(d), box=0, share=0) for d in (1, 3, 64)},
    **{f"clusters in R^{d}, 20 %": partial(seen_twice, inliers=clusters(d), box=7.5) for d in (2, 5, 16)},
    "clusters in R^5, 500 and 1500": partial(seen_twice, inliers=clusters(5), box=7.5, m=1500),
    "seen again, noise 0.01, 20 %": partial(unpaired, noise=0.01),
    "seen again, noise 0.001, 20 %": partial(unpaired, noise=0.001),
}


def judged(clouds: Clouds, reach: float) -> tuple[float, float]:
    """The shares of the inliers that are lost and of the outliers that are matched."""
    solution = aot.solve(aot.DistanceCost(clouds.x, clouds.z, reach))
    active = np.concatenate([solution.active_source, solution.active_target])
    outlier = np.concatenate([clouds.source_outlier, clouds.target_outlier])
    return float(np.mean(~active[~outlier])), float(np.mean(active[outlier])) if outlier.any() else 0.0


def some_reaches(path: aot.MassPath, reach: float) -> list[float]:
    """The reaches at which the mass goes beyond half of all in equal steps, up to all of it."""
    prices = [path.price_at(mass) for mass in np.linspace(0.5, 1.0, 16) * path.most_mass]
    return [1.001 * math.sqrt(price + reach**2) for price in prices]


def row(name: str, make: Callable[..., Clouds]) -> dict[str, Any]:
    found: list[Any] = []
    for seed in SEEDS:
        clouds = make(seed)
        cost = aot.DistanceCost(clouds.x, clouds.z)
        path = aot.mass_path(cost)
        best = min((judged(clouds, reach) for reach in some_reaches(path, cost.reach)), key=sum)
        assert cost.estimate is not None
        gap = cost.estimate.alone is not None
        found.append((*judged(clouds, cost.reach), *best, gap, path.suggest().elbow is not None))
    lost, matched, best_lost, best_matched, gaps, elbows = zip(*found, strict=True)
    numbers = {
        "lost": np.mean(lost),
        "matched": np.mean(matched),
        "most lost": max(lost),
        "most matched": max(matched),
        "lost by the best": np.mean(best_lost),
        "matched by the best": np.mean(best_matched),
    }
    shown = "  ".join(f"{100 * number:5.1f}" for number in numbers.values())
    print(f"{name:32s} {shown}   {sum(gaps):2d} {sum(elbows):2d} of {len(gaps)}", flush=True)
    return {"data": name, **{key: float(of) for key, of in numbers.items()}, "gaps": sum(gaps), "elbows": sum(elbows)}


def without_outliers() -> Iterator[Inliers]:
    """Distributions with one peak, with many, on a surface, with heavy tails and with edges."""
    for dimension in (1, 2, 3, 5, 16, 64):
        yield gaussian(dimension)
        yield lambda rng, size, d=dimension: rng.uniform(size=(size, d))
    yield lambda rng, size: rng.exponential(size=(size, 2))
    yield lambda rng, size: rng.standard_t(3, size=(size, 2))
    yield lambda rng, size: rng.standard_t(3, size=(size, 5))
    yield torus
    yield clusters(2)


def with_repeated_values() -> Iterator[Inliers]:
    """Rounded numbers, in equal and other units, whole numbers, counts, and ones and zeros."""
    for dimension in (1, 2, 5):
        yield lambda rng, size, d=dimension: rng.normal(size=(size, d)).round(1)
        yield lambda rng, size, d=dimension: rng.normal(size=(size, d)).round()
        yield lambda rng, size, d=dimension: rng.integers(18, 90, (size, d)).astype(float)
        yield lambda rng, size, d=dimension: rng.poisson(3, (size, d)).astype(float)
        yield lambda rng, size, d=dimension: rng.geometric(0.3, (size, d)).astype(float)
    yield lambda rng, size: rng.normal(size=(size, 3)).round(1) * [1.0, 0.37, 2.9]
    yield lambda rng, size: rng.integers(0, 2, (size, 8)).astype(float)
    yield lambda rng, size: rng.integers(0, 2, (size, 20)).astype(float)
    yield lambda rng, size: np.eye(6)[rng.integers(0, 6, size)]


def false_gaps(kind: str, distributions: Callable[[], Iterator[Inliers]], repeats: int = 30) -> dict[str, Any]:
    """How often clouds without outliers seem to have some."""
    rng, seen, total = np.random.default_rng(100), 0, 0
    for n in (50, 200, 500):
        for inliers in distributions():
            for _ in range(repeats):
                estimate = aot.DistanceCost(inliers(rng, n), inliers(rng, n)).estimate
                seen, total = seen + (estimate is not None and estimate.alone is not None), total + 1
    print(f"{seen} of {total} pairs of clouds without outliers have a gap ({seen / total:.1%}): {kind}", flush=True)
    return {"pairs of clouds without outliers": total, "with a gap": seen}


def main() -> None:
    print(f"{'':32s} lost  matched  (most)   best: lost matched   gaps elbows")
    results = {
        "criterion": [row(name, make) for name, make in CRITERION.items()],
        "others": [row(name, make) for name, make in OTHERS.items()],
        "without outliers": false_gaps("continuous values", without_outliers),
        "without outliers, repeated values": false_gaps("repeated values", with_repeated_values),
    }
    measure.write_json(RESULTS, {**measure.header(), "seeds": list(SEEDS), **results})


if __name__ == "__main__":
    main()
