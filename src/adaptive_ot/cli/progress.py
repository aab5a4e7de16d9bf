"""A progress bar for long solves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

from adaptive_ot import Progress
from adaptive_ot.cli import show


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
