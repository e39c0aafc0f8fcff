"""ConvNeXt V2, from timm."""

from typing import ClassVar

from timm.layers.mlp import GlobalResponseNormMlp
from timm.models.convnext import ConvNeXt, ConvNeXtBlock
from torch import nn

from models.convnext_layers import DepthwiseConv2d, FastGlobalResponseNorm
from models.mup import Parametrization
from models.timm_classifier import TimmClassifier


class ConvNeXtV2(TimmClassifier):
    """Four stages of residual blocks with 7×7 depthwise convolutions and global response normalisation.

    Woo et al. 2023, at the size of Quirke & Belrose 2025, appendix B: dimensions (w, 2w, 4w, 8w) and
    (d, d, 3d, d) blocks, on every pixel (patch size 1).

    Args:
        input_shape: (C, H, W), sides of at least 8.
        num_classes: k.
        width: channels of the first stage.
        depth: blocks in the first stage.
        drop_path: stochastic depth, the last block's rate; rates rise linearly from zero.
        parametrization: "mup" keeps the best learning rate where it is at the base width, "standard" does not.

    Raises:
        ValueError: an option out of range, or an image too small.
    """

    version = 1
    base_width: ClassVar[int] = 40
    base_depth: ClassVar[int] = 2
    title: ClassVar[str] = "ConvNeXt V2"

    def __init__(
        self,
        input_shape: tuple[int, int, int],
        num_classes: int,
        *,
        width: int,
        depth: int,
        drop_path: float,
        parametrization: Parametrization,
    ) -> None:
        super().__init__(
            input_shape, num_classes, width=width, depth=depth, drop_path=drop_path, parametrization=parametrization
        )

    @staticmethod
    def build(input_shape: tuple[int, int, int], width: int, depth: int, drop_path: float) -> nn.Module:
        network = ConvNeXt(
            in_chans=input_shape[0],
            num_classes=0,
            patch_size=1,
            dims=(width, 2 * width, 4 * width, 8 * width),
            depths=(depth, depth, 3 * depth, depth),
            use_grn=True,
            ls_init_value=None,
            drop_path_rate=drop_path,
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
