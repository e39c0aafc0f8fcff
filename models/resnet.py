"""The residual network for small images of He et al. 2016, with a normalisation that acts on single examples."""

import itertools
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.mup_classifier import MupClassifier
from models.stackable_layers import Conv2d, GroupNorm, Linear

_GROUPS = 8  # of channels that are normalised together


class ResNet(MupClassifier):
    """A 3×3 convolution, three stages of `depth` residual blocks, the mean over positions, and a readout of zeros.

    He et al. 2016, "Deep residual learning for image recognition", section 4.2: w, 2w and 4w channels (w = `width`, 16
    in the paper), two 3×3 convolutions per block, the sides halved where channels double, shortcuts without parameters:
    6 `depth` + 2 layers, 20 of them at depth 3. The paper normalises over the batch. Here each image is normalised by
    itself, in 8 groups of channels (Wu & He 2018, "Group normalization"). Each output thus depends on one example and
    has its own gradient, and members of a stack do not mix. Convolutions have biases here. Vectors are refused.

    Raises:
        ValueError: a width that is no multiple of 8, a depth below 1, an image side below 4.
    """

    version = 1
    stackable: ClassVar[bool] = True
    base_width: ClassVar[int] = 16
    base_depth: ClassVar[int] = 3
    title: ClassVar[str] = "a residual network"
    smallest_side: ClassVar[int | None] = 4
    stem: "Normalised"
    blocks: nn.ModuleList

    def layers(self, width: int) -> dict[str, nn.Module]:
        if width % _GROUPS:
            raise ValueError(f"model.width={width}: a residual network needs a multiple of {_GROUPS}")
        channels = [width, *(stage * width for stage in (1, 2, 4) for _ in range(self.depth))]
        return {
            "stem": Normalised(self.input_shape[0], width),
            "blocks": nn.ModuleList(Block(before, after) for before, after in itertools.pairwise(channels)),
            "readout": Linear(4 * width, self.num_classes),
        }

    def reset_parameters(self, generator: torch.Generator) -> None:
        super().reset_parameters(generator)
        for layer in self.modules():
            if isinstance(layer, GroupNorm):
                layer.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.stem(x))
        for block in self.blocks:
            h = block(h)
        return self.readout(h.mean((-2, -1)) * self.readout_multiplier)


class Normalised(nn.Module):
    """A 3×3 convolution that keeps the size, or halves it, and its normalisation."""

    def __init__(self, in_channels: int, out_channels: int, stride: int = 1) -> None:
        super().__init__()
        self.convolution = Conv2d(in_channels, out_channels, 3, stride=stride)
        self.norm = GroupNorm(_GROUPS, out_channels)

    def forward(self, x: Tensor) -> Tensor:
        """Map images as `Conv2d` does, and normalise."""
        return self.norm(self.convolution(x))


class Block(nn.Module):
    """relu(x + f(x)) with f two normalised convolutions; where channels double, x is subsampled and zero-padded."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.new_channels, self.stride = out_channels - in_channels, 1 if in_channels == out_channels else 2
        self.first = Normalised(in_channels, out_channels, self.stride)
        self.second = Normalised(out_channels, out_channels)

    def forward(self, x: Tensor) -> Tensor:
        """Map images [..., in, H, W] to [..., out, h, w]."""
        shortcut = F.pad(x[..., :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.new_channels))
        return F.relu(shortcut + self.second(F.relu(self.first(x))))
