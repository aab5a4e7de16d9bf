"""Adaptive and partial transport: what determines the transported mass?

The cost is |x - z|^2 - lambda. If its largest reward, max(-C), is below zero, nothing moves. As lambda grows, more
pairs pay off, and adaptive transport moves more, from nothing to everything, in steps of the weight of a point. Partial
transport moves the prescribed mass, whether that pays off or not.

python examples/adaptive_versus_partial.py [picture.png]
"""

import sys
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

import adaptive_ot as aot
from adaptive_ot import plot
from adaptive_ot.workbench.cli.samples import moons_with_outliers

PARTIAL = 0.5


def main(picture: str) -> None:
    clouds = moons_with_outliers(size=250)
    squares = cdist(clouds.x, clouds.z, "sqeuclidean")
    path = aot.mass_path(squares)  # prices are values of lambda: one call answers for every cost below

    print(f"{'lambda':>8}{'max(-C)':>9}  {'adaptive mass':>13}{'value':>10}  {'partial mass':>12}{'value':>10}")
    for level in (-0.01, 0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0):
        cost = squares - level
        adaptive = aot.solve(cost)
        partial = aot.solve(cost, marginals=aot.FixedMass(PARTIAL))
        assert np.isclose(adaptive.mass, path.mass_at(level))  # as the path predicts
        assert adaptive.value <= partial.value + 1e-12  # fixing the mass is never better
        print(
            f"{level:>8}{(-cost).max():>9.3f}  {adaptive.mass:>13.3f}{adaptive.value:>10.4f}"
            f"  {partial.mass:>12.3f}{partial.value:>10.4f}"
        )
    print("steps of the adaptive mass from 0 to 1:", path.price.size)

    ax = plot.mass_path(path)
    ax.axvline(PARTIAL, color=plot.GREY, label=f"partial: mass {PARTIAL}, whatever it costs")
    ax.legend(frameon=False)
    figure: Any = ax.figure
    figure.savefig(picture)
    print("picture:", picture)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "adaptive_versus_partial.png")
