"""Per-example gradients of a network's outputs with respect to its weights: all of them, or a seeded sample.

Everything is computed in float64, so that neither the batch size nor the order of sums shows in a score.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap

from models.tangent.projection import Layer, layers_of

Weights = dict[str, Tensor]  # parameter name -> values
Network = Callable[[Weights, Tensor], Tensor]  # f(w, x): inputs [n, ...] to outputs [n, k]


def jacobian(
    model: nn.Module, weights: Weights, x: Tensor, *, layers: Sequence[Layer] | None = None, batch_size: int = 64
) -> Tensor:
    """Compute ∂f(x)/∂w, or what `layers` keep of it: [n, k, columns] float64, columns in the order of the layers.

    The model is in evaluation mode; its buffers are used, its own parameters are not, but `weights`, by name. The batch
    size does not show in the result.
    """
    if layers is None:
        layers = layers_of(weights)
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
