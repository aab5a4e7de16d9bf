"""Real processes solve one problem together, on Gloo. This file is also what each of them runs."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", exc_type=ImportError)

import adaptive_ot as aot
from interruption import PATIENCE
from processes import run_ranks

SIZES = 2, 3
LARGE_OF_OTHERS = {2: "screened", 3: "cells"}  # one large problem each is enough
SECONDS_TO_ANSWER = 3.0  # of a process that was stopped
COUNTS = {2: (150, 90), 3: (0, 151, 89)}  # the rows of each process: they need not be equal


def clouds(n=240, m=200, dimension=3, seed=0):
    rng = np.random.default_rng(seed)
    x, z = rng.normal(size=(n, dimension)), rng.normal(size=(m, dimension)) + 0.4
    mu, nu, p, q = rng.random(n), rng.random(m), rng.random((n, 4)), rng.random((m, 4))
    return x, z, p, q, mu / mu.sum(), nu / nu.sum()


def problems():
    """By name: what makes the cost of some rows, whether there are weights, and the keywords of `solve`."""
    x, z, p, q, _, _ = clouds()
    soft = aot.Entropic(0.05)
    far, near = clouds(2100, 2050, 1, seed=1), clouds(2100, 2050, 5, seed=2)  # these are priced together

    def distance(rows):
        return aot.DistanceCost(x[rows], z, reach=1.1)

    def joint(rows):
        return aot.JointCost(x[rows], z, p[rows], q)

    def single(rows):
        return aot.DistanceCost(x[rows].astype(np.float32), z.astype(np.float32), reach=1.1)

    return {
        "entropic": (distance, False, {"solver": soft}),
        "weighted": (distance, True, {"solver": soft, "marginals": aot.FixedMass(0.5)}),
        "joint": (joint, True, {"solver": aot.Entropic(0.02, entropy="product")}),
        "unbalanced": (joint, True, {"solver": soft, "marginals": aot.SoftKL(0.3)}),
        "single": (single, False, {"solver": soft}),
        "exact": (distance, False, {}),
        "exact joint": (joint, True, {}),
        "exact equal": (joint, True, {"marginals": aot.Equal()}),
        "robust": (distance, True, {"marginals": aot.ChiSquareBall(0.2)}),
        "cells": (lambda rows: aot.DistanceCost(far[0][rows], far[1], reach=0.01), False, {}),
        "screened": (lambda rows: aot.DistanceCost(near[0][rows], near[1], reach=1.0), False, {}),
    }


PATHS = "exact", "weighted", "exact joint", "screened"  # of these problems, the mass path


def part_of(name, rank, size):
    """The rows of a process in a problem."""
    n = 2100 if name in ("cells", "screened") else 240
    ends = np.cumsum([0, *COUNTS[size]]) if n == 240 else np.linspace(0, n, size + 1).astype(int)
    return slice(ends[rank], ends[rank + 1])


# What every process does.


def main(folder, rank, size):
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    long = timedelta(seconds=PATIENCE)
    address = f"file://{folder}/meeting{size}"
    distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=size, timeout=long)
    group, brief = distributed.group.WORLD, distributed.new_group(timeout=timedelta(seconds=SECONDS_TO_ANSWER))
    solve_all(folder, rank, size, group)
    walk_all(folder, rank, size, group)
    said = {name: outcome(call) for name, call in refusals(rank, size, group).items()}
    said |= {name: command_line(arguments, rank, size) for name, arguments in commands(folder, rank).items()}
    if size == 3:
        some = distributed.new_group([1, 2], backend=without_cpus())
        said["some"] = outcome(lambda: solve_among_some(rank, some))
        said |= lose_a_process(rank, group, brief)
    Path(folder, f"said-{size}-{rank}.json").write_text(json.dumps(said))
    os._exit(0)  # the processes are no longer connected


def solve_all(folder, rank, size, group):
    """Solve every problem; the process of rank 0 writes the whole answer, each writes its part of one."""
    mu, nu = clouds()[4:]
    for name, (cost, weighted, keywords) in problems().items():
        if name == LARGE_OF_OTHERS[size]:
            continue
        rows = part_of(name, rank, size)
        weights = (mu[rows], nu) if weighted else (None, None)
        part = aot.solve(cost(rows), *weights, group=group, **keywords)
        whole = part.gathered()
        assert (whole is None) == (rank > 0)
        if whole:
            write(folder, f"{name}-{size}", whole)
        if name == "weighted":
            write(folder, f"part-{size}-{rank}", part)


def walk_all(folder, rank, size, group):
    """Walk along the mass path of some problems; every process writes what it knows."""
    from scipy import sparse

    mu, nu = clouds()[4:]
    for name in PATHS:
        if name == LARGE_OF_OTHERS[size]:
            continue
        cost, weighted, _ = problems()[name]
        rows = part_of(name, rank, size)
        weights = (mu[rows], nu) if weighted else (None, None)
        path = aot.mass_path(cost(rows), *weights, group=group)
        part = path.solution_at(0.3)
        whole = part.gathered()
        np.savez(
            Path(folder, f"path-{name}-{size}-{rank}.npz"),
            mass=path.mass,
            value=path.value,
            price=path.price,
            at=[path.value_at(0.3), path.mass_at(-0.1), path.price_at(0.3)],
            suggested=[path.suggest().adaptive, path.suggest().elbow or np.nan],
            plan=np.stack(sparse.coo_array(path.plan_at(0.3)).coords),
            text=[str(path), repr(path)],
        )
        if whole:
            write(folder, f"path-{name}-{size}", whole)


def solve_among_some(rank, group):
    """The processes of rank 1 and 2; that of rank 0 does not belong to the group, which connects no CPUs."""
    x, z, *_ = clouds(30, 20)
    rows = slice(0, 10) if rank == 1 else slice(10, 30)
    cost, solver = aot.DistanceCost(x[rows], z, reach=1.0), aot.Entropic(0.1)
    aot.solve(cost, solver=solver, group=group)
    part = aot.solve(cost, solver=solver, group=group)  # now messages go over a group that exists
    return [part.value, part.rows.start, part.gathered() is None]


def without_cpus():
    """A backend that, like NCCL, sends nothing from the memory of a CPU."""
    from torch import distributed
    from torch._C._distributed_c10d import FakeProcessGroup

    def made(store, rank, size, timeout):
        return getattr(FakeProcessGroup, "_create_internal", FakeProcessGroup)(rank, size)

    distributed.Backend.register_backend("gpus", made, devices=["cuda"])
    return "gpus"


def write(folder, name, solution):
    rows, columns, mass = solution.support
    answers = solution.answers._asdict()
    np.savez(Path(folder, f"{name}.npz"), rows=rows, columns=columns, pairs=mass, text=str(solution), **answers)


def outcome(call):
    try:
        return repr(call())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def refusals(rank, size, group):
    """What at least one process does wrong; all of them have to say so, in the same words."""
    x, z, p, q, mu, _ = clouds(30, 20)
    rows = slice(30 * rank // size, 30 * (rank + 1) // size)
    last, soft = rank == size - 1, aot.Entropic(0.1)

    def solve(cost, **keywords):
        return lambda: aot.solve(cost, group=group, **keywords)

    def distance(x, z=z):
        return lambda: aot.DistanceCost(x, z, reach=1.0)

    def memory():
        if last:
            raise OSError("the disk is gone")
        return aot.DistanceCost(x[rows], z, reach=1.0)

    def unlucky(_):
        raise KeyError("progress")

    def walk(cost, mass=None, **keywords):
        def call():
            path = aot.mass_path(cost, group=group, **keywords)
            return path if mass is None else path.solution_at(mass)

        return call

    holed = x.copy()
    holed[10, 1] = np.nan
    return {
        "nan": solve(distance(holed[rows])),
        "dimension": solve(distance(x[rows, :2], z[:, :2]) if last else distance(x[rows])),
        "dtype": solve(distance(x[rows].astype(np.float32) if last else x[rows])),
        "targets": solve(distance(x[rows], z + rank)),
        "fewer targets": solve(distance(x[rows], z[rank:])),
        "reach": solve(aot.DistanceCost(x[rows], z, reach=1.0 + rank)),
        "kind": solve(aot.JointCost(x[rows], z, p[rows], q) if last else aot.DistanceCost(x[rows], z, reach=1.0)),
        "weights": solve(distance(x[rows]), source_weights=mu[rows] if last else None),
        "negative": solve(distance(x[rows]), source_weights=-mu[rows] if last else mu[rows]),
        "totals": solve(distance(x[rows]), source_weights=np.ones(rows.stop - rows.start), marginals=aot.Equal()),
        "solver": solve(distance(x[rows]), solver=aot.Entropic(0.1 + rank)),
        "nonsense": solve(distance(x[rows]), solver="exact" if last else soft),
        "model": solve(distance(x[rows]), marginals=aot.SoftKL(1.0)),
        "matrix": solve(np.zeros((3, 3))),
        "unread": solve(memory),
        "unconverged": solve(distance(x[rows]), solver=aot.Entropic(0.001, max_iterations=9)),
        "progress": solve(distance(x[rows]), solver=soft, progress=unlucky),
        "infeasible": solve(distance(x[rows]), marginals=aot.FixedMass(2.0)),
        "path nan": walk(distance(holed[rows])),
        "path dimension": walk(distance(x[rows, :2], z[:, :2]) if last else distance(x[rows])),
        "path dtype": walk(distance(x[rows].astype(np.float32) if last else x[rows])),
        "path matrix": walk(np.zeros((3, 3))),
        "path progress": walk(distance(x[rows]), progress="often" if last else None),
        "path mass": walk(distance(x[rows]), mass=0.5 + 0.1 * rank),
        "path too much": walk(distance(x[rows]), mass=1.5),
        "path no number": walk(distance(x[rows]), mass="half" if last else 0.5),
        # Nothing is wrong with these.
        "path no rows": walk(distance(x[:0])),
        "path no weight": walk(distance(x[rows]), source_weights=np.zeros(rows.stop - rows.start), mass=0.0),
        "one row": solve(distance(x[rank:1]), solver=soft),
        "no rows": solve(distance(x[:0]), solver=soft),
        "no rows, exactly": solve(distance(x[:0])),
        "no targets": solve(distance(x[rows], z[:0]), solver=soft),
        "no weight": solve(distance(x[rows]), source_weights=np.zeros(rows.stop - rows.start), solver=soft),
    }


def commands(folder, rank):
    """What is typed behind torchrun."""
    x, z = str(Path(folder, "x.npy")), str(Path(folder, "z.npy"))
    torn, weights = str(Path(folder, "torn.npy")), str(Path(folder, "weights.npy"))
    output = str(Path(folder, f"plan{os.environ['WORLD_SIZE']}.npz"))
    return {
        "cli": [
            "solve",
            x,
            z,
            "--reach",
            "1.5",
            "--epsilon",
            "0.1",
            "--source-weights",
            weights,
            "-o",
            output,
            "--json",
        ],
        "cli exact": ["solve", x, z, "--reach", "1.5", "--json"],
        "cli torn": ["solve", torn, z, "--reach", "1.5"],
        "cli matrix": ["solve", x],
        "cli output": ["solve", x, z, "--reach", "1.5", "-o", str(Path(folder, "nowhere", "plan.npz"))],
        "cli steps": ["solve", x, z, "--reach", "1.5", "--epsilon", "0.01", "--max-iterations", "5"],
        "cli path": ["path", x, z],
        "cli reach": ["solve", x, z],
        "cli changed": ["solve", str(Path(folder, f"changed{rank}.npy")), z, "--reach", "1.5"],
        "cli short": ["solve", str(Path(folder, f"x{rank}.npy")), z, "--reach", "1.5"],
    }


def command_line(arguments, rank, size):
    from adaptive_ot.workbench.cli import main

    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size))
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(arguments)
    return [code, out.getvalue(), err.getvalue()]


def lose_a_process(rank, group, brief):
    """The last process stops answering, then it is killed; the first sees to that in the middle of a solve."""
    from torch import distributed

    x, z, *_ = clouds(30, 20)
    numbers = [0] * 3
    distributed.all_gather_object(numbers, os.getpid(), group)
    said = {}
    for name, how, where in (("stopped", signal.SIGSTOP, brief), ("killed", signal.SIGKILL, group)):
        seen = []

        def progress(now, how=how, seen=seen):
            seen.append(now)
            if len(seen) == 3:
                os.kill(numbers[2], how)

        cost = aot.DistanceCost(x[10 * rank : 10 * rank + 10], z, reach=1.0)
        said[name] = outcome(
            lambda cost=cost, progress=progress, where=where: aot.solve(
                cost, solver=aot.Entropic(0.001), progress=progress, group=where
            )
        )
        if rank == 0 and how == signal.SIGSTOP:
            os.kill(numbers[2], signal.SIGCONT)
    return said


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))


# What is expected of them.


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What two processes and three found, in one folder."""
    folder = tmp_path_factory.mktemp("together")
    x, z, _, _, mu, _ = clouds(101, 80)
    np.save(folder / "x.npy", x)
    np.save(folder / "z.npy", z)
    for rank in range(3):  # not the same on every machine
        np.save(folder / f"x{rank}.npy", x[rank:])
        np.save(folder / f"changed{rank}.npy", x + rank)
    np.save(folder / "weights.npy", mu)
    (folder / "torn.npy").write_bytes((folder / "x.npy").read_bytes()[:-8])
    codes, output = run_ranks(
        __file__, folder, SIZES, lambda size, _: {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": "1"}
    )
    assert codes == {**dict.fromkeys(codes, 0), (3, 2): -signal.SIGKILL}, output
    return folder


@pytest.fixture(scope="module")
def said(folder):
    """What each process said, by name; the last of three did not live to tell."""
    words = {size: [json.loads((folder / f"said-{size}-{k}.json").read_text()) for k in (0, 1)] for size in SIZES}
    return lambda size, name: [each[name] for each in words[size]]


@pytest.mark.parametrize(
    ("size", "name"), [(size, name) for size in SIZES for name in problems() if name != LARGE_OF_OTHERS[size]]
)
def test_the_answer_does_not_depend_on_their_number(folder, size, name):
    cost, weighted, keywords = problems()[name]
    mu, nu = clouds()[4:]
    alone = aot.solve(cost(slice(None)), *((mu, nu) if weighted else (None, None)), **keywords)
    check_whole(np.load(folder / f"{name}-{size}.npz"), alone)


def check_whole(found, alone):
    for field in ("value", "regularised_value", "mass", "price", "gap", "violation"):
        assert float(found[field]) == pytest.approx(getattr(alone, field), rel=1e-10, abs=1e-10), field
    for field in ("source_marginal", "target_marginal", "source_potential", "target_potential"):
        np.testing.assert_allclose(found[field], getattr(alone.answers, field), rtol=1e-10, atol=1e-10, err_msg=field)
    rows, columns, mass = alone.support
    np.testing.assert_array_equal(found["rows"], rows)
    np.testing.assert_array_equal(found["columns"], columns)
    np.testing.assert_allclose(found["pairs"], mass, rtol=0, atol=1e-12)
    assert str(found["text"]).splitlines()[0] == str(alone).splitlines()[0]


@pytest.mark.parametrize(
    ("size", "name"), [(size, name) for size in SIZES for name in PATHS if name != LARGE_OF_OTHERS[size]]
)
def test_a_mass_path_does_not_depend_on_their_number(folder, size, name):
    from scipy import sparse

    cost, weighted, _ = problems()[name]
    alone = aot.mass_path(cost(slice(None)), *(clouds()[4:] if weighted else (None, None)))
    for rank in range(size):
        found = np.load(folder / f"path-{name}-{size}-{rank}.npz")
        for field in ("mass", "value", "price"):
            np.testing.assert_allclose(found[field], getattr(alone, field), rtol=0, atol=1e-12, err_msg=field)
        expected = [alone.value_at(0.3), alone.mass_at(-0.1), alone.price_at(0.3)]
        np.testing.assert_allclose(found["at"], expected, rtol=0, atol=1e-12)
        suggested = [alone.suggest().adaptive, alone.suggest().elbow or np.nan]
        np.testing.assert_allclose(found["suggested"], suggested, rtol=0, atol=1e-12)
        assert found["text"].tolist() == [str(alone), repr(alone).replace("MassPath", "MassPathPart")]
        plan = sparse.coo_array(alone.plan_at(0.3).tocsr()[part_of(name, rank, size)])
        np.testing.assert_array_equal(found["plan"], np.stack(plan.coords))
    check_whole(np.load(folder / f"path-{name}-{size}.npz"), alone.solution_at(0.3))


@pytest.mark.parametrize("size", SIZES)
def test_exact_values_are_those_of_another_solver(folder, size):
    from scipy.optimize import linprog
    from scipy.sparse import eye_array, kron, vstack

    x, z, *_ = clouds()
    cost = ((x[:, None] - z) ** 2).sum(axis=2) - 1.1**2
    n, m = cost.shape
    sums = vstack([kron(eye_array(n), np.ones((1, m))), kron(np.ones((1, n)), eye_array(m))]).tocsr()
    weights = np.concatenate([np.full(n, 1 / n), np.full(m, 1 / m)])
    optimum = linprog(cost.ravel(), A_ub=sums, b_ub=weights, method="highs").fun
    assert float(np.load(folder / f"exact-{size}.npz")["value"]) == pytest.approx(optimum, abs=1e-9)


@pytest.mark.parametrize("size", SIZES)
def test_each_has_its_part(folder, size):
    """Its rows of the plan, the marginals and potentials of its sources, and the answers for all."""
    x, z, _, _, mu, nu = clouds()
    keywords = problems()["weighted"][2]
    alone = aot.solve(aot.DistanceCost(x, z, reach=1.1), mu, nu, **keywords)
    plan = alone.plan.toarray()
    for rank, count in enumerate(COUNTS[size]):
        part, rows = np.load(folder / f"part-{size}-{rank}.npz"), part_of("weighted", rank, size)
        assert part["source_marginal"].size == count
        np.testing.assert_allclose(part["source_marginal"], alone.source_marginal[rows], atol=1e-12)
        np.testing.assert_allclose(part["target_marginal"], alone.target_marginal, atol=1e-12)
        mine = np.zeros((count, z.shape[0]))
        mine[part["rows"], part["columns"]] = part["pairs"]
        np.testing.assert_allclose(mine, plan[rows], rtol=0, atol=1e-12)
        assert float(part["mass"]) == pytest.approx(0.5)
        place = f"rows {rows.start} to {rows.stop - 1}" if count else "no rows"
        text, printed = str(part["text"]).splitlines(), str(alone).splitlines()
        assert text[0] == f"{alone.problem.marginals.title}, {place} of 240 x 200"
        assert "  epsilon   0.05" in text
        assert [line[:11] for line in text] == [line[:11] for line in [text[0], *printed[1:]]]


def test_a_group_may_have_some_of_the_processes(said):
    outside, first = said(3, "some")
    assert outside.startswith("InvalidInput: group must be a group that this process belongs to")
    x, z, *_ = clouds(30, 20)
    value, start, waits = json.loads(first.lower())
    assert value == pytest.approx(
        aot.solve(aot.DistanceCost(x, z, reach=1.0), solver=aot.Entropic(0.1)).value, abs=1e-10
    )
    assert (start, waits) == (0, False)


LAST = {2: "process 1", 3: "process 2"}

REFUSED = {
    "nan": ("InvalidInput: x must hold finite numbers", "nan at", "in process"),
    "dimension": ("InvalidInput: x must be the same in every process", "3 columns in process 0", "2 columns in LAST"),
    "dtype": ("InvalidInput: x must be the same", "float64 with 3 columns in process 0 and float32"),
    "targets": ("InvalidInput: z must be the same", "20 points"),
    "fewer targets": ("InvalidInput: z must be the same", "19 points"),
    "reach": ("cost must be the same", "got DistanceCost(reach=1) in process 0 and DistanceCost(reach=2) in process 1"),
    "kind": ("InvalidInput: cost must be the same", "JointCost(kappa="),
    "weights": ("InvalidInput: source_weights must be the same", "none in process 0 and some in LAST"),
    "negative": ("InvalidInput: source_weights must be non-negative", "in LAST"),
    "totals": ("InvalidInput: target_weights must have the same total", "against 30"),
    "solver": ("InvalidInput: solver must be the same", "0.1"),
    "nonsense": ("InvalidInput: solver must be", "in LAST"),
    "model": ("InvalidInput: solver must be Entropic with SoftKL",),
    "matrix": (
        "InvalidInput: cost must be a DistanceCost or a JointCost",
        "Pass DistanceCost(my_points, z, reach), or solve the whole matrix in one process.",
    ),
    "unconverged": ("NotConverged: stopped at the iteration limit",),
    "infeasible": ("InvalidInput: mass must be at most",),
    "path nan": ("InvalidInput: x must hold finite numbers", "nan at", "in process"),
    "path dimension": ("InvalidInput: x must be the same in every process", "2 columns in LAST"),
    "path dtype": ("InvalidInput: x must be the same", "float64 with 3 columns in process 0 and float32"),
    "path matrix": ("InvalidInput: cost must be a DistanceCost or a JointCost",),
    "path progress": ("InvalidInput: progress must be a function", "in LAST"),
    "path mass": ("InvalidInput: mass must be the same in every process", "0.5 in process 0 and 0.6 in process 1"),
    "path too much": ("InvalidInput: mass must be at most the smaller of the total weights, 1",),
    "path no number": ("InvalidInput: mass must be", "in LAST"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("size", SIZES)
def test_all_refuse_what_one_does_wrong(said, size, name):
    words = said(size, name)
    assert len(set(words)) == 1, words
    for expected in REFUSED[name]:
        assert expected.replace("LAST", LAST[size]) in words[0]


@pytest.mark.parametrize("size", SIZES)
def test_other_errors_stop_all(said, size):
    for rank, words in enumerate(said(size, "progress")):
        assert words == ("KeyError: 'progress'" if rank == 0 else PROGRESS)
    for rank, words in enumerate(said(size, "unread")):
        last = rank == size - 1
        assert words.startswith("OSError" if last else f"ProcessLost: Process {size - 1} of the group is lost: OSError")
        assert "the disk is gone" in words


PROGRESS = str(aot.ProcessLost(0, "KeyError: 'progress'")).replace("Process", "ProcessLost: Process", 1)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ["one row", "no rows", "no rows, exactly", "no targets", "no weight"])
def test_there_may_be_less_to_do_than_processes(said, size, name):
    for words in said(size, name):
        assert words.startswith("<SolutionPart")
        assert ("mass 0," in words) == (name != "one row")


@pytest.mark.parametrize("size", SIZES)
def test_a_path_may_be_empty(said, size):
    for words in said(size, "path no rows"):
        assert words == "<MassPathPart of 0 x 20: mass 0 to 0 in 0 pieces>"
    for words in said(size, "path no weight"):
        assert "mass 0, gap 0.0e+00, OPTIMAL" in words


@pytest.mark.parametrize("name", ["stopped", "killed"])
def test_a_lost_process_stops_the_others(said, name):
    for words in said(3, name):
        assert words.startswith("ProcessLost: ")


@pytest.mark.parametrize("size", SIZES)
def test_the_command_line_speaks_once(said, size, folder):
    from scipy import sparse

    x, z, weights = (np.load(folder / f"{name}.npy") for name in ("x", "z", "weights"))
    cost = aot.DistanceCost(x, z, reach=1.5)
    for name, alone in (
        ("cli", aot.solve(cost, weights, solver=aot.Entropic(0.1))),
        ("cli exact", aot.solve(cost)),
    ):
        (code, out, err), *others = said(size, name)
        assert (code, err) == (0, "")
        summary = json.loads(out)
        assert summary["value"] == pytest.approx(alone.value, abs=1e-10)
        assert (summary["sources"], summary["pairs"]) == (101, len(alone.support[0]))
        assert all(other == [0, "", ""] for other in others)
    plan = sparse.load_npz(folder / f"plan{size}.npz")
    expected = aot.solve(cost, weights, solver=aot.Entropic(0.1)).sparse_plan
    assert abs(plan - expected).max() <= 1e-12
    assert not list(folder.glob(".*.tmp"))


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("cli torn", 2, "must be a valid .npy file"),
        ("cli matrix", 2, "must be 1 for a cost matrix"),
        ("cli output", 2, "must lie in a directory that exists"),
        ("cli steps", 3, "stopped at the iteration limit"),
        ("cli path", 2, "adaptive-ot: path runs in one process; got"),
        ("cli reach", 2, "or run it once without torchrun to have it estimated"),
        ("cli short", 2, "must be the same for every process; got"),
        ("cli changed", 2, "must be the same for every process; got other content in process 1 than in process 0"),
    ],
)
@pytest.mark.parametrize("size", SIZES)
def test_the_command_line_complains_once(said, size, name, code, words):
    first, *others = said(size, name)
    assert first[0] == code
    assert words in first[2]
    assert all(other == [code, "", ""] for other in others)


def test_files_are_solved_without_gpus(monkeypatch):
    """So there may be more processes than GPUs."""
    import torch

    from adaptive_ot._group import process_group

    begun = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.distributed, "init_process_group", begun.append)
    monkeypatch.setattr(torch.distributed, "destroy_process_group", lambda: None)
    for name in ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE"):
        monkeypatch.setenv(name, "2")
    with process_group(gpus=False):
        assert begun == ["gloo"]


@pytest.mark.slow
def test_agents_of_torchrun_meet_as_on_several_machines(folder, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    files = [str(folder / f"{name}.npy") for name in ("x", "z")]
    launch = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--rdzv-id", "aot"]
    meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{port}"]
    solve = ["-m", "adaptive_ot", "solve", *files, "--reach", "1.5", "--epsilon", "0.1", "--json"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    agents = [
        subprocess.Popen(
            [*launch, "--nproc-per-node", str(processes), *meeting, *solve, "-o", str(tmp_path / "plan.npz")],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for processes in (1, 2)
    ]
    try:
        outputs = [agent.communicate(timeout=PATIENCE)[0] for agent in agents]
    finally:
        for agent in agents:
            agent.terminate()
            agent.wait(PATIENCE)
    assert [agent.returncode for agent in agents] == [0, 0]
    alone = aot.solve(aot.DistanceCost(*map(np.load, files), reach=1.5), solver=aot.Entropic(0.1))
    assert json.loads("".join(outputs))["value"] == pytest.approx(alone.value, abs=1e-10)


def test_no_group_but_a_group():
    with pytest.raises(aot.InvalidInput, match=r"group must be .*; got str"):
        aot.solve(aot.DistanceCost([[0.0]], [[0.0]], reach=1.0), group="gloo")


def test_a_group_of_one(tmp_path):
    import torch
    from torch import distributed

    meeting = f"file://{tmp_path}/meeting"
    distributed.init_process_group("gloo", init_method=meeting, rank=0, world_size=1)
    try:
        x, z, *_ = clouds(20, 15)
        cost = aot.DistanceCost(x, z, reach=1.0)
        for solver in (aot.Exact(), aot.Entropic(0.1)):
            part, alone = aot.solve(cost, solver=solver, group=distributed.group.WORLD), aot.solve(cost, solver=solver)
            assert part.value == pytest.approx(alone.value, abs=1e-12)
            assert part.rows == range(20)
            assert part.barycentric_map(z) == pytest.approx(alone.barycentric_map(z), abs=1e-9)
            whole = part.gathered()
            assert whole is not None
            assert whole.clusters()[0].mass == pytest.approx(alone.clusters()[0].mass)
        tensors = aot.DistanceCost(torch.from_numpy(x), torch.from_numpy(z), reach=1.0)
        path, alone = aot.mass_path(tensors, group=distributed.group.WORLD), aot.mass_path(cost)
        assert path.value_at(0.5) == pytest.approx(alone.value_at(0.5), abs=1e-12)
        part = path.solution_at(0.5)
        assert torch.is_tensor(part.source_potential)
        assert torch.is_tensor(part.plan)
        assert part.value == pytest.approx(alone.value_at(0.5), abs=1e-12)
    finally:
        distributed.destroy_process_group()
