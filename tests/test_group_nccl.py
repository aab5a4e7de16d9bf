"""Groups on NCCL, which needs a GPU: by pytest, or by torchrun as in the line below.

torchrun --nproc-per-node 1 tests/test_group_nccl.py FOLDER
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", exc_type=ImportError)

import torch

import adaptive_ot as aot

PROBLEMS = {
    "entropic": {"solver": aot.Entropic(0.1)},
    "partial": {"solver": aot.Entropic(0.1), "marginals": aot.FixedMass(0.4)},
    "exact": {},
}


def clouds():
    rng = np.random.default_rng(0)
    return rng.normal(size=(2100, 3)), rng.normal(size=(2050, 3)) + 0.4  # enough to be priced together


def main(folder: str) -> None:
    """Solve with the sources of this process, on its GPU; several processes may have the same one."""
    from torch import distributed

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    distributed.init_process_group("nccl")
    x, z = (torch.from_numpy(each).to(device) for each in clouds())
    mine, group = x[len(x) * rank // size : len(x) * (rank + 1) // size], distributed.group.WORLD
    for name, keywords in PROBLEMS.items():
        part = aot.solve(aot.DistanceCost(mine, z, reach=1.0), group=group, **keywords)
        assert part.source_potential.device == device
        whole = part.gathered()
        if whole:
            np.savez(Path(folder, f"{name}.npz"), **whole.answers._asdict())
    path = aot.mass_path(aot.DistanceCost(mine, z, reach=1.0), group=group)
    np.savez(Path(folder, f"path-{rank}.npz"), mass=path.mass, value=path.value, at=path.solution_at(0.3).value)
    distributed.destroy_process_group()
    print(f"process {rank} of {size} on {device}: done")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("processes", [1, 2])
def test_nccl_gives_the_answer_of_a_single_process(tmp_path, processes):
    from processes import torchrun

    with torchrun(__file__, tmp_path, processes):
        pass
    x, z = clouds()
    cost = aot.DistanceCost(x, z, reach=1.0)
    for name, keywords in PROBLEMS.items():
        alone, found = aot.solve(cost, **keywords), np.load(tmp_path / f"{name}.npz")
        # On a GPU, an ascent begins in lower precision; its own tolerance is what remains.
        close = 1e-10 if name == "exact" else 1e-6
        for field in ("value", "mass", "source_marginal", "target_marginal"):
            expected = getattr(alone.answers, field)
            np.testing.assert_allclose(found[field], expected, rtol=close, atol=close, err_msg=field)
        assert found["violation"] <= 1e-6
    path = aot.mass_path(cost)
    for rank in range(processes):
        found = np.load(tmp_path / f"path-{rank}.npz")
        np.testing.assert_allclose(found["value"], path.value_at(found["mass"]), rtol=0, atol=1e-10)
        assert found["at"] == pytest.approx(path.value_at(0.3), abs=1e-10)


if __name__ == "__main__":
    main(sys.argv[1])
