"""Build the wheel and the sdist, and try both in empty environments, one for each version of Python.

    python tests/release.py               # 3.11, 3.12 and 3.13; a version that is not there is skipped
    python tests/release.py 3.12

`make test-release` does the same. The distributions are left in dist/.
"""

import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSIONS = ("3.11", "3.12", "3.13")

# What a user tries first, without any extra.
LIBRARY = """
import numpy as np
import adaptive_ot as aot

rng = np.random.default_rng(0)
cost = rng.normal(size=(40, 30))
exact, entropic = aot.solve(cost), aot.solve(cost, solver=aot.Entropic(0.1))
assert exact.gap < 1e-12 and entropic.value - exact.value <= entropic.gap
assert aot.solve(aot.DistanceCost(cost, cost[:20], reach=1.0)).mass == 0.5
assert len(aot.match(-cost).pairs) > 20 and aot.mass_path(cost).suggest().adaptive > 0
print("library", aot.__version__)
"""

# Files that a wheel must have beside the modules, and a sdist beside those.
IN_WHEEL = ("adaptive_ot/py.typed", "adaptive_ot/workbench/report/html/")
IN_SDIST = ("README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "Makefile", "constraints.txt", "tests/", "docs/")


def call(*command: object, cwd: Path = ROOT) -> None:
    subprocess.run([str(word) for word in command], cwd=cwd, check=True)


def build() -> tuple[Path, Path]:
    """The wheel and the sdist, which hold what they should."""
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    call(sys.executable, "-m", "build", "--outdir", "dist")
    (wheel,), (sdist,) = (sorted((ROOT / "dist").glob(pattern)) for pattern in ("*.whl", "*.tar.gz"))
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert all(any(name.startswith(wanted) for name in names) for wanted in IN_WHEEL), names
        assert not any(name.startswith(("tests", "benchmarks", "docs")) for name in names), names
    with tarfile.open(sdist) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
        assert all(any(name.startswith(wanted) for name in names) for wanted in IN_SDIST), names
    return wheel, sdist


def try_out(python: str, distribution: Path, extra: str) -> None:
    """Install into an empty environment, and use the library, or the command line with its extra."""
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        call(python, "-m", "venv", here / "venv")
        inside = here / "venv" / "bin"
        quiet = "--quiet", "--disable-pip-version-check", "--constraint", ROOT / "constraints.txt"
        call(inside / "python", "-m", "pip", "install", *quiet, f"{distribution}{extra}")
        call(inside / "python", "-W", "error", "-c", LIBRARY, cwd=here)
        if extra:
            call(inside / "adaptive-ot", "doctor", cwd=here)
            call(inside / "adaptive-ot", "demo", "--output", "demo", cwd=here)


def main() -> None:
    wheel, sdist = build()
    for version in sys.argv[1:] or VERSIONS:
        python = f"python{version}"
        if not shutil.which(python) or subprocess.run([python, "-c", ""], check=False, capture_output=True).returncode:
            print(f"{version}: skipped, there is no {python}")
            continue
        try_out(python, sdist, "")
        try_out(python, wheel, "[cli]")
        print(f"{version}: passed", flush=True)


if __name__ == "__main__":
    main()
