"""The three theorems of adaptive transport, on problems of every size class, and partial transport beside it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linprog
from scipy.sparse.csgraph import connected_components

import adaptive_ot as aot
import problems
from check import solve_checked
from problems import Instance, expected_form, medium_costs, most_mass

CLASSES = {
    "1 x 1": [(1, 1)] * 8,
    "1 x m": [(1, 9), (9, 1), (1, 40), (40, 1)],
    "tiny": [(3, 4), (5, 2), (6, 6), (7, 5)] * 3,
    "fifty": [(50, 50), (40, 60)],
    "three hundred": [(300, 280)],
}
KINDS = ["normal", "integers", "sparse", "points"]


def instances(size, kind):
    """The cost as it is given, the problem with a dense cost, and the size of its rounding."""
    rng = np.random.default_rng(len(size) + len(kind))
    for n, m in CLASSES[size]:
        if kind == "integers":
            cost = dense = rng.integers(-3, 4, (n, m)).astype(float)
            weights, scale = (rng.integers(0, 4, k).astype(float) for k in (n, m)), 0.0
        else:
            cost, dense, scale = medium_costs(kind, rng, n, m)
            weights = (rng.random(k) + 0.05 for k in (n, m))
        yield cost, Instance(dense, *weights), scale


every_problem = pytest.mark.parametrize(("size", "kind"), [(size, kind) for size in CLASSES for kind in KINDS])


@every_problem
def test_active_regions(size, kind):
    """Mass stays among active points, clusters are its connected components, each a problem of its own.

    Inactive points can be removed.
    """
    for cost, instance, scale in instances(size, kind):
        dense, mu, nu = instance
        n, m = dense.shape
        solution = aot.solve(cost, mu, nu)
        plan = solution.sparse_plan.toarray()
        carried = plan > 0
        assert not carried[~solution.active_source].any()
        assert not carried[:, ~solution.active_target].any()

        graph = sparse.block_array([[None, sparse.csr_array(carried)], [sparse.csr_array((m, n)), None]])
        _, component = connected_components(graph, directed=False)
        clusters = solution.clusters()
        groups = {tuple(np.append(cluster.sources, n + cluster.targets)) for cluster in clusters}
        moving = np.append(solution.active_source, solution.active_target)
        assert groups == {tuple(np.flatnonzero(component == c)) for c in np.unique(component[moving])}
        masses = [cluster.mass for cluster in clusters]
        assert masses == sorted(masses, reverse=True)
        assert sum(masses) == pytest.approx(solution.mass, rel=1e-12)

        active = np.flatnonzero(solution.active_source), np.flatnonzero(solution.active_target)
        for parts in ([cluster[:2] for cluster in clusters], [active]):
            alone = [aot.solve(dense[np.ix_(rows, columns)], mu[rows], nu[columns]) for rows, columns in parts]
            value, mass = sum(part.value for part in alone), sum(part.mass for part in alone)
            assert abs(value - solution.value) <= 1e-12 * (abs(solution.value) + scale * solution.mass)
            if kind != "integers":  # where costs of zero occur, the mass is not unique
                assert abs(mass - solution.mass) <= 1e-11 * most_mass(instance)


@pytest.mark.parametrize("size", ["1 x 1", "1 x m", "tiny"])
@pytest.mark.parametrize("kind", KINDS)
def test_duality(size, kind):
    """The optimum is max <mu, f> + <nu, g> over f, g <= 0 with f_i + g_j <= C_ij, as HiGHS finds."""
    for cost, (dense, mu, nu), scale in instances(size, kind):
        n, m = dense.shape
        solution = aot.solve(cost, mu, nu)
        rows, columns, sums = problems.allowed_pairs(dense)
        bounds = [(None, 0.0)] * (n + m)
        dual = linprog(-np.append(mu, nu), A_ub=sums.T, b_ub=dense[rows, columns], bounds=bounds, method="highs")
        assert dual.status == 0
        assert solution.value == pytest.approx(-dual.fun, abs=1e-9 * (1 + scale))


@every_problem
def test_mass_and_complementary_slackness(size, kind):
    """What `check_solution` demands, and that the potentials have the optimal value.

    Pairs that repel carry nothing, and where a pair attracts, its source or its target is full. Mass moves only where
    f_i + g_j = C_ij, and points with a price are full.
    """
    for cost, instance, scale in instances(size, kind):
        dense, mu, nu = instance
        solution = solve_checked(instance, given=cost, **expected_form(kind, scale))
        f, g = solution.source_potential, solution.target_potential
        slack = 1e-12 * (1 + np.abs(dense[np.isfinite(dense)]).max(initial=0.0)) + 1e-13 * scale
        assert mu @ f + nu @ g == pytest.approx(solution.value, rel=1e-11, abs=slack * solution.mass)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", ["1 x 1", "1 x m", "tiny", "fifty"])
def test_dearer_pairs_move_less_until_nothing_pays(size, kind):
    """The adaptive mass of C + t falls in t, to nothing at the largest reward; partial transport keeps its mass."""
    for _, (dense, mu, nu), _ in instances(size, kind):
        usable = dense[(mu > 0)[:, None] & (nu > 0)[None, :] & np.isfinite(dense)]
        if usable.size == 0:
            continue
        largest_reward = -float(usable.min())
        path = aot.mass_path(dense, mu, nu)
        highest = float(path.price[-1])  # may exceed every cost: one more unit may make others take dearer ways
        shifts = np.append(np.linspace(-highest - 1.0, largest_reward, 12), largest_reward + 0.5)
        masses = [aot.solve(dense + shift, mu, nu).mass for shift in shifts]
        assert all(later <= earlier * (1 + 1e-12) + 1e-15 for earlier, later in pairwise(masses))
        assert masses[-1] == 0.0
        assert aot.solve(dense + (largest_reward - 1e-9), mu, nu).mass > 0.0
        assert masses[0] == pytest.approx(path.most_mass, rel=1e-12)  # as much as can move at all
        assert path.price[0] == pytest.approx(-largest_reward, abs=1e-13)
        share = 0.5 * path.most_mass
        values = [aot.solve(dense + shift, mu, nu, marginals=aot.FixedMass(share)).value for shift in shifts[::4]]
        np.testing.assert_allclose(np.diff(values), share * np.diff(shifts[::4]), rtol=1e-10)


def test_balanced_transport_is_forced_to_match_outliers():
    """One source far away: balanced transport pays for it, adaptive transport leaves it alone."""
    x, z = np.array([[0.0], [1.0], [100.0]]), np.array([[0.0], [1.0], [2.0]])
    cost = problems.distance_matrix(x, z, 1.5)
    assert aot.solve(cost).active_source.tolist() == [True, True, False]
    balanced = aot.solve(cost, marginals=aot.Equal())
    assert balanced.active_source.all()
    assert balanced.value == pytest.approx((98.0**2) / 3 - 1.5**2)
