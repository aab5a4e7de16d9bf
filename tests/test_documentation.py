"""Every block of the documentation runs, every page is in the navigation, every public name in the reference."""

import importlib
import io
import json
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path

import pytest

from commands import environment

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted({ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *DOCS.rglob("*.md")})
NAMES = {page: page.relative_to(ROOT).as_posix() for page in PAGES}
MODULES = ("", ".plot", ".adapt", ".autodiff", ".deep", ".diagrams", ".errors", ".report")

# What a page takes for granted: data that only the reader has.
GIVEN = {
    "docs/gallery.md": """
import json
import numpy as np
import adaptive_ot as aot
from pathlib import Path
from adaptive_ot import plot
from adaptive_ot.workbench.cli.samples import TOY_COST, moons_with_outliers
rng = np.random.default_rng(0)
x, z, y, t = rng.random((60, 2)), rng.random((50, 2)), rng.integers(0, 10, 60), rng.integers(0, 10, 50)
q = np.eye(10)[t]
overlap, masses = [0.5, 0.75, 1.0], [0.5, 0.7, 1.0]
step = {"step": 0, "accuracy": 0.5, "cross_entropy": 1.0, "transport": 0.1, "mass": 0.5, "plan_purity": 0.9}
Path("run").mkdir()
Path("run/metrics.jsonl").write_text(json.dumps(step) + "\\n" + json.dumps(step | {"step": 10}) + "\\n")
values, means, deviations = [0.25, 0.5, 1.0], [70.0, 80.0, 75.0], [1.0, 1.0, 1.0]
beta = plot.Curve("beta", values, means, deviations, default=0.5)
methods, tasks, accuracies = ["AOT", "source only"], ["a -> b", "b -> a"], [[80.0, 70.0], [75.0, np.nan]]
another = []
on_a_torus = lambda seed: np.random.default_rng(seed).random((30, 3))
aot.solve(rng.random((40, 40)) - 0.5, solver=aot.Entropic(1.0), progress=another.append)
""",
    "docs/distributed.md": """
import os
import numpy as np
os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
for name in ("x.npy", "z.npy"):
    np.save(name, np.random.default_rng(0).random((20, 2)))
""",
    "docs/report.md": """
import numpy as np
from adaptive_ot.workbench.cli import main
for name in ("x.npy", "z.npy"):
    np.save(name, np.random.default_rng(0).random((20, 2)))
assert main(["solve", "x.npy", "z.npy", "--reach", "0.2", "--report", "out"]) == 0
""",
    "docs/integrations.md": """
import sys
from importlib.util import find_spec
from types import ModuleType
if find_spec("lightning") is None and find_spec("torch") is not None:
    import torch

    class LightningModule(torch.nn.Module):
        def log(self, name, value):
            assert torch.isfinite(value)

    sys.modules["lightning"] = ModuleType("lightning")
    sys.modules["lightning"].LightningModule = LightningModule
""",
    "docs/deep.md": """
import numpy as np
from pathlib import Path
from PIL import Image
rng = np.random.default_rng(0)
for domain in ("studio", "phone"):
    for grey, thing in ((60, "mug"), (190, "pen")):
        Path("photos", domain, thing).mkdir(parents=True)
        for number in range(8):
            pixels = np.uint8(rng.integers(0, 60, (32, 32, 3)) + grey)
            Image.fromarray(pixels).save(Path("photos", domain, thing, f"{number}.png"))
Image.fromarray(pixels).save("one.png")
""",
}
# In processes of their own: SKADA changes settings of scikit-learn, a method of the reader's own would stay registered.
APART = ["docs/deep.md", "docs/distributed.md", "docs/integrations.md", "docs/migration.md"]


def blocks(page: Path) -> list[str]:
    """The Python blocks of a page that are no doctests."""
    found = re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [block for block in found if ">>> " not in block]


def can_run(block: str) -> bool:
    """Whether all packages that it imports are installed; Lightning is replaced above."""
    packages = re.findall(r"^(?:import|from) (\w+)", block, re.MULTILINE)
    return all(find_spec("torch" if package == "lightning" else package) for package in packages)


SLOW = {"docs/deep.md": pytest.mark.slow}  # it trains a network


@pytest.mark.parametrize(
    "page", [pytest.param(page, id=NAMES[page], marks=SLOW.get(NAMES[page], ())) for page in PAGES if blocks(page)]
)
def test_blocks_run_in_order(page, monkeypatch, tmp_path):
    name = NAMES[page]
    if name == "docs/deep.md" and find_spec("torchvision") is None:
        pytest.skip("needs torchvision")
    code = "\n".join([GIVEN.get(name, ""), *filter(can_run, blocks(page))])
    monkeypatch.chdir(tmp_path)
    if name not in APART:
        exec(compile(code, name, "exec"), {"__name__": name})
        return
    (tmp_path / "blocks.py").write_text(code, encoding="utf-8")
    command, env = [sys.executable, "blocks.py"], environment(OMP_NUM_THREADS="1")
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def assert_same(printed: str, shown: str) -> None:
    """Numbers may differ a little from machine to machine; the steps of a solver are its own affair."""
    parts = [re.split(r"(-?\d+\.?\d*(?:e-?\d+)?)", re.sub(r"  steps .*", "", text)) for text in (printed, shown)]
    assert [part[::2] for part in parts[:1]] == [part[::2] for part in parts[1:]]
    assert [float(x) for x in parts[0][1::2]] == pytest.approx([float(x) for x in parts[1][1::2]], rel=0.02, abs=1e-9)


def test_the_notebook_prints_what_it_shows(monkeypatch, tmp_path):
    """Its pictures are drawn, but not compared."""
    pytest.importorskip("matplotlib")
    pytest.importorskip("torch")
    text = (DOCS / "tutorial.ipynb").read_text(encoding="utf-8")
    assert not re.search(r"/(home|root|tmp|work|usr)/|[A-Z]:\\\\", text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    names: dict[str, object] = {}
    for cell in json.loads(text)["cells"]:
        if cell["cell_type"] != "code":
            continue
        with redirect_stdout(io.StringIO()) as printed:
            exec(compile("".join(cell["source"]), "tutorial.ipynb", "exec"), names)
        shown = "".join("".join(output["text"]) for output in cell["outputs"] if output["output_type"] == "stream")
        assert_same(printed.getvalue(), shown)


COMMANDS = {
    (NAMES[page], command)
    for page in PAGES
    for command in re.findall(
        r"^(?:    )?(adaptive-ot .*)$", page.read_text("utf-8").replace("\\\n", " "), re.MULTILINE
    )
}


@pytest.mark.parametrize(("page", "command"), sorted(COMMANDS))
def test_commands_are_understood(page, command):
    """Their options exist and have values of the right kind; other tests run them."""
    pytest.importorskip("cyclopts")
    from adaptive_ot.workbench.cli.app import app

    app.parse_args(shlex.split(command, comments=True)[1:], print_error=False, exit_on_error=False)


def test_every_page_is_in_the_navigation():
    _, _, navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")
    listed = re.findall(r"[\w/]+\.md", navigation)
    assert len(listed) == len(set(listed))
    made = {"index.md", "tutorial.md", "changelog.md", "contributing.md"}  # by docs/pages.py
    assert set(listed) - made == {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_is_in_the_reference(name):
    try:
        module = importlib.import_module(f"adaptive_ot{name}")
    except ImportError as missing:
        pytest.skip(str(missing))
    reference = "".join(page.read_text(encoding="utf-8") for page in (DOCS / "reference").glob("*.md"))
    defined = [key for key, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
    public = getattr(module, "__all__", [key for key in defined if key[0] != "_" and callable(vars(module)[key])])
    for key in public:
        if f".{key}" in MODULES:
            continue
        thing = getattr(module, key)
        where = f"::: {thing.__module__}.{key}\n" if hasattr(thing, "__module__") else f"`{key}`"
        assert where in reference, f"{key} of {module.__name__}"


@pytest.mark.parametrize("page", [*PAGES, DOCS / "tutorial.ipynb"], ids=lambda page: page.name)
def test_links_lead_to_files(page):
    """`make docs` checks their anchors."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)\s#]+)(?:#[^)]*)?\)", text):
        assert link.startswith("https://") or (page.parent / link).exists(), link


def test_the_tests_of_the_theory_exist():
    defined = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    named = re.findall(r"`(test_\w+)`", (DOCS / "theory.md").read_text(encoding="utf-8"))
    assert len(named) > 15
    assert not [name for name in named if f"def {name}(" not in defined]
