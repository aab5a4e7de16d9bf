"""The passes of a step as one CUDA graph.

A ResNet-50 is some thousand kernels a step, most of them short: to launch them one by one takes the host longer than
they take the GPU. A graph launches them all at once, with the same kernels and the same numbers; in bf16, with those of
`torch.autocast(..., cache_enabled=False)`, where what both passes ask of a weight adds up in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


class Graphed:
    """A module in training that is always given tensors of the same shapes, captured when it is first called.

    Parameters
    ----------
    module
        From tensors to tensors, on a GPU.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._replay: Callable[..., Any] | None = None

    def __call__(self, *inputs: torch.Tensor) -> Any:
        # A graph outlives the casts of weights that autocast would keep for the length of a context.
        with _without_cached_casts():
            if self._replay is None:
                self._replay = self._captured(inputs)
            return self._replay(*inputs)

    def _captured(self, inputs: tuple[torch.Tensor, ...]) -> Callable[..., Any]:
        """Capturing computes the module several times: what that does to the statistics of BatchNorm is undone."""
        _let_gradients_change_streams()
        before = [buffer.clone() for buffer in self._module.buffers()]
        replay: Any = torch.cuda.make_graphed_callables(self._module, tuple(each.clone() for each in inputs))
        for buffer, value in zip(self._module.buffers(), before, strict=True):
            buffer.copy_(value)
        return replay


def _without_cached_casts() -> Any:
    kind = torch.get_autocast_dtype("cuda")
    return torch.autocast("cuda", kind, enabled=torch.is_autocast_enabled("cuda"), cache_enabled=False)


def _let_gradients_change_streams() -> None:
    """They are captured on one stream and added up on another: wanted here, and newer releases of torch warn of it."""
    warn = getattr(torch.autograd.graph, "set_warn_on_accumulate_grad_stream_mismatch", None)
    if warn:
        warn(False)
