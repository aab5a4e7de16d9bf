"""Every example runs, is short, and prints what it promises."""

import re
import runpy
from importlib.util import find_spec
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
PROMISES = {
    "adaptation.py": [
        "not adapted  5",
        "adaptive     7",
        "AUC of the outlier score for unknown digits: 0.7",
        "rejected: 8",
    ],
    "choosing.py": ["AtMost(): adaptive            0.75", "Equal(): everything moves     1.00", "adaptive=0.753"],
    "deep_digits.py": ["not adapted  ", "mass 1.00", "equal capacities     9", "adaptive             9"],
    "adaptive_versus_partial.py": ["0.000    0.0000         0.500    0.0067", "adaptive mass from 0 to 1: 250"],
    "single_cells.py": ["400 labelled and 400 other cells, 400 genes of both", "unknown", "for the new types: "],
    "toy.py": ["mass 2/5", "left alone: sources [6], targets [5]", "value -0.733333, lower bound -0.733333"],
    "outliers.py": ["of the outliers left alone", "match everything: shift", "picture: outliers.png"],
    "training.py": ["the shape moved by 0.9", "its outliers by 0.0000"],
    "matching.py": ["35 matches, 5 of before and 8 of now left alone", "asked: 0.02 0.05", "picture: matching.png"],
    "tracking.py": ["8 of 8 objects followed", "8 confirmed tracks"],
}
MARKS = {
    "deep_digits.py": pytest.mark.slow,  # it trains three networks
    "single_cells.py": pytest.mark.skipif(find_spec("anndata") is None, reason="needs anndata"),
}


def test_every_example_is_listed():
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(PROMISES)


@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS.get(name, ())) for name in PROMISES])
def test_example(name, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [name])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    printed = capsys.readouterr().out
    for promise in PROMISES[name]:
        assert promise in printed
    assert len((EXAMPLES / name).read_text().splitlines()) < 80
    assert {path.name for path in tmp_path.iterdir()} == set(re.findall(r"picture: (\S+)", printed))
