"""The price of mass, for every mass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adaptive_ot import _validation as check
from adaptive_ot.path import MassPath
from adaptive_ot.plot.canvas import GREEN, GREY, SKY, VERMILLION, axes, colours, legend

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def mass_path(path: MassPath, ax: Axes | None = None) -> Axes:
    """Draw what mass costs: the price of a unit over the mass moved so far, and the masses worth a look.

    Parameters
    ----------
    path
        What `adaptive_ot.mass_path` returned.
    ax
        Where to draw; by default on a new figure, which is ``ax.figure``.

    Returns
    -------
    The axes. Everything below the line at price 0 pays: that is what adaptive transport moves.

    Examples
    --------
    >>> import adaptive_ot as aot
    >>> from adaptive_ot import plot
    >>> ax = plot.mass_path(aot.mass_path([[-3.0, 1.0], [2.0, 4.0]]))
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['price of mass', 'adaptive: mass 0.5', 'elbow: mass 0.5']
    """
    check.instance("path", path, MassPath)
    ax = axes(ax)
    ax.set_xlabel("mass moved")
    ax.set_ylabel("price of a unit of mass (lambda)")
    ax.set_title(f"{path.price.size} prices, mass 0 to {path.most_mass:.4g}")
    if path.price.size == 0:
        return ax
    shown: list[Any] = [
        ax.stairs(path.price, path.mass, baseline=None, color=colours().curve, linewidth=1.8, label="price of mass")
    ]
    paying = path.mass_at(0.0)
    if paying > 0:
        pieces = path.price < 0
        ax.stairs(path.price[pieces], path.mass[: pieces.sum() + 1], baseline=0.0, fill=True, color=SKY, alpha=0.3)
    ax.axhline(0.0, color=GREY, linewidth=0.8)
    for (name, mass), colour, style in zip(
        path.suggest()._asdict().items(), (VERMILLION, GREEN), ("--", ":"), strict=True
    ):
        label = f"{name}: mass {mass:.4g}"
        shown.append(ax.axvline(mass, color=colour, linestyle=style, linewidth=1.5, label=label))
    ax.margins(x=0.02)
    legend(ax, shown)
    return ax
