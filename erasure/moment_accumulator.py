"""Counts, means and scatters of classes, accumulated from batches, exactly or in float64, and mergeable."""

import copy
from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor

from erasure.inputs import LEAST, Array, check_batch, require_labels, require_range, whole_number
from erasure.integer_moments import integer_moments
from erasure.polar import gram
from erasure.torch_modes import ordinary_tensors, without_autocast

_EPS = torch.finfo(torch.float64).eps
Batches = list[tuple[Tensor, Tensor]]  # examples [n, d] and labels [n]
_ROWS_AT_ONCE = 4096  # bounds the float64 copy of a batch: 100 MB at d = 3,072


class Accumulator:
    """Sums behind `erasure.ClassMoments` and `erasure.ConceptMoments`; see `ClassMoments` for the arguments."""

    min_classes = 1

    @ordinary_tensors()
    def __init__(
        self,
        dim: int,
        num_classes: int,
        *,
        device: torch.device | str | None = None,
        pooled: bool = False,
    ) -> None:
        dim, num_classes = whole_number(dim, "dim"), whole_number(num_classes, "num_classes")
        if dim < 1:
            raise ValueError(f"dim={dim}: an example needs at least one coordinate")
        if num_classes < self.min_classes:
            raise ValueError(f"num_classes={num_classes}: erasing class information needs at least 2 classes")
        float64 = {"dtype": torch.float64, "device": device}
        self.dim, self.num_classes, self.pooled = dim, num_classes, pooled
        self._epsilon = _EPS
        self._sizes = [0] * num_classes
        # Far from zero the rounding of a mean may exceed the differences between examples. Sums are therefore taken
        # about one example of each class. 8-bit images have exact sums, and are summed about zero.
        self._origins = torch.zeros(num_classes, dim, **float64)
        self._offsets = torch.zeros(num_classes, dim, **float64)  # class means less their origins
        self._scatters = torch.zeros(1 if pooled else num_classes, dim, dim, **float64)
        self._pending: Batches = []  # small batches, collected for one matrix product
        self._pending_rows = 0
        self._unchecked = False  # whether some of them still have to be checked

    @property
    def device(self) -> torch.device:
        """Device of the sums."""
        return self._offsets.device

    @property
    def sizes(self) -> list[int]:
        """Class counts n_j as Python integers, without synchronising the device."""
        self._flush()
        return self._sizes

    @property
    def epsilon(self) -> float:
        """Relative precision of the least precise examples, at best that of float64."""
        return self._epsilon

    @property
    def means(self) -> Tensor:
        """Class means m_j, [k, d] float64; zero for a class without examples."""
        self._flush()
        return self._origins + self._offsets

    @property
    def origin(self) -> Tensor:
        """Point about which class means are compared: an example, or zero for 8-bit images, [d]."""
        return self._origins[next((j for j, size in enumerate(self.sizes) if size), 0)]

    @property
    def offsets(self) -> Tensor:
        """Class means less `origin`, [k, d], accurate to the last digits however far the data are from zero."""
        return (self._origins - self.origin) + self._offsets

    @property
    def scatters(self) -> Tensor:
        """Scatter Σ_i (x_i - m_j)(x_i - m_j)ᵀ of each class, [k, d, d] float64; their sum [1, d, d] if pooled."""
        self._flush()
        return self._scatters

    @property
    def underflows(self) -> Tensor:
        """Columns that vary, but by so little that float64 cannot hold the squares, [d] booleans."""
        counts = torch.tensor(self.sizes).to(self.device, non_blocking=True)[:, None]
        size = torch.stack([self._offsets, self.offsets * (counts > 0)]).abs().amax((0, 1))
        scatter = self._scatters.diagonal(dim1=1, dim2=2).amax(0)
        return (size > 0) & (size < LEAST) & (scatter < LEAST**2)

    @without_autocast
    def update(self, x: Array, z: Any) -> Self:
        """Add a batch of examples and their labels.

        8-bit images are summed as integers, which is exact and faster: pass them unscaled and `rescale` afterwards.
        Small batches of other types are collected until there are 4,096 examples. On a GPU their values are checked
        together at that point, or when moments are read, because every check waits for the GPU. A wrong batch is then
        refused and left out.

        Args:
            x: [n, ...] with d values each, or [..., d]; any real dtype.
            z: an integer in 0..k-1, a boolean or a one-hot row for each example; see `erasure.inputs.check_batch`.

        Raises:
            ValueError: shapes that do not match, labels out of range, or values that are not finite.
        """
        rows, labels = check_batch(x, z, self.dim, self.num_classes, in_range=False)
        if labels is None:
            raise ValueError("z is None: pass one label per example")
        check_later = rows.device.type != "cpu" and rows.dtype != torch.uint8 and len(rows) < _ROWS_AT_ONCE
        if not check_later:
            self._require_values(rows, labels)
        return self.add_rows(rows.detach(), labels, checked=not check_later)

    def _require_values(self, rows: Tensor, labels: Tensor) -> None:
        require_labels(labels, self.num_classes)
        require_range(rows, "x")

    def note_precision(self, dtype: torch.dtype) -> None:
        """Record the dtype of examples, for `epsilon`."""
        if dtype.is_floating_point:
            self._epsilon = max(self._epsilon, torch.finfo(dtype).eps)

    def add_rows(self, rows: Tensor, labels: Tensor, *, checked: bool = True) -> Self:
        """Add examples [n, d] with labels [n] int64 as `update` does, without its checks.

        Small batches are copied and collected. Unless `checked`, their values are checked before they are added.
        """
        labels = labels.to(self._offsets.device)
        self.note_precision(rows.dtype)
        if rows.dtype == torch.uint8:
            zero = self._offsets.new_zeros(self.dim)
            for j in labels.unique().tolist():
                members = (labels == j).nonzero().squeeze(1).to(rows.device)
                self._add(j, len(members), zero, *integer_moments(rows[members].to(zero.device)))
            return self
        try:
            if self._pending and (rows.dtype, rows.device) != (self._pending[0][0].dtype, self._pending[0][0].device):
                self._flush()
        finally:  # an error in earlier batches does not concern this one
            if len(rows) < _ROWS_AT_ONCE:
                rows, labels = rows.clone(), labels.clone()
            self._pending.append((rows, labels))
            self._pending_rows += len(rows)
            self._unchecked |= not checked
        if self._pending_rows >= _ROWS_AT_ONCE:
            self._flush()
        return self

    @without_autocast
    def _flush(self) -> None:
        """Add the collected batches to the sums.

        Raises:
            ValueError: an unchecked batch has wrong values; the others are added.
        """
        if not self._pending:
            return
        x, z = self._pending[0] if len(self._pending) == 1 else map(torch.cat, zip(*self._pending, strict=True))
        batches, error = [(x, z)], None
        if self._unchecked:
            batches, error = self._valid((x, z), self._pending)
        self._pending, self._pending_rows, self._unchecked = [], 0, False
        for x, z in batches:
            self._add_rows(x, z)
        if error is not None:
            raise error

    def _valid(self, joined: tuple[Tensor, Tensor], batches: Batches) -> tuple[Batches, ValueError | None]:
        """Return the valid batches, joined if all are valid, and the error of the first invalid one."""
        try:
            self._require_values(*joined)
        except ValueError:
            valid, errors = [], []
            for batch in batches:
                try:
                    self._require_values(*batch)
                    valid.append(batch)
                except ValueError as error:
                    errors.append(error)
            return valid, errors[0] if errors else None
        return [joined], None

    def _add_rows(self, x: Tensor, z: Tensor) -> None:
        """Add examples to the sums, class by class or pooled."""
        if self.pooled:
            for batch, labels in zip(x.split(_ROWS_AT_ONCE), z.split(_ROWS_AT_ONCE), strict=True):
                self._add_pooled(batch.to(self._offsets.device), labels)
            return
        members_of = z.argsort(stable=True).to(x.device).split(z.bincount(minlength=self.num_classes).tolist())
        for j, members in enumerate(members_of):
            for rows in members.split(_ROWS_AT_ONCE) if len(members) else ():
                batch = x[rows].to(self._offsets)
                origin = batch[0].clone()
                mean = batch.sub_(origin).mean(0)
                self._add(j, len(rows), origin, mean, gram(batch.sub_(mean)))

    def _add_pooled(self, x: Tensor, z: Tensor) -> None:
        """Add a batch of all classes with one matrix product."""
        class_counts = z.new_zeros(self.num_classes).scatter_add_(0, z, torch.ones_like(z))  # bincount waits
        counts = class_counts.tolist()
        if any(count and not size for count, size in zip(counts, self._sizes, strict=True)):
            known = torch.tensor(self._sizes).to(z.device, non_blocking=True)[:, None] > 0
            first = z.new_zeros(self.num_classes).scatter_reduce_(
                0, z, torch.arange(len(z), device=z.device), "amin", include_self=False
            )
            seen = (class_counts > 0)[:, None]
            self._origins.copy_(torch.where(seen & ~known, x[first].double(), self._origins))
        origins = self._origins[z]
        x = torch.sub(x.double(), origins, out=origins)  # memory for one batch, not two
        hot = torch.nn.functional.one_hot(z, self.num_classes).to(x)
        class_counts = class_counts.double()
        means = hot.T @ x / class_counts.clamp(min=1)[:, None]
        shift = (means - self._offsets) * (class_counts > 0)[:, None]
        before = torch.tensor(self._sizes, dtype=torch.float64).to(x.device, non_blocking=True)
        fraction = class_counts / (before + class_counts).clamp(min=1)
        self._scatters[0] += gram(x)
        self._scatters[0].addmm_((shift * (before * fraction)[:, None]).T, shift)
        self._scatters[0].addmm_((means * class_counts[:, None]).T, means, alpha=-1)
        self._offsets += shift * fraction[:, None]
        self._sizes = [size + count for size, count in zip(self._sizes, counts, strict=True)]

    @ordinary_tensors()
    def rescale(self, scale: Tensor | float, shift: Tensor | float = 0.0) -> Self:
        """Turn the moments of x into those of scale · x + shift, in place; both [d] or numbers."""
        self._flush()
        scale, shift = (torch.as_tensor(one, dtype=torch.float64).to(self._offsets.device) for one in (scale, shift))
        scale = scale.expand(self.dim)
        at_zero = self._origins == 0  # these origins stay at zero, as for 8-bit images; their offsets move instead
        self._origins = torch.where(at_zero, 0.0, self._origins * scale + shift)
        seen = torch.tensor(self._sizes).to(at_zero.device)[:, None] > 0  # others have a mean of zero
        self._offsets = self._offsets * scale + torch.where(at_zero & seen, shift, 0.0)
        self._scatters.mul_(scale).mul_(scale[:, None])
        return self

    def merge(self, other: Self) -> Self:
        """Add the moments of other examples of the same classes, in place, as if accumulated in one pass.

        Raises:
            ValueError: another number of coordinates or classes, pooled moments and moments that are not, or something
                else than moments of classes.
        """
        if not isinstance(other, Accumulator):
            raise ValueError(
                f"cannot merge {other!r:.100} into moments of {self._described}: give ClassMoments of the same classes"
            )
        if (other.dim, other.num_classes, other.pooled) != (self.dim, self.num_classes, self.pooled):
            raise ValueError(f"cannot merge moments of {other._described} into moments of {self._described}")
        self._epsilon = max(self._epsilon, other._epsilon)
        if self.pooled:
            self.scatters.add_(other.scatters.to(self._scatters))
        self._flush()
        for j, count in enumerate(other.sizes):
            origin, offset = (each[j].to(self._offsets) for each in (other._origins, other._offsets))
            self._add(j, count, origin, offset, None if self.pooled else other.scatters[j].to(self._scatters))
        return self

    def state_dict(self) -> dict[str, Tensor]:
        """Return all tensors by name; later updates change them. Class means are `origins` + `offsets`."""
        sizes = torch.tensor(self.sizes)  # flushes
        moments = {"sizes": sizes, "origins": self._origins, "offsets": self._offsets, "scatters": self._scatters}
        return moments | {"epsilon": torch.tensor(self._epsilon, dtype=torch.float64)}

    @ordinary_tensors()
    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> Self:
        """Replace the moments, including batches that wait to be added, by those of a `state_dict` of the same sizes.

        Raises:
            ValueError: a tensor is missing, has another shape or dtype, or holds values that are not finite or, among
                sizes and variances, negative.
        """
        for name, mine in self.state_dict().items():
            other = tensors.get(name)
            if other is None or (other.shape, other.dtype) != (mine.shape, mine.dtype) or not other.isfinite().all():
                found = "missing" if other is None else f"{other.dtype} {list(other.shape)}"
                raise ValueError(
                    f"moments of {self._described}: {name} is {found}, expected finite {mine.dtype} {list(mine.shape)}"
                )
        sizes, variances = tensors["sizes"], tensors["scatters"].diagonal(dim1=1, dim2=2)
        if (sizes < 0).any() or (variances < -1e-12 * variances.abs().max()).any():  # rounding may leave less
            raise ValueError(
                f"moments of {self._described}: sizes or the diagonals of scatters are negative, expected those of "
                "examples: pass what state_dict returned"
            )
        self._sizes = sizes.tolist()
        self._epsilon = float(tensors["epsilon"])
        self._pending, self._pending_rows, self._unchecked = [], 0, False
        self._origins, self._offsets, self._scatters = (
            tensors[name].to(self.device, torch.float64, copy=True) for name in ("origins", "offsets", "scatters")
        )
        return self

    def __copy__(self) -> Self:
        return copy.deepcopy(self)  # copies that share sums would add to one another

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
