"""Datasets on disk become two domains with one order of classes, or one clear error."""

import io
import os
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from adaptive_ot.deep import configure
from adaptive_ot.deep.data.domain import PUBLISHED, read_domains
from adaptive_ot.deep.data.images import read_image
from adaptive_ot.errors import AdaptiveOTError, DataError, InvalidInput


def save(path, colour=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (4, 4), (colour, 0, 0)).save(path)


def grow(root, domains, classes, suffix="jpg", between=""):
    """`root`/<domain>/<between>/<class>/{0,1}.<suffix>."""
    for domain in domains:
        for label in classes:
            for number in range(2):
                save(root / domain / between / label / f"{number}.{suffix}")


def names(domain):
    return [image.name for image in domain.images]


def refused(match, *arguments, **others):
    with pytest.raises(InvalidInput, match=match) as caught:
        read_domains(*arguments, **others)
    return str(caught.value)


@pytest.mark.parametrize(
    ("dataset", "folders", "between", "source", "target", "expected"),
    [
        ("office31", ["amazon", "dslr"], "images", "amazon", "dslr", ("amazon", "dslr")),
        ("office31", ["amazon", "dslr"], "", "Amazon", "DSLR", ("amazon", "dslr")),
        ("office-home", ["Art", "Real World"], "", "art", "RealWorld", ("Art", "Real World")),
        ("office-home", ["Art", "RealWorld"], "", "ART", "real_world", ("Art", "Real World")),
        ("visda", ["train", "validation"], "", "train", "validation", ("train", "validation")),
        ("pacs", ["art_painting", "sketch"], "", "art painting", "sketch", ("art_painting", "sketch")),
    ],
)
def test_published_layouts(tmp_path, dataset, folders, between, source, target, expected):
    grow(tmp_path, folders, ["mug", "bike"], "png", between)
    first, second = read_domains(dataset, tmp_path, source, target)
    assert (first.name, second.name) == expected
    assert first.classes == second.classes == ("bike", "mug")
    assert first.labels.tolist() == second.labels.tolist() == [0, 0, 1, 1]
    assert first.labels.dtype == np.int64
    middle = [between] if between else []
    assert names(first) == ["/".join([folders[0], *middle, c, f"{k}.png"]) for c in ("bike", "mug") for k in (0, 1)]
    assert all(Path(image.path).is_file() for image in second.images)


OFFICE_HOME = """Alarm_Clock Backpack Batteries Bed Bike Bottle Bucket Calculator Calendar Candles Chair Clipboards
Computer Couch Curtains Desk_Lamp Drill Eraser Exit_Sign Fan File_Cabinet Flipflops Flowers Folder Fork Glasses Hammer
Helmet Kettle Keyboard Knives Lamp_Shade Laptop Marker Monitor Mop Mouse Mug Notebook Oven Pan Paper_Clip Pen Pencil
Postit_Notes Printer Push_Pin Radio Refrigerator Ruler Scissors Screwdriver Shelf Sink Sneakers Soda Speaker Spoon TV
Table Telephone ToothBrush Toys Trash_Can Webcam""".split()  # noqa: SIM905
OFFICE31 = """back_pack bike bike_helmet bookcase bottle calculator desk_chair desk_lamp desktop_computer file_cabinet
headphones keyboard laptop_computer letter_tray mobile_phone monitor mouse mug paper_notebook pen phone printer
projector punchers ring_binder ruler scissors speaker stapler tape_dispenser trash_can""".split()  # noqa: SIM905
VISDA = "aeroplane bicycle bus car horse knife motorcycle person plant skateboard train truck".split()  # noqa: SIM905

# Their numbers in the alphabetical order of Office-31, as in the lists of the official codes.
OF_CALTECH = [0, 1, 5, 10, 11, 12, 15, 16, 17, 22]


@pytest.mark.parametrize(
    ("dataset", "classes", "source", "target", "kept"),
    [
        ("office-home", OFFICE_HOME, "Art", "Real World", range(25)),
        ("office31", OFFICE31, "amazon", "webcam", OF_CALTECH),
        ("visda", VISDA, "train", "validation", range(6)),
    ],
)
def test_partial_protocols_of_the_literature(tmp_path, dataset, classes, source, target, kept):
    assert len(classes) == {"office-home": 65, "office31": 31, "visda": 12}[dataset]
    grow(tmp_path, [source, target], classes, "png")
    place = {"dataset": dataset, "root": tmp_path, "source": source, "target": target}
    config = configure(**place, output=tmp_path / "run", protocol="partial")
    first, second = read_domains(**place, target_classes=config.target_classes)
    assert first.classes == second.classes == tuple(classes)
    assert first.labels.tolist() == [label for label in range(len(classes)) for _ in range(2)]
    assert second.labels.tolist() == [label for label in kept for _ in range(2)]


def test_files_come_in_sorted_order_and_hidden_ones_not_at_all(tmp_path):
    for name in ["b.png", "a.png", "B.png", "10.png", "9.png", ".hidden.png"]:
        save(tmp_path / "a" / "x" / name)
        save(tmp_path / "b" / "x" / name)
    (tmp_path / "a" / "x" / "Thumbs.db").write_bytes(b"?")
    (tmp_path / "a" / ".cache").mkdir()
    (tmp_path / "a" / "readme.txt").write_text("?")
    source, _ = read_domains("folders", tmp_path, "a", "b")
    assert [Path(name).name for name in names(source)] == ["10.png", "9.png", "B.png", "a.png", "b.png"]
    assert source.classes == ("x",)


def pack(path, members):
    with tarfile.open(path, "w") as archive:
        for name, content in members:
            member = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
            else:
                member.type, member.linkname = bytes([content]), "/etc/passwd"
                archive.addfile(member)


def png(colour):
    buffer = io.BytesIO()
    Image.new("RGB", (2, 2), (colour, 0, 0)).save(buffer, "PNG")
    return buffer.getvalue()


def test_domains_in_archives_are_read_where_they_lie(tmp_path):
    for domain, offset in (("photo", 0), ("sketch", 100)):
        members = [(domain, tarfile.DIRTYPE[0]), (f"{domain}/house/b.png", png(offset + 3))]
        members += [(f"./{domain}/dog/{k}.png", png(offset + k)) for k in (2, 1)] + [(f"{domain}/dog/.x.png", b"")]
        pack(tmp_path / f"{domain}.tar", members)
    source, target = read_domains("pacs", tmp_path, "photo", "sketch")
    assert source.classes == ("dog", "house")
    assert [int(read_image(image, 2)[0, 0, 0]) for image in source.images] == [1, 2, 3]
    assert [int(read_image(image, 2)[0, 0, 0]) for image in target.images] == [101, 102, 103]
    assert target.labels.tolist() == [0, 0, 1]
    assert sorted(os.listdir(tmp_path)) == ["photo.tar", "sketch.tar"]


@pytest.mark.parametrize(
    ("members", "match"),
    [
        ([("p/dog/a.png", tarfile.SYMTYPE[0])], "link or device"),
        ([("p/dog/a.png", tarfile.LNKTYPE[0])], "link or device"),
        ([("p/dog/a.png", tarfile.FIFOTYPE[0])], "link or device"),
        ([("../dog/a.png", b"x")], "below its own folder"),
        ([("/p/dog/a.png", b"x")], "below its own folder"),
        ([], "must hold images of every class"),
    ],
)
def test_hostile_archives_are_refused(tmp_path, members, match):
    pack(tmp_path / "photo.tar", members)
    refused(match, "pacs", tmp_path, "photo", "photo")


def test_damaged_archives_give_an_archive_or_one_clear_error(tmp_path):
    path, random = tmp_path / "photo.tar", np.random.default_rng(0)
    pack(path, [(f"photo/dog/{k}.png", png(k)) for k in range(4)])
    whole = np.frombuffer(path.read_bytes()[:6144], np.uint8)
    read, refusals = [], []
    for _ in range(300):
        broken = whole.copy()
        places = random.integers(0, len(broken), 4)
        broken[places] = random.integers(0, 256, 4)
        path.write_bytes(broken[: random.integers(1, len(broken) + 1)].tobytes())
        try:
            read += [read_image(image, 2) for image in read_domains("pacs", tmp_path, "photo", "photo")[0].images]
        except AdaptiveOTError as refusal:
            refusals.append(str(refusal))
    assert {(pixels.shape, pixels.dtype) for pixels in read} == {((2, 2, 3), np.dtype(np.uint8))}
    assert len(read) > 30
    assert len(refusals) > 30
    assert all(str(path) in said or ".png" in said for said in refusals)


def test_lists(tmp_path):
    for name in ("one two.png", "three.png"):
        save(tmp_path / "images" / name)
    save(tmp_path / "lists" / "beside.png")
    lines = ["images/one two.png 10", "", "images/three.png\t2", "beside.png   2", f"{tmp_path}/images/three.png 10"]
    (tmp_path / "lists" / "a.txt").write_text("\n".join(lines))
    (tmp_path / "lists" / "b.txt").write_text("images/three.png 10\nimages/gone.png 2\n")
    source, target = read_domains("lists", tmp_path, "lists/a.txt", "lists/b.txt")
    assert source.classes == ("2", "10")
    assert source.labels.tolist() == [0, 0, 1, 1]
    assert [Path(image.path).name for image in source.images[:2]] == ["beside.png", "three.png"]
    assert target.labels.tolist() == [0, 1]
    with pytest.raises(DataError, match="No such file"):
        read_image(target.images[0], 4)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("images/x.png\n", "'path label'.*in line 1"),
        ("../outside.png 1\n", "must not leave the data root"),
        ("/etc/hostname 1\n", "must not leave the data root"),
        ("a\0b 1\n", "null"),
        ("x" * 5000 + " 1\n", "too long"),
        ("", "must hold images of every class"),
    ],
)
def test_bad_lists(tmp_path, text, match):
    (tmp_path / "root").mkdir()
    save(tmp_path / "outside.png")
    (tmp_path / "root" / "a.txt").write_text(text)
    refused(match, "lists", tmp_path / "root", "a.txt", "a.txt")


def test_digits(tmp_path):
    path = tmp_path / "digits.npz"
    x = np.arange(4 * 3 * 3, dtype=np.uint8).reshape(4, 3, 3)
    np.savez(path, a_train_x=x, a_train_y=np.array([2, 10, 0, 2]), b_train_x=x[:2], b_train_y=np.array([10, 2], "u1"))
    source, target = read_domains("digits", path, "a", "b")
    assert source.classes == target.classes == ("0", "2", "10")
    assert source.labels.tolist() == [1, 2, 0, 1]
    assert target.labels.tolist() == [2, 1]
    _, part = read_domains("digits", path, "a", "b", ("2",))
    assert isinstance(part.images, np.ndarray)
    assert np.array_equal(part.images, x[1:2])
    assert part.labels.tolist() == [1]
    refused("must be a domain of the file: 'a', 'b'", "digits", path, "a", "c")
    refused("class outside the source's", "digits", path, "b", "a")
    np.savez(path, a_train_x=x.astype(float), a_train_y=np.zeros(4, int))
    refused("must hold bytes", "digits", path, "a", "a")
    np.savez(path, a_train_x=x, a_train_y=np.array([None] * 4))
    refused("allow_pickle", "digits", path, "a", "a")
    path.write_bytes(b"not a zip")
    refused("valid .npz", "digits", path, "a", "a")


def test_target_classes(tmp_path):
    grow(tmp_path, ["train", "validation"], ["car", "bus", "van"])
    _, target = read_domains("visda", tmp_path, "train", "validation", ("van", "bus"))
    assert target.classes == ("bus", "car", "van")
    assert target.labels.tolist() == [0, 0, 2, 2]
    message = refused("'lorry'", "visda", tmp_path, "train", "validation", ("lorry",))
    assert "'bus', 'car', 'van'" in message


def test_classes_that_do_not_match(tmp_path):
    grow(tmp_path, ["train"], ["car", "bus"])
    grow(tmp_path, ["validation"], ["car", "plane"])
    refused("class outside the source's.*'plane'", "visda", tmp_path, "train", "validation")
    _, target = read_domains("visda", tmp_path, "train", "validation", ("car",))
    assert target.labels.tolist() == [1, 1]
    (tmp_path / "train" / "plane").mkdir()
    refused("none of 'plane'", "visda", tmp_path, "train", "validation")
    save(tmp_path / "train" / "plane" / "0.png")
    source, target = read_domains("visda", tmp_path, "train", "validation")
    assert set(target.labels) == {1, 2}
    assert pickle.loads(pickle.dumps(source)).classes == ("bus", "car", "plane")
    refused("none of 'bus'", "visda", tmp_path, "train", "validation", ("bus",))


def test_wrong_places(tmp_path):
    grow(tmp_path, ["Art"], ["mug"])
    refused("must be one of", "office32", tmp_path, "a", "b")
    refused("must be a directory", "office31", tmp_path / "gone", "amazon", "dslr")
    refused("must exist", "digits", tmp_path / "gone.npz", "a", "b")
    refused("Art, Clipart, Product, Real World; got 'Painting'", "office-home", tmp_path, "Painting", "Art")
    refused("got none for 'Product' among 'Art'", "office-home", tmp_path, "Art", "product")
    refused("must hold images", "folders", tmp_path, "Art/mug", "Art/mug")
    refused("must be a folder below the root .*; got 'gone'. There are: 'Art'", "folders", tmp_path, "Art", "gone")
    refused("must hold images only.*'mug'", "folders", tmp_path, ".", ".")
    (tmp_path / "art").mkdir()
    refused("'Art', 'art' for 'Art'", "office-home", tmp_path, "Art", "Art")


def test_a_name_that_is_not_there_gets_those_that_are(tmp_path):
    """At most ten of them, the nearest first; whatever the name is."""
    grow(tmp_path, ["studio", "phone", ".hidden"], ["mug"])
    for name in ("train.txt", "test.txt"):
        (tmp_path / name).write_text("studio/mug/0.jpg 1\n")
    message = refused("^source must be a folder below the root", "folders", tmp_path, "nope", "phone")
    assert message.endswith("got 'nope'. There are: 'phone', 'studio'.")
    message = refused("^target must be a folder below the root", "folders", tmp_path, "studio", "stuido")
    assert message.endswith("got 'stuido'. Did you mean 'studio'? There are: 'phone', 'studio'.")
    message = refused("^target must be a text file below the root", "lists", tmp_path, "train.txt", "trian.txt")
    assert message.endswith("Did you mean 'train.txt'? There are: 'test.txt', 'train.txt'.")
    refused(r"got 'WEBCAN'\. Did you mean 'webcam'\?", "office31", tmp_path, "WEBCAN", "amazon")
    for name in ("a\0b", "x" * 5000, "studio/mug/0.jpg", "\n", "gone/mug"):
        refused("^target must be a folder", "folders", tmp_path, "studio", name)
    for name in ("", "a\0b", "x" * 5000, "studio", "\n", "gone/mug"):
        refused("^target must be a text file", "lists", tmp_path, "train.txt", name)
    for number in range(20):
        (tmp_path / f"more{number:02}").mkdir()
    assert refused("must be a folder", "folders", tmp_path, "nope", "phone").endswith("'more09' and 12 more.")


def test_links_may_not_leave_the_root(tmp_path):
    root = tmp_path / "root"
    grow(root, ["a", "b"], ["x"])
    save(tmp_path / "secret" / "x" / "0.png")
    (root / "a" / "x" / "inside.jpg").symlink_to(root / "b" / "x" / "0.jpg")
    (root / "a" / "x" / "circle.jpg").symlink_to("circle.jpg")
    assert len(read_domains("folders", root, "a", "b")[0].images) == 4
    (root / "c").symlink_to(tmp_path / "secret")
    refused("must not leave the data root", "folders", root, "a", "c")
    refused("must not leave the data root", "folders", root, "a", "../secret")
    refused("must not leave the data root", "folders", root, "a", str(tmp_path / "secret"))
    (root / "b" / "y").symlink_to(tmp_path / "secret" / "x")
    refused("must not leave the data root", "folders", root, "a", "b")
    (root / "a" / "x" / "9.jpg").symlink_to(tmp_path / "secret" / "x" / "0.png")
    refused("must not leave the data root", "folders", root, "a", "a")


@pytest.mark.skipif("ADAPTIVE_OT_DATA" not in os.environ, reason="ADAPTIVE_OT_DATA names no directory of datasets")
def test_real_domains():
    root = Path(os.environ["ADAPTIVE_OT_DATA"])
    for target in PUBLISHED["pacs"]:
        _, domain = read_domains("pacs", root / "pacs", "photo", target)
        with np.load(root / "pacs_resnet50" / f"{target}.npz") as features:
            assert np.array_equal(domain.labels, features["y"])
    source, target = read_domains("digits", root / "digits.npz", "mnist", "usps")
    assert len(source.labels) == 10_000
    assert len(target.labels) == 7_291
