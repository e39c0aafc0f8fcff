"""Base class of timm's architectures: a readout of zeros, explicit randomness, learning rates for every width."""

import logging
from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn

from models.mup import Parametrization
from models.mup_classifier import MupClassifier
from models.stackable_layers import Linear, draw_normal_
from models.stochastic_depth import replace_drop_path

log = logging.getLogger(__name__)

_STD = 0.02  # timm's for nearly every weight, whatever its fan-in


class TimmClassifier(MupClassifier):
    """A timm network without its head, then a readout that starts at zero.

    Weights of linear and convolutional layers are normal. Their standard deviations are timm's at base width, and
    ∝ fan_in^-½ at other widths. Their biases start at zero, and all other parameters at timm's constants.

    Args:
        width: channels of the first stage.
        depth: blocks in the first stage.
        drop_path: rate of stochastic depth in the last block; rates rise linearly from zero.

    Raises:
        ValueError: an option out of range, or an image too small.
    """

    smallest_side: ClassVar[int | None] = 8
    network: nn.Module

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
        if not 0 <= drop_path < 1:
            raise ValueError(f"model.drop_path={drop_path}: must lie in [0, 1)")
        self.drop_path = drop_path
        super().__init__(input_shape, num_classes, width=width, depth=depth, parametrization=parametrization)
        layers = {f"network.{name}": module for name, module in self.network.named_modules()}
        drawn = [name for name, module in layers.items() if isinstance(module, nn.Linear | nn.Conv2d)]
        self._drawn = {f"{name}.weight" for name in drawn}
        zero = {f"{name}.bias" for name in drawn}
        self._constants = {
            name: torch.zeros_like(parameter) if name in zero else parameter.detach().clone()
            for name, parameter in self.named_parameters()
            if name not in self._drawn
        }
        if points := [s + 1 for s in range(4) if max(self.side_at(side, s) for side in input_shape[1:]) == 1]:
            log.warning(
                "%s on images of %d×%d: stage %s of 4 works on 1×1 points, where it mixes channels but no positions",
                self.title, *input_shape[1:], " and ".join(map(str, points)),
            )  # fmt: skip

    @property
    def blocks(self) -> tuple[int, int, int, int]:
        """Number of blocks of each stage."""
        return self.depth, self.depth, 3 * self.depth, self.depth

    @abstractmethod
    def build(self, width: int) -> nn.Module:
        """Build timm's network, from images to `8 * width` features: width doubles from stage to stage."""

    @staticmethod
    @abstractmethod
    def side_at(side: int, stage: int) -> int:
        """Return the number of points along a side of the image in stage 0, 1, 2 or 3."""

    def layers(self, width: int) -> dict[str, nn.Module]:
        with torch.random.fork_rng(devices=[]):  # timm's draws are replaced later and must not disturb other generators
            network = self.build(width)
        replace_drop_path(network)
        return {"network": network, "readout": Linear(8 * width, self.num_classes)}

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
        """Return timm's initial standard deviation of a weight, taken at the base width."""
        return _STD
