"""The promises of docs/reliability.md on random problems, judged in rational arithmetic, by HiGHS and by the system.

    python tests/reliability.py            # about ten minutes on two cores; writes benchmarks/results/reliability.json
    python tests/reliability.py --share 0.01

`make test-all` runs a tenth of it. A broken promise raises AssertionError with the problem that broke it.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import json
import math
import os
import platform
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

import adaptive_ot as aot
import problems
from adaptive_ot.workbench.cli import main as command_line
from problems import Instance

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results" / "reliability.json"

# What exact answers promise, relative to the mass and to the terms of value and bound.
VIOLATION, GAP = 1e-12, 1e-9

# Two values are different from here on, relative to the largest cost times the mass: HiGHS is asked for ten digits.
DIFFERENT = 1e-9

# The marginals of entropic plans, relative to the weights; the allowance of a certificate, relative to cost times mass.
ENTROPIC_VIOLATION, ROUNDING = 1e-12, 1e-12

# Solves after which memory is read, and what may be added to it until the end.
SETTLED, MOST_GROWTH = 0.25, 16 * 2**20


def some_problem(rng: np.random.Generator) -> Instance:
    """Integers or real numbers, with everything that makes a problem degenerate."""
    return (problems.integer_problem, problems.real_problem)[int(rng.integers(2))](rng)


def rational(instance: Instance, solution: aot.Solution) -> tuple[Fraction, Fraction, Fraction]:
    """The violation, the value and a lower bound of adaptive transport, without any rounding.

    The bound comes from the source potential alone, which is made feasible here.
    """
    cost, mu, nu = instance
    mu, nu = ([Fraction(weight) for weight in side.tolist()] for side in (mu, nu))
    plan = solution.sparse_plan.tocoo()
    support = [(int(i), int(j), Fraction(g)) for i, j, g in zip(*plan.coords, plan.data.tolist(), strict=True)]
    rows, columns = dict.fromkeys(range(len(mu)), Fraction(0)), dict.fromkeys(range(len(nu)), Fraction(0))
    value, violation = Fraction(0), Fraction(0)
    for i, j, g in support:
        assert np.isfinite(cost[i, j]), "mass lies on a forbidden pair"
        value, violation = value + Fraction(cost[i, j]) * g, max(violation, -g)
        rows[i], columns[j] = rows[i] + g, columns[j] + g
    for sums, weights in ((rows, mu), (columns, nu)):
        violation = max([violation, *(sums[k] - weight for k, weight in enumerate(weights))])
    f = [min(Fraction(0), Fraction(potential)) for potential in solution.source_potential.tolist()]
    bound = sum((weight * potential for weight, potential in zip(mu, f, strict=True)), Fraction(0))
    for j, weight in enumerate(nu):
        reduced = [Fraction(c) - f[i] for i, c in enumerate(cost[:, j].tolist()) if c < np.inf]
        bound += weight * min([Fraction(0), *reduced])
    return violation, value, bound


def in_rational_arithmetic(count: int) -> dict[str, Any]:
    """Plans, values and certificates of exact answers."""
    rng, worst = np.random.default_rng(0), {"violation": 0.0, "gap": 0.0}
    optimal = 0
    for _ in range(count):
        instance = some_problem(rng)
        solution = aot.solve(*instance)
        violation, value, bound = rational(instance, solution)
        terms = 2 * abs(float(bound)) + problems.weight_scale(instance, solution.mass)
        found = {"violation": float(violation) / (solution.mass or 1.0), "gap": float(value - bound) / (terms or 1.0)}
        assert found["violation"] <= VIOLATION, instance
        assert found["gap"] <= GAP, instance
        assert float(value - bound) <= solution.gap + ROUNDING * terms, instance
        worst = {name: max(worst[name], found[name]) for name in worst}
        optimal += value == bound
    return {
        "problems": count,
        "optimal without any rounding": optimal,
        "largest violation, relative to the mass": worst["violation"],
        "largest gap, relative to its terms": worst["gap"],
    }


def has_no_plan(error: Exception, instance: Instance, reference: float | None) -> bool:
    """Whether a refusal is right."""
    if isinstance(error, aot.InvalidInput):  # without any pairs, totals were not made equal
        return not math.isclose(instance.source_weights.sum(), instance.target_weights.sum())
    if reference is None:
        return True
    # If HiGHS finds a plan all the same, no more than rounding may be missing.
    return isinstance(error, aot.Infeasible) and (error.most_mass or 0.0) >= error.mass * (1 - DIFFERENT)


def against_highs(count: int) -> dict[str, Any]:
    """Values of three models; where they differ, rational arithmetic says who is wrong."""
    rng, largest, ours, theirs = np.random.default_rng(1), 0.0, 0, 0
    solved = infeasible = 0
    for k in range(count):
        instance = some_problem(rng)
        mass: Any = "adaptive"
        if k % 3 == 1:
            mass, instance = None, problems.balanced(rng, instance) if instance.cost.size else instance
        elif k % 3 == 2:
            mass = float(rng.random()) * problems.most_mass(instance)
        marginals = {0: aot.AtMost(), 1: aot.Equal()}.get(k % 3) or aot.FixedMass(mass)
        if mass == "adaptive":
            reference = problems.reference_value(*instance)
        else:
            reference = problems.family_reference(*instance, mass)
        try:
            solution = aot.solve(*instance, marginals=marginals)
        except (aot.Infeasible, aot.InvalidInput) as error:
            if not has_no_plan(error, instance, reference):
                raise AssertionError(instance) from error
            infeasible += 1
            continue
        solved += 1
        if reference is None:
            theirs += 1
            continue
        scale = problems.weight_scale(instance, max(solution.mass, 0.0)) or 1.0
        difference = (solution.value - reference) / scale
        if abs(difference) <= DIFFERENT:
            largest = max(largest, abs(difference))
        elif solution.gap <= DIFFERENT * scale:  # nothing feasible is cheaper, and the plan is feasible
            assert solution.violation <= VIOLATION * max(solution.mass, 1e-300), instance
            theirs += 1
        else:
            ours += 1
    assert ours == 0
    return {
        "problems": solved,
        "infeasible or refused": infeasible,
        "largest difference, relative to cost times mass": largest,
        "HiGHS was wrong": theirs,
        "we were wrong": ours,
    }


FORMS: tuple[Any, ...] = ("augmented", "product", "counting")


def entropic(count: int) -> dict[str, Any]:
    """Entropic plans are finite and feasible, and the exact optimum lies within their gaps."""
    rng, worst = np.random.default_rng(2), 0.0
    for k in range(count):
        instance = some_problem(rng)
        optimum, most = aot.solve(*instance).value, problems.weight_scale(instance)
        size = np.abs(instance.cost[np.isfinite(instance.cost)]).max(initial=0.0) or 1.0
        solver = aot.Entropic(size * 10 ** rng.uniform(-3, 2), entropy=FORMS[k % 3])
        solution = aot.solve(*instance, solver=solver)
        numbers = solution.plan, solution.source_potential, solution.target_potential, solution.value, solution.gap
        assert all(np.isfinite(number).all() for number in numbers), instance
        assert solution.plan.min(initial=0.0) >= 0, instance
        for sums, weights in zip((solution.plan.sum(1), solution.plan.sum(0)), instance[1:], strict=True):
            over = float((sums - weights).max(initial=0.0)) / (float(weights.max(initial=0.0)) or 1.0)
            assert over <= ENTROPIC_VIOLATION, instance
            worst = max(worst, over)
        assert optimum - ROUNDING * most <= solution.value <= optimum + solution.gap + ROUNDING * most, instance
    return {"problems": count, "largest violation, relative to the weights": worst}


def resident_bytes() -> int:
    """The memory that this process holds now."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def memory(count: int) -> dict[str, Any]:
    """Solves of all kinds, of which nothing stays in memory."""
    if sys.platform != "linux":
        return {"solves": 0}
    rng, before = np.random.default_rng(3), 0
    for k in range(count):
        if k == int(SETTLED * count):
            before = resident_bytes()
        cost, x, z = rng.standard_normal((20, 30)), *rng.standard_normal((2, 40, 2))
        kind = k % 4
        if kind == 0:
            aot.solve(cost)
        elif kind == 1:
            aot.solve(aot.DistanceCost(x, z, reach=1.0))
        elif kind == 2:
            aot.solve(np.stack([cost, -cost]))
        else:
            aot.solve(cost[:8, :8], solver=aot.Entropic(0.5))
    grown = resident_bytes() - before
    assert grown <= MOST_GROWTH, f"memory has grown by {grown / 2**20:.0f} MiB"
    return {"solves": count, "growth in MiB": round(grown / 2**20, 1)}


FILES = {
    "good.npy": lambda path: np.save(path, [[-1.0, 2.0], [3.0, -4.0]]),
    "nan.npy": lambda path: np.save(path, [[np.nan, 1.0]]),
    "flat.npy": lambda path: np.save(path, [1.0, 2.0]),
    "empty.npy": lambda path: path.touch(),
    "torn.npy": lambda path: (np.save(path, np.ones((50, 50))), os.truncate(path, 999)),
    "text.csv": lambda path: path.write_text("a,b\n1,x\n"),
    "pairs.csv": lambda path: path.write_text("source,target,score\na,b,1\na,b,nan\n"),
    "binary.toml": lambda path: path.write_bytes(bytes(range(256))),
    "zip.npz": lambda path: path.write_bytes(b"PK\x03\x04 and no more"),
    "folder.npz": lambda path: path.mkdir(),
}
COMMANDS = (
    "solve {}",
    "solve {} {}",
    "solve {} --epsilon {}",
    "solve {} {} --reach {}",
    "solve {} --mass {}",
    "solve {} --output {}",
    "path {} --plot {}",
    "match {} --output {}",
    "match {} --error-rate {}",
    "adapt {} {}",
    "adapt {} {} --report {}",
    "benchmark features {} -o {}",
    "benchmark deep {} -o {}",
    "benchmark sensitivity {} -o {}",
    "train --dataset {} --root {} --source {} --target {} -o out",
    "predict {} {}",
    "evaluate {}",
    "report {}",
    "figures -o {} {}",
    "{} {}",
)
WORDS = (
    "--bogus",
    "--epsilon=-1",
    "",
    "nan",
    "-inf",
    "1e999",
    "missing.npy",
    "\x00",
    "ä\n",
    "../" * 50,
    "a" * 300,
    "-",
)


def command_lines(count: int) -> dict[str, Any]:
    """Bad files and bad words in every command: an exit code and a line that says what is wrong, never a traceback."""
    rng, codes = np.random.default_rng(4), dict.fromkeys(range(4), 0)
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for name, write in FILES.items():
            write(Path(name))
        words = [*FILES, *WORDS]
        for k, command in zip(range(count), itertools.cycle(COMMANDS), strict=False):
            line = [str(rng.choice(words)) if word == "{}" else word for word in command.split()]
            out, err = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = command_line(line)
            said = out.getvalue() + err.getvalue()
            assert code in codes, (k, line, said)
            assert "Traceback" not in said, (k, line, said)
            assert code == 0 or err.getvalue().strip(), (k, line)
            codes[code] += 1
    assert Path.cwd() == here
    return {"command lines": count, "refused": codes[2], "tracebacks": 0}


# Every check, and how many problems it has in the whole run.
CHECKS: dict[str, tuple[Callable[[int], dict[str, Any]], int]] = {
    "rational": (in_rational_arithmetic, 100_000),
    "highs": (against_highs, 40_000),
    "entropic": (entropic, 30_000),
    "memory": (memory, 100_000),
    "command lines": (command_lines, 1_000),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=1.0, help="of the problems")
    share = parser.parse_args().share
    warnings.simplefilter("error")
    found: dict[str, Any] = {}
    for name, (check, count) in CHECKS.items():
        start = time.perf_counter()
        found[name] = check(max(1, round(share * count)))
        print(f"{name} ({time.perf_counter() - start:.0f} s)", json.dumps(found[name], indent=1), flush=True)
    if share == 1.0:
        header = {"command": "python tests/reliability.py", "python": platform.python_version()}
        RESULTS.write_text(json.dumps(header | {"version": aot.__version__} | found, indent=1) + "\n")


if __name__ == "__main__":
    main()
