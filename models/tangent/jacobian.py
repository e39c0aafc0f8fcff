"""Per-example gradients of a network's outputs with respect to its weights: exact, or a seeded sketch of them.

Everything is computed in float64, so that neither the batch size nor the order of sums shows in a score.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap

Kind = Literal["exact", "coordinates", "random"]
Weights = dict[str, Tensor]  # parameter name -> values
Network = Callable[[Weights, Tensor], Tensor]  # f(w, x): inputs [n, ...] to outputs [n, k]


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


def layers_of(weights: Weights, projection: Projection) -> list[Layer]:
    """Return every layer, in the model's order."""
    return [projection.of(name, weight.numel(), weight.device) for name, weight in weights.items()]


def jacobian(
    model: nn.Module, weights: Weights, x: Tensor, *, layers: Sequence[Layer] | None = None, batch_size: int = 64
) -> Tensor:
    """Compute ∂f(x)/∂w, or what `layers` keep of it: [n, k, columns] float64, columns in the order of the layers.

    The model is in evaluation mode; its buffers are used, its own parameters are not, but `weights`, by name. The batch
    size does not show in the result.
    """
    if layers is None:
        layers = layers_of(weights, EXACT)
    fixed = in_double(model, weights)
    moving = {layer.name: fixed.pop(layer.name) for layer in layers if layer.name in fixed}

    def outputs(moving: dict[str, Tensor], example: Tensor) -> Tensor:
        return functional_call(model, fixed | moving, (example[None],))[0]

    per_example = vmap(jacrev(outputs), (None, 0))
    blocks = []
    for batch in x.split(batch_size):
        gradients = per_example(moving, batch.double())
        blocks.append(torch.cat([layer.keep(gradients[layer.name].flatten(2)) for layer in layers], -1))
    return torch.cat(blocks)


@torch.no_grad()
def network_outputs(model: nn.Module, weights: Weights, x: Tensor, *, batch_size: int = 64) -> Tensor:
    """Compute f(x), [n, k] float64."""
    parameters = in_double(model, weights)
    return torch.cat([functional_call(model, parameters, (batch.double(),)) for batch in x.split(batch_size)])


def in_double(model: nn.Module, weights: Weights) -> dict[str, Tensor]:
    """Return parameters from `weights` and the model's buffers, detached, floating ones in float64.

    Raises:
        ValueError: names that differ from the model's parameters.
    """
    named = {name for name, _ in model.named_parameters()}
    if named != set(weights):
        odd = sorted(named ^ set(weights))
        raise ValueError(f"weights and the model's parameters differ in {odd[0]}: give one value for every parameter")
    values = {**dict(model.named_buffers()), **weights}
    return {
        name: value.detach().to(torch.float64, copy=True) if value.is_floating_point() else value
        for name, value in values.items()
    }
