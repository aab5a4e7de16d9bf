"""How long a first call takes: in a new process, with nothing compiled before, and with everything on disk.

    python benchmarks/first_use.py                      # this version
    python benchmarks/first_use.py --beside OTHER/src   # and another one, case by case in turns

Every call runs in a process of its own. The time is that of the whole process, from the start of Python to its end; the
first process of a case finds an empty kernel cache, the second what the first left there. The processor time is what
the process and its threads used, which depends less on what else the machine does.
Results: benchmarks/results/first_use.json.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import measure

RESULTS = measure.RESULTS / "first_use.json"
SOURCE = measure.HERE.parent / "src"

SETUP = """
import numpy as np, adaptive_ot as aot
rng = np.random.default_rng(0)
cost, entropic = rng.standard_normal, aot.Entropic(0.1)
"""

TRAINING = """
import numpy as np
from adaptive_ot import deep
rng, images = np.random.default_rng(0), {}
for domain, size in (("a", 200), ("b", 150)):
    images[f"{domain}_train_x"] = rng.integers(0, 256, (size, 28, 28), np.uint8)
    images[f"{domain}_train_y"] = np.arange(size) % 10
np.savez("digits.npz", **images)
place = {"dataset": "digits", "root": "digits.npz", "source": "a", "target": "b", "output": "run"}
deep.train(deep.configure(**place, method=METHOD, iterations=1))
"""

CASES = {
    "import adaptive_ot": "import adaptive_ot",
    "exact, 6 x 5": SETUP + "aot.solve(cost((6, 5)))",
    "exact, 500 x 500": SETUP + "aot.solve(cost((500, 500)))",
    "exact, random weights, 500 x 500": SETUP + "aot.solve(cost((500, 500)), rng.random(500), rng.random(500))",
    "exact, points, 1000 x 800": SETUP + "aot.solve(aot.DistanceCost(cost((1000, 3)), cost((800, 3)), 1.0))",
    "exact, FixedMass, 500 x 500": SETUP + "aot.solve(cost((500, 500)), marginals=aot.FixedMass(0.5))",
    "exact, batch of 20, 60 x 60": SETUP + "aot.solve(cost((20, 60, 60)))",
    "exact, batch of 20, 60 x 50": SETUP + "aot.solve(cost((20, 60, 50)))",
    "mass path, 500 x 500": SETUP + "aot.mass_path(cost((500, 500)))",
    "entropic, 60 x 50": SETUP + "aot.solve(cost((60, 50)), solver=entropic)",
    "entropic, 500 x 500": SETUP + "aot.solve(cost((500, 500)), solver=entropic)",
    "entropic, epsilon 0.001, 500 x 500": SETUP + "aot.solve(cost((500, 500)), solver=aot.Entropic(0.001))",
    "entropic, SoftKL, 60 x 50": SETUP + "aot.solve(cost((60, 50)) ** 2, marginals=aot.SoftKL(1.0), solver=entropic)",
    "entropic, batch of 20, 60 x 50": SETUP + "aot.solve(cost((20, 60, 50)), solver=entropic)",
    "entropic, points, 1000 x 800": SETUP
    + "aot.solve(aot.DistanceCost(cost((1000, 3)), cost((800, 3)), 1.0), solver=entropic)",
    "one training step, source only": TRAINING.replace("METHOD", '"source-only"'),
    "one training step, AOT": TRAINING.replace("METHOD", '"aot"'),
}


def run(code: str, source: Path, cache: str) -> dict[str, float]:
    """Seconds of a process, and of its processor time."""
    environment = os.environ | {"NUMBA_CACHE_DIR": cache, "PYTHONPATH": str(source)}
    used, started = processor_time(), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-c", code], env=environment, cwd=folder, check=True, stderr=subprocess.PIPE)
    return {"seconds": time.perf_counter() - started, "processor_seconds": processor_time() - used}


def processor_time() -> float:
    """What finished children used."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measured(case: str, source: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as cache:
        first, second = (run(CASES[case], source, cache) for _ in range(2))
    return {"case": case, "first": first, "second": second}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beside", type=Path, help="the src folder of another version, to compare with")
    parser.add_argument("--cases", default="", help="only cases whose name contains this")
    options = parser.parse_args()
    sources = {"before": options.beside.resolve()} if options.beside else {}
    sources["now"] = SOURCE
    table = Table("processor seconds", *(f"{name}, {call}" for name in sources for call in ("first", "second")))
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in sources}
    for case in CASES:
        if options.cases in case:
            row = [measured(case, source) for source in sources.values()]
            for name, result in zip(sources, row, strict=True):
                results[name].append(result)
            used = (one[call]["processor_seconds"] for one in row for call in ("first", "second"))
            table.add_row(case, *(f"{seconds:.1f}" for seconds in used))
    Console().print(table)
    if not options.cases:
        measure.write_json(RESULTS, measure.header() | results)


if __name__ == "__main__":
    main()
