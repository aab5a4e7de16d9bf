"""Whatever a user gets wrong: exit code 2, one line on stderr that names it, and no file left behind."""

import json
import pickle
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import adaptive_ot as aot
from adaptive_ot.workbench.cli import inputs, main
from adaptive_ot.workbench.cli.app import app
from adaptive_ot.workbench.cli.options import _whole
from commands import refused
from damage import npy, npz, refusals_of_damaged, zipped

COST = np.array([[-1.0, 2.0, 0.5], [3.0, -4.0, 1.0]])


def csr(indptr, indices, data, shape=(2, 3)):
    """What save_npz would write for a matrix with these parts, however wrong they are."""
    return npz(format=b"csr", shape=np.array(shape), data=data, indices=np.array(indices), indptr=np.array(indptr))


# A file that must not be accepted as a cost, its content, and a part of the message.
BAD_COSTS = [
    ("empty.npy", b"", "must not be empty"),
    ("empty.npz", b"", "must not be empty"),
    ("empty.csv", b"", "must not be empty"),
    ("truncated.npy", npy(COST)[:-5], "valid .npy file"),
    ("header_only.npy", npy(COST)[:20], "valid .npy file"),
    ("text.npy", b"1,2\n3,4\n", "valid .npy file"),
    ("pickle.npy", pickle.dumps(COST), "valid .npy file"),
    ("object.npy", npy(np.array([[1, None]], dtype=object)), "Object arrays cannot be loaded"),
    ("strings.npy", npy(np.array([["a", "b"]])), "must hold real numbers"),
    ("complex.npy", npy(COST * 1j), "must hold real numbers"),
    ("dates.npy", npy(np.zeros((2, 2), "datetime64[s]")), "must hold real numbers"),
    ("records.npy", npy(np.zeros((2, 2), [("a", "f8"), ("b", "f8")])), "must hold real numbers"),
    ("vector.npy", npy(COST[0]), "two dimensions"),
    ("scalar.npy", npy(np.float64(1.0)), "two dimensions"),
    ("cube.npy", npy(COST[None]), "two dimensions"),
    ("nan.npy", npy(np.where(COST == 0.5, np.nan, COST)), "NaN at (0, 2)"),
    ("minus_infinity.npy", npy(np.where(COST == 0.5, -np.inf, COST)), "-inf at (0, 2)"),
    ("huge.npy", npy(COST).replace(b"(2, 3)", b"(2000000000, 3000000000)"), "valid .npy file"),
    ("not_a_zip.npz", npy(COST), "not a zip archive"),
    ("pickle.npz", pickle.dumps(COST), "not a zip archive"),
    ("truncated.npz", npz(cost=COST)[:-30], "valid .npz file"),
    ("corrupt.npz", npz(cost=COST).replace(np.float64(-4).tobytes(), np.float64(-5).tobytes()), "valid .npz file"),
    ("zip_of_text.npz", zipped(readme="hello"), "a zip archive without arrays"),
    ("empty_zip.npz", zipped(), "must hold one array"),
    ("several.npz", npz(a=COST, b=COST), "must hold one array, or one named 'cost'; got 'a', 'b'"),
    ("object.npz", zipped(**{"cost.npy": npy(np.array([None]))}), "Object arrays cannot be loaded"),
    ("sparse_far.npz", csr([0, 1, 2], [0, 9], [-1.0, -1.0]), "valid .npz file"),
    ("sparse_negative.npz", csr([0, 1, 2], [0, -7], [-1.0, -1.0]), "valid .npz file"),
    ("sparse_pointer.npz", csr([0, 900000, 2], [0, 1], [-1.0, -1.0]), "valid .npz file"),
    ("sparse_nan.npz", csr([0, 1, 2], [0, 1], [-1.0, np.nan]), "must not contain NaN"),
    ("sparse_complex.npz", csr([0, 1, 2], [0, 1], [-1.0, 1j]), "must hold real numbers"),
    ("sparse_parts.npz", npz(format=b"csr", shape=np.array([2, 3]), data=np.ones(1)), "valid .npz file"),
    ("sparse_format.npz", npz(format=b"xyz", shape=np.array([2, 3]), data=np.ones(1)), "valid .npz file"),
    ("words.csv", b"1,2\n3,four\n", "must hold numbers only; got 'four' in line 2, column 2"),
    ("mixed_header.csv", b"1,two\n3,4\n", "must hold numbers only; got 'two' in line 1, column 2"),
    ("only_header.csv", b"a,b\n", "no numbers, only a header"),
    ("blank.csv", b"\n\n\n", "no numbers"),
    ("ragged.csv", b"1,2\n3\n", "number of columns changed"),
    ("hole.csv", b"1,,2\n3,4,5\n", "must hold numbers only; got nothing in line 1, column 2"),
    ("semicolons.csv", b"1;2\n3;4\n", "must have commas between its cells; got semicolons in line 1"),
    ("nan.csv", b"1,nan\n3,4\n", "NaN at (0, 1)"),
    ("binary.csv", npy(COST), "valid .csv file"),
    ("utf16.csv", "1,2\n3,4\n".encode("utf-16"), "valid .csv file"),
    ("image.png", b"\x89PNG", "must end in .npy, .npz or .csv; got '.png'"),
    ("cost", npy(COST), "must end in .npy, .npz or .csv; got no suffix"),
    ("torch.pt", b"PK", "must end in .npy, .npz or .csv"),
]

# Arguments beside good files cost.npy, x.npy (4 x 2) and z.npy (3 x 2), and a part of the message.
BAD_ARGUMENTS = [
    ("solve", "COST"),
    ("solve cost.npy x.npy z.npy", "z.npy"),
    ("solve cost.npy --rech 1", "--rech"),
    ("solve cost.npy --json=maybe", "--json"),
    ("solve cost.npy --source-weights", "--source-weights"),
    ("solve missing.npy", "cost file 'missing.npy' must exist"),
    ("solve folder.npy", "must be a file"),
    ("solve folder.npy/cost.npy", "must exist"),
    (f"solve {'a' * 300}.npy", "File name too long"),
    ("solve cost.npy --reach 1", "--reach goes with two point files"),
    ("solve x.npy z.npy --reach far", "--reach"),
    ("solve x.npy z.npy --reach -1", "reach must be a number from 0"),
    ("solve x.npy z.npy --reach nan", "reach must be a number from 0"),
    ("solve x.npy z.npy --reach inf", "reach must be a number from 0"),
    ("solve x.npy missing.npy --reach 1", "z file 'missing.npy' must exist"),
    ("solve x.npy three.npy --reach 1", "z must have as many columns as x (2)"),
    ("solve x.npy flat.npy --reach 1", "z must have two dimensions"),
    ("solve holes.npy z.npy --reach 1", "x must hold finite numbers"),
    ("solve several.npz z.npy --reach 1", "x file 'several.npz' must hold one array, or one named 'x'"),
    ("solve sparse.npz z.npy --reach 1", "must hold one array"),
    ("solve cost.npy --source-weights missing.csv", "--source-weights file 'missing.csv' must exist"),
    ("solve cost.npy --target-weights x.npy", "must have shape (3,)"),
    ("solve cost.npy --source-weights flat.npy", "--source-weights file 'flat.npy' must have shape (2,)"),
    (
        "solve cost.npy --target-weights negative.csv",
        "--target-weights file 'negative.csv' must be non-negative; got -2.0 at index 1",
    ),
    ("solve cost.npy --target-weights square.csv", "must have shape (3,)"),
    ("solve cost.npy --target-weights sparse.npz", "--target-weights file 'sparse.npz' must hold one array"),
    ("solve cost.npy --max-pivots -1", "max_pivots must be a whole number from 0"),
    ("solve cost.npy --max-pivots many", "--max-pivots"),
    ("solve cost.npy --epsilon 0", "--epsilon must be positive; got 0.0. Omit it"),
    ("solve cost.npy --epsilon nan", "--epsilon must be positive; got nan. Omit it"),
    ("solve cost.npy --entropy product", "--entropy needs --epsilon"),
    ("solve cost.npy --max-iterations 5", "--max-iterations needs --epsilon"),
    ("solve cost.npy --epsilon little", "--epsilon"),
    ("solve cost.npy --epsilon 0.1 --entropy shannon", "--entropy"),
    ("solve cost.npy --epsilon 0.1 --max-pivots 5", "--max-pivots does not go with --epsilon"),
    ("solve cost.npy --output plan.txt", "--output 'plan.txt' must end in .npz, .csv or .npy; got '.txt'"),
    ("solve cost.npy --output plan", "must end in"),
    ("solve cost.npy --output missing/plan.npz", "--output 'missing/plan.npz' must lie in a directory that exists"),
    ("solve cost.npy --output folder.npy", "--output 'folder.npy' must be a file"),
    ("solve cost.npy --output cost.npy/plan.npz", "must lie in a directory that exists"),
    ("solve cost.npy --output ./cost.npy", "must not be one of the inputs"),
    (f"solve cost.npy --output {'a' * 300}.npz", "File name too long"),
    ("solve cost.npy --output dense.npy", "for a dense plan. Write a sparse .npz or .csv."),
    ("solve cost.npy --equal --mass 0.5", "--equal does not go with another model"),
    ("solve cost.npy --tau 1 --rho 1", "--tau does not go with another model"),
    ("solve cost.npy --mass 1.5", "--mass must be at most the smaller of the total weights, 1"),
    ("solve cost.npy --mass -1", "--mass must be a number from 0"),
    ("solve cost.npy --tau 0 --epsilon 1", "--tau must be a number from"),
    ("solve cost.npy --tau 1", "--tau needs --epsilon"),
    ("solve cost.npy --rho 1 --epsilon 1", "--rho does not go with --epsilon"),
    ("solve forbidden.npy --equal", "only 0.5 can move"),
    (
        "solve label.csv label.csv",
        "x file 'label.csv' must hold coordinates; got a column 'label'. Remove it, or rename",
    ),
    ("solve coordinates.csv y.csv", "z file 'y.csv' must hold coordinates; got a column 'y'. Remove it, or rename it"),
    ("path label.csv coordinates.csv", "x file 'label.csv' must hold coordinates; got a column 'label'"),
    ("path cost.npy --reach 1", "--reach goes with two point files"),
    ("path cost.npy --output path.npz", "--output 'path.npz' must end in .csv"),
    ("path cost.npy --plot path.gif", "--plot 'path.gif' must end in .png, .svg or .pdf"),
    ("path cost.npy --plot no/path.png", "--plot 'no/path.png' must lie in a directory that exists"),
    ("demo --output cost.npy", "--output 'cost.npy' must be a directory"),
    ("demo --output cost.npy/below", "must be a directory"),
    ("demo extra", "extra"),
    ("doctor --loud", "--loud"),
    ("slove cost.npy", "slove"),
    ("--verbose", "--verbose"),
]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("cost.npy", COST)
    np.save("x.npy", np.zeros((4, 2)))
    np.save("z.npy", np.zeros((3, 2)))
    np.save("forbidden.npy", np.array([[-1.0, np.inf], [np.inf, np.inf]]))
    np.save("three.npy", np.zeros((3, 3)))
    np.save("flat.npy", np.zeros(3))
    np.save("holes.npy", np.full((4, 2), np.nan))
    np.savez("several.npz", a=COST, b=COST)
    sparse.save_npz("sparse.npz", sparse.csr_array(COST))
    Path("negative.csv").write_text("1,-2,3\n")
    Path("square.csv").write_text("1,2\n3,4\n")
    Path("label.csv").write_text("a,b,label\n1,2,0\n3,4,1\n")
    Path("y.csv").write_text("a,b,y\n1,2,0\n3,4,1\n")
    Path("coordinates.csv").write_text("x,y\n1,2\n3,4\n")
    Path("folder.npy").mkdir()
    return tmp_path


@pytest.mark.parametrize(("name", "content", "message"), BAD_COSTS, ids=[name for name, _, _ in BAD_COSTS])
def test_bad_cost_files(here, capfd, name, content, message):
    (here / name).write_bytes(content)
    refused(capfd, ["solve", name, "--output", "plan.npz"], message)


@pytest.mark.parametrize(("line", "message"), BAD_ARGUMENTS, ids=[line[:60] for line, _ in BAD_ARGUMENTS])
def test_bad_arguments(here, monkeypatch, capfd, line, message):
    """A place for the plan is refused before the work starts."""
    arguments = line.split()
    if "--output" in arguments:
        monkeypatch.setattr("adaptive_ot.solve", None)
        monkeypatch.setattr("adaptive_ot.workbench.cli.outputs.DENSE_LIMIT", COST.nbytes - 1)
    elif arguments[0] == "solve":
        arguments[1:1] = ["--output", "plan.npz"]
    refused(capfd, arguments, message)


COMMANDS = {
    "solve": "cost.npy",
    "match": "pairs.csv",
    "adapt": "cost.npy x.npy",
    "benchmark features": "folder.npy -o out",
    "benchmark deep": "plan.toml -o out",
    "benchmark sensitivity": "plan.toml -o out",
    "train": "--dataset digits --root digits.npz --source a --target b -o out",
    "report": "folder.npy",
    "select": "folder.npy folder.npy",
}


def test_x_and_y_are_coordinates(here, capfd):
    assert main(["solve", "coordinates.csv", "coordinates.csv", "--reach", "1"]) == 0


def test_large_clouds_that_cannot_be_used(here, capfd):
    """Torn in the middle, with one NaN deep inside, or larger than memory (a sparse file)."""
    clouds = ["solve", "large.npy", "z.npy", "--reach", "1"]
    good = np.random.default_rng(0).standard_normal((200_000, 2))
    Path("large.npy").write_bytes(npy(good)[: good.nbytes // 2])
    refused(capfd, clouds, "x file 'large.npy' must be a valid .npy file")
    good[123_456, 1] = np.nan
    np.save("large.npy", good)
    refused(capfd, clouds, "x must hold finite numbers up to 1e+100; got nan at (123456, 1)")
    with open("large.npy", "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (2**35, 16)})
        try:
            file.truncate(file.tell() + 2**42)
        except OSError:
            pytest.skip("no sparse files here")
    assert main(clouds) == 2
    assert "x file 'large.npy' must fit into memory" in capfd.readouterr().err
    Path("large.npy").unlink()  # copies of it may not be sparse


def whole_numbers(command):
    """The options of a command that take one."""
    found: Any = app
    for word in command.split():
        found = found[word]
    return [each for each in found.assemble_argument_collection() if each.hint in (int, int | None)]


def test_every_whole_number_is_taken_as_one():
    """By the converter that all of them share; no command but those below has any."""
    parts = {"": app, "benchmark ": app["benchmark"]}
    commands = {f"{prefix}{name}" for prefix, part in parts.items() for name in part if not name.startswith("-")}
    numbers = {command: whole_numbers(command) for command in commands - {"benchmark"}}
    assert {command for command, found in numbers.items() if found} == set(COMMANDS)
    assert all(each.parameter.converter is _whole for found in numbers.values() for each in found)


@pytest.mark.parametrize("text", ["1.5", "2.0", "1e3", "-0.5", "1/2", "0x10", "nan"])
@pytest.mark.parametrize("command", COMMANDS)
def test_fractions_are_not_rounded(here, capfd, command, text):
    for option in whole_numbers(command):
        message = f"Invalid value for {option.name}: it must be a whole number; got '{text}'."
        refused(capfd, [*command.split(), *COMMANDS[command].split(), option.name, text], message)


def test_bad_json_prints_no_json(here, capfd):
    refused(capfd, ["solve", "missing.npy", "--json"], "must exist")
    assert main(["solve", "cost.npy", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["status"] == "optimal"


def test_names_with_line_breaks_stay_on_one_line(here, capfd):
    refused(capfd, ["solve", "no\nsuch\nfile.npy"], "no such file.npy")


def sparse_file():
    buffer = BytesIO()
    sparse.save_npz(buffer, sparse.csr_array(COST), compressed=False)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("cost.npy", npy(COST)),
        ("cost.csv", b"a,b,c\n-1,2,0.5\n3,-4,1\n"),
        ("cost.npz", npz(cost=COST)),
        ("sparse.npz", sparse_file()),
    ],
)
def test_damaged_files_are_read_or_refused(tmp_path, name, content):
    read = lambda path: aot.Problem.build(inputs.read_cost(path))  # noqa: E731
    assert refusals_of_damaged(tmp_path / name, content, read) > 30
