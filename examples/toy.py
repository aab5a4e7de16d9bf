"""A small problem that shows everything: clusters, outliers, and a mass that nobody has to choose."""

from fractions import Fraction

import numpy as np

import adaptive_ot as aot
from adaptive_ot.workbench.cli.samples import TOY_COST


def main() -> None:
    solution = aot.solve(TOY_COST)  # six sources of weight 1/6, five targets of weight 1/5
    print(solution)

    print("\nplan, in units of 1/30:")
    print(np.rint(30 * solution.plan).astype(int))

    for cluster in solution.clusters():
        mass = Fraction(cluster.mass).limit_denominator(100)
        print(f"sources {cluster.sources + 1} are tied to targets {cluster.targets + 1}, mass {mass}")
    print("left alone: sources", np.flatnonzero(~solution.active_source) + 1, end=", ")
    print("targets", np.flatnonzero(~solution.active_target) + 1)

    # A certificate: no plan costs less than the value of feasible dual potentials.
    bound = (solution.source_potential / 6).sum() + (solution.target_potential / 5).sum()
    print(f"value {solution.value:.6f}, lower bound {bound:.6f}")

    # With lower costs, more mass moves.
    for reward in (-1.0, 0.0, 1.5, 2.5, 3.5):
        print(f"costs lowered by {reward:g}: mass {aot.solve(TOY_COST - reward).mass:.3f}")


if __name__ == "__main__":
    main()
