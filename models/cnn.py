"""The four-layer convolutional network of Harutyunyan et al. 2021."""

import math
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from models.mup_classifier import MupClassifier
from models.stackable_layers import Conv2d, Linear

_SMALLEST_SIDE = 20  # at which the last convolution still has one position


class CNN(MupClassifier):
    """Four convolutions, then `depth` fully connected hidden layers, all with ReLU, and a readout that starts at zero.

    Harutyunyan et al. 2021, "Estimating informativeness of samples with smooth unique information", appendix A.3:
    4×4 kernels with stride 2 and padding 1, twice; 3×3 kernels without padding, twice; w, w, 2w and 8w channels
    (w = `width`, 32 in the paper), then 8w units. Smaller images are padded with zeros to 20×20.
    Vectors are refused.
    """

    version = 1
    stackable: ClassVar[bool] = True
    base_width: ClassVar[int] = 32
    base_depth: ClassVar[int] = 1
    title: ClassVar[str] = "a CNN"
    smallest_side: ClassVar[int | None] = 1
    convolutions: nn.ModuleList
    hidden: nn.ModuleList

    def layers(self, width: int) -> dict[str, nn.Module]:
        channels, *sides = self.input_shape
        convolutions = [
            Conv2d(channels, width, 4, stride=2, padding=1),
            Conv2d(width, width, 4, stride=2, padding=1),
            Conv2d(width, 2 * width, 3, padding=0),
            Conv2d(2 * width, 8 * width, 3, padding=0),
        ]
        positions = math.prod(max(side, _SMALLEST_SIDE) // 4 - 4 for side in sides)
        fan_ins = [8 * width * positions] + [8 * width] * (self.depth - 1)
        return {
            "convolutions": nn.ModuleList(convolutions),
            "hidden": nn.ModuleList(Linear(fan_in, 8 * width) for fan_in in fan_ins),
            "readout": Linear(8 * width, self.num_classes),
        }

    def forward(self, x: Tensor) -> Tensor:
        rows, columns = (max(0, _SMALLEST_SIDE - side) for side in x.shape[-2:])
        h = F.pad(x, (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2))
        for layer in self.convolutions:
            h = F.relu(layer(h))
        h = h.flatten(-3)
        for layer in self.hidden:
            h = F.relu(layer(h))
        return self.readout(h * self.readout_multiplier)
