"""The commands of ``adaptive-ot``. A module is imported when its command runs, heavy packages when they are used."""

from __future__ import annotations

from cyclopts import App

from adaptive_ot import __version__

app = App(
    name="adaptive-ot",
    help="Adaptive optimal transport: align two datasets that only partly match.",
    version=__version__,
    print_error=False,
    exit_on_error=False,
    suppress_keyboard_interrupt=False,
    result_action="return_value",
)
COMMANDS = (
    *("solve:solve", "path:path", "match:match", "adapt:adapt", "benchmark:benchmark", "train:train", "train:evaluate"),
    *("train:predict", "select:select", "report:report", "figures:figures", "doctor:doctor", "demo:demo"),
)
for command in COMMANDS:
    app.command(f"{__package__}.{command}")
