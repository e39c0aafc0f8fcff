"""Layers that work alike on one model's parameters and on a stack of members' parameters."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Linear(nn.Module):
    """Affine map x Wᵀ + b, with W [out, in] or, for a stack of members, [S, out, in]."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(out_features, in_features))
        self.bias = nn.Parameter(torch.zeros(out_features))

    def reset_parameters(self, generator: torch.Generator, gain: float) -> None:
        """Weights N(0, gain² / fan_in), biases zero. A gain of 0 makes a readout that predicts uniformly."""
        with torch.no_grad():
            self.weight.normal_(std=gain * self.weight.shape[-1] ** -0.5, generator=generator)
            self.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        if self.weight.ndim == 2:
            return F.linear(x, self.weight, self.bias)
        if x.ndim == 2:  # one batch shared by all members
            return x @ self.weight.mT + self.bias.unsqueeze(-2)
        return torch.baddbmm(self.bias.unsqueeze(-2), x, self.weight.mT)
