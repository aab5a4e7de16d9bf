"""``adaptive-ot solve``: files in, a summary and a plan out."""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import numpy as np
from cyclopts import Parameter
from scipy import sparse

import adaptive_ot as aot
from adaptive_ot import AtMost, Entropic, Exact, InvalidInput, Marginals, NotConverged, Progress, Solution, SolutionPart
from adaptive_ot._group import Team, process_group
from adaptive_ot.workbench.cli import outputs, show, solve_report
from adaptive_ot.workbench.cli.inputs import WHOLE, Cost, NamedCost, ProblemOptions, Share, Targets
from adaptive_ot.workbench.cli.options import Flag, ModelOptions, OptionalOutput, Whole, configuration
from adaptive_ot.workbench.cli.progress import solve_bar
from adaptive_ot.workbench.files import write_atomically
from adaptive_ot.workbench.wording import counted, effort, last_price, solved_mass, sources_and_targets

WRITABLE = (".npz", ".csv", ".npy")
CLUSTERS_SHOWN = 5
END_BYTES = 64 * 1024  # compared between processes


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SolveOptions(ModelOptions, ProblemOptions):
    """Everything beside the cost.

    Parameters
    ----------
    rho
        Robust transport: move everything between reweightings inside a chi-square ball of this size.
    output
        Where to write the plan: .npz (read it with scipy.sparse.load_npz), .csv (source, target, mass; counted from 0)
        or .npy (dense).
    epsilon
        Solve with this much entropy, in units of the cost; exactly if not given.
    entropy
        With --epsilon: what the entropy is relative to, "augmented" if not given; see docs/entropic.md.
    tolerance
        The certified gap may be this large relative to the sum, without signs, of the terms of the value and of its
        bound; see docs/exact.md. With --epsilon: the error of the column sums relative to the target weight.
    max_pivots
        Give up after about this many simplex pivots.
    max_iterations
        With --epsilon: give up after about this many passes over all pairs.
    report
        A directory for the summary, the match, pictures, and a page to look at them: report.html. See docs/report.md.
    json
        Print a summary for programs.
    """

    rho: float | None = None
    output: OptionalOutput = None
    epsilon: float | None = None
    entropy: Literal["augmented", "product", "counting"] | None = None
    tolerance: float = 1e-9
    max_pivots: Whole | None = None
    max_iterations: Whole | None = None
    report: Path | None = None
    json: Flag = False

    def solver(self) -> Exact | Entropic:
        """Exact, or entropic if an epsilon was given; options of the other kind are refused."""
        exact = self.epsilon is None
        foreign = {"--entropy": self.entropy, "--max-iterations": self.max_iterations}
        for option, given in foreign.items() if exact else [("--max-pivots", self.max_pivots)]:
            if given is not None:
                rule, remedy = ("needs", "Give") if exact else ("does not go with", "Omit")
                raise InvalidInput(option, f"{rule} --epsilon", given, f"{remedy} --epsilon.")
        if self.epsilon is None:
            return Exact(tolerance=self.tolerance, max_pivots=self.max_pivots)
        if not self.epsilon > 0:
            raise InvalidInput("--epsilon", "must be positive", self.epsilon, "Omit it to solve without entropy.")
        solver = Entropic(self.epsilon, self.entropy or "augmented", self.tolerance)
        return solver if self.max_iterations is None else replace(solver, max_iterations=self.max_iterations)


def solve(cost: Cost, targets: Targets = None, /, *, options: SolveOptions = SolveOptions()) -> int:
    """Solve a problem from a cost matrix, or from two point files.

    Adaptive transport, unless --equal, --mass, --tau or --rho asks for another model; see docs/choosing.md.

    Files are .npy, .csv (numbers separated by commas; a first line without any number is a header) or .npz (one array,
    or one named "cost" for a cost, "x" for points, "weights" for weights; a cost may also come from
    scipy.sparse.save_npz).

    Started by torchrun, several processes solve one problem between points together; see docs/distributed.md.
    """
    with process_group(gpus=False):
        return _solve(cost, targets, options, Team.of_all())


class Task(NamedTuple):
    """What to solve."""

    problem: NamedCost
    weights: dict[str, np.ndarray]
    marginals: Marginals
    solver: Exact | Entropic

    @classmethod
    def read(cls, cost: Path, targets: Path | None, options: SolveOptions, share: Share) -> Task:
        """Check the options and read the files; of the sources, only the share of this process."""
        inputs, output, writes = options.files(cost, targets), options.output, share.number == 0
        if output and writes:
            outputs.check_output(output, WRITABLE, inputs=inputs)
        if options.report and writes:
            outputs.check_report(options.report, inputs=inputs)
        solver = options.solver()
        with options.named(cost):
            marginals = options.marginals(options.epsilon, options.rho)
        problem = options.read_cost(cost, targets, share=share)
        if output and writes:
            outputs.check_output(output, WRITABLE, shape=problem.cost.shape)
        return cls(problem, options.read_weights(share), marginals, solver)


def _solve(cost: Path, targets: Path | None, options: SolveOptions, team: Team | None) -> int:
    """Solve in one process, or with those of a team, of which one writes and prints."""
    task = Task.read(cost, targets, options, WHOLE) if team is None else _read_together(cost, targets, options, team)
    trace: list[Progress] = []
    started = time.perf_counter()
    with solve_bar() if team is None or team.leads else nullcontext() as bar, options.named(cost):

        def progress(now: Progress) -> None:
            trace.append(now)
            if bar:
                bar(now)

        solution = aot.solve(
            task.problem.cost,
            **task.weights,
            marginals=task.marginals,
            solver=task.solver,
            progress=progress,
            raise_if_not_converged=False,
            group=team and team.group,
        )
    whole = solution.gathered() if isinstance(solution, SolutionPart) else solution
    if whole:
        summary = _summary(whole, time.perf_counter() - started, options.output)
        if options.output:
            _write_plan(options.output, whole)
        if options.report:
            about = configuration(options, cost=cost, targets=targets)
            summary["report"] = solve_report.write(options.report, whole, summary, about, trace, task.problem[1:])
        show.result(summary, options.json, _show)
    if not solution.status.succeeded:
        raise NotConverged(f"{solution.status.value} (gap {solution.gap:.2g})", solution)
    return 0


def _read_together(cost: Path, targets: Path | None, options: SolveOptions, team: Team) -> Task:
    """The task of each process of a team; what one cannot read stops all of them."""
    import numba

    if not team.leads:
        logging.getLogger("adaptive_ot").setLevel(logging.ERROR)  # the first one says that it compiles
    # Processes on one machine share its cores.
    numba.set_num_threads(max(1, numba.get_num_threads() // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))
    tasks: list[Task] = []

    def read() -> dict[str, Any]:
        tasks.append(Task.read(cost, targets, options, Share(team.rank, team.size)))
        return {"bytes": cost.stat().st_size, "digest": _digest_of_ends(cost)}

    first, *others = team.exchange(read)
    for rank, other in enumerate(others, start=1):
        if other != first:
            sizes = f"{first['bytes']:,} bytes in process 0 and {other['bytes']:,} in process {rank}"
            given = sizes if other["bytes"] != first["bytes"] else f"other content in process {rank} than in process 0"
            raise InvalidInput(f"x file '{cost}'", "must be the same for every process", given, "Copy it again.")
    return tasks[0]


def _digest_of_ends(path: Path) -> str:
    """A digest of the first and the last 64 KiB of a file: the whole of a large one takes long to read."""
    with open(path, "rb") as file:
        start = file.read(END_BYTES)
        file.seek(max(0, path.stat().st_size - END_BYTES))
        return hashlib.sha256(start + file.read(END_BYTES)).hexdigest()


def _write_plan(path: Path, solution: Solution) -> None:
    """The plan as .npz (`scipy.sparse.load_npz` reads it), .csv (source, target, mass; from 0) or .npy (dense)."""
    plan = solution.sparse_plan

    def triples(file: IO[bytes]) -> None:
        pairs = plan.tocoo()
        columns: Any = [*pairs.coords, pairs.data]
        np.savetxt(file, np.column_stack(columns), ["%d", "%d", "%.17g"], ",", header="source,target,mass", comments="")

    writers: dict[str, Callable[[IO[bytes]], None]] = {
        ".npz": lambda file: sparse.save_npz(file, plan),
        ".csv": triples,
        ".npy": lambda file: np.save(file, plan.toarray(), allow_pickle=False),
    }
    write_atomically("--output", path, writers[path.suffix.lower()])


def _summary(solution: Solution, seconds: float, output: Path | None) -> dict[str, Any]:
    """The solution as plain numbers and strings."""
    problem, clusters = solution.problem, solution.clusters()
    n, m = problem.cost.shape
    active = int(np.count_nonzero(solution.active_source)), int(np.count_nonzero(solution.active_target))
    largest = sorted(clusters, key=lambda cluster: -len(cluster.sources) - len(cluster.targets))[:CLUSTERS_SHOWN]
    return {
        "model": problem.marginals.title,
        "status": solution.status.name.lower(),
        "message": solution.status.value,
        "sources": n,
        "targets": m,
        "value": solution.value,
        "regularised_value": solution.regularised_value,
        "reach": getattr(problem.cost, "reach", None),
        "reach_estimated": problem.cost.estimated.get("reach"),
        "epsilon": solution.epsilon,
        "gap": solution.gap,
        "mass": solution.mass,
        "most_mass": show.finite(problem.most_mass),
        "price": solution.price,
        "violation": solution.violation,
        "active_sources": active[0],
        "active_targets": active[1],
        "outlier_sources": n - active[0],
        "outlier_targets": m - active[1],
        "pairs": len(solution.support[0]),
        "clusters": len(clusters),
        "largest_clusters": [
            {"sources": len(cluster.sources), "targets": len(cluster.targets), "mass": cluster.mass}
            for cluster in largest
        ],
        "steps": solution.iterations,
        "seconds": seconds,
        "output": None if output is None else str(output),
        "report": None,
    }


def _show(of: dict[str, Any]) -> None:
    sizes = ", ".join(f"{each['sources']} x {each['targets']}" for each in of["largest_clusters"])
    off = f", marginals off by {of['violation']:.2g}" if of["violation"] > 1e-9 * max(1.0, of["mass"]) else ""
    written = "" if of["output"] is None else f", written to {of['output']}"
    show.title(f"{of['model']} of {sources_and_targets(of['sources'], of['targets'], 'to')}")
    show.lines(
        {
            "status": of["message"],
            "value": f"{of['value']:.12g} (certified gap {of['gap']:.2g}{off})",
            "mass": solved_mass(of["mass"], of["most_mass"]),
            "price": last_price(of["price"]) if of["price"] else None,
            "reach": of["reach_estimated"],
            "epsilon": None if of["epsilon"] is None else f"{of['epsilon']:.6g}",
            "active": show.active(of),
            "outliers": f"{sources_and_targets(of['outlier_sources'], of['outlier_targets'])} left alone",
            "clusters": f"{of['clusters']}; the largest: {sizes} points" if sizes else "none",
            "effort": effort(of["steps"], of["seconds"]),
            "plan": f"{counted(of['pairs'], 'pair')}{written}",
            "note": _note(of),
            "report": show.report(of["report"]),
        }
    )


def _note(of: dict[str, Any]) -> str | None:
    """Why nothing moves, and what to type instead."""
    if of["model"] != AtMost.title or of["status"] != "optimal" or of["mass"] or not of["most_mass"]:
        return None
    return "nothing moves: no cost is negative; subtract a limit, give points with a larger --reach, or write --equal"
