"""Influence functions: what leaving out an example would do, to first order in its weight.

Cook 1977; Koh & Liang 2017, equation 1; the baseline of Harutyunyan et al. 2021, table 1.
"""

import torch
from torch import Tensor

from sample_info.dynamics import changes_by
from sample_info.ntk import Kernels
from sample_info.scores import Changes
from sample_info.spectrum import inverse


def influence(kernels: Kernels, residual: Tensor, damping: float) -> Changes:
    """Predicted changes of all examples: w_-i - w ≈ (Jᵀ J + damping)⁻¹ ∇ ½‖f_w(x_i) - y_i‖², J the Jacobian at w.

    The Gauss-Newton inverse acts through the kernel, (Jᵀ J + cI)⁻¹ Jᵀ = Jᵀ (Θ + cI)⁻¹, so that one factorisation
    serves every example, however many parameters there are. The formula assumes that w is a minimum; at weights
    that are still in training it says something else than retraining does.

    Args:
        kernels: at the final weights w.
        residual: f_w(X) - Y, [n, k].
        damping: added to the curvature of the summed loss, weight decay included.

    Raises:
        ValueError: no damping, and a kernel that is singular.
    """
    n, k = residual.shape
    columns = inverse(kernels.train, damping).view(n * k, n, k)
    coefficients = torch.einsum("rnk,nk->rn", columns, residual.to(columns))
    weight, prediction, _ = changes_by(coefficients, kernels.train, kernels.held_out, torch.arange(n), k)
    return Changes(weight.cpu(), prediction.cpu())
