"""ConvNeXt V2, from timm, with two layers that compute the same faster on small images."""

from typing import ClassVar

import torch
import torch.nn.functional as F
from timm.layers.grn import GlobalResponseNorm
from timm.layers.mlp import GlobalResponseNormMlp
from timm.models.convnext import ConvNeXt, ConvNeXtBlock
from torch import Tensor, nn

from models.timm_classifier import TimmClassifier


class ConvNeXtV2(TimmClassifier):
    """Four stages of residual blocks with 7×7 depthwise convolutions and global response normalisation.

    Woo et al. 2023, at the size of Quirke & Belrose 2025, appendix B: dimensions (w, 2w, 4w, 8w) and
    (d, d, 3d, d) blocks, w = `width` and d = `depth`, on every pixel (patch size 1).

    Attributes:
        channels_last: keep activations in the channels-last memory format, in which blocks need no transposition.
            Results are equal up to rounding. Do not use it with `torch.func.vmap`. False until it is measured on a GPU
            (`scripts.benchmarks.train`).
    """

    version = 2  # under bfloat16 both layers below give bfloat16
    base_width: ClassVar[int] = 40
    base_depth: ClassVar[int] = 2
    title: ClassVar[str] = "ConvNeXt V2"
    channels_last: ClassVar[bool] = False

    def build(self, width: int) -> nn.Module:
        network = ConvNeXt(
            in_chans=self.input_shape[0],
            num_classes=0,
            patch_size=1,
            dims=(width, 2 * width, 4 * width, 8 * width),
            depths=self.blocks,
            use_grn=True,
            ls_init_value=None,
            drop_path_rate=self.drop_path,
        )
        for block in [module for module in network.modules() if isinstance(module, ConvNeXtBlock)]:
            assert isinstance(block.mlp, GlobalResponseNormMlp)
            channels, _, kernel, _ = block.get_parameter("conv_dw.weight").shape
            block.conv_dw = DepthwiseConv2d(channels, kernel)
            block.mlp.grn = FastGlobalResponseNorm(len(block.mlp.grn.weight))
        return network

    @staticmethod
    def side_at(side: int, stage: int) -> int:
        return side >> stage

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.contiguous(memory_format=torch.channels_last) if self.channels_last else x)


class DepthwiseConv2d(nn.Conv2d):
    """Depthwise convolution without the taps of an odd k×k kernel that would see only padding.

    On 8×8 images the last stages work on 2×2 and 1×1 points, where 40 and 48 of 49 taps see zeros.
    """

    def __init__(self, channels: int, kernel_size: int) -> None:
        super().__init__(channels, channels, kernel_size, padding=kernel_size // 2, groups=channels)

    def forward(self, input: Tensor) -> Tensor:
        half = self.kernel_size[0] // 2
        rows, columns = (min(half, side - 1) for side in input.shape[-2:])
        weight = self.weight[..., half - rows : half + rows + 1, half - columns : half + columns + 1]
        if rows == columns == 0:
            assert self.bias is not None
            return input * weight[:, 0].to(input.dtype) + self.bias.view(-1, 1, 1).to(input.dtype)
        return F.conv2d(input, weight, self.bias, padding=(rows, columns), groups=self.groups)


class FastGlobalResponseNorm(GlobalResponseNorm):
    """x + bias + weight · x · N (Woo et al. 2023).

    N is a channel's norm over positions, divided by the mean norm of the channels.

    Sums of squares take a fifth of the time of `torch.linalg.vector_norm` over these dimensions. One factor per channel
    takes one pass over the activations instead of the three of the formula above.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Normalise [B, H, W, C]."""
        wide = x.float()
        squares = (wide * wide).sum((1, 2), keepdim=True)
        norm = squares.clamp_min(1e-30).sqrt()  # the root's derivative is infinite at 0
        relative = norm / (norm.mean(-1, keepdim=True) + self.eps)
        return x * (1 + self.weight * relative).to(x.dtype) + self.bias.to(x.dtype)
