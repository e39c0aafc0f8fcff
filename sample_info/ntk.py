"""The tangent kernel Θ = ∇f_0(X)ᵀ ∇f_0(X), accumulated layer by layer; the full Jacobian is never held."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sample_info.jacobian import Layer, Projection, Weights, jacobian, layers_of
from sample_info.product_form import add_layer, fully_connected, inputs_and_slopes

GIB = 2**30


@dataclass(frozen=True)
class Kernels:
    """Tangent kernels, float64, rows and columns ordered by example, then output.

    Attributes:
        train: Θ of the n training inputs, [n k, n k], exactly symmetric.
        held_out: Θ(x, X) of m held-out inputs with the training inputs, [m k, n k].
        how: how they were computed, in a few words.
    """

    train: Tensor
    held_out: Tensor
    how: str


def ntk(
    model: nn.Module,
    weights: Weights,
    x: Tensor,
    held_out: Tensor,
    *,
    projection: Projection | None = None,
    batch_size: int = 64,
    memory_bytes: float = GIB,
) -> Kernels:
    """The tangent kernels of a network.

    Exact kernels of networks of fully connected layers are products of layer inputs and backpropagated outputs; others
    are sums over groups of layers, each group's Jacobian held on its own.

    Args:
        model: any, in evaluation mode.
        weights: w_0, by parameter name.
        x: training inputs [n, ...].
        held_out: inputs [m, ...].
        projection: of each layer's gradients; None is exact.
        batch_size: examples at a time; without effect on the result.
        memory_bytes: for a group's Jacobian, beside the kernels themselves; without effect on the result.
    """
    projection = projection or Projection()
    everything = torch.cat([x, held_out])
    n = len(x)
    layers = fully_connected(model, weights, x) if projection.kind == "exact" else None
    if layers is not None:
        kernel, how = _from_products(model, layers, weights, everything, n, batch_size, memory_bytes), "product form"
    else:
        kernel, how = _from_jacobians(model, weights, everything, n, projection, batch_size, memory_bytes)
    columns = kernel.shape[1]
    train = kernel[:columns]
    return Kernels(torch.add(train, train.T).mul_(0.5), kernel[columns:], how)


def _from_products(model, layers, weights: Weights, x: Tensor, n: int, batch_size: int, memory: float) -> Tensor:
    kernel: Tensor | None = None
    for layer in layers.values():
        h, slopes = inputs_and_slopes(model, layer, weights, x, batch_size=batch_size)
        k = slopes.shape[1]
        if kernel is None:
            kernel = slopes.new_zeros(len(x) * k, n * k)
        add_layer(kernel, h, slopes, n, bias=getattr(layer, "bias", None) is not None, memory_bytes=memory)
    assert kernel is not None
    return kernel


def _from_jacobians(
    model: nn.Module, weights: Weights, x: Tensor, n: int, projection: Projection, batch_size: int, memory: float
) -> tuple[Tensor, str]:
    with torch.no_grad():
        k = model(x[:1].to(next(model.parameters()))).shape[1]
    layers = layers_of(weights, projection)
    kernel = x.new_zeros(len(x) * k, n * k, dtype=torch.float64)
    for group in _groups(layers, max(1, int(memory // (8 * k * len(x))))):
        largest = sum({layer.name: layer.parameters for layer in group}.values())
        batch = max(1, min(batch_size, int(memory // (2 * 8 * k * largest))))
        j = jacobian(model, weights, x, layers=group, batch_size=batch).flatten(0, 1)
        kernel.addmm_(j, j[: n * k].T)
    kept, parameters = sum(layer.columns for layer in layers), sum(weight.numel() for weight in weights.values())
    return kernel, f"{projection.kind}, {kept:,} of {parameters:,} numbers"


def _groups(layers: Sequence[Layer], most: int) -> Iterator[list[Layer]]:
    """Layers, or parts of them, in groups of at most `most` columns."""
    group: list[Layer] = []
    room = most
    for layer in layers:
        for part in layer.split(most):
            if part.columns > room:
                yield group
                group, room = [], most
            group.append(part)
            room -= part.columns
    yield group
