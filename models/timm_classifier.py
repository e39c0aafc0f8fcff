"""What timm's architectures share here: our readout, explicit randomness, widths that scale."""

import logging
from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn

from models.classifier import require_images
from models.layers import Linear, draw_normal_
from models.mup import Parametrization
from models.scaled import ScaledClassifier, require_size
from models.stochastic_depth import replace_drop_path

log = logging.getLogger(__name__)

_STD = 0.02  # timm's for nearly every weight, whatever its fan-in
_SMALLEST_SIDE = 8


class TimmClassifier(ScaledClassifier):
    """A timm network without its head, then a readout that starts at zero.

    Weights of linear and convolutional layers are normal, at base width with timm's standard deviations and
    elsewhere ∝ fan_in^-½; their biases start at zero and everything else at timm's constants.

    Raises:
        ValueError: width or depth below 1, a drop path outside [0, 1), or an image side below 8.
    """

    title: ClassVar[str]

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
        super().__init__()
        require_size(self.title, width=width, depth=depth)
        if not 0 <= drop_path < 1:
            raise ValueError(f"model.drop_path={drop_path}: must lie in [0, 1)")
        require_images(input_shape, self.title, _SMALLEST_SIDE)
        with torch.random.fork_rng(devices=[]):  # what timm draws is drawn again, and should disturb nobody
            self.network = self.build(input_shape, width, depth, drop_path)
        replace_drop_path(self.network)
        self.readout = Linear(self.features_at(width), num_classes)
        layers = {f"network.{name}": module for name, module in self.network.named_modules()}
        drawn = [name for name, module in layers.items() if isinstance(module, nn.Linear | nn.Conv2d)]
        self._drawn = {f"{name}.weight" for name in drawn}
        zero = {f"{name}.bias" for name in drawn}
        self._constants = {
            name: torch.zeros_like(parameter) if name in zero else parameter.detach().clone()
            for name, parameter in self.named_parameters()
            if name not in self._drawn
        }
        self.scale(lambda width: _Skeleton(self, input_shape, num_classes, width, depth), parametrization, depth)
        self._warn_of_points(list(input_shape[1:]))

    @staticmethod
    @abstractmethod
    def build(input_shape: tuple[int, int, int], width: int, depth: int, drop_path: float) -> nn.Module:
        """timm's network, from images to features [B, features]."""

    @staticmethod
    def features_at(width: int) -> int:
        """Features before the readout: width doubles from stage to stage."""
        return 8 * width

    def reset_parameters(self, generator: torch.Generator) -> None:
        for name, parameter in self.named_parameters():
            if name in self._drawn:
                std = self.base_std(name, parameter) * self.scalings[name].initial_std
                draw_normal_(parameter, std, generator)
            else:
                with torch.no_grad():
                    parameter.copy_(self._constants[name])

    def forward(self, x: Tensor) -> Tensor:
        return self.readout(self.network(x) * self.readout_multiplier)

    def base_std(self, name: str, weight: Tensor) -> float:  # noqa: ARG002, an override may use them
        """timm's initial standard deviation of a weight, which is that of the base width here."""
        return _STD

    @staticmethod
    @abstractmethod
    def side_at(side: int, stage: int) -> int:
        """Points along a side of the image in stage 0, 1, 2 or 3."""

    def _warn_of_points(self, sides: list[int]) -> None:
        """Say where the images have shrunk to single points."""
        points = [stage + 1 for stage in range(4) if max(self.side_at(side, stage) for side in sides) == 1]
        if points:
            log.warning(
                "%s on images of %d×%d: stage %s of 4 works on 1×1 points, where it mixes channels but no positions",
                self.title, *sides, " and ".join(map(str, points)),
            )  # fmt: skip


class _Skeleton(nn.Module):
    """The parameters that a model would have at another width, for their shapes."""

    def __init__(
        self, model: TimmClassifier, input_shape: tuple[int, int, int], num_classes: int, width: int, depth: int
    ) -> None:
        super().__init__()
        self.network = model.build(input_shape, width, depth, 0.0)
        self.readout = Linear(model.features_at(width), num_classes)
