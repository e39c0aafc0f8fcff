"""LeNet with as many parameters as the MLP of the same width and depth."""

import itertools
import math
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.classifier import Classifier, require_images
from models.lenet_sizes import KERNEL, matching_sizes
from models.mup_classifier import MupClassifier
from models.stackable_layers import Conv2d, Linear


class LeNet(MupClassifier):
    """Two 5×5 convolutions, each with ReLU and 2×2 max pooling, then `depth` hidden layers and a zero readout.

    LeCun et al. 1998, with padding so that small images survive. Width and depth are those of a ReLU MLP. The numbers
    of channels and of hidden units are searched near LeNet-5's proportions, so that the number of parameters matches
    that MLP's.

    Raises:
        ValueError: width or depth below 1, an image side below 4, which cannot be pooled twice, or an MLP so small
            that no LeNet comes within 2 % of its number of parameters.
    """

    version = 1
    stackable: ClassVar[bool] = True
    base_width: ClassVar[int] = 128
    base_depth: ClassVar[int] = 2
    title: ClassVar[str] = "LeNet"
    smallest_side: ClassVar[int | None] = 4
    convolutions: nn.ModuleList
    hidden: nn.ModuleList

    def layers(self, width: int) -> dict[str, nn.Module]:
        channels, height, across = self.input_shape
        sizes = matching_sizes(self.input_shape, self.num_classes, width, self.depth)
        fan_ins = [sizes.second * (height // 4) * (across // 4)] + [sizes.units] * (self.depth - 1)
        return {
            "convolutions": nn.ModuleList(
                [Conv2d(channels, sizes.first, KERNEL), Conv2d(sizes.first, sizes.second, KERNEL)]
            ),
            "hidden": nn.ModuleList(Linear(fan_in, sizes.units) for fan_in in fan_ins),
            "readout": Linear(sizes.units, self.num_classes),
        }

    def forward(self, x: Tensor) -> Tensor:
        h = hidden_features(self.convolutions, self.hidden, x)
        return self.readout(h * self.readout_multiplier)


class PublishedLeNet(Classifier):
    """LeNet of the paper's code, for its reproduction: no padding, explicit sizes, a readout of zeros.

    The code finds its sizes by a search over a grid. At width 128, depth 2 and 32 × 32 images they are 128 and 40
    channels, and 256 and 64 units. This LeNet has 411,122 parameters; the MLP has 411,146.

    Args:
        channels: channels of the two convolutions.
        units: units of the hidden layers.

    Raises:
        ValueError: images with a side below 16, or sizes below 1.
    """

    version: ClassVar[int] = 1
    stackable: ClassVar[bool] = True

    def __init__(
        self,
        input_shape: tuple[int, int, int],
        num_classes: int,
        *,
        channels: tuple[int, int],
        units: tuple[int, ...],
    ) -> None:
        super().__init__()
        require_images(input_shape, "LeNet without padding", 16)
        if min(*channels, *units) < 1:
            raise ValueError(f"model.channels={list(channels)}, model.units={list(units)}: must be at least 1")
        first, second = channels
        self.convolutions = nn.ModuleList(
            [Conv2d(input_shape[0], first, KERNEL, padding=0), Conv2d(first, second, KERNEL, padding=0)]
        )
        height, width = (((side - 4) // 2 - 4) // 2 for side in input_shape[1:])
        sizes = [second * height * width, *units]
        self.hidden = nn.ModuleList(Linear(*pair) for pair in itertools.pairwise(sizes))
        self.readout = Linear(sizes[-1], num_classes)

    def reset_parameters(self, generator: torch.Generator) -> None:
        for layer in (*self.convolutions, *self.hidden, self.readout):
            assert isinstance(layer, Linear | Conv2d)
            layer.reset_parameters(generator, gain=0.0 if layer is self.readout else math.sqrt(2.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.readout(hidden_features(self.convolutions, self.hidden, x))


def hidden_features(convolutions: nn.ModuleList, hidden: nn.ModuleList, x: Tensor) -> Tensor:
    """Apply convolutions, each with ReLU and 2×2 max pooling, then hidden layers with ReLU: [B, units]."""
    for layer in convolutions:
        x = layer(x)
        members = x.shape[:-3]
        x = F.relu(F.max_pool2d(x.flatten(0, -4), 2).unflatten(0, members))  # the same in either order
    x = x.flatten(-3)
    for layer in hidden:
        x = F.relu(layer(x))
    return x
