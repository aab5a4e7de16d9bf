"""All methods train in the one loop, and gain what their theory says; the optimiser is what the recipe says."""

import dataclasses
import json
import math

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy

from adaptive_ot.deep import Progress, train
from adaptive_ot.deep.data.batches import random_batch
from adaptive_ot.deep.loader import open_stores, paired_batches
from adaptive_ot.deep.methods import METHODS
from adaptive_ot.deep.training import ImageBatch, Training
from adaptive_ot.errors import InvalidInput
from commands import contents
from patterns import metrics, save_patterns, small_run

PLANS = ("aot", "deepjdot", "jumbot", "mpot")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return save_patterns(tmp_path_factory.mktemp("patterns") / "patterns.npz")


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def trained(root, tmp_path_factory):
    """Results of all methods on one task, each trained once, and what was reported."""
    folder, known = tmp_path_factory.mktemp("trained"), {}

    def result(method):
        if method not in known:
            reports: list[Progress] = []
            known[method] = train(small_run(root, folder / method, method=method), progress=reports.append), reports
        return known[method]

    return result


@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains(trained, method):
    """Finite numbers all the way, what the source has to teach, and an accuracy that chance (1/4) does not explain.

    The defaults of every method as they are.
    """
    result, _ = trained(method)
    lines = metrics(result.output)
    assert [line["step"] for line in lines] == [9, 19, 29, 39, 49, 59, 69, 79]
    assert [line["step"] for line in lines if "accuracy" in line] == [19, 39, 59, 79]
    for line in lines:
        numbers = [*line.pop("per_class", {}).values(), *line.values()]
        assert all(isinstance(each, int | float) and math.isfinite(each) for each in numbers)
    assert min(line["cross_entropy"] for line in lines) < 0.2
    assert result.accuracy > 0.4
    assert result.best_accuracy == max(line["accuracy"] for line in lines if "accuracy" in line)
    assert result.mean_class_accuracy == pytest.approx(np.mean(list(result.per_class.values())))
    assert (result.transported_mass is not None) == (result.plan_purity is not None) == (method in PLANS)


def test_the_discriminator_of_alda_keeps_up_in_a_longer_run(root, tmp_path):
    """With gradients of any size its loss exceeds 15 by now, with every seed, and then is NaN."""
    run = small_run(root, tmp_path / "longer", method="alda", iterations=150, evaluate_every=150)
    train(run, keep_network=False)
    lines = metrics(run.output)
    assert lines[-1]["step"] == 149
    assert max(line["adversarial"] for line in lines) < 8


def test_the_task_asks_for_adaptation(trained):
    """Source-only loses a third; these methods win most of it back.

    The mass of AOT moves within classes, but for what its entropy mixes.
    """
    assert trained("source-only")[0].accuracy < 0.75
    for method in ("aot", "jumbot", "mpot", "dann", "cdan"):
        assert trained(method)[0].accuracy > 0.85
    result, _ = trained("aot")
    assert 0.5 < result.transported_mass < 0.99
    assert result.plan_purity > 0.85
    assert trained("deepjdot")[0].transported_mass == pytest.approx(1)
    assert trained("mpot")[0].transported_mass == pytest.approx(0.85)  # the preset of digits


def test_classes_that_the_target_lacks(root, tmp_path):
    """Where half of the classes are missing, half of the mass must go astray if all of it must move."""
    astray = {}
    for marginals in ("at-most", "equal"):
        changes = {"target_classes": ("0", "1"), "settings": {"marginals": marginals}}
        result = train(small_run(root, tmp_path / marginals, iterations=60, **changes), keep_network=False)
        assert result.transported_mass is not None
        assert result.plan_purity is not None
        astray[marginals] = result.transported_mass * (1 - result.plan_purity)
    assert astray["equal"] >= 0.5 - 1e-6
    assert astray["at-most"] < 0.35


def test_what_is_reported(trained):
    result, reports = trained("aot")
    assert [now.step for now in reports if now.loading is None] == [10, 20, 30, 40, 50, 60, 70, 80]
    assert all(now.iterations == 80 and now.note is None for now in reports)
    assert {now.loading for now in reports} >= {"images of clear: 100 of 240", "images of faint: 200 of 240", None}
    for now in reports:
        assert all(type(value) is float for value in now.losses.values())
        names = {"cross_entropy", "transport", "mass", "unsolved", "overlap", "plan_purity"}
        assert set(now.losses) == (names if now.loading is None else set())
    assert [now.accuracy is None for now in reports if now.loading is None] == [True] + 7 * [False]
    assert reports[-1].accuracy == result.accuracy


def test_a_finished_run_is_not_run_again(trained, root):
    result, _ = trained("source-only")
    before = contents(result.output)
    assert train(small_run(root, result.output, method="source-only")) == result
    assert contents(result.output) == before


def test_the_seed_decides(trained, root, tmp_path):
    short = {"method": "source-only", "iterations": 10}
    runs = {name: tmp_path / name for name in ("one", "same", "other")}
    for name, output in runs.items():
        train(small_run(root, output, seed=1 if name == "other" else 0, **short))
    one, same, other = ((output / "metrics.jsonl").read_bytes() for output in runs.values())
    assert one == same != other


# Runs that cannot go on


@pytest.mark.parametrize("method", METHODS)
def test_a_training_that_blows_up(root, tmp_path, method):
    """The user hears what to do, and what was computed before stays."""
    config = small_run(root, tmp_path / "run", method=method, iterations=20, evaluate_every=1, learning_rate=1e6)
    with pytest.raises(InvalidInput, match="must stay finite") as error:
        train(config)
    assert error.value.remedy.startswith("Lower the learning rate, or look at the settings of the method")
    for line in metrics(config.output):
        assert all(math.isfinite(each) for each in line.values() if isinstance(each, float))
    assert json.loads((tmp_path / "run" / "run.json").read_text())["config"]["method"] == method
    assert not (tmp_path / "run" / "result.json").exists()


def test_a_last_step_too_far(root, tmp_path):
    """The losses of a step are from before it; what it has made of the network counts, too."""
    config = small_run(root, tmp_path / "run", method="source-only", iterations=1, learning_rate=1e30)
    with pytest.raises(InvalidInput, match="probabilities of classes must stay finite"):
        train(config)
    assert not (tmp_path / "run" / "result.json").exists()


def test_no_checkpoint_of_a_network_that_blew_up(root, tmp_path):
    """Those before it are worth more."""
    often = {"iterations": 20, "evaluate_every": 20, "checkpoint_every": 1}
    config = small_run(root, tmp_path / "run", method="source-only", learning_rate=1e12, **often)
    with pytest.raises(InvalidInput, match=r"network after step [1-9] must stay finite"):
        train(config)
    for path in (tmp_path / "run").rglob("*.safetensors"):
        assert all(tensor.isfinite().all() for tensor in load_file(path).values())


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        (
            {"iterations": 20, "method": "jumbot", "settings": {"epsilon": 1e-9}},
            "the plan of step 10 misses its tolerance: epsilon may be too small",
        ),
        (
            {"iterations": 1, "batch": 4, "method": "source-only", "network": "resnet18"},
            "resnet18 starts from scratch: with weights it would know images already",
        ),
    ],
)
def test_remarks_are_made_once(root, tmp_path, changes, note):
    reports: list[Progress] = []
    train(small_run(root, tmp_path / "run", **changes), progress=reports.append, keep_network=False)
    assert [now.note for now in reports if now.note] == [note]
    unsolved = [now.losses.get("unsolved") for now in reports if now.losses]
    assert unsolved == ([1.0, 1.0] if changes["method"] == "jumbot" else [None])


def test_other_objects_are_not_configs(root):
    with pytest.raises(InvalidInput, match=r"^config must be a Config; got .*Make one with `configure`"):
        train({"dataset": "digits", "root": root})  # type: ignore[arg-type]


def test_batches_know_their_images(root, tmp_path):
    """Also if a target has fewer images than a batch: then some are in it twice."""
    config = small_run(root, tmp_path / "run", target_classes=["1", "3"], batch=150, iterations=3)
    source, target = open_stores(config, torch.device("cpu"), lambda _: None)
    for step, (ours, theirs) in enumerate(paired_batches(config, source, target, 0)):
        assert theirs is not None
        assert ours.labels.tolist() == source.listed.labels[ours.identities].tolist()
        assert theirs.labels.tolist() == target.listed.labels[theirs.identities].tolist()
        drawn = random_batch(len(target), 150, config.seed, step)
        assert theirs.identities.tolist() == drawn.tolist()
        assert len(set(drawn)) < len(drawn)


# One step


def batch_of(seed, count, labels):
    generator = torch.Generator().manual_seed(seed)
    return ImageBatch(torch.rand(count, 3, 12, 12, generator=generator), labels, torch.arange(count))


def training(root, **changes):
    config = small_run(root, root.parent / "unused", **{"resize": 12, "crop": 12, "method": "source-only"} | changes)
    return Training(config, 4, torch.device("cpu"))


LABELS = torch.arange(12) % 4


def test_steps_of_the_recipe(root):
    """Nesterov's momentum, weight decay, schedule, and a head ten times as fast, against the update written out."""
    changes = {"learning_rate": 0.02, "learning_rate_decay": 0.5, "learning_rate_power": 0.75, "head_factor": 10.0}
    ours = training(root, **changes, weight_decay=0.01, momentum=0.8)
    network = training(root, **changes).network.double()
    ours.network.double()  # in place, so the optimiser has the same parameters
    velocity = [torch.zeros_like(each) for each in network.parameters()]
    heads = {id(each) for each in network.head_parameters()}
    for step in range(3):
        batch = batch_of(step, 12, LABELS)
        batch = batch._replace(images=batch.images.double())
        losses = ours.learn(step, batch, None)
        loss = cross_entropy(network(batch.images)[1], LABELS)
        gradients = torch.autograd.grad(loss, [*network.parameters()])
        assert losses.terms["cross_entropy"].item() == pytest.approx(loss.item(), rel=1e-6)  # reported in float32
        with torch.no_grad():
            for each, gradient, speed in zip(network.parameters(), gradients, velocity, strict=True):
                rate = 0.02 * (1 + 0.5 * step) ** -0.75 * (10 if id(each) in heads else 1)
                slope = gradient + 0.01 * each
                speed.mul_(0.8).add_(slope)
                each -= rate * (slope + 0.8 * speed)
    for (name, one), other in zip(ours.network.named_parameters(), network.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12, msg=lambda text, name=name: f"{name}: {text}")


def test_what_a_method_trains_moves_with_the_head(root):
    ours = training(root, method="dann", head_factor=3.0, learning_rate=0.1, learning_rate_power=0.0)
    before = [each.detach().clone() for each in ours.method.parameters()]
    ours.learn(0, batch_of(0, 12, LABELS), batch_of(1, 12, LABELS))
    for each, start in zip(ours.method.parameters(), before, strict=True):
        assert each.grad is not None
        slope = each.grad + 5e-4 * start
        torch.testing.assert_close(each.detach(), start - 0.3 * 1.9 * slope, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("passes", ["two", "joint"])
def test_batch_norms_of_two_passes_or_of_one(root, passes):
    """Running means of the first layer: 0.9 of what was, 0.1 of each pass."""
    ours = training(root, method="dann", passes=passes, learning_rate=0.0)
    source, target = batch_of(0, 12, LABELS), batch_of(1, 8, LABELS[:8])
    first, norm = ours.network.backbone[0][0], ours.network.backbone[0][1]  # pyright: ignore[reportIndexIssue]
    with torch.no_grad():
        activations = [first(ours.network.normalise(each.images)) for each in (source, target)]
    ours.learn(0, source, target)
    means = [each.mean((0, 2, 3)) for each in (activations if passes == "two" else [torch.cat(activations)])]
    expected = torch.zeros_like(means[0])
    for mean in means:
        expected = 0.9 * expected + 0.1 * mean
    torch.testing.assert_close(norm.running_mean, expected)
    assert int(norm.num_batches_tracked) == len(means)


def test_source_only_never_looks_at_the_target(root, tmp_path):
    config = small_run(root, tmp_path / "run", method="source-only", iterations=10)
    other = dataclasses.replace(config, target="shaded", output=tmp_path / "other")
    for each in (config, other):
        train(each)
    one, two = (each.output / "checkpoints" / "step-00000010.safetensors" for each in (config, other))
    assert one.read_bytes() == two.read_bytes()


def test_random_numbers_of_the_caller_stay_as_they_were(root, tmp_path):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    train(small_run(root, tmp_path / "run", iterations=2))
    assert torch.equal(torch.rand(3), expected)


def test_one_class_is_nothing_to_learn(tmp_path):
    path = tmp_path / "one.npz"
    images, labels = np.zeros((40, 8, 8), np.uint8), np.zeros(40, np.int64)
    np.savez(path, clear_train_x=images, clear_train_y=labels, faint_train_x=images, faint_train_y=labels)
    with pytest.raises(InvalidInput, match="must have at least two classes"):
        train(small_run(path, tmp_path / "run"))
