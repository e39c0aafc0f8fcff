"""What the closed forms need to know of a kernel: a bound on its spectrum, its inverse."""

import torch
from torch import Tensor

from erasure.linalg import largest_eigenpair

_MARGIN = 1.001  # of the bound on the spectrum, above what Lanczos finds
_ROUNDING = 1e-13  # relative size of an eigenvalue that float64 cannot tell from zero


def spectral_bound(kernel: Tensor) -> float:
    """A proven upper bound on the largest eigenvalue of a symmetric matrix, a tenth of a percent above it.

    Lanczos finds the eigenvalue; a Cholesky factorisation of bound · I - kernel proves that there is none above.

    Raises:
        ValueError: the kernel is zero or not finite.
    """
    if not bool(kernel.isfinite().all()):
        raise ValueError("the kernel has values that are not finite: the network's gradients overflow on these inputs")
    start = torch.randn(len(kernel), generator=torch.Generator().manual_seed(0), dtype=kernel.dtype).to(kernel)
    bound, _ = largest_eigenpair(lambda v: kernel @ v, start, tolerance=1e-4)
    if not bound > 0:
        raise ValueError("the kernel is zero: no output depends on any parameter, so that no example can matter")
    while True:
        bound *= _MARGIN
        gap = torch.neg(kernel)
        gap.diagonal().add_(bound)
        if not int(torch.linalg.cholesky_ex(gap).info):
            return bound


def inverse(kernel: Tensor, weight_decay: float) -> Tensor:
    """(Θ + λI)⁻¹.

    Raises:
        ValueError: Θ + λI is singular to rounding.
    """
    shifted = kernel.clone()
    shifted.diagonal().add_(weight_decay)
    factor, info = torch.linalg.cholesky_ex(shifted)
    pivots = factor.diagonal().square()
    if int(info) or float(pivots.min() / pivots.max()) < _ROUNDING:
        raise ValueError(
            "the kernel is singular (examples that repeat, or more outputs than parameters), so that training without "
            "weight decay has no limit in float64: set weight_decay above 0, or a finite number of steps"
        )
    return torch.cholesky_inverse(factor)
