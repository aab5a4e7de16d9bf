"""``adaptive-ot adapt``: what it prints, writes and refuses."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

import adaptive_ot as aot
from adaptive_ot import plot
from adaptive_ot.adapt import JointTransportClassifier, LabelTransportClassifier, TransportAdapter
from adaptive_ot.workbench.cli import main
from adaptive_ot.workbench.feature_files import read_features
from adaptive_ot.workbench.report.matches import read_match
from adaptive_ot.workbench.report.pictures import Drawn, saved
from commands import on_a_terminal, refused, summary
from reports import read_page

NAMES = np.array(["ant", "bee", "cat"])
CENTRES = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])


class Data:
    """Three classes; the target lacks the last, lies elsewhere, and has five outliers far away."""

    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 20)
    x = CENTRES[y] + rng.normal(size=(60, 2))
    truth = np.repeat([0, 1], 20)
    z = np.concatenate([CENTRES[truth] + rng.normal(size=(40, 2)) + [2, -1], rng.normal(40, 1, size=(5, 2))])
    strange = np.arange(45) >= 40
    both = np.concatenate([x, z])
    domain = np.repeat([0, -1], [60, 45])
    labels = np.concatenate([y, np.zeros(45, int)])


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A directory with source.npz, target.npz (without labels) and words.csv, known.csv (with words for labels)."""
    monkeypatch.chdir(tmp_path)
    np.savez("source.npz", x=Data.x, y=Data.y)
    np.savez("target.npz", x=Data.z)
    write_csv("words.csv", Data.x, NAMES[Data.y])
    write_csv("known.csv", Data.z, [*NAMES[Data.truth], *["yak"] * 5])
    return tmp_path


def write_csv(name, x, labels):
    rows = ((*map(repr, map(float, row)), label) for row, label in zip(x, labels, strict=True))
    Path(name).write_text("a,b,label\n" + "".join(",".join(row) + "\n" for row in rows))


def adapted(capsys, *arguments):
    return summary(capsys, "adapt", *arguments)


def predictions(path):
    with open(path, newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["index", "label", "outlier_score"]
    assert [row[0] for row in rows] == [str(k) for k in range(len(rows))]
    return [row[1] for row in rows], np.array([float(row[2]) for row in rows])


def test_joint(here, capsys):
    expected = JointTransportClassifier().fit(Data.both, Data.labels, sample_domain=Data.domain)
    shown = adapted(capsys, "source.npz", "target.npz", "--output", "labels.csv")
    assert shown["mass"] == expected.transported_mass_
    assert (shown["sources"], shown["targets"], shown["features"], shown["classes"]) == (60, 45, 2, 3)
    assert shown["active_sources"] == expected.active_source_.sum()
    assert shown["active_targets"] == expected.active_target_.sum() == 45 - shown["outlier_targets"]
    assert (shown["accuracy"], shown["targets_of_unknown_classes"]) == (None, None)
    labels, scores = predictions("labels.csv")
    assert labels == expected.predict(Data.z).astype(str).tolist()
    assert shown["predicted"] == {label: labels.count(label) for label in sorted(set(labels))}
    np.testing.assert_allclose(scores, expected.target_outlier_score_, rtol=1e-5, atol=1e-12)
    assert scores[Data.strange].min() > scores[~Data.strange].max()


def test_words_for_people(here, capsys):
    """Labels are words, some of them unknown to the source; programs read what people read."""
    assert main(["adapt", "words.csv", "known.csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    shown = {line.split()[0]: " ".join(line.split()[1:]) for line in lines[1:]}
    same = adapted(capsys, "words.csv", "known.csv")
    assert lines[0] == "Adaptive transport of 60 sources to 45 targets (joint)"
    assert shown["data"] == "2 features, 3 classes"
    assert shown["mass"] == f"{same['mass']:.6g} of at most {same['most_mass']:.6g}"
    assert same["overlap"] < 0.9  # cats are missing in the target
    assert min(same["class_presence"], key=same["class_presence"].get) == "cat"
    assert shown["adapted"].startswith("yes. " if same["adapted"] else "no. ")
    assert shown["overlap"].startswith(f"{same['overlap']:.2f} of 1")
    assert same["targets_of_unknown_classes"] == 5
    assert same["accuracy"] == pytest.approx(40 / 45)  # all but those that it cannot know
    assert shown["accuracy"].startswith(
        "88.9% of the target's labels, which were not used; 5 targets of classes unknown"
    )
    assert set(same["predicted"]) <= set(NAMES)


def test_labels_are_no_formulas(here, capsys):
    """Neither in the file nor in the report; numbers below zero stay numbers."""
    names = np.array(['=HYPERLINK("http://x")', "+1+1", "-1.5"])
    quoted = ['"' + name.replace('"', '""') + '"' for name in names]
    write_csv("formulas.csv", Data.x, [quoted[k] for k in Data.y])
    adapted(capsys, "formulas.csv", "target.npz", "--output", "labels.csv", "--report", "out")
    for path in ("labels.csv", "out/predictions.csv"):
        found = set(predictions(path)[0])
        assert found <= {f"'{names[0]}", f"'{names[1]}", names[2]}
        assert found & {f"'{names[0]}", f"'{names[1]}"}


def test_columns_are_matched_by_name(here, capsys):
    header, *rows = (line.split(",") for line in Path("known.csv").read_text().splitlines())
    Path("reversed.csv").write_text("\n".join(",".join(row[::-1]) for row in (header, *rows)))
    one, other = (adapted(capsys, "words.csv", target) for target in ("known.csv", "reversed.csv"))
    assert one | {"seconds": 0} == other | {"seconds": 0}


def test_rejected_targets(here, capsys):
    """Whoever receives no label is called as asked, and rightly so if the truth says the same."""
    options = "words.csv", "known.csv", "--method", "labels", "--reject", "yak", "-o", "labels.csv"
    shown = adapted(capsys, *options)
    expected = LabelTransportClassifier(reject_label="yak")
    expected.fit(Data.both, NAMES[Data.labels], sample_domain=Data.domain)
    labels, _ = predictions("labels.csv")
    assert labels == expected.predict(Data.z).tolist()
    assert labels[-5:] == ["yak"] * 5
    truth = [*NAMES[Data.truth], *["yak"] * 5]
    assert shown["accuracy"] == np.mean(np.array(labels) == truth)
    assert shown["targets_of_unknown_classes"] == 0
    Path("strangers.csv").write_text(Path("known.csv").read_text().replace("ant", "yak").replace("bee", "yak"))
    all_strange = adapted(capsys, "words.csv", "strangers.csv", *options[2:])
    assert all_strange["accuracy"] == np.mean(np.array(labels) == "yak")


@pytest.mark.parametrize("unknown", [-1, np.nan, "?"])
def test_targets_without_a_class_of_the_source_are_unlabelled(here, capsys, unknown):
    np.savez("unknown.npz", x=Data.z, y=np.full(45, unknown))
    shown = adapted(capsys, "source.npz", "unknown.npz", "-o", "labels.csv", "--report", "out")
    assert (shown["accuracy"], shown["targets_of_unknown_classes"]) == (None, None)
    is_label = unknown is not np.nan
    told = "those of the target are ignored: none of them is a class of the source"
    assert shown["labels_ignored"] == (told in read_page("out/report.html").text) == is_label
    assert main(["adapt", "source.npz", "unknown.npz"]) == 0
    assert (told in capsys.readouterr().out) == is_label
    assert (
        predictions("labels.csv")[0]
        == JointTransportClassifier()
        .fit(Data.both, Data.labels, sample_domain=Data.domain)
        .predict(Data.z)
        .astype(str)
        .tolist()
    )


def test_warnings_of_libraries_are_not_shown(here, capsys):
    """They are errors here, and stderr is empty: scikit-learn finds so many classes suspicious."""
    np.savez("many.npz", x=Data.x, y=np.arange(60))
    assert adapted(capsys, "many.npz", "target.npz")["classes"] == 60


def test_units_of_single_features_can_be_undone(here, capsys):
    units = np.array([1.0, 1024.0])
    np.savez("source_units.npz", x=Data.x * units, y=Data.y)
    np.savez("target_units.npz", x=Data.z * units)
    masses = [
        adapted(capsys, *files, *option)["mass"]
        for option in ([], ["--standardize"])
        for files in (("source.npz", "target.npz"), ("source_units.npz", "target_units.npz"))
    ]
    assert abs(masses[0] - masses[1]) > 1e-3
    assert masses[2] == pytest.approx(masses[3], abs=1e-9)
    adapted(
        capsys,
        "source_units.npz",
        "target_units.npz",
        "--standardize",
        "--method",
        "mapping",
        "-o",
        "moved.npz",
    )
    centre = Data.z[~Data.strange].mean(axis=0) * units  # in the units of the files again
    assert (np.abs(read_features("moved.npz").x.mean(axis=0) - centre) < 5 * units).all()


def test_mapping(here, capsys):
    shown = adapted(capsys, "source.npz", "target.npz", "--method", "mapping", "--output", "moved.npz")
    adapter = TransportAdapter().fit(Data.both, sample_domain=Data.domain)
    moved = read_features("moved.npz")  # features again
    np.testing.assert_allclose(moved.x, adapter.transform(Data.x, sample_domain=np.zeros(60, int)))
    np.testing.assert_array_equal(moved.y, Data.y)
    with np.load("moved.npz") as held:
        np.testing.assert_array_equal(held["share"], adapter.source_share_)
    assert (shown["mass"], shown["predicted"]) == (adapter.transported_mass_, None)
    assert main(["adapt", "target.npz", "source.npz", "--method", "mapping"]) == 0  # needs no labels
    assert "accuracy" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "parameters"),
    [
        (["--equal"], {"marginals": aot.Equal()}),
        (["--mass", "0.5"], {"marginals": aot.FixedMass(0.5)}),
        (["--tau", "0.5"], {"marginals": aot.SoftKL(0.5)}),
        (["--exact"], {"solver": aot.Exact()}),
        (["--exact", "--mass", "0.5"], {"marginals": aot.FixedMass(0.5), "solver": aot.Exact()}),
        (["--epsilon", "0.02", "--kappa", "2", "--beta", "3"], {"solver": aot.Entropic(0.02), "kappa": 2, "beta": 3}),
    ],
)
def test_options_reach_the_estimator(here, capsys, options, parameters):
    shown = adapted(capsys, "source.npz", "target.npz", *options)
    expected = JointTransportClassifier(**parameters).fit(Data.both, Data.labels, sample_domain=Data.domain)
    assert shown["mass"] == expected.transported_mass_
    labels, counts = np.unique(expected.predict(Data.z), return_counts=True)
    assert shown["predicted"] == dict(zip(map(str, labels), counts.tolist(), strict=True))
    assert shown["model"] == parameters.get("marginals", aot.AtMost()).title


def test_labels_of_targets_are_not_used(here, capsys):
    """Misleading labels change the accuracy, and nothing else."""
    write_csv("lies.csv", Data.z, NAMES[[*(1 - Data.truth), 2, 2, 2, 2, 2]])
    good, bad = (adapted(capsys, "words.csv", target, "-o", f"from_{target}") for target in ("known.csv", "lies.csv"))
    assert Path("from_known.csv").read_text() == Path("from_lies.csv").read_text()
    assert good["mass"] == bad["mass"]
    assert bad["accuracy"] < 0.2 < good["accuracy"]


@pytest.mark.parametrize(
    ("options", "written"),
    [
        ("words.csv known.csv", {"predictions.csv", "plan.png", "labels.png"}),
        ("source.npz target.npz", {"predictions.csv", "plan.png", "labels.png"}),
        ("source.npz target.npz --method labels --reject ?", {"predictions.csv", "plan.png", "labels.png"}),
        ("source.npz target.npz --method mapping", {"moved.npz", "plan.png"}),
        ("words.csv known.csv --method mapping", {"moved.npz", "plan.png", "labels.png"}),
    ],
)
def test_report(here, capsys, options, written):
    shown = adapted(capsys, *options.split(), "--report", "made/report")
    folder = Path("made/report")
    dark = {name.replace(".", "_dark.") for name in written if name.endswith(".png")}
    expected = written | dark | {"summary.json", "match.npz", "report.html"}
    assert {path.name for path in folder.iterdir()} == expected
    assert {Path(path).name for path in shown["report"]} == expected
    kept = json.loads((folder / "summary.json").read_text())
    assert kept.pop("report") == [Path(path).name for path in shown.pop("report")]
    assert {name: kept.pop(name) for name in shown} == shown
    assert set(kept) == {"kind", "complete", "pairs_kept", "configuration", "environment"}
    for picture in folder.glob("*.png"):
        assert picture.read_bytes()[1:4] == b"PNG"
    if "predictions.csv" in written:
        assert len(predictions(folder / "predictions.csv")[0]) == 45
    assert main(["adapt", *options.split(), "--report", "made/report"]) == 0  # over the old one
    assert f"{folder / 'report.html'}, with {len(expected) - 1} files beside it" in capsys.readouterr().out


def test_report_draws_predicted_labels_where_there_are_no_others(here, monkeypatch, capsys):
    drawn = {}

    def draw(solution, sources, targets):
        drawn[solution.mass] = sources, targets
        return plot.transport(solution, Data.x, Data.z)

    monkeypatch.setattr("adaptive_ot.workbench.cli.adapt_report.plot.label_plan", draw)
    shown = adapted(capsys, "source.npz", "target.npz", "--report", "out")
    (sources, targets), = drawn.values()  # fmt: skip
    np.testing.assert_array_equal(sources, Data.y)
    assert {str(label): int(np.sum(targets == label)) for label in np.unique(targets)} == shown["predicted"]


@pytest.mark.parametrize("files", ["source.npz target.npz", "words.csv known.csv"])
def test_pictures_and_captions_say_which_classes_of_the_target_they_show(here, monkeypatch, capsys, files):
    """Predicted ones, where the file has none."""
    axes = []

    def draw(make):
        axes.append(make())
        return Drawn(*(saved(lambda: axes[-1], theme, "png") for theme in ("light", "dark")))

    monkeypatch.setattr("adaptive_ot.workbench.cli.adapt_report.drawn", draw)
    adapted(capsys, *files.split(), "--report", "out")
    labels, text = {ax.get_xlabel() for ax in axes}, read_page("out/report.html").text
    if files.startswith("source"):
        assert labels == {"targets by predicted class", "predicted target class"}
        assert "Mass between classes and predicted classes" in text
        assert "every predicted class of the target receives" in text
    else:
        assert labels == {"targets by class", "target class"}
        assert "predicted class of the target" not in text


def test_a_page_says_what_weighs_and_what_it_counts(here, capsys):
    """No source sends more than it has; the limit of the mass is one number everywhere, and is explained."""
    shown = adapted(capsys, "words.csv", "known.csv", "--report", "out")
    match, page = read_match(Path("out/match.npz")), read_page("out/report.html")
    for side, index in ((match.source, match.rows), (match.target, match.columns)):
        moved = np.bincount(index, match.mass, len(side.names))
        assert (moved <= side.weights * (1 + 1e-5) + 1e-12).all()
    assert match.source.weights.sum() == pytest.approx(shown["most_mass"])
    assert f"mass {shown['mass']:.6g} of at most {shown['most_mass']:.6g}" in page.text
    assert "each class of the source weighs what the target seems to hold of it" in page.text
    assert f"{shown['active_targets']} of 45: more than half of each is matched" in page.text
    expected = JointTransportClassifier().fit(Data.both, NAMES[Data.labels], sample_domain=Data.domain)
    assert shown["active_targets"] == np.sum(expected.target_share_ > 0.5)
    adapted(capsys, "words.csv", "known.csv", "--equal", "--report", "out")
    text = read_page("out/report.html").text
    assert "of at most 1 " in text
    assert "do not weigh the same" not in text


def test_report_of_several_plans_has_no_pictures(here, monkeypatch, capsys):
    monkeypatch.setattr(
        "adaptive_ot.adapt.JointTransportClassifier", lambda **o: JointTransportClassifier(**o, batch_size=30)
    )
    assert main(["adapt", "source.npz", "target.npz", "--report", "out"]) == 0
    assert "none: this many samples take several plans" in capsys.readouterr().out
    assert {path.name for path in Path("out").iterdir()} == {"predictions.csv", "summary.json", "report.html"}


def test_a_report_takes_the_place_of_an_older_one(here, capsys):
    Path("out").mkdir()
    adapted(capsys, "source.npz", "target.npz", "--report", "out")
    Path("out/notes.txt").touch()
    shown = adapted(capsys, "source.npz", "target.npz", "--report", "out", "--method", "mapping")
    written = {"summary.json", "moved.npz", "match.npz", "plan.png", "plan_dark.png", "report.html"}
    assert {path.name for path in Path("out").iterdir()} == written | {"notes.txt"}
    assert {Path(path).name for path in shown["report"]} == written


def test_a_failed_report_leaves_no_half_file(here, monkeypatch, capsys):
    def fail(file, **_):
        file.write(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("numpy.savez", fail)
    assert main(["adapt", "source.npz", "target.npz", "--method", "mapping", "--report", "out"]) == 2
    assert "--report 'out/moved.npz' must be a place to write to; got No space left" in capsys.readouterr().err
    assert [path.name for path in Path("out").iterdir()] == ["summary.json"]
    assert main(["report", "out"]) == 2
    assert "report 'out' must be complete; got the summary.json of one that was interrupted" in capsys.readouterr().err


def test_labels_with_commas_and_quotes(here, capsys):
    """Nor do they trouble pictures: neither mathematics nor letters that the font does not have."""
    names = ['a,"b"', "$^$d", "c\nd 蟻"]
    np.savez("odd.npz", x=Data.x, y=np.array(names)[Data.y])
    adapted(capsys, "odd.npz", "target.npz", "-o", "labels.csv", "--report", "out")
    assert set(predictions("labels.csv")[0]) <= set(names)
    assert Path("out/labels.png").exists()


def test_seed_decides_about_batches_only(here, monkeypatch, capsys):
    one, other = (adapted(capsys, "source.npz", "target.npz", "--seed", seed)["mass"] for seed in (0, 1))
    assert one == other
    monkeypatch.setattr(
        "adaptive_ot.adapt.JointTransportClassifier", lambda **o: JointTransportClassifier(**o, batch_size=20)
    )
    masses = [adapted(capsys, "source.npz", "target.npz", "--seed", seed)["mass"] for seed in (0, 0, 1)]
    assert masses[0] == masses[1] != masses[2]


def test_progress_only_on_a_terminal(here):
    code, output, seen = on_a_terminal(["adapt", "source.npz", "target.npz"])
    assert code == 0
    assert output.startswith("Adaptive transport of 60 sources to 45 targets")
    assert "adapting 60 sources and 45 targets" in seen


# Arguments beside good files, and a part of the message.
REFUSED = [
    ("source.npz", "TARGET"),
    ("missing.npz target.npz", "source file 'missing.npz' must exist"),
    ("source.npz missing.npz", "target file 'missing.npz' must exist"),
    ("source.npz target.txt", "target file 'target.txt' must end in .npz, .csv, .parquet or .safetensors; got '.txt'"),
    ("source.npz folder.npz", "target file 'folder.npz' must be a file"),
    ("source.npz source.npz", "target file 'source.npz' must be another file than the source"),
    ("source.npz folder.npz/../source.npz", "must be another file than the source"),
    ("target.npz source.npz", "source file 'target.npz' must hold an array 'y'"),
    ("short.npz target.npz", "source file 'short.npz' must hold one label for each of its 60 samples"),
    ("source.npz wide.npz", "target file 'wide.npz' must have as many features as the source (2); got 4"),
    ("words.csv renamed.csv", "target file 'renamed.csv' must have the columns of the source; got 'c' instead of 'b'"),
    ("source.npz holes.npz", "target file 'holes.npz' must hold finite numbers; got nan in row 0, column 0"),
    ("source.npz huge.npz", "target file 'huge.npz' must hold numbers up to 1e+100"),
    ("source.npz target.npz --method magic", "--method"),
    ("source.npz target.npz --kappa -1", "--kappa must be a number from 0"),
    ("source.npz target.npz --beta nan", "--beta must be a number from 0"),
    ("source.npz target.npz --epsilon 0", "--epsilon must be positive"),
    ("source.npz target.npz --tau 0", "--tau must be a number from"),
    ("source.npz target.npz --mass 2", "--mass must be at most 1, which is all; got 2. Choose a smaller one."),
    ("source.npz target.npz --mass -1", "--mass must be a number from 0"),
    ("source.npz target.npz --equal --mass 0.5", "--equal does not go with another model"),
    ("source.npz target.npz --exact --epsilon 0.1", "--exact does not go with --epsilon"),
    ("source.npz target.npz --exact --tau 1", "--exact does not go with --tau; got 1. Omit one of them."),
    ("source.npz target.npz --seed -1", "--seed must be a whole number from 0 to 4294967295"),
    ("source.npz target.npz --seed 4294967296", "--seed must be a whole number from 0 to 4294967295"),
    ("source.npz target.npz --reject no", "--reject goes with --method labels; got --method joint"),
    ("source.npz target.npz --method mapping --reject no", "--reject goes with --method labels"),
    ("source.npz target.npz --method labels --reject=", "--reject must be a word; got nothing"),
    ("source.npz target.npz --method labels --reject 2", "--reject must not be a class of the source; got '2'"),
    ("source.npz target.npz --method mapping --kappa 1", "--kappa goes with --method joint or labels"),
    ("source.npz target.npz --method mapping --beta 1", "--beta goes with --method joint or labels"),
    ("source.npz target.npz --output labels.npz", "--output 'labels.npz' must end in .csv"),
    ("source.npz target.npz --method mapping --output moved.csv", "--output 'moved.csv' must end in .npz"),
    ("source.npz target.npz --method mapping --output source.npz", "must not be one of the inputs"),
    ("words.csv known.csv --output known.csv", "--output 'known.csv' must not be one of the inputs"),
    ("source.npz target.npz --output no/labels.csv", "must lie in a directory that exists"),
    ("source.npz target.npz --report source.npz", "--report 'source.npz' must be a directory"),
    ("source.npz target.npz --report source.npz/below", "must be a directory"),
    ("predictions.csv known.csv --report .", "--report 'predictions.csv' must not be one of the inputs"),
    ("predictions.csv known.csv --report . --method mapping", "must not be one of the inputs"),
]


@pytest.mark.parametrize(("line", "message"), REFUSED, ids=[line for line, _ in REFUSED])
def test_refusals(here, capfd, line, message):
    np.savez("short.npz", x=Data.x, y=Data.y[:5])
    np.savez("wide.npz", x=np.hstack([Data.z, Data.z]))
    np.savez("holes.npz", x=Data.z * np.nan)
    np.savez("huge.npz", x=Data.z * 1e200)
    Path("target.txt").write_text("1,2\n")
    Path("renamed.csv").write_text(Path("known.csv").read_text().replace("a,b", "a,c"))
    Path("folder.npz").mkdir()
    if "predictions" in line:
        Path("words.csv").rename("predictions.csv")
    refused(capfd, ["adapt", *line.split()], message)


def test_too_little_memory(here, monkeypatch, capfd):
    def exhausted(*_, **__):
        raise MemoryError

    monkeypatch.setattr(JointTransportClassifier, "fit", exhausted)
    assert main(["adapt", "source.npz", "target.npz"]) == 2
    complaint = "source and target must fit into memory; got 60 and 45 samples of 2 features. Give fewer samples.\n"
    assert capfd.readouterr().err == f"adaptive-ot: {complaint}"


@pytest.mark.parametrize("option", ["--output", "--report"])
def test_places_that_are_not_open_to_us(here, monkeypatch, capfd, option):
    """Refused before the work; permissions are made up, because nothing is closed to an administrator."""
    monkeypatch.setattr("os.access", lambda *_: False)
    monkeypatch.setattr("adaptive_ot.workbench.cli.adapt._adapted", None)
    place = "labels.csv" if option == "--output" else "."
    assert main(["adapt", "source.npz", "target.npz", option, place]) == 2
    captured = capfd.readouterr()
    assert f"{option} '" in captured.err
    assert "must lie in a directory open to you" in captured.err
