"""Swin Transformer V2, from timm."""

import math
from typing import ClassVar

import torch.nn.functional as F
from timm.models.swin_transformer_v2 import SwinTransformerV2
from torch import Tensor, nn

from models.timm_classifier import TimmClassifier

_HEAD = 20  # channels of an attention head: the number of heads grows with width, their size does not
_WINDOW = 8
_PATCH = 2


class SwinV2(TimmClassifier):
    """Four stages of transformer blocks with attention within shifted windows of 8×8 patches.

    Liu et al. 2022, at the size of Quirke & Belrose 2025, appendix B: w, 2w, 4w, 8w channels in heads of 20,
    (d, d, 3d, d) blocks, w = `width`, a multiple of 20, and d = `depth`; patches of 2×2 pixels. Images of odd sides
    get a row or column of zeros.
    """

    version = 1
    base_width: ClassVar[int] = 40
    base_depth: ClassVar[int] = 2
    title: ClassVar[str] = "Swin V2"

    def build(self, width: int) -> nn.Module:
        if width % _HEAD:
            raise ValueError(f"model.width={width}: Swin V2 needs a multiple of {_HEAD}, the size of its heads")
        channels, *sides = self.input_shape
        height, across = (side + side % _PATCH for side in sides)
        heads = width // _HEAD
        return SwinTransformerV2(
            img_size=(height, across),
            patch_size=_PATCH,
            in_chans=channels,
            num_classes=0,
            embed_dim=width,
            depths=self.blocks,
            num_heads=(heads, 2 * heads, 4 * heads, 8 * heads),
            window_size=_WINDOW,
            drop_path_rate=self.drop_path,
        )

    @staticmethod
    def side_at(side: int, stage: int) -> int:
        return math.ceil(side / (_PATCH * 2**stage))

    def base_std(self, name: str, weight: Tensor) -> float:
        if name.startswith("network.patch_embed"):
            return (3 * weight[0].numel()) ** -0.5  # PyTorch's, which timm leaves there
        return super().base_std(name, weight)

    def forward(self, x: Tensor) -> Tensor:
        height, across = x.shape[-2:]
        return super().forward(F.pad(x, (0, across % _PATCH, 0, height % _PATCH)))
