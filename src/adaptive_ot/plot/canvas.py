"""Drawing code shared by all pictures: colours, themes, figures without pyplot, legends and heat maps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from adaptive_ot import _validation as check
from adaptive_ot.errors import InvalidInput, MissingDependency
from adaptive_ot.solution import Solution

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The colour-blind safe palette of Okabe and Ito; a grey visible on white and on black replaces its black.
BLUE, ORANGE, GREEN, VERMILLION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PURPLE, SKY, YELLOW, GREY = "#CC79A7", "#56B4E9", "#F0E442", "#8C8C8C"
CLUSTER_COLOURS = (SKY, ORANGE, GREEN, VERMILLION, PURPLE, BLUE, YELLOW, GREY)
SIDE_COLOURS = (SKY, VERMILLION)

# For several curves in one picture: no yellow, which is too faint for lines; marks help where colours do not.
CURVE_COLOURS = (VERMILLION, SKY, GREEN, ORANGE, PURPLE, GREY)
CURVE_MARKS = ("o", "^", "s", "D", "v", "P")
CURVE_DASHES = ("-", "--", ":", "-.")

# A legend above the axes hides nothing.
ABOVE: Any = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "ncols": 3, "fontsize": "small"}


class Theme(NamedTuple):
    """A background, and the colours of text, of a single curve and of a heat map on it."""

    background: str
    text: str
    curve: str
    heat: tuple[str, ...] | str


# A single hue reads the same with any colour vision and in print; on a dark background it gets lighter.
THEMES = {
    "light": Theme("white", "black", BLUE, "Blues"),
    "dark": Theme("#16191D", "#E6E8EB", SKY, ("#16191D", "#0E3D5C", "#1272A8", SKY, "#E8F5FD")),
}

_chosen: ContextVar[Theme | None] = ContextVar("theme", default=None)


def theme(name: Literal["light", "dark"]) -> AbstractContextManager[None]:
    """Draw for a light or a dark background inside a ``with`` block.

    Parameters
    ----------
    name
        ``"light"`` or ``"dark"``. Outside of a theme pictures follow the settings of Matplotlib: light by default.

    Returns
    -------
    A context manager for this thread or task, which leaves the settings of Matplotlib alone. Pictures keep the colours
    they were drawn with and may be saved later. Axes passed to a function, and their figure, are painted as well.

    Examples
    --------
    >>> import adaptive_ot as aot
    >>> from adaptive_ot import plot
    >>> with plot.theme("dark"):
    ...     ax = plot.plan(aot.solve([[-1.0, 9.0], [9.0, -2.0]]))
    >>> ax.title.get_color()
    '#E6E8EB'
    """
    check.choice("name", name, tuple(THEMES))
    return _with(THEMES[name])


@contextmanager
def _with(chosen: Theme) -> Iterator[None]:
    before = _chosen.set(chosen)
    try:
        yield
    finally:
        _chosen.reset(before)


def colours() -> Theme:
    """The colours of the theme, or those of Matplotlib's settings."""
    from matplotlib import rcParams

    light = THEMES["light"]
    return _chosen.get() or light._replace(background=rcParams["figure.facecolor"], text=rcParams["text.color"])


def curve_style(number: int) -> dict[str, str]:
    """A colour and a mark for the curve of this number; where colours repeat, marks differ."""
    count = len(CURVE_COLOURS)
    return {"color": CURVE_COLOURS[number % count], "marker": CURVE_MARKS[(number + number // count) % count]}


def line_style(number: int) -> dict[str, str]:
    """A colour and dashes for the line of this number; where colours repeat, dashes differ."""
    dash, colour = divmod(number, len(CURVE_COLOURS))
    return {"color": CURVE_COLOURS[colour], "linestyle": CURVE_DASHES[dash % len(CURVE_DASHES)]}


def new_figure(size: tuple[float, float]) -> Figure:
    """A figure that neither a window system nor pyplot knows about."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingDependency("matplotlib", "plot") from None
    figure = Figure(figsize=size, dpi=150, layout="constrained", facecolor=colours().background)
    FigureCanvasAgg(figure)
    return figure


def panels(figure: Figure, rows: int, columns: int, **shared: Any) -> np.ndarray:
    """A grid of painted axes without lines at the top and at the right."""
    grid = figure.subplots(rows, columns, squeeze=False, **shared)
    for ax in grid.flat:
        paint(ax).spines[["top", "right"]].set_visible(False)
    return grid


def axes(ax: Axes | None = None, size: tuple[float, float] = (8, 6)) -> Axes:
    """The given axes, painted, or the axes of a new figure of this size."""
    if ax is None:
        return panels(new_figure(size), 1, 1)[0, 0]
    from matplotlib.axes import Axes

    check.instance("ax", ax, Axes)
    if in_space(ax):
        raise InvalidInput("ax", "must be axes in the plane for this picture", "axes in space", "Omit it.")
    return paint(ax)


def space(ax: Axes | None = None, size: tuple[float, float] = (8, 6)) -> Axes:
    """The given axes in three dimensions, painted, or those of a new figure of this size."""
    if ax is None:
        ax = new_figure(size).add_subplot(projection="3d")
        _open_panes(ax)
    return paint(ax)


def _open_panes(ax: Axes) -> None:
    """Let the background show behind faint lines; Matplotlib has no public way to set their colour."""
    from matplotlib.colors import to_rgba

    for axis in axes_of(ax):
        axis.set_pane_color((0.0, 0.0, 0.0, 0.0))
        axis._axinfo["grid"].update(color=to_rgba(GREY, 0.35))


def in_space(ax: Axes | None) -> bool:
    """Whether axes have three dimensions."""
    return getattr(ax, "name", "") == "3d"


def axes_of(ax: Any) -> list[Any]:
    """The two or three axes."""
    return [ax.xaxis, ax.yaxis, ax.zaxis] if in_space(ax) else [ax.xaxis, ax.yaxis]


def paint(ax: Axes) -> Axes:
    """Give axes and their figure the colours of the theme; without a theme, leave them as Matplotlib made them."""
    chosen = _chosen.get()
    if chosen:
        ax.figure.canvas.figure.set_facecolor(chosen.background)
        ax.set_facecolor(chosen.background)
        ax.tick_params(which="both", colors=chosen.text)  # also for ticks that are made when the figure is saved
        for spine in ax.spines.values():
            spine.set_edgecolor(chosen.text)
        for text in (ax.title, *(axis.label for axis in axes_of(ax))):
            text.set_color(chosen.text)
        if in_space(ax):
            _open_panes(ax)
            for axis in axes_of(ax):
                axis.line.set_color(chosen.text)
    return ax


def settle(ax: Axes) -> None:
    """Lay the figure out once before it is drawn: where the sizes of parts depend on each other, once is not enough."""
    engine = ax.figure.canvas.figure.get_layout_engine()
    if engine:
        engine.execute(ax.figure.canvas.figure)


def grid_lines(ax: Axes, axis: Literal["x", "y"] = "y") -> None:
    """Faint lines at the ticks."""
    ax.grid(axis=axis, color=GREY, alpha=0.25, linewidth=0.8)


def legend(owner: Axes | Figure, handles: Sequence[Any], **settings: Any) -> None:
    """A legend without a frame. Of artists it finds itself, Matplotlib omits those whose label begins with "_"."""
    chosen: Any = {"frameon": False, "labelcolor": colours().text, **settings}
    owner.legend(handles=handles, **chosen)


def heat_map(ax: Axes, numbers: np.ndarray, norm: Any, **settings: Any) -> Any:
    """Draw numbers from 0, in the colour of the background, to the largest."""
    from matplotlib import colormaps
    from matplotlib.colors import LinearSegmentedColormap

    hue = colours().heat
    colour_map = colormaps[hue] if isinstance(hue, str) else LinearSegmentedColormap.from_list("heat", hue)
    return ax.imshow(numbers, colour_map, norm=norm, aspect="auto", **settings)


def from_zero(power: float, *tables: np.ndarray) -> Any:
    """A common scale of these tables, from 0 to their largest number; a power below 1 makes small numbers visible."""
    from matplotlib.colors import PowerNorm

    return PowerNorm(power, vmin=0.0, vmax=max(table.max(initial=0.0) for table in tables) or 1.0)


def ink_on(colour: Any) -> str:
    """Black or white, whichever has more contrast by WCAG's ratio of luminances."""
    from matplotlib.colors import to_rgb

    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    luminance = float(linear @ [0.2126, 0.7152, 0.0722])
    return "black" if (luminance + 0.05) ** 2 > 1.05 * 0.05 else "white"


def mass_of(solution: Solution) -> str:
    """The transported mass, and the largest possible mass if there is one."""
    most = solution.problem.most_mass
    limit = f" of at most {most:.4g}" if most < np.inf else ""
    return f"mass {solution.mass:.4g}{limit}"
