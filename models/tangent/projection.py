"""Random coordinates of each parameter tensor's gradient, where a whole Jacobian is too large."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Projection:
    """Random coordinates of the gradient with respect to each parameter tensor ("layer").

    They are scaled so that inner products are right on average (Harutyunyan et al. 2021: 2,000 suffice). A layer of no
    more than `size` coordinates is kept as it is.

    Attributes:
        size: coordinates kept per layer.
        draws: the generator of each layer's draws, by its name.
    """

    size: int
    draws: Callable[[str], torch.Generator]


@dataclass(frozen=True)
class Layer:
    """Columns of the Jacobian that come from one parameter tensor.

    Attributes:
        name: of the parameter.
        parameters: how many it has.
        columns: how many numbers are kept of them.
        keep: gradients [..., parameters] to [..., columns].
    """

    name: str
    parameters: int
    columns: int
    keep: Callable[[Tensor], Tensor]

    def split(self, most: int) -> Iterator["Layer"]:
        """Yield parts of at most `most` columns each."""
        for start in range(0, self.columns, most):
            stop = min(start + most, self.columns)

            def keep(gradient: Tensor, start: int = start, stop: int = stop) -> Tensor:
                return self.keep(gradient)[..., start:stop]

            yield Layer(self.name, self.parameters, stop - start, keep)


def layers_of(weights: Mapping[str, Tensor], projection: Projection | None = None) -> list[Layer]:
    """Return every layer, in the model's order; without a projection all of its coordinates."""
    layers = []
    for name, weight in weights.items():
        n = weight.numel()
        if projection is None or n <= projection.size:
            layers.append(Layer(name, n, n, lambda gradient: gradient))
            continue
        chosen = torch.randperm(n, generator=projection.draws(name))[: projection.size].to(weight.device)
        scale = math.sqrt(n / projection.size)

        def keep(gradient: Tensor, chosen: Tensor = chosen, scale: float = scale) -> Tensor:
            return gradient[..., chosen] * scale

        layers.append(Layer(name, n, projection.size, keep))
    return layers
