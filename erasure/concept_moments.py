"""Joint moments of examples and concepts that need not be classes: real numbers, several labels, several concepts."""

import copy
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor

from erasure.covariance_factor import CovarianceFactor
from erasure.inputs import (
    as_tensor,
    is_one_hot,
    is_pandas,
    leading_shape,
    number_of_classes,
    per_example,
    require_labels,
    require_one_reading,
    require_range,
    require_same_rows,
    single_column,
    spread,
    values_per_example,
    whole_number,
)
from erasure.moment_accumulator import Accumulator
from erasure.moments import ClassMoments

log = logging.getLogger(__name__)

SINGLE = "z"  # name of a concept without a name


class NeedsClassesError(AttributeError, ValueError):
    """A statistic of classes was asked of a concept without classes."""


class ConceptMoments:
    """Means and covariances of examples x and a concept z, and their cross-covariance.

    Like `ClassMoments`, they are accumulated in float64 from batches, and can be merged. LEACE, oracle LEACE and
    SPLINCE need nothing else (Belrose et al. 2023, Theorem 4.2). Hence z may be anything that has a covariance with x:

    - real numbers, [n] or [n, m], or [n, t, 1] with one per vector of examples [n, t, d];
    - several labels per example, [n, m] booleans or zeros and ones;
    - classes, as integers [n] in 0..k-1, which become k columns;
    - several concepts, a mapping of names to any of these.

    Args:
        dim: number d of coordinates of an example.
        concepts: number of columns of z, or of each concept by name. A concept of k > 1 columns also takes
            integers in 0..k-1, one per example.
        device: device of the sums, to which batches are moved.

    Raises:
        ValueError: no coordinate, or a concept without a column.

    Example:
        >>> import torch
        >>> from erasure import ConceptMoments, LeaceEraser
        >>> x, age = torch.randn(100, 5, dtype=torch.float64), torch.rand(100, dtype=torch.float64)
        >>> eraser = LeaceEraser.from_moments(ConceptMoments(5, 1).update(x, age))
        >>> after = ConceptMoments.fit(eraser(x), age)
        >>> bool(after.cross.abs().max() < 1e-12)
        True
    """

    def __init__(
        self,
        dim: int,
        concepts: int | Mapping[str, int],
        *,
        device: torch.device | str | None = None,
    ) -> None:
        sizes = concepts if isinstance(concepts, Mapping) else {SINGLE: concepts}
        named = {name: whole_number(size, f"concepts[{name!r}]") for name, size in sizes.items()}
        dim = whole_number(dim, "dim")
        if dim < 1:
            raise ValueError(f"dim={dim}: an example needs at least one coordinate")
        if not named or min(named.values()) < 1:
            raise ValueError(f"concepts={concepts}: each concept needs at least one column")
        self.dim, self.concepts = dim, named
        width = dim + sum(named.values())
        self._joint = Accumulator(width, 1, device=device, pooled=True)  # of vectors (x, z)

    @classmethod
    def fit(cls, x: Any, z: Any, *, dim: int | None = None, device: torch.device | str | None = None) -> Self:
        """Compute the moments of one batch; see `update`.

        Args:
            x: examples, [n, ...] or [..., d].
            z: concept, or a mapping of names to concepts. Integers [n] are classes, from 0 to the largest.
            dim: values per example; all of x[0] by default.
            device: device of the sums; that of `x` by default.
        """
        require_same_rows(x, named_concepts(z))
        x = as_tensor(x, "x")
        named = _tensors(named_concepts(z))
        dim = values_per_example(x, *named.values()) if dim is None else whole_number(dim, "dim")
        leading = leading_shape(x, dim)
        sizes = {name: _columns_of(values, leading, _label(name, named)) for name, values in named.items()}
        return cls(dim, sizes, device=device or x.device).update(x, named)

    def update(self, x: Any, z: Any) -> Self:
        """Add a batch.

        Args:
            x: [n, ...] of d values each, or [..., d]; any real dtype.
            z: the concept in any form listed above, with a value for each example or each leading axis of `x`.

        Raises:
            ValueError: shapes that do not match, labels out of range, or values that are not finite.
        """
        require_same_rows(x, named_concepts(z))
        x = as_tensor(x, "x")
        leading = leading_shape(x, self.dim)
        rows = x.reshape(leading.numel(), self.dim)
        device = self._joint.device
        concept = columns(z, leading, self.concepts)
        require_range(rows, "x")
        for name, part in zip(self.concepts, concept.split([*self.concepts.values()], 1), strict=True):
            require_range(part, _label(name, self.concepts))
        joint = torch.cat([rows.to(device, torch.float64), concept.to(device)], 1)
        self._joint.note_precision(rows.dtype)
        self._joint.add_rows(joint, torch.zeros(len(joint), dtype=torch.long, device=device))
        return self

    def merge(self, other: Self) -> Self:
        """Add the moments of other examples in place; both need the same concepts, in the same order.

        Raises:
            ValueError: another number of coordinates, other concepts, or moments of classes.
        """
        if not isinstance(other, ConceptMoments):
            raise ValueError(f"cannot merge {other!r:.100} into {self!r}: give ConceptMoments of the same concepts")
        if (other.dim, [*other.concepts.items()]) != (self.dim, [*self.concepts.items()]):
            raise ValueError(f"cannot merge {other!r} into {self!r}: give the same coordinates and concepts, in order")
        self._joint.merge(other._joint)
        return self

    def state_dict(self) -> dict[str, Tensor]:
        """Return all tensors by name."""
        return self._joint.state_dict()

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> Self:
        """Replace the moments by those of a `state_dict` of the same coordinates and concepts."""
        self._joint.load_state_dict(tensors)
        return self

    def require_examples(self, names: Sequence[str] | None = None) -> None:
        """Raise ValueError for fewer than two examples, or concepts to erase that do not vary.

        Args:
            names: concepts to erase; all by default.
        """
        if self.n < 2:
            raise ValueError(f"{self.n} examples: a covariance needs at least 2")
        variances = self.concept_covariance.diagonal()[self.positions(names)]
        if not bool((variances > 0).any()):
            which = "z" if names is None else ", ".join(names)
            raise ValueError(f"{which} is the same for all examples: there is nothing to erase")

    @property
    def underflows(self) -> Tensor:
        """Columns of x and z that vary, but by so little that float64 cannot hold the squares, [d + m] booleans."""
        return self._joint.underflows

    @property
    def n(self) -> int:
        """Number of examples."""
        return self._joint.n

    @property
    def epsilon(self) -> float:
        """Relative precision of the least precise examples."""
        return self._joint.epsilon

    @property
    def mean(self) -> Tensor:
        """Mean of the examples, [d]."""
        return self._joint.means[0, : self.dim]

    @property
    def concept_mean(self) -> Tensor:
        """Mean of the concept's columns, [m]."""
        return self._joint.means[0, self.dim :]

    @property
    def total(self) -> Tensor:
        """Covariance Σ_xx of the examples, [d, d]."""
        return self._joint.scatters[0, : self.dim, : self.dim] / self.n

    @property
    def cross(self) -> Tensor:
        """Cross-covariance Σ_xz, [d, m]."""
        return self._joint.scatters[0, : self.dim, self.dim :] / self.n

    @property
    def concept_covariance(self) -> Tensor:
        """Covariance Σ_zz of the concept's columns, [m, m]."""
        return self._joint.scatters[0, self.dim :, self.dim :] / self.n

    def positions(self, names: Sequence[str] | None = None) -> list[int]:
        """Return the positions of the columns of some concepts, or of all.

        Raises:
            ValueError: a name that is not one of `concepts`.
        """
        if unknown := [name for name in names or () if name not in self.concepts]:
            raise ValueError(f"no concept {unknown[0]!r}: there are {', '.join(self.concepts)}")
        columns, start = list[int](), 0
        for name, size in self.concepts.items():
            columns += range(start, start + size) if names is None or name in names else ()
            start += size
        return columns

    def whitened_cross(self, names: Sequence[str] | None = None) -> Tensor:
        """Return Σ_xz F⁺ᵀ with F Fᵀ = Σ_zz of some concepts, [d, rank of Σ_zz]; it spans the range of Σ_xz.

        The singular values of its product with whitened x are canonical correlations, whatever the units of z.
        """
        at = self.positions(names)
        factor = self.concept_factor(at)
        return factor.solve(self.cross[:, at].T).T

    def concept_factor(self, at: Sequence[int]) -> CovarianceFactor:
        """Return the square-root factor of the covariance of some columns of z."""
        return CovarianceFactor(self.concept_covariance[at][:, at], self.concept_mean[at])

    def __copy__(self) -> Self:
        return copy.deepcopy(self)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name}: {size}" for name, size in self.concepts.items())
        return f"{type(self).__name__} of {self.dim} dimensions and {{{sizes}}}, n={self.n}"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise NeedsClassesError(
            f"moments of a concept without classes have no {name}: only LEACE, oracle LEACE and SPLINCE erase such a "
            "concept; other erasers need ClassMoments, labels as integers from 0"
        )


def moments_of(
    x: Any, z: Any, *, num_classes: int | None = None, dim: int | None = None, pooled: bool = False
) -> ClassMoments | ConceptMoments:
    """Return the moments of classes if `z` holds labels, and those of a concept otherwise."""
    named = named_concepts(z)
    require_same_rows(x, named)
    if len(named) == 1 and not isinstance(z, Mapping):
        x, one = as_tensor(x, "x"), as_tensor(next(iter(named.values())), "z")
        several = one.ndim > 1 and one.shape != x.shape[:-1]  # columns, rather than one label for each vector
        if (
            num_classes is not None
            or is_one_hot(one)
            or not (one.is_floating_point() or (several and one.shape[-1] > 1))
        ):
            return ClassMoments.fit(x, one, num_classes=num_classes, dim=dim, pooled=pooled)
        named = dict.fromkeys(named, one)
    elif num_classes is not None:
        raise ValueError(
            f"num_classes={num_classes} is for one concept of classes, and z has {len(named)} concepts by name"
        )
    return ConceptMoments.fit(x, named, dim=dim)


def columns(z: Any, leading: torch.Size, concepts: Mapping[str, int]) -> Tensor:
    """Return the columns [n, m] of all concepts for `leading` examples, in float64 and in the order of `concepts`.

    Args:
        z: a concept, or a mapping of names to concepts; see `ConceptMoments`.
        leading: shape of the examples without their coordinates.
        concepts: number of columns of each concept.

    Raises:
        ValueError: another set of names, a shape that does not match, or labels out of range.
    """
    named = named_concepts(z)
    if named.keys() != concepts.keys():
        raise ValueError(f"z has the concepts {', '.join(named)}: expected {', '.join(concepts)}")
    tensors = _tensors(named)
    # Converted one by one: a common dtype of integers and floats would be a floating one, and could round integers.
    return torch.cat([_encoded(tensors[name], leading, size).double() for name, size in concepts.items()], 1)


def named_concepts(z: Any, name: str = SINGLE) -> dict[str, Any]:
    """Return the concepts of a mapping or a data frame by name, or a single one under `name`.

    Raises:
        ValueError: two concepts of the same name, or none.
    """
    if not (isinstance(z, Mapping) or (is_pandas(z) and z.ndim == 2)):
        return {name: z}
    pairs = [*z.items()]
    named = {str(key): values for key, values in pairs}
    if not named:
        raise ValueError(f"{name} holds no concept: give at least one column")
    if len(named) < len(pairs):
        keys = [str(key) for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"{name} has two concepts of the name {twice!r}: give each a name of its own")
    return named


def _tensors(named: Mapping[str, Any]) -> dict[str, Tensor]:
    return {name: as_tensor(one, _label(name, named)) for name, one in named.items()}


def _label(name: str, named: Mapping[str, Any]) -> str:
    """Return the name of a concept in error messages."""
    return SINGLE if len(named) == 1 else f"{SINGLE}[{name!r}]"


def _columns_of(z: Tensor, leading: torch.Size, name: str) -> int:
    """Return the number of columns of a concept, which error messages call `name`."""
    require_one_reading(z, leading, name=name)
    z = z if z.is_floating_point() else single_column(z, leading)
    if not per_example(z, leading):
        if z.ndim < 2 and leading:
            raise ValueError(f"{name} has shape {tuple(z.shape)}: expected one value per example, {list(leading)}")
        return z.shape[-1] if z.ndim else 1
    if z.is_floating_point():
        values = z.unique()
        if len(values) > 2 and torch.equal(values, torch.arange(len(values)).to(values)):
            log.warning("z holds the floats 0 to %d: erased as one real number, not as classes", len(values) - 1)
        return 1
    return max(2, number_of_classes(z, name)) if z.numel() else 1


def _encoded(z: Tensor, leading: torch.Size, size: int) -> Tensor:
    """Return one concept's columns [n, size]."""
    if not z.is_floating_point():
        require_one_reading(z, leading, size)
    z = z if z.is_floating_point() and size > 1 else single_column(z, leading)
    if per_example(z, leading) and (size == 1 or not z.is_floating_point()):
        if size == 1:
            return spread(z, leading)[:, None]
        require_labels(z, size)
        return spread(torch.nn.functional.one_hot(z.long(), size), leading, trailing=1)
    columns = z.ndim > 1 or (z.ndim == 1 and not leading)
    if not columns or z.shape[-1] != size or z.shape[:-1] != leading[: z.ndim - 1]:
        raise ValueError(f"z has shape {tuple(z.shape)}: expected {[*leading, size]}, {size} columns for each example")
    if not z.is_floating_point() and z.numel() and not 0 <= int(z.min()) <= int(z.max()) <= 1:
        raise ValueError(
            f"z has the integer {int(z.abs().max())} among {size} columns: several labels are zeros and ones, real "
            "numbers are floats, and several classes are a mapping of names to labels"
        )
    return spread(z, leading, trailing=1)
