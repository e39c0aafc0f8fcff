"""Class counts, means and scatters of examples that come in batches: exact or in float64, and mergeable."""

from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor

from erasure.batches import Array, check_batch
from erasure.exact import integer_moments
from erasure.polar import gram

_ROWS_AT_ONCE = 4096  # bounds the float64 copy of a batch: 100 MB at d = 3,072


class Accumulator:
    """What `erasure.ClassMoments` is computed from; its arguments are described there."""

    def __init__(
        self,
        dim: int,
        num_classes: int,
        *,
        device: torch.device | str | None = None,
        pooled: bool = False,
        precision: torch.dtype = torch.float64,
    ) -> None:
        if dim < 1:
            raise ValueError(f"dim={dim}: an example needs at least one coordinate")
        if num_classes < 2:
            raise ValueError(f"num_classes={num_classes}: erasing class information needs at least 2 classes")
        if precision not in ((torch.float32, torch.float64) if pooled else (torch.float64,)):
            raise ValueError(f"precision={precision}: float64, or float32 of pooled moments")
        float64 = {"dtype": torch.float64, "device": device}
        self.dim, self.num_classes, self.pooled, self.precision = dim, num_classes, pooled, precision
        self._origin: Tensor | None = None  # of pooled products
        self._sizes = [0] * num_classes
        self._means = torch.zeros(num_classes, dim, **float64)
        self._scatters = torch.zeros(1 if pooled else num_classes, dim, dim, **float64)
        self._waiting: list[tuple[Tensor, Tensor]] = []  # small batches, until there is work for a matrix product
        self._waiting_rows = 0

    @property
    def sizes(self) -> list[int]:
        """Class counts n_j, where no device has to be waited for."""
        self._settle()
        return self._sizes

    @property
    def means(self) -> Tensor:
        """Class means m_j, [k, d] float64; zero for a class without examples."""
        self._settle()
        return self._means

    @property
    def scatters(self) -> Tensor:
        """Σ_i (x_i - m_j)(x_i - m_j)ᵀ of each class, [k, d, d] float64; where pooled, of all, [1, d, d]."""
        self._settle()
        return self._scatters

    def update(self, x: Array, z: Any) -> Self:
        """Add a batch: `x` of any real dtype, a tensor or an array of whole examples or of vectors, and their labels.

        8-bit images are summed exactly, as integers, and faster; give them whole and `rescale` afterwards. Small
        batches of others wait until there are enough of them.

        Args:
            x: [n, ...] with d values each, or [..., d].
            z: integers in 0..k-1, booleans, or one-hot, for each example; see `erasure.batches.check_batch`.

        Raises:
            ValueError: shapes that do not match, labels out of range, or values that are not finite.
        """
        rows, labels = check_batch(x, z, self.dim, self.num_classes)
        assert labels is not None
        labels = labels.to(self._means.device)
        if rows.dtype == torch.uint8:
            for j in labels.unique().tolist():
                members = (labels == j).nonzero().squeeze(1).to(rows.device)
                self._add(j, len(members), *integer_moments(rows[members].to(self._means.device)))
            return self
        if not rows.sum(dtype=torch.float64).isfinite() and not rows.isfinite().all():
            j = int(labels[~rows.isfinite().all(1).to(labels.device)][0])
            raise ValueError(f"class {j} holds values that are not finite (NaN or infinity): clean the data first")
        rows = rows.detach()
        if self._waiting and (rows.dtype, rows.device) != (self._waiting[0][0].dtype, self._waiting[0][0].device):
            self._settle()
        if len(rows) < _ROWS_AT_ONCE:
            rows, labels = rows.clone(), labels.clone()
        self._waiting.append((rows, labels))
        self._waiting_rows += len(rows)
        if self._waiting_rows >= _ROWS_AT_ONCE:
            self._settle()
        return self

    def _settle(self) -> None:
        """Take in the batches that wait."""
        if not self._waiting:
            return
        x, z = self._waiting[0] if len(self._waiting) == 1 else map(torch.cat, zip(*self._waiting, strict=True))
        self._waiting, self._waiting_rows = [], 0
        if self.pooled:
            for batch, labels in zip(x.split(_ROWS_AT_ONCE), z.split(_ROWS_AT_ONCE), strict=True):
                self._add_pooled(batch.to(self._means.device), labels)
            return
        for j in z.unique().tolist():
            members = (z == j).nonzero().squeeze(1).to(x.device)
            for rows in members.split(_ROWS_AT_ONCE):
                batch = x[rows].to(self._means)
                mean = batch.mean(0)
                self._add(j, len(rows), mean, gram(batch - mean))

    def _add_pooled(self, x: Tensor, z: Tensor) -> None:
        """`_add` for all classes of a batch at once, with one product, about a point near the data."""
        if self._origin is None:
            self._origin = x.mean(0, dtype=torch.float64).to(self.precision).double()
        x = x.to(self.precision).sub(self._origin.to(self.precision))
        found = z.bincount(minlength=self.num_classes).double()
        hot = torch.nn.functional.one_hot(z, self.num_classes).to(x)
        means = (hot.T @ x).double() / found.clamp(min=1)[:, None]
        shift = (means + self._origin - self._means) * (found > 0)[:, None]
        before = torch.tensor(self._sizes, dtype=torch.float64).to(x.device)
        share = found / (before + found).clamp(min=1)
        self._scatters[0] += gram(x)
        self._scatters[0].addmm_((shift * (before * share)[:, None]).T, shift)
        self._scatters[0].addmm_((means * found[:, None]).T, means, alpha=-1)
        self._means += shift * share[:, None]
        self._sizes = [size + int(new) for size, new in zip(self._sizes, found.tolist(), strict=True)]

    def rescale(self, scale: Tensor | float, shift: Tensor | float = 0.0) -> Self:
        """Turn the moments of x into those of scale · x + shift, both [d] or numbers, in place."""
        scale, shift = (torch.as_tensor(one, dtype=torch.float64).to(self.means.device) for one in (scale, shift))
        scale = scale.expand(self.dim)
        self.means.mul_(scale).add_(shift)
        self.scatters.mul_(scale).mul_(scale[:, None])
        return self

    def merge(self, other: Self) -> Self:
        """Add the moments of other examples of the same classes, in place; the result is that of one pass."""
        if (other.dim, other.num_classes, other.pooled) != (self.dim, self.num_classes, self.pooled):
            raise ValueError(f"cannot merge moments of {other._told} into moments of {self._told}")
        if self.pooled:
            self.scatters.add_(other.scatters.to(self.means))
        for j, count in enumerate(other.sizes):
            scatter = None if self.pooled else other.scatters[j].to(self.means)
            self._add(j, count, other.means[j].to(self.means), scatter)
        return self

    def all_reduce(self, group: dist.ProcessGroup | None = None) -> Self:
        """Merge the moments of all processes of `torch.distributed`, in place: every process then has those of all."""
        sizes = torch.tensor(self.sizes, dtype=torch.float64, device=self.means.device)
        total, means = sizes.clone(), self.means * sizes[:, None]
        for tensor in (total, means):
            dist.all_reduce(tensor, group=group)
        means /= total.clamp(min=1)[:, None]
        shift = (self.means - means) * sizes.sqrt()[:, None]
        if self.pooled:
            self._scatters[0].addmm_(shift.T, shift)
        else:
            self._scatters.baddbmm_(shift[:, :, None], shift[:, None])
        dist.all_reduce(self._scatters, group=group)
        self._means, self._sizes = means, [int(size) for size in total.tolist()]
        return self

    @property
    def n(self) -> int:
        """Number of examples seen."""
        return sum(self.sizes)

    def __repr__(self) -> str:
        return f"{type(self).__name__} of {self._told}, n={self.n}"

    @property
    def _told(self) -> str:
        return f"{self.num_classes} classes in {self.dim} dimensions{' (pooled)' if self.pooled else ''}"

    def _add(self, j: int, count: int, mean: Tensor, scatter: Tensor | None) -> None:
        """Pairwise update of mean and scatter (Chan, Golub & LeVeque 1983)."""
        if count == 0:
            return
        before = self._sizes[j]
        after = before + count
        shift = mean - self._means[j]
        own = self._scatters[0 if self.pooled else j]
        if scatter is not None:
            own += scatter
        own.addr_(shift, shift, alpha=before * count / after)
        self._means[j] += shift * (count / after)
        self._sizes[j] = after
