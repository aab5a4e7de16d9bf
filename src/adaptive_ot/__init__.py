"""Adaptive optimal transport: align two datasets that only partly match.

>>> import adaptive_ot as aot
>>> print(aot.solve([[-1.0, 2.0], [3.0, 4.0]]).mass)
0.5
"""

import importlib
import typing

from adaptive_ot import diagrams as diagrams  # a module of its own functions
from adaptive_ot._progress import Progress
from adaptive_ot.batch import ProblemBatch, SolutionBatch
from adaptive_ot.certify import Certificate, certify
from adaptive_ot.costs import DistanceCost, JointCost
from adaptive_ot.distributed import SolutionPart
from adaptive_ot.entropic.solver import Entropic
from adaptive_ot.error_rate import ErrorRate
from adaptive_ot.errors import (
    AdaptiveOTError,
    DataError,
    Infeasible,
    InvalidInput,
    MissingDependency,
    NotConverged,
    OutOfRange,
    ProcessLost,
)
from adaptive_ot.exact.solver import Exact
from adaptive_ot.marginals import AtMost, ChiSquareBall, Equal, FixedMass, Marginals, SoftKL
from adaptive_ot.match import match, match_frames
from adaptive_ot.matching import Matching, MatchingBatch
from adaptive_ot.path import MassPath, MassPathPart, Suggestion, mass_path
from adaptive_ot.problem import Problem
from adaptive_ot.solution import Cluster, LabelPlan, Outliers, Solution, Status
from adaptive_ot.solve import solve

if typing.TYPE_CHECKING:
    from adaptive_ot import adapt as adapt
    from adaptive_ot import autodiff as autodiff
    from adaptive_ot import deep as deep
    from adaptive_ot import plot as plot
    from adaptive_ot import report as report

__version__ = "0.2.0"

__all__ = [
    "AdaptiveOTError",
    "AtMost",
    "Certificate",
    "ChiSquareBall",
    "Cluster",
    "DataError",
    "DistanceCost",
    "Entropic",
    "Equal",
    "ErrorRate",
    "Exact",
    "FixedMass",
    "Infeasible",
    "InvalidInput",
    "JointCost",
    "LabelPlan",
    "Marginals",
    "MassPath",
    "MassPathPart",
    "Matching",
    "MatchingBatch",
    "MissingDependency",
    "NotConverged",
    "OutOfRange",
    "Outliers",
    "Problem",
    "ProblemBatch",
    "ProcessLost",
    "Progress",
    "SoftKL",
    "Solution",
    "SolutionBatch",
    "SolutionPart",
    "Status",
    "Suggestion",
    "certify",
    "mass_path",
    "match",
    "match_frames",
    "solve",
]

# Modules that need optional packages, or take a while to load: ``aot.plot`` imports its module on first touch.
_ON_FIRST_TOUCH = ("adapt", "autodiff", "deep", "plot", "report")


def __getattr__(name: str) -> typing.Any:
    if name in _ON_FIRST_TOUCH:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_ON_FIRST_TOUCH, "diagrams", "__version__"])
