"""The problems that the demo, the self-test and the examples share."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

# Six sources of weight 1/6 and five targets of weight 1/5. The optimum is -11/15 with mass 11/15: {x1, x2, x3} is tied
# to {z1, z2} and {x4, x5} to {z3, z4}; x6 and z5 are left alone.
TOY_COST = np.array(
    [
        [-1.0, -1.0, 1.0, 1.0, 3.0],
        [-1.0, -1.0, 2.0, 1.0, 1.0],
        [-1.0, -1.0, 1.0, 1.0, 2.0],
        [2.0, 3.0, -1.0, -1.0, 1.0],
        [1.0, 1.0, -1.0, -1.0, 3.0],
        [1.0, 3.0, 2.0, 1.0, 2.0],
    ]
)
TOY_VALUE = -11 / 15


class Clouds(NamedTuple):
    """Two point clouds, and which of their points are outliers."""

    x: np.ndarray
    z: np.ndarray
    source_outlier: np.ndarray
    target_outlier: np.ndarray


def moons_with_outliers(size: int = 250, share: float = 0.2, seed: int = 0) -> Clouds:
    """Two moons, seen twice with noise and a small shift, with clutter above them once and below them once.

    Examples
    --------
    >>> clouds = moons_with_outliers(size=100)
    >>> clouds.x.shape, clouds.source_outlier.sum(), clouds.target_outlier.sum()
    ((100, 2), np.int64(20), np.int64(20))
    """
    rng = np.random.default_rng(seed)
    outliers = round(share * size)
    sides = []
    for shift, clutter in ((0.0, [[-2.0, 0.3], [3.0, 2.4]]), (0.1, [[-2.0, -1.9], [3.0, 0.2]])):
        moons = _moons(rng, size - outliers) + shift
        sides.append(np.concatenate([moons, _away_from(moons, rng, outliers, clutter)]))
    outlier = np.arange(size) >= size - outliers
    return Clouds(sides[0], sides[1], outlier, outlier)


def _moons(rng: np.random.Generator, size: int) -> np.ndarray:
    angle = np.linspace(0, 2 * np.pi, size)
    upper = angle < np.pi
    x = np.where(upper, np.cos(angle), 1 + np.cos(angle))
    y = np.where(upper, np.sin(angle), 0.5 + np.sin(angle))
    return np.column_stack([x, y]) + rng.normal(scale=0.06, size=(size, 2))


def _away_from(points: np.ndarray, rng: np.random.Generator, size: int, box: list[list[float]]) -> np.ndarray:
    """Points spread over a box, none of them near `points`."""
    candidates = rng.uniform(*box, size=(20 * size, 2))
    nearest = np.linalg.norm(candidates[:, None] - points, axis=2).min(axis=1, initial=np.inf)
    return candidates[nearest > 0.3][:size]


class Cells(NamedTuple):
    """Log-normalised expression in two conditions (cells x genes), and the names of types, cells and genes."""

    control: np.ndarray
    control_types: np.ndarray
    treated: np.ndarray
    treated_types: np.ndarray
    names: np.ndarray
    genes: np.ndarray


def treated_cells(
    source_types: str = "ABCDEF",
    target_types: str = "ABCDEF",
    *,
    size: int = 300,
    genes: int = 400,
    effect: float = 0.7,
    seed: int = 0,
) -> Cells:
    """Cells of the types A to F before and after a treatment, which changes a fifth of the genes.

    As in the simulator Splatter, mean expressions have a gamma distribution, a type multiplies some of them by
    log-normal factors, and counts are negative binomial. `effect` is the standard deviation of the logarithms of the
    changes by the treatment, half of which all types have in common. Counts are normalised and logged, as scanpy does.

    Examples
    --------
    >>> cells = treated_cells(target_types="AB", size=60)
    >>> cells.control.shape, sorted(set(cells.treated_types.tolist()))
    ((60, 400), ['A', 'B'])
    """
    rng = np.random.default_rng(seed)

    def factors(rows: int, share: float, deviation: float) -> np.ndarray:
        return np.exp(rng.normal(0, deviation, (rows, genes)) * (rng.random((rows, genes)) < share))

    def observed(profiles: np.ndarray, types: str) -> tuple[np.ndarray, np.ndarray]:
        drawn = rng.choice(list(types), size)
        means = profiles[["ABCDEF".index(name) for name in drawn]]
        depth = 1500 * np.exp(rng.normal(0, 0.2, (size, 1)))
        counts = rng.poisson(rng.gamma(5.0, 0.2, means.shape) * means / means.sum(axis=1, keepdims=True) * depth)
        return np.log1p(1e4 * counts / counts.sum(axis=1, keepdims=True)), drawn

    control = rng.gamma(0.6, 3.0, genes) * factors(6, 0.1, 0.6)
    treated = control * factors(1, 0.1, effect) * factors(6, 0.1, effect)
    names = np.array([f"cell{number}" for number in range(size)])
    symbols = np.array([f"gene{number}" for number in range(genes)])
    return Cells(*observed(control, source_types), *observed(treated, target_types), names, symbols)
