"""Progress bars for long solves, for work in steps, for benchmarks, and for trainings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType
from rich.text import Text

from adaptive_ot import Progress
from adaptive_ot.workbench.cli import show

if TYPE_CHECKING:
    from rich import progress

    from adaptive_ot import deep
    from adaptive_ot.workbench.benchmark import engine


@contextmanager
def progress_bar() -> Iterator[Callable[[Progress], None] | None]:
    """A bar on the terminal that disappears when the work is done; nothing if stderr is not a terminal."""
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
        tasks = {
            "starting": bar.add_task("starting", total=None, state="loading the compiled kernels"),
            "pricing": bar.add_task("pricing", total=1.0, visible=False, state=""),
            "pivoting": bar.add_task("pivoting", total=None, visible=False, state=""),
            "walking": bar.add_task("walking", total=1.0, visible=False, state=""),
            "interior": bar.add_task("interior", total=None, visible=False, state=""),
            "epsilon": bar.add_task("epsilon", total=None, visible=False, state=""),
        }

        def report(now: Progress) -> None:
            state = show.state(now)
            done = min(now.fraction or 0.0, 0.999)  # a finished task would stop its clock
            for stage, task in tasks.items():
                bar.update(task, visible=stage == now.stage, completed=done, state=state)

        yield report


@contextmanager
def steps_bar(total: int | None = None) -> Iterator[Callable[[str], None]]:
    """A bar for so many steps, or only a clock; call what it yields with the name of each step before it begins."""
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

        def report(step: str) -> None:
            bar.update(task, advance=1, description=show.printable(step))

        yield report


@contextmanager
def cells_bar() -> Iterator[Callable[[engine.Progress], None] | None]:
    """A bar for the cells of a benchmark, with the time that is left."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    # Cells take from a fraction of a second to minutes: the estimate looks far back.
    with _counting(console, speed_estimate_period=3600) as (bar, task):

        def report(now: engine.Progress) -> None:
            bar.update(task, total=now.total, completed=now.done, description=str(now.running))

        yield report


@contextmanager
def training_bar(wanted: bool = True) -> Iterator[Callable[[deep.Progress], None] | None]:
    """A bar for the steps of a training, with its losses and the time that is left; only notes, without a terminal."""
    console = Console(stderr=True)

    def note(now: deep.Progress) -> None:
        if now.note:
            console.print(show.printable(now.note), markup=False, highlight=False, soft_wrap=True)

    if not (wanted and console.is_terminal):
        yield note if wanted else None
        return
    with _counting(console) as (bar, task):

        def report(now: deep.Progress) -> None:
            note(now)
            if now.loading is None:
                bar.update(task, total=now.iterations, completed=now.step, description=show.training(now))
            else:
                bar.update(task, description=show.printable(now.loading))

        yield report


@contextmanager
def _counting(console: Console, **options: Any) -> Iterator[tuple[progress.Progress, progress.TaskID]]:
    """A bar for so many of something, with the time that is left; below it, on as many lines as it takes, the rest."""
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
