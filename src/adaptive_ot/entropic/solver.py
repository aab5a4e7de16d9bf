"""The entropic solver: three forms of entropy-regularised adaptive transport with one dual and one ascent."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from adaptive_ot import _validation as check
from adaptive_ot._progress import Progress
from adaptive_ot._shard import ShardedCost
from adaptive_ot.entropic.dense import DenseSoftmin
from adaptive_ot.entropic.dual import FAR, Movable, dual_of, first_size, potentials_of, task_of
from adaptive_ot.entropic.oracle import Oracle, RowRule, RowUpdate
from adaptive_ot.entropic.strength import with_strength
from adaptive_ot.errors import InvalidInput
from adaptive_ot.problem import Problem
from adaptive_ot.solution import DenseTransport, ListedTransport, Solution, Status, Support, Transport

if TYPE_CHECKING:
    from adaptive_ot.entropic.ascent import Ascent, Dual

Entropy = Literal["augmented", "product", "counting"]

# A point is active if it moves more than this share of its weight.
ACTIVE_SHARE = 0.01

# Dense problems of up to this many pairs are small: their P stays in the cache.
SMALL = 2**18

# Without compiled code, Newton's equations for up to this many targets are solved fastest by LAPACK.
FEW_TARGETS = 256

# Pairs that move less than this share of their source's weight, divided by the number of targets, are not listed.
NEGLIGIBLE_SHARE = 2.0**-53

WITHOUT_ENTROPY = "Choose a positive number; without entropy, write solver=aot.Exact()."


@dataclass(frozen=True)
class Entropic:
    """Solve with entropy: smooth, differentiable, and fast on a GPU.

    Parameters
    ----------
    epsilon
        Strength of the entropy, in units of the cost. The plan tends to an exact one as `epsilon` goes to zero. By
        default it is a twentieth of what the best partner of a point is typically worth: how much cheaper it is than a
        typical partner, or than staying alone where the model allows that. All problems of a batch have the same.
        `Solution.epsilon` says which; derivatives take it as given. See docs/numbers.md.
    entropy
        ``"augmented"`` (default): Sinkhorn's problem with one dummy source and one dummy target at zero cost, which
        take the mass that does not move. ``"product"``: epsilon KL(G | mu nu^T) under the constraints. ``"counting"``:
        epsilon sum G (log G - 1) under the constraints. `Equal` and `SoftKL` leave nothing to dummies, so
        "augmented" then means "product".
    tolerance
        Allowed total deviation of the column sums from their required values, relative to the total target weight, or
        to the mass of `FixedMass`. Where weights are upper bounds, the plan is scaled down afterwards, so it never
        exceeds them.
    max_iterations
        Give up after this many passes over all pairs, or over their stored exponentials.
    compiled
        Whether small dense problems on the CPU are solved by compiled code. By default they are if that code is on disk
        already, or once this process has solved so many problems that compiling, which takes about a minute, pays off.
        Both ways meet the tolerance but differ in the last digits; set True or False if these have to be the same in
        every process.
    wait
        Whether `solve` waits for the GPU. If not, and if one GPU program can solve each problem (`AtMost`, at most 128
        points a side, weight on both), `solve` takes the costs and weights on the GPU as they are, without a look at
        their values, and does not raise `NotConverged`. The plan and `converged` stay on the GPU; other answers are
        fetched when they are read. All other problems are solved as usual.

    Examples
    --------
    >>> import adaptive_ot as aot
    >>> solution = aot.solve([[-1.0, 2.0], [3.0, 4.0]], solver=aot.Entropic(epsilon=0.1))
    >>> round(solution.mass, 3), round(solution.value, 3), round(solution.gap, 3)
    (0.497, -0.497, 0.003)
    >>> aot.solve([[-1.0, 2.0], [3.0, 4.0]], solver=aot.Entropic()).epsilon
    0.05
    """

    epsilon: float | None = None
    entropy: Entropy = "augmented"
    tolerance: float = 1e-9
    max_iterations: int = 100_000
    compiled: bool | None = None
    wait: bool = True

    def __post_init__(self) -> None:
        check.choice("entropy", self.entropy, get_args(Entropy))
        numbers: dict[str, Any] = {
            "tolerance": check.number("tolerance", self.tolerance, minimum=check.SMALLEST),
            "max_iterations": check.whole_number("max_iterations", self.max_iterations, minimum=1),
        }
        if self.compiled is not None:
            check.instance("compiled", self.compiled, bool)
        check.instance("wait", self.wait, bool)
        if self.epsilon is not None:
            numbers["epsilon"] = check.number("epsilon", self.epsilon, minimum=check.SMALLEST, remedy=WITHOUT_ENTROPY)
        elif not self.wait:
            rule = "is needed with wait=False: choosing one takes a look at the costs"
            raise InvalidInput("epsilon", rule, None, "Give epsilon, or omit wait.")
        for name, number in numbers.items():  # stored as plain numbers, whatever type was passed
            object.__setattr__(self, name, number)

    @property
    def strength(self) -> float:
        """The epsilon of a solver that has one; see `with_strength`."""
        assert self.epsilon is not None
        return self.epsilon


def solve_entropic(
    problem: Problem, solver: Entropic, report: Callable[[Progress], None], movable: Movable
) -> Solution:
    """Maximise the dual, round the plan into the weights, and certify it."""
    solver, task = with_strength(solver, problem), task_of(problem, movable)
    if task.is_empty:
        return nothing_to_move(problem, solver)
    solver = strict_enough(problem, solver)
    dual = dual_of(problem, task, solver)
    softmin = softmin_for(problem.cost)
    ascent = ascend(problem, solver, softmin, dual, report)
    return certify(problem, solver, softmin, dual.at(solver.strength), ascent)


def strict_enough(problem: Problem, solver: Entropic) -> Entropic:
    """The solver with a tolerance strict enough that a large price of divergence does not affect the value.

    If a share x of the column sums is missing, that costs about tau x^2 / 2; costs are of the size of the potentials.
    """
    prices = [side.tau for side in problem.marginals.sides if side.soft]
    if not prices:
        return solver
    size = max(solver.strength, first_size(problem))
    strict = math.sqrt(2 * solver.tolerance) * math.sqrt(size / max(prices))
    return replace(solver, tolerance=max(check.SMALLEST, min(solver.tolerance, strict)))


def ascend(
    problem: Problem, solver: Entropic, softmin: Oracle, dual: Dual, report: Callable[[Progress], None]
) -> Ascent:
    """Run the ascent: compiled for a small problem if that is worth it, otherwise step by step with the softmin."""
    # Numba takes half a second to import; only a solve should pay for it.
    from adaptive_ot.entropic import ascent as _ascent
    from adaptive_ot.entropic import small

    approach = softmin.approach(dual.at(solver.strength), solver.strength, solver.tolerance, solver.max_iterations)
    size = first_size(problem) if approach is None else 0.0
    limits = solver.strength, size, solver.tolerance, solver.max_iterations
    is_small = isinstance(softmin, DenseSoftmin)
    if is_small and (small.worth_compiling() if solver.compiled is None else solver.compiled):
        return small.ascend(softmin.costs, dual, *limits)
    few = is_small and softmin.shape[1] <= FEW_TARGETS

    def tell(level: float, passes: int, error: float) -> None:
        report(Progress("epsilon", 0, None, passes, 0, math.inf, level, error))

    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):  # as compiled: such a step is not accepted
        ascent = _ascent.ascend(_ascent.climb, softmin, dual, *limits, tell, few, approach)
    if is_small:
        small.count_interpreted(ascent.passes, math.prod(softmin.shape))
    return ascent


def certify(problem: Problem, solver: Entropic, softmin: Oracle, dual: Dual, ascent: Ascent) -> Solution:
    """The solution at the end of an ascent, with its gap to the exact problem."""
    mu, nu, epsilon, marginals = problem.source_weights, problem.target_weights, solver.strength, problem.marginals
    cost = problem.cost
    f, g, price = potentials_of(problem, dual, ascent, epsilon)
    clipped = marginals.clipped(f)
    softmin.scale(epsilon)
    source, target = marginals.sides
    most = np.full(mu.size, math.inf) if source.soft else mu

    def fit(columns: np.ndarray) -> np.ndarray:
        return fitting(columns, nu, dual.amount) if target.bounded else np.ones(nu.size)

    finished, factors = softmin.fitted(ascent.at, dual.rule, most, fit, clipped, keep=cost.layout == "dense")
    if cost.layout == "sparse":
        transport: Transport = ListedTransport(cost.shape, finished.plan)
    elif cost.layout == "dense":
        transport = DenseTransport(finished.plan)
    else:
        transport = TiledTransport(softmin, ascent.at, dual.rule, mu, (finished.factors, factors))
    rows, columns = finished.rows, finished.columns
    bound = marginals.bound(mu, nu, clipped, finished.lowest)
    g = np.where(dual.target_weights > 0, g, np.minimum(bound.target_potential, FAR))
    value = finished.value + marginals.penalty(mu, nu, rows, columns)
    status = status_of(ascent.error, solver, ascent.stalled)
    if not math.isfinite(value - bound.value):  # the exponents have no correct digit left: nothing is known
        status = Status.IMPRECISE
    return Solution.certified(
        problem,
        transport,
        (rows, columns),
        f,
        bound,
        value=value,
        status=status,
        iterations=ascent.passes,
        regularised_value=float(epsilon * (ascent.value + dual.constant)),
        target_potential=g,
        price=price,
        active_share=ACTIVE_SHARE,
        epsilon=epsilon,
    )


def fitting(columns: np.ndarray, nu: np.ndarray, amount: float) -> np.ndarray:
    """Factors that scale columns down to their weights, and to the prescribed mass if there is one."""
    factors = np.divide(nu, columns, out=np.ones(nu.size), where=columns > nu)
    mass = float((factors * columns).sum())
    return factors * (amount / mass) if 0 < amount < mass else factors


def status_of(error: float, solver: Entropic, stalled: bool) -> Status:
    """The status of an ascent that ended with this error."""
    if error <= solver.tolerance:
        return Status.CONVERGED
    return Status.IMPRECISE if stalled else Status.ITERATION_LIMIT


def nothing_to_move(problem: Problem, solver: Entropic) -> Solution:
    """The solution if one side has no weight, so that no mass can move."""
    mu, nu, marginals = problem.source_weights, problem.target_weights, problem.marginals
    rows, columns, none = np.zeros(mu.size), np.zeros(nu.size), np.zeros(0, np.int64)
    # A side without weight may have any potential; a low one does not constrain the other side.
    f = np.full(mu.size, FAR if marginals.sides[0].soft else 0.0)
    if not mu.any() and not marginals.sides[0].soft:
        f = np.minimum(problem.cost.row_minima(), 0.0)
    bound, value = problem.bound(f), marginals.penalty(mu, nu, rows, columns)
    return Solution.certified(
        problem,
        ListedTransport(problem.cost.shape, (none, none, np.zeros(0))),
        (rows, columns),
        f,
        bound,
        value=value,
        status=Status.CONVERGED,
        iterations=0,
        target_potential=np.minimum(bound.target_potential, FAR),
        active_share=ACTIVE_SHARE,
        epsilon=solver.strength,
    )


def softmin_for(cost: Any) -> Oracle:
    """The oracle that suits a cost."""
    if isinstance(cost, ShardedCost):
        from adaptive_ot.entropic.sharded import ShardedSoftmin

        return ShardedSoftmin(cost)
    if cost.kind.on_gpu and cost.layout != "sparse":
        from adaptive_ot.entropic.gpu import TorchSoftmin

        if cost.layout == "points" and has_triton():
            from adaptive_ot.entropic.streaming import StreamedSoftmin

            return StreamedSoftmin(cost)
        return TorchSoftmin(cost)
    if cost.layout == "dense" and math.prod(cost.shape) <= SMALL:
        return DenseSoftmin(cost)
    from adaptive_ot.entropic.cpu import ListedSoftmin, TiledSoftmin

    return ListedSoftmin(cost) if cost.layout == "sparse" else TiledSoftmin(cost)


@cache
def has_triton() -> bool:
    """Whether Triton is installed; warns once if it is not."""
    try:
        import triton  # noqa: F401
    except ImportError:
        message = "Triton is not installed: small problems and point clouds take longer on the GPU."
        warnings.warn(message, RuntimeWarning, stacklevel=2)
        return False
    return True


class TiledTransport(Transport):
    """The plan of two point clouds, computed on demand from the potentials, one block of rows at a time."""

    def __init__(
        self,
        softmin: Oracle,
        at: RowUpdate,
        rule: RowRule,
        weights: np.ndarray,
        factors: tuple[np.ndarray, np.ndarray],
    ) -> None:
        self.softmin, self.at, self.rule, self.weights, self.factors = softmin, at, rule, weights, factors
        self.shape = softmin.shape

    def blocks(self) -> Iterator[tuple[int, np.ndarray]]:
        return self.softmin.scaled_rows(self.at, self.rule, self.factors)

    def support(self) -> Support:
        parts = []
        for top, block in self.blocks():
            least = NEGLIGIBLE_SHARE / self.shape[1] * self.weights[top : top + len(block)]
            rows, columns = np.nonzero(block > least[:, None])
            parts.append((rows + top, columns, block[rows, columns]))
        rows, columns, mass = (np.concatenate(part) for part in zip(*parts, strict=True))
        return rows, columns, mass

    def dense(self, dtype: np.dtype) -> np.ndarray:
        return np.concatenate([block for _, block in self.blocks()])

    def marginals(self, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
        return self.softmin.marginals(self.at, self.rule, self.factors, dtype)

    def times(self, matrix: np.ndarray) -> np.ndarray:
        return self.softmin.times(self.at, self.rule, self.factors, matrix)
