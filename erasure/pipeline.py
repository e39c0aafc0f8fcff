"""From a named dataset to an erased, certified, cached one: load, split, fit, apply, certify, store."""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from erasure.certificate import (
    Certificate,
    class_certificate,
    edit_size,
    out_of_range,
    require_erased,
    whitening_of,
)
from erasure.code_identity import code_identity
from erasure.dataset import LabelledImages, Source
from erasure.eraser import Eraser
from erasure.few_examples import few_examples
from erasure.fitting_device import fitting_device
from erasure.image_cache import file_name, packed, raw_images, unpacked
from erasure.large_offsets import require_precision
from erasure.moments import ClassMoments
from erasure.order_spectra import Whitening
from erasure.progress import shown_progress
from erasure.splits import splits
from erasure.store.cache import Cache, Entry
from erasure.store.checked_files import digest, fingerprint
from erasure.threads import threads_for
from erasure.zscore import Preprocessing, Scaling

log = logging.getLogger(__name__)

ERASURE_VERSION = 3  # raise it when the same configuration gives other numbers, so that old entries are not used


@dataclass(frozen=True)
class ErasedDataset:
    """An erased dataset, ready to train on.

    Attributes:
        splits: "train", "validation", "test", and "apart" for training examples left out of the fit. Images have the
            stored floating dtype, before standardisation: on the scale of 0..1, or z-scored.
        class_names: one per label.
        certificate: one per split.
        channel_mean: of the training images before erasure, [C]: every eraser's data is standardised alike.
        channel_std: the same for the standard deviation.
        scaling: from pixels in 0..1 to the scale of `splits`; None if that is the same.
    """

    splits: Mapping[str, LabelledImages]
    class_names: tuple[str, ...]
    certificate: Mapping[str, Certificate]
    channel_mean: Tensor
    channel_std: Tensor
    scaling: Scaling | None = None

    @property
    def example_shape(self) -> tuple[int, int, int]:
        """(C, H, W) for images, (d, 1, 1) for vectors."""
        c, h, w = self.splits["train"].images.shape[1:]
        return c, h, w

    @property
    def dim(self) -> int:
        """Number of values of an example."""
        return math.prod(self.example_shape)

    @property
    def smallest_class(self) -> int:
        """Number of training examples of the smallest class."""
        return int(self.splits["train"].labels.bincount().min())

    def pixels(self, images: Tensor) -> Tensor:
        """Return images [n, C, H, W] of `splits` on the scale 0..1, for display; erased ones may lie outside."""
        return images if self.scaling is None else self.scaling.undo(images)


def erased_dataset(
    source: Source,
    eraser: type[Eraser],
    options: Mapping[str, Any],
    *,
    dtype: torch.dtype,
    cache: Cache,
    left_out: Tensor | None = None,
    device: torch.device | str = "cpu",
) -> ErasedDataset:
    """Return a source's splits erased by `eraser`, with certificates: from the cache, or computed and cached.

    The eraser is fitted on the training split and applied to every split. Label-dependent erasers use the true labels
    of held-out data as well: that is how the paper sees backfiring in the validation loss.

    Args:
        source: the dataset.
        eraser: its class.
        options: keyword arguments of its fit.
        dtype: dtype of the stored images.
        cache: where erased datasets are stored.
        left_out: positions of training examples to leave out of the fit; they become the split "apart".
        device: where moments, erasers and certificates are computed, if they fit there; images stay on the CPU and
            are copied to the device in blocks.

    Raises:
        ValueError: the dataset is missing or cannot be erased, or memory is short.
        BrokenGuaranteeError: the erased training split does not have the moments that the eraser promises.
    """
    request = _Request(source, eraser, options, dtype, left_out)
    built = False

    def build() -> Entry:
        nonlocal built
        built = True
        return _build(request, cache, torch.device(device))

    with shown_progress():
        tensors, metadata = cache.fetch(request.key, build)
    parts = unpacked(tensors, metadata["certificate"])
    if not built:
        _warn_of_few(request, parts["train"])
    return ErasedDataset(
        splits=parts,
        class_names=tuple(metadata["class_names"]),
        certificate={name: Certificate(**values) for name, values in metadata["certificate"].items()},
        channel_mean=tensors["channel_mean"],
        channel_std=tensors["channel_std"],
        scaling=Scaling(tensors["scale"], tensors["shift"]) if "scale" in tensors else None,
    )


@dataclass(frozen=True)
class _Request:
    """An erased dataset to be built; see `erased_dataset`."""

    source: Source
    eraser: type[Eraser]
    options: Mapping[str, Any]
    dtype: torch.dtype
    left_out: Tensor | None

    @property
    def key(self) -> str:
        described = {
            "dataset": {key: value for key, value in self.source.identity().items() if key not in {"name", "flip"}},
            "eraser": code_identity(self.eraser),
            "options": dict(self.options),
            "dtype": str(self.dtype),
            "version": ERASURE_VERSION,
            **({} if self.left_out is None else {"apart": digest(self.left_out)}),
        }
        return f"{file_name(self.source.name)}-{self.eraser.__name__}-{fingerprint(described)}"


def _build(request: _Request, cache: Cache, device: torch.device) -> Entry:
    raw = raw_images(request.source, cache)
    n, d, k = len(raw.train), raw.train.images[0].numel(), len(raw.class_names)
    parts = splits(request.source, raw)
    names, max_value, bounded = raw.class_names, raw.max_value, raw.bounded
    del raw  # the parts are copies
    if request.left_out is not None:
        mask = torch.ones(len(parts["train"]), dtype=torch.bool)
        mask[request.left_out] = False
        parts |= {"train": parts["train"][mask], "apart": parts["train"][request.left_out]}
    _warn_of_few(request, parts["train"])
    device = fitting_device(request.eraser, d, k, device)
    pixels = Preprocessing(max_value, bounded, torch.promote_types(request.dtype, torch.float32), device)
    with threads_for(n * d**2 + k * d**3):  # class covariances, and their decompositions
        return _erase(request, parts, names, pixels)


def _erase(
    request: _Request, parts: Mapping[str, LabelledImages], names: Sequence[str], pixels: Preprocessing
) -> Entry:
    """Fit to the training split, the first of the parts; erase every part, and certify it."""
    fit = _fitted(request, parts["train"], names, pixels)
    seen = [parts[name].images for name in ("train", "apart") if name in parts]
    tensors = channel_statistics(fit.preprocessing.rounded(*seen))
    erased = fit.eraser.erase_splits(parts, fit.preprocessing, request.dtype)
    certificates, whitening = dict[str, Certificate](), None
    for name, part in parts.items():
        tensors |= packed({name: LabelledImages(erased[name], part.labels)})
        certificates[name], whitening = _certified(fit, part, erased[name], len(names), whitening)
    require_erased(certificates["train"], fit.eraser.erased_order, request.eraser.__name__)
    if (scaling := fit.preprocessing.scaling) is not None:
        tensors |= {"scale": scaling.scale, "shift": scaling.shift}
    described = {name: asdict(certificate) for name, certificate in certificates.items()}
    return tensors, {"class_names": list(names), "certificate": described}


@dataclass(frozen=True)
class _Fit:
    """An eraser, the preprocessing of what it erases, and what certificates need of the training split's moments."""

    eraser: Eraser
    preprocessing: Preprocessing
    mean: Tensor  # m̄, [d]
    total: Tensor  # Σ_xx, [d, d]


def _fitted(request: _Request, train: LabelledImages, names: Sequence[str], pixels: Preprocessing) -> _Fit:
    """Fit to the training split; its class covariances, the most memory of all, are dropped afterwards."""
    source, kind = request.source, request.eraser
    moments, scaling = _statistics(source, train, names, pixels, request.dtype)
    preprocessing = replace(pixels, scaling=scaling)
    log.info("fitting %s on %d examples of %s", kind.__name__, moments.n, source.name)
    if kind.needs_examples():
        eraser = kind.fit_examples(preprocessing.rounded(train.images), train.labels, moments, **request.options)
    else:
        eraser = kind.fit_moments(moments, **request.options)
    return _Fit(eraser, preprocessing, moments.mean, moments.total)


def _certified(
    fit: _Fit, part: LabelledImages, erased: Tensor, num_classes: int, whitening: Whitening | None
) -> tuple[Certificate, Whitening | None]:
    """Return the certificate of a part, and the whitening of the first part, if it is not passed."""
    rows = erased.flatten(1)
    edit = edit_size(fit.preprocessing.batches(part.images), rows, fit.total)
    # The ends of the range are rounded like the images: otherwise a black pixel could lie outside by a rounding error.
    outside = out_of_range(erased, *fit.preprocessing.ends(part.images.shape[1:]).to(erased.dtype).split(1))
    after = ClassMoments.fit(erased, part.labels, num_classes=num_classes, device=fit.preprocessing.device)
    whitening = whitening or whitening_of(after)
    certificate = class_certificate(
        rows,
        part.labels,
        after,
        mean=fit.mean,
        total=fit.total,
        edit=edit,
        outside=outside,
        whitening=whitening,
    )
    return certificate, whitening


def _warn_of_few(request: _Request, train: LabelledImages) -> None:
    """Warn of training images that are too few for the eraser, with what to do about it."""
    shape, order, smallest = train.images.shape[1:], request.eraser.erased_order, int(train.labels.bincount().min())
    if said := few_examples(len(train), smallest, shape.numel(), order):
        enough = math.isqrt(
            ((smallest if order >= 2 else len(train)) - 1) // shape[0]
        )  # side of images of fewer values
        sized = f"smaller images (dataset.size={enough}) or " if hasattr(request.source, "size") and enough >= 4 else ""
        log.warning("%s; take %smore of them", said, sized)


def _statistics(
    source: Source, train: LabelledImages, names: Sequence[str], pixels: Preprocessing, dtype: torch.dtype
) -> tuple[ClassMoments, Scaling | None]:
    """Return class moments of the training images on the scale of erasure, and the scaling to it from 0..1."""
    if (k := len(names)) < 2:
        raise ValueError(
            f"dataset {source.name} has {k} class: there is no class information to erase, need at least 2"
        )
    moments = ClassMoments.fit(train.images, train.labels, num_classes=k, device=pixels.device)
    moments.require_examples(names)
    if not train.images.is_floating_point():
        moments.rescale(1 / pixels.max_value)  # after the fit, which is exact on 8-bit integers
    scaling = Scaling.zscore(train.images, moments) if source.normalize == "zscore" else None
    if not pixels.bounded:
        again = "subtract each column's mean in float64 and write the file again"
        require_precision(train.images, moments, train.images.dtype, again)
    if scaling is not None:
        moments.rescale(scaling.scale.flatten(), scaling.shift.flatten())
    if not pixels.bounded:
        require_precision(train.images, moments, dtype, "set normalize=zscore, or subtract each column's mean")
    return moments, scaling


def channel_statistics(images: Tensor) -> dict[str, Tensor]:
    """Compute each channel's mean and standard deviation; 1 for a constant channel, which is then only centred."""
    channels = images.transpose(0, 1).flatten(1).double()
    std = channels.std(1)
    low, high = channels.aminmax(dim=1)
    rounding = torch.finfo(images.dtype).eps * torch.maximum(-low, high)
    return {"channel_mean": channels.mean(1), "channel_std": torch.where(std > rounding, std, 1.0)}
