"""The command line: what it prints, writes and returns."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import adaptive_ot as aot
from adaptive_ot.workbench.cli import main
from adaptive_ot.workbench.cli.app import app
from adaptive_ot.workbench.cli.samples import TOY_COST, moons_with_outliers
from commands import COMMAND, environment, on_a_terminal, run, summary


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A directory with a toy cost and two small clouds in it, to work in."""
    monkeypatch.chdir(tmp_path)
    np.save("cost.npy", TOY_COST)
    clouds = moons_with_outliers(size=40)
    np.save("x.npy", clouds.x)
    np.save("z.npy", clouds.z)
    return tmp_path


def solved(capsys, *arguments):
    return summary(capsys, "solve", *arguments)


def test_solve_prints_the_solution(here, capsys):
    assert main(["solve", "cost.npy"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Adaptive transport of 6 sources to 5 targets"
    shown = {line.split()[0]: " ".join(line.split()[1:]) for line in lines[1:]}
    assert shown["status"].startswith("optimal")
    assert shown["value"].startswith("-0.733333333333 (certified gap ")
    assert shown["mass"] == "0.733333333333 of at most 1 (73.3%)"
    assert shown["active"] == "5 of 6 sources, 4 of 5 targets"
    assert shown["outliers"] == "1 source and 1 target left alone"
    assert shown["clusters"] == "2; the largest: 3 x 2, 2 x 2 points"
    assert shown["plan"].endswith("pairs")
    same = solved(capsys, "cost.npy")
    assert same["value"] == pytest.approx(-11 / 15, abs=1e-12)
    assert [same[name] for name in ("status", "output", "clusters")] == ["optimal", None, 2]
    assert [same[f"{kind}_{side}"] for kind in ("active", "outlier") for side in ("sources", "targets")] == [5, 4, 1, 1]
    assert same["largest_clusters"][0] == {"sources": 3, "targets": 2, "mass": pytest.approx(0.4)}


@pytest.mark.parametrize("entropy", ["augmented", "product", "counting"])
def test_solve_with_entropy(here, capsys, entropy):
    shown = solved(capsys, "cost.npy", "--epsilon", "0.05", "--entropy", entropy, "--output", "plan.npz")
    expected = aot.solve(TOY_COST, solver=aot.Entropic(0.05, entropy))
    assert shown["status"] == "converged"
    assert shown["regularised_value"] == expected.regularised_value
    assert 0 <= shown["value"] + 11 / 15 <= shown["gap"]
    assert (shown["active_sources"], shown["active_targets"], shown["clusters"]) == (5, 4, 2)
    np.testing.assert_array_equal(sparse.load_npz("plan.npz").toarray(), expected.plan)


@pytest.mark.parametrize(
    ("options", "title", "marginals", "solver"),
    [
        (["--equal"], "Balanced transport", aot.Equal(), aot.Exact()),
        (["--mass", "0.5"], "Partial transport", aot.FixedMass(0.5), aot.Exact()),
        (["--rho", "0.2"], "Robust transport", aot.ChiSquareBall(0.2), aot.Exact()),
        (["--tau", "0.5", "--epsilon", "0.1"], "Unbalanced transport", aot.SoftKL(0.5), aot.Entropic(0.1)),
        (["--mass", "0.5", "--epsilon", "0.1"], "Partial transport", aot.FixedMass(0.5), aot.Entropic(0.1)),
    ],
)
def test_solve_another_model(here, capsys, options, title, marginals, solver):
    shown = solved(capsys, "cost.npy", *options)
    expected = aot.solve(TOY_COST, marginals=marginals, solver=solver)
    assert shown["model"] == title
    assert [shown[name] for name in ("value", "mass", "price", "gap")] == [
        getattr(expected, name) for name in ("value", "mass", "price", "gap")
    ]
    assert main(["solve", "cost.npy", *options]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"{title} of 6 sources to 5 targets")
    assert ("for the last unit of mass" in printed) == isinstance(marginals, aot.FixedMass)


def test_the_reach_may_be_omitted(here, capsys):
    """It is estimated as in Python, and people and programs are told."""
    clean, z = np.load("x.npy"), np.load("z.npy")
    for x, said in (
        (clean, "none of 80 points stands out"),
        (np.append(clean[:30], clean[30:] + 9, axis=0), "have no near partner"),
    ):
        np.save("x.npy", x)
        cost = aot.DistanceCost(x, z)
        shown = solved(capsys, "x.npy", "z.npy")
        assert (shown["reach"], shown["epsilon"]) == (cost.reach, None)
        assert shown["value"] == aot.solve(cost).value
        assert said in shown["reach_estimated"]
        assert main(["solve", "x.npy", "z.npy"]) == 0
        assert f"reach       {cost.estimated['reach']}" in capsys.readouterr().out
    assert solved(capsys, "x.npy", "z.npy", "--reach", "2", "--epsilon", "0.5")["reach_estimated"] is None
    assert main(["solve", "x.npy", "z.npy", "--reach", "2", "--epsilon", "0.5"]) == 0
    assert "epsilon     0.5" in capsys.readouterr().out


def test_path(here, capsys):
    """The corners in a file, the picture, and the same numbers for people and programs."""
    arguments = ["path", "x.npy", "z.npy", "--reach", "0.3", "--output", "path.csv", "--plot", "path.png"]
    assert main([*arguments, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    path = aot.mass_path(aot.DistanceCost(np.load("x.npy"), np.load("z.npy"), 0.3))
    assert shown["adaptive"] == {"mass": path.suggest().adaptive, "value": path.value_at(path.suggest().adaptive)}
    assert (shown["pieces"], shown["most_mass"]) == (path.price.size, path.most_mass)
    lines = Path("path.csv").read_text().splitlines()
    assert lines[0] == "mass,value,price"
    assert lines[-1].endswith(",")
    corners = np.array([line.split(",")[:2] for line in lines[1:]], float)
    np.testing.assert_array_equal(corners, np.column_stack([path.mass, path.value]))
    np.testing.assert_array_equal([float(line.split(",")[2]) for line in lines[1:-1]], path.price)
    assert Path("path.png").read_bytes().startswith(b"\x89PNG")
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    elbow = path.suggest().elbow
    assert ("elbow       none" if elbow is None else f"mass {elbow:.12g}, value") in printed
    assert main(["path", "x.npy", "z.npy"]) == 0  # prices are squared distances
    assert "Mass path of 40 sources to 40 targets" in capsys.readouterr().out


def test_path_of_nothing(here, capsys):
    np.save("forbidden.npy", np.full((2, 3), np.inf))
    assert main(["path", "forbidden.npy", "--plot", "empty.svg"]) == 0
    assert "0 to 0 in 0 pieces" in capsys.readouterr().out
    assert b"<svg" in Path("empty.svg").read_bytes()


def test_nothing_to_move(here, capsys):
    np.save("cost.npy", np.ones((2, 3)))
    assert main(["solve", "cost.npy"]) == 0
    assert "clusters    none" in capsys.readouterr().out
    np.save("cost.npy", np.ones((0, 3)))
    assert main(["solve", "cost.npy"]) == 0


def write_cost_csv(text):
    Path("cost.csv").write_text(text, encoding="utf-8")
    return "cost.csv"


COST_FILES = {
    "csv": lambda: write_cost_csv("\n".join(",".join(map(str, row)) for row in TOY_COST)),
    "csv with a header": lambda: write_cost_csv("a,b,c,d,e\n" + "\n".join(",".join(map(str, row)) for row in TOY_COST)),
    "csv from a spreadsheet": lambda: write_cost_csv(
        "\ufeff" + "\r\n".join(",".join(f'"{c:g}"' for c in row) for row in TOY_COST) + "\r\n"
    ),
    "npz, only array": lambda: np.savez("cost.npz", anything=TOY_COST),
    "npz, named cost": lambda: np.savez_compressed("cost.npz", other=np.eye(2), cost=TOY_COST),
    "npz, CSR": lambda: sparse.save_npz("cost.npz", sparse.csr_array(TOY_COST)),
    "npz, CSC": lambda: sparse.save_npz("cost.npz", sparse.csc_array(TOY_COST)),
    "npz, COO": lambda: sparse.save_npz("cost.npz", sparse.coo_array(TOY_COST)),
    "npz, old matrix": lambda: sparse.save_npz("cost.npz", sparse.csr_matrix(TOY_COST)),
    "npy, float32": lambda: np.save("cost.npy", TOY_COST.astype(np.float32)),
    "npy, integers": lambda: np.save("cost.npy", TOY_COST.astype(np.int8)),
    "npy, Fortran order": lambda: np.save("cost.npy", np.asfortranarray(TOY_COST)),
}


@pytest.mark.parametrize("write", COST_FILES.values(), ids=COST_FILES)
def test_every_kind_of_cost_file(here, capsys, write):
    (here / "cost.npy").unlink()
    write()
    (path,) = here.glob("cost.*")
    assert solved(capsys, path)["value"] == pytest.approx(-11 / 15, abs=1e-12)


def test_stored_pairs_of_a_sparse_cost_are_the_only_ones(here, capsys):
    sparse.save_npz("cost.npz", sparse.csr_array(([-1.0], ([0], [1])), shape=(2, 3)))
    assert solved(capsys, "cost.npz", "-o", "plan.csv")["pairs"] == 1
    assert Path("plan.csv").read_text().splitlines()[1].startswith("0,1,0.333333")


@pytest.mark.parametrize("suffix", ["npy", "csv", "npz"])
def test_points(here, capsys, suffix):
    x, z = np.load("x.npy"), np.load("z.npy")
    if suffix == "csv":
        np.savetxt("x.csv", x, delimiter=",")
        np.savetxt("z.csv", z, delimiter=",", header="east,north", comments="")
    if suffix == "npz":
        np.savez("x.npz", x=x, y=np.zeros(40))
        np.savez("z.npz", points=z)
    expected = aot.solve(aot.DistanceCost(x, z, reach=0.3))
    shown = solved(capsys, f"x.{suffix}", f"z.{suffix}", "--reach", "0.3")
    assert shown["value"] == pytest.approx(expected.value, rel=1e-12)
    assert shown["active_sources"] == expected.active_source.sum()


@pytest.mark.parametrize("suffix", ["npy", "csv", "row.csv", "npz"])
def test_weights(here, capsys, suffix):
    given = {"source": np.arange(6.0), "target": np.full(5, 0.25)}
    for side, weights in given.items():
        if suffix == "npy":
            np.save(f"{side}.npy", weights)
        elif suffix == "npz":
            np.savez(f"{side}.npz", weights=weights, unrelated=np.zeros(3))
        else:
            np.savetxt(f"{side}.{suffix}", weights if suffix == "csv" else weights[None], delimiter=",")
    shown = solved(capsys, "cost.npy", "--source-weights", f"source.{suffix}", "--target-weights", f"target.{suffix}")
    expected = aot.solve(TOY_COST, given["source"], given["target"])
    assert (shown["value"], shown["most_mass"]) == (expected.value, 1.25)


@pytest.mark.parametrize("name", ["plan.npz", "plan.csv", "plan.npy", "PLAN.NPZ", "new plan [1].csv"])
def test_output(here, capsys, name):
    expected = aot.solve(TOY_COST)
    Path(name).write_bytes(b"an older file")
    shown = solved(capsys, "cost.npy", "--output", name)
    if name.lower().endswith("npz"):
        loaded = sparse.load_npz(name)
        assert loaded.format == "csr"
        plan = loaded.toarray()
    elif name.endswith("csv"):
        assert Path(name).read_text().splitlines()[0] == "source,target,mass"
        rows, columns, mass = np.loadtxt(name, delimiter=",", skiprows=1, unpack=True)
        plan = np.zeros(TOY_COST.shape)
        plan[rows.astype(int), columns.astype(int)] = mass
    else:
        plan = np.load(name, allow_pickle=False)
    np.testing.assert_array_equal(plan, expected.plan)
    assert shown["output"] == name
    assert main(["solve", "cost.npy", "-o", name]) == 0
    assert f"written to {name}" in capsys.readouterr().out
    assert {path.name for path in here.iterdir()} == {"cost.npy", "x.npy", "z.npy", name}


def test_a_failed_write_leaves_the_old_file(here, monkeypatch, capsys):
    def fail(file, *_):
        file.write(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("scipy.sparse.save_npz", fail)
    Path("plan.npz").write_bytes(b"an older file")
    assert main(["solve", "cost.npy", "--output", "plan.npz"]) == 2
    assert "No space left on device" in capsys.readouterr().err
    assert Path("plan.npz").read_bytes() == b"an older file"
    assert len(list(here.iterdir())) == 4


def test_not_converged(here, capsys):
    assert main(["solve", "cost.npy", "--max-pivots", "0", "--output", "plan.npz"]) == 3
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert "pivot limit" in captured.err
    assert "pivot limit" in captured.out
    assert Path("plan.npz").exists()  # the best plan so far is not lost


@pytest.mark.parametrize(
    ("error", "code", "message"), [(KeyboardInterrupt, 130, "interrupted\n"), (MemoryError, 2, "not enough memory")]
)
def test_a_solve_that_does_not_end(here, monkeypatch, capsys, error, code, message):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("adaptive_ot.solve", fail)
    assert main(["solve", "cost.npy", "--output", "plan.npz"]) == code
    assert capsys.readouterr().err.startswith(f"adaptive-ot: {message}")
    assert not Path("plan.npz").exists()


def save_clouds(size):
    x, z = np.random.default_rng(0).normal(size=(2, size, 8))
    np.save("x.npy", x)
    np.save("z.npy", z)


def test_progress_only_on_a_terminal(here):
    save_clouds(6000)
    arguments = ["solve", "x.npy", "z.npy", "--reach", "2"]
    run(*arguments)  # a first run may announce that kernels are compiled
    piped = run(*arguments)
    assert (piped.returncode, piped.stderr) == (0, "")
    code, output, seen = on_a_terminal(arguments)
    assert code == 0
    for word in ("pricing", "round", "pivots", "arcs"):
        assert word in seen

    def lasting(text):
        return [line for line in text.splitlines() if "effort" not in line]

    assert lasting(output) == lasting(piped.stdout)


def test_interrupted_for_real(here):
    """The signal of Ctrl-C, a moment into a solve of minutes."""
    save_clouds(30_000)
    arguments = ["solve", "x.npy", "z.npy", "--reach", "3", "--output", "plan.npz"]
    code, output, seen = on_a_terminal(arguments, interrupt_at=b"pricing")
    assert (code, output) == (130, "")
    assert seen.endswith("adaptive-ot: interrupted\r\n")
    assert "Traceback" not in seen
    assert {path.name for path in here.iterdir()} == {"cost.npy", "x.npy", "z.npy"}


def test_doctor(capsys):
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    for word in ("Python", aot.__version__, "numpy", "scipy", "numba", "torch", "BLAS", "threads", "GPU", "cache"):
        assert word in shown
    assert shown.count("OK: value") == 2
    assert shown.splitlines()[-1].split() == ["result", "OK"]


def test_doctor_notices_a_wrong_answer(monkeypatch, capsys):
    monkeypatch.setattr("adaptive_ot.workbench.cli.doctor.TOY_VALUE", -0.7)
    assert main(["doctor"]) == 1
    shown = capsys.readouterr().out
    assert "WRONG: value -0.733" in shown
    assert "FAILED" in shown.splitlines()[-1]


def test_doctor_notices_a_cache_it_cannot_use(tmp_path):
    from adaptive_ot.workbench.cli.doctor import _cache

    (tmp_path / "file").touch()
    assert "not writable" in _cache(str(tmp_path / "file" / "below"))
    assert "not writable" in _cache(None)
    assert str(tmp_path) in _cache(str(tmp_path / "new"))


def test_version_and_help(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"{aot.__version__}\n"
    for arguments in ([], ["--help"], ["solve", "--help"]):
        assert main(arguments) == 0
        assert "Usage: adaptive-ot" in capsys.readouterr().out


def test_as_a_process(here):
    good = run("solve", "cost.npy", "--json")
    assert (good.returncode, good.stderr) == (0, "")
    assert json.loads(good.stdout)["clusters"] == 2
    bad = run("solve", "missing.npy")
    assert (bad.returncode, bad.stdout) == (2, "")
    assert bad.stderr == "adaptive-ot: cost file 'missing.npy' must exist; got no such file. Check the path.\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [["solve", "cost.npy"], ["solve", "cost.npy", "--json"], ["--version"]])
def test_stdout_that_cannot_be_written(here, arguments):
    with open("/dev/full", "w") as full:
        result = subprocess.run([*COMMAND, *arguments], stdout=full, stderr=subprocess.PIPE, text=True)
    assert (result.returncode, result.stderr) == (1, "adaptive-ot: cannot print: No space left on device\n")
    reading, writing = os.pipe()
    os.close(reading)
    result = subprocess.run([*COMMAND, *arguments], stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert (result.returncode, result.stderr) == (1, "")


def test_names_that_stdout_cannot_show(here):
    result = run("solve", "cost.npy", "-o", "plän.csv", env=environment(PYTHONIOENCODING="ascii"))
    assert result.returncode == 0
    assert "written to pl\\xe4n.csv" in result.stdout
    assert Path("plän.csv").exists()


def test_the_entry_point_is_installed():
    from importlib.metadata import entry_points

    (script,) = entry_points(group="console_scripts", name="adaptive-ot")
    assert script.load() is main


@pytest.mark.parametrize(
    ("arguments", "unneeded"),
    [
        (["--version"], {"adaptive_ot.workbench.cli.solve", "adaptive_ot.workbench.cli.train"}),
        (["--help"], {"torch", "numba", "sklearn", "matplotlib", "scipy.optimize"}),  # which imports every command
    ],
)
def test_the_command_line_starts_light(arguments, unneeded):
    loaded = f"{unneeded} & {{*sys.modules}}"
    code = f"import sys; from adaptive_ot.workbench.cli import main; main({arguments}); print({loaded})"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.endswith("\nset()\n")


def test_help_says_what_every_command_does(capsys):
    main(["--help"])
    shown = " ".join(capsys.readouterr().out.replace("│", " ").replace("|", " ").split())
    for name, command in app.resolved_commands().items():
        if not name.startswith("-"):
            assert f" {name} {command.help.splitlines()[0]}" in shown


@pytest.mark.parametrize("package", ["cyclopts", "rich"])
def test_without_its_packages(package, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, package, None)
    assert main(["doctor"]) == 2
    message = f'adaptive-ot: This needs {package}: pip install "adaptive-ot[cli]"\n'
    assert capsys.readouterr() == ("", message)
