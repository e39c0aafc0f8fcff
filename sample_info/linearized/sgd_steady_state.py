"""SGD's steady state around the minimum, and sample information smoothed by it (Harutyunyan et al. 2021)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from sample_info.linearized.dynamics import LinearizedDynamics

_SPAN = 1e-12  # eigenvalues of the kernel below this fraction of the largest are rounding


@dataclass(frozen=True)
class SteadyState:
    """SGD's covariance Σ around the minimum, in an orthonormal basis of the span of ∇f_0(X)."""

    covariance: Tensor  # Σ, [q, q], solves HΣ + ΣH = (η/b) Λ (equation 14)
    hessian: Tensor  # diagonal of H, [q]
    noise: Tensor  # Λ, [q, q], covariance of per-example gradients at the minimum (appendix C)
    basis: Tensor  # ∇f_0(X) in that basis, [q, n k]


def steady_state(minimum: LinearizedDynamics, batch_size: int) -> SteadyState:
    """Solve the Lyapunov equation at the minimum of a training with weight decay, for SGD with b examples per step.

    Everything, like η elsewhere, is on the scale of the mean loss, so H is 1/n of the paper's. Without weight decay,
    wide networks fit every example, and gradients and SGD's noise vanish at the minimum.
    """
    descent, n, k = minimum.descent, minimum.n, minimum.k
    assert not descent.finite, "at the minimum"
    assert descent.weight_decay > 0, "settings refuse SGD without noise"
    values, vectors = torch.linalg.eigh(minimum.kernel)
    significant = values > _SPAN * values[-1]
    values, vectors = values[significant], vectors[:, significant]
    basis = values.sqrt()[:, None] * vectors.T
    residual = -descent.weight_decay * minimum.coefficients  # f(X) - Y at the minimum
    gradients = (basis * residual.flatten()).view(-1, n, k).sum(-1)
    centred = gradients - gradients.mean(1, keepdim=True)
    noise = centred @ centred.T / n
    hessian = (values + descent.weight_decay) / n
    covariance = descent.learning_rate / batch_size * noise / (hessian[:, None] + hessian)
    return SteadyState(covariance, hessian, noise, basis)


def sgd_information(
    minimum: LinearizedDynamics, batch_size: int, *, variance_floor: float = 1e-10, memory_bytes: float = 2**30
) -> tuple[Tensor, float]:
    """Compute SI smoothed by SGD's steady state, ½ (w - w_-i)ᵀ Σ⁻¹ (w - w_-i), in nats (equation 13).

    Variances below `variance_floor` times the largest, about float64's resolution, are raised to this value. This can
    only lower scores: SGD hardly moves along these directions, so a finite change would be almost infinitely
    informative.

    Returns:
        scores [n], and the fraction of directions whose variance was raised.
    """
    state = steady_state(minimum, batch_size)
    variances, axes = torch.linalg.eigh(state.covariance)
    floor = variance_floor * variances[-1]
    whitening = axes.T @ state.basis / variances.clamp(min=float(floor)).sqrt()[:, None]
    parts = [(whitening @ minimum.differences(block)).square().sum(0) / 2 for block in minimum.blocks(memory_bytes)]
    return torch.cat(parts), float((variances < floor).double().mean())
