"""Ctrl-C in a real process."""

import signal
import subprocess
import sys
from threading import Event, Thread

PATIENCE = 300.0  # seconds: against hanging, not a measure of speed
AGAIN = 3.0  # seconds between two signals, far longer than an answer takes


def interrupt(script: str, stage: str) -> None:
    """Run a script that says "at <stage>" and, on KeyboardInterrupt, "interrupted"; it must do so and end.

    Python ignores a KeyboardInterrupt that is raised inside a finalizer, as of the objects that LLVM leaves behind.
    A person would press Ctrl-C again, and so does this function.
    """
    command = [sys.executable, "-c", script]
    answered = Event()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None

        def press() -> None:
            process.send_signal(signal.SIGINT)
            while not answered.wait(AGAIN) and process.poll() is None:
                process.send_signal(signal.SIGINT)

        try:
            said = iter(process.stdout.readline, "")
            assert f"at {stage}\n" in said, "never got there"
            Thread(target=press, daemon=True).start()
            assert "interrupted\n" in said, "ran to the end, or died"
            answered.set()
            assert process.wait(PATIENCE) == 0
        finally:
            answered.set()
            process.kill()
