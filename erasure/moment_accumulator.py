"""Counts, means and scatters of classes, accumulated from batches: exact or in float64, and mergeable."""

from collections.abc import Mapping
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor

from erasure.autocast import without_autocast
from erasure.inputs import Array, check_batch, ordinary_tensors, require_labels, require_range, whole_number
from erasure.integer_moments import integer_moments
from erasure.moment_files import require_sums
from erasure.polar import gram

_POOLED_ROWS = 2048  # of float64 values; 4,096 of d = 768 are a quarter slower on a CPU, their memory is mapped anew
_POOLED_BYTES = 2**26  # at least as many rows on another device, which every block of rows makes wait
_POOLED_BLOCK = 192  # columns; a tenth faster than `gram` by default at d = 768, whose digits stored runs depend on
Batches = list[tuple[Tensor, Tensor]]  # examples [n, d] and labels [n]
_ROWS_AT_ONCE = 4096  # bounds the float64 copy of a batch: 100 MB at d = 3,072


class Accumulator:
    """Sums from which `erasure.ClassMoments` is computed; the arguments are described there."""

    least_classes = 2

    @ordinary_tensors()
    def __init__(
        self,
        dim: int,
        num_classes: int,
        *,
        device: torch.device | str | None = None,
        pooled: bool = False,
        precision: torch.dtype = torch.float64,
    ) -> None:
        dim, num_classes = whole_number(dim, "dim"), whole_number(num_classes, "num_classes")
        if dim < 1:
            raise ValueError(f"dim={dim}: an example needs at least one coordinate")
        if num_classes < self.least_classes:
            raise ValueError(f"num_classes={num_classes}: erasing class information needs at least 2 classes")
        if precision not in ((torch.float32, torch.float64) if pooled else (torch.float64,)):
            raise ValueError(f"precision={precision}: float64, or float32 of pooled moments")
        float64 = {"dtype": torch.float64, "device": device}
        self.dim, self.num_classes, self.pooled, self.precision = dim, num_classes, pooled, precision
        self._epsilon = torch.finfo(precision).eps
        self._sizes = [0] * num_classes
        # Far from zero a mean is rounded by more than examples differ. Sums are taken about one example of each class,
        # from which the others differ exactly. 8-bit images have exact sums, and are summed about zero.
        self._origins = torch.zeros(num_classes, dim, **float64)
        self._offsets = torch.zeros(num_classes, dim, **float64)  # class means less their origins
        self._scatters = torch.zeros(1 if pooled else num_classes, dim, dim, **float64)
        self._waiting: Batches = []  # small batches, until a matrix product pays
        self._waiting_rows = 0
        self._unchecked = False  # whether values and labels of those batches are still to be checked

    @property
    def device(self) -> torch.device:
        """Device of the sums."""
        return self._offsets.device

    @property
    def sizes(self) -> list[int]:
        """Class counts n_j as Python integers, without synchronising the device."""
        self._settle()
        return self._sizes

    @property
    def epsilon(self) -> float:
        """Relative precision of the least precise examples, that of float64 or `precision` at best."""
        return self._epsilon

    @property
    def means(self) -> Tensor:
        """Class means m_j, [k, d] float64; zero for a class without examples."""
        self._settle()
        return self._origins + self._offsets

    @property
    def origin(self) -> Tensor:
        """Point about which class means are compared: an example, or zero for 8-bit images, [d]."""
        return self._origins[next((j for j, size in enumerate(self.sizes) if size), 0)]

    @property
    def offsets(self) -> Tensor:
        """Class means less `origin`, [k, d], accurate to their last digits however far from zero the data are."""
        return (self._origins - self.origin) + self._offsets

    @property
    def scatters(self) -> Tensor:
        """Scatter Σ_i (x_i - m_j)(x_i - m_j)ᵀ of each class, [k, d, d] float64; their sum [1, d, d] if pooled."""
        self._settle()
        return self._scatters

    @without_autocast
    def update(self, x: Array, z: Any) -> Self:
        """Add a batch of examples and their labels.

        8-bit images are summed exactly, as integers, and faster: pass them unscaled and `rescale` afterwards. Small
        batches of other types are collected until there are 4,096 examples. On a GPU their values are checked then, so
        that not every batch waits for it: a wrong batch is refused, and left out, by the call that completes these
        examples, or when moments are read.

        Args:
            x: [n, ...] with d values each, or [..., d]; any real dtype.
            z: integers in 0..k-1, booleans, or one-hot, for each example; see `erasure.inputs.check_batch`.

        Raises:
            ValueError: shapes that do not match, labels out of range, or values that are not finite.
        """
        rows, labels = check_batch(x, z, self.dim, self.num_classes, in_range=False)
        if labels is None:
            raise ValueError("z is None: pass one label per example")
        later = rows.device.type != "cpu" and rows.dtype != torch.uint8 and len(rows) < _ROWS_AT_ONCE
        if not later:
            self._require_values(rows, labels)
        labels = labels.to(self._offsets.device)
        self.note_precision(rows.dtype)
        if rows.dtype == torch.uint8:
            zero = self._offsets.new_zeros(self.dim)
            for j in labels.unique().tolist():
                members = (labels == j).nonzero().squeeze(1).to(rows.device)
                self._add(j, len(members), zero, *integer_moments(rows[members].to(zero.device)))
            return self
        return self.add_rows(rows.detach(), labels, checked=not later)

    def _require_values(self, rows: Tensor, labels: Tensor) -> None:
        require_labels(labels, self.num_classes)
        require_range(rows, "x", self.precision)

    def note_precision(self, dtype: torch.dtype) -> None:
        """Take note that examples are of this dtype, for `epsilon`."""
        if dtype.is_floating_point:
            self._epsilon = max(self._epsilon, torch.finfo(dtype).eps)

    def add_rows(self, rows: Tensor, labels: Tensor, *, checked: bool = True) -> Self:
        """Add examples [n, d] with labels [n]; small batches are copied and collected, and checked then if need be."""
        try:
            if self._waiting and (rows.dtype, rows.device) != (self._waiting[0][0].dtype, self._waiting[0][0].device):
                self._settle()
        finally:  # whatever is wrong with earlier batches
            if len(rows) < _ROWS_AT_ONCE:
                rows, labels = rows.clone(), labels.clone()
            self._waiting.append((rows, labels))
            self._waiting_rows += len(rows)
            self._unchecked |= not checked
        if self._waiting_rows >= _ROWS_AT_ONCE:
            self._settle()
        return self

    @without_autocast
    def _settle(self) -> None:
        """Add the collected batches to the sums.

        Raises:
            ValueError: one of them was not checked, and has wrong values; the others are added.
        """
        if not self._waiting:
            return
        x, z = self._waiting[0] if len(self._waiting) == 1 else map(torch.cat, zip(*self._waiting, strict=True))
        batches, error = [(x, z)], None
        if self._unchecked:
            batches, error = self._right((x, z), self._waiting)
        self._waiting, self._waiting_rows, self._unchecked = [], 0, False
        for x, z in batches:
            self._add_rows(x, z)
        if error is not None:
            raise error

    def _right(self, joined: tuple[Tensor, Tensor], batches: Batches) -> tuple[Batches, ValueError | None]:
        """Return the batches that are right, joined if all are, and the error of the first that is wrong."""
        try:
            self._require_values(*joined)
        except ValueError:
            right, errors = [], []
            for batch in batches:
                try:
                    self._require_values(*batch)
                    right.append(batch)
                except ValueError as error:
                    errors.append(error)
            return right, errors[0] if errors else None
        return [joined], None

    def _add_rows(self, x: Tensor, z: Tensor) -> None:
        """Add examples to the sums, class by class or pooled."""
        if self.pooled:
            at_once = max(_POOLED_ROWS, 0 if self.device.type == "cpu" else _POOLED_BYTES // (8 * self.dim))
            for batch, labels in zip(x.split(at_once), z.split(at_once), strict=True):
                self._add_pooled(batch.to(self._offsets.device), labels)
            return
        of_classes = z.argsort(stable=True).to(x.device).split(z.bincount(minlength=self.num_classes).tolist())
        for j, members in enumerate(of_classes):
            for rows in members.split(_ROWS_AT_ONCE) if len(members) else ():
                batch = x[rows].to(self._offsets)
                origin = batch[0].clone()
                mean = batch.sub_(origin).mean(0)
                self._add(j, len(rows), origin, mean, gram(batch.sub_(mean)))

    def _add_pooled(self, x: Tensor, z: Tensor) -> None:
        """Add a batch of all classes with one matrix product."""
        class_counts = z.bincount(minlength=self.num_classes)
        counts = class_counts.tolist()
        if any(count and not size for count, size in zip(counts, self._sizes, strict=True)):
            known = torch.tensor(self._sizes).to(z.device)[:, None] > 0
            first = z.new_zeros(self.num_classes).scatter_reduce_(
                0, z, torch.arange(len(z), device=z.device), "amin", include_self=False
            )
            seen = (class_counts > 0)[:, None]
            self._origins.copy_(torch.where(seen & ~known, x[first].to(self.precision).double(), self._origins))
        origins = self._origins.to(self.precision)[z]
        x = torch.sub(x.to(self.precision), origins, out=origins)  # memory for one batch, not two
        hot = torch.nn.functional.one_hot(z, self.num_classes).to(x)
        class_counts = class_counts.double()
        means = (hot.T @ x).double() / class_counts.clamp(min=1)[:, None]
        shift = (means - self._offsets) * (class_counts > 0)[:, None]
        before = torch.tensor(self._sizes, dtype=torch.float64).to(x.device)
        fraction = class_counts / (before + class_counts).clamp(min=1)
        self._scatters[0] += gram(x, least=_POOLED_BLOCK)
        self._scatters[0].addmm_((shift * (before * fraction)[:, None]).T, shift)
        self._scatters[0].addmm_((means * class_counts[:, None]).T, means, alpha=-1)
        self._offsets += shift * fraction[:, None]
        self._sizes = [size + count for size, count in zip(self._sizes, counts, strict=True)]

    @ordinary_tensors()
    def rescale(self, scale: Tensor | float, shift: Tensor | float = 0.0) -> Self:
        """Turn the moments of x into those of scale · x + shift, in place; both [d] or numbers."""
        self._settle()
        scale, shift = (torch.as_tensor(one, dtype=torch.float64).to(self._offsets.device) for one in (scale, shift))
        scale = scale.expand(self.dim)
        at_zero = self._origins == 0  # stays there: the moments of 8-bit images are moved as plain numbers
        self._origins = torch.where(at_zero, 0.0, self._origins * scale + shift)
        self._offsets = self._offsets * scale + torch.where(at_zero, shift, 0.0)
        self._scatters.mul_(scale).mul_(scale[:, None])
        return self

    def merge(self, other: Self) -> Self:
        """Add the moments of other examples of the same classes, in place, as if accumulated in one pass.

        Raises:
            ValueError: another number of coordinates or classes, or pooled and class covariances.
        """
        if (other.dim, other.num_classes, other.pooled) != (self.dim, self.num_classes, self.pooled):
            raise ValueError(f"cannot merge moments of {other._described} into moments of {self._described}")
        self._epsilon = max(self._epsilon, other._epsilon)
        if self.pooled:
            self.scatters.add_(other.scatters.to(self._scatters))
        self._settle()
        for j, count in enumerate(other.sizes):
            origin, offset = (each[j].to(self._offsets) for each in (other._origins, other._offsets))
            self._add(j, count, origin, offset, None if self.pooled else other.scatters[j].to(self._scatters))
        return self

    @ordinary_tensors()
    def all_reduce(self, group: dist.ProcessGroup | None = None) -> Self:
        """Merge the moments of all processes of `torch.distributed`, in place, so that each holds the total."""
        sizes = torch.tensor(self.sizes, dtype=torch.float64, device=self._offsets.device)
        # the largest origin of all processes, coordinate by coordinate: near the data, as each of them is
        origins = torch.where(sizes[:, None] > 0, self._origins, -torch.inf)
        dist.all_reduce(origins, dist.ReduceOp.MAX, group=group)
        origins = torch.where(origins.isfinite(), origins, 0.0)
        offsets = self._offsets + (self._origins - origins)
        total, means = sizes.clone(), offsets * sizes[:, None]
        for tensor in (total, means):
            dist.all_reduce(tensor, group=group)
        means /= total.clamp(min=1)[:, None]
        shift = (offsets - means) * sizes.sqrt()[:, None]
        if self.pooled:
            self._scatters[0].addmm_(shift.T, shift)
        else:
            self._scatters.baddbmm_(shift[:, :, None], shift[:, None])
        dist.all_reduce(self._scatters, group=group)
        epsilon = sizes.new_tensor(self._epsilon)
        dist.all_reduce(epsilon, dist.ReduceOp.MAX, group=group)
        self._epsilon = float(epsilon)
        self._origins, self._offsets, self._sizes = origins, means, [int(size) for size in total.tolist()]
        return self

    def state_dict(self) -> dict[str, Tensor]:
        """Return all tensors by name, collected batches included: class means are `origins` + `offsets`."""
        sizes = torch.tensor(self.sizes)  # adds the batches that wait
        moments = {"sizes": sizes, "origins": self._origins, "offsets": self._offsets, "scatters": self._scatters}
        return moments | {"epsilon": torch.tensor(self._epsilon, dtype=torch.float64)}

    @ordinary_tensors()
    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> Self:
        """Load the tensors of a `state_dict` of the same sizes.

        Raises:
            ValueError: a tensor is missing, has another shape or dtype, or holds what no examples have.
        """
        require_sums(tensors, self.dim, self.num_classes, pooled=self.pooled)
        self._sizes = tensors["sizes"].tolist()
        self._epsilon = max(self._epsilon, float(tensors.get("epsilon", 0.0)))  # files of 0.3.0 have none
        self._origins, self._offsets, self._scatters = (
            tensors[name].to(self.device, torch.float64, copy=True) for name in ("origins", "offsets", "scatters")
        )
        return self

    @property
    def n(self) -> int:
        """Number of examples."""
        return sum(self.sizes)

    def __repr__(self) -> str:
        return f"{type(self).__name__} of {self._described}, n={self.n}"

    @property
    def _described(self) -> str:
        return f"{self.num_classes} classes in {self.dim} dimensions{' (pooled)' if self.pooled else ''}"

    def _add(self, j: int, count: int, origin: Tensor, mean: Tensor, scatter: Tensor | None) -> None:
        """Update the mean and scatter of one class by those of a batch (Chan, Golub & LeVeque 1983).

        `mean` is the batch's mean less `origin`, a point near it.
        """
        if count == 0:
            return
        before = self._sizes[j]
        after = before + count
        if not before:
            self._origins[j] = origin
        shift = mean + (origin - self._origins[j]) - self._offsets[j]
        class_scatter = self._scatters[0 if self.pooled else j]
        if scatter is not None:
            class_scatter += scatter
        class_scatter.addr_(shift, shift, alpha=before * count / after)
        self._offsets[j] += shift * (count / after)
        self._sizes[j] = after
