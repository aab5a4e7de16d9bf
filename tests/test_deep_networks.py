"""Networks against torchvision, timm, closed forms, and features of real images."""

import importlib
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("adaptive_ot.deep", exc_type=ImportError)

import torch
from PIL import Image
from torch import nn

from adaptive_ot.deep import _torchvision, networks
from adaptive_ot.deep._torchvision import models
from adaptive_ot.deep.networks import BACKBONES, GridPool, MeanPool, build_network
from adaptive_ot.errors import InvalidInput, MissingDependency
from interruption import PATIENCE

DATA = os.environ.get("ADAPTIVE_OT_DATA")
WIDTHS = {"resnet18": 512, "resnet34": 512, "convnet": 1024}  # others 2048


@pytest.fixture
def images():
    return torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", BACKBONES)
def test_shapes_and_parameters(name, images):
    network = build_network(name, 5, bottleneck=16).eval()
    with torch.no_grad():
        features, logits = network(images)
    assert features.shape == (2, 16)
    assert logits.shape == (2, 5)
    assert network.bottleneck.in_features == WIDTHS.get(name, 2048)
    backbone, head = list(network.backbone.parameters()), list(network.head_parameters())
    assert {*map(id, backbone)} | {*map(id, head)} == {*map(id, network.parameters())}
    assert len(backbone) + len(head) == len(list(network.parameters()))
    assert [each.shape for each in head] == [(16, WIDTHS.get(name, 2048)), (16,), (5, 16), (5,)]


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_it_is_the_network_of_torchvision(name, images):
    from torchvision.transforms.functional import normalize

    network = build_network(name, 5).eval()
    published = getattr(models, name)(weights=None).eval()
    published.fc = nn.Identity()
    published.load_state_dict(network.backbone.state_dict())
    with torch.no_grad():
        expected = published(normalize(images, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
        features, logits = network(images)
        torch.testing.assert_close(features, network.bottleneck(expected), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(logits, network.classifier(features))


def test_caffe_sees_bytes_in_blue_green_red():
    pixels = torch.arange(12).view(1, 3, 2, 2) * 20.0
    normalised = build_network("resnet50-caffe", 2).normalise(pixels / 255)
    red, green, blue = pixels[0]
    expected = torch.stack([blue - 103.939, green - 116.779, red - 123.68])[None]
    torch.testing.assert_close(normalised, expected, rtol=1e-5, atol=1e-4)


def test_caffe_shrinks_first(images):
    """At the first convolution of stages 2 to 4, where torchvision has it in the second."""
    for name, expected in {
        "resnet50-caffe": [16, 16, 8, 8, 4, 4, 2, 2],
        "resnet50": [16, 16, 16, 8, 8, 4, 4, 2],
    }.items():
        body, sizes = build_network(name, 2).eval().backbone, []

        def note(module, inputs, output, sizes=sizes):
            sizes.append(output.shape[-1])

        for stage in range(1, 5):
            for layer in (1, 2):
                body.get_submodule(f"layer{stage}.0.conv{layer}").register_forward_hook(note)
        with torch.no_grad():
            body(images)
        assert sizes == expected, name


def test_the_head_starts_as_published():
    network = build_network("convnet", 300, bottleneck=400)
    for layer in (network.bottleneck, network.classifier):
        deviation = (2 / (layer.in_features + layer.out_features)) ** 0.5
        assert not layer.bias.any()
        assert layer.weight.mean().abs() < 0.02 * deviation
        assert abs(layer.weight.std() / deviation - 1) < 0.01


def test_the_seed_decides_and_generators_stay_as_they_are():
    torch.manual_seed(7)
    before = torch.get_rng_state()
    first = build_network("convnet", 3, seed=1).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    assert not [key for key in first if key.startswith("normalise")]
    torch.rand(5)
    second, third = (build_network("convnet", 3, seed=seed).state_dict() for seed in (1, 2))
    assert all(torch.equal(first[key], second[key]) for key in first)
    for key in ("backbone.0.0.weight", "bottleneck.weight", "classifier.weight"):
        assert not torch.equal(first[key], third[key])


@pytest.mark.parametrize("name", ["convnet", "resnet18", "resnet50-caffe"])
def test_layout_of_memory_changes_nothing(name, images):
    network = build_network(name, 3, bottleneck=8).eval()
    with torch.no_grad():
        expected = network(images)
        network.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        images = images.contiguous(memory_format=torch.channels_last)
        assert network.normalise(images).is_contiguous(memory_format=torch.channels_last)
        torch.testing.assert_close(network(images), expected, rtol=1e-3, atol=1e-3)


def test_half_precision_ends_before_the_head(images):
    network = build_network("convnet", 3, bottleneck=8)
    expected, _ = network(images)
    with torch.autocast("cpu", torch.bfloat16):
        features, logits = network(images)
    assert features.dtype == logits.dtype == torch.float32
    assert not torch.equal(features, features.bfloat16().float())
    assert not torch.equal(features, expected)  # the backbone did run in half precision
    torch.testing.assert_close(features, expected, rtol=0.1, atol=0.1)
    logits.sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())


@pytest.mark.parametrize("size", [1, 16, 28, 33])
def test_convnet_takes_any_size_in_double_precision(size):
    features, logits = build_network("convnet", 3).eval().double()(torch.rand(2, 3, size, size, dtype=torch.float64))
    assert features.dtype == logits.dtype == torch.float64
    assert features.isfinite().all()


@pytest.mark.parametrize("size", [(4, 4), (7, 6), (2, 1)])
def test_pools_are_the_means_of_parts(size):
    maps = torch.rand(2, 5, *size)
    torch.testing.assert_close(GridPool(4)(maps), nn.AdaptiveAvgPool2d(4)(maps).flatten(1))
    torch.testing.assert_close(MeanPool()(maps), nn.AdaptiveAvgPool2d(1)(maps).flatten(1))
    assert MeanPool()(maps.bfloat16()).dtype == torch.float32


@pytest.mark.parametrize("name", ["resnet", "ResNet50", "", None, 5, "timm"])
def test_unknown_names_are_refused(name):
    with pytest.raises(InvalidInput, match=r"network must be one of resnet18.*timm:NAME"):
        build_network(name, 2)


@pytest.mark.parametrize("name", ["mobilenetv3_small_050", "resnet10t", "test_vit"])
def test_timm(name, tmp_path):
    timm = pytest.importorskip("timm", reason="timm is not installed")
    published = timm.create_model(name, pretrained=False).eval()
    torch.save(published.state_dict(), tmp_path / "weights.pth")
    network = build_network(f"timm:{name}", 3, weights=str(tmp_path / "weights.pth")).eval()
    about = published.pretrained_cfg
    size = about["input_size"][-1]
    images = torch.rand(2, 3, size, size)
    with torch.no_grad():
        mean, deviation = (torch.tensor(about[key]).view(3, 1, 1) for key in ("mean", "std"))
        maps = published.forward_features((images - mean) / deviation)
        expected = network.bottleneck(published.forward_head(maps, pre_logits=True))
        torch.testing.assert_close(network(images)[0], expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(InvalidInput, match="imagenet"):
        build_network(f"timm:{name}", 3, weights="imagenet")


def test_timm_refuses_what_it_does_not_know():
    pytest.importorskip("timm", reason="timm is not installed")
    with pytest.raises(InvalidInput, match="Did you mean timm:resnet"):
        build_network("timm:resnet5O", 2)
    for name in ("", "hf-hub:someone/something", "local-dir:/tmp"):  # the first two would be looked up elsewhere
        with pytest.raises(InvalidInput, match="must name a model of timm"):
            build_network(f"timm:{name}", 2)


def test_timm_may_be_missing(monkeypatch):
    monkeypatch.setattr(networks, "find_spec", lambda name: None)
    with pytest.raises(MissingDependency, match="timm"):
        build_network("timm:resnet18", 2)


def test_torchvision_with_operators_of_its_own():
    program = """
import importlib, torch
own = torch.library.Library("torchvision", "DEF")
for name in ("nms", "qnms"):
    own.define(name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
from adaptive_ot.deep import _torchvision
assert not hasattr(_torchvision, "_declarations")
importlib.reload(_torchvision)
_torchvision.models.resnet18
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, "-c", program], check=True, timeout=PATIENCE, env=environment)
    importlib.reload(_torchvision)  # also here, where the operators may be declared already
    assert _torchvision.models.resnet18


@pytest.mark.skipif(DATA is None, reason="ADAPTIVE_OT_DATA does not name a directory with PACS and weights")
@pytest.mark.parametrize("domain", ["art_painting", "cartoon", "photo", "sketch"])
def test_features_of_real_images(domain):
    """As another program computed them, of the middle 224 x 224 pixels, before the images were compressed again."""
    root = Path(str(DATA))
    network = build_network("resnet50-caffe", 7, weights=str(root / "resnet50_imagenet_v1.safetensors")).eval()
    with tarfile.open(root / "pacs" / f"{domain}.tar") as archive:
        names = sorted(member.name for member in archive.getmembers() if member.isfile())
        rows = np.linspace(0, len(names) - 1, 10).astype(int)
        files = [archive.extractfile(names[row]) for row in rows]
        pixels = [Image.open(io.BytesIO(file.read())).convert("RGB").crop((1, 1, 225, 225)) for file in files if file]
    expected = torch.from_numpy(np.load(root / "pacs_resnet50" / f"{domain}.npz")["x"][rows].astype(np.float32))
    images = torch.from_numpy(np.stack([np.asarray(each) for each in pixels])).permute(0, 3, 1, 2) / 255
    with torch.no_grad():
        vectors = network.backbone(network.normalise(images))
    similarity = nn.functional.cosine_similarity(vectors, expected)
    assert similarity.mean() > 0.99
    assert similarity.min() > 0.98
    assert abs(vectors.norm() / expected.norm() - 1) < 0.03
    apart = nn.functional.cosine_similarity(vectors[:, None], expected[None], dim=2)
    assert torch.equal(apart.argmax(1), torch.arange(len(rows)))
