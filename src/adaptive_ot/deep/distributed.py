"""Several processes that share one batch. The results do not depend on their number.

Every process computes the loss of the whole gathered batch; then gradients are averaged over the processes, as
DistributedDataParallel does. The backward passes of `gather` and BatchNorm are such that this average equals the
gradient of a single process with the whole batch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import torch
from torch import distributed, nn
from torch.nn.modules.batchnorm import _BatchNorm

from adaptive_ot.errors import InvalidInput


def rank() -> int:
    """The number of this process, from 0."""
    return distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else 0


def world_size() -> int:
    """The number of processes."""
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def gather(tensor: torch.Tensor) -> torch.Tensor:
    """Rows of all processes, in the order of their ranks, with gradient; their numbers may differ.

    All processes must compute the same loss from them, so each has the same gradient of the gathered rows. It returns
    the gradient of its own rows times the number of processes, by which the average over processes divides again.
    Parameters applied to gathered rows have the whole gradient in every process, and the average does not change it.
    """
    return tensor if world_size() == 1 else _Gather.apply(tensor)


def with_global_batch_norm(module: nn.Module) -> nn.Module:
    """The module with every BatchNorm over the batch of all processes; unchanged in a single process.

    Parameters, buffers and their names stay. Unlike nn.SyncBatchNorm it runs on CPUs too.
    """
    if world_size() == 1:
        return module
    if isinstance(module, _BatchNorm):
        if type(module) in (nn.BatchNorm1d, nn.BatchNorm2d, GlobalBatchNorm):
            return GlobalBatchNorm(module)
        # Some layers of timm do more than BatchNorm: a replacement would drop the rest.
        given, remedy = type(module).__name__, "Choose another network, or train in one process."
        raise InvalidInput("network", "must have plain BatchNorm layers to train in several processes", given, remedy)
    for name, child in module.named_children():
        setattr(module, name, with_global_batch_norm(child))
    return module


class GlobalBatchNorm(_BatchNorm):
    """BatchNorm over the batch of all processes, whose numbers of rows may differ."""

    def __init__(self, local: _BatchNorm) -> None:
        super().__init__(local.num_features, local.eps, local.momentum, local.affine, local.track_running_stats)
        self._parameters, self._buffers, self.training = local._parameters, local._buffers, local.training

    def _check_input_dim(self, input: torch.Tensor) -> None:
        """Accept rows and images."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if not self.training and self.running_mean is not None:
            return super().forward(input)
        values = input.to(torch.promote_types(input.dtype, torch.float32))  # bfloat16 cannot hold a sum
        places = [0, *range(2, input.ndim)]
        channels = (1, -1, *[1] * (input.ndim - 2))
        count = values.new_full((1,), input.numel() / input.shape[1])
        sums = _SumOverRanks.apply(torch.cat([values.sum(places), count]))
        mean, total = sums[:-1] / sums[-1], sums[-1]
        # In a second round, around the mean: a difference of mean squares would cancel.
        centred = values - mean.view(channels)
        variance = _SumOverRanks.apply(centred.square().sum(places)) / total
        if self.training:
            self._track(mean.detach(), variance.detach() * total / (total - 1))
        scale = torch.rsqrt(variance + self.eps)
        if self.affine:
            result = torch.addcmul(self.bias.view(channels), centred, (self.weight * scale).view(channels))
        else:
            result = centred * scale.view(channels)
        return result.to(input.dtype)

    @torch.no_grad()
    def _track(self, mean: torch.Tensor, variance: torch.Tensor) -> None:
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked += 1
        share = 1 / self.num_batches_tracked if self.momentum is None else self.momentum
        self.running_mean += share * (mean - self.running_mean)
        self.running_var += share * (variance - self.running_var)


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        own = torch.tensor([len(tensor)], device=tensor.device)
        gathered = [torch.empty_like(own) for _ in range(world_size())]
        distributed.all_gather(gathered, own)
        counts = torch.cat(gathered).tolist()
        # Collectives need equal shapes: shorter tensors are padded, then cut.
        filled = tensor.new_zeros(max(counts), *tensor.shape[1:])
        filled[: len(tensor)] = tensor
        parts = [torch.empty_like(filled) for _ in counts]
        distributed.all_gather(parts, filled)
        start = sum(counts[: rank()])
        ctx.own = slice(start, start + len(tensor))
        return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0][ctx.own] * world_size()


class _SumOverRanks(torch.autograd.Function):
    """Every process uses the sum differently, so the gradients are summed as well."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        result = tensor.clone(memory_format=torch.contiguous_format)
        distributed.all_reduce(result)
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return _SumOverRanks.forward(ctx, gradients[0])


def average_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Average the gradients of parameters outside the module of DistributedDataParallel."""
    if world_size() > 1:
        for parameter in parameters:
            if parameter.grad is not None:
                distributed.all_reduce(parameter.grad)
                parameter.grad /= world_size()


def any_process(here: bool) -> bool:
    """Whether it is true in any process; also a barrier."""
    if world_size() == 1:
        return here
    anywhere = torch.tensor(int(here))
    distributed.all_reduce(anywhere, distributed.ReduceOp.MAX)
    return bool(anywhere)


def of_all_processes(values: list[Any]) -> list[Any]:
    """The JSON values of every process, in the order of their ranks; all processes must call it."""
    if world_size() == 1:
        return values
    line = json.dumps(values).encode() + b"\n"
    gathered = gather(torch.tensor(list(line), dtype=torch.uint8))
    return [each for line in bytes(gathered.tolist()).splitlines() for each in json.loads(line)]
