"""Results of a benchmark: a row for every method, a dot for every task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from adaptive_ot import _validation as check
from adaptive_ot.errors import InvalidInput
from adaptive_ot.plot.canvas import CURVE_COLOURS, GREY, colours, curve_style, legend, new_figure, panels
from adaptive_ot.plot.given import numbers
from adaptive_ot.plot.names import written

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The dots of a row are spread over this part of its height, so that equal results are told apart.
SPREAD = 0.5


def comparison(methods: Sequence[str], tasks: Sequence[str], accuracies: Any, deviations: Any = None) -> Figure:
    """Draw the results of a benchmark: a row for every method, the best mean first, and a dot for every task.

    Parameters
    ----------
    methods, tasks
        Their names.
    accuracies
        What every method (row) reached on every task (column), in percent or as a share; NaN where it is missing.
    deviations
        How far these may be off: one number for every result, or for the mean of every method.

    Returns
    -------
    The figure. Up to six tasks have a colour and a mark each; more are grey. A large mark is the mean over tasks; it is
    hollow where results are missing: such a mean is not to be compared with the others.

    Examples
    --------
    >>> from adaptive_ot import plot
    >>> figure = plot.comparison(["source only", "AOT"], ["a -> b", "b -> a"], [[50.0, 45.5], [70.0, 62.5]])
    >>> [name.get_text() for name in figure.axes[0].get_yticklabels()]
    ['AOT', 'source only']
    """
    table = _table(methods, tasks, accuracies, deviations)
    figure = new_figure((8, 1.5 + 0.36 * len(methods)))
    ax = panels(figure, 1, 1)[0, 0]
    handles = _draw_tasks(ax, table)
    handles += _draw_means(ax, table)
    places = np.arange(len(methods))
    ax.set_yticks(places, [written(name) for name in table.methods])
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(len(methods) - 0.4, -0.6)
    ax.grid(axis="x", color=GREY, alpha=0.25, linewidth=0.8)
    ax.hlines(places[:-1] + 0.5, 0, 1, transform=ax.get_yaxis_transform(), color=GREY, alpha=0.25, linewidth=0.6)
    _number_accuracies(ax, table)
    legend(figure, handles, loc="outside upper center", ncols=4, fontsize="small")
    return figure


class _Table(NamedTuple):
    """Methods from best to worst, what they reached on every task and on average, and how far that may be off."""

    methods: list[str]
    tasks: list[str]
    results: np.ndarray
    means: np.ndarray
    off: np.ndarray
    mean_off: np.ndarray

    @property
    def most(self) -> int:
        """What is best of all: 1 where accuracies are shares, 100 where they are percent."""
        return 1 if np.nanmax(self.results, initial=0.0) <= 1 else 100


def _table(methods: Any, tasks: Any, accuracies: Any, deviations: Any) -> _Table:
    for name, given in (("methods", methods), ("tasks", tasks)):
        if isinstance(given, str) or not isinstance(given, Sequence | np.ndarray):
            raise InvalidInput(name, "must be a list of names", check.describe(given), "Give a list.")
        if not len(given):
            raise InvalidInput(name, "must be at least one", "none", "Give something to compare.")
    shape = len(methods), len(tasks)
    results = numbers("accuracies", accuracies, shape, gaps=True)
    unknown = np.full(shape, np.nan)
    off = unknown if deviations is None else numbers("deviations", deviations, shape, shape[:1], gaps=True)
    if (off < 0).any():
        raise InvalidInput("deviations", "must not be negative", "one that is", "Give standard deviations.")
    known = np.isfinite(results)
    means = np.where(known, results, 0.0).sum(axis=1) / np.where(known.any(axis=1), known.sum(axis=1), np.nan)
    order = np.argsort(-means, kind="stable")  # NaN comes last
    return _Table(
        [str(methods[row]) for row in order],
        [str(task) for task in tasks],
        results[order],
        means[order],
        off[order] if off.ndim == 2 else unknown,
        off[order] if off.ndim == 1 else unknown[:, 0],
    )


def _draw_tasks(ax: Axes, table: _Table) -> list[Any]:
    """A dot for every result; what a legend should explain."""
    count = len(table.tasks)
    few = count <= len(CURVE_COLOURS)
    across = SPREAD * ((np.arange(count) + 0.5) / count - 0.5)
    places = np.arange(len(table.methods))
    handles = []
    for task, shift in enumerate(across):
        style: Any = curve_style(task) if few else {"color": GREY, "marker": "o"}
        label = written(table.tasks[task]) if few else f"one of {count} tasks"
        bars = ax.errorbar(
            table.results[:, task],
            places + shift,
            xerr=table.off[:, task],
            linestyle="none",
            markersize=5 if few else 4,
            alpha=0.9 if few else 0.7,
            elinewidth=0.8,
            markeredgewidth=0,
            **style,
        )
        bars.lines[0].set_label(label)
        handles.append(bars.lines[0])
    return handles if few else handles[:1]


def _draw_means(ax: Axes, table: _Table) -> list[Any]:
    """A large mark for every mean, and its number at the right."""
    ink, complete = colours().text, np.isfinite(table.results).all(axis=1)
    places = np.arange(len(table.methods))
    handles = []
    for rows, fill, label in ((complete, ink, "mean"), (~complete & np.isfinite(table.means), "none", "mean of some")):
        if rows.any():
            style: Any = {"color": ink, "marker": "D", "markersize": 8, "markerfacecolor": fill, "linestyle": "none"}
            off = table.mean_off[rows]
            bars = ax.errorbar(table.means[rows], places[rows], xerr=off, capsize=3, zorder=4, **style)
            bars.lines[0].set_label(label)
            handles.append(bars.lines[0])
    known = np.isfinite(table.results).sum(axis=1)
    digits = 3 if table.most == 1 else 1
    for place, mean, tasks in zip(places, table.means, known, strict=True):
        number = f"{mean:.{digits}f}" if tasks else "no result"
        note = "" if tasks in (0, len(table.tasks)) else f" ({tasks} of {len(table.tasks)})"
        at: Any = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
        ax.annotate(number + note, (1.0, place), (6, 0), va="center", fontsize="small", color=ink, **at)
    return handles


def _number_accuracies(ax: Axes, table: _Table) -> None:
    """An axis that ends where accuracies do, right behind the mark there."""
    if not np.isfinite(table.results).any():
        ax.set_xticks([])
        middle: Any = {"transform": ax.transAxes, "ha": "center", "va": "center", "color": colours().text}
        ax.text(0.5, 0.5, "There are no results.", **middle)
        return
    ax.set_xlabel(f"accuracy ({'share' if table.most == 1 else '%'})")
    if np.nanmax(table.results) <= table.most:
        low, high = ax.get_xlim()
        ax.set_xlim(low, min(high, table.most + 0.015 * (table.most - low)))
