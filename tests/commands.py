"""The command line in tests: in this process, in one of its own, on a terminal; and what it refuses."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import adaptive_ot as aot
from adaptive_ot.workbench.cli import main
from interruption import PATIENCE

COMMAND = [sys.executable, "-m", "adaptive_ot"]


def environment(**more):
    """For processes that import the package under test."""
    return os.environ | {"PYTHONPATH": str(Path(aot.__file__).parents[1])} | more


def run(*arguments, env=None):
    """In a process of its own."""
    command, env = [*COMMAND, *map(str, arguments)], env or environment(OMP_NUM_THREADS="1")
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=env)


def on_a_terminal(arguments, interrupt_at=None, end=signal.SIGINT):
    """With stderr on a pseudo-terminal: exit code, stdout, and what the terminal saw; ended when it saw some bytes."""
    if not hasattr(os, "openpty"):
        pytest.skip("needs a pseudo-terminal")
    leader, follower = os.openpty()
    env = environment(COLUMNS="150", TERM="xterm", OMP_NUM_THREADS="1")
    with subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=follower, env=env) as process:
        os.close(follower)
        seen = b""
        while True:
            try:
                seen += os.read(leader, 65536)
            except OSError:  # the other end is closed
                break
            if interrupt_at and interrupt_at in seen:
                process.send_signal(end)
                interrupt_at = None
        os.close(leader)
        output = process.communicate(timeout=PATIENCE)[0]
    return process.returncode, output.decode(), seen.decode()


def end_with(process, end):
    """Send a signal, Ctrl-C to all processes as a terminal does."""
    if end == signal.SIGINT:
        os.killpg(process.pid, end)
    else:
        process.send_signal(end)


def summary(capsys, *arguments):
    """What a command prints for programs, and nothing else."""
    assert main([*map(str, arguments), "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return json.loads(captured.out)


def contents(folder: Path | str = "."):
    """Everything below a folder; directories have no content."""
    return {path: path.read_bytes() if path.is_file() else None for path in Path(folder).rglob("*")}


def refused(capfd, arguments, message, *, within: Path | str | None = "."):
    """Exit code 2, one line on stderr that says what is wrong, and no file `within` a directory touched, if one."""
    before = within and contents(within)
    assert main(arguments) == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("adaptive-ot: ")
    assert captured.err.endswith("\n")
    assert captured.err.count("\n") == 1, captured.err
    assert message in captured.err
    assert (within and contents(within)) == before


def rows_of(text):
    """The rows of the tables in a Markdown text."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
