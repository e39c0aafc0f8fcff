"""The base class of erasers: maps of examples, fitted from class moments, that keep shape and dtype."""

import copy
import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from erasure.concept_moments import ConceptMoments, columns, moments_of
from erasure.dataset import LabelledImages
from erasure.eraser_files import load_eraser, save_eraser
from erasure.few_examples import warned_of_few
from erasure.inputs import (
    FLOATING,
    Array,
    as_array,
    as_tensor,
    by_rows,
    check_batch,
    leading_shape,
    require_same_rows,
)
from erasure.moments import ClassMoments
from erasure.torch_modes import ordinary_tensors, without_autocast
from erasure.zscore import Preprocessing


class Eraser(ABC):
    """A fitted map x -> x' that removes class information. Subclasses are frozen dataclasses of tensors.

    The annotation of a field, such as `left: Annotated[Tensor, "d r"]`, states the shape of its tensor, and `load`
    checks the shape. There d is the number of coordinates and k the number of classes. Any other letter stands for one
    size wherever it occurs.

    docs/methods/index.md lists the erasers of this package with their theorems.

    Attributes:
        uses_labels: whether the map depends on the label z, which must then be passed with held-out data as well.
        erased_order: highest order of class moments that the eraser makes equal on the data it was fitted to (0 none,
            1 means, 2 means and covariances). The certificate checks it.
        version: version of the computed numbers, part of cache keys and run ids; raise it when numbers change. A
            subclass without one is identified by its source (`erasure.code_identity`).
        transductive: whether all examples of a dataset are erased at once, without a map (`TransductiveEraser`).
        any_concept: whether the fit needs only the mean, Σ_xx and Σ_xz. The concept may then be anything that
            `ConceptMoments` takes, and pooled moments are enough for classes.
        concepts: name and number of columns of each concept that is passed as z; empty for classes.
        mean: global mean m̄ of the data it was fitted on, [d] float64.
        num_classes: k; None after fitting to a concept without classes.

    Example:
        A user's eraser that removes only the overall mean:

        >>> import torch
        >>> from dataclasses import dataclass
        >>> from erasure import Eraser
        >>> @dataclass(frozen=True, repr=False)
        ... class Centred(Eraser):
        ...     mean: torch.Tensor
        ...     num_classes: int
        ...     @classmethod
        ...     def from_moments(cls, moments):
        ...         return cls(moments.mean, moments.num_classes)
        ...     def transform(self, x, z):
        ...         return x - self.mean
        >>> x, z = torch.randn(20, 3), torch.arange(20) % 2
        >>> abs(float(Centred.fit(x, z)(x).mean())) < 1e-6
        True
    """

    uses_labels: ClassVar[bool] = False
    erased_order: ClassVar[int] = 0
    version: ClassVar[int]
    transductive: ClassVar[bool] = False
    any_concept: ClassVar[bool] = False
    concepts: tuple[tuple[str, int], ...] = ()
    mean: Tensor
    num_classes: Any  # int; None for a concept without classes

    @classmethod
    @abstractmethod
    def from_moments(cls, moments: ClassMoments) -> Self:
        """Fit from class moments of the data to erase. Options are keyword-only."""

    @classmethod  # noqa: B027 most erasers have no option that could be out of range
    def require_options(cls, **options: Any) -> None:
        """Raise ValueError for options of the fit that are out of range for any data; called before data is loaded."""

    @classmethod
    def unread_options(cls, options: Mapping[str, Any]) -> Mapping[str, str]:  # noqa: ARG003, an override may use them
        """Return options that have no effect under the other options, each with the setting or kind that reads it."""
        return {}

    @classmethod
    @without_autocast
    def fit(cls, x: Array, z: Any, *, num_classes: int | None = None, dim: int | None = None, **options: Any) -> Self:
        """Fit on examples.

        The logger `erasure` warns of too few examples for erasure to hold on other data (`erasure.few_examples`).

        Args:
            x: tensor or array, whole examples [n, ...] or vectors [..., d].
            z: labels as `ClassMoments.fit` takes them. LEACE, oracle LEACE and SPLINCE erase any concept that
                `ConceptMoments` takes.
            num_classes: k; the largest label plus one by default.
            dim: values per example; all of x[0] by default.
            options: options of the eraser, the keyword arguments of `from_moments`.

        Raises:
            ValueError: invalid examples, labels or options, or a concept without classes for an eraser that needs
                classes.
        """
        require_known(cls, options)
        moments = moments_of(x, z, num_classes=num_classes, dim=dim, pooled=cls.any_concept)
        warned_of_few(cls, moments)
        if isinstance(moments, ConceptMoments) or not cls.needs_examples():
            return cls.fit_moments(moments, **options)
        rows, labels = check_batch(x, z, moments.dim, moments.num_classes)
        assert labels is not None
        return cls.fit_examples(rows.detach(), labels, moments, **options)

    @classmethod
    def fit_examples(cls, x: Tensor, z: Tensor, moments: ClassMoments, **options: Any) -> Self:  # noqa: ARG003
        """Fit from moments alone, unless a subclass also reads the examples.

        Args:
            x: examples in the form in which they are erased, floating, [n, ...].
            z: labels, [n].
            moments: moments of these examples; the fit computes on their device.
            options: options of the eraser.
        """
        return cls.fit_moments(moments, **options)

    @classmethod
    def needs_examples(cls) -> bool:
        """Return whether fitting reads examples as well as moments, as in classes that override `fit_examples`."""
        return cls.fit_examples.__func__ is not Eraser.fit_examples.__func__

    @classmethod
    @without_autocast
    def fit_moments(cls, moments: ClassMoments | ConceptMoments, **options: Any) -> Self:
        """Fit from moments, after checks of the options, and of what a user's subclass returns."""
        require_known(cls, options)
        if isinstance(moments, ConceptMoments) and not cls.any_concept:
            raise ValueError(
                f"{cls.__name__} needs classes, and z holds none: give one integer per example; only LeaceEraser, "
                "OracleLeaceEraser and SplinceEraser erase real numbers and several labels"
            )
        eraser = cls.from_moments(moments, **options)  # pyright: ignore[reportArgumentType] as `any_concept` says
        _require_fields(eraser, cls, moments)
        return eraser

    @classmethod
    def fitting_bytes(cls, dim: int, num_classes: int) -> float:
        """Return the memory in bytes for fitting and certifying, including the class moments."""
        return (num_classes + max(num_classes + 2, cls.matrices(num_classes))) * 8.0 * dim**2

    @classmethod
    def matrices(cls, num_classes: int) -> float:  # noqa: ARG003 most keep none per class
        """Return the measured number of [d, d] matrices that fitting needs at its peak, without the moments."""
        return 6.0

    def __post_init__(self) -> None:
        """Make tensors that were fitted in `torch.inference_mode` usable outside of it."""
        with ordinary_tensors():
            for name, value in vars(self).items():
                if isinstance(value, Tensor) and value.is_inference():
                    vars(self)[name] = value.clone()

    def __call__(self, x: Array, z: Any = None) -> Array:
        """Erase `x`, a floating tensor or array, and return the same kind, shape, dtype and device.

        Lists and data frames give arrays.

        The map is computed in the precision of the eraser, float64 unless `to` has changed it, and gradients pass
        through it. Erasers that optimise examples use the precision of the examples, at least float32.

        Args:
            x: whole examples [n, ...], or vectors [..., d] such as hidden states [batch, tokens, d] or a single row.
            z: labels, for erasers that use them; see `check_batch`.

        Raises:
            ValueError: a wrong shape, integer or complex `x`, labels missing or out of range, or a subclass whose map
                does not keep the shape.
        """
        require_same_rows(x, z)
        values = as_tensor(x, "x", gradients=True)
        rows, labels = self._rows(values, z)
        if not rows.is_floating_point():
            raise ValueError(f"x has dtype {rows.dtype}: erased values are not integers, convert it to float first")
        if self.uses_labels and labels is None:
            raise ValueError(
                f"{type(self).__name__} maps each class differently: pass the labels z as well; "
                "without labels: LeaceEraser or AlfQleaceEraser"
            )
        erased = self._erase(rows, labels).reshape(values.shape)
        if isinstance(x, Tensor):
            return erased
        return as_array(erased, "x")  # pyright: ignore[reportReturnType] as x is

    def _rows(self, x: Tensor, z: Any) -> tuple[Tensor, Tensor | None]:
        """Return examples as rows, with their labels [n] or the columns of their concepts [n, m], or None."""
        dim = self.mean.numel()
        if self.num_classes is not None:
            return check_batch(x, z, dim, self.num_classes)
        leading = leading_shape(x, dim)
        known = z is not None and self.uses_labels
        return x.reshape(-1, dim), columns(z, leading, dict(self.concepts)) if known else None

    @without_autocast
    def _erase(self, flat: Tensor, z: Tensor | None) -> Tensor:
        """Return examples [n, d] erased, without the checks of a call."""
        labels = (
            z.to(self.mean.device) if self.uses_labels and z is not None else None
        )  # other erasers do not see labels

        def moved(rows: slice) -> Tensor:
            batch = flat[rows].to(self.mean)
            result = self.transform(batch, None if labels is None else labels[rows])
            if result.shape != batch.shape:
                raise ValueError(
                    f"{type(self).__name__}.transform made {list(result.shape)} of {list(batch.shape)}: keep the shape"
                )
            return result

        return by_rows(moved, torch.empty_like(flat))

    def erase_splits(
        self, splits: Mapping[str, LabelledImages], preprocessing: Preprocessing, dtype: torch.dtype
    ) -> dict[str, Tensor]:
        """Return the erased images [n, ...] of every split of a dataset, rounded once to `dtype`.

        Args:
            splits: images as they are stored, before erasure.
            preprocessing: conversion to the scale of erasure.
            dtype: dtype of the result.
        """
        return {
            name: by_rows(
                lambda rows, part=part: self._erase(
                    preprocessing.exact(part.images[rows]).flatten(1), part.labels[rows]
                ),
                torch.empty(len(part), self.mean.numel(), dtype=dtype),
            ).reshape(part.images.shape)
            for name, part in splits.items()
        }

    @ordinary_tensors()
    def to(
        self,
        device: torch.device | str | torch.dtype | None = None,
        dtype: torch.dtype | torch.device | str | None = None,
    ) -> Self:
        """Return a copy with its tensors on `device`, and floating tensors in `dtype`, the precision of its map.

        The arguments may come in either order, as in `eraser.to(torch.float32)`.

        Raises:
            ValueError: two devices or two dtypes, or a dtype that is not floating.
        """
        where, kind = (dtype, device) if isinstance(device, torch.dtype) else (device, dtype)
        if isinstance(where, torch.dtype) or isinstance(kind, torch.device | str) or kind not in (None, *FLOATING):
            allowed = ", ".join(map(str, FLOATING))
            raise ValueError(f"to({device}, {dtype}): give at most a device and one dtype of {allowed}")
        other = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, Eraser):
                vars(other)[name] = value.to(where, kind)
            elif isinstance(value, Tensor):
                vars(other)[name] = value.to(device=where, dtype=kind if value.is_floating_point() else None)
        return other

    def state_dict(self) -> dict[str, Tensor]:
        """Return the tensors by name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}

    def save(self, path: Path | str) -> None:
        """Write the fields, tensors and options, to a safetensors file with a checksum.

        Raises:
            ValueError: there is no map, or the eraser has an attribute that is not a field of its dataclass.
        """
        save_eraser(self, Path(path))

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Load an eraser that `save` has written.

        Call it on `Eraser` or on the class of the eraser. Only tensors and JSON are read.

        Raises:
            ValueError: the file is damaged, holds no eraser or one of another class (import it first), or lacks a field
                of the type and shape that the dataclass declares.
        """
        return load_eraser(cls, Path(path))

    def __repr__(self) -> str:
        shown = {"d": self.mean.numel(), "k": self.num_classes, "erased_order": self.erased_order}
        shown = {key: value for key, value in shown.items() if value is not None}
        shown |= {k: v for k, v in vars(self).items() if isinstance(v, int | float) and k != "num_classes"}
        shown |= {"removed": removed} if (removed := getattr(self, "removed", None)) is not None else {}
        return f"{type(self).__name__}({', '.join(f'{key}={value}' for key, value in shown.items())})"

    @abstractmethod
    def transform(self, x: Tensor, z: Tensor | None) -> Tensor:
        """Apply the map, [n, d] float64 -> [n, d] float64 on the eraser's device; `z` is None unless `uses_labels`."""


def _require_fields(eraser: Any, kind: type[Eraser], moments: ClassMoments | ConceptMoments) -> None:
    """Raise ValueError unless a class that a user wrote was fitted to the mean and classes of the moments."""
    k = None if isinstance(moments, ConceptMoments) else moments.num_classes
    mean = getattr(eraser, "mean", None)
    if not (isinstance(eraser, kind) and isinstance(mean, Tensor) and mean.shape == (moments.dim,)) or (
        getattr(eraser, "num_classes", 0) != k
    ):
        raise ValueError(
            f"{kind.__name__}.from_moments: return an instance of the class, a dataclass with the fields mean: Tensor "
            "and num_classes: int, as moments.mean and moments.num_classes"
        )


@functools.cache
def options_of(kind: type[Eraser]) -> frozenset[str]:
    """Return the names of the options that fitting an eraser takes."""
    known = set[str]()
    for function in (kind.fit_examples, kind.from_moments, kind):  # until one does not pass its options on
        parameters = inspect.signature(function).parameters.values()
        known = {one.name for one in parameters if one.kind is one.KEYWORD_ONLY}
        if not any(one.kind is one.VAR_KEYWORD for one in parameters):
            break
    return frozenset(known)


def require_known(kind: type[Eraser], options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return options of the fit of an eraser; raise ValueError for one that it does not take."""
    if unknown := options.keys() - (known := options_of(kind)):
        has = f"it has {', '.join(sorted(known))}" if known else "it has none"
        raise ValueError(f"{min(unknown)} is not an option of {kind.__name__}: {has}")
    return options
