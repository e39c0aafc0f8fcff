"""Sample information with the noise of SGD's own steady state (Proposition 5.1), in the span of the gradients.

w and w_-i differ within the span of ∇f_0(X) only, and so do SGD's iterates. There the Hessian is the kernel's spectrum,
diagonal, so that the Lyapunov equation is solved by one division per entry, however many parameters there are.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sample_info.linearized.dynamics import LinearizedDynamics

_SPAN = 1e-12  # eigenvalues of the kernel below this fraction of the largest are rounding


@dataclass(frozen=True)
class SteadyState:
    """SGD's covariance Σ around the minimum, in an orthonormal basis of the span of ∇f_0(X).

    Attributes:
        covariance: Σ, [q, q], solves HΣ + ΣH = (η/b) Λ (equation 14).
        hessian: diagonal of H, [q].
        noise: Λ, [q, q], covariance of per-example gradients at the minimum (appendix C).
        basis: ∇f_0(X) in that basis, [q, n k].
    """

    covariance: Tensor
    hessian: Tensor
    noise: Tensor
    basis: Tensor


def steady_state(minimum: LinearizedDynamics, batch_size: int) -> SteadyState:
    """Solve the Lyapunov equation at the minimum of a training with weight decay, for SGD of b examples per step.

    Everything is on the scale of the mean loss, (1/n) of the paper's H, so that η is that of all else here.

    Raises:
        ValueError: no weight decay (every gradient is zero at the minimum, and SGD has no noise), or t not infinite.
    """
    descent, n, k = minimum.descent, minimum.n, minimum.k
    if descent.finite or descent.weight_decay == 0:
        raise ValueError(
            f"weight_decay={descent.weight_decay}: SGD's steady state needs a positive weight decay, since without it "
            "wide networks fit every example, gradients vanish at the minimum, and so does SGD's noise"
        )
    if batch_size < 1:
        raise ValueError(f"sgd_batch_size={batch_size}: must be at least 1")
    values, vectors = torch.linalg.eigh(minimum.kernel)
    kept = values > _SPAN * values[-1]
    values, vectors = values[kept], vectors[:, kept]
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
    """SI with SGD's steady state as smoothing, ½ (w - w_-i)ᵀ Σ⁻¹ (w - w_-i), in nats (equation 13).

    SGD hardly moves along some directions, where a finite change would count as nearly infinitely informative:
    variances below `variance_floor` of the largest, about what float64 can tell from zero, are raised to it, which can
    only lower a score. The minimum and the batch size are those of `steady_state`, memory is for columns.

    Returns:
        scores [n], and the share of directions whose variance was raised.
    """
    state = steady_state(minimum, batch_size)
    variances, axes = torch.linalg.eigh(state.covariance)
    floor = variance_floor * variances[-1]
    whitening = axes.T @ state.basis / variances.clamp(min=float(floor)).sqrt()[:, None]
    parts = [(whitening @ minimum.differences(block)).square().sum(0) / 2 for block in minimum.blocks(memory_bytes)]
    return torch.cat(parts), float((variances < floor).double().mean())


def at_minimum(dynamics: LinearizedDynamics) -> LinearizedDynamics:
    """The same training to convergence."""
    descent = replace(dynamics.descent, steps="converged")
    return LinearizedDynamics(dynamics.kernel, dynamics.residual, descent) if dynamics.descent.finite else dynamics
