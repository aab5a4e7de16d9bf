"""Use of finished runs: the same numbers as at their end, and clear errors where there is nothing to use."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from adaptive_ot.deep import Progress, Result, configure, evaluate, predict, train
from adaptive_ot.deep.data.augment import test_views as views_of
from adaptive_ot.deep.embedding import embed
from adaptive_ot.deep.evaluation import accuracies
from adaptive_ot.deep.methods import METHODS
from adaptive_ot.deep.run_directory import read_run
from adaptive_ot.deep.trained import network_of
from adaptive_ot.errors import DataError, InvalidInput
from commands import contents
from patterns import SIZE, save_folders

NAMES = ("across", "down", "falling", "rising")
COUNTS = {"clear": 40, "faint": 40, "contrast": 0.5}


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory):
    """A run of a few steps with random crops, and its result; nobody changes it."""
    folder = tmp_path_factory.mktemp("finished")
    config = configure(
        dataset="folders",
        root=save_folders(folder / "data", NAMES, **COUNTS),
        source="clear",
        target="faint",
        output=folder / "run",
        method="aot",
        network="convnet",
        **{"bottleneck": 16, "iterations": 25, "batch": 16, "learning_rate": 0.01, "head_factor": 1},
        **{"resize": SIZE, "crop": 12, "crop_kind": "random", "evaluate_every": 10, "device": "cpu"},
    )
    return train(config)


@pytest.fixture
def copied(finished_run, tmp_path):
    """One that may be broken."""
    return shutil.copytree(finished_run.output, tmp_path / "run")


# evaluate and predict


def test_evaluate_says_what_the_run_said(finished_run):
    record = json.loads((finished_run.output / "result.json").read_text())
    assert Result.of(record, finished_run.output) == finished_run == evaluate(finished_run.output, device="cpu")
    assert 0.25 < finished_run.accuracy < 1


def test_ten_crops(finished_run, tmp_path):
    """Against a run that was trained with them, and against the mean over the ten, image by image."""
    found = read_run(finished_run.output)
    ten = dataclasses.replace(found.config, test_crops="ten", output=tmp_path / "ten")
    result = train(ten)
    for each in (evaluate(finished_run.output, test_crops="ten", device="cpu"), evaluate(ten.output, device="cpu")):
        assert (each.accuracy, each.per_class) == (result.accuracy, result.per_class)
    network = network_of(found, torch.device("cpu")).eval()
    right = []
    for label, name in enumerate(NAMES):
        for path in sorted((found.config.root / "faint" / name).iterdir()):
            pixels = torch.from_numpy(np.array(Image.open(path).convert("RGB"))).permute(2, 0, 1)[None]
            with torch.no_grad():
                crops = [network(view)[1].softmax(1) for view in views_of(pixels, 12, "ten")]
            assert len(crops) == 10
            right.append(int(torch.cat(crops).mean(0).argmax()) == label)
    assert np.mean(right) == pytest.approx(result.accuracy)
    one = evaluate(finished_run.output, test_crops="centre", device="cpu")
    assert one == finished_run


def test_predict_agrees_with_the_accuracy(finished_run):
    """In any order, and for files that lie anywhere."""
    root = read_run(finished_run.output).config.root
    files = [path for name in NAMES for path in sorted((root / "faint" / name).iterdir())][::-1]
    reports: list[Progress] = []
    predictions = predict(finished_run.output, files, device="cpu", progress=reports.append)
    assert predictions.files == files
    right = [label == path.parent.name for label, path in zip(predictions.labels, files, strict=True)]
    assert np.mean(right) == pytest.approx(finished_run.accuracy)
    for name, accuracy in finished_run.per_class.items():
        of_class = [each for each, path in zip(right, files, strict=True) if path.parent.name == name]
        assert np.mean(of_class) == pytest.approx(accuracy)
    assert predictions.confidence.shape == (40,)
    assert 0.25 <= predictions.confidence.min() <= predictions.confidence.max() <= 1
    assert predictions.bad == []
    assert [(now.step, now.iterations) for now in reports] == [(40, 40)]
    (one,) = predict(finished_run.output, files[7:8], device="cpu").labels
    assert one == predictions.labels[7]


def test_predict_and_images_that_cannot_be_used(finished_run, tmp_path):
    good = next((read_run(finished_run.output).config.root / "faint" / "down").iterdir())
    (tmp_path / "bad.png").write_bytes(b"not an image")
    files = [tmp_path / "bad.png", good, tmp_path / "missing.png"]
    with pytest.raises(DataError, match=r"bad\.png"):
        predict(finished_run.output, files, device="cpu")
    predictions = predict(finished_run.output, files, on_bad_image="skip", device="cpu")
    assert predictions.files == [good]
    assert [path for path, _ in predictions.bad] == [str(files[0]), str(files[2])]
    nothing = predict(finished_run.output, [], device="cpu")
    assert (nothing.files, nothing.labels, len(nothing.confidence)) == ([], [], 0)
    with pytest.raises(InvalidInput, match="on_bad_image"):
        predict(finished_run.output, [good], on_bad_image="ignore")  # type: ignore[arg-type]


@pytest.mark.parametrize("method", METHODS)
def test_both_domains_as_the_network_of_any_method_sees_them(finished_run, tmp_path, method):
    config = dataclasses.replace(read_run(finished_run.output).config, method=method, settings={}, iterations=2)
    train(dataclasses.replace(config, output=tmp_path / "run"))
    found = embed(tmp_path / "run", device="cpu")
    kept = read_run(tmp_path / "run").checkpoint
    assert kept is not None
    state = found.method.state_dict()
    assert state.keys() == kept.part("method.").keys()
    for name, tensor in kept.part("method.").items():
        torch.testing.assert_close(state[name], tensor, rtol=0, atol=0)


def test_looking_changes_nothing(finished_run):
    before = contents(finished_run.output)
    evaluate(finished_run.output, device="cpu")
    predict(finished_run.output, [], device="cpu")
    assert contents(finished_run.output) == before


# Runs that cannot be used


def refused(run, *others):
    """The error of evaluate, predict and others, which is the same."""
    messages = set()
    for look in (lambda: evaluate(run, device="cpu"), lambda: predict(run, [], device="cpu"), *others):
        with pytest.raises(InvalidInput) as error:
            look()
        messages.add(str(error.value))
    assert len(messages) == 1
    return messages.pop()


def rewrite(path, change):
    """Change a JSON file."""
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))


def remove_result(run):
    (run / "result.json").unlink()


def remove_network(run):
    shutil.rmtree(run / "checkpoints")


def remove_both(run):
    """As an interruption before the first checkpoint."""
    remove_result(run)
    remove_network(run)


def damage_network(run):
    newest = max((run / "checkpoints").glob("*.safetensors"))
    newest.write_bytes(newest.read_bytes()[:-9])


def write_another_file(run):
    (run / "run.json").write_text("{}")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (remove_result, "must be finished; got one that is not"),
        (remove_both, "must be finished; got one that is not"),
        (remove_network, "must hold its network; got none. Train it again; a benchmark"),
        (damage_network, "must hold one that is whole; got step 25: "),
        (shutil.rmtree, "must hold a run.json that can be read"),
        (write_another_file, "must hold the run.json of a training run"),
    ],
)
def test_runs_that_cannot_be_used(copied, spoil, message):
    spoil(copied)
    assert message in refused(copied)


def test_a_run_that_kept_only_an_earlier_network(finished_run, tmp_path):
    """It must not pass for the last one."""
    config = dataclasses.replace(read_run(finished_run.output).config, output=tmp_path / "run", checkpoint_every=20)
    assert train(config, keep_network=False).accuracy == finished_run.accuracy
    assert [path.name for path in (tmp_path / "run" / "checkpoints").glob("*.json")] == ["step-00000020.json"]
    assert "must hold the network of its last step, 25; got that of step 20" in refused(tmp_path / "run")


RECORDS = [
    ("data", {}),
    ("data", {"classes": "abcd", "target": 1}),
    ("data", {"classes": [1, 2, 3, 4], "target": "0"}),
    ("data", {"classes": ["a", "b"], "target": "0"}),
    ("data", {"classes": [float("nan")]}),
    ("data", [1]),
    ("environments", {}),
    ("config", {}),
    *[(f"config.{name}", value) for name, value in (("network", "resnet5000"), ("bottleneck", 17), ("settings", 3))],
    *[(f"config.{name}", value) for name, value in (("settings", {"beta": float("inf")}), ("seed", None))],
]


@pytest.mark.parametrize(("place", "value"), RECORDS, ids=str)
def test_a_record_that_was_tampered_with(copied, place, value):
    """An error, whatever it holds. Values of a config that are wrong are tried with `configure`."""
    *path, last = place.split(".")
    rewrite(copied / "run.json", lambda record: (record[path[0]] if path else record).update({last: value}))
    for look in (lambda: evaluate(copied, device="cpu"), lambda: predict(copied, [], device="cpu")):
        with pytest.raises(InvalidInput):
            look()


@pytest.mark.parametrize(
    "change",
    [
        {"classes": ["down", "across", "falling", "rising"]},
        {"classes": ["across", "down", "falling", "RISING"]},
        {"target": "0" * 16},
        {"source": None},
        {"more": 1},
    ],
    ids=str,
)
def test_data_that_are_not_those_of_the_network(copied, change):
    """Names in another order would be given to the wrong images without a word."""
    rewrite(copied / "run.json", lambda record: record["data"].update(change))
    complaint = refused(copied)
    assert "must belong to this run; got one of other settings or data at step 25. Restore run.json" in complaint


@pytest.mark.parametrize("content", ["{}", "[]", "{", '{"accuracy": 1}', '{"colour": 1}'])
def test_a_result_that_was_tampered_with(copied, finished_run, content):
    (copied / "result.json").write_text(content)
    with pytest.raises(InvalidInput, match="run '"):
        evaluate(copied, device="cpu")
    with pytest.raises(InvalidInput, match="run '"):  # it is not run again, either
        train(dataclasses.replace(read_run(finished_run.output).config, output=copied))


RESULTS = [
    *[("accuracy", value) for value in ("high", None, [0.5], {"a": 0.5}, True, -0.1, 1.5, float("nan"))],
    *[("mean_class_accuracy", value) for value in ("0.5", None, 2)],
    *[("per_class", value) for value in (None, 0.5, [0.5], {"down": "0.5"}, {"down": None}, {"down": {}}, {"down": 2})],
    *[("best_accuracy", value) for value in ("0.5", None)],
    *[("best_step", value) for value in (0, -1, 1.5, "1", None)],
    *[("transported_mass", value) for value in ("1", [1], -1, True)],
    *[("plan_purity", value) for value in ("1", [1], -1, {})],
    *[("steps", value) for value in (0, 1.5, "25", None, True)],
    *[("seconds", value) for value in ("1", None, -1, float("inf"))],
    *[("bad_images", value) for value in (-1, 0.5, "1", None, [])],
    *[
        ("open_set", value)
        for value in (1, [], {"entropy": 1}, {"entropy": {"auroc": "1"}}, {"entropy": {"auroc": None}})
    ],
]


@pytest.mark.parametrize(("name", "value"), RESULTS, ids=str)
def test_results_of_the_wrong_kind(copied, finished_run, name, value):
    """The error says which number it is."""
    (copied / "result.json").write_text(json.dumps(finished_run.record() | {name: value}))
    with pytest.raises(InvalidInput, match=f"run '{copied}' must hold a result.json that") as error:
        evaluate(copied, device="cpu")
    assert value != value or value == float("inf") or f" for {name}" in str(error.value)


def test_every_number_of_a_result_was_tried_and_survives_json(finished_run):
    record = json.loads(json.dumps(finished_run.record()))
    assert Result.of(record, finished_run.output) == finished_run
    names = {each.name for each in dataclasses.fields(Result)} - {"output"}
    assert {name for name, _ in RESULTS} == names == record.keys()


def test_another_target(finished_run, tmp_path):
    root = save_folders(tmp_path / "data", NAMES, **COUNTS)
    record = shutil.copytree(finished_run.output, tmp_path / "run")
    rewrite(record / "run.json", lambda content: content["config"].update(root=str(root)))
    assert evaluate(record, device="cpu").accuracy == finished_run.accuracy  # moved, and still the same
    next((root / "faint" / "down").iterdir()).unlink()
    with pytest.raises(InvalidInput, match="must have the target it was trained with"):
        evaluate(record, device="cpu")


def test_arguments_that_are_wrong(finished_run):
    with pytest.raises(InvalidInput, match=r"^run must be a path; got None"):
        evaluate(None)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"^device must be a word; got None"):
        evaluate(finished_run.output, device=None)  # type: ignore[arg-type]
    for one in ("x.png", Path("x.png")):
        with pytest.raises(InvalidInput, match=r"^images must be a list of files"):
            predict(finished_run.output, one)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="test_crops"):
        evaluate(finished_run.output, test_crops="five")  # type: ignore[arg-type]
    for device in ("gpu", "cuda:99", "", "meta", "meta:meta"):
        with pytest.raises(InvalidInput, match="device must be one that PyTorch can use"):
            evaluate(finished_run.output, device=device)


# Accuracies and Result


def test_accuracies_by_loops():
    rng = np.random.default_rng(0)
    labels, predicted = rng.integers(0, 4, 200), rng.integers(0, 5, 200)
    found = accuracies(predicted, labels, ("a", "b", "c", "d", "absent"))
    shares = {name: [] for name in "abcd"}
    for guess, label in zip(predicted, labels, strict=True):
        shares["abcd"[label]].append(float(guess == label))
    assert found["per_class"] == pytest.approx({name: np.mean(each) for name, each in shares.items()})
    assert found["mean_class_accuracy"] == pytest.approx(np.mean([np.mean(each) for each in shares.values()]))
    assert found["accuracy"] == pytest.approx(np.mean(np.concatenate([*shares.values()])))
