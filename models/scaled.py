"""Architectures with a width and a depth, whose learning rates follow from both."""

from collections.abc import Callable, Mapping
from typing import ClassVar

from torch import nn

from models.classifier import Classifier
from models.mup import Parametrization, Scaling, depth_factor, scaling, scalings, shapes_of


class ScaledClassifier(Classifier):
    """A classifier that can be made wider and deeper without tuning its learning rate again.

    A subclass calls `scale` at the end of its constructor, draws its initial weights with `initial_std` of
    `scalings`, and multiplies its readout's input by `readout_multiplier`.

    Attributes:
        base_width, base_depth: the size at which the learning rate is tuned; nothing is scaled there.
        depth_exponent: p in lr ∝ (base_depth / depth)^p, applied under either parametrisation.
        scalings: per parameter; all factors 1 under the standard parametrisation.
    """

    base_width: ClassVar[int]
    base_depth: ClassVar[int]
    depth_exponent: ClassVar[float] = 0.5
    scalings: Mapping[str, Scaling]

    def scale(self, at_width: Callable[[int], nn.Module], parametrization: Parametrization, depth: int) -> None:
        """Work out every parameter's scaling.

        Args:
            at_width: builds this architecture, with this depth and these options, at a given width.
            parametrization: "standard" leaves everything as at base width.
            depth: number of layers, or of blocks per stage.
        """
        self._depth_factor = depth_factor(self.base_depth, depth, self.depth_exponent)
        if parametrization == "standard":
            self.scalings = {name: scaling("vector", 1.0) for name, _ in self.named_parameters()}
            return
        base, wider = (
            shapes_of(lambda width=width: at_width(width)) for width in (self.base_width, 2 * self.base_width)
        )
        here = {name: tuple(parameter.shape) for name, parameter in self.named_parameters()}
        self.scalings = scalings(base, wider, here)

    @property
    def readout_multiplier(self) -> float:
        """What the readout's input is multiplied by: μP divides it by the width ratio."""
        return self.scalings["readout.weight"].output

    def learning_rates(self) -> Mapping[str, float]:
        return {name: self._depth_factor * scaled.learning_rate for name, scaled in self.scalings.items()}


def require_size(model: str, **sizes: int) -> None:
    """Refuse a width or depth below 1.

    Raises:
        ValueError: names the option and its value.
    """
    for name, value in sizes.items():
        if value < 1:
            raise ValueError(f"model.{name}={value}: {model} needs at least 1")
