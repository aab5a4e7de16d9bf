"""What pictures refuse to draw, and the messages."""

import math
from functools import cache
from typing import Any

import numpy as np
import pytest

import adaptive_ot as aot
from adaptive_ot import plot
from adaptive_ot.workbench.cli.samples import TOY_COST

NAN = math.nan
TOY: Any = "the solution of the toy problem, six sources and five targets"
SOURCES, TARGETS = np.zeros((6, 2)), np.zeros((5, 2))
LABELS = [
    ((TOY, [0] * 5, [0] * 5), r"source_labels must have shape \(6,\); got \(5,\)"),
    ((TOY, [0] * 6, [[0] * 5]), r"target_labels must have shape \(5,\)"),
    ((TOY, np.array([0, "a", None, 1, 2, 3], object), [0] * 5), "source_labels must be labels that can be sorted"),
    ((TOY_COST, [0] * 6, [0] * 5), "solution must be"),
]
LINES, CURVES = [{"step": 1, "mass": 1.0}], [plot.Curve("a", [1], [2])]
BASELINES = ["source only", ("a", "b"), ("a", 1, 2), 0.5]

REFUSALS: dict[Any, list[tuple[Any, str]]] = {
    plot.transport: [
        ((TOY, None, TARGETS), "source_points is needed because the cost has no points"),
        ((TOY, SOURCES, None), "target_points is needed because the cost has no points"),
        ((TOY, SOURCES[:5], TARGETS), "source_points must have 6 rows; got 5"),
        ((TOY, SOURCES, np.zeros((5, 3))), "target_points must have as many columns"),
        ((TOY, SOURCES * NAN, TARGETS), "source_points must hold finite numbers"),
        ((TOY, "moon", TARGETS), "source_points must hold real numbers"),
        ((TOY_COST,), "solution must be"),
    ],
    plot.plan: LABELS,
    plot.label_plan: LABELS,
    plot.plans: [
        (({},), "solutions must hold at least one"),
        (([1],), "solutions must be an instance of Mapping"),
        (({"a": TOY_COST},), r"solutions\['a'\] must be an instance of Solution"),
    ],
    plot.mass_path: [(([0.0, 1.0],), "path must be")],
    plot.mass_against_overlap: [
        (([0.5], {}), "mass must hold at least one"),
        (([0.5], [0.5]), "mass must be an instance of Mapping"),
        (([0.5], {"a": [0.5, 0.6]}), r"mass\['a'\] must have shape \(1,\)"),
        (([[0.5]], {"a": [0.5]}), "overlap must be a sequence of numbers"),
        (([NAN], {"a": [0.5]}), "overlap must be finite"),
        (([0.5], {"a": [NAN]}), r"mass\['a'\] must be finite"),
        (([0.5], {"a": ["x"]}), r"mass\['a'\] must hold numbers"),
        (([0.5], {"a": [-0.5]}), "must be numbers from 0"),
        (([], {"a": []}), "must be numbers from 0; got no numbers"),
    ],
    plot.training: [
        (([],), "lines must hold a step and numbers; got no lines"),
        (([{"step": 3}, {"accuracy": 0.3}],), "lines must hold a step and numbers; got 2 lines without any"),
        (([{"step": 3, "mean_class_accuracy": 0.3}],), "lines must hold a step and numbers"),
        (("text",), "lines must be a list"),
        (({"step": 1},), "lines must be a list"),
        (([["step", 1]],), r"lines\[0\] must be an instance of Mapping"),
    ],
    lambda baseline: plot.training(LINES, baseline=baseline): [
        ((each,), "baseline") for each in (*BASELINES, ("a", NAN))
    ],
    plot.sensitivity: [
        *(((CURVES, each), "baseline") for each in BASELINES),
        (([plot.Curve("a", [1, 2], [1])],), r"curves\[0\]\.results must have shape \(2,\)"),
        (([plot.Curve("a", [1, 2], [1, 2], [1])],), r"curves\[0\]\.deviations must have shape \(2,\)"),
        (([plot.Curve("a", [], [])],), r"curves\[0\]\.values must hold at least one"),
        (([plot.Curve("a", [1, NAN], [1, 2])],), r"curves\[0\]\.values must be finite"),
        (([("a", [1], [2])],), r"curves\[0\] must be an instance of Curve"),
    ],
    plot.convergence: [
        (({},), "traces must hold at least one"),
        (([],), "traces must be an instance of Mapping"),
        (({"a": 3},), r"traces\['a'\] must be a list"),
        (({"a": [1.0]},), r"traces\['a'\]\[0\] must be an instance of Progress"),
    ],
    plot.comparison: [
        (([], ["a"], []), "methods must hold at least one"),
        ((["m"], [], [[]]), "tasks must hold at least one"),
        (("m", ["a"], [[1]]), "methods must be a list"),
        ((["m"], ["a"], [1]), r"accuracies must have shape \(1, 1\)"),
        ((["m"], ["a"], [["x"]]), "accuracies must hold numbers"),
        ((["m"], ["a"], [[math.inf]]), "accuracies must be finite"),
        ((["m"], ["a"], [[1]], [1, 2]), r"deviations must have shape \(1, 1\) or \(1,\)"),
        ((["m"], ["a"], [[1]], [[1], [2, 3]]), "deviations must hold numbers"),
        ((["m"], ["a"], [[1]], [[1, 2]]), r"deviations must have shape \(1, 1\)"),
        ((["m"], ["a"], [[1]], [[-1]]), "deviations must not be negative"),
        ((["m", "n"], ["a"], [[1], [2, 3]]), "accuracies must hold numbers"),
    ],
    plot.theme: [((name,), 'name must be one of "light", "dark"') for name in ("Dark", "", None, 3, ["dark"])],
}


@cache
def toy() -> aot.Solution:
    return aot.solve(TOY_COST)


@pytest.mark.parametrize(
    ("draw", "arguments", "message"), [(draw, *case) for draw, cases in REFUSALS.items() for case in cases]
)
def test_refusals(draw, arguments, message):
    with pytest.raises(aot.InvalidInput, match=message):
        draw(*(toy() if each is TOY else each for each in arguments))
