"""Malformed and unusual inputs at every entry point: an InvalidInput that names the argument, or a right answer.

Warnings are errors here (see pyproject.toml), so a RuntimeWarning on the way fails a test as well.
"""

from __future__ import annotations

from collections.abc import Callable
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
    """Calling `call(**make())` must blame one of `arguments`, or return something that `accept` finds right."""

    name: str
    call: Callable[..., Any]
    make: Callable[[], dict[str, Any]]
    arguments: tuple[str, ...]
    accept: Callable[[Any], bool] | None = None


def cost_matrix() -> np.ndarray:
    return np.array([[-1.0, 2.0, -3.0], [4.0, -5.0, 6.0]])


def with_entry(array: np.ndarray, value: Any) -> np.ndarray:
    array = array.copy()
    array.flat[array.size // 2] = value
    return array


def points() -> dict[str, Any]:
    return {"x": np.arange(6.0).reshape(3, 2), "z": np.arange(8.0).reshape(4, 2)}


def joint() -> dict[str, Any]:
    return points() | {"p": np.eye(3), "q": np.full((4, 3), 1 / 3)}


def solution() -> aot.Solution:
    return aot.solve(cost_matrix())


def problem() -> aot.Problem:
    return aot.Problem.build(cost_matrix())


def broken_sparse() -> sparse.csr_array:
    """A matrix whose compiled routines would read out of bounds."""
    matrix = sparse.csr_array(cost_matrix())
    matrix.indices[0] = 10**6
    return matrix


# What no array of numbers can be, wherever one is expected: (name, value).
NOT_NUMBERS: list[tuple[str, Callable[[], Any]]] = [
    ("None", lambda: None),
    ("text", lambda: "cost"),
    ("bytes", lambda: b"12"),
    ("dict", lambda: {"a": 1}),
    ("set", lambda: {1, 2}),
    ("generator", lambda: (k for k in range(3))),
    ("function", lambda: len),
    ("ragged lists", lambda: [[1.0, 2.0], [3.0]]),
    ("list of text", lambda: [["a", "b"], ["c", "d"]]),
    ("list with None", lambda: [[1.0, None], [2.0, 3.0]]),
    ("text array", lambda: np.array([["a", "b"], ["c", "d"]])),
    ("digits as text", lambda: np.array([["1", "2"], ["3", "4"]])),
    ("objects", lambda: np.array([[object(), 1], [2, 3]], object)),
    ("decimals", lambda: [[Decimal(1), Decimal(2)], [Decimal(3), Decimal(4)]]),
    ("integers beyond 64 bits", lambda: [[10**400, 1], [2, 3]]),
    ("complex", lambda: np.ones((2, 2), complex)),
    ("dates", lambda: np.full((2, 2), datetime(2020, 1, 1), "datetime64[s]")),
    ("time spans", lambda: np.ones((2, 2), "timedelta64[s]")),
    ("records", lambda: np.zeros((2, 2), [("a", float)])),
    ("masked array", lambda: np.ma.masked_array(np.ones((2, 2)), mask=np.eye(2, dtype=bool))),
    ("number", lambda: 3.0),
    ("one dimension too many", lambda: np.ones((2, 2, 2, 2))),
]

# What no single number can be.
NOT_A_NUMBER: list[tuple[str, Callable[[], Any]]] = [
    ("None", lambda: None),
    ("text", lambda: "two"),
    ("digits as text", lambda: "2"),
    ("NaN", lambda: NAN),
    ("infinite", lambda: INF),
    ("negative", lambda: -1.0),
    ("complex", lambda: 1 + 2j),
    ("list", lambda: [1.0]),
    ("array of two", lambda: np.ones(2)),
    ("beyond float64", lambda: 10**400),
    ("object", object),
]


def refused() -> list[Case]:
    """Inputs that break a rule, and the argument that must be named."""
    cases: list[Case] = []

    def add(
        name: str, call: Callable[..., Any], make: Callable[[], dict[str, Any]], *arguments: str, **more: Any
    ) -> None:
        cases.append(Case(name, call, make, arguments, **more))

    # solve and Problem.build: the cost
    for entry, call in [("solve", aot.solve), ("Problem", aot.Problem.build)]:
        for name, make in NOT_NUMBERS:
            add(f"{entry}: cost is {name}", call, lambda make=make: {"cost": make()}, "cost")
        for value in (NAN, -INF):
            for dtype in (np.float64, np.float32, np.float16):
                add(
                    f"{entry}: cost has {value} in {dtype.__name__}",
                    call,
                    lambda v=value, t=dtype: {"cost": with_entry(cost_matrix(), v).astype(t)},
                    "cost",
                )
            add(
                f"{entry}: sparse cost has {value}",
                call,
                lambda v=value: {"cost": sparse.csr_array(with_entry(cost_matrix(), v))},
                "cost",
            )
    add("solve: cost is a vector", aot.solve, lambda: {"cost": [1.0, 2.0]}, "cost")
    add("solve: cost is an empty list", aot.solve, lambda: {"cost": []}, "cost")
    add("solve: complex sparse cost", aot.solve, lambda: {"cost": sparse.csr_array(np.eye(2) * 1j)}, "cost")
    add("solve: sparse vector", aot.solve, lambda: {"cost": sparse.coo_array(np.array([1.0, -2.0]))}, "cost")
    add("solve: sparse cost out of bounds", aot.solve, lambda: {"cost": broken_sparse()}, "cost")
    add("solve: class instead of cost", aot.solve, lambda: {"cost": aot.DistanceCost}, "cost")
    add("solve: huge rewards", aot.solve, lambda: {"cost": np.full((2, 2), -1e308)}, "cost")
    add(
        "solve: cost beyond float64",
        aot.solve,
        lambda: {"cost": np.array([[-1.0]], np.longdouble) * np.longdouble(10) ** 400},
        "cost",
    )

    # weights
    for side, size in [("source_weights", 2), ("target_weights", 3)]:
        for name, make in NOT_NUMBERS:
            if name != "None":  # which asks for uniform weights
                add(
                    f"solve: {side} are {name}", aot.solve, lambda s=side, m=make: {"cost": cost_matrix(), s: m()}, side
                )
        for value in (NAN, -INF, INF, -1.0, -1e-300, 1e308):
            add(
                f"solve: {side} with {value}",
                aot.solve,
                lambda s=side, k=size, v=value: {"cost": cost_matrix(), s: with_entry(np.ones(k), v)},
                side,
            )
        for name, make in [
            ("too many", lambda k: np.ones(k + 1)),
            ("too few", lambda k: np.ones(k - 1)),
            ("a column", lambda k: np.ones((k, 1))),
            ("empty", lambda k: []),
            ("sparse", lambda k: sparse.csr_array(np.ones((1, k)))),
            ("denormal", lambda k: np.full(k, 5e-324)),
            ("nearly denormal", lambda k: [*np.zeros(k - 1), 1e-305]),
        ]:
            add(
                f"solve: {side} are {name}",
                aot.solve,
                lambda s=side, k=size, m=make: {"cost": cost_matrix(), s: m(k)},
                side,
            )
    add(
        "solve: weights and rewards overflow together",
        aot.solve,
        lambda: {"cost": [[-1e99]], "source_weights": [1e200], "target_weights": [1e200]},
        "source_weights",
        "target_weights",
        "cost",
    )

    # solver, marginals and progress
    for argument in ("solver", "marginals", "progress"):
        for name, value in [("text", "exact"), ("a number", 3)]:
            add(
                f"solve: {argument} is {name}",
                aot.solve,
                lambda a=argument, v=value: {"cost": [[-1.0]], a: v},
                argument,
            )
    add("solve: solver is a class", aot.solve, lambda: {"cost": [[-1.0]], "solver": aot.Exact}, "solver")
    add("solve: marginals is a class", aot.solve, lambda: {"cost": [[-1.0]], "marginals": aot.AtMost}, "marginals")
    add("solve: solver and marginals swapped", aot.solve, lambda: {"cost": [[-1.0]], "solver": aot.AtMost()}, "solver")

    # Exact
    for argument in ("tolerance", "max_pivots"):
        for name, make in NOT_A_NUMBER:
            if (argument, name) != ("max_pivots", "None"):
                add(
                    f"Exact: {argument} is {name}",
                    aot.Exact,
                    lambda a=argument, m=make: {a: m()},
                    argument,
                )
    add("Exact: half a pivot", aot.Exact, lambda: {"max_pivots": 2.5}, "max_pivots")

    # DistanceCost
    for argument in ("x", "z"):
        for name, make in NOT_NUMBERS:
            add(
                f"DistanceCost: {argument} is {name}",
                aot.DistanceCost,
                lambda a=argument, m=make: points() | {"reach": 1.0, a: m()},
                argument,
            )
        for value in (NAN, INF, -INF, 1e200):
            add(
                f"DistanceCost: {argument} with {value}",
                aot.DistanceCost,
                lambda a=argument, v=value: points() | {"reach": 1.0, a: with_entry(points()[a], v)},
                argument,
            )
        add(
            f"DistanceCost: {argument} is a vector",
            aot.DistanceCost,
            lambda a=argument: points() | {"reach": 1.0, a: [1.0, 2.0]},
            argument,
        )
    add(
        "DistanceCost: dimensions differ",
        aot.DistanceCost,
        lambda: points() | {"reach": 1.0, "z": np.ones((4, 3))},
        "z",
    )
    for name, make in NOT_A_NUMBER:
        add(
            f"DistanceCost: reach is {name}",
            aot.DistanceCost,
            lambda m=make: points() | {"reach": m()},
            "reach",
        )
    add("DistanceCost: reach whose square is infinite", aot.DistanceCost, lambda: points() | {"reach": 1e200}, "reach")

    # JointCost
    for argument in ("x", "z", "p", "q"):
        for name in ("None", "text", "ragged lists", "complex", "number", "one dimension too many", "masked array"):
            make = dict(NOT_NUMBERS)[name]
            add(
                f"JointCost: {argument} is {name}",
                aot.JointCost,
                lambda a=argument, m=make: joint() | {a: m()},
                argument,
            )
        for value in (NAN, INF, 1e200):
            add(
                f"JointCost: {argument} with {value}",
                aot.JointCost,
                lambda a=argument, v=value: joint() | {a: with_entry(joint()[a], v)},
                argument,
            )
    add("JointCost: labels instead of scores", aot.JointCost, lambda: joint() | {"p": [0, 1, 2]}, "p")
    add("JointCost: one score too few", aot.JointCost, lambda: joint() | {"q": np.ones((4, 2))}, "q")
    add("JointCost: sources without scores", aot.JointCost, lambda: joint() | {"p": np.ones((2, 3))}, "p")
    add("JointCost: targets without scores", aot.JointCost, lambda: joint() | {"q": np.ones((3, 3))}, "q")
    for argument in ("kappa", "beta", "alpha"):
        for name, make in NOT_A_NUMBER:
            if (argument, name) != ("alpha", "None"):  # which asks for the scale-free form
                add(
                    f"JointCost: {argument} is {name}",
                    aot.JointCost,
                    lambda a=argument, m=make: joint() | {a: m()},
                    argument,
                )

    # Numbers that are fine one by one
    add(
        "JointCost: distances that overflow",
        lambda **given: aot.solve(aot.JointCost(**given)),
        lambda: joint() | {"x": np.full((3, 2), 1e100), "alpha": 1e200},
        "alpha",
        "x",
    )
    add(
        "JointCost: scores that overflow",
        lambda **given: aot.solve(aot.JointCost(**given)),
        lambda: joint() | {"p": np.full((3, 3), 1e100), "q": np.full((4, 3), 1e100), "beta": 1e200},
        "beta",
        "p",
        "q",
    )
    add(
        "solve: weights and reach overflow together",
        lambda reach, **weights: aot.solve(aot.DistanceCost([[0.0]], [[0.0]], reach=reach), **weights),
        lambda: {"reach": 1e140, "source_weights": [1e100], "target_weights": [1e100]},
        "reach",
        "cost",
        "source_weights",
        "target_weights",
    )

    # Solution.by_label and Solution.barycentric_map
    for argument, size in [("source_labels", 2), ("target_labels", 3)]:
        for name, make in [
            ("None", lambda k: None),
            ("text", lambda k: "ab"),
            ("too few", lambda k: [1] * (k - 1)),
            ("too many", lambda k: [1] * (k + 1)),
            ("one-hot", lambda k: np.eye(k)),
            ("ragged", lambda k: [[1], [1, 2], [3]][:k]),
            ("objects without order", lambda k: [object() for _ in range(k)]),
            ("None among text", lambda k: [None, "a", "b"][:k]),
            ("sparse", lambda k: sparse.csr_array(np.ones((1, k)))),
        ]:
            add(
                f"by_label: {argument} are {name}",
                lambda **labels: solution().by_label(**labels),
                lambda a=argument, k=size, m=make: {"source_labels": [1, 2], "target_labels": [1, 2, 3], a: m(k)},
                argument,
            )
    for argument, rows in [("target_points", 3), ("source_points", 2)]:
        for name, make in [
            *((name, lambda k, m=make: m()) for name, make in NOT_NUMBERS if name != "None"),
            ("too few", lambda k: np.ones((k - 1, 2))),
            ("too many", lambda k: np.ones((k + 1, 2))),
            ("a vector", lambda k: np.ones(k)),
            ("NaN", lambda k: np.full((k, 2), NAN)),
            ("infinite", lambda k: np.full((k, 2), INF)),
        ]:
            add(
                f"barycentric_map: {argument} are {name}",
                lambda **given: solution().barycentric_map(**given),
                lambda a=argument, k=rows, m=make: {
                    "target_points": np.ones((3, 2)),
                    "source_points": np.ones((2, 2)),
                    a: m(k),
                },
                argument,
            )
    add(
        "barycentric_map: no targets",
        lambda **given: solution().barycentric_map(**given),
        lambda: {"target_points": None},
        "target_points",
    )
    add(
        "barycentric_map: dimensions differ",
        lambda **given: solution().barycentric_map(**given),
        lambda: {"target_points": np.ones((3, 2)), "source_points": np.ones((2, 5))},
        "source_points",
    )
    add(
        "barycentric_map: sources missing",
        lambda **given: aot.solve([[-1.0], [1.0]]).barycentric_map(**given),
        lambda: {"target_points": np.ones((1, 2))},
        "source_points",
    )

    # Problem's judgements
    for method in ("objective", "violation", "gap"):
        for name, make in [
            *NOT_NUMBERS,
            ("transposed", lambda: cost_matrix().T),
            ("NaN", lambda: with_entry(cost_matrix(), NAN)),
            ("infinite", lambda: with_entry(cost_matrix(), INF)),
            ("text of the right shape", lambda: np.full((2, 3), "a")),
            ("complex of the right shape", lambda: np.ones((2, 3), complex)),
            ("objects of the right shape", lambda: np.full((2, 3), object())),
        ]:
            more = {"source_potential": [0.0, 0.0]} if method == "gap" else {}
            add(
                f"Problem.{method}: plan is {name}",
                lambda method=method, **given: getattr(problem(), method)(**given),
                lambda m=make, more=more: {"plan": m()} | more,
                "plan",
            )
    for method in ("c_transform", "dual_value", "gap"):
        for name, make in [
            *NOT_NUMBERS,
            ("too long", lambda: [0.0, 0.0, 0.0]),
            ("NaN", lambda: [0.0, NAN]),
            ("text of the right length", lambda: ["a", "b"]),
            ("complex of the right length", lambda: [1j, 2.0]),
            ("a column", lambda: [[0.0], [0.0]]),
        ]:
            more = {"plan": np.zeros((2, 3))} if method == "gap" else {}
            add(
                f"Problem.{method}: potential is {name}",
                lambda method=method, **given: getattr(problem(), method)(**given),
                lambda m=make, more=more: {"source_potential": m()} | more,
                "source_potential",
            )
    add(
        "Problem.dual_value: infinite potential of a source without weight",
        lambda **given: aot.Problem.build(cost_matrix(), [1.0, 0.0]).dual_value(**given),
        lambda: {"source_potential": [0.0, -INF]},
        "source_potential",
        accept=lambda bound: bound <= aot.solve(cost_matrix(), [1.0, 0.0]).value,
    )
    add("Problem: marginals is text", aot.Problem.build, lambda: {"cost": [[1.0]], "marginals": "at most"}, "marginals")

    # Mixed libraries
    if torch is not None:
        t = torch
        add(
            "solve: NumPy cost, torch weights",
            aot.solve,
            lambda: {"cost": cost_matrix(), "source_weights": t.ones(2)},
            "source_weights",
        )
        add(
            "solve: torch cost, NumPy weights",
            aot.solve,
            lambda: {"cost": t.ones(2, 3), "target_weights": np.ones(3)},
            "target_weights",
        )
        add(
            "solve: list as cost, torch weights",
            aot.solve,
            lambda: {"cost": [[-1.0]], "source_weights": t.ones(1)},
            "source_weights",
        )
        add(
            "DistanceCost: NumPy x, torch z",
            aot.DistanceCost,
            lambda: {"x": np.ones((2, 2)), "z": t.ones(2, 2), "reach": 1},
            "z",
        )
        add(
            "DistanceCost: torch x, NumPy z",
            aot.DistanceCost,
            lambda: {"x": t.ones(2, 2), "z": np.ones((2, 2)), "reach": 1},
            "z",
        )
        add("JointCost: torch p", aot.JointCost, lambda: joint() | {"p": t.eye(3)}, "p")
        add("JointCost: torch q", aot.JointCost, lambda: joint() | {"q": t.ones(4, 3)}, "q")
        add("solve: complex tensor", aot.solve, lambda: {"cost": t.ones(2, 2, dtype=t.complex64)}, "cost")
        add("solve: tensor with NaN", aot.solve, lambda: {"cost": t.full((2, 2), NAN)}, "cost")
        add("solve: tensor with -inf", aot.solve, lambda: {"cost": t.full((2, 2), -INF)}, "cost")
        add("solve: tensor of four dimensions", aot.solve, lambda: {"cost": t.ones(2, 2, 2, 2)}, "cost")
        add("solve: tensor without memory", aot.solve, lambda: {"cost": t.ones(2, 2, device="meta")}, "cost")
        add(
            "solve: list of tensors that require gradients",
            aot.solve,
            lambda: {"cost": [[t.tensor(-1.0, requires_grad=True)]]},
            "cost",
            accept=lambda answer: answer.value == -1.0,
        )
    return cases


def unusual() -> list[Case]:
    """Inputs that look odd and are fine: the answer must be right."""

    def value(expected: float) -> Callable[[Any], bool]:
        return lambda answer: answer.value == expected

    return [
        Case("integer lists", aot.solve, lambda: {"cost": [[-1, 2], [3, -4]]}, (), value(-2.5)),
        Case("booleans", aot.solve, lambda: {"cost": np.ones((2, 2), bool)}, (), value(0.0)),
        Case("unsigned", aot.solve, lambda: {"cost": np.ones((2, 2), np.uint8)}, (), value(0.0)),
        Case("+inf", aot.solve, lambda: {"cost": [[INF, -1.0], [-2.0, INF]]}, (), value(-1.5)),
        Case("minus zero", aot.solve, lambda: {"cost": [[-0.0]]}, (), value(0.0)),
        Case("empty rows", aot.solve, lambda: {"cost": [[]]}, (), value(0.0)),
        Case("zero weights", aot.solve, lambda: {"cost": [[-1.0]], "source_weights": [0.0]}, (), value(0.0)),
        Case("minus zero as a weight", aot.solve, lambda: {"cost": [[-1.0]], "source_weights": [-0.0]}, (), value(0.0)),
        Case(
            "integer weights",
            aot.solve,
            lambda: {"cost": [[-1.0]], "source_weights": [3], "target_weights": [2]},
            (),
            value(-2.0),
        ),
        Case("boolean weights", aot.solve, lambda: {"cost": [[-1.0]], "source_weights": [True]}, (), value(-1.0)),
        Case("extended precision", aot.solve, lambda: {"cost": np.array([[-1.5]], np.longdouble)}, (), value(-1.5)),
        Case("huge positive cost", aot.solve, lambda: {"cost": [[-1.0, 1e308], [1e308, 1e308]]}, (), value(-0.5)),
        Case("tiny reward", aot.solve, lambda: {"cost": [[-5e-324]]}, (), value(-5e-324)),
        Case("tiny weight", aot.solve, lambda: {"cost": [[-1.0]], "source_weights": [1e-300]}, (), value(-1e-300)),
        Case("large weight", aot.solve, lambda: {"cost": [[-1.0]], "source_weights": [1e100]}, (), value(-1.0)),
        Case(
            "stored sparse zeros",
            aot.solve,
            lambda: {"cost": sparse.csr_array(([0.0], ([0], [0])), (1, 1))},
            (),
            value(0.0),
        ),
        Case(
            "sparse +inf",
            aot.solve,
            lambda: {"cost": sparse.csr_array(([INF, -1.0], ([0, 0], [0, 1])), (1, 2))},
            (),
            value(-0.5),
        ),
        Case("sparse without entries", aot.solve, lambda: {"cost": sparse.csr_array((3, 2))}, (), value(0.0)),
        Case("sparse booleans", aot.solve, lambda: {"cost": sparse.csr_array(np.ones((2, 2), bool))}, (), value(0.0)),
        Case(
            "reach as a NumPy number",
            lambda **given: aot.solve(aot.DistanceCost(**given)),
            lambda: {"x": [[0.0]], "z": [[1.0]], "reach": np.float32(2.0)},
            (),
            value(-3.0),
        ),
        Case(
            "no reach",
            lambda **given: aot.solve(aot.DistanceCost(**given)),
            lambda: {"x": [[0.0]], "z": [[0.0]], "reach": 0},
            (),
            value(0.0),
        ),
        Case(
            "points far apart",
            lambda **given: aot.solve(aot.DistanceCost(**given)),
            lambda: {"x": [[1e99]], "z": [[-1e99]], "reach": 1.0},
            (),
            value(0.0),
        ),
        Case(
            "distances too small to square",
            lambda **given: aot.solve(aot.JointCost(**given)),
            lambda: {"x": [[1e-170]], "z": [[0.0]], "p": [[1.0]], "q": [[1.0]]},
            (),
            value(-1.0),
        ),
        Case(
            "distances that barely have a square",
            lambda **given: aot.solve(aot.JointCost(**given)),
            lambda: {"x": [[1e-160]], "z": [[0.0]], "p": [[1.0]], "q": [[1.0]]},
            ("x", "z"),
            lambda answer: abs(answer.value + 0.5) < 1e-3,
        ),
        Case(
            "distances that barely have a square, and some that have none",
            lambda **given: aot.solve(aot.JointCost(**given)),
            lambda: {"x": [[1e-160], [0.0]], "z": [[0.0], [0.0]], "p": np.ones((2, 1)), "q": np.ones((2, 1))},
            ("x", "z"),
            lambda answer: -1.0 <= answer.value <= -0.4,
        ),
        Case(
            "infinite potential",
            lambda **given: problem().dual_value(**given),
            lambda: {"source_potential": [0.0, -INF]},
            ("source_potential",),
            lambda bound: bound == -INF,
        ),
        Case(
            "scores that cancel",
            lambda **given: aot.solve(aot.JointCost(**given)),
            lambda: {"x": [[0.0]], "z": [[0.0]], "p": [[1e49, 1e49]], "q": [[1.0, -1.0]]},
            (),
            value(0.0),
        ),
        Case(
            "no classes",
            lambda **given: aot.solve(aot.JointCost(**given)),
            lambda: {"x": [[0.0]], "z": [[1.0]], "p": np.zeros((1, 0)), "q": np.zeros((1, 0))},
            (),
            value(0.0),
        ),
        Case(
            "all points equal in a joint cost",
            lambda **given: aot.solve(aot.JointCost(**given)),
            lambda: {"x": np.ones((2, 2)), "z": np.ones((2, 2)), "p": np.eye(2), "q": np.eye(2)},
            (),
            value(-1.0),
        ),
        Case("tolerance zero", aot.Exact, lambda: {"tolerance": 0}, (), lambda answer: answer.tolerance == 0),
        Case("NumPy pivots", aot.Exact, lambda: {"max_pivots": np.int32(7)}, (), lambda answer: answer.max_pivots == 7),
        Case(
            "potentials above zero",
            lambda **given: problem().dual_value(**given),
            lambda: {"source_potential": [5.0, INF]},
            (),
            lambda answer: answer == problem().dual_value([0.0, 0.0]),
        ),
        Case(
            "labels of mixed type",
            lambda **given: solution().by_label(**given),
            lambda: {"source_labels": [1, "a"], "target_labels": [NAN, 1.0, NAN]},
            ("source_labels", "target_labels"),
            lambda answer: answer.mass.sum() == pytest.approx(solution().mass),
        ),
    ]


CASES = [*refused(), *unusual()]


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


def outcome(case: Case, given: dict[str, Any]) -> Any:
    """The answer, or the refusal; any other exception is a failure."""
    try:
        return case.call(**given)
    except aot.InvalidInput as refusal:
        return refusal


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_input(case):
    given = case.make()
    before = {name: parts(value) for name, value in given.items()}
    answer = outcome(case, given)
    if isinstance(answer, aot.InvalidInput):
        assert answer.argument in case.arguments, str(answer)
        assert str(answer).startswith(answer.argument + " ")
        assert len(str(answer)) < 1000
    else:
        assert case.accept is not None, f"accepted, with the answer {answer!r}"
        assert case.accept(answer), f"answered {answer!r}"
    for name, value in given.items():
        assert parts(value) == before[name], f"{name} was modified"
