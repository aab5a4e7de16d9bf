"""Run the demo and the tests as other machines would, in every setting below or in those that are named.

A setting is a machine, written as what one would type to imitate it. Processors, threads and versions change numbers;
users, folders and languages change files and commands. Each setting runs the tests that it could break. If a setting
fails, run parts of its command, such as ``OPENBLAS_CORETYPE=Zen make test``, to find the cause.
"""

import argparse
import os
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import numpy as np

from adaptive_ot.workbench.benchmark.engine import THREADS

ROOT = Path(__file__).parents[1]
BUILD = Path("build/portable")
LOWEST = BUILD / "lowest.txt"
SKIPPED = 77

NUMBERS = """
    adapt autodiff batch conic entropic entropic_family exact family fixed laws marginals paths pricing problem simplex
    solution theorems torch
    deep_batches deep_methods deep_networks deep_resume deep_together deep_training deep_transport
"""
FILES = """
    adapt_cli benchmark benchmark_deep cli cli_refusals deep_cli deep_config deep_data deep_images deep_run_directory
    errors feature_files import interrupt report_cli report_page report_runs
"""

SHELL = f"""
skip() {{ echo "$1"; exit {SKIPPED}; }}
language() {{ locale -a | grep -qix "$1.utf-\\?8" || skip "There is no locale $1."; }}
move() {{ # to a copy of the working tree, of which nothing is left in the end
    place=$(mktemp -d)
    trap 'rm -rf "$place"' EXIT
    mkdir "$place/$1"
    git ls-files -z --cached --others --exclude-standard | tar -c --null -T - | tar -x -C "$place/$1"
    cd "$place/$1"
}}
"""


def numpy_without(*features: str) -> str:
    """The features of this processor that begin so and that NumPy can do without; it objects to other names."""
    module = np._core._multiarray_umath  # type: ignore[attr-defined]
    named = [name for name in module.__cpu_dispatch__ if name.startswith(features) and module.__cpu_features__[name]]
    return f"NPY_DISABLE_CPU_FEATURES='{' '.join(named)}'"


def threads(count: int) -> str:
    return " ".join(f"{name}={count}" for name in THREADS)


def kernels(name: str) -> str:
    return f'NUMBA_CACHE_DIR="$PWD/{BUILD}/kernels-{name}"'


def installed(name: str, python: str, constraints: Path = Path("constraints.txt")) -> str:
    """Another environment, without PyTorch: its builds without CUDA are few."""
    return (
        f"{python} -c '' 2> /dev/null || skip 'There is no {python}.'; {kernels(name)} "
        f"make demo test VENV={BUILD}/{name} PYTHON={python} EXTRA=test CONSTRAINTS={constraints}"
    )


def shuffled(seed: int) -> str:
    return f'PYTEST_ADDOPTS="$PYTEST_ADDOPTS -p randomly --randomly-seed={seed}"'


TORCH_AVX2 = "ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_CBWR=AVX2"
TORCH_DEFAULT = "ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_CBWR=COMPATIBLE"
NUMPY_AVX2 = numpy_without("AVX512", "X86_V4")
NUMBA_GENERIC = f"NUMBA_CPU_NAME=generic {kernels('generic')}"
ODD_FOLDER = """
move 'ein Ordner für Tests'
ln -s "$OLDPWD/.venv" .venv
export PYTHONPATH="$PWD/src" MAKEFLAGS="-o.venv/.dev -o.venv/.cli"
"""
NOBODY = """
[ "$(id -u)" = 0 ] || skip "You are not root: every setting shows what happens then."
move 'ein Ordner für Tests'; chown -R nobody "$place"
export HOME="$place" PATH=/usr/local/bin:/usr/bin:/bin
user="setpriv --reuid=nobody --regid=$(id -g nobody) --clear-groups"
$user python3 -c "import ensurepip, sys; assert sys.version_info >= (3, 11)" || skip "The python3 of users is too old."
$user make demo test PYTHON=python3
"""

PROCESSORS = {
    "haswell": f"{TORCH_AVX2} {NUMPY_AVX2} OPENBLAS_CORETYPE=Haswell {threads(1)} {shuffled(1)} make demo test",
    "zen": f"{TORCH_AVX2} {NUMPY_AVX2} OPENBLAS_CORETYPE=Zen {threads(4)} {shuffled(2)} make demo test",
    "skylake": f"OPENBLAS_CORETYPE=SkylakeX {threads(2)} {shuffled(3)} make demo test",
    "oldest": f"{TORCH_DEFAULT} {numpy_without('')} OPENBLAS_CORETYPE=Prescott {NUMBA_GENERIC} {threads(1)} "
    "make demo test",
}
PLACES = {
    "elsewhere": f"{ODD_FOLDER} umask 077; trap '' INT; LC_ALL=C TZ=Asia/Kathmandu {shuffled(4)} make demo test",
    "abroad": f"language tr_TR; language de_DE; unset LC_ALL; LC_CTYPE=tr_TR.UTF-8 LC_NUMERIC=de_DE.UTF-8 "
    f"TZ=Pacific/Chatham {shuffled(5)} make demo test",
    "nobody": NOBODY,
}
VERSIONS = {
    "python-3.12": installed("python-3.12", "python3.12"),
    "python-3.13": installed("python-3.13", "python3.13"),
    "lowest": installed("lowest", "python3.11", LOWEST),
}
SETTINGS = PROCESSORS | PLACES | VERSIONS


def tests_of(setting: str) -> list[str]:
    chosen = NUMBERS if setting in PROCESSORS else FILES if setting in PLACES else NUMBERS + FILES
    return [f"tests/test_{name}.py" for name in chosen.split()]


def write_lowest_versions() -> None:
    """Every dependency of users at the lowest version that pyproject.toml allows; what only tests need is free."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = [project["optional-dependencies"][name] for name in ("plot", "report", "adapt", "files", "cli")]
    named = [name for group in (project["dependencies"], *groups) for name in group]
    (ROOT / LOWEST).parent.mkdir(parents=True, exist_ok=True)
    lines = [name.replace(">=", "==") for name in named if ">=" in name]
    (ROOT / LOWEST).write_text("\n".join([*lines, "pyparsing<3.3"]))  # later ones warn about what Matplotlib calls


def run(setting: str) -> tuple[str, float]:
    """The verdict, and seconds."""
    print(f"\n{setting}: {SETTINGS[setting].strip()}", flush=True)
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONUTF8", "PYTHONHASHSEED")}
    environment["PYTEST_ADDOPTS"] = f"-q -m 'not slow and not browser' {' '.join(tests_of(setting))}"
    start = time.perf_counter()
    command = ["bash", "-euo", "pipefail", "-c", SHELL + SETTINGS[setting]]
    status = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
    return {0: "passed", SKIPPED: "skipped"}.get(status, "FAILED"), time.perf_counter() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", nargs="*", metavar="SETTING", help=f"all by default: {', '.join(SETTINGS)}")
    settings = parser.parse_args().settings or list(SETTINGS)
    if unknown := set(settings) - set(SETTINGS):
        parser.error(f"no such setting: {', '.join(sorted(unknown))}; there are {', '.join(SETTINGS)}")
    write_lowest_versions()
    verdicts = {setting: run(setting) for setting in settings}
    print(f"\n{'setting':<20}{'verdict':<10}seconds")
    for setting, (verdict, seconds) in verdicts.items():
        print(f"{setting:<20}{verdict:<10}{seconds:7.0f}")
    return int(any(verdict == "FAILED" for verdict, _ in verdicts.values()))


if __name__ == "__main__":
    sys.exit(main())
