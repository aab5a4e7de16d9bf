"""``adaptive-ot train``, ``evaluate`` and ``predict``: what a user types, sees, and gets wrong."""

import csv
import dataclasses
import io
import json
import os
import re
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from adaptive_ot import deep
from adaptive_ot.deep.methods import METHODS
from adaptive_ot.errors import DataError
from adaptive_ot.workbench.benchmark import engine
from adaptive_ot.workbench.benchmark.study import Cell
from adaptive_ot.workbench.cli import main, progress, train
from adaptive_ot.workbench.cli.progress import cells_bar, training_bar
from adaptive_ot.workbench.files import FORMULA
from commands import contents, on_a_terminal, refused, run

TASK = ["--dataset", "digits", "--root", "small.npz", "--source", "a", "--target", "b", "--output", "run"]
SHORT = ["--method", "source-only", "--iterations", "12", "--batch", "6", "--evaluate-every", "4"]
SHORT += ["--checkpoint-every", "8"]


def stripes(count, shift):
    """Images of three classes: where the bright stripe is."""
    rng = np.random.default_rng(shift)
    labels = np.arange(count) % 3
    bright = np.repeat(np.eye(3)[labels], 4, axis=1)[:, :, None] * np.full(12, 200)
    return np.clip(bright + rng.integers(0, 40, bright.shape) + shift, 0, 255).astype(np.uint8), labels


def save_domains():
    (a, of_a), (b, of_b) = stripes(30, 0), stripes(21, 10)
    np.savez("small.npz", a_train_x=a, a_train_y=of_a, b_train_x=b, b_train_y=of_b)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_domains()
    return tmp_path


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A finished run, and what it printed; nobody changes it."""
    folder = tmp_path_factory.mktemp("trained")
    before = Path.cwd()
    os.chdir(folder)
    try:
        save_domains()
        assert main(["train", *TASK, *SHORT]) == 0
    finally:
        os.chdir(before)
    return folder / "run"


@pytest.fixture
def configured(monkeypatch):
    """What a training would have been started with; nothing is trained."""
    configs = []

    def fake(config, *, progress=None):
        configs.append(config)
        return result_of(config.output)

    monkeypatch.setattr(deep, "train", fake)
    return configs


def result_of(output, **changes):
    values = {
        **{"accuracy": 0.75, "mean_class_accuracy": 0.5, "per_class": {"dog": 1.0, "cat": 0.0}, "best_accuracy": 0.8},
        **{"best_step": 1500, "transported_mass": 0.625, "plan_purity": 0.9, "steps": 2000, "seconds": 71.4},
        **{"bad_images": 2, "output": output},
    }
    return deep.Result(**values | changes)


def on_one_line(text):
    return " ".join(text.split())


def test_train_and_again(here, capsys):
    assert main(["train", *TASK, *SHORT]) == 0
    first = capsys.readouterr()
    result = json.loads(Path("run/result.json").read_text())
    shown = on_one_line(first.out)
    assert shown.startswith("source-only: a to b of digits accuracy ")
    assert f"accuracy {result['accuracy']:.1%} of the target's images, after the last step" in shown
    assert first.err == ""
    lines = Path("run/metrics.jsonl").read_bytes()
    assert [json.loads(line)["step"] for line in lines.splitlines() if b"accuracy" in line] == [3, 7, 11]
    assert main(["train", *TASK, *SHORT]) == 0  # it is finished: nothing is done, and the same is said
    assert capsys.readouterr() == first
    assert Path("run/metrics.jsonl").read_bytes() == lines


def test_the_summary(here, configured, capsys):
    assert main(["train", *TASK]) == 0
    assert [on_one_line(line) for line in capsys.readouterr().out.splitlines()] == [
        "aot: a to b of digits",
        "accuracy 75.0% of the target's images, after the last step",
        "mean class 50.0%, every class counted once",
        "best 80.0% at step 1,500 (oracle: chosen by target labels)",
        "mass 0.625 of 1 transported, over the last tenth",
        "purity 90.0% of it within a class (oracle: judged by target labels)",
        "left out 2 images that could not be used",
        "effort 2,000 steps in 71 s",
        "results run",
        "class accuracy",
        "dog 100.0%",
        "cat 0.0%",
    ]


def test_names_cannot_command_the_terminal(here, monkeypatch, capsys):
    hostile = {"\x1b[2J[red]evil[/red]\n": 0.5}
    monkeypatch.setattr(deep, "train", lambda config, progress=None: result_of(config.output, per_class=hostile))
    assert main(["train", *TASK]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "?[2J[red]evil[/red]?" in shown


def test_every_option_reaches_the_run(here, configured):
    options = {
        **{"method": "dann", "network": "resnet18", "weights": "w.safetensors", "iterations": 7, "batch": 9, "seed": 3},
        **{"device": "cpu", "precision": "bf16", "crop_kind": "random", "test_crops": "ten", "on_bad_image": "skip"},
        **{"storage": "stream", "workers": 2, "evaluate_every": 5, "checkpoint_every": 6},
    }
    typed = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    assert main(["train", *TASK, *typed, "--target-class", "2", "--target-class", "0"]) == 0
    (config,) = configured
    assert {name: getattr(config, name) for name in options} == options
    assert (config.dataset, config.root, config.source, config.target) == ("digits", Path("small.npz"), "a", "b")
    assert (config.output, config.target_classes) == (Path("run"), ("2", "0"))


def test_what_is_typed_goes_before_the_file_and_the_preset(here, configured):
    fields, settings = 'iterations = 20\nmethod = "jumbot"\nmomentum = 0.5\n', "[settings]\ntau = 0.25\nalpha = 3\n"
    Path("run.toml").write_text(fields + settings)
    assert main(["train", *TASK, "--config", "run.toml", "--iterations", "30", "--set", "alpha=2", "--seed", "4"]) == 0
    (config,) = configured
    assert (config.iterations, config.method, config.momentum, config.seed) == (30, "jumbot", 0.5, 4)
    assert (config.settings["tau"], config.settings["alpha"]) == (0.25, 2.0)
    assert config.network == "convnet"  # of the preset


def test_published_settings(here, configured):
    task = ["--dataset", "office31", "--root", ".", "--source", "amazon", "--target", "webcam"]
    assert main(["train", *task, "--output", "run", "--published"]) == 0
    (config,) = configured
    assert (config.settings["alpha"], config.settings["beta"]) == (0.01, 5.0)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[("1", 1), ("-2.5", -2.5), ("1e-3", 1e-3), ("true", True), ("product", "product"), ("", ""), ("=", "=")],
        *[('"quoted"', '"quoted"'), ("1\ny = 2", "1\ny = 2"), ("2020-01-01", "2020-01-01"), ("[1]", "[1]")],
        ("[" * 5000, "[" * 5000),
    ],
)
def test_values_of_settings(text, value):
    found = train._settings([f"name={text}"])["name"]
    assert (found, type(found)) == (value, type(value))


REFUSED = [
    ("--dataset office32", '--dataset must be one of "digits", "folders"'),
    ("--method aott", "--method must be one of"),
    ("--method dann --published", "--published needs a method with published settings for 'digits'; got 'dann'"),
    ("--set beta", "--set must be KEY=VALUE; got 'beta'"),
    ("--set =1", "--set must be KEY=VALUE"),
    ("--set beta=1 --set beta=2", "--set must name a setting once; got 'beta' twice"),
    ("--set bta=1", "'bta' must be a known setting of method 'aot'"),
    ("--set beta=high", "beta must be a number"),
    ("--config missing.toml", "--config file 'missing.toml' must exist"),
    ("--config small.npz", "--config file 'small.npz' must end in .toml"),
    ("--config bad.toml", "--config file 'bad.toml' must be valid TOML"),
    ("--config unknown.toml", "'colour' must be a known field of a run"),
    ("--config place.toml", "--config file 'place.toml' must not hold 'root'"),
    ("--iterations 0", "--iterations must be a whole number from 1"),
    ("--iterations many", "--iterations"),
    ("--batch -1", "--batch must be a whole number from"),
    ("--seed -1", "--seed must be a whole number from 0"),
    ("--workers -1", "--workers must be a whole number from 0"),
    ("--evaluate-every 0", "--evaluate-every must be a whole number from 1"),
    ("--checkpoint-every 0", "--checkpoint-every must be a whole number from 1"),
    ("--precision float8", "--precision"),
    ("--on-bad-image ignore", "--on-bad-image"),
    ("--crop-kind square", "--crop-kind"),
    ("--test-crops five", "--test-crops"),
    ("--storage cloud", "--storage"),
    ("--device toaster", "--device must be one that PyTorch can use"),
    ("--root missing.npz", "--root 'missing.npz' must exist"),
    ("--root bad.toml", "--root 'bad.toml' must end in .npz"),
    ("--source c", "--source must be a domain of the file"),
    ("--target c", "--target must be a domain of the file"),
    ("--target-class 9", "--target-class must be classes of the source"),
    ("--network resnet51", "--network must be"),
    ("--weights missing.safetensors", "--weights"),
    ("--colour red", "--colour"),
    ("--itertions 3", "Unknown option: --itertions. Did you mean --iterations?"),
    ("--set bta=1", "Did you mean 'beta'? Known are: cost,"),
    ("--network resnet51", "Did you mean 'resnet50'?"),
    ("--passes two", "--passes is not an option: write passes = ... into a file for --config. Try"),
    ("--learning-rate=0.1", "--learning-rate is not an option: write learning_rate = ... into a file for --config."),
    ("--no-flip", "--no-flip is not an option: write flip = ... into a file for --config."),
]


def test_every_field_is_an_option_or_belongs_into_a_file():
    options = {each.name for each in dataclasses.fields(train.TrainOptions)} - {"published", "protocol", "config"}
    fields = {each.name for each in dataclasses.fields(deep.Config)}
    assert fields == options | set(train.IN_FILES)
    assert not options & set(train.IN_FILES)


@pytest.mark.parametrize(("typed", "message"), REFUSED, ids=[typed for typed, _ in REFUSED])
def test_mistakes_are_named(here, capfd, typed, message):
    Path("bad.toml").write_text("iterations = = 3")
    Path("unknown.toml").write_text("colour = 3")
    Path("place.toml").write_text('root = "."')
    arguments = dict(zip(TASK[::2], TASK[1::2], strict=True))
    words = typed.split()
    for name in {*words} & {*arguments}:
        del arguments[name]
    typed = ["train", *(word for pair in arguments.items() for word in pair), *words]
    refused(capfd, typed, message, within=None)
    assert not Path("run/metrics.jsonl").exists() or not Path("run/metrics.jsonl").read_bytes()


@pytest.mark.parametrize("missing", TASK[::2])
def test_what_is_needed(here, capsys, missing):
    at = TASK.index(missing)
    assert main(["train", *TASK[:at], *TASK[at + 2 :]]) == 2
    assert missing in capsys.readouterr().err


def test_another_run_in_the_directory(trained, monkeypatch, capsys):
    monkeypatch.chdir(trained.parent)
    assert main(["train", *TASK, *SHORT, "--seed", "5"]) == 2
    complaint = capsys.readouterr().err
    assert "--output 'run' must be new or hold the same run; got one with other settings: seed 0, not 5" in complaint


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (deep.Interrupted(7), 130, "stopped at step 7; the same command goes on"),
        (KeyboardInterrupt("stopped while loading; the same run goes on"), 130, "stopped while loading; the same run"),
        (DataError("a/1.png", "it is truncated"), 2, "The image 'a/1.png' cannot be used: it is truncated"),
    ],
)
def test_a_training_that_does_not_end(here, monkeypatch, capsys, error, code, message):
    def fail(config, progress=None):
        raise error

    monkeypatch.setattr(deep, "train", fail)
    assert main(["train", *TASK]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"adaptive-ot: {message}")


def test_a_stopped_run_goes_on(here, one_thread):
    """Byte for byte as if nothing had happened, with as many threads."""
    Path("small.toml").write_text("resize = 12\ncrop = 12\nbatch = 6\niterations = 300\nevaluate_every = 40\n")
    options = ["--config", "small.toml", "--method", "source-only", "--checkpoint-every", "1000"]
    steps = []
    for end in (signal.SIGINT, signal.SIGTERM):
        code, output, shown = on_a_terminal(["train", *TASK, *options], b"cross entropy", end)
        assert (code, output) == (130, "")
        assert "time left" in shown
        last = shown.rstrip().splitlines()[-1]
        assert last.endswith("the same command goes on")
        steps.append(int(last.split("stopped at step ")[1].split(";")[0]))
        assert not Path("run/result.json").exists()
    assert 0 < steps[0] < steps[1] < 300
    assert main(["train", *TASK, *options, "--device", "cpu"]) == 0
    assert main(["train", *TASK[:-1], "whole", *options]) == 0
    for name in ("metrics.jsonl", "checkpoints/step-00000300.safetensors"):
        assert Path("run", name).read_bytes() == Path("whole", name).read_bytes()


def test_a_pipe_gets_no_control_characters(here):
    """Neither of a training, nor of looks at it; and nothing but JSON where that is asked for."""
    printed = []
    for arguments in (["train", *TASK, *SHORT], ["evaluate", "run", "--json"]):
        done = run(*arguments)
        assert (done.returncode, done.stderr) == (0, "")
        assert all(line.isprintable() for line in done.stdout.split("\n"))
        printed.append(done.stdout)
    assert json.loads(printed[1])["steps"] == 12


def test_the_bar_says_where_a_training_is():
    losses = {"cross_entropy": 0.51234, "transport": -0.25, "mass": 0.625}
    assert progress.training_state(deep.Progress(10, 100, losses)) == "mass 0.625, cross entropy 0.512, transport -0.25"
    assert progress.training_state(deep.Progress(10, 100, losses, 0.5)).startswith(
        "target 50.0%, mass 0.625, cross entropy"
    )
    assert progress.training_state(deep.Progress(0, 100, {})) == ""


@pytest.fixture
def terminal(monkeypatch):
    """What a terminal of 80 columns shows, line by line."""
    screen = io.StringIO()
    monkeypatch.setattr(progress, "Console", lambda stderr: Console(file=screen, width=80, force_terminal=True))
    return lambda: re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue()).replace("\r", "\n").splitlines()


@pytest.mark.parametrize("method", METHODS)
def test_the_bar_fits_a_terminal_of_80_columns(here, terminal, method):
    """With every number of every method, none of them cut."""
    reports = []
    place: dict[str, Any] = {"dataset": "digits", "root": "small.npz", "source": "a", "target": "b", "output": "run"}
    small: dict[str, Any] = {"resize": 12, "crop": 12, "batch": 6, "iterations": 1}
    deep.train(deep.configure(**place, **small, method=method, device="cpu"), progress=reports.append)
    names = [name.replace("plan_", "").replace("_", " ") for name in reports[-1].losses]
    assert "cross entropy" in names
    assert ("mass" in names) == (method in ("aot", "deepjdot", "jumbot", "mpot"))
    with training_bar() as report:
        assert report
        report(deep.Progress(19990, 20000, dict.fromkeys(reports[-1].losses, -0.000123456), 0.98765))
    shown = terminal()
    assert max(map(len, shown)) <= 80
    text = " ".join(" ".join(shown).split())
    for part in ("19990/20000 time left", "target 98.8%", *(f"{name} -0.000123" for name in names)):
        assert part in text
    assert "…" not in text


def test_the_bar_of_a_benchmark_fits_too(terminal):
    cell = Cell("office-home", "Real World -> Clipart", "all mass, the cost of the AOT paper, and equal sizes", 12)
    with cells_bar() as report:
        assert report
        report(engine.CellStarted(1999, 12000, cell))
    assert max(map(len, terminal())) <= 80
    text = " ".join(" ".join(terminal()).split())
    assert "1999/12000 time left" in text
    assert str(cell) in text


def test_notes_are_for_everybody(capsys):
    """A bar is for terminals only; what one should know is not."""
    with training_bar() as report:
        assert report
        report(deep.Progress(0, 100, {}, loading="images of a: 100 of 200"))
        report(deep.Progress(16, 100, {}, note="goes on [bold] from step 16\x1b"))
        report(deep.Progress(20, 100, {"cross_entropy": 0.5}))
    assert capsys.readouterr() == ("", "goes on [bold] from step 16?\n")
    with training_bar(wanted=False) as report:
        assert report is None


def test_a_line_every_30_seconds_without_a_terminal(monkeypatch, capsys):
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(progress, "time", clock)
    with training_bar() as report:
        assert report
        for clock.now, state in (
            (29.0, deep.Progress(0, 100, {}, loading="images of a: 100 of 200")),
            (31.0, deep.Progress(0, 100, {}, loading="images of a: 200 of 200")),
            (60.0, deep.Progress(10, 100, {"cross_entropy": 0.5})),
            (61.0, deep.Progress(2000, 10000, {"cross_entropy": 0.5, "mass": 0.75}, 0.5)),
            (99.0, deep.Progress(256, 1000, {})),
        ):
            report(state)
    lines = "images of a: 200 of 200\nstep 2,000 of 10,000: target 50.0%, mass 0.75, cross entropy 0.5\n256 of 1,000\n"
    assert capsys.readouterr() == ("", lines)
    with cells_bar() as started:
        for clock.now in (100.0, 130.0):
            started(engine.CellStarted(3, 12, Cell("pacs", "photo -> sketch", "AOT", 1)))
    assert capsys.readouterr() == ("", "3 of 12 cells done, now AOT, pacs photo -> sketch, seed 1\n")


def test_evaluate(trained, monkeypatch, capsys):
    monkeypatch.chdir(trained.parent)
    result = json.loads((trained / "result.json").read_text())
    before = contents(trained)
    assert main(["evaluate", "run"]) == 0
    assert f"accuracy {result['accuracy']:.1%}" in on_one_line(capsys.readouterr().out)
    assert main(["evaluate", "run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["output"] == "run"
    for name in ("accuracy", "mean_class_accuracy", "per_class", "steps", "best_accuracy"):
        assert found[name] == result[name]
    assert main(["evaluate", "run", "--test-crops", "ten", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 12
    assert main(["evaluate", "run", "--test-crops", "ten"]) == 0
    shown = on_one_line(capsys.readouterr().out)
    assert "accuracy" in shown
    assert "mean class" in shown
    assert "best" not in shown  # which was found with other crops
    assert contents(trained) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evaluate"], "RUN"),
        (["evaluate", "missing"], "run 'missing' must"),
        (["evaluate", "small.npz"], "run 'small.npz' must"),
        (["evaluate", "."], "must hold a run.json that can be read"),
        (["evaluate", "run", "--test-crops", "five"], "--test-crops"),
        (["evaluate", "run", "--device", "toaster"], "--device must be one that PyTorch can use"),
        (["predict", "run", "--output", "out.csv"], "images must be at least one; got none"),
        (["predict", "run", "missing.png", "--output", "out.csv"], "images 'missing.png' must exist"),
        (["predict", "run", "images"], "--output"),
        (["predict", "run", "images", "--output", "out.txt"], "--output 'out.txt' must end in .csv"),
        (["predict", "missing", "images", "--output", "out.csv"], "run 'missing' must"),
        (["predict", "run", "images", "--output", "out.csv", "--on-bad-image", "eat"], "--on-bad-image"),
        (["predict", "run", "empty", "--output", "out.csv"], "images must be at least one"),
        (["predict", "run", "bad", "--output", "out.csv"], "cannot be used"),
        (["predict", "run", "small.npz", "--output", "out.csv"], "cannot be used"),
    ],
)
def test_mistakes_about_a_finished_run(here, trained, capfd, arguments, message):
    (here / "run").symlink_to(trained)
    for name in ("images", "empty", "bad"):
        Path(name).mkdir()
    Image.new("RGB", (12, 12)).save("images/1.png")
    Path("bad/1.png").write_bytes(b"not an image")
    refused(capfd, arguments, message)


def save_images(folder):
    """The images of the target below a folder, at any depth; the class of each."""
    pixels, labels = stripes(21, 10)
    classes = {}
    for at, (image, label) in enumerate(zip(pixels, labels, strict=True)):
        path = folder / ("deep/er" if at % 2 else ".") / f"{at}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
        classes[path] = str(label)
    return classes


def rows(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_predict(here, trained, capsys):
    """Every image has one row, however often it was named or found."""
    classes = save_images(Path("images"))
    (Path("images") / "notes.txt").write_text("no image")
    (Path("images") / ".hidden.png").write_bytes(b"")
    arguments = ["predict", str(trained), "images", "images/0.png", "--output", "out.csv"]
    assert main(arguments) == 0
    found = rows("out.csv")
    assert list(found[0]) == ["file", "label", "confidence"]
    assert sorted(row["file"] for row in found) == sorted(map(str, classes))
    assert all(1 / 3 <= float(row["confidence"]) <= 1 for row in found)
    right = {name: [] for name in "012"}
    for row in found:
        truth = classes[Path(row["file"])]
        right[truth].append(row["label"] == truth)
    known = json.loads((trained / "result.json").read_text())["per_class"]
    assert {name: np.mean(each) for name, each in right.items()} == known  # as the loop saw them
    shown = on_one_line(capsys.readouterr().out)
    assert shown.startswith("21 images by ")
    assert shown.endswith("written out.csv")


def test_bad_images_are_left_out(here, trained, capsys):
    save_images(Path("images"))
    Path("images/bad.png").write_bytes(b"not an image")
    assert main(["predict", str(trained), "images", "--output", "out.csv", "--on-bad-image", "skip"]) == 0
    assert len(rows("out.csv")) == 21
    assert "left out 1 image (" in on_one_line(capsys.readouterr().out)


def test_links_do_not_lead_out_of_a_directory(here, trained, capsys):
    save_images(Path("secret"))
    Path("images").mkdir()
    Path("images/loop").symlink_to(".")
    Path("images/1.png").symlink_to("../secret/0.png")
    assert main(["predict", str(trained), "images", "--output", "out.csv"]) == 2
    assert "must not leave the data root" in capsys.readouterr().err
    assert main(["predict", str(trained), "images/1.png", "--output", "out.csv"]) == 0  # named by the user


def test_names_are_no_formulas(here, monkeypatch):
    """Whatever files and classes are called, a table has three columns, and nothing that a spreadsheet would run."""
    names = ["=cmd|' /C calc'!A0", "+1+1", "-1", "@SUM(A1)", "a,b", 'a"b', "a\nb", "é", "\udcff", "plain", "-x", "\tx"]
    found = deep.Predictions([Path(name) for name in names], names, np.linspace(0.1, 0.9, len(names)), [])
    monkeypatch.setattr(deep, "predict", lambda *_, **__: found)
    Image.new("RGB", (8, 8)).save("1.png")
    assert main(["predict", "run", "1.png", "--output", "out.csv"]) == 0
    with open("out.csv", newline="", encoding="utf-8", errors="surrogateescape") as file:
        header, *body = csv.reader(file)
    assert header == ["file", "label", "confidence"]
    assert [len(row) for row in body] == [3] * len(names)
    for row, name in zip(body, names, strict=True):
        for cell in row[:2]:
            assert cell in (name, f"'{name}")
            assert not cell.startswith(FORMULA) or cell == "-1"
