"""Sizes of a LeNet with as many parameters as the MLP of the same width and depth."""

import itertools
import math
from dataclasses import dataclass

KERNEL = 5
_CHANNELS = (6, 16)  # LeCun et al. 1998
_UNITS = 84
_TOLERANCE = 0.02  # of the MLP's number of parameters


@dataclass(frozen=True)
class Sizes:
    """Channels of the two convolutions, and units of every hidden layer."""

    first: int
    second: int
    units: int

    def parameters(self, input_shape: tuple[int, int, int], num_classes: int, depth: int) -> int:
        """Return the number of parameters of the LeNet of these sizes."""
        channels, height, across = input_shape
        area = KERNEL**2
        convolutions = self.first * (channels * area + 1) + self.second * (self.first * area + 1)
        flattened = self.second * (height // 4) * (across // 4)
        hidden = self.units * (flattened + 1) + (depth - 1) * self.units * (self.units + 1)
        return convolutions + hidden + num_classes * (self.units + 1)


def mlp_parameters(input_shape: tuple[int, int, int], num_classes: int, width: int, depth: int) -> int:
    """Return the number of parameters of the ReLU MLP."""
    hidden = width * (math.prod(input_shape) + 1) + (depth - 1) * width * (width + 1)
    return hidden + num_classes * (width + 1)


def matching_sizes(input_shape: tuple[int, int, int], num_classes: int, width: int, depth: int) -> Sizes:
    """Return sizes near LeNet-5's proportions with about as many parameters as the MLP.

    For each pair of channels near 6 : 16, the number of units follows from the number of parameters. Among candidates
    within half the tolerance, the ratio of units to channels nearest to LeNet-5's 84 : 16 wins. If there are none, the
    number of parameters nearest to the MLP's wins.

    Raises:
        ValueError: none comes within 2 %.
    """
    wanted = mlp_parameters(input_shape, num_classes, width, depth)
    candidates = []
    for second in itertools.count(1):
        first = max(1, round(second * _CHANNELS[0] / _CHANNELS[1]))
        sizes = _with_units(first, second, wanted, input_shape, num_classes, depth)
        miss = abs(sizes.parameters(input_shape, num_classes, depth) / wanted - 1)
        proportion = abs(math.log(sizes.units / second * _CHANNELS[1] / _UNITS))
        candidates.append((max(miss, _TOLERANCE / 2), proportion, miss, sizes))
        if Sizes(first, second, 1).parameters(input_shape, num_classes, depth) > wanted:
            break
    *_, miss, sizes = min(candidates, key=lambda candidate: candidate[:3])
    if miss > _TOLERANCE:
        count = sizes.parameters(input_shape, num_classes, depth)
        raise ValueError(
            f"model.width={width}, model.depth={depth}: the MLP has {wanted:,} parameters, the nearest LeNet "
            f"{count:,}; choose a larger model.width"
        )
    return sizes


def _with_units(
    first: int, second: int, wanted: int, input_shape: tuple[int, int, int], num_classes: int, depth: int
) -> Sizes:
    """Return the number of units, at least 1, that comes nearest to the wanted number of parameters."""
    none, one = (Sizes(first, second, units).parameters(input_shape, num_classes, depth) for units in (0, 1))
    square, missing = depth - 1, wanted - none
    linear = one - none - square
    root = 2 * missing / (linear + math.sqrt(max(0.0, linear**2 + 4 * square * missing)))
    around = [max(1, math.floor(root)), max(1, math.ceil(root))]
    options = [Sizes(first, second, units) for units in around]
    return min(options, key=lambda sizes: abs(sizes.parameters(input_shape, num_classes, depth) - wanted))
