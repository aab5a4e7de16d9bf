"""Importing the library is cheap, and what it promises to export is there."""

from __future__ import annotations

import importlib.util
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
        (aot.OutOfRange, IndexError),
        (aot.DataError, ValueError),
        (aot.NotConverged, RuntimeError),
        (aot.MissingDependency, ImportError),
    ]:
        assert issubclass(error, aot.AdaptiveOTError)
        assert issubclass(error, builtin)


# What loads on first touch, and a package that it needs to load.
NEEDED = {"adapt": "sklearn", "autodiff": "torch", "deep": "torchvision", "plot": "numpy", "report": "numpy"}
ON_FIRST_TOUCH = [name for name, package in NEEDED.items() if importlib.util.find_spec(package)]


def test_modules_load_on_first_touch():
    code = f"""
import adaptive_ot as aot
for name in {ON_FIRST_TOUCH}:
    full = f"adaptive_ot.{{name}}"
    assert full not in sys.modules or name in ("plot", "report"), full  # which adapt and deep may need
    assert getattr(aot, name) is sys.modules[full]
"""
    loaded = modules_after(code)
    assert {f"adaptive_ot.{name}" for name in ON_FIRST_TOUCH} <= set(loaded)
    assert not {f"adaptive_ot.{name}" for name in ON_FIRST_TOUCH} & set(modules_after("import adaptive_ot"))


def test_names_complete():
    """What TAB offers: public names and modules, each of which is there, and nothing behind them."""
    assert dir(aot) == sorted({*aot.__all__, *NEEDED, "__version__", "diagrams"})
    assert all(hasattr(aot, name) for name in dir(aot) if name not in {*NEEDED} - {*ON_FIRST_TOUCH})
    with pytest.raises(AttributeError, match="module 'adaptive_ot' has no attribute 'plots'"):
        aot.plots  # type: ignore[attr-defined] # noqa: B018


@pytest.mark.parametrize(
    ("module", "name", "line"),
    [
        ("sklearn", "adapt", 'This needs scikit-learn: pip install "adaptive-ot[adapt]"'),
        ("torch", "autodiff", 'This needs torch: pip install "adaptive-ot[torch]"'),
        ("torch", "deep", 'This needs torch, torchvision, Pillow and safetensors: pip install "adaptive-ot[deep]"'),
        ("matplotlib", "plot.plan(aot.solve([[-1.0]]))", 'This needs matplotlib: pip install "adaptive-ot[plot]"'),
    ],
)
def test_missing_extra_gives_the_line_for_pip(module, name, line):
    code = f"""
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == {module!r} else found(name, *more)
sys.modules[{module!r}] = None
import adaptive_ot as aot
try:
    aot.{name}
except aot.MissingDependency as error:
    assert str(error) == {line!r}, error
else:
    raise AssertionError("nothing was missing")
"""
    modules_after(code)


def test_plot_completes_to_what_draws():
    assert "transport" in dir(aot.plot)
    for name in dir(aot.plot):
        drawing = getattr(aot.plot, name)
        assert callable(drawing)
        assert drawing.__doc__
    assert set(dir(aot.plot)) <= set(aot.plot.__all__)
    assert aot.plot.transport is importlib.import_module("adaptive_ot.plot.transport").transport


def test_version_looks_at_no_command():
    code = """
import contextlib, io
from adaptive_ot.workbench.cli import main
with contextlib.redirect_stdout(io.StringIO()) as printed:
    assert main(["--version"]) == 0
assert printed.getvalue() == main.__globals__["__version__"] + "\\n"
"""
    loaded = modules_after(code)
    assert not {"adaptive_ot.workbench.cli.app", "cyclopts", *HEAVY} & set(loaded)
