"""Layers that take the parameters of one model or of a stack of members."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@torch.no_grad()
def draw_normal_(parameter: Tensor, std: float, generator: torch.Generator) -> None:
    """Fill with draws from N(0, std²), made on the generator's device so that all devices get the same values."""
    draws = torch.empty(parameter.shape, dtype=parameter.dtype, device=generator.device)
    parameter.copy_(draws.normal_(std=std, generator=generator))


class Linear(nn.Module):
    """Affine map x Wᵀ + b, with W [out, in] or, for a stack of members, [S, out, in]."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(out_features, in_features))
        self.bias = nn.Parameter(torch.zeros(out_features))

    def reset_parameters(self, generator: torch.Generator, gain: float) -> None:
        """Draw weights from N(0, gain² / fan_in), biases zero; a gain of 0 makes a readout that predicts uniformly."""
        with torch.no_grad():
            draw_normal_(self.weight, gain * self.weight.shape[-1] ** -0.5, generator)
            self.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        if self.weight.ndim == 2:
            return F.linear(x, self.weight, self.bias)
        if x.ndim == 2:  # one batch shared by all members
            return x @ self.weight.mT + self.bias.unsqueeze(-2)
        # W xᵀ rather than x Wᵀ: W's gradient is then contiguous, and needs no copy before the optimiser's step
        return torch.baddbmm(self.bias.unsqueeze(-1), self.weight, x.mT).mT


class Conv2d(nn.Module):
    """Convolution with square kernels; W [out, in, k, k] or, for a stack of members, [S, out, in, k, k].

    Args:
        in_channels: channels of the images.
        out_channels: channels of the result.
        kernel_size: k.
        stride: pixels from one position of the kernel to the next.
        padding: zeros around the image; None keeps height and width, for an odd k.
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int, *, stride: int = 1, padding: int | None = None
    ) -> None:
        super().__init__()
        self.stride, self.padding = stride, kernel_size // 2 if padding is None else padding
        self.weight = nn.Parameter(torch.zeros(out_channels, in_channels, kernel_size, kernel_size))
        self.bias = nn.Parameter(torch.zeros(out_channels))

    def reset_parameters(self, generator: torch.Generator, gain: float) -> None:
        """Draw weights from N(0, gain² / fan_in) with fan_in = in · k², biases zero."""
        draw_normal_(self.weight, gain * self.weight[0].numel() ** -0.5, generator)
        with torch.no_grad():
            self.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        """Map images [B, in, H, W] to [B, out, h, w]; a stack maps these or [S, B, in, H, W] to [S, B, out, h, w]."""
        if self.weight.ndim == 4:
            return self._convolve(x, self.weight, self.bias)
        members = len(self.weight)
        shared = x.ndim == 4  # one batch for all members: their kernels are one convolution's output channels
        side_by_side = x if shared else x.transpose(0, 1).flatten(1, 2)
        groups = 1 if shared else members
        y = self._convolve(side_by_side, self.weight.flatten(0, 1), self.bias.flatten(), groups)
        return y.unflatten(1, (members, -1)).transpose(0, 1)

    def _convolve(self, x: Tensor, weight: Tensor, bias: Tensor, groups: int = 1) -> Tensor:
        x = x.movedim(-3, -1).contiguous().movedim(-1, -3)  # channels last: convolves and pools faster
        return F.conv2d(x, weight, bias, self.stride, self.padding, groups=groups)


class GroupNorm(nn.Module):
    """Each image normalised by itself, in groups of its channels, then scaled and shifted (Wu & He 2018, equation 7).

    Scale and shift are [C] or, for a stack of members, [S, C].

    Args:
        groups: number of groups of neighbouring channels that share mean and variance; divides `channels`.
        channels: C.
    """

    def __init__(self, groups: int, channels: int) -> None:
        super().__init__()
        self.groups = groups
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Set scale to 1 and shift to 0."""
        self.weight.fill_(1.0)
        self.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        """Normalise images [B, C, H, W] or, for a stack, [S, B, C, H, W]; the shape stays."""
        if self.weight.ndim == 1:
            return F.group_norm(x, self.groups, self.weight, self.bias)
        weight, bias = (p[:, None, :, None, None] for p in (self.weight, self.bias))
        return F.group_norm(x.flatten(0, 1), self.groups).view_as(x) * weight + bias
