"""Every way to solve entropic adaptive transport with other people's Sinkhorn solvers.

Each function takes a dense cost (any sign), two weightings and epsilon, and returns the plan of the augmented problem:
balanced transport with a dummy source and a dummy target, large enough to give or take everything at zero cost, and an
entropy on all of its (n + 1) x (m + 1) pairs. Building that problem is part of the function, and so of the time
measured: a user has to do it too. Packages are imported where they are used; they need not be installed.

Every solver is asked for TOLERANCE in a norm of its own, with weights scaled to total 1:

    adaptive-ot   L1 error of the marginals
    OTT-JAX       L1 error of the column sums; its last update made the row sums right
    POT           L2 error of the column sums, which is never more than the L1 error
    GeomLoss      has no stopping rule: it anneals epsilon over a given number of iterations, one row for each number

Their limits on iterations are out of reach, so that tolerance or time ends a solve. OTT-JAX has a row for each of its
accelerations; a schedule of decreasing epsilon, which it offers too, saved 10 of 800 iterations where we tried it
(n = 300, epsilon 0.1). POT has a row on torch too, whose logsumexp uses all cores. Its epsilon scaling counts stages.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

TOLERANCE = 1e-6
ITERATIONS = 10**6


class Answer(NamedTuple):
    """The plan of the augmented problem, or a function that makes it from its parts, and the iterations it took."""

    plan: Any
    iterations: int


Solver = Callable[[np.ndarray, np.ndarray, np.ndarray, float], Answer]


def adaptive_ot(C: np.ndarray, mu: np.ndarray, nu: np.ndarray, epsilon: float) -> Answer:
    import adaptive_ot as aot

    solution = aot.solve(C, mu, nu, solver=aot.Entropic(epsilon, tolerance=TOLERANCE, compiled=True))

    def whole() -> np.ndarray:
        """With what the dummies take and give, which follows from the potentials."""
        plan, total = np.pad(solution.plan, ((0, 1), (0, 1))), mu.sum() + nu.sum()
        plan[:-1, -1] = mu * (mu.sum() / total) * np.exp(solution.source_potential / epsilon)
        plan[-1, :-1] = nu * (nu.sum() / total) * np.exp(solution.target_potential / epsilon)
        plan[-1, -1] = solution.mass
        return plan

    return Answer(whole, solution.iterations)


def augmented(C: np.ndarray, mu: np.ndarray, nu: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Weights, scaled to total 1, and cost of the augmented problem, and the total that they had."""
    total = mu.sum() + nu.sum()
    return np.append(mu, nu.sum()) / total, np.append(nu, mu.sum()) / total, np.pad(C, ((0, 1), (0, 1))), total


def pot(function: str, torch_backend: bool = False, **options: Any) -> Solver:
    """One of the Sinkhorn solvers in ot.bregman."""

    def solve(C: np.ndarray, mu: np.ndarray, nu: np.ndarray, epsilon: float) -> Answer:
        if torch_backend:
            os.environ.pop("POT_BACKEND_DISABLE_PYTORCH", None)
        import ot

        a, b, cost, total = augmented(C, mu, nu)
        if torch_backend:
            import torch

            a, b, cost = map(torch.from_numpy, (a, b, cost))
        limits = {"numItermax": ITERATIONS, "stopThr": TOLERANCE, **options}
        plan, log = getattr(ot.bregman, function)(a, b, cost, epsilon, log=True, **limits)
        return Answer(total * np.asarray(plan), log.get("niter", log.get("n_iter")) + 1)

    return solve


def pot_epsilon_scaling(C: np.ndarray, mu: np.ndarray, nu: np.ndarray, epsilon: float) -> Answer:
    """From the largest cost down; each of its stages ends by tolerance, as the outer one asks for the root of it."""
    start = max(float(np.abs(C).max()), epsilon)
    return pot("sinkhorn_epsilon_scaling", epsilon0=start, numInnerItermax=ITERATIONS)(C, mu, nu, epsilon)


def ott(**options: Any) -> Solver:
    """OTT-JAX in float64, compiled when it first meets a shape."""

    @cache
    def compiled() -> Any:
        import jax

        jax.config.update("jax_enable_x64", True)
        from ott.geometry.geometry import Geometry
        from ott.problems.linear.linear_problem import LinearProblem
        from ott.solvers.linear import acceleration
        from ott.solvers.linear.sinkhorn import Sinkhorn

        accelerations = {"momentum": acceleration.Momentum, "anderson": acceleration.AndersonAcceleration}
        settings = {
            key: accelerations[key](**value) if key in accelerations else value for key, value in options.items()
        }
        solver = Sinkhorn(threshold=TOLERANCE, max_iterations=ITERATIONS, **settings)

        def solve(cost: Any, a: Any, b: Any, epsilon: float) -> tuple[Any, Any]:
            output = solver(LinearProblem(Geometry(cost, epsilon=epsilon), a, b))
            return output.matrix, output.n_iters

        return jax.jit(solve)

    def solve(C: np.ndarray, mu: np.ndarray, nu: np.ndarray, epsilon: float) -> Answer:
        a, b, cost, total = augmented(C, mu, nu)
        plan, iterations = compiled()(cost, a, b, epsilon)
        return Answer(total * np.asarray(plan), int(iterations))

    return solve


def geomloss(iterations: int) -> Solver:
    def solve(C: np.ndarray, mu: np.ndarray, nu: np.ndarray, epsilon: float) -> Answer:
        import torch
        from geomloss import ot

        a, b, cost, total = augmented(C, mu, nu)
        tensors: dict[str, Any] = {"C": torch.from_numpy(cost), "a": torch.from_numpy(a), "b": torch.from_numpy(b)}
        solution: Any = ot.solve(**tensors, reg=epsilon, max_iter=iterations)
        return Answer(total * solution.plan.numpy(), iterations)

    return solve


class Rival(NamedTuple):
    """A solver and the package it comes from."""

    solve: Any
    package: str
    all_cores: bool = True


OURS = "adaptive-ot"

RIVALS = {
    OURS: Rival(adaptive_ot, "adaptive-ot"),
    "adaptive-ot, 1 thread": Rival(adaptive_ot, "adaptive-ot", all_cores=False),
    "POT sinkhorn": Rival(pot("sinkhorn_knopp"), "pot"),
    "POT sinkhorn_log": Rival(pot("sinkhorn_log"), "pot"),
    "POT sinkhorn_log, torch": Rival(pot("sinkhorn_log", torch_backend=True), "pot"),
    "POT sinkhorn_stabilized": Rival(pot("sinkhorn_stabilized"), "pot"),
    "POT sinkhorn_epsilon_scaling": Rival(pot_epsilon_scaling, "pot"),
    "OTT-JAX": Rival(ott(), "ott-jax"),
    "OTT-JAX, Anderson": Rival(ott(anderson={"memory": 5}), "ott-jax"),
    "OTT-JAX, adaptive momentum": Rival(ott(momentum={"start": 100}), "ott-jax"),
    "OTT-JAX, kernel": Rival(ott(lse_mode=False), "ott-jax"),
    "OTT-JAX, kernel, adaptive momentum": Rival(ott(lse_mode=False, momentum={"start": 100}), "ott-jax"),
    "GeomLoss, 100 iterations": Rival(geomloss(100), "geomloss"),
    "GeomLoss, 1000 iterations": Rival(geomloss(1000), "geomloss"),
}


# Balanced transport between point clouds with the cost |x - z|^2, of which nobody forms the matrix. Each function takes
# points, epsilon and a tolerance, prepares what a user would prepare once for clouds of this size (compilation), and
# returns the solve itself: potentials f and g of the plan exp((f_i + g_j - C_ij) / epsilon), and the iterations.

Potentials = tuple[np.ndarray, np.ndarray, int]
PointSolver = Callable[[np.ndarray, np.ndarray, float, float], Callable[[], Potentials]]

FEW_POINTS = 6000  # so many that nothing is kept for all their pairs
OTT_BATCH, POT_BATCH = 256, 500  # faster than larger and smaller ones at 3,000 points


def adaptive_ot_points(x: np.ndarray, z: np.ndarray, epsilon: float, tolerance: float) -> Callable[[], Potentials]:
    import adaptive_ot as aot

    def solve(n: int, within: float) -> Potentials:
        cost, solver = aot.DistanceCost(x[:n], z[:n], 0.0), aot.Entropic(epsilon, tolerance=within)
        solution = aot.solve(cost, marginals=aot.Equal(), solver=solver)
        shift = epsilon * np.log(len(x))  # our reference measure is the product of the weights
        return solution.source_potential - shift, solution.target_potential - shift, solution.iterations

    solve(FEW_POINTS, 0.1)
    return lambda: solve(len(x), tolerance)


def ott_points(double: bool, inner_iterations: int) -> PointSolver:
    """OTT-JAX with an online geometry, which looks at the error every so many iterations (its default is 10)."""

    def prepare(x: np.ndarray, z: np.ndarray, epsilon: float, tolerance: float) -> Callable[[], Potentials]:
        import jax

        jax.config.update("jax_enable_x64", double)
        from ott.geometry.pointcloud import PointCloud
        from ott.problems.linear.linear_problem import LinearProblem
        from ott.solvers.linear.sinkhorn import Sinkhorn

        solver = Sinkhorn(threshold=tolerance, inner_iterations=inner_iterations, max_iterations=10_000)

        def solve(x: Any, z: Any) -> Any:
            output = solver(LinearProblem(PointCloud(x, z, epsilon=epsilon, batch_size=OTT_BATCH)))
            return output.f, output.g, output.n_iters

        points = jax.numpy.asarray(x), jax.numpy.asarray(z)
        compiled: Any = jax.jit(solve).lower(*points).compile()

        def call() -> Potentials:
            f, g, iterations = compiled(*points)
            return np.asarray(f, np.float64), np.asarray(g, np.float64), int(iterations)

        return call

    return prepare


def pot_lazy(x: np.ndarray, z: np.ndarray, epsilon: float, tolerance: float) -> Callable[[], Potentials]:
    """Also behind `ot.solve_sample(..., lazy=True)`; it looks at the error every 10 iterations."""
    import ot

    limits = {"numIterMax": ITERATIONS, "stopThr": tolerance}

    def call() -> Potentials:
        answer: Any = ot.bregman.empirical_sinkhorn(
            x, z, reg=epsilon, isLazy=True, batchSize=POT_BATCH, log=True, **limits
        )
        f, g, log = answer
        return epsilon * f, epsilon * g, log["niter"] + 1

    return call


POINT_RIVALS = {
    OURS: Rival(adaptive_ot_points, "adaptive-ot"),
    "OTT-JAX, online": Rival(ott_points(double=True, inner_iterations=10), "ott-jax"),
    "OTT-JAX, online, error after each": Rival(ott_points(double=True, inner_iterations=1), "ott-jax"),
    "OTT-JAX, online, float32": Rival(ott_points(double=False, inner_iterations=10), "ott-jax"),
    "POT empirical_sinkhorn, lazy": Rival(pot_lazy, "pot"),
}
