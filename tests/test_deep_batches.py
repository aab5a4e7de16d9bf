"""Batches and views are pure functions of (seed, step), and do what torchvision does."""

import dataclasses
from collections import Counter
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from adaptive_ot.deep import configure
from adaptive_ot.deep.data import augment, batches
from adaptive_ot.deep.data.augment import draw_views
from adaptive_ot.deep.data.batches import balanced_batch, random_batch
from adaptive_ot.errors import InvalidInput

# After adaptive_ot.deep, beside which it loads whatever build of torch there is.
transforms = pytest.importorskip("torchvision.transforms.transforms")
functional = pytest.importorskip("torchvision.transforms.functional")


def labels_of(classes, each, seed=0):
    return np.random.default_rng(seed).permutation(np.repeat(np.arange(classes), each))


@given(st.integers(1, 65), st.integers(1, 80), st.integers(0, 2**40), st.integers(0, 10**6), st.integers(0, 99))
def test_every_class_has_its_share(classes, size, seed, step, shape):
    random = np.random.default_rng(shape)
    labels = random.permutation(np.repeat(np.arange(classes), random.integers(1, 6, classes)))
    batch = balanced_batch(labels, classes, size, seed, step)
    counts = np.bincount(labels[batch], minlength=classes)
    assert len(batch) == size
    assert batch.dtype == np.int64
    assert counts.min() == size // classes
    assert counts.max() == -(-size // classes)
    held = np.bincount(labels, minlength=classes)
    rounds = -(-size // classes)
    for label in range(classes):
        if held[label] >= rounds:
            mine = batch[labels[batch] == label]
            assert len(set(mine)) == len(mine)


def test_the_past_does_not_matter():
    labels = labels_of(5, 7)
    for draw in (lambda step: balanced_batch(labels, 5, 8, 3, step), lambda step: random_batch(35, 8, 3, step)):
        forward = [draw(step).tolist() for step in range(40)]
        batches._permutation.cache_clear()
        batches._members.cache_clear()
        assert [draw(step).tolist() for step in reversed(range(40))] == forward[::-1]
        assert len({tuple(batch) for batch in forward}) == 40
    assert balanced_batch(labels, 5, 8, 4, 0).tolist() != balanced_batch(labels, 5, 8, 3, 0).tolist()


def test_labels_that_change_are_seen():
    labels = np.array([0, 1, 0, 1])
    assert balanced_batch(labels, 2, 2, 0, 0)[0] in (0, 2)
    labels[:] = 1 - labels
    assert balanced_batch(labels, 2, 2, 0, 0)[0] in (1, 3)


def test_each_class_cycles_through_its_samples():
    labels = labels_of(4, 12)
    first = np.concatenate([balanced_batch(labels, 4, 12, 0, step) for step in range(4)])
    assert sorted(first) == list(range(48))
    second = np.concatenate([balanced_batch(labels, 4, 12, 0, step) for step in range(4, 8)])
    assert sorted(second) == list(range(48))
    assert first.tolist() != second.tolist()


def test_the_rest_of_a_batch_goes_to_all_classes_alike():
    labels = labels_of(6, 10)
    counts = np.zeros(6)
    samples = np.zeros(60)
    for step in range(3000):
        batch = balanced_batch(labels, 6, 4, 0, step)
        counts += np.bincount(labels[batch], minlength=6)
        samples += np.bincount(batch, minlength=60)
    assert np.abs(counts - 2000).max() < 5 * np.sqrt(3000 * 2 / 9)
    assert np.abs(samples - 200).max() < 5 * np.sqrt(200)


def test_random_batches_are_epochs():
    epoch = np.concatenate([random_batch(23, 5, 0, step) for step in range(4)])
    assert len(set(epoch)) == 20
    counts = np.sum([np.bincount(random_batch(23, 5, 0, step), minlength=23) for step in range(4 * 300)], axis=0)
    assert counts.sum() == 6000
    assert np.abs(counts - 6000 / 23).max() < 5 * np.sqrt(300 * 0.13 * 0.87)


def test_small_domains_are_repeated_whole():
    line = np.concatenate([random_batch(4, 10, 0, step) for step in range(6)])
    assert all(sorted(part) == [0, 1, 2, 3] for part in line.reshape(-1, 4))


def test_wrong_batches():
    with pytest.raises(InvalidInput, match="none of class 1"):
        balanced_batch(np.array([0, 2]), 3, 3, 0, 0)
    with pytest.raises(InvalidInput, match="outside 0 to 1"):
        balanced_batch(np.array([0, 1, 2]), 2, 3, 0, 0)


SIZE, CROP = 32, 24
PIXELS = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (12, 3, SIZE, SIZE), dtype=np.uint8))


def views(kind, n=12, size=SIZE, crop=CROP, flip=True, seed=0, step=0, stream: Literal["source", "target"] = "source"):
    place: dict[str, Any] = {"dataset": "folders", "root": ".", "source": "a", "target": "b", "output": "run"}
    config = configure(**place, batch=n, resize=size, crop=crop, seed=seed, flip=flip)
    return draw_views(dataclasses.replace(config, crop=size if kind == "none" else crop, crop_kind=kind), step, stream)


def test_views_depend_on_seed_step_and_stream_only():
    drawn = [views("resized"), views("resized", seed=1), views("resized", step=1), views("resized", stream="target")]
    assert len({view.boxes.tobytes() for view in drawn}) == 4
    again = views("resized")
    assert np.array_equal(again.boxes, drawn[0].boxes)
    assert np.array_equal(again.flip, drawn[0].flip)
    assert again.boxes.dtype == np.float32
    assert not views("random", flip=False).flip.any()


def test_resized_crops_match_torchvision():
    for step in range(5):
        drawn = views("resized", step=step)
        result = augment.augment(PIXELS, drawn, CROP)
        for image, (left, top, width, height), flip, got in zip(PIXELS, drawn.boxes, drawn.flip, result, strict=True):
            box = int(top), int(left), int(height), int(width)
            expected = functional.resized_crop(image.float() / 255, *box, [CROP, CROP], antialias=False)
            expected = functional.hflip(expected) if flip else expected
            assert (got - expected).abs().max() < 1e-5


def test_random_crops_are_the_very_pixels():
    drawn = views("random", size=SIZE)
    result = augment.augment(PIXELS, drawn, CROP)
    for image, (left, top, *_), flip, got in zip(PIXELS, drawn.boxes, drawn.flip, result, strict=True):
        expected = functional.crop(image.float() / 255, int(top), int(left), CROP, CROP)
        assert torch.equal(got, functional.hflip(expected) if flip else expected)


def test_none_is_the_whole_image():
    assert torch.equal(augment.augment(PIXELS, views("none", crop=SIZE, flip=False), SIZE), PIXELS.float() / 255)
    whole = augment.augment(PIXELS, views("none", flip=False), CROP)
    expected = functional.resize(PIXELS.float() / 255, [CROP, CROP], antialias=False)
    assert (whole - expected).abs().max() < 1e-5


@pytest.mark.parametrize("kind", ["resized", "random"])
def test_parts_of_a_batch_come_out_as_in_the_whole(kind):
    drawn = views(kind)
    whole = augment.augment(PIXELS, drawn, CROP)
    assert whole.is_contiguous()
    for part in (slice(0, 1), slice(1, 6), slice(6, 12), slice(11, 12)):
        assert torch.equal(augment.augment(PIXELS[part], drawn.part(part), CROP), whole[part])


def test_resized_crops_follow_the_definition_of_torchvision():
    """Sides and places of 20,000 draws against as many of torchvision: the same means, spreads and extremes."""
    size, n = 256, 20_000
    ours = views("resized", n, size, 224)
    left, top, width, height = ours.boxes.T.astype(np.float64)
    assert (ours.boxes == np.round(ours.boxes)).all()
    assert min(left.min(), top.min()) == 0
    assert max((left + width).max(), (top + height).max()) == size
    torch.manual_seed(0)
    canvas = torch.empty(1, size, size)
    draw = transforms.RandomResizedCrop.get_params
    theirs = np.array([draw(canvas, [0.08, 1.0], [3 / 4, 4 / 3]) for _ in range(n // 4)], np.float64)
    for mine, other in (
        (width * height / size**2, theirs[:, 2] * theirs[:, 3] / size**2),
        (np.log(width / height), np.log(theirs[:, 3] / theirs[:, 2])),
        (left, theirs[:, 1]),
        (top, theirs[:, 0]),
    ):
        noise = other.std() * np.sqrt(5 / n)
        assert abs(mine.mean() - other.mean()) < 5 * noise
        assert abs(mine.std() - other.std()) < 5 * noise
        assert np.allclose(
            np.quantile(mine, [0.001, 0.999]), np.quantile(other, [0.001, 0.999]), atol=0.1 * other.std()
        )
    assert abs(ours.flip.mean() - 0.5) < 5 * 0.5 / np.sqrt(n)


def test_random_crops_fall_everywhere():
    drawn = views("random", 20_000, 8, 6, stream="target")
    counts = np.array(list(Counter(map(tuple, drawn.boxes[:, :2].tolist())).values()))
    assert len(counts) == 9
    assert np.abs(counts - 20_000 / 9).max() < 5 * np.sqrt(20_000 / 9)


def test_nothing_fits_an_image_of_one_pixel():
    assert np.array_equal(views("resized", size=1, crop=1).boxes, np.tile([0.0, 0, 1, 1], (12, 1)))


@pytest.mark.parametrize(("size", "crop"), [(32, 24), (32, 25), (31, 24), (24, 24)])
def test_test_views_match_torchvision(size, crop):
    pixels = PIXELS[..., :size, :size]
    (centre,) = augment.test_views(pixels, crop, "centre")
    assert torch.equal(centre, functional.center_crop(pixels.float() / 255, [crop, crop]))
    expected = functional.ten_crop(pixels.float() / 255, [crop, crop])
    for got, want in zip(augment.test_views(pixels, crop, "ten"), expected, strict=True):
        assert torch.equal(got, want)
