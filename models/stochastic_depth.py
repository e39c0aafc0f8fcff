"""Stochastic depth with random draws made elsewhere, so that no step waits for them."""

from torch import Tensor, nn


class StochasticDepth(nn.Module):
    """A layer that drops a residual branch for some examples of a batch, in training only (Huang et al. 2016).

    A branch that is kept is divided by its probability of being kept, so that its mean is as at evaluation.

    Attributes:
        rate: probability that a branch is dropped.
        factors: of the batch at hand, what each example's branch is multiplied with, 0 or 1 / (1 - rate), [B], on the
            device; None: evaluation, nothing dropped.
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
    """Put a `StochasticDepth` in the place of each of timm's `DropPath`, which draw from the global generator."""
    from timm.layers.drop import DropPath  # seconds to import, and every model imports this module

    for module in list(network.modules()):
        for name, child in module.named_children():
            if isinstance(child, DropPath):
                setattr(module, name, StochasticDepth(child.drop_prob))
