"""QLEACE as the paper's authors fitted it: low precision, shrinkage, a truncating pseudo-inverse. A reproduction."""

import logging
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

import torch
from torch import Tensor

from erasure.erasers.qleace import ClassMapsEraser
from erasure.moments import ClassMoments
from erasure.progress import report_progress
from erasure.projection_eraser import constant_columns
from erasure.torch_modes import without_autocast

log = logging.getLogger(__name__)

Precision = Literal["float64", "float32", "bfloat16"]
_MAX_ROUNDS = 100


@dataclass(frozen=True, repr=False)
class TruncatedQleaceEraser(ClassMapsEraser):
    """A reproduction of the QLEACE in the paper's code, which keeps a different subspace for every class.

    The fitter behind Quirke & Belrose 2025 (concept-erasure, `QuadraticFitter`) computes in float32, or bfloat16,
    shrinks class covariances, and drops every eigenvalue λ ≤ λ_max · d · ε from a pseudo-inverse square root. Images of
    class j then lie in the span of that class's leading eigenvectors, so that the subspace alone gives the label away.
    Class means come out equal; class covariances do not. Low precision, shrinkage and truncation can each be switched
    off; without all three this is QLEACE. Use `QleaceEraser`, which is exact, unless you study their effects.

    Attributes:
        means: class means m_j, [k, d].
        maps: A_jᵀ, [k, d, d].
        ranks: number of eigenvalues of each class covariance that the pseudo-inverse keeps.

    Example:
        >>> import torch
        >>> from erasure import TruncatedQleaceEraser
        >>> x, z = torch.randn(90, 4, generator=torch.Generator().manual_seed(0)), torch.arange(90) % 3
        >>> TruncatedQleaceEraser.fit(x, z).ranks
        (4, 4, 4)
    """

    mean: Tensor
    num_classes: int
    means: Annotated[Tensor, "k d"]
    maps: Annotated[Tensor, "k d d"]
    ranks: tuple[int, ...]
    version: ClassVar[int] = 1
    erased_order: ClassVar[int] = 1

    @classmethod
    def require_options(cls, **options: Any) -> None:
        for name in ("precision", "truncation"):
            allowed = (*get_args(Precision), *((None,) if name == "truncation" else ()))
            if options.get(name, "float32") not in allowed:
                raise ValueError(f"{name}={options[name]!r}: choose one of {', '.join(map(str, allowed))}")
        if not isinstance(options.get("shrinkage", True), bool):
            raise ValueError(f"shrinkage={options['shrinkage']!r}: choose True or False")

    @classmethod
    @without_autocast
    def from_moments(
        cls,
        moments: ClassMoments,
        *,
        precision: Precision = "float32",
        shrinkage: bool = True,
        truncation: Precision | None = None,
    ) -> Self:
        """Fit from class moments.

        Args:
            moments: moments of the data to erase, with at least two examples per class.
            precision: dtype of every matrix product. Eigendecompositions are computed in float64 and rounded to it.
            shrinkage: shrink class covariances towards a multiple of the identity (Bodnar, Gupta & Parolya 2014).
            truncation: dtype whose ε sets the threshold below which eigenvalues are dropped; None for `precision`. With
                "float64", only eigenvalues that are zero up to rounding are dropped.

        Raises:
            ValueError: a class with fewer than two examples, an option that is not one of these, or products of
                covariances that leave the range of the dtype.
        """
        cls.require_options(precision=precision, shrinkage=shrinkage, truncation=truncation)
        moments.require_examples()
        constant_columns(cls, moments, moments.total.diagonal(), moments.within.diagonal())  # may warn
        dtype, epsilon = getattr(torch, precision), torch.finfo(getattr(torch, truncation or precision)).eps
        k = moments.num_classes
        covariances = [
            shrunk(_rounded(moments.covariance(j), dtype), n)
            if shrinkage
            else _rounded(moments.covariance(j) * n / (n - 1), dtype)
            for j, n in enumerate(moments.sizes)
        ]
        target = _barycenter(covariances, moments.weights.to(dtype), epsilon)
        maps, ranks = [], []
        for j, covariance in enumerate(covariances):
            report_progress("truncated QLEACE", (1 + j / k) / 2, f"map of class {j}")
            root, inverse_root, rank = _roots(covariance, epsilon)
            maps.append((inverse_root @ _root(root @ target @ root) @ inverse_root).T.double())
            ranks.append(rank)
        log.info("%s keeps %d to %d of %d directions per class", cls.__name__, min(ranks), max(ranks), moments.dim)
        return cls(
            mean=moments.means.mean(0),
            num_classes=k,
            means=moments.means.clone(),
            maps=torch.stack(maps),
            ranks=tuple(ranks),
        )

    @classmethod
    def matrices(cls, num_classes: int) -> float:
        return 8.0 + 2.0 * num_classes


def _rounded(covariance: Tensor, dtype: torch.dtype) -> Tensor:
    rounded = covariance.to(dtype)
    if bool(covariance.any()) and not bool(rounded.any()):
        raise _out_of_range(dtype)
    return rounded


def _out_of_range(dtype: torch.dtype) -> ValueError:
    return ValueError(
        f"products of covariances leave the range of {dtype}: divide each coordinate of x by its standard deviation, "
        "or fit with precision='float64'"
    )


def shrunk(covariance: Tensor, n: int) -> Tensor:
    """Return α S + β (tr S / d) I with the coefficients of Bodnar, Gupta & Parolya 2014 (equations 4.3 and 4.4)."""
    d, eps = len(covariance), torch.finfo(covariance.dtype).eps
    trace = covariance.trace()
    target_square = trace.square() / d  # ‖(tr S / d) I‖²_F, and tr(S · (tr S / d) I) as well
    excess = covariance.norm().square() * target_square - target_square.square()
    alpha = 1 - (trace.square() * target_square / n + eps) / (excess + eps)
    beta = (1 - alpha) * (target_square + eps) / (target_square + eps)
    shrunk = alpha * covariance
    shrunk.diagonal().add_(beta * trace / d)
    return shrunk


def _eigen(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return eigenvalues, none negative, and eigenvectors, computed in float64 and rounded to the matrix's dtype."""
    if not matrix.isfinite().all():
        raise _out_of_range(matrix.dtype)
    values, vectors = torch.linalg.eigh(matrix.double())
    return values.to(matrix.dtype).clamp(min=0), vectors.to(matrix.dtype)


def _root(matrix: Tensor) -> Tensor:
    """Return the symmetric square root of a positive semidefinite matrix."""
    values, vectors = _eigen(matrix)
    return vectors * values.sqrt() @ vectors.T


def _roots(matrix: Tensor, epsilon: float) -> tuple[Tensor, Tensor, int]:
    """Return the square root, its truncating pseudo-inverse, and the number of eigenvalues that the latter keeps."""
    values, vectors = _eigen(matrix)
    significant = values > values[-1] * len(matrix) * epsilon
    inverse = torch.where(significant, values.rsqrt(), 0.0)
    return vectors * values.sqrt() @ vectors.T, vectors * inverse @ vectors.T, int(significant.sum())


def _barycenter(covariances: list[Tensor], weights: Tensor, epsilon: float) -> Tensor:
    """Return the Bures-Wasserstein barycenter by the fixed point of Álvarez-Esteban et al. 2016 (equation 7).

    It stops once the loss falls by less than the ε of its dtype. Rounding decides in which round that happens.
    """
    barycenter = sum((w * c for w, c in zip(weights, covariances, strict=True)), torch.zeros_like(covariances[0]))
    average_trace = barycenter.trace()
    loss = torch.tensor(torch.inf)
    for round_ in range(_MAX_ROUNDS):
        root, inverse_root, _ = _roots(barycenter, epsilon)
        inner = torch.zeros_like(barycenter)
        for j, (weight, covariance) in enumerate(zip(weights, covariances, strict=True)):
            done = 1 - 2 ** -(round_ + j / len(covariances))  # a few rounds are usual
            report_progress("truncated QLEACE", done / 2, f"barycenter, round {round_ + 1}")
            inner += weight * _root(root @ covariance @ root)
        now = barycenter.trace() + average_trace - 2 * inner.trace()
        if loss - now < torch.finfo(barycenter.dtype).eps:
            break
        loss = now
        step = inverse_root @ inner @ inverse_root
        barycenter = step @ barycenter @ step.T
    return barycenter
