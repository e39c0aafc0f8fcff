"""The tangent kernel of a network at its initialisation: a predictor of the kernel code (`python -m mdl`)."""

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from models.classifier import Classifier, Model
from models.kernel import KernelModel
from models.stackable_layers import Linear
from models.tangent.jacobian import Projection, Weights
from models.tangent.kernel import GIB, mean_ntk, unless_cheap

_AVERAGED = 256  # images over which K(x, x) is 1 on average
_DIAGONAL = 64  # images at once


class EmpiricalNtk(KernelModel):
    """The tangent kernel of a network at its initialisation, in the NTK parametrisation, averaged over its outputs.

    K(x, y) ∝ Σ_c Σ_p s_p² ⟨∂f_c(x)/∂w_p, ∂f_c(y)/∂w_p⟩ over outputs c and parameter tensors p, with K(x, x) = 1 on
    average. s_p is the root mean square of w_p: gradients are with respect to weights of unit size, as in Jacot et al.
    2018, so that no layer's share grows with its width. Biases that start at zero contribute nothing. As the width of a
    ReLU MLP grows, K tends to the "ntk" of `models.kernel.Kernel` at its depth. The readout is drawn from N(0,
    1 / fan-in), because the usual readout of zeros leaves no gradient to the other layers. A width multiplier (μP) is
    undone.

    If tensors outside fully connected layers have more than 200,000 values in all, 2,000 random coordinates of each are
    kept, which is right on average.

    Args:
        network: network with a linear `readout`.

    Raises:
        ValueError: a network without weights, without such a readout, or whose predictions depend on the batch.
    """

    version: ClassVar[int] = 2  # numbers of version 1 differ in the tenth digit

    def __init__(self, input_shape: tuple[int, int, int], num_classes: int, *, network: Model) -> None:
        name, remedy = type(network).__name__, "choose another network, e.g. model@model.network=mlp"
        if not isinstance(network, Classifier):
            raise ValueError(f"model.network={name}: has no weights, and no gradients: {remedy}")
        readout = getattr(network, "readout", None)
        if not isinstance(readout, Linear):
            raise ValueError(f"model.network={name}: has no linear readout to draw: {remedy}")
        self.input_shape, self.num_classes, self.network = input_shape, num_classes, network

    def drawn(self, generator: torch.Generator, x: Tensor) -> "TangentKernel":
        network = copy.deepcopy(self.network)
        network.reset_parameters(generator)
        readout = network.readout
        assert isinstance(readout, Linear)
        readout.reset_parameters(generator, gain=1 / getattr(network, "readout_multiplier", 1.0))
        network = network.to(x.device).eval()
        weights = {name: parameter.detach() for name, parameter in network.named_parameters()}
        seeds = {name: int(torch.randint(2**62, (), generator=generator)) for name in weights}
        sampled = Projection(lambda name: torch.Generator().manual_seed(seeds[name]))
        projection = unless_cheap(sampled, network, weights, x, mean_of_outputs=True)
        scales = {name: float(weight.double().square().mean().sqrt()) for name, weight in weights.items()}
        unscaled = TangentKernel(network, weights, scales, projection)
        some = x[:: math.ceil(len(x) / _AVERAGED)]
        return replace(unscaled, size=float(unscaled.diagonal(some).mean()) or 1.0)  # images of zeros: no gradient

    def temporary_bytes(self, examples: int) -> float:
        """Return the memory of two copies of a group's Jacobian, a batch of gradients and the widest layer's slopes."""
        shapes = [parameter.shape for parameter in self.network.parameters()]
        widest, parameters = max(shape[0] for shape in shapes), sum(shape.numel() for shape in shapes)
        return 2 * GIB + 16 * self.num_classes * (examples * widest + parameters)


@dataclass(frozen=True)
class TangentKernel:
    """The tangent kernel at certain weights.

    Attributes:
        network: in evaluation mode.
        weights, scales: w_p and s_p by parameter name.
        projection: of gradients of parameters outside fully connected layers; None keeps all.
        size: divisor that makes K(x, x) 1 on average.
    """

    network: nn.Module
    weights: Weights
    scales: Mapping[str, float]
    projection: Projection | None
    size: float = 1.0

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """Compute K(x, y), [n, m] float64, of images [n, C, H, W] and [m, C, H, W]."""
        kernel = mean_ntk(self.network, self.weights, x, y, self.scales, self.projection)
        return kernel.div_(self.size)

    def diagonal(self, x: Tensor) -> Tensor:
        """Compute K(x, x) of each image, [n] float64."""
        return torch.cat([self(some, some).diagonal() for some in x.split(_DIAGONAL)])
