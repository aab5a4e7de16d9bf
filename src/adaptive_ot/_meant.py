"""What a user meant whose call does not fit, and what to type instead.

Most of it runs only after a check has failed, or when a solution is printed: a solve pays for nothing but
`no_gradient`.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from adaptive_ot import _validation as check
from adaptive_ot._arrays import to_numpy
from adaptive_ot.errors import InvalidInput

if TYPE_CHECKING:
    from adaptive_ot.matching import Matching
    from adaptive_ot.solution import Found, Solution

MODELS = {
    "aot.AtMost()": ("atmost", "adaptive", "aot"),
    "aot.Equal()": ("equal", "balanced", "kantorovich", "wasserstein", "emd"),
    "aot.FixedMass(mass)": ("fixedmass", "partial"),
    "aot.SoftKL(tau)": ("softkl", "unbalanced", "kl"),
    "aot.ChiSquareBall(rho)": ("chisquareball", "robust"),
}
SOLVERS = {
    "aot.Exact()": ("exact", "emd", "simplex", "networksimplex"),
    "aot.Entropic(0.1)": ("entropic", "entropy", "sinkhorn"),
}

# Keywords of other libraries, and of other functions of this one.
KEYWORDS = {
    "solver=aot.Entropic({})": ("epsilon", "eps", "reg"),
    "marginals=aot.FixedMass({})": ("mass", "m"),
    "marginals=aot.SoftKL({}) and solver=aot.Entropic(epsilon)": ("tau", "reg_m", "unbalanced"),
    "marginals=aot.ChiSquareBall({})": ("rho",),
    "aot.solve(aot.DistanceCost(x, z, reach={}))": ("reach",),
    "solver=aot.Exact(max_pivots={}), or aot.Entropic(epsilon, max_iterations={})": (
        *("numItermax", "max_iter", "max_iterations", "iterations", "max_pivots"),
    ),
    "solver=aot.Exact(tolerance={}), or aot.Entropic(epsilon, tolerance={})": ("tolerance", "tol", "stopThr"),
    "aot.match(cost=cost, limit={})": ("limit",),
    "source_weights={name}": ("a", "mu"),
    "target_weights={name}": ("b", "nu"),
}
OWN_KEYWORDS = (
    *("source_weights", "target_weights", "marginals", "solver", "progress", "raise_if_not_converged", "group"),
)

# Nobody reads off the pairs of a larger plan.
READABLE = 60


def keyword(name: str, value: Any) -> InvalidInput:
    """The error for a keyword that `solve` does not have."""
    shown = check.describe(value)
    known = [call.replace("{}", shown).replace("{name}", name) for call, names in KEYWORDS.items() if name in names]
    remedy = f"{check.nearest(name, OWN_KEYWORDS)}Its keywords are {', '.join(OWN_KEYWORDS)}."
    return InvalidInput(name, "is not a keyword of solve", shown, f"Write {known[0]}." if known else remedy)


def fourth(given: Any, call: str = "solve") -> InvalidInput:
    """The error for a fourth argument without a keyword."""
    shape, usual = _shape(given), "plan=plan" if call == "certify" else "marginals=..., solver=..."
    written = _keyword_of(given) or (_entropic(given) if _is_number(given) and call != "certify" else usual)
    return InvalidInput(
        call,
        "takes the cost and two weights by position",
        f"{f'an array of shape {shape}' if shape else _typed(given)} as the fourth",
        f"Write aot.{call}(C, a, b, {written}).",
    )


def by_position(argument: str, given: Any) -> InvalidInput | None:
    """The error for a model or a solver in the place of weights; None if it is neither."""
    written = _keyword_of(given)
    return InvalidInput(argument, "must be weights", _typed(given), f"Write {written}.") if written else None


def model(given: Any, pairs: bool = True) -> InvalidInput:
    """The error for `marginals` that are no model."""
    choice = f"Give one of {', '.join(MODELS)}{', or a pair of them' if pairs else ''}."
    remedy = _call_for("marginals", given, MODELS) or choice
    return InvalidInput("marginals", "must be an instance of Marginals", check.describe(given), remedy)


def solver(given: Any) -> InvalidInput:
    """The error for a `solver` that is none."""
    remedy = _call_for("solver", given, SOLVERS) or "Give aot.Exact() or aot.Entropic(epsilon)."
    if _is_number(given):
        remedy = f"Write {_entropic(given)}."
    return InvalidInput("solver", "must be an instance of Exact or Entropic", check.describe(given), remedy)


def _call_for(argument: str, given: Any, calls: dict[str, tuple[str, ...]]) -> str:
    """What to type instead of the name of a class, or the class itself; empty if it is not known."""
    name = given.__name__ if isinstance(given, type) else given if isinstance(given, str) else ""
    word = re.sub(r"[^a-z0-9]", "", name.casefold())
    return next((f"Write {argument}={call}." for call, words in calls.items() if word in words), "")


def _keyword_of(given: Any) -> str:
    """The keyword under which to pass this model or solver; empty for anything else."""
    for argument, calls in (("marginals", MODELS), ("solver", SOLVERS)):
        if is_dataclass(given) and _call_for(argument, type(given), calls):
            return f"{argument}={_typed(given)}"
    return ""


def _typed(given: Any) -> str:
    """A model or a solver as the user may have typed it; anything else is described."""
    if isinstance(given, type) or not is_dataclass(given):
        return check.describe(given)
    values = {field.name: getattr(given, field.name) for field in fields(given) if field.init}
    defaults = {field.name: field.default for field in fields(given)}
    shown = (f"{name}={value!r}" for name, value in values.items() if value != defaults[name])
    return f"aot.{type(given).__name__}({', '.join(shown)})"


def _is_number(given: Any) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool)


def _entropic(epsilon: float) -> str:
    return f"solver=aot.Entropic({epsilon})"


def no_file(**arrays: Any) -> None:
    """Refuse the name of a file in the place of an array."""
    for name, given in arrays.items():
        if isinstance(given, str | os.PathLike):
            raise _file(name, os.fspath(given), f"{name}={{}}")


def no_solution(argument: str, given: Any) -> None:
    """Refuse a solution in the place of its plan."""
    if hasattr(given, "plan") and hasattr(given, "source_potential"):
        remedy = "Write aot.certify(C, plan=solution.plan, source_potential=solution.source_potential)."
        rule = "must be an array" if argument == "plan" else "must be weights"
        raise InvalidInput(argument, rule, type(given).__name__, remedy)


def no_triples(pairs: Any) -> None:
    """Refuse a list with a tuple for every pair, where three arrays are wanted."""
    triples = isinstance(pairs, list) and pairs and all(isinstance(each, tuple) and len(each) == 3 for each in pairs)
    if triples and (len(pairs) != 3 or isinstance(pairs[0][2], float)):  # three tuples may be the three arrays
        rule, given = "must be (sources, targets, scores)", f"a list of {len(pairs)} triples"
        raise InvalidInput("pairs", rule, given, "Write pairs=tuple(zip(*pairs)).")


def numbered(error: InvalidInput) -> InvalidInput:
    """The error with advice on names in the place of numbers; otherwise as it was."""
    if error.argument == "pairs[2]" or not re.match(r"dtype (object|[<>|=]?[US]|Str)", error.given):
        return error
    advice = "names, numbers = np.unique(names, return_inverse=True)"
    return _remedied(error, f"Number the names first: {advice}; or run adaptive-ot match, which reads names.")


def second(given: Any) -> InvalidInput:
    """The error for a second argument of `match` without a keyword."""
    limit = given if _is_number(given) else 3.0
    remedy = f"Write aot.match(score), or aot.match(cost=cost, limit={limit})"
    if np.size(given) > 1:
        remedy += "; for two point clouds, cost=scipy.spatial.distance.cdist(x, z)"
    return InvalidInput("match", "takes one matrix of scores by position", "two arguments or more", f"{remedy}.")


def no_gradient(remedy: str, **arrays: Any) -> None:
    """Refuse tensors whose gradient would be lost without a word; under ``torch.no_grad()`` nobody misses it."""
    for name, array in arrays.items():
        if getattr(array, "requires_grad", False) and sys.modules["torch"].is_grad_enabled():
            rule = "must not require a gradient, because this function does not compute one"
            raise InvalidInput(name, rule, "a tensor with requires_grad=True", remedy.format(name))


def instead(
    error: InvalidInput, cost: Any, source_weights: Any = None, target_weights: Any = None, call: str = "solve"
) -> InvalidInput:
    """The error with a remedy that fits what the user meant, if that can be told; otherwise as it was.

    `call` is the function that the user called.
    """
    if isinstance(cost, str | os.PathLike):
        return _file("cost", os.fspath(cost), f"aot.{call}({{}})")
    plan = ", plan=plan" if call == "certify" else ""
    if cost is None:
        remedy = f"Write aot.{call}(C{plan}) for a matrix, or aot.{call}(aot.DistanceCost(x, z){plan}) for points."
        return InvalidInput("cost", "must be given", None, remedy)
    for argument, given in (("source_weights", source_weights), ("target_weights", target_weights)):
        no_solution(argument, given)
        positioned = by_position(argument, given)
        if positioned:
            return positioned
    shapes = _shapes(cost)
    if len({*shapes}) > 1:
        different = " and ".join(f"{n} x {m}" for n, m in [*dict.fromkeys(shapes)][:2])
        remedy = "Pad with +inf and give the added points weight 0, or take one-to-one pairs from aot.match_frames."
        if error.argument == "score":
            remedy = "Write aot.match_frames(frames), which takes any sizes."
        return InvalidInput(error.argument, "must have one size for all problems of a batch", different, remedy)
    first, second, third = map(_shape, (cost, source_weights, target_weights))
    if len(third) == len(first) + 1 > 1:
        order = f"aot.{call}(C, a, b{plan})"
        return _remedied(error, f"The cost comes first: write {order}, with the weights after it.")
    if plan and len(first) == 2 and first == second:
        return _remedied(error, "Write aot.certify(C, plan=plan).")
    if len(first) == len(second) == 2 and first[1] == second[1]:
        return _remedied(error, f"For two point clouds, write aot.{call}(aot.DistanceCost(x, z){plan}).")
    return error


def _file(argument: str, path: str | bytes, call: str) -> InvalidInput:
    text = os.fsdecode(path)
    readers = {
        ".csv": "np.loadtxt({}, delimiter=',')",
        ".txt": "np.loadtxt({})",
        ".npz": f"np.load({{}})['{argument}']",
    }
    read = readers.get(os.path.splitext(text)[1].lower(), "np.load({})").format(check.describe(text))
    rule = "must be an array, not a file"
    return InvalidInput(argument, rule, check.describe(text), f"Write {call.format(read)}.")


def _remedied(error: InvalidInput, remedy: str) -> InvalidInput:
    return InvalidInput(error.argument, error.rule, error.given, remedy)


def _shape(given: Any) -> tuple[int, ...]:
    """The shape of anything; empty if it has none."""
    try:
        return tuple(np.shape(given))
    except (ValueError, TypeError, RuntimeError):
        return ()


def _shapes(frames: Any) -> list[tuple[int, ...]]:
    """The shapes of a list of matrices; empty for anything else."""
    if not (isinstance(frames, list | tuple) or (isinstance(frames, np.ndarray) and frames.dtype == object)):
        return []
    shapes = [_shape(each) for each in frames]
    return shapes if all(len(shape) == 2 for shape in shapes) else []


def notes(solution: Solution) -> list[str]:
    """Lines below a printed solution that may surprise; mostly none."""
    return nothing_moves(solution) or _split(solution)


def nothing_moves(found: Found) -> list[str]:
    """Why no mass moves, and what to change; for a batch, only if none moves in all problems."""
    idle = _adaptive(found) and np.all(to_numpy(found.converged)) and not np.any(to_numpy(found.answers.mass))
    if not idle or not all(side.size and side.min() > 0 for side in _weights(found)):
        return []
    reach = getattr(found.problem.cost, "reach", None)
    if reach is not None:
        return [f"  note      nothing moves: no two points are closer than reach={reach:g}; choose a larger one"]
    return [
        "  note      nothing moves: no cost is negative. Subtract a limit (cost - limit), use",
        "            aot.DistanceCost(x, z), or move everything with marginals=aot.Equal()",
    ]


def nothing_matches(matching: Matching) -> list[str]:
    """Why there are no pairs, and what to change."""
    capacities = matching.source_capacity, matching.target_capacity
    if len(matching) or not all(side.size and side.min() > 0 for side in capacities):
        return []
    meaning = matching._scores.meaning
    if meaning.sign > 0:
        return [f"  note       nothing matches: no cost is below limit={meaning.limit:g}; choose a larger one"]
    return ["  note       nothing matches: no score is above 0; for costs, use aot.match(cost=cost, limit=limit)"]


def everything_matches(matching: Matching) -> list[str]:
    """What to type if the numbers of a matrix are not scores: all of them speak for their pairs."""
    values = getattr(matching._scores, "values", None)
    if values is None or matching._scores.meaning.sign > 0 or values.size < 2 or not values.min() > 0:
        return []
    return [
        "  note       every score is above 0, so every pair is better than none; if smaller is better, use",
        "             aot.match(cost=cost, limit=limit)",
    ]


def _split(solution: Solution) -> list[str]:
    """A hint where someone may expect pairs: a small matrix, nearly square, whose sides weigh the same as a whole."""
    n, m = solution.problem.cost.shape
    if n == m or max(n, m) > min(READABLE, 2 * min(n, m)) or solution.problem.cost.layout == "points":
        return []
    mu, nu = _weights(solution)
    uniform = np.ptp(mu) == np.ptp(nu) == 0 and np.isclose(mu.sum(), nu.sum())
    if not (uniform and _adaptive(solution)) or solution.active_share:
        return []
    rows, columns, _ = solution.support
    if len({*rows.tolist()}) == len({*columns.tolist()}) == len(rows):
        return []
    return [
        f"  note      sources weigh {mu[0]:.3g} and targets {nu[0]:.3g}, so points are split; for one-to-one pairs,",
        "            use aot.match(cost=cost, limit=0)",
    ]


def _adaptive(found: Found) -> bool:
    """Whether only the cost decides how much mass moves."""
    marginals = found.problem.marginals
    return not marginals.prescribes_mass and all(side.bounded for side in marginals.sides)


def _weights(found: Found) -> tuple[np.ndarray, np.ndarray]:
    return to_numpy(found.problem.source_weights), to_numpy(found.problem.target_weights)
