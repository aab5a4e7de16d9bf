"""The only file that imports torchvision, which does not load beside another build of torch than its own."""

from __future__ import annotations

import torch

try:
    from torchvision import models
except RuntimeError as error:
    if "torchvision::nms" not in str(error):
        raise
    # Its compiled operators did not load, but it describes them. We use none, so declarations are enough.
    _declarations = torch.library.Library("torchvision", "FRAGMENT")
    _declarations.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _declarations.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    from torchvision import models
from torchvision.transforms.functional import center_crop, ten_crop

__all__ = ["center_crop", "models", "ten_crop"]
