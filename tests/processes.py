"""Scripts that several processes run together."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from interruption import PATIENCE


def run_ranks(
    script: str, folder: Path, sizes: Sequence[int], environment: Callable[[int, int], dict[str, str]]
) -> tuple[dict[tuple[int, int], int], str]:
    """Exit codes by size and rank, and the output, of a script that groups of these sizes run.

    The arguments of the script are the folder, the rank and the size. `environment` has what each process gets
    beside the usual. All groups run at once, and none outlives the call.
    """
    usual = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "OMP_NUM_THREADS": "1",
        "NUMBA_NUM_THREADS": "1",
    }
    started = {
        (size, rank): subprocess.Popen(
            [sys.executable, "-W", "error", script, str(folder), str(rank), str(size)],
            env=usual | environment(size, rank),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for size in sizes
        for rank in range(size)
    }
    try:
        outputs = [process.communicate(timeout=PATIENCE)[0] for process in started.values()]
    finally:
        for process in started.values():
            process.kill()
            process.wait()
    return {place: process.returncode for place, process in started.items()}, "\n".join(outputs)


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
