"""Stochastic depth whose draws come from an explicit generator."""

import torch
from torch import Tensor, nn


class StochasticDepth(nn.Module):
    """Drops a residual branch for some of the examples of a batch, during training only (Huang et al. 2016).

    A branch that is kept is divided by its probability of being kept, so that its mean is what it is at
    evaluation.

    Attributes:
        rate: probability that a branch is dropped.
        generator: on the CPU, so that draws do not depend on the device; None: evaluation, nothing dropped.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.generator: torch.Generator | None = None

    def forward(self, branch: Tensor) -> Tensor:
        """Branch [B, ...] of B examples."""
        if self.generator is None:
            return branch
        kept = torch.rand(len(branch), generator=self.generator) >= self.rate
        factor = kept.to(branch.dtype).div_(1 - self.rate).to(branch.device, non_blocking=True)
        return branch * factor.view(-1, *[1] * (branch.ndim - 1))


def replace_drop_path(network: nn.Module) -> None:
    """Put a `StochasticDepth` in the place of each of timm's `DropPath`, which draw from the global generator."""
    from timm.layers.drop import DropPath  # seconds to import, and every model imports this module

    for module in list(network.modules()):
        for name, child in module.named_children():
            if isinstance(child, DropPath):
                setattr(module, name, StochasticDepth(child.drop_prob))
