"""Pictures of solutions, with matplotlib (``pip install "adaptive-ot[plot]"``)."""

from adaptive_ot.plot.canvas import CLUSTER_COLOURS, GREY, SIDE_COLOURS, theme
from adaptive_ot.plot.certificates import convergence
from adaptive_ot.plot.classes import label_plan
from adaptive_ot.plot.clouds import transport
from adaptive_ot.plot.curves import training
from adaptive_ot.plot.dots import comparison
from adaptive_ot.plot.heatmaps import plan, plans
from adaptive_ot.plot.overlap import mass_against_overlap
from adaptive_ot.plot.path import mass_path
from adaptive_ot.plot.sensitivity import Curve, sensitivity

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
