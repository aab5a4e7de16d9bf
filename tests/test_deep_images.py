"""Pixels out of bytes that nobody vouches for, and stores of them."""

import io
import multiprocessing
import os
import pickle
import signal
import struct
import subprocess
import sys
import warnings
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from adaptive_ot.deep import configure
from adaptive_ot.deep.data import images, stores
from adaptive_ot.deep.data.domain import Domain
from adaptive_ot.deep.data.images import ImageFile, check_image, quietly, read_image
from adaptive_ot.deep.data.stores import Store
from adaptive_ot.errors import DataError, InvalidInput
from budget import mostly_slow
from interruption import PATIENCE

CPU = torch.device("cpu")
RANDOM = np.random.default_rng(0)
PICTURE = RANDOM.integers(0, 256, (16, 16, 3), dtype=np.uint8)


def encoded(picture, kind, **options):
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def written(path, content):
    path.write_bytes(content)
    return ImageFile(path.name, str(path))


def test_resizing_is_that_of_pillow(tmp_path):
    for size in (8, 16, 23):
        image = written(tmp_path / "a.png", encoded(Image.fromarray(PICTURE), "PNG"))
        expected = np.asarray(Image.fromarray(PICTURE).resize((size, size), Image.Resampling.BILINEAR))
        assert np.array_equal(read_image(image, size), expected)
        assert np.array_equal(read_image(PICTURE, size), expected)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "PA", "RGB", "RGBA"])
def test_modes_of_png(tmp_path, mode):
    if mode == "PA":
        picture = Image.fromarray(PICTURE).quantize(16)
        content = encoded(picture, "PNG", transparency=bytes(range(16)))
    else:
        picture = Image.fromarray(PICTURE).convert(mode)
        content = encoded(picture, "PNG")
    with quietly():
        pixels = read_image(written(tmp_path / "a.png", content), 16)
    assert np.array_equal(pixels, np.asarray(picture.convert("RGB")))


def test_sixteen_bits_keep_the_upper_eight(tmp_path):
    grey = np.arange(256, dtype=np.uint16).reshape(16, 16) * 257
    pixels = read_image(written(tmp_path / "a.png", encoded(Image.fromarray(grey), "PNG")), 16)
    assert np.array_equal(pixels, np.repeat((grey >> 8).astype(np.uint8)[..., None], 3, axis=2))
    content = b"P5 16 16 65535\n" + grey.astype(">u2").tobytes()
    assert np.array_equal(read_image(written(tmp_path / "a.pgm", content), 16), pixels)


def test_cmyk_and_webp_and_bmp(tmp_path):
    plain = Image.new("RGB", (16, 16), (200, 40, 90))
    for kind, mode, options in (
        ("JPEG", "CMYK", {"quality": 100}),
        ("WEBP", "RGB", {"lossless": True}),
        ("BMP", "RGB", {}),
    ):
        pixels = read_image(written(tmp_path / "a", encoded(plain.convert(mode), kind, **options)), 4)
        assert np.abs(pixels.astype(int) - (200, 40, 90)).max() <= 3


def test_orientation_in_exif_is_ignored(tmp_path):
    picture = Image.fromarray(PICTURE)
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = read_image(written(tmp_path / "a.jpg", encoded(picture, "JPEG", exif=exif)), 16)
    assert np.array_equal(turned, read_image(written(tmp_path / "b.jpg", encoded(picture, "JPEG")), 16))


def mutated(content, random):
    """Bytes flipped, cut out, repeated, or cut off."""
    content = bytearray(content)
    how = random.integers(4)
    if how == 0:
        return bytes(content[: random.integers(len(content))])
    place = int(random.integers(min(len(content), 64) if how == 1 else len(content)))  # headers more often
    if how == 3:
        content[place : place + 4] = random.bytes(int(random.integers(0, 12)))
    else:
        for at in random.integers(place, min(len(content), place + 16), int(random.integers(1, 6))):
            content[at] = random.integers(256)
    return bytes(content)


GREY16 = Image.fromarray(np.arange(256, dtype=np.uint16).reshape(16, 16) * 257)
FORMATS = {
    "JPEG": lambda picture: encoded(picture, "JPEG"),
    "JPEG, progressive": lambda picture: encoded(picture, "JPEG", progressive=True),
    "JPEG, four inks": lambda picture: encoded(picture.convert("CMYK"), "JPEG"),
    "PNG": lambda picture: encoded(picture, "PNG"),
    "PNG, palette": lambda picture: encoded(picture.quantize(8), "PNG"),
    "PNG, 16 bits": lambda picture: encoded(GREY16, "PNG"),
    "BMP": lambda picture: encoded(picture, "BMP"),
    "WebP": lambda picture: encoded(picture, "WEBP"),
    "WebP, lossless": lambda picture: encoded(picture, "WEBP", lossless=True),
    "WebP, moving": lambda picture: encoded(picture, "WEBP", save_all=True, append_images=[picture.rotate(90)]),
    "PPM": lambda picture: encoded(picture, "PPM"),
    "GIF": lambda picture: encoded(picture, "GIF"),
    "TIFF": lambda picture: encoded(picture, "TIFF"),
    "TIFF, compressed": lambda picture: encoded(picture, "TIFF", compression="tiff_lzw"),
}


@pytest.mark.parametrize("mutations", mostly_slow([80, 650], 1))  # of each: in the end, more than 9,000
@pytest.mark.parametrize("kind", FORMATS)
def test_mutated_files_give_pixels_or_a_data_error(tmp_path, kind, mutations):
    """Warnings are errors here, so nothing else gets out either."""
    whole = mutations // 5  # of these are files; the others lie in an archive, which is much faster
    random = np.random.default_rng(sum(map(ord, kind)))
    original = FORMATS[kind](Image.fromarray(PICTURE))
    contents = [mutated(original, random) for _ in range(mutations)]
    files = [written(tmp_path / f"{number}.jpg", each) for number, each in enumerate(contents[:whole])]
    archive = tmp_path / "archive"
    archive.write_bytes(b"".join(contents[whole:]))
    starts = np.cumsum([0, *map(len, contents[whole:-1])]).tolist()
    files += [
        ImageFile(f"archive/{number}.jpg", str(archive), start, len(each))
        for number, (start, each) in enumerate(zip(starts, contents[whole:], strict=True))
    ]
    errors = []
    with quietly():
        for image in files:
            try:
                pixels = read_image(image, 16)
                assert pixels.shape == (16, 16, 3)
                assert pixels.dtype == np.uint8
            except DataError as error:
                errors.append((image.name, error))
    assert len(errors) > mutations / 4
    assert all(error.path == name and "0x" not in error.reason for name, error in errors)
    if kind.startswith(("GIF", "TIFF")):  # not among the formats that are read, whole or not
        assert len(errors) == mutations
        with pytest.raises(DataError, match="not a valid image of the kinds JPEG, PNG, BMP, WEBP, PPM"):
            read_image(written(tmp_path / "whole.gif", original), 16)


def png_header(width, height):
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = b"IDAT" + zlib.compress(b"\0" * 1000)
    chunks = [struct.pack(">I", len(part) - 4) + part + struct.pack(">I", zlib.crc32(part)) for part in (header, body)]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def test_enormous_images_are_refused_by_their_header(tmp_path, monkeypatch):
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", lambda self: pytest.fail("decoded"))
    for size in ((20_000, 20_000), (8_000, 8_001), (10_000, 10_000), (2**31 - 1, 2**31 - 1)):
        image = written(tmp_path / "bomb.png", png_header(*size))
        for look in (check_image, lambda image: read_image(image, 8)):
            with pytest.raises(DataError) as error, quietly():
                look(image)
            assert error.value.reason == f"{size[0] * size[1]:,} pixels are more than 64,000,000"


def test_files_that_are_no_images(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe.jpg")
    monkeypatch.setattr(images, "LARGEST_FILE", 1000)
    (tmp_path / "folder.jpg").mkdir()
    for name, content, match in [
        ("pipe.jpg", None, "not a regular file"),
        ("folder.jpg", None, "not a regular file"),
        ("gone.jpg", None, "No such file"),
        ("empty.jpg", b"", "0 bytes"),
        ("large.jpg", b"x" * 1001, "1,001 bytes"),
        ("text.jpg", b"hello", "not a valid image"),
        ("float.pfm", b"Pf 1 1 1.0\n\0\0\0\0", "floating-point"),
        *[(f"cut.{kind}", encoded(Image.fromarray(PICTURE[:8, :8]), kind)[:-40], ".") for kind in images.FORMATS],
    ]:
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=match):
            read_image(ImageFile(name, str(tmp_path / name)), 8)


@pytest.fixture
def domain(tmp_path):
    """Two classes of six images; images 1 and 2 have no header, 7 breaks off after it."""
    files = []
    for number in range(12):
        content = encoded(Image.fromarray(RANDOM.integers(0, 256, (9, 7, 3), dtype=np.uint8)), "PNG")
        content = b"?" if number in (1, 2) else content[:100] if number == 7 else content
        files.append(written(tmp_path / f"{number:02}.png", content))
    return Domain("d", ("a", "b"), files, np.repeat([0, 1], 6))


def good(domain):
    kept = [0, 3, 4, 5, 6, 8, 9, 10, 11]
    return domain._replace(images=[domain.images[at] for at in kept], labels=domain.labels[kept])


def opened(domain, *, labelled=True, report=lambda _: None, **options):
    """The store of a domain with images of 8 x 8 pixels."""
    place = {"dataset": "folders", "root": ".", "source": "a", "target": "b", "output": "run"}
    config = configure(**place, **{"resize": 8, "crop": 8, **options})
    return Store(domain, config, CPU, report, labelled=labelled)


BATCHES = [np.array([0, 5, 2]), np.array([8, 8, 1, 3]), np.array([4])]


def assert_same(batch, files):
    for pixels, image in zip(batch, files, strict=True):
        assert np.array_equal(pixels.permute(1, 2, 0), read_image(image, 8))


def read_all(store, indices=BATCHES):
    return [batch.clone() for batch in store.batches(indices)]


@pytest.mark.parametrize("workers", [0, 2])
def test_both_stores_hold_what_is_in_the_files(domain, workers):
    domain = good(domain)
    kept = opened(domain, storage="device")
    streamed = opened(domain, storage="stream", workers=workers)
    assert len(kept) == len(streamed) == 9
    for indices, one, two in zip(BATCHES, read_all(kept), read_all(streamed), strict=True):
        assert one.shape == (len(indices), 3, 8, 8)
        assert one.dtype == torch.uint8
        assert torch.equal(one, two)
        assert_same(one, [domain.images[index] for index in indices])


def test_the_first_bad_image_is_reported(domain):
    for storage in ("device", "stream"):
        with pytest.raises(DataError, match=r"'01\.png'"):
            opened(domain, storage=storage)
    late = domain._replace(images=domain.images[6:], labels=domain.labels[6:])
    for workers in (0, 1):
        store = opened(late, storage="stream", workers=workers)
        with pytest.raises(DataError, match=r"'07\.png'"):
            read_all(store, [np.array([0]), np.array([2, 1])])


def test_skipped_images_are_left_out_or_replaced(domain):
    kept = opened(domain, storage="device", on_bad_image="skip")
    assert list(kept.bad) == ["01.png", "02.png", "07.png"]
    assert kept.labels.tolist() == good(domain).labels.tolist()
    assert [domain.images[at].name for at in kept.places] == [image.name for image in kept.domain.images]
    assert [image.name for image in kept.domain.images] == [image.name for image in good(domain).images]
    whole = opened(good(domain))
    assert all(torch.equal(a, b) for a, b in zip(read_all(kept), read_all(whole), strict=True))
    for workers in (0, 2):
        streamed = opened(domain, storage="stream", workers=workers, on_bad_image="skip")
        assert len(streamed) == 10
        assert len(streamed.bad) == 2
        (batch,) = read_all(streamed, [np.array([4, 5, 6])])  # 6, 7, 8 of the domain, of which 7 is bad
        assert_same(batch, [domain.images[at] for at in (6, 8, 8)])
        assert list(streamed.bad) == ["01.png", "02.png", "07.png"]


def test_a_bad_image_is_replaced_without_a_look_at_labels_that_must_not_matter(domain):
    labels = np.arange(len(domain.labels))[::-1] % 2
    hidden = [domain._replace(labels=each) for each in (domain.labels, labels, 0 * labels)]
    options = {"storage": "stream", "workers": 0, "on_bad_image": "skip"}
    for each in hidden:
        store = opened(each, **options, labelled=False)
        (batch,) = read_all(store, [np.array([5])])  # 7 of the domain, which is bad
        assert_same(batch, [domain.images[8]])
        assert store.usable.tolist() == [at != 5 for at in range(10)]


def test_nothing_usable(domain):
    broken = domain._replace(images=[domain.images[1]], labels=domain.labels[:1])
    for storage in ("device", "stream"):
        with pytest.raises(InvalidInput, match="1 that cannot be used"):
            opened(broken, storage=storage, on_bad_image="skip")
    late = domain._replace(images=[domain.images[7]] * 2, labels=domain.labels[:2])
    store = opened(late, storage="stream", workers=0, on_bad_image="skip")
    with pytest.raises(DataError, match="no other image in its place"):
        read_all(store, [np.array([0])])


def test_arrays_are_repeated_to_three_channels(tmp_path):
    grey = RANDOM.integers(0, 256, (3, 5, 5), dtype=np.uint8)
    domain = Domain("d", ("a",), grey, np.zeros(3, np.int64))
    (pixels,) = read_all(opened(domain), [np.arange(3)])
    (streamed,) = read_all(opened(domain, storage="stream", workers=1), [np.arange(3)])
    assert torch.equal(pixels, streamed)
    for image, stored in zip(grey, pixels, strict=True):
        expected = np.asarray(Image.fromarray(image).resize((8, 8), Image.Resampling.BILINEAR))
        assert all(np.array_equal(channel, expected) for channel in stored)


def test_auto_keeps_what_fits(domain, monkeypatch):
    domain = good(domain)
    size = 9 * 3 * 8 * 8
    for largest, free, kept in [(size, 4 * size, True), (size - 1, 4 * size, False), (size, 4 * size - 1, False)]:
        monkeypatch.setattr(stores, "LARGEST_STORE", largest)
        monkeypatch.setattr(stores, "_free", lambda device, free=free: free)
        assert (opened(domain).pixels is not None) == kept
    monkeypatch.undo()
    assert stores._free(CPU) > 2**20


@pytest.mark.parametrize("method", mostly_slow(["fork", "spawn"], 1))
def test_workers_of_either_kind_end_with_their_iterator(domain, method, tmp_path):
    script = f"""
import itertools, multiprocessing, pickle, sys
import numpy as np, torch
sys.path.insert(0, {os.path.dirname(__file__)!r})
from test_deep_images import opened
if __name__ == "__main__":
    multiprocessing.set_start_method("{method}")
    domain = pickle.load(sys.stdin.buffer)
    store = opened(domain, storage="stream", workers=2)
    batches = store.batches(itertools.repeat(np.array([1, 2])))
    first = next(batches)
    assert torch.equal(first, next(batches))
    assert len(multiprocessing.active_children()) == 2
    batches.close()
    assert not multiprocessing.active_children()
    assert len(list(store.batches([np.array([0])] * 3))) == 3
    assert not multiprocessing.active_children()
    print("done")
"""
    path = tmp_path / "script.py"
    path.write_text(script)
    result = subprocess.run(
        [sys.executable, path], input=pickle.dumps(good(domain)), capture_output=True, timeout=PATIENCE, check=False
    )
    assert (result.stdout.strip(), result.returncode) == (b"done", 0)
    if method == "fork":  # of the other kind torch itself may complain when they are ended early
        assert result.stderr == b""


def test_streaming_leaves_the_global_generator_alone(domain):
    before = torch.get_rng_state()
    read_all(opened(good(domain), storage="stream", workers=0))
    assert torch.equal(torch.get_rng_state(), before)


def test_an_interruption_ends_the_decoding(domain, monkeypatch):
    others = set(multiprocessing.active_children())
    many = good(domain)._replace(images=good(domain).images * 1000, labels=np.tile(good(domain).labels, 1000))
    reports = []

    def interrupt(line):
        reports.append(line)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        opened(many, storage="device", report=interrupt)
    assert reports == ["images of d: 100 of 9000"]
    assert set(multiprocessing.active_children()) <= others


def test_filters_of_warnings_are_as_before(domain):
    before = list(warnings.filters)
    opened(domain, on_bad_image="skip")
    assert warnings.filters == before
