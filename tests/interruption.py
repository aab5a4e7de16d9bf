"""Ctrl-C in a real process."""

import signal
import subprocess
import sys

PATIENCE = 300.0  # seconds: against hanging, not a measure of speed


def interrupt(script: str, stage: str) -> None:
    """Run a script that says "at <stage>" and, on KeyboardInterrupt, "interrupted"; it must do so and end."""
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            said = iter(process.stdout.readline, "")
            assert f"at {stage}\n" in said, "never got there"
            process.send_signal(signal.SIGINT)
            assert "interrupted\n" in said, "ran to the end, or died"
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()
