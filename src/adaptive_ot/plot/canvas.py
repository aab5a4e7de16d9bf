"""What all pictures share: colours, and a figure that no window system knows of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from adaptive_ot.errors import MissingDependency
from adaptive_ot.solution import Solution

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe & Ito's colour-blind safe palette; a grey that shows on white and on black stands in for its black.
BLUE, ORANGE, GREEN, VERMILLION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PURPLE, SKY, YELLOW, GREY = "#CC79A7", "#56B4E9", "#F0E442", "#8C8C8C"
CLUSTER_COLOURS = (SKY, ORANGE, GREEN, VERMILLION, PURPLE, BLUE, YELLOW, GREY)
SIDE_COLOURS = (SKY, VERMILLION)


def new_figure(size: tuple[float, float] = (8, 6)) -> Figure:
    """A figure that no window system and no pyplot knows of."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingDependency("matplotlib", "plot") from None
    figure = Figure(figsize=size, dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def new_axes() -> Axes:
    """The axes of a new figure, open above and at the right."""
    ax = new_figure().add_subplot()
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def mass_of(solution: Solution) -> str:
    """How much moves, and how much could."""
    most = solution.problem.most_mass
    limit = f" of at most {most:.4g}" if most < np.inf else ""
    return f"mass {solution.mass:.4g}{limit}"
