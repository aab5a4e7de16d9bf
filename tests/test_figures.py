"""``adaptive-ot figures``: every figure is drawn from a real result, and shows its numbers."""

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

import adaptive_ot as aot
from adaptive_ot import plot
from adaptive_ot.deep import train
from adaptive_ot.deep.trained import evaluate
from adaptive_ot.workbench.cli import figures, main
from adaptive_ot.workbench.cli.digits import shifted_digits
from adaptive_ot.workbench.report.figures import EPSILONS, Domains, class_to_drop, figures_of
from commands import refused
from patterns import save_patterns, small_run
from test_benchmark_deep import TOP, write_images

NAMES = ("toy", "plans", "labels", "labels_missing", "mass_path", "overlap", "convergence")


def clouds(count=60, classes=3):
    """Well-separated classes, twice; the classifier is right, and quite sure."""
    rng = np.random.default_rng(0)
    y, truth = np.arange(count) % classes, rng.integers(classes, size=count)
    centres = 9 * rng.normal(size=(classes, 2))
    x, z = centres[y] + rng.normal(size=(count, 2)), centres[truth] + rng.normal(size=(count, 2))
    q = np.full((count, classes), 0.1 / (classes - 1))
    q[np.arange(count), truth] = 0.9
    return Domains(x, z, q, y, truth, tuple("abcdefgh"[:classes]))


@pytest.fixture(scope="module")
def domains():
    return clouds()


@pytest.fixture(scope="module")
def drawn(domains):
    """All figures by name, the first class dropped."""
    return {name: draw() for name, draw in figures_of(domains, 0)}


def solved(domains, solver=None):
    """By the matrix of costs, which is computed here."""
    squares = ((domains.x[:, None] - domains.z) ** 2).sum(axis=2)
    p = np.eye(len(domains.classes))[domains.source_labels]
    return aot.solve(0.5 * squares / np.median(squares) - p @ domains.q.T, solver=solver)


def test_plans_are_exact_and_entropic_with_their_masses(drawn, domains):
    titles = [ax.get_title() for ax in drawn["plans"].axes[:4]]
    solvers = [aot.Exact(), *map(aot.Entropic, EPSILONS)]
    names = ["exact", *(f"epsilon {epsilon:g}" for epsilon in EPSILONS)]
    masses = [solved(domains, solver).mass for solver in solvers]
    expected = [f"{name}\nmass {mass:.4g} of at most 1" for name, mass in zip(names, masses, strict=True)]
    assert titles == expected


def test_labels_with_and_without_a_class(drawn, domains):
    whole, missing = drawn["labels"], drawn["labels_missing"]
    assert [name.get_text() for name in whole.get_xticklabels()] == ["a", "b", "c"]
    assert [name.get_text() for name in missing.get_xticklabels()] == ["a\nmissing", "b", "c"]
    kept = domains.target_labels != 0
    rest = domains._replace(z=domains.z[kept], q=domains.q[kept], target_labels=domains.target_labels[kept])
    for ax, given in ((whole, domains), (missing, rest)):
        solution = solved(given, aot.Entropic(0.1))
        table = np.zeros((3, 3))
        for row, column, mass in zip(*solution.support, strict=True):
            table[given.source_labels[row], given.target_labels[column]] += mass
        np.testing.assert_allclose(ax.images[0].get_array(), table, atol=1e-9)


def test_mass_path(drawn, domains):
    suggestion = solved(domains).mass
    texts = [text.get_text() for text in drawn["mass_path"].get_legend().get_texts()]
    assert f"adaptive: mass {suggestion:.4g}" in texts


def test_overlap_falls_with_every_class(drawn, domains):
    """True overlaps by counting, and masses by solving again."""
    exact, entropic = drawn["overlap"].get_lines()[1], drawn["overlap"].get_lines()[3]
    overlaps, masses, with_entropy = [], [], []
    for missing in ([], [0], [0, 1]):
        rest = domains.without(missing)
        shares = [
            min(np.mean(domains.source_labels == label), np.mean(rest.target_labels == label)) for label in range(3)
        ]
        overlaps.append(sum(shares))
        masses.append(solved(rest).mass)
        with_entropy.append(solved(rest, aot.Entropic(0.1)).mass)
    np.testing.assert_allclose(exact.get_xdata(), overlaps)
    np.testing.assert_allclose(exact.get_ydata(), masses)
    np.testing.assert_allclose(entropic.get_ydata(), with_entropy)
    assert overlaps[0] > overlaps[1] > overlaps[2]
    assert masses[0] > masses[1] > masses[2]


def test_convergence_ends_with_a_proof(drawn):
    """Gaps of solves that were stopped early hold: none is below what the value is off by."""
    texts = [text.get_text() for text in drawn["convergence"].get_legend().get_texts()]
    assert texts == ["exact: gap", "epsilon 0.02: error of the marginals"]
    gap = drawn["convergence"].get_lines()[0].get_ydata()
    assert len(gap) > 5
    assert gap[-1] == gap.min() < 1e-6 < gap[0]


def test_many_classes_are_dropped_in_few_steps(monkeypatch):
    seen = []
    monkeypatch.setattr(plot, "mass_against_overlap", lambda overlap, mass: seen.append((overlap, mass)))
    monkeypatch.setattr("adaptive_ot.workbench.report.figures.MISSING", 3)
    dict(figures_of(clouds(classes=6), 2))["overlap"]()
    (overlap, mass), = seen  # fmt: skip
    assert len(overlap) == 3
    assert all(len(values) == 3 for values in mass.values())


def test_the_class_to_drop(domains):
    assert class_to_drop(domains, None) == np.argmax(np.bincount(domains.target_labels))
    assert class_to_drop(domains, "c") == 2
    with pytest.raises(aot.InvalidInput, match=r"drop must be a class of the target; got 'd'\. Choose from: a, b, c"):
        class_to_drop(domains, "d")
    with pytest.raises(aot.InvalidInput, match="drop must leave another class"):
        class_to_drop(domains.without([0, 1]), None)


# The command


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A finished run, features of two domains, and a study of sensitivity."""
    folder = tmp_path_factory.mktemp("figures")
    train(small_run(save_patterns(folder / "patterns.npz", 60), folder / "run", iterations=6, evaluate_every=3))
    (folder / "pets").mkdir()
    for name, shift in (("photo", 0.0), ("sketch", 0.5)):
        x, y = clouds().x + shift, np.array(["ant", "bee", "cat"])[clouds().source_labels]
        np.savez(folder / "pets" / f"{name}.npz", x=x, y=y)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_images(Path("data"))
        plan = TOP.replace(', "dark:light"', "").replace("iterations = 4", "iterations = 2")
        Path("study.toml").write_text(plan + "[grid]\nbeta = [0.5]\n")
        assert main(["benchmark", "sensitivity", "study.toml", "-o", "study"]) == 0
    return folder


@pytest.fixture
def here(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(figures, "SAMPLES", 60)
    return tmp_path


def test_digits(here, capsys, monkeypatch):
    """Without any other option; all of them are pictures."""
    seen = {}
    monkeypatch.setattr(figures, "figures_of", lambda domains, drop: seen.update(d=domains, drop=drop) or iter(()))
    assert main(["figures", "-o", str(here / "new" / "figures")]) == 0
    digits, domains = shifted_digits(missing=(), outliers=0.0), seen["d"]
    np.testing.assert_array_equal(domains.x, digits.x[:60])
    np.testing.assert_array_equal(domains.target_labels, digits.true_class[:60])
    np.testing.assert_allclose(domains.q.sum(axis=1), 1)
    assert domains.classes == tuple("0123456789")
    assert "figure      " in capsys.readouterr().out
    assert [path.name for path in (here / "new" / "figures").iterdir()] == ["toy.png"]


def test_features_in_the_dark(here, capsys):
    command = ["figures", "--dataset", "pets", "--source", "photo", "--target", "sketch", "--drop", "bee"]
    assert main([*command, "--theme", "dark", "-o", str(here)]) == 0
    assert "60 sources and 60 targets; the class that is dropped is bee" in capsys.readouterr().out
    assert {path.name for path in here.iterdir()} == {f"{name}.png" for name in NAMES}
    for path in here.iterdir():
        image = np.asarray(Image.open(path).convert("RGB"))
        assert np.median(image) < 60  # dark
        assert image.std() > 5  # with something on it


def test_a_run_and_a_study(here, capsys, monkeypatch):
    seen = {}
    monkeypatch.setattr(figures, "figures_of", lambda domains, drop: seen.update(domains=domains) or iter(()))
    assert main(["figures", "--run", "run", "--sensitivity", "study", "--format", "svg", "-o", str(here)]) == 0
    assert {path.name for path in here.iterdir()} == {"toy.svg", "training.svg", "sensitivity.svg"}
    for path in here.iterdir():
        assert ElementTree.parse(path).getroot().tag.endswith("svg")
    assert "weights     all images weigh the same" in capsys.readouterr().out
    domains, result = seen["domains"], evaluate(Path("run"), device="cpu")
    assert np.mean(domains.q.argmax(axis=1) == domains.target_labels) == pytest.approx(result.accuracy)
    assert (len(domains.x), len(domains.z)) == (60, 60)


def test_as_pdf(here, capsys, monkeypatch):
    monkeypatch.setattr(figures, "figures_of", lambda domains, drop: iter(()))
    command = ["figures", "--dataset", "pets", "--source", "photo", "--target", "sketch", "--format", "pdf"]
    assert main([*command, "-o", str(here)]) == 0
    assert (here / "toy.pdf").read_bytes().startswith(b"%PDF")


PETS = "--dataset pets --source photo --target sketch"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--run run --dataset pets", "--run does not go with --dataset"),
        ("--root data", "--root goes with --run"),
        ("--dataset pets --source photo", "--target is needed with --dataset"),
        ("--dataset pets", "--source is needed with --dataset"),
        ("--source photo", "--source goes with --dataset"),
        ("--dataset pets --source photo --target cat", "--target must be a domain of 'pets'; got 'cat'. Choose from"),
        ("--dataset pets --source photo --target photo", "--target must be another domain than the source"),
        ("--dataset nowhere --source a --target b", "--dataset 'nowhere' must exist"),
        (f"{PETS} --drop dog", "--drop must be a class of the target; got 'dog'. Choose from: ant, bee, cat."),
        ("--run nowhere", "--run 'nowhere' must hold a run.json that can be read"),
        ("--run pets", "--run 'pets' must hold a run.json"),
        ("--run run --root nowhere.npz", "--root 'nowhere.npz' must exist"),
        ("--run run --root nowhere", "--root 'nowhere' must exist; got no such file"),
        ("--run run --root pets", "--root 'pets' must be a file; got a directory"),
        (f"{PETS} --sensitivity pets", "benchmark 'pets' must hold a plan.json"),
        ("--format gif", "format"),
        ("--theme grey", "theme"),
    ],
)
def test_refusals(here, capfd, line, message):
    refused(capfd, ["figures", "-o", str(here / "new"), *line.split()], message, within=None)
    assert not list(here.rglob("*.png"))


def test_a_directory_that_cannot_be(here, capfd):
    (here / "file").touch()
    refused(capfd, ["figures", "-o", str(here / "file")], "must be a directory", within=here)


def test_another_benchmark_is_no_study(here, capfd):
    other = ["benchmark", "features", "pets", "-o", str(here / "other"), "--method", "AOT labels", "--seeds", "1"]
    assert main(other) == 0
    capfd.readouterr()
    arguments = ["figures", *PETS.split(), "--sensitivity", str(here / "other"), "-o", str(here / "new")]
    refused(capfd, arguments, "must be a study of sensitivity; got another benchmark", within=here / "other")
