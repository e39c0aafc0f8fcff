"""The four-layer convolutional network of Harutyunyan et al. 2021."""

import math
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.classifier import require_images
from models.layers import Conv2d, Linear
from models.mup import Parametrization
from models.scaled import ScaledClassifier, require_size

_RELU_GAIN = math.sqrt(2.0)
_SMALLEST_SIDE = 20  # at which the last convolution still has one position


class CNN(ScaledClassifier):
    """Four convolutions, then `depth` fully connected hidden layers, all with ReLU, and a readout that starts at zero.

    Harutyunyan et al. 2021, "Estimating informativeness of samples with smooth unique information", appendix A.3:
    4×4 kernels with stride 2 and padding 1, twice; 3×3 kernels without padding, twice; w, w, 2w and 8w channels,
    then 8w units (w = 32). Images of sides below 20 get zeros around them up to that.

    Args:
        input_shape: (C, H, W).
        num_classes: k.
        width: channels w of the first convolution.
        depth: fully connected hidden layers.
        parametrization: "mup" keeps the best learning rate where it is at the base width, "standard" does not.

    Raises:
        ValueError: width or depth below 1, or vectors instead of images.
    """

    version = 1
    stackable: ClassVar[bool] = True
    base_width: ClassVar[int] = 32
    base_depth: ClassVar[int] = 1

    def __init__(
        self,
        input_shape: tuple[int, int, int],
        num_classes: int,
        *,
        width: int,
        depth: int,
        parametrization: Parametrization,
    ) -> None:
        super().__init__()
        require_size("a CNN", width=width, depth=depth)
        require_images(input_shape, "a CNN", 1)
        channels, *sides = input_shape
        self._missing = [max(0, _SMALLEST_SIDE - side) for side in sides]
        self.convolutions = nn.ModuleList(
            [
                Conv2d(channels, width, 4, stride=2, padding=1),
                Conv2d(width, width, 4, stride=2, padding=1),
                Conv2d(width, 2 * width, 3, padding=0),
                Conv2d(2 * width, 8 * width, 3, padding=0),
            ]
        )
        positions = math.prod((side + missing) // 4 - 4 for side, missing in zip(sides, self._missing, strict=True))
        fan_ins = [8 * width * positions] + [8 * width] * (depth - 1)
        self.hidden = nn.ModuleList(Linear(fan_in, 8 * width) for fan_in in fan_ins)
        self.readout = Linear(8 * width, num_classes)

        def at_width(width: int) -> CNN:
            return CNN(input_shape, num_classes, width=width, depth=depth, parametrization="standard")

        self.scale(at_width, parametrization, depth)

    def reset_parameters(self, generator: torch.Generator) -> None:
        for layer in (*self.convolutions, *self.hidden):
            assert isinstance(layer, Conv2d | Linear)
            layer.reset_parameters(generator, gain=_RELU_GAIN)
        self.readout.reset_parameters(generator, gain=0.0)

    def forward(self, x: Tensor) -> Tensor:
        rows, columns = self._missing
        h = F.pad(x, (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2))
        for layer in self.convolutions:
            h = F.relu(layer(h))
        h = h.flatten(-3)
        for layer in self.hidden:
            h = F.relu(layer(h))
        return self.readout(h * self.readout_multiplier)
