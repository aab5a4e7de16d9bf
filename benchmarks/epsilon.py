"""How far is the value from the exact one with epsilon a share of what a partner is worth?

    python benchmarks/epsilon.py

The unit is that of `Entropic()`: how much cheaper the best partner of a point is than a typical one, or than none where
the model allows that; the median over all points. Clouds have 300 points a side.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

import adaptive_ot as aot
import measure
from adaptive_ot.entropic.strength import SHARE
from adaptive_ot.workbench.cli.samples import moons_with_outliers

SHARES = (0.01, 0.02, 0.05, 0.1, 0.2)
RESULTS = measure.RESULTS / "epsilon.json"


def problems() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    moons = moons_with_outliers(300)
    in_plane, in_space = (cdist(x, z, "sqeuclidean") for x, z in (rng.normal(size=(2, 300, d)) for d in (2, 16)))
    return {
        "two moons, reach 0.3": cdist(moons.x, moons.z, "sqeuclidean") - 0.09,
        "Gaussian in R^2, reach 0.5": in_plane - 0.25,
        "Gaussian in R^2, reach 5": in_plane - 25.0,
        "Gaussian in R^16, reach 4": in_space - 16.0,
        "Gaussian in R^16, reach 10": in_space - 100.0,
        "normal costs": rng.normal(size=(300, 300)),
        "uniform costs, a tenth negative": rng.random((300, 300)) - 0.1,
    }


def main() -> None:
    rows: list[dict[str, Any]] = []
    print(f"{'value off, of mass times unit':48s}" + "".join(f"{share:>10.2f}" for share in SHARES))
    for marginals in (aot.AtMost(), aot.Equal(), aot.FixedMass(0.5)):
        for name, cost in problems().items():
            exact = aot.solve(cost, marginals=marginals)
            unit = aot.solve(cost, marginals=marginals, solver=aot.Entropic()).epsilon / SHARE
            found = [aot.solve(cost, marginals=marginals, solver=aot.Entropic(share * unit)) for share in SHARES]
            off = [(solution.value - exact.value) / (exact.mass * unit) for solution in found]
            shown = "".join(f"{100 * number:8.1f} %" for number in off)
            print(f"{marginals!s:18s}{name:30s}{shown}", flush=True)
            rows.append({"model": str(marginals), "problem": name, "unit": unit, "off": off})
            rows[-1]["mass"] = [solution.mass / exact.mass for solution in found]
    measure.write_json(RESULTS, {**measure.header(), "shares": SHARES, "problems": rows})


if __name__ == "__main__":
    main()
