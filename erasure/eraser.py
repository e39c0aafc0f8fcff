"""What every eraser is: a map of examples, fitted from class moments at least, that keeps shape and dtype."""

import copy
import inspect
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from erasure.batches import Array, by_rows, check_batch
from erasure.moments import ClassMoments
from erasure.store.storage import load_tensors, save_tensors


class Eraser(ABC):
    """A fitted map x -> x' that removes class information. Subclasses are frozen dataclasses of tensors.

    Which there are, and whose theorems they rest on: docs/methods/index.md.

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
        """Fit from class moments of the data to erase. Options are keyword-only."""

    @classmethod
    def fit(cls, x: Array, z: Any, *, num_classes: int | None = None, dim: int | None = None, **options: Any) -> Self:
        """Fit on examples `x` with labels `z`, in any of the forms that `ClassMoments.fit` takes."""
        moments = ClassMoments.fit(x, z, num_classes=num_classes, dim=dim)
        rows, labels = check_batch(x, z, moments.dim, moments.num_classes)
        assert labels is not None
        return cls.fit_examples(rows, labels, moments, **options)

    @classmethod
    def fit_examples(cls, x: Tensor, z: Tensor, moments: ClassMoments, **options: Any) -> Self:  # noqa: ARG003
        """What a dataset is fitted with: from its moments alone, unless a subclass needs the examples, too.

        `x` is the training split as it is erased, floating, [n, ...], perhaps on another device than its moments, which
        are where to compute; `z` its labels, [n].
        """
        return cls.fit_moments(moments, **options)

    @classmethod
    def fit_moments(cls, moments: ClassMoments, **options: Any) -> Self:
        """`from_moments`; raises ValueError where a subclass, or what it returned, lacks what every eraser has."""
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

    def __call__(self, x: Array, z: Any = None) -> Array:
        """Erase `x`, a tensor or an array of a floating dtype; same kind, shape, dtype and device.

        Computed in the eraser's own precision, float64 unless `to` has changed it (erasers that optimise examples: in
        the examples', at least float32). Gradients pass through a map.

        Args:
            x: whole examples [n, ...], or vectors [..., d], as hidden states [batch, tokens, d] or a single row [d].
            z: labels, for erasers that use them; see `check_batch`.

        Raises:
            ValueError: wrong shape, integer or complex `x`, labels missing or out of range, or a subclass whose
                map does not keep the shape.
        """
        self.require_fields()
        rows, labels = check_batch(x, z, self.mean.numel(), self.num_classes)
        if not rows.is_floating_point():
            raise ValueError(f"x has dtype {x.dtype}: erased values are not whole numbers, convert it to float first")
        if self.uses_labels and labels is None:
            raise ValueError(f"{type(self).__name__} maps each class in its own way: pass the labels z, too")
        erased = self._erase(rows, labels).reshape(x.shape)
        return erased if isinstance(x, Tensor) else erased.numpy()  # pyright: ignore[reportReturnType] as x is

    def _erase(self, flat: Tensor, z: Tensor | None) -> Tensor:
        """Rows [n, d] that were checked."""
        labels = z.to(self.mean.device) if self.uses_labels and z is not None else None  # no others see them

        def moved(rows: slice) -> Tensor:
            batch = flat[rows].to(self.mean)
            result = self.transform(batch, None if labels is None else labels[rows])
            if result.shape != batch.shape:
                raise ValueError(
                    f"{type(self).__name__}.transform made {list(result.shape)} of {list(batch.shape)}: keep the shape"
                )
            return result

        return by_rows(moved, torch.empty_like(flat))

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Self:
        """A copy whose tensors are on `device`, and of `dtype` where they are floating: what it then computes in."""
        other = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, Eraser):
                vars(other)[name] = value.to(device, dtype)
            elif isinstance(value, Tensor):
                vars(other)[name] = value.to(device=device, dtype=dtype if value.is_floating_point() else None)
        return other

    def state_dict(self) -> dict[str, Tensor]:
        """Its tensors, by name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}

    def save(self, path: Path | str) -> None:
        """Write tensors and options to a safetensors file, with a checksum; raises ValueError if there is no map."""
        if self.transductive:
            raise ValueError(f"{type(self).__name__} has no map that could be kept: save what it erased")
        kind, options = type(self), {name: value for name, value in vars(self).items() if not isinstance(value, Tensor)}
        described = {"eraser": f"{kind.__module__}.{kind.__qualname__}", "options": options}
        save_tensors(Path(path), self.state_dict(), described)

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """What `save` has written: by `Eraser.load`, or by the class's own. Nothing but tensors and JSON is read.

        Raises ValueError for a damaged file, no eraser's, or that of a class which is none of this one's (import it).
        """
        tensors, metadata = load_tensors(Path(path))
        name, known = metadata.get("eraser"), _family(cls)
        if name not in known:
            raise ValueError(f"{path} holds {name or 'nothing'}: {cls.__name__}.load reads {', '.join(sorted(known))}")
        eraser = object.__new__(known[name])
        options = {key: tuple(v) if isinstance(v, list) else v for key, v in metadata["options"].items()}
        vars(eraser).update(tensors | options)
        return eraser  # pyright: ignore[reportReturnType] it is one of the class's family

    def __repr__(self) -> str:
        told = {"d": self.mean.numel(), "k": self.num_classes, "erased_order": self.erased_order}
        told |= {k: v for k, v in vars(self).items() if isinstance(v, int | float) and k != "num_classes"}
        told |= {"removed": removed} if (removed := getattr(self, "removed", None)) is not None else {}
        return f"{type(self).__name__}({', '.join(f'{key}={value}' for key, value in told.items())})"

    def rescale_range(self, scale: Tensor, shift: Tensor) -> None:  # noqa: B027 most erasers have no range
        """Turn an admissible range given for x into that of scale · x + shift, both [d]."""

    def lift_range(self) -> None:  # noqa: B027 most erasers have no range
        """Take every value to be admissible: what is erased are no images."""

    def keep_reference(self, erased: Tensor) -> None:  # noqa: B027 most erasers need the class moments only
        """Take the erased training split [n, ...]; called before other splits are erased, which may be moved to it."""

    def require_orders(self, erased: Tensor, z: Tensor) -> None:  # noqa: B027 certificates check the others
        """Raise BrokenGuaranteeError where the erased training split [n, ...] breaks promises beyond `erased_order`."""

    @abstractmethod
    def transform(self, x: Tensor, z: Tensor | None) -> Tensor:
        """The map itself, [n, d] float64 -> [n, d] float64 on the eraser's device; `z` is None unless `uses_labels`."""


def _family(kind: type[Eraser]) -> dict[str, type[Eraser]]:
    """The class and all that derive from it, by name; its module's, too: one's own may be called as one of ours."""
    own = {f"{kind.__module__}.{kind.__qualname__}": kind}
    return own | {name: one for child in kind.__subclasses__() for name, one in _family(child).items()}
