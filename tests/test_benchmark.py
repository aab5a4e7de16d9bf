"""Benchmarks: what is finished stays finished, tables say what the cells say, and draws depend on the seed alone."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import adaptive_ot as aot
from adaptive_ot.workbench.benchmark import engine, features, ours
from adaptive_ot.workbench.benchmark.domains import Dataset, read_dataset, shrink
from adaptive_ot.workbench.benchmark.method import FeatureMethod, Package, Prediction
from adaptive_ot.workbench.benchmark.ours import OURS
from adaptive_ot.workbench.benchmark.rivals import RIVALS
from adaptive_ot.workbench.benchmark.sampling import OVERLAPS, SHIFTS, Condition, sample_pair
from adaptive_ot.workbench.benchmark.study import CELLS, PLAN, Cell, Outcome, Study, open_journal
from adaptive_ot.workbench.benchmark.table import condition_means, markdown, write_results
from adaptive_ot.workbench.cli import main
from adaptive_ot.workbench.feature_files import Features
from commands import end_with, refused, rows_of
from interruption import PATIENCE

TASKS = (("pets", "photo -> sketch"), ("pets", "sketch -> photo"))
PLAN_OF_FOUR = Study(TASKS, ("ours", "theirs"), 1, {"samples": 5})


def numbers_of(cell):
    return {"accuracy": len(cell.method) / 10, "seconds": 0.5}


def recording(seen, broken=()):
    """Work that notes which cells it saw, and fails for some of them."""

    def work(cell):
        seen.append(cell)
        if cell in broken:
            raise ZeroDivisionError("nothing\nto divide by")
        return numbers_of(cell)

    return work


def cells_in(directory):
    return [json.loads(line) for line in (directory / CELLS).read_text().splitlines()]


def test_every_cell_runs_once(tmp_path):
    seen, steps = [], []
    outcomes = engine.run(PLAN_OF_FOUR, recording(seen), tmp_path / "new" / "place", progress=steps.append)
    assert seen == PLAN_OF_FOUR.cells == [outcome.cell for outcome in outcomes]
    assert steps == [engine.CellStarted(done, 4, cell) for done, cell in enumerate(seen)]
    assert [outcome.numbers for outcome in outcomes] == [numbers_of(cell) for cell in seen]
    assert len(cells_in(tmp_path / "new" / "place")) == 4
    assert engine.run(PLAN_OF_FOUR, recording(seen), tmp_path / "new" / "place") == outcomes
    assert len(seen) == 4


def test_a_failed_cell_is_recorded_and_tried_again(tmp_path):
    cells, seen = PLAN_OF_FOUR.cells, []
    outcomes = engine.run(PLAN_OF_FOUR, recording(seen, broken=cells[1:2]), tmp_path)
    assert outcomes[1] == Outcome(cells[1], None, "ZeroDivisionError: nothing to divide by")
    assert cells_in(tmp_path)[1]["error"] == "ZeroDivisionError: nothing to divide by"
    assert "- theirs failed 1 x: ZeroDivisionError: nothing to divide by" in markdown(PLAN_OF_FOUR, outcomes)
    seen.clear()
    again = engine.run(PLAN_OF_FOUR, recording(seen), tmp_path)
    assert seen == cells[1:2]
    assert [outcome.error for outcome in again] == [None] * 4


@pytest.mark.parametrize("number", [np.nan, np.inf, "many", None])
def test_what_is_no_finite_number_is_a_failure(tmp_path, number):
    (outcome, *_) = engine.run(PLAN_OF_FOUR, lambda _: {"accuracy": number}, tmp_path)
    assert outcome.numbers is None


@pytest.mark.parametrize(
    "tail",
    [
        b'{"group": "pets", "task": "sketch -> pho',
        b"\xff\xfe\x00garbage",
        b"null",
        b"[1, 2]",
        b"[" * 100_000,
        b'{"group": "pets", "task": "sketch -> photo", "method": "theirs", "seed": 0, "numbers": {"accuracy": NaN}}',
        b'{"group": "pets", "task": "sketch -> photo", "method": "theirs", "seed": [], "numbers": {"accuracy": 1}}',
        b'{"group": "pets", "task": "sketch -> photo", "method": "theirs", "seed": 0, "numbers": 1}',
        b'{"group": "pets", "task": "sketch -> photo", "method": "theirs", "seed": 0, "numbers": {}}',
        b'{"group": "pets", "task": "sketch -> photo", "method": "theirs", "seed": 0, "numbers": {"accuracy": "1"}}',
        b'{"group": "pets", "task": "sketch -> photo", "method": "theirs", "seed": 0.9, "numbers": {"accuracy": 1}}',
        b'{"group": "pets", "task": "sketch -> photo", "method": "theirs", "seed": false, "numbers": {"accuracy": 1}}',
        b'{"group": "pets", "task": "sketch -> photo", "method": "another", "seed": 0, "numbers": {"accuracy": 1}}',
    ],
)
def test_a_torn_line_is_ignored_and_rewritten(tmp_path, tail):
    expected = engine.run(PLAN_OF_FOUR, numbers_of, tmp_path)
    lines = (tmp_path / CELLS).read_bytes().splitlines(keepends=True)
    (tmp_path / CELLS).write_bytes(b"".join(lines[:3]) + tail)
    seen = []
    assert engine.run(PLAN_OF_FOUR, recording(seen), tmp_path) == expected
    assert seen == PLAN_OF_FOUR.cells[3:]
    assert (tmp_path / CELLS).read_bytes().splitlines(keepends=True) == lines


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (Study(TASKS, ("ours", "theirs"), 2, {"samples": 5}), "seeds 1, not 2"),
        (Study(TASKS, ("ours", "theirs"), 1, {"samples": 6}), "samples 5, not 6"),
        (Study(TASKS, ("ours",), 1, {"samples": 5}), "methods with theirs."),
        (Study(TASKS, ("ours", "new"), 1, {"samples": 5}), "methods with theirs and without new."),
        (Study(TASKS, ("theirs", "ours"), 1, {"samples": 5}), "methods in another order."),
        (Study(TASKS[:1], ("ours", "theirs"), 1, {"samples": 5}), "tasks"),
        (Study(TASKS, ("ours", "theirs"), 1, {"samples": 5, "drop": 1}), "no drop (here 1)"),
        (Study(TASKS, ("ours", "theirs"), 1, {}), "samples 5 (here none)"),
    ],
)
def test_another_plan_is_refused_by_what_differs(tmp_path, other, difference):
    engine.run(PLAN_OF_FOUR, numbers_of, tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(aot.InvalidInput) as refusal:
        engine.run(other, numbers_of, tmp_path)
    assert f"must be new or hold the same benchmark; got one with other settings: {difference}" in str(refusal.value)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({PLAN: b"{"}, "must hold a plan.json that can be read"),
        ({PLAN: b"[]"}, "must hold a plan.json that can be read"),
        ({PLAN: b"\xff"}, "must hold a plan.json that can be read"),
        ({CELLS: b""}, "must be new, empty, or hold a benchmark; got one with cells.jsonl"),
        ({"results.md": b"my notes"}, "must be new, empty, or hold a benchmark; got one with results.md"),
    ],
)
def test_directories_of_others_are_refused(tmp_path, files, message):
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(aot.InvalidInput, match=message):
        open_journal(tmp_path, PLAN_OF_FOUR)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == files


def test_one_run_at_a_time(tmp_path):
    pytest.importorskip("fcntl")
    complaints = []

    def work(cell):
        with pytest.raises(aot.InvalidInput) as refusal:
            engine.run(PLAN_OF_FOUR, numbers_of, tmp_path)
        complaints.append(str(refusal.value))
        return numbers_of(cell)

    engine.run(PLAN_OF_FOUR, work, tmp_path)
    rule = f"output '{tmp_path}' must not be in use; got another run that writes to it."
    assert [complaint.startswith(rule) for complaint in complaints] == [True] * 4
    assert len(cells_in(tmp_path)) == 4
    engine.run(PLAN_OF_FOUR, work, tmp_path)  # which has ended


def test_a_full_disk_loses_nothing_that_was_finished(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    def work(cell):
        if cell == PLAN_OF_FOUR.cells[2]:
            monkeypatch.setattr(os, "fsync", full)
        return numbers_of(cell)

    with pytest.raises(aot.InvalidInput, match="must have room for another line; got No space left on device"):
        engine.run(PLAN_OF_FOUR, work, tmp_path)
    monkeypatch.undo()
    (tmp_path / CELLS).write_bytes((tmp_path / CELLS).read_bytes()[:-7])  # as if the last line had not fitted
    seen = []
    engine.run(PLAN_OF_FOUR, recording(seen), tmp_path)
    assert seen == PLAN_OF_FOUR.cells[2:]


def test_an_interrupted_cell_is_not_recorded(tmp_path):
    def interrupted(cell):
        if cell == PLAN_OF_FOUR.cells[1]:
            os.kill(os.getpid(), signal.SIGTERM)  # Ctrl-C, and what systems send before they go down, are one
            time.sleep(PATIENCE)
        return numbers_of(cell)

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        engine.run(PLAN_OF_FOUR, interrupted, tmp_path)
    assert signal.getsignal(signal.SIGTERM) == before
    assert len(cells_in(tmp_path)) == 1


# A benchmark of 6 cells in a process of its own. Every cell leaves a mark when it starts, the fifth one waits for ever.
SLOW_WORK = """
import pathlib, sys, time
from adaptive_ot.workbench.benchmark.study import Study

PLAN = Study((("pets", "photo -> sketch"),), ("ours", "theirs"), 3, {"samples": 5})

def work(cell):
    name = f"{cell.method} {cell.seed}"
    with open("marks", "a") as file:
        print(name, file=file, flush=True)
    while name == "ours 2" and not pathlib.Path("go").exists():
        time.sleep(0.01)
    return {"accuracy": (len(cell.method) + cell.seed) / 10, "seconds": 0.5}
"""
SLOW_SCRIPT = """
import pathlib, sys
from adaptive_ot.workbench.benchmark import engine, table
from slow_work import PLAN, work

if __name__ == "__main__":
    directory = pathlib.Path(sys.argv[1])
    try:
        table.write_results(directory, PLAN, engine.run(PLAN, work, directory, jobs=int(sys.argv[2])))
    except KeyboardInterrupt:
        sys.exit("interrupted")
"""


@pytest.fixture
def slow(tmp_path, monkeypatch, start):
    """Start the benchmark above in a directory of its own."""
    monkeypatch.chdir(tmp_path)
    Path("slow_work.py").write_text(SLOW_WORK)
    Path("slow.py").write_text(SLOW_SCRIPT)
    Path("marks").touch()
    return lambda directory, jobs=1: start("slow.py", directory, jobs)


def wait_until(condition):
    for _ in range(int(PATIENCE / 0.02)):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("never got there")


def marks():
    return Path("marks").read_text().splitlines()


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_resumes_after_the_process_was_ended(slow, jobs, end):
    process = slow("results", jobs)
    finished = 4 if jobs == 1 else 5  # the other process goes on
    wait_until(lambda: process.poll() or ("ours 2" in marks() and len(cells_in(Path("results"))) == finished))
    assert process.poll() is None
    assert "must not be in use" in slow("results", jobs).communicate(timeout=PATIENCE)[1]
    end_with(process, end)
    complaint = process.communicate(timeout=PATIENCE)[1]  # until the last process has gone
    assert process.returncode == (-end if end == signal.SIGKILL else 1)
    if end != signal.SIGKILL:
        assert complaint.strip() == "interrupted"
    assert len(cells_in(Path("results"))) == finished
    Path("go").touch()
    before = len(marks())
    assert slow("results", jobs).wait(PATIENCE) == 0
    assert len(marks()) == before + 6 - finished
    assert slow("uninterrupted").wait(PATIENCE) == 0
    both = [json.loads(Path(name, "results.json").read_text()) for name in ("results", "uninterrupted")]
    assert both[0]["cells"] == both[1]["cells"]
    assert Path("results", "results.md").read_text() == Path("uninterrupted", "results.md").read_text()


def test_a_dead_process_is_reported(slow):
    Path("slow_work.py").write_text(SLOW_WORK + "\n\ndef work(cell):\n    import os\n    os._exit(9)\n")
    process = slow("results", 2)
    complaint = process.communicate(timeout=PATIENCE)[1]
    assert "jobs must leave enough memory for each; got a process that died" in complaint.splitlines()[-1]


def outcomes_of(plan, accuracies):
    """Outcomes with these accuracies, by method, task and seed; None has failed."""
    cells = {cell: accuracies[cell.method][plan.tasks.index((cell.group, cell.task))][cell.seed] for cell in plan.cells}
    return [
        Outcome(cell, None, "Error: no") if value is None else Outcome(cell, {"accuracy": value, "seconds": 1.5})
        for cell, value in cells.items()
    ]


def test_table_of_one_dataset():
    """By hand: ours has means of 70, 80 over tasks in the seeds, so 75 and a deviation of sqrt(50)."""
    plan = Study(TASKS, ("ours", "theirs", "broken"), 2, {})
    accuracies = {
        "ours": [[0.6, 0.7], [0.8, 0.9]],
        "theirs": [[0.65, 0.65], [0.7, 0.721]],
        "broken": [[0.5, None], [0.5, 0.6]],
    }
    assert rows_of(markdown(plan, outcomes_of(plan, accuracies))) == [
        ["method", "photo -> sketch", "sketch -> photo", "mean", "seconds"],
        ["-" * 6, "-" * 14 + ":", "-" * 14 + ":", "-" * 13 + ":", "-" * 6 + ":"],
        ["ours", "**65.0**", "**85.0**", "**75.0 ± 7.1**", "1.50"],
        ["theirs", "**65.0**", "71.0", "68.0 ± 0.7", "1.50"],
        ["broken", "failed", "55.0", "failed", "1.50"],
    ]


def test_table_of_several_datasets():
    """Every dataset has a mean; the last one is over all tasks: (60 + 70 + 95) / 3."""
    plan = Study((*TASKS, ("digits", "mnist -> usps")), ("ours",), 1, {})
    rows = rows_of(markdown(plan, outcomes_of(plan, {"ours": [[0.6], [0.7], [0.95]]})))
    heading = ["photo -> sketch", "sketch -> photo", "pets mean", "mnist -> usps", "digits mean", "mean", "seconds"]
    assert rows[0][1:] == heading
    assert rows[2][1:] == ["**60.0**", "**70.0**", "**65.0**", "**95.0**", "**95.0**", "**75.0**", "1.50"]


def test_bars_in_names_do_not_end_a_column():
    plan = Study((("pets", "a|b -> c"), ("pets", "c -> a|b")), ("ours",), 1, {})
    header = markdown(plan, outcomes_of(plan, {"ours": [[0.5], [0.5]]})).splitlines()[0]
    assert header == r"| method | a\|b -> c | c -> a\|b |     mean | seconds |"


def test_the_page_names_every_method():
    page = (Path(__file__).parents[1] / "docs" / "benchmark.md").read_text()
    assert [method for method in features.METHODS if f"`{method}`" not in page] == []


def test_other_numbers_have_a_table_of_their_own(tmp_path):
    plan = Study(TASKS, ("ours", "theirs"), 1, {"samples": 5})
    outcomes = [
        Outcome(cell, numbers_of(cell) | ({"transported_mass": mass} if cell.method == "ours" else {}))
        for cell, mass in zip(plan.cells, (0.5, 0, 0.7, 0), strict=True)
    ]
    assert rows_of(markdown(plan, outcomes))[-3:] == [
        ["method", "transported mass"],
        ["------", "---------------:"],
        ["ours", "0.600"],
    ]
    write_results(tmp_path, plan, outcomes)
    written = json.loads((tmp_path / "results.json").read_text())
    assert written["plan"] == {"tasks": [list(task) for task in TASKS], "methods": ["ours", "theirs"], "seeds": 1} | {
        "samples": 5
    }
    assert written["environment"]["packages"]["numpy"] == np.__version__
    assert written["cells"][0] == {
        **{"group": "pets", "task": "photo -> sketch", "method": "ours", "seed": 0},
        "numbers": {"accuracy": 0.4, "seconds": 0.5, "transported_mass": 0.5},
    }


def toy_domain(shift, rows=90, classes=3, columns=6):
    rng = np.random.default_rng(shift)
    y = rng.integers(classes, size=rows)
    return Features(3 * np.eye(classes, columns)[y] + rng.normal(size=(rows, columns), scale=0.3) + 0.2 * shift, y)


@pytest.fixture
def toy():
    return Dataset("toy", {"a": toy_domain(0), "b": toy_domain(1), "c": toy_domain(2)}, 3, {})


def test_draws_depend_on_the_seed_and_the_names_alone(toy):
    drawn = sample_pair(toy, "a", "b", seed=3, samples=40)
    for one, other in zip(drawn, sample_pair(toy, "a", "b", seed=3, samples=40), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(drawn.x_source, sample_pair(toy, "a", "c", seed=3, samples=40).x_source)
    np.testing.assert_array_equal(drawn.x_source, sample_pair(toy, "b", "a", seed=3, samples=40).x_target)
    np.testing.assert_array_equal(drawn.x_source, sample_pair(toy, "a", "b", seed=3, samples=60).x_source[:40])
    np.testing.assert_array_equal(drawn.x_source, sample_pair(toy, "a", "b", seed=3, samples=40, drop=1).x_source)
    assert not np.array_equal(drawn.x_source, sample_pair(toy, "a", "b", seed=4, samples=40).x_source)


@pytest.mark.parametrize("scale", [1e200, 1e-200, 1e-320])
def test_rows_of_any_size_become_unit_rows(scale):
    x = np.array([[3.0, 4.0], [-1.0, 0.0], [0.0, 0.0]])
    dataset = Dataset("toy", dict.fromkeys("ab", Features(x * scale, np.arange(3))), 3, {})
    drawn = sample_pair(dataset, "a", "b", seed=0, samples=3)
    expected = np.array([[0.6, 0.8], [-1.0, 0.0], [0.0, 0.0]])[drawn.y_source]
    np.testing.assert_allclose(drawn.x_source, expected, rtol=1e-3 if scale == 1e-320 else 1e-15)


def test_draws_are_samples_without_replacement_of_unit_norm(toy):
    drawn = sample_pair(toy, "a", "b", seed=0, samples=1000)
    x, y, _ = toy.domains["a"]
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    order, expected = np.lexsort(drawn.x_source.T), np.lexsort(x.T)
    np.testing.assert_allclose(drawn.x_source[order], x[expected])
    np.testing.assert_array_equal(drawn.y_source[order], y[expected])
    assert sample_pair(toy, "a", "b", seed=0, samples=40).x_target.shape == (40, 6)


def test_dropped_classes_are_missing_in_the_target_only(toy):
    missing = set()
    for seed in range(8):
        drawn = sample_pair(toy, "a", "b", seed=seed, samples=50, drop=1)
        (left_out,) = {0, 1, 2} - set(drawn.y_target.tolist())
        assert left_out in drawn.y_source
        assert len(drawn.y_target) == 50
        same_seed = sample_pair(toy, "c", "a", seed=seed, samples=50, drop=1)
        assert set(same_seed.y_target.tolist()) == {0, 1, 2} - {left_out}
        missing.add(left_out)
    assert len(missing) > 1


def test_outliers_are_made_of_features_of_the_target(toy):
    clean = sample_pair(toy, "a", "b", seed=1, samples=50)
    drawn = sample_pair(toy, "a", "b", seed=1, samples=50, outliers=0.2)
    assert drawn.outlier.sum() == 10
    assert drawn.overlap == 0.8
    np.testing.assert_array_equal(drawn.x_target[~drawn.outlier], clean.x_target[~drawn.outlier])
    np.testing.assert_allclose(np.linalg.norm(drawn.x_target, axis=1), 1.0)
    raw = toy.domains["b"].x
    for row in drawn.x_target[drawn.outlier]:
        # Up to one scale, every feature is that of some row; a whole row of the target is it of none.
        scales = row[0] / raw[:, 0]
        fits = [np.isclose(row / scale, raw).any(axis=0).all() for scale in scales]
        assert any(fits)
        assert not np.isclose(row, clean.x_target).all(axis=1).any()


def test_the_source_may_not_know_all_classes(toy):
    domains = {"a": Features(toy.domains["a"].x, np.zeros(90, int)), "b": toy.domains["b"]}
    drawn = sample_pair(toy._replace(domains=domains), "a", "b", seed=0, samples=90)
    assert drawn.overlap == np.mean(drawn.y_target == 0)


@pytest.fixture
def letters():
    """Two domains of ten classes, of which every row is different."""
    return Dataset("letters", {"a": toy_domain(0, 600, 10, 12), "b": toy_domain(1, 500, 10, 12)}, 10, {}, (), (3, 4))


@pytest.mark.parametrize("overlap", OVERLAPS)
@pytest.mark.parametrize("shift", SHIFTS)
def test_conditions_depend_on_the_seed_and_the_names_alone(letters, shift, overlap):
    def draw(seed):
        target = "b" if shift == "domains" else "a"
        return sample_pair(letters, "a", target, seed=seed, samples=100, condition=Condition(shift, overlap))

    for one, other in zip(draw(3), draw(3), strict=True):
        np.testing.assert_array_equal(one, other)
    drawn = draw(3)
    assert len(drawn.y_source) == 100
    assert not np.array_equal(drawn.x_target, draw(4).x_target)
    assert drawn.outlier.any() == (overlap == "unknown")


@pytest.mark.parametrize("shift", ["none", "noise", "rotation"])
def test_halves_of_a_domain_share_no_row(letters, shift):
    drawn = sample_pair(letters, "a", "a", seed=0, samples=1000, condition=Condition(shift))
    assert (len(drawn.y_source), len(drawn.y_target)) == (300, 300)
    plain = sample_pair(letters, "a", "a", seed=0, samples=1000, condition=Condition("none"))
    np.testing.assert_array_equal(drawn.x_source, plain.x_source)
    np.testing.assert_array_equal(drawn.y_target, plain.y_target)
    assert np.array_equal(drawn.x_target, plain.x_target) == (shift == "none")
    both = np.concatenate([plain.x_source, plain.x_target])
    x = letters.domains["a"].x
    np.testing.assert_allclose(np.sort(both, axis=0), np.sort(x / np.linalg.norm(x, axis=1, keepdims=True), axis=0))


def test_noise_is_as_large_as_a_feature():
    """A constant feature stays as it is. The rows are on a ray, so that their norm can be undone."""
    rng = np.random.default_rng(0)
    x = np.stack([np.ones(20_000), rng.normal(size=20_000) * 3, rng.normal(size=20_000) / 3], axis=1)
    dataset = Dataset("toy", {"a": Features(x, np.zeros(20_000, int))}, 1, {})
    ratios = {}
    for shift in ("none", "noise"):
        drawn = sample_pair(dataset, "a", "a", seed=0, samples=10_000, condition=Condition(shift)).x_target
        ratios[shift] = drawn[:, 1:] / drawn[:, :1]
    np.testing.assert_allclose((ratios["noise"] - ratios["none"]).std(axis=0), [3, 1 / 3], rtol=0.03)


def test_images_are_turned_by_five_degrees():
    """A line through the middle of a large image: its direction before and after."""
    at = np.arange(41) - 20.0
    line = np.exp(-(at[:, None] ** 2) / 8) * (np.abs(at) < 15)
    dataset = Dataset("toy", {"a": Features(np.tile(line.ravel(), (4, 1)), np.arange(4) % 2)}, 2, {}, (), (41, 41))
    drawn = sample_pair(dataset, "a", "a", seed=0, samples=4, condition=Condition("rotation"))
    for x, degrees in ((drawn.x_source, 0), (drawn.x_target, 5)):
        image = x[0].reshape(41, 41)
        slope = (image * at[:, None] * at).sum() / (image * at**2).sum()
        assert np.degrees(np.arctan(abs(slope))) == pytest.approx(degrees, abs=0.3)


@pytest.mark.parametrize(("overlap", "classes"), [("all", 10), ("half", 5), ("third", 3)])
def test_classes_of_the_target(letters, overlap, classes):
    chosen = set()
    for seed in range(6):
        drawn = sample_pair(letters, "a", "b", seed=seed, samples=100, condition=Condition("domains", overlap))
        assert len(np.unique(drawn.y_target)) == classes
        assert len(np.unique(drawn.y_source)) == 10
        chosen.add(tuple(np.unique(drawn.y_target)))
    assert len(chosen) > 1 or overlap == "all"


def test_a_fifth_of_the_classes_has_four_fifths_of_an_imbalanced_target(letters):
    drawn = sample_pair(letters, "a", "b", seed=0, samples=100, condition=Condition("domains", "imbalanced"))
    assert np.sort(np.bincount(drawn.y_target))[-2:].sum() == 80
    assert len(drawn.y_target) == 100
    assert np.sort(np.bincount(drawn.y_target[:50]))[-2:].sum() == pytest.approx(40, abs=1)  # no block of rare ones
    few = sample_pair(letters, "a", "b", seed=0, samples=500, condition=Condition("domains", "imbalanced"))
    frequent = np.bincount(drawn.y_target).argsort()[-2:]
    rows = np.isin(letters.domains["b"].y, frequent).sum()
    assert rows - 1 <= np.isin(few.y_target, frequent).sum() <= rows
    assert np.isin(few.y_target, frequent).mean() == pytest.approx(0.8, abs=0.01)


def test_unknown_classes_are_outliers_and_have_the_last_numbers(letters):
    drawn = sample_pair(letters, "a", "b", seed=0, samples=500, condition=Condition("domains", "unknown"))
    plain = sample_pair(letters, "a", "b", seed=0, samples=500)
    np.testing.assert_array_equal(drawn.x_target, plain.x_target)
    assert set(drawn.y_source) == set(range(7))
    np.testing.assert_array_equal(drawn.outlier, drawn.y_target > 6)
    pairs = set(zip(drawn.y_target.tolist(), plain.y_target.tolist(), strict=True))
    assert len(pairs) == 10  # each class has another number, but stays a class
    assert drawn.overlap < (~drawn.outlier).mean() + 1e-12


def test_classes_count_after_those_that_are_dropped(toy):
    drawn = sample_pair(toy, "a", "b", seed=0, samples=50, drop=1, condition=Condition("domains", "half"))
    assert len(set(drawn.y_target)) == 1
    lonely = toy._replace(domains={"a": toy_domain(0, rows=1)})
    with pytest.raises(aot.InvalidInput, match="overlap must leave samples in the target; got none in 'a' of seed 0"):
        sample_pair(lonely, "a", "a", seed=0, samples=5, condition=Condition("none"))


def test_images_shrink_by_area():
    images = np.random.default_rng(0).integers(256, size=(2, 28, 12)).astype(np.uint8)
    assert shrink(images, 28, 12) == pytest.approx(images)
    assert shrink(images, 14, 4) == pytest.approx(images.reshape(2, 14, 2, 4, 3).mean(axis=(2, 4)))
    finer = images.repeat(16, axis=1).repeat(5, axis=2)  # 28 x 16 = 16 x 28 and 12 x 5 = 5 x 12
    assert shrink(images, 16, 5) == pytest.approx(finer.reshape(2, 16, 28, 5, 12).mean(axis=(2, 4)))


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A directory with a dataset of three domains in three formats, and one of images, to work in."""
    monkeypatch.chdir(tmp_path)
    read_dataset.cache_clear()  # of another "pets"
    Path("pets").mkdir()
    names = np.array(["cat", "dog", "fox"])
    domains = {name: toy_domain(shift) for shift, name in enumerate(("art", "photo", "sketch"))}
    np.savez("pets/photo.npz", x=domains["photo"].x.astype(np.float32), y=names[domains["photo"].y])
    for name in ("art", "sketch"):
        x, y, _ = domains[name]
        lines = [",".join([*map(str, row), word]) for row, word in zip(x, names[y], strict=True)]
        Path(f"pets/{name}.csv").write_text("\n".join(["a,b,c,d,e,f,label", *lines]))
    Path("pets/README.txt").write_text("not a domain")
    rng = np.random.default_rng(0)
    np.savez(
        "digits.npz",
        mnist_train_x=rng.integers(256, size=(60, 8, 6)).astype(np.uint8),
        mnist_train_y=np.arange(60) % 2,
        usps_train_x=rng.integers(256, size=(50, 4, 6)).astype(np.uint8),
        usps_train_y=np.arange(50) % 2,
        usps_test_x=np.zeros(3),
    )
    return tmp_path


def nearest_mean(x_source, y_source, x_target):
    """A small method that has everything a method can have: outliers are far from all means."""
    means = np.stack([x_source[y_source == label].mean(axis=0) for label in np.unique(y_source)])
    distance = np.linalg.norm(x_target[:, None] - means, axis=2)
    return Prediction(np.unique(y_source)[distance.argmin(axis=1)], 0.75, distance.min(axis=1))


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.setitem(features.METHODS, "nearest mean", FeatureMethod(nearest_mean))
    return "nearest mean"


def test_datasets_are_read(here):
    pets, digits = read_dataset(Path("pets")), read_dataset(Path("digits.npz"))
    assert (pets.name, list(pets.domains), pets.classes) == ("pets", ["art", "photo", "sketch"], 3)
    for shift, name in enumerate(pets.domains):
        np.testing.assert_allclose(pets.domains[name].x, toy_domain(shift).x, rtol=1e-6)
        np.testing.assert_array_equal(pets.domains[name].y, toy_domain(shift).y)
    assert (digits.name, list(digits.domains), digits.classes) == ("digits", ["mnist", "usps"], 2)
    archive = np.load("digits.npz")
    expected = shrink(archive["mnist_train_x"], 4, 6).reshape(60, 24) / 255
    np.testing.assert_allclose(digits.domains["mnist"].x, expected)
    np.testing.assert_allclose(digits.domains["usps"].x, archive["usps_train_x"].reshape(50, 24) / 255)


def test_columns_are_matched_by_name(here):
    """Also where the first domain has no names."""
    expected = read_dataset(Path("pets")).domains
    for old, new in (("photo.npz", "all.npz"), ("sketch.csv", "reversed.csv")):
        Path("pets", old).rename(Path("pets", new))
    lines = [line.split(",") for line in Path("pets/reversed.csv").read_text().splitlines()]
    Path("pets/reversed.csv").write_text("\n".join(",".join(line[::-1]) for line in lines))
    read_dataset.cache_clear()
    found = read_dataset(Path("pets")).domains
    assert list(found) == ["all", "art", "reversed"]
    np.testing.assert_array_equal(found["all"].x, expected["photo"].x)
    np.testing.assert_array_equal(found["reversed"].x, expected["sketch"].x)


def test_all_pairs_are_tasks(here, fake):
    plan, _ = features.prepare([Path("pets"), Path("digits.npz")], methods=[fake])
    assert len(plan.tasks) == 6 + 2
    assert plan.tasks[-1] == ("digits", "usps -> mnist")
    plan, _ = features.prepare([Path("pets"), Path("digits.npz")], methods=[fake, fake], tasks=["sketch:art"])
    assert (plan.tasks, plan.methods) == ((("pets", "sketch -> art"),), (fake,))


def test_conditions_are_tasks(here, fake):
    datasets, chosen = [Path("pets"), Path("digits.npz")], {"methods": [fake], "shifts": ["domains", "none", "noise"]}
    plan, _ = features.prepare(datasets, **chosen, overlaps=["all", "half", "all"])
    assert len(plan.tasks) == 2 * (6 + 3 + 3) + 2 * (2 + 2 + 2)
    assert {name: len(tasks) for name, tasks in plan.conditions.items()} == {
        **{"domains, all": 8, "domains, half": 8, "none, all": 5, "none, half": 5, "noise, all": 5, "noise, half": 5}
    }
    assert plan.conditions["noise, half"][0] == ("pets", "art, noise, half")
    assert plan.conditions["domains, half"][-1] == ("digits", "usps -> mnist, half")
    assert plan.conditions["none, all"][2] == ("pets", "sketch")
    assert Study.of(plan.record()) == plan
    plan, _ = features.prepare(datasets, **chosen, tasks=["art", "art:photo"])
    assert [task for _, task in plan.tasks] == ["art -> photo", "art", "art, noise"]
    plan, _ = features.prepare([Path("digits.npz")], methods=[fake], shifts=["rotation"])
    assert plan.tasks == (("digits", "mnist, rotation"), ("digits", "usps, rotation"))
    plan, _ = features.prepare(datasets, methods=[fake], shifts=["domains"], overlaps=["all"])
    assert "conditions" not in plan.record()  # as before there were any
    with pytest.raises(ValueError, match="'conditions' with other tasks"):
        Study.of(plan.record() | {"conditions": {"none, all": [["pets", "dog"]]}})


def test_estimates_of_ours_are_numbers():
    class Model:
        transported_mass_, overlap_, overlap_interval_, adapted_ = 0.5, 0.6, (0.4, 0.7), np.True_

    found = ours._prediction(Model(), np.arange(3)).numbers
    assert found == {"overlap": 0.6, "overlap_low": 0.4, "overlap_high": 0.7, "adapted": 1.0}


def test_numbers_of_a_cell(here, fake):
    _, work = features.prepare([Path("pets")], methods=[fake], samples=50, drop=1, outliers=0.3)
    found = work(Cell("pets", "art -> sketch", fake, 2))
    drawn = sample_pair(read_dataset(Path("pets")), "art", "sketch", seed=2, samples=50, drop=1, outliers=0.3)
    prediction = nearest_mean(drawn.x_source, drawn.y_source, drawn.x_target)
    right = (prediction.labels == drawn.y_target)[~drawn.outlier]
    counts = [np.bincount(y, minlength=9) for y in (drawn.y_source, drawn.y_target[~drawn.outlier])]
    shared = np.minimum(counts[0] / len(drawn.y_source), counts[1] / len(drawn.y_target))
    assert found.pop("seconds") > 0
    assert found.pop("true_overlap") == pytest.approx(shared.sum(), abs=1e-12)
    assert found == {
        "accuracy": right.mean(),
        "transported_mass": 0.75,
        "outlier_auc": roc_auc_score(drawn.outlier, prediction.outlier_score),
    }
    _, work = features.prepare([Path("pets")], methods=["source only"], samples=50)
    assert set(work(Cell("pets", "art -> sketch", "source only", 2))) == {"accuracy", "seconds"}


def test_unknown_classes_are_judged_by_outlier_scores(here):
    methods = ["source only", "k-NN"]
    _, work = features.prepare([Path("pets")], methods=methods, shifts=["none"], overlaps=["unknown"])
    for method, more in zip(methods, (["outlier_auc", "outlier_auc_entropy"], ["outlier_auc"]), strict=True):
        found = work(Cell("pets", "art, unknown", method, 1))
        assert set(found) == {"accuracy", "seconds", *more}
        assert min(found[name] for name in ("accuracy", *more)) > 0.9


@pytest.mark.parametrize("estimate", ["EM", "BBSE"])
def test_label_shift_is_corrected(estimate):
    """Two classes that overlap, equal in the source; nine of ten targets are of the first."""
    rng = np.random.default_rng(0)
    y, z = np.arange(2000) % 2, (np.arange(2000) % 10 == 0).astype(int)
    x_source, x_target = (rng.normal(size=(2000, 1)) + labels[:, None] for labels in (y, z))
    right = [
        (RIVALS[name].run(x_source, y, x_target).labels == z).mean()
        for name in (f"label shift ({estimate})", "source only")
    ]
    assert right[0] > 0.88 > 0.75 > right[1]


@pytest.mark.parametrize("name", OURS)
def test_ours_beat_chance(here, name):
    pytest.importorskip("adaptive_ot.adapt")
    _, work = features.prepare([Path("pets")], methods=[name], samples=60, outliers=0.2)
    found = work(Cell("pets", "art -> photo", name, 0))
    assert found["accuracy"] > 0.7
    assert 0 < found.get("transported_mass", 0.5) <= 1.5


@pytest.mark.parametrize("name", RIVALS)
def test_rivals_beat_chance_and_leave_scikit_learn_as_it_was(here, name):
    sklearn = pytest.importorskip("sklearn")
    pytest.importorskip("ot")
    pytest.importorskip("skada")
    sklearn.set_config(enable_metadata_routing=False)  # importing SKADA has changed it
    before = sklearn.get_config()
    _, work = features.prepare([Path("pets")], methods=[name], samples=60)
    assert work(Cell("pets", "art -> photo", name, 0))["accuracy"] > 0.7
    assert sklearn.get_config() == before


def test_skada_is_kept_from_changing_settings():
    pytest.importorskip("skada")
    script = (
        "import sklearn, numpy as np; from adaptive_ot.workbench.benchmark.rivals import RIVALS\n"
        "x = np.random.default_rng(0).normal(size=(30, 3)); y = np.arange(30) % 2\n"
        "import warnings; warnings.simplefilter('ignore')\n"
        "RIVALS['SKADA CORAL'].run(x + y[:, None], y, x)\n"
        "import sys; assert 'skada' in sys.modules\n"
        "assert not sklearn.get_config()['enable_metadata_routing']"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=PATIENCE)


def test_missing_packages_are_named_before_anything_is_read(here, monkeypatch, capsys):
    needs = (Package("no_such_module", "skada", "bench"),)
    monkeypatch.setitem(features.METHODS, "needy", FeatureMethod(nearest_mean, needs))
    assert main(["benchmark", "features", "missing", "--output", "results", "--method", "needy"]) == 2
    assert capsys.readouterr().err == 'adaptive-ot: This needs skada: pip install "adaptive-ot[bench]"\n'
    assert not Path("results").exists()


def test_command(here, fake, capsys):
    arguments = ["benchmark", "features", "pets", "digits.npz", "--output", "results", "--seeds", "2"]
    arguments += ["--samples", "40", "--outliers", "0.2", "--method", "source only", "--method", fake]
    assert main(arguments) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert captured.out.endswith("Written to results/results.md\nWritten to results/results.json\n")
    assert captured.out.startswith(Path("results/results.md").read_text())
    rows = rows_of(captured.out)
    assert [row[0] for row in rows[2:4]] == ["source only", fake]
    assert rows[0][-4:] == ["usps -> mnist", "digits mean", "mean", "seconds"]
    assert rows[4] == ["method", "outlier auc", "outlier auc entropy", "transported mass", "true overlap"]
    cells = json.loads(Path("results/results.json").read_text())["cells"]
    assert len(cells) == 2 * 2 * 8
    of_fake = [cell["numbers"]["accuracy"] for cell in cells if cell["method"] == fake]
    assert rows[3][-2].strip("*").startswith(f"{100 * np.mean(of_fake):.1f} ± ")
    assert main(arguments) == 0  # nothing is left to do
    assert json.loads(Path("results/results.json").read_text())["cells"] == cells
    assert main([*arguments, "--drop", "1"]) == 2
    assert "--output 'results' must be new or hold the same benchmark" in capsys.readouterr().err


def test_command_with_conditions(here, fake, capsys):
    arguments = ["benchmark", "features", "digits.npz", "--output", "results", "--seeds", "2", "--method", fake]
    arguments += ["--shift", "none", "--shift", "rotation", "--overlap", "all", "--overlap", "imbalanced"]
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    conditions = ["none, all", "none, imbalanced", "rotation, all", "rotation, imbalanced"]
    rows = rows_of(shown)
    assert rows[0] == ["method", *conditions, "mean", "seconds"]
    assert [line[3:] for line in shown.splitlines() if line.startswith("## ")] == conditions
    assert rows[-6][1:] == ["mnist, rotation, imbalanced", "usps, rotation, imbalanced", "mean", "seconds"]
    results = json.loads(Path("results/results.json").read_text())
    for at, condition in enumerate(conditions, 1):
        tasks = [task for _, task in results["plan"]["conditions"][condition]]
        mean = np.mean([cell["numbers"]["accuracy"] for cell in results["cells"] if cell["task"] in tasks])
        assert results["conditions"][condition] == {fake: pytest.approx(mean)}
        assert float(rows[2][at].strip("*")) == pytest.approx(100 * mean, abs=0.06)
    before = Path("results", CELLS).read_bytes()
    Path("results", CELLS).write_bytes(b"".join(before.splitlines(keepends=True)[:9]))
    assert main(arguments) == 0
    assert len(cells_in(Path("results"))) == len(before.splitlines()) == 16
    assert main([*arguments, "--overlap", "half"]) == 2
    assert "--output 'results' must be new or hold the same benchmark" in capsys.readouterr().err


def test_a_failure_has_no_mean_in_its_condition():
    plan = Study(TASKS, ("ours",), 1, {}, {}, {"domains, all": TASKS[:1], "none, half": TASKS[1:]})
    outcomes = outcomes_of(plan, {"ours": [[0.5], [None]]})
    assert condition_means(plan, outcomes) == {"domains, all": {"ours": 0.5}, "none, half": {"ours": None}}
    assert rows_of(markdown(plan, outcomes))[2][1:] == ["**50.0**", "failed", "failed", "1.50"]


def test_command_with_several_processes(here, capsys):
    arguments = ["benchmark", "features", "pets", "--method", "source only", "--task", "art:photo", "--samples", "40"]
    assert main([*arguments, "--output", "one"]) == 0
    assert main([*arguments, "--output", "two", "--jobs", "2"]) == 0
    accuracies = [
        [cell["numbers"]["accuracy"] for cell in json.loads(Path(name, "results.json").read_text())["cells"]]
        for name in ("one", "two")
    ]
    assert accuracies[0] == accuracies[1]


def test_other_versions_are_another_benchmark(here, fake, monkeypatch, capsys):
    arguments = ["benchmark", "features", "pets", "--output", "results", "--method", fake, "--seeds", "1"]
    assert main(arguments) == 0
    monkeypatch.setattr("adaptive_ot.workbench.environment.version", lambda package: "99")
    assert main(arguments) == 2
    complaint = capsys.readouterr().err
    assert f"versions numpy '{np.__version__}', not '99'" in complaint
    assert complaint.endswith("Choose another directory.\n")


def test_processes_side_by_side_have_one_thread():
    before = dict(os.environ)
    with engine._spawning():
        assert {os.environ[name] for name in engine.THREADS} == {"1"}
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    assert dict(os.environ) == before
    assert signal.getsignal(signal.SIGINT) == signal.default_int_handler


def test_progress_names_the_cell(here, fake, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as if stderr were a terminal
    monkeypatch.setenv("COLUMNS", "150")
    arguments = ["benchmark", "features", "digits.npz", "--output", "results", "--method", fake]
    assert main(arguments) == 0
    shown = capsys.readouterr().err
    assert "time left" in shown
    assert f"{fake}, digits usps -> mnist, seed 2" in shown


def test_changed_data_are_another_benchmark(here, fake, capsys):
    arguments = ["benchmark", "features", "pets", "--output", "results", "--method", fake, "--seeds", "1"]
    assert main(arguments) == 0
    with open("pets/art.csv", "a") as file:
        file.write("\n1,1,1,1,1,1,cat\n")
    read_dataset.cache_clear()
    assert main(arguments) == 2
    assert "other settings: data pets art.csv '" in capsys.readouterr().err


REFUSALS = [
    ("pets", "--output"),
    ("--output results", "datasets must be at least one; got none"),
    ("missing --output results", "dataset 'missing' must exist"),
    ("empty --output results", "dataset 'empty' must have domains; got none"),
    ("lonely --output results", "must have at least two domains; got 'photo'"),
    ("twice --output results", "must have one file a domain; got several called 'photo'"),
    ("wide --output results", "domain 'b' of dataset 'wide' must have as many features as 'a' (2); got 3"),
    ("mixed --output results", "must label every domain alike; got text and numbers in 'a' and 'b'"),
    ("broken --output results", "feature file 'broken/a.npz' must be a valid .npz file"),
    ("pets pets --output results", "datasets must have different names; got two 'pets'"),
    ("pets/art.csv --output results", "dataset 'pets/art.csv' must end in .npz"),
    ("pets/photo.npz --output results", "dataset 'pets/photo.npz' must have domains; got none"),
    ("unlabelled.npz --output results", "must hold 'usps_train_y' beside 'usps_train_x'"),
    ("colour.npz --output results", "must hold 'a_train_x' as uint8 of shape (images, height, width)"),
    (
        "short.npz --output results",
        "must hold one label for each of its 2 samples; got shape (1,). Complete 'a_train_y'",
    ),
    ("unsigned.npz --output results", "got 9223372036854775808 in row 1. Convert 'a_train_y' to int64 or text."),
    ("text.npz --output results", "not a zip archive"),
    ("pets --output results --seeds 0", "--seeds must be a whole number from 1"),
    ("pets --output results --samples 0", "--samples must be a whole number from 1"),
    ("pets --output results --samples many", "--samples"),
    ("pets --output results --drop -1", "--drop must be a whole number from 0"),
    ("pets --output results --drop 3", "--drop must leave some of the 3 classes of 'pets'; got 3"),
    ("pets --output results --outliers 1", "--outliers must be a share below 1"),
    ("pets --output results --outliers -0.1", "--outliers must be a number from 0"),
    ("pets --output results --outliers nan", "--outliers must be a number from 0"),
    ("pets --output results --jobs 0", "--jobs must be a whole number from 1"),
    (
        "pets --output results --method magic",
        "--method must be a known one; got 'magic'. Choose from: 'AOT (joint)', 'AOT (joint), no guard'",
    ),
    ("pets --output results --task art", "--task must be SOURCE:TARGET, two domains of a dataset; got 'art'"),
    ("pets --output results --task art:art", "Choose two of the domains: art, photo, sketch."),
    (
        "pets --output results --shift nose",
        '--shift must be one of "domains", "none", "noise", "rotation"; got \'nose\'',
    ),
    ("pets --output results --shift Noise", "Did you mean 'noise'?"),
    ("pets --output results --overlap some", '--overlap must be one of "all", "half", '),
    ("pets --output results --overlap thirds", "Did you mean 'third'?"),
    (
        "pets --output results --drop 2 --overlap half",
        "--overlap must be 'all' as the target of dataset 'pets' has a single",
    ),
    (
        "pets --output results --shift none --shift rotation",
        "--shift must be another one than 'rotation' as dataset 'pets' ",
    ),
    (
        "lonely --output results --shift none --shift domains",
        "must have at least two domains; got 'photo'. Add a domain, or",
    ),
    ("pets --output results --shift none --task art:photo", "--task must be a domain of a dataset, or SOURCE:TARGET"),
    ("alike --output results --shift none --shift domains", "tasks of different names; got two 'alike a -> b'"),
    ("pets --output README.txt", "--output 'README.txt' must be a directory"),
    ("pets --output results --colour red", "--colour"),
]


@pytest.mark.parametrize(("line", "message"), REFUSALS, ids=[line for line, _ in REFUSALS])
def test_refusals(here, fake, capfd, line, message):
    for name in ("empty", "lonely", "twice", "wide", "mixed", "broken", "alike"):
        Path(name).mkdir()
    one, two = {"x": np.ones((2, 2)), "y": [0, 1]}, {"x": np.ones((2, 3)), "y": [0, 1]}
    for name, arrays in {
        "lonely/photo": one,
        "twice/photo": one,
        "wide/a": one,
        "wide/b": two,
        "mixed/a": one | {"y": ["cat", "dog"]},
        "mixed/b": one,
        **dict.fromkeys(("alike/a", "alike/b", "alike/a -> b"), one),
        "unlabelled": {"usps_train_x": np.zeros((2, 2, 2), np.uint8)},
        "colour": {"a_train_x": np.zeros((2, 2, 2, 3), np.uint8), "a_train_y": [0, 1]},
        "short": {"a_train_x": np.zeros((2, 2, 2), np.uint8), "a_train_y": [0]},
        "unsigned": {"a_train_x": np.zeros((2, 2, 2), np.uint8), "a_train_y": np.array([0, 2**63], np.uint64)},
    }.items():
        np.savez(f"{name}.npz", **arrays)
    for name in ("twice/photo.csv", "broken/a.npz", "text.npz", "README.txt"):
        Path(name).write_text("hello")
    arguments = ["benchmark", "features", *line.split()]
    refused(capfd, arguments if "--method" in line else [*arguments, "--method", fake], message)
