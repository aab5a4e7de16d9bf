"""Two clouds with one fifth outliers each under the five transport models, and the mass path.

python examples/choosing.py [picture.png]
"""

import sys

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import adaptive_ot as aot
from adaptive_ot import plot
from adaptive_ot.workbench.cli.samples import Clouds, moons_with_outliers

REACH = 0.3

MODELS = {
    "AtMost(): adaptive": (aot.AtMost(), aot.Exact()),
    "Equal(): everything moves": (aot.Equal(), aot.Exact()),
    "FixedMass(0.5): a guess": (aot.FixedMass(0.5), aot.Exact()),
    "SoftKL(tau=0.1)": (aot.SoftKL(0.1), aot.Entropic(0.005)),
    "ChiSquareBall(rho=0.2)": (aot.ChiSquareBall(0.2), aot.Exact()),
}


def table_row(name: str, solution: aot.Solution, clouds: Clouds) -> str:
    """The mass, the part of it that starts or ends at an outlier, and the share of active inliers."""
    rows, columns, mass = solution.support
    wrong = mass[clouds.source_outlier[rows] | clouds.target_outlier[columns]].sum() / mass.sum()
    active = np.concatenate([solution.active_source, solution.active_target])
    inlier = ~np.concatenate([clouds.source_outlier, clouds.target_outlier])
    return f"{name:<28}{solution.mass:>6.2f}{wrong:>22.1%}{np.mean(active[inlier]):>18.0%}"


def main(picture: str) -> None:
    clouds = moons_with_outliers(size=150)
    cost = aot.DistanceCost(clouds.x, clouds.z, reach=REACH)
    figure = Figure(figsize=(15, 9), dpi=80, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(2, 3).ravel()
    print(f"{'model':<28}{'mass':>6}{'of it with outliers':>22}{'inliers matched':>18}")
    for ax, (name, (marginals, solver)) in zip(panels, MODELS.items(), strict=False):
        solution = aot.solve(cost, marginals=marginals, solver=solver)
        print(table_row(name, solution, clouds))
        plot.transport(solution, ax=ax, by_cluster=False)
        ax.set_title(f"{name}, mass {solution.mass:.2f}")
        ax.get_legend().remove()
        ax.set_axis_off()
    path = aot.mass_path(cost)
    plot.mass_path(path, ax=panels[-1])
    panels[-1].set_title("mass_path: what every mass costs")
    panels[-1].spines[["top", "right"]].set_visible(False)
    print("mass path:", path.suggest())
    figure.savefig(picture)
    print("picture:", picture)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "choosing.png")
