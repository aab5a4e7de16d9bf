"""The datasets of feature benchmarks: several domains with the same features and classes."""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from adaptive_ot.errors import InvalidInput
from adaptive_ot.workbench.feature_files import READABLE, Content, Features, checked_labels, matched, read_features
from adaptive_ot.workbench.files import check_input, open_archive, trouble

# In an archive of images: the training images of a domain, whose labels are called alike.
IMAGES = re.compile(r"(.+)_train_x")


class Dataset(NamedTuple):
    """Domains by name, with class numbers for labels; how many classes, digests of the files, names of classes.

    Rows that are images have a height and a width.
    """

    name: str
    domains: dict[str, Features]
    classes: int
    digests: dict[str, str]
    names: tuple[str, ...] = ()
    image: tuple[int, int] | None = None


@lru_cache(maxsize=8)
def read_dataset(path: Path) -> Dataset:
    """A directory with a feature file for every domain, or an .npz file with NAME_train_x and NAME_train_y."""
    name = f"dataset '{path}'"
    with trouble(name, "must be a file or directory that can be read"):
        if not path.exists():
            raise InvalidInput(name, "must exist", "no such file or directory", "Check the path.")
        found, files, image = _read_directory(name, path) if path.is_dir() else _read_images(name, path)
        digests = {file.name: hashlib.sha256(file.read_bytes()).hexdigest()[:16] for file in files}
    if not found:
        raise InvalidInput(name, "must have domains", "none", "See docs/benchmark.md for the formats.")
    classes, domains = _with_common_classes(name, found)
    resolved = path.resolve()
    name = resolved.name if path.is_dir() else resolved.stem
    return Dataset(name, domains, len(classes), digests, tuple(map(str, classes)), image)


def _read_directory(name: str, path: Path) -> tuple[dict[str, Features], list[Path], None]:
    files = sorted(file for file in path.iterdir() if file.suffix.lower() in READABLE and not file.name.startswith("."))
    stems = [file.stem for file in files]
    twice = next((stem for stem in stems if stems.count(stem) > 1), None)
    if twice is not None:
        raise InvalidInput(name, "must have one file a domain", f"several called '{twice}'", "Remove one of them.")
    return {file.stem: read_features(file) for file in files}, files, None


def _read_images(name: str, path: Path) -> tuple[dict[str, Features], list[Path], tuple[int, int] | None]:
    check_input(name, path, (".npz",))
    images: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    with trouble(name, "must be a valid .npz file"), open(path, "rb") as file, open_archive(file) as archive:
        for domain in (match[1] for match in map(IMAGES.fullmatch, archive.files) if match):
            if f"{domain}_train_y" not in archive.files:
                rule = f"must hold '{domain}_train_y' beside '{domain}_train_x'"
                raise InvalidInput(name, rule, "none", "Save the labels too.")
            images[domain] = _checked_images(name, domain, archive[f"{domain}_train_x"], archive[f"{domain}_train_y"])
    if not images:
        return {}, [], None
    height, width = np.min([x.shape[1:] for x, _ in images.values()], axis=0).tolist()
    resized = {
        domain: Features((shrink(x, height, width) / 255).reshape(len(x), -1), y) for domain, (x, y) in images.items()
    }
    return resized, [path], (height, width)


def _checked_images(name: str, domain: str, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if x.ndim != 3 or x.dtype != np.uint8 or not x.size:
        rule = f"must hold '{domain}_train_x' as uint8 of shape (images, height, width)"
        raise InvalidInput(name, rule, f"{x.dtype} of shape {x.shape}", "Convert it.")
    return x, np.asarray(checked_labels(name, Content(x, y, f"{domain}_train_y"), len(x)))


def shrink(images: np.ndarray, height: int, width: int) -> np.ndarray:
    """Shrink images: every pixel is the mean over the area that it covers.

    Examples
    --------
    >>> shrink(np.array([[[0.0, 3.0, 6.0]]]), 1, 2)
    array([[[1., 5.]]])
    """
    rows, columns = _areas(images.shape[1], height), _areas(images.shape[2], width)
    return np.einsum("ah,nhw,bw->nab", rows, images, columns, optimize=True)


def _areas(size: int, smaller: int) -> np.ndarray:
    """The share of every old pixel in every new one, along one side."""
    edges = np.linspace(0, size, smaller + 1)
    old = np.arange(size)
    overlap = np.minimum(edges[1:, None], old + 1) - np.maximum(edges[:-1, None], old)
    return np.maximum(overlap, 0) * smaller / size


def _with_common_classes(name: str, found: dict[str, Features]) -> tuple[list[Any], dict[str, Features]]:
    """Classes become numbers, the same in all domains; columns stand as in the first domain that names them."""
    labels = {domain: np.asarray(features.y) for domain, features in found.items()}
    first, *others = sorted(found, key=lambda domain: found[domain].columns is None)
    for other in others:
        found[other] = matched(f"domain '{other}' of {name}", found[other], found[first], f"'{first}'")
        if (labels[other].dtype.kind == "U") != (labels[first].dtype.kind == "U"):
            given = f"'{first}' and '{other}'"
            raise InvalidInput(name, "must label every domain alike", f"text and numbers in {given}", "Convert one.")
    classes = np.unique(np.concatenate(list(labels.values())))
    return classes.tolist(), {
        domain: Features(features.x, np.searchsorted(classes, labels[domain])) for domain, features in found.items()
    }
