"""Architectures whose learning rates follow from their width and depth."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import nn

from models.classifier import Classifier, require_images
from models.mup import Parametrization, depth_factor, scaling, scalings, shapes_of
from models.stackable_layers import Conv2d, Linear


class MupClassifier(Classifier):
    """A classifier that can be made wider and deeper without tuning its learning rate again.

    A subclass makes its modules in `layers`, `readout` among them, and multiplies the readout's input by
    `readout_multiplier`.

    Args:
        width: width of the layers.
        depth: number of layers, or of blocks per stage.
        parametrization: under "mup", the best learning rate is that of the base width; under "standard", it is not.

    Attributes:
        base_width, base_depth: the size at which the learning rate is tuned; nothing is scaled there.
        depth_exponent: p in lr ∝ (base_depth / depth)^p, applied under either parametrisation.
        scalings: μP scaling of each parameter with width; all factors are 1 under the standard parametrisation.
        title: name of the architecture in messages.
        smallest_side: smallest side of an image; None where vectors are accepted.

    Raises:
        ValueError: width or depth below 1, or an image that is too small.
    """

    base_width: ClassVar[int]
    base_depth: ClassVar[int]
    depth_exponent: ClassVar[float] = 0.5
    title: ClassVar[str]
    smallest_side: ClassVar[int | None] = None
    gain: float = 2**0.5  # of weights before a ReLU: He et al. 2015
    readout: Linear

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
        for name, value in (("width", width), ("depth", depth)):
            if value < 1:
                raise ValueError(f"model.{name}={value}: {self.title} needs at least 1")
        if self.smallest_side is not None:
            require_images(input_shape, self.title, self.smallest_side)
        self.input_shape, self.num_classes, self.depth = input_shape, num_classes, depth
        for name, module in self.layers(width).items():
            self.add_module(name, module)
        self._depth_factor = depth_factor(self.base_depth, depth, self.depth_exponent)
        if parametrization == "standard":
            self.scalings = {name: scaling("vector", 1.0) for name, _ in self.named_parameters()}
        else:
            base, wider = (
                shapes_of(lambda at=at: nn.ModuleDict(self.layers(at))) for at in (self.base_width, 2 * self.base_width)
            )
            shapes = {name: tuple(parameter.shape) for name, parameter in self.named_parameters()}
            self.scalings = scalings(base, wider, shapes)

    @abstractmethod
    def layers(self, width: int) -> dict[str, nn.Module]:
        """Return the modules by name at a width, for the model's `input_shape`, `num_classes` and `depth`."""

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draw weights N(0, gain² / fan_in), and a readout of zeros."""
        for layer in self.modules():
            if isinstance(layer, Linear | Conv2d):
                layer.reset_parameters(generator, gain=0.0 if layer is self.readout else self.gain)

    @property
    def readout_multiplier(self) -> float:
        """The factor on the readout's input: μP divides it by the width ratio."""
        return self.scalings["readout.weight"].output

    def learning_rates(self) -> Mapping[str, float]:
        return {name: self._depth_factor * scaled.learning_rate for name, scaled in self.scalings.items()}
