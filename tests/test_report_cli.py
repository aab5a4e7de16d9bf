"""``adaptive-ot solve --report``, ``adapt --report`` and ``report``: what they write, and what they refuse."""

import json
import math
import os
import shlex
import shutil
import warnings
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

import adaptive_ot as aot
from adaptive_ot import plot
from adaptive_ot.adapt import JointTransportClassifier
from adaptive_ot.plot.canvas import colours
from adaptive_ot.workbench.cli import main
from adaptive_ot.workbench.cli.samples import TOY_COST, moons_with_outliers
from adaptive_ot.workbench.report import recorded, write_report
from adaptive_ot.workbench.report.fields import folded
from adaptive_ot.workbench.report.matches import read_match
from adaptive_ot.workbench.report.pictures import Drawn, saved
from adaptive_ot.workbench.report.record import read_record
from commands import on_a_terminal, refused
from reports import HOSTILE_NAMES, png, read_page

CENTRES = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])
BLACK = png(np.zeros((2, 2)))
PICTURES = {"transport.png", "transport_dark.png", "plan.png", "plan_dark.png"}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Reports of small problems, which nobody changes."""
    folder = tmp_path_factory.mktemp("made")
    np.save(folder / "cost.npy", TOY_COST)
    clouds = moons_with_outliers(size=60)
    for name, points in (("x", clouds.x), ("z", clouds.z)):
        np.save(folder / f"{name}.npy", points)
    rng = np.random.default_rng(0)
    y, truth = np.repeat([0, 1, 2], 12), np.repeat([0, 1], 12)
    names = np.array(["ant", "bee", "cat"])
    write_csv(folder / "source.csv", CENTRES[y] + rng.normal(size=(36, 2)), names[y])
    write_csv(folder / "target.csv", CENTRES[truth] + rng.normal(size=(24, 2)) + [2, -1], names[truth])
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["solve", "cost.npy", "--report", "toy"]) == 0
        assert main(["solve", "x.npy", "z.npy", "--reach", "0.3", "--epsilon", "0.01", "--report", "moons"]) == 0
        assert main(["adapt", "source.csv", "target.csv", "--report", "adapted"]) == 0
    return folder


@pytest.fixture
def here(made, tmp_path, monkeypatch):
    """A copy of all that, to work in."""
    shutil.copytree(made, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


@pytest.fixture
def undrawn(monkeypatch):
    """Pictures take longest, and are the same everywhere."""
    monkeypatch.setattr("adaptive_ot.workbench.cli.solve_report.drawn", lambda _: Drawn(BLACK, BLACK))


def write_csv(path, x, labels, columns="size,weight"):
    rows = ((*map(repr, map(float, row)), label) for row, label in zip(x, labels, strict=True))
    path.write_text(f"{columns},label\n" + "".join(",".join(row) + "\n" for row in rows))


# What they hold


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
@pytest.mark.usefixtures("here", "undrawn")
def test_a_report_that_is_replaced_keeps_its_permissions():
    for _ in range(2):
        assert main(["solve", "cost.npy", "--report", "private"]) == 0
        for path in Path("private").iterdir():
            path.chmod(0o600)
    assert main(["solve", "cost.npy", "--report", "private"]) == 0
    assert {path.stat().st_mode & 0o777 for path in Path("private").iterdir()} == {0o600}


def test_a_solve(made):
    summary = json.loads((made / "toy" / "summary.json").read_text())
    assert {path.name for path in (made / "toy").iterdir()} == PICTURES | {"summary.json", "match.npz", "report.html"}
    assert (summary["kind"], summary["status"], summary["configuration"]["cost"]) == ("solve", "optimal", "cost.npy")
    page, solution = read_page(made / "toy" / "report.html"), aot.solve(TOY_COST)
    assert page.texts("title")[0].startswith("Adaptive transport: 6 sources to 5 targets")
    for text in (
        "status optimal: the gap is certified to be within tolerance",
        "value -0.733333333333",
        f"certified gap {summary['gap']:.3g}:",
        f"violation {solution.violation:.3g}:",
        "mass 0.733333333333 of at most 1 (73.3%)",
        "left alone 1 source and 1 target",
        f"numpy {np.__version__}",
        "cost cost.npy",
    ):
        assert text in page.text
    rows, columns, mass = solution.support
    pairs = page.data["pairs"]
    found = dict(zip(zip(pairs["source"], pairs["target"], strict=True), pairs["mass"], strict=True))
    assert found == pytest.approx(
        dict(zip(zip(rows.tolist(), columns.tolist(), strict=True), mass, strict=True)), rel=1e-5
    )
    assert page.data["source"]["names"] == ["#0", "#1", "#2", "#3", "#4", "#5"]
    assert "x1 is source #0, z1 is target #0" in page.text  # as the picture has it
    assert "x1 is source" not in read_page(made / "moons" / "report.html").text


def test_a_solve_of_points_with_entropy(made):
    """Coordinates are shown, and how the solver came to its answer."""
    record, x, z = read_record(made / "moons"), np.load(made / "x.npy"), np.load(made / "z.npy")
    assert set(record.pictures) == {"transport", "plan", "convergence"}
    assert record.match is not None
    solution = aot.solve(aot.DistanceCost(x, z, 0.3), solver=aot.Entropic(0.01))
    np.testing.assert_array_equal(record.match.source.values, x)
    np.testing.assert_array_equal(record.match.target.values, z)
    plan = np.zeros((60, 60))
    plan[record.match.rows, record.match.columns] = record.match.mass
    np.testing.assert_allclose(plan, solution.plan.toarray(), rtol=1e-9, atol=1e-15)
    text = read_page(made / "moons" / "report.html").text
    assert f"value {record.summary.number('value'):.12g}" in text
    assert f"with entropy {record.summary.number('regularised_value'):.12g}" in text
    assert "Convergence" in text


@pytest.mark.parametrize("columns", [("height", "width"), ("width", "height")])
def test_headings_of_points_are_kept(tmp_path, columns):
    """The names in the first line describe the points; the columns of the targets take the order of the sources."""
    x, z = [[1.0, 5.0], [2.0, 6.0]], np.array([[5.1, 1.1], [9.0, 9.0]])
    np.savetxt(tmp_path / "x.csv", x, delimiter=",", header="height,width", comments="")
    np.savetxt(tmp_path / "z.csv", z, delimiter=",", header=",".join(columns), comments="")
    paths = [str(tmp_path / name) for name in ("x.csv", "z.csv", "out")]
    assert main(["solve", *paths[:2], "--reach", "0.5", "--report", paths[2]]) == 0
    page = read_page(tmp_path / "out" / "report.html")
    assert page.data["source"]["columns"] == page.data["target"]["columns"] == ["height", "width"]
    record = read_record(tmp_path / "out")
    assert record.match is not None
    np.testing.assert_array_equal(record.match.target.values, z if columns[0] == "height" else z[:, ::-1])
    assert len(record.match.rows) == (columns[0] == "width")


def test_other_headings_stay_beside_each_other(tmp_path):
    """Coordinates of other names are compared by their places; without names they are numbered."""
    (tmp_path / "x.csv").write_text("a,a\n1,2\n")
    (tmp_path / "z.csv").write_text("c,d\n1,2\n")
    (tmp_path / "u.csv").write_text("1,2\n")
    for target, names in (("z", ["c", "d"]), ("u", ["axis 0", "axis 1"])):
        paths = [str(tmp_path / name) for name in ("x.csv", f"{target}.csv", f"out_{target}")]
        assert main(["solve", *paths[:2], "--reach", "1", "--report", paths[2]]) == 0
        page = read_page(tmp_path / f"out_{target}" / "report.html")
        assert (page.data["source"]["columns"], page.data["target"]["columns"]) == (["a", "a"], names)


def test_an_adaptation(made):
    summary = json.loads((made / "adapted" / "summary.json").read_text())
    page = read_page(made / "adapted" / "report.html")
    assert f"accuracy {summary['accuracy']:.1%} of the target's labels, which were not used" in page.text
    assert f"mass {summary['mass']:.6g} of at most {summary['most_mass']:.6g}" in page.text
    assert f"certified gap {summary['gap']:.3g}" in page.text
    assert (page.data["source"]["columns"], page.data["target"]["columns"]) == (["size", "weight"],) * 2
    assert page.data["classes"] == ["ant", "bee", "cat"]
    predicted = [line.split(",")[1] for line in (made / "adapted" / "predictions.csv").read_text().splitlines()[1:]]
    assert [page.data["classes"][k] for k in page.data["target"]["predicted"]] == predicted
    assert page.data["mass"] == pytest.approx(summary["mass"], rel=1e-5)


def test_pages_are_made_anew_from_the_record_alone(here, capsys):
    for name in ("toy", "moons", "adapted"):
        before = (here / name / "report.html").read_bytes()
        for given in ("cost.npy", "x.npy", "source.csv"):
            (here / given).unlink(missing_ok=True)
        assert main(["report", name, "-o", "other.html"]) == 0
        assert capsys.readouterr().out == "  report      other.html\n"
        assert (here / "other.html").read_bytes() == before
    (here / "toy" / "report.html").unlink()
    assert main(["report", "toy"]) == 0
    read_page("toy/report.html")


def test_json_and_files(here, undrawn, capsys):
    """Programs are told all files, people where the page is; what is printed is a part of what is kept."""
    assert main(["solve", "cost.npy", "--json", "--report", "new/deep"]) == 0
    captured = capsys.readouterr()
    shown = json.loads(captured.out)
    assert shown["report"][-1] == "new/deep/report.html"
    assert {Path(path).name for path in shown["report"]} == {path.name for path in Path("new/deep").iterdir()}
    kept = json.loads(Path("new/deep/summary.json").read_text())
    assert kept["report"] == [Path(path).name for path in shown.pop("report")]
    assert {name: kept[name] for name in shown} == shown
    assert main(["solve", "cost.npy", "--report", "new/deep"]) == 0
    assert "report      new/deep/report.html, with 6 files beside it" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("cost", "options", "code", "sentence"),
    [
        (np.abs(TOY_COST), [], 0, "Nothing moves: no pair pays off."),
        (TOY_COST, ["--max-pivots", "2"], 3, "The solver did not reach its tolerance: stopped at the pivot limit"),
    ],
)
def test_solves_with_a_note(here, undrawn, capsys, cost, options, code, sentence):
    np.save("other.npy", cost)
    assert main(["solve", "other.npy", *options, "--report", "new"]) == code
    page = read_page("new/report.html")
    assert sentence in page.text
    assert (page.data["mass"] == 0) == (code == 0)


def test_too_many_samples_to_look_at(here, undrawn, monkeypatch, capsys):
    monkeypatch.setattr("adaptive_ot.workbench.cli.solve_report.MOST_SAMPLES", 5)
    assert main(["solve", "cost.npy", "--report", "many"]) == 0
    assert not Path("many/match.npz").exists()
    page = read_page("many/report.html")
    assert page.data is None
    assert "There are too many samples to look at them one by one" in page.text


def test_very_many_pairs_are_told(here, undrawn, monkeypatch, capsys):
    monkeypatch.setattr("adaptive_ot.workbench.report.matches.MOST_PAIRS", 3)
    assert main(["solve", "cost.npy", "--report", "many"]) == 0
    heaviest = np.sort(aot.solve(TOY_COST).support[2])[-3:].sum()
    share = heaviest / (11 / 15)
    told = f"The 3 heaviest of 7 pairs are kept: they carry {share:.1%} of the mass."
    assert told in read_page("many/report.html").text
    assert json.loads(Path("many/summary.json").read_text())["pairs_kept"] == 3


def test_the_environment_can_be_read_and_pasted(here, undrawn, monkeypatch, capsys):
    Path("my costs").mkdir()
    shutil.copy("cost.npy", "my costs/a.npy")
    command = ["adaptive-ot", "solve", "my costs/a.npy", "--report", "new"]
    monkeypatch.setattr("sys.argv", command)
    assert main(command[1:]) == 0
    text = read_page("new/report.html").text
    assert f"command {shlex.join(command)} " in text
    assert folded("", {"accelerators": [], "names": ["a", "b"]}).rows == [("accelerators", "none"), ("names", "a, b")]


def test_an_older_report_is_replaced_and_strangers_stay(here, undrawn, capsys):
    Path("moons/notes.txt").write_text("mine")
    assert main(["solve", "cost.npy", "--report", "moons"]) == 0
    assert {path.name for path in Path("moons").iterdir()} == (
        PICTURES | {"summary.json", "match.npz", "report.html", "notes.txt"}
    )
    assert "6 sources to 5 targets" in read_page("moons/report.html").texts("title")[0]


def test_progress_on_a_terminal(here):
    code, output, seen = on_a_terminal(["report", "toy"])
    assert (code, "report      toy/report.html" in output) == (0, True)
    assert "writing toy/report.html" in seen


# Hostile names


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """The same adaptation twice: with harmless and with hostile names of classes and columns."""
    folder = tmp_path_factory.mktemp("hostile")
    rng = np.random.default_rng(1)
    y = np.arange(36) % 6
    x = 9 * rng.normal(size=(6, 2))[y] + rng.normal(size=(36, 2))
    for kind, names in (("tame", [f"class {k}" for k in range(6)]), ("wild", HOSTILE_NAMES)):
        np.savez(folder / f"{kind}_source.npz", x=x, y=np.array(names)[y])
        np.savez(folder / f"{kind}_target.npz", x=x + 1, y=np.array(names)[y])
        files = [str(folder / f"{kind}_{side}.npz") for side in ("source", "target")]
        assert main(["adapt", *files, "--report", str(folder / kind)]) == 0
    return folder


def test_hostile_classes_are_only_text(hostile):
    tame, wild = (read_page(hostile / kind / "report.html") for kind in ("tame", "wild"))
    shapes = [sorted((tag, *attributes) for tag, attributes in page.elements) for page in (tame, wild)]
    assert shapes[0] == shapes[1]
    assert set(wild.data["classes"]) == {*HOSTILE_NAMES}
    assert "<script>alert(1)</script>" in wild.text


def test_the_match_of_hostile_names_comes_back(hostile):
    match = read_match(hostile / "wild" / "match.npz")
    assert match.source.labels == [HOSTILE_NAMES[k % 6] for k in range(36)]
    arrays = np.load(hostile / "wild" / "match.npz", allow_pickle=False)
    assert {arrays[name].dtype.kind for name in arrays.files} <= set("Ufiu")


# What is no report, or a broken one


def test_what_is_no_report(here, capfd):
    Path("empty").mkdir()
    Path("other").mkdir()
    for name in "abcd":
        Path("other", name).touch()
    refused(capfd, ["report", "nowhere"], "path 'nowhere' must exist; got no such directory")
    refused(capfd, ["report", "cost.npy"], "path 'cost.npy' must be a directory; got a file")
    refused(capfd, ["report", "empty"], "got an empty directory")
    rule = "must hold a training run, a benchmark, or what 'adaptive-ot solve' or 'adapt' wrote with --report"
    refused(capfd, ["report", "other"], f"{rule}; got one with a, b, c and 1 more")


BROKEN = [
    *(b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 900 + b"1" + b"}" * 900, b"{}"),
    b'{"kind": "solve"}',
    b'{"kind": ["solve"], "report": []}',
    b'{"kind": "solve", "report": [1]}',
    *(b'{"kind": "solve", "report": []}', b'{"kind": "adaptation", "report": []}'),
]


@pytest.mark.parametrize("content", BROKEN, ids=lambda content: content[:30].decode("latin1"))
def test_a_summary_that_was_broken(here, capfd, content):
    Path("toy/summary.json").write_bytes(content)
    refused(capfd, ["report", "toy"], "summary.json")


@pytest.mark.parametrize("value", [None, "much", [1], {"a": 1}, True, 10**400], ids=lambda value: str(value)[:9])
@pytest.mark.parametrize("name", ["toy", "adapted"])
def test_fields_of_the_wrong_kind(here, name, value):
    """Each is refused by name, or can be shown."""
    path = Path(name, "summary.json")
    original = json.loads(path.read_text())
    refused = {}
    for field in original:
        path.write_text(json.dumps(original | {field: value}))
        try:
            recorded.page_of(read_record(Path(name)))
        except aot.InvalidInput as error:
            refused[field] = str(error)
    assert all(f"'{field}'" in message or "summary.json" in message for field, message in refused.items())
    expected = {"kind", "model", "mass", "sources", "configuration", "report"}
    possible = {"model"} if isinstance(value, str) else {"configuration"} if isinstance(value, dict) else set()
    assert expected - possible <= set(refused)


@pytest.mark.parametrize("name", ["match.npz", "plan.png", "transport_dark.png"])
def test_a_file_that_is_missing(here, capfd, name):
    Path("toy", name).unlink()
    refused(capfd, ["report", "toy"], f"report 'toy' must hold its {name}; got no such file")


def test_pictures_that_are_none(here, capfd):
    half = Path("toy/plan_dark.png").read_bytes()[:-9]
    for content, rule in (
        (b"<svg onload=alert(1)>", "must be a PNG or JPEG; got bytes that begin with b'<svg onl'"),
        (b"", "must be a PNG or JPEG; got bytes that begin with b''"),
        (half, "must be a whole PNG"),
    ):
        Path("toy/plan.png").write_bytes(content)
        refused(capfd, ["report", "toy"], f"'toy/plan.png' {rule}")


# Arrays that no longer fit together. `TestMatches` breaks every rule in memory, these are what a file adds.
DAMAGED = {
    "rows out of range": {"rows": np.array([0, 1, 2, 3, 4, 5, 6])},
    "infinite mass": {"mass": np.full(7, np.inf)},
    "fewer names": {"source_names": np.array(["a"])},
    "names of numbers": {"source_names": np.arange(6)},
    "names in two dimensions": {"source_names": np.array([["a"] * 6])},
    "images that are none": {"source_images": np.zeros(6, np.uint8), "source_image_ends": np.arange(1, 7)},
    "images without ends": {"source_images": np.zeros(6, np.uint8)},
    "values in one dimension": {"source_values": np.zeros(6)},
}


@pytest.mark.parametrize("way", DAMAGED)
def test_a_match_that_was_tampered_with(here, capfd, way):
    np.savez("toy/match.npz", **(dict(np.load("toy/match.npz")) | DAMAGED[way]))
    refused(capfd, ["report", "toy"], "'toy/match.npz' must hold a match")


def test_a_match_of_another_problem(here, capfd):
    shutil.copy("moons/match.npz", "toy/match.npz")
    rule = "must hold the 6 sources and 5 targets and 7 pairs of the summary.json"
    refused(capfd, ["report", "toy"], f"'toy/match.npz' {rule}; got 60")


IMPOSSIBLE = [
    *(("toy", "mass", value) for value in (math.nan, -1.0)),
    *(("toy", field, value) for field, value in (("most_mass", math.inf), ("value", math.nan), ("seconds", -1))),
    *(("toy", "active_sources", 7), ("adapted", "active_targets", 25), ("adapted", "mass", math.inf)),
    *(("adapted", "accuracy", value) for value in (math.inf, 1.5)),
    *(("adapted", "predicted", {"ant": count}) for count in (0.5, -1)),
]


@pytest.mark.parametrize(("name", "field", "value"), IMPOSSIBLE)
def test_numbers_that_cannot_be(here, capfd, name, field, value):
    path = Path(name, "summary.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}).replace("Infinity", "1e400"))
    key = "ant" if isinstance(value, dict) else field
    refused(capfd, ["report", name], f"'{path}' must hold '{key}' as a")


def test_a_match_that_is_torn_or_a_pickle(here, capfd):
    whole = Path("toy/match.npz").read_bytes()
    for content in (b"", whole[: len(whole) // 2], b"PK" + whole[2:-40], whole[:200] + bytes(64) + whole[264:]):
        Path("toy/match.npz").write_bytes(content)
        refused(capfd, ["report", "toy"], "'toy/match.npz' must hold a match")
    np.savez("toy/match.npz", rows=np.array([object()], object))
    refused(capfd, ["report", "toy"], "'toy/match.npz' must hold a match; got Object arrays")


# Places that will not do


def test_directories_that_hold_something_else(here, monkeypatch, capfd):
    """Refused before the work starts."""
    rule = "must be new, empty, or hold an older report"
    monkeypatch.setattr("adaptive_ot.solve", None)
    monkeypatch.setattr(JointTransportClassifier, "fit", None)
    Path("mine").mkdir()
    Path("mine/photo.jpg").touch()
    for command in (["solve", "cost.npy"], ["adapt", "source.csv", "target.csv"]):
        refused(capfd, [*command, "--report", "mine"], f"--report 'mine' {rule}; got one with photo.jpg")
        refused(capfd, [*command, "--report", "cost.npy"], "must be a directory")
    Path("mine/summary.json").write_text('{"kind": "another program\'s"}')
    refused(capfd, ["solve", "cost.npy", "--report", "mine"], rule)
    for mine, content in (("summary.json", '{"mine": 1}'), ("plan.png", "a"), ("predictions.csv", "b")):
        folder = Path(f"only {mine}")
        folder.mkdir()
        (folder / mine).write_text(content)
        refused(capfd, ["solve", "cost.npy", "--report", str(folder)], f"{rule}; got one with {mine}")
    Path("toy/predictions.csv").write_text("mine, beside a report of a solve")
    taken = "must hold no other file of a name that a report needs; got one with predictions.csv"
    refused(capfd, ["adapt", "source.csv", "target.csv", "--report", "toy"], taken)
    Path("box").mkdir()
    shutil.copy("cost.npy", "box/match.npz")
    refused(capfd, ["solve", "box/match.npz", "--report", "box"], "must not be one of the inputs")


@pytest.mark.parametrize("folder", ["left", "moons"])  # a new one, and an older report
def test_what_an_interrupted_process_left(here, undrawn, monkeypatch, capfd, folder):
    """It is told for what it is, never for a report of two problems; and is no hindrance."""

    with monkeypatch.context() as patch:
        patch.setattr("adaptive_ot.workbench.report.record.write_match", Mock(side_effect=KeyboardInterrupt))
        assert main(["solve", "cost.npy", "--report", folder]) == 130
    capfd.readouterr()
    given = "the summary.json of one that was interrupted"
    refused(capfd, ["report", folder], f"report '{folder}' must be complete; got {given}. Give")
    assert not Path(folder, "report.html").exists()
    Path(folder, ".plan.png.1234.tmp").touch()
    Path(folder, "plan.png").write_bytes(b"half")
    assert main(["solve", "cost.npy", "--report", folder]) == 0
    assert read_record(Path(folder)).summary.whole("sources") == 6
    assert not Path(folder, "convergence.png").exists()


def test_a_solve_that_is_refused_leaves_no_directory(here, capfd):
    np.save("bad.npy", TOY_COST * np.nan)
    refused(capfd, ["solve", "bad.npy", "--report", "new/deep"], "NaN")
    Path("link").symlink_to("nowhere")
    for place in ("cost.npy/below", "link", "link/below"):
        message = f"--report '{place}' must be a directory to write to; got '"
        refused(capfd, ["solve", "bad.npy", "--report", place], message)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("-o page.txt", "--output 'page.txt' must end in .html; got '.txt'"),
        ("-o page", "must end in .html; got no suffix"),
        ("-o nowhere/page.html", "must lie in a directory that exists; got 'nowhere'"),
        ("-o folder.html", "must be a file; got a directory"),
        ("-o cost.npy/page.html", "must lie in a directory that exists"),
        ("--root .", "--root goes with a training run; got 'toy', which is none"),
        ("--samples 5", "--samples goes with a training run; got 'toy'"),
        ("--device cpu", "--device goes with a training run; got 'toy'"),
        ("--samples 0", "--samples must be a whole number from 1"),
    ],
)
def test_options_that_will_not_do(here, capfd, options, message):
    Path("folder.html").mkdir()
    refused(capfd, ["report", "toy", *options.split()], message)


@pytest.mark.parametrize(
    ("function", "error", "code"),
    [("os.fsync", OSError(28, "No space left on device"), 2), ("os.replace", KeyboardInterrupt(), 130)],
)
def test_a_full_disk_or_an_interrupt_leaves_the_old_page(here, monkeypatch, capfd, function, error, code):
    before = {path: path.read_bytes() for path in here.rglob("*") if path.is_file()}
    monkeypatch.setattr(function, Mock(side_effect=error))
    assert main(["report", "toy"]) == code
    expected = "'toy/report.html' must be a place to write to; got No space left" if code == 2 else ""
    assert expected in capfd.readouterr().err
    assert {path: path.read_bytes() for path in here.rglob("*") if path.is_file()} == before


# In Python


def test_in_python(here):
    steps = []
    assert write_report("toy", "page.html", progress=steps.append) == Path("page.html")
    assert steps == ["reading toy", "writing page.html"]
    with pytest.raises(aot.InvalidInput, match=r"^output 'page\.pdf' must end in \.html"):
        write_report("toy", "page.pdf")


def test_pictures_are_those_of_the_plot_module(here, monkeypatch, capsys):
    """In both themes, from the solution itself."""
    drawn = []

    def draw(solution, *labels):
        drawn.append((solution.mass, colours().background))
        return plan(solution, *labels)

    plan = plot.plan
    monkeypatch.setattr("adaptive_ot.plot.plan", draw)
    assert main(["solve", "cost.npy", "--report", "new"]) == 0
    assert drawn == [(pytest.approx(11 / 15), "white"), (pytest.approx(11 / 15), "#16191D")]


def test_only_letters_without_a_glyph_go_unmentioned():
    def draw():
        warnings.warn("something is wrong", UserWarning, stacklevel=1)
        return plot.plan(aot.solve([[-1.0]]), ["蟻"], ["蟻"])

    with pytest.warns(UserWarning, match="something is wrong") as told:
        saved(draw, "light", "png")
    assert len(told) == 1
