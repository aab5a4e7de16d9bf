"""The commands of ``adaptive-ot``. Their modules import heavy packages only when a command runs."""

from __future__ import annotations

from cyclopts import App

from adaptive_ot import __version__
from adaptive_ot.workbench.cli.adapt import adapt
from adaptive_ot.workbench.cli.benchmark import benchmark
from adaptive_ot.workbench.cli.demo import demo
from adaptive_ot.workbench.cli.doctor import doctor
from adaptive_ot.workbench.cli.figures import figures
from adaptive_ot.workbench.cli.path import path
from adaptive_ot.workbench.cli.report import report
from adaptive_ot.workbench.cli.solve import solve
from adaptive_ot.workbench.cli.train import evaluate, predict, train

app = App(
    name="adaptive-ot",
    help="Adaptive optimal transport: align two datasets that only partly match.",
    version=__version__,
    print_error=False,
    exit_on_error=False,
    suppress_keyboard_interrupt=False,
    result_action="return_value",
)
for command in (solve, path, adapt, benchmark, train, evaluate, predict, report, figures, doctor, demo):
    app.command(command)
