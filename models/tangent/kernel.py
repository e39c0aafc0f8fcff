"""Tangent kernels of networks, in float64.

Kernels of fully connected layers are products of inputs and slopes; those of other layers are sums over Jacobians.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from models.stackable_layers import Linear
from models.tangent.jacobian import Layer, Projection, Weights, in_double, jacobian, layers_of

GIB = 2**30
_FEW_PARAMETERS = 200_000
_TRIED = 4  # examples whose gradients show which layers are fully connected


def connected(model: nn.Module, weights: Weights, x: Tensor) -> Mapping[str, nn.Module]:
    """Return the fully connected layers whose gradient is the product of one input and one slope per example, by name.

    The gradient on some of the inputs x [n, ...] shows which layers these are. Others are called twice or on sequences,
    or they compute with a function of their parameters (weight normalisation). A subclass of `Linear` is no such layer.
    """
    layers = {name: m for name, m in model.named_modules() if type(m) in (Linear, nn.Linear)}
    parameters = {name: value.requires_grad_(name in weights) for name, value in in_double(model, weights).items()}
    some, n = torch.cat([x[:_TRIED], x[:_TRIED]]).double(), len(x[:_TRIED])
    with torch.enable_grad(), _calls(layers.values()) as calls:
        outputs = functional_call(model, parameters, (some,))[:n]  # the other half has no gradient of its own
        total = (outputs * torch.arange(1, outputs.shape[1] + 1, device=outputs.device)).sum()
    gradients = dict(zip(weights, _gradients(total, [parameters[name] for name in weights]), strict=True))
    products = {}
    for name, layer in layers.items():
        of_layer = [(h, u) for called, h, u in calls if called is layer]
        own = {f"{name}.{key}" for key, _ in layer.named_parameters(recurse=False)}
        if len(of_layer) != 1 or not {f"{name}.weight"} <= own <= {f"{name}.weight", f"{name}.bias"} & weights.keys():
            continue
        ((h, u),) = of_layer
        if h.ndim != 2 or len(h) != 2 * n or not u.requires_grad:
            continue
        (slopes,) = _gradients(total, [u])
        expected = {f"{name}.weight": slopes[:n].T @ h[:n], f"{name}.bias": slopes[:n].sum(0)}
        if all(torch.allclose(gradients[key], expected[key], rtol=1e-6, atol=1e-12) for key in own):
            products[name] = layer
    return products


def _gradients(total: Tensor, of: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return gradients of a sum, zero for tensors that it does not depend on."""
    return torch.autograd.grad(total, of, retain_graph=True, allow_unused=True, materialize_grads=True)


def unconnected(weights: Weights, layers: Mapping[str, nn.Module]) -> Weights:
    """Return the parameters outside these layers."""
    owned = {f"{name}.{key}" for name, layer in layers.items() for key, _ in layer.named_parameters(recurse=False)}
    return {name: weight for name, weight in weights.items() if name not in owned}


def unless_cheap(
    projection: Projection, model: nn.Module, weights: Weights, x: Tensor, *, mean_of_outputs: bool
) -> Projection | None:
    """Return the projection, or None for exact gradients if it would sample no more than 200,000 values in all.

    `mean_ntk` samples the tensors outside fully connected layers; `ntk` samples all tensors if there are any outside.
    """
    outside = unconnected(weights, connected(model, weights, x))
    to_sample = outside if mean_of_outputs or not outside else weights
    return None if sum(weight.numel() for weight in to_sample.values()) <= _FEW_PARAMETERS else projection


@contextmanager
def _calls(layers: Iterable[nn.Module]) -> Iterator[list[tuple[nn.Module, Tensor, Tensor]]]:
    """Record the calls of these layers: the layer, its input and its output.

    Input and output are copied, as the network may go on to change them in place, e.g. by `nn.ReLU(inplace=True)`.
    """
    calls: list[tuple[nn.Module, Tensor, Tensor]] = []

    def note(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        calls.append((layer, inputs[0].detach().clone(), output))
        return output.clone()

    handles = [layer.register_forward_hook(note) for layer in layers]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def inputs_and_slopes(
    model: nn.Module, layer: nn.Module, weights: Weights, x: Tensor, *, batch_size: int
) -> tuple[Tensor, Tensor]:
    """Compute one layer's inputs h, [n, fan-in], and slopes δ, [n, k, fan-out], float64."""
    parameters = {name: value.requires_grad_(name in weights) for name, value in in_double(model, weights).items()}
    h, slopes = [], []
    for batch in x.split(batch_size):
        with _calls([layer]) as calls:
            outputs = functional_call(model, parameters, (batch.double(),))
        ((_, h_batch, u),) = calls
        # examples do not mix: the gradient of a sum over the batch holds the gradient of each example
        parts = [torch.autograd.grad(f, u, retain_graph=True)[0] for f in outputs.sum(0)]
        h.append(h_batch)
        slopes.append(torch.stack(parts, 1))
    return torch.cat(h), torch.cat(slopes)


def add_layer(kernel: Tensor, h: Tensor, slopes: Tensor, n: int, *, bias: bool, memory_bytes: float) -> None:
    """Add one layer's part to a kernel [N k, n k] of N examples with the first n of them, in place.

    Args:
        kernel: kernel to add to.
        h: the layer's inputs, [N, fan-in].
        slopes: δ, [N, k, fan-out].
        n: number of examples of the columns.
        bias: whether the layer has one.
        memory_bytes: memory for intermediate results.
    """
    k = slopes.shape[1]
    columns = slopes[:n].flatten(0, 1).T
    block = max(1, int(memory_bytes // (8 * k * kernel.shape[1])))
    for rows in torch.arange(len(h)).split(block):
        start, stop = int(rows[0]), int(rows[-1]) + 1
        similarity = h[start:stop] @ h[:n].T + float(bias)
        part = (slopes[start:stop].flatten(0, 1) @ columns).view(stop - start, k, n, k)
        kernel[start * k : stop * k] += (part * similarity[:, None, :, None]).view(-1, n * k)


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
    projection: Projection | None = None,
    *,
    batch_size: int = 64,
    memory_bytes: float = GIB,
) -> Kernels:
    """Compute the tangent kernels of a network.

    Exact kernels of fully connected layers are products of layer inputs and backpropagated outputs; those of other
    layers are sums over groups of layers, with the Jacobian of one group in memory at a time.

    Args:
        model: any, in evaluation mode.
        weights: w_0, by parameter name.
        x: training inputs, [n, ...].
        held_out: held-out inputs, [m, ...].
        projection: of the gradients; exact by default.
        batch_size: examples at a time, at most; does not affect the result.
        memory_bytes: memory for a group's Jacobian, besides the kernels; does not affect the result.
    """
    everything, n = torch.cat([x, held_out]), len(x)
    k = _outputs(model, x)
    kernel = x.new_zeros(len(everything) * k, n * k, dtype=torch.float64)
    products = connected(model, weights, x) if projection is None else {}
    for layer in products.values():
        h, slopes = inputs_and_slopes(model, layer, weights, everything, batch_size=batch_size)
        bias = getattr(layer, "bias", None) is not None
        add_layer(kernel, h, slopes, n, bias=bias, memory_bytes=memory_bytes)
    layers = layers_of(unconnected(weights, products), projection)
    for _, j in _jacobians(model, weights, everything, layers, batch_size, memory_bytes):
        kernel.addmm_(j.flatten(0, 1), j[:n].flatten(0, 1).T)
    parameters = sum(weight.numel() for weight in weights.values())
    used = parameters - sum(layer.parameters - layer.columns for layer in layers)
    kind = "exact" if projection is None else "coordinates"
    how = f"{kind}, {used:,} of {parameters:,} numbers" if layers else "product form"
    train = kernel[: n * k]
    return Kernels(torch.add(train, train.T).mul_(0.5), kernel[n * k :], how)


def mean_ntk(
    model: nn.Module,
    weights: Weights,
    x: Tensor,
    y: Tensor,
    scales: Mapping[str, float],
    projection: Projection | None = None,
    *,
    batch_size: int = 64,
    memory_bytes: float = GIB,
) -> Tensor:
    """Compute the mean over outputs, (1/k) Σ_c Σ_p s_p² ⟨∂f_c(x)/∂w_p, ∂f_c(y)/∂w_p⟩, [n, m] float64.

    The method is that of `ntk`, which computes all pairs of outputs; this takes k² times less memory.

    Args:
        model: any, in evaluation mode.
        weights: w, by parameter name.
        x: inputs of the rows, [n, ...].
        y: inputs of the columns, [m, ...]; if this is the same tensor as `x`, it passes through the network once.
        scales: s_p of each parameter tensor; those of 0 are left out.
        projection: of the gradients outside fully connected layers; exact by default.
        batch_size: examples at a time, at most; does not affect the result.
        memory_bytes: memory for a group's Jacobian, besides the kernel; does not affect the result.
    """
    both, k = x if y is x else torch.cat([x, y]), _outputs(model, x)
    kernel = x.new_zeros(len(x), len(y), dtype=torch.float64)
    if not kernel.numel():  # no examples on one side
        return kernel
    products = connected(model, weights, x)
    for name, layer in products.items():
        h, slopes = inputs_and_slopes(model, layer, weights, both, batch_size=batch_size)
        similarity = (h[: len(x)] @ h[-len(y) :].T).mul_(scales[f"{name}.weight"] ** 2)
        similarity.add_(scales.get(f"{name}.bias", 0.0) ** 2)
        kernel.add_(similarity.mul_(slopes[: len(x)].flatten(1) @ slopes[-len(y) :].flatten(1).T))
    others = {name: weight for name, weight in unconnected(weights, products).items() if scales[name]}
    for group, j in _jacobians(model, weights, both, layers_of(others, projection), batch_size, memory_bytes):
        j.mul_(torch.cat([j.new_full((layer.columns,), scales[layer.name]) for layer in group]))
        kernel.addmm_(j[: len(x)].flatten(1), j[-len(y) :].flatten(1).T)
    return kernel.div_(k)


def _outputs(model: nn.Module, x: Tensor) -> int:
    with torch.no_grad():
        return model(x[:1].to(next(model.parameters()))).shape[1]


def _jacobians(
    model: nn.Module,
    weights: Weights,
    x: Tensor,
    layers: Sequence[Layer],
    batch_size: int,
    memory_bytes: float,
) -> Iterator[tuple[list[Layer], Tensor]]:
    """Yield groups of layers, or of their parts, and the Jacobian of each, [n, k, columns], within the memory limit."""
    k = _outputs(model, x)
    for group in _groups(layers, max(1, int(memory_bytes // (8 * len(x) * k)))):
        largest = sum({layer.name: layer.parameters for layer in group}.values())
        batch = max(1, min(batch_size, int(memory_bytes // (2 * 8 * k * largest))))
        yield group, jacobian(model, weights, x, layers=group, batch_size=batch)


def _groups(layers: Sequence[Layer], most: int) -> Iterator[list[Layer]]:
    """Yield layers, or parts of them, in groups of at most `most` columns."""
    group: list[Layer] = []
    room = most
    for layer in layers:
        for part in layer.split(most):
            if part.columns > room:
                yield group
                group, room = [], most
            group.append(part)
            room -= part.columns
    if group:
        yield group
