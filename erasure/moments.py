"""The one statistic behind every closed-form eraser: class counts, means and covariances."""

from typing import Self

import torch
from torch import Tensor

from erasure.batches import check_batch
from erasure.exact import integer_moments
from erasure.polar import gram

_ROWS_AT_ONCE = 4096  # bounds the float64 copy of a batch: 100 MB at d = 3,072


class ClassMoments:
    """Class counts, means and covariances, accumulated in float64 from batches and mergeable across shards.

    Covariances are population covariances (divided by n_j, not n_j - 1). Within-class, total and
    cross-covariance are derived from the class moments, never recomputed from data.

    Args:
        dim: number d of coordinates of a flattened example.
        num_classes: number k of classes.
        device: where the sums live, and where batches are brought to.

    Attributes:
        sizes: class counts n_j, where no device has to be waited for.
        means: class means m_j, [k, d] float64; zero for a class without examples.

    Raises:
        ValueError: fewer than one coordinate or two classes.
    """

    def __init__(self, dim: int, num_classes: int, *, device: torch.device | str | None = None) -> None:
        if dim < 1:
            raise ValueError(f"dim={dim}: an example needs at least one coordinate")
        if num_classes < 2:
            raise ValueError(f"num_classes={num_classes}: erasing class information needs at least 2 classes")
        float64 = {"dtype": torch.float64, "device": device}
        self.sizes = [0] * num_classes
        self.means = torch.zeros(num_classes, dim, **float64)
        self._scatters = torch.zeros(num_classes, dim, dim, **float64)  # Σ_i (x_i - m_j)(x_i - m_j)ᵀ

    @classmethod
    def fit(
        cls, x: Tensor, z: Tensor, *, num_classes: int | None = None, device: torch.device | str | None = None
    ) -> Self:
        """Moments of one batch: `x` [n, ...] real, `z` [n] integer labels in 0..k-1 (k defaults to z.max() + 1)."""
        if num_classes is None:
            num_classes = int(z.max()) + 1 if z.numel() else 0
        return cls(x[:1].numel(), num_classes, device=device or x.device).update(x, z)

    @property
    def dim(self) -> int:
        return self.means.shape[1]

    @property
    def num_classes(self) -> int:
        return self.means.shape[0]

    def update(self, x: Tensor, z: Tensor) -> Self:
        """Add a batch: `x` [n, ...] of any real dtype, flattened to [n, d]; `z` [n] integer labels.

        8-bit images are summed exactly, as integers, and faster; give them whole and `rescale` afterwards.

        Raises:
            ValueError: shapes that do not match, labels out of range, or values that are not finite.
        """
        x = check_batch(x, z, self.dim, self.num_classes)
        z = z.to(self.means.device)
        for j in z.unique().tolist():
            members = (z == j).nonzero().squeeze(1).to(x.device)
            if x.dtype == torch.uint8:
                self._add(j, len(members), *integer_moments(x[members].to(self.means.device)))
                continue
            for rows in members.split(_ROWS_AT_ONCE):
                batch = x[rows].to(self.means)
                if not batch.isfinite().all():
                    raise ValueError(
                        f"class {j} holds values that are not finite (NaN or infinity): clean the data first"
                    )
                mean = batch.mean(0)
                self._add(j, len(rows), mean, gram(batch - mean))
        return self

    def rescale(self, scale: Tensor | float, shift: Tensor | float = 0.0) -> Self:
        """Turn the moments of x into those of scale · x + shift, both [d] or numbers, in place."""
        scale, shift = (torch.as_tensor(one, dtype=torch.float64).to(self.means.device) for one in (scale, shift))
        scale = scale.expand(self.dim)
        self.means.mul_(scale).add_(shift)
        self._scatters.mul_(scale).mul_(scale[:, None])
        return self

    def merge(self, other: "ClassMoments") -> Self:
        """Add the moments of other examples of the same classes, in place; the result is that of one pass."""
        if (other.dim, other.num_classes) != (self.dim, self.num_classes):
            raise ValueError(
                f"cannot merge moments of {other.num_classes} classes in {other.dim} dimensions "
                f"into moments of {self.num_classes} classes in {self.dim} dimensions"
            )
        for j, count in enumerate(other.sizes):
            self._add(j, count, other.means[j].to(self.means), other._scatters[j].to(self.means))
        return self

    def _add(self, j: int, count: int, mean: Tensor, scatter: Tensor) -> None:
        """Pairwise update of mean and scatter (Chan, Golub & LeVeque 1983)."""
        if count == 0:
            return
        before = self.sizes[j]
        after = before + count
        shift = mean - self.means[j]
        self._scatters[j] += scatter
        self._scatters[j].addr_(shift, shift, alpha=before * count / after)
        self.means[j] += shift * (count / after)
        self.sizes[j] = after

    def require_examples(self, at_least: int = 2) -> None:
        """Raise ValueError, naming the classes, unless every class has `at_least` examples."""
        if short := [j for j, count in enumerate(self.sizes) if count < at_least]:
            named = ", ".join(f"class {j} has {self.sizes[j]}" for j in short[:5])
            raise ValueError(
                f"every class needs at least {at_least} examples, but {named}"
                f"{' …' if len(short) > 5 else ''}: add examples or drop the class"
            )

    @property
    def n(self) -> int:
        """Number of examples seen."""
        return sum(self.sizes)

    @property
    def counts(self) -> Tensor:
        """Class counts n_j, [k] int64."""
        return torch.tensor(self.sizes).to(self.means.device, non_blocking=True)

    @property
    def weights(self) -> Tensor:
        """Class weights λ_j = n_j / n, [k]."""
        return self.counts.to(torch.float64) / self.n

    @property
    def mean(self) -> Tensor:
        """Global mean m̄ = Σ λ_j m_j, [d]."""
        return (self.weights[None] @ self.means)[0]

    @property
    def covariances(self) -> Tensor:
        """Class covariances Σ_j, [k, d, d]; zero for a class without examples."""
        return self._scatters / self.counts.clamp(min=1)[:, None, None]

    def covariance(self, j: int) -> Tensor:
        """Covariance Σ_j of one class, [d, d]."""
        return self._scatters[j] / max(1, self.sizes[j])

    def multiply(self, j: int, u: Tensor) -> Tensor:
        """Σ_j u, [d] or [d, m], without a copy of Σ_j."""
        return self._scatters[j] @ u / max(1, self.sizes[j])

    @property
    def within(self) -> Tensor:
        """Within-class covariance Σ_W = Σ λ_j Σ_j, [d, d]."""
        return self._scatters.sum(0) / self.n

    @property
    def between(self) -> Tensor:
        """Between-class covariance Σ λ_j (m_j - m̄)(m_j - m̄)ᵀ, [d, d]."""
        return self.cross @ (self.means - self.mean)

    @property
    def total(self) -> Tensor:
        """Total covariance Σ_xx = Σ_W + between-class covariance, [d, d]."""
        return self.within + self.between

    @property
    def cross(self) -> Tensor:
        """Cross-covariance Σ_xz with one-hot labels, [d, k]: column j is λ_j (m_j - m̄)."""
        return (self.weights[:, None] * (self.means - self.mean)).T
