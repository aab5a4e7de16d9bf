"""``adaptive-ot train``, ``evaluate`` and ``predict``: networks on images of two domains."""

from __future__ import annotations

import os
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import CycloptsError, Parameter, UnknownOptionError
from rich.console import Console
from rich.table import Table
from rich.text import Text

from adaptive_ot import InvalidInput
from adaptive_ot._group import process_group
from adaptive_ot.workbench.cli import outputs, show
from adaptive_ot.workbench.cli.options import Flag, Output, Whole, Words, named
from adaptive_ot.workbench.cli.progress import steps_bar, training_bar
from adaptive_ot.workbench.files import as_csv, write_atomically
from adaptive_ot.workbench.wording import OPEN_SET, counted, evaluated, open_set, trained

if TYPE_CHECKING:
    from adaptive_ot import deep

# Fields of a run that are not options: they belong into the file of --config.
IN_FILES = (
    *("bottleneck", "learning_rate", "learning_rate_decay", "learning_rate_power", "head_factor", "momentum"),
    *("weight_decay", "passes", "deterministic", "compile", "flip"),
)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """The fields of a training run that are options; omitted ones come from --config or the preset of the dataset.

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
    protocol
        "partial": only those classes in the target that the literature keeps, and ten crops in evaluations; of
        office31, office-home and visda.
    settings
        A setting of the method, as in --set beta=1.5; repeat it for several.
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
        The seed of everything random.
    device
        As PyTorch names it; "auto" is a GPU if there is one.
    precision
        "auto" is bf16 on a GPU, float32 elsewhere.
    resize, crop
        Pixels to which every side of an image is stretched, and those on a side of the part that the network sees.
    crop_kind
        What a step sees of an image: a part of random size and shape, a part of fixed size, or all of it.
    test_crops
        What an evaluation sees: the centre, or ten crops whose probabilities are averaged.
    source_classes
        A class that the source keeps; repeat it for several. All, if not given.
    target_classes
        A class that the target keeps, likewise.
    unknown
        What to do about classes of the target that the source does not have: refuse them, or keep their images, which
        evaluations and predictions then call unknown.
    on_bad_image
        What to do about an image that cannot be used: stop with an error, or leave it out.
    storage
        Images decoded once and kept on the device, or decoded by processes in every step; "auto" keeps what fits.
    workers
        How many processes decode images that are not kept.
    evaluate_every
        Steps between two looks at the target.
    checkpoint_every
        Steps between two checkpoints; one is also written when the run is stopped.
    """

    dataset: str
    root: Path
    source: str
    target: str
    output: Output
    method: str | None = None
    published: Flag = False
    protocol: str | None = None
    settings: Annotated[Words, Parameter(name="--set")] = None
    config: Path | None = None
    network: str | None = None
    weights: str | None = None
    iterations: Whole | None = None
    batch: Whole | None = None
    seed: Whole | None = None
    device: str | None = None
    precision: Literal["auto", "float32", "tf32", "bf16"] | None = None
    resize: Whole | None = None
    crop: Whole | None = None
    crop_kind: Literal["resized", "random", "none"] | None = None
    test_crops: Literal["centre", "ten"] | None = None
    source_classes: Annotated[Words, Parameter(name="--source-class")] = None
    target_classes: Annotated[Words, Parameter(name="--target-class")] = None
    unknown: Literal["refuse", "keep"] | None = None
    on_bad_image: Literal["error", "skip"] | None = None
    storage: Literal["auto", "device", "stream"] | None = None
    workers: Whole | None = None
    evaluate_every: Whole | None = None
    checkpoint_every: Whole | None = None

    def configured(self) -> deep.Config:
        """The training run."""
        from adaptive_ot import deep

        given = {name: value for name, value in vars(self).items() if value is not None}
        file, settings = given.pop("config", None), _settings(given.pop("settings", []))
        return deep.configure(**given, config_file=file, settings=settings)


def train(*, options: TrainOptions) -> int:
    """Train a network on labelled images of one domain and unlabelled ones of another.

    The same command continues where it was stopped. Omitted options come from --config, then from the preset of the
    dataset. Labels of the target are only used to report accuracies. See docs/deep.md.
    """
    from adaptive_ot import deep
    from adaptive_ot.deep.distributed import rank

    names = [field.name for field in fields(TrainOptions)]
    with (
        named(*names, settings="--set", source_classes="--source-class", target_classes="--target-class"),
        process_group(),
    ):
        config = options.configured()
        speaks = rank() == 0  # of several processes, one prints
        with training_bar(speaks) as progress:
            try:
                result = deep.train(config, progress=progress)
            except deep.Interrupted as stop:
                raise KeyboardInterrupt(f"stopped at step {stop.step}; the same command goes on") from None
    if speaks:
        show.title(f"{config.method}: {config.source} to {config.target} of {config.dataset}")
        show.lines(trained(result, "chosen by target labels", "judged by target labels"))
        show.line("results", str(result.output))
        _show_classes(result)
    return 0


def evaluate(
    run: Path,
    /,
    *,
    root: Path | None = None,
    test_crops: Literal["centre", "ten"] | None = None,
    device: str = "auto",
    json: Flag = False,
) -> int:
    """Evaluate the network of a finished run on its target again.

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
    from adaptive_ot import deep

    with named("root", "test_crops", "device"), steps_bar() as progress:
        progress(f"looking at the target of {run}")
        result = deep.evaluate(run, root=root, test_crops=test_crops, device=device)

    def show_it(_: object) -> None:  # without the best accuracy of the training, which other crops may have seen
        show.title(f"{run} on its target")
        show.lines(evaluated(result))
        _show_classes(result)

    show.result(result.record() | {"output": str(result.output)}, json, show_it)
    return 0


def predict(
    run: Path,
    /,
    *images: Path,
    output: Output,
    root: Path | None = None,
    on_bad_image: Literal["error", "skip"] = "error",
    device: str = "auto",
) -> int:
    """Predict the classes of images with the network of a finished run.

    Parameters
    ----------
    run
        The directory of the run.
    images
        Image files, and directories that are searched for them.
    output
        Where to write the classes, as .csv: file, label, confidence; of a run that keeps unknown classes also the
        share that matches no source image.
    root
        Where the dataset is now, of a run that keeps unknown classes; where it was, if not given.
    on_bad_image
        What to do about a file that cannot be used: stop with an error, or leave it out.
    device
        As PyTorch names it; "auto" is a GPU if there is one.
    """
    from adaptive_ot import deep

    outputs.check_output(output, (".csv",), inputs=images)
    found = _images(images)
    with named("device", "on_bad_image", "root"), training_bar() as progress:
        options: Any = {"root": root, "on_bad_image": on_bad_image, "device": device}
        predictions = deep.predict(run, found, **options, progress=progress)
    columns: dict[str, Any] = {"confidence": predictions.confidence, "unmatched": predictions.unmatched}
    columns = {name: [f"{each:.6g}" for each in values] for name, values in columns.items() if values is not None}
    rows = zip(map(os.fspath, predictions.files), predictions.labels, *columns.values(), strict=True)
    content = as_csv(["file", "label", *columns], rows)
    write_atomically("--output", output, lambda file: file.write(content))
    bad = "; ".join(f"{name}: {reason}" for name, reason in predictions.bad[:3])
    show.title(f"{counted(len(predictions.files), 'image')} by {run}")
    show.lines(
        {
            "predicted": show.classes(Counter(predictions.labels)),
            "left out": f"{counted(len(predictions.bad), 'image')} ({bad})" if bad else None,
            "written": str(output),
        }
    )
    return 0


def field_in_a_file(error: CycloptsError) -> str | None:
    """The message about an unknown option that is a field of a run."""
    if not isinstance(error, UnknownOptionError) or "train" not in (error.command_chain or ()):
        return None
    typed = (error.token.keyword or error.token.value).split("=")[0]
    field = typed.removeprefix("--").removeprefix("no-").replace("-", "_")
    return f"{typed} is not an option: write {field} = ... into a file for --config." if field in IN_FILES else None


def _settings(given: Sequence[str]) -> dict[str, Any]:
    """From KEY=VALUE; a value is a number, true or false as in TOML, otherwise text."""
    settings: dict[str, Any] = {}
    for each in given:
        name, equals, value = each.partition("=")
        name = name.strip()
        if not (name and equals):
            raise InvalidInput("--set", "must be KEY=VALUE", repr(each), "Write it as in --set beta=1.5.")
        if name in settings:
            raise InvalidInput("--set", "must name a setting once", f"'{name}' twice", "Omit one of them.")
        settings[name] = _value(value.strip())
    return settings


def _value(text: str) -> Any:
    try:
        (value,) = tomllib.loads(f"value = {text}").values()
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, int | float) else text


def _images(paths: Sequence[Path]) -> list[Path]:
    """Files, and all images below directories in the order of their names, each once."""
    from adaptive_ot.deep.data.images import SUFFIXES
    from adaptive_ot.deep.data.layouts import entries

    def below(root: Path, folder: Path) -> Iterator[Path]:
        for each in entries(root, folder):
            if each.is_dir(follow_symlinks=False):
                yield from below(root, Path(each.path))
            elif each.name.lower().endswith(SUFFIXES):
                yield Path(each.path)

    found: dict[Path, None] = {}
    for path in paths:
        if not path.exists():
            raise InvalidInput(f"images '{path}'", "must exist", "no such file or directory", "Check the path.")
        found |= dict.fromkeys(below(path, path) if path.is_dir() else [path])
    if not found:
        raise InvalidInput("images", "must be at least one", "none", f"Known are {', '.join(SUFFIXES)}.")
    return list(found)


def _show_classes(of: deep.Result) -> None:
    table = Table(box=None, header_style="cyan", padding=(0, 2))
    table.add_column("class", overflow="fold")
    table.add_column("accuracy", justify="right")
    for name, accuracy in of.per_class.items():
        table.add_row(Text(show.printable(name)), f"{accuracy:.1%}")
    Console().print(table)
    if of.open_set:
        headings, _ = OPEN_SET
        table = Table(*headings, box=None, header_style="cyan", padding=(0, 2))
        for row in open_set(of.open_set):
            table.add_row(*row)
        Console().print(table)
