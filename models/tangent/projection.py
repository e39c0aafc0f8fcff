"""Choice of the numbers of a gradient that are kept: all, random coordinates, or a seeded sketch of each parameter."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Kind = Literal["exact", "coordinates", "random"]


@dataclass(frozen=True)
class Projection:
    """A selection or sketch of the gradient with respect to each parameter tensor ("layer").

    "coordinates" keeps `size` random coordinates of each layer, scaled so that inner products are right on average (the
    paper: 2,000 suffice); "random" adds all coordinates, each with a random sign, into `size` buckets, which is
    also right on average, and sees every coordinate (Charikar et al. 2002). A layer of no more than `size`
    coordinates is kept as it is.

    Args:
        kind: "exact", "coordinates" or "random".
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
        draws = self.draws(name)
        if self.kind == "coordinates":
            coordinates = torch.randperm(parameters, generator=draws)[: self.size].to(device)
            scale = math.sqrt(parameters / self.size)
            return Layer(name, parameters, self.size, lambda gradient: gradient[..., coordinates] * scale)
        buckets = torch.randint(self.size, (parameters,), generator=draws).to(device)
        signs = (torch.randint(2, (parameters,), generator=draws).double() * 2 - 1).to(device)

        def add_up(gradient: Tensor) -> Tensor:
            sketch = gradient.new_zeros(*gradient.shape[:-1], self.size)
            return sketch.index_add_(-1, buckets, gradient * signs)

        return Layer(name, parameters, self.size, add_up)


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
