"""``adaptive-ot train`` and ``evaluate``: from options to a run, and what came of it."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from adaptive_ot import InvalidInput, deep
from adaptive_ot.deep.distributed import process_group, rank
from adaptive_ot.workbench.cli import show
from adaptive_ot.workbench.cli.options import named
from adaptive_ot.workbench.cli.progress import steps_bar, training_bar
from adaptive_ot.workbench.wording import counted

# Fields of a config that have another name on the command line.
OTHERWISE = {"settings": "--set", "target_classes": "--target-class"}


class Request(NamedTuple):
    """What the user typed."""

    dataset: str
    root: Path
    source: str
    target: str
    output: Path
    config: Path | None
    published: bool
    settings: list[str]
    fields: dict[str, Any]


def train(request: Request) -> int:
    """Configure, train, and say what came of it; the first of several processes speaks."""
    with named(*request._fields, *request.fields, **OTHERWISE), process_group():
        config = deep.configure(
            dataset=request.dataset,
            root=request.root,
            source=request.source,
            target=request.target,
            output=request.output,
            config_file=request.config,
            published=request.published,
            settings=_settings(request.settings),
            **request.fields,
        )
        speaks = rank() == 0
        with training_bar(speaks) as progress:
            try:
                result = deep.train(config, progress=progress)
            except deep.Interrupted as stop:
                raise KeyboardInterrupt(f"stopped at step {stop.step}; the same command goes on") from None
        if speaks:
            console = Console()
            show.title(console, f"{config.method}: {config.source} to {config.target} of {config.dataset}")
            _show_accuracy(console, result)
            _show_training(console, result)
            _show_classes(console, result)
    return 0


def evaluate(
    run: Path, root: Path | None, test_crops: Literal["centre", "ten"] | None, device: str, as_json: bool
) -> int:
    """Look at the target once more; what was seen in the training, perhaps with other crops, is not mixed with it."""
    with named("root", "test_crops", "device"), steps_bar() as progress:
        progress(f"looking at the target of {run}")
        result = deep.evaluate(run, root=root, test_crops=test_crops, device=device)
    if as_json:
        print(json.dumps(result.record() | {"output": str(result.output)}, indent=2))
        return 0
    console = Console()
    show.title(console, f"{run} on its target")
    _show_accuracy(console, result)
    _show_classes(console, result)
    return 0


def _settings(given: Sequence[str]) -> dict[str, Any]:
    """From KEY=VALUE; a value is a number, true or false as TOML has them, and anything else a word."""
    settings: dict[str, Any] = {}
    for each in given:
        name, equals, value = each.partition("=")
        name = name.strip()
        if not (name and equals):
            raise InvalidInput("--set", "must be KEY=VALUE", repr(each), "Write it as in --set beta=1.5.")
        if name in settings:
            raise InvalidInput("--set", "must name a setting once", f"'{name}' twice", "Leave one of them away.")
        settings[name] = _value(value.strip())
    return settings


def _value(text: str) -> Any:
    try:
        (value,) = tomllib.loads(f"value = {text}").values()
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, int | float) else text


def _show_accuracy(console: Console, of: deep.Result) -> None:
    show.line(console, "accuracy", f"{of.accuracy:.1%} of the target's images, after the last step")
    show.line(console, "mean class", f"{of.mean_class_accuracy:.1%}, every class counted once")


def _show_training(console: Console, of: deep.Result) -> None:
    show.line(console, "best", f"{of.best_accuracy:.1%} at step {of.best_step:,} (oracle: chosen by target labels)")
    if of.transported_mass is not None:
        show.line(console, "mass", f"{of.transported_mass:.3g} of 1 transported, over the last tenth")
    if of.plan_purity is not None:
        show.line(console, "purity", f"{of.plan_purity:.1%} of it within a class (oracle: judged by target labels)")
    if of.bad_images:
        show.line(console, "left out", f"{counted(of.bad_images, 'image')} that could not be used")
    show.line(console, "effort", f"{counted(of.steps, 'step')} in {of.seconds:,.0f} s")
    show.line(console, "results", f"{of.output}")


def _show_classes(console: Console, of: deep.Result) -> None:
    table = Table(box=None, header_style="cyan", padding=(0, 2))
    table.add_column("class", overflow="fold")
    table.add_column("accuracy", justify="right")
    for name, accuracy in of.per_class.items():
        table.add_row(Text(show.printable(name)), f"{accuracy:.1%}")
    console.print(table)
