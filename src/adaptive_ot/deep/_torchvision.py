"""The only file that imports torchvision, which does not load beside another build of torch than its own."""

from __future__ import annotations

import torch

try:
    from torchvision import models
except RuntimeError as error:
    if "torchvision::nms" not in str(error):
        raise
    # Its compiled operators did not load, and it describes them all the same. We need none: a declaration will do.
    _declarations = torch.library.Library("torchvision", "FRAGMENT")
    _declarations.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _declarations.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    from torchvision import models

__all__ = ["models"]
