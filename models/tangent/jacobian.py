"""Per-example gradients of a network's outputs with respect to its weights: all of them, or random coordinates.

Gradients are computed in float64: the batch size and the order of sums do not affect results.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap

Weights = dict[str, Tensor]  # parameter name -> values
Network = Callable[[Weights, Tensor], Tensor]  # f(w, x): inputs [n, ...] to outputs [n, k]


@dataclass(frozen=True)
class Projection:
    """Random coordinates of the gradient with respect to each parameter tensor ("layer").

    They are scaled so that inner products are right on average (Harutyunyan et al. 2021: 2,000 suffice). A layer of no
    more than `size` coordinates is kept as it is.

    Attributes:
        draws: function that returns the generator of a layer's draws, by the layer's name.
        size: coordinates kept per layer.
    """

    draws: Callable[[str], torch.Generator]
    size: int = 2000


@dataclass(frozen=True)
class Layer:
    """Columns of the Jacobian that come from one parameter tensor.

    Attributes:
        name: name of the parameter.
        parameters: number of its values.
        columns: number of columns that are kept.
        keep: maps gradients [..., parameters] to [..., columns].
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
    """Return every layer in the model's order, with all of its coordinates if there is no projection."""
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


def jacobian(
    model: nn.Module, weights: Weights, x: Tensor, *, layers: Sequence[Layer] | None = None, batch_size: int = 64
) -> Tensor:
    """Compute ∂f(x)/∂w, or the columns that `layers` keep: [n, k, columns] float64, in the order of the layers.

    The model is in evaluation mode. Its buffers are used, but `weights` replace its parameters. The batch size does not
    affect the result.
    """
    if layers is None:
        layers = layers_of(weights)
    fixed = in_double(model, weights)
    moving = {layer.name: fixed.pop(layer.name) for layer in layers if layer.name in fixed}

    def outputs(moving: dict[str, Tensor], example: Tensor) -> Tensor:
        return functional_call(model, fixed | moving, (example[None],))[0]

    # vmap over the outputs mixes up the axes of PReLU's gradient (torch 2.15)
    at_once = 1 if any(isinstance(part, nn.PReLU) for part in model.modules()) else None
    per_example = vmap(jacrev(outputs, chunk_size=at_once), (None, 0))
    blocks = []
    for batch in x.split(batch_size):
        gradients = per_example(moving, batch.double())
        blocks.append(torch.cat([layer.keep(gradients[layer.name].unsqueeze(-1).flatten(2)) for layer in layers], -1))
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
