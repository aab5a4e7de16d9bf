"""The passes of a step as one CUDA graph give what they give one by one."""

from __future__ import annotations

from copy import deepcopy

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from adaptive_ot.deep.graphs import Graphed  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


class Both(nn.Module):
    """One network, twice."""

    def __init__(self) -> None:
        super().__init__()
        layers = nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        self.network = nn.Sequential(*layers, nn.Linear(16, 4))

    def forward(self, source, target):
        return self.network(source), self.network(target)


@pytest.mark.parametrize("half", [False, True])
def test_three_steps_are_the_same_to_the_last_bit(half, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)  # as in training
    torch.manual_seed(0)
    one_by_one = Both().cuda()
    at_once = deepcopy(one_by_one)
    graphed = Graphed(at_once)
    for step in range(3):
        images = torch.randn(2, 8, 3, 16, 16, device="cuda")
        for module, passes in ((one_by_one, one_by_one), (at_once, graphed)):
            optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
            optimiser.zero_grad()
            with torch.autocast("cuda", torch.bfloat16, enabled=half, cache_enabled=False):
                source, target = passes(images[0], images[1])
            # Not target.sum(): its gradient is one number, repeated, which cuBLAS multiplies in another order.
            (source.float().square().mean() + target.float().square().sum()).backward()
            optimiser.step()
        expected, found = one_by_one.state_dict(), at_once.state_dict()
        assert all(torch.equal(expected[name], found[name]) for name in expected), step
        assert int(found["network.1.num_batches_tracked"]) == 2 * (step + 1)
