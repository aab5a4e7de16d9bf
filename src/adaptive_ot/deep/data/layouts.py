"""Layouts of datasets on disk: a folder for every class, the same in a tar archive, or a list of paths and labels.

Each reader returns the images of every class, in an order that depends on names only. Links and lists that lead out of
the root of the dataset are refused.
"""

from __future__ import annotations

import os
import tarfile
from collections import defaultdict
from pathlib import Path, PurePosixPath

from adaptive_ot.deep.data.images import SUFFIXES, ImageFile
from adaptive_ot.errors import InvalidInput
from adaptive_ot.workbench.files import trouble

ByClass = dict[str, list[ImageFile]]


def inside(root: Path, path: Path, name: str) -> Path:
    """`path` with its links resolved; refused if it leads out of `root`."""
    real = Path(os.path.realpath(path))
    if not real.is_relative_to(os.path.realpath(root)):
        remedy = "Copy what it leads to, or choose a root that holds it too."
        raise InvalidInput(name, f"must not leave the data root '{root}'", f"a path that leads to '{real}'", remedy)
    return real


def entries(root: Path, folder: Path) -> list[os.DirEntry[str]]:
    """The visible entries of a folder, sorted."""
    with trouble(f"folder '{folder}'", "must be a directory that can be read"), os.scandir(folder) as found:
        visible = sorted((each for each in found if not each.name.startswith(".")), key=lambda each: each.name)
    for each in visible:
        if each.is_symlink():
            inside(root, Path(each.path), f"link '{each.path}'")
    return visible


def folders(root: Path, folder: Path) -> list[Path]:
    """The folders inside a folder."""
    return [Path(each.path) for each in entries(root, folder) if _is_folder(each)]


def read_folders(root: Path, folder: Path) -> ByClass:
    """The images of `folder`/<class>/*, or of `folder`/images/<class>/* as Office-31 comes."""
    inside(root, folder, f"folder '{folder}'")
    classes = folders(root, folder)
    if [each.name for each in classes] == ["images"]:
        classes = folders(root, classes[0])
    return {each.name: _images(root, each) for each in classes}


def read_archive(root: Path, archive: Path) -> ByClass:
    """The images <class>/<name> of a tar archive, below any folders; nothing is unpacked."""
    name = f"archive '{archive}'"
    path = inside(root, archive, name)
    found: dict[str, list[ImageFile]] = defaultdict(list)
    end = 0
    with trouble(name, "must be a valid tar archive"), tarfile.open(path, "r:") as members:
        for member in members:
            if member.offset_data < end:  # would be read in circles
                raise ValueError(f"'{member.name}' lies before the end of the one before it")
            end = member.offset_data + member.size
            if member.isdir():
                continue
            parts = _parts(name, member)
            if len(parts) >= 2 and _is_image(parts[-1]) and not any(part.startswith(".") for part in parts):
                shown = f"{archive.relative_to(root)}/{'/'.join(parts)}"
                found[parts[-2]].append(ImageFile(shown, str(path), member.offset_data, member.size))
    return {label: sorted(images) for label, images in found.items()}


def read_list(root: Path, file: Path) -> ByClass:
    """The images in the lines ``path label`` of a text file, relative to the root or to the file."""
    name = f"list '{file}'"
    found: dict[str, list[ImageFile]] = defaultdict(list)
    with trouble(name, "must be a text file of paths and labels"):
        for number, line in enumerate(inside(root, file, name).read_text("utf-8-sig").splitlines(), 1):
            parts = line.strip().rsplit(maxsplit=1)  # a path may have spaces
            if len(parts) == 1:
                raise InvalidInput(name, "must hold lines 'path label'", f"{line!r} in line {number}", "Complete it.")
            if parts:
                path, label = parts
                place = next((folder / path for folder in (root, file.parent) if (folder / path).exists()), root / path)
                found[label].append(ImageFile(path, str(inside(root, place, f"line {number} of {name}"))))
    return {label: sorted(images) for label, images in found.items()}


def _images(root: Path, folder: Path) -> list[ImageFile]:
    shown = folder.relative_to(root).as_posix()
    images = []
    for each in entries(root, folder):
        if _is_folder(each):
            remedy = "Move its images up, or its classes out."
            raise InvalidInput(f"class '{folder}'", "must hold images only", f"the folder '{each.name}'", remedy)
        if _is_image(each.name):
            images.append(ImageFile(f"{shown}/{each.name}", each.path))
    return images


def _parts(name: str, member: tarfile.TarInfo) -> tuple[str, ...]:
    """The folders and the name of a plain file in an archive."""
    path = PurePosixPath(member.name)
    if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.sparse is not None:
        given, rule = f"a link or device '{member.name}'", "must hold plain files and folders only"
        raise InvalidInput(name, rule, given, "Pack the images themselves.")
    if path.is_absolute() or ".." in path.parts:
        raise InvalidInput(name, "must hold paths below its own folder", f"'{member.name}'", "Pack it again.")
    return path.parts


def _is_folder(each: os.DirEntry[str]) -> bool:
    return os.path.isdir(each.path) if each.is_symlink() else each.is_dir()  # links may run in circles


def _is_image(name: str) -> bool:
    return name.lower().endswith(SUFFIXES)
