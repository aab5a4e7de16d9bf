"""The passes of a step as one CUDA graph.

A step of a ResNet-50 has some thousand kernels, most of them short: launching them one by one takes the host longer
than the GPU takes to run them. A graph launches all of them at once, with the same results; in bf16 with those of
`torch.autocast(..., cache_enabled=False)`, where the gradients of both passes are added in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


class Graphed:
    """A module in training, on a GPU, whose inputs always have the same shapes; captured at the first call."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._replay: Callable[..., Any] | None = None

    def __call__(self, *inputs: torch.Tensor) -> Any:
        # A graph outlives the casts of weights that autocast caches for the length of a context.
        kind, enabled = torch.get_autocast_dtype("cuda"), torch.is_autocast_enabled("cuda")
        with torch.autocast("cuda", kind, enabled=enabled, cache_enabled=False):
            if self._replay is None:
                self._replay = self._captured(inputs)
            return self._replay(*inputs)

    def _captured(self, inputs: tuple[torch.Tensor, ...]) -> Callable[..., Any]:
        """Capturing runs the module several times; its effect on the statistics of BatchNorm is undone."""
        # Gradients are captured on one stream and accumulated on another, of which newer releases of torch warn.
        warn = getattr(torch.autograd.graph, "set_warn_on_accumulate_grad_stream_mismatch", None)
        if warn:
            warn(False)
        before = [buffer.clone() for buffer in self._module.buffers()]
        replay: Any = torch.cuda.make_graphed_callables(self._module, tuple(each.clone() for each in inputs))
        for buffer, value in zip(self._module.buffers(), before, strict=True):
            buffer.copy_(value)
        return replay
