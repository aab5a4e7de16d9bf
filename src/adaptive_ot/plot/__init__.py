"""Pictures of solutions, with Matplotlib (``pip install "adaptive-ot[plot]"``); every function has its own file."""

from adaptive_ot.plot.canvas import CLUSTER_COLOURS, GREY, SIDE_COLOURS, theme
from adaptive_ot.plot.comparison import comparison
from adaptive_ot.plot.convergence import convergence
from adaptive_ot.plot.label_plan import label_plan
from adaptive_ot.plot.mass_against_overlap import mass_against_overlap
from adaptive_ot.plot.mass_path import mass_path
from adaptive_ot.plot.plan import plan
from adaptive_ot.plot.plans import plans
from adaptive_ot.plot.sensitivity import Curve, sensitivity
from adaptive_ot.plot.training import training
from adaptive_ot.plot.transport import transport

__all__ = [
    "CLUSTER_COLOURS",
    "GREY",
    "SIDE_COLOURS",
    "Curve",
    "comparison",
    "convergence",
    "label_plan",
    "mass_against_overlap",
    "mass_path",
    "plan",
    "plans",
    "sensitivity",
    "theme",
    "training",
    "transport",
]


def __dir__() -> list[str]:
    """What draws, without the modules behind it."""
    return [name for name in __all__ if callable(globals()[name])]
