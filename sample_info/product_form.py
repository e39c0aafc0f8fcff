"""The exact tangent kernel of networks of fully connected layers, without any Jacobian.

A layer u = W h + b has ∂f_c/∂W = δ_c hᵀ with δ_c = ∂f_c/∂u, so that its part of the kernel is
(h·h' + 1) (δ_c·δ'_c'): products of layer inputs and of backpropagated outputs.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from models.layers import Linear
from sample_info.jacobian import Weights, in_double


def fully_connected(model: nn.Module, weights: Weights, x: Tensor) -> Mapping[str, nn.Module] | None:
    """The model's layers by name, if all its parameters are in fully connected ones that see each example once.

    Args:
        model, weights: the network.
        x: inputs [n, ...], of which one is passed through.
    """
    layers = {name: m for name, m in model.named_modules() if isinstance(m, Linear | nn.Linear)}
    owned = {f"{name}.{key}" for name, m in layers.items() for key, _ in m.named_parameters(recurse=False)}
    if owned != set(weights):
        return None
    seen: dict[str, list[tuple[int, ...]]] = {name: [] for name in layers}
    handles = [m.register_forward_hook(_recorder(seen[name])) for name, m in layers.items()]
    try:
        with torch.no_grad():
            functional_call(model, in_double(model, weights), (x[:1].double(),))
    finally:
        for handle in handles:
            handle.remove()
    return layers if all(len(shapes) == 1 and len(shapes[0]) == 2 for shapes in seen.values()) else None


def _recorder(shapes: list[tuple[int, ...]]):
    def record(_: nn.Module, inputs: tuple[Tensor, ...], __: Any) -> None:
        shapes.append(tuple(inputs[0].shape))

    return record


def inputs_and_slopes(
    model: nn.Module, layer: nn.Module, weights: Weights, x: Tensor, *, batch_size: int
) -> tuple[Tensor, Tensor]:
    """One layer's inputs h, [n, fan-in], and slopes δ, [n, k, fan-out], float64."""
    parameters = {
        name: value.requires_grad_(value.is_floating_point()) for name, value in in_double(model, weights).items()
    }
    caught: list[tuple[Tensor, Tensor]] = []

    def catch(_: nn.Module, inputs: Any, output: Any) -> None:
        caught.append((inputs[0], output))

    handle = layer.register_forward_hook(catch)
    h, slopes = [], []
    try:
        for batch in x.split(batch_size):
            caught.clear()
            outputs = functional_call(model, parameters, (batch.double(),))
            ((h_batch, u),) = caught
            # examples do not mix: the gradient of a sum over the batch holds each example's own
            parts = [torch.autograd.grad(f, u, retain_graph=True)[0] for f in outputs.sum(0)]
            h.append(h_batch.detach())
            slopes.append(torch.stack(parts, 1))
    finally:
        handle.remove()
    return torch.cat(h), torch.cat(slopes)


def add_layer(kernel: Tensor, h: Tensor, slopes: Tensor, n: int, *, bias: bool, memory_bytes: float) -> None:
    """Add one layer's part to a kernel [N k, n k] of N examples with the first n of them.

    Args:
        kernel: changed in place.
        h: layer inputs [N, fan-in].
        slopes: δ, [N, k, fan-out].
        n: columns' examples.
        bias: whether the layer has one.
        memory_bytes: for what is computed on the way.
    """
    k = slopes.shape[1]
    columns = slopes[:n].flatten(0, 1).T
    block = max(1, int(memory_bytes // (8 * k * kernel.shape[1])))
    for rows in torch.arange(len(h)).split(block):
        start, stop = int(rows[0]), int(rows[-1]) + 1
        similarity = h[start:stop] @ h[:n].T + float(bias)
        part = (slopes[start:stop].flatten(0, 1) @ columns).view(stop - start, k, n, k)
        kernel[start * k : stop * k] += (part * similarity[:, None, :, None]).view(-1, n * k)
