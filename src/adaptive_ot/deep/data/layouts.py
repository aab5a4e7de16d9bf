"""How datasets lie on disk: a folder for every class, the same inside a tar archive, or a list of paths and labels.

Each reader returns the images of every class, in an order that depends on names only. Nothing outside the root of the
dataset is read, whatever links and lists say.
"""

from __future__ import annotations

import os
import tarfile
from collections import defaultdict
from pathlib import Path, PurePosixPath

from adaptive_ot._files import trouble
from adaptive_ot.deep.data.images import SUFFIXES, ImageFile
from adaptive_ot.errors import InvalidInput

ByClass = dict[str, list[ImageFile]]


def inside(root: Path, path: Path, name: str) -> Path:
    """`path` with its links resolved, refused if that leads out of `root`."""
    real = Path(os.path.realpath(path))
    if not real.is_relative_to(os.path.realpath(root)):
        remedy = "Copy what it leads to, or choose a root that holds it too."
        raise InvalidInput(name, f"must not leave the data root '{root}'", f"a path that leads to '{real}'", remedy)
    return real


def entries(root: Path, folder: Path) -> list[os.DirEntry[str]]:
    """What a folder holds, sorted, without hidden things."""
    with trouble(f"folder '{folder}'", "must be a directory that can be read"), os.scandir(folder) as found:
        visible = sorted((each for each in found if not each.name.startswith(".")), key=lambda each: each.name)
    for each in visible:
        if each.is_symlink():
            inside(root, Path(each.path), f"link '{each.path}'")
    return visible


def read_folders(root: Path, folder: Path) -> ByClass:
    """The images of `folder`/<class>/*, or of `folder`/images/<class>/* as Office-31 comes."""
    inside(root, folder, f"folder '{folder}'")
    classes = [each for each in entries(root, folder) if each.is_dir()]
    if [each.name for each in classes] == ["images"]:
        classes = [each for each in entries(root, folder / "images") if each.is_dir()]
    return {each.name: _images(root, Path(each.path)) for each in classes}


def read_archive(root: Path, archive: Path) -> ByClass:
    """The images <class>/<name> of a tar archive, under any folders; they are read from where they lie inside it."""
    name = f"archive '{archive}'"
    path = inside(root, archive, name)
    found: dict[str, list[ImageFile]] = defaultdict(list)
    end = 0
    with trouble(name, "must be a valid tar archive"), tarfile.open(path, "r:") as members:
        for member in members:
            if member.offset_data < end:  # would read in circles
                raise ValueError(f"'{member.name}' lies before the end of the one before it")
            end = member.offset_data + member.size
            if member.isdir():
                continue
            parts = _parts(name, member)
            if len(parts) >= 2 and _is_image(parts[-1]) and not any(part.startswith(".") for part in parts):
                shown = f"{archive.relative_to(root)}/{'/'.join(parts)}"
                found[parts[-2]].append(ImageFile(shown, str(path), member.offset_data, member.size))
    return {label: sorted(images) for label, images in sorted(found.items())}


def read_list(root: Path, file: Path) -> ByClass:
    """The images that the lines ``path label`` of a text file name, relative to the root or to the file itself."""
    name = f"list '{file}'"
    found: dict[str, list[ImageFile]] = defaultdict(list)
    with trouble(name, "must be a text file"):
        lines = inside(root, file, name).read_text("utf-8-sig").splitlines()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        path, _, label = line.strip().rpartition(" " if " " in line.strip() else "\t")
        if not path.strip() or "\0" in path:
            raise InvalidInput(name, "must hold lines 'path label'", f"{line!r} in line {number}", "Complete it.")
        path = path.strip()
        beside_root = root / path
        place = beside_root if beside_root.exists() else file.parent / path
        chosen = place if place.exists() else beside_root
        real = inside(root, chosen, f"line {number} of {name}")
        found[label].append(ImageFile(path, str(real)))
    return {label: sorted(images) for label, images in sorted(found.items())}


def _images(root: Path, folder: Path) -> list[ImageFile]:
    images = []
    for each in entries(root, folder):
        if each.is_dir():
            remedy = "Move its images up, or its classes out."
            raise InvalidInput(f"class '{folder}'", "must hold images only", f"the folder '{each.name}'", remedy)
        if _is_image(each.name):
            images.append(ImageFile(Path(each.path).relative_to(root).as_posix(), each.path))
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


def _is_image(name: str) -> bool:
    return name.lower().endswith(SUFFIXES)
