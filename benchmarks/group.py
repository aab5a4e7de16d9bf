"""How one problem between points scales over processes: time, and what they say to each other.

    python benchmarks/group.py [--size 8200] [--exact-size 40000] [--processes 1 2]

Standard normal points in R^16, uniform weights. Each process has one thread. `alone` is a solve without a group. The
processor time of the busiest process is what a solve would take if every process had a core of its own and the others
answered at once; the seconds by the clock are those of this machine. Bytes are those that the process of rank 0 sends
and receives, without the overhead of the network. Results go to benchmarks/results/group.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import adaptive_ot as aot
import measure

DIMENSION = 16
SOLVERS = {"entropic": (aot.Entropic(2.0), 4.0), "exact": (aot.Exact(), 3.0)}  # and the reach


class Counted:
    """Counts what a team sends and receives."""

    def __init__(self) -> None:
        from adaptive_ot import _group

        self.calls, self.bytes = 0, 0
        call, as_tensor = _group.Team.call, _group.as_tensor

        def counted(team: Any, *arguments: Any, **keywords: Any) -> Any:
            self.calls += 1
            return call(team, *arguments, **keywords)

        def weighed(array: np.ndarray) -> Any:
            self.bytes += array.nbytes
            return as_tensor(array)

        _group.as_tensor = weighed
        team: Any = _group.Team
        team.call = counted


def solved(solver: str, size: int, rank: int, processes: int, meeting: str) -> dict[str, Any]:
    """What one process measures."""
    engine, reach = SOLVERS[solver]
    rng = np.random.default_rng(0)
    x, z = rng.standard_normal((size, DIMENSION)), rng.standard_normal((size, DIMENSION))
    rows, group = slice(size * rank // processes, size * (rank + 1) // processes), None
    if meeting:
        from torch import distributed

        address = f"file://{meeting}"
        distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=processes)
        group = distributed.group.WORLD
    aot.solve(aot.DistanceCost(x[rows][:2100], z[:2100], reach), solver=engine, group=group)  # loads the kernels
    counted = Counted()
    started, processor = time.perf_counter(), time.process_time()
    solution = aot.solve(aot.DistanceCost(x[rows], z, reach), solver=engine, group=group)
    return {
        "seconds": time.perf_counter() - started,
        "processor": time.process_time() - processor,
        "calls": counted.calls,
        "bytes": counted.bytes,
        "steps": solution.iterations,
        "value": solution.value,
        "gap": solution.gap,
    }


def together(solver: str, size: int, processes: int) -> dict[str, Any]:
    """One measurement, by so many processes; by 0, alone."""
    threads = dict.fromkeys(measure.THREAD_VARIABLES, "1")
    with tempfile.TemporaryDirectory() as folder:
        meeting = str(Path(folder, "meeting")) if processes else ""
        command = [sys.executable, __file__, "--child", solver, str(size)]
        started = [
            subprocess.Popen(
                [*command, str(rank), str(max(1, processes)), meeting],
                env=os.environ | threads,
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(max(1, processes))
        ]
        found = [json.loads(process.communicate()[0]) for process in started]
    busiest, total = max(each["processor"] for each in found), sum(each["processor"] for each in found)
    shared = {name: found[0][name] for name in ("seconds", "calls", "bytes", "steps", "value", "gap")}
    about = {"solver": solver, "n": size, "dimension": DIMENSION, "processes": processes or "alone"}
    return about | {"processor_of_busiest": busiest, "processor_of_all": total} | shared


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=8200)
    parser.add_argument("--exact-size", type=int, default=40_000)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        solver, size, rank, processes, meeting = options.child
        print(json.dumps(solved(solver, int(size), int(rank), int(processes), meeting)), flush=True)
        return
    rows = []
    print("solver    n       processes  seconds  busiest  all     calls  MB      steps  value")
    for solver, size in (("entropic", options.size), ("exact", options.exact_size)):
        for processes in (0, *options.processes):
            row = together(solver, size, processes)
            rows.append(row)
            measure.write_json(measure.RESULTS / "group.json", {**measure.header(), "measurements": rows})
            print(
                f"{solver:<9} {size:<7} {row['processes']:<10} {row['seconds']:<8.1f} "
                f"{row['processor_of_busiest']:<8.1f} {row['processor_of_all']:<7.1f} {row['calls']:<6} "
                f"{row['bytes'] / 1e6:<7.1f} {row['steps']:<6} {row['value']:.12f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
