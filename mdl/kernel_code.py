"""The exact kernel code: one-step-ahead predictions from a Cholesky factor, mixed over temperatures and ridges."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

RIDGES = tuple(10.0**e for e in range(-4, 1))  # λ; images are standardised, so that K(x, x) is about 1
SHARPNESS = tuple(2.0 ** (e / 2) for e in range(-12, 13))  # β, inverse temperatures
POWERS = (0, 1, 2)  # p: scores are β μ / s^p
_GATHERED = 2**22  # entries brought into the order at once
_BLOCK = 1024  # examples of which all members speak at once


@dataclass(frozen=True)
class Factor:
    """The Cholesky factor of one λ: K + λI = L Lᵀ of the n training examples in the order in which they are coded.

    Attributes:
        lower: L, [n, n] float64.
        targets: α = L⁻¹ y, [n, k], y one-hot less 1/k.
    """

    lower: Tensor
    targets: Tensor

    def ahead(self) -> tuple[Tensor, Tensor]:
        """Compute mean [n, k] and standard deviation [n] of each example's prediction from those before it.

        μ_i = Σ_{j<i} L_ij α_j, which is y_i - L_ii α_i without having touched y_i; s_i = L_ii, noise included.
        """
        diagonal = self.lower.diagonal()
        deviation = diagonal.clone()
        diagonal.zero_()
        mean = self.lower @ self.targets
        diagonal.copy_(deviation)
        return mean, deviation

    def predict(self, cross: Tensor, variance: Tensor, sizes: Sequence[int]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield mean [m, k] and standard deviation [m] of other examples from the first n, for each ascending size n.

        Args:
            cross: kernel with the training examples in their order, [n, m].
            variance: K(x, x) + λ of each, [m].
            sizes: numbers n, ascending.
        """
        solved = torch.linalg.solve_triangular(self.lower, cross, upper=False)
        mean, variance = cross.new_zeros(cross.shape[1], self.targets.shape[1]), variance.clone()
        for before, n in itertools.pairwise([0, *sizes]):
            mean = mean + solved[before:n].T @ self.targets[before:n]
            variance = variance - solved[before:n].square().sum(0)
            yield mean, variance.clamp_min(1e-12).sqrt()


class KernelCode:
    """A code of labels in an order, each by a mixture of kernel regressions on all before it.

    For each λ, β and p of the grids softmax(β μ / s^p) is a member: μ and s are mean and standard deviation of a
    Gaussian process's prediction of the label's one-hot vector. The mixture weighs members, equal at first, by the
    probability that they gave the labels so far: its prediction of an example depends on no label not yet coded,
    and on no later input.

    Args:
        kernel: K of the training examples, [n, n] float64.
        labels: [n] in 0..k-1.
        num_classes: k.
        ridges: λ; each takes a Cholesky factor.
    """

    def __init__(self, kernel: Tensor, labels: Tensor, num_classes: int, ridges: Sequence[float] = RIDGES) -> None:
        self._kernel, self._labels, self._num_classes, self._ridges = kernel, labels, num_classes, ridges

    def targets(self, order: Tensor) -> Tensor:
        """Return one-hot labels less 1/k, [n, k] float64."""
        return F.one_hot(self._labels[order], self._num_classes).double() - 1 / self._num_classes

    def factors(self, order: Tensor) -> Iterator[tuple[float, Factor]]:
        """Yield each λ and its factor, which the next overwrites."""
        n = len(order)
        targets = self.targets(order)
        memory = self._kernel.new_empty(n, n)
        rows = max(1, _GATHERED // n)
        for ridge in self._ridges:
            for start in range(0, n, rows):
                some = self._kernel[order[start : start + rows]]
                torch.index_select(some, 1, order, out=memory[start : start + rows])
            memory.diagonal().add_(ridge)
            upper = memory.mT  # a column-major matrix, in whose place the factor is written
            info = torch.empty((), dtype=torch.int32, device=memory.device)
            torch.linalg.cholesky_ex(upper, out=(upper, info))
            assert not info, "a kernel with a ridge is positive definite"
            yield ridge, Factor(upper, torch.linalg.solve_triangular(upper, targets, upper=False))

    def members(self, mean: Tensor, deviation: Tensor) -> Tensor:
        """Return log-probabilities of each member of one λ, [members, n, k]."""
        powers, sharpness = (mean.new_tensor(grid) for grid in (POWERS, SHARPNESS))
        scores = mean / deviation[:, None] ** powers[:, None, None]
        return (scores[:, None] * sharpness[:, None, None]).flatten(0, 1).log_softmax(2)

    def code(
        self, order: Tensor, cross: Tensor | None = None, diagonal: Tensor | None = None, sizes: Sequence[int] = ()
    ) -> tuple[Tensor, Tensor]:
        """Code the labels, and predict test examples after so many labels.

        Args:
            order: of the training examples, [n].
            cross: kernel of test examples with the training examples, [m, n].
            diagonal: K(x, x) of the test examples, [m].
            sizes: numbers of labels known, ascending.

        Returns:
            Bits [n] in this order; log-probabilities of the test examples' labels, [sizes, m, k] in nats.
        """
        z, known = self._labels[order], [n - 1 for n in sizes]
        paid: list[Tensor] = []
        said: list[Tensor] = []
        for ridge, factor in self.factors(order):
            paid.append(self._log_probabilities(*factor.ahead(), z))
            if cross is not None and diagonal is not None:
                weights = paid[-1].cumsum(0)[known]
                parts = zip(cross.split(_BLOCK), (diagonal + ridge).split(_BLOCK), strict=True)
                blocks = [self._tested(factor, part[:, order].T, variance, sizes, weights) for part, variance in parts]
                said.append(torch.cat(blocks, 1))
        log_p = torch.cat(paid, 1)
        if not said:
            return mixture_bits(log_p), log_p.new_empty(0)
        total = log_p.cumsum(0)[known].logsumexp(1)
        return mixture_bits(log_p), torch.stack(said).logsumexp(0) - total[:, None, None]

    def _log_probabilities(self, mean: Tensor, deviation: Tensor, z: Tensor) -> Tensor:
        """Return log-probabilities [n, members] that one λ's members give the labels `z` [n]."""
        parts = zip(*(values.split(_BLOCK) for values in (mean, deviation, z)), strict=True)
        return torch.cat([self.members(m, s)[:, torch.arange(len(labels)), labels].T for m, s, labels in parts])

    def _tested(self, factor: Factor, cross: Tensor, variance: Tensor, sizes: Sequence[int], weights: Tensor) -> Tensor:
        """Return one λ's part of the mixture's test log-probabilities after each size, [sizes, m, k]."""
        said = (self.members(*one) for one in factor.predict(cross, variance, sizes))
        return torch.stack(
            [(weight[:, None, None] + one).logsumexp(0) for weight, one in zip(weights, said, strict=True)]
        )


def mixture_bits(log_p: Tensor) -> Tensor:
    """Return the cost of each label in bits, [n], under members that give it log-probabilities [n, M], in nats.

    A member's weight before example i is the product of the probabilities that it gave labels 1..i-1.
    """
    weights = F.pad(log_p.cumsum(0)[:-1], (0, 0, 1, 0))
    return (weights.logsumexp(1) - (weights + log_p).logsumexp(1)) / math.log(2)
