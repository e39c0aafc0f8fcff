"""The orthonormal polar factor, from matrix products and Cholesky factors instead of singular vectors."""

import math

import torch
from torch import Tensor

# Smallest assumed singular value, relative to the largest; smaller ones take extra steps. A lower value would cost
# digits in the first step, where c grows as its inverse to the power 4/3.
_SMALLEST = 1e-7
_SINGLE = 3e4  # largest c for which a step in single precision is accurate enough
_EXTRA_STEPS = 6  # each triples tiny singular values; more would cost more than a full decomposition
_SERIES_PASSES = 20
_BLOCK = 384  # below this size a symmetric product is not worth splitting
_GPU_BLOCK = 1024  # likewise on a GPU, which smaller products leave partly idle: 192 columns are 9 tiles of 64 x 64


def polar_factor(matrix: Tensor) -> Tensor:
    """Return U of M = U H with H symmetric positive semi-definite: the orthonormal matrix nearest to M.

    U maximises tr(Uᵀ M), so that rounding errors of U have a second-order effect on this trace. U is orthonormal to the
    last digits.

    QDWH (Nakatsukasa, Bai & Gygi 2010) in its Cholesky form: rational functions map every singular value in [1e-7, 1]
    to 1 in three steps. Each step costs about two products of M with itself and a Cholesky factor.

    Args:
        matrix: M, [..., r, s], float64 or float32.

    Returns:
        U, [..., r, s]; orthonormal columns if r >= s, orthonormal rows if r < s.

    Raises:
        ValueError: values that are not finite.
    """
    return orthonormalise(_qdwh(matrix, single=False))


def rough_polar_factor(matrix: Tensor) -> Tensor:
    """Return `polar_factor` in float32: all but the first steps in single precision, in two thirds of the time.

    It gives tr(Uᵀ M) to 1e-7. It is orthonormal to single precision if no singular value is below 1e-7 of the largest;
    directions of smaller singular values may come out a fifth too short. `orthonormalise` makes the factor exact.
    """
    return _qdwh(matrix, single=True)


def _qdwh(matrix: Tensor, *, single: bool) -> Tensor:
    if matrix.shape[-2] < matrix.shape[-1]:
        return _qdwh(matrix.mT, single=single).mT
    if not matrix.numel():  # the factor of a covariance of rank 0 has no columns
        return matrix.float() if single else matrix
    x = matrix / _norm_bound(matrix)
    lower, extra = _SMALLEST, 0
    while extra <= _EXTRA_STEPS:
        a, b, c = _weights(lower)
        if single and c < _SINGLE:
            x = x.float()
        x = _halley_step(x, a, b, c)
        lower = min(1.0, lower * (a + b * lower**2) / (1 + c * lower**2))
        if lower > 0.99:
            excess = _excess(x)
            if excess.abs().max() < 0.3:
                return _series_step(x, excess)
            extra += 1
    exact = _by_singular_vectors(matrix)
    return exact.float() if single else exact


def orthonormalise(x: Tensor) -> Tensor:
    """Return the orthonormal matrix nearest to a nearly orthonormal one, [..., r, s]: X (XᵀX)^-½ as a series.

    If the series does not converge, for instance because X is singular, the result comes from singular vectors.
    """
    if x.shape[-2] < x.shape[-1]:
        return orthonormalise(x.mT).mT
    if not x.numel():
        return x
    rounding = 4 * torch.finfo(x.dtype).eps
    for _ in range(_SERIES_PASSES):
        excess = _excess(x)
        size = float(excess.abs().max())
        if size < rounding:
            return x
        x = _series_step(x, excess)
        if size < 1e-5:  # the next excess is of third order
            return x
    return _by_singular_vectors(x)


def _by_singular_vectors(matrix: Tensor) -> Tensor:
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    return left @ right


def _series_step(x: Tensor, excess: Tensor) -> Tensor:
    """Return X (I + E)^-½ up to E³, for the excess E = XᵀX - I."""
    return x - x @ (excess / 2 - 0.375 * gram(excess))  # gram: the excess is symmetric


def gram(x: Tensor) -> Tensor:
    """Return XᵀX, [..., s, s] for X [..., r, s], at little more than half the cost of a general product."""
    product = x.new_empty(*x.shape[:-2], x.shape[-1], x.shape[-1])
    _fill_gram(product, x, _BLOCK if x.device.type == "cpu" else _GPU_BLOCK)
    return product


def _fill_gram(product: Tensor, x: Tensor, least: int) -> None:
    half = x.shape[-1] // 2
    if half < least:
        product.copy_(x.mT @ x)
        return
    left, right = x[..., :half], x[..., half:]
    _fill_gram(product[..., :half, :half], left, least)
    _fill_gram(product[..., half:, half:], right, least)
    corner = left.mT @ right
    product[..., :half, half:] = corner
    product[..., half:, :half] = corner.mT


def _excess(x: Tensor) -> Tensor:
    """Return XᵀX - I."""
    excess = gram(x)
    excess.diagonal(dim1=-2, dim2=-1).sub_(1)
    return excess


def _halley_step(x: Tensor, a: float, b: float, c: float) -> Tensor:
    """Return X (aI + b XᵀX)(I + c XᵀX)⁻¹, by one Cholesky factor."""
    shifted = gram(x).mul_(c)
    shifted.diagonal(dim1=-2, dim2=-1).add_(1)
    try:
        factor = torch.linalg.cholesky(shifted)
    except torch.linalg.LinAlgError:  # pyright: ignore[reportPrivateImportUsage]; I + c XᵀX of finite values has a factor
        raise ValueError("the matrix holds values that are not finite (NaN or infinity)") from None
    solved = torch.cholesky_solve(x.mT, factor).mT
    return solved.mul_(a - b / c).add_(x, alpha=b / c)


def _weights(lower: float) -> tuple[float, float, float]:
    """Return the optimal weights for singular values in [lower, 1] (Nakatsukasa, Bai & Gygi 2010, section 3)."""
    square = lower * lower
    d = (4 * (1 - square) / square**2) ** (1 / 3)
    a = math.sqrt(1 + d) + 0.5 * math.sqrt(8 - 4 * d + 8 * (2 - square) / (square * math.sqrt(1 + d)))
    b = (a - 1) ** 2 / 4
    return a, b, a + b - 1


def _norm_bound(matrix: Tensor) -> Tensor:
    """Return a little more than the largest singular value, [..., 1, 1], by power iteration."""
    tiny = torch.finfo(matrix.dtype).tiny
    vector = torch.ones_like(matrix[..., :1, :]).mT
    for _ in range(10):
        vector = matrix.mT @ (matrix @ vector)
        vector = vector / vector.norm(dim=-2, keepdim=True).clamp(min=tiny)
    return (1.1 * (matrix @ vector).norm(dim=-2, keepdim=True)).clamp(min=tiny)
