"""Deep benchmarks: plan files say all or are refused, nothing is trained twice, tables tell the cells."""

import json
import os
import pickle
import re
import shutil
import signal
import time
import tomllib
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
import torch
from PIL import Image

import adaptive_ot as aot
from adaptive_ot import plot
from adaptive_ot.deep import configure, select
from adaptive_ot.deep.selection import DEFAULT
from adaptive_ot.workbench.benchmark import deep, engine, sensitivity
from adaptive_ot.workbench.benchmark.deep import configuration, directory_name, directory_of
from adaptive_ot.workbench.benchmark.selection import NAME, select_each
from adaptive_ot.workbench.benchmark.study import Cell, Outcome, Part, Study
from adaptive_ot.workbench.benchmark.study_file import read_study
from adaptive_ot.workbench.benchmark.table import markdown
from adaptive_ot.workbench.cli import main
from adaptive_ot.workbench.runs import differences
from commands import end_with, refused, rows_of
from interruption import PATIENCE

PLANS = sorted((Path(__file__).parents[1] / "benchmarks" / "plans").glob("*.toml"))
PLACE: dict[str, Any] = {"dataset": "office-home", "root": "data", "source": "Art", "target": "Real World"}
PLACE |= {"output": "run"}
TASKS = (("digits", "light -> dark"), ("digits", "dark -> light"))

TOP = """
dataset = "digits"
root = "data/tiny.npz"
tasks = ["light:dark", "dark:light"]
iterations = 4
batch = 6
bottleneck = 8
resize = 8
crop = 8
evaluate_every = 2
checkpoint_every = 1
"""
ROWS = """
[[methods]]
name = "none"
method = "source-only"
[[methods]]
name = "AOT, all mass"
method = "aot"
settings = { marginals = "equal" }
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Two small domains with bright rows for classes, one brighter, in a directory to work in."""
    monkeypatch.chdir(tmp_path)
    numba.get_num_threads()  # starts threads, and gives PyTorch as many
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    write_images(Path("data"))
    yield tmp_path
    torch.set_num_threads(threads)


def write_images(folder, bright=120):
    folder.mkdir(exist_ok=True)
    random, arrays = np.random.default_rng(0), {}
    for domain, more in (("light", 0), ("dark", 60)):
        y = np.arange(18) % 3
        x = random.integers(60, size=(18, 8, 8))
        x[np.arange(18), 2 * y + 1] += bright + more
        arrays |= {f"{domain}_train_x": x.astype(np.uint8), f"{domain}_train_y": y}
    np.savez(folder / "tiny.npz", **arrays)


def write_plan(top=TOP, rows=ROWS, path="plan.toml"):
    Path(path).write_text(top + rows)
    return Path(path)


def cells_of(directory):
    return json.loads(Path(directory, "results.json").read_text())["cells"]


def without_seconds(cells):
    return [cell | {"numbers": {k: v for k, v in cell["numbers"].items() if k != "seconds"}} for cell in cells]


def test_command(here, capsys, monkeypatch):
    write_plan(TOP + "seeds = [4]\n")
    arguments = ["benchmark", "deep", "plan.toml", "-o", "results"]
    assert main(arguments) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert captured.out.startswith(Path("results/results.md").read_text())
    assert captured.out.endswith("Written to results/results.md\nWritten to results/results.json\n")
    cells = cells_of("results")
    assert [(cell["task"], cell["method"], cell["seed"]) for cell in cells] == [
        (task, method, 4) for _, task in TASKS for method in ("none", "AOT, all mass")
    ]
    # What the runs themselves left says the same, and no checkpoint is left.
    for cell in cells:
        run = Path("results/runs", directory_name(Cell(cell["group"], cell["task"], cell["method"], cell["seed"])))
        found = json.loads((run / "result.json").read_text())
        assert cell["numbers"] == {name: found[name] for name in cell["numbers"]}
        assert {"accuracy", "mean_class_accuracy", "best_accuracy", "seconds"} <= set(cell["numbers"])
        assert (run / "metrics.jsonl").exists()
        assert not (run / "checkpoints").exists()
    rows = rows_of(captured.out)
    percent = [f"{100 * cell['numbers']['accuracy']:.1f}" for cell in cells if cell["method"] == "none"]
    assert [cell.strip("*") for cell in rows[2][:3]] == ["none", *percent]
    assert "best accuracy (oracle)" in rows[4]
    assert "Oracle: chosen or judged by labels of the target" in captured.out

    def never(config):
        raise AssertionError("trained again")

    monkeypatch.setattr(deep, "train", never)
    assert main(arguments) == 0
    assert cells_of("results") == cells


def test_plan_holds_what_numbers_depend_on_and_nothing_of_the_machine(here):
    weights = aot_weights("weights.safetensors")
    plan, work = deep.prepare(
        write_plan(TOP + f'weights = "{weights}"\ndevice = "cpu"\nworkers = 2\n'), Path("results")
    )
    record = plan.record()
    assert (record["tasks"], record["methods"], record["seeds"]) == (
        [list(task) for task in TASKS],
        ["none", "AOT, all mass"],
        [0],
    )
    assert record["recipe"]["iterations"] == 4
    assert record["rows"]["AOT, all mass"]["settings"]["marginals"] == "equal"
    assert "epsilon" in record["rows"]["AOT, all mass"]["settings"]  # what stands nowhere in the plan
    assert record["versions"]["torch"].split("+")[0] == torch.__version__.split("+")[0]
    text = json.dumps(record)
    assert not [word for word in ("device", "weights.safetensors", "tiny.npz", "workers", str(here)) if word in text]
    pickled = pickle.dumps(work)  # as worker processes get it
    assert len(pickled) < 2000
    assert pickle.loads(pickled).config(plan.cells[1]) == work.config(plan.cells[1])
    # Everything may move.
    shutil.copytree(here, here / "moved")
    moved, _ = deep.prepare(here / "moved" / "plan.toml", Path("elsewhere"))
    assert moved.record() == record
    # Other weights or images make another benchmark.
    aot_weights("weights.safetensors", seed=1)
    changed, _ = deep.prepare(Path("plan.toml"), Path("results"))
    assert [each.split(" '")[0] for each in differences(plan.record(), changed.record())] == ["recipe weights"]
    write_images(Path("moved/data"), bright=100)
    changed, _ = deep.prepare(here / "moved" / "plan.toml", Path("results"))
    different = differences(plan.record(), changed.record())
    assert different
    assert all(each.startswith("data ") for each in different)


def aot_weights(path, seed=0):
    """Weights of the small network, from another start."""
    from safetensors.torch import save_file

    from adaptive_ot.deep.networks import build_network

    network = build_network("convnet", 3, bottleneck=8, seed=seed)
    save_file({name: tensor.contiguous() for name, tensor in network.backbone.state_dict().items()}, path)
    return path


def test_rows_may_have_settings_tasks_and_seeds_of_their_own(here):
    more = '[[methods]]\nname = "long"\nmethod = "aot"\niterations = 7\nseeds = 2\ntasks = ["dark:light"]\n'
    plan, work = deep.prepare(write_plan(rows=ROWS + more), Path("results"))
    assert plan.seeds == (0, 1)
    of_long = [cell for cell in plan.cells if cell.method == "long"]
    assert of_long == [Cell("digits", "dark -> light", "long", seed) for seed in (0, 1)]
    assert len(plan.cells) == 2 * 2 + 2
    assert [work.config(cell).iterations for cell in plan.cells if cell.seed == 0] == [4, 4, 4, 4, 7]
    rows = plan.record()["rows"]
    assert (rows["none"]["iterations"], rows["long"]["iterations"]) == (4, 7)
    config = work.config(of_long[1])
    assert (config.source, config.target, config.seed) == ("dark", "light", 1)
    assert config.output.parent == Path("results/runs")


def test_directories_of_cells_differ_and_are_safe():
    cells = [
        Cell("pacs", "a -> b", method, seed)
        for method in ("AOT", "aot", "A|O/T", "..", "κ", "x" * 300)
        for seed in (0, 1)
    ]
    names = {directory_name(cell) for cell in cells}
    assert len({name.lower() for name in names}) == len(cells)
    assert all(len(name) < 128 and name.replace("-", "").isalnum() and name.isascii() for name in names)


def test_checkpoints_are_kept_on_demand(here):
    plan, work = deep.prepare(write_plan(TOP + "keep_checkpoints = true\n"), Path("results"))
    assert work.keep_checkpoints
    work(plan.cells[0])
    assert list(work.config(plan.cells[0]).output.glob("checkpoints/*.safetensors"))


def test_a_row_that_is_selected_without_labels(here, monkeypatch, capsys):
    """By the scores that `select` has for the same runs; nothing trains again for it."""
    monkeypatch.setenv("COLUMNS", "200")
    write_plan(f"{TOP}keep_checkpoints = true\n")
    assert main(["benchmark", "deep", "plan.toml", "-o", "results"]) == 0
    capsys.readouterr()
    monkeypatch.setattr(deep, "train", None)
    assert main(["benchmark", "deep", "plan.toml", "-o", "results", "--select"]) == 0
    rows = rows_of(capsys.readouterr().out)
    results = json.loads((here / "results" / "results.json").read_text())
    assert [(each["task"], each["seed"]) for each in results["selected"]] == [(task, 0) for _, task in TASKS]
    accuracies = []
    for each in results["selected"]:
        cells = {cell["method"]: cell for cell in results["cells"] if cell["task"] == each["task"]}
        runs = [directory_of(Cell("digits", each["task"], method, 0), here / "results") for method in cells]
        expected = select(runs, device="cpu")
        assert list(each["scores"].values()) == [candidate.scores for candidate in expected.candidates]
        chosen = runs.index(expected.choice(DEFAULT).run)
        assert each["method"] == list(cells)[chosen]
        accuracies.append(cells[each["method"]]["numbers"]["accuracy"])
    row = next(row for row in rows if row[0] == NAME)
    assert [text.strip("*") for text in row[1:4]] == [f"{100 * x:.1f}" for x in (*accuracies, np.mean(accuracies))]


def test_a_task_with_one_finished_row_has_nothing_to_select(here):
    cell = Cell("digits", "light -> dark", "none", 0)
    study = Study(TASKS, ("none", "AOT"), 1, {})
    outcomes = [Outcome(cell, {"accuracy": 0.5}), Outcome(cell._replace(method="AOT"), None, "failed")]
    assert list(select_each(study, outcomes, here)) == []


@pytest.mark.parametrize(
    ("top", "rows", "message"),
    [
        ("", ROWS, "keep_checkpoints must be true to select from the networks; got false"),
        ("keep_checkpoints = true\n", "[[methods]]\nmethod = 'aot'", "methods must be at least two"),
    ],
)
def test_selection_needs_networks_to_choose_among(here, capfd, top, rows, message):
    write_plan(TOP + top, rows)
    refused(capfd, ["benchmark", "deep", "plan.toml", "-o", "results", "--select"], in_plan(message))


def test_runs_that_finished_without_networks_are_refused_before_the_others_train(here, monkeypatch, capfd):
    plan, work = deep.prepare(write_plan(TOP), Path("results"))
    work(plan.cells[0])
    write_plan(f"{TOP}keep_checkpoints = true\n")
    monkeypatch.setattr(deep, "train", None)
    message = "output 'results' must hold the networks of its finished runs to select from; got 1 runs without"
    refused(capfd, ["benchmark", "deep", "plan.toml", "-o", "results", "--select"], message)


def test_a_failed_cell_has_its_message(here, monkeypatch, capsys):
    real = deep.train

    def train(config, **options):
        if config.method == "aot":
            raise aot.InvalidInput("metrics", "must stay finite", "nan", "Lower the learning rate.")
        return real(config, **options)

    monkeypatch.setattr(deep, "train", train)
    assert main(["benchmark", "deep", str(write_plan()), "-o", "results"]) == 1
    out = capsys.readouterr().out
    assert rows_of(out)[3][:4] == ["AOT, all mass", "failed", "failed", "failed"]
    assert (
        "- AOT, all mass failed 2 x: InvalidInput: metrics must stay finite; got nan. Lower the learning rate." in out
    )
    monkeypatch.setattr(deep, "train", real)
    assert main(["benchmark", "deep", "plan.toml", "-o", "results"]) == 0
    assert "failed" not in capsys.readouterr().out


SLOW = """
import sys, time
from adaptive_ot.workbench.benchmark import deep
from adaptive_ot.deep.training import Training

# The second cell says how far it is, and waits at its third step until a file lets it go on.
from pathlib import Path
learn = Training.learn

def slow(self, step, source, target):
    if self.config.method == "aot" and self.config.source == "light":
        with open("marks", "a") as file:
            print(step, file=file, flush=True)
        while step == 2 and not Path("go").exists():
            time.sleep(0.02)
            if Path("on").exists():
                break
    return learn(self, step, source, target)

Training.learn = slow
"""
SLOW_MAIN = """
import sys
from adaptive_ot.workbench.cli import main
import slow

if __name__ == "__main__":
    sys.exit(main(["benchmark", "deep", "plan.toml", *sys.argv[1:]]))
"""


@pytest.fixture
def slow(here, start):
    Path("slow.py").write_text(SLOW)
    # Worker processes import what the main one did: they are slowed down, too.
    Path("command.py").write_text(SLOW_MAIN)
    Path("marks").touch()
    return lambda *arguments: start("command.py", *arguments, **dict.fromkeys(engine.THREADS, "1"))


def marks():
    return [int(line) for line in Path("marks").read_text().split()]


@pytest.mark.parametrize(
    ("end", "jobs"),
    [
        (signal.SIGKILL, 1),
        pytest.param(signal.SIGINT, 2, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, 1, marks=pytest.mark.slow),
    ],
)
def test_goes_on_in_the_middle_of_a_cell(slow, end, jobs):
    """With the same numbers in the end as without a stop."""
    write_plan()
    process = slow("-o", "stopped", "--jobs", str(jobs))
    deadline = time.monotonic() + PATIENCE
    while 2 not in marks() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert process.poll() is None, process.communicate()
    end_with(process, end)
    if end != signal.SIGKILL:  # the step is finished first
        Path("on").touch()
    _, complaint = process.communicate(timeout=PATIENCE)
    assert process.returncode == (-end if end == signal.SIGKILL else 130), complaint
    first = marks()
    assert first == [0, 1, 2]
    Path("go").touch()
    assert slow("-o", "stopped").wait(PATIENCE) == 0
    # A killed process loses the step it was at, one that was asked to end none.
    assert marks()[len(first) :] == ([2, 3] if end == signal.SIGKILL else [3])
    assert main(["benchmark", "deep", "plan.toml", "-o", "whole"]) == 0
    assert without_seconds(cells_of("stopped")) == without_seconds(cells_of("whole"))


def saving(cell):
    """Work that saves what it has when it is asked to end, which takes a while."""

    def request_end(*_):
        time.sleep(0.3)
        Path(f"saved {cell.seed}").touch()
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, request_end)
    Path(f"started {cell.seed}").touch()
    if cell.seed == 9:  # in time
        while len(list(Path.cwd().glob("started *"))) < 2:
            time.sleep(0.02)
        os.kill(os.getppid(), signal.SIGTERM)
    time.sleep(PATIENCE)
    return {"accuracy": 1.0}


def test_workers_save_before_the_lock_is_given_back_and_take_no_other_cell(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan = Study((("pets", "a -> b"),), ("ours",), (9, 1, 2, 3), {})
    with pytest.raises(KeyboardInterrupt):
        engine.run(plan, saving, tmp_path / "results", jobs=2)
    assert sorted(path.name for path in tmp_path.glob("saved *")) == ["saved 1", "saved 9"]
    assert sorted(path.name for path in tmp_path.glob("started *")) == ["started 1", "started 9"]


def test_table_with_cells_that_are_not_there():
    """By hand: ours has 60, 80 with both tasks in seed 0, 90 alone in seed 5; theirs has one task; few has one seed."""
    plan = Study(
        TASKS,
        ("ours", "theirs", "few", "broken"),
        (0, 5),
        {},
        only={"theirs": Part(TASKS[:1], (0, 5)), "few": Part(TASKS, (5,))},
    )
    accuracies = {
        **{("ours", 0, 0): 0.6, ("ours", 0, 5): 0.9, ("ours", 1, 0): 0.8, ("ours", 1, 5): 0.7},
        **{("theirs", 0, 0): 0.5, ("theirs", 0, 5): 0.7, ("few", 0, 5): 0.8, ("few", 1, 5): 0.72},
        **{("broken", 0, 0): None, ("broken", 0, 5): 0.1, ("broken", 1, 0): 0.1, ("broken", 1, 5): 0.1},
    }
    outcomes = [
        Outcome(cell, None, "Error: no") if value is None else Outcome(cell, {"accuracy": value, "seconds": 2.0})
        for cell in plan.cells
        for value in [accuracies.pop((cell.method, TASKS.index((cell.group, cell.task)), cell.seed))]
    ]
    assert not accuracies
    text = markdown(plan, outcomes)
    assert rows_of(text)[0] == ["method", "light -> dark", "dark -> light", "mean", "seeds", "seconds"]
    assert rows_of(text)[2:6] == [
        ["ours", "75.0", "**75.0**", "75.0 ± 7.1", "2", "2.00"],
        ["theirs", "60.0", "–", "–", "–", "2.00"],
        ["few", "**80.0**", "72.0", "**76.0**", "1", "2.00"],
        ["broken", "failed", "10.0", "failed", "2", "2.00"],
    ]


@pytest.mark.parametrize("path", PLANS, ids=[path.stem for path in PLANS])
def test_plans_of_the_repository_are_valid(path):
    """Up to the data, which need not be here; every row has settings of its own."""
    content = tomllib.loads(path.read_text())
    more = frozenset({"grid", "baseline"}) if "grid" in content else frozenset()
    plan = read_study(path, more)
    rows = plan.rows or (plan.row({"method": "aot"}), plan.row({"method": content["baseline"]}))
    configs = [configuration(row, Path("results")) for row in rows]
    assert len({row.name for row in rows}) == len(rows)
    assert len({(config.method, json.dumps(dict(config.settings))) for config in configs}) == len(rows)
    assert all(parameter in configs[0].settings for parameter in content.get("grid", {}))


def test_plans_of_the_repository_run_all_they_should():
    names = {path.stem: read_study(path).rows for path in PLANS if "sensitivity" not in path.stem}
    ten = ["source-only", "aot", "deepjdot", "jumbot", "mpot", "rot", "dann", "cdan", "alda", "caco"]
    assert [row.options["method"] for row in names["pacs"]] == ten
    assert [row.options["method"] for row in names["pacs_partial"]] == [*ten, *["aot"] * 5]
    assert len(names["pacs_ablation"]) == 3 * 7 + 2


def test_real_images_and_weights_fit_the_plans():
    data = os.environ.get("ADAPTIVE_OT_DATA")
    if not data:
        pytest.skip("ADAPTIVE_OT_DATA, a directory with pacs and resnet50_imagenet_v1.safetensors, is not set")
    content = read_study(next(path for path in PLANS if path.stem == "pacs_partial"))
    weights = str(Path(data, "resnet50_imagenet_v1.safetensors"))
    rows = [
        row._replace(options=row.options | {"root": Path(data, "pacs"), "weights": weights}) for row in content.rows
    ]
    plan, _ = deep.assemble(content._replace(rows=tuple(rows)), Path("results"))
    assert len(plan.cells) == 15 * 2


def test_unknown_classes_have_columns(here, capsys):
    write_plan(TOP + 'unknown = "keep"\nsource_classes = ["0", "1"]\n')
    assert main(["benchmark", "deep", "plan.toml", "-o", "results"]) == 0
    heading = next(row for row in rows_of(capsys.readouterr().out) if "h score" in row)
    scores = ["unmatched", "confidence", "entropy", "distance"]
    assert {"rejected", "os star", "unknown accuracy", *(f"auroc {score}" for score in scores)} <= set(heading)
    for cell in cells_of("results"):
        run = Path("results/runs", directory_name(Cell(cell["group"], cell["task"], cell["method"], cell["seed"])))
        figures = json.loads((run / "result.json").read_text())["open_set"]
        assert cell["numbers"]["h_score"] == figures["unmatched"]["h_score"]
        assert cell["numbers"]["auroc_entropy"] == figures["entropy"]["auroc"]


PARTIAL = """
dataset = "office-home"
protocol = "partial"
root = "data"
tasks = ["Art:Real World"]
network = "convnet"
iterations = 1
batch = 27
bottleneck = 8
resize = 8
crop = 8
"""


def save_office_home(classes):
    """Two domains with an image of every class, and of two classes that only the source needs."""
    random = np.random.default_rng(0)
    for domain in ("Art", "RealWorld"):
        for name in [*classes, "TV", "Webcam"]:
            folder = Path("data", domain, name)
            folder.mkdir(parents=True)
            Image.fromarray(random.integers(256, size=(8, 8, 3), dtype=np.uint8)).save(folder / "0.png")


def test_partial_protocol_beside_the_literature(here, capsys):
    kept = configure(**PLACE, protocol="partial").target_classes
    save_office_home(kept)
    write_plan(PARTIAL)
    assert main(["benchmark", "deep", "plan.toml", "-o", "results"]) == 0
    shown = capsys.readouterr().out
    (cells, _) = cells_of("results")
    assert json.loads(Path("results/plan.json").read_text())["recipe"]["target_classes"] == list(kept)
    rows = {tuple(row[:1] + row[2:]): row[1] for row in rows_of(shown) if row[-1] in ("this benchmark", "as published")}
    assert rows["JUMBOT", "last", "as published"] == "75.5"
    assert rows["m-POT", "best", "as published"] == "78.0"
    assert rows["ARPM", "best", "as published"] == "81.8"
    assert len(rows) == 7 + 4
    for name, iterate in (("accuracy", "last"), ("best_accuracy", "best")):
        assert rows["none", iterate, "this benchmark"] == f"{100 * cells['numbers'][name]:.1f}"
    assert "As published: copied from the papers" in shown
    write_plan(PARTIAL.replace('protocol = "partial"', "target_classes = ['Fork']"))
    assert main(["benchmark", "deep", "plan.toml", "-o", "one"]) == 0
    assert "published" not in capsys.readouterr().out  # of another problem


def test_a_partial_protocol_needs_the_published_classes(here, capfd):
    kept = configure(**PLACE, protocol="partial").target_classes
    save_office_home([name.lower() for name in kept])
    write_plan(PARTIAL)
    message = "Choose some of them; a protocol needs the folders to have the published names."
    refused(capfd, ["benchmark", "deep", "plan.toml", "-o", "results"], message)


GRID = TOP + 'seeds = 2\nbaseline = "source-only"\n'


def test_sensitivity(here, capsys, monkeypatch):
    grid = "[grid]\nkappa = [0.25, 2]\nepsilon = [1.0, 1.5]\n"  # of which 1.5 is the default
    write_plan(GRID, grid)
    trained = []

    def train(config, **options):
        """Fast, and known: better with a smaller kappa, and with seed 1; the baseline is at 40."""
        trained.append(config)
        config.output.mkdir(parents=True)
        score = 0.7 - 0.1 * config.settings["kappa"] + 0.02 * config.seed if config.method == "aot" else 0.4
        return deep_result(config, score)

    monkeypatch.setattr(deep, "train", train)
    assert main(["benchmark", "sensitivity", "plan.toml", "--output", "results"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[-3:] == [
        f"Written to results/{name}" for name in ("results.md", "results.json", "sensitivity.png")
    ]
    assert len(trained) == 2 * 2 * (1 + 3 + 1)  # the default once, and the baseline
    assert [row[:4] for row in rows_of(out)] == [
        ["kappa", "light -> dark", "dark -> light", "mean"],
        ["-" * 13, "-" * 12 + ":", "-" * 12 + ":", "-" * 13 + ":"],
        ["0.25", "**68.5**", "**68.5**", "**68.5 ± 1.4**"],
        ["0.5 (default)", "66.0", "66.0", "66.0 ± 1.4"],
        ["2", "51.0", "51.0", "51.0 ± 1.4"],
        ["source-only", "40.0", "40.0", "40.0 ± 0.0"],
        ["epsilon", "light -> dark", "dark -> light", "mean"],
        ["-" * 13, "-" * 12 + ":", "-" * 12 + ":", "-" * 13 + ":"],
        ["1", "**66.0**", "**66.0**", "**66.0 ± 1.4**"],
        ["1.5 (default)", "**66.0**", "**66.0**", "**66.0 ± 1.4**"],
        ["source-only", "40.0", "40.0", "40.0 ± 0.0"],
    ]
    assert Path("results/sensitivity.png").read_bytes().startswith(b"\x89PNG")
    assert main(["benchmark", "sensitivity", "plan.toml", "--output", "results"]) == 0
    assert len(trained) == 20


def deep_result(config, score):
    from adaptive_ot.deep import Result

    return Result(
        accuracy=score,
        mean_class_accuracy=score,
        per_class={},
        best_accuracy=score,
        best_step=1,
        transported_mass=None,
        plan_purity=None,
        steps=1,
        seconds=1.0,
        bad_images=0,
        output=config.output,
    )


def test_sensitivity_of_another_method_around_its_own_settings(here):
    rows = '[grid]\ntau = [0.25]\n[[methods]]\nname = "J"\nmethod = "jumbot"\nsettings = { tau = 3, epsilon = 0.2 }\n'
    rows += "iterations = 3\nseeds = [5]\n"
    plan, work = sensitivity.prepare(write_plan(TOP + 'baseline = "source-only"\n', rows), Path("results"))
    assert plan.methods == ("source-only", "J", "tau = 0.25")
    assert plan.settings["grid"][0] == {
        "parameter": "tau",
        "default": 3.0,
        "values": [0.25, 3.0],
        "rows": ["tau = 0.25", "J"],
    }
    varied = work.config(Cell(*TASKS[0], "tau = 0.25", 5))
    assert (varied.method, varied.settings["tau"], varied.settings["epsilon"]) == ("jumbot", 0.25, 0.2)
    assert {work.config(cell).iterations for cell in plan.cells} == {3}
    assert {cell.seed for cell in plan.cells} == {5}


def test_picture_of_sensitivity():
    wide = plot.Curve("beta", [0.1, 1, 10], [60.0, 80.0, 70.0], [1.0, 2.0, 1.0], default=1)
    narrow = plot.Curve("kappa", [0.5, 1], [60.0, float("nan")])
    zero = plot.Curve("epsilon", [0, 1, 100], [60.0, 70.0, 80.0])
    figure = plot.sensitivity([wide, narrow, zero], baseline=("source only", 50.0))
    assert [ax.get_xscale() for ax in figure.axes] == ["log", "linear", "symlog"]
    assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == ["0.1", "1", "10"]
    dashed = [line for ax in figure.axes for line in ax.lines if line.get_linestyle() == "--"]
    assert [np.asarray(line.get_ydata()).tolist() for line in dashed] == [[50.0, 50.0]] * 3
    (bars,) = figure.axes[0].containers
    np.testing.assert_allclose(
        bars[2][0].get_segments(), [[[0.1, 59], [0.1, 61]], [[1, 78], [1, 82]], [[10, 69], [10, 71]]]
    )
    with pytest.raises(aot.InvalidInput, match="curves must hold at least one"):
        plot.sensitivity([])


# What a plan says wrong; every message names the plan before its rule.
REFUSALS = [
    ("iteration = 5", ROWS, "'iteration' must be a known key; got an unknown name. Did you mean 'iterations'?"),
    ("seed = 5", ROWS, "'seed' must be a known key"),
    ("", ROWS + "colour = 1", "'colour' of 'AOT, all mass' must be a known key"),
    ("", ROWS + "dataset = 'pacs'", "'dataset' of 'AOT, all mass' must be a known key"),
    ("", '[[methods]]\nmethod = "aot"\nsettings = { betta = 1 }', "'betta' of 'aot' must be a known setting"),
    ("", '[[methods]]\nmethod = "magic"', "method of 'magic' must be one of \"source-only\""),
    ("", '[[methods]]\nname = "A"', "method of 'A' must be a word"),
    ("", "[[methods]]", "name must be text; got None"),
    ("", "", "methods must be at least one"),
    ("methods = 3", "", "methods must be tables; got 3"),
    ("", ROWS + ROWS, "methods must have different names; got two 'none'"),
    ("iterations = 0", ROWS, "iterations of 'none' must be a whole number from 1"),
    ("precision = 'half'", ROWS, "precision of 'none' must be one of"),
    ("published = 1", ROWS, "published must be true or false"),
    ("published = true", ROWS, "published of 'none' needs a method with published settings"),
    ("keep_checkpoints = 1", ROWS, "keep_checkpoints must be true or false; got 1"),
    ("tasks = []", ROWS, "tasks must be a list of SOURCE:TARGET; got []"),
    ("tasks = ['light']", ROWS, "tasks must be a list of SOURCE:TARGET; got ['light']"),
    ("tasks = ['light:dark', 'light:dark']", ROWS, "tasks must be different; got 'light:dark' twice"),
    ("tasks = ['light:grey']", ROWS, "target must be a domain of the file"),
    ("target_classes = ['7']", ROWS, "target_classes must be classes of the source"),
    ("seeds = 0", ROWS, "seeds must be whole numbers from 0, or how many; got 0"),
    ("seeds = true", ROWS, "seeds must be whole numbers from 0, or how many; got True"),
    ("seeds = [1, 1]", ROWS, "seeds must be different; got 1 twice"),
    ("seeds = [-1]", ROWS, "seeds must be whole numbers"),
    ("root = 3", ROWS, "root must be a word; got 3"),
    ("root = 'nowhere.npz'", ROWS, "nowhere.npz' must exist"),
    ("dataset = 'other'", ROWS, "dataset of 'none' must be one of"),
    ("weights = 'no.safetensors'", ROWS, "of 'none' must exist"),
    ("network = 'alexnet'", ROWS, "network of 'none' must be"),
    ("grid = { beta = [1] }", ROWS, "'grid' must be a known key"),
]
GRID_REFUSALS = [
    ("", "grid must be a table of values; got None"),
    ("[grid]", "grid must be a table of values"),
    ("[grid]\nbetta = [1]", "grid 'betta' must be a number that 'aot' has; got another. Did you mean 'beta'? Choose"),
    ("[grid]\ncost = [1]", "grid 'cost' must be a number that 'aot' has"),
    ("[grid]\nbeta = 2", "grid 'beta' must be a list of finite numbers; got 2"),
    ("[grid]\nbeta = [1, nan]", "grid 'beta' must be a list of finite numbers"),
    ("[grid]\nbeta = [true]", "grid 'beta' must be a list of finite numbers"),
    ("[grid]\nbeta = ['a']", "grid 'beta' must be a list of finite numbers"),
    ("baseline = 3\n[grid]\nbeta = [2]", "baseline must be the name of a method; got 3"),
    ("baseline = 'none'\n[grid]\nbeta = [2]", "method of 'none' must be one of"),
    ("baseline = 'aot'\n[grid]\nbeta = [2]", "methods must have different names; got two 'aot'"),
    ("[grid]\nbeta = [2]" + ROWS, "methods must be one at most; got 2"),
]


def in_plan(message):
    return re.sub(r" (must|needs) ", r" in plan 'plan.toml' \1 ", message, count=1)


@pytest.mark.parametrize(("line", "rows", "message"), REFUSALS, ids=[message for _, _, message in REFUSALS])
def test_refusals(here, capfd, line, rows, message):
    key = line.split(" = ")[0]
    top = "".join(each for each in TOP.splitlines(keepends=True) if each.split(" = ")[0] != key)
    write_plan(f"{top}{line}\n", rows)
    refused(capfd, ["benchmark", "deep", "plan.toml", "--output", "results"], in_plan(message))


@pytest.mark.parametrize(("text", "message"), GRID_REFUSALS)
def test_refusals_of_grids(here, capfd, text, message):
    write_plan(TOP, text)
    refused(capfd, ["benchmark", "sensitivity", "plan.toml", "--output", "results"], in_plan(message))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.toml", "-o", "results"], "plan 'missing.toml' must exist"),
        (["broken.toml", "-o", "results"], "plan 'broken.toml' must be valid TOML"),
        (["data/tiny.npz", "-o", "results"], "plan 'data/tiny.npz' must end in .toml"),
        (["plan.toml", "-o", "results", "--jobs", "0"], "--jobs must be a whole number from 1"),
        (["plan.toml", "-o", "data/tiny.npz"], "--output 'data/tiny.npz' must be a directory"),
        (["plan.toml"], "--output"),
    ],
)
def test_refusals_of_options(here, capfd, arguments, message):
    write_plan()
    write_plan("[[broken", path="broken.toml")
    refused(capfd, ["benchmark", "deep", *arguments], message)
