"""A network and a method in training: a single step, and the state to continue from."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from adaptive_ot.deep.checkpoint import Checkpoint
from adaptive_ot.deep.config import Config, method_named
from adaptive_ot.deep.device import full_precision, memory_format
from adaptive_ot.deep.distributed import average_gradients, gather, with_global_batch_norm, world_size
from adaptive_ot.deep.fields import filled_in
from adaptive_ot.deep.graphs import Graphed
from adaptive_ot.deep.methods import Alignment, Method, Pair
from adaptive_ot.deep.networks import BACKBONES, Network, build_network

# Stream of random numbers: neither that of batches nor that of views.
STEPS = 32


class ImageBatch(NamedTuple):
    """Augmented images of one domain, those of this process; labels and identities are of the whole batch."""

    images: torch.Tensor
    labels: torch.Tensor
    identities: torch.Tensor  # the places of the images in their domain; of a bad one, not that of its replacement


class Training:
    """A network and a method with `classes` classes, trained by one optimiser."""

    def __init__(self, config: Config, classes: int, device: torch.device) -> None:
        self.config = config
        network = build_network(
            config.network, classes, bottleneck=config.bottleneck, weights=config.weights, seed=config.seed
        )
        with_global_batch_norm(network)
        self.network = network.to(device)
        self.network.to(memory_format=memory_format(device))  # pyright: ignore[reportCallIssue]
        self.method = new_method(config, classes).to(device)
        self.method.begin(self.network)
        self.optimiser = torch.optim.SGD(
            [
                {"params": list(network.backbone.parameters()), "factor": 1.0},
                {"params": list(network.head_parameters()), "factor": config.head_factor},
                {"params": self._method_parameters(), "factor": config.head_factor},
            ],
            lr=config.learning_rate,
            momentum=config.momentum,
            weight_decay=config.weight_decay,
            nesterov=config.momentum > 0,
            fused=device.type == "cuda",
        )
        self._passes = self._prepared(_Passes(self.network, joint=config.passes == "joint"), device)
        self.network.train()
        self.method.train()

    def learn(self, step: int, source: ImageBatch, target: ImageBatch | None) -> Alignment:
        """One step, with random numbers that depend on the seed and `step` only; the whole loss and its terms."""
        seeds = np.random.SeedSequence([self.config.seed, STEPS, step])
        torch.manual_seed(int(seeds.generate_state(1, np.uint64)[0]))
        for group in self.optimiser.param_groups:
            group["lr"] = group["factor"] * self.learning_rate(step)
        outputs = self._passes(*(batch.images for batch in (source, target) if batch))
        source_features, source_logits, *rest = map(gather, outputs)
        target_features, target_logits = rest or (source_features[:0].detach(), source_logits[:0].detach())
        pair = Pair(
            source_features,
            source_logits,
            source.labels,
            target_features,
            target_logits,
            source.images,
            target.images if target else source.images[:0],
            target.identities if target else source.identities[:0],
            progress=step / self.config.iterations,
            gather=gather,
        )
        with full_precision(source.images.device):
            source_loss = cross_entropy(source_logits, source.labels)
            alignment = self.method.alignment(pair)
        loss = source_loss + alignment.loss
        self.optimiser.zero_grad()
        loss.backward()
        average_gradients(self._method_parameters())
        self.optimiser.step()
        self.method.after_step(self.network)
        return Alignment(loss.detach(), {"cross_entropy": source_loss.detach(), **alignment.terms}, alignment.plan)

    def learning_rate(self, step: int) -> float:
        """The learning rate of the backbone."""
        config = self.config
        return config.learning_rate * (1 + config.learning_rate_decay * step) ** -config.learning_rate_power

    def tensors(self) -> dict[str, torch.Tensor]:
        """Everything that changes from step to step."""
        kept = {f"network.{name}": tensor for name, tensor in self.network.state_dict().items()}
        kept |= {f"method.{name}": tensor for name, tensor in self.method.state_dict().items()}
        for number, parameter in enumerate(self._parameters()):
            momentum = self.optimiser.state[parameter].get("momentum_buffer")
            if momentum is not None:
                kept[f"momentum.{number}"] = momentum
        return kept

    def restore(self, checkpoint: Checkpoint) -> None:
        """Continue from the `tensors` of a checkpoint."""
        self.network.load_state_dict(checkpoint.part("network."))
        self.method.load_state_dict(checkpoint.part("method."))
        parameters = self._parameters()
        for number, momentum in checkpoint.part("momentum.").items():
            parameter = parameters[int(number)]
            self.optimiser.state[parameter]["momentum_buffer"] = torch.empty_like(parameter).copy_(momentum)

    def _prepared(self, passes: nn.Module, device: torch.device) -> Callable[..., tuple[torch.Tensor, ...]]:
        """The passes, over all processes or as a CUDA graph; networks of timm may do things that no graph can hold."""
        if world_size() > 1:
            passes = DistributedDataParallel(passes)
        if self.config.compile:
            return torch.compile(passes, dynamic=False)
        if device.type == "cuda" and world_size() == 1 and self.config.network in BACKBONES:
            return Graphed(passes)
        return passes

    def _method_parameters(self) -> list[nn.Parameter]:
        return [parameter for parameter in self.method.parameters() if parameter.requires_grad]

    def _parameters(self) -> list[nn.Parameter]:
        return [parameter for group in self.optimiser.param_groups for parameter in group["params"]]


def new_method(config: Config, classes: int) -> Method:
    """The method of a run before the first step."""
    kind = method_named(config.method)
    settings = filled_in(kind.defaults(), config.settings, f"setting of method '{config.method}'")
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(config.seed)
        return kind(settings, config.bottleneck, classes)


class _Passes(nn.Module):
    """Both domains through the network: each with BatchNorm statistics of its own, or joint in one batch."""

    def __init__(self, network: Network, *, joint: bool) -> None:
        super().__init__()
        self.network, self.joint = network, joint

    def forward(self, source: torch.Tensor, target: torch.Tensor | None = None) -> tuple[torch.Tensor, ...]:
        if target is None:
            return self.network(source)
        if not self.joint:
            return *self.network(source), *self.network(target)
        features, logits = self.network(torch.cat([source, target]))
        count = len(source)
        return features[:count], logits[:count], features[count:], logits[count:]
