"""Importing the library is cheap, and what it promises to export is there."""

from __future__ import annotations

import subprocess
import sys

import pytest

import adaptive_ot as aot

HEAVY = ["torch", "sklearn", "matplotlib", "numba", "pandas", "scipy.optimize", "ot"]


def modules_after(code):
    """The modules a fresh interpreter has loaded after running `code`."""
    script = f"import sys\n{code}\nprint(*sorted(sys.modules))"
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.parametrize("module", ["adaptive_ot", "adaptive_ot.plot"])
def test_import_loads_nothing_heavy(module):
    loaded = modules_after(f"import {module}")
    assert module in loaded
    assert not set(HEAVY) & set(loaded)


def test_building_a_problem_loads_nothing_heavy():
    loaded = modules_after("import adaptive_ot as aot; aot.Problem.build([[1.0]]).objective([[1.0]])")
    assert not set(HEAVY) & set(loaded)


def test_solving_loads_neither_torch_nor_matplotlib():
    loaded = modules_after("import adaptive_ot as aot; aot.solve([[-1.0]])")
    assert "numba" in loaded
    assert not {"torch", "sklearn", "matplotlib"} & set(loaded)


@pytest.mark.parametrize("name", aot.__all__)
def test_public_name_exists_and_is_documented(name):
    written = getattr(aot, name).__doc__
    assert written
    assert not written.startswith(f"{name}(")  # what a dataclass without one says


def test_public_names_are_sorted_and_complete():
    assert aot.__all__ == sorted(aot.__all__)
    public = {name for name, value in vars(aot).items() if not name.startswith("_") and not _is_module(value)}
    assert public == set(aot.__all__)


def _is_module(value):
    return type(value).__name__ == "module"


def test_version():
    assert all(part.isdigit() for part in aot.__version__.split("."))


def test_every_error_is_an_adaptive_ot_error():
    for error, builtin in [
        (aot.InvalidInput, ValueError),
        (aot.DataError, ValueError),
        (aot.NotConverged, RuntimeError),
        (aot.MissingDependency, ImportError),
    ]:
        assert issubclass(error, aot.AdaptiveOTError)
        assert issubclass(error, builtin)
