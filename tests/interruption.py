"""Ctrl-C in a real process."""

import signal
import subprocess
import sys
import time


def interrupt(script: str, stage: str, patience: float) -> None:
    """Run a script that says "at <stage>" and, on KeyboardInterrupt, "interrupted"; it must do so within `patience`."""

    def hear_ctrl_c() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell in the background would have it ignored

    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=hear_ctrl_c) as process:
        assert process.stdout is not None
        try:
            said = iter(process.stdout.readline, "")
            assert f"at {stage}\n" in said, "never got there"
            sent = time.monotonic()
            process.send_signal(signal.SIGINT)
            assert "interrupted\n" in said, "ran to the end, or died"
            waited = time.monotonic() - sent
            assert process.wait(patience) == 0
        finally:
            process.kill()
    assert waited < patience
