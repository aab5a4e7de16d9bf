"""The commands of deep adaptation and their options; what they do is in training.py and predicting.py."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import CycloptsError, Parameter, UnknownOptionError

from adaptive_ot.workbench.cli.options import Whole

# Fields of a run that are no options: they belong into the file of --config.
IN_FILES = (
    *("bottleneck", "learning_rate", "learning_rate_decay", "learning_rate_power", "head_factor", "momentum"),
    *("weight_decay", "passes", "deterministic", "compile", "resize", "crop", "flip"),
)


def train(
    *,
    dataset: str,
    root: Path,
    source: str,
    target: str,
    output: Annotated[Path, Parameter(alias="-o")],
    method: str | None = None,
    published: Annotated[bool, Parameter(negative=())] = False,
    settings: Annotated[list[str] | None, Parameter(name="--set", negative=())] = None,
    config: Path | None = None,
    network: str | None = None,
    weights: str | None = None,
    iterations: Whole | None = None,
    batch: Whole | None = None,
    seed: Whole | None = None,
    device: str | None = None,
    precision: Literal["auto", "float32", "tf32", "bf16"] | None = None,
    crop_kind: Literal["resized", "random", "none"] | None = None,
    test_crops: Literal["centre", "ten"] | None = None,
    target_class: Annotated[list[str] | None, Parameter(negative=())] = None,
    on_bad_image: Literal["error", "skip"] | None = None,
    storage: Literal["auto", "device", "stream"] | None = None,
    workers: Whole | None = None,
    evaluate_every: Whole | None = None,
    checkpoint_every: Whole | None = None,
) -> int:
    """Train a network on labelled images of one domain and unlabelled ones of another.

    The same command goes on where it was stopped. What is not given comes from --config, then from the preset of the
    dataset. Labels of the target are only used to report accuracies. See docs/deep.md.

    Parameters
    ----------
    dataset
        "office31", "office-home", "visda", "pacs"; "digits" (an .npz file); or your own as "folders" (one for each
        class) or "lists" (text files of paths and labels).
    root
        Where the dataset is: a directory, or the file of "digits".
    source
        The domain with labels: its name, or a folder or list below the root.
    target
        The domain without labels.
    output
        The directory of the run.
    method
        "aot" (the default), "deepjdot", "jumbot", "mpot", "rot", "dann", "cdan", "alda", "caco" or "source-only".
    published
        The settings of the method's paper for this dataset, rather than the defaults.
    settings
        A setting of the method, as in --set beta=1.5; give it several times for several.
    config
        A .toml file with any field of a run, and settings of the method in a table [settings].
    network
        "resnet18", "resnet34", "resnet50" (the default, but for digits), "resnet101", "resnet50-caffe", "convnet" (for
        digits) or "timm:NAME".
    weights
        Where the network starts: a .safetensors, .pth or .pt file, or "imagenet" to download one; random, if not given.
    iterations
        Steps of the training.
    batch
        Images of either domain in a step.
    seed
        Of all that is random.
    device
        As PyTorch names it; "auto" is a GPU if there is one.
    precision
        "auto" is bf16 on a GPU, float32 elsewhere.
    crop_kind
        What a step sees of an image: a part of random size and shape, a part of fixed size, or all of it.
    test_crops
        What an evaluation sees: the centre, or ten crops whose probabilities are averaged.
    target_class
        Let the target keep this class; give it several times for several. All, if not given.
    on_bad_image
        What to do about an image that cannot be used: stop with an error, or leave it out.
    storage
        Images decoded once and kept on the device, or decoded by processes in every step; "auto" keeps what fits.
    workers
        How many processes decode what is not kept.
    evaluate_every
        Steps between two looks at the target.
    checkpoint_every
        Steps between two checkpoints; one is also written when the run is stopped.
    """
    from adaptive_ot.workbench.cli.training import Request, train

    fields = {
        **{"method": method, "network": network, "weights": weights, "iterations": iterations, "batch": batch},
        **{"seed": seed, "device": device, "precision": precision, "crop_kind": crop_kind, "test_crops": test_crops},
        **{"target_classes": target_class, "on_bad_image": on_bad_image, "storage": storage, "workers": workers},
        **{"evaluate_every": evaluate_every, "checkpoint_every": checkpoint_every},
    }
    given = {name: value for name, value in fields.items() if value is not None}
    return train(Request(dataset, root, source, target, output, config, published, settings or [], given))


def evaluate(
    run: Path,
    /,
    *,
    root: Path | None = None,
    test_crops: Literal["centre", "ten"] | None = None,
    device: str = "auto",
    json: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Look again at how well the network of a finished run knows its target.

    Parameters
    ----------
    run
        The directory of the run.
    root
        Where the dataset is now; where it was, if not given.
    test_crops
        The centre of an image, or ten crops whose probabilities are averaged; as in the run, if not given.
    device
        As PyTorch names it; "auto" is a GPU if there is one.
    json
        Print the result for programs.
    """
    from adaptive_ot.workbench.cli.training import evaluate

    return evaluate(run, root, test_crops, device, json)


def predict(
    run: Path,
    /,
    *images: Path,
    output: Annotated[Path, Parameter(alias="-o")],
    on_bad_image: Literal["error", "skip"] = "error",
    device: str = "auto",
) -> int:
    """Find the classes of images, by the network of a finished run.

    Parameters
    ----------
    run
        The directory of the run.
    images
        Image files, and directories that are searched for them.
    output
        Where to write the classes, as .csv: file, label, confidence.
    on_bad_image
        What to do about a file that cannot be used: stop with an error, or leave it out.
    device
        As PyTorch names it; "auto" is a GPU if there is one.
    """
    from adaptive_ot.workbench.cli.predicting import predict

    return predict(run, images, output, on_bad_image, device)


def field_in_a_file(error: CycloptsError) -> str | None:
    """What to say of an unknown option that is a field of a run."""
    if not isinstance(error, UnknownOptionError) or "train" not in (error.command_chain or ()):
        return None
    typed = (error.token.keyword or error.token.value).split("=")[0]
    field = typed.removeprefix("--").removeprefix("no-").replace("-", "_")
    return f"{typed} is not an option: write {field} = ... into a file for --config." if field in IN_FILES else None
