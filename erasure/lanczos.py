"""Largest eigenpairs of symmetric operators by batched Lanczos iterations."""

from collections.abc import Callable

import torch
from torch import Tensor

_KRYLOV = 40  # products between two estimates of the eigenvalues
_MAX_RESTARTS = 50  # after which the best pairs so far are returned


def largest_eigenpairs(
    multiply: Callable[[Tensor], Tensor],
    starts: Tensor,
    *,
    tolerance: float = 1e-8,
    rounding: float = 0.0,
) -> tuple[list[float], Tensor]:
    """Return the eigenvalue of largest magnitude of each of g symmetric operators, and its unit eigenvector.

    Batched Lanczos iterations with full reorthogonalisation, restarted from the best vectors. Each value is a Rayleigh
    quotient, whose error is of second order in the residual. A restart reads from the device once.

    Args:
        multiply: function that multiplies each operator by its vector, [g, d] to [g, d].
        starts: first vectors [g, d], not orthogonal to the eigenvectors.
        tolerance: residual ‖A v - λ v‖ relative to |λ| at which to stop.
        rounding: size of the rounding errors of the operators; smaller residuals count as zero.

    Returns:
        Eigenvalues, and eigenvectors [g, d].
    """
    steps = min(starts.shape[1], _KRYLOV)
    vectors, values = starts, starts.new_zeros(0)
    for _ in range(_MAX_RESTARTS):
        basis, small, left = _lanczos(multiply, vectors, steps)
        read = torch.cat([small, left[:, None, None].expand(-1, 1, steps)], 1).cpu()
        every, rotations = torch.linalg.eigh((read[:, :-1] + read[:, :-1].mT) / 2)
        best = every.abs().argmax(1, keepdim=True)
        values = every.gather(1, best)[:, 0]
        rotation = rotations.gather(2, best[:, None].expand(-1, steps, 1))
        vectors = _unit((basis.mT @ rotation.to(basis.device, non_blocking=True))[..., 0])
        residuals = read[:, -1, -1] * rotation[:, -1, 0].abs()
        if bool((residuals <= (tolerance * values.abs()).clamp(min=rounding)).all()):
            break
    return values.tolist(), vectors


def _lanczos(multiply: Callable[[Tensor], Tensor], starts: Tensor, steps: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return orthonormal bases [g, steps, d] of Krylov spaces, the operators on them, and the last residuals [g].

    The basis of a space that an operator maps to itself is padded with zeros.
    """
    basis = starts.new_zeros(len(starts), steps, starts.shape[1])
    products = torch.zeros_like(basis)
    rest = starts
    for i in range(steps):
        basis[:, i] = _unit(rest)
        products[:, i] = rest = multiply(basis[:, i])
        known, size = basis[:, : i + 1], rest.norm(dim=1, keepdim=True)
        for _ in range(2):  # twice is enough for orthogonality to rounding
            rest = rest - ((known @ rest[..., None]).mT @ known)[:, 0]
        rest = torch.where(rest.norm(dim=1, keepdim=True) > 1e-14 * size, rest, 0.0)
    return basis, basis @ products.mT, rest.norm(dim=1)


def _unit(vectors: Tensor) -> Tensor:
    """Scale vectors [g, d] to length one; zero vectors stay zero."""
    return torch.nn.functional.normalize(vectors, eps=torch.finfo(vectors.dtype).tiny)
