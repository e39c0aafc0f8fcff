"""Stochastic depth whose random draws are made in advance, so that no training step waits for them."""

from torch import Tensor, nn


class StochasticDepth(nn.Module):
    """A layer that drops a residual branch for some examples of a batch, in training only (Huang et al. 2016).

    A branch that is kept is divided by its probability of being kept, so that its mean equals its value at evaluation.

    Attributes:
        rate: probability that a branch is dropped.
        factors: factor on each example's branch in the current batch, 0 or 1 / (1 - rate), [B], on the device; None at
            evaluation, where nothing is dropped.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.factors: Tensor | None = None

    def forward(self, branch: Tensor) -> Tensor:
        """Drop or scale the branch [B, ...] of B examples."""
        if self.factors is None:
            return branch
        return branch * self.factors.to(branch.dtype).view(-1, *[1] * (branch.ndim - 1))


def replace_drop_path(network: nn.Module) -> None:
    """Replace each `DropPath` of timm, which draws from the global generator, by a `StochasticDepth`."""
    from timm.layers.drop import DropPath  # seconds to import, and every model imports this module

    for module in list(network.modules()):
        for name, child in module.named_children():
            if isinstance(child, DropPath):
                setattr(module, name, StochasticDepth(child.drop_prob))
