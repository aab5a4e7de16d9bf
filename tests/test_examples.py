"""Every example runs, is short, and prints what it promises."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
PROMISES = {
    "toy.py": ["mass 2/5", "left alone: sources [6], targets [5]", "value -0.733333, lower bound -0.733333"],
    "outliers.py": ["of the outliers left alone", "match everything: shift", "picture: outliers.png"],
    "training.py": ["the shape moved by 0.9", "its outliers by 0.0000"],
    "tracking.py": ["8 of 8 objects followed", "8 confirmed tracks"],
}


def test_every_example_is_listed():
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(PROMISES)


@pytest.mark.parametrize("name", PROMISES)
def test_example(name, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [name])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    printed = capsys.readouterr().out
    for promise in PROMISES[name]:
        assert promise in printed
    assert len((EXAMPLES / name).read_text().splitlines()) < 80
    assert (tmp_path / "outliers.png").exists() == (name == "outliers.py")
