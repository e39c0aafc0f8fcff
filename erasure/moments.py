"""Class counts, means and covariances: the statistics behind every closed-form eraser."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor

from erasure.inputs import Array, labelled_rows
from erasure.moment_accumulator import Accumulator


class FewExamplesError(ValueError):
    """Classes with fewer than two examples.

    Args:
        sizes: number of examples of each of these classes, by class number.
        names: names of all classes; empty to use their numbers.
    """

    def __init__(self, sizes: Mapping[int, int], names: Sequence[Any] = ()) -> None:
        self.sizes = sizes
        named = ", ".join(f"class {names[j] if names else j} has {size}" for j, size in [*sizes.items()][:5])
        more = " …" if len(sizes) > 5 else ""
        remedy = "add examples or drop the class"
        if not (names or all(sizes.values())):
            remedy = "number the classes without gaps, z = np.unique(z, return_inverse=True)[1]"
        super().__init__(f"every class needs at least 2 examples, but {named}{more}: {remedy}")


class ClassMoments(Accumulator):
    """Class counts, means and covariances, accumulated in float64 from batches and mergeable across shards.

    Batches are merged by the pairwise update of Chan, Golub & LeVeque 1983. Covariances are population covariances
    (divided by n_j, not n_j - 1). Within-class, total and cross-covariance are derived from the class moments.

    Args:
        dim: number d of coordinates of an example.
        num_classes: number k of classes.
        device: device of the sums, to which batches are moved.
        pooled: keep one within-class covariance instead of one per class. This takes 1/k of the memory, and is enough
            for LEACE and oracle LEACE.

    Raises:
        ValueError: fewer than one coordinate or two classes.

    Example:
        >>> import torch
        >>> from erasure import ClassMoments
        >>> x, z = torch.randn(90, 4), torch.arange(90) % 3
        >>> moments = ClassMoments(4, 3).update(x[:50], z[:50]).update(x[50:], z[50:])
        >>> moments
        ClassMoments of 3 classes in 4 dimensions, n=90
        >>> moments.total.shape, moments.cross.shape
        (torch.Size([4, 4]), torch.Size([4, 3]))
    """

    min_classes = 2

    @classmethod
    def fit(
        cls,
        x: Array,
        z: Any,
        *,
        num_classes: int | None = None,
        dim: int | None = None,
        device: torch.device | str | None = None,
        pooled: bool = False,
    ) -> Self:
        """Compute the moments of one batch.

        Args:
            x: examples, as `update` takes them.
            z: labels, as `update` takes them.
            num_classes: k; the largest label plus one by default.
            dim: values per example; all of x[0] by default. Hidden states [batch, tokens, d] need `dim=d` if there is
                one label per example; with one label per token d is the default.
            device: device of the sums; that of `x` by default.
            pooled: see the class.

        Raises:
            ValueError: no examples, or as `update`.
        """
        rows, labels, k = labelled_rows(x, z, num_classes=num_classes, dim=dim)
        return cls(rows.shape[1], k, device=device or rows.device, pooled=pooled).update(rows, labels)

    def require_examples(self, names: Sequence[str] = (), *, unused: bool = False) -> None:
        """Raise a ValueError that names the classes with fewer than two examples, if there are any.

        Args:
            names: names of the classes; empty to use their numbers.
            unused: allow classes without examples, for erasers that need no class covariances.
        """
        if self.n and sum(count > 0 for count in self.sizes) < 2:
            raise ValueError("all examples are of one class: there is nothing to erase")
        if short := [j for j, count in enumerate(self.sizes) if count < 2 and not (unused and count == 0)]:
            if short == [0] and not self.sizes[0] and self.num_classes > 2:
                raise ValueError("no example has label 0: labels start at 0; subtract the smallest label from all")
            raise FewExamplesError({j: self.sizes[j] for j in short}, names)

    @property
    def counts(self) -> Tensor:
        """Class counts n_j, [k] int64."""
        return torch.tensor(self.sizes).to(self._offsets.device, non_blocking=True)

    @property
    def weights(self) -> Tensor:
        """Class weights λ_j = n_j / n, [k]; raise ValueError without examples."""
        if not self.n:
            raise ValueError("moments of no examples: call update(x, z) first")
        return self.counts.to(torch.float64) / self.n

    @property
    def mean(self) -> Tensor:
        """Global mean m̄ = Σ λ_j m_j, [d]."""
        return self.origin + (self.weights[None] @ self.offsets)[0]

    @property
    def shifts(self) -> Tensor:
        """Class means less the global mean, m_j - m̄, [k, d]; zero for a class without examples.

        Accurate even where `means - mean` would be rounding error.
        """
        offsets = self.offsets
        return (offsets - (self.weights[None] @ offsets)[0]) * (self.counts > 0)[:, None]

    @property
    def covariances(self) -> Tensor:
        """Class covariances Σ_j, [k, d, d]; zero for a class without examples."""
        return self._of_classes / self.counts.clamp(min=1)[:, None, None]

    def covariance(self, j: int) -> Tensor:
        """Return the covariance Σ_j of one class, [d, d]."""
        return self._of_classes[j] / max(1, self.sizes[j])

    def multiply(self, j: int, u: Tensor) -> Tensor:
        """Return Σ_j u for u [d] or [d, m], without a copy of Σ_j."""
        return self._of_classes[j] @ u / max(1, self.sizes[j])

    @property
    def _of_classes(self) -> Tensor:
        if self.pooled:
            raise ValueError("pooled moments have no class covariances: collect them with pooled=False")
        return self.scatters

    @property
    def within(self) -> Tensor:
        """Within-class covariance Σ_W = Σ λ_j Σ_j, [d, d]."""
        return self.scatters.sum(0) / self.n

    @property
    def between(self) -> Tensor:
        """Between-class covariance Σ λ_j (m_j - m̄)(m_j - m̄)ᵀ, [d, d]."""
        return self.cross @ self.shifts

    @property
    def total(self) -> Tensor:
        """Total covariance Σ_xx = Σ_W + between-class covariance, [d, d]."""
        return self.within + self.between

    @property
    def cross(self) -> Tensor:
        """Cross-covariance Σ_xz with one-hot labels, [d, k]: column j is λ_j (m_j - m̄)."""
        return (self.weights[:, None] * self.shifts).T
