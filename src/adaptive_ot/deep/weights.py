"""Weights of a backbone from an untrusted file, or from the internet if the user asks for it."""

from __future__ import annotations

import hashlib
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file

from adaptive_ot.deep._torchvision import models
from adaptive_ot.errors import InvalidInput
from adaptive_ot.workbench.files import check_input, trouble

if TYPE_CHECKING:
    from adaptive_ot.deep.networks import Network

DOWNLOAD = "imagenet"
SUFFIXES = (".safetensors", ".pth", ".pt")

# The weights that papers on adaptation start from; the default of torchvision is a later, better recipe.
PUBLISHED = "IMAGENET1K_V1"

# Keys under which training scripts store a state dict, and the prefix that DataParallel adds.
NESTS = ("state_dict", "model")
WRAPPER = "module."

# Counters that BatchNorm only needs without momentum; converters omit them.
OPTIONAL = "num_batches_tracked"

# Mean square of images along the first filters of a ResNet: about 1 for normalised images, 4700 for bytes.
BYTES = 100.0

NAMED = 3


def load_backbone(network: Network, weights: str) -> None:
    """Replace all weights of the backbone, or raise and replace none.

    `weights` is a .safetensors, .pth or .pt file with the keys of torchvision or timm; those of the classifier are
    ignored. ``imagenet`` downloads the weights that torchvision publishes.
    """
    if weights == DOWNLOAD:
        name, content = f"weights '{DOWNLOAD}'", _download(network.name)
    else:
        path = Path(weights)
        name = f"weights '{path}'"
        if not path.suffix and not path.exists():
            rule = f"must be a file, or '{DOWNLOAD}' to download those of torchvision"
            raise InvalidInput(name, rule, "no such file", "Check the path.")
        check_input(name, path, SUFFIXES)
        with trouble(name, f"must be a valid {path.suffix.lower()} file of weights"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            content = load_file(path) if path.suffix.lower() == ".safetensors" else _load_pickled(name, path)
    state = _state_dict(name, content)
    unused = tuple(f"{layer}." for layer in network.published_head)
    state = {key: value for key, value in state.items() if not key.startswith(unused)}
    own = network.backbone.state_dict()
    _check_keys(name, network.name, own, state)
    with trouble(name, "must hold numbers"):
        state = {key: _finite(name, key, value, own[key].dtype) for key, value in state.items()}
    if not network.normalise.bgr:
        _check_range(name, state)
    network.backbone.load_state_dict(own | state)


def digest_of(weights: str | None) -> str | None:
    """A digest of a file of weights; the word itself, if they are downloaded."""
    if weights is None or weights == DOWNLOAD:
        return weights
    name = f"weights '{weights}'"
    check_input(name, Path(weights), SUFFIXES)
    with trouble(name, "must be a file that can be read"), open(weights, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def _download(network: str) -> Any:
    if not network.startswith("resnet") or network not in models.list_models():
        remedy = "Download a file yourself and give its path."
        raise InvalidInput("weights", f"cannot be '{DOWNLOAD}' for {network}", "no published file", remedy)
    url = models.get_model_weights(network)[PUBLISHED].value.url
    try:
        return torch.hub.load_state_dict_from_url(url, map_location="cpu", check_hash=True, weights_only=True)
    except Exception as error:  # of the network, the disk, or the hash
        remedy = f"Try again, or download {url} yourself and give its path."
        reason = str(error) or type(error).__name__
        raise InvalidInput(f"weights '{DOWNLOAD}'", "must be within reach", reason, remedy) from None


def _load_pickled(name: str, path: Path) -> Any:
    """The content of a file of torch.save, without running code of its pickle."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
                raise ValueError("compressed entries, which torch.save does not write")  # could unpack to terabytes
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception:  # its message would explain how to run the code in the file
        given = "other objects, or a damaged file"
        remedy = "Convert it where it was made: safetensors.torch.save_file(network.state_dict(), 'w.safetensors')."
        raise InvalidInput(name, "must hold tensors by name, and nothing else", given, remedy) from None


def _state_dict(name: str, content: Any) -> dict[str, torch.Tensor]:
    """Tensors by name, without an enclosing table or the prefix of a wrapper."""
    for nest in NESTS:
        if isinstance(content, Mapping) and isinstance(content.get(nest), Mapping):
            content = content[nest]
    if not isinstance(content, Mapping) or not all(
        isinstance(key, str) and isinstance(value, torch.Tensor) for key, value in content.items()
    ):
        raise InvalidInput(name, "must hold tensors by name", "something else", "Save network.state_dict().")
    wrapped = all(key.startswith(WRAPPER) for key in content)
    return {key.removeprefix(WRAPPER) if wrapped else key: value for key, value in content.items()}


def _check_keys(name: str, network: str, own: Mapping[str, torch.Tensor], state: Mapping[str, torch.Tensor]) -> None:
    """The names and shapes are those of the network."""
    needed = {key for key in own if not key.endswith(OPTIONAL)}
    wrong = {
        "missing": sorted(needed - state.keys()),
        "unexpected": sorted(state.keys() - own.keys()),
        "wrong shape": [
            f"{key} {tuple(value.shape)} instead of {tuple(own[key].shape)}"
            for key, value in state.items()
            if key in own and value.shape != own[key].shape
        ],
    }
    more = {what: f" and {len(keys) - NAMED} more" if len(keys) > NAMED else "" for what, keys in wrong.items()}
    given = "; ".join(f"{what}: {', '.join(keys[:NAMED])}{more[what]}" for what, keys in wrong.items() if keys)
    if given:
        raise InvalidInput(name, f"must fit {network}", given, "Choose the network that they were trained for.")


def _finite(name: str, key: str, value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if value.dtype.is_floating_point != dtype.is_floating_point:
        raise InvalidInput(name, f"must hold {dtype} in '{key}'", value.dtype, "Convert it.")
    value = value.to(dtype)
    if not value.isfinite().all():
        raise InvalidInput(name, "must hold finite numbers", f"others in '{key}'", "Train or convert it again.")
    if key.endswith("running_var") and (value < 0).any():
        raise InvalidInput(name, "must hold variances of at least 0", f"less in '{key}'", "Train or convert it again.")
    return value


def _check_range(name: str, state: Mapping[str, torch.Tensor]) -> None:
    """Refuse weights of Caffe and Keras: they fit ResNet-50 by name and shape, but expect other images."""
    if "conv1.weight" not in state or "bn1.running_var" not in state:
        return
    mean_squares = state["bn1.running_var"] / state["conv1.weight"].square().sum((1, 2, 3))
    if mean_squares.median() > BYTES:
        given, remedy = "weights for images from 0 to 255", "Choose resnet50-caffe."
        raise InvalidInput(name, "must be for normalised images", given, remedy)
