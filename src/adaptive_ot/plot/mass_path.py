"""The price of mass, for every mass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adaptive_ot import _validation as check
from adaptive_ot.path import MassPath
from adaptive_ot.plot.canvas import GREEN, GREY, SKY, VERMILLION, axes, colours, legend

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def mass_path(path: MassPath, ax: Axes | None = None) -> Axes:
    """Draw the price of a unit of mass over the transported mass, and the suggested masses.

    Parameters
    ----------
    path
        The result of `adaptive_ot.mass_path`.
    ax
        The axes to draw on; by default those of a new figure, ``ax.figure``.

    Returns
    -------
    The axes. Adaptive transport moves all mass with a price below zero, which is shaded.

    Examples
    --------
    >>> import adaptive_ot as aot
    >>> from adaptive_ot import plot
    >>> ax = plot.mass_path(aot.mass_path([[-3.0, 1.0], [2.0, 4.0]]))
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['price of mass', 'adaptive: mass 0.5']
    """
    check.instance("path", path, MassPath)
    ax = axes(ax)
    ax.set_xlabel("mass moved")
    ax.set_ylabel("price of a unit of mass (lambda)")
    ax.set_title(f"{path.price.size} prices, mass 0 to {path.most_mass:.4g}")
    if path.price.size == 0:
        return ax
    curve: Any = {"baseline": None, "color": colours().curve, "linewidth": 1.8, "label": "price of mass"}
    handles: list[Any] = [ax.stairs(path.price, path.mass, **curve)]
    if path.mass_at(0.0) > 0:
        paying = path.price < 0
        ax.stairs(path.price[paying], path.mass[: paying.sum() + 1], baseline=0.0, fill=True, color=SKY, alpha=0.3)
    ax.axhline(0.0, color=GREY, linewidth=0.8)
    styles = {"adaptive": (VERMILLION, "--"), "elbow": (GREEN, ":")}
    for name, mass in path.suggest()._asdict().items():
        if mass is None:  # there is no elbow
            continue
        colour, dashes = styles[name]
        label = f"{name}: mass {mass:.4g}"
        handles.append(ax.axvline(mass, color=colour, linestyle=dashes, linewidth=1.5, label=label))
    ax.margins(x=0.02)
    legend(ax, handles)
    return ax
