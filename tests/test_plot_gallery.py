"""The gallery shows every picture, and the files that it shows are there."""

import ast
import inspect
import re
import runpy
from pathlib import Path

import pytest

from adaptive_ot import plot

DOCS = Path(__file__).parent.parent / "docs"
TEXT = (DOCS / "gallery.md").read_text()


@pytest.fixture(scope="module")
def script():
    pytest.importorskip("rich")
    return runpy.run_path(str(DOCS / "gallery.py"))


def test_every_function_is_shown():
    public = {name for name in plot.__all__ if inspect.isfunction(getattr(plot, name))}
    blocks = [ast.parse(block) for block in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)]
    called = {
        node.func.attr
        for block in blocks
        for node in ast.walk(block)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }
    assert public - called == {"theme"}
    assert 'plot.theme("dark")' in TEXT


def test_every_picture_is_there_and_small(script):
    shown = re.findall(r"!\[.+?\]\(gallery/(\w+)\.png\)", TEXT)
    assert sorted(shown) == sorted(path.stem for path in (DOCS / "gallery").iterdir())
    assert set(shown) == {*script["PICTURES"], *(f"{name}_dark" for name in script["ALSO_DARK"])}
    for name in shown:
        content = (DOCS / "gallery" / f"{name}.png").read_bytes()
        assert content[1:4] == b"PNG"
        assert len(content) < 150_000


@pytest.mark.parametrize("name", ["toy", "comparison"])
def test_the_script_draws(script, name, tmp_path, monkeypatch):
    monkeypatch.setitem(script["main"].__globals__, "HERE", tmp_path / "docs")
    (tmp_path / "docs" / "gallery").mkdir(parents=True)
    script["main"]([name])
    assert (tmp_path / "docs" / "gallery" / f"{name}.png").stat().st_size > 1000
