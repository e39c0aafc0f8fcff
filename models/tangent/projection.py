"""Choice of the numbers of a gradient that are kept: all, or random coordinates of each parameter tensor."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Kind = Literal["exact", "coordinates"]


@dataclass(frozen=True)
class Projection:
    """A selection of the gradient with respect to each parameter tensor ("layer").

    "coordinates" keeps `size` random coordinates of each layer, scaled so that inner products are right on average
    (Harutyunyan et al. 2021: 2,000 suffice). A layer of no more than `size` coordinates is kept as it is.

    Args:
        kind: "exact" or "coordinates".
        size: numbers kept per layer; without effect if exact.
        draws: the generator of each layer's draws; without effect if exact.

    Raises:
        ValueError: a size below 1.
    """

    kind: Kind = "exact"
    size: int = 2000
    draws: Callable[[str], torch.Generator] | None = None

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"projection_size={self.size}: need at least 1 number per layer")

    def of(self, name: str, parameters: int, device: torch.device) -> "Layer":
        """Return the layer of one parameter tensor."""
        if self.kind == "exact" or parameters <= self.size:
            return Layer(name, parameters, parameters, lambda gradient: gradient)
        assert self.draws is not None, "what is drawn has a generator"
        coordinates = torch.randperm(parameters, generator=self.draws(name))[: self.size].to(device)
        scale = math.sqrt(parameters / self.size)
        return Layer(name, parameters, self.size, lambda gradient: gradient[..., coordinates] * scale)


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


EXACT = Projection()


def layers_of(weights: Mapping[str, Tensor], projection: Projection) -> list[Layer]:
    """Return every layer, in the model's order."""
    return [projection.of(name, weight.numel(), weight.device) for name, weight in weights.items()]
