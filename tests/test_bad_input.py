"""Malformed and unusual inputs at every entry point: an InvalidInput that names the argument, or a right answer.

Warnings are errors here (see pyproject.toml), so a RuntimeWarning on the way fails a test as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy import sparse

import adaptive_ot as aot

try:
    import torch
except ImportError:
    torch = None

NAN, INF = float("nan"), float("inf")


class Case(NamedTuple):
    """Calling `call(**given)` must blame one of `arguments`, or return something that `accept` finds right."""

    name: str
    call: Callable[..., Any]
    given: dict[str, Any]
    arguments: tuple[str, ...] = ()
    accept: Callable[[Any], bool] | None = None


COST = np.array([[-1.0, 2.0, -3.0], [4.0, -5.0, 6.0]])
POINTS = {"x": np.arange(6.0).reshape(3, 2), "z": np.arange(8.0).reshape(4, 2), "reach": 1.0}
JOINT = {"x": POINTS["x"], "z": POINTS["z"], "p": np.eye(3), "q": np.full((4, 3), 1 / 3)}
LABELS = {"source_labels": [1, 2], "target_labels": [1, 2, 3]}
PLACES = {"target_points": np.ones((3, 2)), "source_points": np.ones((2, 2))}


def with_entry(array: np.ndarray, value: Any) -> np.ndarray:
    array = array.copy()
    array.flat[array.size // 2] = value
    return array


def by_label(**given: Any) -> Any:
    return aot.solve(COST).by_label(**given)


def barycentric_map(**given: Any) -> Any:
    return aot.solve(COST).barycentric_map(**given)


def judged_by(method: str) -> Callable[..., Any]:
    return lambda **given: getattr(aot.Problem.build(COST), method)(**given)


def solve_distance(source_weights: Any = None, target_weights: Any = None, **given: Any) -> aot.Solution:
    return aot.solve(aot.DistanceCost(**given), source_weights, target_weights)


def solve_joint(**given: Any) -> aot.Solution:
    return aot.solve(aot.JointCost(**given))


def broken_sparse() -> sparse.csr_array:
    """A matrix whose compiled routines would read out of bounds."""
    matrix = sparse.csr_array(COST)
    matrix.indices[0] = 10**6
    return matrix


# What no array of numbers can be, wherever one is expected.
NOT_NUMBERS: dict[str, Any] = {
    "None": None,
    "text": "cost",
    "bytes": b"12",
    "dict": {"a": 1},
    "set": {1, 2},
    "generator": (k for k in range(3)),
    "function": len,
    "ragged lists": [[1.0, 2.0], [3.0]],
    "list of text": [["a", "b"], ["c", "d"]],
    "list with None": [[1.0, None], [2.0, 3.0]],
    "text array": np.array([["a", "b"], ["c", "d"]]),
    "digits as text": np.array([["1", "2"], ["3", "4"]]),
    "objects": np.array([[object(), 1], [2, 3]], object),
    "decimals": [[Decimal(1), Decimal(2)], [Decimal(3), Decimal(4)]],
    "integers beyond 64 bits": [[10**400, 1], [2, 3]],
    "complex": np.ones((2, 2), complex),
    "dates": np.full((2, 2), datetime(2020, 1, 1), "datetime64[s]"),
    "time spans": np.ones((2, 2), "timedelta64[s]"),
    "records": np.zeros((2, 2), [("a", float)]),
    "masked array": np.ma.masked_array(np.ones((2, 2)), mask=np.eye(2, dtype=bool)),
    "number": 3.0,
    "one dimension too many": np.ones((2, 2, 2, 2)),
}
FEW_NOT_NUMBERS = ("None", "text", "ragged lists", "complex", "number", "one dimension too many", "masked array")

# What no single number can be.
NOT_A_NUMBER: dict[str, Any] = {
    "None": None,
    "text": "two",
    "digits as text": "2",
    "NaN": NAN,
    "infinite": INF,
    "negative": -1.0,
    "complex": 1 + 2j,
    "list": [1.0],
    "array of two": np.ones(2),
    "beyond float64": 10**400,
    "object": object(),
}


def without_none(values: dict[str, Any]) -> dict[str, Any]:
    """The values for an argument that may be None."""
    return {name: value for name, value in values.items() if value is not None}


def entries(array: np.ndarray, *values: float) -> dict[str, Any]:
    """The array with one of the values in it."""
    return {f"one with {value}": with_entry(array, value) for value in values}


def refused(call: Callable[..., Any], argument: str, values: dict[str, Any], **others: Any) -> list[Case]:
    """Values of one argument that break a rule, beside others that do not."""
    entry = getattr(call, "__qualname__", "call")
    return [
        Case(f"{entry}: {argument} is {name}", call, others | {argument: value}, (argument,))
        for name, value in values.items()
    ]


def bad_costs() -> Iterator[Case]:
    for call in (aot.solve, aot.Problem.build):
        yield from refused(call, "cost", NOT_NUMBERS)
        for dtype in (np.float64, np.float32, np.float16):
            yield from refused(call, "cost", entries(COST.astype(dtype), NAN, -INF))
        broken = {f"sparse {name}": sparse.csr_array(array) for name, array in entries(COST, NAN, -INF).items()}
        yield from refused(call, "cost", broken)
    others = {
        "a vector": [1.0, 2.0],
        "an empty list": [],
        "complex and sparse": sparse.csr_array(np.eye(2) * 1j),
        "a sparse vector": sparse.coo_array(np.array([1.0, -2.0])),
        "sparse and out of bounds": broken_sparse(),
        "a class": aot.DistanceCost,
        "huge rewards": np.full((2, 2), -1e308),
        "beyond float64": np.array([[-1.0]], np.longdouble) * np.longdouble(10) ** 400,
    }
    yield from refused(aot.solve, "cost", others)


def bad_options() -> Iterator[Case]:
    """Weights, solver, marginals and progress of `solve`, and the numbers of `Exact`."""
    for argument, k in (("source_weights", 2), ("target_weights", 3)):
        wrong = {
            "too many": np.ones(k + 1),
            "too few": np.ones(k - 1),
            "a column": np.ones((k, 1)),
            "empty": [],
            "sparse": sparse.csr_array(np.ones((1, k))),
            "denormal": np.full(k, 5e-324),
            "nearly denormal": [*np.zeros(k - 1), 1e-305],
        } | entries(np.ones(k), NAN, -INF, INF, -1.0, -1e-300, 1e308)
        yield from refused(aot.solve, argument, without_none(NOT_NUMBERS) | wrong, cost=COST)
    huge = {"cost": [[-1e99]], "source_weights": [1e200], "target_weights": [1e200]}
    yield Case("solve: weights and rewards overflow together", aot.solve, huge, tuple(huge))
    for argument, other in (("solver", aot.Exact), ("marginals", aot.AtMost), ("progress", "not at all")):
        yield from refused(aot.solve, argument, {"text": "exact", "a number": 3, "other": other}, cost=[[-1.0]])
    yield from refused(aot.solve, "solver", {"a model": aot.AtMost()}, cost=[[-1.0]])
    yield from refused(aot.Problem.build, "marginals", {"text": "at most"}, cost=[[1.0]])
    yield from refused(aot.Exact, "tolerance", NOT_A_NUMBER)
    yield from refused(aot.Exact, "max_pivots", without_none(NOT_A_NUMBER) | {"half a pivot": 2.5})


def bad_points() -> Iterator[Case]:
    for argument in ("x", "z"):
        wrong = entries(POINTS[argument], NAN, INF, -INF, 1e200) | {"a vector": [1.0, 2.0]}
        yield from refused(aot.DistanceCost, argument, NOT_NUMBERS | wrong, **POINTS)
    yield from refused(aot.DistanceCost, "z", {"of another dimension": np.ones((4, 3))}, **POINTS)
    yield from refused(aot.DistanceCost, "reach", without_none(NOT_A_NUMBER) | {"of infinite square": 1e200}, **POINTS)
    for argument in JOINT:
        wrong = {name: NOT_NUMBERS[name] for name in FEW_NOT_NUMBERS} | entries(JOINT[argument], NAN, INF, 1e200)
        yield from refused(aot.JointCost, argument, wrong, **JOINT)
    yield from refused(aot.JointCost, "p", {"labels": [0, 1, 2], "of too few sources": np.ones((2, 3))}, **JOINT)
    few = {"of too few classes": np.ones((4, 2)), "of too few targets": np.ones((3, 3))}
    yield from refused(aot.JointCost, "q", few, **JOINT)
    for argument in ("kappa", "beta"):
        yield from refused(aot.JointCost, argument, NOT_A_NUMBER, **JOINT)
    yield from refused(aot.JointCost, "alpha", without_none(NOT_A_NUMBER), **JOINT)
    # Numbers that are fine one by one
    far = JOINT | {"x": np.full((3, 2), 1e100), "alpha": 1e200}
    yield Case("JointCost: distances that overflow", solve_joint, far, ("alpha", "x"))
    large = JOINT | {"p": np.full((3, 3), 1e100), "q": np.full((4, 3), 1e100), "beta": 1e200}
    yield Case("JointCost: scores that overflow", solve_joint, large, ("beta", "p", "q"))
    heavy = {"x": [[0.0]], "z": [[0.0]], "reach": 1e140, "source_weights": [1e100], "target_weights": [1e100]}
    blamed = ("reach", "cost", "source_weights", "target_weights")
    yield Case("solve: weights and reach overflow together", solve_distance, heavy, blamed)


def bad_questions() -> Iterator[Case]:
    """Arguments of the methods of `Solution` and `Problem`."""
    for argument, k in (("source_labels", 2), ("target_labels", 3)):
        wrong = {
            "None": None,
            "text": "ab",
            "too few": [1] * (k - 1),
            "too many": [1] * (k + 1),
            "one-hot": np.eye(k),
            "ragged": [[1], [1, 2], [3]][:k],
            "objects without order": [object() for _ in range(k)],
            "None among text": [None, "a", "b"][:k],
            "sparse": sparse.csr_array(np.ones((1, k))),
        }
        yield from refused(by_label, argument, wrong, **LABELS)
    for argument, k in (("target_points", 3), ("source_points", 2)):
        wrong = {
            "too few": np.ones((k - 1, 2)),
            "too many": np.ones((k + 1, 2)),
            "a vector": np.ones(k),
            "NaN": np.full((k, 2), NAN),
            "infinite": np.full((k, 2), INF),
        }
        yield from refused(barycentric_map, argument, without_none(NOT_NUMBERS) | wrong, **PLACES)
    yield from refused(barycentric_map, "target_points", {"None": None})
    yield from refused(barycentric_map, "source_points", {"of another dimension": np.ones((2, 5))}, **PLACES)
    one_stays: Any = lambda **given: aot.solve([[-1.0], [1.0]]).barycentric_map(**given)  # noqa: E731
    yield from refused(one_stays, "source_points", {"missing": None}, target_points=np.ones((1, 2)))
    plans = entries(COST, NAN, INF, 1e200) | {
        "transposed": COST.T,
        "text of the right shape": np.full((2, 3), "a"),
        "complex of the right shape": np.ones((2, 3), complex),
        "objects of the right shape": np.full((2, 3), object()),
        "sparse and transposed": sparse.csr_array(COST.T),
        "sparse and complex": sparse.csr_array(COST * 1j),
        "sparse with NaN": sparse.csr_array(with_entry(COST, NAN)),
        "sparse and out of bounds": broken_sparse(),
        "a sparse vector": sparse.coo_array(np.array([1.0, -2.0])),
    }
    potentials = {
        "too long": [0.0, 0.0, 0.0],
        "NaN": [0.0, NAN],
        "text of the right length": ["a", "b"],
        "complex of the right length": [1j, 2.0],
        "a column": [[0.0], [0.0]],
    }
    for method, others in (("objective", {}), ("violation", {}), ("gap", {"source_potential": [0.0, 0.0]})):
        yield from refused(judged_by(method), "plan", NOT_NUMBERS | plans, **others)
    for method, others in (("c_transform", {}), ("dual_value", {}), ("gap", {"plan": np.zeros((2, 3))})):
        yield from refused(judged_by(method), "source_potential", NOT_NUMBERS | potentials, **others)
    yield from refused(aot.certify, "plan", NOT_NUMBERS | plans, cost=COST)
    yield from refused(aot.certify, "source_potential", without_none(NOT_NUMBERS) | potentials, cost=COST)
    yield from refused(aot.certify, "target_potential", without_none(NOT_NUMBERS) | potentials, cost=COST.T)
    yield Case(
        "Problem.dual_value: infinite potential of a source without weight",
        lambda **given: aot.Problem.build(COST, [1.0, 0.0]).dual_value(**given),
        {"source_potential": [0.0, -INF]},
        ("source_potential",),
        lambda bound: bound <= aot.solve(COST, [1.0, 0.0]).value,
    )


def bad_tensors() -> Iterator[Case]:
    """Tensors that are no costs, and arrays of one library beside those of the other."""
    if torch is None:
        return
    wrong = {
        "complex": torch.ones(2, 2, dtype=torch.complex64),
        "NaN": torch.full((2, 2), NAN),
        "-inf": torch.full((2, 2), -INF),
        "of four dimensions": torch.ones(2, 2, 2, 2),
        "without memory": torch.ones(2, 2, device="meta"),
    }
    yield from refused(aot.solve, "cost", wrong)
    yield from refused(aot.solve, "source_weights", {"torch beside NumPy": torch.ones(2)}, cost=COST)
    yield from refused(aot.solve, "source_weights", {"torch beside lists": torch.ones(1)}, cost=[[-1.0]])
    yield from refused(aot.solve, "target_weights", {"NumPy beside torch": np.ones(3)}, cost=torch.ones(2, 3))
    yield from refused(aot.DistanceCost, "z", {"torch beside NumPy": torch.ones(2, 2)}, x=np.ones((2, 2)), reach=1)
    yield from refused(aot.DistanceCost, "z", {"NumPy beside torch": np.ones((2, 2))}, x=torch.ones(2, 2), reach=1)
    yield from refused(aot.JointCost, "p", {"torch beside NumPy": torch.eye(3)}, **JOINT)
    yield from refused(aot.JointCost, "q", {"torch beside NumPy": torch.ones(4, 3)}, **JOINT)
    tracked = {"cost": [[torch.tensor(-1.0, requires_grad=True)]]}
    yield Case("solve: list of tensors that require gradients", aot.solve, tracked, ("cost",), valued(-1.0))


def valued(expected: float) -> Callable[[Any], bool]:
    return lambda answer: answer.value == expected


# Costs and weights that look odd and are fine: their value must be right.
UNUSUAL: dict[str, tuple[float, dict[str, Any]]] = {
    "integer lists": (-2.5, {"cost": [[-1, 2], [3, -4]]}),
    "booleans": (0.0, {"cost": np.ones((2, 2), bool)}),
    "unsigned": (0.0, {"cost": np.ones((2, 2), np.uint8)}),
    "+inf": (-1.5, {"cost": [[INF, -1.0], [-2.0, INF]]}),
    "minus zero": (0.0, {"cost": [[-0.0]]}),
    "empty rows": (0.0, {"cost": [[]]}),
    "zero weights": (0.0, {"cost": [[-1.0]], "source_weights": [0.0]}),
    "minus zero as a weight": (0.0, {"cost": [[-1.0]], "source_weights": [-0.0]}),
    "integer weights": (-2.0, {"cost": [[-1.0]], "source_weights": [3], "target_weights": [2]}),
    "boolean weights": (-1.0, {"cost": [[-1.0]], "source_weights": [True]}),
    "extended precision": (-1.5, {"cost": np.array([[-1.5]], np.longdouble)}),
    "huge positive cost": (-0.5, {"cost": [[-1.0, 1e308], [1e308, 1e308]]}),
    "tiny reward": (-5e-324, {"cost": [[-5e-324]]}),
    "tiny weight": (-1e-300, {"cost": [[-1.0]], "source_weights": [1e-300]}),
    "large weight": (-1.0, {"cost": [[-1.0]], "source_weights": [1e100]}),
    "stored sparse zeros": (0.0, {"cost": sparse.csr_array(([0.0], ([0], [0])), (1, 1))}),
    "sparse +inf": (-0.5, {"cost": sparse.csr_array(([INF, -1.0], ([0, 0], [0, 1])), (1, 2))}),
    "sparse without entries": (0.0, {"cost": sparse.csr_array((3, 2))}),
    "sparse booleans": (0.0, {"cost": sparse.csr_array(np.ones((2, 2), bool))}),
}
UNUSUAL_POINTS: dict[str, tuple[float, dict[str, Any]]] = {
    "reach as a NumPy number": (-3.0, {"x": [[0.0]], "z": [[1.0]], "reach": np.float32(2.0)}),
    "no reach": (0.0, {"x": [[0.0]], "z": [[0.0]], "reach": 0}),
    "points far apart": (0.0, {"x": [[1e99]], "z": [[-1e99]], "reach": 1.0}),
}
UNUSUAL_CLASSES: dict[str, tuple[float, dict[str, Any]]] = {
    "distances too small to square": (-1.0, {"x": [[1e-170]], "z": [[0.0]], "p": [[1.0]], "q": [[1.0]]}),
    "scores that cancel": (0.0, {"x": [[0.0]], "z": [[0.0]], "p": [[1e49, 1e49]], "q": [[1.0, -1.0]]}),
    "no classes": (0.0, {"x": [[0.0]], "z": [[1.0]], "p": np.zeros((1, 0)), "q": np.zeros((1, 0))}),
    "all points equal": (-1.0, {"x": np.ones((2, 2)), "z": np.ones((2, 2)), "p": np.eye(2), "q": np.eye(2)}),
}


def unusual() -> Iterator[Case]:
    """Inputs that look odd: the answer must be right, or a refusal must say what is wrong."""
    tables = (aot.solve, UNUSUAL), (solve_distance, UNUSUAL_POINTS), (solve_joint, UNUSUAL_CLASSES)
    for call, table in tables:
        for name, (value, given) in table.items():
            yield Case(name, call, given, accept=valued(value))
    near = {"x": [[1e-160]], "z": [[0.0]], "p": [[1.0]], "q": [[1.0]]}
    yield Case(
        "distances that barely have a square", solve_joint, near, ("x", "z"), lambda a: abs(a.value + 0.5) < 1e-3
    )
    near = {"x": [[1e-160], [0.0]], "z": [[0.0], [0.0]], "p": np.ones((2, 1)), "q": np.ones((2, 1))}
    yield Case("and some that have none", solve_joint, near, ("x", "z"), lambda a: -1.0 <= a.value <= -0.4)
    yield Case("tolerance zero", aot.Exact, {"tolerance": 0}, accept=lambda answer: answer.tolerance == 0)
    yield Case("NumPy pivots", aot.Exact, {"max_pivots": np.int32(7)}, accept=lambda answer: answer.max_pivots == 7)
    bound = judged_by("dual_value")
    infinite = {"source_potential": [0.0, -INF]}
    yield Case("infinite potential", bound, infinite, ("source_potential",), lambda answer: answer == -INF)
    above = {"source_potential": [5.0, INF]}
    at_zero = {"source_potential": [0.0, 0.0]}
    yield Case("potentials above zero", bound, above, accept=lambda answer: answer == bound(**at_zero))
    mixed = {"source_labels": [1, "a"], "target_labels": [NAN, 1.0, NAN]}
    mass = lambda answer: answer.mass.sum() == pytest.approx(aot.solve(COST).mass)  # noqa: E731
    yield Case("labels of mixed type", by_label, mixed, tuple(mixed), mass)


CASES = [*bad_costs(), *bad_options(), *bad_points(), *bad_questions(), *bad_tensors(), *unusual()]


def parts(value: Any) -> list[Any]:
    """What an input is made of, copied: arrays byte by byte, anything else as it prints."""
    if sparse.issparse(value):
        names = ("data", "indices", "indptr", "row", "col")
        return [type(value), value.shape, *(getattr(value, name).tobytes() for name in names if hasattr(value, name))]
    if torch is not None and isinstance(value, torch.Tensor):
        return [value.dtype, value.shape, value.requires_grad, *([] if value.is_meta else [str(value.tolist())])]
    if isinstance(value, np.ndarray):
        return [value.dtype, value.shape, value.tobytes()]
    return [repr(value)]


def outcome(case: Case) -> Any:
    """The answer, or the refusal; any other exception is a failure."""
    try:
        return case.call(**case.given)
    except aot.InvalidInput as refusal:
        return refusal


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_input(case):
    before = {name: parts(value) for name, value in case.given.items()}
    answer = outcome(case)
    if isinstance(answer, aot.InvalidInput):
        assert answer.argument in case.arguments, str(answer)
        assert str(answer).startswith(answer.argument + " ")
        assert len(str(answer)) < 1000
    else:
        assert case.accept is not None, f"accepted, with the answer {answer!r}"
        assert case.accept(answer), f"answered {answer!r}"
    for name, value in case.given.items():
        assert parts(value) == before[name], f"{name} was modified"
