"""Many small problems at once: threads share the problems, and a kernel solves one after the other."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numba
import numpy as np
from numba.extending import register_jitable

from adaptive_ot._arrays import to_numpy
from adaptive_ot._jit import kernel, lower
from adaptive_ot._progress import Progress
from adaptive_ot._threads import run_together
from adaptive_ot.batch import ProblemBatch, SolutionBatch, empty_answers, store
from adaptive_ot.errors import Infeasible
from adaptive_ot.exact.assignment import ALONE, assign, new_memory
from adaptive_ot.exact.scan import pairs_below
from adaptive_ot.exact.simplex import (
    PIVOTS_PER_NODE,
    WORK_PER_CALL,
    Arcs,
    Tree,
    optimise,
    settle,
)
from adaptive_ot.exact.solver import Exact, solve_exact
from adaptive_ot.exact.weights import common_unit, fill_rounded, fit
from adaptive_ot.solution import ListedTransport, Solution

# Larger problems are solved one by one, each by a solver that examines few pairs and has its own threads.
SMALL = 2**16

# A thread pays off from this many pairs, and solves this many between two checks of the clock and of Ctrl-C.
PAIRS_PER_THREAD = 2**15
PAIRS_PER_CALL = 2**20


class PairLists(NamedTuple):
    """The pairs that carry mass: one row for each problem, its first `length` places used."""

    rows: np.ndarray
    columns: np.ndarray
    mass: np.ndarray
    length: np.ndarray

    @classmethod
    def empty(cls, batch: int, n: int, m: int) -> PairLists:
        """Room for the basic solutions of problems of n sources and m targets."""
        shape = (batch, min(n * m, n + m))
        return cls(np.empty(shape, np.int64), np.empty(shape, np.int64), np.empty(shape), np.zeros(batch, np.int64))

    def store(self, b: int, solution: Solution) -> None:
        """Write the pairs of one problem to their row."""
        self.length[b] = solution.support[2].size
        for side, values in zip(self, solution.support, strict=False):
            side[b, : self.length[b]] = values

    def transport(self, shape: tuple[int, int, int]) -> ListedTransport:
        """All pairs in one list."""
        used = np.flatnonzero(np.arange(self.rows.shape[1]) < self.length[:, None])
        problem = np.repeat(np.arange(self.length.size), self.length)
        return ListedTransport(shape, (problem, *(side.ravel()[used] for side in self[:3])))


def solve_exact_batch(problems: ProblemBatch, solver: Exact, report: Callable[[Progress], None]) -> SolutionBatch:
    """Solve small problems with kernels; large ones, and any that a kernel cannot certify as optimal, one by one."""
    if problems.marginals.exact_method != "adaptive":
        return _one_by_one(problems, solver, report)
    batch, n, m = problems.cost.shape
    costs = to_numpy(problems.cost)
    pairs, answers = PairLists.empty(batch, n, m), empty_answers(batch, n, m)
    optimal = np.zeros(batch, np.bool_)
    if n * m <= SMALL:
        limits = solver.pivot_limit(n + m), float(solver.tolerance)

        def solve_share(part: slice) -> None:
            # With float64 only, every kernel is compiled once.
            cost = costs[part].astype(np.float64, copy=False)
            mu, nu = problems.source_weights[part], problems.target_weights[part]
            unit = common_unit(mu, nu)
            matches = (unit > 0) & (mu[:, 0] == nu[:, 0]) if n and m else unit > 0
            # Two kernels, so that only the needed one is compiled.
            for solve, these in ((_match_all, matches), (_flow_all, ~matches)):
                if these.any():
                    solve(these, cost, mu, nu, unit, *limits, _part(pairs, part), _part(answers, part), optimal[part])

        threads = min(numba.get_num_threads(), batch * n * m // PAIRS_PER_THREAD + 1)
        step = threads * (PAIRS_PER_CALL // max(1, n * m))
        for start in range(0, batch, step):
            stop = min(start + step, batch)
            cuts = [start + (stop - start) * k // threads for k in range(threads + 1)]
            run_together([partial(solve_share, slice(cuts[k], cuts[k + 1])) for k in range(threads)])
            done = optimal[:stop]
            gap = float(answers.gap[:stop][done].max(initial=0.0))
            report(Progress("batch", 1, float(done.sum()) / batch, int(answers.iterations.sum()), 0, gap))
    for b in np.flatnonzero(~optimal).tolist():
        done = np.count_nonzero(optimal)
        solution = solve_exact(problems[b], solver, lambda now, done=done: report(now._replace(fraction=done / batch)))
        pairs.store(b, solution)
        store(solution.answers, b, answers)
        optimal[b] = True
    transport = pairs.transport((batch, n, m))
    if problems.kind.dtype != np.float64:
        rows, columns = transport.marginals(problems.kind.dtype)
        excess = rows - problems.source_weights, columns - problems.target_weights
        np.maximum(*(side.max(axis=1, initial=0.0) for side in excess), out=answers.violation)
    return SolutionBatch(problems, transport, answers, active_share=0.0)


def _one_by_one(problems: ProblemBatch, solver: Exact, report: Callable[[Progress], None]) -> SolutionBatch:
    """Solve models that the kernels do not support."""
    solutions: list[Solution] = []
    pivots = 0

    def tell(now: Progress) -> None:
        report(now._replace(fraction=len(solutions) / len(problems)))

    for number, problem in enumerate(problems):
        try:
            solutions.append(solve_exact(problem, solver, tell))
        except Infeasible as error:
            raise Infeasible(error.mass, error.most_mass, number) from None
        pivots += solutions[-1].iterations
        report(Progress("batch", 1, len(solutions) / len(problems), pivots, 0, 0.0))
    return SolutionBatch.of(problems, solutions)


def _part(arrays: Any, problems: slice) -> Any:
    """The pairs or answers of some of the problems, as views to write to."""
    return type(arrays)(*(array[problems] for array in arrays))


@kernel
def _match_all(these, cost, mu, nu, unit, max_pivots, tolerance, pairs, answers, optimal):
    """Solve assignments one after the other."""
    memory = new_memory(max(mu.shape[1], nu.shape[1]))
    for b in range(optimal.size):
        if these[b]:
            f, g = answers.source_potential[b], answers.target_potential[b]
            lists = pairs.rows[b], pairs.columns[b], pairs.mass[b]
            pairs.length[b], answers.iterations[b] = _match(cost[b], mu[b, 0], max_pivots, memory, *lists, f, g)
            optimal[b] = _certify(b, cost, mu, nu, tolerance, pairs, answers)


@kernel
def _flow_all(these, cost, mu, nu, unit, max_pivots, tolerance, pairs, answers, optimal):
    """Solve problems of any weights one after the other."""
    for b in range(optimal.size):
        if these[b]:
            lists = pairs.rows[b], pairs.columns[b], pairs.mass[b]
            f = answers.source_potential[b]
            pairs.length[b], answers.iterations[b] = _flow(cost[b], mu[b], nu[b], unit[b], max_pivots, *lists, f)
            optimal[b] = _certify(b, cost, mu, nu, tolerance, pairs, answers)


@kernel
def _certify(b, cost, mu, nu, tolerance, pairs, answers):
    """Fill in the answers from the pairs and the source potentials of a problem; returns whether they are optimal."""
    rows, columns, mass = pairs.rows[b], pairs.columns[b], pairs.mass[b]
    f, g = answers.source_potential[b], answers.target_potential[b]
    source_marginal, target_marginal = answers.source_marginal[b], answers.target_marginal[b]
    finished = pairs.length[b] >= 0
    pairs.length[b] = max(0, pairs.length[b])
    _transform(cost[b], f, g)
    source_marginal[:], target_marginal[:] = 0.0, 0.0
    value, total = 0.0, 0.0
    for k in range(pairs.length[b]):
        value += cost[b, rows[k], columns[k]] * mass[k]
        total += mass[k]
        source_marginal[rows[k]] += mass[k]
        target_marginal[columns[k]] += mass[k]
    answers.value[b], answers.regularised_value[b], answers.mass[b] = value, value, total
    bound = _dot(mu[b], f) + _dot(nu[b], g)
    answers.gap[b] = max(0.0, value - bound)
    answers.violation[b] = max(_excess(source_marginal, mu[b]), _excess(target_marginal, nu[b]))
    return finished and answers.gap[b] <= -tolerance * (value + bound)  # no term is positive


@kernel
def _match(cost, weight, max_steps, memory, rows, columns, mass, f, g):
    """Solve an assignment; returns the number of pairs (-1 after too many steps) and the number of steps."""
    partner = np.empty(f.size, np.int64)
    steps = assign(cost, partner, g, False, max_steps, memory)
    count = 0
    for i in range(f.size):
        j = partner[i]
        f[i] = 0.0 if j == ALONE else min(0.0, cost[i, j] - g[j])
        if j != ALONE:
            rows[count], columns[count], mass[count] = i, j, weight
            count += 1
    return count if steps <= max_steps else -1, steps


@kernel
def _flow(cost, mu, nu, unit, max_pivots, rows, columns, mass, f):
    """Solve by the simplex over all negative pairs; returns the same as `_match`."""
    n, m = mu.size, nu.size
    i, j, costs = pairs_below(cost, 0.0, cost.size)
    source, target, real = np.empty(n, np.int64), np.empty(m, np.int64), np.empty(n + m)
    if unit > 0:
        for k in range(n):
            source[k] = round(mu[k] / unit)
        for k in range(m):
            target[k] = round(nu[k] / unit)
    else:
        fill_rounded(mu, nu, i, j, True, source, target, real)
    arcs, tree = _all_slack(source, target, i, j, costs)
    limit = min(max_pivots, PIVOTS_PER_NODE * tree.parent.size)
    first = n + m if arcs.cost.size > n + m else 0  # price the pairs before the slack arcs
    pivots, _, finished = optimise(tree, np.uint32(n), arcs, 0.0, first, limit, WORK_PER_CALL)
    for k in range(n):
        f[k] = min(tree.potential[k], 0.0)
    flow, least = np.zeros(n + m + 1), np.zeros(n + m + 1)
    if unit > 0:
        for k in range(n + m):
            flow[k] = tree.flow[k] * unit
    else:
        settle(tree, real, flow, least)
    count = _list_carrying(tree, n, flow, least, rows, columns, mass)
    if unit == 0:
        fit(mass[:count], rows[:count], columns[:count], mu, nu)
    return count if finished else -1, pivots


@kernel
def _list_carrying(tree, sources, flow, least, rows, columns, mass):
    """`carrying_pairs`, sorted by counting; returns the number of pairs."""
    root = tree.parent.size - 1
    row_of, column_of, nodes = np.empty(root, np.int64), np.empty(root, np.int64), np.empty(root, np.int64)
    by_column, count = np.empty(root, np.int64), 0
    for node in range(root):
        parent = np.int64(tree.parent[node])
        if parent != root and flow[node] > least[node]:
            row_of[node] = node if node < sources else parent
            column_of[node] = (parent if node < sources else node) - sources
            nodes[count] = node
            count += 1
    _sort(nodes, count, column_of, by_column)
    _sort(by_column, count, row_of, nodes)
    for k in range(count):
        rows[k], columns[k], mass[k] = row_of[nodes[k]], column_of[nodes[k]], flow[nodes[k]]
    return count


@kernel
def _sort(nodes, count, keys, out):
    """Write the nodes to `out`, sorted by their keys; nodes with equal keys keep their order."""
    start = np.zeros(keys.size + 1, np.int64)
    for k in range(count):
        start[keys[nodes[k]] + 1] += 1
    for key in range(keys.size):
        start[key + 1] += start[key]
    for k in range(count):
        key = keys[nodes[k]]
        out[start[key]] = nodes[k]
        start[key] += 1


@register_jitable
def _all_slack(source, target, rows, columns, costs):
    """`slack_arcs`, `add_arcs` and `slack_tree` as loops, which compile faster; skips targets without weight."""
    n, root = source.size, source.size + target.size
    tail, head = np.empty(root + rows.size, np.uint32), np.empty(root + rows.size, np.uint32)
    cost, flow = np.zeros(root + rows.size), np.zeros(root + 1, np.int64)
    parent, depth = np.empty(root + 1, np.uint32), np.empty(root + 1, np.int32)
    following, preceding = np.empty(root + 1, np.uint32), np.empty(root + 1, np.uint32)
    for node in range(root):
        flow[node] = source[node] if node < n else target[node - n]
        tail[node], head[node] = (node, root) if node < n else (root, node)
        parent[node], depth[node], following[node], preceding[node + 1] = root, 1, node + 1, node
    parent[root], depth[root], following[root], preceding[0] = root, 0, 0, root
    size = root
    for k in range(rows.size):
        if target[columns[k]] > 0:
            tail[size], head[size], cost[size] = rows[k], n + columns[k], costs[k]
            size += 1
    arcs = Arcs(tail[:size], head[:size], cost[:size])
    return arcs, Tree(parent, following, preceding, depth, flow, np.zeros(root + 1), np.zeros(root + 1))


@kernel
def _transform(cost, f, g):
    """The best target potential for a source potential: g_j = min(0, min_i C_ij - f_i)."""
    g[:] = 0.0
    for i in range(f.size):
        costs, f_i = cost[i], f[i]
        for j in range(g.size):
            g[j] = lower(g[j], costs[j] - f_i)


@kernel
def _dot(a, b):
    total = 0.0
    for k in range(a.size):
        total += a[k] * b[k]
    return total


@kernel
def _excess(marginal, weights):
    worst = 0.0
    for k in range(weights.size):
        worst = max(worst, marginal[k] - weights[k])
    return worst
