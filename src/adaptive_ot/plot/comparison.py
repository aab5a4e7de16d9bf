"""Results of a benchmark: a row for every method, a dot for every task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from adaptive_ot import _validation as check
from adaptive_ot.errors import InvalidInput
from adaptive_ot.plot.canvas import CURVE_COLOURS, GREY, colours, curve_style, grid_lines, legend, new_figure, panels
from adaptive_ot.plot.names import written

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The dots of a row are spread over this part of its height, to separate equal results.
SPREAD = 0.5


def comparison(methods: Sequence[str], tasks: Sequence[str], accuracies: Any, deviations: Any = None) -> Figure:
    """Draw the results of a benchmark: a row for every method, the best mean first, and a dot for every task.

    Parameters
    ----------
    methods, tasks
        Their names.
    accuracies
        The accuracy of every method (row) on every task (column), in percent or as a share; NaN where it is missing.
    deviations
        Standard deviations, one for every result or one for the mean of every method.

    Returns
    -------
    The figure. Up to six tasks have a colour and a mark each; more are grey. A large mark is the mean over tasks; a
    hollow one lacks some results and cannot be compared with other means.

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
    handles = _draw_tasks(ax, table) + _draw_means(ax, table)
    places = np.arange(len(methods))
    ax.set_yticks(places, [written(name) for name in table.methods])
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(len(methods) - 0.4, -0.6)
    grid_lines(ax, "x")
    ax.hlines(places[:-1] + 0.5, 0, 1, transform=ax.get_yaxis_transform(), color=GREY, alpha=0.25, linewidth=0.6)
    _number_accuracies(ax, table)
    legend(figure, handles, loc="outside upper center", ncols=4, fontsize="small")
    return figure


class _Table(NamedTuple):
    """Methods from best to worst, their results by task and on average, and the deviations of both."""

    methods: list[str]
    tasks: list[str]
    results: np.ndarray
    means: np.ndarray
    deviations: np.ndarray
    mean_deviations: np.ndarray

    @property
    def most(self) -> int:
        """The best possible accuracy: 1 for shares, 100 for percent."""
        return 1 if np.nanmax(self.results, initial=0.0) <= 1 else 100


def _table(methods: Any, tasks: Any, accuracies: Any, deviations: Any) -> _Table:
    for name, given in (("methods", methods), ("tasks", tasks)):
        check.sequence(name, given, "Give a list of names.")
        check.not_empty(name, given, "Give something to compare.")
    shape = len(methods), len(tasks)
    results = check.numbers("accuracies", accuracies, shape, missing=True)
    unknown = np.full(shape, np.nan)
    off = unknown if deviations is None else check.numbers("deviations", deviations, shape, shape[:1], missing=True)
    if (off < 0).any():
        given = f"{off[off < 0][0]:g}"
        raise InvalidInput("deviations", "must not be negative", given, "Give standard deviations.")
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
    """A dot for every result; returns the artists for the legend."""
    count = len(table.tasks)
    few = count <= len(CURVE_COLOURS)
    size: Any = {"markersize": 5, "alpha": 0.9} if few else {"markersize": 4, "alpha": 0.7}
    across = SPREAD * ((np.arange(count) + 0.5) / count - 0.5)
    places = np.arange(len(table.methods))
    handles = []
    for task, shift in enumerate(across):
        style: Any = curve_style(task) if few else {"color": GREY, "marker": "o"}
        style |= size | {"linestyle": "none", "elinewidth": 0.8, "markeredgewidth": 0}
        bars = ax.errorbar(table.results[:, task], places + shift, xerr=table.deviations[:, task], **style)
        bars.lines[0].set_label(written(table.tasks[task]) if few else f"one of {count} tasks")
        handles.append(bars.lines[0])
    return handles if few else handles[:1]


def _draw_means(ax: Axes, table: _Table) -> list[Any]:
    """A large mark for every mean, and its number at the right; returns the artists for the legend."""
    ink, places = colours().text, np.arange(len(table.methods))
    known = np.isfinite(table.results).sum(axis=1)
    complete = known == len(table.tasks)
    handles = []
    for rows, fill, label in ((complete, ink, "mean"), (~complete & (known > 0), "none", "mean of some")):
        if rows.any():
            style: Any = {"color": ink, "marker": "D", "markersize": 8, "markerfacecolor": fill, "linestyle": "none"}
            off = table.mean_deviations[rows]
            bars = ax.errorbar(table.means[rows], places[rows], xerr=off, capsize=3, zorder=4, **style)
            bars.lines[0].set_label(label)
            handles.append(bars.lines[0])
    digits = 3 if table.most == 1 else 1
    at: Any = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
    for place, mean, tasks in zip(places, table.means, known, strict=True):
        number = f"{mean:.{digits}f}" if tasks else "no result"
        note = "" if tasks in (0, len(table.tasks)) else f" ({tasks} of {len(table.tasks)})"
        ax.annotate(number + note, (1.0, place), (6, 0), va="center", fontsize="small", color=ink, **at)
    return handles


def _number_accuracies(ax: Axes, table: _Table) -> None:
    """An axis that ends at the best possible accuracy, just behind a mark there."""
    if not np.isfinite(table.results).any():
        ax.set_xticks([])
        middle: Any = {"transform": ax.transAxes, "ha": "center", "va": "center", "color": colours().text}
        ax.text(0.5, 0.5, "There are no results.", **middle)
        return
    ax.set_xlabel(f"accuracy ({'share' if table.most == 1 else '%'})")
    if np.nanmax(table.results) <= table.most:
        low, high = ax.get_xlim()
        ax.set_xlim(low, min(high, table.most + 0.015 * (table.most - low)))
