"""Multilayer perceptron with ReLU, GELU or SwiGLU units."""

import math
from typing import ClassVar, Literal

import torch.nn.functional as F
from torch import Tensor, nn

from models.mup import Parametrization
from models.mup_classifier import MupClassifier
from models.stackable_layers import Linear

Activation = Literal["relu", "gelu", "swiglu"]

# Weight gains g that keep E[h²] = 1 from layer to layer: E[φ(g u)²] = 1, E[(silu(g u) g v)²] = 1,
# for independent u, v ~ N(0, 1).
_GAIN: dict[str, float] = {"relu": math.sqrt(2.0), "gelu": 1.468, "swiglu": 1.269}


class MLP(MupClassifier):
    """`depth` hidden layers of `width` units and a readout that starts at zero.

    SwiGLU (Shazeer 2020) computes silu(u) · v from two linear maps, so that its layers have about twice the parameters.
    Its units are quadratic in their input, so their scale would square from layer to layer and overflow float32 at
    depth 8. The input of every layer after the first is therefore scaled to unit root mean square.

    Args:
        activation: "relu", "gelu" or "swiglu"; the other arguments are those of `MupClassifier`.
    """

    version = 1
    stackable: ClassVar[bool] = True
    base_width: ClassVar[int] = 128
    base_depth: ClassVar[int] = 2
    depth_exponent: ClassVar[float] = 1.5  # Jelassi et al. 2023
    title: ClassVar[str] = "an MLP"
    hidden: nn.ModuleList

    def __init__(
        self,
        input_shape: tuple[int, int, int],
        num_classes: int,
        *,
        width: int,
        depth: int,
        activation: Activation,
        parametrization: Parametrization,
    ) -> None:
        self.activation, self.gain = activation, _GAIN[activation]
        super().__init__(input_shape, num_classes, width=width, depth=depth, parametrization=parametrization)

    def layers(self, width: int) -> dict[str, nn.Module]:
        units = 2 * width if self.activation == "swiglu" else width
        fan_ins = [math.prod(self.input_shape)] + [width] * (self.depth - 1)
        hidden = nn.ModuleList(Linear(fan_in, units) for fan_in in fan_ins)
        return {"hidden": hidden, "readout": Linear(width, self.num_classes)}

    def forward(self, x: Tensor) -> Tensor:
        return self.after_first_layer(self.hidden[0](x.flatten(-3)))

    def after_first_layer(self, u: Tensor) -> Tensor:
        """Compute logits from the first layer's output x Wᵀ + b: [B, units], or [S, B, units] of a stack."""
        h = self._activate(u)
        for layer in list(self.hidden)[1:]:
            if self.activation == "swiglu":
                h = F.rms_norm(h, h.shape[-1:])
            h = self._activate(layer(h))
        return self.readout(h * self.readout_multiplier)

    def _activate(self, u: Tensor) -> Tensor:
        if self.activation == "relu":
            return F.relu(u)
        if self.activation == "gelu":
            return F.gelu(u)
        gate, value = u.chunk(2, dim=-1)
        return F.silu(gate) * value
