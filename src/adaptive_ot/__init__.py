"""Adaptive optimal transport: align two datasets that only partly match.

>>> import adaptive_ot as aot
>>> print(aot.solve([[-1.0, 2.0], [3.0, 4.0]]).mass)
0.5
"""

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
    ProcessLost,
)
from adaptive_ot.exact.solver import Exact
from adaptive_ot.marginals import AtMost, ChiSquareBall, Equal, FixedMass, Marginals, SoftKL
from adaptive_ot.match import match, match_frames
from adaptive_ot.matching import Matching, MatchingBatch
from adaptive_ot.path import MassPath, Suggestion, mass_path
from adaptive_ot.problem import Problem
from adaptive_ot.solution import Cluster, LabelPlan, Solution, Status
from adaptive_ot.solve import solve

__version__ = "0.1.0"

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
    "Matching",
    "MatchingBatch",
    "MissingDependency",
    "NotConverged",
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
