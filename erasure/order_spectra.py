"""The order spectrum: the class information that data holds at each polynomial order.

Erasure makes class moments equal up to an order. Hermite tensors measure what remains: for whitened x, classes have
equal moments up to order N if and only if the class means of He_1(x), ..., He_N(x) are equal. Only inner products of
these tensors are computed (`erasure.hermite`), never the tensors.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from erasure.hermite import hermite_kernels, hermite_squares
from erasure.inputs import (
    as_tensor,
    labelled_rows,
    leading_shape,
    require_range,
    require_same_columns,
    whole_number,
    whole_numbers,
)

_DENSE = 1024  # maximum number of dimensions for a full eigendecomposition; above it, subspace iteration
_ROUNDS = 12  # of subspace iteration
_FLOAT64_EPSILON = 32 * torch.finfo(torch.float64).eps  # of means and covariances, as in `CovarianceFactor`
_TILE = 512  # rows and columns of a kernel at once: intermediate results fit in the cache of a core


@dataclass(frozen=True)
class OrderSpectrum:
    """Class information in the leading directions of a sample, order by order (row p - 1 is order p; docs/orders.md).

    Attributes:
        directions: number r of whitened directions, those of largest variance.
        variance: share of the variance in these directions.
        n: number of examples.
        shares: [orders], share of the energy of order p, E‖He_p(x) - E He_p(x)‖², that lies between classes. Both
            energies are U-statistics without bias, so that a share may be negative, and is 0 on average if classes do
            not differ.
        errors: [orders], standard errors of the shares over examples (jackknife). They are conservative: if classes do
            not differ, they are 1.4 times the spread over samples (Efron & Stein 1981). Test with `z_scores` instead.
        z_scores: [orders], shares in standard deviations over all permutations of the labels, whose mean is 0; 0 if
            all permutations have the same share.
        gaps: [orders], Σ_j λ_j ‖μ_j - μ‖² / E‖He_p(x)‖² of this sample, with bias: about (k - 1)/n for labels without
            information, 0 if an eraser has made the class means equal.
    """

    directions: int
    variance: float
    n: int
    shares: Tensor
    errors: Tensor
    z_scores: Tensor
    gaps: Tensor


@dataclass(frozen=True)
class Whitening:
    """Principal directions of a sample, largest variance first.

    Attributes:
        centre: [d].
        basis: [d, r], each direction divided by its standard deviation.
        shares: [r], share of the variance in each direction.
    """

    centre: Tensor
    basis: Tensor
    shares: Tensor

    @classmethod
    def fit(cls, x: Tensor, r: int) -> Self:
        """Fit to examples [n, d]; see `of`."""
        centred = x.double() - (mean := x.double().mean(0))
        epsilon = torch.finfo(x.dtype).eps if x.is_floating_point() else 0.0
        return cls.of(mean, centred.T @ centred / len(x), r, epsilon)

    @classmethod
    def of(cls, mean: Tensor, covariance: Tensor, r: int, epsilon: float) -> Self:
        """Return at least r directions whose variance exceeds rounding, or all such directions if there are fewer.

        Args:
            mean: mean of a sample, [d] float64.
            covariance: covariance of the sample, [d, d] float64.
            r: number of directions.
            epsilon: relative precision of the examples.

        Raises:
            ValueError: nothing varies.
        """
        d, device = len(covariance), covariance.device
        basis = torch.eye(d, dtype=covariance.dtype, device=device)
        if d > _DENSE:  # more directions than needed, as the last ones are inaccurate
            generator = torch.Generator().manual_seed(0)
            basis = torch.randn(d, min(d, 2 * r + 32), generator=generator, dtype=covariance.dtype).to(device)
            for _ in range(_ROUNDS):
                basis = torch.linalg.qr(covariance @ basis).Q
        values, vectors = torch.linalg.eigh(basis.T @ covariance @ basis)
        sizes = mean.abs() + covariance.diagonal().clamp(min=0).sqrt()
        rounding = (sizes * max(epsilon, _FLOAT64_EPSILON)).square()  # of each coordinate's variance
        rounding = rounding @ (basis @ vectors).square()  # of the variance in each direction
        significant = values > torch.maximum(values[-1] * 1e-10, rounding)
        if not significant.any():
            raise ValueError("all examples are alike: there is no direction in which classes could differ")
        values, vectors = values[significant].flip(0), vectors[:, significant].flip(1)
        return cls(mean, basis @ vectors / values.sqrt(), values / covariance.trace())

    def __call__(self, x: Tensor) -> Tensor:
        """Return examples [n, d] along the directions, [n, r] float64."""
        return (x.to(self.centre) - self.centre) @ self.basis


def order_spectrum(
    x: Tensor | np.ndarray,
    z: Any,
    *,
    reference: Tensor | np.ndarray | None = None,
    directions: Sequence[int] = (10, 30, 100),
    orders: int = 4,
    most: int = 10_000,
    seed: int = 0,
) -> list[OrderSpectrum]:
    """Return the spectra of a sample, one for each entry of `directions`, in order (docs/orders.md).

    If an eraser has made an order equal on this sample, shuffled labels are no null distribution for that order. Its
    unbiased share is then about -(k - 1)/n, far below the shares of shuffled labels. Use data to which the eraser was
    not fitted.

    Args:
        x: examples [n, ...], real, or vectors [..., d] with a label each, such as hidden states [batch, tokens, d].
        z: labels in any form that `erasure.inputs.check_batch` takes; at least 3 examples of each class that occurs.
        reference: examples that determine the whitening, such as the training split if x is the test split; x by
            default.
        directions: numbers of directions, those of largest variance; numbers above the rank are reduced to it.
        orders: highest order.
        most: maximum number of examples; larger samples are subsampled. The cost is quadratic in it.
        seed: seed of the subsample.

    Raises:
        ValueError: shapes that do not match, values that are not finite, a class of fewer than 3 examples, examples
            that do not vary, or a number that is not whole or too small.

    Example:
        Classes that differ in their variances only:

        >>> import torch
        >>> from erasure import order_spectrum
        >>> generator = torch.Generator().manual_seed(0)
        >>> z = torch.arange(400) % 2
        >>> x = torch.randn(400, 2, generator=generator) * (1 + z[:, None])
        >>> (spectrum,) = order_spectrum(x, z, directions=[2], orders=2)
        >>> (spectrum.z_scores.abs() > 5).tolist()
        [False, True]
    """
    numbers = whole_numbers(directions, "directions")
    if isinstance(numbers, int):
        raise ValueError(f"directions={directions}: give a list of numbers, [{directions}]")
    directions = numbers
    orders, most = whole_number(orders, "orders"), whole_number(most, "most")
    if orders < 1 or most < 1 or min(directions, default=0) < 1:
        raise ValueError(f"directions={directions}, orders={orders}, most={most}: must be at least 1")
    rows, labels, _ = labelled_rows(x, z)
    require_range(rows, "x")
    whitened_by = rows
    if reference is not None:
        require_same_columns(x, reference, "reference")
        reference = as_tensor(reference, "reference")
        require_range(reference, "reference")
        leading = leading_shape(reference, rows.shape[1], "reference")
        whitened_by = reference.reshape(leading.numel(), rows.shape[1])
    whitening = Whitening.fit(whitened_by, max(directions))
    return whitened_spectra(rows, labels, whitening, directions=directions, orders=orders, most=most, seed=seed)


def whitened_spectra(
    x: Tensor,
    z: Tensor,
    whitening: Whitening,
    *,
    directions: Sequence[int],
    orders: int = 4,
    most: int,
    seed: int = 0,
) -> list[OrderSpectrum]:
    """Return the spectra of examples [n, d] with labels [n] in the directions of a whitening; see `order_spectrum`."""
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(x), generator=generator)[:most].sort().values.to(x.device)
    x, z = whitening(x[chosen]), z.to(x.device)[chosen]
    classes, labels = torch.unique(z, return_inverse=True)
    counts = labels.bincount()
    if len(classes) < 2 or int(counts.min()) < 3:
        raise ValueError(f"class sizes {counts.tolist()}: an order spectrum needs 2 classes of at least 3 examples")
    sizes = [min(r, x.shape[1]) for r in directions]
    spectra = {}
    for r in dict.fromkeys(sizes):
        lines = [_line(sums, labels, counts.double()) for sums in kernel_sums(x[:, :r], labels, orders)]
        columns = (torch.stack(column) for column in zip(*lines, strict=True))
        spectra[r] = OrderSpectrum(r, float(whitening.shares[:r].sum()), len(x), *columns)
    return [spectra[r] for r in sizes]


@dataclass(frozen=True)
class KernelSums:
    """Sums of the kernel k(a, b) of one order over pairs a ≠ b, and its diagonal.

    Attributes:
        rows: [n, k], sums over the pairs of each example with the examples of each class.
        diagonal: [n], k(a, a).
        squares: sum of k(a, b)².
    """

    rows: Tensor
    diagonal: Tensor
    squares: Tensor


def kernel_sums(x: Tensor, z: Tensor, orders: int) -> list[KernelSums]:
    """Sum the kernel of each order in tiles of the upper triangle, without an n × n matrix."""
    n = len(x)
    hot = torch.nn.functional.one_hot(z).to(x)
    rows, squares = x.new_zeros(orders, n, hot.shape[1]), x.new_zeros(orders)
    for i in range(0, n, _TILE):
        for j in range(i, n, _TILE):
            a, b = slice(i, i + _TILE), slice(j, j + _TILE)
            for p, kernel in enumerate(hermite_kernels(x[a], x[b], orders)):
                if i == j:
                    kernel.fill_diagonal_(0)
                else:
                    rows[p, b] += kernel.T @ hot[a]
                rows[p, a] += kernel @ hot[b]
                squares[p] += kernel.norm().square() * (1 if i == j else 2)
    return [KernelSums(*sums) for sums in zip(rows, hermite_squares(x, orders), squares, strict=True)]


def _line(sums: KernelSums, z: Tensor, counts: Tensor) -> tuple[Tensor, ...]:
    """Return one order's share, error, z-score and gap."""
    rows, diagonal, n = sums.rows, sums.diagonal, len(z)
    hot = torch.nn.functional.one_hot(z, len(counts)).to(rows)
    within, pairs, trace = (rows * hot).sum(0), rows.sum(), diagonal.sum()
    share, total = _share(within, pairs, trace, counts)
    squared = (within + diagonal @ hot) / counts**2  # |μ_j|² of this sample
    gap = ((counts / n * squared).sum() - (pairs + trace) / n**2) / (trace / n)
    # with each example left out in turn
    without, _ = _share(within - 2 * rows * hot, pairs - 2 * rows.sum(1), trace - diagonal, counts - hot)
    error = ((n - 1) / n * (without - without.mean()).square().sum()).sqrt()
    std = _permuted_std(sums, counts) / total
    z_score = torch.where(std > 0, share / std, 0.0)
    return share, error, z_score, gap


def _permuted_std(sums: KernelSums, counts: Tensor) -> Tensor:
    """Return the standard deviation of a share's numerator over all permutations of the labels (Mantel 1967).

    Up to a constant, the numerator is Σ_ab k(a, b) c(a, b) over pairs a ≠ b. For a pair of one class, c(a, b) is that
    class's entry of `weights` below; otherwise it is 0.
    """
    n = counts.sum()
    weights = (counts / n - (counts / n) ** 2) / (counts * (counts - 1)) + 1 / n**2
    in_row = weights * (counts - 1)
    pairs, rows = _centred(sums.rows.sum(), sums.squares, sums.rows.sum(1).square().sum(), n)
    class_pairs, class_rows = _centred(
        (counts * in_row).sum(), (counts * in_row * weights).sum(), (counts * in_row**2).sum(), n
    )
    # pairs of pairs that share no example, one, or both
    disjoint = (2 * pairs - 4 * rows) * (2 * class_pairs - 4 * class_rows) / ((n - 2) * (n - 3))
    one = 4 * (rows - pairs) * (class_rows - class_pairs) / (n - 2)
    variance = (disjoint + one + 2 * pairs * class_pairs) / (n * (n - 1))
    return variance.clamp(min=0).sqrt()  # rounding can make it negative if all permutations have the same share


def _centred(total: Tensor, squares: Tensor, of_rows: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sums of squares of a symmetric matrix's off-diagonal entries and of its row sums, both centred."""
    return squares - total**2 / (n * (n - 1)), of_rows - total**2 / n


def _share(within: Tensor, pairs: Tensor, trace: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Return the between-class share of the energy, and the energy, from sums of the kernel over pairs of examples.

    Args:
        within: sums over the pairs of each class [..., k].
        pairs: sum over all pairs [...].
        trace: sum of k(a, a) [...].
        counts: number of examples of each class [..., k].
    """
    n = counts.sum(-1)
    squared = within / (counts * (counts - 1))  # |μ_j|², without bias
    weights = counts / n[..., None]
    mean = (pairs - within.sum(-1)) / n**2 + (weights**2 * squared).sum(-1)  # |μ|²
    total = trace / n - mean
    return ((weights * squared).sum(-1) - mean) / total, total
