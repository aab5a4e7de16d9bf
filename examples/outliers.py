"""Align two point clouds with one fifth outliers, and compare with matching all points.

python examples/outliers.py [picture.png]
"""

import sys
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

import adaptive_ot as aot
from adaptive_ot import plot
from adaptive_ot.workbench.cli.samples import moons_with_outliers

SHIFT = np.array([0.1, 0.1])  # the true displacement from the source moons to the target moons


def main(picture: str) -> None:
    clouds = moons_with_outliers(size=500)
    solution = aot.solve(aot.DistanceCost(clouds.x, clouds.z, reach=0.3))
    print(solution)

    for side, active, outlier in (
        ("sources", solution.active_source, clouds.source_outlier),
        ("targets", solution.active_target, clouds.target_outlier),
    ):
        alone, matched = np.mean(~active[outlier]), np.mean(active[~outlier])
        print(f"{side}: {alone:.0%} of the outliers left alone, {matched:.0%} of the inliers matched")

    # Each source moves to the mean of its targets; unmatched sources stay in place.
    moved = solution.barycentric_map(clouds.z) - clouds.x
    adaptive = moved[solution.active_source].mean(axis=0)

    rows, columns = linear_sum_assignment(cdist(clouds.x, clouds.z, "sqeuclidean"))
    everything = (clouds.z[columns] - clouds.x[rows]).mean(axis=0)
    for name, shift in (("adaptive", adaptive), ("match everything", everything)):
        print(f"{name}: shift {np.round(shift, 2)}, off by {np.linalg.norm(shift - SHIFT):.2f}")

    figure: Any = plot.transport(solution).figure
    figure.savefig(picture)
    print("picture:", picture)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "outliers.png")
