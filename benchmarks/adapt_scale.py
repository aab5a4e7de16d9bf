"""How long `JointTransportClassifier` takes, and how much memory, as domains grow.

    python benchmarks/adapt_scale.py                    # 5,000 and 20,000 samples a domain
    python benchmarks/adapt_scale.py --sizes 5000

Ten Gaussian classes in R^256, the target turned and shifted, three of the classes missing in it. By default the sources
stay in place here; without the guard they move, which takes more plans. Every fit runs in a process of its own, after a
small fit that compiles the kernels. Results: benchmarks/results/adapt_scale.json.
"""

from __future__ import annotations

import argparse
import itertools
import time
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import measure

CLASSES, FEATURES, MISSING, NOISE = 10, 256, 3, 4.0
RESULTS = measure.RESULTS / "adapt_scale.json"


def domains(samples: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Features and classes of both domains."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(CLASSES, FEATURES))
    turn, signs = np.linalg.qr(np.eye(FEATURES) + 0.03 * rng.normal(size=(FEATURES, FEATURES)))
    turn *= np.sign(np.diag(signs))  # a small turn, without reflections
    shift = 0.5 * rng.normal(size=FEATURES)
    y, w = rng.integers(CLASSES, size=samples), rng.integers(CLASSES - MISSING, size=samples)
    x = centres[y] + NOISE * rng.normal(size=(samples, FEATURES))
    z = (centres[w] + NOISE * rng.normal(size=(samples, FEATURES))) @ turn + shift
    return x.astype(np.float32), y, z.astype(np.float32), w


def measure_fit(samples: int, guard: bool) -> dict[str, Any]:
    """The child's side: fit once, with the clock running."""
    from adaptive_ot.adapt import JointTransportClassifier

    def fitted(x: np.ndarray, y: np.ndarray, z: np.ndarray, w: np.ndarray) -> JointTransportClassifier:
        domain = np.repeat([0, -1], [len(x), len(z)])
        model = JointTransportClassifier(guard=guard)
        return model.fit(np.concatenate([x, z]), np.concatenate([y, w]), sample_domain=domain)

    fitted(*domains(600))
    x, y, z, w = domains(samples)
    measure.reset_peak()
    started, processor = time.perf_counter(), time.process_time()
    model = fitted(x, y, z, w)
    seconds, processor, peak = time.perf_counter() - started, time.process_time() - processor, measure.peak_bytes()
    unadapted = JointTransportClassifier().fit(x, y)
    return {
        "seconds": seconds,
        "processor_seconds": processor,
        "moved": model.adapted_,
        "peak_mb": peak / 2**20,
        "accuracy": float((model.predict(z) == w).mean()),
        "source_only": float((unadapted.predict(z) == w).mean()),
        "mass": model.transported_mass_,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[5_000, 20_000], metavar="N")
    rows: list[dict[str, Any]] = []
    for samples, guard in itertools.product(parser.parse_args().sizes, (True, False)):
        fit = {"samples": samples, "guard": guard}
        rows.append(fit | measure.in_child("adapt_scale", "measure_fit", fit, threads=None, quiet=False))
        measure.write_json(RESULTS, measure.header() | {"measurements": rows})
    table = Table("samples a domain", "sources", "seconds", "processor", "peak MB", "source only", "adapted", "mass")
    for row in rows:
        sources = "moved" if row["moved"] else "in place"
        times = f"{row['seconds']:.1f}", f"{row['processor_seconds']:.1f}"
        numbers = f"{row['peak_mb']:,.0f}", f"{row['source_only']:.1%}", f"{row['accuracy']:.1%}", f"{row['mass']:.2f}"
        table.add_row(f"{row['samples']:,}", sources, *times, *numbers)
    Console().print(table)


if __name__ == "__main__":
    main()
