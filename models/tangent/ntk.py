"""The tangent kernel in float64: by products of layers where the network is fully connected, else by Jacobians."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from models.layers import Linear
from models.tangent.jacobian import EXACT, Layer, Projection, Weights, in_double, jacobian, layers_of


def fully_connected(model: nn.Module, weights: Weights, x: Tensor) -> Mapping[str, nn.Module] | None:
    """The model's layers by name, if all its parameters are in fully connected ones that see each example once.

    One of the inputs x [n, ...] is passed through.
    """
    layers = {name: m for name, m in model.named_modules() if isinstance(m, Linear | nn.Linear)}
    owned = {f"{name}.{key}" for name, m in layers.items() for key, _ in m.named_parameters(recurse=False)}
    if owned != set(weights):
        return None
    with torch.no_grad(), _calls(layers.values()) as calls:
        functional_call(model, in_double(model, weights), (x[:1].double(),))
    once = sorted(map(id, layers.values())) == sorted(id(layer) for layer, _, _ in calls)
    return layers if once and all(h.ndim == 2 for _, h, _ in calls) else None


@contextmanager
def _calls(layers: Iterable[nn.Module]) -> Iterator[list[tuple[nn.Module, Tensor, Tensor]]]:
    """Whatever calls these layers meanwhile: the layer, its input and its output."""
    calls: list[tuple[nn.Module, Tensor, Tensor]] = []

    def note(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        calls.append((layer, inputs[0], output))

    handles = [layer.register_forward_hook(note) for layer in layers]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def inputs_and_slopes(
    model: nn.Module, layer: nn.Module, weights: Weights, x: Tensor, *, batch_size: int
) -> tuple[Tensor, Tensor]:
    """One layer's inputs h, [n, fan-in], and slopes δ, [n, k, fan-out], float64."""
    parameters = {
        name: value.requires_grad_(value.is_floating_point()) for name, value in in_double(model, weights).items()
    }
    h, slopes = [], []
    for batch in x.split(batch_size):
        with _calls([layer]) as calls:
            outputs = functional_call(model, parameters, (batch.double(),))
        ((_, h_batch, u),) = calls
        # examples do not mix: the gradient of a sum over the batch holds each example's own
        parts = [torch.autograd.grad(f, u, retain_graph=True)[0] for f in outputs.sum(0)]
        h.append(h_batch.detach())
        slopes.append(torch.stack(parts, 1))
    return torch.cat(h), torch.cat(slopes)


def add_layer(kernel: Tensor, h: Tensor, slopes: Tensor, n: int, *, bias: bool, memory_bytes: float) -> None:
    """Add one layer's part to a kernel [N k, n k] of N examples with the first n of them, in place.

    Args:
        kernel, h, slopes: with the layer's inputs [N, fan-in] and slopes δ [N, k, fan-out].
        n, bias: columns' examples, and whether the layer has a bias.
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
    projection: Projection = EXACT,
    batch_size: int = 64,
    memory_bytes: float = GIB,
) -> Kernels:
    """The tangent kernels of a network.

    Exact kernels of networks of fully connected layers are products of layer inputs and backpropagated outputs; others
    are sums over groups of layers, each group's Jacobian held on its own.

    Args:
        model: any, in evaluation mode.
        weights: w_0, by parameter name.
        x, held_out: training inputs [n, ...], held-out ones [m, ...].
        projection: of each layer's gradients.
        batch_size: examples at a time; without effect on the result.
        memory_bytes: for a group's Jacobian, beside the kernels themselves; without effect on the result.
    """
    everything, n = torch.cat([x, held_out]), len(x)
    with torch.no_grad():
        k = model(x[:1].to(next(model.parameters()))).shape[1]
    kernel = x.new_zeros(len(everything) * k, n * k, dtype=torch.float64)
    connected = fully_connected(model, weights, x) if projection.kind == "exact" else None
    if connected is not None:
        how = "product form"
        for layer in connected.values():
            h, slopes = inputs_and_slopes(model, layer, weights, everything, batch_size=batch_size)
            bias = getattr(layer, "bias", None) is not None
            add_layer(kernel, h, slopes, n, bias=bias, memory_bytes=memory_bytes)
    else:
        layers = layers_of(weights, projection)
        for group in _groups(layers, max(1, int(memory_bytes // (8 * len(kernel))))):
            largest = sum({layer.name: layer.parameters for layer in group}.values())
            batch = max(1, min(batch_size, int(memory_bytes // (2 * 8 * k * largest))))
            j = jacobian(model, weights, everything, layers=group, batch_size=batch).flatten(0, 1)
            kernel.addmm_(j, j[: n * k].T)
        kept, parameters = sum(layer.columns for layer in layers), sum(weight.numel() for weight in weights.values())
        how = f"{projection.kind}, {kept:,} of {parameters:,} numbers"
    train = kernel[: n * k]
    return Kernels(torch.add(train, train.T).mul_(0.5), kernel[n * k :], how)


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
