"""Two processes that share a batch compute what one does. This file is also what torchrun starts."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("adaptive_ot.deep", exc_type=ImportError)

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from adaptive_ot._group import process_group
from adaptive_ot.deep import distributed
from adaptive_ot.deep.distributed import gather, rank, with_global_batch_norm, world_size
from adaptive_ot.deep.networks import build_network
from adaptive_ot.errors import InvalidInput
from processes import torchrun

PROCESSES = 2
STEPS = 5
BATCH = 15  # 8 of one process, 7 of the other


def own_rows(batch):
    """The share of this process."""
    return torch.tensor_split(batch, world_size())[rank()]


def train(dtype):
    """Two passes a step through a network, a loss over all pairs, and a layer that meets gathered features only."""
    network = with_global_batch_norm(build_network("convnet", 3, bottleneck=8, seed=1)).to(dtype)
    late = nn.Linear(8, 1).to(dtype)
    nn.init.constant_(late.weight, 0.1)
    nn.init.zeros_(late.bias)
    modules = [network, late]
    if world_size() > 1:
        modules = [DistributedDataParallel(each, broadcast_buffers=False) for each in modules]
    parameters = [parameter for each in modules for parameter in each.parameters()]
    optimiser = torch.optim.SGD(parameters, lr=0.001, momentum=0.9, nesterov=True)
    generator = torch.Generator().manual_seed(0)
    losses, steps = [], torch.rand(STEPS, 2, BATCH, 3, 16, 16, generator=generator).to(dtype)
    for images in steps:
        labels = torch.randint(3, (BATCH,), generator=generator)
        (source, scores), (target, guesses) = ((gather(y) for y in modules[0](own_rows(batch))) for batch in images)
        pairs = torch.cdist(source, target).square().mean() + (scores.softmax(1) @ guesses.softmax(1).T).square().sum()
        loss = cross_entropy(scores, labels) + 0.01 * pairs + modules[1](target).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.detach())
    with torch.no_grad():
        features, _ = network.eval()(steps[0, 0])
    state = {f"network.{key}": value for key, value in network.state_dict().items()} | late.state_dict()
    return state | {"losses": torch.stack(losses), "features": features}


def gathered():
    rows = torch.arange(3 * BATCH).view(BATCH, 3)
    return {"rows": gather(own_rows(rows)), "few": gather(own_rows(rows[:1])), "rank": torch.tensor([rank()])}


def main(folder):
    with process_group():
        results = {"float32": train(torch.float32), "float64": train(torch.float64), "gathered": gathered()}
        for name, tensors in results.items():
            save_file(tensors, Path(folder, f"{name}-{rank()}.safetensors"))
    assert world_size() == 1


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1])


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """What each of two processes computed."""
    folder = tmp_path_factory.mktemp("together")
    with torchrun(__file__, folder, PROCESSES):
        pass
    return lambda name: [load_file(folder / f"{name}-{k}.safetensors") for k in range(PROCESSES)]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)], ids=str)
def test_two_processes_train_as_one(together, dtype, tolerance):
    alone = train(dtype)
    first, second = together(str(dtype).removeprefix("torch."))
    assert first.keys() == alone.keys()
    for key, expected in alone.items():
        torch.testing.assert_close(
            first[key], expected, rtol=tolerance, atol=tolerance, msg=lambda m, k=key: f"{k}: {m}"
        )
        assert torch.equal(first[key], second[key]), key


def test_training_moved_what_is_compared(together):
    start = build_network("convnet", 3, bottleneck=8, seed=1).state_dict()
    for key, value in together("float32")[0].items():
        before = start.get(key.removeprefix("network."))
        assert before is None or not torch.allclose(value, before.to(value.dtype), rtol=1e-3, atol=1e-4), key


def test_gather_keeps_the_order_whatever_the_shares(together):
    rows = torch.arange(3 * BATCH).view(BATCH, 3)
    for number, process in enumerate(together("gathered")):
        assert torch.equal(process["rows"], rows)
        assert torch.equal(process["few"], rows[:1])  # the second process had none
        assert process["rank"].item() == number


def test_one_process_is_left_alone(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    layer, rows = nn.BatchNorm1d(2), torch.rand(3, 2)
    with process_group():
        assert (rank(), world_size()) == (0, 1)
        assert gather(rows) is rows
        assert with_global_batch_norm(layer) is layer
        assert type(layer) is nn.BatchNorm1d


def test_half_an_environment_is_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(InvalidInput, match=r"MASTER_ADDR.*torchrun"), process_group():
        pass


@pytest.fixture
def batch_norm_over_one(monkeypatch):
    """GlobalBatchNorm of a process whose peers have no rows."""
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda tensor: None)
    return with_global_batch_norm


@pytest.mark.parametrize(
    "settings", [{}, {"affine": False}, {"momentum": None}, {"track_running_stats": False}, {"eps": 0.1}], ids=str
)
@pytest.mark.parametrize("training", [True, False])
def test_it_is_the_batch_norm_of_torch(batch_norm_over_one, settings, training):
    plain = nn.BatchNorm2d(4, **settings, dtype=torch.float64).train(training)
    ours = batch_norm_over_one(nn.BatchNorm2d(4, **settings, dtype=torch.float64)).train(training)
    for seed in range(2):
        x = 3 + 2 * torch.randn(5, 4, 3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        x, y = x.clone().requires_grad_(), x.clone().requires_grad_()
        a, b = plain(x), ours(y)
        (a**3).sum().backward()
        (b**3).sum().backward()
        torch.testing.assert_close(b, a)
        torch.testing.assert_close(y.grad, x.grad)
    torch.testing.assert_close(ours.state_dict(), plain.state_dict())


def test_it_counts_in_full_precision(batch_norm_over_one):
    x = (100 + torch.randn(4096, 2, generator=torch.Generator().manual_seed(0))).bfloat16()
    ours, plain = batch_norm_over_one(nn.BatchNorm1d(2)), nn.BatchNorm1d(2)
    y, expected = ours(x), plain(x.float())
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.float(), expected, atol=0.01, rtol=0.01)
    torch.testing.assert_close(ours.running_mean, plain.running_mean)


def test_it_takes_its_place_once(batch_norm_over_one):
    network = batch_norm_over_one(nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.BatchNorm1d(2))).eval())
    assert isinstance(network[1][0], distributed.GlobalBatchNorm)
    assert not network[1][0].training
    assert [*network.state_dict()] == [*nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.BatchNorm1d(2))).state_dict()]
    assert isinstance(batch_norm_over_one(network)[1][0], distributed.GlobalBatchNorm)


def test_layers_that_do_more_are_refused(batch_norm_over_one):
    class WithReLU(nn.BatchNorm2d):
        def forward(self, input):
            return super().forward(input).relu()

    with pytest.raises(InvalidInput, match=r"plain BatchNorm.*WithReLU"):
        batch_norm_over_one(nn.Sequential(WithReLU(2)))
