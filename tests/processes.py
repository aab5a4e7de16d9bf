"""Scripts that several processes run together."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from interruption import PATIENCE


@contextmanager
def torchrun(script: str, folder: Path, processes: int) -> Iterator[None]:
    """The script, given the folder, in so many processes beside what is done meanwhile; then it must have succeeded."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(
        [*command, script, str(folder)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield
        output, _ = process.communicate(timeout=PATIENCE)
    finally:
        if process.poll() is None:
            process.terminate()  # torchrun passes it on to what it started
            process.wait(PATIENCE)
    assert process.returncode == 0, output
