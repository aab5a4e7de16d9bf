"""Pages of training runs and benchmarks: their numbers are those of the files, whatever state these are in."""

import json
import shutil
from io import BytesIO
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from PIL import Image

from adaptive_ot import InvalidInput
from adaptive_ot.deep import Interrupted, configure, train
from adaptive_ot.deep.data.batches import balanced_selection
from adaptive_ot.deep.embedding import embed
from adaptive_ot.deep.evaluation import probabilities
from adaptive_ot.deep.loader import open_stores
from adaptive_ot.deep.methods.aot import AOT
from adaptive_ot.deep.methods.transport import batch_plan, joint_cost
from adaptive_ot.deep.run_directory import read_metrics, read_run
from adaptive_ot.deep.trained import network_of
from adaptive_ot.workbench.benchmark import deep, engine, features, sensitivity
from adaptive_ot.workbench.benchmark.study import Study, read_benchmark
from adaptive_ot.workbench.benchmark.table import accuracy_columns
from adaptive_ot.workbench.report import write_report
from adaptive_ot.workbench.report.benchmarked import page_of as benchmark_page
from adaptive_ot.workbench.report.contents import Explorer, Facts, Note, Picture, Table
from adaptive_ot.workbench.report.trained import page_of as training_page
from commands import refused
from patterns import SIZE, stripes
from reports import HOSTILE_NAMES, read_page
from test_benchmark_deep import ROWS, TOP, write_images
from test_deep_trained import damage_network, remove_network, rewrite

pytestmark = pytest.mark.usefixtures("one_thread")

# Names of folders may hold anything but this.
CLASSES = (*(name.replace("/", "") for name in HOSTILE_NAMES[:3]), "plain")


def save_folders(root, count=32):
    """Images of two domains in a folder for every class, all of them with names that mean harm."""
    rng = np.random.default_rng(0)
    labels = np.arange(count) % 4
    for domain, contrast in (("clear", 1.0), ("faint", 0.5)):
        for number, (label, x) in enumerate(zip(labels, stripes(labels, rng, contrast), strict=True)):
            folder = root / domain / CLASSES[label]
            folder.mkdir(parents=True, exist_ok=True)
            pixels = np.clip(128 + 60 * x, 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f'<img src=x onerror="{number}">.png')
    return root


def small(folder, **changes):
    values = {
        **{"method": "aot", "network": "convnet", "bottleneck": 16, "iterations": 20, "batch": 16, "resize": SIZE},
        **{"learning_rate": 0.01, "head_factor": 1, "crop": 12, "crop_kind": "random", "evaluate_every": 10},
        **{"device": "cpu", "source": "clear", "target": "faint", "output": folder / "run"},
    }
    return configure(dataset="folders", root=folder / "data", **values | changes)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of a few steps, with weights that are not equal; nobody changes it."""
    folder = tmp_path_factory.mktemp("finished")
    save_folders(folder / "data")
    train(small(folder, settings={"solver": "exact", "kappa": 0.0}))  # class capacities are used up, and so they grow
    return folder / "run"


@pytest.fixture
def copied(finished, tmp_path):
    """One that may be broken."""
    return shutil.copytree(finished, tmp_path / "run")


def trained(path, **options):
    given = {"root": None, "samples": 1000, "device": "cpu", "report": lambda _: None}
    return training_page(path, **given | options)


def of_kind(page, kind) -> list[Any]:
    return [part for part in page.parts if isinstance(part, kind)]


def facts(page, heading):
    return dict(next(part.rows for part in of_kind(page, Facts) if part.heading == heading))


def headings(page, kind):
    return [part.heading for part in of_kind(page, kind)]


# Training runs


def test_a_finished_run(finished):
    page, result = trained(finished), json.loads((finished / "result.json").read_text())
    assert (page.title, page.subtitle) == ("aot: clear to faint", "A training run of adaptive-ot on folders")
    shown = facts(page, "Result")
    assert shown["accuracy"] == f"{result['accuracy']:.1%} of the target's images, after the last step"
    assert shown["mean class"].startswith(f"{result['mean_class_accuracy']:.1%}")
    assert shown["best"].startswith(f"{result['best_accuracy']:.1%} at step {result['best_step']} (oracle")
    assert shown["mass"].startswith(f"{result['transported_mass']:.3g} of 1")
    assert shown["purity"].startswith(f"{result['plan_purity']:.1%}")
    (table,) = of_kind(page, Table)
    assert {name: accuracy / 100 for name, accuracy in table.rows} == pytest.approx(result["per_class"], abs=1e-3)
    assert headings(page, Picture) == ["Training", "Mass between classes"]
    assert headings(page, Facts) == ["Result", "Configuration", "Environment"]
    assert [part.folded for part in of_kind(page, Facts)] == [False, True, True]
    assert facts(page, "Configuration")["iterations"] == "20"
    assert facts(page, "Environment")["packages torch"] == torch.__version__


def test_the_match_of_a_run_is_that_of_its_network_and_its_method(finished):
    """By another way: the images of the stores through the network, the plan of the method itself."""
    page = trained(finished)
    (explorer,) = of_kind(page, Explorer)
    match, found = explorer.match, read_run(finished)
    stores = open_stores(found.config, torch.device("cpu"), lambda _: None)
    network = network_of(found, torch.device("cpu"))
    for side, store in zip((match.source, match.target), stores, strict=True):
        assert side.names == [image.name for image in store.domain.images]
        assert side.labels == [store.domain.classes[k] for k in store.labels]
        likeliest = probabilities(network, store, found.config).argmax(1)
        assert side.predicted == [store.domain.classes[k] for k in likeliest]
    embedding = embed(finished, device="cpu")
    assert isinstance(embedding.method, AOT)
    weights = embedding.method.source_weights(embedding.pair()).numpy()  # as they grew
    np.testing.assert_allclose(match.source.weights, weights, rtol=1e-6)
    np.testing.assert_allclose(match.target.weights, 1 / 32)
    assert np.ptp(weights) > 0.01 * weights.mean()
    assert (np.bincount(match.rows, match.mass, 32) <= weights * (1 + 1e-4)).all()
    caption = next(part.caption for part in of_kind(page, Picture) if part.heading == "Mass between classes")
    assert "classes of the source may send more where they seem frequent in the target" in caption
    assert "taken from its neighbours in the target, not from its own prediction" in caption
    assert "BatchNorm uses running statistics of both domains together" in caption
    pair, neighbours = embedding.pair(), embedding.method.neighbours
    assert neighbours is not None
    images = torch.arange(32)  # the whole target
    theirs = neighbours.mean_guesses(pair.target_features, pair.target_logits.softmax(1), images)
    cost = joint_cost(pair._replace(target_logits=theirs.log()), embedding.method.settings)
    plan, _ = batch_plan(cost, torch.from_numpy(weights), embedding.method.marginals, embedding.method.solver)
    dense = np.zeros((32, 32))
    dense[match.rows, match.columns] = match.mass
    np.testing.assert_allclose(dense, plan.numpy(), atol=1e-6)
    image = np.asarray(Image.open(BytesIO(match.source.images[0])).convert("L"))
    assert image.shape == (3 * SIZE, 3 * SIZE)
    pixels = next(stores[0].batches([np.array([0])]))[0, 0].numpy()
    np.testing.assert_array_equal(image[1::3, 1::3], pixels)


def test_a_page_of_hostile_names(finished, tmp_path):
    path = write_report(finished, tmp_path / "page.html", device="cpu")
    page = read_page(path)
    assert set(page.data["classes"]) == set(CLASSES)
    assert CLASSES[0] in page.text
    assert page.tags.count("script") == 2  # ours, and the data
    assert page.tags.count("img") <= 4 + 2 * 2
    assert len(page.data["source"]["images"]) == 32
    assert not (finished / "report.html").exists()


def test_samples_bound_the_work_and_depend_on_the_seed_alone(finished):
    first, again = (of_kind(trained(finished, samples=9), Explorer)[0].match for _ in range(2))
    assert (len(first.source.names), len(first.target.names)) == (9, 9)
    assert (first.source.names, first.target.names) == (again.source.names, again.target.names)
    counts = np.unique(first.source.labels, return_counts=True)[1]
    assert sorted(counts.tolist()) == [2, 2, 2, 3]


def test_balanced_selections():
    labels = np.random.default_rng(0).integers(0, 3, 50)
    labels = np.append(labels, 3)
    for size in (1, 4, 20, 51, 99):
        chosen = balanced_selection(labels, size, seed=5)
        assert len(set(chosen)) == len(chosen) == min(size, 51)
        counts = np.bincount(labels[chosen], minlength=4)
        all_of_it = counts == np.bincount(labels, minlength=4)
        assert np.ptp(counts[~all_of_it]) <= 1 if (~all_of_it).any() else True
    assert not np.array_equal(balanced_selection(labels, 20, 5), balanced_selection(labels, 20, 6))


@pytest.mark.parametrize("method", ["source-only", "mpot"])
def test_other_methods(finished, tmp_path, method):
    """Some make a plan, of their own mass; of others, AOT does."""
    config = small(finished.parent, method=method, output=tmp_path / "run", iterations=4, evaluate_every=4)
    train(config)
    page = trained(config.output)
    (explorer,) = of_kind(page, Explorer)
    notes = [note.text for note in of_kind(page, Note)]
    if method == "mpot":
        assert notes == []
        assert explorer.match.mass.sum() == pytest.approx(0.5)
    else:
        assert notes == ["The method source-only makes no plan itself. This one is by the scale-free cost of AOT."]
        assert "mass" not in facts(page, "Result")


def test_a_run_that_was_stopped(finished, tmp_path):
    def stop(now):
        if now.step >= 10:
            raise Interrupted(now.step)

    config = small(finished.parent, output=tmp_path / "run", checkpoint_every=5)
    with pytest.raises(Interrupted):
        train(config, progress=stop)
    page = trained(config.output)
    (note,) = of_kind(page, Note)
    last = next(line for line in reversed(read_metrics(config.output)) if "accuracy" in line)
    assert note.kind == "warning"
    assert "not finished: it was at step 10 of 20." in note.text
    assert f"It had {last['accuracy']:.1%} of the target right at step 10." in note.text
    assert headings(page, Picture) == ["Training"]
    assert of_kind(page, Table)[0].note.startswith("At step 10.")
    assert of_kind(page, Explorer) == []
    read_page(write_report(config.output))


def test_runs_without_lines(copied):
    (copied / "metrics.jsonl").write_bytes(b"")
    page = trained(copied)
    assert "How the training went cannot be drawn: metrics.jsonl holds no numbers." in of_kind(page, Note)[0].text
    assert headings(page, Picture) == ["Mass between classes"]
    for name in ("result.json", "metrics.jsonl"):
        (copied / name).unlink()
    shutil.rmtree(copied / "checkpoints")
    page = trained(copied)
    assert "it was at step 0 of 20. Give the same command" in of_kind(page, Note)[0].text
    assert of_kind(page, Picture) == of_kind(page, Table) == []


def test_lines_that_are_torn_or_tampered_with(copied):
    (copied / "result.json").unlink()
    whole = (copied / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    strange = (
        b'{"step": 3, "accuracy": "high", "mass": null, "per_class": []}\n'
        b'{"step": 4, "accuracy": NaN, "cross_entropy": Infinity}\n{"step": true, "accuracy": 1}\n[1]\n'
    )
    (copied / "metrics.jsonl").write_bytes(strange + b"".join(whole) + b'{"step": 99, "accu')
    page = trained(copied)
    assert "it was at step 20 of 20" in of_kind(page, Note)[0].text
    assert len(of_kind(page, Picture)) == 1


def move_data(run):
    rewrite(run / "run.json", lambda record: record["config"].update(root="/nowhere/data"))


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (remove_network, "must hold its network; got none"),
        (damage_network, "must hold one that is whole"),
        (move_data, "must find its dataset where it was; got nothing at '/nowhere/data'"),
    ],
)
def test_a_finished_run_of_which_something_is_gone(copied, spoil, reason):
    """There is still a page, without the match, and it says why."""
    spoil(copied)
    page = trained(copied)
    (note,) = of_kind(page, Note)
    assert note.kind == "warning"
    assert reason in note.text
    assert "--root" in note.text
    assert "accuracy" in facts(page, "Result")
    assert of_kind(page, Explorer) == []


def test_data_that_have_moved(copied, finished, tmp_path):
    move_data(copied)
    root = shutil.copytree(finished.parent / "data", tmp_path / "elsewhere")
    assert len(of_kind(trained(copied, root=root), Explorer)) == 1
    with pytest.raises(InvalidInput, match="root must be a directory"):
        trained(copied, root=tmp_path / "nowhere")
    next((root / "faint" / "plain").iterdir()).unlink()
    (note,) = of_kind(trained(copied, root=root), Note)
    assert "must have the target it was trained with; got other images or classes below" in note.text


def test_images_that_cannot_be_used(finished, tmp_path):
    root = shutil.copytree(finished.parent / "data", tmp_path / "data")
    bad = sorted((root / "clear" / "plain").iterdir())[0]
    bad.write_bytes(b"no image")
    config = small(tmp_path, on_bad_image="skip", iterations=4, evaluate_every=4)
    train(config)
    page = trained(config.output)
    (explorer,) = of_kind(page, Explorer)
    assert len(explorer.match.source.names) == 31
    assert not any(name.endswith(bad.name) and "clear" in name for name in explorer.match.source.names)
    assert facts(page, "Result")["left out"] == "1 image that could not be used"


@pytest.mark.parametrize(
    ("name", "spoil", "reason"),
    [
        ("run.json", lambda record: record.clear(), "run.json"),
        ("run.json", lambda record: record["config"].update(iterations=[1]), "iterations"),
        ("result.json", lambda result: result.update(accuracy="all"), "must hold a result.json that makes sense"),
    ],
)
def test_a_run_that_was_tampered_with(copied, capfd, name, spoil, reason):
    """Tests of runs try every field; a page reads them the same way."""
    rewrite(copied / name, spoil)
    refused(capfd, ["report", str(copied)], reason, within=copied)


def test_devices_that_are_wrong(finished, capfd):
    message = "--device must be one that PyTorch can use"
    refused(capfd, ["report", str(finished), "--device", "gpu"], message, within=finished)


# Benchmarks


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Classical methods on features of three domains, one of which always fails; the names mean harm."""
    folder = tmp_path_factory.mktemp("compared")
    rng = np.random.default_rng(0)
    (folder / "pets").mkdir()
    centres = 3 * rng.normal(size=(3, 4))
    for k, domain in enumerate(("<b>photo", "sketch")):
        y = np.arange(30) % 3
        np.savez(folder / "pets" / f"{domain}.npz", x=centres[y] + rng.normal(size=(30, 4)) + k, y=y)
    methods = ["AOT (joint)", "Kantorovich (joint)", "AOT labels"]
    plan, work = features.prepare([folder / "pets"], methods=methods, seeds=2)

    def some(cell):
        if cell.method == "AOT labels":
            raise ValueError("<script>alert('no')</script>")
        return work(cell)

    outcomes = engine.run(plan, some, folder / "results")
    return folder / "results", plan, outcomes


def test_a_benchmark_of_features(compared):
    path, plan, outcomes = compared
    page = benchmark_page(path)
    assert page.title == "Benchmark of features: pets"
    accuracy, others, failed = of_kind(page, Table)
    assert accuracy.columns == ["method", "mean", "±", "<b>photo -> sketch", "sketch -> <b>photo", "seconds"]
    for row, method in zip(accuracy.rows, plan.methods, strict=True):
        cells = [outcome for outcome in outcomes if outcome.cell.method == method]
        if cells[0].numbers is None:
            assert row == [method, "failed", None, "failed", "failed", "failed"]
            continue
        table = np.array([[each.numbers["accuracy"] for each in cells if each.cell.seed == seed] for seed in (0, 1)])
        means = 100 * table.mean(axis=1)
        assert row[1:3] == pytest.approx([means.mean(), means.std(ddof=1)], abs=0.051)
        assert row[3:5] == pytest.approx((100 * table.mean(axis=0)).tolist(), abs=0.051)
    assert {(row, column) for row, column in accuracy.bold if column == 1} == {
        (k, 1) for k, best in enumerate(accuracy_columns(plan, outcomes)[-2].best()) if best
    }
    estimates = ["overlap", "overlap low", "overlap high", "adapted"]
    assert list(others.columns) == ["method", "transported mass", *estimates, "true overlap"]
    mass = [each.numbers["transported_mass"] for each in outcomes if each.cell.method == "AOT (joint)"]
    assert others.rows[0][1] == pytest.approx(np.mean(mass), abs=5e-4)
    assert [row[0] for row in failed.rows] == ["AOT labels"] * 4
    assert failed.rows[0][-1] == "ValueError: <script>alert('no')</script>"
    assert facts(page, "Plan")["samples"] == "1000"
    assert of_kind(page, Note) == []


def test_a_benchmark_of_conditions(compared, tmp_path):
    pets, methods, overlaps = compared[0].parent / "pets", ["source only", "k-NN"], ["all", "unknown"]
    plan, work = features.prepare([pets], methods=methods, seeds=2, shifts=["none"], overlaps=overlaps)
    outcomes = engine.run(plan, work, tmp_path)
    page = benchmark_page(tmp_path)
    parts = ["Accuracy: none, all", "Accuracy: none, unknown", "Other numbers: none, unknown"]
    assert headings(page, Table) == ["Accuracy by condition", *parts]
    table, _, last, _ = of_kind(page, Table)
    assert table.columns == ["method", "mean", "±", "none, all", "none, unknown", "seconds"]
    assert last.columns[3:5] == ["<b>photo, unknown", "sketch, unknown"]
    accuracies = [each.numbers["accuracy"] for each in outcomes if each.numbers and each.cell.method == "k-NN"]
    assert table.rows[1][3:5] == pytest.approx(
        [100 * np.mean(accuracies[:4]), 100 * np.mean(accuracies[4:])], abs=0.051
    )
    lines = (tmp_path / "cells.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "cells.jsonl").write_bytes(b"".join(lines[:3]))
    page = benchmark_page(tmp_path)
    assert headings(page, Table) == ["Not run yet", "Accuracy by condition", "Accuracy: none, all"]


def test_the_page_of_a_benchmark_of_hostile_names(compared, tmp_path):
    page = read_page(write_report(compared[0], tmp_path / "page.html"))
    assert "<b>photo -> sketch" in page.text
    assert "ValueError: <script>alert('no')</script>" in page.text
    assert "b" not in page.tags
    assert page.tags.count("script") == 1


def test_a_benchmark_that_is_not_finished(compared, tmp_path):
    path = shutil.copytree(compared[0], tmp_path / "results")
    lines = (path / "cells.jsonl").read_bytes().splitlines(keepends=True)
    (path / "cells.jsonl").write_bytes(b"".join(lines[:4]) + b'{"group": "pets", "task"')
    page = benchmark_page(path)
    (note,) = of_kind(page, Note)
    assert note == Note("8 of 12 cells have not run yet. Give the same command again to continue.", "warning")
    to_do, accuracy, *_ = of_kind(page, Table)
    assert [tuple(row) for row in to_do.rows] == [
        (cell.method, cell.group, cell.task, cell.seed) for cell in compared[1].cells[4:]
    ]
    assert accuracy.rows[1][1] is None  # no seed has all tasks yet
    (path / "cells.jsonl").unlink()
    page = benchmark_page(path)
    assert "12 of 12 cells" in of_kind(page, Note)[0].text
    assert headings(page, Table) == ["Not run yet"]
    read_page(write_report(path))


TAMPERED = [
    *(b"", b"{", b"[]", b"{}", b"\xff"),
    *({"tasks": tasks} for tasks in (3, [["a"]], [[1, 2]])),
    *({"methods": methods} for methods in ("AOT", [1])),
    *({"seeds": seeds} for seeds in ("two", [0.5], 10**12, 0)),
    *({"only": only} for only in (3, {"AOT (joint)": {}})),
    *(
        {"conditions": conditions}
        for conditions in (3, {"none, all": 3}, {"none, all": []}, {"none, all": [["a", "b"]]})
    ),
    *({"grid": 3}, {"grid": [{"parameter": "a"}], "baseline": None}),
    {"grid": [{"parameter": "a", "default": 1, "values": [1], "rows": ["AOT (joint)"]}], "baseline": "none"},
]


@pytest.mark.parametrize("tampered", TAMPERED, ids=str)
def test_a_plan_that_was_tampered_with(compared, tmp_path, tampered, capfd):
    path = shutil.copytree(compared[0], tmp_path / "results")
    if isinstance(tampered, bytes):
        (path / "plan.json").write_bytes(tampered)
    else:
        rewrite(path / "plan.json", lambda record: record.update(tampered))
    refused(capfd, ["report", str(path)], f"benchmark '{path}' must hold a plan", within=path)


def test_our_own_bugs_are_not_blamed_on_files(compared, monkeypatch):
    monkeypatch.setattr("adaptive_ot.plot.comparison", Mock(side_effect=ValueError("ours")))
    with pytest.raises(ValueError, match=r"^ours$"):
        benchmark_page(compared[0])


def test_results_that_are_broken(compared, tmp_path):
    path = shutil.copytree(compared[0], tmp_path / "results")
    (path / "results.json").write_text("{")
    (note,) = of_kind(benchmark_page(path), Note)
    assert "results.json" in note.text


def test_plans_come_back_from_their_records():
    plan = Study((("a", "x -> y"),), ("m", "n"), (3, 5), {"data": {}})
    assert Study.of(plan.record()) == plan


@pytest.fixture(scope="module")
def studied(tmp_path_factory):
    """Networks trained by a plan, and with one parameter after the other changed."""
    folder = tmp_path_factory.mktemp("studied")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_images(Path("data"))
        Path("deep.toml").write_text(TOP + "seeds = [0, 1]\n" + ROWS)
        one = TOP.replace(', "dark:light"', "")
        Path("study.toml").write_text(one + 'baseline = "source-only"\n[grid]\nbeta = [0.5]\nkappa = [1.0]\n')
        for prepare, name in ((deep.prepare, "deep"), (sensitivity.prepare, "study")):
            plan, work = prepare(Path(f"{name}.toml"), Path(name))
            engine.run(plan, work, Path(name))
    return folder


def test_a_benchmark_of_networks(studied):
    page = benchmark_page(studied / "deep")
    plan, outcomes = read_benchmark(studied / "deep")
    assert page.title == "Benchmark of networks: digits"
    accuracy, others = of_kind(page, Table)
    means: Any = next(each.values for each in accuracy_columns(plan, outcomes) if each.heading == "mean")
    assert [row[1] for row in accuracy.rows] == pytest.approx([round(value, 1) for value in means])
    assert "plan purity (oracle)" in others.columns
    assert "Oracle: chosen or judged by labels of the target" in others.note
    assert headings(page, Picture) == ["Accuracy of every method", "Training"]
    shutil.rmtree(studied / "deep" / "runs")
    assert headings(benchmark_page(studied / "deep"), Picture) == ["Accuracy of every method"]


def test_a_study_of_sensitivity(studied, tmp_path):
    page = benchmark_page(studied / "study")
    assert headings(page, Picture) == ["Sensitivity", "Training"]
    beta, kappa = of_kind(page, Table)
    _, outcomes = read_benchmark(studied / "study")
    found = {outcome.cell.method: 100 * (outcome.numbers or {})["accuracy"] for outcome in outcomes}
    expected = [found["beta = 0.5"], found["aot"], found["source-only"]]
    assert [row[0] for row in beta.rows] == ["0.5", "2 (default)", "source-only"]
    assert [row[1] for row in beta.rows] == pytest.approx(expected, abs=0.051)
    assert [row[0] for row in kappa.rows] == ["0.5 (default)", "1", "source-only"]
    path = shutil.copytree(studied / "study", tmp_path / "study")
    lines = (path / "cells.jsonl").read_bytes().splitlines(keepends=True)
    (path / "cells.jsonl").write_bytes(lines[2])
    page = benchmark_page(path)
    assert "cells have not run yet" in of_kind(page, Note)[0].text
    assert of_kind(page, Picture)[0].heading == "Sensitivity"
