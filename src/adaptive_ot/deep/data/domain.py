"""The two domains of a task: their images, their labels, and one order of classes for both."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from adaptive_ot._validation import choice, nearest
from adaptive_ot.deep.data.images import ImageFile
from adaptive_ot.deep.data.layouts import ByClass, entries, folders, read_archive, read_folders, read_list
from adaptive_ot.errors import InvalidInput
from adaptive_ot.workbench.files import check_input, open_archive, trouble

if TYPE_CHECKING:
    from adaptive_ot.deep.config import Config

# Published datasets and their domains.
PUBLISHED = {
    "office31": ("amazon", "dslr", "webcam"),
    "office-home": ("Art", "Clipart", "Product", "Real World"),
    "visda": ("train", "validation"),
    "pacs": ("art_painting", "cartoon", "photo", "sketch"),
}
DATASETS = (*PUBLISHED, "folders", "lists", "digits")

# What images of classes that the source does not have are called.
UNKNOWN = "unknown"


class Domain(NamedTuple):
    """One domain of a dataset."""

    name: str
    classes: tuple[str, ...]  # in the order that both domains share: those of the source
    images: Sequence[ImageFile] | np.ndarray  # files, or bytes (n, h, w) or (n, h, w, 3)
    labels: np.ndarray  # int64 (n,), places in `classes`; their number where the class is unknown to the source

    @property
    def known(self) -> np.ndarray:
        """Mask of the images whose class the source has."""
        return self.labels < len(self.classes)

    def part(self, indices: Sequence[int] | np.ndarray) -> Domain:
        """The domain with some of its images."""
        images = self.images
        chosen = images[indices] if isinstance(images, np.ndarray) else [images[at] for at in indices]
        return self._replace(images=chosen, labels=self.labels[indices])


def digest(domain: Domain) -> str:
    """A digest of the classes, the labels, and the names of files or the pixels of arrays.

    Examples
    --------
    >>> domain = Domain("grey", ("only",), np.full((2, 4, 4), 9, np.uint8), np.array([0, 0]))
    >>> digest(domain) == digest(domain._replace(classes=("other",)))
    False
    """
    found = hashlib.sha256("\0".join(domain.classes).encode("utf-8", "surrogateescape"))
    found.update(np.ascontiguousarray(domain.labels, np.int64).tobytes())
    if isinstance(domain.images, np.ndarray):
        found.update(np.ascontiguousarray(domain.images).tobytes())
    else:
        found.update("\0".join(image.name for image in domain.images).encode("utf-8", "surrogateescape"))
    return found.hexdigest()[:16]


def domains_of(config: Config) -> tuple[Domain, Domain]:
    """Source and target of a run."""
    names = config.source, config.target, config.target_classes, config.source_classes
    return read_domains(config.dataset, config.root, *names, keep_unknown=config.unknown == "keep")


def read_domains(
    dataset: str,
    root: Path,
    source: str,
    target: str,
    target_classes: tuple[str, ...] = (),
    source_classes: tuple[str, ...] = (),
    *,
    keep_unknown: bool = False,
) -> tuple[Domain, Domain]:
    """Source and target of a task, from the layout in which the dataset is published.

    Parameters
    ----------
    dataset
        ``"office31"``, ``"office-home"``, ``"visda"`` or ``"pacs"``: `root`/<domain>/<class>/*, with the names of
        domains in any case, spaces and underscores ignored; a domain may also be a tar archive.
        ``"folders"``: `source` and `target` are folders of folders of classes, relative to `root`.
        ``"lists"``: they are text files of lines ``path label``, relative to `root`.
        ``"digits"``: `root` is an .npz file with the arrays <domain>_train_x and <domain>_train_y.
    target_classes, source_classes
        The classes that each domain keeps; empty for all.
    keep_unknown
        Whether the target may hold classes that the source does not.
    """
    choice("dataset", dataset, DATASETS)
    root = Path(root)
    if dataset == "digits":
        return _digits(root, source, target, target_classes, source_classes, keep_unknown)
    if not os.path.isdir(root):  # which never raises
        raise InvalidInput("root", "must be a directory", f"'{root}'", "Name the one that holds the domains.")
    root = root.absolute()
    source_name, source_images = _read(dataset, root, "source", source)
    target_name, target_images = _read(dataset, root, "target", target)
    chosen = _of_source(_ordered(source_images), source_classes)
    source_images = {label: source_images[label] for label in chosen}
    empty = [label for label, images in source_images.items() if not images]
    if empty or not source_images:
        given = f"none of {_listed(empty)}" if empty else "none"
        remedy = "Add images, or remove the class." if empty else "Name a folder that holds a folder for each class."
        raise InvalidInput(f"source '{source}'", "must hold images of every class", given, remedy)
    classes = _ordered(source_images)
    held = [label for label, images in target_images.items() if images]
    kept = _kept(target, classes, held, target_classes, keep_unknown)
    return _domain(source_name, classes, source_images, classes), _domain(target_name, classes, target_images, kept)


def _read(dataset: str, root: Path, role: str, name: str) -> tuple[str, ByClass]:
    """The name and the images of a domain below the root, in the role of source or target."""
    if dataset == "folders":
        _check_there(root, role, name, "folder", os.path.isdir)
        return name, read_folders(root, root / name)
    if dataset == "lists":
        _check_there(root, role, name, "text file", os.path.isfile)
        return name, read_list(root, root / name)
    domains = {_spelling(each): each for each in PUBLISHED[dataset]}
    known = domains.get(_spelling(name))
    if known is None:
        rule = f"must be a domain of {dataset}: {', '.join(domains.values())}"
        raise InvalidInput(role, rule, repr(name), f"{nearest(name, domains.values())}Choose one of them.")
    archives = [Path(each.path) for each in entries(root, root) if each.name.endswith(".tar")]
    found = [*folders(root, root), *archives]
    at = [each for each in found if _spelling(each.name.removesuffix(".tar")) == _spelling(known)]
    if len(at) != 1:
        matching, others = (_listed([each.name for each in paths]) for paths in (at, found))
        rule, given = f"must be there once below the root '{root}'", f"{matching} for '{known}' among {others}"
        raise InvalidInput(role, rule, given, "Remove one of them." if at else "Check the root.")
    return known, read_archive(root, at[0]) if at[0].suffix == ".tar" else read_folders(root, at[0])


def _check_there(root: Path, role: str, name: str, what: str, is_one: Callable[[str], bool]) -> None:
    """Refuse a name that is not a folder or file below the root (the tests of os.path never raise)."""
    if not is_one(os.path.join(root, name)):
        with trouble("root", "must be a directory that can be read"):
            found = [each for each in sorted(os.listdir(root)) if each[0] != "." and is_one(os.path.join(root, each))]
        remedy = f"{nearest(name, found)}There are: {_listed(found, 10)}."
        raise InvalidInput(role, f"must be a {what} below the root '{root}'", repr(name), remedy)


def _spelling(name: str) -> str:
    return re.sub(r"[\s_-]", "", name).casefold()


def _of_source(classes: tuple[str, ...], wanted: tuple[str, ...]) -> tuple[str, ...]:
    """The classes of the source, or those of them to keep."""
    if unknown := [label for label in wanted if label not in classes]:
        rule = f"must be classes of the source: {_listed(classes)}"
        raise InvalidInput("source_classes", rule, _listed(unknown), "Choose some of them.")
    return tuple(label for label in classes if label in (wanted or classes))


def _kept(
    target: str, classes: Sequence[str], held: list[str], wanted: tuple[str, ...], keep_unknown: bool
) -> list[str]:
    """The classes of the target, or those of them to keep; classes that the source does not have last."""
    if keep_unknown and UNKNOWN in classes:
        rule = f"must have no class '{UNKNOWN}' where unknown classes are kept"
        raise InvalidInput("source", rule, f"'{UNKNOWN}'", "Rename that class.")
    unknown = [label for label in wanted if label not in classes]
    if unknown and not keep_unknown:
        rule = f"must be classes of the source: {_listed(classes)}"
        remedy = "Choose some of them; a protocol needs the folders to have the published names."
        raise InvalidInput("target_classes", rule, _listed(unknown), remedy)
    missing = [label for label in wanted if label not in held]
    if missing or not held:
        given = f"none of {_listed(missing)}" if missing else "none"
        raise InvalidInput(f"target '{target}'", "must hold images", given, "Check the folder and the classes.")
    private = [label for label in held if label not in classes]
    if private and not wanted and not keep_unknown:
        remedy = "Rename or remove them, name those to keep with target_classes, or set unknown to 'keep'."
        rule = f"must have no class outside the source's ({_listed(classes)})"
        raise InvalidInput(f"target '{target}'", rule, _listed(private), remedy)
    shared = [label for label in classes if label in (wanted or held)]
    if not shared:
        rule, remedy = "must share a class with the source", "Check the classes of both."
        raise InvalidInput(f"target '{target}'", rule, f"{_listed(wanted or held)} alone", remedy)
    return [*shared, *(label for label in _ordered(private) if keep_unknown and label in (wanted or held))]


def _domain(name: str, classes: tuple[str, ...], images: ByClass, kept: Sequence[str]) -> Domain:
    number = {label: at for at, label in enumerate(classes)}
    labels = [number.get(label, len(classes)) for label in kept for _ in images[label]]
    return Domain(name, classes, [image for label in kept for image in images[label]], np.array(labels, np.int64))


def _digits(
    path: Path, source: str, target: str, wanted: tuple[str, ...], of_source: tuple[str, ...], keep_unknown: bool
) -> tuple[Domain, Domain]:
    name = f"root '{path}'"
    check_input(name, path, (".npz",))
    with trouble(name, "must be a valid .npz file"), open(path, "rb") as file, open_archive(file) as arrays:
        source_x, source_y = _digit_arrays(name, arrays, "source", source)
        target_x, target_y = _digit_arrays(name, arrays, "target", target)
    classes = _of_source(_ordered(map(str, np.unique(source_y))), of_source)
    kept = _kept(target, classes, [str(label) for label in np.unique(target_y)], wanted, keep_unknown)
    return (
        _digit_domain(source, classes, source_x, source_y, classes),
        _digit_domain(target, classes, target_x, target_y, kept),
    )


def _digit_domain(name: str, classes: tuple[str, ...], x: np.ndarray, y: np.ndarray, kept: Sequence[str]) -> Domain:
    chosen = np.isin(y, [int(label) for label in kept])
    order = np.array([int(label) for label in classes])
    labels = np.searchsorted(order, y[chosen]).clip(max=len(order) - 1)
    return Domain(name, classes, x[chosen], np.where(order[labels] == y[chosen], labels, len(order)))


def _digit_arrays(name: str, arrays: np.lib.npyio.NpzFile, role: str, domain: str) -> tuple[np.ndarray, np.ndarray]:
    known = [key.removesuffix("_train_x") for key in arrays.files if key.endswith("_train_x")]
    if domain not in known or f"{domain}_train_y" not in arrays.files:
        rule = f"must be a domain of the file: {_listed(known)}"
        remedy = f"{nearest(domain, known)}Choose one of them, or save {domain}_train_x and {domain}_train_y."
        raise InvalidInput(role, rule, repr(domain), remedy)
    x, y = arrays[f"{domain}_train_x"], arrays[f"{domain}_train_y"]
    pictures = x.dtype == np.uint8 and (x.ndim == 3 or (x.ndim == 4 and x.shape[3] == 3)) and x.size
    if not pictures or y.shape != x.shape[:1] or y.dtype.kind not in "iu":
        rule = f"must hold bytes (n, h, w) or (n, h, w, 3) and n whole numbers for '{domain}'"
        given = f"{x.dtype} {x.shape} and {y.dtype} {y.shape}"
        raise InvalidInput(name, rule, given, "Save them so.")
    return x, y.astype(np.int64)


def _ordered(classes: Iterable[str]) -> tuple[str, ...]:
    """Sorted, by value if all are numbers, so that labels of lists keep their meaning."""
    classes = list(classes)
    numeric = all(re.fullmatch(r"-?\d{1,18}", label, re.ASCII) for label in classes)
    return tuple(sorted(classes, key=(lambda label: (int(label), label)) if numeric else None))


def _listed(names: Sequence[str], most: int = 40) -> str:
    shown = ", ".join(map(repr, names[:most])) or "none"
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
