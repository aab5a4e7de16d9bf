"""``adaptive-ot select``: which of some finished runs to use, without labels of the target."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from adaptive_ot.workbench.cli import show
from adaptive_ot.workbench.cli.options import Flag, Whole, named
from adaptive_ot.workbench.cli.progress import steps_bar

if TYPE_CHECKING:
    from adaptive_ot import deep

VERDICTS = {
    True: "adapt: the {} criterion chooses a run that adapts",
    False: "do not adapt: the {} criterion chooses a run without adaptation",
    None: "whether to adapt at all needs runs of both kinds: source-only and another method",
}


def select(
    *runs: Path,
    root: Path | None = None,
    samples: Whole = 1000,
    device: str = "auto",
    json: Flag = False,
) -> int:
    """Compare finished runs on the same images by criteria that need no labels of the target.

    Parameters
    ----------
    runs
        The directories of at least two runs, of any methods and settings.
    root
        Where the dataset is now; where it was, if not given.
    samples
        How many images of either domain are looked at, at most.
    device
        As PyTorch names it; "auto" is a GPU if there is one.
    json
        Print the result for programs.
    """
    from adaptive_ot import deep

    with named("root", "samples", "device"), steps_bar() as progress:
        selection = deep.select(runs, root=root, samples=samples, device=device, progress=progress)
    show.result(_summary(selection), json, lambda _: _show(selection))
    return 0


def _summary(selection: deep.Selection) -> dict[str, Any]:
    from adaptive_ot.deep.selection import CRITERIA

    return {
        "runs": [{**each._asdict(), "run": str(each.run)} for each in selection.candidates],
        "choices": {
            name: {"run": str(selection.choice(name).run), "regret": selection.regret(name)} for name in CRITERIA
        },
        "adapt": selection.adapts,
    }


def _show(selection: deep.Selection) -> None:
    from adaptive_ot.deep.selection import CRITERIA, DEFAULT

    show.title(f"{len(selection.candidates)} runs on the same images, compared without labels of the target")
    table = Table(box=None, header_style="cyan", padding=(0, 2))
    table.add_column("run", overflow="fold")
    table.add_column("method")
    for name in (*CRITERIA, "accuracy (oracle)"):
        table.add_column(name, justify="right")
    for each in selection.candidates:
        scores = (Text(f"{each.scores[name]:.3f}", _style(selection, name, each)) for name in CRITERIA)
        run, method = (Text(show.printable(str(text))) for text in (each.run, each.method))
        table.add_row(run, method, *scores, f"{each.accuracy:.1%}")
    Console().print(table)
    for name in CRITERIA:
        regret = f"{100 * selection.regret(name):.1f} points below the best run (oracle)"
        show.line(name, f"{selection.choice(name).run}, {regret}")
    show.line("verdict", VERDICTS[selection.adapts].format(DEFAULT))


def _style(selection: deep.Selection, criterion: str, candidate: deep.Candidate) -> str:
    return "bold" if selection.choice(criterion) is candidate else ""
