"""One problem in several processes: `solve` with a group, and the part of the answer that a process has."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from adaptive_ot import _validation as check
from adaptive_ot._arrays import to_numpy
from adaptive_ot._group import Message, Team
from adaptive_ot._progress import Progress
from adaptive_ot._shard import Cuts, Shard, ShardedCost
from adaptive_ot.costs import DistanceCost, JointCost, PointCost, pairs_for_median, squared_distances
from adaptive_ot.entropic.solver import Entropic
from adaptive_ot.errors import InvalidInput
from adaptive_ot.exact.solver import Exact
from adaptive_ot.marginals import Marginals
from adaptive_ot.problem import Problem
from adaptive_ot.solution import ListedTransport, Solution

Report = Callable[[Progress], None]

# The answers that have an entry for every source, and for every target.
OF_SOURCES, OF_TARGETS = ("source_marginal", "source_potential"), ("target_marginal", "target_potential")
COUNTS = "iterations", "status"

DIVIDED = "Only the sources, and their weights, are divided among the processes."
ALIKE = "Every process has sources of its own, but all of the same kind."
WITHOUT_POINTS = "Pass DistanceCost(my_points, z, reach), or solve the whole matrix in one process."


class Options(NamedTuple):
    """What `solve` was asked for, beside the cost and the weights."""

    marginals: Marginals
    solver: Exact | Entropic
    report: Report


class Given(NamedTuple):
    """What one process was given."""

    cost: PointCost
    source_weights: np.ndarray | None
    target_weights: np.ndarray
    options: Options

    @classmethod
    def checked(cls, cost: Any, source_weights: Any, target_weights: Any, options: Callable[[], Options]) -> Given:
        """Check the input of one process, as far as one process can."""
        asked = options()
        cost = cost() if callable(cost) else cost
        if not isinstance(cost, PointCost):
            rule = "must be a DistanceCost or a JointCost if there is a group"
            raise InvalidInput("cost", rule, type(cost).__name__, WITHOUT_POINTS)
        if isinstance(cost, DistanceCost) and cost.estimate:
            remedy = "Give the distance beyond which a match no longer pays off: a process knows only its own sources."
            raise InvalidInput("reach", "must be given if there is a group", "none", remedy)
        if isinstance(asked.solver, Entropic) and asked.solver.epsilon is None:
            remedy = "Use Entropic(epsilon): a process knows only its own sources."
            raise InvalidInput("epsilon", "must be given if there is a group", "none", remedy)
        n, m = cost.shape
        mu = None if source_weights is None else check.weights("source_weights", source_weights, n, cost.kind)
        return cls(cost, mu, check.weights("target_weights", target_weights, m, cost.kind), asked)

    @property
    def exact(self) -> bool:
        return isinstance(self.options.solver, Exact)

    def description(self) -> Message:
        """What has to be the same in all processes, by argument, and the number of sources, which need not."""
        cost = self.cost
        if isinstance(cost, DistanceCost):
            numbers = {"reach": cost.reach}
        elif isinstance(cost, JointCost) and cost.kappa is not None:  # the weight of distances depends on the sources
            numbers = {"kappa": cost.kappa, "beta": cost.class_weight}
        else:
            numbers = {"alpha": cost.distance_weight, "beta": cost.class_weight}
        shown = (f"{name}={str(value).removesuffix('.0')}" for name, value in numbers.items())
        same = {
            "cost": f"{type(cost).__name__}({', '.join(shown)})",
            "x": f"{cost.kind.dtype} with {cost.dimension} columns",
            "p": f"{cost.classes} classes",
            "z": f"{cost.shape[1]} points{digest(cost.arrays[1])}",
            "q": f"{cost.shape[1]} points{digest(cost.arrays[3])}",
            "source_weights": "none" if self.source_weights is None else "some",
            "target_weights": f"weights{digest(self.target_weights)}",
            "marginals": repr(self.options.marginals),
            "solver": repr(self.options.solver),
        }
        return {"sources": cost.shape[0], "same": same}


def digest(array: Any) -> str:
    """A fingerprint of an array."""
    values = np.ascontiguousarray(to_numpy(array))
    content = repr(values.tolist()).encode() if values.dtype == object else values.reshape(-1).view(np.uint8).data
    return f" ({hashlib.blake2b(content, digest_size=6).hexdigest()})"


def check_same(descriptions: list[Message], remedy: str = DIVIDED) -> None:
    """Refuse what differs between processes and must not."""
    first = descriptions[0]["same"]
    for rank, description in enumerate(descriptions):
        for argument, here in description["same"].items():
            if here != first[argument]:
                given = f"{first[argument]} in process 0 and {here} in process {rank}"
                rule = "must be the same in every process of the group"
                raise InvalidInput(argument, rule, given, ALIKE if argument in ("x", "p") else remedy)


class Meeting(NamedTuple):
    """The processes of a group, which were given parts of the same problem."""

    team: Team
    given: Given
    cuts: Cuts
    shard: Shard

    @classmethod
    def of(
        cls, group: Any, cost: Any, source_weights: Any, target_weights: Any, options: Callable[[], Options]
    ) -> Meeting:
        """Check what all processes were given, and compare what must be the same."""
        team = Team(group)
        taken: list[Given] = []

        def look() -> Message:
            taken.append(Given.checked(cost, source_weights, target_weights, options))
            return taken[0].description()

        descriptions = team.exchange(look)
        check_same(descriptions)
        (given,) = taken
        cuts = Cuts([description["sources"] for description in descriptions])
        return cls(team, given, cuts, shard_for(given))

    @property
    def rows(self) -> range:
        """Which of all sources are those of this process."""
        part = self.cuts.parts[self.team.rank]
        return range(part.start, part.stop)

    def work(self, lead: Callable[[Problem], None]) -> None:
        """Have the leader work on the whole problem, while the other processes answer its calls."""
        mine = partial(piece, self.given, self.cuts, self.team.rank)
        if self.team.leads:
            with self.team.leading(self.shard):
                lead(whole_problem(self.team, self.given, self.cuts, self.team.gather(mine)))
        else:
            self.team.gather(mine)
            self.team.serve(self.shard)

    def report(self, now: Progress) -> None:
        """Report the progress of the leader, also to those who wait for it."""
        self.team.sign()
        self.given.options.report(now)

    def hand_out(self, solution: Solution) -> None:
        """Give every process its part of the solution, from the leader."""
        if self.given.exact:
            rows, columns, mass = solution.transport.support()
            parts = []
            for part in self.cuts.parts:
                some = slice(*np.searchsorted(rows, (part.start, part.stop)))
                parts.append({"rows": rows[some] - part.start, "columns": columns[some], "mass": mass[some]})
            self.team.call("take_plan", parts=parts)
        answers = solution.answers._asdict()
        of_sources = self.cuts.of({name: answers.pop(name) for name in OF_SOURCES})
        of_targets = {name: answers.pop(name) for name in OF_TARGETS}
        whole = {name: int(number) if name in COUNTS else float(number) for name, number in answers.items()}
        self.team.call("end", {"numbers": whole, "active_share": solution.active_share, **of_targets}, of_sources)

    def part(self, problem: Problem) -> SolutionPart:
        """The part that this process was given."""
        shard, solver = self.shard, self.given.options.solver
        epsilon = None if isinstance(solver, Exact) else solver.epsilon
        found = problem, shard.transport, shard.answers, shard.active_share, epsilon
        return SolutionPart(*found, rows=self.rows, sources=self.cuts.total, team=self.team)


def solve_in_group(
    group: Any,
    cost: Any,
    source_weights: Any,
    target_weights: Any,
    options: Callable[[], Options],
    engine: Callable[[Problem, Exact | Entropic, Report], Solution],
) -> SolutionPart:
    """Solve with the engine in the leader, while the other processes answer its calls."""
    meeting = Meeting.of(group, cost, source_weights, target_weights, options)
    solver = meeting.given.options.solver
    meeting.work(lambda problem: meeting.hand_out(engine(problem, solver, meeting.report)))
    return meeting.part(meeting.shard.problem)


def shard_for(given: Given) -> Shard:
    """What answers the calls of the engine in the leader."""
    # Numba takes half a second to import; only a solve should pay for it.
    if given.exact:
        from adaptive_ot.exact.shard import PricingShard

        return PricingShard(given.cost, given.options.marginals)
    from adaptive_ot.entropic.shard import SoftminShard

    return SoftminShard(given.cost, given.options.marginals)


def piece(given: Given, cuts: Cuts, rank: int) -> Message:
    """What the leader has to know about the sources of a process: all points for the simplex, otherwise a few."""
    cost, rows = given.cost, cuts.parts[rank]
    step = 1 if given.exact else ShardedCost.places_sampled(cuts.total).step
    some = slice(-rows.start % step, None, step)
    message = {"x": cost.x[some], "p": cost.p[some]}
    if given.source_weights is not None:
        message["weights"] = given.source_weights
    if isinstance(cost, JointCost) and cost.kappa is not None:
        of_all, targets = pairs_for_median(cuts.total, cost.shape[1])
        here = (of_all >= rows.start) & (of_all < rows.stop)
        message["squares"] = squared_distances(cost.x, cost.z, of_all[here] - rows.start, targets[here])
    return message


def whole_problem(team: Team, given: Given, cuts: Cuts, pieces: list[Message]) -> Problem:
    """The problem of all processes, in the leader; all of them get their part of it."""
    whole = {name: np.concatenate([each[name] for each in pieces]) for name in pieces[0]}
    cost, marginals, distance_weight = given.cost, given.options.marginals, given.cost.distance_weight
    mu = whole.get("weights", np.full(cuts.total, 1.0 / max(1, cuts.total)))
    mu, nu = marginals.checked(mu, given.target_weights)
    if isinstance(cost, JointCost) and cost.kappa is not None:
        typical = float(np.median(whole["squares"])) if whole["squares"].size else 0.0
        distance_weight = cost.class_weight * cost.kappa / check.spread(typical)
    team.call("begin", {"nu": nu, "distance_weight": distance_weight}, cuts.of({"mu": mu}))
    near = team.service.cost
    if not given.exact:
        return Problem(ShardedCost(team, cuts, near, (whole["x"], whole["p"])), mu, nu, marginals)
    from adaptive_ot.exact.sharded import SharedPoints

    _, z, _, q = near.arrays
    return Problem(SharedPoints.of(near.between(whole["x"], z, whole["p"], q), team), mu, nu, marginals)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SolutionPart(Solution):
    """The part of a solution that one process of a group has: the rows of its own sources.

    The plan, the marginals and potentials of the sources, and everything that is made from the plan, such as
    `clusters` and `barycentric_map`, are about these sources. All else is about the whole problem: value, mass, price,
    gap, violation, status, and the marginals and potentials of the targets.

    Attributes
    ----------
    rows
        Which of all sources are those of this process.
    sources
        How many sources the whole problem has.
    """

    rows: range
    sources: int
    team: Team

    def gathered(self) -> Solution | None:
        """The whole solution in the process of rank 0, None in the others. All processes have to call it.

        The plan becomes a list of pairs. That is no burden if the solver is `Exact`, but an entropic plan has pairs
        between all points.
        """
        cost, answers = self.problem.cost, self.answers
        assert isinstance(cost, PointCost)
        rows, columns, mass = self.support
        plan = {"rows": rows + self.rows.start, "columns": columns, "mass": mass}
        of_sources = {name: getattr(answers, name) for name in OF_SOURCES}
        points = {"x": cost.x, "p": cost.p, "weights": self.problem.source_weights}
        pieces = self.team.gather(lambda: {**plan, **of_sources, **points})
        if not pieces:
            return None
        whole = {name: np.concatenate([each[name] for each in pieces]) for name in pieces[0]}
        of_all = cost.between(whole["x"], cost.z, whole["p"], cost.q)
        problem = Problem(of_all, whole["weights"], self.problem.target_weights, self.problem.marginals)
        transport = ListedTransport(of_all.shape, (whole["rows"], whole["columns"], whole["mass"]))
        answers = answers._replace(**{name: whole[name] for name in OF_SOURCES})
        return Solution(problem, transport, answers, self.active_share, self.epsilon)

    def __repr__(self) -> str:
        m = self.problem.cost.shape[1]
        numbers = f"value {self.value:.6g}, mass {self.mass:.6g}, gap {self.gap:.1e}"
        return f"<SolutionPart, {self._place} of {self.sources} x {m}: {numbers}, {self.status.name}>"

    def __str__(self) -> str:
        whole = " of the whole"
        return "\n".join(self._lines(f"{self._place} of {self.sources}", value=whole, mass=whole, here=" here"))

    @property
    def _place(self) -> str:
        return f"rows {self.rows.start} to {self.rows.stop - 1}" if self.rows else "no rows"
