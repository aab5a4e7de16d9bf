"""Progress bars for long solves, for work in steps, for benchmarks, and for trainings.

A bar is shown on stderr if that is a terminal, and disappears when the work is done. Otherwise trainings and benchmarks
print a line now and then.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType
from rich.text import Text

from adaptive_ot import Progress
from adaptive_ot.workbench.cli.show import printable
from adaptive_ot.workbench.wording import counted

SECONDS_BETWEEN_LINES = 30

if TYPE_CHECKING:
    from rich import progress

    from adaptive_ot import deep
    from adaptive_ot.workbench.benchmark.engine import CellStarted


@contextmanager
def solve_bar() -> Iterator[Callable[[Progress], None] | None]:
    """A bar for a solve; None without a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    from rich import progress

    columns = (
        progress.SpinnerColumn(),
        progress.TextColumn("{task.description:<9}"),
        progress.BarColumn(bar_width=24),
        progress.TimeElapsedColumn(),
        progress.TextColumn("{task.fields[state]}"),
    )
    with progress.Progress(*columns, console=console, transient=True) as bar:
        tasks = {"starting": bar.add_task("starting", total=None, state="loading the compiled kernels")}

        def report(now: Progress) -> None:
            if now.stage not in tasks:
                tasks[now.stage] = bar.add_task(now.stage, total=None if now.fraction is None else 1.0, state="")
            text = solve_state(now)
            done = min(now.fraction or 0.0, 0.999)  # a finished task would stop its clock
            for stage, task in tasks.items():
                bar.update(task, visible=stage == now.stage, completed=done, state=text)

        yield report


@contextmanager
def steps_bar(total: int | None = None) -> Iterator[Callable[[str], None]]:
    """A bar for this many steps, or only a clock; call the result with the name of each step before it begins."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda step: None
        return
    from rich import progress

    columns = (
        progress.SpinnerColumn(),
        progress.BarColumn(bar_width=24),
        progress.TimeElapsedColumn(),
        progress.TextColumn("{task.description}", markup=False),
    )
    with progress.Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("loading kernels, or compiling them for the first time", total=total, completed=-1)
        yield lambda step: bar.update(task, advance=1, description=printable(step))


@contextmanager
def cells_bar() -> Iterator[Callable[[CellStarted], None]]:
    """A bar for the cells of a benchmark, with the time that is left; lines without a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        line = lines_now_and_then(console)
        yield lambda now: line(f"{now.done:,} of {counted(now.total, 'cell')} done, now {now.cell}")
        return
    # Cells take from a fraction of a second to minutes: the estimate looks far back.
    with _counting_bar(console, speed_estimate_period=3600) as (bar, task):
        yield lambda now: bar.update(task, total=now.total, completed=now.done, description=str(now.cell))


@contextmanager
def training_bar(wanted: bool = True) -> Iterator[Callable[[deep.Progress], None] | None]:
    """A bar for the steps of a training, with its losses and the time that is left; lines without a terminal."""
    console = Console(stderr=True)
    line = lines_now_and_then(console)

    def note(now: deep.Progress) -> None:
        if now.note:
            _print(console, now.note)

    def note_or_line(now: deep.Progress) -> None:
        note(now)
        if not now.note:
            done = f"{now.step:,} of {now.iterations:,}"
            line(now.loading or (f"step {done}: {training_state(now)}" if now.losses else done))

    if not (wanted and console.is_terminal):
        yield note_or_line if wanted else None
        return
    with _counting_bar(console) as (bar, task):

        def report(now: deep.Progress) -> None:
            note(now)
            if now.loading is None:
                bar.update(task, total=now.iterations, completed=now.step, description=training_state(now))
            else:
                bar.update(task, description=printable(now.loading))

        yield report


def lines_now_and_then(console: Console) -> Callable[[str], None]:
    """Print a text if `SECONDS_BETWEEN_LINES` have passed since the one before it, or since now."""
    last = time.monotonic()

    def line(text: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= SECONDS_BETWEEN_LINES:
            last = now
            _print(console, text)

    return line


def _print(console: Console, text: str) -> None:
    console.print(printable(text), markup=False, highlight=False, soft_wrap=True)


@contextmanager
def _counting_bar(console: Console, **options: Any) -> Iterator[tuple[progress.Progress, progress.TaskID]]:
    """A bar with a count and the time that is left, above a description of as many lines as it needs."""
    from rich import progress

    class Bar(progress.Progress):
        def get_renderables(self) -> Iterator[RenderableType]:
            for task in self.tasks:
                yield self.make_tasks_table([task])
                yield Text(task.description)

    columns = (
        progress.BarColumn(bar_width=24),
        progress.MofNCompleteColumn(),
        progress.TextColumn("time left"),
        progress.TimeRemainingColumn(),
    )
    with Bar(*columns, console=console, transient=True, **options) as bar:
        yield bar, bar.add_task("reading the data", total=None)


def training_state(now: deep.Progress) -> str:
    """Accuracy and losses of a training, the most important numbers first."""
    target = [] if now.accuracy is None else [f"target {now.accuracy:.1%}"]
    losses = sorted(now.losses.items(), key=lambda loss: loss[0] != "mass")
    names = [name.removeprefix("plan_").replace("_", " ") for name, _ in losses]
    return ", ".join([*target, *(f"{name} {value:.3g}" for name, (_, value) in zip(names, losses, strict=True))])


def solve_state(now: Progress) -> str:
    """The state of a solve, for the right end of its bar."""
    if now.epsilon is not None:
        return f"epsilon {now.epsilon:.3g}, {counted(now.iterations, 'pass')}, marginals off by {now.error:.1e}"
    if now.stage == "walking":
        return f"{now.fraction or 0.0:.0%} of the mass, {counted(now.iterations, 'pivot')}"
    if now.stage == "interior":
        return f"{counted(now.iterations, 'step')} inside the cones, gap {now.gap:.1e}"
    gap = f"gap {now.gap:.1e}" if math.isfinite(now.gap) else "no bound yet"
    return f"round {now.round}, {counted(now.iterations, 'pivot')}, {counted(now.arcs, 'arc')}, {gap}"
