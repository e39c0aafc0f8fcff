"""What every eraser is: a map of examples, fitted from class moments at least, that keeps shape and dtype."""

import inspect
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from erasure.batches import by_rows, check_batch
from erasure.moments import ClassMoments


class Eraser(ABC):
    """A fitted map x -> x' that removes class information. Subclasses are frozen dataclasses of tensors.

    Attributes:
        uses_labels: the map depends on the label z, which must then be given, on held-out data too.
        erased_order: highest order of class moments that are equal afterwards on the data the eraser
            was fitted on (0 none, 1 means, 2 means and covariances). The certificate checks it.
        version: what its code computes: raised by whoever changes the numbers, and named in cache keys and run ids.
            A subclass without one of its own is known by its source (`erasure.code_identity`).
        transductive: there is no map: all examples of a split are given at once.
        mean: global mean m̄ of the data it was fitted on, [d] float64.
        num_classes: k.
    """

    uses_labels: ClassVar[bool] = False
    erased_order: ClassVar[int] = 0
    version: ClassVar[int]
    transductive: ClassVar[bool] = False
    mean: Tensor
    num_classes: int

    @classmethod
    @abstractmethod
    def from_moments(cls, moments: ClassMoments) -> Self:
        """Fit from class moments. Options are keyword-only."""

    @classmethod
    def fit(cls, x: Tensor, z: Tensor, *, num_classes: int | None = None, **options: Any) -> Self:
        """Fit on examples `x` [n, ...] with integer labels `z` [n]."""
        return cls.fit_examples(x, z, ClassMoments.fit(x, z, num_classes=num_classes), **options)

    @classmethod
    def fit_examples(cls, x: Tensor, z: Tensor, moments: ClassMoments, **options: Any) -> Self:  # noqa: ARG003
        """What a dataset is fitted with: from its moments alone, unless a subclass needs the examples, too.

        Args:
            x: the training split as it is erased, floating, [n, ...], perhaps on another device than the moments.
            z: its labels, [n].
            moments: its class moments, on the device where to compute.
            options: of `from_moments`.
        """
        return cls.fit_moments(moments, **options)

    @classmethod
    def fit_moments(cls, moments: ClassMoments, **options: Any) -> Self:
        """`from_moments`, with a look at what a subclass made of it.

        Raises:
            ValueError: the class lacks a method, or what it returned lacks what every eraser has.
        """
        if cls.__abstractmethods__:
            raise ValueError(f"{cls.__name__} does not define {', '.join(sorted(cls.__abstractmethods__))}")
        if len(inspect.signature(cls.transform).parameters) != 3:
            raise ValueError(f"{cls.__name__}.transform must take (self, x, z), z too where it is not used")
        eraser = cls.from_moments(moments, **options)
        if not isinstance(eraser, cls):
            raise ValueError(f"{cls.__name__}.from_moments returned {eraser!r}: return an instance of the class")
        eraser.require_fields()
        if eraser.mean.shape != (moments.dim,) or eraser.num_classes != moments.num_classes:
            raise ValueError(
                f"{cls.__name__} has a mean of shape {list(eraser.mean.shape)} and num_classes={eraser.num_classes}: "
                f"of these moments they are [{moments.dim}] and {moments.num_classes}"
            )
        return eraser

    @classmethod
    def fitting_bytes(cls, dim: int, num_classes: int) -> float:
        """Memory for fitting and certifying: class moments, and as many [d, d] in float64 again or more."""
        return (num_classes + max(num_classes + 2, cls.matrices(num_classes))) * 8.0 * dim**2

    @classmethod
    def matrices(cls, num_classes: int) -> float:  # noqa: ARG003 most keep none per class
        """How many [d, d] matrices fitting needs at its peak beside the moments, measured."""
        return 6.0

    def require_fields(self) -> None:
        """Raise ValueError unless a subclass has set what this class works with."""
        if missing := [name for name in ("mean", "num_classes") if not hasattr(self, name)]:
            raise ValueError(
                f"{type(self).__name__} has no {' and no '.join(missing)}: make it a dataclass with the fields "
                "mean: Tensor and num_classes: int, as moments.mean and moments.num_classes"
            )

    def __call__(self, x: Tensor, z: Tensor | None = None) -> Tensor:
        """Erase `x` [n, ...] of a floating dtype; same shape, dtype and device. Computed in float64.

        Raises:
            ValueError: wrong shape, integer or complex `x`, labels missing or out of range, or a subclass whose
                map does not keep the shape.
        """
        self.require_fields()
        if not x.is_floating_point():
            raise ValueError(f"x has dtype {x.dtype}: erased values are not whole numbers, convert it to float first")
        flat = check_batch(x, z, self.mean.numel(), self.num_classes)
        if self.uses_labels and z is None:
            raise ValueError(f"{type(self).__name__} maps each class in its own way: pass the labels z, too")
        labels = z.to(self.mean.device) if self.uses_labels and z is not None else None  # no others see them

        def moved(rows: slice) -> Tensor:
            batch = flat[rows].to(self.mean)
            result = self.transform(batch, None if labels is None else labels[rows])
            if result.shape != batch.shape:
                raise ValueError(
                    f"{type(self).__name__}.transform made {list(result.shape)} of {list(batch.shape)}: keep the shape"
                )
            return result

        return by_rows(moved, torch.empty_like(flat)).reshape(x.shape)

    def rescale_range(self, scale: Tensor, shift: Tensor) -> None:  # noqa: B027 most erasers have no range
        """Turn an admissible range given for x into that of scale · x + shift, both [d]."""

    def lift_range(self) -> None:  # noqa: B027 most erasers have no range
        """Take every value to be admissible: what is erased are no images."""

    def keep_reference(self, erased: Tensor) -> None:  # noqa: B027 most erasers need the class moments only
        """Take the erased training split [n, ...]; called before other splits are erased, which may be moved to it."""

    def require_orders(self, erased: Tensor, z: Tensor) -> None:  # noqa: B027 few erasers promise orders above two
        """Raise BrokenGuaranteeError where the erased training split [n, ...] breaks a promise on orders above two."""

    @abstractmethod
    def transform(self, x: Tensor, z: Tensor | None) -> Tensor:
        """The map itself, [n, d] float64 -> [n, d] float64 on the eraser's device; `z` is None unless `uses_labels`."""
