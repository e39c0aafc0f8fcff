"""Swin Transformer V2, from timm."""

import math
from typing import ClassVar

import torch
import torch.nn.functional as F
from timm.models.swin_transformer_v2 import SwinTransformerV2, WindowAttention
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

    Attributes:
        fused_attention: build networks with `FusedWindowAttention`; equal to rounding. False until it is measured on a
            GPU (`scripts.benchmarks.train`).
    """

    version = 1
    base_width: ClassVar[int] = 40
    base_depth: ClassVar[int] = 2
    title: ClassVar[str] = "Swin V2"
    fused_attention: ClassVar[bool] = False

    def build(self, width: int) -> nn.Module:
        if width % _HEAD:
            raise ValueError(f"model.width={width}: Swin V2 needs a multiple of {_HEAD}, the size of its heads")
        channels, *sides = self.input_shape
        height, across = (side + side % _PATCH for side in sides)
        heads = width // _HEAD
        network = SwinTransformerV2(
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
        if self.fused_attention:
            for module in network.modules():
                if isinstance(module, WindowAttention):
                    module.__class__ = FusedWindowAttention  # same parameters and buffers
        return network

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


class FusedWindowAttention(WindowAttention):
    """Cosine attention by `scaled_dot_product_attention`, without dropout.

    The similarity of q and k is the inner product of q / |q| and k / |k|, times the logit scale. The position bias and
    the mask of shifted windows are added to it as one mask. Fused kernels want heads of a multiple of 8 channels, so
    zeros fill them up.
    """

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attend within windows.

        Args:
            x: tokens [images · windows, N, C].
            mask: mask of shifted windows, [windows, N, N].
        """
        batch, n, channels = x.shape
        assert self.q_bias is not None
        assert self.k_bias is not None
        assert self.v_bias is not None
        qkv = F.linear(x, self.qkv.weight, torch.cat((self.q_bias, self.k_bias, self.v_bias)))
        q, k, v = qkv.view(batch, n, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        q = F.normalize(q, dim=-1) * self.logit_scale.clamp(max=math.log(100)).exp()
        bias = 16 * self.cpb_mlp(self.relative_coords_table).view(-1, self.num_heads).sigmoid()
        bias = bias[self.relative_position_index].permute(2, 0, 1)[None]  # [1, heads, N, N]
        if mask is not None:
            bias = bias + mask[:, None]
        bias = bias.to(v.dtype).reshape(1, -1, n, n)  # of the heads of all windows of an image; images share it
        size = v.shape[-1]
        q, k, v = (
            F.pad(part.to(v.dtype), (0, -size % 8)).reshape(-1, bias.shape[1], n, size + -size % 8)
            for part in (q, F.normalize(k, dim=-1), v)
        )
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=1.0)[..., :size]
        return self.proj(attended.reshape(batch, self.num_heads, n, size).transpose(1, 2).reshape(batch, n, channels))
