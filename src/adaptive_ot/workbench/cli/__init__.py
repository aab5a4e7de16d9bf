"""The command line: ``adaptive-ot solve`` and so on.

Exit codes: 0 done; 1 the self-test or some cells of a benchmark failed, stdout could not be written, or another process
of a group was lost; 2 bad usage or bad input, with one line on stderr; 3 not converged; 130 interrupted.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

from adaptive_ot import __version__
from adaptive_ot._group import started_together
from adaptive_ot.errors import AdaptiveOTError, InvalidInput, MissingDependency, NotConverged, ProcessLost

# Commands that several processes, started by torchrun, can run together.
TOGETHER = ("solve", "train")

FAILED, REFUSED, NOT_CONVERGED, INTERRUPTED = 1, 2, 3, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    Parameters
    ----------
    arguments
        The words after ``adaptive-ot``; those of the process by default.

    Examples
    --------
    >>> main(["solve", "missing.npy"])  # and stderr says that there is no such file
    2
    """
    try:
        return _run(sys.argv[1:] if arguments is None else list(arguments))
    except NotConverged as error:
        return _complain(str(error), NOT_CONVERGED)
    except ProcessLost as error:
        return _complain(str(error), FAILED, by_all=True)
    except AdaptiveOTError as error:
        return _complain(str(error), REFUSED)
    except MemoryError:
        return _complain("not enough memory: give points instead of a cost matrix, or a sparse cost (.npz)", REFUSED)
    except KeyboardInterrupt as stop:
        return _complain(str(stop) or "interrupted", INTERRUPTED)
    except OSError as error:  # files have their own messages, so this is stdout: a full disk, or a reader that left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED if isinstance(error, BrokenPipeError) else _complain(f"cannot print: {error.strerror}", FAILED)


def _run(arguments: list[str]) -> int:
    if arguments == ["--version"]:  # without a look at the commands
        print(__version__)
        return 0
    try:
        import rich  # noqa: F401
        from cyclopts import CycloptsError
    except ImportError as error:
        raise MissingDependency(error.name or "cyclopts", "cli") from None
    from adaptive_ot.workbench.cli.app import app

    command, processes = next(iter(arguments), "-"), started_together()
    if processes > 1 and command not in TOGETHER and not command.startswith("-"):
        raise InvalidInput(command, "runs in one process", processes, "Start it without torchrun.")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # for file names that the terminal cannot show
    if not arguments or {*arguments} & {*app.help_flags}:
        app.resolved_commands()  # help says what each of them does
    try:
        code = app(arguments) or 0
        sys.stdout.flush()
        return code
    except CycloptsError as error:
        from adaptive_ot.workbench.cli.meant import instead

        return _complain(instead(error, arguments), REFUSED)


def _complain(message: str, code: int, by_all: bool = False) -> int:
    speaks = by_all or started_together() == 1 or os.environ.get("RANK") == "0"
    if speaks:  # of several processes with the same error, one does
        print("adaptive-ot:", " ".join(message.split()), file=sys.stderr)
    return code
