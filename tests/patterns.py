"""Small pictures of four patterns, bright and clear in one domain, changed in others, for tests that train networks."""

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from adaptive_ot.deep import Config, configure

SIZE = 16
DIRECTIONS = np.array([(1.0, 0.0), (0.0, 1.0), (0.7, 0.7), (0.7, -0.7)])


def stripes(labels: np.ndarray, rng: np.random.Generator, contrast: float = 1.0, noise: float = 0.3) -> np.ndarray:
    """Stripes across, down, and along both diagonals, of random width and place."""
    rows, columns = np.mgrid[:SIZE, :SIZE]
    down, right = DIRECTIONS[labels].T[:, :, None, None]
    pace, place = rng.uniform(1.0, 1.6, (len(labels), 1, 1)), rng.uniform(0, 6, (len(labels), 1, 1))
    waves = np.sin(pace * (down * rows + right * columns) + place)
    return contrast * waves + noise * rng.standard_normal(waves.shape)


def save_patterns(path: Path, count: int = 240) -> Path:
    """An archive of the domains "clear", "faint" (little but noise is left) and "shaded" (lighter towards a side)."""
    rng = np.random.default_rng(2)
    labels = np.arange(count) % len(DIRECTIONS)
    light = np.linspace(-1, 1, SIZE)[:, None]
    domains = {
        "clear": stripes(labels, rng),
        "faint": stripes(labels, rng, 0.45, 0.45),
        "shaded": 0.3 + light - stripes(labels, rng, 0.5, 0.35),
    }
    images = {f"{name}_train_x": np.clip(128 + 60 * x, 0, 255).astype(np.uint8) for name, x in domains.items()}
    np.savez(path, **images, **{f"{name}_train_y": labels for name in domains})  # type: ignore[arg-type]
    return path


def save_folders(
    root: Path, names: Sequence[str], *, clear: int, faint: int, contrast: float, cut: Collection[int] = ()
) -> Path:
    """Images of the domains "clear" and "faint", a folder for every class; files with some numbers are cut short."""
    rng = np.random.default_rng(0)
    for domain, count, strength in (("clear", clear, 1.0), ("faint", faint, contrast)):
        labels = np.arange(count) % len(names)
        for number, (label, x) in enumerate(zip(labels, stripes(labels, rng, strength), strict=True)):
            path = root / domain / names[int(label)] / f"{number:02}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.clip(128 + 60 * x, 0, 255).astype(np.uint8)).save(path)
            if number in cut:
                path.write_bytes(path.read_bytes()[:-100])  # the header is whole
    return root


def metrics(output: Path) -> list[dict[str, Any]]:
    """The lines that a run has written."""
    return [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]


def small_run(root: Path, output: Path, **changes: Any) -> Config:
    """A run that takes a second."""
    values: dict[str, Any] = {
        **{"source": "clear", "target": "faint", "iterations": 80, "batch": 32, "bottleneck": 32, "evaluate_every": 20},
        **{"resize": SIZE, "crop": SIZE, "device": "cpu"},
    }
    return configure(dataset="digits", root=root, output=output, **values | changes)
