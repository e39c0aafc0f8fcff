"""The base class of methods that move the examples of a dataset together, without a map."""

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Self

import torch
from torch import Tensor

from erasure.dataset import LabelledImages
from erasure.eraser import Eraser
from erasure.torch_modes import without_autocast
from erasure.zscore import Preprocessing


class TransductiveEraser(Eraser):
    """A method that moves all examples of a call together, towards targets fitted from class moments.

    There is no map to save, or to apply to other examples. The splits of a dataset are moved together. A small split
    alone would need a larger edit, and a validation split that is edited more than the training split ends trainings
    too early.
    """

    uses_labels: ClassVar[bool] = True
    transductive: ClassVar[bool] = True

    @abstractmethod
    def erase_together(self, x: Tensor, z: Tensor) -> Tensor:
        """Return examples [n, d] with labels [n] erased, in the dtype of `x`."""

    def on_scale(self, preprocessing: Preprocessing) -> Self:  # noqa: ARG002, an override may use it
        """Return the eraser with its options converted from pixels in 0..1 to the scale of erasure."""
        return self

    def require_orders(self, erased: Tensor, z: Tensor) -> None:
        """Raise BrokenGuaranteeError unless examples that were erased together have the promised class moments."""

    def erase_splits(
        self, splits: Mapping[str, LabelledImages], preprocessing: Preprocessing, dtype: torch.dtype
    ) -> dict[str, Tensor]:
        images = preprocessing.rounded(*(part.images for part in splits.values()))
        labels = torch.cat([part.labels for part in splits.values()])
        erased = self.on_scale(preprocessing)._erase(images.flatten(1), labels).reshape(images.shape).to(dtype)
        self.require_orders(erased, labels)
        return dict(zip(splits, erased.split([len(part) for part in splits.values()]), strict=True))

    def save(self, path: Path | str) -> None:  # noqa: ARG002
        """Raise ValueError, because there is no map to save."""
        raise ValueError(f"{type(self).__name__} has no map to store: save the erased examples")

    def transform(self, x: Tensor, z: Tensor | None) -> Tensor:
        """Raise NotImplementedError, because there is no map."""
        raise NotImplementedError("transductive: call the eraser on all examples at once")

    @without_autocast
    def _erase(self, flat: Tensor, z: Tensor | None) -> Tensor:
        assert z is not None
        return self.erase_together(flat.detach(), z)
