"""Train a small network on clean digits, for digits on dirty paper with half of the classes missing.

The labels of the target are only used for evaluation. If everything is matched, source digits missing in the target are
matched with others; adaptive transport leaves them unmatched. With equal class capacities (``rooms = "equal"``) a class
sends no more than its share of the source; by default it may send as much as the target appears to hold of it.

    python examples/deep_digits.py
"""

import tempfile
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from adaptive_ot import deep

SIZE, COUNT, CLASSES_OF_TARGET = 28, 600, 5


def draw(digit: int, dirty: bool, rng: np.random.Generator) -> np.ndarray:
    """One image; dirty paper is speckled, its ink is faint, and the print is askew."""
    picture = Image.new("L", (SIZE, SIZE))
    left, top = rng.uniform([6, 2], [10, 6]).tolist()
    ImageDraw.Draw(picture).text((left, top), str(digit), fill=255, font=ImageFont.load_default(22))
    ink = np.asarray(picture.rotate(rng.normal(scale=10 if dirty else 4))) / 255.0
    paper = rng.uniform(0, 0.4, ink.shape) if dirty else 0.0
    return (255 * np.clip(paper + (0.7 if dirty else 1.0) * ink, 0, 1)).astype(np.uint8)


def domain(classes: int, dirty: bool, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Images and their digits."""
    digits = rng.integers(0, classes, COUNT)
    return np.array([draw(digit, dirty, rng) for digit in digits]), digits


def main() -> None:
    rng = np.random.default_rng(0)
    clean, of_clean = domain(10, False, rng)
    dirty, of_dirty = domain(CLASSES_OF_TARGET, True, rng)
    methods = {
        "not adapted": ("source-only", {}),
        "everything matched": ("aot", {"marginals": "equal"}),
        "equal capacities": ("aot", {"rooms": "equal"}),
        "adaptive": ("aot", {}),
    }
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "print.npz"
        np.savez(root, clean_train_x=clean, clean_train_y=of_clean, dirty_train_x=dirty, dirty_train_y=of_dirty)
        for number, (name, (method, settings)) in enumerate(methods.items()):
            config = deep.configure(
                dataset="digits",
                root=root,
                source="clean",
                target="dirty",
                output=Path(folder) / f"run{number}",
                method=method,
                settings=settings,
                iterations=60,
                batch=50,
                device="cpu",
            )
            result = deep.train(config)
            mass = f"   mass {result.transported_mass:.2f}" if result.transported_mass is not None else ""
            print(f"{name:<20} {result.accuracy:.1%}{mass}")


if __name__ == "__main__":
    main()
