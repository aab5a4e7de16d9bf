"""Weights from files that may hold anything: the right ones arrive whole, the others are refused by name."""

import os
import pickle
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("adaptive_ot.deep", exc_type=ImportError)

import torch
from safetensors.torch import save_file

from adaptive_ot.deep._torchvision import models
from adaptive_ot.deep.networks import build_network
from adaptive_ot.deep.weights import load_backbone
from adaptive_ot.errors import InvalidInput


@pytest.fixture(scope="module")
def published():
    """ResNet-18 as torchvision would publish it, with a classifier and running statistics of its own."""
    torch.manual_seed(5)
    model = models.resnet18(weights=None)
    with torch.no_grad():
        model(torch.rand(2, 3, 40, 40))
    return model.eval()


@pytest.fixture
def network():
    return build_network("resnet18", 3, bottleneck=4).eval()


def write(folder, state, suffix):
    path = folder / f"weights{suffix}"
    if suffix == ".safetensors":
        save_file(state, path)
    else:
        torch.save(state, path)
    return str(path)


def vectors_of(published, images):
    """What torchvision's own model computes before its classifier."""
    inputs_of_head = []
    handle = published.fc.register_forward_pre_hook(lambda module, inputs: inputs_of_head.append(inputs[0]))
    with torch.no_grad():
        published(images)
    handle.remove()
    return inputs_of_head[0]


@pytest.mark.parametrize("suffix", [".safetensors", ".pth", ".pt"])
def test_the_backbone_is_the_published_one(published, network, tmp_path, suffix):
    head = {key: value.clone() for key, value in network.state_dict().items() if not key.startswith("backbone")}
    load_backbone(network, write(tmp_path, published.state_dict(), suffix))
    images = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(network.backbone(images), vectors_of(published, images))
    assert all(torch.equal(network.state_dict()[key], value) for key, value in head.items())


@pytest.mark.parametrize("nest", ["state_dict", "model"])
def test_checkpoints_of_training_scripts_are_unpacked(published, network, tmp_path, nest):
    state = {f"module.{key}": value for key, value in published.state_dict().items()}
    load_backbone(network, write(tmp_path, {nest: state, "epoch": 90}, ".pth"))
    assert torch.equal(network.backbone.conv1.weight, published.conv1.weight)


def test_short_numbers_become_long_ones(published, network, tmp_path):
    state = {key: value.half() for key, value in published.state_dict().items() if "num_batches" not in key}
    load_backbone(network, write(tmp_path, state, ".safetensors"))
    assert network.backbone.conv1.weight.dtype == torch.float32
    assert torch.equal(network.backbone.conv1.weight, published.conv1.weight.half().float())


def test_what_does_not_fit_is_named(published, network, tmp_path):
    state = published.state_dict()
    wrong = {key: value for key, value in state.items() if key != "layer1.0.conv1.weight"}
    wrong |= {"layer9.weight": torch.zeros(1), "bn1.bias": torch.zeros(65)}
    before = network.backbone.conv1.weight.clone()
    with pytest.raises(InvalidInput) as refusal:
        load_backbone(network, write(tmp_path, wrong, ".pth"))
    for part in ("weights.pth", "resnet18", "missing: layer1.0.conv1.weight", "unexpected: layer9", "bn1.bias (65,)"):
        assert part in str(refusal.value)
    assert torch.equal(network.backbone.conv1.weight, before)


def test_another_network_is_refused_in_one_line(network, tmp_path):
    state = build_network("resnet34", 3).backbone.state_dict()
    with pytest.raises(InvalidInput, match=r"unexpected: .* and \d+ more"):
        load_backbone(network, write(tmp_path, state, ".safetensors"))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("layer2.0.bn1.bias", torch.full((128,), torch.nan), "finite.*layer2.0.bn1.bias"),
        ("layer2.0.bn1.bias", torch.full((128,), torch.inf), "finite.*layer2.0.bn1.bias"),
        ("layer1.0.bn1.running_var", torch.full((64,), -1.0), "variances"),
        ("bn1.running_var", torch.full((64,), 58.0**2), r"0 to 255.*resnet50-caffe"),  # weights for bytes, not [0, 1]
        ("bn1.bias", torch.ones(64, dtype=torch.int64), "torch.float32 in 'bn1.bias'"),
        ("bn1.bias", torch.ones(64, device="meta"), "must hold numbers"),
        ("bn1.bias", torch.ones(64).to_sparse(), "must hold numbers"),
        ("bn1.bias", "text", "tensors by name"),
        (3, torch.ones(1), "tensors by name"),
    ],
)
def test_strange_tensors_are_refused(published, network, tmp_path, key, value, message):
    before = network.backbone.conv1.weight.clone()
    with pytest.raises(InvalidInput, match=message):
        load_backbone(network, write(tmp_path, published.state_dict() | {key: value}, ".pth"))
    assert torch.equal(network.backbone.conv1.weight, before)


@pytest.mark.parametrize("content", [[torch.ones(2)], torch.ones(2), {}, {"state_dict": {}}, None], ids=str)
def test_other_content_is_refused(network, tmp_path, content):
    with pytest.raises(InvalidInput, match=r"weights\.pth"):
        load_backbone(network, write(tmp_path, content, ".pth"))


class Touch:
    """A pickle that makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("how", ["torch", "old torch", "pickle"])
def test_code_in_a_pickle_is_not_run(network, tmp_path, how):
    trace, path = tmp_path / "trace", tmp_path / "weights.pth"
    if how == "pickle":
        path.write_bytes(pickle.dumps({"conv1.weight": Touch(trace)}))
    else:
        torch.save({"conv1.weight": Touch(trace)}, path, _use_new_zipfile_serialization=how == "torch")
    with pytest.raises(InvalidInput, match=r"weights\.pth' must hold tensors by name, and nothing else") as error:
        load_backbone(network, str(path))
    assert not trace.exists()
    complaint = str(error.value)
    assert "safetensors.torch.save_file" in error.value.remedy
    assert not [word for word in ("weights_only", "torch.load", "safe_globals", "\n", "\x1b") if word in complaint]
    torch.load(path, weights_only=False) if how != "pickle" else pickle.loads(path.read_bytes())
    assert trace.exists()  # so it would have


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
@pytest.mark.parametrize("share", [0.0, 0.0005, 0.5, 0.999])
def test_truncated_files_are_refused(network, tmp_path, suffix, share):
    path = Path(write(tmp_path, network.backbone.state_dict(), suffix))
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(InvalidInput, match=r"weights\.(pth|safetensors)"):
        load_backbone(network, str(path))


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_noise_is_refused(network, tmp_path, suffix):
    path = tmp_path / f"weights{suffix}"
    for seed in range(20):
        noise = torch.randint(256, (500,), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)
        path.write_bytes(noise.numpy().tobytes())
        with pytest.raises(InvalidInput, match="weights"):
            load_backbone(network, str(path))


def test_compressed_archives_are_refused(network, tmp_path):
    """A few kilobytes could unpack to more than there is memory."""
    path = Path(write(tmp_path, {"conv1.weight": torch.zeros(10_000)}, ".pth"))
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    with pytest.raises(InvalidInput, match="compressed"):
        load_backbone(network, str(path))


@pytest.mark.parametrize("name", ["nowhere.pth", "weights.h5", "weights", "."])
def test_paths_that_lead_nowhere_are_refused(network, tmp_path, name):
    with pytest.raises(InvalidInput, match="weights"):
        load_backbone(network, str(tmp_path / name))


@pytest.mark.parametrize("name", ["resnet50-caffe", "convnet"])
def test_nothing_to_download_is_said(name):
    with pytest.raises(InvalidInput, match=f"'imagenet' for {name}"):
        build_network(name, 2, weights="imagenet")


def test_the_user_asks_for_a_download(published, monkeypatch):
    asked = []

    def download(url, **options):
        asked.append((url, options))
        return published.state_dict()

    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", download)
    weight = build_network("resnet18", 2, weights="imagenet").backbone.get_parameter("conv1.weight")
    assert torch.equal(weight, published.conv1.weight)
    [(url, options)] = asked
    assert url == models.ResNet18_Weights.IMAGENET1K_V1.url
    assert options["weights_only"]
    assert options["check_hash"]


def test_a_failed_download_says_what_to_do(monkeypatch):
    def fail(*_, **__):
        raise OSError("no route to host")

    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", fail)
    with pytest.raises(InvalidInput, match=r"no route to host.*resnet50-\w+\.pth yourself"):
        build_network("resnet50", 2, weights="imagenet")
