"""Pictures of solutions, with matplotlib (``pip install "adaptive-ot[plot]"``)."""

from adaptive_ot.plot.canvas import CLUSTER_COLOURS, GREY, SIDE_COLOURS
from adaptive_ot.plot.clouds import transport
from adaptive_ot.plot.heatmaps import label_plan, plan
from adaptive_ot.plot.path import mass_path
from adaptive_ot.plot.sensitivity import Curve, sensitivity

__all__ = [
    "CLUSTER_COLOURS",
    "GREY",
    "SIDE_COLOURS",
    "Curve",
    "label_plan",
    "mass_path",
    "plan",
    "sensitivity",
    "transport",
]
